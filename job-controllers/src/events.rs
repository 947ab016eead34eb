//! Warnings about jobs and flows: one event for each object and reason, with a count.

use fleet_agent_ground::{CallError, Object, requests as writes, resource};
use jiff::Timestamp;
use kube::{Client, discovery::ApiResource};
use serde_json::{Value, json};

/// Most characters of a message.
pub(crate) const LONGEST_MESSAGE: usize = 1024;
/// Most characters that the name of an event has of its object's; API servers take names of 253.
const LONGEST_NAME: usize = 200;

pub(crate) struct Warning<'w> {
    pub reason: &'w str,
    pub message: &'w str,
    pub at: Timestamp,
}

/// Creates the event, or counts it once more if it exists.
///
/// # Errors
/// The API server does not answer, or refuses the event.
pub(crate) async fn warn(
    client: &Client,
    about: &Object,
    kind: &ApiResource,
    warning: &Warning<'_>,
) -> Result<(), CallError> {
    let events = resource("", "v1", "Event", "events");
    let name = name_of(about.name(), about.uid(), warning.reason);
    let now = format!("{:.0}", warning.at);
    let message: String = warning.message.chars().take(LONGEST_MESSAGE).collect();
    let found: Option<Object> = writes::get(client, &events, about.namespace(), &name).await?;
    if let Some(found) = found {
        let count = found.rest.get("count").and_then(Value::as_i64).unwrap_or(1);
        let patch = json!({"count": count.saturating_add(1), "lastTimestamp": now, "message": message});
        return match writes::patch(client, &events, &found, None, &patch).await {
            Err(error) if error.is_not_found() => Ok(()),
            answer => answer.map(drop),
        };
    }
    let event = json!({
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": about.namespace()},
        "involvedObject": {"apiVersion": kind.api_version, "kind": kind.kind, "name": about.name(),
            "namespace": about.namespace(), "uid": about.uid()},
        "type": "Warning",
        "reason": warning.reason,
        "message": message,
        "source": {"component": "fleet"},
        "reportingComponent": "fleet",
        "reportingInstance": "",
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    });
    match writes::create::<Value>(client, &event).await {
        // Another plan of the object was faster.
        Err(error) if error.is_conflict() => Ok(()),
        answer => answer.map(drop),
    }
}

/// The uid is unique, so a new object of that name gets an event of its own.
fn name_of(name: &str, uid: &str, reason: &str) -> String {
    let name: String = name.chars().take(LONGEST_NAME).collect();
    let uid: String = uid.chars().take(8).collect();
    // A part of a name ends with a letter or digit.
    format!("{}.{uid}.{}", name.trim_end_matches(['-', '.']), reason.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_name_of_an_object_leaves_room_for_the_rest() {
        let of = |name: &str| name_of(name, "0123456789", "FailedCreate");
        assert_eq!(of("a.b"), "a.b.01234567.failedcreate");
        let long = format!("{}-.{}", "a".repeat(198), "b".repeat(53));
        assert_eq!((long.len(), of(&long)), (253, format!("{}.01234567.failedcreate", "a".repeat(198))));
    }
}
