//! Cells of workloads and of batch.

use super::other;
use super::text::{age, duration, join, labels, or};
use fleet_apiserver_ground::tree::{at, list, meta_text, number, text};
use fleet_apiserver_schema::resource::Resource;
use jiff::Timestamp;
use serde_json::{Value, json};

/// Appends the cells after the name.
pub fn fill(r: &Resource, v: &Value, now: Timestamp, out: &mut Vec<Value>) {
    let old = || json!(age(meta_text(v, "creationTimestamp"), now));
    let n = |path: &[&str]| json!(number(v, path));
    let containers =
        |path: &[&str], field: &str| join(list(v, path).iter().map(|c| text(c, &[field])), "<none>");
    const POD: [&str; 4] = ["spec", "template", "spec", "containers"];
    match (r.group.as_str(), r.plural.as_str()) {
        ("apps", "deployments") => out.extend([
            json!(format!(
                "{}/{}",
                number(v, &["status", "readyReplicas"]),
                number(v, &["spec", "replicas"])
            )),
            n(&["status", "updatedReplicas"]),
            n(&["status", "availableReplicas"]),
            old(),
            containers(&POD, "name"),
            containers(&POD, "image"),
            labels(at(v, &["spec", "selector", "matchLabels"])),
        ]),
        ("apps", "replicasets") | ("", "replicationcontrollers") => out.extend([
            n(&["spec", "replicas"]),
            n(&["status", "replicas"]),
            n(&["status", "readyReplicas"]),
            old(),
            containers(&POD, "name"),
            containers(&POD, "image"),
            labels(at(v, &["spec", "selector", "matchLabels"]).or(at(v, &["spec", "selector"]))),
        ]),
        ("apps", "statefulsets") => out.extend([
            json!(format!(
                "{}/{}",
                number(v, &["status", "readyReplicas"]),
                number(v, &["spec", "replicas"])
            )),
            old(),
            containers(&POD, "name"),
            containers(&POD, "image"),
        ]),
        ("apps", "daemonsets") => out.extend([
            n(&["status", "desiredNumberScheduled"]),
            n(&["status", "currentNumberScheduled"]),
            n(&["status", "numberReady"]),
            n(&["status", "updatedNumberScheduled"]),
            n(&["status", "numberAvailable"]),
            labels(at(v, &["spec", "template", "spec", "nodeSelector"])),
            old(),
            containers(&POD, "name"),
            containers(&POD, "image"),
            labels(at(v, &["spec", "selector", "matchLabels"])),
        ]),
        ("apps", "controllerrevisions") => {
            let owner = list(v, &["metadata", "ownerReferences"]).first();
            let name = owner.map(|o| format!("{}/{}", text(o, &["kind"]).to_lowercase(), text(o, &["name"])));
            out.extend([or(&name.unwrap_or_default(), "<none>"), n(&["revision"]), old()]);
        }
        ("batch", "jobs") => job(v, now, out, containers(&POD, "name"), containers(&POD, "image")),
        ("batch", "cronjobs") => {
            let path = ["spec", "jobTemplate", "spec", "template", "spec", "containers"];
            let last = text(v, &["status", "lastScheduleTime"]);
            out.extend([
                json!(text(v, &["spec", "schedule"])),
                or(text(v, &["spec", "timeZone"]), "<none>"),
                at(v, &["spec", "suspend"]).cloned().unwrap_or(json!(false)),
                json!(list(v, &["status", "active"]).len()),
                json!(if last.is_empty() { "<none>".to_string() } else { age(last, now) }),
                old(),
                containers(&path, "name"),
                containers(&path, "image"),
                json!("<none>"),
            ]);
        }
        _ => other::fill(r, v, now, out),
    }
}

fn job(v: &Value, now: Timestamp, out: &mut Vec<Value>, names: Value, images: Value) {
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
        names,
        images,
        labels(at(v, &["spec", "selector", "matchLabels"])),
    ]);
}
