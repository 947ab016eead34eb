//! The form filled in from a job, so that it can be changed and submitted again. Only a job of which the form says
//! everything: what it could not say would be lost, and such a job is cloned as YAML.

use fleet_api::names::{CLASS_LABEL, USER_LABELS, VIRTUAL_CLUSTER_LABEL};
use fleet_quota_tree::QUOTA_LABELS;
use fleet_views::amounts::GPU;
use serde_json::Value;

use crate::form::{Form, KINDS, Role};

/// Fields with what the hub or a controller writes into them where nobody has said anything: the form leaves them out,
/// and they come again.
const DEFAULTS: [(&str, &[&str]); 14] = [
    ("backoffLimit", &["6"]),
    ("completionMode", &["NonIndexed"]),
    ("creationTimestamp", &["null"]),
    ("dnsPolicy", &["ClusterFirst"]),
    ("imagePullPolicy", &["Always", "IfNotPresent"]),
    ("manualSelector", &["false"]),
    ("maxRetry", &["3"]),
    ("podReplacementPolicy", &["TerminatingOrFailed"]),
    ("queue", &["default"]),
    ("schedulerName", &["default-scheduler"]),
    ("suspend", &["false"]),
    ("terminationGracePeriodSeconds", &["30"]),
    ("terminationMessagePath", &["/dev/termination-log"]),
    ("terminationMessagePolicy", &["File"]),
];
/// Labels that a controller writes into a template, and the portal into a job.
const OF_CONTROLLERS: [&str; 3] = ["batch.kubernetes.io/", "controller-uid", USER_LABELS[0]];

impl Form {
    /// The form that means this object, without its name.
    pub fn of(object: &Value) -> Option<Self> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (spec, labels) = (&object["spec"], &object["metadata"]["labels"]);
        let (kind, roles) = match (object["apiVersion"].as_str()?, object["kind"].as_str()?) {
            ("kubeflow.org/v1", "PyTorchJob") => {
                let specs = spec["pytorchReplicaSpecs"].as_object()?;
                let role = |(name, spec): (&String, &Value)| role(name, &spec["replicas"], &spec["template"]);
                (KINDS[0].0, specs.iter().map(role).collect::<Option<Vec<_>>>()?)
            }
            ("batch.volcano.sh/v1alpha1", "Job") => {
                let tasks = spec["tasks"].as_array()?.iter();
                let role = |task: &Value| role(task["name"].as_str()?, &task["replicas"], &task["template"]);
                let pods: i64 = tasks.clone().filter_map(|task| task["replicas"].as_i64()).sum();
                // As many as there are is what Volcano takes where nothing is said.
                spec["minAvailable"].as_i64().is_none_or(|least| least == pods).then_some(())?;
                (KINDS[1].0, tasks.map(role).collect::<Option<Vec<_>>>()?)
            }
            ("batch/v1", "Job") => (KINDS[2].0, vec![role("main", &spec["parallelism"], &spec["template"])?]),
            _ => return None,
        };
        let template = &object.pointer(first_template(kind, object)?.as_str())?["spec"];
        let mut form = Self::new(object["metadata"]["namespace"].as_str().unwrap_or_default());
        if roles.len() > form.roles.len() {
            return None;
        }
        form.kind = kind.to_owned();
        form.queue = text(&labels[QUOTA_LABELS[0]]);
        form.virtual_cluster = text(&labels[VIRTUAL_CLUSTER_LABEL]);
        form.class = text(&labels[CLASS_LABEL]);
        form.priority = text(&template["priorityClassName"]);
        for (place, role) in form.roles.iter_mut().zip(roles) {
            *place = role;
        }
        let mut named = form.clone();
        "name".clone_into(&mut named.name);
        let meant = named.object().ok()?;
        let mut spec = spec.clone();
        if let Some(fields) = spec.as_object_mut() {
            fields.remove("minAvailable");
            // Of a batch Job, by its controller: one of the user's own has manualSelector, too.
            fields.remove("selector");
        }
        for task in spec["tasks"].as_array_mut().into_iter().flatten().filter_map(Value::as_object_mut) {
            if task.get("minAvailable") == task.get("replicas") {
                task.remove("minAvailable");
            }
        }
        let has_labels = is_said(labels, &meant["metadata"]["labels"]);
        (is_said(&spec, &meant["spec"]) && has_labels).then_some(form)
    }
}

fn first_template(kind: &str, object: &Value) -> Option<String> {
    Some(match kind {
        "PyTorchJob" => {
            let specs = object["spec"]["pytorchReplicaSpecs"].as_object()?;
            format!("/spec/pytorchReplicaSpecs/{}/template", specs.keys().next()?)
        }
        "Volcano Job" => "/spec/tasks/0/template".to_owned(),
        _ => "/spec/template".to_owned(),
    })
}

fn role(name: &str, replicas: &Value, template: &Value) -> Option<Role> {
    let [container] = template["spec"]["containers"].as_array()?.as_slice() else { return None };
    let text = |value: &Value| match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let resources = &container["resources"];
    let amounts = &resources["limits"];
    if amounts.is_null() && !resources["requests"].is_null() {
        return None;
    }
    let command = match container["command"].as_array().map(Vec::as_slice) {
        None | Some([]) => String::new(),
        Some([shell, flag, line]) if shell == "sh" && flag == "-c" => text(line),
        Some(_) => return None,
    };
    Some(Role {
        name: name.to_owned(),
        replicas: if replicas.is_null() { "1".to_owned() } else { text(replicas) },
        image: text(&container["image"]),
        command,
        gpus: text(&amounts[GPU]),
        cpu: text(&amounts["cpu"]),
        memory: text(&amounts["memory"]),
    })
}

/// Whether all that the object holds is in what the form means, but for what is filled in by others.
fn is_said(held: &Value, meant: &Value) -> bool {
    match (held, meant) {
        (Value::Object(held), meant) => held.iter().all(|(name, value)| {
            is_default(name, value)
                || OF_CONTROLLERS.iter().any(|mark| name.starts_with(mark))
                || is_said(value, &meant[name])
        }),
        (Value::Array(held), Value::Array(meant)) => {
            held.len() == meant.len() && held.iter().zip(meant).all(|(held, meant)| is_said(held, meant))
        }
        (Value::Array(held), _) => held.is_empty(),
        (Value::Null, _) => true,
        // A form has texts only, and a number may stand for the same amount.
        (Value::Number(number), Value::String(text)) => number.to_string() == *text,
        (held, meant) => held == meant,
    }
}

fn is_default(name: &str, value: &Value) -> bool {
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    DEFAULTS.iter().any(|(field, defaults)| *field == name && defaults.contains(&text.as_str()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn filled(kind: &str) -> Form {
        let mut form = Form::new("team");
        form.kind = kind.to_owned();
        form.name = "train".to_owned();
        form.queue = "research".to_owned();
        form.virtual_cluster = "vc1".to_owned();
        form.class = "prod".to_owned();
        form.priority = "high".to_owned();
        form.roles[0].image = "registry.example.com/a".to_owned();
        form.roles[0].command = "python train.py".to_owned();
        if kind != "Job" {
            let name = if kind == "PyTorchJob" { "Worker" } else { "ps" };
            form.roles[1] = Role { name: name.to_owned(), replicas: "3".to_owned(), ..form.roles[0].clone() };
        }
        form
    }

    #[test]
    fn a_form_comes_back_as_it_was() {
        for (kind, _) in KINDS {
            let mut form = filled(kind);
            let mut object = form.object().expect("an object");
            let spec = &mut object["spec"];
            // As it stands on a hub.
            spec["backoffLimit"] = json!(6);
            let template = match kind {
                "PyTorchJob" => &mut spec["pytorchReplicaSpecs"]["Master"]["template"],
                "Volcano Job" => &mut spec["tasks"][0]["template"],
                _ => &mut spec["template"],
            };
            template["spec"]["dnsPolicy"] = json!("ClusterFirst");
            template["spec"]["securityContext"] = json!({});
            template["metadata"] = json!({"labels": {"controller-uid": "1"}, "creationTimestamp": null});
            form.name = String::new();
            if kind == "Job" {
                form.roles[0].name = "main".to_owned();
            }
            if kind == "Volcano Job" {
                form.roles[0].name = "master".to_owned();
            }
            assert_eq!(Form::of(&object), Some(form), "{object}");
        }
    }

    #[test]
    fn what_the_form_cannot_say_is_not_lost() {
        let whole = filled("PyTorchJob").object().expect("an object");
        let check = |change: &dyn Fn(&mut Value)| {
            let mut object = whole.clone();
            change(&mut object);
            assert_eq!(Form::of(&object), None, "{object}");
        };
        let at = "/spec/pytorchReplicaSpecs/Worker/template/spec";
        let set = |field: &'static str, value: Value| {
            move |object: &mut Value| {
                if let Some(spec) = object.pointer_mut(at) {
                    spec[field] = value.clone();
                }
            }
        };
        check(&set("nodeSelector", json!({"zone": "a"})));
        check(&set("volumes", json!([{"name": "data", "emptyDir": {}}])));
        check(&set("schedulerName", json!("mine")));
        check(&set("terminationGracePeriodSeconds", json!(5)));
        check(&|object| object["spec"]["runPolicy"] = json!({"backoffLimit": 2}));
        check(&|object| {
            object["spec"]["pytorchReplicaSpecs"]["Worker"]["restartPolicy"] = json!("OnFailure")
        });
        check(&|object| object["metadata"]["labels"]["stage"] = json!("a"));
        check(&|object| object["kind"] = json!("TFJob"));
        let container = |field: &'static str, value: Value| {
            move |object: &mut Value| {
                if let Some(one) = object.pointer_mut(&format!("{at}/containers/0")) {
                    one[field] = value.clone();
                }
            }
        };
        check(&container("command", json!(["python", "train.py"])));
        check(&container("env", json!([{"name": "A", "value": "b"}])));
        check(&container("name", json!("other")));
        check(&container("resources", json!({"requests": {"cpu": "1"}})));
        check(&container("resources", json!({"requests": {"cpu": "1"}, "limits": {"cpu": "2"}})));
        check(&container("resources", json!({"limits": {"example.com/nic": "1"}})));
        let mut volcano = filled("Volcano Job").object().expect("an object");
        volcano["spec"]["minAvailable"] = json!(1);
        assert_eq!(Form::of(&volcano), None);
        volcano["spec"]["minAvailable"] = json!(4);
        assert!(Form::of(&volcano).is_some(), "as many as there are is the default");
    }
}
