//! The state machines: each leaf and group state meets each event.

use crate::{
    group::{GroupEvent, GroupState},
    leaf::{Holder, LeafEvent, LeafState},
    topology::GroupNo,
};

const fn holder(group: u32, priority: i16) -> Holder {
    Holder { group: GroupNo(group), priority }
}

const LOW: Holder = holder(1, 0);
const HIGH: Holder = holder(2, 5);
const OTHER: Holder = holder(3, 9);

#[test]
fn leaves_go_through_their_life() {
    use LeafEvent::{Allocate, Cancel, Gone, Reserve};
    let used = LeafState::Free.apply(Allocate(LOW)).expect("free");
    let reserving = used.apply(Reserve(HIGH)).expect("lower");
    assert_eq!(reserving, LeafState::Reserving { victim: LOW, by: HIGH });
    assert_eq!(
        (reserving.holder(), reserving.occupant(), reserving.reserver()),
        (Some(HIGH), Some(LOW), Some(HIGH))
    );
    let reserved = reserving.apply(Gone(LOW.group)).expect("the victim went");
    assert_eq!(reserved, LeafState::Reserved(HIGH));
    assert_eq!(reserved.apply(Allocate(HIGH)), Ok(LeafState::Used(HIGH)));
    assert_eq!(reserved.apply(Cancel(HIGH.group)), Ok(LeafState::Free));
    assert_eq!(reserving.apply(Cancel(HIGH.group)), Ok(LeafState::Used(LOW)));
}

#[test]
fn every_other_transition_of_a_leaf_is_impossible() {
    let states = [
        LeafState::Free,
        LeafState::Used(LOW),
        LeafState::Reserving { victim: LOW, by: HIGH },
        LeafState::Reserved(HIGH),
    ];
    let mut possible = Vec::new();
    for (at, state) in states.into_iter().enumerate() {
        for who in [LOW, HIGH, OTHER] {
            let group = who.group;
            let events = [
                LeafEvent::Allocate(who),
                LeafEvent::Reserve(who),
                LeafEvent::Gone(group),
                LeafEvent::Cancel(group),
                LeafEvent::Reprice(Holder { group, priority: -1 }),
            ];
            for (kind, event) in events.into_iter().enumerate() {
                match state.apply(event) {
                    Ok(_) => possible.push((at, group.0, kind)),
                    Err(impossible) => assert_eq!((impossible.state, impossible.event), (state, event)),
                }
            }
        }
    }
    let free = [(0, 1, 0), (0, 1, 1), (0, 2, 0), (0, 2, 1), (0, 3, 0), (0, 3, 1)];
    let used = [(1, 1, 2), (1, 1, 4), (1, 2, 1), (1, 3, 1)];
    let reserving = [(2, 1, 2), (2, 1, 4), (2, 2, 3)];
    let reserved = [(3, 2, 0), (3, 2, 3)];
    let mut expected = [&free[..], &used, &reserving, &reserved].concat();
    expected.sort_unstable();
    possible.sort_unstable();
    assert_eq!(possible, expected);
}

#[test]
fn groups_answer_every_event() {
    use GroupEvent::{CellReserved, CellsReturned, VictimsGone};
    use GroupState::{Allocated, BeingPreempted, Preempting};
    let table = [
        (Allocated, VictimsGone, Allocated),
        (Allocated, CellReserved, BeingPreempted),
        (Allocated, CellsReturned, Allocated),
        (Preempting, VictimsGone, Allocated),
        (Preempting, CellReserved, Preempting),
        (Preempting, CellsReturned, Preempting),
        (BeingPreempted, VictimsGone, BeingPreempted),
        (BeingPreempted, CellReserved, BeingPreempted),
        (BeingPreempted, CellsReturned, Allocated),
    ];
    for (state, event, after) in table {
        assert_eq!(state.apply(event), after, "{state:?} {event:?}");
    }
}
