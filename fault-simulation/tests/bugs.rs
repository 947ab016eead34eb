//! The simulation finds deliberate bugs: one case for each, with a seed at which it is found.
//!
//! The seeds are those that `cargo xtask simulate --bugs` printed first; what a seed draws changes with the simulation, so
//! one that finds nothing any more is looked for anew. A bug is turned on for the whole process: one case at a time.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use fleet_api::mutation::{self, Mutation};
use fleet_fault_simulation::{People, SimulationPlan, run_plan};

const UNTIL: Duration = Duration::from_secs(1770);

pub(crate) static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

#[track_caller]
fn found(bug: Mutation, seed: u64, people: &str, invariant: u8) {
    let mut plan = SimulationPlan::of_seed_with(seed, &People::named(people).expect("known"));
    // What is broken at the end is broken long before the end of the quiet time.
    plan.until = UNTIL;
    found_in(bug, &plan, &format!("seed {seed}"), invariant);
}

#[track_caller]
fn found_in(bug: Mutation, plan: &SimulationPlan, name: &str, invariant: u8) {
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    mutation::set(bug);
    let outcome = run_plan(plan).expect("the fleet starts");
    mutation::set(Mutation::None);
    let found: Vec<u8> = outcome.found.iter().map(|found| found.violation.invariant).collect();
    let told =
        format!("{name} with {bug:?} ({}) found {found:?}\n{}", bug.what(), crate::cells::log(&outcome));
    assert!(found.contains(&invariant), "{told}");
}

macro_rules! cases {
    ($($name:ident: $bug:ident at seed $seed:literal $(with $people:literal)? breaks $invariant:literal;)+) => {
        $(
            #[test]
            fn $name() {
                found(Mutation::$bug, $seed, concat!($($people)?), $invariant);
            }
        )+
    };
}

cases! {
    reservation_kept: ReservationKept at seed 1 breaks 5;
    quota_not_counted: QuotaNotCounted at seed 6 breaks 3;
    quota_kept: QuotaKept at seed 1 breaks 4;
    foreign_adopted: ForeignAdopted at seed 4 breaks 4;
    toleration_forgotten: TolerationForgotten at seed 4 breaks 4;
    work_let_go_too_early: FinalizerTooEarly at seed 28 breaks 1;
    older_run_kept: OlderRunKept at seed 2 breaks 4;
    fence_forgotten: FenceForgotten at seed 4 breaks 1;
    grace_forgotten: GraceForgotten at seed 15 breaks 1;
    places_kept: HoldKept at seed 1 breaks 5;
    target_cleared_too_early: TargetClearedTooEarly at seed 5 breaks 1;
    work_left_behind: WorkLeftBehind at seed 3 breaks 5;
    unit_left_behind: UnitLeftBehind at seed 5 breaks 5;
    bound_gang_edited: BoundGangEdited at seed 2 with "edits,fair" breaks 3;
    leaf_cells_of_first: LeafCellsOfFirst at seed 1 with "virtual-clusters,fair" breaks 10;
    borrowed_cells_kept: BorrowedCellsKept at seed 1 with "virtual-clusters,fair" breaks 10;
    cell_nodes_open: CellNodesOpen at seed 1 with "virtual-clusters,fair" breaks 10;
    gang_bound_one_by_one: GangBoundOneByOne at seed 11 breaks 2;
}

/// A run whose cells are forgotten asks for them again, and mostly gets the same. Here a better one has become free.
#[test]
fn cells_forgotten() {
    found_in(
        Mutation::CellsForgotten,
        &crate::cells::another_after_a_restart(),
        "a restart after a cell came free",
        10,
    );
}
