//! Statements: moves that can be undone, newest first.

use std::collections::{BTreeMap, BTreeSet};

use super::Cluster;
use crate::ids::{NodeId, PodId};
use crate::pod::Status;

impl Cluster {
    /// Moves a pod. Every sum follows; while a statement is open, the move can be undone.
    pub(crate) fn set_place(&mut self, id: PodId, status: Status, node: Option<NodeId>) {
        let (old_status, old_node) = {
            let pod = self.state.pod(id);
            (pod.status, pod.node)
        };
        if (old_status, old_node) == (status, node) {
            return;
        }
        if self.recording {
            self.undo.push((id, old_status, old_node));
        }
        // What a pod has on its node stays as long as the pod stays there.
        let reserved = (old_node != node).then(|| self.policy.plugins.reserve(&self.state, id, status, node));
        self.state.move_pod(id, status, node, reserved);
    }

    /// Begins a statement: moves can be undone from here on.
    pub(crate) fn begin(&mut self) {
        self.undo.clear();
        self.recording = true;
    }

    pub(crate) fn mark_point(&self) -> usize {
        self.undo.len()
    }

    /// Undoes the moves since `point`, newest first.
    pub(crate) fn rollback(&mut self, point: usize) {
        self.recording = false;
        while self.undo.len() > point {
            if let Some((id, status, node)) = self.undo.pop() {
                self.set_place(id, status, node);
            }
        }
        self.recording = true;
    }

    /// Keeps the moves of the statement; returns each moved pod once.
    pub(crate) fn commit(&mut self) -> BTreeSet<PodId> {
        self.recording = false;
        std::mem::take(&mut self.undo).into_iter().map(|(id, ..)| id).collect()
    }

    /// Pods moved since the statement began, each once.
    pub(crate) fn moved(&self) -> BTreeSet<PodId> {
        self.undo.iter().map(|(id, ..)| *id).collect()
    }

    /// A pod's status before it was first moved after `point`.
    pub(crate) fn status_before(&self, pod: PodId, point: usize) -> Status {
        let first = self.undo[point.min(self.undo.len())..].iter().find(|(id, ..)| *id == pod);
        first.map_or(self.pod(pod).status, |(_, status, _)| *status)
    }

    /// The status of each moved pod before the statement began.
    pub(crate) fn statuses_before(&self) -> BTreeMap<PodId, Status> {
        self.undo.iter().rev().map(|(id, status, _)| (*id, *status)).collect()
    }
}
