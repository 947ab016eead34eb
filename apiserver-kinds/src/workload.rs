//! Deployments, ReplicaSets, StatefulSets, DaemonSets, ReplicationControllers, ControllerRevisions, PodTemplates.
//!
//! Inputs: decoded objects. Source: the validation of Kubernetes 1.36.

use fleet_apiserver_pods::spec as pod_spec;
use fleet_apiserver_schema::field::{At, same, same_but};
use fleet_apiserver_schema::validate::NameRule;
use serde_json::{Value, json};

/// Checks a Deployment.
pub fn deployment(new: &At, old: Option<&At>) {
    let spec = new.at("spec");
    replicated(&spec);
    selector(&spec, old, "empty selector is invalid for deployment");
    pod_template(&spec, "ReplicaSet");
    for field in ["revisionHistoryLimit", "progressDeadlineSeconds"] {
        spec.at(field).non_negative();
    }
    let deadline = spec.at("progressDeadlineSeconds");
    let least = spec.at("minReadySeconds").number().unwrap_or(0);
    if deadline.number().is_some_and(|n| n >= 0 && n <= least) {
        deadline.invalid("must be greater than minReadySeconds");
    }
    let strategy = spec.at("strategy");
    let (kind, rolling) = (strategy.at("type"), strategy.at("rollingUpdate"));
    match kind.text() {
        "Recreate" if rolling.is_set() => {
            rolling.forbidden("may not be specified when strategy `type` is 'Recreate'");
        }
        "Recreate" => {}
        "RollingUpdate" => surge(&rolling),
        _ => strategy.unsupported(&["Recreate", "RollingUpdate"]),
    }
    let status = new.at("status");
    counts(
        &status,
        &["replicas", "updatedReplicas", "readyReplicas", "availableReplicas", "unavailableReplicas"],
    );
    bounded(&status, "replicas", &["updatedReplicas", "readyReplicas", "availableReplicas"]);
    let (ready, available) = (status.at("readyReplicas"), status.at("availableReplicas"));
    if available.number().unwrap_or(0) > ready.number().unwrap_or(0) {
        available.invalid("cannot be greater than readyReplicas");
    }
    collisions(&status, old);
}

fn collisions(status: &At, old: Option<&At>) {
    let (count, before) = (status.at("collisionCount"), old.map(|o| o.at("status.collisionCount").number()));
    count.non_negative();
    if before.flatten().is_some_and(|before| count.number().unwrap_or(0) < before) {
        count.invalid("cannot be decremented");
    }
}

fn counts(status: &At, fields: &[&str]) {
    fields.iter().for_each(|field| status.at(field).non_negative());
    status.at("observedGeneration").non_negative();
}

/// Counts of pods in some state are no more than there are pods.
fn bounded(status: &At, of: &str, fields: &[&str]) {
    let most = status.at(of).number().unwrap_or(0);
    for field in fields {
        let count = status.at(field);
        if count.number().unwrap_or(0) > most {
            count.invalid(&format!("cannot be greater than status.{of}"));
        }
    }
}

fn surge(rolling: &At) {
    let (least, most) = (rolling.at("maxUnavailable"), rolling.at("maxSurge"));
    for bound in [&least, &most] {
        bound.count_or_percent();
    }
    let nothing =
        |at: &At| matches!(at.value(), Value::Number(n) if n.as_i64() == Some(0)) || at.text() == "0%";
    if nothing(&least) && nothing(&most) {
        least.invalid("may not be 0 when `maxSurge` is 0");
    }
    percent(&least);
}

/// A percentage of at most 100.
fn percent(at: &At) {
    if at.text().strip_suffix('%').and_then(|n| n.parse::<u64>().ok()).is_some_and(|n| n > 100) {
        at.invalid("must not be greater than 100%");
    }
}

fn replicated(spec: &At) {
    spec.at("replicas").non_negative();
    spec.at("minReadySeconds").non_negative();
}

/// A selector that has to be there, selects something, and stays.
fn selector(spec: &At, old: Option<&At>, empty: &str) {
    let selector = spec.at("selector");
    if !selector.is_set() {
        selector.required("");
    } else {
        selector.label_selector();
        if selector.at("matchLabels").is_empty() && selector.at("matchExpressions").is_empty() {
            selector.invalid(empty);
        }
    }
    if let Some(old) = old {
        selector.same_as(&old.at("spec.selector"));
    }
}

fn pod_template(spec: &At, kind: &str) {
    let template = spec.at("template");
    pod_spec::selected(&spec.at("selector"), &template);
    pod_spec::template(&template);
    pod_spec::lasting_template(&template, kind);
}

/// Checks a ReplicaSet.
pub fn replica_set(new: &At, old: Option<&At>) {
    let spec = new.at("spec");
    replicated(&spec);
    selector(&spec, old, "empty selector is invalid for deployment");
    pod_template(&spec, "ReplicaSet");
    replicas_status(new);
}

fn replicas_status(new: &At) {
    let status = new.at("status");
    counts(&status, &["replicas", "fullyLabeledReplicas", "readyReplicas", "availableReplicas"]);
    bounded(&status, "replicas", &["fullyLabeledReplicas", "readyReplicas", "availableReplicas"]);
}

/// Checks a ReplicationController.
pub fn replication_controller(new: &At) {
    let spec = new.at("spec");
    replicated(&spec);
    let (selector, template) = (spec.at("selector"), spec.at("template"));
    if selector.is_empty() {
        selector.required("");
    }
    if !template.is_set() {
        template.required("");
    } else {
        let wanted = json!({"matchLabels": selector.value()});
        if !selector.is_empty()
            && !fleet_apiserver_schema::selectors::Labels::from_object(&wanted).matches(template.value())
        {
            template.at("metadata.labels").invalid("`selector` does not match template `labels`");
        }
        pod_spec::template(&template);
        pod_spec::lasting_template(&template, "ReplicationController");
    }
    replicas_status(new);
}

/// What of a StatefulSet may change.
const STATEFUL: [&str; 7] = [
    "replicas",
    "ordinals",
    "template",
    "updateStrategy",
    "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy",
    "minReadySeconds",
];

/// Checks a StatefulSet.
pub fn stateful_set(new: &At, old: Option<&At>) {
    let spec = new.at("spec");
    replicated(&spec);
    if old.is_none() {
        spec.at("serviceName").name(NameRule::Label);
    }
    let policy = spec.at("podManagementPolicy");
    if !matches!(policy.text(), "OrderedReady" | "Parallel") {
        policy.invalid("must be 'OrderedReady' or 'Parallel'");
    }
    let update = spec.at("updateStrategy");
    let rolling = update.at("rollingUpdate");
    match update.at("type").text() {
        "OnDelete" if rolling.is_set() => rolling.invalid("only allowed for updateStrategy 'RollingUpdate'"),
        "OnDelete" => {}
        "RollingUpdate" => {
            rolling.at("partition").non_negative();
            let most = rolling.at("maxUnavailable");
            most.count_or_percent();
            percent(&most);
        }
        _ => update.invalid("must be 'RollingUpdate' or 'OnDelete'"),
    }
    for field in ["whenDeleted", "whenScaled"] {
        let policy = spec.at("persistentVolumeClaimRetentionPolicy");
        policy.at(field).one_of(&["Delete", "Retain"]);
    }
    spec.at("ordinals.start").non_negative();
    spec.at("revisionHistoryLimit").non_negative();
    let selector = spec.at("selector");
    if !selector.is_set() {
        selector.required("");
    } else {
        selector.label_selector();
        if selector.at("matchLabels").is_empty() && selector.at("matchExpressions").is_empty() {
            selector.invalid("empty selector is invalid for statefulset");
        }
    }
    stateful_template(&spec);
    if let Some(old) = old
        && !same_but(spec.value(), old.at("spec").value(), &STATEFUL)
    {
        spec.forbidden(
            "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden",
        );
    }
    let status = new.at("status");
    counts(
        &status,
        &["replicas", "readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas"],
    );
    bounded(
        &status,
        "replicas",
        &["readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas"],
    );
    collisions(&status, old);
}

/// The claims of a StatefulSet are volumes of its pods.
fn stateful_template(spec: &At) {
    let template = spec.at("template");
    pod_spec::selected(&spec.at("selector"), &template);
    let claims = spec.at("volumeClaimTemplates");
    let mut whole = template.value().clone();
    if let Some(Value::Object(inner)) = whole.get_mut("spec")
        && let Value::Array(volumes) = inner.entry("volumes").or_insert_with(|| json!([]))
    {
        for claim in claims.items() {
            let name = claim.at("metadata.name").text();
            volumes.retain(|v| fleet_apiserver_ground::tree::text(v, &["name"]) != name);
            volumes.push(json!({"name": name, "emptyDir": {}}));
        }
    }
    let causes = fleet_apiserver_schema::field::Causes::default();
    let wrapped = json!({"spec": {"template": whole}});
    {
        let root = At::root(&wrapped, &causes);
        let template = root.at("spec.template");
        pod_spec::template(&template);
        pod_spec::lasting_template(&template, "StatefulSet");
    }
    causes.into_inner().into_iter().for_each(|cause| template.note(cause));
    for claim in claims.items() {
        fleet_apiserver_pods::claim_spec::check_spec(&claim.at("spec"));
    }
}

/// Checks a DaemonSet.
pub fn daemon_set(new: &At, old: Option<&At>) {
    let spec = new.at("spec");
    spec.at("minReadySeconds").non_negative();
    spec.at("revisionHistoryLimit").non_negative();
    let (selector, template) = (spec.at("selector"), spec.at("template"));
    selector.label_selector();
    if !selector.is_set() {
        selector.required("");
    } else if selector.at("matchLabels").is_empty() && selector.at("matchExpressions").is_empty() {
        selector.invalid("empty selector is invalid for daemonset");
    }
    if let Some(old) = old {
        selector.same_as(&old.at("spec.selector"));
    }
    pod_spec::selected(&selector, &template);
    pod_spec::template(&template);
    let (policy, deadline) = (template.at("spec.restartPolicy"), template.at("spec.activeDeadlineSeconds"));
    if policy.text() != "Always" {
        policy.unsupported(&["Always"]);
    }
    if deadline.is_set() {
        deadline.forbidden("activeDeadlineSeconds in DaemonSet is not Supported");
    }
    let update = spec.at("updateStrategy");
    let (kind, rolling) = (update.at("type"), update.at("rollingUpdate"));
    match kind.text() {
        "OnDelete" => {}
        "RollingUpdate" if !rolling.is_set() => rolling.required(""),
        "RollingUpdate" => {
            let (least, most) = (rolling.at("maxUnavailable"), rolling.at("maxSurge"));
            least.count_or_percent();
            most.count_or_percent();
            percent(&least);
            percent(&most);
            let none = |at: &At| at.number() == Some(0) || at.text() == "0%";
            match (none(&least), none(&most)) {
                (true, true) => least.required("cannot be 0 when maxSurge is 0"),
                (false, false) if most.is_set() => {
                    most.required("may not be set when maxUnavailable is non-zero");
                }
                _ => {}
            }
        }
        _ => update.unsupported(&["RollingUpdate", "OnDelete"]),
    }
    let status = new.at("status");
    counts(
        &status,
        &[
            "currentNumberScheduled",
            "numberMisscheduled",
            "desiredNumberScheduled",
            "numberReady",
            "updatedNumberScheduled",
            "numberAvailable",
            "numberUnavailable",
        ],
    );
    collisions(&status, old);
}

/// Checks a ControllerRevision.
pub fn controller_revision(new: &At, old: Option<&At>) {
    let data = new.at("data");
    if !data.is_set() {
        data.required("data is mandatory");
    }
    new.at("revision").non_negative();
    if let Some(old) = old
        && !same(data.value(), old.at("data").value())
    {
        data.invalid("field is immutable");
    }
}
