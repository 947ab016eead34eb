//! Columns and cells of the core kinds, of workloads and of batch; the others are in `other`.

use super::text::{age, join, labels, or};
use super::{other, workloads};
use fleet_apiserver_ground::tree::{at, list, meta_text, number, text};
use fleet_apiserver_schema::resource::Resource;
use jiff::Timestamp;
use serde_json::{Value, json};

/// Columns after the name: `Name:type/1`, where type defaults to string and /1 means wide only.
pub fn columns(r: &Resource) -> &'static str {
    match (r.group.as_str(), r.plural.as_str()) {
        ("", "pods") => "Ready,Status,Restarts,Age,IP/1,Node/1,Nominated Node/1,Readiness Gates/1",
        ("", "nodes") => {
            "Status,Roles,Age,Version,Internal-IP/1,External-IP/1,OS-Image/1,Kernel-Version/1,Container-Runtime/1"
        }
        ("", "namespaces") => "Status,Age",
        ("", "services") => "Type,Cluster-IP,External-IP,Port(s),Age,Selector/1",
        ("", "endpoints") => "Endpoints,Age",
        ("", "configmaps") => "Data,Age",
        ("", "secrets") => "Type,Data,Age",
        (_, "events") => {
            "Last Seen,Type,Reason,Object,Subobject/1,Source/1,Message,First Seen/1,Count:integer/1"
        }
        ("", "persistentvolumes") => {
            "Capacity,Access Modes,Reclaim Policy,Status,Claim,StorageClass,VolumeAttributesClass,Reason,Age,VolumeMode/1"
        }
        ("", "persistentvolumeclaims") => {
            "Status,Volume,Capacity,Access Modes,StorageClass,VolumeAttributesClass,Age,VolumeMode/1"
        }
        ("", "resourcequotas") => "Request,Limit,Age",
        ("", "limitranges") | (_, "roles" | "clusterroles" | "customresourcedefinitions") => {
            "Created At:date"
        }
        ("apps", "deployments") => "Ready,Up-to-date,Available,Age,Containers/1,Images/1,Selector/1",
        ("apps", "replicasets") | ("", "replicationcontrollers") => {
            "Desired:integer,Current:integer,Ready:integer,Age,Containers/1,Images/1,Selector/1"
        }
        ("apps", "statefulsets") => "Ready,Age,Containers/1,Images/1",
        ("apps", "daemonsets") => {
            "Desired:integer,Current:integer,Ready:integer,Up-to-date:integer,Available:integer,Node Selector,Age,Containers/1,Images/1,Selector/1"
        }
        ("apps", "controllerrevisions") => "Controller,Revision,Age",
        ("batch", "jobs") => "Status,Completions,Duration,Age,Containers/1,Images/1,Selector/1",
        ("batch", "cronjobs") => {
            "Schedule,Timezone,Suspend:boolean,Active:integer,Last Schedule,Age,Containers/1,Images/1,Selector/1"
        }
        _ => other::columns(r),
    }
}

/// Appends the cells after the name.
pub fn fill(r: &Resource, v: &Value, now: Timestamp, out: &mut Vec<Value>) {
    let old = || json!(age(meta_text(v, "creationTimestamp"), now));
    let count = |path: &[&str]| at(v, path).and_then(Value::as_object).map_or(0, |m| m.len());
    match (r.group.as_str(), r.plural.as_str()) {
        ("", "pods") => pod(v, now, out),
        ("", "nodes") => node(v, now, out),
        ("", "namespaces") => out.extend([json!(text(v, &["status", "phase"])), old()]),
        ("", "services") => {
            let ports: Vec<String> = list(v, &["spec", "ports"])
                .iter()
                .map(|p| {
                    let node = number(p, &["nodePort"]);
                    let node = if node > 0 { format!(":{node}") } else { String::new() };
                    format!("{}{node}/{}", number(p, &["port"]), text(p, &["protocol"]))
                })
                .collect();
            out.extend([
                json!(text(v, &["spec", "type"])),
                or(text(v, &["spec", "clusterIP"]), "<none>"),
                join(list(v, &["spec", "externalIPs"]).iter().filter_map(Value::as_str), "<none>"),
                or(&ports.join(","), "<none>"),
                old(),
                labels(at(v, &["spec", "selector"])),
            ]);
        }
        ("", "endpoints") => {
            let all: Vec<&str> = list(v, &["subsets"])
                .iter()
                .flat_map(|s| list(s, &["addresses"]))
                .map(|a| text(a, &["ip"]))
                .collect();
            out.extend([join(all.into_iter(), "<none>"), old()]);
        }
        ("", "configmaps") => out.extend([json!(count(&["data"]) + count(&["binaryData"])), old()]),
        ("", "secrets") => out.extend([json!(text(v, &["type"])), json!(count(&["data"])), old()]),
        (_, "events") => event(v, now, out),
        ("", "persistentvolumes") => out.extend([
            json!(text(v, &["spec", "capacity", "storage"])),
            join(list(v, &["spec", "accessModes"]).iter().filter_map(Value::as_str), ""),
            json!(text(v, &["spec", "persistentVolumeReclaimPolicy"])),
            json!(text(v, &["status", "phase"])),
            json!(text(v, &["spec", "claimRef", "name"])),
            json!(text(v, &["spec", "storageClassName"])),
            json!("<unset>"),
            json!(text(v, &["status", "reason"])),
            old(),
            json!(text(v, &["spec", "volumeMode"])),
        ]),
        ("", "persistentvolumeclaims") => out.extend([
            json!(text(v, &["status", "phase"])),
            json!(text(v, &["spec", "volumeName"])),
            json!(text(v, &["status", "capacity", "storage"])),
            join(list(v, &["status", "accessModes"]).iter().filter_map(Value::as_str), ""),
            json!(text(v, &["spec", "storageClassName"])),
            json!("<unset>"),
            old(),
            json!(text(v, &["spec", "volumeMode"])),
        ]),
        ("", "resourcequotas") => {
            let (mut requests, mut limits) = (Vec::new(), Vec::new());
            for (k, hard) in at(v, &["status", "hard"]).and_then(Value::as_object).into_iter().flatten() {
                let used = text(v, &["status", "used", k]);
                let item = format!(
                    "{k}: {}/{}",
                    if used.is_empty() { "0" } else { used },
                    hard.as_str().unwrap_or("")
                );
                if k.starts_with("limits") { limits.push(item) } else { requests.push(item) }
            }
            out.extend([json!(requests.join(", ")), json!(limits.join(", ")), old()]);
        }
        ("", "limitranges") | (_, "roles" | "clusterroles" | "customresourcedefinitions") => {
            out.push(json!(meta_text(v, "creationTimestamp")));
        }
        _ => workloads::fill(r, v, now, out),
    }
}

fn pod(v: &Value, now: Timestamp, out: &mut Vec<Value>) {
    let statuses = list(v, &["status", "containerStatuses"]);
    let total = list(v, &["spec", "containers"]).len();
    let ready = statuses.iter().filter(|s| s.get("ready") == Some(&Value::Bool(true))).count();
    let restarts: i64 = statuses.iter().map(|s| number(s, &["restartCount"])).sum();
    let gates = list(v, &["spec", "readinessGates"]).len();
    out.extend([
        json!(format!("{ready}/{total}")),
        json!(pod_status(v)),
        json!(restarts.to_string()),
        json!(age(meta_text(v, "creationTimestamp"), now)),
        or(text(v, &["status", "podIP"]), "<none>"),
        or(text(v, &["spec", "nodeName"]), "<none>"),
        or(text(v, &["status", "nominatedNodeName"]), "<none>"),
        json!(if gates == 0 { "<none>".to_string() } else { format!("0/{gates}") }),
    ]);
}

fn pod_status(v: &Value) -> String {
    let reason = text(v, &["status", "reason"]);
    let phase = text(v, &["status", "phase"]);
    let mut status = if reason.is_empty() { phase } else { reason }.to_string();
    if list(v, &["status", "conditions"]).iter().any(|c| text(c, &["reason"]) == "SchedulingGated") {
        status = "SchedulingGated".into();
    }
    let total = list(v, &["spec", "initContainers"]).len();
    let mut initializing = false;
    for (i, c) in list(v, &["status", "initContainerStatuses"]).iter().enumerate() {
        let terminated = at(c, &["state", "terminated"]);
        if terminated.is_some_and(|t| number(t, &["exitCode"]) == 0) {
            continue;
        }
        let waiting = text(c, &["state", "waiting", "reason"]);
        status = match terminated {
            Some(t) => match text(t, &["reason"]) {
                "" => format!("Init:ExitCode:{}", number(t, &["exitCode"])),
                r => format!("Init:{r}"),
            },
            None if !waiting.is_empty() && waiting != "PodInitializing" => format!("Init:{waiting}"),
            None => format!("Init:{i}/{total}"),
        };
        initializing = true;
        break;
    }
    if !initializing {
        let mut running = false;
        for c in list(v, &["status", "containerStatuses"]).iter().rev() {
            let waiting = text(c, &["state", "waiting", "reason"]);
            if !waiting.is_empty() {
                status = waiting.into();
            } else if let Some(t) = at(c, &["state", "terminated"]) {
                status = match (text(t, &["reason"]), number(t, &["signal"])) {
                    ("", 0) => format!("ExitCode:{}", number(t, &["exitCode"])),
                    ("", s) => format!("Signal:{s}"),
                    (r, _) => r.into(),
                };
            } else if c.get("ready") == Some(&Value::Bool(true)) && at(c, &["state", "running"]).is_some() {
                running = true;
            }
        }
        if status == "Completed" && running {
            let ready = |c: &&Value| text(c, &["type"]) == "Ready" && text(c, &["status"]) == "True";
            status = if list(v, &["status", "conditions"]).iter().any(|c| ready(&c)) {
                "Running"
            } else {
                "NotReady"
            }
            .into();
        }
    }
    if at(v, &["metadata", "deletionTimestamp"]).is_some() {
        status = if reason == "NodeLost" { "Unknown" } else { "Terminating" }.into();
    }
    status
}

fn node(v: &Value, now: Timestamp, out: &mut Vec<Value>) {
    let ready = list(v, &["status", "conditions"]).iter().find(|c| text(c, &["type"]) == "Ready");
    let mut status = match ready.map(|c| text(c, &["status"])) {
        Some("True") => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    }
    .to_string();
    if at(v, &["spec", "unschedulable"]) == Some(&Value::Bool(true)) {
        status.push_str(",SchedulingDisabled");
    }
    let labels = at(v, &["metadata", "labels"]).and_then(Value::as_object);
    let roles = labels.into_iter().flatten().filter_map(|(k, _)| k.strip_prefix("node-role.kubernetes.io/"));
    let address = |kind: &str| {
        let hit = list(v, &["status", "addresses"]).iter().find(|a| text(a, &["type"]) == kind);
        or(hit.map(|a| text(a, &["address"])).unwrap_or_default(), "<none>")
    };
    let info = |k: &str| or(text(v, &["status", "nodeInfo", k]), "<unknown>");
    out.extend([
        json!(status),
        join(roles, "<none>"),
        json!(age(meta_text(v, "creationTimestamp"), now)),
        json!(text(v, &["status", "nodeInfo", "kubeletVersion"])),
        address("InternalIP"),
        address("ExternalIP"),
        info("osImage"),
        info("kernelVersion"),
        info("containerRuntimeVersion"),
    ]);
}

fn event(v: &Value, now: Timestamp, out: &mut Vec<Value>) {
    // Served from either group: the fields have two names.
    let two = |a: &[&str], b: &[&str]| {
        let x = text(v, a);
        if x.is_empty() { text(v, b) } else { x }.to_string()
    };
    let when = |paths: &[&[&str]]| {
        let hit = paths.iter().map(|p| text(v, p)).find(|t| !t.is_empty()).unwrap_or_default();
        json!(age(hit, now))
    };
    let kind = two(&["involvedObject", "kind"], &["regarding", "kind"]).to_lowercase();
    let name = two(&["involvedObject", "name"], &["regarding", "name"]);
    let source = two(&["source", "component"], &["reportingComponent"]);
    let count = number(v, &["count"])
        .max(number(v, &["deprecatedCount"]))
        .max(number(v, &["series", "count"]))
        .max(1);
    out.extend([
        when(&[
            &["series", "lastObservedTime"],
            &["lastTimestamp"],
            &["deprecatedLastTimestamp"],
            &["eventTime"],
            &["metadata", "creationTimestamp"],
        ]),
        json!(text(v, &["type"])),
        json!(text(v, &["reason"])),
        json!(format!("{kind}/{name}")),
        json!(two(&["involvedObject", "fieldPath"], &["regarding", "fieldPath"])),
        json!(if source.is_empty() { two(&["reportingController"], &[]) } else { source }),
        json!(two(&["message"], &["note"]).trim()),
        when(&[
            &["firstTimestamp"],
            &["deprecatedFirstTimestamp"],
            &["eventTime"],
            &["metadata", "creationTimestamp"],
        ]),
        json!(count),
        json!(meta_text(v, "name")),
    ]);
}
