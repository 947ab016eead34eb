//! Each job as a line over time: where it waited and where it ran.

use std::{
    collections::{BTreeMap, HashMap},
    io,
    sync::Arc,
};

use super::record::{Ending, Record, What, clock};

/// Columns of the time axis.
const WIDTH: usize = 64;
/// Jobs drawn; a chart of more is a wall.
const JOBS_DRAWN: usize = 40;

#[derive(Clone, Debug)]
enum Mark {
    Waits,
    Runs(Arc<str>),
    Over(char),
}

/// Collects what the chart draws.
#[derive(Debug, Default)]
pub(super) struct Chart {
    order: Vec<Arc<str>>,
    lives: HashMap<Arc<str>, Vec<(i64, Mark)>>,
    clusters: BTreeMap<Arc<str>, char>,
    end_ms: i64,
}

impl Chart {
    pub fn record(&mut self, record: &Record) {
        self.end_ms = self.end_ms.max(record.at_ms);
        if matches!(record.what, What::Submitted { .. }) && !self.lives.contains_key(&record.job) {
            self.order.push(Arc::clone(&record.job));
        }
        if self.order.len() > JOBS_DRAWN {
            return;
        }
        let mark = match &record.what {
            What::Submitted { .. } | What::Preempted { .. } | What::Evicted { .. } | What::Fenced { .. } => {
                Mark::Waits
            }
            What::Started { cluster, .. } => {
                let next = self.letter(cluster);
                self.clusters.entry(Arc::clone(cluster)).or_insert(next);
                Mark::Runs(Arc::clone(cluster))
            }
            What::Finished { result: Ending::Succeeded, .. } => Mark::Over('+'),
            What::Finished { .. } => Mark::Over('x'),
            What::Rejected { .. } | What::Deleted {} => Mark::Over('-'),
            _ => return,
        };
        self.lives.entry(Arc::clone(&record.job)).or_default().push((record.at_ms, mark));
    }

    /// A letter of the cluster's name that no other has.
    fn letter(&self, cluster: &str) -> char {
        let taken: Vec<char> = self.clusters.values().copied().collect();
        let own = cluster.chars().chain('a'..='z').map(|c| c.to_ascii_uppercase());
        own.filter(char::is_ascii_alphabetic).find(|letter| !taken.contains(letter)).unwrap_or('#')
    }

    pub fn draw(&self, out: &mut dyn io::Write) -> io::Result<()> {
        if self.order.is_empty() || self.order.len() > JOBS_DRAWN || self.end_ms == 0 {
            return Ok(());
        }
        let name_width = self.order.iter().map(|job| job.len()).max().unwrap_or(0).max(4);
        writeln!(out, "\n{:name_width$}  {}", "", axis(self.end_ms))?;
        for job in &self.order {
            writeln!(out, "{job:name_width$}  {}", self.line(job))?;
        }
        let legend: Vec<String> =
            self.clusters.iter().map(|(name, letter)| format!("{letter} runs on {name}")).collect();
        writeln!(
            out,
            "{:name_width$}  . waits   {}   + succeeded   x failed   - gone",
            "",
            legend.join("   ")
        )
    }

    fn line(&self, job: &str) -> String {
        let Some(life) = self.lives.get(job) else { return String::new() };
        let column = |at_ms: i64| {
            let at = i128::from(at_ms) * (WIDTH as i128 - 1) / i128::from(self.end_ms.max(1));
            usize::try_from(at).unwrap_or(0)
        };
        let mut line = vec![' '; WIDTH];
        for (i, (from_ms, mark)) in life.iter().enumerate() {
            let from = column(*from_ms);
            let to = life.get(i + 1).map_or(WIDTH - 1, |(next, _)| column(*next));
            match mark {
                Mark::Over(sign) => line[from] = *sign,
                Mark::Waits => line[from..=to].fill('.'),
                Mark::Runs(cluster) => {
                    line[from..=to].fill(self.clusters.get(cluster).copied().unwrap_or('#'));
                }
            }
        }
        line.into_iter().collect::<String>().trim_end().to_string()
    }
}

/// Times at the quarters of the axis.
fn axis(end_ms: i64) -> String {
    let mut line = String::new();
    for quarter in 0..=4_i64 {
        let label = clock(end_ms * quarter / 4);
        let at = (WIDTH - 1) * quarter as usize / 4;
        let at = if quarter == 4 { at.saturating_sub(label.len() - 1) } else { at };
        while line.len() < at {
            line.push(' ');
        }
        if line.len() == at {
            line.push_str(&label);
        }
    }
    line
}
