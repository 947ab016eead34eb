//! Pods that a job leaves behind make way for whoever has a right to what they use.

use super::*;

/// A job of team `other` that has ended in a cluster, with pods that live on; `told`: they were told to end.
fn ended(name: &str, cluster: &str, cores: i64, told: bool) -> Job {
    let held = Held { ending: true, lingers: !told, ..Held::here(cluster, Counted::ByReports) };
    Job { id: JobId::new(&format!("other/{name}")), phase: JobPhase::Holds(held), ..job(name, 1, cores) }
}

#[test]
fn pods_of_an_ended_job_end_for_a_job_inside_its_min() {
    let mut fleet = Fleet::of(&[("team", 4, 8), ("other", 4, 8)]);
    fleet.planner.set_cluster("east", member("east", 2, 4, 1, 0));
    fleet.submit(of_another_team("runs", "east", false));
    fleet.submit(ended("over", "east", 4, false));
    assert!(fleet.plan().is_empty(), "nobody needs what they use");
    fleet.submit(job("a", 1, 4));
    assert_eq!(fleet.plan(), ["over ends for a -> east"], "no work is lost, so no other job is a victim");
    let told = fleet.planner.waiting(&JobId::new("team/a")).expect("it waits");
    assert_eq!(told.message, "waits in east for 1 job to end: other/over");
    assert_eq!(fleet.plan(), ["over ends for a -> east"], "until they are told");
    fleet.submit(ended("over", "east", 4, true));
    assert!(fleet.plan().is_empty());
}

#[test]
fn a_job_that_is_short_of_quota_alone_says_where_it_starts_and_where_the_others_end() {
    let mut planner = Planner::new(Settings::default());
    let cores = |cores: i64| [("cpu".to_string(), cores.to_string())].into();
    let leaf = |name: &str| NodeSpec {
        name: name.to_string(),
        namespaces: vec![name.to_string()],
        min: cores(4),
        max: cores(8),
        ..NodeSpec::default()
    };
    let root = NodeSpec {
        name: "root".to_string(),
        min: cores(8),
        max: cores(8),
        children: vec![leaf("team"), leaf("other")],
        ..NodeSpec::default()
    };
    planner.set_tree(Some(Arc::new(QuotaTree::build(&root).expect("valid").0)), 0);
    let mut fleet = Fleet { planner, now_ms: 0 };
    fleet.planner.set_cluster("east", member("east", 2, 4, 1, 4));
    fleet.planner.set_cluster("west", member("west", 2, 4, 1, 0));
    fleet.submit(ended("over", "west", 8, false));
    fleet.submit(job("a", 1, 4));
    assert_eq!(fleet.plan(), ["over ends for a -> east"]);
    let told = fleet.planner.waiting(&JobId::new("team/a")).expect("it waits");
    assert_eq!(told.message, "waits for 1 job to end, to start in east: other/over in west");
}

#[test]
fn nobody_ends_what_a_job_without_a_right_waits_for() {
    let mut fleet = Fleet::of(&[("team", 0, 8), ("other", 4, 8)]);
    fleet.planner.set_cluster("east", member("east", 1, 4, 1, 0));
    fleet.submit(ended("over", "east", 4, false));
    fleet.submit(job("a", 1, 4));
    assert!(fleet.plan().is_empty());
}
