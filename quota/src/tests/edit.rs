//! A tree edited while jobs run and wait.

use super::*;

/// Jobs named `LEAF-...` belong to the leaf of that name.
fn by_name(tree: &QuotaTree, id: &JobId) -> Option<NodeId> {
    let name = id.as_str().split('-').next()?;
    tree.leaves().find(|leaf| tree.node(*leaf).name == name)
}

fn edit(fleet: &mut Fleet, text: &str) -> TreeEdit {
    let tree = QuotaTree::build(&tree_spec(text)).unwrap().0;
    fleet.planner.set_tree(tree, &mut by_name)
}

#[test]
fn use_and_places_in_line_move_with_the_leaf() {
    let mut fleet = Fleet::new("root 10; a 5; b 5", "east 9");
    fleet.run("a-1", "a", 2, 0, "east");
    fleet.submit("b-1", "b", 7, 0);
    assert_eq!(fleet.plan(), ["b-1 waits: ExceedsQuota"]);
    assert_eq!(edit(&mut fleet, "root 10; t 9; t/a 9; t/b 9"), TreeEdit::default());
    let used = |path: &str| fleet.planner.ledger().used(leaf(fleet.planner.tree(), path)).get("cpu");
    assert_eq!((used("t/a"), used("t")), (2000, 2000));
    assert_eq!(fleet.plan(), ["b-1 starts on east"]);
}

#[test]
fn a_deleted_leaf_drains() {
    let mut fleet = Fleet::new("root 4-4; t 4-4; t/a 2-4; t/b 2-4", "east 9");
    fleet.run("a-1", "t/a", 3, 0, "east");
    fleet.submit("a-2", "t/a", 1, 0);
    fleet.submit("b-1", "t/b", 2, 0);
    let result = edit(&mut fleet, "root 4-4; t 4-4; t/b 2-4");
    assert_eq!(result.draining, ["root/t/a"]);
    assert_eq!(result.homeless.iter().map(|job| job.id.as_str()).collect::<Vec<_>>(), ["a-2"]);
    assert!(!fleet.planner.has_drained());
    // What drains has no min any more: b may take its own back.
    assert_eq!(fleet.plan(), ["b-1 preempts a-1 (Reclaim) for east"]);
    fleet.end("a-1");
    assert_eq!(fleet.plan(), ["b-1 starts on east"]);
    assert!(fleet.planner.has_drained());
    edit(&mut fleet, "root 4-4; t 4-4; t/b 2-4");
    assert_eq!(fleet.planner.tree().find("root/t/a"), None);
    assert_eq!(fleet.planner.ledger().used(NodeId::ROOT).get("cpu"), 2000);
}

#[test]
fn a_leaf_that_got_children_or_lost_its_parent_drains_beside_what_is_there() {
    let mut fleet = Fleet::new("root 9; t 9; t/a 9; u 9", "east 9");
    fleet.run("a-1", "t/a", 1, 0, "east");
    fleet.run("u-1", "u", 1, 0, "east");
    let result = edit(&mut fleet, "root 9; u 9; u/x 9");
    assert_eq!(result.draining, ["root/t~a", "root/u/~"]);
    assert_eq!(fleet.planner.ledger().used(NodeId::ROOT).get("cpu"), 2000);
}

#[test]
fn a_lowered_max_kills_nobody_and_lets_nobody_in() {
    let mut fleet = Fleet::new("root 10; a 10", "east 99");
    fleet.run("a-1", "a", 8, 0, "east");
    edit(&mut fleet, "root 10; a 4");
    fleet.submit("a-2", "a", 1, 0);
    assert_eq!(fleet.plan(), ["a-2 waits: InsufficientQuota"]);
    fleet.end("a-1");
    assert_eq!(fleet.plan(), ["a-2 starts on east"]);
}

const MINUTE: i64 = 60_000;

/// `a-big` claims all of east at the second minute, with no start in sight.
fn claimed(text: &str, extra: &str) -> Fleet {
    let mut spec = tree_spec(text);
    spec.max.extend((!extra.is_empty()).then(|| (extra.to_owned(), "9".to_owned())));
    let mut fleet = Fleet::new(text, "east 4");
    fleet.planner = Planner::new(Arc::new(QuotaTree::build(&spec).unwrap().0));
    fleet.run("b-1", "b", 2, 0, "east");
    fleet.submit("a-big", "a", 4, 0);
    fleet.plan();
    fleet.submit("b-2", "b", 1, 0);
    fleet.plan_at(MINUTE);
    assert_eq!(fleet.plan_at(2 * MINUTE), ["a-big claims east"]);
    fleet
}

#[test]
fn what_a_claim_keeps_idle_is_counted_on_when_a_resource_leaves_the_tree() {
    let text = "root 100-100; a 0-100 @max-bypass=1m; b 0-100";
    // The resource comes before cpu in the order of the tree.
    let mut fleet = claimed(text, "aaa.example.com/unit");
    fleet.plan_at(3 * MINUTE);
    edit(&mut fleet, text);
    fleet.plan_at(4 * MINUTE);
    let (_, claim) = fleet.planner.claims().next().unwrap();
    assert_eq!(claim.idled.get("cpu"), 4000 * 120);
}

#[test]
fn an_edit_that_ends_a_claim_gives_it_no_new_time() {
    let text = "root 100-100; a 0-100 @max-bypass=1m @max-claim=10m; b 0-100";
    let mut fleet = claimed(text, "");
    edit(&mut fleet, &text.replace("a 0-100", "a 0-3"));
    assert_eq!(fleet.plan_at(3 * MINUTE), ["a-big waits: ExceedsQuota"]);
    edit(&mut fleet, text);
    fleet.plan();
    fleet.submit("b-3", "b", 1, 0);
    fleet.plan_at(4 * MINUTE);
    assert_eq!(fleet.plan_at(5 * MINUTE), ["a-big claims east"]);
    let (_, claim) = fleet.planner.claims().next().unwrap();
    assert_eq!(claim.until_ms, 12 * MINUTE, "ten minutes after the first claim");
    assert_eq!(fleet.plan_at(12 * MINUTE)[0], "a-big gives up its claim on east");
}

/// `q` counts on `a-1`, which ends anyway; `b-1` is evicted for `p`. The smaller tree has room for one of the two.
#[test]
fn after_an_edit_those_go_last_for_whom_nobody_is_evicted() {
    let mut fleet = Fleet::new("root 12-12; a 0-12; b 0-12; c 0-12", "any 1000");
    for (id, path, priority) in [("a-1", "a", -1), ("b-1", "b", -1), ("c-1", "c", 0)] {
        fleet.run(id, path, 4, priority, "any");
    }
    fleet.planner.ending(&"a-1".into());
    fleet.submit("a-q", "a", 4, 0);
    assert_eq!(fleet.plan(), ["a-q waits: WaitingForVictims a-1 in any"]);
    fleet.submit("b-p", "b", 4, 0);
    assert_eq!(fleet.plan(), ["b-p preempts b-1 (InQueuePriority) for any"]);
    edit(&mut fleet, "root 8-8; a 0-12; b 0-12; c 0-12");
    fleet.end("b-1");
    assert_eq!(fleet.plan(), ["a-q waits: InsufficientQuotaInParent"]);
    fleet.end("a-1");
    assert_eq!(fleet.plan(), ["b-p starts on any"]);
}

/// Beside `b-q` there is too little for `a-p`, and for `b-q` there is too little in any case.
#[test]
fn after_an_edit_nobody_gives_up_beside_another_one_that_gives_up() {
    let mut fleet = Fleet::new("root 14-14; a 0-14; b 0-14; c 0-14", "any 1000");
    for (id, path, cores, priority) in
        [("a-1", "a", 4, -1), ("b-1", "b", 4, -1), ("b-2", "b", 2, 0), ("c-1", "c", 4, 0)]
    {
        fleet.run(id, path, cores, priority, "any");
    }
    fleet.submit("a-p", "a", 4, 0);
    fleet.submit("b-q", "b", 4, 0);
    let takes = ["a-p preempts a-1 (InQueuePriority) for any", "b-q preempts b-1 (InQueuePriority) for any"];
    assert_eq!(fleet.plan(), takes);
    edit(&mut fleet, "root 10-10; a 0-14; b 0-5; c 0-14");
    fleet.end("a-1");
    fleet.end("b-1");
    assert_eq!(fleet.plan(), ["b-q waits: Backoff until 5000", "a-p starts on any"]);
}

#[test]
fn a_min_that_an_edit_gives_to_a_claim_is_taken_back_at_once() {
    let mut fleet = claimed("root 100-100; a 0-100 @max-bypass=1m; b 0-100", "");
    edit(&mut fleet, "root 100-100; a 4-100 @max-bypass=1m; b 0-100");
    assert_eq!(fleet.plan(), ["a-big preempts b-2 (Reclaim), b-1 (Reclaim) for east"]);
}
