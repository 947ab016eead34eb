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
fn a_listing_says_what_is_gone() {
    let mut state = state(&["n1 8", "n2 8"]);
    state.apply_pod(&pod("a: gpu=2 node=n1"));
    state.apply_pod(&pod("b: gpu=2 node=n1"));
    state.replace_nodes(&[node("n1 8")]);
    state.replace_pods(&[pod("b: gpu=2 node=n1")]);
    assert_eq!(used(&state), "n1 2/1");
    assert!(state.gang(&GangKey::Single(key("a"))).is_none());
}
