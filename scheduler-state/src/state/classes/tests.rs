use std::sync::Arc;

use fleet_placement::{Node, PodShape};
use fleet_resources::Resources;
use fleet_resources::constraints::{NodeSelectorOperator, NodeSelectorRequirement};

use crate::amounts::{CPU, MAX_ASKED};
use crate::group::GroupInput;
use crate::ids::{GroupId, PodId};
use crate::pod::{Extras, Labels, PodInput, PodSpec, PodTerm, Status};
use crate::queue::QueueInput;
use crate::state::State;

fn state() -> (State, GroupId) {
    let mut state = State::default();
    state.put_queue(QueueInput::named("q"));
    let group = state.put_group(GroupInput { name: "g".into(), queue: "q".into(), ..GroupInput::default() });
    (state, group)
}

fn node(name: &str, offers: &[(&str, i64)]) -> Node {
    let allocatable: Resources = offers.iter().copied().collect();
    Node { name: name.to_owned(), ready: true, max_pods: 100, allocatable, ..Node::default() }
}

fn spec(requests: Resources, extras: Extras) -> Arc<PodSpec> {
    let shape = PodShape { requests, ..PodShape::default() };
    let extras = (extras != Extras::default()).then(|| Arc::new(extras));
    Arc::new(PodSpec { shape, extras })
}

fn add(state: &mut State, group: GroupId, name: &str, spec: Arc<PodSpec>, node: Option<&str>) -> PodId {
    let status = if node.is_some() { Status::Running } else { Status::Pending };
    let labels = Labels::new(&[("app".to_owned(), "a".to_owned())].into());
    state.add_pod(PodInput {
        name: name.into(),
        group,
        spec,
        status,
        node: node.map(Into::into),
        labels,
        ..PodInput::default()
    })
}

/// `from` names the first of `number` resources that no node offers, each requested once.
fn many(from: usize, number: usize) -> Resources {
    let named = (from..from + number).map(|i| (format!("example.com/r{i}"), 1));
    named.chain([("cpu".to_owned(), 1000)]).collect()
}

fn near(app: &str) -> PodTerm {
    let selector = NodeSelectorRequirement {
        key: "app".to_owned(),
        operator: NodeSelectorOperator::In,
        values: vec![app.to_owned()],
    };
    PodTerm { namespaces: Vec::new(), selector: vec![selector], topology_key: "zone".to_owned() }
}

/// As a Deployment whose selector of nodes is changed again and again.
#[test]
fn classes_and_terms_without_pods_are_given_back() {
    let (mut state, group) = state();
    state.put_node(&node("n1", &[("cpu", 8000)]));
    let kept = Extras { anti_affinity: vec![near("a")], ..Extras::default() };
    let first = add(&mut state, group, "kept", spec(many(0, 0), kept), Some("n1"));
    for i in 0..10_000 {
        let extras = Extras { affinity: vec![near(&format!("a{i}")), near("a")], ..Extras::default() };
        let cpu = [("cpu", 1 + i64::from(i))].into_iter().collect();
        let pod = add(&mut state, group, &format!("p{i}"), spec(cpu, extras), None);
        state.remove_pod(pod);
    }
    let slots = state.class_slots();
    assert!(slots <= 1024 && state.terms.len() <= 1024 + 1, "{slots} classes, {} terms", state.terms.len());
    // Those of a pod stay, and so does what was counted under them.
    let class = state.class(state.pod(first).class);
    assert_eq!((class.pods, class.anti_affinity.len(), &*class.request), (1, 1, &[(1_u16, 1000)][..]));
    let term = class.anti_affinity[0];
    assert_eq!((state.terms.selected_anywhere(term), state.pod(first).matches.contains(&term)), (1, true));
    // A class with a number that another one had is told apart from it.
    let again = add(&mut state, group, "again", spec(many(0, 0), Extras::default()), None);
    assert_ne!(state.class(state.pod(again).class).serial, class_serial(&state, first));
    let refused = state.room;
    (0..3000).for_each(|i| {
        let cpu = [("cpu", 100_000 + i64::from(i))].into_iter().collect();
        let pod = add(&mut state, group, &format!("q{i}"), spec(cpu, Extras::default()), None);
        state.remove_pod(pod);
    });
    assert!(state.room > refused, "what waits under a number that is reused is considered again");
}

fn class_serial(state: &State, pod: PodId) -> u64 {
    state.class(state.pod(pod).class).serial
}

#[test]
fn pods_of_many_classes_at_once_keep_them_all() {
    let (mut state, group) = state();
    let pods: Vec<PodId> = (0..5000)
        .map(|i| {
            let cpu = [("cpu", 1 + i64::from(i))].into_iter().collect();
            add(&mut state, group, &format!("p{i}"), spec(cpu, Extras::default()), None)
        })
        .collect();
    for (at, pod) in pods.iter().enumerate() {
        assert_eq!(&*state.request_of(*pod), [(CPU as u16, at as i64 + 1)]);
    }
}

#[test]
fn pods_bring_about_a_bounded_number_of_resources() {
    let (mut state, group) = state();
    state.put_node(&node("n1", &[("cpu", 8000)]));
    // Half of them fit; of a pod that names too many in all, none is counted but those that are known.
    let whole = add(&mut state, group, "a", spec(many(0, 500), Extras::default()), None);
    let cut = add(&mut state, group, "b", spec(many(10_000, 60_000), Extras::default()), None);
    let bound = add(&mut state, group, "c", spec(many(80_000, 600), Extras::default()), Some("n1"));
    assert!(state.dimensions.len() <= MAX_ASKED, "{}", state.dimensions.len());
    let is_whole = |pod: PodId| state.class(state.pod(pod).class).whole;
    assert_eq!((is_whole(whole), is_whole(cut), is_whole(bound)), (true, false, false));
    assert_eq!(&*state.request_of(cut), [(CPU as u16, 1000)]);
    assert!(!state.is_best_effort(cut) && state.group(group).best_effort_pending == 0);
    let nothing_known: Resources = (0..2000).map(|i| (format!("example.com/x{i}"), 1)).collect();
    let other = add(&mut state, group, "d", spec(nothing_known, Extras::default()), None);
    assert!(!state.is_best_effort(other), "it asks for something, though for nothing that is counted");
}

/// An agent that starts may see a tenant's pods before the nodes.
#[test]
fn nodes_bring_about_what_they_offer_however_much_pods_have_named() {
    let (mut state, group) = state();
    let full = MAX_ASKED - state.dimensions.len();
    let tenant = add(&mut state, group, "a", spec(many(0, full), Extras::default()), None);
    let gpus = |n: i64| -> Resources { [("cpu", 1000), ("nvidia.com/gpu", n)].into_iter().collect() };
    let waiting = add(&mut state, group, "b", spec(gpus(8), Extras::default()), None);
    let running = add(&mut state, group, "c", spec(gpus(3), Extras::default()), Some("n1"));
    let minimum = GroupInput { name: "m".into(), queue: "q".into(), ..GroupInput::default() };
    let minimum = state.put_group(GroupInput { min_resources: Some(gpus(8)), ..minimum });
    assert_eq!(state.dimensions.find("nvidia.com/gpu"), None);
    let before = class_serial(&state, waiting);
    state.put_node(&node("n1", &[("cpu", 64_000), ("nvidia.com/gpu", 8)]));
    let gpu = state.dimensions.find("nvidia.com/gpu").unwrap();
    assert_eq!(gpu, MAX_ASKED);
    let cell = state.nodes.cell(0, gpu);
    assert_eq!((cell.allocatable, cell.used), (8000, 3000), "the GPUs in use count");
    assert_eq!(&*state.request_of(waiting), [(CPU as u16, 1000), (gpu as u16, 8000)]);
    assert!(state.class(state.pod(waiting).class).whole && class_serial(&state, waiting) > before);
    assert_eq!(state.group(minimum).min_resources.as_ref().unwrap()[gpu], 8000);
    let sums = state.group(group);
    assert_eq!((sums.requested[gpu], sums.allocated[gpu]), (8000, 3000));
    for pod in [tenant, waiting, running] {
        state.remove_pod(pod);
    }
    let sums = state.group(group);
    assert!(sums.requested.iter().chain(&sums.allocated).all(|n| *n == 0));
    assert!(state.nodes.cells(0).iter().all(|cell| cell.used == 0));
}

#[test]
fn what_is_held_for_the_hub_is_counted_and_released_alike() {
    let (mut state, group) = state();
    let full = MAX_ASKED - state.dimensions.len();
    add(&mut state, group, "a", spec(many(0, full), Extras::default()), None);
    let place: Resources = [("nvidia.com/gpu", 4)].into_iter().collect();
    state.reserve("n1", &place, 1);
    state.put_node(&node("n1", &[("nvidia.com/gpu", 8)]));
    let gpu = state.dimensions.find("nvidia.com/gpu").unwrap();
    assert_eq!(state.nodes.cell(0, gpu).used, 4000);
    state.reserve("n1", &place, -1);
    assert_eq!(state.nodes.cell(0, gpu).used, 0);
}

#[test]
fn no_position_is_that_of_another_resource() {
    let mut dimensions = crate::amounts::Dimensions::default();
    let request = dimensions.request(&(0..70_000).map(|i| (format!("example.com/r{i:05}"), 1)).collect());
    let places: std::collections::BTreeSet<u16> = request.iter().map(|(place, _)| *place).collect();
    assert_eq!((dimensions.len(), request.len(), places.len()), (1 << 16, (1 << 16) - 3, (1 << 16) - 3));
    assert!(
        request.iter().all(|(place, _)| usize::from(*place) > 2),
        "none is counted as pods, cpu or memory"
    );
}

#[test]
fn sums_of_huge_requests_are_taken_back() {
    let (mut state, group) = state();
    let huge = || [("cpu", i64::MAX), ("memory", i64::MAX)].into_iter().collect();
    let add = |state: &mut State, i: usize| {
        add(state, group, &format!("p{i}"), spec(huge(), Extras::default()), Some("n1"))
    };
    let pods: Vec<PodId> = (0..1000).map(|i| add(&mut state, i)).collect();
    assert!(state.nodes.cell(0, CPU).used > 0 && state.group(group).allocated[CPU] > 0);
    pods.into_iter().for_each(|pod| state.remove_pod(pod));
    assert_eq!((state.nodes.cell(0, CPU).used, state.group(group).allocated[CPU]), (0, 0));
}

/// Pods name a queue in an annotation, whether it exists or not.
#[test]
fn queues_that_no_object_describes_are_given_back() {
    let (mut state, _) = state();
    for i in 0..10_000 {
        let queue = format!("q{i}");
        let input = GroupInput { name: "x".into(), queue: queue.as_str().into(), ..GroupInput::default() };
        let group = state.put_group(input);
        let id = state.group(group).queue;
        assert_eq!((&*state.queue(id).input.name, state.queue(id).groups.len()), (queue.as_str(), 1));
        state.remove_group(group);
    }
    assert!(state.queues.len() <= 1024, "{}", state.queues.len());
    assert!(state.find_queue("q").is_some_and(|id| state.queue(id).known));
}

/// Each application keeps its own pods apart, as many charts have it. A new pod is compared with the terms for its own
/// labels, a new term with the pods of its own namespace.
#[test]
fn each_application_may_have_a_term_of_its_own() {
    let (mut state, group) = state();
    let applications = 50_000;
    let name = |at: usize| (format!("ns{}", at % 500), format!("app{at}"));
    let apart = |at: usize| {
        let (namespace, app) = name(at);
        let term = PodTerm { namespaces: vec![namespace], ..near(&app) };
        spec(many(0, 0), Extras { anti_affinity: vec![term], ..Extras::default() })
    };
    let add = |state: &mut State, at: usize, spec: Arc<PodSpec>| {
        let (namespace, app) = name(at);
        let labels = Labels::new(&[("app".to_owned(), app)].into());
        state.add_pod(PodInput { namespace: namespace.into(), group, spec, labels, ..PodInput::default() })
    };
    let specs: Vec<Arc<PodSpec>> = (0..applications).map(apart).collect();
    // The first pod of each has no term yet; the second one brings it along, the third one finds it.
    let plain = spec(many(0, 0), Extras::default());
    let mut pods: Vec<PodId> = (0..applications).map(|at| add(&mut state, at, plain.clone())).collect();
    for _ in 0..2 {
        pods.extend((0..applications).map(|at| add(&mut state, at, specs[at].clone())));
    }
    assert_eq!(state.terms.len(), applications);
    for (number, pod) in pods.iter().enumerate() {
        let at = number % applications;
        let own = state.class(state.pod(pods[applications + at]).class).anti_affinity[0];
        assert_eq!(state.pod(*pod).matches, [own]);
    }
    // Another namespace, a term for pods of all namespaces, and one that asks for no value.
    let elsewhere = Labels::new(&[("app".to_owned(), "app7".to_owned())].into());
    assert!(state.terms.selected_by("ns8", &elsewhere).is_empty());
    let has =
        NodeSelectorRequirement { operator: NodeSelectorOperator::Exists, ..near("").selector.remove(0) };
    let any = PodTerm { selector: vec![has], ..near("") };
    let of_all = Extras { anti_affinity: vec![near("app7"), any], ..Extras::default() };
    let last = add(&mut state, 8, spec(many(0, 0), of_all));
    let of_all = state.class(state.pod(last).class).anti_affinity.clone();
    assert_eq!(state.terms.selected_by("ns8", &elsewhere), of_all);
    assert!(
        state.pod(pods[7]).matches.ends_with(&of_all) && state.pod(pods[9]).matches.ends_with(&of_all[1..])
    );
    // Terms leave the index with their pods.
    pods.iter().chain([&last]).for_each(|pod| state.remove_pod(*pod));
    for at in 0..2 * applications {
        let cpu = [("cpu", 1 + at as i64)].into_iter().collect();
        let pod = add(&mut state, 0, spec(cpu, Extras::default()));
        state.remove_pod(pod);
    }
    assert!(state.terms.is_empty());
    assert!(state.terms.selected_by("ns7", &elsewhere).is_empty());
}
