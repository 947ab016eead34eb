//! Pods that other controllers create for a job with held places, and which of the places are theirs.
//!
//! If its template could be marked, a pod names its reservation in an annotation. Otherwise it is identified
//! by its controller: the job itself, or an object that the job's controller created and that has the job's
//! name in the pod's labels. Its role and index are read from the labels of each kind's controller.

use fleet_api::names;
use fleet_policies::WorkloadKind;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use fleet_agent_ground::OwnedJob;

/// Labels and annotations with the role of a pod, the most specific first.
const ROLES: [&str; 5] = [
    names::COMPONENT_LABEL,
    "volcano.sh/task-spec",
    "training.kubeflow.org/replica-type",
    "training.kubeflow.org/job-role",
    "replica-type",
];
/// Labels and annotations with the index of a pod within its role.
const NUMBERS: [&str; 4] = [
    "training.kubeflow.org/replica-index",
    "volcano.sh/task-index",
    "batch.kubernetes.io/job-completion-index",
    "replica-index",
];
/// Labels with the name of the job, on pods whose controller is an intermediate object.
const JOB_NAMES: [&str; 2] = ["training.kubeflow.org/job-name", "volcano.sh/job-name"];

/// What a pod without the annotation shows of its job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodOwner {
    pub job: String,
    /// Uid of the job; `None` if there is an intermediate object.
    uid: Option<String>,
}

impl PodOwner {
    pub fn read(meta: &ObjectMeta) -> Option<Self> {
        let owner = meta.owner_references.as_ref()?.first()?;
        if WorkloadKind::of(&owner.api_version, &owner.kind).is_job() {
            let label = JOB_NAMES.iter().find_map(|name| meta.labels.as_ref()?.get(*name));
            // A batch Job that belongs to a job of another kind, such as an MPIJob's launcher.
            return match label.filter(|name| **name != owner.name) {
                Some(job) => Some(Self { job: job.clone(), uid: None }),
                None => Some(Self { job: owner.name.clone(), uid: Some(owner.uid.clone()) }),
            };
        }
        let label = JOB_NAMES.iter().find_map(|name| meta.labels.as_ref()?.get(*name));
        label.map(|job| Self { job: job.clone(), uid: None })
    }

    /// `created`: when the pod was created.
    pub fn is_of(&self, job: &OwnedJob, created: Option<Timestamp>) -> bool {
        match &self.uid {
            Some(uid) => *uid == job.uid,
            // Times are of one server, in whole seconds.
            None => job.created.is_none() || created >= job.created,
        }
    }
}

/// The role of a pod; empty if it has none.
pub fn role(meta: &ObjectMeta) -> String {
    find(meta, &ROLES).cloned().unwrap_or_default()
}

/// The pod's index within its role.
pub fn number(meta: &ObjectMeta, name: &str) -> Option<usize> {
    let last = || name.rsplit_once('-').and_then(|(_, index)| index.parse().ok());
    find(meta, &NUMBERS).and_then(|text| text.parse().ok()).or_else(last)
}

fn find<'m>(meta: &'m ObjectMeta, names: &[&str]) -> Option<&'m String> {
    let marks = [meta.labels.as_ref(), meta.annotations.as_ref()];
    names.iter().find_map(|name| marks.iter().flatten().find_map(|marks| marks.get(*name)))
}
