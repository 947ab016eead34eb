//! `elasticPolicy` of a PyTorchJob. A gang keeps the size that quota has counted, so nothing may raise it in a member.

use serde_json::Value;

use super::error::{WorkloadError, count};

/// Refuses what lets a training operator or its HorizontalPodAutoscaler add workers. The operator makes one as soon as there
/// are metrics, also an empty list; Kubernetes fills in one of its own, and any autoscaler raises the workers to its minimum.
///
/// # Errors
/// Names the field, what was found and what is allowed. `workers` are the replicas of the role Worker, if it is there.
pub(super) fn check(spec: &Value, workers: Option<i64>) -> Result<(), WorkloadError> {
    let elastic = &spec["elasticPolicy"];
    let refused = |field: &str, found: String, allowed: &'static str| WorkloadError::Field {
        path: format!("spec.elasticPolicy.{field}"),
        found,
        allowed,
    };
    let metrics = &elastic["metrics"];
    if !metrics.is_null() {
        let found = match metrics.as_array() {
            Some(list) if list.is_empty() => "an empty list".to_owned(),
            Some(list) => format!("{} metrics to scale by", list.len()),
            None => crate::spec::shortened(&metrics.to_string()),
        };
        let allowed = "none, not even an empty list: a gang keeps the size that quota has counted";
        return Err(refused("metrics", found, allowed));
    }
    let Some(workers) = workers else { return Ok(()) };
    let least = count(&elastic["minReplicas"], 0, || "spec.elasticPolicy.minReplicas".to_owned())?;
    if least > workers {
        let allowed = "at most the replicas of Worker: a gang keeps the size that quota has counted";
        return Err(refused("minReplicas", format!("{least} of {workers} replicas"), allowed));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::workload::{WorkloadKind, components};

    #[test]
    fn nothing_in_a_member_adds_workers_to_a_gang() {
        let found = |elastic: Value, replicas: Value| {
            let roles = json!({"Worker": {"replicas": replicas, "template": {}}});
            let job = json!({"spec": {"elasticPolicy": elastic, "pytorchReplicaSpecs": roles}});
            components(WorkloadKind::PyTorchJob, &job).err().map(|error| error.to_string())
        };
        for (elastic, replicas) in [
            (Value::Null, json!(1)),
            (json!({"metrics": null, "maxReplicas": 9}), json!(1)),
            (json!({"minReplicas": 3}), json!(3)),
            (json!({"minReplicas": 1}), Value::Null),
        ] {
            assert_eq!(found(elastic.clone(), replicas), None, "{elastic}");
        }
        for (elastic, replicas, expected) in [
            (json!({"metrics": []}), json!(3), "metrics: found an empty list; allowed: none"),
            (json!({"metrics": [{}, {}]}), json!(3), "metrics: found 2 metrics to scale by; allowed: none"),
            (json!({"metrics": {}}), json!(3), "metrics: found {}; allowed: none"),
            (json!({"metrics": false}), json!(3), "metrics: found false; allowed: none"),
            (json!({"minReplicas": 4}), json!(3), "minReplicas: found 4 of 3 replicas; allowed: at most"),
            (
                json!({"minReplicas": "2"}),
                Value::Null,
                "minReplicas: found 2 of 1 replicas; allowed: at most",
            ),
            (json!({"minReplicas": i64::MAX}), json!(3), "minReplicas: found 9223372036854775807; allowed:"),
        ] {
            let text = found(elastic.clone(), replicas).unwrap_or_default();
            assert!(text.starts_with(&format!("spec.elasticPolicy.{expected}")), "{elastic}: {text}");
        }
    }

    #[test]
    fn a_job_without_workers_has_nothing_to_scale() {
        let job = json!({"spec": {"elasticPolicy": {"minReplicas": 2},
            "pytorchReplicaSpecs": {"Master": {"replicas": 1, "template": {}}}}});
        assert!(components(WorkloadKind::PyTorchJob, &job).is_ok());
    }
}
