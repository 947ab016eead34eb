//! Autoscalers: how far they scale what, by which metrics, and how fast.
//!
//! Inputs: decoded objects in version v2, defaults applied. Source: the validation of Kubernetes 1.36.

use super::core_v1;
use fleet_apiserver_schema::error::Cause;
use fleet_apiserver_schema::field::At;
use fleet_apiserver_schema::validate::NameRule;
use serde_json::json;

/// Most seconds of a window, and of a period, of an autoscaler.
const LONGEST_WINDOW_S: i64 = 3600;
const LONGEST_PERIOD_S: i64 = 1800;

/// What the apiVersion of a reference has to be.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Version {
    /// Whatever it was before.
    Kept,
    /// A version, with or without a group.
    Any,
    /// A version of a group with a name.
    OfGroup,
}

/// Checks a HorizontalPodAutoscaler.
pub fn autoscaler(new: &At, old: Option<&At>, subresource: &str) {
    if subresource == "status" {
        for field in ["currentReplicas", "desiredReplicas"] {
            new.at("status").at(field).non_negative();
        }
        return;
    }
    let spec = new.at("spec");
    let before = old.map(|old| old.at("spec"));
    let (least, most) = (spec.at("minReplicas"), spec.at("maxReplicas"));
    let (fewest, maximum) = (least.number(), most.number().unwrap_or(0));
    // What could be scaled to zero before still can.
    let bound = i64::from(before.as_ref().is_none_or(|b| b.at("minReplicas").number() != Some(0)));
    if fewest.is_some_and(|n| n < bound) {
        least.invalid(&format!("must be greater than or equal to {bound}"));
    }
    if maximum == 0 {
        most.required("must be set and greater than 0");
    } else if maximum < 0 {
        most.invalid("must be greater than or equal to 1");
    }
    if fewest.is_some_and(|n| n > maximum) {
        most.invalid("must be greater than or equal to `minReplicas`");
    }
    let target = spec.at("scaleTargetRef");
    let kept = before.as_ref().is_some_and(|b| {
        ["kind", "apiVersion"].iter().all(|f| b.at("scaleTargetRef").at(f).text() == target.at(f).text())
    });
    let version = match target.at("kind").text() {
        _ if kept => Version::Kept,
        "ReplicationController" => Version::Any,
        _ => Version::OfGroup,
    };
    reference(&target, version);
    metrics(&spec, before.as_ref());
    for direction in ["scaleUp", "scaleDown"] {
        let rules = spec.at("behavior");
        let rules = rules.at(direction);
        if rules.is_set() {
            scaling_rules(&rules);
        }
    }
}

fn reference(at: &At, wanted: Version) {
    for field in ["kind", "name"] {
        at.at(field).need_name(NameRule::Path);
    }
    let version = at.at("apiVersion");
    if let Some(why) = version_problem(version.text(), wanted) {
        version.note(Cause::invalid(version.path(), &json!(version.text()), &why));
    }
}

fn version_problem(text: &str, wanted: Version) -> Option<String> {
    if wanted == Version::Kept {
        return None;
    }
    if text.matches('/').count() > 1 {
        return Some(format!("unexpected GroupVersion string: {text}"));
    }
    let grouped = text.split_once('/').is_some_and(|(group, _)| !group.is_empty());
    (wanted == Version::OfGroup && !grouped).then(|| "apiVersion must specify API group".into())
}

fn scaling_rules(rules: &At) {
    let window = rules.at("stabilizationWindowSeconds");
    if window.number().is_some_and(|n| n < 0) {
        window.invalid("must be greater than or equal to zero");
    } else if window.number().is_some_and(|n| n > LONGEST_WINDOW_S) {
        window.invalid(&format!("must be less than or equal to {LONGEST_WINDOW_S}"));
    }
    rules.at("selectPolicy").one_of(&["Disabled", "Max", "Min"]);
    let policies = rules.at("policies");
    if policies.is_empty() {
        policies.required("must specify at least one Policy");
    }
    for policy in policies.items() {
        let kind = policy.at("type");
        if !matches!(kind.text(), "Percent" | "Pods") {
            kind.unsupported(&["Percent", "Pods"]);
        }
        for field in ["value", "periodSeconds"] {
            let field = policy.at(field);
            if field.number().unwrap_or(0) <= 0 {
                field.invalid("must be greater than zero");
            }
        }
        let period = policy.at("periodSeconds");
        if period.number().is_some_and(|n| n > LONGEST_PERIOD_S) {
            period.invalid(&format!("must be less than or equal to {LONGEST_PERIOD_S}"));
        }
    }
    rules.at("tolerance").quantity();
}

/// Types of metrics, each with its field, in the order in which they are looked at.
const SOURCES: [(&str, &str); 5] = [
    ("Object", "object"),
    ("External", "external"),
    ("Pods", "pods"),
    ("Resource", "resource"),
    ("ContainerResource", "containerResource"),
];
const KINDS: [&str; 5] = ["ContainerResource", "External", "Object", "Pods", "Resource"];

fn metrics(spec: &At, before: Option<&At>) {
    // A reference that was wrong before may stay so.
    let wrong = |metric: &At| {
        metric.at("type").text() == "Object"
            && metric.at("object").is_set()
            && version_problem(metric.at("object.describedObject.apiVersion").text(), Version::Any).is_some()
    };
    let known = before.is_some_and(|b| b.at("metrics").items().any(|metric| wrong(&metric)));
    let version = if known { Version::Kept } else { Version::Any };
    let list = spec.at("metrics");
    list.items().for_each(|metric| one_metric(&metric, version));
    let scales = |metric: At| matches!(metric.at("type").text(), "Object" | "External");
    if spec.at("minReplicas").number() == Some(0) && !list.items().any(scales) {
        list.forbidden(
            "must specify at least one Object or External metric to support scaling to zero replicas",
        );
    }
}

fn one_metric(metric: &At, version: Version) {
    let kind = metric.at("type");
    if kind.text().is_empty() {
        kind.required("must specify a metric source type");
    }
    let wanted = SOURCES.iter().find(|(name, _)| *name == kind.text()).map(|(_, field)| *field);
    if wanted.is_none() {
        kind.unsupported(&KINDS);
    }
    let present: Vec<&str> =
        SOURCES.iter().map(|(_, field)| *field).filter(|field| metric.at(field).is_set()).collect();
    if let Some(first) = present.first() {
        source(&metric.at(first), first, version);
    }
    match wanted {
        // As there, it is told a second time.
        None => kind.unsupported(&KINDS),
        Some(field) if !present.contains(&field) => {
            metric.at(field).required("must populate information for the given metric source");
        }
        Some(_) => {}
    }
    if present.len() != 1 {
        for field in present.into_iter().filter(|field| Some(*field) != wanted) {
            metric.at(field).forbidden("must populate the given metric source only");
        }
    }
}

fn source(source: &At, field: &str, version: Version) {
    if field == "object" {
        reference(&source.at("describedObject"), version);
    }
    let (name, missing) = match field {
        "resource" | "containerResource" => (source.at("name"), "must specify a resource name"),
        _ => (source.at("metric.name"), "must specify a metric name"),
    };
    match field {
        _ if name.text().is_empty() => name.required(missing),
        "containerResource" => core_v1::resource_name(&name, name.text(), true),
        "resource" => {}
        _ => name.name(NameRule::Path),
    }
    if field == "containerResource" {
        let container = source.at("container");
        if container.text().is_empty() {
            container.required("must specify a container");
        }
        container.name(NameRule::Label);
    }
    target(&source.at("target"), field);
}

fn target(target: &At, field: &str) {
    let kind = target.at("type");
    if kind.text().is_empty() {
        kind.required("must specify a metric target type");
    }
    if !matches!(kind.text(), "Utilization" | "Value" | "AverageValue") {
        let why = "must be either Utilization, Value, or AverageValue";
        kind.note(Cause::invalid(kind.path(), &json!(kind.text()), why));
    }
    let (value, average, share) =
        (target.at("value"), target.at("averageValue"), target.at("averageUtilization"));
    for amount in [&value, &average] {
        if amount.is_set() && (amount.text() == "0" || amount.text().starts_with('-')) {
            amount.invalid("must be positive");
        }
    }
    if share.number().is_some_and(|n| n < 1) {
        share.invalid("must be greater than 0");
    }
    match (field, value.is_set(), average.is_set(), share.is_set()) {
        ("object", false, false, _) => {
            average.required("must set either a target value or averageValue");
        }
        ("external", false, false, _) => {
            average.required("must set either a target value for metric or a per-pod target");
        }
        ("external", true, true, _) => {
            value.forbidden("may not set both a target value for metric and a per-pod target");
        }
        ("pods", _, false, _) => average.required("must specify a positive target averageValue"),
        ("resource" | "containerResource", _, false, false) => {
            share.required("must set either a target raw value or a target utilization");
        }
        ("resource" | "containerResource", _, true, true) => {
            average.forbidden("may not set both a target raw value and a target utilization");
        }
        _ => {}
    }
}
