//! Cache of the watches: Works, objects of the member that Fleet created, and pods by owner; with indexes for
//! what must be reconciled after a change.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use fleet_api::{
    Work,
    names::{BINDING_UID_LABEL, JOB_ANNOTATION},
};
use fleet_mirror::{Change, Listing, Mirror};
use fleet_policies::{WorkloadKind, workload::outcome};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{ResourceExt, api::DynamicObject, discovery::ApiResource};
use tokio::time::Instant;

use crate::{
    epochs::Epoch,
    keys::{Key, KindId, ObjectId},
    late::LateCreates,
    marks::{bindings_of, epoch_of, is_fenced_level},
    report::is_applied,
};
use fleet_agent_ground::{Pod, Turn, check, controller_of, is_same_but_status, key_of, take};

/// Most bindings whose epochs are kept in memory, besides those of present Works; as many as the member
/// stores.
const EPOCHS_CAPACITY: usize = 4096;

#[derive(Debug, Default)]
pub(crate) struct State {
    pub works_synced: bool,
    pub pods_synced: bool,
    /// Whether, at some time, every run here had a Work.
    pub is_sorted: bool,
    works: Mirror<Arc<Work>>,
    /// Works that reference an object.
    by_object: BTreeMap<ObjectId, BTreeSet<String>>,
    /// Number of Works of a binding.
    bindings: BTreeMap<String, usize>,
    kinds: BTreeMap<KindId, Kind>,
    pods: Mirror<Arc<Pod>>,
    pods_by_owner: BTreeMap<ObjectId, BTreeMap<String, Arc<Pod>>>,
    epochs: BTreeMap<String, Epoch>,
    /// Uids of pods that were deleted because the cluster is cut off.
    stopping: BTreeSet<String>,
    epochs_order: VecDeque<String>,
    /// When delayed reports of Works are due.
    held_reports: BTreeMap<String, Instant>,
    /// Epochs of ended runs without a live pod in the member, by binding.
    emptied: BTreeMap<String, i64>,
    /// Patches without a visible effect; not sent again.
    settled: BTreeMap<ObjectId, String>,
    pub late: LateCreates,
    /// The newest term for which an earlier process may have sent anything.
    pub earlier_term: i64,
}

#[derive(Debug)]
struct Kind {
    resource: ApiResource,
    objects: Mirror<Arc<DynamicObject>>,
    is_synced: bool,
    /// The member does not serve the kind so far, so there are no objects.
    is_unserved: bool,
}

/// The cached state of an object.
pub(crate) enum Known {
    Object(Arc<DynamicObject>),
    Absent,
    /// The watch of its kind is not complete yet.
    Unknown,
}

impl State {
    pub fn new(late: LateCreates) -> Self {
        Self { late, ..Self::default() }
    }

    pub fn work(&self, namespace: &str, name: &str) -> Option<Arc<Work>> {
        self.works.get(&(namespace.to_owned(), name.to_owned())).cloned()
    }

    /// How long the Work's report is still delayed; the delay begins with the first call. `None` when it is
    /// over.
    pub fn hold_report(&mut self, name: &str, wait: Duration) -> Option<Duration> {
        let now = Instant::now();
        let due = self.held_reports.entry(name.to_owned()).or_insert(now + wait);
        Some(due.saturating_duration_since(now)).filter(|left| !left.is_zero())
    }

    /// The report is written.
    pub fn end_hold(&mut self, name: &str) {
        self.held_reports.remove(name);
    }

    /// Applies changes of Works.
    pub fn take_works(&mut self, change: Change<Work>) -> Vec<Key> {
        let is_listing = change.is_listing();
        let turns = take(&mut self.works, change);
        let mut keys = self.turn_works(turns);
        if is_listing {
            if !std::mem::replace(&mut self.works_synced, true) {
                self.doubt_earlier_creates();
            }
            keys.extend(self.leftovers());
        }
        keys
    }

    /// Number of restores of the hub's store seen so far.
    pub fn epoch_of_works(&self) -> fleet_mirror::Epoch {
        self.works.epoch()
    }

    /// Applies a list that was requested beside the feed's.
    pub fn check_works(&mut self, listing: Listing<Work>) -> Vec<Key> {
        let turns = check(&mut self.works, listing);
        self.turn_works(turns)
    }

    /// An earlier process may have sent creates that were not answered: a term is stored before anything is done for it.
    fn doubt_earlier_creates(&mut self) {
        let is_earlier = |work: &Work| work.spec.term.is_some_and(|term| term <= self.earlier_term);
        for work in self.works.values().filter(|work| is_earlier(work) && !is_applied(work)) {
            if let Some(manifest) = work.spec.workload.manifests.first() {
                self.late.gave_up(&ObjectId::of_manifest(manifest));
            }
        }
    }

    fn turn_works(&mut self, turns: Vec<Turn<Work>>) -> Vec<Key> {
        let mut keys = Vec::new();
        for turn in turns {
            match turn {
                Turn::Deleted(work) => keys.extend(self.end_work(&work)),
                Turn::Applied { now, before } => {
                    before.iter().for_each(|before| self.unindex(before));
                    keys.push(self.index(&now));
                }
            }
        }
        keys
    }

    fn index(&mut self, work: &Work) -> Key {
        let name = work.name_any();
        for manifest in &work.spec.workload.manifests {
            self.by_object.entry(ObjectId::of_manifest(manifest)).or_default().insert(name.clone());
        }
        *self.bindings.entry(work.spec.binding.uid.clone()).or_default() += 1;
        self.see_epoch(&work.spec.binding.uid, open(work.spec.epoch));
        Key::Work(name)
    }

    /// Applies the answer to a write of the status, if the Work still exists. Returns the Work if the answer
    /// shows a change that the hub made meanwhile: the watch does not report it again.
    pub fn update_work(&mut self, work: Work) -> Vec<Key> {
        let Some(known) = self.works.get(&key_of(&work)) else { return Vec::new() };
        if known.metadata.uid != work.metadata.uid {
            return Vec::new();
        }
        let is_same = is_same_but_status(&**known, &work);
        let keys = self.take_works(Change::Answer(work));
        if is_same { Vec::new() } else { keys }
    }

    /// Objects of the Work may be left over.
    fn end_work(&mut self, old: &Work) -> Vec<Key> {
        self.held_reports.remove(&old.name_any());
        self.emptied.remove(&old.spec.binding.uid);
        self.unindex(old);
        let manifests = old.spec.workload.manifests.iter();
        manifests.map(|manifest| Key::Leftover(ObjectId::of_manifest(manifest))).collect()
    }

    fn unindex(&mut self, work: &Work) {
        let name = work.name_any();
        for manifest in &work.spec.workload.manifests {
            let id = ObjectId::of_manifest(manifest);
            if let Some(names) = self.by_object.get_mut(&id) {
                names.remove(&name);
                if names.is_empty() {
                    self.by_object.remove(&id);
                    self.settled.remove(&id);
                }
            }
        }
        if let Some(count) = self.bindings.get_mut(&work.spec.binding.uid) {
            *count -= 1;
            if *count == 0 {
                self.bindings.remove(&work.spec.binding.uid);
            }
        }
    }

    pub fn all_works(&self) -> Vec<Key> {
        self.works.values().map(|work| Key::Work(work.name_any())).collect()
    }

    pub fn has_binding(&self, uid: &str) -> bool {
        self.bindings.contains_key(uid)
    }

    /// The newest epoch seen of a binding.
    pub fn newest_epoch(&self, binding_uid: &str) -> Option<Epoch> {
        self.epochs.get(binding_uid).copied()
    }

    /// Closes the run of this epoch; returns the newest epoch, to be stored.
    pub fn close_epoch(&mut self, binding_uid: &str, number: i64) -> Epoch {
        let closed = Epoch { number, is_closed: true };
        self.see_epoch(binding_uid, closed);
        self.newest_epoch(binding_uid).unwrap_or(closed)
    }

    pub fn forget_epoch(&mut self, binding_uid: &str) {
        self.epochs.remove(binding_uid);
        self.epochs_order.retain(|uid| uid != binding_uid);
    }

    pub fn see_epoch(&mut self, binding_uid: &str, epoch: Epoch) {
        if let Some(known) = self.epochs.get_mut(binding_uid) {
            if epoch.number > known.number {
                *known = epoch;
            } else if epoch.number == known.number {
                known.is_closed |= epoch.is_closed;
            }
            return;
        }
        if self.epochs_order.len() >= EPOCHS_CAPACITY {
            // The oldest is dropped, unless its Work exists; then it is kept as a new one.
            if let Some(oldest) = self.epochs_order.pop_front() {
                if self.bindings.contains_key(&oldest) {
                    self.epochs_order.push_back(oldest);
                } else {
                    self.epochs.remove(&oldest);
                }
            }
        }
        self.epochs.insert(binding_uid.to_owned(), epoch);
        self.epochs_order.push_back(binding_uid.to_owned());
    }

    /// Returns whether the kind is new.
    pub fn add_kind(&mut self, kind: KindId, resource: ApiResource) -> bool {
        let is_new = !self.kinds.contains_key(&kind);
        self.kinds.entry(kind).or_insert_with(|| Kind {
            resource,
            objects: Mirror::default(),
            is_synced: false,
            is_unserved: false,
        });
        is_new
    }

    pub fn resource(&self, kind: &KindId) -> Option<ApiResource> {
        self.kinds.get(kind).map(|kind| kind.resource.clone())
    }

    pub fn object(&self, id: &ObjectId) -> Known {
        match self.kinds.get(&id.kind) {
            Some(kind) => match kind.objects.get(&id.key()) {
                Some(object) => Known::Object(object.clone()),
                None if kind.is_synced => Known::Absent,
                None => Known::Unknown,
            },
            None => Known::Unknown,
        }
    }

    /// Applies changes of the objects of a kind. Returns what to reconcile, and the objects that are new.
    pub fn take_objects(
        &mut self,
        kind: &KindId,
        change: Change<DynamicObject>,
    ) -> (Vec<Key>, Vec<Arc<DynamicObject>>) {
        for object in change.objects() {
            if let (Some(uid), Some(epoch)) = (object.labels().get(BINDING_UID_LABEL), epoch_of(object)) {
                self.see_epoch(uid, open(epoch));
            }
        }
        let is_listing = change.is_listing();
        let Some(known) = self.kinds.get_mut(kind) else { return Default::default() };
        known.is_synced |= is_listing;
        let (mut keys, mut fresh) = (Vec::new(), Vec::new());
        for turn in take(&mut known.objects, change) {
            let (object, is_new) = match turn {
                Turn::Applied { now, .. } => (now, true),
                Turn::Deleted(object) => (object, false),
            };
            keys.push(ObjectId::of_object(kind, &object));
            fresh.extend(is_new.then_some(object));
        }
        let mut keys: Vec<Key> = keys.iter().flat_map(|id| self.interested(id)).collect();
        if is_listing {
            keys.extend(self.leftovers());
        }
        (keys, fresh)
    }

    /// Applies the answer to an own request. Returns the Works that reference the object if the answer shows a
    /// change that others made meanwhile: the watch does not report it again.
    pub fn update_object(&mut self, id: &ObjectId, object: DynamicObject) -> Vec<Key> {
        let foreign = match self.object(id) {
            Known::Object(known) => {
                known.metadata.uid != object.metadata.uid
                    || known.metadata.deletion_timestamp != object.metadata.deletion_timestamp
                    || known.metadata.finalizers != object.metadata.finalizers
                    || known.data["status"] != object.data["status"]
            }
            // The caller created it, or read it to act on it.
            Known::Absent | Known::Unknown => false,
        };
        let (keys, _) = self.take_objects(&id.kind, Change::Answer(object));
        if foreign { keys } else { Vec::new() }
    }

    /// Drops an object from which Fleet's marks were removed.
    pub fn drop_object(&mut self, id: &ObjectId) {
        if let Some(kind) = self.kinds.get_mut(&id.kind) {
            kind.objects.forget(&id.key());
        }
    }

    /// Whether an object is a job of Fleet's that says it is over.
    pub fn job_has_ended(&self, id: &ObjectId) -> bool {
        let Known::Object(job) = self.object(id) else { return false };
        let kind = WorkloadKind::of(&id.kind.api_version, &id.kind.kind);
        outcome(kind, &job.data["status"]).is_some()
    }

    /// Works that reference an object; without one, the object may be a leftover.
    pub fn interested(&self, id: &ObjectId) -> Vec<Key> {
        match self.by_object.get(id) {
            Some(names) => names.iter().cloned().map(Key::Work).collect(),
            None if self.works_synced => vec![Key::Leftover(id.clone())],
            None => Vec::new(),
        }
    }

    /// Works that reference an object.
    pub fn works_of(&self, id: &ObjectId) -> Vec<Key> {
        self.by_object.get(id).into_iter().flatten().cloned().map(Key::Work).collect()
    }

    /// Objects with a binding that has no Work.
    pub fn leftovers(&self) -> Vec<Key> {
        if !self.works_synced {
            return Vec::new();
        }
        let mut found: Vec<ObjectId> = Vec::new();
        for (kind, one) in self.kinds.iter().filter(|(_, kind)| kind.is_synced) {
            for object in one.objects.values() {
                if bindings_of(object).iter().any(|uid| !self.has_binding(uid)) {
                    found.push(ObjectId::of_object(kind, object));
                }
            }
        }
        found.sort();
        found.into_iter().map(Key::Leftover).collect()
    }

    /// Whether everything has been listed and every run has a Work. A run whose object is kept until its pods
    /// are gone counts until then.
    pub fn is_sorted_out(&self) -> bool {
        let is_listed = |kind: &Kind| kind.is_synced || kind.is_unserved;
        if !self.works_synced || !self.pods_synced || !self.kinds.values().all(is_listed) {
            return false;
        }
        let is_left = |object: &Arc<DynamicObject>| {
            object.labels().get(BINDING_UID_LABEL).is_some_and(|uid| !self.has_binding(uid))
        };
        let jobs = self.kinds.iter().filter(|(id, _)| WorkloadKind::of(&id.api_version, &id.kind).is_job());
        !jobs.into_iter().any(|(_, kind)| kind.objects.values().any(is_left))
    }

    pub fn set_unserved(&mut self, kind: &KindId) {
        if let Some(kind) = self.kinds.get_mut(kind) {
            kind.is_unserved = true;
        }
    }

    /// Applies changes of pods. Returns what to reconcile, and the owners of new pods.
    pub fn take_pods(&mut self, change: Change<Pod>) -> (Vec<Key>, Vec<ObjectId>) {
        let (mut keys, mut owners) = (Vec::new(), Vec::new());
        for turn in take(&mut self.pods, change.map(Pod::outline)) {
            match turn {
                Turn::Deleted(pod) => keys.extend(self.end_pod(&pod)),
                Turn::Applied { now, before } => {
                    // An annotation may name another job than before.
                    if let Some(before) = before.filter(|before| owner_of(before) != owner_of(&now)) {
                        keys.extend(self.forget_pod(&before));
                    }
                    let Some(owner) = owner_of(&now) else { continue };
                    let pods = self.pods_by_owner.entry(owner.clone()).or_default();
                    pods.insert(now.name().to_owned(), now);
                    owners.push(owner);
                }
            }
        }
        (keys, owners)
    }

    /// Jobs that must not run while the cluster is cut off.
    pub fn fenced(&self) -> Vec<ObjectId> {
        let of_kind = |(kind, one): (&KindId, &Kind)| -> Vec<ObjectId> {
            let fenced = one.objects.values().filter(|object| is_fenced_level(object));
            fenced.map(|object| ObjectId::of_object(kind, object)).collect()
        };
        let mut found: Vec<ObjectId> = self.kinds.iter().flat_map(of_kind).collect();
        found.sort();
        found
    }

    /// Whether the pod has not been deleted yet.
    pub fn ask_to_stop(&mut self, pod_uid: &str) -> bool {
        self.stopping.insert(pod_uid.to_owned())
    }

    pub fn may_ask_again(&mut self, pod_uid: &str) {
        self.stopping.remove(pod_uid);
    }

    fn end_pod(&mut self, pod: &Pod) -> Vec<Key> {
        self.stopping.remove(pod.uid());
        self.forget_pod(pod)
    }

    /// Removes the pod from its owner; returns whom that may concern.
    fn forget_pod(&mut self, pod: &Pod) -> Vec<Key> {
        let Some(owner) = owner_of(pod) else { return Vec::new() };
        if let Some(pods) = self.pods_by_owner.get_mut(&owner) {
            if pods.get(pod.name()).is_some_and(|known| known.uid() == pod.uid()) {
                pods.remove(pod.name());
            }
            if pods.is_empty() {
                self.pods_by_owner.remove(&owner);
            }
        }
        self.interested(&owner)
    }

    /// The pods that an object of that name controls or controlled; with `uid`, only of that object.
    pub fn pods_of(&self, owner: &ObjectId, uid: Option<&str>) -> Vec<Arc<Pod>> {
        let pods = self.pods_by_owner.get(owner).into_iter().flat_map(BTreeMap::values);
        pods.filter(|pod| is_pod_of(&pod.metadata, uid)).cloned().collect()
    }

    /// Whether the member was seen to have no live pod of an ended run.
    pub fn is_empty_run(&self, binding_uid: &str, epoch: i64) -> bool {
        self.emptied.get(binding_uid) == Some(&epoch)
    }

    pub fn note_empty_run(&mut self, binding_uid: &str, epoch: i64) {
        self.emptied.insert(binding_uid.to_owned(), epoch);
    }

    pub fn is_settled(&self, id: &ObjectId, patch: &str) -> bool {
        self.settled.get(id).is_some_and(|settled| settled == patch)
    }

    pub fn settle(&mut self, id: &ObjectId, patch: String) {
        self.settled.insert(id.clone(), patch);
    }
}

fn open(number: i64) -> Epoch {
    Epoch { number, is_closed: false }
}

/// The job of a pod: the one named by its template, else its controller.
pub(crate) fn owner_of(pod: &Pod) -> Option<ObjectId> {
    owner_named(&pod.metadata)
}

/// [`owner_of`], from a pod's metadata.
pub(crate) fn owner_named(pod: &ObjectMeta) -> Option<ObjectId> {
    let owner = controller_of(pod)?;
    let namespace = || pod.namespace.clone().unwrap_or_default();
    if let Some(job) = named_job(pod) {
        return Some(ObjectId { namespace: namespace(), ..job });
    }
    Some(ObjectId {
        kind: KindId { api_version: owner.api_version.clone(), kind: owner.kind.clone() },
        namespace: namespace(),
        name: owner.name.clone(),
    })
}

/// Whether a pod is of the job with this uid. Pods of an intermediate object have its uid as owner.
pub(crate) fn is_pod_of(pod: &ObjectMeta, uid: Option<&str>) -> bool {
    uid.is_none_or(|uid| controller_of(pod).is_some_and(|owner| owner.uid == uid)) || named_job(pod).is_some()
}

/// The job named by the pod's template, if there is an intermediate object.
fn named_job(pod: &ObjectMeta) -> Option<ObjectId> {
    let owner = controller_of(pod)?;
    let named = pod.annotations.as_ref()?.get(JOB_ANNOTATION)?;
    let (rest, name) = named.rsplit_once('/')?;
    let (api_version, kind) = rest.rsplit_once('/')?;
    let is_direct = owner.kind == kind && owner.api_version == api_version && owner.name == name;
    (!is_direct).then(|| ObjectId {
        kind: KindId { api_version: api_version.to_owned(), kind: kind.to_owned() },
        namespace: String::new(),
        name: name.to_owned(),
    })
}

#[cfg(test)]
mod tests;
