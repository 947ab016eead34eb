//! What is deleted when an object or its binding is gone from the hub, and what its members keep then
//! (`preserveResourcesOnDeletion`).
//!
//! A member keeps what a Work made only if the hub has written so on the Work before it deletes it, and it writes that
//! only for the present run of a deleted object. A run that is evicted, preempted, drained or moved ends in its member,
//! whatever its policy preserves: its quota is given to others, and its job runs again.

use fleet_api::mutation::{self, Mutation};
use fleet_api::{Work, names};
use jiff::Timestamp;
use kube_core::ResourceExt;
use serde_json::json;

use super::{
    ending::{self, create_placeholder, remove_finalizer_if_cluster_gone},
    fence,
    step::{Step, delete, delete_work},
};
use crate::{
    binding::BindingEntry,
    intents::Intents,
    kinds, unqueued,
    world::{Key, World},
    writes::{Target, Verb, Write},
};

/// The object is gone: everything created for it is deleted, in the members first.
pub(super) fn take_down(world: &World, key: &Key, entry: &BindingEntry, step: &mut Step) {
    let mut left = false;
    let works = world.works_of(key).filter(|_| !mutation::is_on(Mutation::WorkLeftBehind));
    for (key, work) in works {
        left = true;
        if is_present_run(entry, key, work) {
            delete_for_good(key, work, step);
        } else {
            delete_earlier(world, entry, key, work, step);
        }
        remove_finalizer_if_cluster_gone(world, key, work, step);
    }
    ending::drop_reservations(world, key, step);
    if left {
        return;
    }
    let unit = (key.0.clone(), entry.unit_name());
    if let Some(known) = world.units.get(&unit).filter(|_| !mutation::is_on(Mutation::UnitLeftBehind)) {
        delete(Target::Unit, &unit, &known.metadata, step);
    }
    delete(Target::Binding, key, &entry.object.metadata, step);
}

/// Deletes a Work or a Reservation whose binding is gone.
pub fn plan_orphan(world: &World, intents: &Intents, key: &Key) -> Vec<Write> {
    let mut step = Step::default();
    let lost = |binding: &fleet_api::reservation::BindingReference| {
        let known = world.bindings.get(&(binding.namespace.clone(), binding.name.clone()));
        known.is_none_or(|entry| entry.uid() != binding.uid)
    };
    // A Work whose spec a member has changed still belongs to the binding by its name; that binding corrects
    // it.
    let named = |entry: &BindingEntry| {
        let cluster = fence::cluster_of(&key.0);
        entry.work_name() == key.1 && entry.object.spec.clusters.iter().any(|target| target.name == cluster)
    };
    let left = |work: &&Work| lost(&work.spec.binding) && !world.bindings.values().any(named);
    let left = |work: &&Work| left(work) && !mutation::is_on(Mutation::WorkLeftBehind);
    if let Some(work) = world.works.get(key).filter(left) {
        delete_orphan(world, key, work, &mut step);
        remove_finalizer_if_cluster_gone(world, key, work, &mut step);
    }
    // A Work that was sent and never seen: its binding was deleted before the outcome was known.
    if !world.works.contains_key(key)
        && let Some(sent) = intents.sent.get(key)
        && lost(&sent.binding)
    {
        step.writes.push(create_placeholder(key, sent));
    }
    if let Some(reservation) = world.reservations.get(key).filter(|r| {
        // Reservations of cell nodes belong to no binding.
        r.spec.cell_nodes.is_empty() && lost(&r.spec.binding) && !fence::are_cells_in_use(world, key, r)
    }) {
        delete(Target::Reservation, key, &reservation.metadata, &mut step);
    }
    step.writes
}

/// Deletes a Work that is not of the binding's present run: of a run that is over, or of a deleted object whose name the
/// binding has now.
pub(super) fn delete_earlier(world: &World, entry: &BindingEntry, key: &Key, work: &Work, step: &mut Step) {
    if work.spec.binding.uid == entry.uid() {
        delete_work(key, work, step);
    } else {
        delete_orphan(world, key, work, step);
    }
}

fn delete_orphan(world: &World, key: &Key, work: &Work, step: &mut Step) {
    if is_object_here(world, work) {
        delete_work(key, work, step);
    } else {
        delete_for_good(key, work, step);
    }
}

/// Deletes a Work whose object is gone. The member is told first what it is to keep, if that is so: without the word it
/// removes everything, so that a deletion by anybody else keeps nothing.
fn delete_for_good(key: &Key, work: &Work, step: &mut Step) {
    let preserves = work.spec.preserve_resources_on_deletion == Some(true);
    let is_told = work.annotations().contains_key(names::PRESERVED_ANNOTATION);
    if !preserves || is_told || work.metadata.deletion_timestamp.is_some() {
        delete_work(key, work, step);
        return;
    }
    let patch = json!({"metadata": {"annotations": {names::PRESERVED_ANNOTATION: "true"}}});
    step.writes.push(Write::new(Target::Work, &key.0, &key.1, Verb::Merge(patch)));
}

/// Whether the Work is of the run that the binding stands for, and that run was not given up.
fn is_present_run(entry: &BindingEntry, key: &Key, work: &Work) -> bool {
    let cluster = fence::cluster_of(&key.0);
    work.spec.binding.uid == entry.uid()
        && entry.object.spec.clusters.iter().any(|target| target.name == cluster)
        && entry.attempt(work.spec.epoch).is_none()
}

/// Whether the Work's own object is still on the hub although its binding is gone: it gets a new binding, and what the
/// member kept would run beside it. One of the same name that was created later is another object.
fn is_object_here(world: &World, work: &Work) -> bool {
    let Some(manifest) = work.spec.workload.manifests.first() else { return false };
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_string();
    let kind = kinds::known(&text(&manifest["apiVersion"]), &text(&manifest["kind"]));
    let meta = &manifest["metadata"];
    let key = (text(&meta["namespace"]), text(&meta["name"]));
    let object = kind.and_then(|kind| world.object(&kind, &key)).filter(|object| !object.deleting);
    let sent_at = work.creation_timestamp().map(|time| time.0);
    object.is_some_and(|object| match (object.created.parse::<Timestamp>(), sent_at) {
        (Ok(created), Some(sent_at)) => created <= sent_at,
        _ => true,
    })
}

/// A run that was given up stays for now. It ends with its object, whatever the policy preserves, also if its binding is
/// gone by then and with it the record of how the run ended.
pub(super) fn keep(key: &Key, work: &Work, until_ms: Option<i64>, step: &mut Step) {
    until_ms.into_iter().for_each(|at_ms| step.wake_at_ms(at_ms));
    if work.spec.preserve_resources_on_deletion == Some(true) {
        let patch = json!({"spec": {"preserveResourcesOnDeletion": null}});
        step.writes.push(Write::new(Target::Work, &key.0, &key.1, Verb::Merge(patch)));
    }
}

/// Says that nothing of a deleted job is kept: no quota would count it.
pub(super) fn not_preserved(world: &World, entry: &BindingEntry) -> Option<String> {
    let asks = entry.object.spec.preserve_resources_on_deletion == Some(true);
    (asks && unqueued::leaves_nothing(world, entry)).then(|| {
        let (why, allowed) = match unqueued::is_of_required_queue(world, entry) {
            true => {
                (format!("its leaf of the quota tree has {}=true", fleet_quota_tree::REQUIRE_QUEUE), "")
            }
            false => ("it queues".to_string(), ", or true in a ClusterPropagationPolicy"),
        };
        format!(
            "preserveResourcesOnDeletion of its policy: found true, but {why}, and no quota counts what a deleted job \
             leaves; allowed is false{allowed}"
        )
    })
}
