//! The declared run time of a job. On its word a job may pass one that has a claim, so a run gets no more than was declared
//! when it was admitted, neither by an edit nor by an override. What its member got ends it; the hub does, if its job was suspended.

use fleet_policies::workload::{declared_deadline_s, declared_run_time_ms, is_suspended, limit_run_time};
use serde_json::Value;

use crate::{binding::BindingEntry, world::Object};

/// That of a job that waits, or of its present run, in milliseconds. `running`: the object as the run has it, if it was sent.
pub fn of_job(entry: &BindingEntry, object: Option<&Object>, running: Option<&Value>) -> Option<i64> {
    let asked = object.and_then(|object| declared_run_time_ms(entry.workload, &object.value));
    if !entry.is_bound() || !entry.is_gang() {
        return asked;
    }
    match running {
        Some(running) if is_suspended(entry.workload, running) => admitted_ms(entry),
        Some(running) => declared_run_time_ms(entry.workload, running),
        None => least(admitted_s(entry).map(|seconds| seconds.saturating_mul(1000)), asked),
    }
}

/// Limits the run time in what is sent. `running`: the object as the run has it, if it was sent. Returns what an override asks
/// for in vain.
pub fn limit(
    entry: &BindingEntry,
    object: &Object,
    running: Option<&Value>,
    governed: &mut Value,
) -> Option<String> {
    let kind = entry.workload;
    let sent = running.and_then(|running| declared_deadline_s(kind, running));
    // Runs that an earlier release has sent keep what an override gave them.
    let most = declared_deadline_s(kind, &object.value).map(|own| own.max(sent.unwrap_or(own)));
    let told = most.and_then(|most| {
        let found = limit_run_time(kind, governed, most)?;
        Some(format!("{found}, as an override asks; allowed: at most the {most} that the job declares"))
    });
    // An edit since the run was admitted; once it is sent, the edit is seen to wait for the next run.
    if let (None, Some(most)) = (running, admitted_s(entry)) {
        limit_run_time(kind, governed, most);
    }
    told
}

/// How long its queue has admitted the present run for, in milliseconds.
pub fn admitted_ms(entry: &BindingEntry) -> Option<i64> {
    let seconds = admitted_s(entry).filter(|_| entry.has_left_queue() && entry.is_gang());
    seconds.map(|seconds| seconds.saturating_mul(1000))
}

fn admitted_s(entry: &BindingEntry) -> Option<i64> {
    entry.object.spec.admitted.as_ref().filter(|_| entry.is_bound())?.run_time_seconds
}

fn least(a: Option<i64>, b: Option<i64>) -> Option<i64> {
    a.into_iter().chain(b).min()
}
