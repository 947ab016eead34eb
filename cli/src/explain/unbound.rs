//! Jobs without a binding: what their own status and events report.

use fleet_cli_ground::{
    answer::Answer, args::Format, connect::Hub, discovery::Kind, output, server::Selectors,
};
use fleet_policies::{reason::Reason, workload::WorkloadKind};
use serde_json::{Value, json};

use fleet_console::table::labelled;

/// Reasons why a job has no binding.
const REASONS: [Reason; 3] = [Reason::NoPolicy, Reason::PolicyInvalid, Reason::InvalidWorkload];

/// Explains the object of that name, of `kind` or of any kind that Fleet propagates.
///
/// # Errors
/// There is none, or there are several; the hub does not answer.
pub async fn explain(
    hub: &Hub,
    kinds: &[Kind],
    kind: Option<&Kind>,
    namespace: &str,
    name: &str,
    format: Option<&Format>,
) -> anyhow::Result<Answer> {
    let asked: Vec<&Kind> = match kind {
        Some(kind) => vec![kind],
        None => kinds.iter().filter(|kind| is_sent(kind)).collect(),
    };
    let mut found: Vec<(&Kind, Value)> = Vec::new();
    for kind in &asked {
        match hub.server.object(&format!("{}/{name}", kind.path(Some(namespace)))).await {
            Ok(object) => found.push((kind, object)),
            Err(error) if error.is_not_found() => {}
            Err(error) => return Err(error.into()),
        }
    }
    let (kind, object) = match found.as_slice() {
        [(kind, object)] => (*kind, object),
        [] => {
            let names: Vec<&str> = asked.iter().map(|kind| kind.kind.as_str()).collect();
            anyhow::bail!("job {name:?}: found none in namespace {namespace} among {}", names.join(", "))
        }
        several => {
            let names: Vec<String> = several.iter().map(|(kind, _)| kind.singular_group()).collect();
            anyhow::bail!("job {name:?}: found {}; allowed: one, as KIND/NAME", names.join(" and "))
        }
    };
    let uid = object["metadata"]["uid"].as_str().unwrap_or_default();
    let selectors = Selectors { fields: Some(format!("involvedObject.uid={uid}")), ..Selectors::default() };
    let path = format!("/api/v1/namespaces/{namespace}/events");
    let events = hub.server.list(&path, &selectors, "application/json").await?;
    let events: Vec<Value> = events["items"].as_array().cloned().unwrap_or_default();
    let events: Vec<Value> =
        events.into_iter().filter(|event| event["involvedObject"]["uid"] == uid).collect();
    let (reason, message) = said(object, &events);
    let (job, state) = (format!("{namespace}/{name}"), "not managed by Fleet");
    let value = json!({"job": job, "kind": kind.kind, "state": state, "reason": reason, "message": message});
    if let Some(text) = output::data(format, &value, ("", ".job"))? {
        return Ok(Answer::text(text));
    }
    let lines = [
        ("Job", format!("{job} ({})", kind.kind)),
        ("State", state.to_string()),
        ("Reason", reason),
        ("", message),
    ];
    Ok(Answer::people(labelled(&lines, super::LABEL)))
}

/// Jobs, and workloads that run until they are deleted; the first version of each.
fn is_sent(kind: &Kind) -> bool {
    let api_version = match kind.group.as_str() {
        "" => kind.version.clone(),
        group => format!("{group}/{}", kind.version),
    };
    kind.listable
        && !matches!(WorkloadKind::of(&api_version, &kind.kind), WorkloadKind::Other)
        && kind.kind != "ReplicaSet"
}

/// Reason and message, from the status, or else from the last event with a reason.
fn said(object: &Value, events: &[Value]) -> (String, String) {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_string();
    let is_ours = |value: &Value| REASONS.iter().any(|reason| value == reason.as_str());
    if !object["metadata"]["deletionTimestamp"].is_null() {
        return ("Deleting".to_string(), "it is being deleted".to_string());
    }
    let status = &object["status"];
    let conditions = status["conditions"].as_array().into_iter().flatten();
    let marked = conditions.rev().find(|condition| is_ours(&condition["type"]));
    let marked = marked.or(Some(&status["state"]).filter(|state| is_ours(&state["reason"])));
    let event = || {
        let ours = events.iter().filter(|event| is_ours(&event["reason"]));
        ours.max_by_key(|event| text(&event["lastTimestamp"]))
    };
    match marked.or_else(event) {
        Some(said) => (text(&said["reason"]), text(&said["message"])),
        None => (
            Reason::NoPolicy.to_string(),
            "no policy selects it, or the controller has not reconciled it yet".to_string(),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_is_the_controllers_own() {
        let check = |object: Value, events: Value, expected: (&str, &str)| {
            let events: Vec<Value> = events.as_array().cloned().unwrap_or_default();
            let (reason, message) = said(&object, &events);
            assert_eq!((reason.as_str(), &message[..expected.1.len()]), expected);
        };
        let marked = json!({"status": {"conditions": [{"type": "InvalidWorkload", "reason": "InvalidWorkload",
            "message": "the role \"Mastre\""}]}});
        check(marked, json!([]), ("InvalidWorkload", "the role"));
        let volcano =
            json!({"status": {"state": {"phase": "Pending", "reason": "NoPolicy", "message": "no policy"}}});
        check(volcano, json!([]), ("NoPolicy", "no policy"));
        let event =
            |reason: &str, at: &str| json!({"reason": reason, "message": reason, "lastTimestamp": at});
        check(
            json!({}),
            json!([event("NoPolicy", "1"), event("InvalidWorkload", "2"), event("Other", "3")]),
            ("InvalidWorkload", "InvalidWorkload"),
        );
        check(json!({}), json!([]), ("NoPolicy", "no policy selects it"));
        check(json!({"metadata": {"deletionTimestamp": "now"}}), json!([]), ("Deleting", ""));
    }
}
