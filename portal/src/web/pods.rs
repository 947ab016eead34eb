//! Pods of a job, from the member it runs in, with what the user may read of that member.

use std::time::Duration;

use fleet_views::amounts::GPU;
use jiff::Timestamp;
use serde_json::Value;

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

pub async fn of_job(hub: &Server, view: &mut JobView, api_version: &str, kind: &str) {
    let Some(row) = view.row.as_ref().filter(|row| !row.cluster.is_empty() && !row.state.is_final()) else {
        return;
    };
    let member = match fleet_openpai::members::reach(hub, &row.cluster).await {
        Ok(member) => member,
        Err(why) => {
            view.pods_absent = format!("The pods in {} are not shown: {why}", row.cluster);
            return;
        }
    };
    let member = Server { patience: MEMBER_ANSWERS_WITHIN, ..member };
    let (path, selectors) =
        (format!("/api/v1/namespaces/{}/pods", row.namespace), labels(api_version, kind, &row.name));
    match member.list(&path, &selectors, "application/json").await {
        Ok(listed) => {
            let items = listed["items"].as_array().into_iter().flatten();
            view.pods = items.take(MOST).map(pod).collect();
        }
        Err(error) => view.pods_absent = format!("The pods in {} are not shown: {error}", row.cluster),
    }
}

/// How each kind's controller marks the pods of a job.
fn labels(api_version: &str, kind: &str, name: &str) -> Selectors {
    Selectors { labels: Some(format!("{}={name}", label(api_version, kind))), ..Selectors::default() }
}

/// Whether a pod of the job's namespace is the job's.
pub fn is_of(pod: &Value, job: &JobName) -> bool {
    let Some((api_version, kind)) = crate::kinds::of_resource(&job.resource) else { return false };
    pod["metadata"]["labels"][label(&api_version, &kind)] == job.name.as_str()
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
    let ended = containers().filter_map(|one| one["state"]["terminated"].as_object());
    let exits = ended.map(|end| {
        let code = end.get("exitCode").and_then(Value::as_i64).unwrap_or(0);
        match end.get("reason").and_then(Value::as_str) {
            Some(reason) => format!("{code} ({reason})"),
            None => code.to_string(),
        }
    });
    let waiting = containers().find_map(|one| one["state"]["waiting"]["reason"].as_str());
    PodRow {
        name: text(&object["metadata"]["name"]),
        node: text(&object["spec"]["nodeName"]),
        state: waiting.map_or_else(|| text(&status["phase"]), str::to_owned),
        exit: exits.collect::<Vec<_>>().join(", "),
        gpus: gpus(&object["spec"]),
        gpu_numbers: text(&object["metadata"]["annotations"][ISOLATION_ANNOTATION]),
        restarts: containers().filter_map(|one| one["restartCount"].as_i64()).sum(),
        created_s: object["metadata"]["creationTimestamp"]
            .as_str()
            .and_then(|text| text.parse::<Timestamp>().ok())
            .map(Timestamp::as_second),
    }
}
