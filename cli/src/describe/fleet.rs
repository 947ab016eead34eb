//! Fleet's state of an object of the hub: policy, queue and position, cluster, earlier runs, and the reason
//! why it waits.

use fleet_api::{QueueUnit, ResourceBinding, names};
use fleet_cli_ground::{
    connect::Hub,
    server::{AskError, Selectors},
};
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Lines about the object; `None` if Fleet does not manage it.
///
/// # Errors
/// The hub does not answer.
pub async fn of(hub: &Hub, object: &Value) -> Result<Option<String>, AskError> {
    let (Some(api_version), Some(kind), Some(name), Some(namespace)) = (
        object["apiVersion"].as_str(),
        object["kind"].as_str(),
        object["metadata"]["name"].as_str(),
        object["metadata"]["namespace"].as_str(),
    ) else {
        return Ok(None);
    };
    let binding_name = names::binding_name(api_version, kind, name);
    let bindings = format!("/apis/fleet.dev/v1alpha1/namespaces/{namespace}/resourcebindings");
    let found = match hub.server.object(&format!("{bindings}/{binding_name}")).await {
        Ok(found) => found,
        Err(error) if error.is_not_found() => return Ok(None),
        Err(error) => return Err(error),
    };
    let Some(binding) = read::<ResourceBinding>(found) else {
        return Ok(None);
    };
    let units = list::<QueueUnit>(hub, "scheduling.x-k8s.io/v1alpha1", namespace, "queueunits").await?;
    let unit = units.into_iter().find(|unit| unit.spec.consumer_ref.name == binding_name);
    let place = match &unit {
        Some(unit) => place(hub, unit).await?,
        None => None,
    };
    Ok(Some(print(&binding, unit.as_ref(), place)))
}

fn read<T: DeserializeOwned>(value: Value) -> Option<T> {
    serde_json::from_value(value).ok()
}

async fn list<T: DeserializeOwned>(
    hub: &Hub,
    group_version: &str,
    namespace: &str,
    plural: &str,
) -> Result<Vec<T>, AskError> {
    let path = format!("/apis/{group_version}/namespaces/{namespace}/{plural}");
    match hub.server.list(&path, &Selectors::default(), "application/json").await {
        Ok(mut listed) => match listed["items"].take() {
            Value::Array(items) => Ok(items.into_iter().filter_map(read).collect()),
            _ => Ok(Vec::new()),
        },
        Err(error) if error.is_not_found() => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// Position in the queue and its length, from the status of the unit's Queue.
async fn place(hub: &Hub, unit: &QueueUnit) -> Result<Option<(i64, usize)>, AskError> {
    let Some(path) = &unit.spec.queue else {
        return Ok(None);
    };
    let version = "scheduling.x-k8s.io/v1alpha1";
    let queues = list::<fleet_api::Queue>(hub, version, names::QUEUE_NAMESPACE, "queues").await?;
    let own = queues.into_iter().find(|queue| {
        let annotations = queue.metadata.annotations.as_ref();
        annotations.and_then(|all| all.get(names::QUOTA_FULLNAME_ANNOTATION)) == Some(path)
    });
    let items =
        own.and_then(|queue| queue.status).map(|status| status.queue_item_details).unwrap_or_default();
    let Some(active) = items.get("active") else {
        return Ok(None);
    };
    let at = active.iter().find(|item| {
        Some(&item.name) == unit.metadata.name.as_ref()
            && Some(&item.namespace) == unit.metadata.namespace.as_ref()
    });
    Ok(at.map(|item| (item.position, active.len())))
}

fn print(binding: &ResourceBinding, unit: Option<&QueueUnit>, place: Option<(i64, usize)>) -> String {
    let mut out = String::from("Fleet:\n");
    let mut line = |key: &str, value: String| out.push_str(&format!("  {:<12}{value}\n", format!("{key}:")));
    let policy = &binding.spec.policy;
    line(
        "Policy",
        match policy.namespace.as_str() {
            _ if policy.name.is_empty() => "<none>".to_string(),
            "" => format!("{} {}", policy.kind, policy.name),
            namespace => format!("{} {namespace}/{}", policy.kind, policy.name),
        },
    );
    line("Binding", binding.metadata.name.clone().unwrap_or_default());
    if let Some(unit) = unit {
        let queue = unit.spec.queue.clone().unwrap_or_else(|| "<none>".to_string());
        let phase = unit.status.as_ref().and_then(|status| status.phase.clone()).unwrap_or_default();
        line(
            "Queue",
            match place {
                Some((position, length)) => format!("{queue}, {phase}, {position} of {length} waiting"),
                None => format!("{queue}, {phase}"),
            },
        );
    }
    let components: Vec<String> =
        binding.spec.components.iter().map(|part| format!("{} {}", part.name, part.replicas)).collect();
    if !components.is_empty() {
        line("Gang", components.join(", "));
    }
    let is_over = binding.status.as_ref().is_some_and(|status| status.result.is_some());
    let clusters: Vec<&str> = binding.spec.clusters.iter().map(|target| target.name.as_str()).collect();
    line(
        "Cluster",
        match clusters.as_slice() {
            [] if is_over => "<none>".to_string(),
            [] => "<none yet>".to_string(),
            clusters => format!("{} (epoch {})", clusters.join(", "), binding.spec.epoch),
        },
    );
    let status = binding.status.clone().unwrap_or_default();
    for attempt in &status.attempts {
        line("Earlier", format!("{} (epoch {}): {}", attempt.cluster, attempt.epoch, attempt.reason));
    }
    if let Some(result) = &status.result {
        let cluster = Some(&result.cluster).filter(|cluster| !cluster.is_empty());
        let cluster = cluster.map(|cluster| format!(" on {cluster}")).unwrap_or_default();
        line("Result", format!("{}{cluster} at {}", result.outcome, result.recorded_at));
        let why = [&result.reason, &result.message].into_iter().flatten().map(String::as_str);
        let why = why.filter(|text| !text.is_empty()).collect::<Vec<_>>().join(": ");
        if !why.is_empty() {
            line("Reason", why);
        }
    } else if clusters.is_empty() {
        let waits = unit.and_then(|unit| unit.status.as_ref()).and_then(|status| status.message.clone());
        let scheduled = status.conditions.iter().find(|is| is.type_ == "Scheduled" && is.status != "True");
        if let Some(reason) = waits.or_else(|| scheduled.map(|is| is.message.clone())) {
            line("Waits", reason);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_job_that_was_stopped_while_it_waited_has_no_cluster() {
        let binding = json!({"apiVersion": "fleet.dev/v1alpha1", "kind": "ResourceBinding",
            "metadata": {"name": "x-job", "namespace": "team"},
            "spec": {"resource": {"apiVersion": "batch/v1", "kind": "Job", "namespace": "team", "name": "x"},
                "policy": {"kind": "PropagationPolicy", "namespace": "team", "name": "p"}},
            "status": {"result": {"outcome": "Failed", "cluster": "", "epoch": 0,
                "recordedAt": "2026-01-01T10:00:00Z", "reason": "Stopped", "message": "by its annotation"}}});
        let binding = serde_json::from_value(binding).expect("a binding");
        insta::assert_snapshot!(print(&binding, None, None), @r"
        Fleet:
          Policy:     PropagationPolicy team/p
          Binding:    x-job
          Cluster:    <none>
          Result:     Failed at 2026-01-01T10:00:00Z
          Reason:     Stopped: by its annotation
        ");
    }
}
