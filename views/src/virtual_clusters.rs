//! Virtual clusters: what each is promised, uses, lends and borrows, in leaf cells.

use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    bars::{Bar, bar},
    facts::VirtualClusterFacts,
    known::Known,
    sight::Sight,
};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VirtualClusterRow {
    pub name: String,
    /// What it uses of its promise, and lends; what it borrows is beside it.
    pub bar: Bar,
    /// The greatest share of GPUs, CPUs and memory in use, of what is promised and good.
    pub allocation: String,
    /// Used of those promised and good; CPUs and memory likewise.
    pub gpu: String,
    pub cpu: String,
    pub memory: String,
    pub lent: i64,
    pub borrowed: i64,
    pub bad: i64,
    pub waiting: i64,
    pub running: i64,
}

pub fn virtual_cluster(facts: &VirtualClusterFacts) -> VirtualClusterRow {
    VirtualClusterRow {
        name: facts.name.clone(),
        bar: bar("cells", facts.used, Some(facts.guaranteed), Some(facts.guaranteed), facts.lent),
        allocation: facts.allocation.clone(),
        gpu: facts.gpu.clone(),
        cpu: facts.cpu.clone(),
        memory: facts.memory.clone(),
        lent: facts.lent,
        borrowed: facts.borrowed,
        bad: facts.bad,
        waiting: facts.waiting,
        running: facts.running,
    }
}

/// Every virtual cluster by name; none for a viewer who may not list them.
pub fn virtual_clusters(known: &Known, sight: &Sight) -> Vec<VirtualClusterRow> {
    if !sight.virtual_clusters {
        return Vec::new();
    }
    known.virtual_clusters().values().map(virtual_cluster).collect()
}
