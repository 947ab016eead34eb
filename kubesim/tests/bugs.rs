//! The simulation finds deliberate bugs: one case for each, with a seed at which it is found.
//!
//! The seeds are those that `cargo xtask simulate --bugs` printed first; what a seed draws changes with the simulation, so
//! one that finds nothing any more is looked for anew. A bug is turned on for the whole process: one case at a time.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use fleet_api::mutation::{self, Mutation};
use fleet_kubesim::{
    Scenario,
    whole::{EXPECT_LABEL, Event, Outcome, Plan, Process, What, run_plan},
};

const UNTIL: Duration = Duration::from_secs(1770);

static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

#[track_caller]
fn found(bug: Mutation, seed: u64, invariant: u8) {
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    mutation::set(bug);
    let mut plan = Plan::of_seed(seed);
    // What is broken at the end is broken long before the end of the quiet time.
    plan.until = UNTIL;
    let outcome = run_plan(&plan).expect("the fleet starts");
    mutation::set(Mutation::None);
    let found: Vec<u8> = outcome.found.iter().map(|found| found.violation.invariant).collect();
    assert!(found.contains(&invariant), "seed {seed} with {bug:?} ({}) found {found:?}", bug.what());
}

macro_rules! cases {
    ($($name:ident: $bug:ident at seed $seed:literal breaks $invariant:literal;)+) => {
        $(
            #[test]
            fn $name() {
                found(Mutation::$bug, $seed, $invariant);
            }
        )+
    };
}

cases! {
    reservation_kept: ReservationKept at seed 1 breaks 5;
    quota_not_counted: QuotaNotCounted at seed 6 breaks 3;
    quota_kept: QuotaKept at seed 1 breaks 4;
    foreign_adopted: ForeignAdopted at seed 3 breaks 4;
    toleration_forgotten: TolerationForgotten at seed 4 breaks 4;
    work_let_go_too_early: FinalizerTooEarly at seed 28 breaks 1;
    older_run_kept: OlderRunKept at seed 2 breaks 4;
    fence_forgotten: FenceForgotten at seed 4 breaks 1;
    grace_forgotten: GraceForgotten at seed 15 breaks 1;
    places_kept: HoldKept at seed 1 breaks 5;
    target_cleared_too_early: TargetClearedTooEarly at seed 5 breaks 1;
    work_left_behind: WorkLeftBehind at seed 3 breaks 5;
    unit_left_behind: UnitLeftBehind at seed 5 breaks 5;
}

/// One job, and a hub that forgets its history while the job is placed: the controller's listings are late, and the
/// answers to its writes overtake them.
fn overtaken(seed: u64) -> Plan {
    let text = "
clusters:
  - name: east
    nodePools: [{name: east, count: 1, allocatable: {cpu: 64, memory: 512Gi, nvidia.com/gpu: 8}}]
objects:
  - apiVersion: policy.one.alibabacloud.com/v1alpha1
    kind: ClusterPropagationPolicy
    metadata: {name: gangs}
    spec:
      resourceSelectors: [{apiVersion: kubeflow.org/v1, kind: PyTorchJob}]
      placement: {replicaScheduling: {replicaSchedulingType: Divided, customSchedulingType: Gang}}
events:
  - {at: 20s, job: {name: a, components: [{name: worker, replicas: 2, requests: {cpu: 1, nvidia.com/gpu: 2}}], runtime: 60s}}
";
    let mut plan = Plan::of_scenario(&Scenario::read("overtaken.yaml", text).expect("a scenario"));
    (plan.seed, plan.calm, plan.until) = (seed, Some(Duration::from_secs(60)), Duration::from_secs(600));
    for event in &mut plan.events {
        if let What::Apply(object) = &mut event.what {
            object["metadata"]["labels"][EXPECT_LABEL] = "Succeeded".into();
        }
    }
    let lost = Duration::from_millis(20_002 + 2 * seed);
    for (at, over) in [(lost, false), (lost + Duration::from_millis(50), true)] {
        plan.events.push(Event { at, what: What::History { process: Process::Controller, over } });
    }
    plan
}

#[test]
fn listings_that_answers_overtake() {
    const SEEDS: u64 = 12;
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let run = |seed| run_plan(&overtaken(seed)).expect("the fleet starts");
    let fine: Vec<Outcome> = (0..SEEDS).map(run).collect();
    let wrong: Vec<_> = fine.iter().flat_map(|outcome| &outcome.found).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
    mutation::set(Mutation::ListingEndsAnswers);
    let found = (0..SEEDS).find(|seed| !run(*seed).found.is_empty());
    mutation::set(Mutation::None);
    assert!(found.is_some(), "no seed finds a listing that ends what its answer told of");
}
