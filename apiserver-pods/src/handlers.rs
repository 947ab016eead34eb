//! Checks of how a container is asked: probes and hooks.
//!
//! Inputs: containers in the stored form, and the time a pod has to end. Source: the validation of Kubernetes 1.36.

use super::names;
use fleet_apiserver_schema::error::Cause;
use fleet_apiserver_schema::field::At;
use serde_json::Value;

const HEADER: &str = "a valid HTTP header must consist of alphanumeric characters or '-' (e.g. 'X-Header-Name', regex used for \
    validation is '[-A-Za-z0-9]+')";

/// Checks the hooks and the probes of a container, in this order.
pub(crate) fn check(c: &At, grace: Option<i64>) {
    let lifecycle = c.at("lifecycle");
    for hook in ["postStart", "preStop"] {
        let hook = lifecycle.at(hook);
        if hook.is_set() {
            handler(&hook, grace);
        }
    }
    for name in ["livenessProbe", "readinessProbe", "startupProbe"] {
        let probe = c.at(name);
        if probe.is_set() {
            check_probe(&probe, name, grace);
        }
    }
}

fn check_probe(probe: &At, name: &str, grace: Option<i64>) {
    handler(probe, grace);
    for field in
        ["initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"]
    {
        probe.at(field).non_negative();
    }
    let own = probe.at("terminationGracePeriodSeconds");
    own.positive();
    if name == "readinessProbe" {
        if own.is_set() {
            own.invalid("must not be set for readinessProbes");
        }
        return;
    }
    let threshold = probe.at("successThreshold");
    if threshold.number().is_some_and(|n| n != 1) {
        threshold.invalid("must be 1");
    }
}

/// Exactly one way to ask a container.
fn handler(at: &At, grace: Option<i64>) {
    let mut found = 0;
    for kind in ["exec", "httpGet", "tcpSocket", "grpc", "sleep"] {
        let way = at.at(kind);
        if !way.is_set() {
            continue;
        }
        found += 1;
        if found > 1 {
            way.forbidden("may not specify more than 1 handler type");
            continue;
        }
        match kind {
            "exec" => {
                if way.at("command").is_empty() {
                    way.at("command").required("");
                }
            }
            "httpGet" => http_get(&way),
            "tcpSocket" => names::port(&way.at("port")),
            "grpc" => names::port_number(&way.at("port"), way.at("port").number().unwrap_or(0)),
            _ => sleep(&way, grace),
        }
    }
    if found == 0 {
        at.required("must specify a handler type");
    }
}

fn http_get(way: &At) {
    let path = way.at("path");
    if path.text().is_empty() {
        path.required("");
    }
    names::port(&way.at("port"));
    let scheme = way.at("scheme");
    if !matches!(scheme.text(), "HTTP" | "HTTPS") {
        scheme.unsupported(&["HTTP", "HTTPS"]);
    }
    let headers = way.at("httpHeaders");
    for header in headers.items() {
        let name = header.at("name").text();
        if name.is_empty() || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-') {
            names::tell_one(&headers, name, HEADER);
        }
    }
}

/// A hook sleeps no longer than the pod has to end.
fn sleep(way: &At, grace: Option<i64>) {
    let Some(grace) = grace else { return };
    let seconds = way.at("seconds").number().unwrap_or(0);
    if seconds < 0 || seconds > grace {
        let why = format!("must be non-negative and less than terminationGracePeriodSeconds ({grace})");
        way.note(Cause::invalid(way.path(), &Value::from(seconds), &why));
    }
}
