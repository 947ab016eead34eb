//! HiveD's headline as an experiment: one trace of several tenants, with three ways to share the same nodes.
//!
//! - *private*: each virtual cluster's promised cells are a cluster of its own.
//! - *quota*: one cluster for all; a tenant may use as many leaf cells as it was promised, wherever they are.
//! - *cells*: one cluster for all, shared by virtual clusters.
//!
//! The allocator, the order within a tenant, and what each job asks for are the same in all three, so the delays
//! differ by the way of sharing alone. Inputs: a HiveD configuration and a table of jobs whose `vc` names a virtual
//! cluster. Decisions take no virtual time. Deliberately absent: preemption, opportunistic jobs, bad nodes.

mod jobs;
mod private;
mod replay;
mod report;
#[cfg(test)]
mod tests;

use fleet_cells::{Cells, Unreported, config::ClusterConfig};

pub use report::{Comparison, Delays, Tenant};

use crate::{
    scenario::ScenarioError,
    traces::{Order, Table},
};
use jobs::Workload;
use replay::{Sharing, World};

/// Replays a table of jobs in the three ways.
///
/// # Errors
/// A row that cannot be read, an order that is not within one tenant, a configuration that does not hold together.
pub fn compare(
    file: &str,
    bytes: &[u8],
    config: &ClusterConfig,
    order: Order,
) -> Result<Comparison, ScenarioError> {
    let wrong = |field: &str, found: String, allowed: &str| ScenarioError {
        file: file.to_string(),
        line: 1,
        field: field.to_string(),
        found,
        allowed: allowed.to_string(),
    };
    if order == Order::Fair {
        let allowed = "fifo, priority or sjf: the order within each virtual cluster";
        return Err(wrong("--policy", "fair".to_string(), allowed));
    }
    let table = Table::read(file, bytes, &[], false)?;
    let broken = |errors: fleet_cells::config::ConfigErrors| {
        wrong("the configuration", errors.to_string(), "a configuration that holds together")
    };
    let shared = Cells::new(config.clone(), Unreported::Good).map_err(broken)?;
    let mut alone = Vec::new();
    for name in config.virtual_clusters.keys() {
        let own = private::cluster_of(config, name);
        alone.push(World::new(Cells::new(own, Unreported::Good).map_err(broken)?, Sharing::Promises));
    }
    let workload = Workload::new(&table.rows, config, order, &mut alone);
    let private = alone.iter_mut().enumerate().map(|(tenant, world)| world.replay(&workload, &[tenant]));
    let mut starts = vec![vec![None; workload.jobs.len()]; 3];
    for of_tenant in private {
        for (job, start) in of_tenant.into_iter().enumerate().filter(|(_, start)| start.is_some()) {
            starts[0][job] = start;
        }
    }
    let all: Vec<usize> = (0..workload.tenants.len()).collect();
    let mut pooled = World::new(shared.clone(), Sharing::Quota);
    starts[1] = pooled.replay(&workload, &all);
    let mut promised = World::new(shared, Sharing::Promises);
    starts[2] = promised.replay(&workload, &all);
    let mut violations = Vec::new();
    for world in alone.iter().chain([&pooled, &promised]) {
        violations.extend(world.audit());
    }
    let [alone, pooled, promised] = [&starts[0], &starts[1], &starts[2]];
    Ok(Comparison::new(&workload, [alone, pooled, promised], table.notices, violations))
}
