//! What a policy with `preserveResourcesOnDeletion` leaves in a member, and that it leaves nothing of a run that is
//! evicted.

use fleet_quota_tree::{NodeSpec, QuotaTree, REQUIRE_QUEUE};

use super::*;

const WORK: &str = "train-b-b";

/// What an administrator's policy makes of a binding.
fn preserved() -> Value {
    let policy = json!({"kind": "ClusterPropagationPolicy", "namespace": null, "name": "keep"});
    json!({"spec": {"preserveResourcesOnDeletion": true, "policy": policy}})
}

/// A running job whose policy preserves resources.
fn preserving(job: Value) -> Hub {
    let mut hub = Hub::new(job, &["east"]);
    hub.change_binding(&preserved());
    hub.settle(None);
    hub
}

fn work_key() -> Key {
    ("fleet-east".to_string(), WORK.to_string())
}

impl Hub {
    fn delete_object(&mut self) {
        let gone = Observation::Object(self.kind(), Change::Delete(read(&self.job)));
        self.observe(gone);
    }

    /// The run of epoch 1 was given up.
    fn give_up(&mut self, reason: Reason, purge: Option<&str>) {
        let mut attempt = json!({"cluster": "east", "epoch": 1, "reason": reason.as_str(), "message": "",
            "endedAt": "1970-01-01T00:00:00Z"});
        if let Some(purge) = purge {
            attempt["purge"] = purge.into();
        }
        self.change_binding(&json!({"status": {"attempts": [attempt]}}));
    }

    fn is_told(&self) -> bool {
        self.world.works[&work_key()].annotations().contains_key(names::PRESERVED_ANNOTATION)
    }

    fn preserves(&self) -> bool {
        self.world.works[&work_key()].spec.preserve_resources_on_deletion == Some(true)
    }
}

#[test]
fn what_a_deleted_object_runs_is_kept_on_the_word_of_the_hub_alone() {
    for job in [batch(), deployment()] {
        let mut hub = preserving(job);
        assert!(hub.preserves() && !hub.is_told());
        hub.delete_object();
        assert_eq!(deleted(&hub.settle(None), &Target::Work).len(), 0, "it would be removed");
        assert!(hub.is_told());
        assert_eq!(deleted(&hub.settle(None), &Target::Work), [WORK]);
    }
}

/// Its job runs again, and its quota is given to others.
#[test]
fn a_run_that_is_evicted_is_not_kept() {
    for reason in [Reason::Edited, Reason::Preempted, Reason::Drained, Reason::GangNotStarted] {
        let mut hub = preserving(batch());
        hub.give_up(reason, None);
        assert_eq!(deleted(&hub.settle(None), &Target::Work), [WORK], "{reason}");
        assert!(!hub.is_told(), "{reason}");
        hub.delete_object();
        hub.settle(None);
        assert!(!hub.is_told(), "{reason}: its deletion has begun");
    }
}

#[test]
fn an_object_that_is_deleted_while_its_run_is_evicted_keeps_nothing() {
    let mut hub = preserving(batch());
    hub.give_up(Reason::Preempted, None);
    hub.delete_object();
    assert_eq!(deleted(&hub.settle(None), &Target::Work), [WORK]);
    assert!(!hub.is_told());
}

#[test]
fn a_cluster_that_a_deployment_leaves_keeps_nothing() {
    let mut hub = preserving(deployment());
    hub.bind("b", &["west"], 1);
    assert_eq!(deleted(&hub.settle(None), &Target::Work), [WORK]);
    assert!(!hub.is_told());
}

/// The record of the attempt goes with the binding, so the Work itself must not say that it stays.
#[test]
fn an_old_run_that_is_kept_for_now_ends_with_its_job() {
    for clusters in [&[][..], &["west"]] {
        let mut hub = preserving(batch());
        hub.bind("b", clusters, if clusters.is_empty() { 1 } else { 2 });
        hub.give_up(Reason::ApplicationFailure, Some("Never"));
        hub.settle(None);
        assert!(!hub.preserves(), "{clusters:?}");
        let binding = hub.world.bindings[&key()].object.clone();
        hub.delete_object();
        hub.observe(Observation::Binding(Change::Delete(binding)));
        let writes = plan_orphan(&hub.world, &hub.intents, &work_key());
        assert_eq!(deleted(&writes, &Target::Work), [WORK], "{clusters:?}: {writes:?}");
    }
}

/// Garbage collection may delete the binding before the controller sees that the object is gone.
#[test]
fn a_work_without_its_binding_is_kept_unless_its_object_is_still_there() {
    for (created, is_here) in
        [(None, false), (Some("1970-01-01T00:00:05Z"), false), (Some("1970-01-01T00:00:01Z"), true)]
    {
        let mut hub = preserving(batch());
        let sent = json!({"metadata": {"creationTimestamp": "1970-01-01T00:00:02Z"}});
        hub.change(&Target::Work, &work_key(), &sent);
        match created {
            None => hub.delete_object(),
            Some(created) => {
                let mut stands = batch();
                stands["metadata"]["creationTimestamp"] = created.into();
                hub.submit(stands);
            }
        }
        let binding = hub.world.bindings[&key()].object.clone();
        hub.observe(Observation::Binding(Change::Delete(binding)));
        let writes = plan_orphan(&hub.world, &hub.intents, &work_key());
        let is_deleted = !deleted(&writes, &Target::Work).is_empty();
        assert_eq!((writes.len(), is_deleted), (1, is_here), "{created:?}: {writes:?}");
    }
}

/// The name of the deleted object is in use again, before its Work could be marked.
#[test]
fn a_work_of_an_earlier_object_of_the_name_is_kept_also_if_the_new_one_comes_first() {
    let mut hub = Hub::new(batch(), &[]);
    let earlier = hub.work("east", "train-b-earlier", "earlier", 1);
    let change = json!({"metadata": {"creationTimestamp": "1970-01-01T00:00:02Z"},
        "spec": {"preserveResourcesOnDeletion": true}});
    hub.change(&Target::Work, &earlier, &change);
    let mut again = batch();
    again["metadata"]["creationTimestamp"] = "1970-01-01T00:00:05Z".into();
    hub.submit(again);
    assert!(deleted(&hub.settle(None), &Target::Work).is_empty());
    assert!(hub.world.works[&earlier].annotations().contains_key(names::PRESERVED_ANNOTATION));
    assert_eq!(deleted(&hub.settle(None), &Target::Work), ["train-b-earlier"]);
}

/// A tenant would get quota for each job that he deletes.
#[test]
fn a_policy_of_the_jobs_namespace_keeps_nothing_of_what_queues() {
    let (cluster, own) = (("ClusterPropagationPolicy", ""), ("PropagationPolicy", "team"));
    // The policy was deleted, or selects the job no more.
    let gone = ("", "");
    for ((kind, namespace), queues, preserves) in [
        (own, Some(true), false),
        (own, Some(false), false),
        (own, None, true),
        (cluster, Some(true), true),
        (gone, Some(true), false),
    ] {
        let mut hub = Hub::new(batch(), &["east"]);
        let policy = json!({"kind": kind, "namespace": namespace, "name": "keep"});
        hub.change_binding(&json!({"spec": {"preserveResourcesOnDeletion": true, "policy": policy,
            "suspension": {"scheduling": queues}}}));
        hub.settle(None);
        hub.settle(None);
        assert_eq!(hub.preserves(), preserves, "{policy} {queues:?}");
        let status = hub.world.bindings[&key()].object.status.clone().expect("a status");
        let told = find_condition(&status.conditions, "Sendable").map(|told| told.message.clone());
        assert_eq!(told.is_some_and(|told| told.contains("but it queues")), !preserves);
        hub.delete_object();
        assert_eq!(deleted(&hub.settle(None), &Target::Work).is_empty(), preserves);
    }
    // Nothing but a gang queues.
    let mut hub = Hub::new(deployment(), &["east"]);
    hub.change_binding(&json!({"spec": {"preserveResourcesOnDeletion": true,
        "policy": {"kind": "PropagationPolicy", "namespace": "team", "name": "keep"}}}));
    hub.settle(None);
    assert!(hub.preserves());
}

/// What a deleted job leaves is counted by no quota.
#[test]
fn nothing_is_kept_of_jobs_where_all_must_queue() {
    // A run counts in the leaf that admitted it, whatever its labels say now.
    for (of_own, of_other, preserves) in
        [("true", "false", false), ("false", "false", true), ("false", "true", false)]
    {
        let leaf = |name: &str, namespace: &str, requires: &str| NodeSpec {
            name: name.to_string(),
            namespaces: vec![namespace.to_string()],
            attributes: [(REQUIRE_QUEUE.to_string(), requires.to_string())].into(),
            ..NodeSpec::default()
        };
        let children = vec![leaf("own", "team", of_own), leaf("other", "others", of_other)];
        let root = NodeSpec { name: "root".to_string(), children, ..NodeSpec::default() };
        let mut hub = Hub::new(batch(), &["east"]);
        hub.world.quota_tree = Some(std::sync::Arc::new(QuotaTree::build(&root).expect("a tree").0));
        hub.change_binding(&preserved());
        hub.change_binding(&json!({"spec": {"queue": "root/other"}}));
        hub.settle(None);
        hub.settle(None);
        assert_eq!(hub.preserves(), preserves);
        let status = hub.world.bindings[&key()].object.status.clone().expect("a status");
        let told = find_condition(&status.conditions, "Sendable").map(|told| told.message.clone());
        let names_it =
            |told: &String| told.contains("preserveResourcesOnDeletion") && told.contains(REQUIRE_QUEUE);
        assert_eq!(told.as_ref().is_some_and(names_it), !preserves, "{told:?}");
        hub.delete_object();
        assert_eq!(deleted(&hub.settle(None), &Target::Work).is_empty(), preserves);
    }
}
