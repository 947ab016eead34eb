//! The controller's metrics for Prometheus.
//!
//! One handle, shared by the process and its HTTP server. Queues are named by their path in the quota tree,
//! reasons by the vocabulary.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, atomic::AtomicU64},
};

use fleet_hub_core::planner::View;
use fleet_metrics::{Exposed, Gauges, Labels, amounts};
use fleet_policies::reason::Reason;
use fleet_quota::TakeRule;
use prometheus_client::{
    metrics::{
        counter::Counter,
        family::Family,
        gauge::Gauge,
        histogram::{Histogram, exponential_buckets},
    },
    registry::Registry,
};

/// The invariants that plans are checked against (docs/ARCHITECTURE.md).
const INVARIANTS: std::ops::RangeInclusive<u8> = 1..=10;

/// The controller's metrics.
#[derive(Clone)]
pub struct Metrics {
    inner: Arc<Inner>,
}

impl std::fmt::Debug for Metrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Metrics")
    }
}

struct Inner {
    registry: Mutex<Registry>,
    leads: Gauge,
    waiting: Gauges,
    admitted: Gauges,
    used: Gauges,
    min: Gauges,
    max: Gauges,
    waits: Gauges,
    ready: Gauges,
    schedulable: Gauges,
    free: Gauges,
    admissions: Counter,
    evictions: Family<Labels, Counter>,
    violations: Family<Labels, Counter>,
    forbidden: Counter,
    plan: Histogram,
    plan_last: Gauge<f64, AtomicU64>,
}

impl Default for Metrics {
    fn default() -> Self {
        // One entry for each metric; splitting the function would not make it easier to read.
        let mut registry = Registry::default();
        let r = &mut registry;
        let inner = Inner {
            leads: Gauge::default(),
            waiting: Gauges::register(
                r,
                "fleet_queue_waiting_jobs",
                "Jobs waiting below a node of the quota tree",
            ),
            admitted: Gauges::register(
                r,
                "fleet_queue_admitted_jobs",
                "Jobs holding quota below a node of the quota tree",
            ),
            used: Gauges::register(
                r,
                "fleet_queue_used",
                "Resources that jobs below a node of the quota tree hold",
            ),
            min: Gauges::register(r, "fleet_queue_min", "Min of a node of the quota tree, by resource"),
            max: Gauges::register(
                r,
                "fleet_queue_max",
                "Max of a node of the quota tree, by resource; absent if unlimited",
            ),
            waits: Gauges::register(r, "fleet_waiting_jobs", "Jobs waiting, by reason"),
            ready: Gauges::register(r, "fleet_cluster_ready", "1 while the member cluster is Ready, else 0"),
            schedulable: Gauges::register(
                r,
                "fleet_cluster_schedulable",
                "0 while the member cluster is cordoned or drained, else 1",
            ),
            free: Gauges::register(
                r,
                "fleet_cluster_free",
                "Free resources of the member cluster for new jobs",
            ),
            admissions: Counter::default(),
            evictions: Family::default(),
            violations: Family::default(),
            forbidden: Counter::default(),
            // 10 us to 5 s.
            plan: Histogram::new(exponential_buckets(0.000_01, 2.0, 20)),
            plan_last: Gauge::default(),
            registry: Mutex::default(),
        };
        r.register("fleet_controller_leader", "1 while this controller leads, else 0", inner.leads.clone());
        r.register(
            "fleet_admissions",
            "Jobs sent to a cluster for reservation or binding",
            inner.admissions.clone(),
        );
        r.register("fleet_evictions", "Runs preempted for other jobs, by rule", inner.evictions.clone());
        r.register(
            "fleet_check_violations",
            "Invariants that a plan would have broken; such a plan is not sent",
            inner.violations.clone(),
        );
        r.register(
            "fleet_writes_forbidden",
            "Writes that the hub answered with 403; each is retried with a back-off of up to 60 s",
            inner.forbidden.clone(),
        );
        r.register("fleet_plan_duration_seconds", "Time of one scheduling plan", inner.plan.clone());
        r.register("fleet_plan_last_seconds", "Time of the last scheduling plan", inner.plan_last.clone());
        // A rate needs an initial value.
        for rule in
            [TakeRule::Reclaim, TakeRule::FairShare, TakeRule::InQueuePriority, TakeRule::VirtualCluster]
        {
            drop(inner.evictions.get_or_create(&of_rule(rule)));
        }
        for invariant in INVARIANTS {
            drop(inner.violations.get_or_create(&of_invariant(invariant)));
        }
        let inner = Inner { registry: Mutex::new(registry), ..inner };
        Self { inner: Arc::new(inner) }
    }
}

fn of_rule(rule: TakeRule) -> Labels {
    vec![("rule", rule.as_str().to_owned())]
}

fn of_invariant(invariant: u8) -> Labels {
    vec![("invariant", invariant.to_string())]
}

/// A float can count all jobs exactly.
#[allow(clippy::cast_precision_loss)]
fn number(count: i64) -> f64 {
    count as f64
}

impl Exposed for Metrics {
    fn write(&self, text: &mut String) {
        self.inner.registry.write(text);
    }
}

impl Metrics {
    /// Sets whether this controller leads.
    pub fn set_leads(&self, leads: bool) {
        self.inner.leads.set(i64::from(leads));
        if leads {
            return;
        }
        // Another controller reports these metrics from now on.
        let inner = &self.inner;
        let known = [&inner.waiting, &inner.admitted, &inner.used, &inner.min, &inner.max, &inner.waits];
        for gauges in known.into_iter().chain([&inner.ready, &inner.schedulable, &inner.free]) {
            gauges.replace([]);
        }
    }

    /// Sets waiting and admitted jobs by queue path; queues that are not named no longer exist.
    pub fn set_queues<'q>(&self, queues: impl Iterator<Item = (&'q str, i64, i64)> + Clone) {
        let of = |path: &str| vec![("queue", path.to_owned())];
        self.inner.waiting.replace(queues.clone().map(|(path, waiting, _)| (of(path), number(waiting))));
        self.inner.admitted.replace(queues.map(|(path, _, admitted)| (of(path), number(admitted))));
    }

    pub fn set_waits(&self, by_reason: &BTreeMap<Reason, i64>) {
        let of =
            |(reason, count): (&Reason, &i64)| (vec![("reason", reason.as_str().to_owned())], number(*count));
        self.inner.waits.replace(by_reason.iter().map(of));
    }

    /// Sets use of queues and state of members from the planner's snapshot.
    pub fn see(&self, view: &View) {
        let zero = &"0".to_owned();
        let (mut used, mut min, mut max) = (Vec::new(), Vec::new(), Vec::new());
        for queue in &view.queues {
            let label = [("queue", queue.path.clone())];
            // An unused resource with a min or max is 0, not absent.
            let bounded = queue.min.keys().chain(queue.max.keys());
            let all: BTreeMap<&String, &String> =
                bounded.map(|resource| (resource, zero)).chain(&queue.used).collect();
            used.extend(amounts(&label, all));
            min.extend(amounts(&label, &queue.min));
            max.extend(amounts(&label, &queue.max));
        }
        self.inner.used.replace(used);
        self.inner.min.replace(min);
        self.inner.max.replace(max);
        let of = |name: &str| vec![("cluster", name.to_owned())];
        let members = view.members.iter();
        self.inner.ready.replace(members.clone().map(|one| (of(&one.name), f64::from(u8::from(one.ready)))));
        self.inner
            .schedulable
            .replace(members.clone().map(|one| (of(&one.name), f64::from(u8::from(!one.unschedulable)))));
        self.inner.free.replace(members.flat_map(|one| amounts(&of(&one.name), &one.free)));
    }

    pub fn planned(&self, took: std::time::Duration, admissions: usize) {
        self.inner.plan.observe(took.as_secs_f64());
        self.inner.plan_last.set(took.as_secs_f64());
        self.inner.admissions.inc_by(admissions as u64);
    }

    pub fn evicted(&self, rule: TakeRule) {
        self.inner.evictions.get_or_create(&of_rule(rule)).inc();
    }

    /// Counts an invariant that a plan would have broken.
    pub fn violated(&self, invariant: u8) {
        self.inner.violations.get_or_create(&of_invariant(invariant)).inc();
    }

    /// Counts a write that the hub forbids.
    pub fn forbidden(&self) {
        self.inner.forbidden.inc();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fleet_hub_core::planner::{MemberView, QueueView};

    #[test]
    fn the_text_is_what_prometheus_reads() {
        let metrics = Metrics::default();
        metrics.set_queues([("root/gone", 9, 9)].into_iter());
        metrics.set_queues([("root/a", 3, 2)].into_iter());
        metrics.set_waits(&[(Reason::InsufficientQuota, 3)].into());
        metrics.planned(std::time::Duration::from_millis(1), 2);
        metrics.evicted(TakeRule::Reclaim);
        metrics.violated(3);
        metrics.forbidden();
        let mut text = String::new();
        metrics.write(&mut text);
        for line in [
            "fleet_queue_waiting_jobs{queue=\"root/a\"} 3.0",
            "fleet_queue_admitted_jobs{queue=\"root/a\"} 2.0",
            "fleet_waiting_jobs{reason=\"InsufficientQuota\"} 3.0",
            "fleet_admissions_total 2",
            "fleet_evictions_total{rule=\"Reclaim\"} 1",
            "fleet_check_violations_total{invariant=\"3\"} 1",
            "fleet_writes_forbidden_total 1",
            "fleet_plan_duration_seconds_count 1",
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
        assert!(!text.contains("root/gone"), "{text}");
    }

    #[test]
    fn what_a_planner_knows_is_told_in_base_units_and_only_while_it_leads() {
        let amounts = |resource: &str, text: &str| [(resource.to_owned(), text.to_owned())].into();
        let queue = QueueView {
            path: "root/a".to_owned(),
            is_leaf: true,
            waiting: 0,
            admitted: 1,
            used: amounts("cpu", "1500m"),
            min: amounts("memory", "1Gi"),
            max: BTreeMap::new(),
            line: Vec::new(),
        };
        let member = MemberView {
            name: "east".to_owned(),
            ready: true,
            unschedulable: true,
            reserves: true,
            allocatable: BTreeMap::new(),
            free: amounts("nvidia.com/gpu", "8"),
        };
        let metrics = Metrics::default();
        metrics.set_leads(true);
        metrics.see(&View { queues: vec![queue], members: vec![member], ..View::default() });
        let told = || {
            let mut text = String::new();
            metrics.write(&mut text);
            text
        };
        let text = told();
        for line in [
            "fleet_controller_leader 1",
            "fleet_queue_used{queue=\"root/a\",resource=\"cpu\",unit=\"core\"} 1.5",
            "fleet_queue_used{queue=\"root/a\",resource=\"memory\",unit=\"byte\"} 0.0",
            "fleet_queue_min{queue=\"root/a\",resource=\"memory\",unit=\"byte\"} 1073741824.0",
            "fleet_cluster_ready{cluster=\"east\"} 1.0",
            "fleet_cluster_schedulable{cluster=\"east\"} 0.0",
            "fleet_cluster_free{cluster=\"east\",resource=\"nvidia.com/gpu\",unit=\"integer\"} 8.0",
            "fleet_evictions_total{rule=\"FairShare\"} 0",
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
        metrics.set_leads(false);
        let text = told();
        assert!(text.contains("fleet_controller_leader 0"), "{text}");
        assert!(!text.contains("root/a") && !text.contains("east"), "{text}");
    }
}
