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
    let Some(workers) = workers else {
        // Without a minimum and a maximum of its own the operator takes the replicas of Worker, and dies where there are none:
        // all jobs of its kind in that member would stop.
        let has_own = ["minReplicas", "maxReplicas"].iter().any(|field| !elastic[field].is_null());
        return match elastic.is_null() || has_own {
            true => Ok(()),
            false => Err(WorkloadError::Field {
                path: "spec.elasticPolicy".to_owned(),
                found: "neither minReplicas nor maxReplicas, and no role Worker".to_owned(),
                allowed: "one of them, or a role Worker",
            }),
        };
    };
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
        let found = |elastic: Value| {
            let job = json!({"spec": {"elasticPolicy": elastic,
                "pytorchReplicaSpecs": {"Master": {"replicas": 1, "template": {}}}}});
            components(WorkloadKind::PyTorchJob, &job).err().map(|error| error.to_string())
        };
        for harmless in [Value::Null, json!({"minReplicas": 2}), json!({"maxReplicas": 2, "nProcPerNode": 1})]
        {
            assert_eq!(found(harmless.clone()), None, "{harmless}");
        }
        // A training operator that finds no workers to take its bounds from dies.
        for deadly in [json!({}), json!({"nProcPerNode": 1}), json!({"minReplicas": null})] {
            let text = found(deadly.clone()).unwrap_or_default();
            assert!(text.starts_with("spec.elasticPolicy: found neither"), "{deadly}: {text}");
        }
    }
}
