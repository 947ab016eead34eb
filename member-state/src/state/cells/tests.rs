use fleet_api::{
    ReservationSpec,
    cell_places::{CellGroup, CellPlace, Preempted},
};
use fleet_resources::Resources;

use super::*;
use crate::state::testing::{key, pod, reservation, state};

/// A batch Job with a node of cells for each of its two pods, of which so many must succeed.
struct Job {
    state: MemberState,
    ended: BTreeMap<String, Vec<i64>>,
}

impl Job {
    fn new(completions: Option<i64>) -> Self {
        let mut state = state(&["n0 1", "n1 1"]);
        let place = |index: i64| CellPlace {
            component: "job".into(),
            index,
            node: format!("n{index}"),
            leaf_cells: vec![0],
            ..CellPlace::default()
        };
        let spec = ReservationSpec {
            cells: vec![CellGroup {
                name: "g".into(),
                places: vec![place(0), place(1)],
                ..CellGroup::default()
            }],
            completions: completions.map(|number| ("job".to_owned(), number)).into_iter().collect(),
            ..reservation("r", "u", 1, &["job 2 1"]).spec
        };
        let nodes = BTreeMap::from([("job".to_owned(), vec!["n0".to_owned(), "n1".to_owned()])]);
        state.add_hold(Hold::new("r", &spec, &nodes));
        Self { state, ended: BTreeMap::new() }
    }

    /// Each is `name rest` of a pod.
    fn pods(&mut self, pods: &[&str]) {
        for text in pods {
            let (name, rest) = text.split_once(' ').unwrap_or((text, ""));
            self.state.apply_pod(&pod(&format!("{name}: gpu=1 reservation=r {rest}")));
        }
        self.ended = self.state.close_places("r", &self.ended);
    }

    fn ended(&self) -> Vec<i64> {
        assert!(self.ended.keys().all(|component| component == "job"), "{:?}", self.ended);
        self.ended.values().flatten().copied().collect()
    }

    fn place(&self, name: &str) -> Option<usize> {
        let entry = self.state.pod(&key(name)).expect("it exists");
        self.state.place_of(&key(name), entry).map(|place| place.index)
    }
}

#[test]
fn a_pod_that_follows_takes_the_place_of_one_that_has_ended() {
    for role in ["component=job", "component=Job", ""] {
        let mut job = Job::new(Some(4));
        let on = |name: &str, node: &str, phase: &str| format!("{name} {role} node={node} phase={phase}");
        job.pods(&[&on("j-0", "n0", "Running"), &on("j-1", "n1", "Running")]);
        job.pods(&[&on("j-0", "n0", "Succeeded")]);
        assert_eq!(job.ended(), [0; 0], "another pod needs its place");
        job.pods(&[&format!("j-2 {role}")]);
        assert_eq!(job.place("j-2"), Some(0));
        job.pods(&[&on("j-2", "n0", "Running"), &on("j-1", "n1", "Succeeded"), &format!("j-3 {role}")]);
        assert_eq!((job.ended(), job.place("j-3")), (vec![], Some(1)));
        job.pods(&[&on("j-3", "n1", "Running"), &on("j-2", "n0", "Succeeded")]);
        assert_eq!(job.ended(), [0], "three have succeeded and the fourth runs");
        // It fails, and is replaced: the other place may be somebody else's by now.
        job.pods(&[&on("j-3", "n1", "Failed"), &format!("j-4 {role}")]);
        assert_eq!((job.ended(), job.place("j-4")), (vec![0], Some(1)));
        job.pods(&[&on("j-4", "n1", "Running")]);
        job.pods(&[&on("j-4", "n1", "Succeeded")]);
        assert_eq!(job.ended(), [0, 1]);
    }
}

#[test]
fn the_last_places_come_free_and_those_that_follow_take_the_first() {
    let mut job = Job::new(Some(3));
    let run = |name: &str, node: &str, phase: &str| format!("{name} component=job node={node} phase={phase}");
    job.pods(&[&run("j-0", "n0", "Running"), &run("j-1", "n1", "Running")]);
    job.pods(&[&run("j-0", "n0", "Succeeded"), &run("j-1", "n1", "Succeeded")]);
    assert_eq!(job.ended(), [1]);
    job.pods(&["j-2 component=job"]);
    assert_eq!(job.place("j-2"), Some(0));
}

#[test]
fn a_pod_that_replaces_a_failed_one_takes_its_place() {
    let mut job = Job::new(Some(2));
    job.pods(&["j-0 component=job node=n0 phase=Failed", "j-1 component=job node=n1 phase=Running"]);
    assert_eq!(job.ended(), [0; 0]);
    job.pods(&["j-2 component=job"]);
    assert_eq!(job.place("j-2"), Some(0));
    // A pod of its own index waits for its own place, whatever else is free.
    let mut job = Job::new(Some(2));
    job.pods(&["j-0 component=job node=n0 phase=Failed", "j-2 component=job node=n1 phase=Running"]);
    job.pods(&["j-1 component=job"]);
    assert_eq!(job.place("j-1"), None);
}

#[test]
fn where_no_pods_follow_each_place_is_over_with_its_pod() {
    let mut job = Job::new(None);
    job.pods(&["j-0 component=job node=n0 phase=Succeeded", "j-1 component=job node=n1 phase=Running"]);
    assert_eq!(job.ended(), [0]);
    // It is created again.
    job.state.remove_pod(&key("j-0"));
    job.pods(&["j-0 component=job uid=again"]);
    assert_eq!((job.ended(), job.place("j-0")), (vec![], Some(0)));
}

/// Each place compared with each takes minutes.
#[test]
fn a_reservation_of_many_cells_is_compared_in_one_pass() {
    const PODS: i64 = 40_000;
    let nodes: Vec<String> = (0..PODS / 8).map(|node| format!("n{node} 8")).collect();
    let mut state = state(&nodes.iter().map(String::as_str).collect::<Vec<_>>());
    let place = |index: i64| CellPlace {
        component: "job".into(),
        index,
        node: format!("n{}", index / 8),
        leaf_cells: vec![i32::try_from(index % 8).expect("small")],
        ..CellPlace::default()
    };
    let spec = |pods: i64, preempted: Option<Preempted>| ReservationSpec {
        cells: vec![CellGroup {
            name: "g".into(),
            places: (0..pods).map(place).collect(),
            preempted,
            ..CellGroup::default()
        }],
        ..reservation("r", "u", 1, &["job 40000 1"]).spec
    };
    let shape = PodShape { requests: Resources::from_pairs([("nvidia.com/gpu", 1)]), ..PodShape::default() };
    let gang = Gang { components: vec![GangComponent::whole("job", PODS, shape)] };
    let all = spec(PODS, None);
    let found = places(&all, &gang, "r", &state).expect("there is room");
    assert_eq!(found["job"][39_999], "n4999");
    state.add_hold(Hold::new("r", &all, &found));
    assert_eq!(places(&all, &gang, "r", &state), Ok(found), "it has them");
    let why = places(&all, &gang, "other", &state).expect_err("they are held").message;
    assert_eq!(why, "node n0: leaf cell 0 is held by reservation r");
    assert_eq!(state.leave_cells("r", &all, &spec(PODS / 2, None)), [""; 0], "no pod is there");
    let preempted = spec(PODS, Some(Preempted { by: "b".into(), at_ms: 5 }));
    assert_eq!(state.vacated_of("r", &preempted), BTreeMap::from([("g".to_owned(), 5)]));
    assert!(state.leave_cells("r", &preempted, &all).is_empty());
    assert!(state.leaving_pods().is_empty());
    let known = BTreeMap::from([("job".to_owned(), (0..PODS).collect())]);
    assert!(state.close_places("r", &known).is_empty(), "no pod has ended");
}
