//! The objects that run a job in the fleet: a Volcano Job, and Secrets for what others may not read.
//!
//! A Volcano Job has several roles in one gang, with policies for each, and runs in members through Fleet's own
//! controller. For members with Volcano's controller, its policies express as much of the job's completion rules as
//! they can. For Fleet's controller, the annotation `pai.fleet.dev/completion` has all of them.

mod env;

use serde_json::{Map, Value, json};

use crate::{
    PrerequisiteKind, Protocol, Refusal, RegistryAuth, TaskRole,
    completion::Rules,
    hived::{Offer, Request, RoleRequest, request},
    names,
    render::{self, Script},
};

/// The resource name of GPUs.
const GPU: &str = "nvidia.com/gpu";
const INFINIBAND: &str = "rdma/hca";
/// Registry of images whose name says none.
const DEFAULT_REGISTRY: &str = "https://index.docker.io/v1/";
/// Where a task's scripts with secrets are mounted.
const SCRIPTS: &str = "/etc/pai";
const SHELL: &str = "/bin/bash";

/// A submitted job.
#[derive(Clone, Copy, Debug)]
pub struct Submission<'a> {
    pub protocol: &'a Protocol,
    pub user: &'a str,
    pub namespace: &'a str,
    /// 1 for the first time it is started.
    pub run: i64,
    /// The configuration to show, secrets masked.
    pub config: &'a str,
    pub submitted_ms: i64,
}

/// What to create. Secrets are for all runs of a job.
#[derive(Clone, Debug, PartialEq)]
pub struct Native {
    pub secrets: Vec<Value>,
    pub job: Value,
    /// Requests that have no effect, for the user.
    pub notices: Vec<String>,
}

/// Makes a job's objects.
///
/// # Errors
/// Why that is impossible; no object is made.
pub fn native(submission: &Submission<'_>, offer: &Offer) -> Result<Native, Refusal> {
    let protocol = submission.protocol;
    let request = request(protocol, submission.user, offer)?;
    let scripts = render::scripts(protocol)?;
    let logins = render::logins(protocol)?;
    let mut notices = protocol.notices.clone();
    let writer = Writer {
        submission,
        protocol,
        first: names::object(submission.user, &protocol.name),
        rules: Rules::of(protocol),
        env: env::Shared::of(protocol, submission, &mut notices)?,
    };
    Ok(writer.write(&request, &scripts, &logins, notices))
}

/// The object of a job's next run, from that of an earlier one.
pub fn rerun(job: &Value, run: i64) -> Value {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let old = text(&job["metadata"]["name"]);
    let first = text(&job["metadata"]["labels"][names::JOB_LABEL]);
    let new = names::object_of_run(&first, run);
    let mut next = json!({
        "apiVersion": job["apiVersion"],
        "kind": job["kind"],
        "metadata": {
            "name": new,
            "namespace": job["metadata"]["namespace"],
            "labels": job["metadata"]["labels"],
            "annotations": job["metadata"]["annotations"],
        },
        "spec": job["spec"],
    });
    next["metadata"]["labels"][names::RUN_LABEL] = run.to_string().into();
    for task in next["spec"]["tasks"].as_array_mut().into_iter().flatten() {
        let template = &mut task["template"];
        template["metadata"]["labels"][names::RUN_LABEL] = run.to_string().into();
        for container in template["spec"]["containers"].as_array_mut().into_iter().flatten() {
            env::readdress(&mut container["env"], &old, &new);
        }
    }
    next
}

struct Writer<'a> {
    submission: &'a Submission<'a>,
    protocol: &'a Protocol,
    /// Name of the first run's object.
    first: String,
    rules: Rules,
    env: env::Shared,
}

impl Writer<'_> {
    fn name(&self) -> String {
        names::object_of_run(&self.first, self.submission.run)
    }

    fn write(
        &self,
        request: &Request,
        scripts: &[Script],
        logins: &[(String, RegistryAuth)],
        notices: Vec<String>,
    ) -> Native {
        let mut secrets = Vec::new();
        let hidden: Map<String, Value> = scripts
            .iter()
            .filter(|script| script.has_secrets)
            .map(|script| (names::task(&script.role), Value::from(script.text.clone())))
            .collect();
        if !hidden.is_empty() {
            secrets.push(self.secret("scripts", "Opaque", hidden));
        }
        for (image, login) in self.needed(logins) {
            let registry = login.registry_uri.as_deref().unwrap_or(DEFAULT_REGISTRY);
            let config =
                json!({"auths": {registry: {"username": login.username, "password": login.password}}});
            let data = Map::from_iter([(".dockerconfigjson".to_owned(), config.to_string().into())]);
            secrets.push(self.secret(&login_name(image), "kubernetes.io/dockerconfigjson", data));
        }
        let roles = self.protocol.task_roles.iter().zip(scripts).zip(&request.roles);
        let tasks: Vec<Value> =
            roles.map(|((role, script), request)| self.task(role, script, request, logins)).collect();
        let mut spec = json!({
            "schedulerName": "volcano",
            "minAvailable": if self.protocol.extras.gang_allocation { self.protocol.tasks() } else { 1 },
            // Volcano counts runs, the protocol counts retries.
            "maxRetry": self.protocol.job_retry_count + 1,
            "tasks": tasks,
        });
        // A gang starts again as a whole. Of a job whose tasks start one by one, a lost task alone is made again.
        if self.protocol.extras.gang_allocation {
            spec["policies"] = json!([{"event": "PodEvicted", "action": "RestartJob"}]);
        }
        if self.protocol.tasks() > 1 {
            spec["plugins"] = json!({"env": [], "svc": ["--disable-network-policy=true"]});
        }
        if let [role] = self.protocol.task_roles.as_slice()
            && (1..role.instances).contains(&role.completion.min_succeeded)
        {
            spec["minSuccess"] = role.completion.min_succeeded.into();
        }
        let job = json!({
            "apiVersion": "batch.volcano.sh/v1alpha1",
            "kind": "Job",
            "metadata": {
                "name": self.name(),
                "namespace": self.submission.namespace,
                "labels": self.labels(),
                "annotations": self.annotations(),
            },
            "spec": spec,
        });
        Native { secrets, job, notices }
    }

    fn labels(&self) -> Value {
        json!({
            names::JOB_LABEL: self.first,
            names::USER_LABEL: self.submission.user,
            names::RUN_LABEL: self.submission.run.to_string(),
            names::VIRTUAL_CLUSTER_LABEL: self.protocol.virtual_cluster,
            names::CLASS_LABEL: self.protocol.extras.hived.class.to_string(),
        })
    }

    fn annotations(&self) -> Value {
        json!({
            names::ID_ANNOTATION: names::id(self.submission.user, &self.protocol.name),
            names::CONFIG_ANNOTATION: self.submission.config,
            names::SUBMITTED_ANNOTATION: self.submission.submitted_ms.to_string(),
            names::GPUS_ANNOTATION: self.protocol.gpus().to_string(),
            // Texts, numbers and lists of them can always be serialized.
            names::RULES_ANNOTATION: serde_json::to_string(&self.rules).unwrap_or_default(),
        })
    }

    fn secret(&self, what: &str, kind: &str, data: Map<String, Value>) -> Value {
        json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {
                "name": format!("{}-{what}", self.first),
                "namespace": self.submission.namespace,
                "labels": {names::JOB_LABEL: self.first},
            },
            "type": kind,
            "stringData": data,
        })
    }

    /// Logins for images that some role runs.
    fn needed<'l>(&self, logins: &'l [(String, RegistryAuth)]) -> Vec<(&'l str, &'l RegistryAuth)> {
        let is_used = |image: &str| self.protocol.task_roles.iter().any(|role| role.docker_image == image);
        logins
            .iter()
            .filter(|(image, _)| is_used(image))
            .map(|(image, login)| (image.as_str(), login))
            .collect()
    }

    fn task(
        &self,
        role: &TaskRole,
        script: &Script,
        request: &RoleRequest,
        logins: &[(String, RegistryAuth)],
    ) -> Value {
        let mut policies = Vec::new();
        // A native policy can express one failed pod, and the success of all pods of a task.
        if role.completion.min_failed == 1 {
            policies.push(json!({"event": "PodFailed", "action": "RestartJob"}));
        }
        if role.completion.min_succeeded == role.instances {
            policies.push(json!({"event": "TaskCompleted", "action": "CompleteJob"}));
        }
        let mut task = json!({
            "name": names::task(&role.name),
            "replicas": role.instances,
            "template": self.template(role, script, request, logins),
        });
        if !policies.is_empty() {
            task["policies"] = policies.into();
        }
        task
    }

    fn template(
        &self,
        role: &TaskRole,
        script: &Script,
        request: &RoleRequest,
        logins: &[(String, RegistryAuth)],
    ) -> Value {
        let image = self.protocol.prerequisite(PrerequisiteKind::DockerImage, &role.docker_image);
        let uri = image.and_then(|image| image.uri.first()).map_or("", String::as_str);
        let mut volumes = vec![
            json!({"name": "dshm", "emptyDir": {"medium": "Memory", "sizeLimit": format!("{}Mi", role.shm_mb)}}),
        ];
        let mut mounts = vec![json!({"name": "dshm", "mountPath": "/dev/shm"})];
        let command = if script.has_secrets {
            volumes.push(
                json!({"name": "scripts", "secret": {"secretName": format!("{}-scripts", self.first)}}),
            );
            mounts.push(json!({"name": "scripts", "mountPath": SCRIPTS, "readOnly": true}));
            json!([SHELL, format!("{SCRIPTS}/{}", names::task(&role.name))])
        } else {
            json!([SHELL, "-c", script.text])
        };
        let resources = resources(role);
        let mut spec = json!({
            "restartPolicy": "Never",
            "containers": [{
                "name": "app",
                "image": uri,
                "command": command,
                "env": self.env.of_role(role),
                "ports": env::container_ports(role),
                "resources": {"requests": resources, "limits": resources},
                "volumeMounts": mounts,
            }],
            "volumes": volumes,
        });
        if logins.iter().any(|(image, _)| *image == role.docker_image) {
            let name = format!("{}-{}", self.first, login_name(&role.docker_image));
            spec["imagePullSecrets"] = json!([{"name": name}]);
        }
        let mut labels = self.labels();
        labels[names::ROLE_LABEL] = names::task(&role.name).into();
        let mut metadata = json!({"labels": labels});
        if let Some(spec) = &request.spec {
            metadata["annotations"] = json!({names::HIVED_ANNOTATION: spec.text()});
        }
        json!({"metadata": metadata, "spec": spec})
    }
}

fn login_name(image: &str) -> String {
    format!("login-{}", names::task(image))
}

/// Of one task; zero requests are left out.
fn resources(role: &TaskRole) -> Value {
    let wanted = &role.resources;
    let parts = [
        ("cpu", wanted.cpu, wanted.cpu.to_string()),
        ("memory", wanted.memory_mb, format!("{}Mi", wanted.memory_mb)),
        (GPU, wanted.gpu, wanted.gpu.to_string()),
        (INFINIBAND, i64::from(role.infiniband), "1".to_owned()),
    ];
    let given = parts.into_iter().filter(|(_, amount, _)| *amount > 0);
    given.map(|(name, _, text)| (name.to_owned(), Value::from(text))).collect::<Map<_, _>>().into()
}
