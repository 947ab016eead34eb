//! What a claim asks for, alone or in a template, and classes of devices.
//!
//! Inputs: specs, defaults applied. Source: the validation of Kubernetes 1.36.

use super::parts::{self, fits};
use super::requests::{self, Requests};
use fleet_apiserver_cel::rules::{Unfit, device_problem};
use fleet_apiserver_schema::error::Cause;
use fleet_apiserver_schema::field::At;
use fleet_apiserver_schema::names::{self, NameRule};
use serde_json::json;

/// Most constraints, configurations and selectors of one owner, each.
pub const MOST: usize = 32;
/// Most alternatives of a request.
const MOST_ALTERNATIVES: usize = 8;
/// Longest selector, in bytes.
const LONGEST_SELECTOR: usize = 10 * 1024;
/// Most bytes of what only a driver reads.
pub const MOST_PARAMETERS: usize = 10 * 1024;

/// What a taint of a device does.
pub const EFFECTS: [&str; 3] = ["NoExecute", "NoSchedule", "None"];

/// Checks the spec of a claim.
pub fn spec(spec: &At) {
    let asked = spec.at("devices.requests");
    parts::set(&asked, requests::MOST, request, |item| parts::text_of(item, "name"));
    let requests = Requests::of(spec);
    let constraints = spec.at("devices.constraints");
    if fits(&constraints, MOST) {
        constraints.items().for_each(|constraint| self::constraint(&constraint, &requests));
    }
    let configs = spec.at("devices.config");
    if fits(&configs, MOST) {
        for config in configs.items() {
            requests.references(&config.at("requests"));
            configuration(&config);
        }
    }
}

fn request(request: &At) {
    const ONE: &str = "exactly one of `exactly` or `firstAvailable` is required";
    parts::label(&request.at("name"));
    let (exactly, first) = (request.at("exactly"), request.at("firstAvailable"));
    match (exactly.is_set(), !first.is_empty()) {
        (false, false) => request.required(ONE),
        (true, true) => {
            let why = format!("{ONE}, but multiple fields are set");
            request.note(Cause::invalid(request.path(), &json!(null), &why));
        }
        (true, false) => of_class(&exactly),
        (false, true) => {
            parts::set(&first, MOST_ALTERNATIVES, alternative, |item| parts::text_of(item, "name"));
        }
    }
}

fn alternative(at: &At) {
    parts::label(&at.at("name"));
    of_class(at);
}

/// How many devices of which class are asked for.
fn of_class(at: &At) {
    at.at("deviceClassName").need_name(NameRule::Subdomain);
    selectors(&at.at("selectors"));
    let (mode, count) = (at.at("allocationMode"), at.at("count"));
    let number = count.number().unwrap_or(0);
    match mode.text() {
        "ExactCount" if number <= 0 => {
            count.note(Cause::invalid(count.path(), &json!(number), "must be greater than zero"));
        }
        "All" if number != 0 => count.invalid("must not be specified when allocationMode is 'All'"),
        "ExactCount" | "All" => {}
        _ => mode.unsupported(&["All", "ExactCount"]),
    }
    at.at("tolerations").items().for_each(|one| toleration(&one));
}

fn toleration(at: &At) {
    let (key, operator, value) = (at.at("key"), at.at("operator"), at.at("value"));
    if !key.text().is_empty() {
        key.qualified();
    }
    match operator.text() {
        "Exists" if value.text().is_empty() => {}
        "Exists" => value.invalid("must be empty for operator `Exists`"),
        "Equal" => value.tell(value.text(), &names::label_value(value.text())),
        "" => operator.required(""),
        _ => operator.unsupported(&["Equal", "Exists"]),
    }
    at.at("effect").one_of(&EFFECTS);
}

fn selectors(list: &At) {
    if !fits(list, MOST) {
        return;
    }
    for selector in list.items() {
        let (cel, expression) = (selector.at("cel"), selector.at("cel.expression"));
        if !cel.is_set() {
            cel.required("");
        } else if expression.text().len() > LONGEST_SELECTOR {
            expression.too_long(LONGEST_SELECTOR);
        } else {
            match device_problem(expression.text()) {
                None => {}
                Some(Unfit::Wrong(why)) => expression.tell(expression.text(), &[why]),
                Some(Unfit::TooComplex) => expression.forbidden("too complex, exceeds cost limit"),
            }
        }
    }
}

fn constraint(at: &At, requests: &Requests) {
    requests.references(&at.at("requests"));
    let (same, other) = (at.at("matchAttribute"), at.at("distinctAttribute"));
    if same.is_set() {
        parts::fully_qualified(&same);
    } else if other.is_set() {
        parts::fully_qualified(&other);
    } else {
        // So the real server says it, though none is set.
        let why = "exactly one of \"matchAttribute\" or \"distinctAttribute\" is required, but multiple fields are set";
        at.required(why);
    }
}

/// Checks parameters for a driver.
pub fn configuration(config: &At) {
    let opaque = config.at("opaque");
    if opaque.is_set() {
        opaque.at("driver").driver_name();
        parts::object(&opaque.at("parameters"), MOST_PARAMETERS);
    } else {
        opaque.required("");
    }
}

/// Checks the spec of a class of devices.
pub fn class(spec: &At) {
    selectors(&spec.at("selectors"));
    let configs = spec.at("config");
    if fits(&configs, MOST) {
        configs.items().for_each(|config| configuration(&config));
    }
    let resource = spec.at("extendedResourceName");
    if resource.is_set() && !is_extended(resource.text()) {
        resource.invalid("must be a valid extended resource name");
    }
}

/// True for the name of a resource that nodes do not have by themselves.
fn is_extended(name: &str) -> bool {
    const REQUESTS: &str = "requests.";
    let native = !name.contains('/') || name.contains("kubernetes.io/");
    !native && !name.starts_with(REQUESTS) && names::qualified(&format!("{REQUESTS}{name}")).is_empty()
}
