//! What the invariants read of pods and of the jobs that own them.

use fleet_api::names;
use fleet_resources::Resources;
use serde_json::Value;

use super::requests;

/// Side container without whose word the containers of a pod do not begin, and which stops them.
const WATCHDOG: &str = "fleet-watchdog";
/// Resource of a node that every pod takes one of.
const PODS: &str = "pods";
/// Group of Volcano's Job, which shares its kind with that of Kubernetes.
const VOLCANO_GROUP: &str = "batch.volcano.sh/";
/// Kinds that run to an end; pods of others have no run.
pub(super) const JOB_KINDS: [&str; 4] = ["PyTorchJob", "TFJob", "MPIJob", "Job"];

/// A job as violations name it. `holder` has its apiVersion and kind.
pub(super) fn job_name(holder: &Value, namespace: &Value, name: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_string();
    let volcano = text(&holder["apiVersion"]).starts_with(VOLCANO_GROUP);
    let kind = if volcano { format!("Volcano {}", text(&holder["kind"])) } else { text(&holder["kind"]) };
    format!("{kind} {}/{}", text(namespace), text(name))
}

/// The job of a binding.
pub(super) fn job_of(binding: &Value) -> String {
    let job = &binding["spec"]["resource"];
    job_name(job, &job["namespace"], &job["name"])
}

/// One pod.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pod {
    pub cluster: String,
    pub namespace: String,
    pub name: String,
    pub uid: String,
    /// Kind and name of its controller.
    pub job: String,
    /// Uid of its controller: a job of a member is made anew for each run.
    pub run: String,
    pub is_job: bool,
    pub node: Option<String>,
    /// It is being deleted: it ends after its grace, and its gang waits for another pod.
    pub leaves: bool,
    pub phase: String,
    /// Name and size of the gang.
    pub gang: Option<(String, i64)>,
    /// It has a watchdog: until it is Running its containers wait for a renewal of the member's lease.
    pub watched: bool,
    pub requests: Resources,
}

impl Pod {
    pub fn read(cluster: &str, pod: &Value) -> Self {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_string();
        let meta = &pod["metadata"];
        let owners = meta["ownerReferences"].as_array().map_or(&[][..], Vec::as_slice);
        let owner = owners.iter().find(|owner| owner["controller"] == true).cloned().unwrap_or_default();
        let gang = meta["annotations"][names::GANG_ANNOTATION].as_str().map(|gang| {
            let size = meta["annotations"][names::GANG_SIZE_ANNOTATION].as_str();
            (gang.to_string(), size.and_then(|size| size.parse().ok()).unwrap_or(0))
        });
        let mut requests = requests::of_pod(&pod["spec"]);
        requests.set(PODS, 1);
        Self {
            cluster: cluster.to_string(),
            namespace: text(&meta["namespace"]),
            name: text(&meta["name"]),
            uid: text(&meta["uid"]),
            job: job_name(&owner, &meta["namespace"], &owner["name"]),
            run: text(&owner["uid"]),
            is_job: owner["kind"].as_str().is_some_and(|kind| JOB_KINDS.contains(&kind)),
            node: pod["spec"]["nodeName"].as_str().filter(|node| !node.is_empty()).map(str::to_string),
            leaves: !meta["deletionTimestamp"].is_null(),
            phase: text(&pod["status"]["phase"]),
            gang,
            watched: pod["spec"]["initContainers"]
                .as_array()
                .into_iter()
                .flatten()
                .any(|container| container["name"] == WATCHDOG),
            requests,
        }
    }

    pub fn has_ended(&self) -> bool {
        matches!(self.phase.as_str(), "Succeeded" | "Failed")
    }

    /// The node on which it takes room, with its cluster.
    pub fn takes(&self) -> Option<(String, String)> {
        let node = self.node.clone().filter(|_| !self.has_ended())?;
        Some((self.cluster.clone(), node))
    }

    /// Its containers run, or may begin at any moment.
    pub fn may_run(&self) -> bool {
        !self.has_ended() && (!self.watched || self.phase == "Running")
    }

    /// The job it may run for, and the run: cluster and uid of the member's job.
    pub fn may_run_for(&self) -> Option<(String, (String, String))> {
        (self.is_job && self.may_run()).then(|| (self.job.clone(), (self.cluster.clone(), self.run.clone())))
    }
}
