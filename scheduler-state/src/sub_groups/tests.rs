use std::collections::BTreeMap;
use std::sync::Arc;

use fleet_placement::PodShape;

use super::{Counted, SubGroupPolicy};
use crate::group::GroupInput;
use crate::ids::{GroupId, PodId};
use crate::pod::{Labels, PodInput, PodSpec, Status};
use crate::queue::QueueInput;
use crate::state::State;

/// Partitions of `size` pods by the label `part`, of which `min` must be whole.
fn parts(size: i64, min: i64) -> SubGroupPolicy {
    SubGroupPolicy {
        name: "worker".into(),
        keys: vec!["part".into()],
        size,
        min,
        ..SubGroupPolicy::default()
    }
}

fn input(sub_groups: Vec<SubGroupPolicy>) -> GroupInput {
    GroupInput { name: "g".into(), queue: "q".into(), min_member: 1, sub_groups, ..GroupInput::default() }
}

fn state(input: GroupInput) -> (State, GroupId) {
    let mut state = State::default();
    state.put_queue(QueueInput::named("q"));
    let group = state.put_group(input);
    (state, group)
}

fn add(state: &mut State, group: GroupId, part: usize, role: &str) -> PodId {
    let labels = Labels::new(&BTreeMap::from([("part".to_owned(), part.to_string())]));
    let shape = PodShape { requests: [("cpu", 1)].into_iter().collect(), ..PodShape::default() };
    let spec = Arc::new(PodSpec { shape, extras: None });
    state.add_pod(PodInput { group, spec, labels, role: role.into(), ..PodInput::default() })
}

fn short(state: &State, group: GroupId, counted: Counted) -> Option<i64> {
    state.group(group).short_of_sub_groups(counted).map(|(_, whole)| whole)
}

/// Each placed pod asks whether its gang is ready; this must not cost by the number of partitions.
#[test]
fn a_gang_of_many_partitions_is_counted_pod_by_pod() {
    let (pods, size) = (100_000, 2);
    let number = pods / size;
    let (mut state, group) = state(input(vec![parts(size as i64, number as i64)]));
    let all: Vec<PodId> = (0..pods).map(|at| add(&mut state, group, at / size, "w")).collect();
    assert_eq!(state.group(group).sub_groups.len(), number);
    assert_eq!(short(&state, group, Counted::Valid), None);
    assert_eq!(short(&state, group, Counted::Ready), Some(0));
    for (at, pod) in all.iter().enumerate() {
        assert!(!state.group(group).is_ready(), "{at}");
        state.move_pod(*pod, Status::Running, None, None);
    }
    assert!(state.group(group).is_ready());
    let mut spare = state.group(group).spare();
    assert!(!spare.take(state.group(group), Some(0)), "all are needed");
    state.move_pod(all[7], Status::Releasing, None, None);
    assert_eq!(short(&state, group, Counted::Promised), Some(number as i64 - 1));
    // Other partitions of the same pods.
    state.put_group(input(vec![parts(1, 1)]));
    assert_eq!((short(&state, group, Counted::Ready), state.group(group).sub_groups.len()), (None, number));
    state.put_group(input(Vec::new()));
    assert_eq!(state.group(group).sub_groups.len(), 0);
}

/// As pods whose annotation names a task of their own.
#[test]
fn each_pod_may_have_a_role_of_its_own() {
    let number = 60_000;
    let min_roles: BTreeMap<Arc<str>, i64> = (0..number).map(|at| (format!("r{at}").into(), 1)).collect();
    let of_all = GroupInput { min_member: number as i64, min_roles, ..input(Vec::new()) };
    let (mut state, group) = state(of_all.clone());
    let all: Vec<PodId> = (0..number).map(|at| add(&mut state, group, 0, &format!("r{at}"))).collect();
    assert_eq!(state.group(group).roles.len(), number);
    assert_eq!(state.group(group).validity(), Ok(()));
    for pod in &all[1..] {
        assert!(!state.group(group).is_ready());
        state.move_pod(*pod, Status::Running, None, None);
    }
    state.remove_pod(all[0]);
    let why = "waiting for the gang: task r0 has 0 of 1 pods".to_owned();
    assert_eq!(state.group(group).validity(), Err(("NotEnoughPodsOfTask", why)));
    // A pod more, and no minimum of the lost one.
    add(&mut state, group, 0, "r1");
    let mut without = of_all;
    without.min_roles.remove("r0");
    without.min_member -= 1;
    state.put_group(without);
    assert_eq!(state.group(group).validity(), Ok(()));
    assert!(state.group(group).is_ready());
}

#[test]
fn roles_beyond_the_last_number_are_as_the_last() {
    let (mut state, group) = state(input(Vec::new()));
    let group = state.group_mut(group);
    for at in 0..=u16::MAX {
        assert_eq!(group.role_index(&format!("r{at}").into()), at);
    }
    assert_eq!(group.role_index(&"further".into()), u16::MAX);
    assert_eq!((group.role_index(&"r7".into()), group.roles.len()), (7, 1 << 16));
}
