//! The shorthand `job`: a few fields become the real manifest of a training job.

use fleet_api::names::{SIM_FAIL_ON_ANNOTATION, SIM_RESULT_ANNOTATION, SIM_RUNTIME_ANNOTATION};
use fleet_quota_tree::PREEMPTIBLE_LABEL;
use serde_json::{Map, Value, json};

use super::{
    defaults::priority_class,
    fields::{Field, Fields, Read},
    model::{ClusterSpec, MAX_REPLICAS, Manifest},
    read::known_cluster,
};

/// Label that names the virtual cluster a job belongs to.
pub const VIRTUAL_CLUSTER_LABEL: &str = "fleet.dev/virtual-cluster";
const JOB: &str =
    "a map with name, components and perhaps kind, namespace, priority, runtime, result, failOn";
const KINDS: &str = "PyTorchJob, TFJob, MPIJob, Job or VolcanoJob";
const IMAGE: &str = "registry.example.com/simulated:v1";

/// How one kind writes its components.
struct Shape {
    api_version: &'static str,
    kind: &'static str,
    /// Roles that components may name; empty: any name.
    roles: &'static [&'static str],
    container: &'static str,
}

fn shape(kind: &str) -> Option<Shape> {
    let kubeflow = |api_version, kind, roles, container| Some(Shape { api_version, kind, roles, container });
    match kind {
        "PyTorchJob" => kubeflow("kubeflow.org/v1", "PyTorchJob", &["Master", "Worker"], "pytorch"),
        "TFJob" => kubeflow(
            "kubeflow.org/v1",
            "TFJob",
            &["PS", "Worker", "Chief", "Master", "Evaluator"],
            "tensorflow",
        ),
        "MPIJob" => kubeflow("kubeflow.org/v2beta1", "MPIJob", &["Launcher", "Worker"], "mpi"),
        "Job" => kubeflow("batch/v1", "Job", &["job"], "main"),
        "VolcanoJob" => kubeflow("batch.volcano.sh/v1alpha1", "Job", &[], "main"),
        _ => None,
    }
}

struct Component {
    /// As the kind spells it.
    role: String,
    replicas: i64,
    requests: Value,
    node_selector: Option<Value>,
    tolerations: Option<Value>,
}

pub(super) fn manifest(field: &Field<'_>, clusters: &[ClusterSpec]) -> Read<Manifest> {
    let mut fields = field.map(JOB)?;
    let shape = match fields.take("kind") {
        None => shape("PyTorchJob"),
        Some(field) => match shape(&field.text(KINDS)?) {
            None => return field.refuse(KINDS),
            known => known,
        },
    };
    let Some(shape) = shape else { return field.refuse(KINDS) };
    let name = fields.need("name", "the job's name")?.name()?;
    let namespace = match fields.take("namespace") {
        Some(field) => field.name()?,
        None => "default".to_string(),
    };
    let listed = fields.need("components", "a list of components: {name, replicas, requests}")?;
    let mut components: Vec<Component> = Vec::new();
    for item in listed.list("a list of components: {name, replicas, requests}")? {
        let component = component(&item, &shape)?;
        if components.iter().any(|known| known.role == component.role) {
            return Err(item.wrong(format!("a second component {:?}", component.role), "each name once"));
        }
        components.push(component);
    }
    if components.is_empty() {
        return listed.refuse("one component or more");
    }
    let class = match (fields.take("priority"), fields.take("priorityClassName")) {
        (Some(_), Some(field)) => return field.refuse("one of priority and priorityClassName"),
        (Some(field), None) => {
            Some(priority_class(field.whole(i32::MIN.into(), i32::MAX.into())?)).filter(|n| !n.is_empty())
        }
        (None, Some(field)) => Some(field.text("the name of a PriorityClass")?),
        (None, None) => None,
    };
    let metadata = metadata(&mut fields, &name, &namespace, clusters)?;
    fields.end()?;
    let value = json!({
        "apiVersion": shape.api_version,
        "kind": shape.kind,
        "metadata": metadata,
        "spec": spec(&shape, &components, class.as_deref()),
    });
    Ok(Manifest {
        line: field.at.line,
        api_version: shape.api_version.to_string(),
        kind: shape.kind.to_string(),
        namespace,
        name,
        value,
        is_new: true,
    })
}

/// The job's metadata, from the fields that become labels and annotations.
fn metadata(fields: &mut Fields<'_>, name: &str, namespace: &str, clusters: &[ClusterSpec]) -> Read<Value> {
    let mut labels =
        fields.take("labels").map(|f| f.texts("a map of labels")).transpose()?.unwrap_or_default();
    let mut annotations =
        fields.take("annotations").map(|f| f.texts("a map of annotations")).transpose()?.unwrap_or_default();
    if let Some(field) = fields.take("preemptible")
        && !field.truth()?
    {
        labels.insert(PREEMPTIBLE_LABEL.to_string(), "false".to_string());
    }
    if let Some(field) = fields.take("virtualCluster") {
        labels.insert(VIRTUAL_CLUSTER_LABEL.to_string(), field.name()?);
    }
    if let Some(field) = fields.take("runtime") {
        let forever = field.scalar("a duration or forever")? == "forever";
        let text =
            if forever { "forever".to_string() } else { format!("{}ms", field.duration()?.as_millis()) };
        annotations.insert(SIM_RUNTIME_ANNOTATION.to_string(), text);
    }
    if let Some(field) = fields.take("result") {
        match field.scalar("succeed or fail")?.as_str() {
            "succeed" => {}
            "fail" => {
                annotations.insert(SIM_RESULT_ANNOTATION.to_string(), "fail".to_string());
            }
            _ => return field.refuse("succeed or fail"),
        }
    }
    if let Some(field) = fields.take("failOn") {
        let on = field.list("a list of clusters of this file")?;
        let on = on.iter().map(|cluster| known_cluster(cluster, clusters)).collect::<Read<Vec<_>>>()?;
        annotations.insert(SIM_FAIL_ON_ANNOTATION.to_string(), on.join(","));
    }
    let mut metadata = json!({"name": name, "namespace": namespace});
    if !labels.is_empty() {
        metadata["labels"] = json!(labels);
    }
    if !annotations.is_empty() {
        metadata["annotations"] = json!(annotations);
    }
    Ok(metadata)
}

fn component(field: &Field<'_>, shape: &Shape) -> Read<Component> {
    let mut fields = field.map("a map with name, replicas and requests")?;
    let name = fields.need("name", "the component's name")?;
    let written = name.name()?;
    let role = if shape.roles.is_empty() {
        written
    } else {
        match shape.roles.iter().find(|role| role.to_lowercase() == written) {
            Some(role) => (*role).to_string(),
            None => return name.refuse(shape.roles.join(", ").to_lowercase()),
        }
    };
    let replicas = fields.take("replicas").map(|f| f.whole(0, MAX_REPLICAS)).transpose()?.unwrap_or(1);
    let requests = fields.take("requests").map(|f| f.quantities()).transpose()?.unwrap_or_default();
    let node_selector = fields.take("nodeSelector").map(|f| f.texts("a map of labels")).transpose()?;
    let tolerations = fields.take("tolerations");
    if let Some(field) = &tolerations {
        field.list("a list of tolerations")?;
    }
    fields.end()?;
    Ok(Component {
        role,
        replicas,
        requests: json!(requests),
        node_selector: node_selector.map(|selector| json!(selector)),
        tolerations: tolerations.map(|field| field.json()),
    })
}

fn spec(shape: &Shape, components: &[Component], class: Option<&str>) -> Value {
    let role_specs = || -> Value {
        let each = components.iter().map(|component| {
            let role = json!({
                "replicas": component.replicas,
                "restartPolicy": "Never",
                "template": template(shape, component, class, None),
            });
            (component.role.clone(), role)
        });
        Value::Object(each.collect::<Map<_, _>>())
    };
    match shape.kind {
        "PyTorchJob" => json!({"pytorchReplicaSpecs": role_specs()}),
        "TFJob" => json!({"tfReplicaSpecs": role_specs()}),
        "MPIJob" => json!({"mpiReplicaSpecs": role_specs()}),
        _ if shape.api_version == "batch/v1" => {
            let of = components.first();
            let replicas = of.map_or(1, |component| component.replicas);
            json!({
                "parallelism": replicas,
                "completions": replicas,
                "backoffLimit": 0,
                "template": of.map(|component| template(shape, component, class, Some("Never"))),
            })
        }
        _ => {
            let tasks: Vec<Value> = components
                .iter()
                .map(|component| {
                    json!({
                        "name": component.role,
                        "replicas": component.replicas,
                        "template": template(shape, component, class, Some("Never")),
                    })
                })
                .collect();
            let all: i64 = components.iter().map(|component| component.replicas).sum();
            json!({"minAvailable": all, "tasks": tasks})
        }
    }
}

fn template(shape: &Shape, component: &Component, class: Option<&str>, restart: Option<&str>) -> Value {
    let mut resources = json!({"requests": component.requests});
    let extended: Map<String, Value> = component
        .requests
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(name, _)| name.contains('/'))
        .map(|(name, amount)| (name.clone(), amount.clone()))
        .collect();
    // Kubernetes takes extended resources with a limit only.
    if !extended.is_empty() {
        resources["limits"] = Value::Object(extended);
    }
    let mut spec = json!({
        "containers": [{"name": shape.container, "image": IMAGE, "resources": resources}],
    });
    let extras = [
        ("priorityClassName", class.map(|class| json!(class))),
        ("restartPolicy", restart.map(|policy| json!(policy))),
        ("nodeSelector", component.node_selector.clone()),
        ("tolerations", component.tolerations.clone()),
    ];
    for (name, value) in extras {
        if let Some(value) = value {
            spec[name] = value;
        }
    }
    json!({"spec": spec})
}
