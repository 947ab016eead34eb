//! The form that makes a job: what is written in it, and the object that it means.

use fleet_api::{
    names::{CLASS_LABEL, VIRTUAL_CLUSTER_LABEL},
    yaml,
};
use fleet_quota_tree::QUOTA_LABELS;
use fleet_resources::quantity;
use fleet_views::amounts::GPU;
use serde_json::{Map, Value, json};

use crate::pairs::Pairs;

/// Kinds the form makes, and what they are for.
pub const KINDS: [(&str, &str); 3] = [
    ("PyTorchJob", "distributed PyTorch, one master and workers"),
    ("Volcano Job", "any roles, started together"),
    ("Job", "one role of plain pods"),
];
/// Roles that each kind takes.
pub const ROLES: [(&str, &str); 3] =
    [("PyTorchJob", "Master and Worker"), ("Volcano Job", "any names"), ("Job", "one of any name")];
const ROLES_SHOWN: usize = 3;
/// Classes of a virtual cluster's jobs, and what they mean for the job and for others.
pub const CLASSES: [(&str, &str); 3] = [
    ("prod", "gets cells that its virtual cluster is promised, and preempts test and oppo jobs for them"),
    (
        "test",
        "gets cells that its virtual cluster is promised, and is preempted by prod jobs. It is the class of a job that names none",
    ),
    ("oppo", "gets cells that nobody uses, and is preempted as soon as a prod or test job needs them"),
];

/// What is wrong, and the id of the field it is wrong in; empty where it is no field's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    pub field: String,
    pub message: String,
}

impl Trouble {
    pub fn new(field: &str, message: impl Into<String>) -> Self {
        Self { field: field.to_owned(), message: message.into() }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Role {
    pub name: String,
    pub replicas: String,
    pub image: String,
    pub command: String,
    pub gpus: String,
    pub cpu: String,
    pub memory: String,
}

impl Role {
    pub fn fields(&self) -> [(&'static str, &'static str, &str); 7] {
        [
            ("name", "Name", &self.name),
            ("replicas", "Replicas", &self.replicas),
            ("image", "Image", &self.image),
            ("command", "Command", &self.command),
            ("gpus", "GPUs", &self.gpus),
            ("cpu", "CPU", &self.cpu),
            ("memory", "Memory", &self.memory),
        ]
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Form {
    pub name: String,
    pub namespace: String,
    pub kind: String,
    pub queue: String,
    pub virtual_cluster: String,
    /// Of the cells: one of [`CLASSES`], or none.
    pub class: String,
    pub priority: String,
    pub roles: Vec<Role>,
}

impl Form {
    /// An empty one, with amounts to begin with in its first role.
    pub fn new(namespace: &str) -> Self {
        let mut roles = vec![Role {
            name: "Master".to_owned(),
            replicas: "1".to_owned(),
            gpus: "1".to_owned(),
            cpu: "1".to_owned(),
            memory: "1Gi".to_owned(),
            ..Role::default()
        }];
        roles.resize_with(ROLES_SHOWN, Role::default);
        Self {
            name: String::new(),
            namespace: namespace.to_owned(),
            kind: KINDS[0].0.to_owned(),
            queue: String::new(),
            virtual_cluster: String::new(),
            class: String::new(),
            priority: String::new(),
            roles,
        }
    }

    pub fn read(pairs: &Pairs) -> Self {
        let text = |name: &str| pairs.get(name).trim().to_owned();
        let role = |index: usize| {
            let text = |name: &str| text(&format!("role{index}-{name}"));
            Role {
                name: text("name"),
                replicas: text("replicas"),
                image: text("image"),
                command: text("command"),
                gpus: text("gpus"),
                cpu: text("cpu"),
                memory: text("memory"),
            }
        };
        Self {
            name: text("name"),
            namespace: text("namespace"),
            kind: text("kind"),
            queue: text("queue"),
            virtual_cluster: text("virtual_cluster"),
            class: text("class"),
            priority: text("priority"),
            roles: (0..ROLES_SHOWN).map(role).collect(),
        }
    }

    /// The object that it means.
    ///
    /// # Errors
    /// Every field that cannot be read. What else is wrong with the object, the hub says.
    pub fn object(&self) -> Result<Value, Vec<Trouble>> {
        let mut troubles = Vec::new();
        if !is_name(&self.name) {
            let message =
                format!("Name: found {:?}; allowed: 1 to 63 lower-case letters, digits and -", self.name);
            troubles.push(Trouble::new("name", message));
        }
        if !is_name(&self.namespace) {
            let message = format!("Namespace: found {:?}; allowed: the name of a namespace", self.namespace);
            troubles.push(Trouble::new("namespace", message));
        }
        if !self.class.is_empty() && !CLASSES.iter().any(|(class, _)| *class == self.class) {
            let allowed: Vec<&str> = CLASSES.iter().map(|(class, _)| *class).collect();
            let message = format!("Class: found {:?}; allowed: none, {}", self.class, allowed.join(", "));
            troubles.push(Trouble::new("class", message));
        }
        if !self.class.is_empty() && self.virtual_cluster.is_empty() {
            let message =
                format!("Class: found {:?} and no virtual cluster; allowed: both, or neither", self.class);
            troubles.push(Trouble::new("class", message));
        }
        let mut roles = Vec::new();
        for (index, role) in
            self.roles.iter().enumerate().filter(|(index, role)| *index == 0 || !role.name.is_empty())
        {
            match role.read(index) {
                Ok(read) => roles.push(read),
                Err(mut wrong) => troubles.append(&mut wrong),
            }
        }
        let named = || self.roles.iter().enumerate().filter(|(_, role)| !role.name.is_empty());
        if self.kind == "PyTorchJob"
            && let Some((index, odd)) =
                named().find(|(_, role)| !["Master", "Worker"].contains(&role.name.as_str()))
        {
            let message =
                format!("Role {}: found {:?}; allowed of a PyTorchJob: Master, Worker", index + 1, odd.name);
            troubles.push(Trouble::new(&format!("role{index}-name"), message));
        }
        if self.kind == "Job"
            && let Some((index, second)) = named().nth(1)
        {
            let message = format!("Role {}: found {:?}; allowed of a Job: one role", index + 1, second.name);
            troubles.push(Trouble::new(&format!("role{index}-name"), message));
        }
        if !troubles.is_empty() {
            return Err(troubles);
        }
        Ok(self.write(&roles))
    }

    fn write(&self, roles: &[ReadRole]) -> Value {
        let mut metadata = json!({"name": self.name, "namespace": self.namespace});
        let labels = [
            (QUOTA_LABELS[0], &self.queue),
            (VIRTUAL_CLUSTER_LABEL, &self.virtual_cluster),
            (CLASS_LABEL, &self.class),
        ];
        for (label, value) in labels.into_iter().filter(|(_, value)| !value.is_empty()) {
            metadata["labels"][label] = json!(value);
        }
        let template = |role: &ReadRole, restart: Option<&str>, container: &str| {
            let mut spec = json!({"containers": [{"name": container, "image": role.image,
                "resources": {"requests": role.requests, "limits": role.requests}}]});
            if !role.command.is_empty() {
                spec["containers"][0]["command"] = json!(["sh", "-c", role.command]);
            }
            if !self.priority.is_empty() {
                spec["priorityClassName"] = json!(self.priority);
            }
            if let Some(restart) = restart {
                spec["restartPolicy"] = json!(restart);
            }
            json!({"spec": spec})
        };
        match self.kind.as_str() {
            "Volcano Job" => {
                let tasks: Vec<Value> = roles
                    .iter()
                    .map(|role| {
                        json!({"name": role.name.to_lowercase(), "replicas": role.replicas,
                            "template": template(role, Some("Never"), "main")})
                    })
                    .collect();
                let mut object = json!({"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job",
                    "metadata": metadata, "spec": {"schedulerName": "volcano", "tasks": tasks}});
                if !self.priority.is_empty() {
                    object["spec"]["priorityClassName"] = json!(self.priority);
                }
                object
            }
            "Job" => {
                let replicas = roles.first().map_or(1, |role| role.replicas);
                let template = roles.first().map(|role| template(role, Some("Never"), "main"));
                json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata,
                    "spec": {"parallelism": replicas, "completions": replicas, "template": template}})
            }
            _ => {
                let specs: Map<String, Value> = roles
                    .iter()
                    .map(|role| {
                        let spec =
                            json!({"replicas": role.replicas, "template": template(role, None, "pytorch")});
                        (role.name.clone(), spec)
                    })
                    .collect();
                json!({"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": metadata,
                    "spec": {"pytorchReplicaSpecs": specs}})
            }
        }
    }

    /// The field that a path of the object came from.
    pub fn field_of(&self, message: &str) -> String {
        if let Some(field) = self.field_of_role(message) {
            return field;
        }
        let places = [
            ("metadata.name", "name"),
            ("namespaces", "namespace"),
            ("namespace", "namespace"),
            ("priorityClass", "priority"),
            ("PriorityClass", "priority"),
            (VIRTUAL_CLUSTER_LABEL, "virtual_cluster"),
            (CLASS_LABEL, "class"),
            (QUOTA_LABELS[0], "queue"),
            ("queue", "queue"),
            ("already exists", "name"),
        ];
        let found = places.iter().find(|(part, _)| message.contains(part)).map_or("", |(_, field)| field);
        found.to_owned()
    }

    /// The field of a role, where the path leads into one: `spec.pytorchReplicaSpecs[Worker].replicas`,
    /// `spec.tasks[1].template.spec.containers[0].image`.
    fn field_of_role(&self, message: &str) -> Option<String> {
        let behind = |start: &str| {
            let (_, rest) = message.split_once(start)?;
            let rest = rest.trim_start_matches(['[', '.']);
            let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '-').unwrap_or(rest.len());
            Some(rest.split_at(end))
        };
        // Roles without a name are left out of the object.
        let mut written =
            self.roles.iter().enumerate().filter(|(index, role)| *index == 0 || !role.name.is_empty());
        let (index, rest) = if let Some((name, rest)) = behind("pytorchReplicaSpecs") {
            (written.find(|(_, role)| role.name == name)?.0, rest)
        } else if let Some((number, rest)) = behind("spec.tasks") {
            (written.nth(number.parse().ok()?)?.0, rest)
        } else {
            let (_, rest) =
                message.split_once("spec.template").or_else(|| message.split_once("parallelism"))?;
            (0, rest)
        };
        let parts = [
            (GPU, "gpus"),
            ("cpu", "cpu"),
            ("memory", "memory"),
            ("image", "image"),
            ("command", "command"),
            ("replicas", "replicas"),
            ("priorityClassName", "priority"),
        ];
        let part = parts.iter().find(|(part, _)| rest.contains(part)).map_or("name", |(_, field)| field);
        Some(if part == "priority" { part.to_owned() } else { format!("role{index}-{part}") })
    }
}

struct ReadRole {
    name: String,
    replicas: i64,
    image: String,
    command: String,
    requests: Value,
}

impl Role {
    fn read(&self, index: usize) -> Result<ReadRole, Vec<Trouble>> {
        let mut troubles = Vec::new();
        let mut wrong = |field: &str, label: &str, found: &str, allowed: &str| {
            let message = format!("Role {}, {label}: found {found:?}; allowed: {allowed}", index + 1);
            troubles.push(Trouble::new(&format!("role{index}-{field}"), message));
        };
        if !is_name(&self.name.to_lowercase()) {
            wrong("name", "name", &self.name, "letters, digits and -");
        }
        let replicas = self.replicas.parse().ok().filter(|replicas| (1..=100_000).contains(replicas));
        if replicas.is_none() {
            wrong("replicas", "replicas", &self.replicas, "a whole number from 1 to 100000");
        }
        if self.image.is_empty() || self.image.contains(char::is_whitespace) {
            wrong("image", "image", &self.image, "the name of an image");
        }
        let mut requests = Map::new();
        let amounts = [
            ("gpus", "GPUs", GPU, &self.gpus),
            ("cpu", "CPU", "cpu", &self.cpu),
            ("memory", "memory", "memory", &self.memory),
        ];
        for (field, label, resource, text) in amounts {
            if text.is_empty() || text == "0" {
                continue;
            }
            match quantity::parse(resource, text) {
                Ok(amount) if amount >= 0 => {
                    requests.insert(resource.to_owned(), json!(text));
                }
                _ => wrong(field, label, text, "a quantity, such as 4, 500m or 16Gi"),
            }
        }
        match replicas {
            Some(replicas) if troubles.is_empty() => Ok(ReadRole {
                name: self.name.clone(),
                replicas,
                image: self.image.clone(),
                command: self.command.clone(),
                requests: Value::Object(requests),
            }),
            _ => Err(troubles),
        }
    }
}

/// A DNS label.
pub fn is_name(text: &str) -> bool {
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    (1..=63).contains(&text.len()) && text.chars().all(fits) && !text.starts_with('-') && !text.ends_with('-')
}

/// An object without what the hub adds, to be submitted again under another name.
pub fn clone_of(object: &Value) -> Value {
    let mut copy = json!({"apiVersion": object["apiVersion"], "kind": object["kind"],
        "metadata": {"name": "", "namespace": object["metadata"]["namespace"]}, "spec": object["spec"]});
    if let Some(labels) = object["metadata"]["labels"].as_object() {
        copy["metadata"]["labels"] = json!(labels);
    }
    copy
}

/// One object of a text.
///
/// # Errors
/// It is no YAML, or no object with a kind.
pub fn read_yaml(text: &str) -> Result<Value, Vec<Trouble>> {
    let objects: Vec<Value> =
        yaml::read_all(text).map_err(|error| vec![Trouble::new("yaml", format!("YAML: {error}"))])?;
    let found = objects.len();
    match <[Value; 1]>::try_from(objects) {
        Ok([object]) if object.is_object() => Ok(object),
        _ => Err(vec![Trouble::new("yaml", format!("YAML: found {found} documents; allowed: one job"))]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled() -> Form {
        let mut form = Form::new("team");
        form.name = "train".to_owned();
        form.queue = "research".to_owned();
        form.roles[0].image = "registry.example.com/a".to_owned();
        form.roles[0].command = "python train.py".to_owned();
        form
    }

    #[test]
    fn a_form_becomes_an_object() {
        let object = filled().object().expect("an object");
        insta::assert_snapshot!(yaml::write(&object).expect("yaml"));
        let mut volcano = filled();
        volcano.kind = "Volcano Job".to_owned();
        volcano.priority = "high".to_owned();
        volcano.roles[1] =
            Role { name: "Server".to_owned(), replicas: "2".to_owned(), ..volcano.roles[0].clone() };
        let object = volcano.object().expect("an object");
        assert_eq!(object["spec"]["tasks"][1]["name"], "server");
        assert_eq!(object["spec"]["priorityClassName"], "high");
        let mut plain = filled();
        plain.kind = "Job".to_owned();
        assert_eq!(plain.object().expect("an object")["spec"]["completions"], 1);
    }

    #[test]
    fn what_the_hub_says_stands_beside_the_field_of_its_path() {
        let mut form = filled();
        form.roles[2] = Role { name: "Worker".to_owned(), ..form.roles[0].clone() };
        let check =
            |form: &Form, message: &str, field: &str| assert_eq!(form.field_of(message), field, "{message}");
        let path = "PyTorchJob.kubeflow.org \"x\" is invalid: spec.pytorchReplicaSpecs";
        check(&form, &format!("{path}[Worker].replicas: Invalid value: 0"), "role2-replicas");
        check(
            &form,
            &format!("{path}.Worker.template.spec.containers[0].image: Required value"),
            "role2-image",
        );
        check(
            &form,
            &format!("{path}.Master.template.spec.containers[0].resources.limits[cpu]: odd"),
            "role0-cpu",
        );
        check(&form, &format!("{path}.Master.template.spec.priorityClassName: odd"), "priority");
        form.kind = "Volcano Job".to_owned();
        // The second role has no name: the second task is the third role.
        check(&form, "spec.tasks[1].replicas: Invalid value: 0", "role2-replicas");
        check(&form, "spec.tasks[0].name: Invalid value", "role0-name");
        check(&form, "spec.tasks[7].replicas: Invalid value: 0", "");
        form.kind = "Job".to_owned();
        check(
            &form,
            "Job.batch \"x\" is invalid: spec.template.spec.containers[0].image: Required",
            "role0-image",
        );
        check(&form, "namespaces \"b\" not found", "namespace");
        check(&form, "jobs \"x\" already exists", "name");
    }

    #[test]
    fn roles_without_a_name_have_no_amounts() {
        let form = Form::new("team");
        assert!(form.roles.iter().skip(1).all(|role| *role == Role::default()), "{form:?}");
        let object = filled().object().expect("an object");
        let specs = object["spec"]["pytorchReplicaSpecs"].as_object().expect("roles");
        assert_eq!(specs.keys().collect::<Vec<_>>(), ["Master"]);
    }

    #[test]
    fn every_wrong_field_is_named() {
        let check = |change: &dyn Fn(&mut Form), fields: &[&str]| {
            let mut form = filled();
            change(&mut form);
            let troubles = form.object().expect_err("wrong");
            let found: Vec<&str> = troubles.iter().map(|trouble| trouble.field.as_str()).collect();
            assert_eq!(found, fields, "{troubles:?}");
            assert!(troubles.iter().all(|trouble| trouble.message.contains("; allowed")), "{troubles:?}");
        };
        check(&|form| form.name = "Train!".to_owned(), &["name"]);
        check(&|form| form.namespace = String::new(), &["namespace"]);
        check(&|form| form.class = "prod".to_owned(), &["class"]);
        check(
            &|form| {
                form.virtual_cluster = "vc1".to_owned();
                form.class = "odd".to_owned();
            },
            &["class"],
        );
        check(&|form| form.roles[0].replicas = "none".to_owned(), &["role0-replicas"]);
        check(&|form| form.roles[0].image = String::new(), &["role0-image"]);
        check(&|form| form.roles[0].memory = "much".to_owned(), &["role0-memory"]);
        check(&|form| form.roles[0].name = "Chief".to_owned(), &["role0-name"]);
        check(
            &|form| {
                form.name = String::new();
                form.roles[0].cpu = "-1".to_owned();
            },
            &["name", "role0-cpu"],
        );
    }
}
