//! The status of a VirtualCluster: the counts of `fleet-cells` in the terms of the API and of OpenPAI's page.

use std::collections::BTreeMap;

use fleet_cells::{
    VcStatus,
    config::{ClusterConfig, SkuType},
};
use fleet_resources::quantity;

use super::{
    ClassJobs, LeafCells, PromisedCells, VcAmounts, VcResources, VirtualClusterStatus, class::class_name,
};

const MIB: i64 = 1024 * 1024;

/// Jobs of one class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JobCounts {
    pub waiting: i64,
    pub running: i64,
}

/// The status of a virtual cluster, from the counts of `fleet-cells` and its jobs by class.
pub fn status(
    config: &ClusterConfig,
    cells: &VcStatus,
    jobs: &BTreeMap<i32, JobCounts>,
) -> VirtualClusterStatus {
    let leaf_cells: Vec<LeafCells> = cells
        .leaves
        .iter()
        .map(|(cell_type, leaves)| LeafCells {
            cell_type: cell_type.clone(),
            guaranteed: number(leaves.guaranteed),
            used: number(leaves.used),
            bad: number(leaves.bad),
            borrowed_out: number(leaves.borrowed_out),
            borrowed_in: number(leaves.borrowed_in),
        })
        .collect();
    let resources = resources(config, cells);
    let sum = |of: fn(&LeafCells) -> i64| leaf_cells.iter().map(of).sum();
    // A promise of nothing, as of CPUs without a SKU type, is not one that bad nodes have taken away.
    let shown = |amount: fn(&VcAmounts) -> i64, text: fn(i64) -> String| {
        Some(match amount(&resources.total) {
            0 => "-".to_string(),
            _ => format!("{}/{}", text(amount(&resources.used)), text(amount(&resources.guaranteed))),
        })
    };
    let promised = cells.cells.iter().map(|row| PromisedCells {
        chain: row.chain.clone(),
        cell_type: row.cell_type.clone(),
        guaranteed: number(row.guaranteed),
        used: number(row.used),
        bad: number(row.bad),
    });
    let classes = jobs.iter().rev().filter(|(_, counts)| **counts != JobCounts::default());
    VirtualClusterStatus {
        allocation: Some(format!("{}%", allocation(&resources))),
        gpu: shown(|amounts| amounts.gpu, |count| count.to_string()),
        cpu: shown(|amounts| amounts.cpu, |count| count.to_string()),
        memory: shown(|amounts| amounts.memory_mb, gib),
        guaranteed: sum(|cells| cells.guaranteed),
        used: sum(|cells| cells.used),
        bad: sum(|cells| cells.bad),
        borrowed_out: sum(|cells| cells.borrowed_out),
        borrowed_in: sum(|cells| cells.borrowed_in),
        waiting: jobs.values().map(|counts| counts.waiting).sum(),
        running: jobs.values().map(|counts| counts.running).sum(),
        cells: promised.collect(),
        jobs: classes
            .map(|(class, counts)| ClassJobs {
                class: class_name(*class),
                waiting: counts.waiting,
                running: counts.running,
            })
            .collect(),
        resources: Some(resources),
        leaf_cells,
    }
}

/// Resources of one leaf cell of a type. A type without a SKU is one device and nothing else.
pub fn amounts(config: &ClusterConfig, leaf_type: &str) -> VcAmounts {
    config.physical_cluster.sku_types.get(leaf_type).map_or(VcAmounts { gpu: 1, cpu: 0, memory_mb: 0 }, sku)
}

fn sku(sku: &SkuType) -> VcAmounts {
    // The configuration was validated: these are quantities.
    let bytes = sku.memory.as_deref().and_then(|text| quantity::parse("memory", text).ok()).unwrap_or(0);
    VcAmounts { gpu: sku.gpu.unwrap_or(0), cpu: sku.cpu.unwrap_or(0), memory_mb: bytes / MIB }
}

/// As OpenPAI counts: `used` are good leaf cells in use, `guaranteed` the good ones, `total` all promised
/// ones. Opportunistic jobs are in none of them.
fn resources(config: &ClusterConfig, cells: &VcStatus) -> VcResources {
    let mut resources = VcResources::default();
    for (leaf_type, leaves) in &cells.leaves {
        let one = amounts(config, leaf_type);
        let total = number(leaves.guaranteed);
        add(&mut resources.used, one, number(leaves.used.saturating_sub(leaves.used_bad)));
        add(&mut resources.guaranteed, one, total - number(leaves.bad).min(total));
        add(&mut resources.total, one, total);
    }
    resources
}

fn add(sum: &mut VcAmounts, one: VcAmounts, times: i64) {
    sum.gpu = sum.gpu.saturating_add(one.gpu.saturating_mul(times));
    sum.cpu = sum.cpu.saturating_add(one.cpu.saturating_mul(times));
    sum.memory_mb = sum.memory_mb.saturating_add(one.memory_mb.saturating_mul(times));
}

/// Use of the most used resource, in percent, rounded.
fn allocation(resources: &VcResources) -> i64 {
    let share = |of: fn(&VcAmounts) -> i64| {
        let (used, all) = (of(&resources.used), of(&resources.guaranteed));
        if all <= 0 { 0 } else { (used.saturating_mul(200) / all).saturating_add(1) / 2 }
    };
    [share(|a| a.gpu), share(|a| a.cpu), share(|a| a.memory_mb)].into_iter().max().unwrap_or(0)
}

/// Memory in readable form: `4Gi`, `1.5Gi`.
fn gib(memory_mb: i64) -> String {
    let tenths = (memory_mb.saturating_mul(10) + 512) / 1024;
    match tenths % 10 {
        0 => format!("{}Gi", tenths / 10),
        rest => format!("{}.{rest}Gi", tenths / 10),
    }
}

fn number(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
