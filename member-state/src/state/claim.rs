//! Pods that other controllers make of a job whose places are held here, and which of the places are theirs.
//!
//! A pod says by its annotation whose places it takes, where its template could be marked. One that does not is known by
//! what controls it: the job itself, or an object that the job's controller made and that has the job's name in the
//! pod's labels. Its role and number are read from the labels of each kind's controller.

use fleet_api::names;
use fleet_policies::WorkloadKind;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use fleet_agent_ground::OwnedJob;

/// Labels and annotations by which controllers say the role of a pod, the most telling first.
const ROLES: [&str; 5] = [
    names::COMPONENT_LABEL,
    "volcano.sh/task-spec",
    "training.kubeflow.org/replica-type",
    "training.kubeflow.org/job-role",
    "replica-type",
];
/// The same of its number among the pods of its role.
const NUMBERS: [&str; 4] = [
    "training.kubeflow.org/replica-index",
    "volcano.sh/task-index",
    "batch.kubernetes.io/job-completion-index",
    "replica-index",
];
/// Labels with the name of the job, on pods that a further object made by the job's controller controls.
const JOB_NAMES: [&str; 2] = ["training.kubeflow.org/job-name", "volcano.sh/job-name"];

/// What a pod without an annotation says of the job it belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    pub job: String,
    /// Uid of the job; `None`: a further object stands between them.
    uid: Option<String>,
}

impl Claim {
    pub fn read(meta: &ObjectMeta) -> Option<Self> {
        let owner = meta.owner_references.as_ref()?.first()?;
        if WorkloadKind::of(&owner.api_version, &owner.kind).is_job() {
            let label = JOB_NAMES.iter().find_map(|name| meta.labels.as_ref()?.get(*name));
            // A batch Job that stands for a job of another kind, such as an MPIJob's launcher.
            return match label.filter(|name| **name != owner.name) {
                Some(job) => Some(Self { job: job.clone(), uid: None }),
                None => Some(Self { job: owner.name.clone(), uid: Some(owner.uid.clone()) }),
            };
        }
        let label = JOB_NAMES.iter().find_map(|name| meta.labels.as_ref()?.get(*name));
        label.map(|job| Self { job: job.clone(), uid: None })
    }

    /// `created`: when the pod was made.
    pub fn is_of(&self, job: &OwnedJob, created: Option<Timestamp>) -> bool {
        match &self.uid {
            Some(uid) => *uid == job.uid,
            // Times are of one server, in whole seconds.
            None => job.created.is_none() || created >= job.created,
        }
    }
}

/// The role a pod says it has; empty when it says none.
pub fn role(meta: &ObjectMeta) -> String {
    find(meta, &ROLES).cloned().unwrap_or_default()
}

/// The pod's number among those of its role.
pub fn number(meta: &ObjectMeta, name: &str) -> Option<usize> {
    let last = || name.rsplit_once('-').and_then(|(_, index)| index.parse().ok());
    find(meta, &NUMBERS).and_then(|text| text.parse().ok()).or_else(last)
}

fn find<'m>(meta: &'m ObjectMeta, names: &[&str]) -> Option<&'m String> {
    let marks = [meta.labels.as_ref(), meta.annotations.as_ref()];
    names.iter().find_map(|name| marks.iter().flatten().find_map(|marks| marks.get(*name)))
}
