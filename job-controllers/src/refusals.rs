//! Pods that the API server refuses: an event on the job and a reason in its status, in the server's words, until the
//! pods are created. Without them a job would wait for ever and say nothing.
//!
//! One event for each job, with a count. A refusal is retried like any failure, since what it depends on may change: a
//! priority class, a quota, the spec.

use fleet_agent_ground::{CallError, Object, requests as writes};
use jiff::Timestamp;
use kube::discovery::ApiResource;
use serde_json::{Value, json};

use crate::{
    driver::Driver,
    events::{self, LONGEST_MESSAGE, Warning},
    kinds::Role,
    plan::JobPlan,
    state::Snapshot,
};

/// Reason of the event and of the status, as Kubernetes' own controllers give it.
const FAILED_CREATE: &str = "FailedCreate";
/// Begins the message of a job that is too large, which no server refuses.
const TOO_LARGE: &str = "Not creating pods: ";

impl Driver {
    /// Tells the refusal; any other failure is only retried.
    pub(crate) async fn tell_refusal(&self, snapshot: &Snapshot, error: &CallError) -> Result<(), CallError> {
        let Some(message) = refusal(error) else { return Ok(()) };
        let job = &snapshot.job.object;
        self.tell_event(job, self.resource_of(snapshot), &message).await?;
        self.write_refusal(snapshot, Some(&message)).await
    }

    /// Tells that the job is too large for this controller, or is no longer. Returns whether its status was written.
    pub(crate) async fn tell_limit(&self, snapshot: &Snapshot, plan: &JobPlan) -> Result<bool, CallError> {
        let job = &snapshot.job.object;
        let told = failure_message(self.kinds[snapshot.job.kind].role, &job.status);
        if let Some(why) = &plan.refused {
            let message = format!("{TOO_LARGE}{why}");
            if told == Some(message.as_str()) {
                return Ok(false);
            }
            self.tell_event(job, self.resource_of(snapshot), &message).await?;
            self.write_refusal(snapshot, Some(&message)).await?;
            return Ok(true);
        }
        let is_over = told.is_some_and(|told| told.starts_with(TOO_LARGE)) && !self.must_stand_still(job);
        if is_over {
            self.end_refusal(snapshot).await?;
        }
        Ok(is_over)
    }

    /// Pods were created: the job's status no longer says that they are refused.
    pub(crate) async fn end_refusal(&self, snapshot: &Snapshot) -> Result<(), CallError> {
        self.write_refusal(snapshot, None).await
    }

    async fn write_refusal(&self, snapshot: &Snapshot, message: Option<&str>) -> Result<(), CallError> {
        let job = &snapshot.job.object;
        let role = self.kinds[snapshot.job.kind].role;
        let Some(change) = change(role, &job.status, message, self.now()) else { return Ok(()) };
        let (patch, resource) = (json!({"status": change}), self.resource_of(snapshot));
        match writes::patch(&self.client, resource, job, Some("status"), &patch).await {
            Err(error) if error.is_not_found() => Ok(()),
            Err(error) => Err(error),
            Ok(answer) => {
                self.state().put_job(snapshot.job.kind, std::sync::Arc::new(answer), false);
                Ok(())
            }
        }
    }

    async fn tell_event(&self, job: &Object, kind: &ApiResource, message: &str) -> Result<(), CallError> {
        let warning = Warning { reason: FAILED_CREATE, message, at: self.now() };
        events::warn(&self.client, job, kind, &warning).await
    }
}

/// The server's words, if it refused the object itself.
fn refusal(error: &CallError) -> Option<String> {
    let CallError::Api(kube::Error::Api(status)) = error else { return None };
    matches!(status.code, 400 | 403 | 404 | 422).then(|| {
        let words: String = status.message.chars().take(LONGEST_MESSAGE).collect();
        format!("Error creating: {words}")
    })
}

/// As a ReplicaSet names it; other kinds have no name for it.
fn condition_of(role: Role) -> &'static str {
    if role == Role::ReplicaSet { "ReplicaFailure" } else { FAILED_CREATE }
}

/// What the job's status says of pods that are not created. A Volcano Job that is too large says so by itself.
fn failure_message(role: Role, status: &Value) -> Option<&str> {
    let all = status["conditions"].as_array().into_iter().flatten();
    let condition = all.filter(|_| role != Role::Volcano).find(|one| one["type"] == condition_of(role))?;
    condition["message"].as_str()
}

/// The change of a job's status, if there is one.
fn change(role: Role, status: &Value, message: Option<&str>, now: Timestamp) -> Option<Value> {
    if role == Role::Volcano {
        let state = &status["state"];
        let wanted = message.map_or(Value::Null, |_| FAILED_CREATE.into());
        let known = state["reason"] == FAILED_CREATE;
        let same = if message.is_some() { state["message"].as_str() == message } else { true };
        return (known != message.is_some() || !same)
            .then(|| json!({"state": {"reason": wanted, "message": message}}));
    }
    let kind = condition_of(role);
    let known = status["conditions"].as_array().cloned().unwrap_or_default();
    let old = known.iter().find(|condition| condition["type"] == kind);
    if old.map(|old| old["message"].as_str()) == message.map(Some) {
        return None;
    }
    let mut conditions: Vec<Value> = known.iter().filter(|c| c["type"] != kind).cloned().collect();
    if let Some(message) = message {
        let now = format!("{now:.0}");
        let since = old.map_or(json!(now), |old| old["lastTransitionTime"].clone());
        let told = json!({"type": kind, "status": "True", "reason": FAILED_CREATE, "message": message,
            "lastTransitionTime": since});
        // The last condition of a job is its state.
        conditions.insert(0, told);
    }
    Some(json!({"conditions": conditions}))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_told_once_and_taken_back() {
        let now = Timestamp::UNIX_EPOCH;
        let running = json!({"conditions": [{"type": "Created", "status": "True"}]});
        let told = change(Role::Batch, &running, Some("no"), now).expect("a change");
        let types = |status: &Value| {
            status["conditions"].as_array().unwrap().iter().map(|c| c["type"].clone()).collect::<Vec<_>>()
        };
        assert_eq!(types(&told), ["FailedCreate", "Created"]);
        assert_eq!(change(Role::Batch, &told, Some("no"), now), None);
        let other = change(Role::Batch, &told, Some("other"), now).expect("other words");
        assert_eq!(types(&other), ["FailedCreate", "Created"]);
        assert_eq!(change(Role::Batch, &told, None, now), Some(running.clone()));
        assert_eq!(change(Role::Batch, &running, None, now), None);

        let pending = json!({"state": {"phase": "Pending"}});
        let told = change(Role::Volcano, &pending, Some("no"), now).expect("a change");
        assert_eq!(told, json!({"state": {"reason": "FailedCreate", "message": "no"}}));
        assert_eq!(change(Role::Volcano, &told, Some("no"), now), None);
        assert_eq!(
            change(Role::Volcano, &told, None, now),
            Some(json!({"state": {"reason": null, "message": null}}))
        );
        assert_eq!(change(Role::Volcano, &pending, None, now), None);
    }
}
