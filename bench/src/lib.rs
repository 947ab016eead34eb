//! `fleet bench`: speed and size of a whole fleet in this process.
//!
//! Inputs are fixed; targets are printed beside the measurements. Deliberately absent: pass and fail, because
//! a time on one machine is no test.

pub mod args;
mod jobs;
mod measured;
mod planner_rows;
mod queue;
mod scheduler;
mod size;

use std::process::ExitCode;

use fleet_cli_ground::{answer::Answer, output};
use fleet_kubesim::{FleetSpec, Listen, LocalFleet, MemberSpec, RunTime};

use args::{BenchArgs, Measure};
use fleet_console::table::Table;
use measured::{Finding, READY_WITHIN, say};

/// Nodes of each member while throughput is measured.
const MANY_NODES: usize = 50;

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
    // First, while the process is still small.
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
