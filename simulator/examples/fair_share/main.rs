//! Prints what fair-share preemption costs in mode fast: 10,000 jobs in 20 leaves with four times the capacity asked
//! for. Fixed inputs; run with `--release`. `fair_share 2000 mixed` takes fewer jobs and one of the loads.

#[path = "../../quota/examples/loads/mod.rs"]
mod loads;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io;
use std::time::Instant;

use fleet_simulator::fast;
use fleet_simulator::scenario::Scenario;
use fleet_simulator::scenario::log::{Log, Record, Summary, What};
use loads::{Draw, LEAVES};

const NODES: i64 = 25;
const CORES_OF_NODE: i64 = 16;

/// How the jobs of a run differ from one another.
#[derive(Clone, Copy)]
struct Load {
    name: &'static str,
    /// Longest pause between two jobs.
    pause_ms: u64,
    /// Of these one is drawn for each job.
    cores: &'static [i64],
    run_s: &'static [i64],
    /// Priorities below this, from -1 on.
    priorities: u64,
}

const LOADS: [Load; 4] = [
    Load {
        name: "mixed",
        pause_ms: 8_000,
        cores: &[1, 1, 2, 4, 8, 16],
        run_s: &[60, 300, 900, 3600],
        priorities: 3,
    },
    Load {
        name: "one priority",
        pause_ms: 8_000,
        cores: &[1, 1, 2, 4, 8, 16],
        run_s: &[60, 300, 900, 3600],
        priorities: 1,
    },
    Load { name: "short", pause_ms: 800, cores: &[1, 2, 4], run_s: &[30, 60, 120, 300], priorities: 1 },
    Load { name: "at once", pause_ms: 1, cores: &[1, 2, 4], run_s: &[30, 60, 120, 300], priorities: 3 },
];

/// The scenario as text, and the cores of each job.
fn scenario(load: &Load, count: u64) -> Result<(String, BTreeMap<String, i64>), std::fmt::Error> {
    let mut draw = Draw::new();
    let (mut text, mut asked, mut at_ms) = (String::new(), BTreeMap::new(), 0);
    writeln!(
        text,
        "clusters: [{{name: east, nodePools: [{{name: n, count: {NODES}, allocatable: {{cpu: {CORES_OF_NODE}}}}}]}}]"
    )?;
    let all = NODES * CORES_OF_NODE;
    write!(
        text,
        "objects:\n  - {{apiVersion: scheduling.sigs.k8s.io/v1beta1, kind: ElasticQuotaTree, metadata: {{name: t}}, \
         spec: {{root: {{name: root, min: {{cpu: {all}}}, max: {{cpu: {all}}}, attributes: \
         {{fleet.dev/share-preemption: FairShare}}, children: ["
    )?;
    for leaf in 0..LEAVES {
        write!(text, "{{name: l{leaf:02}, namespaces: [l{leaf:02}], min: {{cpu: 10}}}}, ")?;
    }
    writeln!(text, "]}}}}}}\nevents:")?;
    for n in 0..count {
        at_ms += draw.below(load.pause_ms);
        let cores = draw.of(load.cores);
        let leaf = draw.leaf();
        let run_s = draw.of(load.run_s);
        let priority = draw.below(load.priorities) as i64 - 1;
        writeln!(
            text,
            "  - {{at: {at_ms}ms, job: {{name: j{n:05}, namespace: l{leaf:02}, priority: {priority}, runtime: {run_s}s, \
             components: [{{name: worker, requests: {{cpu: {cores}}}}}]}}}}"
        )?;
        asked.insert(format!("l{leaf:02}/j{n:05}"), cores);
    }
    Ok((text, asked))
}

/// Counts the lines of a log, and work: cores times milliseconds.
struct Counts {
    asked: BTreeMap<String, i64>,
    lines: u64,
    pending: u64,
    preempted: BTreeMap<String, u64>,
    started_ms: BTreeMap<String, i64>,
    used_ms: i64,
    lost_ms: i64,
}

impl Log for Counts {
    fn record(&mut self, record: &Record) -> io::Result<()> {
        self.lines += 1;
        let cores = || self.asked.get(&*record.job).copied().unwrap_or(0);
        match &record.what {
            What::Pending { .. } => self.pending += 1,
            What::Started { .. } => drop(self.started_ms.insert(record.job.to_string(), record.at_ms)),
            What::Preempted { reason, lost_ms, .. } => {
                *self.preempted.entry(reason.clone()).or_default() += 1;
                self.lost_ms += lost_ms * cores();
                self.used_ms += lost_ms * cores();
            }
            What::Finished { .. } => {
                let ran_ms = self.started_ms.get(&*record.job).map_or(0, |at_ms| record.at_ms - at_ms);
                self.used_ms += ran_ms * cores();
            }
            _ => {}
        }
        Ok(())
    }

    fn end(&mut self, _: &Summary) -> io::Result<()> {
        Ok(())
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let count = std::env::args().nth(1).map_or(Ok(10_000), |text| text.parse())?;
    let only = std::env::args().nth(2);
    println!(
        "| load | jobs | leaves | wall, s | preemptions | work lost | lines of the log | of them Pending |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- | --- |");
    for load in LOADS.iter().filter(|load| only.as_deref().is_none_or(|only| only == load.name)) {
        let (text, asked) = scenario(load, count)?;
        let read = Scenario::read("fair-share.yaml", &text)?;
        let mut counts = Counts {
            asked,
            lines: 0,
            pending: 0,
            preempted: BTreeMap::new(),
            started_ms: BTreeMap::new(),
            used_ms: 0,
            lost_ms: 0,
        };
        let begin = Instant::now();
        let summary = fast::run(&read, &mut counts)?;
        assert_eq!((summary.succeeded as u64, summary.violations.len()), (count, 0), "{summary:?}");
        let rules: Vec<String> = counts.preempted.iter().map(|(rule, n)| format!("{rule} {n}")).collect();
        println!(
            "| {} | {count} | {LEAVES} | {:.1} | {} ({}) | {:.2} % | {} | {} ({:.0} %) |",
            load.name,
            begin.elapsed().as_secs_f64(),
            summary.preemptions,
            rules.join(", "),
            counts.lost_ms as f64 * 100.0 / counts.used_ms.max(1) as f64,
            counts.lines,
            counts.pending,
            counts.pending as f64 * 100.0 / counts.lines.max(1) as f64,
        );
    }
    Ok(())
}
