//! Conditions whose transition times change only with their status, and the format of times and messages.

use fleet_policies::reason::Reason;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde_json::{Value, json};

/// Longest message written to an object (bytes); longer ones are cut at a character.
pub const MAX_MESSAGE: usize = 1024;

/// RFC 3339 in whole seconds, as in Kubernetes objects.
pub fn rfc3339(now: jiff::Timestamp) -> String {
    now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

pub fn find_condition<'a>(conditions: &'a [Condition], kind: &str) -> Option<&'a Condition> {
    conditions.iter().find(|condition| condition.type_ == kind)
}

/// A condition as JSON. Its transition time stays that of `known` while the status does.
pub fn condition(
    kind: &str,
    status: &str,
    reason: Reason,
    message: &str,
    known: Option<&Condition>,
    now: jiff::Timestamp,
) -> Value {
    let since = known
        .filter(|known| known.status == status)
        .map_or_else(|| rfc3339(now), |known| rfc3339(known.last_transition_time.0));
    json!({
        "type": kind,
        "status": status,
        "reason": reason.as_str(),
        "message": cut(message),
        "lastTransitionTime": since,
    })
}

/// Cuts a message to [`MAX_MESSAGE`] bytes.
pub fn cut(message: &str) -> &str {
    let mut end = message.len().min(MAX_MESSAGE);
    while !message.is_char_boundary(end) {
        end -= 1;
    }
    &message[..end]
}

/// Reads a message that another process wrote, and keeps what [`cut`] leaves of it.
pub(crate) fn read_cut<'de, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<String>, D::Error> {
    let text: Option<std::borrow::Cow<'_, str>> = serde::Deserialize::deserialize(deserializer)?;
    Ok(text.map(|text| cut(&text).to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_cut_at_a_character() {
        let long = "ä".repeat(MAX_MESSAGE);
        assert!(cut(&long).len() <= MAX_MESSAGE);
        assert_eq!(cut("short"), "short");
    }
}
