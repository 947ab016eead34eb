//! The requests of a workload: its components, each a number of equal pods.

use std::collections::BTreeMap;

use fleet_resources::constraints::{NodeSelectorTerm, Toleration};
use fleet_resources::{PodSum, Resources, quantity};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{
    WorkloadKind, elastic,
    error::{WorkloadError, count},
    limits::bounded,
    replica_specs_field,
};
use crate::pod_security;

/// A number of equal pods of one role.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Component {
    pub name: String,
    pub replicas: i64,
    /// How many must run for the job to start; `None` means all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_available: Option<i64>,
    /// Of one pod; the pod itself is not counted.
    pub requests: Resources,
    pub pod_spec: PodRequirements,
}

/// Where a pod may run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodRequirements {
    pub node_selector: BTreeMap<String, String>,
    /// Required terms, of which one must match; empty: no requirement.
    pub node_affinity: Vec<NodeSelectorTerm>,
    pub tolerations: Vec<Toleration>,
    pub priority_class_name: Option<String>,
    pub scheduler_name: Option<String>,
}

/// Longest name of a job: controllers use it as a label value of each pod.
const JOB_NAME_MAX: usize = 63;

/// The components of a workload, in their kind's order.
///
/// # Errors
/// An invalid quantity or number of replicas, or more pods than such a workload may have.
pub fn components(kind: WorkloadKind, object: &Value) -> Result<Vec<Component>, WorkloadError> {
    let spec = &object["spec"];
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    if kind.is_job() && name.len() > JOB_NAME_MAX {
        return Err(WorkloadError::Field {
            path: "metadata.name".to_owned(),
            found: format!("{} characters", name.len()),
            allowed: "at most 63, since its pods carry it in a label",
        });
    }
    let (found, field) = match kind {
        WorkloadKind::PyTorchJob | WorkloadKind::TFJob | WorkloadKind::MPIJob => {
            (kubeflow(kind, spec, kind.roles())?, format!("spec.{}", replica_specs_field(kind)))
        }
        WorkloadKind::VolcanoJob => (volcano(spec)?, "spec.tasks".to_owned()),
        WorkloadKind::BatchJob => (batch(spec)?, "spec.parallelism".to_owned()),
        WorkloadKind::Deployment => (deployment(spec)?, "spec.replicas".to_owned()),
        WorkloadKind::Other => (Vec::new(), String::new()),
    };
    bounded(kind, spec, fleet_resources::sum(found.iter().map(|component| component.replicas)), field)?;
    Ok(found)
}

/// The pod template of each component, in the order of [`components`], with its path.
pub fn pod_templates(kind: WorkloadKind, object: &Value) -> Vec<(String, &Value)> {
    let spec = &object["spec"];
    match kind {
        WorkloadKind::PyTorchJob | WorkloadKind::TFJob | WorkloadKind::MPIJob => {
            let field = replica_specs_field(kind);
            let of = |role: &&'static str| {
                let role_spec = &spec[field][*role];
                let template = &role_spec["template"];
                let is_there =
                    role_spec.is_object() && (kind != WorkloadKind::MPIJob || template.is_object());
                is_there.then(|| (format!("spec.{field}.{role}.template"), template))
            };
            kind.roles().iter().filter_map(of).collect()
        }
        WorkloadKind::VolcanoJob => {
            let tasks = spec["tasks"].as_array().into_iter().flatten().enumerate();
            tasks.map(|(i, task)| (format!("spec.tasks[{i}].template"), &task["template"])).collect()
        }
        WorkloadKind::BatchJob | WorkloadKind::Deployment => {
            vec![("spec.template".to_owned(), &spec["template"])]
        }
        WorkloadKind::Other => Vec::new(),
    }
}

/// The sum over components of replicas times requests.
pub fn total(components: &[Component]) -> Resources {
    let mut sum = Resources::new();
    for component in components {
        sum.add(&component.requests.scaled(component.replicas));
    }
    sum
}

/// Components that cover each of several forms of one job: of every component the largest number of replicas, and
/// of every resource the largest request. Constraints are those of the first form that has the component.
pub fn most(forms: Vec<Vec<Component>>) -> Vec<Component> {
    let mut found: Vec<Component> = Vec::new();
    for component in forms.into_iter().flatten() {
        match found.iter_mut().find(|known| known.name == component.name) {
            Some(known) => {
                known.replicas = known.replicas.max(component.replicas);
                known.requests.raise_to(&component.requests);
                known.min_available = known.min_available.max(component.min_available);
            }
            None => found.push(component),
        }
    }
    found
}

fn kubeflow(kind: WorkloadKind, spec: &Value, roles: &[&str]) -> Result<Vec<Component>, WorkloadError> {
    let field = replica_specs_field(kind);
    let mut found = Vec::new();
    for role in roles {
        let role_spec = &spec[field][*role];
        let template = &role_spec["template"];
        // An MPIJob's role without a template has nothing to run.
        if !role_spec.is_object() || (kind == WorkloadKind::MPIJob && !template.is_object()) {
            continue;
        }
        let path = format!("spec.{field}.{role}");
        let absent = if kind == WorkloadKind::MPIJob && *role == "Worker" { 0 } else { 1 };
        let name = if kind == WorkloadKind::MPIJob { (*role).to_owned() } else { role.to_lowercase() };
        found.push(Component {
            name,
            replicas: count(&role_spec["replicas"], absent, || format!("{path}.replicas"))?,
            min_available: None,
            requests: requests_at(template, &path)?,
            pod_spec: requirements(&template["spec"]),
        });
    }
    let workers = found.iter().find(|component| component.name.eq_ignore_ascii_case("worker"));
    elastic::check(spec, workers.map(|component| component.replicas))?;
    Ok(found)
}

fn volcano(spec: &Value) -> Result<Vec<Component>, WorkloadError> {
    let tasks = spec["tasks"].as_array().map_or(&[][..], Vec::as_slice);
    let mut found = Vec::new();
    for (i, task) in tasks.iter().enumerate() {
        let path = format!("spec.tasks[{i}]");
        let name = task["name"].as_str().filter(|name| !name.is_empty());
        let replicas = count(&task["replicas"], 1, || format!("{path}.replicas"))?;
        let min = count(&task["minAvailable"], replicas, || format!("{path}.minAvailable"))?;
        found.push(Component {
            name: name.map_or_else(|| format!("default{i}"), str::to_owned),
            replicas,
            min_available: Some(min.min(replicas)),
            requests: requests_at(&task["template"], &path)?,
            pod_spec: requirements(&task["template"]["spec"]),
        });
        let name = &found[i].name;
        if found[..i].iter().any(|other: &Component| other.name == *name) {
            return Err(WorkloadError::Field {
                path: format!("{path}.name"),
                found: format!("{:?} twice", crate::spec::shortened(name)),
                allowed: "names that differ; a task without one is named default and its position",
            });
        }
    }
    Ok(found)
}

/// At most `parallelism` pods run at a time, and never more than are still to
/// complete.
fn batch(spec: &Value) -> Result<Vec<Component>, WorkloadError> {
    let parallelism = count(&spec["parallelism"], 1, || "spec.parallelism".to_owned())?;
    let completions = count(&spec["completions"], parallelism, || "spec.completions".to_owned())?;
    // Its pods stay until it is deleted.
    if !spec["completions"].is_null() {
        bounded(WorkloadKind::BatchJob, spec, completions, "spec.completions".to_owned())?;
    }
    Ok(vec![Component {
        name: "job".to_owned(),
        replicas: parallelism.min(completions),
        min_available: None,
        requests: requests_at(&spec["template"], "spec")?,
        pod_spec: requirements(&spec["template"]["spec"]),
    }])
}

/// By component, how many pods must succeed for the job to complete, where pods follow one another.
pub fn completions(kind: WorkloadKind, object: &Value) -> BTreeMap<String, i64> {
    if kind != WorkloadKind::BatchJob {
        return BTreeMap::new();
    }
    let number =
        |field: &str, absent: i64| count(&object["spec"][field], absent, String::new).unwrap_or(absent);
    BTreeMap::from([("job".to_owned(), number("completions", number("parallelism", 1)))])
}

fn deployment(spec: &Value) -> Result<Vec<Component>, WorkloadError> {
    Ok(vec![Component {
        name: "replica".to_owned(),
        replicas: count(&spec["replicas"], 1, || "spec.replicas".to_owned())?,
        min_available: None,
        requests: requests_at(&spec["template"], "spec")?,
        pod_spec: requirements(&spec["template"]["spec"]),
    }])
}

/// The request of one pod of a template, as Kubernetes counts ([`PodSum`]); the pod itself is not counted. Limits
/// count where requests are absent.
///
/// # Errors
/// An invalid quantity; its path starts at `template`.
pub fn template_requests(template: &Value) -> Result<Resources, WorkloadError> {
    requests_at(template, "")
}

/// What the pods of an object of any kind request, one of each template: an unknown kind is no way around a quota.
///
/// # Errors
/// An invalid quantity.
pub fn requests_of_any_pods(object: &Value) -> Result<Resources, WorkloadError> {
    let mut sum = Ok(Resources::new());
    pod_security::visit(object, &mut String::new(), &mut |path, found| {
        // A template is shown before its spec.
        if let (Ok(known), true) = (&mut sum, found["containers"].is_array()) {
            match requests_at(&json!({"spec": found}), path.strip_suffix(".template.spec").unwrap_or("")) {
                Ok(requests) => known.add(&requests),
                Err(error) => sum = Err(error),
            }
        }
    });
    sum
}

fn requests_at(template: &Value, path: &str) -> Result<Resources, WorkloadError> {
    let spec = &template["spec"];
    let path = if path.is_empty() { "template".to_owned() } else { format!("{path}.template") };
    if spec["nodeName"].as_str().is_some_and(|name| !name.is_empty()) {
        return Err(WorkloadError::Field {
            path: format!("{path}.spec.nodeName"),
            found: crate::spec::shortened(&spec["nodeName"].to_string()),
            allowed: "none, because such a pod bypasses every scheduler and uses places reserved for others; use a nodeSelector",
        });
    }
    let at = |list: &str, i: usize| format!("{path}.spec.{list}[{i}].resources");
    if !list(spec, "resourceClaims").is_empty() {
        return Err(WorkloadError::Field {
            path: format!("{path}.spec.resourceClaims"),
            found: format!("{} claims", list(spec, "resourceClaims").len()),
            allowed: "none, because no quota counts claims; use requests of resources",
        });
    }
    let mut sum = PodSum::default();
    for (i, container) in list(spec, "containers").iter().enumerate() {
        sum.container(&container_requests(container, || at("containers", i))?);
    }
    for (i, container) in list(spec, "initContainers").iter().enumerate() {
        let requests = container_requests(container, || at("initContainers", i))?;
        match container["restartPolicy"] == "Always" {
            true => sum.sidecar(&requests),
            false => sum.init(&requests),
        }
    }
    let mut pod = sum.of_containers();
    // The pod-level request may exceed the sum of its containers (Kubernetes 1.34), and is never less; without one,
    // the pod-level limits count. A member that does not know the field uses the containers' sum.
    let mut of_pod = amounts(&spec["resources"]["limits"], || format!("{path}.spec.resources.limits"))?;
    let requests = amounts(&spec["resources"]["requests"], || format!("{path}.spec.resources.requests"))?;
    for (name, amount) in requests.iter() {
        of_pod.set(name.clone(), amount);
    }
    pod.raise_to(&of_pod);
    pod.add(&amounts(&spec["overhead"], || format!("{path}.spec.overhead"))?);
    Ok(pod)
}

fn container_requests(container: &Value, path: impl Fn() -> String) -> Result<Resources, WorkloadError> {
    let resources = &container["resources"];
    let mut asked = amounts(&resources["limits"], || format!("{}.limits", path()))?;
    // An explicit request of zero counts as zero, so names are compared, not amounts.
    for (name, value) in resources["requests"].as_object().into_iter().flatten() {
        asked.set(name.as_str(), amount(name, value, || format!("{}.requests", path()))?);
    }
    Ok(asked)
}

fn amounts(list: &Value, path: impl Fn() -> String) -> Result<Resources, WorkloadError> {
    let mut found = Resources::new();
    for (name, value) in list.as_object().into_iter().flatten() {
        found.set(name.as_str(), amount(name, value, &path)?);
    }
    Ok(found)
}

fn amount(name: &str, value: &Value, path: impl Fn() -> String) -> Result<i64, WorkloadError> {
    let text = match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let amount =
        quantity::parse(name, &text).map_err(|source| WorkloadError::Quantity { path: path(), source })?;
    if amount < 0 {
        return Err(WorkloadError::Field {
            path: format!("{}.{name}", path()),
            found: text,
            allowed: "a quantity of 0 or more",
        });
    }
    Ok(amount)
}

fn list<'v>(spec: &'v Value, field: &str) -> &'v [Value] {
    spec[field].as_array().map_or(&[], Vec::as_slice)
}

fn requirements(spec: &Value) -> PodRequirements {
    let text = |field: &str| {
        let text = spec[field].as_str().filter(|text| !text.is_empty());
        text.map(str::to_owned)
    };
    let terms = spec
        .pointer("/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms");
    PodRequirements {
        node_selector: read(&spec["nodeSelector"]),
        node_affinity: terms.map(read).unwrap_or_default(),
        tolerations: read(&spec["tolerations"]),
        priority_class_name: text("priorityClassName"),
        scheduler_name: text("schedulerName"),
    }
}

fn read<T: serde::de::DeserializeOwned + Default>(value: &Value) -> T {
    T::deserialize(value).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn role(replicas: Value, resources: Value) -> Value {
        json!({"replicas": replicas, "template": {"spec": {"containers": [{"name": "c", "resources": resources}]}}})
    }

    fn requests(cpu: &str, memory: &str) -> Value {
        json!({"requests": {"cpu": cpu, "memory": memory}})
    }

    /// Components as `name replicas: requests`.
    fn check(kind: WorkloadKind, spec: Value, expected: &[&str]) {
        let found = components(kind, &json!({"spec": spec})).unwrap();
        let lines: Vec<String> =
            found.iter().map(|c| format!("{} {}: {}", c.name, c.replicas, c.requests)).collect();
        assert_eq!(lines, expected);
    }

    #[test]
    fn the_facts_table() {
        let torch = |roles: Value| json!({"pytorchReplicaSpecs": roles});
        check(
            WorkloadKind::PyTorchJob,
            torch(
                json!({"Worker": role(json!(4), requests("1", "512Mi")), "Master": role(json!(2), requests("500m", "256Mi"))}),
            ),
            &["master 2: cpu 500m, memory 256Mi", "worker 4: cpu 1, memory 512Mi"],
        );
        check(WorkloadKind::PyTorchJob, torch(json!({"Worker": role(json!(3), json!({}))})), &["worker 3: "]);
        check(
            WorkloadKind::PyTorchJob,
            torch(json!({"Master": role(json!("1"), json!({})), "Worker": role(json!("2"), json!({}))})),
            &["master 1: ", "worker 2: "],
        );
        check(
            WorkloadKind::PyTorchJob,
            torch(json!({"Master": role(Value::Null, json!({"limits": {"cpu": 2}})), "Worker": {}})),
            &["master 1: cpu 2", "worker 1: "],
        );
    }

    #[test]
    fn pods_of_a_batch_job_follow_one_another() {
        let of =
            |kind, spec: Value| completions(kind, &json!({"spec": spec})).into_values().collect::<Vec<_>>();
        assert_eq!(of(WorkloadKind::BatchJob, json!({"parallelism": 2, "completions": 5})), [5]);
        assert_eq!(of(WorkloadKind::BatchJob, json!({"parallelism": 2})), [2]);
        assert_eq!(of(WorkloadKind::BatchJob, json!({})), [1]);
        assert_eq!(of(WorkloadKind::VolcanoJob, json!({"completions": 5})), [0; 0]);
    }

    #[test]
    fn other_kinds() {
        check(
            WorkloadKind::MPIJob,
            json!({"mpiReplicaSpecs": {"Launcher": role(Value::Null, json!({})), "Worker": role(Value::Null, json!({}))}}),
            &["Launcher 1: ", "Worker 0: "],
        );
        check(
            WorkloadKind::VolcanoJob,
            json!({"tasks": [
                {"replicas": 3, "minAvailable": 1, "name": "ps", "template": {"spec": {"containers": [{"resources": {"requests": {"cpu": "1"}}}]}}},
                {"template": {}}]}),
            &["ps 3: cpu 1", "default1 1: "],
        );
        check(
            WorkloadKind::BatchJob,
            json!({"parallelism": 4, "completions": 3, "template": {}}),
            &["job 3: "],
        );
        check(WorkloadKind::Deployment, json!({"replicas": 2, "template": {}}), &["replica 2: "]);
        check(WorkloadKind::Other, json!({"data": {}}), &[]);
    }

    #[test]
    fn a_pod_counts_as_kubernetes_counts() {
        let container = |cpu: &str| json!({"resources": {"requests": {"cpu": cpu}}});
        let mut sidecar = container("1");
        sidecar["restartPolicy"] = json!("Always");
        let pod = |init: Value| {
            let spec = json!({"containers": [container("1"), container("2")], "initContainers": init, "overhead": {"cpu": "250m"}});
            json!({"template": {"spec": spec}})
        };
        check(WorkloadKind::BatchJob, pod(json!([])), &["job 1: cpu 3250m"]);
        check(WorkloadKind::BatchJob, pod(json!([container("5")])), &["job 1: cpu 5250m"]);
        check(WorkloadKind::BatchJob, pod(json!([sidecar, container("5")])), &["job 1: cpu 6250m"]);
        check(WorkloadKind::BatchJob, pod(json!([container("3"), sidecar])), &["job 1: cpu 4250m"]);
    }

    #[test]
    fn what_could_not_be_counted_is_refused() {
        let check = |kind: WorkloadKind, spec: Value, expected: &str| {
            let error = components(kind, &json!({"spec": spec})).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{error}");
        };
        // Where one is named as another without a name is, both would be one component.
        check(
            WorkloadKind::VolcanoJob,
            json!({"tasks": [{"name": "default1"}, {}]}),
            "spec.tasks[1].name: found",
        );
        let claims = json!({"template": {"spec": {"resourceClaims": [{"name": "gpu"}]}}});
        check(WorkloadKind::BatchJob, claims, "spec.template.spec.resourceClaims: found 1 claims");
        let elastic = json!({"elasticPolicy": {"maxReplicas": 9, "metrics": []}, "pytorchReplicaSpecs": {}});
        check(WorkloadKind::PyTorchJob, elastic, "spec.elasticPolicy.metrics: found");
    }

    #[test]
    fn requests_of_the_whole_pod_raise_the_sum_and_never_lower_it() {
        let pod = |resources: Value| {
            json!({"template": {"spec": {"resources": resources, "containers": [
                {"resources": {"requests": {"cpu": "2", "nvidia.com/gpu": "8"}}}]}}})
        };
        let none = json!({"requests": {"cpu": "0", "nvidia.com/gpu": "0"}});
        super::tests::check(WorkloadKind::BatchJob, pod(none), &["job 1: cpu 2, nvidia.com/gpu 8"]);
        let more = json!({"requests": {"cpu": "3"}});
        super::tests::check(WorkloadKind::BatchJob, pod(more), &["job 1: cpu 3, nvidia.com/gpu 8"]);
        let limits = json!({"limits": {"cpu": "4"}});
        super::tests::check(WorkloadKind::BatchJob, pod(limits), &["job 1: cpu 4, nvidia.com/gpu 8"]);
    }

    #[test]
    fn a_pod_that_passes_every_scheduler() {
        let spec = json!({"template": {"spec": {"nodeName": "node-0", "containers": []}}});
        let error = components(WorkloadKind::BatchJob, &json!({"spec": spec})).unwrap_err().to_string();
        assert!(error.starts_with("spec.template.spec.nodeName: found \"node-0\"; allowed: none"), "{error}");
    }

    #[test]
    fn a_name_that_pods_cannot_carry() {
        let job = |length: usize| json!({"metadata": {"name": "n".repeat(length)}, "spec": {}});
        let error = components(WorkloadKind::BatchJob, &job(64)).unwrap_err();
        let expected =
            "metadata.name: found 64 characters; allowed: at most 63, since its pods carry it in a label";
        assert_eq!(error.to_string(), expected);
        assert!(components(WorkloadKind::BatchJob, &job(63)).is_ok());
        assert!(components(WorkloadKind::Deployment, &job(240)).is_ok());
    }

    #[test]
    fn a_number_of_pods_that_nothing_could_hold_is_refused() {
        let refused = |kind: WorkloadKind, spec: Value, expected: &str| {
            let error = components(kind, &json!({"spec": spec})).unwrap_err().to_string();
            assert_eq!(error, expected);
        };
        let range = "allowed: a whole number of 0 or more, at most 2147483647";
        for replicas in
            [json!(i64::MAX), json!("9223372036854775807"), json!(2_147_483_648_i64), json!(1e300)]
        {
            let error = format!("spec.pytorchReplicaSpecs.Worker.replicas: found {replicas}; {range}");
            let roles = json!({"Worker": role(replicas, json!({}))});
            refused(WorkloadKind::PyTorchJob, json!({"pytorchReplicaSpecs": roles}), &error);
        }
        let roles = json!({"Launcher": role(json!(1), json!({})), "Worker": role(json!(100_000), json!({}))});
        let error = "spec.mpiReplicaSpecs: found 100001 pods; allowed: at most 5000 pods in all, since they get a list of the addresses of all";
        refused(WorkloadKind::MPIJob, json!({"mpiReplicaSpecs": roles}), error);
        let tasks = json!({"tasks": [{"replicas": i32::MAX}, {"name": "b", "replicas": i32::MAX}]});
        let error = "spec.tasks: found 4294967294 pods; allowed: at most 100000 pods in all";
        refused(WorkloadKind::VolcanoJob, tasks, error);
        let error = "spec.replicas: found 2147483647 pods; allowed: at most 100000 pods in all";
        refused(WorkloadKind::Deployment, json!({"replicas": i32::MAX}), error);
        let error = "spec.completions: found 100001 pods; allowed: at most 100000 pods in all";
        refused(WorkloadKind::BatchJob, json!({"completions": 100_001}), error);
        let error = "spec.parallelism: found 100001 pods; allowed: at most 100000 pods in all";
        refused(WorkloadKind::BatchJob, json!({"parallelism": 100_001}), error);
        check(WorkloadKind::BatchJob, json!({"completions": 100_000, "parallelism": 2}), &["job 2: "]);
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        let check = |spec: Value, expected: &str| {
            let error = components(WorkloadKind::PyTorchJob, &json!({"spec": {"pytorchReplicaSpecs": spec}}))
                .unwrap_err();
            assert!(error.to_string().starts_with(expected), "{error}");
        };
        check(
            json!({"Master": role(json!(-1), json!({}))}),
            "spec.pytorchReplicaSpecs.Master.replicas: found -1;",
        );
        check(
            json!({"Worker": role(json!(1), requests("two", "1Gi"))}),
            "spec.pytorchReplicaSpecs.Worker.template.spec.containers[0].resources.requests: resource \"cpu\": \"two\" is not",
        );
        check(
            json!({"Worker": role(json!(1), requests("-2", "1Gi"))}),
            "spec.pytorchReplicaSpecs.Worker.template.spec.containers[0].resources.requests.cpu: found -2;",
        );
    }

    #[test]
    fn several_forms_are_covered_by_the_most_of_each() {
        let form = |replicas: i64, cpu: &str, role_name: &str| {
            let spec = json!({role_name: role(json!(replicas), requests(cpu, "1Gi"))});
            components(WorkloadKind::PyTorchJob, &json!({"spec": {"pytorchReplicaSpecs": spec}})).unwrap()
        };
        let found = most(vec![form(2, "4", "Worker"), form(5, "1", "Worker"), form(1, "1", "Master")]);
        let lines: Vec<String> =
            found.iter().map(|c| format!("{} {}: {}", c.name, c.replicas, c.requests)).collect();
        assert_eq!(lines, ["worker 5: cpu 4, memory 1Gi", "master 1: cpu 1, memory 1Gi"]);
    }

    #[test]
    fn totals_and_requirements() {
        let object = json!({"spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": 2, "template": {"spec": {
            "nodeSelector": {"gpu": "a100"}, "schedulerName": "volcano", "priorityClassName": "high",
            "tolerations": [{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}],
            "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}]}}},
            "containers": [{"resources": {"limits": {"nvidia.com/gpu": 8}}}]}}}}}});
        let found = components(WorkloadKind::PyTorchJob, &object).unwrap();
        assert_eq!(total(&found).get("nvidia.com/gpu"), 16);
        let pod = &found[0].pod_spec;
        assert_eq!(pod.node_selector["gpu"], "a100");
        assert_eq!(pod.node_affinity[0].match_expressions[0].key, "zone");
        assert_eq!(pod.tolerations.len(), 1);
        assert_eq!(pod.scheduler_name.as_deref(), Some("volcano"));
        assert_eq!(pod.priority_class_name.as_deref(), Some("high"));
    }
}
