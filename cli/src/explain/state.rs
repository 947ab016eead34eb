//! The state of a job as the portal's pages name it, and why it is in it.

use fleet_api::QueueUnit;
use fleet_hub_core::{binding::BindingEntry, facts};
use fleet_portal::explain::{is_suspended, member_says};
use fleet_views::Job;
use jiff::Timestamp;

/// State of a job without a cluster.
pub(super) const WAITS: &str = "waits";

/// The job as views see it; `None` of objects without pods.
fn job(entry: &BindingEntry, unit: Option<&QueueUnit>) -> Option<Job> {
    let id = (entry.namespace().to_string(), entry.name().to_string());
    let unit = unit.map(|unit| facts::unit(unit.clone()).1);
    Some(Job { id, binding: facts::entry(entry)?, unit })
}

/// Where the job is, how it ended, or that it waits.
pub(super) fn state(entry: &BindingEntry, unit: Option<&QueueUnit>) -> String {
    let spec = &entry.object.spec;
    let status = entry.object.status.as_ref();
    let state = job(entry, unit).map(|job| job.state());
    if let Some(result) = status.and_then(|status| status.result.as_ref()) {
        let outcome = match state {
            Some(state) => state.as_str(),
            None => result.outcome.as_str(),
        };
        return match (result.cluster.as_str(), status.is_some_and(|status| status.attempts.is_empty())) {
            ("", true) => format!("{outcome}, never started"),
            ("", false) => format!("{outcome} while it waited"),
            (cluster, _) => format!("{outcome} in {cluster}"),
        };
    }
    match spec.clusters.first() {
        Some(_) if !entry.is_gang() => {
            let each = spec.clusters.iter().map(|target| match entry.gang.components.is_empty() {
                true => target.name.clone(),
                false => format!("{} ({})", target.name, target.replicas),
            });
            format!("in {}", each.collect::<Vec<_>>().join(", "))
        }
        Some(target) => {
            let word = match state {
                _ if is_suspended(entry) => "Suspended",
                Some(state) => state.as_str(),
                None => "Bound",
            };
            format!("{word} in {} (run {})", target.name, spec.epoch)
        }
        None => WAITS.to_string(),
    }
}

/// Since when a job waits: the end of its last run, or else its creation.
pub(super) fn waits_since(entry: &BindingEntry, unit: Option<&QueueUnit>) -> Option<String> {
    let attempts = entry.object.status.iter().flat_map(|status| &status.attempts);
    let ended = attempts.filter_map(|attempt| attempt.ended_at.parse::<Timestamp>().ok()).max();
    let metadata = unit.map_or(&entry.object.metadata, |unit| &unit.metadata);
    let created = || metadata.creation_timestamp.as_ref().map(|time| time.0.to_string());
    ended.map(|at| at.to_string()).or_else(created)
}

/// Why a job is in its state.
pub(super) struct Why {
    pub reason: String,
    pub message: String,
    pub since: Option<String>,
}

/// Why it ended, what its member says, or why it waits; `None` if there is nothing to say.
pub(super) fn why(entry: &BindingEntry, unit: Option<&QueueUnit>) -> Option<Why> {
    let status = entry.object.status.as_ref()?;
    if let Some(result) = &status.result {
        return Some(Why {
            reason: result.reason.clone()?,
            message: result.message.clone().unwrap_or_default(),
            since: Some(result.recorded_at.clone()),
        });
    }
    if entry.is_bound() {
        if let Some(said) = member_says(entry) {
            return Some(Why { reason: said.reason, message: said.message, since: said.since });
        }
        let job = job(entry, unit)?;
        let lost = status.run.as_ref().and_then(|run| run.lost_since.clone());
        let (reason, message) = job.said();
        return (!reason.is_empty()).then(|| Why {
            reason: reason.to_string(),
            message: message.to_string(),
            since: lost,
        });
    }
    let scheduled = status.conditions.iter().find(|condition| condition.type_ == "Scheduled")?;
    let unit = unit.and_then(|unit| unit.status.clone()).unwrap_or_default();
    let since = unit.last_update_time.unwrap_or_else(|| scheduled.last_transition_time.0.to_string());
    Some(Why {
        reason: unit.reason.unwrap_or(scheduled.reason.clone()),
        message: unit.message.unwrap_or(scheduled.message.clone()),
        since: Some(since),
    })
}
