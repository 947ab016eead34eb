//! The log as people read it: one line an event, each job's life as a line of letters, the run in numbers.

use std::{collections::BTreeMap, io, sync::Arc};

use super::{
    chart::Chart,
    record::{Ending, NodesOf, Record, What, clock},
    sink::Log,
    summary::Summary,
};

/// Node names that a line shows of one component.
const NODES_SHOWN: usize = 4;
/// Reasons to wait that no other job's end changes.
const NEVER: [&str; 2] = ["ExceedsQuota", "ExceedsEveryCluster"];
/// Least width of the column of jobs.
const JOB_WIDTH: usize = 16;

/// Writes for people.
#[derive(Debug)]
pub struct People<W> {
    out: W,
    chart: Chart,
    width: usize,
    last_ms: Option<i64>,
}

impl<W: io::Write> People<W> {
    /// `title` is the first line; empty for none.
    ///
    /// # Errors
    /// The output cannot be written.
    pub fn new(mut out: W, title: &str) -> io::Result<Self> {
        if !title.is_empty() {
            writeln!(out, "{title}\n")?;
        }
        Ok(Self { out, chart: Chart::default(), width: JOB_WIDTH, last_ms: None })
    }

    /// What was written into.
    pub fn into_inner(self) -> W {
        self.out
    }
}

impl<W: io::Write> Log for People<W> {
    fn record(&mut self, record: &Record) -> io::Result<()> {
        self.chart.record(record);
        let Some(text) = text(&record.what) else { return Ok(()) };
        // A time is written once, where it begins.
        let time = if self.last_ms == Some(record.at_ms) { String::new() } else { clock(record.at_ms) };
        self.last_ms = Some(record.at_ms);
        self.width = self.width.max(record.job.len());
        let (job, width) = (&record.job, self.width);
        writeln!(self.out, "{time:>9}  {job:width$}  {text}")
    }

    fn end(&mut self, found: &Summary) -> io::Result<()> {
        self.chart.draw(&mut self.out)?;
        summary(&mut self.out, found)
    }
}

/// `None`: not worth a line of its own; the next event says it too.
fn text(what: &What) -> Option<String> {
    let at = |cluster: &Arc<str>, epoch: &i64| match epoch {
        1 => cluster.to_string(),
        _ => format!("{cluster} (epoch {epoch})"),
    };
    let text = match what {
        What::Submitted { kind, gpus, components, priority } => {
            let gpus = match gpus {
                0 => String::new(),
                1 => ", 1 GPU".to_string(),
                _ => format!(", {gpus} GPUs"),
            };
            let priority = if *priority == 0 { String::new() } else { format!(", priority {priority}") };
            format!("submitted: {kind}, {}{gpus}{priority}", pods(components))
        }
        What::Rejected { reason, message } => format!("REJECTED {reason}: {message}"),
        What::Queued { queue, .. } => format!("queued in {queue}"),
        What::Pending { reason, message, .. } if NEVER.contains(&reason.as_str()) => {
            format!("CAN NEVER RUN as things are, {reason}: {message}")
        }
        What::Pending { reason, message, .. } => format!("waits, {reason}: {message}"),
        What::Admitted { .. } | What::Reserved { .. } => return None,
        What::ReservationRefused { cluster, message, .. } => format!("{cluster} refused: {message}"),
        What::Bound { cluster, epoch, .. } => format!("bound to {}", at(cluster, epoch)),
        What::Started { cluster, epoch, nodes } => {
            format!("RUNS on {}: {}", at(cluster, epoch), places(nodes))
        }
        What::Preempted { cluster, by, reason, lost_ms, .. } => {
            format!("PREEMPTED on {cluster} by {by} ({reason}), loses {} of work", clock(*lost_ms))
        }
        What::Evicted { cluster, reason, .. } => format!("EVICTED from {cluster}: {reason}"),
        What::Fenced { cluster, .. } => format!("FENCED: {cluster} stopped it by itself"),
        What::Requeued { queue, reason } => format!("back in {queue}: {reason}"),
        What::Finished { cluster, result, attempts, .. } => {
            let how = if *result == Ending::Succeeded { "SUCCEEDED" } else { "FAILED" };
            let tries = if *attempts > 1 { format!(", attempt {attempts}") } else { String::new() };
            let place = if cluster.is_empty() { String::new() } else { format!(" on {cluster}") };
            format!("{how}{place}{tries}")
        }
        What::Deleted {} => "deleted".to_string(),
    };
    Some(text)
}

/// `1 master, 2 worker`.
fn pods(components: &BTreeMap<String, i64>) -> String {
    let each: Vec<String> = components.iter().map(|(name, count)| format!("{count} {name}")).collect();
    if each.is_empty() { "no pods".to_string() } else { each.join(", ") }
}

/// `worker a100-0 a100-1`, pods of one node counted: `worker a100-0 x4`.
fn places(nodes: &NodesOf) -> String {
    let component = |(name, nodes): (&String, &Vec<String>)| {
        let mut counted: Vec<(&str, usize)> = Vec::new();
        for node in nodes {
            match counted.last_mut() {
                Some((last, count)) if *last == node => *count += 1,
                _ => counted.push((node, 1)),
            }
        }
        let more = counted.len().saturating_sub(NODES_SHOWN);
        let mut shown: Vec<String> = counted
            .iter()
            .take(NODES_SHOWN)
            .map(|(node, count)| if *count == 1 { (*node).to_string() } else { format!("{node} x{count}") })
            .collect();
        if more > 0 {
            shown.push(format!("and {more} more"));
        }
        format!("{name} {}", shown.join(" "))
    };
    nodes.iter().map(component).collect::<Vec<_>>().join(", ")
}

pub(super) fn summary(out: &mut dyn io::Write, found: &Summary) -> io::Result<()> {
    let mut parts = vec![format!("{} succeeded", found.succeeded)];
    let others = [
        (found.failed, "failed"),
        (found.running, "running"),
        (found.pending, "waiting"),
        (found.rejected, "rejected"),
        (found.deleted, "deleted"),
    ];
    parts.extend(others.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{n} {what}")));
    let jobs = if found.jobs == 1 { "1 job".to_string() } else { format!("{} jobs", found.jobs) };
    let clock = |seconds: f64| clock((seconds * 1000.0).round() as i64);
    writeln!(out, "\n{jobs}: {}", parts.join(", "))?;
    writeln!(
        out,
        "makespan {}   wait mean {}, p50 {}, p99 {}   completion mean {}",
        clock(found.makespan_s),
        clock(found.wait_mean_s),
        clock(found.wait_p50_s),
        clock(found.wait_p99_s),
        clock(found.jct_mean_s),
    )?;
    let gpu_hours = match found.gpu_hours_used {
        0.0 => String::new(),
        used => format!("GPU hours {used} used, {} lost   ", found.gpu_hours_lost),
    };
    writeln!(out, "{gpu_hours}preemptions {}   evictions {}", found.preemptions, found.evictions)?;
    for broken in &found.violations {
        let objects = broken.objects.join(", ");
        writeln!(
            out,
            "VIOLATED invariant {} at {}: {} ({objects})",
            broken.invariant,
            clock(broken.t),
            broken.what
        )?;
    }
    out.flush()
}

/// Keeps nothing: a trace whose summary alone is wanted.
#[derive(Debug, Default)]
pub struct SummaryOnly<W> {
    pub out: W,
}

impl<W: io::Write> Log for SummaryOnly<W> {
    fn record(&mut self, _: &Record) -> io::Result<()> {
        Ok(())
    }

    fn end(&mut self, summary: &Summary) -> io::Result<()> {
        self::summary(&mut self.out, summary)
    }
}
