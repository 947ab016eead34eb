//! The requests of a workload: its components, each a number of equal pods.

use std::collections::{BTreeMap, BTreeSet, btree_map::Entry};

use fleet_resources::constraints::{NodeSelectorTerm, Toleration};
use fleet_resources::{PodSum, Resources, quantity};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{
    WorkloadKind, elastic,
    error::{WorkloadError, count},
    limits::{TASKS_ALLOWED, TASKS_MAX, bounded, names_bounded},
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
        WorkloadKind::VolcanoJob => {
            names_bounded(object)?;
            (volcano(spec)?, "spec.tasks".to_owned())
        }
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
    let mut places: BTreeMap<String, usize> = BTreeMap::new();
    for component in forms.into_iter().flatten() {
        match places.entry(component.name.clone()) {
            Entry::Occupied(place) => {
                if let Some(known) = found.get_mut(*place.get()) {
                    known.replicas = known.replicas.max(component.replicas);
                    known.requests.raise_to(&component.requests);
                    known.min_available = known.min_available.max(component.min_available);
                }
            }
            Entry::Vacant(place) => {
                place.insert(found.len());
                found.push(component);
            }
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
    let tasks = list(spec, "tasks");
    if tasks.len() > TASKS_MAX {
        return Err(WorkloadError::Field {
            path: "spec.tasks".to_owned(),
            found: format!("{} tasks", tasks.len()),
            allowed: TASKS_ALLOWED,
        });
    }
    let mut found = Vec::new();
    let mut names: BTreeSet<String> = BTreeSet::new();
    for (i, task) in tasks.iter().enumerate() {
        let path = format!("spec.tasks[{i}]");
        let name = task["name"].as_str().filter(|name| !name.is_empty());
        let name = name.map_or_else(|| format!("default{i}"), str::to_owned);
        let replicas = count(&task["replicas"], 1, || format!("{path}.replicas"))?;
        let min = count(&task["minAvailable"], replicas, || format!("{path}.minAvailable"))?;
        found.push(Component {
            name: name.clone(),
            replicas,
            min_available: Some(min.min(replicas)),
            requests: requests_at(&task["template"], &path)?,
            pod_spec: requirements(&task["template"]["spec"]),
        });
        if let Some(name) = names.replace(name) {
            return Err(WorkloadError::Field {
                path: format!("{path}.name"),
                found: format!("{:?} twice", crate::spec::shortened(&name)),
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
    // Written for an error alone: where templates are, names may be long.
    let path = || if path.is_empty() { "template".to_owned() } else { format!("{path}.template") };
    if spec["nodeName"].as_str().is_some_and(|name| !name.is_empty()) {
        return Err(WorkloadError::Field {
            path: format!("{}.spec.nodeName", path()),
            found: crate::spec::shortened(&spec["nodeName"].to_string()),
            allowed: "none, because such a pod bypasses every scheduler and uses places reserved for others; use a nodeSelector",
        });
    }
    let at = |list: &str, i: usize| format!("{}.spec.{list}[{i}].resources", path());
    if !list(spec, "resourceClaims").is_empty() {
        return Err(WorkloadError::Field {
            path: format!("{}.spec.resourceClaims", path()),
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
    let of = |field: &str| format!("{}.spec.{field}", path());
    let mut of_pod = amounts(&spec["resources"]["limits"], || of("resources.limits"))?;
    let requests = amounts(&spec["resources"]["requests"], || of("resources.requests"))?;
    for (name, amount) in requests.iter() {
        of_pod.set(name.clone(), amount);
    }
    pod.raise_to(&of_pod);
    pod.add(&amounts(&spec["overhead"], || of("overhead"))?);
    Ok(pod)
}

fn container_requests(container: &Value, path: impl Fn() -> String) -> Result<Resources, WorkloadError> {
    let resources = &container["resources"];
    let mut asked = amounts(&resources["limits"], || format!("{}.limits", path()))?;
    // An explicit request of zero counts as zero, so names are compared, not amounts.
    for (name, value) in resources["requests"].as_object().into_iter().flatten() {
        let found = amount(name, value, || format!("{}.requests", path()))?;
        // No API server takes such a pod.
        if resources["limits"].get(name).is_some() && found > asked.get(name) {
            return Err(WorkloadError::Field {
                path: format!("{}.requests.{name}", path()),
                found: text_of(value),
                allowed: "at most the limit of this resource",
            });
        }
        asked.set(name.as_str(), found);
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
    let text = text_of(value);
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

/// A quantity as it was written: as a text or as a number.
fn text_of(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
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
mod tests;
