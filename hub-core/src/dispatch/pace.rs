//! How soon a status is written.
//!
//! Final results, and the start of a wait that a restart must not forget, are written at once. Other statuses
//! are delayed for a moment, so that the next one can replace them. A delayed status is never wrong, only
//! late. Deliberately absent: the clock, which belongs to the process.

use serde_json::Value;

use super::{report::Item, step::Pace};
use crate::writes::{Target, Write};

/// Conditions of a binding that only follow events.
const ROUTINE: [&str; 3] = ["Scheduled", "Queuing", "FullyApplied"];
/// Fields of `status.run` that only follow events.
const ROUTINE_OF_RUN: [&str; 3] = ["epoch", "since", "startedAt"];

/// The pace of a bound job's statuses.
pub(super) fn of_bound(known: &Value, desired: &Value, items: &[Item], planned: &[Write]) -> Pace {
    // A status with an event is written at once, because it records that the event was reported.
    let is_told = planned.iter().any(|write| write.target == Target::Event);
    if is_told || but_routine(known) != but_routine(desired) {
        return Pace::Now;
    }
    if items.iter().any(|item| item.status.is_some()) { Pace::Progress } else { Pace::Between }
}

/// The parts of a binding's status that must not be delayed.
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

#[cfg(test)]
mod tests;
