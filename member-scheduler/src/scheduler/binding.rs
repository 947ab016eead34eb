//! A decision to bind a pod, with what is to be asked and written along with it.

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
    /// Parts of the node's cards that go with it.
    pub devices: Option<Box<Assigned>>,
    /// Annotations of its place, where that is of cells.
    pub marks: Option<Arc<BTreeMap<String, String>>>,
    /// Whom to ask first whether the pod may go there.
    pub check: Option<Arc<Check>>,
}

/// Whether one pod may go to its node.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Check {
    pub policy: ExtenderPolicy,
    pub task: Value,
    pub node: Value,
    pub job: Value,
}
