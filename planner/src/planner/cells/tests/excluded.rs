//! Nodes that do not take the pods of one job.

use super::*;

/// The member of `job` has refused it, because its pods cannot use these nodes.
fn excludes(lab: &mut Lab, job: &str, nodes: &[&str]) {
    lab.leaves(job);
    let id = JobId::new(&format!("default/{job}"));
    let message = "node hostname-carol: its labels or taints exclude the pod".to_string();
    lab.planner.answer(&id, "lab", Answer::Refused { message }, lab.now_ms);
    let nodes = nodes.iter().map(|node| (*node).to_string()).collect();
    lab.planner.exclude_cell_nodes(&id, "lab", &BTreeMap::from([("train".to_string(), nodes)]), lab.now_ms);
    lab.now_ms += 1_000;
}

#[test]
fn nodes_that_do_not_take_the_pods_of_one_job_are_as_good_as_before_for_others() {
    let mut lab = Lab::new(ONE);
    lab.submit("wrong", "default", -1, 1, true);
    assert_eq!(lab.plan(), ["wrong -> carol0:[0]"]);
    excludes(&mut lab, "wrong", &["hostname-carol", "no-cell"]);
    assert_eq!(lab.plan(), ["wrong -> dan0:[0]"], "it tries the other one");
    excludes(&mut lab, "wrong", &["hostname-dan"]);
    assert!(lab.plan().is_empty());
    let why = "ReservationRefused: only possible in the physical cluster with node lab/hostname-carol, which does not \
               take its pods; lab: node hostname-carol: its labels or taints exclude the pod";
    assert_eq!(lab.why("wrong"), why);
    // Another of the same shape may have another template.
    lab.submit("right", "default", -1, 1, true);
    lab.submit("pair", "default", 100, 2, true);
    assert_eq!(lab.plan(), ["pair -> carol0:[0] dan1:[0]"]);
    lab.ends("pair");
    assert_eq!(lab.plan(), ["right -> carol0:[0]"]);
    // Labels and taints change, so after a while it asks once more.
    let before = lab.now_ms;
    let wake = lab.planner.plan(lab.now_ms).wake_ms.expect("a time");
    assert!((before..=before + 60_000).contains(&wake), "{wake}");
    lab.now_ms = wake;
    assert_eq!(lab.plan(), ["wrong -> dan0:[0]"]);
}

#[test]
fn a_running_job_grows_elsewhere_when_a_node_does_not_take_its_next_pod() {
    let mut lab = Lab::new(ONE);
    lab.submit("two", "default", 100, 2, false);
    lab.nodes(&["hostname-dan"]);
    assert_eq!(lab.plan(), ["two -> dan0:[0]"]);
    lab.nodes(&["hostname-carol", "hostname-dan"]);
    assert_eq!(lab.plan(), ["two ~ dan0:[0] carol1:[0]"]);
    let mut job = lab.jobs["two"].clone();
    let JobPhase::Holds(held) = &mut job.phase else { panic!("it runs") };
    held.ungiven = BTreeSet::from([("train".to_string(), 1)]);
    held.excluded = BTreeMap::from([("train".to_string(), vec!["hostname-carol".to_string()])]);
    lab.planner.set_job(job, lab.now_ms);
    let id = JobId::new("default/two");
    lab.planner.plan(lab.now_ms);
    assert_eq!(lab.places(&id), "dan0:[0]", "it does not ask for the same place again at once");
    let partly = lab.planner.partly_waiting(&id).map(|waiting| waiting.message.clone());
    assert!(
        partly.as_ref().is_some_and(|why| why.contains("hostname-carol, which does not take its pods")),
        "{partly:?}"
    );
}
