//! The scheduler: the cache of the cluster, and the rules by which it is read.
//!
//! A move can be undone ([`statements`]); nothing is copied for a search. Deliberately absent: clocks, IO.

mod cards;
mod loads;
mod look;
mod problems;
mod statements;
mod waits;

use std::ops::{Deref, DerefMut};

use crate::config::Policy;
use crate::ids::{NodeId, PodId};
use crate::index::ClassIndex;
use crate::pod::Status;
use crate::state::State;

/// A [`State`] under a [`Policy`]. It reads like the state that it has.
#[derive(Debug)]
pub struct Cluster {
    pub(crate) state: State,
    pub policy: Policy,
    pub(crate) indexes: Vec<Option<Box<ClassIndex>>>,
    pub(crate) index_uses: u64,
    /// When the first group that waits for admission has waited for its time (plugin sla).
    pub(crate) next_due: Option<i64>,
    /// Moves since a statement began, oldest first.
    undo: Vec<(PodId, Status, Option<NodeId>)>,
    recording: bool,
}

impl Deref for Cluster {
    type Target = State;

    fn deref(&self) -> &State {
        &self.state
    }
}

impl DerefMut for Cluster {
    fn deref_mut(&mut self) -> &mut State {
        &mut self.state
    }
}

impl Cluster {
    pub fn new(policy: Policy) -> Self {
        let mut cluster = Self {
            state: State::default(),
            policy: Policy::default(),
            indexes: Vec::new(),
            index_uses: 0,
            next_due: None,
            undo: Vec::new(),
            recording: false,
        };
        cluster.set_policy(policy);
        cluster
    }

    /// Sets another policy: everything refused is considered again.
    pub fn set_policy(&mut self, policy: Policy) {
        self.shares_follow_pods = policy.queues.proportion;
        self.policy = policy;
        self.indexes.iter_mut().for_each(|index| *index = None);
        self.shares_stale = true;
        self.fair.restructure = true;
        self.freed();
        for id in self.group_list() {
            self.mark(id);
        }
    }

    /// Updates a pod as the API server reports it. While a binding is in flight, its place is kept.
    pub fn update_pod(&mut self, id: PodId, status: Status, node: Option<&str>) {
        let node = node.map(|name| self.state.nodes.intern(name));
        let before = self.pod(id);
        let frees = before.node.is_some()
            && (before.node != node
                || (before.status.uses_node() && !status.uses_node())
                || status == Status::Releasing);
        self.placed += u64::from(status.is_allocated() && before.status != status);
        let before = self.pod(id);
        let wakes = before.status == Status::Gated && status == Status::Pending;
        self.set_place(id, status, node);
        if frees || wakes {
            self.freed();
        }
    }
}
