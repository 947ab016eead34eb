use fleet_agent_ground::{
    Event, Object,
    lean::{LeanNode, LeanPod},
};
use fleet_scheduler::{Action, Config, Phase};
use serde_json::json;

use fleet_api::names;
use fleet_member_state::{Hold, testing};

use super::*;
use fleet_agent_fixture::Fixture;

/// Orders of arrival that are tried for each state of a member.
const ORDERS: u64 = 40;

fn core(context: Arc<Context>) -> Core {
    let (_, changes) = crate::changes::channel();
    let (_, requests) = mpsc::channel(1);
    let (_, questions) = mpsc::channel(1);
    let (reports, _) = watch::channel(None);
    Core::new(context, Channels { changes, requests, questions, reports, notices: Notices::new().0 })
}

fn object(value: serde_json::Value) -> Object {
    serde_json::from_value(value).expect("an object")
}

/// A pod in the text form of [`testing::pod`] that names its PodGroup.
fn pod_of(group: &str, text: &str) -> LeanPod {
    let mut pod = testing::pod(text);
    let group = ("scheduling.k8s.io/group-name".to_owned(), group.to_owned());
    pod.metadata.annotations.get_or_insert_default().extend([group]);
    pod
}

/// A PodGroup `name queue min=2 gpu=4 created=1 phase=Inqueue class=high`, of which `gpu` is what its minimum needs.
fn group(text: &str) -> Object {
    let mut words = text.split_whitespace();
    let mut next = || words.next().expect("a word");
    let (name, queue) = (next(), next());
    let mut group = json!({"metadata": {"name": name, "namespace": "default", "uid": name},
        "spec": {"queue": queue}, "status": {"phase": "Pending"}});
    for (field, value) in words.filter_map(|word| word.split_once('=')) {
        match field {
            "min" => group["spec"]["minMember"] = json!(value.parse::<i64>().expect("a number")),
            "gpu" => group["spec"]["minResources"] = json!({"nvidia.com/gpu": value}),
            "created" => {
                let at = jiff::Timestamp::from_second(value.parse().expect("seconds")).expect("a time");
                group["metadata"]["creationTimestamp"] = json!(at.to_string());
            }
            "phase" => group["status"]["phase"] = json!(value),
            "class" => group["spec"]["priorityClassName"] = json!(value),
            other => panic!("unknown field {other}"),
        }
    }
    object(group)
}

fn queue(name: &str, priority: i64, gpus: &str) -> Object {
    object(json!({"metadata": {"name": name},
        "spec": {"priority": priority, "capability": {"nvidia.com/gpu": gpus}}}))
}

/// What an API server has of a member.
#[derive(Clone, Default)]
struct Member {
    nodes: Vec<LeanNode>,
    pods: Vec<LeanPod>,
    groups: Vec<Object>,
    queues: Vec<Object>,
    classes: Vec<Object>,
}

/// Numbers that look random, and are the same for the same seed.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).expect("31 bits") % bound
    }

    fn shuffle<T>(&mut self, list: &mut [T]) {
        (1..list.len()).for_each(|at| list.swap(at, self.below(at + 1)));
    }
}

/// The list of one kind, in any order; it has ended when all of it was heard.
fn listing<T: Clone>(
    objects: &[T],
    change: impl Fn(Event<T>) -> CoreChange,
    random: &mut Random,
) -> VecDeque<CoreChange> {
    let mut objects = objects.to_vec();
    random.shuffle(&mut objects);
    objects.into_iter().map(Event::Apply).chain([Event::Listed]).map(change).collect()
}

impl Member {
    /// The lists of all kinds as an agent may hear them: side by side, each in an order of its own.
    fn heard(&self, seed: u64) -> Vec<CoreChange> {
        let mut random = Random(seed);
        let none: &[Object] = &[];
        let mut lists = vec![
            listing(&self.nodes, CoreChange::Node, &mut random),
            listing(&self.pods, CoreChange::Pod, &mut random),
            listing(&self.groups, CoreChange::PodGroup, &mut random),
            listing(&self.queues, CoreChange::Queue, &mut random),
            listing(&self.classes, CoreChange::PriorityClass, &mut random),
            listing(none, CoreChange::HyperNode, &mut random),
            listing(none, CoreChange::ResourceQuota, &mut random),
            listing(none, CoreChange::Budget, &mut random),
            listing(none, CoreChange::Numatopology, &mut random),
        ];
        let mut heard = Vec::new();
        while !lists.is_empty() {
            let at = random.below(lists.len());
            heard.extend(lists[at].pop_front());
            lists.retain(|list| !list.is_empty());
        }
        heard
    }

    /// The pod as after its binding.
    fn bind(&mut self, pod: &str, node: &str) {
        let pod = self.pods.iter_mut().find(|known| known.metadata.name.as_deref() == Some(pod));
        pod.expect("a pod").spec.node_name = Some(node.to_owned());
    }
}

/// What an agent decides that hears of the member for the first time.
#[derive(Debug, PartialEq, Eq)]
struct Decided {
    /// Pod and node, gang by gang in the order in which they are bound.
    bound: Vec<Vec<(String, String)>>,
    evicted: Vec<String>,
    /// Name and phase.
    groups: Vec<(String, Phase)>,
}

impl Decided {
    fn phase(&self, group: &str) -> Phase {
        self.groups.iter().find(|(name, _)| name == group).expect("a group").1
    }

    /// Names and nodes of the pods of which the name begins so.
    fn of(&self, prefix: &str) -> Vec<(String, String)> {
        let bound = self.bound.iter().flatten();
        bound.filter(|(pod, _)| pod.starts_with(prefix)).cloned().collect()
    }
}

/// With preemption, and without anything that was heard before.
fn decided(fixture: &Fixture, heard: Vec<CoreChange>) -> Decided {
    let mut core = core(crate::fixture::context(fixture));
    let actions = vec![Action::Enqueue, Action::Allocate, Action::Preempt, Action::Reclaim, Action::Backfill];
    core.apply(CoreChange::Config(Box::new(Config { actions, ..Config::default() })));
    for change in heard {
        assert!(core.reported_at.is_none(), "before {change:?}");
        core.apply(change);
        core.decide();
    }
    assert!(core.reported_at.is_some());
    let one = |binding: &Binding| (binding.pod.name.clone(), binding.node.clone());
    let mut evicted: Vec<String> = Vec::new();
    for lazy in &core.lazy {
        if let Lazy::Evict(pods) = lazy {
            evicted.extend(pods.iter().map(|(pod, _)| pod.name.clone()));
        }
    }
    evicted.sort();
    let phase = |group: &fleet_member_state::PodGroup| core.state.cluster.group(group.group).phase;
    Decided {
        bound: core.to_bind.iter().map(|gang| gang.iter().map(one).collect()).collect(),
        evicted,
        groups: core.state.pod_groups.iter().map(|((_, name), group)| (name.clone(), phase(group))).collect(),
    }
}

/// What every order of arrival comes to.
#[track_caller]
fn decided_in_any_order(fixture: &Fixture, member: &Member) -> Decided {
    let first = decided(fixture, member.heard(0));
    for seed in 1..ORDERS {
        assert_eq!(decided(fixture, member.heard(seed)), first, "seed {seed}");
    }
    first
}

#[tokio::test]
async fn nothing_is_decided_on_a_part_of_what_stands() {
    let fixture = Fixture::new(&[]).await;
    let mut core = core(crate::fixture::context(&fixture));
    let pod = |i: usize| pod_of(&format!("pg{i}"), &format!("pod{i}: gpu=1"));
    let group = |i: usize| group(&format!("pg{i} q min=1 gpu=1"));
    // The order in which an agent that was killed may hear its listings.
    let listings: Vec<Vec<CoreChange>> = vec![
        vec![CoreChange::Node(Event::Apply(testing::node("n1 100"))), CoreChange::Node(Event::Listed)],
        (0..20)
            .map(|i| CoreChange::Pod(Event::Apply(pod(i))))
            .chain([CoreChange::Pod(Event::Listed)])
            .collect(),
        (0..20)
            .map(|i| CoreChange::PodGroup(Event::Apply(group(i))))
            .chain([CoreChange::PodGroup(Event::Listed)])
            .collect(),
        vec![CoreChange::PriorityClass(Event::Listed)],
        vec![CoreChange::HyperNode(Event::Listed)],
        vec![CoreChange::ResourceQuota(Event::Listed)],
        vec![CoreChange::Budget(Event::Listed)],
        vec![CoreChange::Numatopology(Event::Listed)],
        vec![CoreChange::Queue(Event::Apply(queue("q", 0, "5"))), CoreChange::Queue(Event::Listed)],
    ];
    for told in listings.into_iter().flatten() {
        assert!(core.reported_at.is_none() && core.next_wake().is_none(), "before {told:?}");
        core.apply(told);
        core.decide();
    }
    assert!(core.reported_at.is_some());
    let inside = core.state.pod_groups.values().map(|known| core.state.cluster.group(known.group).phase);
    assert_eq!(inside.filter(|phase| *phase != Phase::Pending).count(), 5);
}

/// Groups that run, that were half bound, that may start, and that wait at the gates of two queues, beside pods without
/// a PodGroup. No two of them are equals, nor are two nodes: between equals the order of arrival may decide.
#[tokio::test]
async fn decisions_do_not_depend_on_the_order_in_which_listings_arrive() {
    let fixture = Fixture::new(&[]).await;
    let mut pods = Vec::new();
    for (group, count, fields) in [
        ("runs", 2, "gpu=3 phase=Running node=n-b"),
        ("low", 1, "gpu=4 phase=Running node=n-d"),
        ("half", 3, "gpu=2"),
        ("wide", 1, "gpu=6"),
        ("early", 2, "gpu=3"),
        ("high", 2, "gpu=5 priority=100"),
        ("small", 1, "gpu=1"),
        ("late", 1, "gpu=9"),
    ] {
        pods.extend((0..count).map(|i| pod_of(group, &format!("{group}-w-{i}: {fields}"))));
    }
    for alone in ["one: gpu=1 created=20", "two: gpu=2 created=21", "gone: gpu=7 phase=Succeeded node=n-c"] {
        pods.push(testing::pod(alone));
    }
    pods.extend((0..2).map(|i| testing::pod(&format!("gang-w-{i}: gpu=1 gang=gang size=2 created=22"))));
    let mut member = Member {
        nodes: ["n-a 5", "n-b 7", "n-c 11", "n-d 13"].map(testing::node).to_vec(),
        pods,
        groups: [
            "runs q min=2 gpu=6 created=1 phase=Running",
            "low r min=1 gpu=4 created=2 phase=Running",
            "half q min=3 gpu=6 created=3 phase=Inqueue",
            "wide q min=1 gpu=6 created=4 phase=Inqueue",
            "early q min=2 gpu=6 created=5",
            "high r min=2 gpu=10 created=6 class=high",
            "small r min=1 gpu=1 created=7",
            "late r min=1 gpu=9 created=8",
        ]
        .map(group)
        .to_vec(),
        queues: vec![queue("q", 2, "20"), queue("r", 1, "12")],
        classes: vec![object(json!({"metadata": {"name": "high"}, "value": 100}))],
    };
    member.bind("half-w-1", "n-c");
    let found = decided_in_any_order(&fixture, &member);
    let names = |prefix: &str| -> Vec<String> { found.of(prefix).into_iter().map(|(pod, _)| pod).collect() };
    assert_eq!(names("half"), ["half-w-0", "half-w-2"], "{found:?}");
    assert_eq!(names("gang"), ["gang-w-0", "gang-w-1"], "{found:?}");
    // The gate of r lets in what may preempt, and not what its capability has no room for beside that.
    assert_ne!(found.phase("high"), Phase::Pending, "{found:?}");
    assert_eq!(found.phase("late"), Phase::Pending, "{found:?}");
    assert_eq!(names("late"), [""; 0], "{found:?}");
}

/// The agent is killed while the bindings of a gang are written: any of them may be, and the phase of its PodGroup. Whoever
/// lists the member then, in any order, binds the rest of the gang, and nobody else gets what it needs.
#[tokio::test]
async fn the_rest_of_a_gang_is_bound_after_a_restart_whatever_is_heard_first() {
    let fixture = Fixture::new(&[]).await;
    let mut pods: Vec<LeanPod> =
        (0..3).map(|i| pod_of("train", &format!("train-w-{i}: gpu=3 created=1"))).collect();
    pods.extend((0..2).map(|i| pod_of("next", &format!("next-w-{i}: gpu=3 created=2"))));
    let member = Member {
        nodes: ["n-a 3", "n-b 4", "n-c 5"].map(testing::node).to_vec(),
        pods,
        groups: ["train q min=3 gpu=9 created=1", "next q min=2 gpu=6 created=2"].map(group).to_vec(),
        queues: vec![queue("q", 0, "20")],
        classes: Vec::new(),
    };
    let before = decided_in_any_order(&fixture, &member);
    let bindings = before.of("train");
    assert_eq!(bindings.len(), 3, "{before:?}");
    assert!(before.of("next").is_empty(), "{before:?}");
    for written in 0..8_u32 {
        for phase in ["Pending", "Inqueue"] {
            let mut after = member.clone();
            let (done, open): (Vec<_>, Vec<_>) =
                bindings.iter().enumerate().partition(|(at, _)| written & (1 << at) != 0);
            done.iter().for_each(|(_, (pod, node))| after.bind(pod, node));
            after.groups[0].status["phase"] = json!(phase);
            let found = decided_in_any_order(&fixture, &after);
            let mut rest: Vec<String> = found.of("train").into_iter().map(|(pod, _)| pod).collect();
            rest.sort();
            let mut wanted: Vec<String> = open.iter().map(|(_, (pod, _))| pod.clone()).collect();
            wanted.sort();
            assert_eq!(rest, wanted, "{written:03b} {phase}: {found:?}");
            assert!(
                found.of("next").is_empty() && found.evicted.is_empty(),
                "{written:03b} {phase}: {found:?}"
            );
        }
    }
}

#[tokio::test]
async fn a_gate_opens_when_its_node_admits_pods_again() {
    let fixture = Fixture::new(&[]).await;
    let mut core = core(crate::fixture::context(&fixture));
    let (open, mut cordoned) = (testing::node("n1 8"), testing::node("n1 8"));
    cordoned.spec.unschedulable = true;
    let member = Member { nodes: vec![open.clone()], ..Member::default() };
    member.heard(0).into_iter().for_each(|change| core.apply(change));
    let places = [("w".to_owned(), vec!["n1".to_owned()])].into();
    core.state.add_hold(Hold::new("r", &testing::reservation("r", "u", 1, &["w 1 4"]).spec, &places));
    core.apply(CoreChange::Node(Event::Apply(cordoned)));
    let text = format!("p: gate={} reservation=r component=w size=1 gpu=4", names::PLACES_GATE);
    let mut pod = testing::pod(&text);
    pod.spec.scheduler_name = Some("default-scheduler".to_owned());
    core.apply(CoreChange::Pod(Event::Apply(pod)));
    core.decide();
    let released =
        |core: &Core| core.lazy.iter().any(|lazy| matches!(lazy, Lazy::Release(name, _) if name == "r"));
    assert!(!released(&core), "{:?}", core.shared.told);
    core.apply(CoreChange::Node(Event::Apply(open)));
    core.decide();
    assert!(released(&core), "{:?}", core.shared.told);
}
