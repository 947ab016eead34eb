//! A whole log, and the fleet at any time of it.
//!
//! The state is saved every so many lines, so that a seek reads few lines again. The number of jobs in saved
//! states is bounded: with many jobs there are fewer checkpoints.

use std::sync::Arc;

use super::{
    line::{Clock, Line, LineError, Parsed},
    replay::Replay,
};
use crate::known::Known;

/// Most lines of a log; a longer log ends there, with an error.
const MOST_LINES: usize = 1_000_000;
/// Lines between two checkpoints at first.
const STEP: usize = 512;
/// Most jobs in all checkpoints together; above it, every other checkpoint is dropped.
const MOST_KEPT: usize = 50_000;
/// Checkpoints that are kept regardless of the number of jobs.
const FEWEST: usize = 3;
/// Most sentences about one time.
const MOST_STORIES: usize = 5;

/// A log and its state after all lines.
#[derive(Debug, Default)]
pub struct Recording {
    lines: Vec<Line>,
    /// By number of lines read.
    checkpoints: Vec<(usize, Replay)>,
    step: usize,
    /// After all lines.
    tip: Replay,
    /// The last position that was asked for.
    last: Option<(usize, Replay)>,
    /// Lines of text, including those that are not events.
    read: usize,
    violations: Vec<String>,
    is_over: bool,
}

/// A time in a log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Around {
    pub at_ms: i64,
    pub begin_ms: i64,
    pub end_ms: i64,
    /// Lines up to this time, and all lines.
    pub number: usize,
    pub of: usize,
    /// Times of the last line before, and of the first line after.
    pub earlier_ms: Option<i64>,
    pub later_ms: Option<i64>,
    /// The last events up to this time, all at the same time.
    pub stories: Vec<String>,
    /// How many more there are.
    pub more: usize,
    /// Their time.
    pub last_ms: i64,
}

impl Recording {
    /// Reads the next line of text.
    ///
    /// # Errors
    /// It is not a line of a log; the recording continues without it.
    pub fn push(&mut self, text: &str) -> Result<(), LineError> {
        self.read += 1;
        if text.trim().is_empty() {
            return Ok(());
        }
        let number = self.read;
        if self.is_over {
            return Err(LineError::new(number, "a line after the summary"));
        }
        if self.lines.len() >= MOST_LINES {
            let allowed = format!("{MOST_LINES} lines; the recording ends before this one");
            return Err(LineError { line: number, found: "more lines".to_owned(), allowed });
        }
        match Line::parse(number, text)? {
            Parsed::Summary { violations } => {
                self.violations = violations;
                self.is_over = true;
            }
            Parsed::Line(line) => {
                if let Some(last) = self.lines.last().filter(|last| last.at_ms > line.at_ms) {
                    let (t, before) = (line.at_ms as f64 / 1000.0, last.at_ms as f64 / 1000.0);
                    return Err(LineError::new(number, format!("t {t} after {before}")));
                }
                self.add(line);
            }
        }
        Ok(())
    }

    fn add(&mut self, line: Line) {
        self.tip.take(&line);
        self.lines.push(line);
        self.step = self.step.max(STEP);
        let since = self.lines.len() - self.checkpoints.last().map_or(0, |(lines, _)| *lines);
        if since < self.step {
            return;
        }
        self.checkpoints.push((self.lines.len(), self.tip.clone()));
        let kept: usize = self.checkpoints.iter().map(|(_, replay)| replay.known().jobs().len()).sum();
        if kept > MOST_KEPT && self.checkpoints.len() > FEWEST {
            let mut index = 0;
            // The newest is always kept.
            let odd = self.checkpoints.len() % 2;
            self.checkpoints.retain(|_| {
                index += 1;
                index % 2 == odd
            });
            self.step *= 2;
        }
    }

    /// Lines of text that were read.
    pub fn read(&self) -> usize {
        self.read
    }

    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    pub fn clock(&self) -> Clock {
        self.tip.clock()
    }

    /// Of a simulated run: the violations that its checker found.
    pub fn violations(&self) -> &[String] {
        &self.violations
    }

    /// Namespaces of jobs that the log names at its end.
    pub fn namespaces(&self) -> impl Iterator<Item = &String> {
        self.tip.known().counts().keys()
    }

    pub fn begin_ms(&self) -> i64 {
        self.lines.first().map_or(0, |line| line.at_ms)
    }

    pub fn end_ms(&self) -> i64 {
        self.lines.last().map_or(0, |line| line.at_ms)
    }

    /// Number of lines up to a time: events of the same time are seen together.
    pub fn number_at(&self, at_ms: i64) -> usize {
        self.lines.partition_point(|line| line.at_ms <= at_ms)
    }

    pub fn around(&self, at_ms: i64) -> Around {
        let at_ms = at_ms.clamp(self.begin_ms(), self.end_ms());
        let number = self.number_at(at_ms);
        let last = number.checked_sub(1).and_then(|index| self.lines.get(index));
        let last_ms = last.map_or(at_ms, |line| line.at_ms);
        let first_of_last = self.lines.partition_point(|line| line.at_ms < last_ms);
        // Between two lines the earlier one is that before; at a line, the one before that.
        let earlier = if last_ms < at_ms { number } else { first_of_last };
        let earlier = earlier.checked_sub(1).and_then(|index| self.lines.get(index));
        let same = &self.lines[first_of_last..number];
        Around {
            at_ms,
            begin_ms: self.begin_ms(),
            end_ms: self.end_ms(),
            number,
            of: self.lines.len(),
            earlier_ms: earlier.map(|line| line.at_ms),
            later_ms: self.lines.get(number).map(|line| line.at_ms),
            stories: same.iter().rev().take(MOST_STORIES).rev().map(super::story).collect(),
            more: same.len().saturating_sub(MOST_STORIES),
            last_ms,
        }
    }

    /// The fleet after so many lines, and whether the log contains its clusters and quota.
    pub fn after(&mut self, number: usize) -> (Arc<Known>, Coverage) {
        let number = number.min(self.lines.len());
        let kept = self.checkpoints.partition_point(|(lines, _)| *lines <= number).checked_sub(1);
        let kept = kept.and_then(|index| self.checkpoints.get(index));
        let near = kept.map_or(0, |(lines, _)| *lines);
        let (from, mut replay) = match self.last.take().filter(|(from, _)| (near..=number).contains(from)) {
            Some(last) => last,
            None => kept.cloned().unwrap_or_default(),
        };
        for line in &self.lines[from..number] {
            replay.take(line);
        }
        let shown = Arc::new(replay.shown());
        let coverage = Coverage { all: replay.is_told(), left_out: replay.left_out() };
        self.last = Some((number, replay));
        (shown, coverage)
    }
}

#[cfg(test)]
impl Recording {
    /// Checkpoints, and jobs in them.
    pub(super) fn kept(&self) -> (usize, usize) {
        let jobs = self.checkpoints.iter().map(|(_, replay)| replay.known().jobs().len());
        (self.checkpoints.len(), jobs.sum())
    }

    /// Most lines between two checkpoints.
    pub(super) fn longest_way(&self) -> usize {
        let numbers: Vec<usize> = self.checkpoints.iter().map(|(number, _)| *number).collect();
        let ends = numbers.iter().copied().chain([self.lines.len()]);
        let starts = [0].into_iter().chain(numbers.iter().copied());
        ends.zip(starts).map(|(end, start)| end - start).max().unwrap_or(0)
    }
}

/// How much of the fleet the log contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Coverage {
    /// The log contains the clusters and the quota tree.
    pub all: bool,
    pub left_out: usize,
}
