//! The driver's cache of the member: the jobs of each kind and the pods by owner.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use tokio::time::Instant;

use fleet_agent_ground::{Object, ObjectKey, Pod, Turn, controller_of, key_of, take};
use fleet_informer::Kube;
use fleet_mirror::{Change, Metadata, Mirror};

use crate::plan::{
    Delayed, Pods,
    volcano::{Command, is_changed_since},
};

/// A cached job.
#[derive(Clone, Debug)]
pub(crate) struct Tracked {
    /// Position of its kind in the driver's list.
    pub kind: usize,
    pub object: Arc<Object>,
    /// Deleted; it is kept until all of its objects are gone.
    pub is_gone: bool,
    pub support: Support,
    /// Generation in which its spec was changed, until a plan has handled it.
    pub updated: Option<i64>,
}

/// State of the supporting objects of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Support {
    Unknown,
    Made,
    Deleted,
}

#[derive(Debug, Default)]
pub(crate) struct State {
    pub pods_synced: bool,
    jobs: BTreeMap<String, Tracked>,
    pods: Mirror<Arc<Pod>>,
    pods_by_owner: BTreeMap<String, Pods>,
    /// Uids of the ReplicaSets of a Deployment, by its uid.
    sets_by_owner: BTreeMap<String, BTreeSet<String>>,
    /// Jobs that wait for a pod name to become free.
    blocked: BTreeMap<ObjectKey, String>,
    kind_synced: BTreeSet<usize>,
    /// When a delayed status must be written at the latest, by uid of the job.
    pub batched: BTreeMap<String, Instant>,
    /// State for Volcano's jobs besides pods.
    pub volcano: VolcanoState,
}

/// PodGroups, queues and commands.
#[derive(Debug, Default)]
pub(crate) struct VolcanoState {
    /// PodGroups by the uid of the job that owns them.
    pub groups: BTreeMap<String, Arc<Object>>,
    /// Names of queues.
    pub queues: BTreeSet<String>,
    /// Commands by the uid of the job they are for, by name.
    pub commands: BTreeMap<String, BTreeMap<String, Command>>,
    pub priorities: BTreeMap<String, i64>,
    /// Events whose policies' timeouts run, by uid of the job.
    delayed: BTreeMap<String, Vec<Delayed>>,
    /// Pods that are gone and that no plan has seen being deleted, by owner.
    lost: BTreeMap<String, Vec<Arc<Pod>>>,
    /// Uids of pods being deleted that a plan has seen so, or that were deleted by one.
    seen_deleting: BTreeSet<String>,
}

/// Most lost pods remembered of one job; a job restarts as a whole long before.
const LOST_KEPT: usize = 1024;

/// Input of a plan.
pub(crate) struct Snapshot {
    pub job: Tracked,
    pub pods: Pods,
    pub replica_sets: Vec<Arc<Object>>,
    pub lost: Vec<Arc<Pod>>,
    pub delayed: Vec<Delayed>,
}

impl State {
    pub fn snapshot(&self, uid: &str) -> Option<Snapshot> {
        let job = self.jobs.get(uid)?.clone();
        let mut replica_sets: Vec<Arc<Object>> = self
            .sets_by_owner
            .get(uid)
            .into_iter()
            .flatten()
            .filter_map(|set| self.jobs.get(set))
            .filter(|set| !set.is_gone)
            .map(|set| set.object.clone())
            .collect();
        replica_sets.sort_by(|a, b| a.name().cmp(b.name()));
        let lost = self.volcano.lost.get(uid).cloned().unwrap_or_default();
        let delayed = self.volcano.delayed.get(uid).cloned().unwrap_or_default();
        Some(Snapshot { job, pods: self.pods_of(uid), replica_sets, lost, delayed })
    }

    pub fn pods_of(&self, uid: &str) -> Pods {
        self.pods_by_owner.get(uid).cloned().unwrap_or_default()
    }

    pub fn knows(&self, uid: &str) -> bool {
        self.jobs.contains_key(uid)
    }

    pub fn uids(&self) -> Vec<String> {
        self.jobs.keys().cloned().collect()
    }

    pub fn owners_of_pods(&self) -> Vec<String> {
        self.pods_by_owner.keys().cloned().collect()
    }

    pub fn set_kind_synced(&mut self, kind: usize) {
        self.kind_synced.insert(kind);
    }

    pub fn is_kind_synced(&self, kind: usize) -> bool {
        self.kind_synced.contains(&kind)
    }

    /// Caches a job unless a newer version is known. Returns the owner of a ReplicaSet, which must be
    /// reconciled, too.
    pub fn put_job(&mut self, kind: usize, object: Arc<Object>, from_watch: bool) -> Option<String> {
        let uid = object.uid().to_owned();
        match self.jobs.get_mut(&uid) {
            Some(tracked) => {
                if !tracked.is_gone && !is_older(&object, &tracked.object) {
                    if tracked.object.metadata.generation != object.metadata.generation
                        && tracked.support == Support::Made
                    {
                        // Host lists follow the number of replicas.
                        tracked.support = Support::Unknown;
                    }
                    if from_watch && is_updated(&tracked.object, &object) {
                        tracked.updated = object.metadata.generation;
                    }
                    tracked.object = object.clone();
                }
            }
            // An answer to a write never adds a job: it may be older than the job's deletion.
            None if !from_watch => return None,
            None => {
                // Changed while no agent ran.
                let updated = is_changed_since(&object).then_some(object.metadata.generation).flatten();
                let tracked = Tracked {
                    kind,
                    object: object.clone(),
                    is_gone: false,
                    support: Support::Unknown,
                    updated,
                };
                self.jobs.insert(uid.clone(), tracked);
            }
        }
        let owner = controller_of(&object.metadata)?.uid.clone();
        self.sets_by_owner.entry(owner.clone()).or_default().insert(uid);
        Some(owner)
    }

    /// Marks a job as gone. Returns the owner of a ReplicaSet.
    pub fn end_job(&mut self, object: &Object) -> Option<String> {
        if let Some(tracked) = self.jobs.get_mut(object.uid()) {
            tracked.is_gone = true;
        }
        Some(controller_of(&object.metadata)?.uid.clone())
    }

    /// Drops a job whose objects are all gone.
    pub fn forget_job(&mut self, uid: &str) {
        self.volcano.lost.remove(uid);
        self.volcano.delayed.remove(uid);
        self.volcano.commands.remove(uid);
        if let Some(tracked) = self.jobs.remove(uid)
            && let Some(owner) = controller_of(&tracked.object.metadata)
            && let Some(sets) = self.sets_by_owner.get_mut(&owner.uid)
        {
            sets.remove(uid);
            if sets.is_empty() {
                self.sets_by_owner.remove(&owner.uid);
            }
        }
    }

    pub fn set_support(&mut self, uid: &str, support: Support) {
        if let Some(tracked) = self.jobs.get_mut(uid) {
            tracked.support = support;
        }
    }

    /// Applies changes of pods. Returns what to reconcile: owners, and jobs that wait for a name.
    pub fn take_pods(&mut self, change: Change<Pod>) -> Vec<String> {
        let mut uids = Vec::new();
        for turn in take(&mut self.pods, change) {
            match turn {
                Turn::Deleted(pod) => uids.extend(self.end_pod(&pod)),
                Turn::Applied { now, .. } => uids.extend(self.index_pod(now)),
            }
        }
        uids
    }

    fn index_pod(&mut self, pod: Arc<Pod>) -> Option<String> {
        let owner = pod.controller()?.uid.clone();
        self.pods_by_owner.entry(owner.clone()).or_default().insert(pod.name().to_owned(), pod);
        Some(owner)
    }

    /// Caches a pod before the API server has shown it.
    pub fn amend_pod(&mut self, pod: Pod) {
        let pod = Arc::new(pod);
        let is_known = self.pods.amend(&key_of(&*pod), |known| {
            let is_it = known.uid() == pod.uid();
            if is_it {
                *known = pod.clone();
            }
            is_it
        });
        if is_known == Some(true) {
            self.index_pod(pod);
        }
    }

    /// Drops a pod. Returns what to reconcile: its owner, and jobs that wait for its name.
    fn end_pod(&mut self, pod: &Arc<Pod>) -> Vec<String> {
        let mut uids: Vec<String> = self.blocked.remove(&key_of(&**pod)).into_iter().collect();
        let Some(owner) = pod.controller().map(|owner| owner.uid.clone()) else { return uids };
        // A pod's deletion and its end may come between two plans.
        let is_noted = self.volcano.seen_deleting.remove(pod.uid());
        if !is_noted && self.jobs.contains_key(&owner) {
            let lost = self.volcano.lost.entry(owner.clone()).or_default();
            if lost.len() < LOST_KEPT {
                lost.push(pod.clone());
            }
        }
        if let Some(pods) = self.pods_by_owner.get_mut(&owner) {
            if pods.get(pod.name()).is_some_and(|known| known.uid() == pod.uid()) {
                pods.remove(pod.name());
            }
            if pods.is_empty() {
                self.pods_by_owner.remove(&owner);
            }
        }
        uids.push(owner);
        uids
    }

    /// Keeps the events whose timeouts run.
    pub fn note_delayed(&mut self, uid: &str, delayed: &[Delayed]) {
        if delayed.is_empty() {
            self.volcano.delayed.remove(uid);
        } else {
            self.volcano.delayed.insert(uid.to_owned(), delayed.to_vec());
        }
    }

    /// The plan has handled the pods that the job lost, and those it is about to lose.
    pub fn note_losses(&mut self, snapshot: &Snapshot) {
        let uid = snapshot.job.object.uid();
        if let Some(tracked) = self.jobs.get_mut(uid).filter(|known| known.updated == snapshot.job.updated) {
            tracked.updated = None;
        }
        if let Some(lost) = self.volcano.lost.get_mut(uid) {
            lost.drain(..snapshot.lost.len().min(lost.len()));
            if lost.is_empty() {
                self.volcano.lost.remove(uid);
            }
        }
        for pod in snapshot.pods.values().filter(|pod| pod.is_deleting()) {
            let is_known = self.pods.get(&key_of(&**pod)).is_some_and(|known| known.uid() == pod.uid());
            if is_known {
                self.volcano.seen_deleting.insert(pod.uid().to_owned());
            } else if let Some(lost) = self.volcano.lost.get_mut(uid) {
                // Gone meanwhile: the plan knew it.
                lost.retain(|lost| lost.uid() != pod.uid());
            }
        }
    }

    /// A pod whose deletion was accepted counts as being deleted.
    pub fn mark_deleting(&mut self, key: &ObjectKey, uid: &str) {
        let Some(pod) = self.pods.get(key).filter(|pod| pod.uid() == uid && !pod.is_deleting()) else {
            return;
        };
        let mut pod = Pod::clone(pod);
        pod.metadata.deletion_timestamp = Some(Time(jiff::Timestamp::UNIX_EPOCH));
        self.volcano.seen_deleting.insert(uid.to_owned());
        self.amend_pod(pod);
    }

    pub fn block(&mut self, key: ObjectKey, uid: &str) {
        self.blocked.insert(key, uid.to_owned());
    }
}

/// Whether the spec changed; a minimum that only now is set was written by the controller itself.
fn is_updated(before: &Object, after: &Object) -> bool {
    let mut spec = after.spec.clone();
    if before.spec["minAvailable"].is_null()
        && let Some(fields) = spec.as_object_mut()
    {
        fields.remove("minAvailable");
    }
    before.metadata.generation != after.metadata.generation && before.spec != spec
}

impl VolcanoState {
    pub fn put_group(&mut self, owner: &str, group: Arc<Object>) {
        match self.groups.get(owner) {
            Some(known) if known.uid() == group.uid() && is_older(&group, known) => {}
            _ => drop(self.groups.insert(owner.to_owned(), group)),
        }
    }
}

fn is_older(object: &Object, than: &Object) -> bool {
    Kube::version(object).is_older(&Kube::version(than))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn with_job() -> State {
        let mut state = State::default();
        let job =
            json!({"metadata": {"namespace": "default", "name": "a", "uid": "job", "resourceVersion": "1"}});
        state.put_job(0, Arc::new(serde_json::from_value(job).unwrap()), true);
        state
    }

    fn pod(version: &str, deleted_at: Value) -> Arc<Pod> {
        let owner = json!({"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": "a", "uid": "job",
            "controller": true});
        let pod = json!({"metadata": {"namespace": "default", "name": "a-worker-0", "uid": "pod",
            "resourceVersion": version, "deletionTimestamp": deleted_at, "ownerReferences": [owner]}});
        Arc::new(serde_json::from_value(pod).unwrap())
    }

    fn deleting() -> Arc<Pod> {
        pod("2", json!("2026-01-01T00:00:00Z"))
    }

    fn lost(state: &State) -> usize {
        state.snapshot("job").unwrap().lost.len()
    }

    #[test]
    fn a_pod_that_went_between_two_plans_is_lost() {
        let mut state = with_job();
        state.take_pods(Change::Apply(Pod::clone(&pod("1", Value::Null))));
        state.take_pods(Change::Apply(Pod::clone(&deleting())));
        state.take_pods(Change::Delete(Pod::clone(&deleting())));
        assert_eq!(lost(&state), 1);
        let snapshot = state.snapshot("job").unwrap();
        state.note_losses(&snapshot);
        assert_eq!(lost(&state), 0);
    }

    #[test]
    fn a_pod_whose_deletion_a_plan_saw_is_not_lost_again() {
        let mut state = with_job();
        state.take_pods(Change::Apply(Pod::clone(&deleting())));
        let snapshot = state.snapshot("job").unwrap();
        state.note_losses(&snapshot);
        state.take_pods(Change::Delete(Pod::clone(&deleting())));
        assert_eq!(lost(&state), 0);

        // Gone while the plan that saw it was carried out.
        let mut state = with_job();
        state.take_pods(Change::Apply(Pod::clone(&deleting())));
        let snapshot = state.snapshot("job").unwrap();
        state.take_pods(Change::Delete(Pod::clone(&deleting())));
        state.note_losses(&snapshot);
        assert_eq!(lost(&state), 0);
    }

    #[test]
    fn a_pod_that_a_plan_deleted_is_not_lost() {
        let mut state = with_job();
        state.take_pods(Change::Apply(Pod::clone(&pod("1", Value::Null))));
        state.mark_deleting(&("default".to_owned(), "a-worker-0".to_owned()), "pod");
        state.take_pods(Change::Delete(Pod::clone(&deleting())));
        assert_eq!(lost(&state), 0);
    }

    /// The record stands in the status that the last agent wrote.
    #[test]
    fn a_change_of_the_spec_while_no_agent_ran_is_told() {
        let job = |generation: i64, spec: Value, status: Value| -> Arc<Object> {
            let job = json!({"metadata": {"namespace": "default", "name": "a", "uid": "job",
                "resourceVersion": "1", "generation": generation}, "spec": spec, "status": status});
            Arc::new(serde_json::from_value(job).unwrap())
        };
        let policies = json!([{"event": "JobUpdated", "action": "RestartJob"}]);
        let spec = |queue: &str| json!({"queue": queue, "minAvailable": 2, "policies": policies});
        let written = |spec: Value| {
            let resource = fleet_agent_ground::resource("batch.volcano.sh", "v1alpha1", "Job", "jobs");
            let state = json!({"state": {"phase": "Running"}, "minAvailable": 2});
            let before = job(1, spec, state);
            let plan = crate::plan::volcano::plan(&crate::plan::volcano::Input {
                resource: &resource,
                job: &before,
                pods: &BTreeMap::new(),
                lost: &[],
                delayed: &[],
                updated: false,
                pod_group: None,
                command: None,
                gate: &Ok(()),
                session: "s",
                priority_of: &|_| 0,
                now: jiff::Timestamp::UNIX_EPOCH,
            });
            plan.status.unwrap_or_default()
        };
        let after_restart = |object: Arc<Object>| {
            let mut state = State::default();
            state.put_job(0, object, true);
            state.snapshot("job").unwrap().job.updated.is_some()
        };
        let status = written(spec("a"));
        assert!(!after_restart(job(1, spec("a"), status.clone())), "nothing changed");
        assert!(after_restart(job(2, spec("b"), status.clone())));
        assert!(!after_restart(job(1, spec("b"), status.clone())), "a new default of the definition");
        let mut more = spec("a");
        more["minAvailable"] = 3.into();
        assert!(after_restart(job(2, more, status)));
        let mut indifferent = spec("a");
        indifferent["policies"] = Value::Null;
        let status = written(indifferent.clone());
        assert!(status["controlledResources"]["spec-seen"].is_null(), "{status}");
        assert!(!after_restart(job(2, spec("b"), status)));
    }

    #[test]
    fn a_change_of_the_spec_is_told_once() {
        let mut state = with_job();
        let job = |version: &str, generation: i64, spec: Value| -> Arc<Object> {
            let job = json!({"metadata": {"namespace": "default", "name": "a", "uid": "job",
                "resourceVersion": version, "generation": generation}, "spec": spec});
            Arc::new(serde_json::from_value(job).unwrap())
        };
        let updated = |state: &State| state.snapshot("job").unwrap().job.updated.is_some();
        state.put_job(0, job("2", 1, json!({"queue": "a"})), true);
        let snapshot = state.snapshot("job").unwrap();
        state.note_losses(&snapshot);
        // A status, and the minimum that the controller writes.
        state.put_job(0, job("3", 1, json!({"queue": "a"})), true);
        state.put_job(0, job("4", 2, json!({"queue": "a", "minAvailable": 2})), true);
        assert!(!updated(&state));
        state.put_job(0, job("5", 3, json!({"queue": "a", "minAvailable": 3})), true);
        assert!(updated(&state));
        let snapshot = state.snapshot("job").unwrap();
        state.put_job(0, job("6", 4, json!({"queue": "a", "minAvailable": 4})), true);
        state.note_losses(&snapshot);
        assert!(updated(&state), "of the later change no plan knows");
        let snapshot = state.snapshot("job").unwrap();
        state.note_losses(&snapshot);
        assert!(!updated(&state));
    }
}
