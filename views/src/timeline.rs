//! The life of a job as spans of waiting, starting and running, one row for each run.

use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    job::{Job, State},
    known::Known,
    sight::Sight,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub enum SpanKind {
    Waiting,
    /// Bound, and not yet reported as running.
    Starting,
    Running,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Span {
    pub kind: SpanKind,
    pub from_s: i64,
    pub to_s: i64,
    /// Thousandths of the whole line.
    pub from: i64,
    pub length: i64,
    /// Empty while it waits.
    pub cluster: String,
    /// 0 while it waits.
    pub epoch: i64,
    /// Why it ended, or why it waits.
    pub reason: String,
    pub message: String,
    pub is_open: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Timeline {
    pub from_s: i64,
    pub to_s: i64,
    pub spans: Vec<Span>,
}

/// From its creation to its end, or to now.
pub fn timeline(known: &Known, sight: &Sight, job: &Job, now_s: i64) -> Timeline {
    let binding = &job.binding;
    let from_s = binding.created_s;
    let to_s = binding.end.as_ref().map_or(now_s, |end| end.at_s).max(from_s + 1);
    let mut line = Timeline { from_s, to_s, spans: Vec::new() };
    let mut at = from_s;
    let mut attempts: Vec<_> = binding.attempts.iter().collect();
    attempts.sort_by_key(|attempt| (attempt.ended_s, attempt.epoch));
    for attempt in attempts {
        let started = attempt.started_s.unwrap_or(attempt.ended_s).clamp(at, attempt.ended_s.max(at));
        line.push(SpanKind::Waiting, (at, started), ("", 0), ("", ""));
        let kind = if attempt.started_s.is_some() { SpanKind::Running } else { SpanKind::Starting };
        let ended = attempt.ended_s.max(started);
        line.push(
            kind,
            (started, ended),
            (&attempt.cluster, attempt.epoch),
            (&attempt.reason, &attempt.message),
        );
        at = ended;
    }
    let state = job.state();
    let (reason, message) = known.said(sight, job);
    let (reason, message) = (reason.as_str(), message.as_str());
    let of = (job.cluster(), binding.epoch);
    // An end directly after the last attempt is not a run.
    let run = binding.run.as_ref().filter(|run| run.epoch_is_open(job));
    match (state, run) {
        (State::Waiting, _) => line.push(SpanKind::Waiting, (at, to_s), ("", 0), (reason, message)),
        (_, Some(run)) => {
            let since = run.since_s.clamp(at, to_s);
            let started = run.started_s.map(|started| started.clamp(since, to_s));
            line.push(SpanKind::Waiting, (at, since), ("", 0), ("", ""));
            line.push(SpanKind::Starting, (since, started.unwrap_or(to_s)), of, ("", ""));
            if let Some(started) = started {
                line.push(SpanKind::Running, (started, to_s), of, (reason, message));
            }
        }
        (State::Stopped, None) => line.push(SpanKind::Waiting, (at, to_s), ("", 0), (reason, message)),
        (_, None) => line.push(SpanKind::Running, (at, to_s), of, (reason, message)),
    }
    if !state.is_final()
        && let Some(last) = line.spans.last_mut()
    {
        last.is_open = true;
    }
    line
}

impl crate::facts::RunFacts {
    /// The run of an epoch is still recorded after its end; nothing before the end of the last attempt is
    /// open.
    fn epoch_is_open(&self, job: &Job) -> bool {
        let last = job.binding.attempts.iter().map(|attempt| attempt.ended_s).max();
        last.is_none_or(|last| self.since_s >= last)
    }
}

impl Timeline {
    fn push(&mut self, kind: SpanKind, (from_s, to_s): (i64, i64), of: (&str, i64), said: (&str, &str)) {
        // A wait without duration is left out; a run without duration is kept.
        if to_s <= from_s && kind == SpanKind::Waiting && said.0.is_empty() {
            return;
        }
        if to_s <= from_s && kind == SpanKind::Starting && said.0.is_empty() {
            return;
        }
        let whole = i128::from(self.to_s - self.from_s);
        let part = |at: i64| (i128::from(at - self.from_s) * 1000 / whole) as i64;
        self.spans.push(Span {
            kind,
            from_s,
            to_s,
            from: part(from_s),
            length: part(to_s) - part(from_s),
            cluster: of.0.to_owned(),
            epoch: of.1,
            reason: said.0.to_owned(),
            message: said.1.to_owned(),
            is_open: false,
        });
    }
}
