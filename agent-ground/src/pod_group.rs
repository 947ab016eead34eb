//! Conditions of a PodGroup, as written by both of its status writers: the job controller for Volcano's Jobs,
//! the scheduler for all others. Deliberately absent: which conditions hold.

use serde_json::{Value, json};

/// Reason of the condition `Scheduled`.
pub const READY: &str = "tasks in gang are ready to be scheduled";

/// A condition that holds now.
pub struct Condition<'c> {
    pub kind: &'c str,
    pub reason: &'c str,
    pub message: Option<String>,
    /// RFC 3339.
    pub now: &'c str,
    /// Id of the computation that found it.
    pub session: &'c str,
}

impl Condition<'_> {
    /// Sets the condition if it changed; a different message alone is a change unless `keep_message`.
    pub fn set(self, status: &mut Value, keep_message: bool) {
        let mut conditions = status["conditions"].as_array().cloned().unwrap_or_default();
        let says_so =
            conditions.iter().find(|condition| condition["type"] == self.kind).is_some_and(|known| {
                known["reason"] == self.reason
                    && known["status"] == "True"
                    && (keep_message || known["message"].as_str() == self.message.as_deref())
            });
        if says_so {
            return;
        }
        let mut condition = json!({
            "type": self.kind,
            "status": "True",
            "reason": self.reason,
            "lastTransitionTime": self.now,
            "transitionID": self.session,
        });
        if let Some(message) = self.message {
            condition["message"] = message.into();
        }
        conditions.retain(|condition| condition["type"] != self.kind);
        conditions.push(condition);
        conditions.sort_by(|a, b| b["type"].as_str().cmp(&a["type"].as_str()));
        status["conditions"] = conditions.into();
    }
}

/// Removes a condition that no longer holds.
pub fn remove_condition(status: &mut Value, kind: &str) {
    if let Some(conditions) = status["conditions"].as_array_mut() {
        conditions.retain(|condition| condition["type"] != kind);
    }
}
