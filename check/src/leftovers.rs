//! Invariants 4 and 5: nothing is lost, and nothing stands without a reason.

use std::collections::{BTreeMap, BTreeSet};

use fleet_api::names;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::{
    Snapshot, Violation,
    facts::{JOB_KINDS, job_name, job_of},
    violation::broken,
};

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn meta(object: &Value) -> String {
    format!("{}/{}", text(&object["metadata"]["namespace"]), text(&object["metadata"]["name"]))
}

fn uid(object: &Value) -> &str {
    text(&object["metadata"]["uid"])
}

/// 5: holds, Works, units, runs and pods all belong to something that is there.
pub(super) fn left_behind(rest: &Snapshot) -> Vec<Violation> {
    let mut found = held_for_nothing(rest);
    found.extend(works_without_run(rest));
    found.extend(units_without_binding(rest));
    found.extend(runs_without_work(rest));
    found.extend(pods_without_owner(rest));
    found.extend(cells_for_nobody(rest));
    found
}

/// 5: a virtual cluster is used by jobs that run, and a member keeps the nodes that the hub asks it to keep.
fn cells_for_nobody(rest: &Snapshot) -> Vec<Violation> {
    let mut found = Vec::new();
    let runs = |binding: &Value| {
        binding["spec"]["cells"].is_object()
            && binding["spec"]["clusters"][0].is_object()
            && binding["status"]["result"].is_null()
    };
    if !rest.bindings.iter().any(runs) {
        for vc in &rest.virtual_clusters {
            for field in ["used", "borrowedOut", "borrowedIn", "running"] {
                let number = vc["status"][field].as_i64().unwrap_or(0);
                if number != 0 {
                    let name = text(&vc["metadata"]["name"]);
                    let what = format!("virtual cluster {name}: {field} is {number}, and no job has cells");
                    found.push(broken(5, what));
                }
            }
        }
    }
    let is_of_cells = |(_, hold): &&(String, Value)| hold["spec"]["cellNodes"].is_array();
    let of_hub = |(cluster, hold): &&(String, Value)| {
        hold["metadata"]["namespace"] == names::cluster_namespace(cluster).as_str()
    };
    let asked: BTreeSet<(&str, &str)> = rest
        .holds
        .iter()
        .filter(is_of_cells)
        .filter(of_hub)
        .map(|(cluster, hold)| (cluster.as_str(), text(&hold["metadata"]["name"])))
        .collect();
    for (cluster, hold) in rest.holds.iter().filter(is_of_cells).filter(|hold| !of_hub(hold)) {
        let name = text(&hold["metadata"]["name"]);
        if !asked.contains(&(cluster.as_str(), name)) {
            found.push(broken(
                5,
                format!("{cluster} keeps nodes for cells ({name}) that the hub does not ask for"),
            ));
        }
    }
    found
}

/// 5: every hold, on the hub and in the members, belongs to a job that is bound there and has not ended.
fn held_for_nothing(rest: &Snapshot) -> Vec<Violation> {
    let live: BTreeMap<&str, (&str, i64)> = rest
        .bindings
        .iter()
        .filter(|binding| binding["status"]["result"].is_null())
        .filter_map(|binding| {
            let cluster = binding["spec"]["clusters"][0]["name"].as_str()?;
            Some((binding["metadata"]["uid"].as_str()?, (cluster, binding["spec"]["epoch"].as_i64()?)))
        })
        .collect();
    let mut found = Vec::new();
    // Nodes that are kept for cells are no hold for a job.
    for (cluster, hold) in rest.holds.iter().filter(|(_, hold)| !hold["spec"]["cellNodes"].is_array()) {
        let uid = hold["spec"]["binding"]["uid"].as_str().unwrap_or_default();
        let epoch = hold["spec"]["epoch"].as_i64().unwrap_or_default();
        if live.get(uid) != Some(&(cluster.as_str(), epoch)) {
            let (name, of) = (&hold["metadata"]["name"], &hold["metadata"]["namespace"]);
            found
                .push(broken(5, format!("reservation {of}/{name} for {cluster}: its job is not live there")));
        }
    }
    found
}

/// Every Work belongs to a binding that names its cluster and epoch, or one that has ended.
fn works_without_run(rest: &Snapshot) -> Vec<Violation> {
    let bindings: BTreeMap<&str, &Value> = rest.bindings.iter().map(|b| (uid(b), b)).collect();
    let mut found = Vec::new();
    for work in &rest.works {
        let namespace = text(&work["metadata"]["namespace"]);
        let cluster = namespace.strip_prefix(names::CLUSTER_NAMESPACE_PREFIX).unwrap_or(namespace);
        let Some(binding) = bindings.get(text(&work["spec"]["binding"]["uid"])) else {
            found.push(broken(5, format!("work {}: its binding is gone", meta(work))));
            continue;
        };
        let clusters = binding["spec"]["clusters"].as_array().map_or(&[][..], Vec::as_slice);
        let wanted = clusters.iter().any(|target| target["name"] == cluster)
            && binding["spec"]["epoch"] == work["spec"]["epoch"];
        if !wanted {
            let epoch = &work["spec"]["epoch"];
            let what =
                format!("work {} epoch {epoch}: binding {} does not ask for it", meta(work), meta(binding));
            found.push(broken(5, what));
        }
    }
    found
}

/// Every unit belongs to the binding of its job.
fn units_without_binding(rest: &Snapshot) -> Vec<Violation> {
    let jobs: BTreeSet<String> = rest.bindings.iter().map(job_of).collect();
    let bindings: BTreeSet<String> = rest.bindings.iter().map(meta).collect();
    let orphans = rest.units.iter().filter(|unit| {
        let (job, namespace) = (&unit["spec"]["consumerRef"], &unit["metadata"]["namespace"]);
        match text(&job["kind"]) {
            "" => false,
            "ResourceBinding" => !bindings.contains(&format!("{}/{}", text(namespace), text(&job["name"]))),
            _ => !jobs.contains(&job_name(job, namespace, &job["name"])),
        }
    });
    orphans.map(|unit| broken(5, format!("unit {}: its job has no binding", meta(unit)))).collect()
}

/// Every job that Fleet created in a member belongs to a Work on the hub.
fn runs_without_work(rest: &Snapshot) -> Vec<Violation> {
    let works: BTreeSet<(String, &str, i64)> = rest.works.iter().map(run_of_work).collect();
    let mut found = Vec::new();
    for (cluster, run) in &rest.runs {
        let binding = text(&run["metadata"]["labels"][names::BINDING_UID_LABEL]);
        let epoch = text(&run["metadata"]["annotations"][names::EPOCH_ANNOTATION]).parse().unwrap_or(0);
        if binding.is_empty() || works.contains(&(names::cluster_namespace(cluster), binding, epoch)) {
            continue;
        }
        let kind = text(&run["kind"]);
        found.push(broken(
            5,
            format!("{kind} {} in {cluster}, epoch {epoch}: no Work asks for it", meta(run)),
        ));
    }
    found
}

/// Every pod of a job has its job.
fn pods_without_owner(rest: &Snapshot) -> Vec<Violation> {
    let runs: BTreeSet<(&str, &str)> =
        rest.runs.iter().map(|(cluster, run)| (cluster.as_str(), uid(run))).collect();
    let orphans = rest
        .pods
        .iter()
        .filter(|pod| pod.is_job && !runs.contains(&(pod.cluster.as_str(), pod.run.as_str())));
    orphans
        .map(|pod| {
            let (cluster, namespace, name) = (&pod.cluster, &pod.namespace, &pod.name);
            broken(5, format!("pod {namespace}/{name} in {cluster}: {} is gone", pod.job))
        })
        .collect()
}

/// Why a job has no binding, in the words of the hub.
const UNGOVERNED: [&str; 3] = ["NoPolicy", "PolicyInvalid", "InvalidWorkload"];

/// 4: a job without a binding says why: in its status, or where that is another controller's, by an event.
pub fn untold(job: &Value, warnings: &[Value]) -> Option<Violation> {
    let conditions = job["status"]["conditions"].as_array().into_iter().flatten();
    let state = &job["status"]["state"];
    let in_status = conditions
        .into_iter()
        .map(|condition| (&condition["type"], &condition["message"]))
        .chain([(&state["reason"], &state["message"])])
        .any(|(reason, message)| UNGOVERNED.contains(&text(reason)) && !text(message).is_empty());
    let told = || {
        warnings.iter().any(|event| {
            text(&event["involvedObject"]["uid"]) == uid(job) && UNGOVERNED.contains(&text(&event["reason"]))
        })
    };
    let job_name = || job_name(job, &job["metadata"]["namespace"], &job["metadata"]["name"]);
    let has_status = job["apiVersion"] != "batch/v1";
    let says_why = if has_status { in_status } else { told() };
    (!says_why).then(|| broken(4, format!("{} has no binding and nothing says why", job_name())))
}

/// How long a server keeps events at least: why an older batch Job has no binding may have been told and forgotten.
const EVENTS_KEPT: SignedDuration = SignedDuration::from_mins(50);

/// 4: jobs that the hub's controller seems to have forgotten: no binding and no reason, or bound and no Work. While it
/// works it mends both within seconds.
pub fn unattended(rest: &Snapshot, now: Timestamp) -> Vec<Violation> {
    let bound: BTreeSet<String> = rest.bindings.iter().map(job_of).collect();
    let mut found = Vec::new();
    for job in &rest.jobs {
        let meta = &job["metadata"];
        let begun = text(&meta["creationTimestamp"]).parse().unwrap_or(now);
        let is_forgotten = job["apiVersion"] == "batch/v1" && now.duration_since(begun) > EVENTS_KEPT;
        let is_job = JOB_KINDS.contains(&text(&job["kind"]));
        let name = job_name(job, &meta["namespace"], &meta["name"]);
        if is_job
            && !is_forgotten
            && !has_ended(job)
            && meta["deletionTimestamp"].is_null()
            && !bound.contains(&name)
        {
            found.extend(untold(job, &rest.warnings));
        }
    }
    let sent: BTreeSet<(String, &str, i64)> = rest.works.iter().map(run_of_work).collect();
    for binding in rest.bindings.iter().filter(|binding| binding["status"]["result"].is_null()) {
        let epoch = binding["spec"]["epoch"].as_i64().unwrap_or_default();
        let clusters = binding["spec"]["clusters"].as_array().map_or(&[][..], Vec::as_slice);
        for cluster in clusters.iter().map(|target| text(&target["name"])) {
            let is_job = JOB_KINDS.contains(&text(&binding["spec"]["resource"]["kind"]));
            if is_job && !sent.contains(&(names::cluster_namespace(cluster), uid(binding), epoch)) {
                found.push(broken(
                    4,
                    format!("{} is bound to {cluster} and has no Work there", job_of(binding)),
                ));
            }
        }
    }
    found
}

/// As its own controller says it.
fn has_ended(job: &Value) -> bool {
    let conditions = job["status"]["conditions"].as_array().into_iter().flatten();
    let ended = ["Succeeded", "Failed", "Complete"];
    let phase = text(&job["status"]["state"]["phase"]);
    ["Completed", "Failed", "Terminated", "Aborted"].contains(&phase)
        || conditions.into_iter().any(|c| c["status"] == "True" && ended.contains(&text(&c["type"])))
}

/// Namespace of a Work, and the binding and epoch of its run.
fn run_of_work(work: &Value) -> (String, &str, i64) {
    let epoch = work["spec"]["epoch"].as_i64().unwrap_or_default();
    (text(&work["metadata"]["namespace"]).to_string(), text(&work["spec"]["binding"]["uid"]), epoch)
}

fn conditions_of(binding: &Value) -> &[Value] {
    binding["status"]["conditions"].as_array().map_or(&[][..], Vec::as_slice)
}

/// 4: every job of the hub that a policy governs has ended, runs, or waits and says why.
pub(super) fn lost(rest: &Snapshot) -> Vec<Violation> {
    let mut found = Vec::new();
    for binding in &rest.bindings {
        let resource = &binding["spec"]["resource"];
        if !JOB_KINDS.contains(&text(&resource["kind"])) || !binding["status"]["result"].is_null() {
            continue;
        }
        let job = job_of(binding);
        let clusters = binding["spec"]["clusters"].as_array().map_or(&[][..], Vec::as_slice);
        if let Some(target) = clusters.first() {
            let cluster = text(&target["name"]);
            let runs = rest.pods.iter().any(|pod| {
                pod.cluster == cluster && pod.job == job && pod.phase == "Running" && !pod.has_ended()
            });
            // Pods of a virtual cluster may wait for cells while none of their job runs.
            let waits_for_cells = conditions_of(binding).iter().any(|condition| {
                condition["type"] == "CellsAllocated"
                    && condition["status"] == "False"
                    && !text(&condition["message"]).is_empty()
            });
            if !runs && !waits_for_cells {
                found.push(broken(4, format!("{job} is bound to {cluster} and has no running pod there")));
            }
            continue;
        }
        let told = conditions_of(binding)
            .iter()
            .any(|c| c["type"] == "Scheduled" && c["status"] == "False" && !text(&c["reason"]).is_empty());
        if !told {
            found.push(broken(4, format!("{job} is not placed and nothing says why")));
        }
    }
    found
}
