//! What happened in a fleet: every change of a pod in the members and of a binding on the hub, in the order
//! in which one observer saw it.

use std::sync::Arc;

use serde_json::Value;

/// One change.
#[derive(Clone, Debug)]
pub struct ObservedChange {
    /// The member, or `None` for the hub.
    pub cluster: Option<String>,
    pub object: Arc<Value>,
    pub gone: bool,
}

/// All changes so far.
#[derive(Clone, Debug, Default)]
pub struct History {
    pub changes: Vec<ObservedChange>,
}

impl History {
    /// Names of bindings in the order in which they were first bound.
    pub fn bound_in_order(&self) -> Vec<String> {
        let mut order: Vec<String> = Vec::new();
        for change in self.changes.iter().filter(|change| change.cluster.is_none() && !change.gone) {
            let name = change.object["metadata"]["name"].as_str().unwrap_or_default();
            let bound = change.object["spec"]["clusters"].as_array().is_some_and(|list| !list.is_empty());
            if bound && !order.iter().any(|known| known == name) {
                order.push(name.to_string());
            }
        }
        order
    }
}
