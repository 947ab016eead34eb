//! Deployments, ReplicaSets, StatefulSets, DaemonSets, ReplicationControllers, ControllerRevisions.
//!
//! Inputs: decoded objects, defaults applied. Source: the validation of Kubernetes 1.36. Causes come in the order of the
//! real server, which looks at the status only of what is written there, and at nothing else of that.

mod shared;
mod stateful;
mod status;

use fleet_apiserver_pods::spec as pod_spec;
use fleet_apiserver_schema::error::Cause;
use fleet_apiserver_schema::field::{At, same};
use serde_json::{Value, json};

pub(crate) use shared::{lasting_selector, shown_selector, usable};

/// The endpoint of the status.
const STATUS: &str = "status";

/// Checks a Deployment.
pub fn deployment(new: &At, old: Option<&At>, subresource: &str) {
    if subresource == STATUS {
        status::deployment(new, old);
        return;
    }
    let spec = new.at("spec");
    spec.at("replicas").non_negative();
    if shared::selector(&spec, "empty selector is invalid for deployment", "invalid label selector") {
        shared::template(&spec, "ReplicaSet");
    }
    strategy(&spec.at("strategy"));
    spec.at("minReadySeconds").non_negative();
    spec.at("revisionHistoryLimit").non_negative();
    let deadline = spec.at("progressDeadlineSeconds");
    deadline.non_negative();
    let least = spec.at("minReadySeconds").number().unwrap_or(0);
    if deadline.number().is_some_and(|n| n <= least) {
        deadline.invalid("must be greater than minReadySeconds");
    }
    if let Some(old) = old {
        shared::lasting_selector(&spec, &old.at("spec"));
    }
}

fn strategy(strategy: &At) {
    let rolling = strategy.at("rollingUpdate");
    match strategy.at("type").text() {
        "Recreate" if rolling.is_set() => {
            rolling.forbidden("may not be specified when strategy `type` is 'Recreate'");
        }
        "Recreate" => {}
        "RollingUpdate" => {
            let (least, most) = (rolling.at("maxUnavailable"), rolling.at("maxSurge"));
            least.count_or_percent();
            most.count_or_percent();
            if shared::amount(least.value()) == 0 && shared::amount(most.value()) == 0 {
                least.invalid("may not be 0 when `maxSurge` is 0");
            }
            shared::at_most_all(&least);
        }
        _ => unsupported(strategy, &["Recreate", "RollingUpdate"]),
    }
}

/// The way of updates as a whole is none of these.
fn unsupported(strategy: &At, allowed: &[&str]) {
    let list: Vec<String> = allowed.iter().map(|word| format!("{word:?}")).collect();
    let shown = shared::shown_strategy(strategy.value(), &shared::BOUNDS);
    let message = format!("Unsupported value: {shown}: supported values: {}", list.join(", "));
    strategy.note(Cause::new("FieldValueNotSupported", strategy.path(), message));
}

/// Checks a ReplicaSet.
pub fn replica_set(new: &At, old: Option<&At>, subresource: &str) {
    if subresource == STATUS {
        status::replicas(new);
        return;
    }
    let spec = new.at("spec");
    spec.at("replicas").non_negative();
    spec.at("minReadySeconds").non_negative();
    if shared::selector(&spec, "empty selector is invalid for deployment", "invalid label selector") {
        shared::template(&spec, "ReplicaSet");
    }
    if let Some(old) = old {
        shared::lasting_selector(&spec, &old.at("spec"));
    }
}

/// Checks a ReplicationController.
pub fn replication_controller(new: &At, subresource: &str) {
    if subresource == STATUS {
        status::replicas(new);
        return;
    }
    let spec = new.at("spec");
    spec.at("minReadySeconds").non_negative();
    let (selector, template) = (spec.at("selector"), spec.at("template"));
    if selector.is_empty() {
        selector.required("");
    }
    spec.at("replicas").non_negative();
    if !template.is_set() {
        template.required("");
        return;
    }
    let wanted = json!({"matchLabels": selector.value()});
    let labels = fleet_apiserver_schema::selectors::Labels::from_object(&wanted);
    if !labels.matches(template.value()) {
        template.at("metadata.labels").invalid("`selector` does not match template `labels`");
    }
    pod_spec::template(&template);
    pod_spec::lasting_template(&template, "ReplicationController");
}

/// Checks a StatefulSet.
pub fn stateful_set(new: &At, old: Option<&At>, subresource: &str) {
    if subresource == STATUS {
        status::stateful_set(new, old);
    } else {
        stateful::check(new, old);
    }
}

/// Checks a DaemonSet.
pub fn daemon_set(new: &At, old: Option<&At>, subresource: &str) {
    if subresource == STATUS {
        status::daemon_set(new, old);
        return;
    }
    let spec = new.at("spec");
    if let Some(old) = old {
        shared::lasting_selector(&spec, &old.at("spec"));
    }
    let (selector, template) = (spec.at("selector"), spec.at("template"));
    selector.label_selector();
    if shared::usable(selector.value()) {
        pod_spec::selected(&selector, &template);
    }
    shared::selects_some(&selector, "empty selector is invalid for daemonset");
    pod_spec::template(&template);
    pod_spec::lasting_template(&template, "DaemonSet");
    spec.at("minReadySeconds").non_negative();
    daemon_updates(&spec.at("updateStrategy"));
    spec.at("revisionHistoryLimit").non_negative();
}

fn daemon_updates(update: &At) {
    let rolling = update.at("rollingUpdate");
    match update.at("type").text() {
        "OnDelete" => {}
        "RollingUpdate" => {
            let (least, most) = (rolling.at("maxUnavailable"), rolling.at("maxSurge"));
            least.count_or_percent();
            most.count_or_percent();
            shared::at_most_all(&least);
            shared::at_most_all(&most);
            match (shared::amount(least.value()) == 0, shared::amount(most.value()) == 0) {
                (true, true) => least.required("cannot be 0 when maxSurge is 0"),
                (false, false) => most.invalid("may not be set when maxUnavailable is non-zero"),
                _ => {}
            }
        }
        _ => unsupported(update, &["RollingUpdate", "OnDelete"]),
    }
}

/// Checks a ControllerRevision, whose data stays what it is.
pub fn controller_revision(new: &At, old: Option<&At>) {
    let data = new.at("data");
    new.at("revision").non_negative();
    match (old, data.value()) {
        (Some(old), value) if !same(value, old.at("data").value()) => data.invalid("field is immutable"),
        (Some(_), _) | (None, Value::Object(_)) => {}
        (None, Value::Null) => data.required("data is mandatory"),
        (None, _) => data.required("data must be a valid JSON object"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fleet_apiserver_schema::field::Causes;

    #[test]
    fn a_revision_holds_an_object() {
        for (data, wanted) in [
            (json!({"a": 1}), None),
            (json!([1]), Some("Required value: data must be a valid JSON object")),
            (json!(null), Some("Required value: data is mandatory")),
        ] {
            let found = Causes::default();
            let revision = json!({"revision": 1, "data": data});
            controller_revision(&At::root(&revision, &found), None);
            let told: Vec<String> = found.into_inner().into_iter().map(|cause| cause.message).collect();
            assert_eq!(told.first().map(String::as_str), wanted);
        }
    }
}
