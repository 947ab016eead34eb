//! Which changes of a running job take effect at once, and which wait for its next run.
//!
//! Quota and places were counted for the job as it was sent. If a change of its pods' requests took effect, it
//! would use more than was counted. So only fields that control the run follow while it runs.

use serde_json::{Map, Value};

use super::WorkloadKind;

/// Fields of the spec, as paths, that control a run and do not change its requests.
fn controls(kind: WorkloadKind) -> &'static [&'static [&'static str]] {
    match kind {
        WorkloadKind::PyTorchJob | WorkloadKind::TFJob | WorkloadKind::MPIJob => &[
            &["runPolicy", "activeDeadlineSeconds"],
            &["runPolicy", "backoffLimit"],
            &["runPolicy", "cleanPodPolicy"],
            &["runPolicy", "suspend"],
            &["runPolicy", "ttlSecondsAfterFinished"],
        ],
        WorkloadKind::BatchJob => {
            &[&["activeDeadlineSeconds"], &["backoffLimit"], &["suspend"], &["ttlSecondsAfterFinished"]]
        }
        WorkloadKind::VolcanoJob => &[&["maxRetry"], &["ttlSecondsAfterFinished"]],
        WorkloadKind::Deployment | WorkloadKind::Other => &[],
    }
}

/// Turns `wanted` into what a run that began with `sent` may become: the spec of `sent` with the control fields of
/// `wanted`. Returns the first levels of the spec that wait for the next run, such as `spec.tasks`.
pub fn keep_run(kind: WorkloadKind, sent: &Value, wanted: &mut Value) -> Vec<String> {
    let asked = wanted["spec"].take();
    let mut spec = sent["spec"].clone();
    for path in controls(kind) {
        let value = path.iter().try_fold(&asked, |value, field| value.get(field));
        set(&mut spec, path, value.cloned());
    }
    let none = Map::new();
    let (kept, asked) = (spec.as_object().unwrap_or(&none), asked.as_object().unwrap_or(&none));
    let mut waiting: Vec<String> = kept
        .keys()
        .chain(asked.keys().filter(|field| !kept.contains_key(*field)))
        .filter(|field| !same(kept.get(*field), asked.get(*field)))
        .map(|field| format!("spec.{field}"))
        .collect();
    waiting.sort();
    wanted["spec"] = spec;
    waiting
}

/// Absent, null and empty are equal: a server may drop and fill them.
fn same(a: Option<&Value>, b: Option<&Value>) -> bool {
    let empty = |value: Option<&Value>| match value {
        None | Some(Value::Null) => true,
        Some(Value::Object(fields)) => fields.is_empty(),
        _ => false,
    };
    a == b || (empty(a) && empty(b))
}

fn set(spec: &mut Value, path: &[&str], value: Option<Value>) {
    let Some((last, parents)) = path.split_last() else { return };
    if value.is_none() && parents.iter().try_fold(&*spec, |at, field| at.get(field)).is_none() {
        return;
    }
    let mut at = spec;
    for field in parents {
        if !at[*field].is_object() {
            at[*field] = Value::Object(Map::new());
        }
        at = &mut at[*field];
    }
    let Some(fields) = at.as_object_mut() else { return };
    match value {
        Some(value) => fields.insert((*last).to_owned(), value),
        None => fields.remove(*last),
    };
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(kind: WorkloadKind, sent: Value, wanted: Value, expected: Value, waiting: &[&str]) {
        let mut object = json!({"metadata": {"labels": {"k": "v"}}, "spec": wanted});
        assert_eq!(keep_run(kind, &json!({"spec": sent}), &mut object), waiting);
        assert_eq!(object, json!({"metadata": {"labels": {"k": "v"}}, "spec": expected}));
    }

    #[test]
    fn a_run_stays_what_was_counted() {
        let roles = |n: i64| json!({"Worker": {"replicas": n}});
        check(
            WorkloadKind::PyTorchJob,
            json!({"pytorchReplicaSpecs": roles(2), "runPolicy": {"backoffLimit": 1, "schedulingPolicy": {"minAvailable": 1}}}),
            json!({"pytorchReplicaSpecs": roles(20), "elasticPolicy": {"maxReplicas": 9}, "runPolicy": {"suspend": true, "schedulingPolicy": {"minAvailable": 1}}}),
            json!({"pytorchReplicaSpecs": roles(2), "runPolicy": {"suspend": true, "schedulingPolicy": {"minAvailable": 1}}}),
            &["spec.elasticPolicy", "spec.pytorchReplicaSpecs"],
        );
        check(
            WorkloadKind::BatchJob,
            json!({"parallelism": 2, "template": {}}),
            json!({"parallelism": 9, "template": {}, "suspend": true}),
            json!({"parallelism": 2, "template": {}, "suspend": true}),
            &["spec.parallelism"],
        );
        check(
            WorkloadKind::VolcanoJob,
            json!({"tasks": [1]}),
            json!({}),
            json!({"tasks": [1]}),
            &["spec.tasks"],
        );
        check(
            WorkloadKind::TFJob,
            json!({"tfReplicaSpecs": roles(1), "runPolicy": {"suspend": true}}),
            json!({"tfReplicaSpecs": roles(1)}),
            json!({"tfReplicaSpecs": roles(1), "runPolicy": {}}),
            &[],
        );
    }
}
