//! Jobs without a binding: the reason is reported in the job's status and by an event.
//!
//! `NoPolicy`, `PolicyInvalid` and `InvalidWorkload` are conditions in the job's own status, so kubectl shows
//! them as its state. They are removed when a policy governs the job. Each event is reported once per
//! generation of the object and then counted; a restart forgets the counts. Jobs of Kubernetes' batch API get
//! only the event: on a hub that runs them itself, their status belongs to another controller.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use fleet_api::conditions;
use fleet_policies::{
    choice::{self, PolicyScope},
    reason::Reason,
    selector,
    workload::{self, WorkloadKind},
};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::{
    binding::BindingEntry,
    claim, events, governor,
    kinds::KindRef,
    priority,
    status::rfc3339,
    world::{Key, Object, World},
    writes::{Target, Verb, Write},
};

const SOURCE: &str = "fleet-controller";
/// Reasons that are in a job's status only while they hold.
const OWN: [Reason; 3] = [Reason::NoPolicy, Reason::PolicyInvalid, Reason::InvalidWorkload];

/// The reasons reported for jobs without a binding.
#[derive(Default)]
pub struct Unclaimed {
    reported: BTreeMap<(KindRef, Key), Reported>,
}

struct Reported {
    uid: String,
    generation: i64,
    reason: Reason,
    message: String,
    count: i64,
}

impl Unclaimed {
    /// Writes that report why the object has no binding, or remove an outdated reason.
    pub fn plan(&mut self, world: &World, kind: &KindRef, key: &Key, now: Timestamp) -> Vec<Write> {
        let id = (kind.clone(), key.clone());
        let Some(object) = world.object(kind, key).filter(|object| !object.deleting) else {
            self.reported.remove(&id);
            return Vec::new();
        };
        let Some((reason, mut message)) = trouble(world, kind, key, object) else {
            self.reported.remove(&id);
            return clear(kind, key, object).into_iter().collect();
        };
        // A small job may not have a large status, whatever its policy says.
        message.truncate(conditions::cut(&message).len());
        // The status of a job with a binding comes from that binding.
        let binding = world.binding_key(kind, key);
        let own = kind.status && !world.bindings.contains_key(&binding);
        let status = mark(kind.workload(), &object.value["status"], reason, &message, now);
        let status = status.filter(|_| own).map(|status| {
            let verb = Verb::MergeStatus(json!({"status": status}));
            Write::new(Target::Object(kind.clone()), &key.0, &key.1, verb)
        });
        let says_so = says(&object.value["status"], reason, &message);
        let event = self.tell(id, object, reason, message, says_so, now);
        match (status, event) {
            (Some(status), Some(event)) => vec![status.then([event])],
            (status, event) => status.into_iter().chain(event).collect(),
        }
    }

    /// The event, once per generation. `says_so`: the status already had the reason when this process started.
    fn tell(
        &mut self,
        id: (KindRef, Key),
        object: &Object,
        reason: Reason,
        message: String,
        says_so: bool,
        now: Timestamp,
    ) -> Option<Write> {
        let generation = object.value["metadata"]["generation"].as_i64().unwrap_or(0);
        let known = self.reported.get(&id);
        let known = known.filter(|r| r.uid == object.uid && r.reason == reason && r.message == message);
        let count = match known {
            Some(reported) if reported.generation == generation => return None,
            Some(reported) => reported.count.saturating_add(1),
            None => 1,
        };
        let restarted = known.is_none() && says_so;
        let (kind, key) = &id;
        let subject = events::Subject {
            api_version: &kind.api_version,
            kind: &kind.kind,
            namespace: &key.0,
            name: &key.1,
            uid: &object.uid,
        };
        let event = events::counted(&subject, SOURCE, reason, &message, count, now);
        let uid = object.uid.clone();
        self.reported.insert(id, Reported { uid, generation, reason, message, count });
        (!restarted).then_some(event)
    }
}

/// Why the object has no binding, or should have none; `None` if it has one or needs none.
fn trouble(world: &World, kind: &KindRef, key: &Key, object: &Object) -> Option<(Reason, String)> {
    let binding_key = world.binding_key(kind, key);
    let known = world.bindings.get(&binding_key);
    let Some(policy) = governor::governor(world, kind, key, object, known) else {
        // A run that lost its policy goes on; objects that Fleet does not run are ignored.
        let waits = !known.is_some_and(has_begun) && waits_for_a_policy(kind, key, object);
        return waits.then(|| no_policy(world, kind, key, object));
    };
    let error = workload::check(kind.workload(), &object.value)
        .and_then(|()| {
            let placement = claim::placement_of(policy.1);
            workload::check_placement(kind.workload(), &object.value, &placement)
        })
        .err()
        .map(|error| error.to_string());
    let request =
        || fleet_cell_requests::check(kind.workload(), &object.value).err().map(|error| error.to_string());
    let class = || priority::check(world, &key.0, &object.value, policy).err().map(|w| (w.reason, w.message));
    error.or_else(request).map(|error| (Reason::InvalidWorkload, error)).or_else(class)
}

/// Only jobs that users created, not objects that a controller on the hub created.
fn waits_for_a_policy(kind: &KindRef, key: &Key, object: &Object) -> bool {
    let owners = object.value["metadata"]["ownerReferences"].as_array().map_or(&[][..], Vec::as_slice);
    let owned = owners.iter().any(|owner| owner["controller"] == true);
    let runs_here = object.value["status"]["startTime"].is_string();
    kind.workload().is_job() && !owned && !runs_here && !choice::is_skipped_namespace(&key.0)
}

fn no_policy(world: &World, kind: &KindRef, key: &Key, object: &Object) -> (Reason, String) {
    let reference = object.reference(kind, key);
    let broken = world.policies.iter().find_map(|((scope, (namespace, name)), entry)| {
        let reaches = *scope == PolicyScope::Cluster || *namespace == key.0;
        let violation = entry.violations.first().filter(|_| reaches)?;
        selector::match_selectors(&entry.rule.selectors, &reference)?;
        let name = match scope {
            PolicyScope::Namespaced => format!("PropagationPolicy {namespace}/{name}"),
            PolicyScope::Cluster => format!("ClusterPropagationPolicy {name}"),
        };
        Some(format!("{name}, which selects it, has no effect: {violation}"))
    });
    match broken {
        Some(message) => (Reason::PolicyInvalid, message),
        None => (
            Reason::NoPolicy,
            format!(
                "no PropagationPolicy of namespace {} and no ClusterPropagationPolicy selects {} {}",
                key.0, kind.kind, key.1
            ),
        ),
    }
}

/// The status with the reason, in the kind's form; `None` if it has the reason or Fleet may not write it.
fn mark(kind: WorkloadKind, known: &Value, reason: Reason, message: &str, now: Timestamp) -> Option<Value> {
    if says(known, reason, message) {
        return None;
    }
    let time = rfc3339(now);
    if kind.is_kubeflow() {
        let mut list = without_own(&known["conditions"]);
        list.push(
            json!({"type": reason.as_str(), "status": "True", "reason": reason.as_str(), "message": message,
            "lastUpdateTime": time, "lastTransitionTime": time}),
        );
        return Some(json!({"conditions": list}));
    }
    (kind == WorkloadKind::VolcanoJob).then(|| {
        json!({"state": {"phase": "Pending", "reason": reason.as_str(), "message": message,
            "lastTransitionTime": time}})
    })
}

/// Removes reasons from a status that no longer hold.
fn clear(kind: &KindRef, key: &Key, object: &Object) -> Option<Write> {
    let status = &object.value["status"];
    let is_own = |text: &Value| OWN.iter().any(|reason| text == reason.as_str());
    let conditions = status["conditions"].as_array().map_or(&[][..], Vec::as_slice);
    let patch = if conditions.iter().any(|condition| is_own(&condition["type"])) {
        json!({"conditions": without_own(&status["conditions"])})
    } else if is_own(&status["state"]["reason"]) {
        json!({"state": null})
    } else {
        return None;
    };
    let verb = Verb::MergeStatus(json!({"status": patch}));
    Some(Write::new(Target::Object(kind.clone()), &key.0, &key.1, verb))
}

fn says(status: &Value, reason: Reason, message: &str) -> bool {
    let is_it = |said: &Value, name: &Value| name == reason.as_str() && said["message"] == message;
    let conditions = status["conditions"].as_array().into_iter().flatten();
    let state = &status["state"];
    conditions.into_iter().any(|condition| is_it(condition, &condition["type"]))
        || is_it(state, &state["reason"])
}

fn without_own(conditions: &Value) -> Vec<Value> {
    let list = conditions.as_array().map_or(&[][..], Vec::as_slice);
    let is_own = |condition: &&Value| OWN.iter().any(|reason| condition["type"] == reason.as_str());
    list.iter().filter(|condition| !is_own(condition)).cloned().collect()
}

/// Releases a binding whose object has no policy any more: a run goes on without a policy, a waiting job
/// leaves its queue. A policy that only became invalid keeps its bindings.
pub(crate) fn release(world: &World, entry: &BindingEntry) -> Option<Write> {
    let claim = &entry.object.spec.policy;
    let key = (claim.namespace.clone(), claim.name.clone());
    let holder = world.policies.get(&(governor::scope_of(&claim.kind), key));
    let is_broken =
        holder.is_some_and(|holder| holder.rule.uid == claim.uid && !holder.violations.is_empty());
    if is_broken || claim.name.is_empty() {
        return None;
    }
    if !has_begun(entry) {
        return take_down(entry);
    }
    let nobody = json!({"kind": "", "namespace": null, "name": "", "uid": null});
    let verb = Verb::Merge(json!({"spec": {"policy": nobody}}));
    Some(Write::new(Target::Binding, entry.namespace(), entry.name(), verb))
}

/// A run was started: the binding has its epoch, and an old run may still be ending.
fn has_begun(entry: &BindingEntry) -> bool {
    entry.is_bound() || entry.object.spec.epoch > 0 || entry.is_finished()
}

/// Deletes the binding of a job that never ran, so it leaves its queue.
pub(crate) fn take_down(entry: &BindingEntry) -> Option<Write> {
    if has_begun(entry) || entry.object.metadata.deletion_timestamp.is_some() {
        return None;
    }
    let verb = Verb::Delete { uid: entry.uid().to_string() };
    Some(Write::new(Target::Binding, entry.namespace(), entry.name(), verb))
}
