//! Virtual clusters and faults: what runs keeps its cells, whoever dies or is cut off.

use std::time::Duration;

use fleet_fault_simulation::{Event, Line, Outcome, Process, SimulationPlan, What};
use fleet_simulator::Scenario;
use serde_json::Value;

use crate::whole::{lines_of, passes, text, until_all};

/// A member with three nodes of two GPUs, of which virtual cluster `a` is promised two and `b` one.
fn fleet(events: &str) -> SimulationPlan {
    let text = format!(
        "
until: 20m
clusters:
  - name: east
    nodePools: [{{name: n, count: 3, allocatable: {{cpu: 64, memory: 512Gi, nvidia.com/gpu: 2}}}}]
objects:
  - apiVersion: policy.one.alibabacloud.com/v1alpha1
    kind: ClusterPropagationPolicy
    metadata: {{name: gangs}}
    spec:
      propagateDeps: true
      resourceSelectors: [{{apiVersion: kubeflow.org/v1, kind: PyTorchJob}}]
      suspension: {{scheduling: true}}
      placement:
        clusterAffinities: [{{affinityName: all}}]
        replicaScheduling: {{replicaSchedulingType: Divided, customSchedulingType: Gang}}
  - apiVersion: fleet.dev/v1alpha1
    kind: CellConfiguration
    metadata: {{name: cells}}
    spec:
      physicalCluster:
        skuTypes: {{GPU: {{gpu: 1, cpu: 4, memory: 8Gi}}}}
        cellTypes:
          NODE: {{childCellType: GPU, childCellNumber: 2, isNodeLevel: true}}
          POOL: {{childCellType: NODE, childCellNumber: 3}}
        physicalCells:
          - {{cellType: POOL, cluster: east, cellChildren: [{{cellAddress: n-0}}, {{cellAddress: n-1}}, {{cellAddress: n-2}}]}}
      virtualClusters:
        a: {{virtualCells: [{{cellType: POOL.NODE, cellNumber: 2}}]}}
        b: {{virtualCells: [{{cellType: POOL.NODE, cellNumber: 1}}]}}
events:
{events}
"
    );
    SimulationPlan::of_scenario(&Scenario::read("case.yaml", &text).expect("a scenario"))
}

/// One line of a job: pods of so many GPUs in a virtual cluster; `more` are further fields.
fn job(at: &str, name: &str, vc: &str, (pods, gpus): (u32, u32), more: &str) -> String {
    format!(
        "  - {{at: {at}, job: {{name: {name}, virtualCluster: {vc}, labels: {{fleet.dev/class: prod}}, components: \
         [{{name: worker, replicas: {pods}, requests: {{cpu: 1, nvidia.com/gpu: {gpus}}}}}]{more}}}}}\n"
    )
}

const ONE_BY_ONE: &str = ", annotations: {fleet.dev/gang-allocation: \"false\"}, runtime: 60s";

/// A gang on both nodes of `a`, and a job of `b` whose pods start one by one, three on two devices.
fn gang_and_single_pods() -> SimulationPlan {
    fleet(
        &(job("20s", "gang", "a", (2, 2), ", runtime: 60s") + &job("20s", "single", "b", (3, 1), ONE_BY_ONE)),
    )
}

/// What bindings say of the cells of a job, one after the other.
fn cells<'o>(outcome: &'o Outcome, job: &str) -> Vec<&'o Value> {
    let of_job = |line: &&Line| line.job == format!("default/{job}");
    lines_of(outcome, "Cells").into_iter().filter(of_job).map(|line| &line.fields["groups"]).collect()
}

pub(crate) fn log(outcome: &Outcome) -> String {
    outcome.lines.iter().map(|line| format!("{}\n", line.to_json())).collect()
}

fn ended(outcome: &Outcome) -> Vec<(&str, &str)> {
    let mut ended: Vec<_> =
        lines_of(outcome, "Finished").iter().map(|line| (line.job.as_str(), text(line, "result"))).collect();
    ended.sort_unstable();
    ended
}

/// Without optimisation each run takes half a minute.
const EACH: usize = if cfg!(debug_assertions) { 2 } else { 1 };

#[track_caller]
fn killed_at_each_write(process: &Process, first: std::ops::Range<u64>) {
    for writes in first.step_by(EACH) {
        let mut plan = gang_and_single_pods();
        let what = What::Crash {
            process: process.clone(),
            after_writes: writes + 1,
            unheard: writes % 2 == 0,
            restart_after: Some(Duration::from_secs(2)),
        };
        plan.events.insert(0, Event { at: Duration::from_secs(19), what });
        until_all(&mut plan, "Succeeded", Duration::from_secs(60));
        let outcome = passes(&plan);
        assert_eq!(lines_of(&outcome, "Crashed").len(), 1, "write {writes}");
        assert_eq!(ended(&outcome), [("default/gang", "Succeeded"), ("default/single", "Succeeded")]);
        // Each has one run, and the gang the same cells for all of it.
        assert_eq!(lines_of(&outcome, "Bound").len(), 2, "write {writes}\n{}", log(&outcome));
        let held: Vec<&Value> =
            cells(&outcome, "gang").into_iter().filter(|groups| !groups.is_null()).collect();
        assert!(
            !held.is_empty() && held.iter().all(|groups| *groups == held[0]),
            "write {writes}: {held:#?}"
        );
    }
}

// The first writes after the jobs were applied, in parts: each of them is a run of its own.

#[test]
fn a_controller_killed_at_each_of_its_writes_keeps_every_placement() {
    killed_at_each_write(&Process::Controller, 0..4);
}

#[test]
#[cfg_attr(
    debug_assertions,
    ignore = "takes minutes in a debug build: cargo test --release -p fleet-fault-simulation"
)]
fn a_controller_killed_at_each_later_write_keeps_every_placement() {
    killed_at_each_write(&Process::Controller, 4..8);
}

#[test]
fn an_agent_killed_at_each_of_its_writes_keeps_every_placement() {
    killed_at_each_write(&Process::Agent("east".to_string()), 0..4);
}

#[test]
#[cfg_attr(
    debug_assertions,
    ignore = "takes minutes in a debug build: cargo test --release -p fleet-fault-simulation"
)]
fn an_agent_killed_at_each_later_write_keeps_every_placement() {
    killed_at_each_write(&Process::Agent("east".to_string()), 4..8);
}

#[test]
fn a_member_that_is_cut_off_keeps_its_cells_as_they_were() {
    let long = ", runtime: 400s";
    let events = job("20s", "gang", "a", (2, 2), long)
        + &job("20s", "lent", "a", (1, 1), long).replace("class: prod", "class: oppo")
        + "  - {at: 60s, partition: {cluster: east}}\n"
        + &job("100s", "next", "a", (1, 2), ", runtime: 60s")
        + "  - {at: 150s, crash: {process: hub, restartAfter: 5s}}\n"
        + "  - {at: 300s, heal: {cluster: east}}\n";
    let mut plan = fleet(&events);
    until_all(&mut plan, "Succeeded", Duration::from_secs(301));
    let outcome = passes(&plan);
    for name in ["gang", "lent"] {
        let of_job =
            lines_of(&outcome, "Cells").into_iter().filter(|line| line.job == format!("default/{name}"));
        let held: Vec<(u64, &Value)> = of_job
            .map(|line| (line.at_ms, &line.fields["groups"]))
            .filter(|(_, groups)| !groups.is_null())
            .collect();
        let before: Vec<_> = held.iter().filter(|(at_ms, _)| *at_ms < 60_000).collect();
        let after: Vec<_> = held.iter().filter(|(at_ms, _)| *at_ms >= 60_000).collect();
        assert_eq!(before.len(), 1, "{name}: {held:#?}");
        assert!(after.iter().all(|(_, groups)| *groups == before[0].1), "{name}: {held:#?}");
        let bound =
            lines_of(&outcome, "Bound").into_iter().filter(|line| line.job == format!("default/{name}"));
        assert_eq!(bound.count(), 1, "{name} has one run");
    }
    // The next job of the virtual cluster waits for the gang's end: its cells were nobody's meanwhile.
    let at_ms = |event: &str, name: &str| {
        lines_of(&outcome, event)
            .iter()
            .find(|line| line.job == format!("default/{name}"))
            .map(|line| line.at_ms)
    };
    assert!(at_ms("Bound", "next") > at_ms("Finished", "gang"), "{:?}", lines_of(&outcome, "Bound"));
}

/// When the controller restarts, a cell that comes before those of a run in the file has become free.
pub(crate) fn another_after_a_restart() -> SimulationPlan {
    let forever = "";
    let events = job("15s", "early", "a", (1, 2), ", runtime: 20s")
        + &job("20s", "first", "a", (1, 2), forever)
        + "  - {at: 60s, crash: {process: hub, restartAfter: 2s}}\n"
        + &job("80s", "second", "a", (1, 2), forever)
        + &job("100s", "third", "a", (1, 2), forever)
        + &job("150s", "other", "b", (1, 2), forever);
    let mut plan = fleet(&events);
    plan.fair = true;
    plan.until = Duration::from_secs(900);
    plan
}

#[test]
fn after_a_restart_nobody_takes_the_cells_of_a_run_or_of_another_virtual_cluster() {
    let outcome = passes(&another_after_a_restart());
    let bound: Vec<&str> = lines_of(&outcome, "Bound").iter().map(|line| line.job.as_str()).collect();
    assert_eq!(
        bound,
        ["default/early", "default/first", "default/second", "default/other"],
        "{}",
        log(&outcome)
    );
}
