//! Cells of pods, and what ended pods say of their rows.

use super::text::{age, duration, or};
use fleet_apiserver_ground::tree::{at, list, meta_text, number, text};
use jiff::Timestamp;
use serde_json::{Value, json};

/// Restarts of containers, and when the last run before one ended.
#[derive(Debug, Default, Clone, Copy)]
struct Restarts {
    count: i64,
    last: Option<Timestamp>,
}

impl Restarts {
    fn add(&mut self, container: &Value) {
        self.count += number(container, &["restartCount"]);
        let ended = text(container, &["lastState", "terminated", "finishedAt"]);
        self.last = self.last.max(ended.parse::<Timestamp>().ok());
    }

    fn shown(self, now: Timestamp) -> String {
        match self.last {
            Some(last) if self.count != 0 => {
                format!("{} ({} ago)", self.count, duration(now.as_second() - last.as_second()))
            }
            _ => self.count.to_string(),
        }
    }
}

/// What the containers of a pod say together.
struct Seen {
    status: String,
    ready: usize,
    restarts: Restarts,
}

/// Appends the cells after the name.
pub fn fill(v: &Value, now: Timestamp, out: &mut Vec<Value>) {
    let sidecars = list(v, &["spec", "initContainers"]).iter().filter(|c| is_sidecar(c)).count();
    let total = list(v, &["spec", "containers"]).len() + sidecars;
    let seen = seen(v);
    let status = match text(v, &["status", "phase"]) {
        _ if at(v, &["metadata", "deletionTimestamp"]).is_none() => seen.status,
        _ if text(v, &["status", "reason"]) == "NodeLost" => "Unknown".into(),
        "Succeeded" | "Failed" => seen.status,
        _ => "Terminating".into(),
    };
    let ip = match (text(v, &["status", "podIP"]), list(v, &["status", "podIPs"]).first()) {
        ("", Some(first)) => text(first, &["ip"]),
        (ip, _) => ip,
    };
    let gates = list(v, &["spec", "readinessGates"]);
    let open = gates.iter().filter(|gate| holds(v, text(gate, &["conditionType"]))).count();
    out.extend([
        json!(format!("{}/{total}", seen.ready)),
        json!(status),
        json!(seen.restarts.shown(now)),
        json!(age(meta_text(v, "creationTimestamp"), now)),
        or(ip, "<none>"),
        or(text(v, &["spec", "nodeName"]), "<none>"),
        or(text(v, &["status", "nominatedNodeName"]), "<none>"),
        json!(if gates.is_empty() { "<none>".to_string() } else { format!("{open}/{}", gates.len()) }),
    ]);
}

/// The condition of the row of a pod that has ended.
pub fn ended(v: &Value) -> Option<Value> {
    let phase = text(v, &["status", "phase"]);
    let message = match phase {
        "Succeeded" => "The pod has completed successfully.",
        "Failed" => "The pod failed.",
        _ => return None,
    };
    Some(json!({"type": "Completed", "status": "True", "reason": phase, "message": message}))
}

fn is_sidecar(container: &Value) -> bool {
    text(container, &["restartPolicy"]) == "Always"
}

fn is_true(v: &Value, field: &str) -> bool {
    at(v, &[field]) == Some(&Value::Bool(true))
}

fn holds(v: &Value, condition: &str) -> bool {
    let found = list(v, &["status", "conditions"]).iter().find(|c| text(c, &["type"]) == condition);
    found.is_some_and(|c| text(c, &["status"]) == "True")
}

fn seen(v: &Value) -> Seen {
    let is_gated =
        |c: &Value| text(c, &["type"]) == "PodScheduled" && text(c, &["reason"]) == "SchedulingGated";
    let mut status = match (text(v, &["status", "reason"]), text(v, &["status", "phase"])) {
        _ if list(v, &["status", "conditions"]).iter().any(is_gated) => "SchedulingGated",
        ("", phase) => phase,
        (reason, _) => reason,
    }
    .to_string();
    let first = list(v, &["spec", "initContainers"]);
    let (mut ready, mut all, mut sidecars) = (0, Restarts::default(), Restarts::default());
    let mut initializing = None;
    for (i, c) in list(v, &["status", "initContainerStatuses"]).iter().enumerate() {
        let name = text(c, &["name"]);
        let sidecar = first.iter().any(|spec| text(spec, &["name"]) == name && is_sidecar(spec));
        all.add(c);
        if sidecar {
            sidecars.add(c);
        }
        if at(c, &["state", "terminated"]).is_some_and(|t| number(t, &["exitCode"]) == 0) {
            continue;
        }
        if sidecar && is_true(c, "started") {
            ready += usize::from(is_true(c, "ready"));
            continue;
        }
        initializing = Some(format!("Init:{}", unfinished(c, i, first.len())));
        break;
    }
    if let Some(initializing) = initializing {
        if !holds(v, "Initialized") {
            return Seen { status: initializing, ready, restarts: all };
        }
        status = initializing;
    }
    containers(v, Seen { status, ready, restarts: sidecars })
}

/// Goes on from what the containers before say to those that run together.
fn containers(v: &Value, before: Seen) -> Seen {
    let Seen { mut status, mut ready, mut restarts } = before;
    let (mut running, mut failed) = (false, None);
    for c in list(v, &["status", "containerStatuses"]).iter().rev() {
        restarts.add(c);
        let waiting = text(c, &["state", "waiting", "reason"]);
        if !waiting.is_empty() {
            status = waiting.into();
        } else if let Some(t) = at(c, &["state", "terminated"]) {
            status = outcome(t);
            if number(t, &["exitCode"]) != 0 {
                failed = Some(status.clone());
            }
        } else if is_true(c, "ready") && at(c, &["state", "running"]).is_some() {
            running = true;
            ready += 1;
        }
    }
    if status == "Completed" {
        status = match failed {
            _ if running && holds(v, "Ready") => "Running".into(),
            Some(failed) => failed,
            None if running => "NotReady".into(),
            None => status,
        };
    }
    Seen { status, ready, restarts }
}

/// Where an init container stands that holds the pod up.
fn unfinished(c: &Value, i: usize, total: usize) -> String {
    match (at(c, &["state", "terminated"]), text(c, &["state", "waiting", "reason"])) {
        (Some(t), _) => outcome(t),
        (None, "" | "PodInitializing") => format!("{i}/{total}"),
        (None, waiting) => waiting.into(),
    }
}

fn outcome(t: &Value) -> String {
    match (text(t, &["reason"]), number(t, &["signal"])) {
        ("", 0) => format!("ExitCode:{}", number(t, &["exitCode"])),
        ("", signal) => format!("Signal:{signal}"),
        (reason, _) => reason.into(),
    }
}
