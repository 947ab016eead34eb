use super::{
    testing::{key, node, pod, reservation, state, used},
    *,
};

fn hold(name: &str, nodes: &[(&str, &[&str])], components: &[&str]) -> Hold {
    let names = |names: &[&str]| names.iter().map(ToString::to_string).collect();
    let nodes = nodes.iter().map(|(component, nodes)| ((*component).to_owned(), names(nodes))).collect();
    Hold::new(name, &reservation(name, "u", 1, components).spec, &nodes)
}

#[test]
fn use_is_the_sum_of_bound_unfinished_pods() {
    let mut state = state(&["n1 8", "n2 8"]);
    state.apply_pod(&pod("a: gpu=2 node=n1"));
    state.apply_pod(&pod("b: gpu=3 node=n3"));
    state.apply_pod(&pod("c: gpu=4"));
    assert_eq!(used(&state), "n1 2/1, n2 0/0");
    assert_eq!(state.unbound().get("nvidia.com/gpu"), 4);
    // A node that comes later, and one that comes back, know what runs there.
    state.apply_node(&node("n3 8"));
    state.remove_node("n1");
    state.apply_node(&node("n1 8"));
    assert_eq!(used(&state), "n1 2/1, n2 0/0, n3 3/1");
    state.apply_pod(&pod("a: gpu=2 node=n1 phase=Succeeded"));
    state.apply_pod(&pod("c: gpu=4 node=n2"));
    state.remove_pod(&key("b"));
    assert_eq!(used(&state), "n1 0/0, n2 4/1, n3 0/0");
    assert!(state.unbound().is_zero());
}

#[test]
fn an_assumed_binding_counts_until_confirmed_or_forgotten() {
    let mut state = state(&["n1 8"]);
    state.apply_pod(&pod("a: gpu=2"));
    state.assume(&key("a"), "n1");
    // A change of the pod that does not know of the binding yet.
    state.apply_pod(&pod("a: gpu=2 priority=1"));
    assert_eq!(used(&state), "n1 2/1");
    state.take_effects();
    state.apply_pod(&pod("a: gpu=2 priority=1 node=n1 phase=Running"));
    let effects = state.take_effects();
    assert!(!effects.freed && !effects.capacity, "a confirmation changes no amounts");
    state.apply_pod(&pod("b: gpu=1"));
    state.assume(&key("b"), "n1");
    state.forget(&key("b"), "another-uid");
    assert_eq!(used(&state), "n1 3/2");
    state.forget(&key("b"), "uid-b");
    assert_eq!(used(&state), "n1 2/1");
    assert!(!state.take_effects().dirty.is_empty(), "it is to be placed again");
}

#[test]
fn a_pod_made_anew_under_the_same_name_inherits_nothing() {
    let mut state = state(&["n1 8"]);
    state.apply_pod(&pod("a: gpu=2 node=n1"));
    state.apply_pod(&pod("a: gpu=2 uid=other"));
    assert_eq!(used(&state), "n1 0/0");
}

#[test]
fn a_place_counts_except_while_its_pod_is_bound() {
    let mut state = state(&["n1 8", "n2 8"]);
    state.add_hold(hold("r", &[("worker", &["n1", "n2"])], &["worker 2 4"]));
    assert_eq!(used(&state), "n1 4/1, n2 4/1");
    let bound = "j-worker-1: gpu=4 component=worker reservation=r";
    state.take_effects();
    state.apply_pod(&pod(bound));
    state.assume(&key("j-worker-1"), "n2");
    assert_eq!(used(&state), "n1 4/1, n2 4/1");
    assert!(!state.take_effects().freed, "the pod takes what the place gives back");
    state.apply_pod(&pod(&format!("{bound} node=n2 phase=Running")));
    assert_eq!(used(&state), "n1 4/1, n2 4/1");
    // Finished or gone: the place is held again.
    state.apply_pod(&pod(&format!("{bound} node=n2 phase=Failed")));
    assert_eq!(used(&state), "n1 4/1, n2 4/1");
    state.remove_pod(&key("j-worker-1"));
    assert_eq!(used(&state), "n1 4/1, n2 4/1");
    state.remove_hold("r");
    assert_eq!(used(&state), "n1 0/0, n2 0/0");
}

#[test]
fn a_hold_recovered_after_its_pods_counts_each_place_once() {
    let mut state = state(&["n1 8"]);
    state.apply_pod(&pod("j-worker-0: gpu=4 component=worker reservation=r node=n1"));
    state.add_hold(hold("r", &[("worker", &["n1", "n1"])], &["worker 2 4"]));
    assert_eq!(used(&state), "n1 8/2");
    state.remove_hold("r");
    assert_eq!(used(&state), "n1 4/1");
}

#[test]
fn a_heartbeat_changes_nothing() {
    let mut state = state(&["n1 8"]);
    state.apply_pod(&pod("a: gpu=2 node=n1"));
    state.take_effects();
    state.apply_node(&node("n1 8"));
    let effects = state.take_effects();
    assert!(!effects.freed && !effects.capacity);
}

#[test]
fn what_is_gone_counts_no_longer() {
    let mut state = state(&["n1 8", "n2 8"]);
    state.apply_pod(&pod("a: gpu=2 node=n1"));
    state.apply_pod(&pod("b: gpu=2 node=n1"));
    state.remove_node("n2");
    state.remove_pod(&key("a"));
    assert_eq!(used(&state), "n1 2/1");
    assert!(state.gang(&GangKey::Single(key("a"))).is_none());
}

/// Which of the groups `pg0`, `pg1`, ... are let in, for a queue with room for `room` of them, when changes come in this
/// order: `p3` is the pod of group 3, `g3` its PodGroup, `-` a cycle.
fn let_in(room: usize, order: &[String]) -> usize {
    let mut state = state(&["n1 100"]);
    let mut queue = QueueInput::named("q");
    queue.capability.set("nvidia.com/gpu", room as i64);
    state.cluster.put_queue(queue);
    for step in order {
        let number = step.get(1..).unwrap_or_default();
        match step.as_bytes()[0] {
            b'p' => {
                let mut pod = pod(&format!("pod{number}: gpu=1"));
                let annotation = ("scheduling.k8s.io/group-name".to_owned(), format!("pg{number}"));
                pod.metadata.annotations.get_or_insert_default().extend([annotation]);
                state.apply_pod(&pod);
            }
            b'g' => state.put_pod_group(&PodGroupObject {
                namespace: "default".into(),
                name: format!("pg{number}"),
                uid: format!("uid-pg{number}"),
                spec: serde_json::json!({"queue": "q", "minMember": 1, "minResources": {"nvidia.com/gpu": "1"}}),
                status: serde_json::json!({"phase": "Pending"}),
                ..PodGroupObject::default()
            }),
            _ => drop(state.cluster.cycle(0, &fleet_scheduler::Limits::default())),
        }
    }
    state.cluster.cycle(0, &fleet_scheduler::Limits::default());
    let phase = |known: &PodGroup| state.cluster.group(known.group).phase;
    state.pod_groups.values().filter(|known| phase(known) != fleet_scheduler::Phase::Pending).count()
}

#[test]
fn the_gate_holds_in_whatever_order_pods_and_podgroups_are_seen() {
    let all = |kind: char| (0..20).map(move |i| format!("{kind}{i}"));
    let orders: [Vec<String>; 4] = [
        all('g').chain(all('p')).collect(),
        all('p').chain(all('g')).collect(),
        (0..20).flat_map(|i| [format!("p{i}"), "-".into(), format!("g{i}"), "-".into()]).collect(),
        all('p').chain(["-".to_owned()]).chain(all('g')).chain(all('p')).collect(),
    ];
    for order in &orders {
        assert_eq!(let_in(5, order), 5, "{order:?}");
    }
}

#[test]
fn a_podgroup_made_again_is_let_in_anew() {
    let mut state = state(&["n1 8"]);
    let group = |uid: &str, phase: &str| PodGroupObject {
        namespace: "default".into(),
        name: "pg".into(),
        uid: uid.into(),
        spec: serde_json::json!({"minMember": 1}),
        status: serde_json::json!({"phase": phase}),
        ..PodGroupObject::default()
    };
    let phase = |state: &MemberState| {
        state.cluster.group(state.cluster.find_group("default", "pg").unwrap()).phase.as_str()
    };
    state.put_pod_group(&group("a", "Pending"));
    state.cluster.cycle(0, &fleet_scheduler::Limits::default());
    assert_eq!(phase(&state), "Inqueue");
    // The object as it stands does not say so yet.
    state.put_pod_group(&group("a", "Pending"));
    assert_eq!(phase(&state), "Inqueue");
    // Another object of that name, whose deletion was not seen.
    state.put_pod_group(&group("b", "Pending"));
    assert_eq!(phase(&state), "Pending");
}

#[test]
fn pods_of_volcano_that_come_without_a_podgroup_get_one() {
    let mut state = MemberState::new(["fleet".to_owned(), "volcano".to_owned()].into());
    state.apply_node(&node("n1 8"));
    let mut apply = |text: &str, change: &dyn Fn(&mut fleet_agent_ground::lean::LeanPod)| {
        let mut pod = pod(text);
        pod.spec.scheduler_name = Some("volcano".into());
        change(&mut pod);
        state.apply_pod(&pod);
    };
    let owned_by = |version: &'static str, kind: &'static str, name: &'static str, uid: &'static str| {
        move |pod: &mut fleet_agent_ground::lean::LeanPod| {
            let owner = serde_json::json!({
                "apiVersion": version, "kind": kind, "name": name, "uid": uid, "controller": true});
            pod.metadata.owner_references = Some(vec![serde_json::from_value(owner).unwrap()]);
        }
    };
    let owned = owned_by("apps/v1", "ReplicaSet", "web", "rs");
    apply("bare: gpu=2", &|_| {});
    apply("web-0: gpu=1", &owned);
    apply("web-1: gpu=1", &owned);
    apply("j-w-0: gpu=1 gang=j size=2", &|_| {});
    apply("j-w-1: gpu=1 gang=j size=2", &|_| {});
    apply("other: gpu=1", &|pod| pod.spec.scheduler_name = Some("fleet".into()));
    // A PyTorchJob, by its own operator: nothing names a gang.
    let by_operator = owned_by("kubeflow.org/v1", "PyTorchJob", "operated", "pt");
    apply("operated-master-0: gpu=2", &by_operator);
    apply("operated-worker-0: gpu=2", &by_operator);
    // And by the agent's controller, which names the gang by the job.
    let by_agent = owned_by("kubeflow.org/v1", "PyTorchJob", "train", "own");
    let named = |pod: &mut fleet_agent_ground::lean::LeanPod| {
        by_agent(pod);
        let group = ("scheduling.k8s.io/group-name".to_owned(), "train".to_owned());
        pod.metadata.annotations.get_or_insert_default().extend([group]);
    };
    apply("train-master-0: gpu=2 gang=train size=2", &named);
    apply("train-worker-0: gpu=2 gang=train size=2", &named);
    let annotated = ("scheduling.k8s.io/group-name".to_owned(), "made-by-a-job".to_owned());
    apply("vc: gpu=1", &|pod| pod.metadata.annotations.get_or_insert_default().extend([annotated.clone()]));
    let mut found = Vec::new();
    let mut keys: Vec<GangKey> = state.gangs.keys().cloned().collect();
    keys.sort();
    for key in &keys {
        let Some((object, pods)) = state.undescribed(key) else { continue };
        let names: Vec<String> = pods.into_iter().map(|pod| pod.name).collect();
        let (meta, spec) = (&object["metadata"], &object["spec"]);
        let owner = &meta["ownerReferences"][0];
        found.push(format!(
            "{} of {} {}, min {} {}, written on {}",
            meta["name"].as_str().unwrap(),
            owner["kind"].as_str().unwrap(),
            owner["name"].as_str().unwrap(),
            spec["minMember"],
            spec["minResources"],
            names.join(" ")
        ));
        assert!(state.undescribed(key).is_none(), "it is asked for once");
    }
    assert_eq!(
        found,
        [
            "j of Pod j-w-0, min 2 {\"nvidia.com/gpu\":\"2\"}, written on ",
            "podgroup-pt of PyTorchJob operated, min 1 {\"nvidia.com/gpu\":\"2\"}, written on operated-master-0 \
             operated-worker-0",
            "podgroup-rs of ReplicaSet web, min 1 {\"nvidia.com/gpu\":\"1\"}, written on web-0 web-1",
            "podgroup-uid-bare of Pod bare, min 1 {\"nvidia.com/gpu\":\"2\"}, written on bare",
            "train of PyTorchJob train, min 2 {\"nvidia.com/gpu\":\"4\"}, written on ",
        ]
    );
}

#[test]
fn cooldowns_and_domains_of_pods_are_told() {
    let mut state = state(&["n1 8"]);
    state.apply_pod(&pod("a: gpu=1 cooldown=2m topology=hard tier=1"));
    let id = state.pod(&key("a")).and_then(|pod| pod.id).unwrap();
    let group = state.cluster.pod(id).group;
    let wanted = fleet_scheduler::group::Topology { hard: true, highest_tier: Some(1) };
    assert_eq!(state.cluster.group(group).input.topology, Some(wanted));
    assert_eq!(state.cluster.pod(id).cools_until(), None, "it has not started");
    state.apply_pod(&pod("a: gpu=1 cooldown=2m topology=hard tier=1 node=n1 phase=Running started=100"));
    assert_eq!(state.cluster.pod(id).cools_until(), Some(220));
    state.apply_pod(&pod("b: topology=sideways"));
    let group = state.cluster.pod(state.pod(&key("b")).and_then(|pod| pod.id).unwrap()).group;
    assert_eq!(state.cluster.group(group).input.topology, None, "no mode of Volcano");
}

#[test]
fn sub_groups_have_domains_of_their_own() {
    let mut state = state(&["n1 8"]);
    state.put_pod_group(&PodGroupObject {
        namespace: "default".into(),
        name: "g".into(),
        uid: "u".into(),
        spec: serde_json::json!({"minMember": 2, "subGroupPolicy": [
            {"name": "worker", "subGroupSize": 2, "matchLabelKeys": ["part"],
             "networkTopology": {"mode": "hard", "highestTierAllowed": 2}},
            {"name": "plain", "subGroupSize": 2},
        ]}),
        ..PodGroupObject::default()
    });
    let group = state.cluster.find_group("default", "g").unwrap();
    let policies = &state.cluster.group(group).input.sub_groups;
    let wanted = fleet_scheduler::group::Topology { hard: true, highest_tier: Some(2) };
    assert_eq!(policies.iter().map(|policy| policy.topology).collect::<Vec<_>>(), [Some(wanted)]);
}

/// The gang says so and waits: each of its pods would be compared with all of the labels.
#[test]
fn the_labels_of_sub_groups_are_bounded() {
    let mut state = state(&["n1 8"]);
    let mut put = |number: usize, keys: usize| {
        let policy = serde_json::json!({"minSubGroups": 1, "matchLabelKeys": vec!["part"; keys],
            "labelSelector": {"matchLabels": {"volcano.sh/task-spec": "worker"}}});
        state.put_pod_group(&PodGroupObject {
            namespace: "default".into(),
            name: "g".into(),
            uid: "u".into(),
            spec: serde_json::json!({"minMember": i64::MIN, "subGroupPolicy": vec![policy; number]}),
            ..PodGroupObject::default()
        });
        let group = state.cluster.group(state.cluster.find_group("default", "g").unwrap());
        assert_eq!(group.min(), i64::from(i32::MIN));
        (group.input.sub_groups.len(), group.validity().unwrap_err().1)
    };
    // As many as a Volcano Job has tasks.
    let (known, why) = put(1000, 1);
    assert!(known == 1000 && why.starts_with("waiting for the gang: 0 of 1 partitions"), "{why}");
    for (number, keys, found) in [(1, 2048, 2049), (1025, 1, 2050), (100_000, 0, 100_000)] {
        let why = format!(
            "podgroup default/g, field spec.subGroupPolicy: found {found} labels and values to compare with those of each \
             pod; allowed: at most 2048"
        );
        assert_eq!(put(number, keys), (0, why));
    }
}

/// Of the group as of each subgroup; the number follows the HyperNodes.
#[test]
fn the_highest_tier_of_a_sub_group_may_be_a_name() {
    let mut state = state(&["n1 8"]);
    let named = |name: &str| serde_json::json!({"mode": "hard", "highestTierName": name});
    state.put_pod_group(&PodGroupObject {
        namespace: "default".into(),
        name: "g".into(),
        uid: "u".into(),
        spec: serde_json::json!({"minMember": 2, "networkTopology": named("spine"), "subGroupPolicy": [
            {"name": "plain", "subGroupSize": 2},
            {"name": "worker", "subGroupSize": 2, "networkTopology": named("rack")},
            {"name": "master", "subGroupSize": 1, "networkTopology": {"highestTierAllowed": 7}},
        ]}),
        ..PodGroupObject::default()
    });
    let tiers = |state: &MemberState| {
        let input = &state.cluster.group(state.cluster.find_group("default", "g").unwrap()).input;
        let of_sub_groups =
            input.sub_groups.iter().map(|policy| policy.topology.unwrap().highest_tier.unwrap());
        std::iter::once(input.topology.unwrap().highest_tier.unwrap())
            .chain(of_sub_groups)
            .collect::<Vec<_>>()
    };
    assert_eq!(tiers(&state), [-1, -1, 7], "no HyperNode has these names: none is allowed");
    let put = |state: &mut MemberState, name: &str, tier: i64, tier_name: &str| {
        let spec = serde_json::json!({"tier": tier, "tierName": tier_name, "members": [
            {"type": "Node", "selector": {"exactMatch": {"name": "n1"}}}]});
        state.put_hyper_node(name, super::hyper_node::HyperNode::read(name, &spec));
        assert!(state.resolve_hyper_nodes());
    };
    put(&mut state, "r1", 2, "rack");
    assert_eq!(tiers(&state), [-1, 2, 7]);
    put(&mut state, "s1", 4, "spine");
    assert_eq!(tiers(&state), [4, 2, 7]);
}

/// A pod of a tenant with `number` resources of its own.
fn pod_of_many(name: &str, number: usize) -> LeanPod {
    let mut pod = pod(&format!("{name}: gpu=1"));
    let requests = &mut pod.spec.containers[0].resources.requests.0;
    requests.extend((0..number).map(|i| (format!("{name}.example.com/r{i:05}"), "1".to_owned())));
    pod
}

#[test]
fn resources_that_pods_name_fill_no_memory() {
    let mut state = state(&["n1 8"]);
    for i in 0..10 {
        state.apply_pod(&pod_of_many(&format!("p{i}"), 10_000));
    }
    (0..100).for_each(|i| state.apply_pod(&pod_of_many(&format!("q{i}"), 64)));
    assert!(state.cluster.dimensions.len() <= 1024, "{}", state.cluster.dimensions.len());
    // A report has what nodes offer, and some of the rest.
    let unbound = state.unbound();
    assert_eq!((unbound.get("nvidia.com/gpu"), unbound.iter().count()), (110, 1 + 64));
    // What pods use on nodes counts, whatever else they name.
    let mut bound = pod_of_many("p0", 10_000);
    bound.spec.node_name = Some("n1".to_owned());
    state.apply_pod(&bound);
    let gpu = state.cluster.dimensions.find("nvidia.com/gpu").unwrap();
    assert_eq!((used(&state), state.cluster.nodes.cell(0, gpu).used), ("n1 1/1".to_owned(), 1000));
    for name in (0..10).map(|i| format!("p{i}")).chain((0..100).map(|i| format!("q{i}"))) {
        state.remove_pod(&key(&name));
    }
    assert!(state.unbound().is_zero() && state.unbound.is_empty());
    assert_eq!(state.cluster.nodes.cell(0, gpu).used, 0);
}

#[test]
fn specs_of_pods_that_are_gone_are_given_back() {
    let mut state = state(&["n1 8"]);
    state.apply_pod(&pod("kept: gpu=1 node=n1"));
    for i in 0..10_000 {
        let mut pod = pod("a: gpu=1");
        pod.spec.node_selector.insert("turn".to_owned(), i.to_string());
        state.apply_pod(&pod);
        state.remove_pod(&key("a"));
    }
    assert!(state.specs.len() <= 2 * 1024, "{}", state.specs.len());
    assert!(state.cluster.class_slots() <= 1024, "{}", state.cluster.class_slots());
    assert_eq!(used(&state), "n1 1/1");
}

/// The pods of other schedulers are one group, which is never removed.
#[test]
fn roles_that_other_schedulers_pods_name_are_not_kept() {
    let mut state = state(&["n1 8"]);
    for i in 0..100 {
        let mut pod = pod(&format!("a: gpu=1 node=n1 component=c{i}"));
        pod.spec.scheduler_name = Some("other".to_owned());
        state.apply_pod(&pod);
        let group =
            state.pod(&key("a")).and_then(|pod| pod.id).map(|id| state.cluster.pod(id).group).unwrap();
        assert_eq!(state.cluster.group(group).roles.len(), 1);
        state.remove_pod(&key("a"));
    }
}
