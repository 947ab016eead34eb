//! Probes: `/healthz`, `/livez` and `/readyz`, and each of their checks.
//!
//! A server that answers is well: it writes what it answers from its own store.

use axum::body::Body;
use fleet_apiserver_schema::http_io::{self, Params};
use http::{Response, StatusCode};

/// The probes.
pub const PROBES: [&str; 3] = ["healthz", "livez", "readyz"];
/// What they look at.
pub const CHECKS: [&str; 7] = [
    "ping",
    "log",
    "etcd",
    "poststarthook/start-apiextensions-informers",
    "poststarthook/crd-informer-synced",
    "poststarthook/rbac/bootstrap-roles",
    "poststarthook/priority-and-fairness-config-producer",
];

/// The answer of a probe, or of one of its checks.
pub fn answer(path: &str, params: &Params) -> Option<Response<Body>> {
    let path = path.trim_matches('/');
    let (probe, check) = path.split_once('/').unwrap_or((path, ""));
    if !PROBES.contains(&probe) || !(check.is_empty() || CHECKS.contains(&check)) {
        return None;
    }
    if !check.is_empty() || !params.has("verbose") {
        return Some(http_io::text_response(StatusCode::OK, "ok"));
    }
    let excluded = params.get("exclude");
    let line = |check: &&str| match *check == excluded {
        true => format!("[+]{check} excluded: ok\n"),
        false => format!("[+]{check} ok\n"),
    };
    let mut text: String = CHECKS.iter().map(line).collect();
    if !excluded.is_empty() && !CHECKS.contains(&excluded) {
        text.push_str(&format!("warn: some health checks cannot be excluded: no matches for {excluded:?}\n"));
    }
    text.push_str(&format!("{probe} check passed\n"));
    Some(http_io::text_response(StatusCode::OK, text))
}
