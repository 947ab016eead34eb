//! Runs a scenario file in whole mode and writes the run log.

use std::{collections::BTreeMap, sync::Arc};

use anyhow::Context;
use fleet_policies::{WorkloadKind, workload};
use serde_json::{Map, Value};

use super::{Line, Outcome, SimulationPlan, run_plan};
use fleet_simulator::scenario::{
    Action, Scenario,
    log::{Ending, Log, Record, Summary, Tally, Violation, What},
};

/// Runs the scenario with every process over embedded API servers, writes its log and returns its summary.
///
/// # Errors
/// The fleet does not start, an object of the file is refused, or the log cannot be written.
pub fn run(scenario: &Scenario, log: &mut dyn Log) -> anyhow::Result<Summary> {
    let outcome = run_plan(&SimulationPlan::of_scenario(scenario)).with_context(|| scenario.file.clone())?;
    let mut tally = Tally::default();
    for record in records(scenario, &outcome) {
        log.record(&record)?;
        tally.count(&record);
    }
    for found in &outcome.found {
        tally.violate(Violation {
            invariant: found.violation.invariant,
            t: found.at_ms as f64 / 1000.0,
            objects: Vec::new(),
            what: found.violation.what.clone(),
        });
    }
    let summary = tally.finish(i64::try_from(outcome.took.as_millis()).unwrap_or(i64::MAX));
    log.end(&summary)?;
    Ok(summary)
}

fn records(scenario: &Scenario, outcome: &Outcome) -> Vec<Record> {
    let manifests: BTreeMap<String, &Value> = scenario
        .events
        .iter()
        .filter_map(|event| match &event.action {
            Action::Apply(manifest) => {
                Some((format!("{}/{}", manifest.namespace, manifest.name), &manifest.value))
            }
            _ => None,
        })
        .collect();
    let record = |line: &Line| {
        let at_ms = i64::try_from(line.at_ms).unwrap_or(i64::MAX);
        let what = what(line, manifests.get(&line.job).copied())?;
        Some(Record { at_ms, job: Arc::from(line.job.as_str()), what })
    };
    outcome.lines.iter().filter_map(record).collect()
}

/// The record of a line; lines about processes and faults have none.
fn what(line: &Line, manifest: Option<&Value>) -> Option<What> {
    let fields = &line.fields;
    let text = |name: &str| text(fields, name);
    let shared = |name: &str| -> Arc<str> { Arc::from(text(name).as_str()) };
    let number = |name: &str| fields.get(name).and_then(Value::as_i64).unwrap_or_default();
    let nodes = || {
        Arc::new(serde_json::from_value(fields.get("nodes").cloned().unwrap_or_default()).unwrap_or_default())
    };
    Some(match line.event {
        "Submitted" => submitted(manifest?),
        "Rejected" => What::Rejected { reason: text("reason"), message: text("message") },
        "Queued" => What::Queued { queue: shared("queue"), reason: text("reason"), message: text("message") },
        "Pending" => {
            What::Pending { queue: shared("queue"), reason: text("reason"), message: text("message") }
        }
        "Admitted" => What::Admitted { queue: shared("queue") },
        "Reserved" => What::Reserved { cluster: shared("cluster"), nodes: nodes() },
        "ReservationRefused" => What::ReservationRefused {
            cluster: shared("cluster"),
            reason: text("reason"),
            message: text("message"),
        },
        "Bound" => {
            let each = fields.get("components").and_then(Value::as_array).into_iter().flatten();
            let components = each.map(|component| {
                let name = component["name"].as_str().unwrap_or_default().to_string();
                (name, component["replicas"].as_i64().unwrap_or_default())
            });
            What::Bound {
                cluster: shared("cluster"),
                epoch: number("epoch"),
                components: Arc::new(components.collect()),
            }
        }
        "Started" => What::Started { cluster: shared("cluster"), epoch: number("epoch"), nodes: nodes() },
        "Preempted" => What::Preempted {
            cluster: shared("cluster"),
            epoch: number("epoch"),
            by: shared("by"),
            reason: text("reason"),
            lost_ms: number("lost_s") * 1000,
        },
        "Evicted" => {
            What::Evicted { cluster: shared("cluster"), epoch: number("epoch"), reason: text("reason") }
        }
        "Fenced" => What::Fenced { cluster: shared("cluster"), epoch: number("epoch") },
        "Requeued" => What::Requeued { queue: shared("queue"), reason: text("reason") },
        "Finished" => What::Finished {
            cluster: shared("cluster"),
            epoch: number("epoch"),
            result: if text("result") == "Succeeded" { Ending::Succeeded } else { Ending::Failed },
            attempts: number("attempts"),
        },
        "Deleted" => What::Deleted {},
        _ => return None,
    })
}

fn text(fields: &Map<String, Value>, name: &str) -> String {
    fields.get(name).and_then(Value::as_str).unwrap_or_default().to_string()
}

fn submitted(manifest: &Value) -> What {
    let kind = manifest["kind"].as_str().unwrap_or_default();
    let workload = WorkloadKind::of(manifest["apiVersion"].as_str().unwrap_or_default(), kind);
    let components = workload::components(workload, manifest).unwrap_or_default();
    What::Submitted {
        kind: Arc::from(kind),
        gpus: workload::total(&components).get("nvidia.com/gpu"),
        components: Arc::new(components.iter().map(|c| (c.name.clone(), c.replicas)).collect()),
        priority: 0,
    }
}
