//! Which changes of a running job take effect at once, and which wait for its next run.
//!
//! Quota and places were counted for the job as it was sent. If a change of its pods' requests took effect, it
//! would use more than was counted. So only fields that control the run follow while it runs.
//!
//! A declared run time is a promise: jobs that end in time may pass one that has a claim. So a run's time gets shorter at once,
//! and longer with the next run.

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

/// The field by which a job's controller ends it after a time. Volcano Jobs and other kinds have none.
fn deadline(kind: WorkloadKind) -> Option<&'static [&'static str]> {
    match kind {
        WorkloadKind::PyTorchJob | WorkloadKind::TFJob | WorkloadKind::MPIJob => {
            Some(&["runPolicy", "activeDeadlineSeconds"])
        }
        WorkloadKind::BatchJob => Some(&["activeDeadlineSeconds"]),
        WorkloadKind::VolcanoJob | WorkloadKind::Deployment | WorkloadKind::Other => None,
    }
}

fn at<'v>(spec: &'v Value, path: &[&str]) -> Option<&'v Value> {
    path.iter().try_fold(spec, |value, field| value.get(field)).filter(|value| !value.is_null())
}

/// The run time that a job declares, if its controller ends it then. While a job is suspended, no time passes for its
/// controller: such a job promises nothing.
pub fn declared_run_time_ms(kind: WorkloadKind, job: &Value) -> Option<i64> {
    let seconds = declared_deadline_s(kind, job).filter(|_| !is_suspended(kind, job));
    seconds.map(|seconds| seconds.saturating_mul(1000))
}

/// Whether the job says that its controller keeps no pods of it for now.
pub fn is_suspended(kind: WorkloadKind, job: &Value) -> bool {
    let path = controls(kind).iter().find(|path| path.last() == Some(&"suspend"));
    path.is_some_and(|path| at(&job["spec"], path) == Some(&Value::Bool(true)))
}

/// After how many seconds of work its controller ends the job.
pub fn declared_deadline_s(kind: WorkloadKind, job: &Value) -> Option<i64> {
    at(&job["spec"], deadline(kind)?).and_then(Value::as_i64).filter(|seconds| *seconds > 0)
}

/// Gives a job no longer a run time than `most_s`. Returns the field and what was found, if that was more, or nothing.
pub fn limit_run_time(kind: WorkloadKind, job: &mut Value, most_s: i64) -> Option<String> {
    let path = deadline(kind)?;
    let found = at(&job["spec"], path);
    if found.and_then(Value::as_i64).is_some_and(|found| found <= most_s) {
        return None;
    }
    let told = format!("spec.{}: {}", path.join("."), found.map_or("none".to_owned(), Value::to_string));
    if job["spec"].is_object() {
        set(&mut job["spec"], path, Some(most_s.into()));
    }
    Some(told)
}

/// Turns `wanted` into what a run that began with `sent` may become: the spec of `sent` with the control fields of
/// `wanted`. A job that says no more that it is suspended says that it is not. Other control fields that `wanted` lacks stay.
/// Returns the first levels of the spec that wait for the next run, such as `spec.tasks`.
pub fn keep_run(kind: WorkloadKind, sent: &Value, wanted: &mut Value) -> Vec<String> {
    let mut asked = wanted["spec"].take();
    if !asked.is_object() {
        asked = Value::Object(Map::new());
    }
    let mut spec = sent["spec"].clone();
    for path in controls(kind) {
        // A member keeps a field that is sent no more.
        if at(&spec, path).is_some() && at(&asked, path).is_none() {
            if path.last() != Some(&"suspend") {
                continue;
            }
            set(&mut asked, path, Some(false.into()));
        }
        let value = at(&asked, path);
        let lasts_longer = |known: i64| value.and_then(Value::as_i64).is_none_or(|value| value > known);
        if deadline(kind) == Some(*path) && at(&spec, path).and_then(Value::as_i64).is_some_and(lasts_longer)
        {
            continue;
        }
        let value = value.cloned();
        set(&mut spec, path, value);
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
    if !spec.is_object() {
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
    fn what_is_no_spec_keeps_the_run() {
        for wanted in [json!("x"), json!(["x"]), json!(1), json!(null)] {
            let mut object = json!({"spec": wanted});
            let sent = json!({"spec": {"runPolicy": {"suspend": false}}});
            assert_eq!(keep_run(WorkloadKind::PyTorchJob, &sent, &mut object), Vec::<String>::new());
            assert_eq!(object, sent);
        }
    }

    #[test]
    fn a_job_that_says_no_more_that_it_is_suspended_is_resumed() {
        let resumed = json!({"runPolicy": {"suspend": false}});
        for (sent, wanted) in [(true, json!({})), (true, json!({"runPolicy": {}})), (false, json!({}))] {
            check(
                WorkloadKind::PyTorchJob,
                json!({"runPolicy": {"suspend": sent}}),
                wanted,
                resumed.clone(),
                &[],
            );
        }
        let (sent, resumed) = (json!({"suspend": true}), json!({"suspend": false}));
        check(WorkloadKind::BatchJob, sent, json!({"suspend": null}), resumed, &[]);
        check(WorkloadKind::BatchJob, json!({}), json!({}), json!({}), &[]);
        // The member keeps the others: the job says so.
        let (sent, wanted) = (json!({"backoffLimit": 2, "suspend": false}), json!({"suspend": true}));
        let stays = json!({"backoffLimit": 2, "suspend": true});
        check(WorkloadKind::BatchJob, sent, wanted, stays, &["spec.backoffLimit"]);
    }

    #[test]
    fn a_run_gets_shorter_at_once_and_longer_with_the_next_run() {
        let of = |kind: WorkloadKind, deadline: &Value| match kind {
            WorkloadKind::BatchJob => json!({"activeDeadlineSeconds": deadline}),
            _ => json!({"runPolicy": {"activeDeadlineSeconds": deadline}}),
        };
        let none = &Value::Null;
        for (kind, field) in
            [(WorkloadKind::BatchJob, "spec.activeDeadlineSeconds"), (WorkloadKind::MPIJob, "spec.runPolicy")]
        {
            for (sent, wanted, stays) in [
                (&json!(60), &json!(1_000_000_000), true),
                (&json!(60), none, true),
                (&json!(60), &json!(1e9), true),
                (&json!(60), &json!(30), false),
                (&json!(60), &json!(60), false),
                (none, &json!(30), false),
            ] {
                let (expected, waiting) = if stays { (sent, vec![field]) } else { (wanted, vec![]) };
                check(kind, of(kind, sent), of(kind, wanted), of(kind, expected), &waiting);
            }
        }
        let mut absent = json!({"spec": {"runPolicy": {}}});
        let sent = json!({"spec": of(WorkloadKind::TFJob, &json!(60))});
        assert_eq!(keep_run(WorkloadKind::TFJob, &sent, &mut absent), ["spec.runPolicy"]);
        assert_eq!(absent, sent);
    }

    #[test]
    fn only_what_ends_a_job_is_a_run_time() {
        let both = json!({"activeDeadlineSeconds": 60, "runPolicy": {"activeDeadlineSeconds": 90}});
        let of = |kind| declared_run_time_ms(kind, &json!({"spec": both}));
        assert_eq!(of(WorkloadKind::BatchJob), Some(60_000));
        assert_eq!(of(WorkloadKind::PyTorchJob), Some(90_000));
        assert_eq!(of(WorkloadKind::VolcanoJob), None, "its controller does not know the field");
        let paused = json!({"spec": {"suspend": true, "activeDeadlineSeconds": 60}});
        assert_eq!(declared_run_time_ms(WorkloadKind::BatchJob, &paused), None);
        let paused = json!({"spec": {"runPolicy": {"suspend": true, "activeDeadlineSeconds": 60}}});
        assert_eq!(declared_run_time_ms(WorkloadKind::TFJob, &paused), None);
        assert!(is_suspended(WorkloadKind::TFJob, &paused), "{paused}");
        assert!(!is_suspended(WorkloadKind::BatchJob, &paused), "its controller does not know the field");
        assert!(!is_suspended(WorkloadKind::VolcanoJob, &json!({"spec": {"suspend": true}})));
    }

    #[test]
    fn a_run_time_is_limited() {
        let limited = |spec: Value| {
            let mut job = json!({"spec": spec});
            let told = limit_run_time(WorkloadKind::PyTorchJob, &mut job, 60).unwrap_or_default();
            (told, job["spec"]["runPolicy"]["activeDeadlineSeconds"].clone())
        };
        let told = |text: &str| format!("spec.runPolicy.activeDeadlineSeconds: {text}");
        assert_eq!(limited(json!({})), (told("none"), json!(60)));
        let of = |seconds: i64| json!({"runPolicy": {"activeDeadlineSeconds": seconds}});
        assert_eq!(limited(of(61)), (told("61"), json!(60)));
        assert_eq!(limited(of(60)), (String::new(), json!(60)));
        assert_eq!(limited(of(7)), (String::new(), json!(7)));
        assert_eq!(limit_run_time(WorkloadKind::VolcanoJob, &mut json!({"spec": {}}), 60), None);
    }

    #[test]
    fn a_run_stays_what_was_counted() {
        let roles = |n: i64| json!({"Worker": {"replicas": n}});
        check(
            WorkloadKind::PyTorchJob,
            json!({"pytorchReplicaSpecs": roles(2), "runPolicy": {"backoffLimit": 1, "schedulingPolicy": {"minAvailable": 1}}}),
            json!({"pytorchReplicaSpecs": roles(20), "elasticPolicy": {"maxReplicas": 9}, "runPolicy": {"suspend": true, "schedulingPolicy": {"minAvailable": 1}}}),
            json!({"pytorchReplicaSpecs": roles(2), "runPolicy": {"backoffLimit": 1, "suspend": true, "schedulingPolicy": {"minAvailable": 1}}}),
            &["spec.elasticPolicy", "spec.pytorchReplicaSpecs", "spec.runPolicy"],
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
            json!({"tfReplicaSpecs": roles(1), "runPolicy": {"suspend": false}}),
            &[],
        );
    }
}
