//! Cells of workloads and of batch.

use super::network;
use super::text::{age, containers, duration, labels, or, selected, selector};
use fleet_apiserver_ground::tree::{at, list, meta_text, number, text};
use fleet_apiserver_schema::resource::Resource;
use jiff::Timestamp;
use serde_json::{Value, json};

const POD: [&str; 4] = ["spec", "template", "spec", "containers"];

/// Appends the cells after the name.
pub fn fill(r: &Resource, v: &Value, now: Timestamp, out: &mut Vec<Value>) {
    let old = || json!(age(meta_text(v, "creationTimestamp"), now));
    let n = |path: &[&str]| json!(number(v, path));
    let part = |path: &[&str]| json!(format!("{}/{}", number(v, path), number(v, &["spec", "replicas"])));
    let (names, images) = (|| containers(v, &POD, "name"), || containers(v, &POD, "image"));
    match r.plural.as_str() {
        "deployments" => out.extend([
            part(&["status", "readyReplicas"]),
            n(&["status", "updatedReplicas"]),
            n(&["status", "availableReplicas"]),
            old(),
            names(),
            images(),
            json!(selector(at(v, &["spec", "selector"])).unwrap_or_else(|| "<invalid>".into())),
        ]),
        "replicasets" | "replicationcontrollers" => out.extend([
            n(&["spec", "replicas"]),
            n(&["status", "replicas"]),
            n(&["status", "readyReplicas"]),
            old(),
            names(),
            images(),
            match at(v, &["spec", "selector"]) {
                plain if r.group.is_empty() => labels(plain),
                full => selected(full),
            },
        ]),
        "statefulsets" => out.extend([part(&["status", "readyReplicas"]), old(), names(), images()]),
        "daemonsets" => out.extend([
            n(&["status", "desiredNumberScheduled"]),
            n(&["status", "currentNumberScheduled"]),
            n(&["status", "numberReady"]),
            n(&["status", "updatedNumberScheduled"]),
            n(&["status", "numberAvailable"]),
            labels(at(v, &["spec", "template", "spec", "nodeSelector"])),
            old(),
            names(),
            images(),
            selected(at(v, &["spec", "selector"])),
        ]),
        "controllerrevisions" => out.extend([or(&controller(v), "<none>"), n(&["revision"]), old()]),
        "jobs" => job(v, now, out),
        "cronjobs" => cron_job(v, now, out),
        _ => network::fill(r, v, now, out),
    }
}

/// The controller of an object: `kind.group/name`.
fn controller(v: &Value) -> String {
    let owners = list(v, &["metadata", "ownerReferences"]);
    let Some(owner) = owners.iter().find(|o| at(o, &["controller"]) == Some(&Value::Bool(true))) else {
        return String::new();
    };
    let kind = match text(owner, &["apiVersion"]).split_once('/') {
        Some((group, _)) => format!("{}.{group}", text(owner, &["kind"])),
        None => text(owner, &["kind"]).to_string(),
    };
    format!("{}/{}", kind.to_lowercase(), text(owner, &["name"]))
}

fn cron_job(v: &Value, now: Timestamp, out: &mut Vec<Value>) {
    const JOB_POD: [&str; 6] = ["spec", "jobTemplate", "spec", "template", "spec", "containers"];
    let last = text(v, &["status", "lastScheduleTime"]);
    out.extend([
        json!(text(v, &["spec", "schedule"])),
        or(text(v, &["spec", "timeZone"]), "<none>"),
        json!(match at(v, &["spec", "suspend"]).and_then(Value::as_bool) {
            Some(true) => "True",
            Some(false) => "False",
            None => "<unset>",
        }),
        json!(list(v, &["status", "active"]).len()),
        json!(if last.is_empty() { "<none>".to_string() } else { age(last, now) }),
        json!(age(meta_text(v, "creationTimestamp"), now)),
        containers(v, &JOB_POD, "name"),
        containers(v, &JOB_POD, "image"),
        selected(at(v, &["spec", "jobTemplate", "spec", "selector"])),
    ]);
}

fn job(v: &Value, now: Timestamp, out: &mut Vec<Value>) {
    let is = |kind: &str| {
        let hit = |c: &&Value| text(c, &["type"]) == kind && text(c, &["status"]) == "True";
        list(v, &["status", "conditions"]).iter().any(|c| hit(&c))
    };
    let status = if is("Complete") {
        "Complete"
    } else if is("Failed") {
        "Failed"
    } else if at(v, &["metadata", "deletionTimestamp"]).is_some() {
        "Terminating"
    } else if is("Suspended") {
        "Suspended"
    } else if is("FailureTarget") {
        "FailureTarget"
    } else if is("SuccessCriteriaMet") {
        "SuccessCriteriaMet"
    } else {
        "Running"
    };
    let done = number(v, &["status", "succeeded"]);
    let completions = match at(v, &["spec", "completions"]).and_then(Value::as_i64) {
        Some(n) => format!("{done}/{n}"),
        None => match number(v, &["spec", "parallelism"]) {
            n if n > 1 => format!("{done}/1 of {n}"),
            _ => format!("{done}/1"),
        },
    };
    let start = text(v, &["status", "startTime"]).parse::<Timestamp>().ok();
    let end = text(v, &["status", "completionTime"]).parse::<Timestamp>().ok();
    let took = start.map(|s| duration(end.unwrap_or(now).as_second() - s.as_second())).unwrap_or_default();
    out.extend([
        json!(status),
        json!(completions),
        json!(took),
        json!(age(meta_text(v, "creationTimestamp"), now)),
        containers(v, &POD, "name"),
        containers(v, &POD, "image"),
        selected(at(v, &["spec", "selector"])),
    ]);
}
