//! What the message of a preempted run says, as the planner writes it.

use fleet_policies::reason::Reason;

use crate::facts::AttemptFacts;

/// What the message of a preempted run says: `preempted by TAKER in CLUSTER (RULE); LOST`, as the planner writes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PreemptionMessage<'m> {
    /// `namespace/name`
    pub by: &'m str,
    pub rule: &'m str,
    pub lost: &'m str,
}

impl<'m> PreemptionMessage<'m> {
    /// What is not there is empty.
    pub fn read(message: &'m str) -> Self {
        let Some(rest) = message.strip_prefix("preempted by ") else { return Self::default() };
        // Neither a name nor a cluster has a space in it.
        let by = rest.split(' ').next().unwrap_or_default();
        let (rule, after) =
            rest.split_once(" (").and_then(|(_, rest)| rest.split_once(')')).unwrap_or_default();
        Self { by, rule, lost: after.strip_prefix("; ").unwrap_or_default() }
    }
}

pub(crate) fn is_preempted(attempt: &AttemptFacts) -> bool {
    attempt.reason == Reason::Preempted.as_str()
}

#[cfg(test)]
mod tests {
    use super::PreemptionMessage;

    #[test]
    fn a_message_says_who_took_the_place() {
        let check = |message: &str, by: &str, rule: &str, lost: &str| {
            assert_eq!(PreemptionMessage::read(message), PreemptionMessage { by, rule, lost }, "{message}");
        };
        check(
            "preempted by team/wide in east (Reclaim); 25 s of work since its last checkpoint are lost",
            "team/wide",
            "Reclaim",
            "25 s of work since its last checkpoint are lost",
        );
        check("preempted by a/own (Reclaim)", "a/own", "Reclaim", "");
        check("preempted by a/own", "a/own", "", "");
        check("evicted from east", "", "", "");
    }
}
