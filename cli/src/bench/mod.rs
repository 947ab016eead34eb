//! `fleet bench`: how fast and how small a whole fleet in this process is.
//!
//! Inputs are fixed; the aims are printed beside what was measured. Deliberately absent: pass and fail,
//! because a time on someone's laptop is no test.

mod jobs;
mod planner_rows;
mod queue;
mod scheduler;
mod size;

use std::{process::ExitCode, time::Duration};

use fleet_kubesim::{FleetSpec, Listen, LocalFleet, MemberSpec, RunTime};
use serde::Serialize;

use crate::{
    answer::Answer,
    args::{BenchArgs, Measure},
    output,
    table::Table,
};

/// Nodes of each member while throughput is measured.
const MANY_NODES: usize = 50;
const READY_WITHIN: Duration = Duration::from_secs(60);

/// One measured number.
#[derive(Debug, Serialize)]
pub struct Finding {
    measure: String,
    found: f64,
    unit: &'static str,
    /// What the project wants to stay under, in the same unit.
    aim: Option<f64>,
}

impl Finding {
    fn new(measure: impl Into<String>, found: f64, unit: &'static str, aim: Option<f64>) -> Self {
        Self { measure: measure.into(), found, unit, aim }
    }
}

pub async fn run(args: BenchArgs) -> anyhow::Result<ExitCode> {
    let wants = |measure| args.what == measure || args.what == Measure::All;
    if args.what == Measure::Queue {
        return queue::run(queue::Wanted::of(&args)).await;
    }
    if args.what == Measure::Scheduler {
        let size =
            scheduler::Size { nodes: args.nodes as usize, pods: args.pods as usize, gangs: args.gangs };
        return Answer::text(scheduler::run(size).await?).print();
    }
    let mut findings = Vec::new();
    // First, while the process has not grown yet.
    if wants(Measure::Size) {
        say("start, memory and size");
        findings.extend(size::measure().await?);
    }
    if wants(Measure::Latency) {
        say(&format!("latency: {} jobs, one after the other", args.runs));
        let fleet = start(4).await?;
        findings.extend(jobs::latency(&fleet, args.runs).await?);
        fleet.shutdown().await;
    }
    if wants(Measure::Throughput) {
        say(&format!("throughput: {} jobs of 3 pods on 3 members of {MANY_NODES} nodes", args.jobs));
        let fleet = start(MANY_NODES).await?;
        findings.extend(jobs::throughput(&fleet, args.jobs).await?);
        fleet.shutdown().await;
    }
    let text = match args.output {
        Some(_) => output::json(&serde_json::to_value(&findings)?)?,
        None => print(&findings),
    };
    Answer::text(text).print()
}

fn say(what: &str) {
    eprintln!("measuring {what}");
}

async fn start(nodes: usize) -> anyhow::Result<LocalFleet> {
    let spec = FleetSpec {
        members: MemberSpec::many(3, nodes, 8, "64", "512Gi"),
        data_dir: None,
        listen: Listen::InProcess,
        default_run_time: RunTime::Forever,
        ..FleetSpec::default()
    };
    let fleet = LocalFleet::start(spec).await?;
    fleet.ready(READY_WITHIN).await?;
    Ok(fleet)
}

fn print(findings: &[Finding]) -> String {
    let mut table = Table::new(&["MEASURE", "FOUND", "AIM"]);
    for finding in findings {
        let amount = |amount: f64| match amount {
            small if small < 10.0 => format!("{small:.2} {}", finding.unit),
            amount => format!("{amount:.1} {}", finding.unit),
        };
        let aim = finding.aim.map_or("-".to_string(), |aim| format!("< {aim} {}", finding.unit));
        table.row([finding.measure.clone(), amount(finding.found), aim]);
    }
    table.print()
}
