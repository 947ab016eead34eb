//! What the watches show: Works, the objects of the member that Fleet made, and pods by owner; with the
//! indexes that say what has to be looked at after a change.

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
use kube::{ResourceExt, api::DynamicObject, discovery::ApiResource};
use tokio::time::Instant;

use crate::{
    epochs::Epoch,
    keys::{Key, KindId, ObjectId},
    marks::{bindings_of, epoch_of, is_fenced_level},
};
use fleet_agent_ground::{Pod, Turn, check, controller_of, key_of, take};

/// How many bindings' epochs are remembered in memory beyond those of present Works; as many as the member keeps.
const EPOCHS_CAPACITY: usize = 4096;

#[derive(Debug, Default)]
pub(crate) struct State {
    pub works_synced: bool,
    pub pods_synced: bool,
    /// Once nothing ran here that no Work named.
    pub is_sorted: bool,
    works: Mirror<Arc<Work>>,
    /// Works that name an object.
    by_object: BTreeMap<ObjectId, BTreeSet<String>>,
    /// How many Works there are of a binding.
    bindings: BTreeMap<String, usize>,
    kinds: BTreeMap<KindId, Kind>,
    pods: Mirror<Arc<Pod>>,
    pods_by_owner: BTreeMap<ObjectId, BTreeMap<String, Arc<Pod>>>,
    epochs: BTreeMap<String, Epoch>,
    /// Uids of pods that have been asked to stop because the cluster is cut off.
    stopping: BTreeSet<String>,
    epochs_order: VecDeque<String>,
    /// Until when reports of Works wait that are not final.
    held_reports: BTreeMap<String, Instant>,
    /// Patches that changed nothing the next comparison would see; not sent again.
    settled: BTreeMap<ObjectId, String>,
}

#[derive(Debug)]
struct Kind {
    resource: ApiResource,
    objects: Mirror<Arc<DynamicObject>>,
    is_synced: bool,
    /// The member does not serve the kind, so far: there are none.
    is_unserved: bool,
}

/// What is known of an object without asking.
pub(crate) enum Known {
    Object(Arc<DynamicObject>),
    Absent,
    /// The watch of its kind has not shown everything yet.
    Unknown,
}

impl State {
    pub fn work(&self, namespace: &str, name: &str) -> Option<Arc<Work>> {
        self.works.get(&(namespace.to_owned(), name.to_owned())).cloned()
    }

    /// How long the Work's report still waits, of a wait that begins now unless one has begun before; `None` when it is
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

    /// Takes in what is told of Works.
    pub fn take_works(&mut self, change: Change<Work>) -> Vec<Key> {
        let is_listing = change.is_listing();
        let turns = take(&mut self.works, change);
        let mut keys = self.turn_works(turns);
        if is_listing {
            self.works_synced = true;
            keys.extend(self.leftovers());
        }
        keys
    }

    /// How often the hub's store was seen to go back in time.
    pub fn epoch_of_works(&self) -> fleet_mirror::Epoch {
        self.works.epoch()
    }

    /// Takes in a listing that was asked for beside the feed's.
    pub fn check_works(&mut self, listing: Listing<Work>) -> Vec<Key> {
        let turns = check(&mut self.works, listing);
        self.turn_works(turns)
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

    /// Takes in the answer to a write of our own, when the Work is still there.
    pub fn update_work(&mut self, work: Work) {
        if self.works.get(&key_of(&work)).is_some_and(|known| known.metadata.uid == work.metadata.uid) {
            self.take_works(Change::Answer(work));
        }
    }

    /// What a Work named may be left over.
    fn end_work(&mut self, old: &Work) -> Vec<Key> {
        self.held_reports.remove(&old.name_any());
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

    /// The newest epoch ever seen of a binding.
    pub fn newest_epoch(&self, binding_uid: &str) -> Option<Epoch> {
        self.epochs.get(binding_uid).copied()
    }

    /// The run of this epoch is over; returns the newest one, to be kept.
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
            // The oldest goes, unless its Work stands; then it is young again.
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

    /// Takes in what is told of the objects of a kind. Returns who has to look, and what of them is new.
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

    /// Forgets an object that Fleet's marks have been taken off.
    pub fn drop_object(&mut self, id: &ObjectId) {
        if let Some(kind) = self.kinds.get_mut(&id.kind) {
            kind.objects.forget(&id.key());
        }
    }

    /// Who has to look after a change of the object.
    /// Whether an object is a job of Fleet's that says it is over.
    pub fn job_has_ended(&self, id: &ObjectId) -> bool {
        let Known::Object(job) = self.object(id) else { return false };
        let kind = WorkloadKind::of(&id.kind.api_version, &id.kind.kind);
        outcome(kind, &job.data["status"]).is_some()
    }

    /// Works that name an object; without one, the object may be a leftover.
    pub fn interested(&self, id: &ObjectId) -> Vec<Key> {
        match self.by_object.get(id) {
            Some(names) => names.iter().cloned().map(Key::Work).collect(),
            None if self.works_synced => vec![Key::Leftover(id.clone())],
            None => Vec::new(),
        }
    }

    /// Objects some binding of which has no Work.
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

    /// Whether all has been listed and no run is left of which no Work is known. A run whose object is held until its
    /// pods are gone counts as long.
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

    /// Takes in what is told of pods. Returns who has to look, and the owners of those that are new.
    pub fn take_pods(&mut self, change: Change<Pod>) -> (Vec<Key>, Vec<ObjectId>) {
        let (mut keys, mut owners) = (Vec::new(), Vec::new());
        for turn in take(&mut self.pods, change.map(Pod::outline)) {
            match turn {
                Turn::Deleted(pod) => keys.extend(self.end_pod(&pod)),
                Turn::Applied { now, .. } => {
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

    /// Whether the pod has not been asked to stop yet.
    pub fn ask_to_stop(&mut self, pod_uid: &str) -> bool {
        self.stopping.insert(pod_uid.to_owned())
    }

    pub fn may_ask_again(&mut self, pod_uid: &str) {
        self.stopping.remove(pod_uid);
    }

    fn end_pod(&mut self, pod: &Pod) -> Vec<Key> {
        self.stopping.remove(pod.uid());
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

    /// The pods an object of that name controls or did control; with `uid`, only of that one.
    pub fn pods_of(&self, owner: &ObjectId, uid: Option<&str>) -> Vec<Arc<Pod>> {
        let pods = self.pods_by_owner.get(owner).into_iter().flat_map(BTreeMap::values);
        // A further object between them has a uid of its own.
        let of_uid = |pod: &&Arc<Pod>| {
            uid.is_none_or(|uid| pod.controller().is_some_and(|owner| owner.uid == uid))
                || named_job(pod).is_some()
        };
        pods.filter(of_uid).cloned().collect()
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

/// The job that a pod is of: the one that its template names, else what controls it.
fn owner_of(pod: &Pod) -> Option<ObjectId> {
    let owner = controller_of(&pod.metadata)?;
    let namespace = || pod.metadata.namespace.clone().unwrap_or_default();
    if let Some(job) = named_job(pod) {
        return Some(ObjectId { namespace: namespace(), ..job });
    }
    Some(ObjectId {
        kind: KindId { api_version: owner.api_version.clone(), kind: owner.kind.clone() },
        namespace: namespace(),
        name: owner.name.clone(),
    })
}

/// The job whose template the pod was made from, when a further object stands between them.
fn named_job(pod: &Pod) -> Option<ObjectId> {
    let owner = controller_of(&pod.metadata)?;
    let named = pod.metadata.annotations.as_ref()?.get(JOB_ANNOTATION)?;
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
mod tests {
    use super::*;

    fn work(name: &str, version: &str) -> Work {
        let binding = fleet_api::reservation::BindingReference {
            namespace: "team".to_owned(),
            name: name.to_owned(),
            uid: format!("binding of {name}"),
        };
        let mut work = Work::new(name, fleet_api::WorkSpec { binding, ..Default::default() });
        work.metadata.namespace = Some("fleet-east".to_owned());
        work.metadata.uid = Some(name.to_owned());
        work.metadata.resource_version = Some(version.to_owned());
        work
    }

    #[test]
    fn a_late_listing_ends_no_work_that_came_after_it_was_asked_for() {
        let listing = |version: u64, objects: Vec<Work>| {
            let version = fleet_mirror::Version::Number(version);
            Listing { objects, version, incarnation: None }
        };
        let mut state = State::default();
        state.take_works(Change::Reset(listing(2, vec![work("gone", "1"), work("stands", "2")])));
        state.take_works(Change::Answer(work("new", "4")));
        state.check_works(listing(3, vec![work("stands", "2")]));
        let stand = |name: &str| state.has_binding(&format!("binding of {name}"));
        assert_eq!((stand("gone"), stand("stands"), stand("new")), (false, true, true));
    }
}
