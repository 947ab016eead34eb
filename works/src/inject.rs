//! The side container for fencing `Watchdog`: added to every pod template of the job before it is applied.
//!
//! It is a sidecar (an init container with restartPolicy Always), so it neither delays the end of the pod nor
//! counts as a container of the job. Its startup probe holds the job's containers back until it has seen a
//! renewal of the member's lease. It requests no resources, so reserved places stay the same.

use std::time::Duration;

use fleet_policies::WorkloadKind;
use fleet_watchdog::{CONTAINER, IN_POD_VARIABLE, STATE_FOLDER, TOKEN_FOLDER};
use serde_json::{Value, json};

use crate::pod_templates;

const TOKEN_VOLUME: &str = "fleet-watchdog-token";
const TOKEN_SECONDS: i64 = 3600;
/// How long the job's containers wait for the first renewal: far longer than a renewal period.
const START_PROBES: i64 = 300;

/// The agent's settings for the side container.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Means<'a> {
    pub image: Option<&'a str>,
    /// How long after the lease's end the last process may end.
    pub fence_grace: Duration,
    /// How long after it a watchdog has stopped the last process.
    pub stops_within: Duration,
}

/// Adds the side container to each pod template of a job.
///
/// # Errors
/// A pod template in which it cannot work, no image, or a grace period that is too short: a sentence with the
/// field, the value found and the values allowed.
pub(crate) fn watchdog(kind: WorkloadKind, job: &mut Value, means: Means<'_>) -> Result<(), String> {
    let Some(image) = means.image else {
        return Err(
            "fencing Watchdog: the agent has no image for the side container; allowed with --watchdog-image"
                .to_owned(),
        );
    };
    if means.fence_grace <= means.stops_within {
        return Err(format!(
            "fencing Watchdog: found --fence-grace {} of the agent; allowed: more than {} seconds, in which a watchdog \
             has stopped its pod",
            means.fence_grace.as_secs(),
            means.stops_within.as_secs()
        ));
    }
    let templates = pod_templates::of(kind, job);
    if templates.is_empty() {
        return Err(format!(
            "fencing Watchdog: found no pod template in a {kind:?}; allowed: jobs with some"
        ));
    }
    templates.into_iter().try_for_each(|template| into_template(&template.path, template.value, image))
}

fn into_template(path: &str, template: &mut Value, image: &str) -> Result<(), String> {
    if !template["spec"].is_object() {
        return Err(format!("{path}.spec: found no object; allowed: a pod's spec"));
    }
    let spec = &mut template["spec"];
    // In the host's process namespace it would stop the processes of the node.
    if spec["hostPID"] == true {
        return Err(format!("{path}.spec.hostPID: found true; allowed with fencing Watchdog: false"));
    }
    if spec["shareProcessNamespace"] == false {
        return Err(format!(
            "{path}.spec.shareProcessNamespace: found false; allowed with fencing Watchdog: true"
        ));
    }
    spec["shareProcessNamespace"] = true.into();
    for (list, name) in [
        ("initContainers", CONTAINER),
        ("containers", CONTAINER),
        ("volumes", CONTAINER),
        ("volumes", TOKEN_VOLUME),
    ] {
        if spec[list].as_array().into_iter().flatten().any(|one| one["name"] == name) {
            return Err(format!("{path}.spec.{list}: found the name {name:?}; allowed: any but Fleet's own"));
        }
    }
    prepend(spec, "initContainers", container(image));
    prepend(
        spec,
        "volumes",
        json!({"name": CONTAINER, "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}}),
    );
    // The pod's own account, even if its token is not mounted automatically.
    prepend(
        spec,
        "volumes",
        json!({"name": TOKEN_VOLUME, "projected": {"sources": [
            {"serviceAccountToken": {"path": "token", "expirationSeconds": TOKEN_SECONDS}},
            {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        ]}}),
    );
    Ok(())
}

fn container(image: &str) -> Value {
    json!({
        "name": CONTAINER,
        "image": image,
        "restartPolicy": "Always",
        "env": [{"name": IN_POD_VARIABLE, "value": "true"}],
        "startupProbe": {
            "exec": {"command": ["/watchdog", "check"]}, "periodSeconds": 1, "failureThreshold": START_PROBES},
        // Signals to processes of other users require root and this capability.
        "securityContext": {
            "runAsUser": 0, "runAsNonRoot": false, "allowPrivilegeEscalation": false,
            "readOnlyRootFilesystem": true, "capabilities": {"drop": ["ALL"], "add": ["KILL"]}},
        "volumeMounts": [
            {"name": TOKEN_VOLUME, "mountPath": TOKEN_FOLDER, "readOnly": true},
            {"name": CONTAINER, "mountPath": STATE_FOLDER}],
    })
}

fn prepend(spec: &mut Value, list: &str, item: Value) {
    match spec[list].as_array_mut() {
        Some(list) => list.insert(0, item),
        None => spec[list] = json!([item]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pytorch(fields: Value) -> Value {
        let mut spec = json!({"containers": [{"name": "pytorch", "image": "i"}]});
        for (field, value) in fields.as_object().into_iter().flatten() {
            spec[field] = value.clone();
        }
        json!({"spec": {"pytorchReplicaSpecs": {
            "Master": {"template": {"spec": {"containers": [{"name": "pytorch", "image": "i"}]}}},
            "Worker": {"template": {"spec": spec}}}}})
    }

    fn means(image: Option<&str>) -> Means<'_> {
        let stops_within = fleet_watchdog::ANSWER_TIMEOUT + fleet_watchdog::KILL_GRACE;
        Means { image, fence_grace: Duration::from_secs(20), stops_within }
    }

    #[test]
    fn every_template_gets_it_before_its_own_init_containers() {
        let mut job = pytorch(json!({"initContainers": [{"name": "fetch"}], "volumes": [{"name": "data"}]}));
        watchdog(WorkloadKind::PyTorchJob, &mut job, means(Some("r/w:1"))).unwrap();
        for role in ["Master", "Worker"] {
            let spec = &job["spec"]["pytorchReplicaSpecs"][role]["template"]["spec"];
            assert_eq!(spec["shareProcessNamespace"], true);
            let first = &spec["initContainers"][0];
            assert_eq!((&first["name"], &first["image"]), (&json!(CONTAINER), &json!("r/w:1")));
            assert_eq!(first["restartPolicy"], "Always");
            assert!(first["resources"].is_null());
        }
        let worker = &job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"];
        assert_eq!(worker["initContainers"][1]["name"], "fetch");
        assert_eq!(worker["volumes"].as_array().unwrap().len(), 3);
        let mut batch = json!({"spec": {"template": {"spec": {"containers": []}}}});
        watchdog(WorkloadKind::BatchJob, &mut batch, means(Some("r/w:1"))).unwrap();
        assert_eq!(batch["spec"]["template"]["spec"]["initContainers"][0]["name"], CONTAINER);
    }

    #[test]
    fn where_it_could_not_work_it_is_refused() {
        let check = |fields: Value, image: Option<&str>, expected: &str| {
            let refused = watchdog(WorkloadKind::PyTorchJob, &mut pytorch(fields), means(image)).unwrap_err();
            assert_eq!(refused, expected);
        };
        let worker = "spec.pytorchReplicaSpecs.Worker.template.spec";
        let allowed = "allowed with fencing Watchdog";
        check(
            json!({"hostPID": true}),
            Some("i"),
            &format!("{worker}.hostPID: found true; {allowed}: false"),
        );
        check(
            json!({"shareProcessNamespace": false}),
            Some("i"),
            &format!("{worker}.shareProcessNamespace: found false; {allowed}: true"),
        );
        check(
            json!({"volumes": [{"name": CONTAINER}]}),
            Some("i"),
            &format!("{worker}.volumes: found the name \"{CONTAINER}\"; allowed: any but Fleet's own"),
        );
        check(
            json!({}),
            None,
            "fencing Watchdog: the agent has no image for the side container; allowed with --watchdog-image",
        );
        assert!(watchdog(WorkloadKind::BatchJob, &mut json!({}), means(Some("i"))).is_err());
        let short = Means { fence_grace: Duration::from_secs(15), ..means(Some("i")) };
        let refused = watchdog(WorkloadKind::PyTorchJob, &mut pytorch(json!({})), short).unwrap_err();
        assert!(
            refused.contains("found --fence-grace 15 of the agent; allowed: more than 15 seconds"),
            "{refused}"
        );
    }
}
