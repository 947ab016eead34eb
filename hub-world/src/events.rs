//! Events, with the established reasons and messages.

use fleet_api::binding::TargetCluster;
use fleet_policies::reason::Reason;
use serde_json::json;

use crate::{
    status::{cut, rfc3339},
    writes::{Target, Verb, Write},
};

/// The object of an event.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    pub api_version: &'a str,
    pub kind: &'a str,
    pub namespace: &'a str,
    pub name: &'a str,
    pub uid: &'a str,
}

/// Namespace of events about cluster-scoped objects, as in Kubernetes.
const DEFAULT_NAMESPACE: &str = "default";

pub fn normal(subject: &Subject, source: &str, reason: Reason, message: &str, now: jiff::Timestamp) -> Write {
    event("Normal", subject, source, reason, message, now)
}

pub fn warning(
    subject: &Subject,
    source: &str,
    reason: Reason,
    message: &str,
    now: jiff::Timestamp,
) -> Write {
    event("Warning", subject, source, reason, message, now)
}

fn event(
    kind: &str,
    subject: &Subject,
    source: &str,
    reason: Reason,
    message: &str,
    now: jiff::Timestamp,
) -> Write {
    // Two events at the same time need two names; the same event reported twice is one event.
    let serial = hash(&[subject.uid, reason.as_str(), message]) & 0xfff;
    let namespace = if subject.namespace.is_empty() { DEFAULT_NAMESPACE } else { subject.namespace };
    let name = format!("{}.{:x}{serial:03x}", subject.name, now.as_nanosecond());
    let time = rfc3339(now);
    let body = json!({
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": namespace},
        "involvedObject": {
            "apiVersion": subject.api_version,
            "kind": subject.kind,
            "namespace": subject.namespace,
            "name": subject.name,
            "uid": subject.uid,
        },
        "type": kind,
        "reason": reason.as_str(),
        "message": cut(message),
        "source": {"component": source},
        "firstTimestamp": time,
        "lastTimestamp": time,
        "count": 1,
        "reportingComponent": source,
        "reportingInstance": "",
    });
    Write::new(Target::Event, namespace, &name, Verb::Create(body))
}

/// A repeated warning: the first occurrence creates the event, later ones raise its count. Its name is
/// derived from its content, so a restarted process finds it again.
pub fn counted(
    subject: &Subject,
    source: &str,
    reason: Reason,
    message: &str,
    count: i64,
    now: jiff::Timestamp,
) -> Write {
    let name = format!("{}.{:016x}", subject.name, hash(&[subject.uid, reason.as_str(), message]));
    let mut first = warning(subject, source, reason, message, now);
    first.name.clone_from(&name);
    first.verb = match first.verb {
        Verb::Create(_) if count > 1 => Verb::Merge(json!({"count": count, "lastTimestamp": rfc3339(now)})),
        Verb::Create(mut body) => {
            body["metadata"]["name"] = json!(name);
            Verb::Create(body)
        }
        other => other,
    };
    first
}

/// FNV-1a over the parts.
fn hash(parts: &[&str]) -> u64 {
    let bytes = parts.iter().flat_map(|part| part.bytes().chain([0]));
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// The message of `ScheduleBindingSucceed`: each target as `name:replicas`, for a gang followed by its
/// components in the form `[{master 1} {worker 2}]`.
pub fn bound_message(clusters: &[TargetCluster]) -> String {
    let entries: Vec<String> = clusters
        .iter()
        .map(|cluster| {
            let components: Vec<String> =
                cluster.components.iter().map(|c| format!("{{{} {}}}", c.name, c.replicas)).collect();
            match components.is_empty() {
                true => format!("{}:{}", cluster.name, cluster.replicas),
                false => format!("{}:{},[{}]", cluster.name, cluster.replicas, components.join(" ")),
            }
        })
        .collect();
    format!("Binding has been scheduled successfully. Result: {{{}}}", entries.join(", "))
}

#[cfg(test)]
mod tests;
