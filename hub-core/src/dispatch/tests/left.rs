//! What a deleted job or an earlier run leaves behind, and who removes it.

use super::*;

const WORK: &str = "train-b-b";

#[test]
fn a_deleted_job_keeps_its_binding_until_no_member_has_it_any_more() {
    let mut hub = Hub::new(batch(), &["east"]);
    hub.settle(None);
    assert_eq!(hub.world.units.len(), 1);
    let kind = hub.kind();
    hub.observe(Observation::Object(kind, Change::Delete(read(&batch()))));
    let writes = hub.settle(None);
    assert_eq!(deleted(&writes, &Target::Work), [WORK]);
    let writes = hub.step(None);
    let kept = [Target::Unit, Target::Binding].map(|target| deleted(&writes, &target).len());
    assert_eq!(kept, [0, 0], "the job could be created again beside its old pods");
    let work = hub.world.works.values().next().expect("it is being deleted").clone();
    hub.observe(Observation::Work(Change::Delete(work)));
    let writes = hub.step(None);
    let found = [Target::Unit, Target::Binding].map(|target| deleted(&writes, &target).len());
    assert_eq!(found, [1, 1], "{writes:?}");
}

#[test]
fn a_work_is_removed_as_an_orphan_if_no_binding_has_a_use_for_it() {
    for (cluster, name, uid, expected) in [
        ("east", WORK, "b", 0),
        // Its binding moved to another cluster, and removes it when its purge mode says so.
        ("west", WORK, "b", 0),
        // A member changed what its Work says of its binding.
        ("east", WORK, "forged", 0),
        // Of an earlier job of that name, in the cluster of this one.
        ("east", "train-b-earlier", "earlier", 1),
        ("west", WORK, "earlier", 1),
    ] {
        let mut hub = Hub::new(batch(), &["east"]);
        let work = hub.work(cluster, name, uid, 1);
        let writes = plan_orphan(&hub.world, &hub.intents, &work);
        assert_eq!(deleted(&writes, &Target::Work).len(), expected, "{cluster} {name} {uid}: {writes:?}");
        assert_eq!(writes.len(), expected);
    }
}

/// The write may still arrive after the job was deleted; an empty Work in its place starts nothing.
#[test]
fn the_name_of_a_work_that_was_sent_for_a_deleted_job_is_taken_unless_the_work_is_seen() {
    let mut hub = Hub::new(batch(), &["east"]);
    let sent = hub.step(None).into_iter().find(|write| write.target == Target::Work).expect("a Work");
    let work = (sent.namespace.clone(), sent.name.clone());
    hub.intents.sent.note(&sent);
    assert!(plan_orphan(&hub.world, &hub.intents, &work).is_empty(), "its binding stands");
    let binding = hub.world.bindings[&key()].object.clone();
    hub.observe(Observation::Binding(Change::Delete(binding)));
    let writes = plan_orphan(&hub.world, &hub.intents, &work);
    let [Write { target: Target::Work, verb: Verb::Create(body), .. }] = &writes[..] else {
        panic!("{writes:?}")
    };
    assert_eq!(body["spec"]["workload"]["manifests"], json!([]));
    let key = hub.work("east", &work.1, "b", 1);
    hub.intents.sent.note(&sent);
    let writes = plan_orphan(&hub.world, &hub.intents, &key);
    assert_eq!((writes.len(), deleted(&writes, &Target::Work).len()), (1, 1), "{writes:?}");
}

#[test]
fn a_job_that_waits_again_leaves_the_members_and_its_next_run_is_not_touched() {
    for (epoch, expected) in [(2, 1), (3, 1), (4, 0)] {
        let mut hub = Hub::new(batch(), &[]);
        hub.bind("b", &[], 3);
        hub.work("east", WORK, "b", epoch);
        assert_eq!(deleted(&hub.step(None), &Target::Work).len(), expected, "{epoch}");
    }
}
