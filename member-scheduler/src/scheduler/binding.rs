//! A decision to bind a pod, with the required checks and writes.

use std::{collections::BTreeMap, sync::Arc};

use fleet_member_state::{PodKey, devices::Assigned};
use fleet_scheduler::plugins::extender::Extender as ExtenderPolicy;
use serde_json::Value;

/// One pod and its node.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Binding {
    pub pod: PodKey,
    pub uid: String,
    pub node: String,
    pub scheduler_name: String,
    /// Parts of the node's devices that the pod gets.
    pub devices: Option<Box<Assigned>>,
    /// Annotations of its cells, if it has any.
    pub marks: Option<Arc<BTreeMap<String, String>>>,
    /// The extender to ask first whether the pod may be bound.
    pub check: Option<Arc<Check>>,
}

/// A request whether one pod may be bound to its node.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Check {
    pub policy: ExtenderPolicy,
    pub task: Value,
    pub node: Value,
    pub job: Value,
}
