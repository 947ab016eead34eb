//! When a failed task or job is tried again.
//!
//! The framework controller's rules: an end that its owner or the platform asked for is final; with the fancy policy
//! what is transient is tried again for ever without being counted, and what is permanent is not; all else counts.

use serde::{Deserialize, Serialize};

use crate::exit::{self, Behavior};

/// Seconds before a try after others had taken the room: the least and the most.
const BACKOFF_S: (i64, i64) = (60, 900);

/// Reason of the state of a job whose next attempt waits. The message ends in [`after`] of the wait.
pub const DELAYED: &str = "RetryDelayed";

/// The end of a message about a wait of so many seconds.
pub fn after(delay_s: i64) -> String {
    format!("tried again after {delay_s} s")
}

/// The wait that such a message tells, in seconds.
pub fn delay_in(message: &str) -> Option<i64> {
    message.rsplit_once("tried again after ")?.1.strip_suffix(" s")?.parse().ok()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Policy {
    /// Looks at what kind of failure it was.
    pub fancy: bool,
    /// Tries after failures that count; -1: after any failure, -2: after any end.
    pub max: i64,
}

/// What was tried again so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Retried {
    pub total: i64,
    /// Of those, that count against the policy's bound.
    pub accountable: i64,
    /// Of those that do not count, that were for room.
    pub resource: i64,
}

impl Retried {
    pub fn platform(&self) -> i64 {
        self.total - self.accountable - self.resource
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    Retry {
        counts: bool,
        /// To wait before it.
        delay_s: i64,
    },
    End,
}

/// Whether what ended with this code is tried again.
pub fn decide(policy: Policy, retried: &Retried, code: i64) -> Decision {
    if [exit::POD_SPEC_INVALID, exit::STOP_REQUESTED, exit::ATTEMPT_COMPLETION].contains(&code) {
        return Decision::End;
    }
    if policy.fancy && code != exit::SUCCEEDED {
        match exit::spec(code).behavior {
            Behavior::Transient => return Decision::Retry { counts: false, delay_s: 0 },
            Behavior::TransientConflict => {
                return Decision::Retry { counts: false, delay_s: backoff(retried.resource) };
            }
            Behavior::Permanent => return Decision::End,
            Behavior::Unknown => {}
        }
    }
    let failed = code != exit::SUCCEEDED;
    let again = policy.max == -2 || (failed && (policy.max == -1 || retried.accountable < policy.max));
    if again { Decision::Retry { counts: true, delay_s: 0 } } else { Decision::End }
}

/// Doubling, from a minute to a quarter of an hour.
fn backoff(tries: i64) -> i64 {
    let doublings = tries.clamp(0, 10);
    (BACKOFF_S.0 << doublings).min(BACKOFF_S.1)
}

impl Retried {
    /// As it stands after one more try for an end with this code.
    #[must_use]
    pub fn after(self, code: i64, counts: bool) -> Self {
        let resource = !counts && exit::spec(code).kind == exit::ExitType::ResourceAllocationTimeout;
        Self {
            total: self.total + 1,
            accountable: self.accountable + i64::from(counts),
            resource: self.resource + i64::from(resource),
        }
    }
}
