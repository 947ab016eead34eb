//! What the portal counts, as Prometheus reads it: requests and viewers, no users and no paths.

use std::{
    sync::{Arc, Mutex},
    time::Instant,
};

use axum::{
    extract::{Request, State},
    middleware::Next,
    response::Response,
};
use fleet_metrics::{Exposed, Labels};
use prometheus_client::{
    metrics::{
        counter::Counter,
        family::Family,
        gauge::Gauge,
        histogram::{Histogram, exponential_buckets},
    },
    registry::Registry,
};

/// The counts of one portal; clones share them.
#[derive(Clone)]
pub struct PortalMetrics(Arc<Inner>);

struct Inner {
    registry: Mutex<Registry>,
    requests: Family<Labels, Counter>,
    duration: Histogram,
    viewers: Gauge,
    fragments: Counter,
    drawn: Counter,
    sessions: Gauge,
    hub_up: Gauge,
}

impl Default for PortalMetrics {
    fn default() -> Self {
        let mut registry = Registry::default();
        let inner = Inner {
            requests: Family::default(),
            // 100 us to 6 s.
            duration: Histogram::new(exponential_buckets(0.000_1, 2.0, 17)),
            viewers: Gauge::default(),
            fragments: Counter::default(),
            drawn: Counter::default(),
            sessions: Gauge::default(),
            hub_up: Gauge::default(),
            registry: Mutex::default(),
        };
        let r = &mut registry;
        r.register("fleet_portal_requests", "Answers to requests, by status code", inner.requests.clone());
        r.register(
            "fleet_portal_request_duration_seconds",
            "Time until an answer begins",
            inner.duration.clone(),
        );
        r.register(
            "fleet_portal_viewers",
            "Pages that are kept up to date in browsers",
            inner.viewers.clone(),
        );
        r.register(
            "fleet_portal_fragments",
            "Changes of pages that were sent to viewers",
            inner.fragments.clone(),
        );
        r.register(
            "fleet_portal_drawings",
            "Changes of pages that were made, for one viewer or for many",
            inner.drawn.clone(),
        );
        r.register("fleet_portal_sessions", "Users that are signed in, by browser", inner.sessions.clone());
        r.register("fleet_portal_hub_up", "1 while the hub answers, else 0", inner.hub_up.clone());
        // A rate of errors needs a value to begin with.
        for code in ["200", "303", "500", "502"] {
            drop(inner.requests.get_or_create(&of_code(code)));
        }
        Self(Arc::new(Inner { registry: Mutex::new(registry), ..inner }))
    }
}

fn of_code(code: &str) -> Labels {
    vec![("code", code.to_owned())]
}

impl Exposed for PortalMetrics {
    fn write(&self, text: &mut String) {
        self.0.registry.write(text);
    }
}

impl PortalMetrics {
    pub fn set_hub_up(&self, is_up: bool) {
        self.0.hub_up.set(i64::from(is_up));
    }

    pub fn set_sessions(&self, count: usize) {
        self.0.sessions.set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    pub fn viewers(&self) -> i64 {
        self.0.viewers.get()
    }

    pub fn sent(&self) {
        self.0.fragments.inc();
    }

    pub fn drew(&self) {
        self.0.drawn.inc();
    }

    /// A page is kept up to date until what this returns is dropped.
    pub fn viewer(&self) -> Viewing {
        self.0.viewers.inc();
        Viewing(self.clone())
    }

    fn answered(&self, code: &str, began: Instant) {
        self.0.requests.get_or_create(&of_code(code)).inc();
        self.0.duration.observe(began.elapsed().as_secs_f64());
    }
}

/// One viewer.
pub struct Viewing(PortalMetrics);

impl Drop for Viewing {
    fn drop(&mut self) {
        self.0.0.viewers.dec();
    }
}

/// Counts every answer.
pub async fn count(State(metrics): State<PortalMetrics>, request: Request, next: Next) -> Response {
    let began = Instant::now();
    let response = next.run(request).await;
    metrics.answered(response.status().as_str(), began);
    response
}
