//! Ingresses and IngressClasses.
//!
//! Inputs: decoded objects, defaults applied.

use super::{check_point, need_segment, sloppy};
use fleet_apiserver_schema::error::Cause;
use fleet_apiserver_schema::field::At;
use fleet_apiserver_schema::validate::{self, NameRule};
use serde_json::json;

/// Most bytes of the name of a controller.
const MOST_CONTROLLER: usize = 250;

/// Checks an Ingress.
pub fn ingress(new: &At, old: Option<&At>, subresource: &str) {
    let spec = new.at("spec");
    if subresource == "status" {
        const POINTS: &str = "status.loadBalancer.ingress";
        let mut before = Vec::new();
        if let Some(old) = old {
            before.extend(old.at(POINTS).items().map(|point| point.at("ip").text()));
        }
        new.at(POINTS).items().for_each(|point| check_point(&point, &before));
        return;
    }
    let (rules, fallback) = (spec.at("rules"), spec.at("defaultBackend"));
    if rules.is_empty() && !fallback.is_set() {
        rules.invalid_as(spec.path(), "either `defaultBackend` or `rules` must be specified");
    }
    if fallback.is_set() {
        backend(&fallback);
    }
    for rule in rules.items() {
        host(&rule.at("host"));
        let http = rule.at("http");
        if !http.is_set() {
            continue;
        }
        let paths = http.at("paths");
        if paths.is_empty() {
            paths.required("");
        }
        paths.items().for_each(|path| ingress_path(&path));
    }
    let lax = old.is_some_and(|old| old.at("spec.tls").items().any(|tls| !good_secret(&tls)));
    for tls in spec.at("tls").items() {
        tls.at("hosts").items().for_each(|name| domain(&name));
        if !lax {
            tls.at("secretName").name(NameRule::Subdomain);
        }
    }
    let named = spec.at("ingressClassName");
    named.name(NameRule::Subdomain);
    let notes = new.at("metadata.annotations");
    let note = notes.key("kubernetes.io/ingress.class");
    if old.is_none() && note.is_set() && named.is_set() && note.text() != named.text() {
        let why = "must match `ingressClassName` when both are specified";
        note.invalid_as("annotations.kubernetes.io/ingress.class".into(), why);
    }
}

fn good_secret(tls: &At) -> bool {
    let name = tls.at("secretName").text();
    name.is_empty() || validate::name(NameRule::Subdomain, name).is_none()
}

fn host(at: &At) {
    if at.text().is_empty() {
        return;
    }
    if sloppy(at.text()).is_some() {
        at.invalid("must be a DNS name, not an IP address");
    }
    domain(at);
}

/// A name of machines, or of all machines of a domain.
fn domain(at: &At) {
    if !at.text().contains('*') {
        at.any_name(NameRule::Subdomain);
        return;
    }
    let rest = at.text().strip_prefix("*.").unwrap_or("");
    if rest.is_empty() || validate::name(NameRule::Subdomain, rest).is_some() {
        at.invalid(
            "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must consist of lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character (e.g. '*.example.com', regex used for validation is '\\*\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')",
        );
    }
}

fn ingress_path(at: &At) {
    let (kind, path) = (at.at("pathType"), at.at("path"));
    match kind.text() {
        "" => {
            kind.required("pathType must be specified");
            return;
        }
        "Exact" | "Prefix" => {
            if !path.text().starts_with('/') {
                path.invalid("must be an absolute path");
            }
            for wrong in ["//", "/./", "/../", "%2f", "%2F"] {
                if path.text().contains(wrong) {
                    path.invalid(&format!("must not contain '{wrong}'"));
                }
            }
            for end in ["/..", "/."] {
                if path.text().ends_with(end) {
                    path.invalid(&format!("cannot end with '{end}'"));
                }
            }
        }
        "ImplementationSpecific" => {
            if !path.text().is_empty() && !path.text().starts_with('/') {
                path.invalid("must be an absolute path");
            }
        }
        _ => kind.unsupported(&["Exact", "ImplementationSpecific", "Prefix"]),
    }
    backend(&at.at("backend"));
}

fn backend(at: &At) {
    let (service, resource) = (at.at("service"), at.at("resource"));
    let wrong = |why: &str| at.note(Cause::invalid(at.path(), &json!(""), why));
    match (service.is_set(), resource.is_set()) {
        (true, true) => wrong("cannot set both resource and service backends"),
        (false, true) => reference(&resource),
        (false, false) => wrong("resource or service backend is required"),
        (true, false) => {
            service.at("name").need_name(NameRule::Label);
            let (name, number) = (service.at("port.name"), service.at("port.number"));
            match (!name.text().is_empty(), number.number().is_some_and(|n| n != 0)) {
                (true, true) => wrong("cannot set both port name & port number"),
                (true, false) => name.port_name(),
                (false, true) => number.port(),
                (false, false) => at.required("port name or number is required"),
            }
        }
    }
}

fn reference(at: &At) {
    let group = at.at("apiGroup");
    if group.is_set() {
        group.any_name(NameRule::Subdomain);
    }
    need_segment(&at.at("kind"));
    need_segment(&at.at("name"));
}

/// Checks an IngressClass.
pub fn ingress_class(new: &At, old: Option<&At>) {
    let name = new.at("spec.controller");
    if let Some(old) = old {
        name.same_as(&old.at("spec.controller"));
    }
    controller(&name);
    let parameters = new.at("spec.parameters");
    if !parameters.is_set() {
        return;
    }
    reference(&parameters);
    let (scope, namespace) = (parameters.at("scope"), parameters.at("namespace"));
    scope.need_one_of(&["Cluster", "Namespace"]);
    match scope.text() {
        "Namespace" if !namespace.is_set() => {
            namespace.required("`parameters.scope` is set to 'Namespace'");
        }
        "Namespace" => namespace.any_name(NameRule::Label),
        "Cluster" if namespace.is_set() => {
            namespace.forbidden("`parameters.scope` is set to 'Cluster'");
        }
        _ => {}
    }
}

/// The name of a controller: a domain and a path.
fn controller(name: &At) {
    if name.text().len() > MOST_CONTROLLER {
        name.too_long(MOST_CONTROLLER);
    }
    if name.text().is_empty() {
        name.required("");
        return;
    }
    let parts = name.text().split_once('/').filter(|(domain, path)| !domain.is_empty() && !path.is_empty());
    let Some((domain, path)) = parts else {
        name.invalid("must be a domain-prefixed path (such as \"acme.io/foo\")");
        return;
    };
    let note = |part: &str, why: &str| name.note(Cause::invalid(name.path(), &json!(part), why));
    if let Some(why) = validate::name(NameRule::Subdomain, domain) {
        note(domain, &why);
    }
    if !path.bytes().all(|b| b.is_ascii_alphanumeric() || b"/-._~%!$&'()*+,;=:".contains(&b)) {
        note(path, "Invalid path (regex used for validation is '[A-Za-z0-9/\\-._~%!$&'()*+,;=:]+')");
    }
}
