//! The spec that a plan has last seen, recorded in the job's status: a change made while no agent ran causes the event
//! `JobUpdated` when the next agent first sees the job.
//!
//! Only jobs whose policies name the event have a record.

use serde_json::Value;

use super::{policy::Due, view::View};
use fleet_agent_ground::Object;

/// Entry of `status.controlledResources`: `<generation> <fingerprint of the spec>`.
const SEEN: &str = "spec-seen";

/// Whether the spec is another one than that of the record.
pub(crate) fn is_changed_since(job: &Object) -> bool {
    let Some((generation, fingerprint)) = record(&job.status) else { return false };
    let minimum = &job.spec["minAvailable"];
    // A new default of the definition changes no generation.
    generation != self::generation(job)
        && (fingerprint != self::fingerprint(&job.spec)
            || !minimum.is_null() && *minimum != job.status["minAvailable"])
}

/// Records the spec of this plan, once no timeout of the event runs.
pub(super) fn note(view: &View<'_>, due: &Due, status: &mut Value) {
    let names_it = |policy: &Value| {
        let events = policy["events"].as_array().into_iter().flatten();
        std::iter::once(&policy["event"]).chain(events).any(|event| event == "JobUpdated" || event == "*")
    };
    if !view.job.spec["policies"].as_array().is_some_and(|all| all.iter().any(names_it)) {
        return;
    }
    let waits = due.delayed.iter().any(|delayed| delayed.name == "JobUpdated");
    let now = format!("{} {}", generation(view.job), fingerprint(&view.job.spec));
    let before = view.job.status["controlledResources"][SEEN].as_str();
    let seen = if waits { before.unwrap_or_default() } else { &now };
    if !status["controlledResources"].is_object() {
        status["controlledResources"] = serde_json::json!({});
    }
    status["controlledResources"][SEEN] = seen.into();
}

fn record(status: &Value) -> Option<(i64, &str)> {
    let (generation, fingerprint) = status["controlledResources"][SEEN].as_str()?.split_once(' ')?;
    Some((generation.parse().ok()?, fingerprint))
}

fn generation(job: &Object) -> i64 {
    job.metadata.generation.unwrap_or(0)
}

/// Of all but the minimum, whose default the controller writes itself.
fn fingerprint(spec: &Value) -> String {
    let mut spec = spec.clone();
    if let Some(fields) = spec.as_object_mut() {
        fields.remove("minAvailable");
    }
    uuid::Uuid::new_v5(&uuid::Uuid::NAMESPACE_OID, spec.to_string().as_bytes()).simple().to_string()
}
