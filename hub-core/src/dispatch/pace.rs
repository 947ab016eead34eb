//! How soon a status is written.
//!
//! What is final, or begins a wait that a restart may not forget, is written at once. Everything else waits for a
//! moment, so that what comes next overtakes it. Nothing that is written is false: it is only late.
//! Deliberately absent: the clock, which is the process's.

use serde_json::Value;

use super::{Step, report::Item};
use crate::writes::{Target, Verb, Write};

/// How soon, soonest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pace {
    Now,
    /// How a run fares. At once, unless much else is written.
    Progress,
    /// Why a job waits.
    Reason,
    /// A state between two others: placed, and nothing heard of the run yet.
    Between,
}

/// Conditions of a binding that only follow what happens.
const ROUTINE: [&str; 3] = ["Scheduled", "Queuing", "FullyApplied"];
/// Fields of `status.run` that only follow what happens.
const ROUTINE_OF_RUN: [&str; 3] = ["epoch", "since", "startedAt"];

/// The pace at which a bound job's statuses are written.
pub(super) fn of_bound(known: &Value, desired: &Value, items: &[Item], planned: &[Write]) -> Pace {
    // What is told in an event as well is told once: with the status that remembers it.
    let is_told = planned.iter().any(|write| write.target == Target::Event);
    if is_told || but_routine(known) != but_routine(desired) {
        return Pace::Now;
    }
    if items.iter().any(|item| item.status.is_some()) { Pace::Progress } else { Pace::Between }
}

/// What of a binding's status may not wait.
fn but_routine(status: &Value) -> Value {
    let mut rest = status.clone();
    let Some(fields) = rest.as_object_mut() else { return rest };
    fields.remove("aggregatedStatus");
    if let Some(conditions) = fields.get_mut("conditions").and_then(Value::as_array_mut) {
        let is_routine = |condition: &Value| {
            let failed = condition["type"] == "FullyApplied" && condition["status"] == "False";
            ROUTINE.iter().any(|kind| condition["type"] == *kind) && !failed
        };
        conditions.retain(|condition| !is_routine(condition));
        if conditions.is_empty() {
            fields.remove("conditions");
        }
    }
    if let Some(run) = fields.get_mut("run").and_then(Value::as_object_mut) {
        run.retain(|field, value| !value.is_null() && !ROUTINE_OF_RUN.contains(&field.as_str()));
        if run.is_empty() {
            fields.remove("run");
        }
    }
    rest
}

impl Step {
    /// Writes `told` at that pace. What has to stand before anything can be said of it is made at once.
    pub(super) fn tell(&mut self, pace: Pace, told: Vec<Write>) {
        for write in told {
            let makes = pace == Pace::Between && matches!(write.verb, Verb::Create(_));
            match pace {
                Pace::Now => self.writes.push(write),
                _ if makes => self.writes.push(write),
                pace => self.later.push((pace, write)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(known: Value, desired: Value, planned: &[Write], expected: Pace) {
        assert_eq!(of_bound(&known, &desired, &[], planned), expected, "{desired}");
    }

    fn condition(kind: &str, status: &str) -> Value {
        json!({"type": kind, "status": status})
    }

    #[test]
    fn only_what_follows_what_happens_waits() {
        let waits = json!({"conditions": [condition("Scheduled", "False"), condition("Queuing", "True")]});
        let bound = json!({"run": {"epoch": 1, "since": "t", "startedAt": null},
            "conditions": [condition("Scheduled", "True"), condition("Queuing", "False"), condition("FullyApplied", "True")]});
        check(waits.clone(), bound.clone(), &[], Pace::Between);
        let with = |field: &str, value: Value| {
            let mut status = bound.clone();
            status[field] = value;
            status
        };
        check(bound.clone(), with("aggregatedStatus", json!([{"clusterName": "east"}])), &[], Pace::Between);
        check(bound.clone(), with("unhealthySince", json!("t")), &[], Pace::Now);
        check(with("unhealthySince", json!("t")), bound.clone(), &[], Pace::Now);
        check(bound.clone(), with("result", json!({})), &[], Pace::Now);
        check(bound.clone(), with("attempts", json!([{}])), &[], Pace::Now);
        check(
            bound.clone(),
            with("run", json!({"epoch": 1, "since": "t", "lostSince": "t"})),
            &[],
            Pace::Now,
        );
        check(waits.clone(), json!({"conditions": [condition("FullyApplied", "False")]}), &[], Pace::Now);
        check(waits.clone(), json!({"conditions": [condition("EditPending", "True")]}), &[], Pace::Now);
        let event = Write::new(Target::Event, "team", "e", Verb::Create(json!({})));
        check(waits, bound.clone(), &[event], Pace::Now);
    }

    #[test]
    fn what_is_to_be_made_is_made_at_once() {
        let unit = || Write::new(Target::Unit, "team", "u", Verb::Create(json!({})));
        let status = || Write::new(Target::Unit, "team", "u", Verb::MergeStatus(json!({})));
        let check = |pace: Pace, now: usize, later: usize| {
            let mut step = Step::default();
            step.tell(pace, vec![unit(), status()]);
            assert_eq!((step.writes.len(), step.later.len()), (now, later), "{pace:?}");
        };
        check(Pace::Now, 2, 0);
        check(Pace::Between, 1, 1);
        // A job that is placed before it had to wait needs none yet.
        check(Pace::Reason, 0, 2);
    }
}
