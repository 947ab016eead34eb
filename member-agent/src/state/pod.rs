//! A pod as the scheduler sees it.

use std::{collections::BTreeSet, sync::Arc};

use fleet_api::names;
use fleet_placement::PodShape;
use jiff::Timestamp;

use super::GangKey;
use crate::lean::LeanPod;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct PodKey {
    pub namespace: String,
    pub name: String,
}

impl PodKey {
    pub fn of(pod: &LeanPod) -> Self {
        let text = |field: &Option<String>| field.clone().unwrap_or_default();
        Self { namespace: text(&pod.metadata.namespace), name: text(&pod.metadata.name) }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PodEntry {
    pub uid: String,
    /// Its `schedulerName` is one this agent binds for.
    pub ours: bool,
    pub scheduler_name: String,
    pub node: Option<String>,
    /// Node of a binding that is under way.
    pub assumed: Option<String>,
    pub finished: bool,
    pub deleting: bool,
    pub gated: bool,
    pub shape: Arc<PodShape>,
    /// Why the shape cannot be read; such a pod is never bound.
    pub unreadable: Option<String>,
    pub gang: GangKey,
    pub gang_size: usize,
    pub component: String,
    /// Last `-` part of the name, when it is a number.
    pub index: Option<usize>,
    pub reservation: Option<String>,
    pub priority: i32,
    pub created: Option<Timestamp>,
    pub started: Option<Timestamp>,
    /// Why it waits, as its condition says.
    pub told: Option<String>,
}

impl PodEntry {
    /// `None` for a pod without a uid, which no API server sends.
    pub fn read(pod: &LeanPod, scheduler_names: &BTreeSet<String>) -> Option<Self> {
        let key = PodKey::of(pod);
        let meta = &pod.metadata;
        let annotation = |name: &str| meta.annotations.as_ref().and_then(|all| all.get(name));
        let label = |name: &str| meta.labels.as_ref().and_then(|all| all.get(name));
        let scheduler_name = pod.spec.scheduler_name.clone().unwrap_or_default();
        let (shape, unreadable) = match pod.spec.shape() {
            Ok(shape) => (shape, None),
            Err(error) => (PodShape::default(), Some(error.to_string())),
        };
        let size = annotation(names::GANG_SIZE_ANNOTATION).and_then(|size| size.parse().ok());
        let index = key.name.rsplit_once('-').and_then(|(_, index)| index.parse().ok());
        Some(Self {
            uid: meta.uid.clone()?,
            ours: scheduler_names.contains(&scheduler_name),
            scheduler_name,
            node: pod.spec.node_name.clone().filter(|node| !node.is_empty()),
            assumed: None,
            finished: matches!(pod.status.phase.as_deref(), Some("Succeeded" | "Failed")),
            deleting: meta.deletion_timestamp.is_some(),
            gated: !pod.spec.scheduling_gates.is_empty(),
            shape: Arc::new(shape),
            unreadable,
            gang: GangKey::new(&key, annotation(names::GANG_ANNOTATION).map(String::as_str)),
            gang_size: size.unwrap_or(1),
            component: label(names::COMPONENT_LABEL).cloned().unwrap_or_default(),
            index,
            reservation: annotation(names::RESERVATION_ANNOTATION).cloned(),
            priority: pod.spec.priority.unwrap_or(0),
            created: meta.creation_timestamp.as_ref().map(|time| time.0),
            started: pod.status.start_time.as_ref().map(|time| time.0),
            told: None,
        })
    }

    /// Keeps what the API server does not say.
    pub fn inherit(&mut self, known: &Self) {
        if self.node.is_none() {
            self.assumed.clone_from(&known.assumed);
            self.told.clone_from(&known.told);
        }
        if self.shape == known.shape {
            self.shape = known.shape.clone();
        }
    }

    /// Both carry the same amounts in the same place.
    pub fn counts_as(&self, other: &Self) -> bool {
        self.counted_on() == other.counted_on()
            && self.wants_node() == other.wants_node()
            && self.shape.requests == other.shape.requests
            && self.component == other.component
    }

    /// The node that carries the pod's requests.
    pub fn counted_on(&self) -> Option<&str> {
        if self.finished { None } else { self.node.as_deref().or(self.assumed.as_deref()) }
    }

    /// Not finished and without a node, whoever schedules it.
    pub fn wants_node(&self) -> bool {
        !self.finished && !self.deleting && self.counted_on().is_none()
    }

    /// Waits for this agent to bind it.
    pub fn is_pending(&self) -> bool {
        self.ours && !self.gated && self.wants_node()
    }
}
