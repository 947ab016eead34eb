//! Jobs.
//!
//! Inputs: decoded objects, defaults applied. Source: the validation of Kubernetes 1.36. Causes come in the order of the
//! real server; a changed spec is looked at twice there, and so are its causes told twice.

mod cron_job;
mod indexes;
mod policies;
mod status;

use crate::workload;
use fleet_apiserver_ground::tree;
use fleet_apiserver_pods::spec as pod_spec;
use fleet_apiserver_schema::error::Cause;
use fleet_apiserver_schema::field::{At, Causes, same, same_but};
use fleet_apiserver_schema::selectors::Labels;
use fleet_apiserver_schema::validate::{self, NameRule};
use serde_json::{Value, json};

pub use cron_job::cron_job;

/// Most pods at once, and most failed indexes, of an indexed Job.
const MOST_PARALLEL: i64 = 100_000;
/// Completions above which an indexed Job with limits per index is bounded more tightly.
const MANY_COMPLETIONS: i64 = 100_000;
/// Most pods at once, and most failed indexes, of such a Job.
const MOST_OF_MANY: i64 = 10_000;
/// Longest name of who manages a Job, in bytes.
const LONGEST_MANAGER: usize = 63;

/// Label of the pods of a Job that says its uid, and the older form of it.
const UID_LABEL: &str = "batch.kubernetes.io/controller-uid";
const OLD_UID_LABEL: &str = "controller-uid";
/// Label of the pods of a Job that says its name, and the older form of it.
const NAME_LABEL: &str = "batch.kubernetes.io/job-name";
const OLD_NAME_LABEL: &str = "job-name";

/// Checks a Job.
pub fn job(new: &At, old: Option<&At>, subresource: &str) {
    if let Some(old) = old.filter(|_| subresource == "status") {
        status::check(new, old);
        return;
    }
    let labels = |old: &At| tree::at(old.value(), &["spec", "template", "metadata", "labels"]).cloned();
    let before = old.and_then(labels);
    // Those of before may lack the newer labels.
    let newer = old.is_none()
        || before.is_some_and(|labels| labels.get(NAME_LABEL).is_some() && labels.get(UID_LABEL).is_some());
    generated(new, newer);
    let found = whole_spec(new.value());
    found.iter().for_each(|cause| new.note(cause.clone()));
    names_of_pods(new);
    if let Some(old) = old {
        found.into_iter().for_each(|cause| new.note(cause));
        update(&new.at("spec"), old);
    }
}

/// What is wrong with the spec of a Job and its selector.
fn whole_spec(job: &Value) -> Vec<Cause> {
    let found = Causes::default();
    {
        let root = At::root(job, &found);
        let spec = root.at("spec");
        check_spec(&spec);
        let selector = spec.at("selector");
        if !selector.is_set() {
            selector.required("");
        }
        selector.label_selector();
        if workload::usable(selector.value()) {
            pod_spec::selected(&selector, &spec.at("template"));
        }
    }
    found.into_inner()
}

/// The labels and the selector that the server generates have what it put there; another Job's would be its pods' then.
fn generated(job: &At, newer: bool) {
    let spec = job.at("spec");
    let selector = spec.at("selector");
    if spec.at("manualSelector").is_true() || !selector.is_set() {
        return;
    }
    let (uid, name) = (job.at("metadata.uid"), job.at("metadata.name"));
    if uid.text().is_empty() {
        uid.required("");
    }
    let mut wanted = vec![(OLD_UID_LABEL, uid.text()), (OLD_NAME_LABEL, name.text())];
    if newer {
        wanted.extend([(UID_LABEL, uid.text()), (NAME_LABEL, name.text())]);
    }
    let labels = spec.at("template.metadata.labels");
    for (key, value) in &wanted {
        let label = labels.key(key);
        let why = format!("must be '{value}'");
        if !label.is_set() {
            label.required(&why);
        } else if label.text() != *value {
            // All labels are shown.
            labels.invalid_as(label.path(), &why);
        }
    }
    if !workload::usable(selector.value()) {
        return;
    }
    let expected: serde_json::Map<String, Value> =
        wanted.iter().map(|(key, value)| (key.to_string(), Value::from(*value))).collect();
    if !Labels::from_object(selector.value()).matches(&json!({"metadata": {"labels": expected}})) {
        let shown = workload::shown_selector(selector.value());
        selector.wrong(&format!("{shown}: `selector` not auto-generated"));
    }
}

/// The pods of an indexed Job have host names: its name, a dash, and their index.
fn names_of_pods(job: &At) {
    let (name, spec) = (job.at("metadata.name"), job.at("spec"));
    let completions = spec.at("completions").number().unwrap_or(0);
    if spec.at("completionMode").text() != "Indexed" || completions <= 0 {
        return;
    }
    let host = format!("{}-{}", name.text(), completions - 1);
    if validate::name(NameRule::Label, &host).is_some() {
        name.invalid(&format!("will not able to create pod with invalid DNS label: {host}"));
    }
}

/// Checks the spec of a Job, alone or of a CronJob.
fn check_spec(spec: &At) {
    for field in [
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
        "ttlSecondsAfterFinished",
        "backoffLimitPerIndex",
        "maxFailedIndexes",
    ] {
        spec.at(field).non_negative();
    }
    if spec.at("maxFailedIndexes").is_set() && !spec.at("backoffLimitPerIndex").is_set() {
        spec.at("backoffLimitPerIndex").required("when maxFailedIndexes is specified");
    }
    manager(&spec.at("managedBy"));
    let mode = spec.at("completionMode");
    let (indexed, plain) = (mode.text() == "Indexed", !mode.is_set() || mode.text() == "NonIndexed");
    if indexed {
        check_indexed(spec);
    } else if plain {
        for field in ["backoffLimitPerIndex", "maxFailedIndexes"] {
            let field = spec.at(field);
            if field.is_set() {
                field.invalid("requires indexed completion mode");
            }
        }
    } else {
        mode.unsupported(&["NonIndexed", "Indexed"]);
    }
    let careful = spec.at("podFailurePolicy").is_set();
    if careful {
        policies::failure(spec);
    }
    policies::success(spec, indexed);
    let replacement = spec.at("podReplacementPolicy");
    let allowed: &[&str] = if careful { &["Failed"] } else { &["Failed", "TerminatingOrFailed"] };
    if replacement.is_set() && !allowed.contains(&replacement.text()) {
        replacement.unsupported(allowed);
    }
    let template = spec.at("template");
    pod_spec::template(&template);
    let restart = template.at("spec.restartPolicy");
    match restart.text() {
        "" | "Always" => restart.required("valid values: \"OnFailure\", \"Never\""),
        "Never" => {}
        "OnFailure" if careful => {
            restart.invalid("only \"Never\" is supported when podFailurePolicy is specified");
        }
        "OnFailure" => {}
        _ => restart.unsupported(&["OnFailure", "Never"]),
    }
}

/// How many completions, pods and failed indexes an indexed Job may have.
fn check_indexed(spec: &At) {
    let (completions, parallel) = (spec.at("completions"), spec.at("parallelism"));
    let failed = spec.at("maxFailedIndexes");
    let number = |at: &At| at.number().unwrap_or(0);
    if !completions.is_set() {
        completions.required("when completion mode is Indexed");
    }
    if number(&parallel) > MOST_PARALLEL {
        parallel.invalid(&format!(
            "must be less than or equal to {MOST_PARALLEL} when completion mode is Indexed"
        ));
    }
    if completions.is_set() && failed.is_set() && number(&failed) > number(&completions) {
        failed.invalid("must be less than or equal to completions");
    }
    if number(&failed) > MOST_PARALLEL {
        failed.invalid(&format!("must be less than or equal to {MOST_PARALLEL}"));
    }
    if number(&completions) <= MANY_COMPLETIONS || !spec.at("backoffLimitPerIndex").is_set() {
        return;
    }
    if !failed.is_set() {
        failed.required(&format!("must be specified when completions is above {MANY_COMPLETIONS}"));
    }
    for at in [&parallel, &failed] {
        if number(at) > MOST_OF_MANY {
            at.invalid(&format!(
                "must be less than or equal to {MOST_OF_MANY} when completions are above {MANY_COMPLETIONS} and used with backoff limit per index"
            ));
        }
    }
}

/// Who manages a Job is named by a domain, a slash and a path.
fn manager(at: &At) {
    const PATH: &str = "A-Za-z0-9/\\-._~%!$&'()*+,;=:";
    if !at.is_set() {
        return;
    }
    let tell = |value: &str, why: &str| at.note(Cause::invalid(at.path(), &Value::from(value), why));
    match at.text().split_once('/') {
        _ if at.text().is_empty() => at.required(""),
        Some((domain, path)) if !domain.is_empty() && !path.is_empty() => {
            if let Some(why) = validate::name(NameRule::Subdomain, domain) {
                tell(domain, &why);
            }
            if !path.bytes().all(|b| b.is_ascii_alphanumeric() || b"/-._~%!$&'()*+,;=:".contains(&b)) {
                tell(path, &format!("Invalid path (regex used for validation is '[{PATH}]+')"));
            }
        }
        _ => at.invalid("must be a domain-prefixed path (such as \"acme.io/foo\")"),
    }
    if at.text().len() > LONGEST_MANAGER {
        at.too_long(LONGEST_MANAGER);
    }
}

/// What of a Job may change.
fn update(spec: &At, old: &At) {
    let before = old.at("spec");
    completions(spec, &before);
    workload::lasting_selector(spec, &before);
    template(spec, old.value());
    spec.at("completionMode").same_as(&before.at("completionMode"));
    policies::lasting(spec, &before, "podFailurePolicy");
    for field in ["backoffLimitPerIndex", "managedBy"] {
        spec.at(field).same_as(&before.at(field));
    }
    policies::lasting(spec, &before, "successPolicy");
}

/// An indexed Job may be resized together with its parallelism.
fn completions(spec: &At, before: &At) {
    let (now, was) = (spec.at("completions"), before.at("completions"));
    if spec.at("completionMode").text() != "Indexed" {
        now.same_as(&was);
    } else if now.is_set() && now.value() != was.value() && now.value() != spec.at("parallelism").value() {
        now.invalid("can only be modified in tandem with spec.parallelism");
    }
}

/// A Job that is held back may be told where its pods run and what they need.
fn template(spec: &At, old: &Value) {
    let template = spec.at("template");
    let none = Value::Null;
    let was = tree::at(old, &["spec", "template"]).unwrap_or(&none);
    if same(template.value(), was) {
        return;
    }
    if !status::is_held_back(old) {
        template.invalid("field is immutable");
        return;
    }
    let pod = template.at("spec");
    let allowed = with_placing(pod.value(), was.get("spec").unwrap_or(&none));
    if !same_but(pod.value(), &allowed, &[]) {
        pod.invalid("field is immutable");
    }
}

/// The pod before a change, with what of it may be as in the changed one.
fn with_placing(now: &Value, was: &Value) -> Value {
    let mut allowed = was.clone();
    let fields = tree::object(&mut allowed);
    for key in ["nodeSelector", "tolerations", "schedulingGates"] {
        tree::put(fields, key, now.get(key).cloned());
    }
    let nodes = tree::at(now, &["affinity", "nodeAffinity"]).cloned();
    let mut affinity = was.get("affinity").cloned().unwrap_or_else(|| json!({}));
    tree::put(tree::object(&mut affinity), "nodeAffinity", nodes);
    // Nothing of affinity, and affinity with nothing in it, differ where both are written.
    let (is_empty, stays) =
        (same(&affinity, &Value::Null), now.get("affinity").is_some_and(Value::is_object));
    tree::put(fields, "affinity", (!is_empty || stays).then_some(affinity));
    for list in ["containers", "initContainers"] {
        let given = tree::list(now, &[list]);
        let Some(Value::Array(containers)) = fields.get_mut(list) else { continue };
        if containers.len() != given.len() {
            continue;
        }
        for (container, given) in containers.iter_mut().zip(given) {
            if tree::text(container, &["name"]) == tree::text(given, &["name"]) {
                tree::put(tree::object(container), "resources", given.get("resources").cloned());
            }
        }
    }
    allowed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_of_a_pod_that_waits_may_change() {
        let was = json!({"affinity": {"nodeAffinity": {"a": 1}, "podAffinity": {"b": 1}}, "nodeSelector": {"a": "b"},
            "containers": [{"name": "c", "image": "i", "resources": {"limits": {"cpu": "1"}}}]});
        let fine = |now: Value| same_but(&now, &with_placing(&now, &was), &[]);
        assert!(fine(was.clone()));
        assert!(fine(json!({"affinity": {"nodeAffinity": {"c": 2}, "podAffinity": {"b": 1}},
            "tolerations": [{"key": "k"}], "containers": [{"name": "c", "image": "i"}]})));
        assert!(fine(
            json!({"affinity": {"podAffinity": {"b": 1}}, "containers": [{"name": "c", "image": "i"}]})
        ));
        assert!(!fine(json!({"containers": [{"name": "c", "image": "i"}]})));
        assert!(!fine(
            json!({"affinity": {"podAffinity": {"b": 1}}, "containers": [{"name": "c", "image": "j"}]})
        ));
        let bare = json!({"containers": [{"name": "c"}]});
        let moved = json!({"affinity": {"nodeAffinity": {"c": 2}}, "containers": [{"name": "c"}]});
        assert!(same_but(&moved, &with_placing(&moved, &bare), &[]));
        assert!(same_but(&bare, &with_placing(&bare, &moved), &[]));
    }
}
