//! Jobs that are edited while they run.

use super::*;

/// The owner edits virtual cluster and class of a job that runs.
fn edit(lab: &mut Lab, name: &str, vc: &str, class: i32) {
    let job = lab.jobs.get_mut(name).expect("known");
    let JobPhase::Holds(held) = &job.phase else { panic!("it runs") };
    let mut asked = job.cells.as_deref().cloned().expect("cells");
    (asked.vc, asked.class) = (vc.to_string(), class);
    for ask in &mut asked.groups {
        (ask.request.vc, ask.request.priority) = (vc.to_string(), class);
    }
    job.cells = crate::as_admitted(Some(Arc::new(asked)), held, true);
    lab.planner.set_job(job.clone(), lab.now_ms);
}

/// Jobs of one class start in the order of their places, and nobody has two.
#[test]
fn a_waiting_job_that_takes_a_later_place_leaves_its_own() {
    let mut lab = Lab::new(ONE);
    let root = r#"{"name": "root", "children": [{"name": "team", "namespaces": ["default"]}]}"#;
    let root = serde_json::from_str(root).expect("a tree");
    lab.planner
        .set_tree(Some(Arc::new(fleet_quota_tree::QuotaTree::build(&root).expect("valid").0)), lab.now_ms);
    // In a queue of the tree, a job that still waits is not taken out when it is set again.
    let queues = |lab: &mut Lab, name: &str| {
        lab.submit(name, "default", 10, 2, true);
        let job = lab.jobs.get_mut(name).expect("known");
        job.queued = true;
        lab.planner.set_job(job.clone(), lab.now_ms);
    };
    queues(&mut lab, "all");
    assert_eq!(lab.plan().len(), 1);
    queues(&mut lab, "first");
    queues(&mut lab, "second");
    assert!(lab.plan().is_empty());
    let moved = lab.jobs.get_mut("first").expect("it waits");
    moved.enqueued_at_ms = lab.now_ms;
    lab.planner.set_job(moved.clone(), lab.now_ms);
    lab.ends("all");
    let started = lab.plan();
    assert!(started.len() == 1 && started[0].starts_with("second -> "), "{started:?}");
    lab.ends("second");
    let started = lab.plan();
    assert!(started.len() == 1 && started[0].starts_with("first -> "), "{started:?}");
    // The place of a run is that of its admission, so nothing that is made anew for it moves it.
    let runs = lab.jobs.get_mut("first").expect("it runs");
    runs.enqueued_at_ms += 1000;
    lab.planner.set_job(runs.clone(), lab.now_ms);
    let id = JobId::new("default/first");
    assert_eq!(
        lab.planner.job(&id).map(|job| job.enqueued_at_ms + 1000),
        Some(lab.jobs["first"].enqueued_at_ms)
    );
}

#[test]
fn an_edited_class_is_that_of_the_next_run_and_pods_of_this_one_still_follow_each_other() {
    let mut before = Lab::new(ONE);
    before.submit("four", "default", 10, 4, false);
    assert_eq!(before.plan(), ["four -> carol0:[0] dan1:[0]"]);
    for (vc, class) in [("default", 100), ("default", -1), ("other", 10)] {
        let (planner, jobs) = (before.planner.clone(), before.jobs.clone());
        let mut lab = Lab { planner, now_ms: before.now_ms, jobs };
        edit(&mut lab, "four", vc, class);
        assert!(lab.plan().is_empty());
        lab.ended("four", &[1]);
        assert_eq!(lab.plan(), ["four ~ carol0:[0] dan2:[0]"]);
        edit(&mut lab, "four", vc, class);
        lab.ended("four", &[0, 1]);
        assert_eq!(lab.plan(), ["four ~ dan2:[0] carol3:[0]"]);
        let groups = lab.planner.cell_groups(&JobId::new("default/four"));
        let admitted =
            groups.iter().map(|group| (group.virtual_cluster.as_str(), group.priority)).collect::<Vec<_>>();
        assert_eq!(admitted, [("default", 10); 2]);
    }
}
