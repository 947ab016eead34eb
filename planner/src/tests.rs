use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use fleet_placement::{GangComponent, NodeShape, PodShape};
use fleet_policies::reason::Reason;
use fleet_quota::JobId;
use fleet_quota_tree::{NodeId, NodeSpec, QuotaTree};
use fleet_resources::Resources;

use super::{job::name_of, *};

mod admitted;
mod lingering;

/// A planner with members of equal nodes; jobs ask for cpu only.
struct Fleet {
    planner: Planner,
    now_ms: i64,
}

fn cpu(cores: i64) -> Resources {
    Resources::from_pairs([("cpu", cores * 1000)])
}

fn member(name: &str, nodes: i64, cores: i64, sequence: i64, free: i64) -> Member {
    let facts =
        fleet_policies::affinity::ClusterFacts { name: name.to_string(), ready: true, ..Default::default() };
    let shape = NodeShape { allocatable: cpu(cores), free: cpu(free), count: nodes, ..NodeShape::default() };
    Member { facts, reserves: true, shapes: vec![shape], sequence, ..Member::default() }
}

/// `replicas` pods of `cores` each.
fn job(name: &str, replicas: i64, cores: i64) -> Job {
    let pod = PodShape { requests: cpu(cores), ..PodShape::default() };
    let gang = fleet_placement::Gang { components: vec![GangComponent::whole("worker", replicas, pod)] };
    Job {
        id: JobId::new(&format!("team/{name}")),
        shape: Arc::new(JobShape {
            id: (replicas * 1000 + cores) as u64,
            total: gang.total(),
            gang,
            placement: Default::default(),
            api_version: "kubeflow.org/v1".to_string(),
            kind: "PyTorchJob".to_string(),
        }),
        quota_labels: BTreeMap::new(),
        last_leaf: None,
        queued: true,
        left_queue: false,
        priority: 0,
        preemptible: true,
        preemptions: 0,
        enqueued_at_ms: 0,
        avoided: BTreeSet::new(),
        blocked: None,
        barred: BTreeMap::new(),
        phase: JobPhase::Waits,
        runtime_ms: None,
        started_at_ms: None,
        checkpoint_at_ms: None,
        cells: None,
    }
}

impl Fleet {
    /// One leaf for the namespace `team`, of `max` cores.
    fn new(max: i64) -> Self {
        Self::of(&[("team", 0, max)])
    }

    /// Leaves, each for the namespace of its name: name, min and max cores.
    fn of(leaves: &[(&str, i64, i64)]) -> Self {
        let mut planner = Planner::new(Settings::default());
        planner.set_tree(Some(Self::tree(leaves)), 0);
        Self { planner, now_ms: 0 }
    }

    fn tree(leaves: &[(&str, i64, i64)]) -> Arc<QuotaTree> {
        let cores = |cores: i64| [("cpu".to_string(), cores.to_string())].into();
        let leaf = |(name, min, max): &(&str, i64, i64)| NodeSpec {
            name: name.to_string(),
            namespaces: vec![name.to_string()],
            min: cores(*min),
            max: cores(*max),
            ..NodeSpec::default()
        };
        let children = leaves.iter().map(leaf).collect();
        let root = NodeSpec { name: "root".to_string(), children, ..NodeSpec::default() };
        Arc::new(QuotaTree::build(&root).expect("the tree above is valid").0)
    }

    fn submit(&mut self, job: Job) {
        self.planner.set_job(job, self.now_ms);
    }

    /// `job -> cluster` for each question to a member.
    fn plan(&mut self) -> Vec<String> {
        let plan = self.planner.plan(self.now_ms);
        let text = |decision: Decision| match decision {
            Decision::Ask { job, cluster } => format!("{} -> {cluster}", name_of(&job)),
            Decision::Bind { job, cluster } => format!("{} => {cluster}", name_of(&job)),
            Decision::Regroup { job, cluster } => format!("{} ~ {cluster}", name_of(&job)),
            Decision::EndPods { job, taker, cluster } => {
                format!("{} ends for {} -> {cluster}", name_of(&job), name_of(&taker))
            }
            Decision::Move { job, cluster, .. } => format!("{} <- {cluster}", name_of(&job)),
            Decision::Evict { job, taker, rule, .. } => {
                format!("{} x {} ({})", name_of(&taker), name_of(&job), rule.as_str())
            }
        };
        plan.decisions.into_iter().map(text).collect()
    }

    fn reason(&self, name: &str) -> Option<Reason> {
        self.planner.waiting(&JobId::new(&format!("team/{name}"))).map(|waiting| waiting.reason)
    }

    fn refuse(&mut self, name: &str, cluster: &str) {
        let id = JobId::new(&format!("team/{name}"));
        let answer = Answer::Refused { message: "no".to_string() };
        self.planner.answer(&id, cluster, answer, self.now_ms);
    }

    fn used(&self) -> i64 {
        self.planner.ledger().expect("a tree is set").used(NodeId::ROOT).get("cpu") / 1000
    }
}

#[test]
fn a_job_takes_quota_only_with_a_cluster_and_gives_both_back() {
    let mut fleet = Fleet::new(100);
    fleet.submit(job("a", 2, 4));
    assert!(fleet.plan().is_empty());
    assert_eq!((fleet.reason("a"), fleet.used()), (Some(Reason::ClusterNotReady), 0));
    fleet.planner.set_cluster("east", member("east", 2, 4, 1, 4));
    fleet.submit(job("b", 2, 4));
    assert_eq!(fleet.plan(), ["a -> east"]);
    assert_eq!((fleet.reason("b"), fleet.used()), (Some(Reason::NoClusterFits), 8));
    fleet.planner.remove_job(&JobId::new("team/a"), fleet.now_ms);
    assert_eq!(fleet.plan(), ["b -> east"]);
    assert_eq!(fleet.used(), 8);
}

#[test]
fn refused_by_one_it_asks_the_next_and_then_pauses_with_its_place_kept() {
    let mut fleet = Fleet::new(8);
    fleet.planner.set_cluster("east", member("east", 2, 4, 1, 4));
    fleet.planner.set_cluster("west", member("west", 2, 4, 1, 4));
    fleet.submit(job("a", 2, 4));
    fleet.submit(Job { enqueued_at_ms: 1, ..job("b", 2, 4) });
    assert_eq!(fleet.plan(), ["a -> east"]);
    fleet.refuse("a", "east");
    assert_eq!(fleet.used(), 0, "quota is given back at once");
    assert_eq!(fleet.plan(), ["a -> west"]);
    fleet.refuse("a", "west");
    assert_eq!(fleet.plan(), ["b -> east"], "a pauses, b goes on");
    assert_eq!(fleet.reason("a"), Some(Reason::ReservationRefused));
    fleet.planner.remove_job(&JobId::new("team/b"), fleet.now_ms);
    assert!(fleet.plan().is_empty(), "not before its pause is over");
    fleet.now_ms = 1000;
    assert_eq!(fleet.plan(), ["a -> east"]);
}

/// The hub reads a refusal until its reservation is deleted, also when the job asks elsewhere by then.
#[test]
fn a_refusal_that_was_heard_takes_nothing_from_what_is_asked_elsewhere() {
    let mut fleet = Fleet::new(8);
    fleet.planner.set_cluster("east", member("east", 2, 4, 1, 4));
    fleet.planner.set_cluster("west", member("west", 2, 4, 1, 4));
    fleet.submit(job("a", 2, 4));
    assert_eq!(fleet.plan(), ["a -> east"]);
    fleet.refuse("a", "east");
    assert_eq!(fleet.plan(), ["a -> west"]);
    fleet.refuse("a", "east");
    assert_eq!((fleet.plan(), fleet.used()), (Vec::new(), 8));
    fleet.refuse("a", "west");
    assert_eq!(fleet.used(), 0);
}

#[test]
fn places_count_until_a_report_counts_them() {
    let mut fleet = Fleet::new(100);
    fleet.planner.set_cluster("east", member("east", 2, 4, 1, 4));
    fleet.submit(job("a", 1, 4));
    assert_eq!(fleet.plan(), ["a -> east"]);
    let held = |counted| JobPhase::Holds(Held::here("east", counted));
    fleet.submit(Job { phase: held(Counted::FromReport(2)), ..job("a", 1, 4) });
    fleet.submit(job("wide", 2, 4));
    assert!(fleet.plan().is_empty(), "one node is promised");
    // The report counts the place: one node is free, and the promise is not taken off it again.
    let mut report = member("east", 1, 4, 2, 4);
    report.shapes.push(NodeShape { free: Resources::new(), ..report.shapes[0].clone() });
    fleet.planner.set_cluster("east", report);
    assert!(fleet.plan().is_empty());
    fleet.submit(job("narrow", 1, 4));
    assert_eq!(fleet.plan(), ["narrow -> east"]);
    // The end of a job frees its place only when a report says so.
    fleet.planner.remove_job(&JobId::new("team/a"), fleet.now_ms);
    fleet.planner.remove_job(&JobId::new("team/narrow"), fleet.now_ms);
    assert!(fleet.plan().is_empty());
    fleet.planner.set_cluster("east", member("east", 2, 4, 3, 4));
    assert_eq!(fleet.plan(), ["wide -> east"]);
}

#[test]
fn a_blocked_job_stops_no_equal_one() {
    let mut fleet = Fleet::new(100);
    fleet.planner.set_cluster("east", member("east", 2, 4, 1, 4));
    let waiting = Waiting::new(Reason::Suspended, "by its policy");
    fleet.submit(Job { blocked: Some(waiting), ..job("a", 1, 4) });
    fleet.submit(job("b", 1, 4));
    assert_eq!(fleet.plan(), ["b -> east"]);
    assert_eq!(fleet.reason("a"), Some(Reason::Suspended));
    fleet.submit(job("a", 1, 4));
    assert_eq!(fleet.plan(), ["a -> east"]);
}

#[test]
fn jobs_without_a_queue_are_placed_and_counted() {
    let mut fleet = Fleet::new(4);
    fleet.planner.set_cluster("east", member("east", 2, 4, 1, 4));
    fleet.submit(Job { queued: false, ..job("direct", 1, 4) });
    fleet.submit(job("queued", 1, 4));
    assert_eq!(fleet.plan(), ["direct -> east"]);
    assert_eq!((fleet.reason("queued"), fleet.used()), (Some(Reason::InsufficientQuota), 4));
    // The numbers of the tree's status: `used` is what jobs that wait in queues use.
    let waiting = fleet.planner.waiting(&JobId::new("team/queued")).expect("it waits");
    assert!(waiting.message.contains("request 4, max 4, used 0, unqueued 4; wait"), "{}", waiting.message);
    // One that was admitted from its queue is used, also for a process that never saw it wait.
    let mut fleet = Fleet::new(4);
    fleet.planner.set_cluster("east", member("east", 2, 4, 1, 4));
    let held = JobPhase::Holds(Held::here("east", Counted::ByPlanner));
    fleet.submit(Job { queued: false, left_queue: true, phase: held, ..job("admitted", 1, 4) });
    fleet.submit(job("queued", 1, 4));
    assert_eq!(fleet.plan(), Vec::<String>::new());
    let waiting = fleet.planner.waiting(&JobId::new("team/queued")).expect("it waits");
    assert!(waiting.message.contains("request 4, max 4, used 4; wait"), "{}", waiting.message);
}

#[test]
fn every_job_of_a_class_is_told_and_told_again_when_the_reason_changes() {
    let mut fleet = Fleet::new(4);
    fleet.planner.set_cluster("east", member("east", 1, 8, 1, 8));
    for name in ["a", "b", "c"] {
        fleet.submit(job(name, 1, 4));
    }
    let plan = fleet.planner.plan(0);
    assert_eq!(plan.told.len(), 2);
    for name in ["b", "c"] {
        assert_eq!(fleet.reason(name), Some(Reason::InsufficientQuota));
    }
    fleet.planner.set_cluster("east", member("east", 1, 8, 2, 0));
    fleet.planner.remove_job(&JobId::new("team/a"), fleet.now_ms);
    // Quota has capacity for one of them: the other waits for quota before and after.
    assert_eq!(fleet.planner.plan(10).told.len(), 1);
    assert_eq!(fleet.reason("b"), Some(Reason::NoClusterFits));
    assert_eq!(fleet.reason("c"), Some(Reason::InsufficientQuota));
    // What stops all of them is told to all.
    fleet.planner.remove_cluster("east");
    fleet.planner.plan(20);
    for name in ["b", "c"] {
        assert_eq!(fleet.reason(name), Some(Reason::ClusterNotReady));
    }
}

#[test]
fn equal_jobs_are_told_their_own_reason_why_clusters_are_barred() {
    let mut fleet = Fleet::of(&[("team", 0, 100), ("other", 0, 100)]);
    fleet.planner.set_cluster("a", member("a", 1, 8, 1, 8));
    let barred = |mut one: Job| {
        let why = Waiting::new(Reason::OverrideInvalid, format!("the override of {}", one.id));
        one.barred.insert("a".to_string(), why);
        one
    };
    for name in ["one", "two"] {
        fleet.submit(barred(job(name, 1, 2)));
    }
    fleet.submit(barred(Job { id: JobId::new("other/three"), ..job("three", 1, 2) }));
    assert!(fleet.plan().is_empty());
    for id in ["team/one", "team/two", "other/three"] {
        let told = fleet.planner.waiting(&JobId::new(id)).expect("it waits");
        assert!(told.message.ends_with(&format!("the override of {id}")), "{id}: {}", told.message);
    }
}

#[test]
fn a_taker_waits_for_the_report_that_shows_the_places_free_and_takes_no_second_victim() {
    let mut fleet = Fleet::of(&[("team", 4, 8), ("other", 4, 8)]);
    let runs = JobPhase::Holds(Held::here("east", Counted::ByReports));
    let ending = JobPhase::Holds(Held { ending: true, ..Held::here("east", Counted::ByReports) });
    let victim = |name: &str, phase: &JobPhase| Job {
        id: JobId::new(&format!("other/{name}")),
        phase: phase.clone(),
        ..job(name, 1, 4)
    };
    fleet.planner.set_cluster("east", member("east", 2, 4, 1, 0));
    fleet.submit(victim("one", &runs));
    fleet.submit(victim("two", &runs));
    fleet.submit(job("taker", 1, 4));
    assert_eq!(fleet.plan(), ["taker x one (Reclaim)"]);
    fleet.submit(victim("one", &ending));
    assert!(fleet.plan().is_empty());
    // What the hub says of the taker changes while it waits: nothing of what is under way for it does.
    fleet.submit(Job { avoided: ["west".to_string()].into(), ..job("taker", 1, 4) });
    assert!(fleet.plan().is_empty());
    fleet.submit(victim("one", &JobPhase::Waits));
    assert!(fleet.plan().is_empty(), "the place is free, and no report shows it yet");
    // A report that was on its way.
    fleet.planner.set_cluster("east", member("east", 2, 4, 2, 0));
    assert!(fleet.plan().is_empty());
    let mut report = member("east", 1, 4, 3, 4);
    report.shapes.push(NodeShape { free: Resources::new(), ..report.shapes[0].clone() });
    fleet.planner.set_cluster("east", report);
    assert_eq!(fleet.plan(), ["taker -> east"]);
}

/// A job of another team that runs in a cluster.
fn of_another_team(name: &str, cluster: &str, ending: bool) -> Job {
    let phase = JobPhase::Holds(Held { ending, ..Held::here(cluster, Counted::ByReports) });
    Job { id: JobId::new(&format!("other/{name}")), phase, ..job(name, 1, 4) }
}

#[test]
fn nobody_is_ended_where_the_taker_was_just_refused() {
    let mut fleet = Fleet::of(&[("team", 4, 8), ("other", 4, 8)]);
    fleet.planner.set_cluster("east", member("east", 2, 4, 1, 4));
    fleet.submit(job("a", 1, 4));
    assert_eq!(fleet.plan(), ["a -> east"]);
    for name in ["one", "two"] {
        fleet.submit(of_another_team(name, "east", false));
    }
    fleet.planner.set_cluster("east", member("east", 2, 4, 2, 0));
    fleet.refuse("a", "east");
    assert!(fleet.plan().is_empty());
    assert_eq!(fleet.reason("a"), Some(Reason::ReservationRefused));
    fleet.now_ms = 1000;
    assert_eq!(fleet.plan(), ["a x one (Reclaim)"], "its pause is over");
}

#[test]
fn a_refusal_of_one_member_does_not_end_a_taking_in_another() {
    let mut fleet = Fleet::of(&[("team", 4, 8), ("other", 4, 8)]);
    fleet.planner.set_cluster("east", member("east", 1, 4, 1, 4));
    fleet.planner.set_cluster("west", member("west", 2, 4, 1, 0));
    fleet.submit(job("a", 1, 4));
    assert_eq!(fleet.plan(), ["a -> east"]);
    fleet.refuse("a", "east");
    for name in ["one", "two"] {
        fleet.submit(of_another_team(name, "west", false));
    }
    assert_eq!(fleet.plan(), ["a x one (Reclaim)"]);
    fleet.submit(of_another_team("one", "west", true));
    assert!(fleet.plan().is_empty());
    fleet.planner.remove_job(&JobId::new("other/one"), fleet.now_ms);
    assert!(fleet.plan().is_empty(), "no report shows the place yet");
    fleet.planner.set_cluster("west", member("west", 1, 4, 2, 4));
    assert_eq!(fleet.plan(), ["a -> west"]);
}

#[test]
fn places_that_no_report_shows_free_are_not_waited_for_without_end() {
    let mut fleet = Fleet::of(&[("team", 4, 8), ("other", 4, 8)]);
    fleet.planner.set_cluster("east", member("east", 2, 4, 1, 0));
    let other = |name: &str| Job {
        id: JobId::new(&format!("other/{name}")),
        phase: JobPhase::Holds(Held::here("east", Counted::ByReports)),
        ..job(name, 1, 4)
    };
    for name in ["one", "two"] {
        fleet.submit(other(name));
    }
    // Somebody who is no job of the fleet has taken the place of the first.
    fleet.planner.remove_job(&JobId::new("other/one"), fleet.now_ms);
    fleet.submit(Job { id: JobId::new("other/three"), ..other("three") });
    fleet.submit(job("taker", 1, 4));
    assert!(fleet.plan().is_empty());
    let wake = fleet.planner.plan(0).wake_ms.expect("it looks again");
    fleet.now_ms = wake;
    assert_eq!(fleet.plan().len(), 1, "one victim after all");
}

#[test]
fn a_deleted_leaf_stays_until_its_jobs_have_ended_and_takes_no_more() {
    let mut fleet = Fleet::of(&[("team", 4, 8), ("other", 4, 8)]);
    fleet.planner.set_cluster("east", member("east", 4, 4, 1, 4));
    let gone = Job { id: JobId::new("other/runs"), ..job("runs", 1, 4) };
    fleet.submit(gone.clone());
    assert_eq!(fleet.plan(), ["runs -> east"]);
    fleet.submit(Job { phase: JobPhase::holds("east"), ..gone });
    let next = JobId::new("other/next");
    fleet.submit(Job { id: next.clone(), ..job("next", 9, 4) });
    fleet.planner.set_tree(Some(Fleet::tree(&[("team", 4, 8)])), 0);
    assert!(fleet.plan().is_empty());
    let path = |fleet: &Fleet, id: &str| fleet.planner.leaf_path(&JobId::new(id)).map(str::to_owned);
    assert_eq!((fleet.used(), path(&fleet, "other/runs").as_deref()), (4, Some("root/other")));
    assert_eq!(fleet.planner.waiting(&next).map(|waiting| waiting.reason), Some(Reason::NotInQuotaTree));
    fleet.planner.remove_job(&JobId::new("other/runs"), fleet.now_ms);
    assert!(fleet.plan().is_empty());
    let tree = fleet.planner.quota().expect("a tree is set").tree();
    assert_eq!((fleet.used(), tree.find("root/other")), (0, None));
}

#[test]
fn a_controller_that_starts_anew_counts_the_jobs_of_a_deleted_leaf() {
    let mut planner = Planner::new(Settings::default());
    planner.set_tree(Some(Fleet::tree(&[("team", 4, 8)])), 0);
    let mut fleet = Fleet { planner, now_ms: 0 };
    fleet.planner.set_cluster("east", member("east", 4, 4, 1, 4));
    let runs = |name: &str, leaf: Option<&str>| Job {
        id: JobId::new(&format!("other/{name}")),
        phase: JobPhase::holds("east"),
        last_leaf: leaf.map(str::to_owned),
        ..job(name, 1, 4)
    };
    fleet.submit(job("waits", 9, 4));
    fleet.submit(runs("one", Some("root/other")));
    fleet.submit(runs("two", Some("root/other")));
    fleet.submit(runs("outside", None));
    assert!(fleet.plan().is_empty());
    let path = |fleet: &Fleet, id: &str| fleet.planner.leaf_path(&JobId::new(id)).map(str::to_owned);
    assert_eq!((fleet.used(), path(&fleet, "other/two").as_deref()), (8, Some("root/other")));
    assert_eq!(path(&fleet, "team/waits").as_deref(), Some("root/team"));
    for name in ["one", "two"] {
        fleet.planner.remove_job(&JobId::new(&format!("other/{name}")), fleet.now_ms);
    }
    assert!(fleet.plan().is_empty());
    let tree = fleet.planner.quota().expect("a tree is set").tree();
    assert_eq!((fleet.used(), tree.find("root/other")), (0, None));
}

#[test]
fn a_leaf_that_does_not_take_the_namespace_is_not_obeyed_and_does_not_count() {
    let closed = |namespaces: Option<&str>| {
        let mut spec = NodeSpec { name: "root".to_string(), ..NodeSpec::default() };
        for name in ["team", "other"] {
            spec.children.push(NodeSpec {
                name: name.to_string(),
                namespaces: vec![name.to_string()],
                max: [("cpu".to_string(), "8".to_string())].into(),
                ..NodeSpec::default()
            });
        }
        if let Some(namespaces) = namespaces {
            let attribute = fleet_quota_tree::SUBMITTER_NAMESPACES.to_string();
            spec.children[1].attributes.insert(attribute, namespaces.to_string());
        }
        Arc::new(QuotaTree::build(&spec).expect("the tree above is valid").0)
    };
    let mut fleet = Fleet::of(&[]);
    fleet.planner.set_tree(Some(closed(Some(""))), 0);
    fleet.planner.set_cluster("east", member("east", 4, 4, 1, 4));
    let label = |job: Job| Job {
        quota_labels: [(fleet_quota_tree::QUOTA_LABELS[0].to_string(), "other".to_string())].into(),
        ..job
    };
    fleet.submit(label(job("queued", 1, 4)));
    fleet.submit(Job { queued: false, ..label(job("direct", 1, 4)) });
    assert_eq!(fleet.plan(), Vec::<String>::new());
    assert_eq!(fleet.reason("queued"), Some(Reason::NotAdmittedToQueue));
    assert_eq!(
        fleet.reason("direct"),
        Some(Reason::NotAdmittedToQueue),
        "a job that skips the queue as well"
    );
    assert_eq!(fleet.used(), 0);

    fleet.planner.set_tree(Some(closed(Some("team"))), 0);
    let mut placed = fleet.plan();
    placed.sort();
    assert_eq!(placed, ["direct -> east", "queued -> east"]);
    let path = |fleet: &Fleet, name: &str| {
        fleet.planner.leaf_path(&JobId::new(&format!("team/{name}"))).map(str::to_owned)
    };
    assert_eq!(path(&fleet, "queued").as_deref(), Some("root/other"));

    // Closed again: what runs goes on and counts where it was let in; what waits, waits.
    let runs = |name: &str, leaf: Option<&str>| Job {
        phase: JobPhase::holds("east"),
        last_leaf: leaf.map(str::to_owned),
        ..label(job(name, 1, 4))
    };
    fleet.submit(runs("queued", Some("root/other")));
    fleet.submit(Job { queued: false, ..label(job("late", 1, 4)) });
    fleet.planner.set_tree(Some(closed(Some(""))), 0);
    assert_eq!(fleet.plan(), Vec::<String>::new());
    assert_eq!(fleet.reason("late"), Some(Reason::NotAdmittedToQueue));
    assert_eq!(path(&fleet, "queued").as_deref(), Some("root/other"));

    // A run that is relabelled stays counted where it was let in; one of which nothing is known, in its own leaf.
    fleet.submit(job("relabelled", 1, 4));
    fleet.submit(Job { phase: JobPhase::holds("east"), ..job("relabelled", 1, 4) });
    fleet.submit(runs("relabelled", Some("root/team")));
    assert_eq!(path(&fleet, "relabelled").as_deref(), Some("root/team"));
    fleet.submit(runs("found", None));
    assert_eq!(path(&fleet, "found").as_deref(), Some("root/team"));
}

#[test]
fn a_copy_plans_the_same_and_changes_nothing_of_its_original() {
    let mut fleet = Fleet::of(&[("team", 0, 8), ("other", 0, 8)]);
    fleet.planner.set_cluster("east", member("east", 2, 4, 1, 4));
    for name in ["a", "b", "c"] {
        fleet.submit(job(name, 1, 4));
    }
    let mut copy = Fleet { planner: fleet.planner.clone(), now_ms: fleet.now_ms };
    // What if another member joined?
    copy.planner.set_cluster("west", member("west", 2, 4, 1, 4));
    copy.planner.set_tree(Some(Fleet::tree(&[("team", 0, 12), ("other", 0, 8)])), 0);
    assert_eq!(copy.plan().len(), 3);
    assert_eq!(copy.used(), 12);
    assert_eq!(fleet.used(), 0, "the original has not planned");
    let mut twin = Fleet { planner: fleet.planner.clone(), now_ms: fleet.now_ms };
    assert_eq!(twin.planner.plan(0), fleet.planner.plan(0));
    assert_eq!(fleet.used(), 8);
}

#[test]
fn a_plan_goes_to_text_and_back() {
    let mut fleet = Fleet::of(&[("team", 8, 16), ("other", 8, 16)]);
    fleet.planner.set_cluster("east", member("east", 4, 4, 1, 4));
    fleet.submit(job("a", 1, 4));
    let first = fleet.planner.plan(0);
    assert_eq!((first.sequence, fleet.planner.plan(0).sequence), (1, 2));
    let text = serde_json::to_string(&first).expect("JSON");
    assert_eq!(
        text,
        r#"{"sequence":1,"decisions":[{"type":"Ask","job":"team/a","cluster":"east"}],"told":[],"wakeMs":null,"more":false}"#
    );
    assert_eq!(serde_json::from_str::<Plan>(&text).expect("a plan"), first);
    let evict = Decision::Evict {
        job: JobId::new("other/b"),
        taker: JobId::new("team/a"),
        cluster: "east".to_string(),
        rule: fleet_quota::TakeRule::Reclaim,
        lost_work_ms: 1500,
    };
    let text = serde_json::to_string(&evict).expect("JSON");
    assert!(text.contains(r#""rule":"Reclaim","lostWorkMs":1500"#), "{text}");
    assert_eq!(serde_json::from_str::<Decision>(&text).expect("a decision"), evict);
}

#[test]
fn a_view_shows_lines_in_order_use_by_queue_room_and_who_holds_it() {
    let mut fleet = Fleet::of(&[("team", 0, 4), ("other", 0, 8)]);
    fleet.planner.set_cluster("east", member("east", 2, 4, 1, 4));
    for (name, priority) in [("late", 0), ("first", 9), ("urgent", 5)] {
        fleet.submit(Job { priority, ..job(name, 1, 4) });
    }
    assert_eq!(fleet.plan(), ["first -> east"]);
    let view = View::of(&fleet.planner, 7);
    assert_eq!((view.sequence, view.at_ms, view.holder_count), (1, 7, 1));
    let queue = |path: &str| view.queues.iter().find(|queue| queue.path == path).expect("a queue");
    let team = queue("root/team");
    assert!(team.is_leaf && !queue("root").is_leaf);
    assert_eq!((team.waiting, team.admitted, queue("root").waiting), (2, 1, 2));
    assert_eq!((team.used["cpu"].as_str(), team.max["cpu"].as_str()), ("4", "4"));
    let line: Vec<&str> = team.line.iter().map(|waiting| waiting.job.as_str()).collect();
    assert_eq!(line, ["team/urgent", "team/late"]);
    assert!(team.line.iter().all(|waiting| waiting.reason.is_some()), "{:?}", team.line);
    assert_eq!(view.members[0].free["cpu"], "4");
    let holder = &view.holders[0];
    assert_eq!((holder.job.as_str(), holder.cluster.as_str()), ("team/first", "east"));
    assert_eq!(holder.queue.as_deref(), Some("root/team"));
    let text = serde_json::to_string(&view).expect("JSON");
    assert_eq!(serde_json::from_str::<View>(&text).expect("a view"), view);
}

mod messages;
