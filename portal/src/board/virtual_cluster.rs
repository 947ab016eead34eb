//! A VirtualCluster as views see it.

use fleet_api::VirtualCluster;
use fleet_views::VirtualClusterFacts;

/// Facts of its status.
pub fn facts(object: VirtualCluster) -> VirtualClusterFacts {
    let status = object.status.unwrap_or_default();
    VirtualClusterFacts {
        name: object.spec.name,
        allocation: status.allocation.unwrap_or_default(),
        gpu: status.gpu.unwrap_or_default(),
        cpu: status.cpu.unwrap_or_default(),
        memory: status.memory.unwrap_or_default(),
        guaranteed: status.guaranteed,
        used: status.used,
        bad: status.bad,
        lent: status.borrowed_out,
        borrowed: status.borrowed_in,
        waiting: status.waiting,
        running: status.running,
    }
}
