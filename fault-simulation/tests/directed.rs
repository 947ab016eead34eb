//! Faults at one moment, which seeds rarely meet: each case passes, and finds the deliberate bug for which it is there.

use std::{
    sync::{MutexGuard, PoisonError},
    time::Duration,
};

use fleet_api::mutation::{self, Mutation};
use fleet_fault_simulation::{
    Event, Outcome, People, Process, Rates, Server, Side, SimulationPlan, What, run_plan,
};
use serde_json::json;

use crate::{
    bugs::ONE_AT_A_TIME,
    whole::{JOB, MOVES, ends, fleet, lines_of, passes, until_all},
};

/// Seeds of power losses and restores.
const SEEDS: u64 = 3;

/// Runs with a bug, while no other case has one; the invariants that broke.
fn broken_with(bug: Mutation, plan: &SimulationPlan, _turn: &MutexGuard<'_, ()>) -> Vec<u8> {
    mutation::set(bug);
    let outcome = run_plan(plan).expect("the fleet starts");
    mutation::set(Mutation::None);
    outcome.found.iter().map(|found| found.violation.invariant).collect()
}

fn turn() -> MutexGuard<'static, ()> {
    ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
}

fn add(plan: &mut SimulationPlan, at_ms: u64, what: What) {
    plan.events.push(Event { at: Duration::from_millis(at_ms), what });
    plan.events.sort_by_key(|event| event.at);
}

/// The agent of a cluster that is cut off dies for good a moment after it began to stop a fenced job. What it has sent by
/// then must be enough: its member is slow, so no answer has come yet.
#[test]
fn an_agent_that_dies_while_it_stops_a_job_has_asked_its_pods_to_end() {
    let turn = turn();
    let job = JOB.replace("120s", "400s");
    let mut plan = fleet(&format!("{job}\n  - {{at: 60s, partition: {{cluster: east}}}}"), MOVES);
    let fenced = lines_of(&run_plan(&plan).expect("runs"), "Fenced")[0].at_ms;
    let agent = Process::Agent("east".to_string());
    let rates = Rates { late: 1000, latest_ms: 2_000, ..Rates::default() };
    add(&mut plan, fenced - 20, What::NetworkFaults { process: agent.clone(), side: Side::Own, rates });
    let crash = What::Crash { process: agent, after_writes: 0, unheard: false, restart_after: None };
    add(&mut plan, fenced + 2, crash);
    let outcome = passes(&plan);
    assert_eq!(lines_of(&outcome, "Crashed").len(), 1);
    ends(&outcome, "west", 2);
    let found = broken_with(Mutation::FenceAfterMark, &plan, &turn);
    assert!(found.contains(&1), "{found:?}");
}

/// A list that was made before the hub created an object arrives after the answer to that create. The job is deleted then:
/// what it runs counts, although no watch has shown its Work.
#[test]
fn listings_that_are_older_than_an_answer_end_nothing() {
    let turn = turn();
    let waiting = JOB.replace("at: 20s", "at: 22s").replace("{name: a", "{name: b");
    let delete = "  - {at: 31s, delete: {kind: PyTorchJob, namespace: default, name: a}}";
    let tree = json!({"apiVersion": "scheduling.sigs.k8s.io/v1beta1", "kind": "ElasticQuotaTree",
        "metadata": {"name": "tree", "namespace": "kube-system"}, "spec": {"root": {"name": "root", "children": [
            {"name": "own", "namespaces": ["default"], "max": {"nvidia.com/gpu": 4}}]}}});
    for (resource, finds) in [("works", true), ("reservations", false)] {
        let mut plan = fleet(&format!("{JOB}\n{waiting}\n{delete}"), MOVES);
        plan.objects.retain(|object| object["kind"] != "ElasticQuotaTree");
        plan.objects.push(tree.clone());
        add(&mut plan, 19_000, What::HistoryAtCreate { process: Process::Controller, resource });
        until_all(&mut plan, "Succeeded", Duration::from_secs(60));
        let outcome = passes(&plan);
        assert_eq!(outcome.faults.get("history lost"), Some(&1), "{resource}");
        // The answer to its reservation is not seen in time, where these are listed late.
        assert_eq!(bound(&outcome, "default/a"), usize::from(resource != "reservations"), "{resource}");
        assert_eq!(bound(&outcome, "default/b"), 1, "{resource}");
        if finds {
            let found = broken_with(Mutation::ListingEndsAnswers, &plan, &turn);
            assert!(found.contains(&3), "{found:?}");
        }
    }
}

fn power(plan: &mut SimulationPlan, server: &Server, from_ms: u64, to_ms: u64) {
    for (at_ms, on) in [(from_ms, false), (to_ms, true)] {
        add(plan, at_ms, What::Power { server: server.clone(), on });
    }
}

/// Right after a user's job was accepted, and at further moments of its life.
#[test]
fn a_hub_that_loses_its_power_has_what_it_answered() {
    let turn = turn();
    for (from_ms, finds) in [(20_003, true), (20_150, false), (23_000, false), (139_900, false)] {
        let mut plan = fleet(JOB, MOVES);
        power(&mut plan, &Server::Hub, from_ms, from_ms + 3_000);
        until_all(&mut plan, "Succeeded", Duration::from_secs(160));
        let outcome = passes(&plan);
        assert_eq!(outcome.faults.get("power lost"), Some(&1), "{from_ms}");
        ends(&outcome, "east", 1);
        if finds {
            let found = broken_with(Mutation::CommitNotSynced, &plan, &turn);
            assert!(found.contains(&4), "{found:?}");
        }
    }
}

#[test]
fn a_member_that_loses_its_power_goes_on() {
    for from_ms in [20_100, 21_000, 60_000, 139_950] {
        let mut plan = fleet(JOB, MOVES);
        power(&mut plan, &Server::Member("east".to_string()), from_ms, from_ms + 3_000);
        until_all(&mut plan, "Succeeded", Duration::from_secs(160));
        ends(&passes(&plan), "east", 1);
    }
}

fn bound(outcome: &Outcome, job: &str) -> usize {
    lines_of(outcome, "Bound").iter().filter(|line| line.job == job).count()
}

/// `a` runs before the backup and on after it; `b` was made since, and its user makes it again.
#[test]
fn a_restored_hub_goes_on_with_what_it_knows_and_starts_the_rest_once() {
    let failover =
        "{application: {decisionConditions: {tolerationSeconds: 0}, purgeMode: Directly, backoffLimit: 3}}";
    let b = JOB.replace("at: 20s", "at: 50s").replace("{name: a", "{name: b").replace("120s", "60s");
    for (at_s, back_s) in [(80, 50), (80, 35), (118, 55)] {
        let mut plan = fleet(&format!("{JOB}\n{b}"), failover);
        add(&mut plan, at_s * 1000, What::Restore { back: Duration::from_secs(back_s) });
        until_all(&mut plan, "Succeeded", Duration::from_secs(200));
        let outcome = passes(&plan);
        assert_eq!(outcome.faults.get("hub restored"), Some(&1));
        assert_eq!(bound(&outcome, "default/a"), 1, "restored at {at_s} s: it runs on");
        assert!(bound(&outcome, "default/b") >= 1);
    }
}

#[test]
fn seeds_with_power_losses_and_restores_pass() {
    for seed in 1..=SEEDS {
        let people = People::named("power,restores").expect("known");
        let plan = SimulationPlan::of_seed_with(seed, &people);
        assert!(plan.events.iter().any(|event| matches!(event.what, What::Power { .. })));
        passes(&plan);
    }
}
