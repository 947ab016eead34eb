//! Tests of nodes that other schedulers also use, and of pods that other controllers create.

use fleet_api::names;
use serde_json::json;

use super::{
    testing::{key, node, pod, reservation, state, used},
    *,
};
use fleet_agent_ground::OwnedJob;

fn hold(name: &str, nodes: &[(&str, &[&str])], components: &[&str]) -> Hold {
    let names = |names: &[&str]| names.iter().map(ToString::to_string).collect();
    let nodes = nodes.iter().map(|(component, nodes)| ((*component).to_owned(), names(nodes))).collect();
    Hold::new(name, &reservation(name, "u", 1, components).spec, &nodes)
}

/// A pod that an operator created and the cluster's scheduler binds: `owner` is `Kind/name/uid`.
fn foreign(text: &str, owner: &str, labels: serde_json::Value) -> LeanPod {
    let mut made = pod(text);
    made.spec.scheduler_name = Some("default-scheduler".into());
    made.metadata.labels = serde_json::from_value(labels).unwrap();
    let mut parts = owner.split('/');
    let mut next = || parts.next().unwrap();
    let (kind, name, uid) = (next(), next(), next());
    let api_version = if kind == "Job" { "batch/v1" } else { "kubeflow.org/v1" };
    let api_version = if kind == "MPIJob" { "kubeflow.org/v2beta1" } else { api_version };
    made.metadata.owner_references = serde_json::from_value(
        json!([{"apiVersion": api_version, "kind": kind, "name": name, "uid": uid, "controller": true}]),
    )
    .unwrap();
    made
}

fn job(name: &str, uid: &str, created: i64) -> Option<Arc<OwnedJob>> {
    Some(Arc::new(OwnedJob {
        uid: uid.into(),
        namespace: "default".into(),
        name: name.into(),
        reservation: "r".into(),
        on_cells: false,
        created: jiff::Timestamp::from_second(created).ok(),
    }))
}

const ROLE: &str = "training.kubeflow.org/replica-type";
const INDEX: &str = "training.kubeflow.org/replica-index";

#[test]
fn an_operators_pods_take_the_places_of_their_job_and_count_once() {
    let mut state = state(&["n1 8", "n2 8"]);
    state.add_hold(hold(
        "r",
        &[("master", &["n1"]), ("worker", &["n1", "n2"])],
        &["master 1 4", "worker 2 4"],
    ));
    assert_eq!(used(&state), "n1 8/2, n2 4/1");
    let worker = |i: &str, on: &str| {
        foreign(&format!("a-worker-{i}: gpu=4{on}"), "PyTorchJob/a/u1", json!({ROLE: "worker", INDEX: i}))
    };
    // Its pods come before the job is known: they count beside the hold for as long.
    state.apply_pod(&worker("0", ""));
    assert_eq!(state.unbound().get("nvidia.com/gpu"), 4);
    state.set_job("u1", job("a", "u1", 0));
    assert!(state.unbound().is_zero(), "the place counts, not the pod that waits for it");
    state.apply_pod(&worker("1", " node=n1"));
    state.apply_pod(&worker("0", " node=n2"));
    assert_eq!(used(&state), "n1 8/2, n2 4/1", "whoever bound them, wherever within the places");
    state.apply_pod(&foreign(
        "a-master-0: gpu=4 node=n2",
        "PyTorchJob/a/u1",
        json!({ROLE: "master", INDEX: "0"}),
    ));
    assert_eq!(used(&state), "n1 4/1, n2 8/2", "the place it did not take is free");
    state.set_job("u1", None);
    assert_eq!(used(&state), "n1 12/3, n2 12/3", "nobody is in the places any more");
    state.set_job("u1", job("a", "u1", 0));
    assert_eq!(used(&state), "n1 4/1, n2 8/2");
    state.remove_hold("r");
    assert_eq!(used(&state), "n1 4/1, n2 8/2");
    for name in ["a-worker-0", "a-worker-1", "a-master-0"] {
        state.remove_pod(&key(name));
    }
    assert_eq!(used(&state), "n1 0/0, n2 0/0");
    assert!(state.pods_by_job.is_empty() && state.unbound().is_zero());
}

#[test]
fn pods_of_another_run_or_of_nobody_take_no_place() {
    let mut state = state(&["n1 8", "n2 8"]);
    state.add_hold(hold("r", &[("job", &["n1"])], &["job 1 4"]));
    state.set_job("u2", job("a", "u2", 100));
    for pod in [
        // Of the run before.
        foreign("a-0: gpu=4 node=n2", "Job/a/u1", json!({})),
        // Of another job.
        foreign("b-0: gpu=4 node=n2", "Job/b/u9", json!({"batch.kubernetes.io/job-name": "a"})),
        // By way of a Job that was there before the run.
        foreign(
            "c-0: gpu=0 node=n2 created=99",
            "Job/a-launcher/u8",
            json!({"training.kubeflow.org/job-name": "a"}),
        ),
        // Of nobody.
        pod("d-0: gpu=0 node=n2"),
    ] {
        state.apply_pod(&pod);
    }
    assert_eq!(used(&state), "n1 4/1, n2 8/4");
    state.apply_pod(&foreign("a-x7k2p: gpu=4 node=n1 created=100", "Job/a/u2", json!({})));
    assert_eq!(used(&state), "n1 4/1, n2 8/4", "a role that says nothing is the only one");
}

#[test]
fn a_launcher_made_by_way_of_a_job_is_the_jobs() {
    let mut state = state(&["n1 8", "n2 8"]);
    state.add_hold(hold("r", &[("Launcher", &["n1"]), ("Worker", &["n2"])], &["Launcher 1 1", "Worker 1 4"]));
    state.set_job("u1", job("m", "u1", 100));
    let labels =
        |role: &str| json!({"training.kubeflow.org/job-name": "m", "training.kubeflow.org/job-role": role});
    state.apply_pod(&foreign("m-worker-0: gpu=4 node=n2 created=100", "MPIJob/m/u1", labels("worker")));
    state.apply_pod(&foreign(
        "m-launcher-x2: gpu=1 node=n1 created=101",
        "Job/m-launcher/u7",
        labels("launcher"),
    ));
    assert_eq!(used(&state), "n1 1/1, n2 4/1");
}

#[test]
fn pods_of_a_job_on_cells_are_so_for_as_long_as_they_are_its() {
    let mut state = state(&["n1 8"]);
    state.apply_pod(&foreign("a-0: gpu=4 cells=true", "Job/a/u1", json!({})));
    let is_bound = |state: &MemberState| {
        let pod = state.pod(&key("a-0")).expect("the pod");
        (pod.reservation.is_some(), state.is_bound_to_cells(pod))
    };
    assert_eq!(is_bound(&state), (false, false), "without a reservation there are no cells to wait for");
    let on_cells = |on_cells| job("a", "u1", 0).map(|job| Arc::new(OwnedJob { on_cells, ..(*job).clone() }));
    state.set_job("u1", on_cells(true));
    assert_eq!(is_bound(&state), (true, true), "no reservation of that name is held");
    state.set_job("u1", on_cells(false));
    assert_eq!(is_bound(&state), (true, false));
    state.set_job("u1", on_cells(true));
    state.set_job("u1", None);
    assert_eq!(is_bound(&state), (false, false));
}

#[test]
fn another_schedulers_pod_takes_kept_room_and_only_that() {
    let mut state = state(&["n1 8", "n2 8"]);
    state.add_hold(hold("r1", &[("w", &["n1", "n2"])], &["w 2 4"]));
    state.add_hold(hold("r2", &[("w", &["n2"])], &["w 1 4"]));
    state.apply_pod(&foreign("x: gpu=4 node=n1", "ReplicaSet/x/u9", json!({})));
    assert!(state.take_crowd().places.is_empty(), "there is room beside the place");
    state.apply_pod(&foreign("y: gpu=3 node=n2", "ReplicaSet/y/u9", json!({})));
    let taken = state.take_crowd();
    assert_eq!(taken.places, [("r2".to_owned(), vec!["n2".to_owned()])].into(), "one place is enough");
    assert!(taken.gangs.is_empty());
    assert_eq!(used(&state), "n1 8/2, n2 7/2");
    assert!(state.is_shared);
}

#[test]
fn a_bind_that_lost_a_race_names_the_gang_that_gives_way() {
    let mut state = state(&["n1 8"]);
    state.apply_pod(&pod("a-0: gpu=6 gang=a size=1"));
    state.apply_pod(&pod("b-0: gpu=1 gang=b size=1 node=n1 phase=Running started=5"));
    state.assume(&key("a-0"), "n1");
    state.apply_pod(&foreign("x: gpu=4 node=n1", "ReplicaSet/x/u9", json!({})));
    let taken = state.take_crowd();
    let gangs: Vec<String> = taken.gangs.iter().map(|(key, why)| format!("{key:?}: {why}")).collect();
    assert_eq!(gangs.len(), 1, "what has started stays: {gangs:?}");
    assert!(
        gangs[0].contains("\"a\"") && gangs[0].contains("node n1: nvidia.com/gpu was taken by pod default/x")
    );
    // Once it is on its way out it is not asked again.
    state.set_evicting(&key("a-0"), true);
    state.apply_node(&node("n1 7"));
    assert!(state.take_crowd().gangs.is_empty());
}

#[test]
fn gates_of_pods_that_start_one_by_one_open_as_they_get_their_cells() {
    use fleet_api::cell_places::{CellGroup, CellPlace};

    let mut state = state(&["n1 1", "n2 1"]);
    let cells = |places: &[(i64, &str)]| {
        let place = |(index, node): &(i64, &str)| CellPlace {
            component: "w".into(),
            index: *index,
            node: (*node).to_owned(),
            leaf_cells: vec![0],
            ..CellPlace::default()
        };
        let mut spec = reservation("r", "u", 1, &["w 2 1"]).spec;
        spec.cells = vec![CellGroup {
            name: "g".into(),
            request: json!({"virtualCluster": "vc", "priority": 1, "affinityGroup": {"name": "g"}}),
            places: places.iter().map(place).collect(),
            ..CellGroup::default()
        }];
        let mut nodes = vec![String::new(); 2];
        for (index, node) in places {
            nodes[usize::try_from(*index).unwrap()] = (*node).to_owned();
        }
        Hold::new("r", &spec, &[("w".to_owned(), nodes)].into())
    };
    for i in 0..2 {
        let text =
            format!("a-w-{i}: gpu=1 gang=a size=1 reservation=r component=w gate={}", names::PLACES_GATE);
        state.apply_pod(&foreign(&text, "PyTorchJob/a/u1", json!({names::COMPONENT_LABEL: "w"})));
    }
    state.add_hold(cells(&[]));
    assert!(matches!(state.gated("r"), Gated::Waits(why) if why.contains("no cells")));
    for (places, opens) in [(&[(1, "n2")][..], "a-w-1"), (&[(1, "n2"), (0, "n1")], "a-w-0")] {
        state.add_hold(cells(places));
        let Gated::Go(releases) = state.gated("r") else { panic!("{opens} has its cells") };
        assert_eq!(releases.iter().map(|r| r.pod.name.as_str()).collect::<Vec<_>>(), [opens]);
        let marks = releases[0].marks.as_ref().expect("it carries its devices");
        assert_eq!(marks[super::ISOLATION_ANNOTATION], "0");
        state.set_let_go(&releases[0].pod, true);
    }
    // One that its scheduler does not bind takes no other along.
    state.apply_pod(&foreign(
        "a-w-1: gpu=1 gang=a size=1 reservation=r component=w node=n2",
        "PyTorchJob/a/u1",
        json!({names::COMPONENT_LABEL: "w"}),
    ));
    assert_eq!(state.let_go("r"), (vec![], vec![key("a-w-0")]));
}

#[test]
fn a_gate_opens_for_the_whole_gang_and_its_places() {
    let mut state = state(&["n1 8", "n2 8"]);
    let gated = |i: usize| {
        let text =
            format!("a-w-{i}: gpu=4 gang=a size=2 reservation=r component=w gate={}", names::PLACES_GATE);
        foreign(&text, "PyTorchJob/a/u1", json!({names::COMPONENT_LABEL: "w"}))
    };
    state.apply_pod(&gated(0));
    assert!(matches!(state.gated("r"), Gated::Waits(why) if why.contains("no places")));
    state.add_hold(hold("r", &[("w", &["n1", "n2"])], &["w 2 4"]));
    assert!(matches!(state.gated("r"), Gated::Waits(why) if why.contains("1 of 2 pods exist")));
    state.apply_pod(&gated(1));
    let Gated::Go(releases) = state.gated("r") else { panic!("the gang is whole") };
    let to: Vec<(&str, &str)> = releases.iter().map(|r| (r.pod.name.as_str(), r.hostname.as_str())).collect();
    assert_eq!(to, [("a-w-0", "n1"), ("a-w-1", "n2")]);
    for release in &releases {
        state.set_let_go(&release.pod, true);
    }
    assert_eq!(state.gated("r"), Gated::Nothing, "once");
    assert_eq!(state.let_go("r"), (vec![], vec![key("a-w-0"), key("a-w-1")]));
    assert_eq!(used(&state), "n1 4/1, n2 4/1");
    state.apply_pod(&foreign(
        "a-w-0: gpu=4 gang=a size=2 reservation=r component=w node=n1",
        "PyTorchJob/a/u1",
        json!({names::COMPONENT_LABEL: "w"}),
    ));
    assert_eq!(state.let_go("r"), (vec![key("a-w-0")], vec![key("a-w-1")]));
    assert_eq!(used(&state), "n1 4/1, n2 4/1");
    // A node that takes no pods any more keeps the gate shut.
    state.set_let_go(&key("a-w-1"), false);
    let mut cordoned = node("n2 8");
    cordoned.spec.unschedulable = true;
    state.apply_node(&cordoned);
    assert!(matches!(state.gated("r"), Gated::Waits(why) if why.contains("node n2")));
}
