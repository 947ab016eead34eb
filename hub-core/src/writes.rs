//! The writes a plan asks for.
//!
//! A write says what and where, never why or whether: the plan decided. Deliberately absent: how it is sent.

use serde_json::Value;

use crate::kinds::KindRef;

/// What is written to.
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

/// How it is written.
#[derive(Clone, Debug)]
pub enum Verb {
    Create(Value),
    /// A JSON merge patch; with `metadata.resourceVersion` in it, a compare-and-swap.
    Merge(Value),
    MergeStatus(Value),
    /// A JSON patch; with `test` operations in it, a compare-and-swap on what they name.
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
    /// Written once this one has succeeded, for instance the event that tells of it.
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
