//! Loads of many jobs under fair-share preemption, and what they cost: for the benchmark, and scaled down for a test.

#[path = "../../../quota/examples/loads/mod.rs"]
mod loads;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io;
use std::time::{Duration, Instant};

use fleet_simulator::fast;
use fleet_simulator::scenario::Scenario;
use fleet_simulator::scenario::log::{Log, Record, Summary, What};
use loads::Draw;
pub use loads::LEAVES;

const NODES: i64 = 25;
const CORES_OF_NODE: i64 = 16;

/// How the jobs of a run differ from one another.
#[derive(Clone, Copy)]
pub struct Load {
    pub name: &'static str,
    /// Longest pause between two jobs.
    pause_ms: u64,
    /// Of these one is drawn for each job.
    cores: &'static [i64],
    run_s: &'static [i64],
    /// Priorities below this, from -1 on.
    priorities: u64,
}

pub const LOADS: [Load; 4] = [
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
#[derive(Default)]
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

/// What one load cost.
pub struct Measured {
    pub wall: Duration,
    pub preemptions: u64,
    /// By rule.
    pub preempted: BTreeMap<String, u64>,
    pub lines: u64,
    pub pending: u64,
    /// Of the work of all jobs, in percent.
    pub lost_percent: f64,
}

impl Measured {
    /// Lines `Pending` of all lines of the log, in percent.
    pub fn pending_percent(&self) -> f64 {
        self.pending as f64 * 100.0 / self.lines.max(1) as f64
    }
}

/// Plays so many jobs of the load; all of them succeed.
pub fn measure(load: &Load, count: u64) -> Result<Measured, Box<dyn std::error::Error>> {
    let (text, asked) = scenario(load, count)?;
    let read = Scenario::read("fair-share.yaml", &text)?;
    let mut counts = Counts { asked, ..Counts::default() };
    let begin = Instant::now();
    let summary = fast::run(&read, &mut counts)?;
    assert_eq!((summary.succeeded as u64, summary.violations.len()), (count, 0), "{summary:?}");
    Ok(Measured {
        wall: begin.elapsed(),
        preemptions: summary.preemptions as u64,
        preempted: counts.preempted,
        lines: counts.lines,
        pending: counts.pending,
        lost_percent: counts.lost_ms as f64 * 100.0 / counts.used_ms.max(1) as f64,
    })
}
