//! The writes of a plan.
//!
//! A write has a target and content, and no condition: the plan has decided. Not here: how it is sent.

use serde_json::Value;

use crate::kinds::KindRef;

/// The object of a write.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Target {
    Binding,
    Unit,
    Queue,
    Tree,
    CellConfiguration,
    VirtualCluster,
    Cluster,
    Reservation,
    Work,
    Namespace,
    Event,
    /// The lease of a cluster's agent, for the mark of loss.
    Lease,
    Policy,
    ClusterPolicy,
    Object(KindRef),
}

/// The kind of write.
#[derive(Clone, Debug)]
pub enum Verb {
    Create(Value),
    /// A JSON merge patch; a compare-and-swap if it has `metadata.resourceVersion`.
    Merge(Value),
    MergeStatus(Value),
    /// A JSON patch; a compare-and-swap if it has `test` operations.
    Patch(Value),
    Delete {
        uid: String,
    },
}

/// One write.
#[derive(Clone, Debug)]
pub struct Write {
    pub target: Target,
    pub namespace: String,
    /// Empty for a create with a generated name.
    pub name: String,
    pub verb: Verb,
    /// Writes to make after this one has succeeded, such as the event about it.
    pub then: Vec<Write>,
}

impl Write {
    pub fn new(target: Target, namespace: &str, name: &str, verb: Verb) -> Self {
        Self { target, namespace: namespace.to_string(), name: name.to_string(), verb, then: Vec::new() }
    }

    pub fn then(mut self, next: impl IntoIterator<Item = Write>) -> Self {
        self.then.extend(next);
        self
    }
}
