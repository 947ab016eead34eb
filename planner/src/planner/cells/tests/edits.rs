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
