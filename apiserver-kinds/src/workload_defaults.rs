//! Defaults of the kinds that make pods, and what the server itself says of new ones.
//!
//! Inputs: a decoded object. Source: Kubernetes 1.36. Absent on purpose: defaults of pods (see `pods`), and other kinds
//! (see `defaults`).

use fleet_apiserver_ground::tree::{self, default_to};
use fleet_apiserver_pods::defaults::{self as pods, Obj, inner, items};
use fleet_apiserver_schema::resource::Resource;
use serde_json::{Value, json};

/// Annotation that counts the changes of a DaemonSet's template.
const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

/// Labels that a Job without a selector of its own puts on its pods: its uid, and its name.
const UID_LABELS: [&str; 2] = ["controller-uid", UID_LABEL];
const NAME_LABELS: [&str; 2] = ["job-name", "batch.kubernetes.io/job-name"];
/// The label that such a Job selects its pods by.
const UID_LABEL: &str = "batch.kubernetes.io/controller-uid";

/// Fills in defaults of a kind that makes pods. False for other kinds.
pub fn apply(resource: &Resource, value: &mut Value) -> bool {
    match (resource.group.as_str(), resource.plural.as_str()) {
        ("", "podtemplates") => template(tree::object(value)),
        ("", "replicationcontrollers") => replication_controller(value),
        ("apps", "deployments") => deployment(tree::child(value, "spec")),
        ("apps", "replicasets") => {
            let spec = tree::child(value, "spec");
            default_to(spec, "replicas", 1);
            template(spec);
        }
        ("apps", "statefulsets") => stateful_set(tree::child(value, "spec")),
        ("apps", "daemonsets") => {
            daemon_set_notes(value);
            daemon_set(tree::child(value, "spec"));
        }
        ("batch", "jobs") => {
            labels_of_template(value);
            job(tree::child(value, "spec"));
        }
        ("batch", "cronjobs") => cron_job(tree::child(value, "spec")),
        _ => return false,
    }
    true
}

/// Whether a kind makes pods.
pub fn makes_pods(resource: &Resource) -> bool {
    matches!(
        (resource.group.as_str(), resource.plural.as_str()),
        ("", "replicationcontrollers")
            | ("apps", "deployments" | "replicasets" | "statefulsets" | "daemonsets")
            | ("batch", "jobs" | "cronjobs")
    )
}

/// Fills in what a write of the status of such a kind can have removed.
pub fn of_status(resource: &Resource, value: &mut Value) {
    match (resource.group.as_str(), resource.plural.as_str()) {
        ("", "replicationcontrollers") | ("batch", "jobs") => labels_of_template(value),
        ("apps", "daemonsets") => daemon_set_notes(value),
        _ => {}
    }
}

fn daemon_set_notes(value: &mut Value) {
    let notes = tree::object(tree::meta(value).entry("annotations").or_insert_with(|| json!({})));
    default_to(notes, TEMPLATE_GENERATION, "1");
}

/// A template is part of every object that has one, so it has its defaults even where nothing of it is written.
fn template(spec: &mut Obj) {
    pods::spec(inner(inner(spec, "template"), "spec"));
}

fn replication_controller(value: &mut Value) {
    labels_of_template(value);
    let labels = tree::at(value, &["spec", "template", "metadata", "labels"]).cloned();
    let spec = tree::child(value, "spec");
    default_to(spec, "replicas", 1);
    if let Some(labels) = labels {
        default_to(spec, "selector", labels);
    }
    // Only here may the template be missing.
    if let Some(Value::Object(template)) = spec.get_mut("template") {
        pods::spec(inner(template, "spec"));
    }
}

fn deployment(spec: &mut Obj) {
    default_to(spec, "replicas", 1);
    default_to(spec, "revisionHistoryLimit", 10);
    default_to(spec, "progressDeadlineSeconds", 600);
    let strategy = inner(spec, "strategy");
    default_to(strategy, "type", "RollingUpdate");
    if strategy.get("type") == Some(&json!("RollingUpdate")) {
        let rolling = inner(strategy, "rollingUpdate");
        default_to(rolling, "maxSurge", "25%");
        default_to(rolling, "maxUnavailable", "25%");
    }
    template(spec);
}

fn stateful_set(spec: &mut Obj) {
    default_to(spec, "replicas", 1);
    default_to(spec, "revisionHistoryLimit", 10);
    default_to(spec, "podManagementPolicy", "OrderedReady");
    let update = inner(spec, "updateStrategy");
    if !update.contains_key("type") {
        default_to(update, "type", "RollingUpdate");
        default_to(update, "rollingUpdate", json!({}));
    }
    let rolls = update.get("type") == Some(&json!("RollingUpdate"));
    if let Some(Value::Object(rolling)) = update.get_mut("rollingUpdate") {
        if rolls {
            default_to(rolling, "partition", 0);
        }
        // The server does not keep it unless MaxUnavailableStatefulSet is on, which it is not by default.
        rolling.remove("maxUnavailable");
    }
    let retention = inner(spec, "persistentVolumeClaimRetentionPolicy");
    default_to(retention, "whenDeleted", "Retain");
    default_to(retention, "whenScaled", "Retain");
    for claim in items(spec, "volumeClaimTemplates") {
        claim.insert("apiVersion".into(), "v1".into());
        claim.insert("kind".into(), "PersistentVolumeClaim".into());
        default_to(inner(claim, "spec"), "volumeMode", "Filesystem");
        default_to(inner(claim, "status"), "phase", "Pending");
    }
    template(spec);
}

fn daemon_set(spec: &mut Obj) {
    default_to(spec, "revisionHistoryLimit", 10);
    let update = inner(spec, "updateStrategy");
    default_to(update, "type", "RollingUpdate");
    if update.get("type") == Some(&json!("RollingUpdate")) {
        let rolling = inner(update, "rollingUpdate");
        default_to(rolling, "maxSurge", 0);
        default_to(rolling, "maxUnavailable", 1);
    }
    template(spec);
}

fn job(spec: &mut Obj) {
    if !spec.contains_key("completions") && !spec.contains_key("parallelism") {
        spec.insert("completions".into(), 1.into());
    }
    default_to(spec, "parallelism", 1);
    // Where each index has a limit of its own, all together have none.
    let limit = if spec.contains_key("backoffLimitPerIndex") { i32::MAX } else { 6 };
    default_to(spec, "backoffLimit", limit);
    default_to(spec, "completionMode", "NonIndexed");
    default_to(spec, "suspend", false);
    let replacement = if spec.contains_key("podFailurePolicy") { "Failed" } else { "TerminatingOrFailed" };
    default_to(spec, "podReplacementPolicy", replacement);
    default_to(spec, "manualSelector", false);
    job_template(spec);
}

/// What also has defaults in the template of a CronJob.
fn job_template(spec: &mut Obj) {
    if let Some(Value::Object(policy)) = spec.get_mut("podFailurePolicy") {
        for rule in items(policy, "rules") {
            items(rule, "onPodConditions").for_each(|pattern| default_to(pattern, "status", "True"));
        }
    }
    template(spec);
}

fn cron_job(spec: &mut Obj) {
    default_to(spec, "concurrencyPolicy", "Allow");
    default_to(spec, "suspend", false);
    default_to(spec, "successfulJobsHistoryLimit", 3);
    default_to(spec, "failedJobsHistoryLimit", 1);
    job_template(inner(inner(spec, "jobTemplate"), "spec"));
}

fn has_labels(value: &Value) -> bool {
    tree::at(value, &["metadata", "labels"])
        .and_then(Value::as_object)
        .is_some_and(|labels| !labels.is_empty())
}

/// An object without labels takes those of its template.
fn labels_of_template(value: &mut Value) {
    if has_labels(value) {
        return;
    }
    if let Some(labels) = tree::at(value, &["spec", "template", "metadata", "labels"]).cloned() {
        tree::meta(value).insert("labels".into(), labels);
    }
}

/// True when a new Job takes all labels of its template, also those that the server puts there. A Job whose name is
/// generated takes those that are written only.
pub fn takes_labels(resource: &Resource, value: &Value) -> bool {
    resource.is("batch", "jobs")
        && !has_labels(value)
        && tree::at(value, &["spec", "template", "metadata", "labels"]).is_some_and(Value::is_object)
        && !tree::meta_text(value, "name").is_empty()
}

/// Gives a new Job all labels of its template.
pub fn take_labels(value: &mut Value) {
    if let Some(labels) = tree::at(value, &["spec", "template", "metadata", "labels"]).cloned() {
        tree::meta(value).insert("labels".into(), labels);
    }
}

/// Counts a change of a DaemonSet's template, whatever the client says of it. A new one may start at another number.
pub fn template_generation(live: Option<&Value>, value: &mut Value) {
    let path = ["metadata", "annotations", TEMPLATE_GENERATION];
    let count = match live {
        None => tree::text(value, &path).parse::<i64>().unwrap_or(1).max(1),
        Some(live) => {
            let before: i64 = tree::text(live, &path).parse().unwrap_or(1);
            let template = |v: &Value| tree::at(v, &["spec", "template"]).cloned();
            before.saturating_add(i64::from(template(live) != template(value)))
        }
    };
    let notes = tree::object(tree::meta(value).entry("annotations").or_insert_with(|| json!({})));
    notes.insert(TEMPLATE_GENERATION.into(), count.to_string().into());
}

/// Sets what the real server generates for a new Job: selector and labels by uid. What is there already stays, and is
/// refused later if it does not fit.
pub fn new_job(value: &mut Value, uid: &str) {
    let name = tree::meta_text(value, "name").to_string();
    let spec = tree::child(value, "spec");
    if spec.get("manualSelector") == Some(&json!(true)) {
        return;
    }
    let labels = inner(inner(inner(spec, "template"), "metadata"), "labels");
    for label in NAME_LABELS {
        default_to(labels, label, name.as_str());
    }
    for label in UID_LABELS {
        default_to(labels, label, uid);
    }
    default_to(inner(inner(spec, "selector"), "matchLabels"), UID_LABEL, uid);
    labels_of_template(value);
}

/// Says the new name of a Job whose generated name, the one before, was taken.
pub fn renamed(resource: &Resource, value: &mut Value, before: &str) {
    if !resource.is("batch", "jobs") {
        return;
    }
    let name = Value::from(tree::meta_text(value, "name"));
    rename(tree::meta(value), before, &name);
    rename(inner(inner(tree::child(value, "spec"), "template"), "metadata"), before, &name);
}

fn rename(meta: &mut Obj, before: &str, name: &Value) {
    let Some(Value::Object(labels)) = meta.get_mut("labels") else { return };
    for label in NAME_LABELS {
        if labels.get(label).is_some_and(|found| found == before) {
            labels.insert(label.into(), name.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fleet_apiserver_schema::builtins;

    fn filled(group: &str, plural: &str, spec: Value) -> Value {
        let mut value = json!({"metadata": {"name": "w"}, "spec": spec});
        assert!(apply(builtins::find(group, plural), &mut value));
        value
    }

    #[test]
    fn a_job_is_filled_in_by_what_else_it_says() {
        let job = |spec: Value| filled("batch", "jobs", spec)["spec"].clone();
        let plain = job(json!({}));
        assert_eq!((&plain["completions"], &plain["parallelism"]), (&json!(1), &json!(1)));
        assert_eq!(
            (&plain["backoffLimit"], &plain["podReplacementPolicy"]),
            (&json!(6), &json!("TerminatingOrFailed"))
        );
        assert_eq!(plain["template"]["spec"]["restartPolicy"], "Always");
        let wide = job(json!({"parallelism": 3, "backoffLimitPerIndex": 0}));
        assert_eq!((wide.get("completions"), &wide["backoffLimit"]), (None, &json!(2_147_483_647)));
        let rule = json!({"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]});
        let careful = job(json!({"podFailurePolicy": {"rules": [rule]}}));
        assert_eq!(careful["podReplacementPolicy"], "Failed");
        assert_eq!(careful["podFailurePolicy"]["rules"][0]["onPodConditions"][0]["status"], "True");
    }

    #[test]
    fn only_a_controller_of_replication_takes_its_selector_from_its_template() {
        let template = json!({"template": {"metadata": {"labels": {"a": "b"}}}});
        let controller = filled("", "replicationcontrollers", template.clone());
        assert_eq!(controller["spec"]["selector"], json!({"a": "b"}));
        assert_eq!(controller["metadata"]["labels"], json!({"a": "b"}));
        let set = filled("apps", "replicasets", template);
        assert_eq!((set["spec"].get("selector"), set["metadata"].get("labels")), (None, None));
    }

    #[test]
    fn a_strategy_that_is_named_is_not_filled_in() {
        let update = |strategy: Value| {
            filled("apps", "statefulsets", json!({"updateStrategy": strategy}))["spec"]["updateStrategy"]
                .clone()
        };
        assert_eq!(update(json!({})), json!({"type": "RollingUpdate", "rollingUpdate": {"partition": 0}}));
        assert_eq!(update(json!({"type": "RollingUpdate"})), json!({"type": "RollingUpdate"}));
        assert_eq!(
            update(json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 2}})),
            json!({"type": "RollingUpdate", "rollingUpdate": {"partition": 0}})
        );
    }

    #[test]
    fn labels_of_a_job_are_not_overwritten() {
        let own = json!({"template": {"metadata": {"labels": {"job-name": "other"}}}});
        let mut job = json!({"metadata": {"name": "w"}, "spec": own});
        new_job(&mut job, "u");
        let labels = &job["spec"]["template"]["metadata"]["labels"];
        assert_eq!((&labels["job-name"], &labels["controller-uid"]), (&json!("other"), &json!("u")));
        assert_eq!(labels["batch.kubernetes.io/job-name"], "w");
        job["metadata"]["name"] = json!("x");
        renamed(builtins::find("batch", "jobs"), &mut job, "w");
        let labels = &job["spec"]["template"]["metadata"]["labels"];
        assert_eq!(
            (&labels["job-name"], &labels["batch.kubernetes.io/job-name"]),
            (&json!("other"), &json!("x"))
        );
    }

    #[test]
    fn the_number_of_a_template_starts_where_the_client_says() {
        let mut set =
            json!({"metadata": {"annotations": {TEMPLATE_GENERATION: "5"}}, "spec": {"template": {}}});
        template_generation(None, &mut set);
        assert_eq!(set["metadata"]["annotations"][TEMPLATE_GENERATION], "5");
        let live = set.clone();
        set["metadata"]["annotations"][TEMPLATE_GENERATION] = json!("9");
        template_generation(Some(&live), &mut set);
        assert_eq!(set["metadata"]["annotations"][TEMPLATE_GENERATION], "5");
        set["spec"]["template"] = json!({"spec": {"hostname": "h"}});
        template_generation(Some(&live), &mut set);
        assert_eq!(set["metadata"]["annotations"][TEMPLATE_GENERATION], "6");
    }
}
