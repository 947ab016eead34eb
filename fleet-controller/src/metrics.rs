//! What the controller counts, as Prometheus reads it.
//!
//! One handle, shared by the process and by whoever serves [`Metrics::text`]. Names of queues are paths of the
//! quota tree, reasons those of the one vocabulary.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError, atomic::AtomicU64},
};

use prometheus_client::{
    encoding::{EncodeLabelSet, text::encode},
    metrics::{
        counter::Counter,
        family::Family,
        gauge::Gauge,
        histogram::{Histogram, exponential_buckets},
    },
    registry::Registry,
};

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct QueueLabel {
    queue: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabel {
    reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RuleLabel {
    rule: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct InvariantLabel {
    invariant: u8,
}

/// The controller's counts.
#[derive(Clone, Debug)]
pub struct Metrics {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    registry: Mutex<Registry>,
    waiting: Family<QueueLabel, Gauge>,
    admitted: Family<QueueLabel, Gauge>,
    waits: Family<ReasonLabel, Gauge>,
    admissions: Counter,
    evictions: Family<RuleLabel, Counter>,
    violations: Family<InvariantLabel, Counter>,
    forbidden: Counter,
    plan: Histogram,
    plan_last: Gauge<f64, AtomicU64>,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::default();
        let inner = Inner {
            waiting: Family::default(),
            admitted: Family::default(),
            waits: Family::default(),
            admissions: Counter::default(),
            evictions: Family::default(),
            violations: Family::default(),
            forbidden: Counter::default(),
            // 10 us to 5 s.
            plan: Histogram::new(exponential_buckets(0.000_01, 2.0, 20)),
            plan_last: Gauge::default(),
            registry: Mutex::new(Registry::default()),
        };
        registry.register(
            "fleet_queue_waiting",
            "Jobs waiting below a node of the quota tree",
            inner.waiting.clone(),
        );
        registry.register(
            "fleet_queue_admitted",
            "Jobs holding quota below a node of the quota tree",
            inner.admitted.clone(),
        );
        registry.register("fleet_waiting_jobs", "Jobs waiting, by reason", inner.waits.clone());
        registry.register(
            "fleet_admissions",
            "Jobs sent to a cluster for reservation or binding",
            inner.admissions.clone(),
        );
        registry.register(
            "fleet_evictions",
            "Runs ended to make room for other jobs, by rule",
            inner.evictions.clone(),
        );
        registry.register(
            "fleet_check_violations",
            "Invariants that a plan would have broken; it was not sent",
            inner.violations.clone(),
        );
        registry.register(
            "fleet_writes_forbidden",
            "Writes that the hub answered with 403; each is tried again after a pause of up to 60 s",
            inner.forbidden.clone(),
        );
        registry.register("fleet_plan_duration_seconds", "Time of one scheduling plan", inner.plan.clone());
        registry.register(
            "fleet_plan_last_seconds",
            "Time of the last scheduling plan",
            inner.plan_last.clone(),
        );
        *inner.registry.lock().unwrap_or_else(PoisonError::into_inner) = registry;
        Self { inner: Arc::new(inner) }
    }
}

impl Metrics {
    /// Jobs waiting and admitted by path of their queue; queues that are not named have gone.
    pub fn set_queues<'q>(&self, queues: impl Iterator<Item = (&'q str, i64, i64)>) {
        self.inner.waiting.clear();
        self.inner.admitted.clear();
        for (path, waiting, admitted) in queues {
            let label = QueueLabel { queue: path.to_string() };
            self.inner.waiting.get_or_create(&label).set(waiting);
            self.inner.admitted.get_or_create(&label).set(admitted);
        }
    }

    pub fn set_waits(&self, by_reason: &BTreeMap<fleet_policies::reason::Reason, i64>) {
        self.inner.waits.clear();
        for (reason, count) in by_reason {
            self.inner.waits.get_or_create(&ReasonLabel { reason: reason.as_str() }).set(*count);
        }
    }

    pub fn planned(&self, took: std::time::Duration, admissions: usize) {
        self.inner.plan.observe(took.as_secs_f64());
        self.inner.plan_last.set(took.as_secs_f64());
        self.inner.admissions.inc_by(admissions as u64);
    }

    pub fn evicted(&self, rule: fleet_quota::TakeRule) {
        self.inner.evictions.get_or_create(&RuleLabel { rule: rule.as_str() }).inc();
    }

    /// A plan would have broken this invariant.
    pub fn violated(&self, invariant: u8) {
        self.inner.violations.get_or_create(&InvariantLabel { invariant }).inc();
    }

    /// The hub does not allow a write.
    pub fn forbidden(&self) {
        self.inner.forbidden.inc();
    }

    /// All of it, in the text form of OpenMetrics.
    pub fn text(&self) -> String {
        let mut text = String::new();
        let registry = self.inner.registry.lock().unwrap_or_else(PoisonError::into_inner);
        // Writing to a string cannot fail.
        let _ = encode(&mut text, &registry);
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_is_what_prometheus_reads() {
        let metrics = Metrics::default();
        metrics.set_queues([("root/gone", 9, 9)].into_iter());
        metrics.set_queues([("root/a", 3, 2)].into_iter());
        metrics.set_waits(&[(fleet_policies::reason::Reason::InsufficientQuota, 3)].into());
        metrics.planned(std::time::Duration::from_millis(1), 2);
        metrics.evicted(fleet_quota::TakeRule::Reclaim);
        metrics.violated(3);
        metrics.forbidden();
        let text = metrics.text();
        for line in [
            "fleet_queue_waiting{queue=\"root/a\"} 3",
            "fleet_queue_admitted{queue=\"root/a\"} 2",
            "fleet_waiting_jobs{reason=\"InsufficientQuota\"} 3",
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
}
