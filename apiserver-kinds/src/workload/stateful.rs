//! StatefulSets, whose claims are volumes of their pods.
//!
//! Inputs: decoded objects, defaults applied. Source: the validation of Kubernetes 1.36. Absent on purpose: how many pods
//! of one may be unavailable during an update, which the server keeps with a feature only that is off by default.

use super::shared;
use fleet_apiserver_ground::tree;
use fleet_apiserver_pods::{claim_spec, spec as pod_spec};
use fleet_apiserver_schema::error::Cause;
use fleet_apiserver_schema::field::{At, Causes, same_but};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// What of a StatefulSet may change.
const CHANGES: [&str; 7] = [
    "replicas",
    "ordinals",
    "template",
    "updateStrategy",
    "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy",
    "minReadySeconds",
];

const ROLLING: [shared::Shown; 2] =
    [("Partition", "partition", "0"), ("MaxUnavailable", "maxUnavailable", "null")];

/// Which spec is looked at.
#[derive(Clone, Copy)]
enum Spec<'a> {
    /// That of a new object.
    New,
    /// A changed one, with the one before.
    Changed(&'a Value),
    /// The one before a change.
    Before,
}

/// Checks the spec of a StatefulSet.
pub fn check(new: &At, old: Option<&At>) {
    let spec = new.at("spec");
    let Some(old) = old else {
        check_spec(&spec, Spec::New);
        return;
    };
    let before = old.at("spec").value();
    check_spec(&spec, Spec::Changed(before));
    if !same_but(spec.value(), before, &CHANGES) {
        spec.forbidden(
            "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden",
        );
    }
}

fn check_spec(spec: &At, which: Spec) {
    // What cannot change is looked at once.
    let is_new = matches!(which, Spec::New);
    let policy = spec.at("podManagementPolicy");
    if !matches!(policy.text(), "OrderedReady" | "Parallel") {
        policy.invalid("must be 'OrderedReady' or 'Parallel'");
    }
    update_strategy(&spec.at("updateStrategy"));
    let retention = spec.at("persistentVolumeClaimRetentionPolicy");
    for field in ["whenDeleted", "whenScaled"] {
        retention.at(field).one_of(&["Retain", "Delete"]);
    }
    if is_new {
        let claims = spec.at("volumeClaimTemplates");
        for claim in claims.items() {
            claim_spec::check_spec(&claim.at("spec"));
        }
    }
    spec.at("replicas").non_negative();
    spec.at("minReadySeconds").non_negative();
    spec.at("ordinals.start").non_negative();
    let service = spec.at("serviceName");
    if is_new && !service.text().is_empty() {
        shared::label(&service);
    }
    if shared::selector(spec, "empty selector is invalid for statefulset", "") {
        template(spec, which);
    }
    pod_spec::lasting_template(&spec.at("template"), "StatefulSet");
}

fn update_strategy(update: &At) {
    let rolling = update.at("rollingUpdate");
    match update.at("type").text() {
        "OnDelete" if rolling.is_set() => {
            let shown = shared::shown_rolling(rolling.value(), &ROLLING);
            rolling.wrong(&format!("{shown}: only allowed for updateStrategy 'RollingUpdate'"));
        }
        "OnDelete" => {}
        "RollingUpdate" => rolling.at("partition").non_negative(),
        _ => {
            let shown = shared::shown_strategy(update.value(), &ROLLING);
            update.wrong(&format!("{shown}: must be 'RollingUpdate' or 'OnDelete'"));
        }
    }
}

/// Checks the template. One whose object was not valid before, for whatever reason, is not looked at.
fn template(spec: &At, which: Spec) {
    let template = spec.at("template");
    pod_spec::selected(&spec.at("selector"), &template);
    let found = of_template(spec.value());
    // Labels and annotations are looked at twice, and at the second time in any case.
    let again: Vec<Cause> = found.iter().filter(|cause| is_of_metadata(cause)).cloned().collect();
    let tolerated = !found.is_empty() && matches!(which, Spec::Changed(before) if !is_valid(before));
    if !tolerated {
        found.into_iter().for_each(|cause| template.note(cause));
    }
    again.into_iter().for_each(|cause| template.note(cause));
}

fn is_of_metadata(cause: &Cause) -> bool {
    cause.field == "spec.template.labels" || cause.field.starts_with("spec.template.annotations")
}

/// True when nothing is wrong with a spec.
fn is_valid(spec: &Value) -> bool {
    let found = Causes::default();
    {
        let whole = json!({"spec": spec});
        let root = At::root(&whole, &found);
        check_spec(&root.at("spec"), Spec::Before);
    }
    found.into_inner().is_empty()
}

/// What is wrong with a template in which claims are volumes and which has no names of its own.
fn of_template(spec: &Value) -> Vec<Cause> {
    let mut template = spec.get("template").cloned().unwrap_or_default();
    let inner = tree::child(&mut template, "spec");
    inner.remove("subdomain");
    inner.remove("hostname");
    let claims = tree::list(spec, &["volumeClaimTemplates"]);
    if !claims.is_empty() {
        let mut names = BTreeSet::new();
        let mut volumes: Vec<Value> = Vec::new();
        for name in claims.iter().map(|claim| tree::meta_text(claim, "name")) {
            if names.insert(name) {
                volumes.push(json!({"name": name, "persistentVolumeClaim": {"claimName": name}}));
            }
        }
        let own = inner.get("volumes").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        volumes.extend(own.iter().filter(|volume| !names.contains(tree::text(volume, &["name"]))).cloned());
        inner.insert("volumes".into(), Value::Array(volumes));
    }
    let found = Causes::default();
    {
        let whole = json!({"spec": {"template": template}});
        let root = At::root(&whole, &found);
        pod_spec::template(&root.at("spec.template"));
    }
    found.into_inner()
}
