//! What users are told.

use super::*;

#[test]
fn a_job_with_waiting_pods_counts_as_waiting_too() {
    let mut lab = Lab::new(ONE);
    lab.submit("three", "default", 100, 3, false);
    assert_eq!(lab.plan(), ["three -> carol0:[0] dan1:[0]"]);
    assert!(lab.plan().is_empty());
    let one = BTreeMap::from([(100, 1)]);
    let used = lab.planner.vc_use();
    assert_eq!((&used["default"].jobs.waiting, &used["default"].jobs.running), (&one, &one));
    lab.ended("three", &[0]);
    assert_eq!(lab.plan(), ["three ~ dan1:[0] carol2:[0]"]);
    lab.plan();
    let used = lab.planner.vc_use();
    assert_eq!((&used["default"].jobs.waiting, &used["default"].jobs.running), (&BTreeMap::new(), &one));
}

#[test]
fn a_node_that_its_member_does_not_have_is_named_with_the_reason() {
    let mut lab = Lab::new(ONE);
    let told = |lab: &mut Lab, good: &[&str], unknown: &[&str]| {
        let set = |names: &[&str]| names.iter().map(|name| (*name).to_string()).collect();
        lab.planner.set_cell_nodes("lab", Some(CellNodes { good: set(good), unknown: set(unknown) }));
        lab.plan();
        lab.why("b")
    };
    lab.nodes(&["hostname-dan"]);
    lab.submit("a", "default", 100, 1, true);
    lab.submit("b", "default", 100, 1, true);
    lab.plan();
    let bad = "BadCells: only possible in VC default with bad node lab/hostname-carol";
    assert_eq!(told(&mut lab, &["hostname-dan"], &[]), bad);
    let absent = format!("{bad}, which its cluster does not have");
    assert_eq!(told(&mut lab, &["hostname-dan"], &["hostname-carol"]), absent);
    assert_eq!(told(&mut lab, &["hostname-dan"], &[]), bad);
    assert_eq!(told(&mut lab, &["hostname-carol", "hostname-dan"], &[]), "");
}

#[test]
fn pods_that_an_ended_job_left_behind_leave_promised_cells_when_another_job_waits_for_them() {
    let mut lab = Lab::new(TWO);
    lab.submit("over", "vc1", 100, 1, true);
    assert_eq!(lab.plan(), ["over -> dan0:[0]"]);
    let lingers = |lab: &mut Lab, lingers: bool| {
        let mut over = lab.jobs["over"].clone();
        let JobPhase::Holds(held) = &mut over.phase else { panic!("it holds cells") };
        (held.ending, held.lingers) = (true, lingers);
        lab.planner.set_job(over, lab.now_ms);
    };
    lingers(&mut lab, true);
    lab.submit("oppo", "vc1", -1, 3, true);
    assert!(lab.plan().is_empty(), "an opportunistic job has no right to cells");
    lab.submit("next", "vc1", 100, 1, true);
    assert_eq!(lab.plan(), ["pods of over end for next"]);
    lingers(&mut lab, false);
    assert!(lab.plan().is_empty());
    lab.ends("over");
    assert_eq!(lab.plan(), ["next -> dan0:[0]"]);
}

#[test]
fn pods_that_an_ended_job_left_behind_on_borrowed_cells_end_for_the_owner() {
    let mut lab = Lab::new(TWO);
    for name in ["one", "two"] {
        lab.submit(name, "vc1", -1, 1, true);
    }
    lab.plan();
    for name in ["one", "two"] {
        let mut over = lab.jobs[name].clone();
        let JobPhase::Holds(held) = &mut over.phase else { panic!("{name} holds cells") };
        (held.ending, held.lingers) = (true, true);
        lab.planner.set_job(over, lab.now_ms);
    }
    lab.submit("own", "vc1", 100, 1, true);
    let told = lab.plan();
    assert!(told.len() == 1 && told[0].ends_with(" end for own"), "{told:?}");
}
