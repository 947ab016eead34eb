//! Pods of a job, from the member it runs in, with what the user may read of that member.

use std::time::Duration;

use fleet_api::names::{GANG_ANNOTATION, binding_name};
use fleet_views::{amounts::GPU, natural_order};
use jiff::Timestamp;
use serde_json::Value;

use super::{
    members::{self, What},
    state::Web,
};
use fleet_openpai::server::{Selectors, Server};
use fleet_pages::{
    page::JobName,
    shown::{JobView, PodRow},
};

/// Numbers of the devices that a pod's cells are, as HiveD writes them.
const ISOLATION_ANNOTATION: &str = "hivedscheduler.microsoft.com/pod-leaf-cell-isolation";
/// Pods shown of one job.
const MOST: usize = 200;
/// A member that is slow must not hold up the page.
const MEMBER_ANSWERS_WITHIN: Duration = Duration::from_secs(3);

/// The pods of a job that is in a cluster, or has ended there: they stay until their member removes them.
pub async fn of_job(web: &Web, hub: &Server, view: &mut JobView) {
    let Some(row) = view.row.as_ref().filter(|row| !row.cluster.is_empty()) else { return };
    let (cluster, namespace, has_ended) = (&row.cluster, &row.namespace, row.state.is_final());
    let Some(label) = label_of(&view.name) else { return };
    let not_shown = |why: String| format!("The pods in {cluster} are not shown: {why}");
    let member = match members::reach(web, hub, cluster, namespace, What::Pods, MEMBER_ANSWERS_WITHIN).await {
        Ok(member) => member,
        Err(why) => {
            view.pods_absent = not_shown(why);
            return;
        }
    };
    let path = format!("/api/v1/namespaces/{namespace}/pods");
    let selectors = Selectors { labels: Some(format!("{label}={}", view.name.name)), ..Selectors::default() };
    let listed = match member.list(&path, &selectors, "application/json").await {
        Ok(listed) => listed,
        Err(error) => {
            view.pods_absent = not_shown(error.to_string());
            return;
        }
    };
    let items = listed["items"].as_array().into_iter().flatten().filter(|pod| is_of(pod, &view.name));
    let mut pods: Vec<PodRow> = items.map(pod).collect();
    // What its first user looks for is above the bound.
    pods.sort_by(|one, other| {
        other.has_failed.cmp(&one.has_failed).then_with(|| natural_order(&one.name, &other.name))
    });
    view.more_pods = pods.len().saturating_sub(MOST);
    pods.truncate(MOST);
    if pods.is_empty() {
        view.pods_absent = match has_ended {
            true => format!("No pod of it is left in {cluster}: exit codes and logs have gone with them."),
            false => format!("There is no pod of it in {cluster} now."),
        };
    }
    view.pods = pods;
}

/// Whether a pod of the job's namespace is the job's: by the label that its controller writes, and, where Fleet has marked
/// the pod, by the job's own gang. Jobs of two kinds may have one name.
pub fn is_of(pod: &Value, job: &JobName) -> bool {
    let Some((api_version, kind)) = crate::kinds::of_resource(&job.resource) else { return false };
    let metadata = &pod["metadata"];
    let gang = metadata["annotations"][GANG_ANNOTATION].as_str();
    metadata["labels"][label(&api_version, &kind)] == job.name.as_str()
        && gang.is_none_or(|gang| gang == binding_name(&api_version, &kind, &job.name))
}

fn label_of(job: &JobName) -> Option<&'static str> {
    let (api_version, kind) = crate::kinds::of_resource(&job.resource)?;
    Some(label(&api_version, &kind))
}

fn label(api_version: &str, kind: &str) -> &'static str {
    match (api_version, kind) {
        ("batch.volcano.sh/v1alpha1", _) => "volcano.sh/job-name",
        ("batch/v1", _) => "batch.kubernetes.io/job-name",
        ("apps/v1", _) => "app",
        _ => "training.kubeflow.org/job-name",
    }
}

/// What its containers may use together.
fn gpus(spec: &Value) -> i64 {
    let containers = spec["containers"].as_array().into_iter().flatten();
    let amount = |one: &Value| match &one["resources"]["limits"][GPU] {
        Value::String(text) => text.parse().unwrap_or(0),
        other => other.as_i64().unwrap_or(0),
    };
    containers.map(amount).sum()
}

fn pod(object: &Value) -> PodRow {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let status = &object["status"];
    let containers = || status["containerStatuses"].as_array().into_iter().flatten();
    let ends = |when: &'static str| {
        containers().filter_map(move |one| one[when]["terminated"].as_object()).map(|end| {
            let code = end.get("exitCode").and_then(Value::as_i64).unwrap_or(0);
            (code, end.get("reason").and_then(Value::as_str))
        })
    };
    let exits = |when: &'static str| {
        let exits = ends(when).map(|(code, reason)| match reason {
            Some(reason) => format!("{code} ({reason})"),
            None => code.to_string(),
        });
        exits.collect::<Vec<_>>().join(", ")
    };
    let exit = match (exits("state"), exits("lastState")) {
        (now, before) if now.is_empty() && !before.is_empty() => format!("{before}, before its last restart"),
        (now, _) => now,
    };
    let waiting = containers().find_map(|one| one["state"]["waiting"]["reason"].as_str());
    let phase = text(&status["phase"]);
    let has_failed = phase == "Failed" || ends("state").any(|(code, _)| code != 0);
    let state = match (waiting, status["reason"].as_str()) {
        (Some(waiting), _) => waiting.to_owned(),
        (None, Some(reason)) => format!("{phase} ({reason})"),
        (None, None) => phase,
    };
    PodRow {
        name: text(&object["metadata"]["name"]),
        node: text(&object["spec"]["nodeName"]),
        state,
        exit,
        has_failed,
        gpus: gpus(&object["spec"]),
        gpu_numbers: text(&object["metadata"]["annotations"][ISOLATION_ANNOTATION]),
        restarts: containers().filter_map(|one| one["restartCount"].as_i64()).sum(),
        created_s: object["metadata"]["creationTimestamp"]
            .as_str()
            .and_then(|text| text.parse::<Timestamp>().ok())
            .map(Timestamp::as_second),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_pod_is_of_the_job_that_made_it() {
        let job = |resource: &str| JobName::new("a", resource, "train");
        let pod = |annotations: Value| {
            json!({"metadata": {"labels": {"training.kubeflow.org/job-name": "train"},
                "annotations": annotations}})
        };
        let marked = pod(json!({"fleet.dev/gang": "train-pytorchjob"}));
        assert!(is_of(&marked, &job("pytorchjobs.kubeflow.org")));
        assert!(!is_of(&marked, &job("tfjobs.kubeflow.org")), "another kind of the same name");
        assert!(is_of(&pod(Value::Null), &job("pytorchjobs.kubeflow.org")));
        assert!(!is_of(&marked, &job("jobs.batch")) && !is_of(&marked, &job("odd")));
    }

    #[test]
    fn a_pod_says_how_it_ended() {
        let check = |status: Value, expected: (&str, &str, bool)| {
            let row = pod(&json!({"metadata": {"name": "p"}, "status": status}));
            assert_eq!((row.state.as_str(), row.exit.as_str(), row.has_failed), expected, "{status}");
        };
        let ended = |code: i64| json!({"terminated": {"exitCode": code, "reason": "Error"}});
        check(
            json!({"phase": "Failed", "containerStatuses": [{"state": ended(3)}]}),
            ("Failed", "3 (Error)", true),
        );
        check(json!({"phase": "Failed", "reason": "Evicted"}), ("Failed (Evicted)", "", true));
        check(
            json!({"phase": "Running", "containerStatuses": [{"state": {"running": {}}, "lastState": ended(137)}]}),
            ("Running", "137 (Error), before its last restart", false),
        );
        check(
            json!({"phase": "Running", "containerStatuses": [
                {"state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": ended(1)}]}),
            ("CrashLoopBackOff", "1 (Error), before its last restart", false),
        );
    }
}
