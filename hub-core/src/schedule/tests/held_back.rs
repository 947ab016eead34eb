//! Jobs whose policy suspends dispatching after places were requested for them.

use super::*;

impl Stage {
    fn suspend_dispatching(&mut self, suspends: bool) {
        let mut changed = self.world.bindings[&key("first")].object.clone();
        changed.spec.suspension.get_or_insert_default().dispatching = Some(suspends);
        self.observe(Observation::Binding(Change::Apply(changed)));
        self.look("first");
    }
}

/// Its Work would stay unanswered, and its member seem to take up nothing.
#[test]
fn a_job_whose_dispatching_is_suspended_is_not_bound() {
    let mut stage = Stage::new();
    stage.submit("first");
    let asked = only(stage.pass());
    let place = stage.reserved(&asked);
    stage.scheduler.asked(&mut stage.world, &stage.intents, &key("first"), stage.now);
    stage.suspend_dispatching(true);
    let given_up = only(stage.scheduler.answers(&stage.world, &key("first"), stage.now));
    assert!(matches!(given_up.verb, Verb::Delete { .. }) && given_up.name == asked.name, "{given_up:?}");
    let gone = stage.world.reservations[&place].clone();
    stage.observe(Observation::Reservation(Change::Delete(gone)));
    stage.look("first");
    assert!(stage.pass().is_empty(), "it asks again");
    assert!(stage.waiting("first").contains("suspends dispatching"), "{}", stage.waiting("first"));
    stage.suspend_dispatching(false);
    assert!(matches!(only(stage.pass()).verb, Verb::Create(_)));
}
