//! What the status of a Job may say, whichever controller writes it.
//!
//! Inputs: the Job and the one before. Source: the validation of Kubernetes 1.36. Most rules are looked at only when what
//! they are about changes, so that a status that breaks one can still be written.

use super::indexes;
use fleet_apiserver_ground::tree;
use fleet_apiserver_schema::error::Cause;
use fleet_apiserver_schema::field::{At, same};
use serde_json::Value;
use std::collections::BTreeSet;

/// The conditions about the end of a Job that are true.
#[derive(Clone, Copy, PartialEq)]
struct Ends {
    complete: bool,
    failed: bool,
    /// It will fail.
    target: bool,
    /// It will succeed.
    met: bool,
}

impl Ends {
    fn of(status: &At) -> Ends {
        let is = |kind: &str| says(status, kind, "True");
        Ends {
            complete: is("Complete"),
            failed: is("Failed"),
            target: is("FailureTarget"),
            met: is("SuccessCriteriaMet"),
        }
    }

    fn finished(self) -> bool {
        self.complete || self.failed
    }
}

fn says(status: &At, kind: &str, value: &str) -> bool {
    status.at("conditions").items().any(|c| c.at("type").text() == kind && c.at("status").text() == value)
}

/// A status beside the one before.
struct Change<'a, 'v, 'p> {
    now: &'a At<'v, 'p>,
    was: &'a At<'v, 'p>,
    ends: Ends,
    ended: Ends,
}

impl Change<'_, '_, '_> {
    fn number(&self, field: &str) -> i64 {
        self.now.at(field).number().unwrap_or(0)
    }

    fn before(&self, field: &str) -> i64 {
        self.was.at(field).number().unwrap_or(0)
    }

    fn differs(&self, field: &str) -> bool {
        !same(self.now.at(field).value(), self.was.at(field).value())
    }

    /// A number that is wrong; where nothing is written it is 0.
    fn wrong_number(&self, field: &str, why: &str) {
        let path = self.now.at(field).path();
        self.now.note(Cause::invalid(path, &Value::from(self.number(field)), why));
    }

    fn conditions(&self, why: &str) {
        self.now.at("conditions").wrong(why);
    }
}

/// Checks a changed status.
pub fn check(new: &At, old: &At) {
    let (now, was) = (new.at("status"), old.at("status"));
    let change = Change { now: &now, was: &was, ends: Ends::of(&now), ended: Ends::of(&was) };
    let spec = new.at("spec");
    counts(&now);
    ends(&change);
    finished(&change, &spec);
    index_texts(&change, &spec);
    exclusions(&change, &spec);
    lasting(&change, &spec);
}

fn counts(status: &At) {
    for field in ["active", "succeeded", "failed", "ready", "terminating"] {
        status.at(field).non_negative();
    }
    let uncounted = status.at("uncountedTerminatedPods");
    let mut seen = BTreeSet::new();
    for field in ["succeeded", "failed"] {
        let list = uncounted.at(field);
        for uid in list.items() {
            if uid.text().is_empty() {
                uid.invalid("must not be empty");
            } else if !seen.insert(uid.text()) {
                uid.duplicate();
            }
        }
    }
}

fn is_before(one: &str, other: &str) -> bool {
    match (one.parse::<jiff::Timestamp>(), other.parse::<jiff::Timestamp>()) {
        (Ok(one), Ok(other)) => one < other,
        _ => one < other,
    }
}

/// How conditions about the end go together, and with the times.
fn ends(change: &Change) {
    let (ends, ended) = (change.ends, change.ended);
    let (start, end) = (change.now.at("startTime"), change.now.at("completionTime"));
    let completes = ends.complete != ended.complete;
    let fails = ends.failed != ended.failed;
    if (completes || fails) && ends.complete && ends.failed {
        change.conditions("cannot set Complete=True and Failed=true conditions");
    }
    if (completes || ends.target != ended.target) && ends.complete && ends.target {
        change.conditions("cannot set Complete=True and FailureTarget=true conditions");
    }
    let timed = change.differs("completionTime");
    if (completes || timed) && end.is_set() && !ends.complete {
        end.invalid("cannot set completionTime when there is no Complete=True condition");
    }
    if (completes || timed) && !end.is_set() && ends.complete {
        end.required("completionTime is required for Complete jobs");
    }
    if (timed || change.differs("startTime"))
        && start.is_set()
        && end.is_set()
        && is_before(end.text(), start.text())
    {
        end.invalid("must be equal to or after `startTime`");
    }
    if (fails || change.differs("failedIndexes")) && ends.failed && !ends.target {
        change.conditions("cannot set Failed=True condition without the FailureTarget=true condition");
    }
    if (completes || ends.met != ended.met) && ends.complete && !ends.met {
        change.conditions("cannot set Complete=True condition without the SuccessCriteriaMet=true condition");
    }
}

/// What a Job that has ended has, and has no more.
fn finished(change: &Change, spec: &At) {
    if !change.ends.finished() {
        return;
    }
    let finishes = !change.ended.finished();
    if (finishes || change.number("active") != change.before("active")) && change.number("active") > 0 {
        change.wrong_number("active", "active>0 is invalid for finished job");
    }
    let start = change.now.at("startTime");
    let empty = spec.at("suspend").is_true() && spec.at("completions").number() == Some(0);
    if (finishes || change.differs("startTime")) && !empty && !start.is_set() {
        start.required("startTime is required for finished job");
    }
    let uncounted = change.now.at("uncountedTerminatedPods");
    let (succeeded, failed) = (uncounted.at("succeeded"), uncounted.at("failed"));
    let list = |at: &At| if at.is_empty() { "null".to_string() } else { at.value().to_string() };
    if (finishes || change.differs("uncountedTerminatedPods")) && succeeded.len() + failed.len() > 0 {
        uncounted.wrong(&format!(
            "{{\"Succeeded\":{},\"Failed\":{}}}: must be empty for finished job",
            list(&succeeded),
            list(&failed)
        ));
    }
}

/// Which indexes have succeeded or failed.
fn index_texts(change: &Change, spec: &At) {
    let (completed, failed) = (change.now.at("completedIndexes"), change.now.at("failedIndexes"));
    let completes = completed.text() != change.was.at("completedIndexes").text();
    let fails = change.differs("failedIndexes");
    let by_index = spec.at("backoffLimitPerIndex").is_set();
    let completions = spec.at("completions").number();
    if let Some(completions) = completions {
        if completes && let Err(why) = indexes::count(completed.text(), completions) {
            completed.invalid(&format!("error parsing completedIndexes: {why}"));
        }
        if fails
            && by_index
            && failed.is_set()
            && let Err(why) = indexes::count(failed.text(), completions)
        {
            failed.invalid(&format!("error parsing failedIndexes: {why}"));
        }
    }
    if completes && !completed.text().is_empty() && spec.at("completionMode").text() != "Indexed" {
        completed.invalid("cannot set non-empty completedIndexes when non-indexed completion mode");
    }
    if fails && !by_index && failed.is_set() {
        failed.invalid("cannot set non-null failedIndexes when backoffLimitPerIndex is null");
    }
    let both = completions.filter(|_| completes || fails);
    if let Some(index) = both.and_then(|most| indexes::overlap(completed.text(), failed.text(), most)) {
        failed.invalid(&format!("failedIndexes and completedIndexes overlap at index: {index}"));
    }
}

/// What cannot be said at once.
fn exclusions(change: &Change, spec: &At) {
    let ends = change.ends;
    let finishes = ends.finished() != change.ended.finished();
    let terminating = change.number("terminating");
    if (finishes || change.differs("terminating")) && ends.finished() && terminating > 0 {
        change.wrong_number("terminating", "terminating>0 is invalid for finished job");
    }
    let counted = change.differs("ready") || change.number("active") != change.before("active");
    if counted && change.now.at("ready").is_set() && change.number("ready") > change.number("active") {
        change.wrong_number("ready", "cannot set more ready pods than active");
    }
    if ends.met && ends.failed {
        change.conditions("cannot set SuccessCriteriaMet=True and Failed=true conditions");
    }
    if ends.met && ends.target {
        change.conditions("cannot set SuccessCriteriaMet=True and FailureTarget=true conditions");
    }
    if spec.at("successPolicy").is_set() && !ends.met && ends.complete {
        change
            .conditions("cannot set Complete=True for Job with SuccessPolicy unless SuccessCriteriaMet=True");
    }
}

/// What stays once it was said.
fn lasting(change: &Change, spec: &At) {
    let (ends, ended) = (change.ends, change.ended);
    for (kind, was, is) in [
        ("Failed", ended.failed, ends.failed),
        ("Complete", ended.complete, ends.complete),
        ("FailureTarget", ended.target, ends.target),
    ] {
        if was && !is {
            change.conditions(&format!("cannot disable the terminal {kind}=True condition"));
        }
    }
    if change.number("failed") < change.before("failed") {
        change.wrong_number("failed", "cannot decrease the failed counter");
    }
    // One that grows and shrinks with its pods may lose completions.
    let elastic = spec.at("completionMode").text() == "Indexed"
        && spec.at("completions").value() == spec.at("parallelism").value();
    if !elastic && change.number("succeeded") < change.before("succeeded") {
        change.wrong_number("succeeded", "cannot decrease the succeeded counter");
    }
    let end = change.now.at("completionTime");
    if end.is_set() && change.was.at("completionTime").is_set() && change.differs("completionTime") {
        end.invalid("field is immutable");
    }
    let start = change.now.at("startTime");
    // The spec says that it goes on before the status does.
    let resumes = says(change.was, "Suspended", "True") && says(change.now, "Suspended", "False");
    if change.was.at("startTime").is_set()
        && change.differs("startTime")
        && !resumes
        && !spec.at("suspend").is_true()
    {
        start.invalid("field is immutable for unsuspended job once set");
    }
    if ended.met && !ends.met {
        change.conditions("cannot disable the SuccessCriteriaMet=True condition");
    }
    if ended.complete && !ended.met && ends.met {
        change.conditions("cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions");
    }
}

/// True when a Job has been held back: its status says so, or it has never started, and none of its pods runs.
pub fn is_held_back(job: &Value) -> bool {
    let suspended = tree::list(job, &["status", "conditions"])
        .iter()
        .any(|c| tree::text(c, &["type"]) == "Suspended" && tree::text(c, &["status"]) == "True");
    let started = tree::at(job, &["status", "startTime"]).is_some_and(|time| !time.is_null());
    tree::at(job, &["spec", "suspend"]) == Some(&Value::Bool(true))
        && (!started || suspended)
        && tree::number(job, &["status", "active"]) == 0
}
