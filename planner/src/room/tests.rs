//! What is kept between questions gives the answers of rooms that keep nothing.

use fleet_placement::{Gang, GangComponent};
use fleet_quota_tree::NodeId;
use proptest::prelude::*;

use super::*;

/// Jobs that may hold places, and those that only ask; of equal pods, so that no order of placing is better.
const JOBS: usize = 8;

fn cpu(cores: i64) -> Resources {
    Resources::from_pairs([("cpu", cores * 1000)])
}

fn id(job: usize) -> JobId {
    JobId::new(&format!("team/j{job}"))
}

/// The nth job has one to four pods of two cores.
fn shape(job: usize) -> Arc<JobShape> {
    let replicas = (job % 4) as i64 + 1;
    let pod = PodShape { requests: cpu(2), ..PodShape::default() };
    let gang = Gang { components: vec![GangComponent::whole("worker", replicas, pod)] };
    Arc::new(JobShape {
        id: replicas as u64,
        total: gang.total(),
        gang,
        placement: Default::default(),
        api_version: "kubeflow.org/v1".to_string(),
        kind: "PyTorchJob".to_string(),
    })
}

fn waiting(job: usize) -> WaitingJob {
    WaitingJob {
        id: id(job),
        name: format!("j{job}").into(),
        run_time_ms: None,
        preemptions: 0,
        leaf: NodeId::ROOT,
        request: shape(job).total.clone(),
        preemptible: true,
        priority: 0,
        enqueued_at_ms: 0,
        not_before_ms: 0,
        shape: shape(job).id,
    }
}

/// Nodes of five cores: two pods each, one core left over.
fn room() -> Room {
    let shape = NodeShape { allocatable: cpu(5), free: cpu(5), count: 6, ..NodeShape::default() };
    let names = (0..6).map(|n| format!("n{n}")).collect();
    let facts = ClusterFacts { name: "east".to_string(), ready: true, ..Default::default() };
    Room::new(Member {
        facts,
        reserves: true,
        shapes: vec![shape],
        node_names: vec![names],
        ..Member::default()
    })
}

#[derive(Clone, Debug)]
enum Step {
    Take(usize),
    /// The report counts it, on the node that is named where there is one.
    Report(usize, Option<usize>),
    GiveBack(usize),
    Ask {
        standing: Vec<usize>,
        asked: usize,
        gone: Vec<usize>,
        settled: bool,
    },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let some = || proptest::collection::vec(0..JOBS, 0..5);
    let ask = (some(), 0..JOBS, some(), any::<bool>())
        .prop_map(|(standing, asked, gone, settled)| Step::Ask { standing, asked, gone, settled });
    let step = prop_oneof![
        3 => (0..JOBS).prop_map(Step::Take),
        1 => (0..JOBS, proptest::option::of(0_usize..6)).prop_map(|(job, node)| Step::Report(job, node)),
        2 => (0..JOBS).prop_map(Step::GiveBack),
        5 => ask,
    ];
    proptest::collection::vec(step, 1..60)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn what_is_kept_between_questions_changes_no_answer(steps in steps()) {
        let mut room = room();
        for step in steps {
            match step {
                Step::Take(job) if !room.holds.contains_key(&id(job)) => {
                    let _ = room.take(&id(job), &shape(job));
                }
                Step::Report(job, node) => {
                    let on = |n: usize| vec![format!("n{n}"); job % 4 + 1];
                    let nodes = node.map(|n| BTreeMap::from([("worker".to_string(), on(n))])).unwrap_or_default();
                    let held = Held { nodes, ..Held::here("east", Counted::ByReports) };
                    room.hold(&id(job), &shape(job), &held);
                }
                Step::GiveBack(job) => {
                    room.give_back(&id(job));
                }
                Step::Ask { standing, asked, gone, settled } => {
                    let standing: BTreeSet<usize> = standing.into_iter().filter(|job| *job != asked).collect();
                    let jobs: Vec<WaitingJob> = standing.iter().chain([&asked]).map(|job| waiting(*job)).collect();
                    let jobs: Vec<&WaitingJob> = jobs.iter().collect();
                    let shapes: BTreeMap<JobId, Arc<JobShape>> = (0..JOBS).map(|job| (id(job), shape(job))).collect();
                    let shape_of = |id: &JobId| shapes.get(id).cloned();
                    let gone: Vec<JobId> = gone.into_iter().map(id).collect();
                    let mut fresh = room.clone();
                    fresh.supposed = [None, None];
                    let expected = fresh.fits_without(&jobs, &shape_of, &gone, settled);
                    prop_assert_eq!(room.fits_without(&jobs, &shape_of, &gone, settled), expected);
                }
                Step::Take(_) => {}
            }
        }
    }
}

#[test]
fn pods_on_a_node_that_is_not_in_the_report_use_nothing_of_the_others() {
    let mut room = room();
    // One pod on n0; one on a node that is not ready.
    let (there, split) = (shape(0), shape(1));
    let named = |names: &[&str]| {
        BTreeMap::from([("worker".to_string(), names.iter().map(ToString::to_string).collect())])
    };
    let held = |nodes| Held { nodes, ..Held::here("east", Counted::ByPlanner) };
    let all = room.free.clone();
    room.hold(&id(0), &there, &held(named(&["away-0"])));
    assert_eq!(room.free, all);
    room.hold(&id(1), &split, &held(named(&["n0", "away-0"])));
    assert_eq!(room.free, all.minus(&cpu(2)));
    // Eleven of twelve places are left.
    let eleven = PodShape { requests: cpu(2), ..PodShape::default() };
    assert_eq!(room.pods_of(&eleven, 20), 11);
    room.give_back(&id(0));
    room.give_back(&id(1));
    assert_eq!(room.free, all);
    assert_eq!(room.pods_of(&eleven, 20), 12);
}
