//! The agent's metrics for Prometheus.
//!
//! One [`AgentMetrics`] per process; each agent in it writes with the label of its cluster, through its
//! [`Counts`].

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use fleet_api::ClusterStatus;
use fleet_metrics::{Exposed, Gauges, Labels, amounts};
use prometheus_client::{
    metrics::{
        counter::Counter,
        family::Family,
        histogram::{Histogram, exponential_buckets},
    },
    registry::Registry,
};
use tokio::time::Instant;

type Counters = Family<Labels, Counter>;

/// 100 us to 3 s.
fn buckets() -> Histogram {
    Histogram::new(exponential_buckets(0.000_1, 2.0, 16))
}

/// The metrics of all agents of a process.
#[derive(Clone)]
pub struct AgentMetrics(Arc<Inner>);

struct Inner {
    registry: Mutex<Registry>,
    /// Until when the hub counts each agent as alive, as far as known.
    deadlines: Mutex<BTreeMap<String, Instant>>,
    lease_left: Gauges,
    renewals: Counters,
    reports: Counters,
    nodes: Gauges,
    allocatable: Gauges,
    allocated: Gauges,
    pending: Gauges,
    cycles: Family<Labels, Histogram, fn() -> Histogram>,
    bindings: Counters,
    victims: Counters,
    works: Counters,
}

impl std::fmt::Debug for AgentMetrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("AgentMetrics")
    }
}

impl Default for AgentMetrics {
    fn default() -> Self {
        let mut registry = Registry::default();
        let r = &mut registry;
        let counters = |r: &mut Registry, name: &str, help: &str| {
            let counters = Counters::default();
            r.register(name, help, counters.clone());
            counters
        };
        let cycles = Family::new_with_constructor(buckets as fn() -> Histogram);
        r.register(
            "fleet_agent_scheduler_cycle_duration_seconds",
            "Time of one cycle of the scheduler",
            cycles.clone(),
        );
        Self(Arc::new(Inner {
            deadlines: Mutex::default(),
            lease_left: Gauges::register(
                r,
                "fleet_agent_lease_remaining_seconds",
                "Time until the agent's lease on the hub expires; negative when it has expired",
            ),
            renewals: counters(
                r,
                "fleet_agent_lease_renewals",
                "Renewals of the agent's lease on the hub, by outcome",
            ),
            reports: counters(
                r,
                "fleet_agent_capacity_reports",
                "Capacity reports written to the hub, by outcome",
            ),
            nodes: Gauges::register(r, "fleet_agent_nodes", "Nodes of the member by whether they are ready"),
            allocatable: Gauges::register(
                r,
                "fleet_agent_resource_allocatable",
                "Allocatable resources of the member's usable nodes",
            ),
            allocated: Gauges::register(
                r,
                "fleet_agent_resource_allocated",
                "Requests of pods bound to the member's usable nodes, by resource",
            ),
            pending: Gauges::register(
                r,
                "fleet_agent_resource_pending",
                "Requests of pods that are not bound to a node, by resource",
            ),
            cycles,
            bindings: counters(r, "fleet_agent_scheduler_bindings", "Bindings of pods to nodes, by outcome"),
            victims: counters(
                r,
                "fleet_agent_scheduler_victims",
                "Victims of preemption in the member: pods",
            ),
            works: counters(r, "fleet_agent_work_reconciles", "Reconciliations of Works, by outcome"),
            registry: Mutex::new(registry),
        }))
    }
}

impl AgentMetrics {
    /// The metrics of one agent, which start at 0.
    pub fn of(&self, cluster: &str) -> Counts {
        let counts = Counts { metrics: self.clone(), cluster: ("cluster", cluster.to_owned()) };
        let inner = &self.0;
        let outcomes: [(&Counters, &[&'static str]); 4] = [
            (&inner.renewals, &[RENEWED, REFUSED, FAILED]),
            (&inner.reports, &[WRITTEN, FAILED]),
            (&inner.bindings, &[BOUND, REFUSED]),
            (&inner.works, &[APPLIED, REFUSED, FAILED]),
        ];
        for (family, outcomes) in outcomes {
            for outcome in outcomes {
                counts.outcome(family, outcome, 0);
            }
        }
        drop(inner.victims.get_or_create(&counts.labels()));
        drop(inner.cycles.get_or_create(&counts.labels()));
        counts
    }
}

impl Exposed for AgentMetrics {
    fn write(&self, text: &mut String) {
        let now = Instant::now();
        let deadlines = self.0.deadlines.lock().unwrap_or_else(PoisonError::into_inner);
        self.0.lease_left.replace(deadlines.iter().map(|(cluster, deadline)| {
            let left = deadline.saturating_duration_since(now).as_secs_f64();
            let over = now.saturating_duration_since(*deadline).as_secs_f64();
            (vec![("cluster", cluster.clone())], left - over)
        }));
        drop(deadlines);
        self.0.registry.write(text);
    }
}

const RENEWED: &str = "renewed";
const WRITTEN: &str = "written";
const BOUND: &str = "bound";
const APPLIED: &str = "applied";
const REFUSED: &str = "refused";
const FAILED: &str = "failed";

/// Result of a reconcile of a Work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkOutcome {
    /// Its objects are applied.
    Applied,
    /// It must not, or cannot, be applied.
    Refused,
    /// It is retried.
    Failed,
}

/// The metrics of one agent.
#[derive(Clone, Debug)]
pub struct Counts {
    metrics: AgentMetrics,
    cluster: (&'static str, String),
}

impl Counts {
    fn labels(&self) -> Labels {
        vec![self.cluster.clone()]
    }

    fn outcome(&self, family: &Counters, outcome: &'static str, by: usize) {
        let labels = vec![self.cluster.clone(), ("outcome", outcome.to_owned())];
        family.get_or_create(&labels).inc_by(by as u64);
    }

    /// Records that the lease is valid until `deadline`.
    pub fn lease_renewed(&self, deadline: Instant) {
        let inner = &self.metrics.0;
        let mut deadlines = inner.deadlines.lock().unwrap_or_else(PoisonError::into_inner);
        deadlines.insert(self.cluster.1.clone(), deadline);
        self.outcome(&inner.renewals, RENEWED, 1);
    }

    /// Another agent holds the lease.
    pub fn lease_refused(&self) {
        self.outcome(&self.metrics.0.renewals, REFUSED, 1);
    }

    pub fn lease_failed(&self) {
        self.outcome(&self.metrics.0.renewals, FAILED, 1);
    }

    /// Records the newest capacity report.
    pub fn see_capacity(&self, status: &ClusterStatus) {
        let inner = &self.metrics.0;
        if let Some(nodes) = &status.node_summary {
            let state = |state: &str, count: i64| {
                // A float can count all nodes exactly.
                #[allow(clippy::cast_precision_loss)]
                let count = count as f64;
                (vec![self.cluster.clone(), ("state", state.to_owned())], count)
            };
            let (ready, all) = (nodes.ready_num, nodes.total_num);
            inner.nodes.replace_of(&self.cluster, [state("ready", ready), state("not-ready", all - ready)]);
        }
        if let Some(summary) = &status.resource_summary {
            let sums = [
                (&inner.allocatable, &summary.allocatable),
                (&inner.allocated, &summary.allocated),
                (&inner.pending, &summary.allocating),
            ];
            let zero = &"0".to_owned();
            for (gauges, quantities) in sums {
                // A resource without use is 0, not absent.
                let offered = summary.allocatable.keys().map(|resource| (resource, zero));
                let all: BTreeMap<&String, &String> = offered.chain(quantities).collect();
                gauges.replace_of(&self.cluster, amounts(std::slice::from_ref(&self.cluster), all));
            }
        }
    }

    pub fn report_ended(&self, is_written: bool) {
        self.outcome(&self.metrics.0.reports, if is_written { WRITTEN } else { FAILED }, 1);
    }

    /// Records a cycle of the scheduler with its number of victims.
    pub fn cycled(&self, took: Duration, victims: usize) {
        let inner = &self.metrics.0;
        inner.cycles.get_or_create(&self.labels()).observe(took.as_secs_f64());
        inner.victims.get_or_create(&self.labels()).inc_by(victims as u64);
    }

    pub fn bound(&self, bound: usize, refused: usize) {
        let inner = &self.metrics.0;
        self.outcome(&inner.bindings, BOUND, bound);
        self.outcome(&inner.bindings, REFUSED, refused);
    }

    pub fn reconciled(&self, outcome: WorkOutcome) {
        let outcome = match outcome {
            WorkOutcome::Applied => APPLIED,
            WorkOutcome::Refused => REFUSED,
            WorkOutcome::Failed => FAILED,
        };
        self.outcome(&self.metrics.0.works, outcome, 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fleet_api::cluster::{NodeSummary, ResourceSummary};

    fn text(metrics: &AgentMetrics) -> String {
        let mut text = String::new();
        metrics.write(&mut text);
        text
    }

    #[tokio::test(start_paused = true)]
    async fn agents_of_one_process_are_told_apart() {
        let metrics = AgentMetrics::default();
        let (east, west) = (metrics.of("east"), metrics.of("west"));
        let told = text(&metrics);
        for line in [
            "fleet_agent_lease_renewals_total{cluster=\"east\",outcome=\"failed\"} 0",
            "fleet_agent_scheduler_victims_total{cluster=\"west\"} 0",
            "fleet_agent_work_reconciles_total{cluster=\"west\",outcome=\"applied\"} 0",
        ] {
            assert!(told.contains(line), "{line} is not in\n{told}");
        }
        assert!(!told.contains("lease_remaining_seconds{"), "no lease yet:\n{told}");

        east.lease_renewed(Instant::now() + Duration::from_secs(40));
        west.lease_renewed(Instant::now() + Duration::from_secs(20));
        west.lease_failed();
        tokio::time::advance(Duration::from_secs(30)).await;
        east.cycled(Duration::from_millis(1), 2);
        east.bound(3, 1);
        west.reconciled(WorkOutcome::Refused);
        let quantities = |gpus: &str| [("nvidia.com/gpu".to_owned(), gpus.to_owned())].into();
        let status = ClusterStatus {
            node_summary: Some(NodeSummary { total_num: 3, ready_num: 2 }),
            resource_summary: Some(ResourceSummary {
                allocatable: quantities("16"),
                allocated: quantities("4"),
                allocating: Default::default(),
            }),
            ..ClusterStatus::default()
        };
        east.see_capacity(&status);
        west.see_capacity(&ClusterStatus::default());
        let told = text(&metrics);
        for line in [
            "fleet_agent_lease_remaining_seconds{cluster=\"east\"} 10.0",
            "fleet_agent_lease_remaining_seconds{cluster=\"west\"} -10.0",
            "fleet_agent_lease_renewals_total{cluster=\"west\",outcome=\"failed\"} 1",
            "fleet_agent_nodes{cluster=\"east\",state=\"not-ready\"} 1.0",
            "fleet_agent_resource_allocated{cluster=\"east\",resource=\"nvidia.com/gpu\",unit=\"integer\"} 4.0",
            "fleet_agent_resource_pending{cluster=\"east\",resource=\"nvidia.com/gpu\",unit=\"integer\"} 0.0",
            "fleet_agent_scheduler_cycle_duration_seconds_count{cluster=\"east\"} 1",
            "fleet_agent_scheduler_victims_total{cluster=\"east\"} 2",
            "fleet_agent_scheduler_bindings_total{cluster=\"east\",outcome=\"bound\"} 3",
            "fleet_agent_work_reconciles_total{cluster=\"west\",outcome=\"refused\"} 1",
        ] {
            assert!(told.contains(line), "{line} is not in\n{told}");
        }
    }
}
