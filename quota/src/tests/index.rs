//! What the index of limits lists: the classes that quota stops now, each once.

use super::*;

/// Two classes that quota stops, while others hold every place of the clusters.
fn short() -> Fleet {
    let mut fleet = Fleet::new("root 10-10; a 0-10; b 0-10", "east 10");
    fleet.run("r1", "b", 9, 0, "east");
    fleet.submit("three", "a", 3, 0);
    fleet.submit("four", "a", 4, 0);
    fleet.plan();
    assert_eq!(fleet.planner.listed_under_limits(), 2);
    fleet
}

#[test]
fn a_class_that_waits_for_places_is_not_listed_under_a_limit() {
    let mut fleet = short();
    fleet.end("r1");
    fleet.clusters.hold("others", "east", 9);
    assert_eq!(fleet.plan(), ["four waits: NoPlace", "three waits: NoPlace"]);
    assert_eq!(fleet.planner.listed_under_limits(), 0);
    // Stopped by quota again, they are found again once it is freed.
    fleet.clusters.end(&"others".into());
    fleet.planner.admit(admitted(fleet.planner.tree(), "r2", "b", 9, 0, 0));
    fleet.planner.places_freed(&"east".into());
    fleet.plan();
    assert_eq!(fleet.planner.listed_under_limits(), 2);
    fleet.end("r2");
    assert_eq!(fleet.plan(), ["four starts on east", "three starts on east"]);
    assert_eq!(fleet.planner.listed_under_limits(), 0);
}

#[test]
fn a_class_whose_need_changes_is_listed_once() {
    let mut fleet = short();
    // Another limit stops them for a time: that of their own leaf.
    for round in 0..5 {
        let (more, id) = (fleet.now_ms + 1, format!("own-{round}"));
        fleet.run(&id, "a", 1, 0, "east");
        fleet.plan_at(more);
        fleet.end(&id);
        fleet.plan();
    }
    assert_eq!(fleet.planner.listed_under_limits(), 2);
    fleet.planner.remove(&"four".into());
    fleet.end("r1");
    assert_eq!(fleet.plan(), ["three starts on east"]);
    assert_eq!(fleet.planner.listed_under_limits(), 0);
}
