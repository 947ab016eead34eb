//! Probes: `/healthz`, `/livez` and `/readyz`, and each of their checks.
//!
//! A server that answers is well: it writes what it answers from its own store.

use crate::door::headers;
use axum::body::Body;
use fleet_apiserver_schema::http_io::{self, Params};
use http::{Response, StatusCode};
use std::collections::BTreeSet;

/// The probes.
pub const PROBES: [&str; 3] = ["healthz", "livez", "readyz"];
/// What they look at.
const CHECKS: [&str; 10] = [
    "ping",
    "log",
    "etcd",
    "etcd-readiness",
    "informer-sync",
    "poststarthook/start-apiextensions-informers",
    "poststarthook/crd-informer-synced",
    "poststarthook/rbac/bootstrap-roles",
    "poststarthook/priority-and-fairness-config-producer",
    "shutdown",
];
/// What only `/readyz` looks at.
const READY: [&str; 3] = ["etcd-readiness", "informer-sync", "shutdown"];

/// What a probe looks at.
pub fn checks(probe: &str) -> impl Iterator<Item = &'static str> {
    let ready = probe == "readyz";
    CHECKS.into_iter().filter(move |check| ready || !READY.contains(check))
}

/// The answer of a probe, or of one of its checks.
pub fn answer(path: &str, params: &Params) -> Option<Response<Body>> {
    let path = path.trim_matches('/');
    let (probe, check) = path.split_once('/').unwrap_or((path, ""));
    if !PROBES.contains(&probe) || !(check.is_empty() || checks(probe).any(|known| known == check)) {
        return None;
    }
    if !check.is_empty() {
        return Some(http_io::text_response(StatusCode::OK, "ok"));
    }
    if !params.has("verbose") {
        return Some(headers::unsniffed(http_io::text_response(StatusCode::OK, "ok")));
    }
    let mut excluded: BTreeSet<&str> = params.all("exclude").collect();
    let mut text = String::new();
    for check in checks(probe) {
        let how = if excluded.remove(check) { "excluded: ok" } else { "ok" };
        text.push_str(&format!("[+]{check} {how}\n"));
    }
    if !excluded.is_empty() {
        let unknown: Vec<String> = excluded.iter().map(|name| format!("{name:?}")).collect();
        let unknown = unknown.join(",");
        text.push_str(&format!("warn: some health checks cannot be excluded: no matches for {unknown}\n"));
    }
    text.push_str(&format!("{probe} check passed\n"));
    Some(headers::unsniffed(http_io::text_response(StatusCode::OK, text)))
}
