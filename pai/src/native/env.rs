//! The environment variables that OpenPAI gives its tasks.
//!
//! OpenPAI's pods share the network of their nodes and get random ports. Here each task has its own address, so its
//! ports are the same in every task of a role, and its host is its own name in the job's subdomain.

use serde_json::{Value, json};

use super::Submission;
use crate::{Code, Problem, Protocol, Refusal, TaskRole, names, render::MADE_MAX};

/// First port that is given to a label.
const FIRST_PORT: i64 = 20_000;
/// Most tasks whose addresses are written into every task. With more, the environment would be larger than the rest
/// of the job.
const ADDRESSED: i64 = 256;

/// Bytes of a variable in an object besides its name and its value.
const AROUND: usize = r#"{"name":"","value":""},"#.len();

/// The part that is the same in all roles.
pub(super) struct Shared {
    env: Vec<(String, String)>,
}

/// Variables in the making.
struct Variables {
    env: Vec<(String, String)>,
    /// Bytes that they may still get.
    left: usize,
}

impl Variables {
    /// Whether there was room for one more; without room, there is none for any further one.
    fn push(&mut self, name: String, value: String) -> bool {
        match self.left.checked_sub(name.len() + value.len() + AROUND) {
            Some(left) => {
                self.left = left;
                self.env.push((name, value));
                true
            }
            None => {
                self.left = 0;
                false
            }
        }
    }
}

impl Shared {
    /// # Errors
    /// They are larger than [`MADE_MAX`] in all roles together: each role has those of all.
    pub fn of(
        protocol: &Protocol,
        submission: &Submission<'_>,
        notices: &mut Vec<String>,
    ) -> Result<Self, Refusal> {
        let roles = protocol.task_roles.len();
        let mut found = Variables { env: Vec::new(), left: MADE_MAX / roles.max(1) };
        if add_all(protocol, submission, notices, &mut found) {
            return Ok(Self { env: found.env });
        }
        let found = format!(
            "variables of more than {} KiB in each of {roles} task roles",
            MADE_MAX / roles.max(1) / 1024
        );
        let allowed = format!(
            "at most {} KiB in all: fewer task roles, tasks and labels of ports, or shorter names; each task role has the \
             variables of all",
            MADE_MAX / 1024
        );
        Err(Refusal::one(Code::InvalidProtocol, Problem::new("taskRoles", found, allowed)))
    }

    /// The environment of a role's tasks.
    pub fn of_role(&self, role: &TaskRole) -> Vec<Value> {
        let text = |name: &str, value: &str| json!({"name": name, "value": value});
        let field =
            |name: &str, path: &str| json!({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}});
        let index = "metadata.annotations['volcano.sh/task-index']";
        let mut env: Vec<Value> = self.env.iter().map(|(name, value)| text(name, value)).collect();
        env.extend([
            text("PAI_CURRENT_TASK_ROLE_NAME", &role.name),
            field("PAI_CURRENT_TASK_ROLE_CURRENT_TASK_INDEX", index),
            field("PAI_TASK_INDEX", index),
            field("PAI_CURRENT_CONTAINER_IP", "status.podIP"),
            field("PAI_CONTAINER_HOST_IP", "status.podIP"),
        ]);
        for (label, ports) in ports(role) {
            env.push(text(&format!("PAI_CONTAINER_HOST_{label}_PORT_LIST"), &joined(&ports)));
            let own = match label {
                "ssh" => "PAI_CONTAINER_SSH_PORT",
                "http" => "PAI_CONTAINER_HOST_PORT",
                _ => continue,
            };
            env.push(text(own, &ports.first().copied().unwrap_or(FIRST_PORT).to_string()));
        }
        env
    }
}

/// Whether there was room for all.
fn add_all(
    protocol: &Protocol,
    submission: &Submission<'_>,
    notices: &mut Vec<String>,
    env: &mut Variables,
) -> bool {
    let id = names::id(submission.user, &protocol.name);
    let roles: Vec<&str> = protocol.task_roles.iter().map(|role| role.name.as_str()).collect();
    let (list, count, tasks) = (roles.join(","), roles.len().to_string(), protocol.tasks().to_string());
    let of_job = [
        ("PAI_JOB_NAME", id.as_str()),
        ("PAI_FRAMEWORK_NAME", &id),
        ("PAI_USER_NAME", submission.user),
        ("PAI_USERNAME", submission.user),
        ("PAI_VIRTUAL_CLUSTER", &protocol.virtual_cluster),
        ("PAI_DEFAULT_FS_URI", ""),
        ("PAI_TASK_ROLE_COUNT", &count),
        ("PAI_TASK_ROLE_LIST", &list),
        ("PAI_TASK_ROLES_NUM", &count),
        ("PAI_JOB_TASK_ROLE_COUNT", &count),
        ("PAI_JOB_TASK_ROLE_LIST", &list),
        ("PAI_TASKS_NUM", &tasks),
        ("PAI_JOB_TASK_COUNT", &tasks),
    ];
    let mut fits = of_job.into_iter().all(|(name, value)| env.push(name.to_owned(), value.to_owned()));
    for role in &protocol.task_roles {
        let wanted = &role.resources;
        let asked = format!("{},{},{},{}", wanted.gpu, wanted.cpu, wanted.memory_mb, role.shm_mb);
        let completion = &role.completion;
        let of_role = [
            ("PAI_TASK_ROLE_TASK_COUNT", role.instances.to_string()),
            ("PAI_RESOURCE", asked),
            ("PAI_MIN_FAILED_TASK_COUNT", completion.min_failed.to_string()),
            ("PAI_MIN_SUCCEEDED_TASK_COUNT", completion.min_succeeded.to_string()),
        ];
        fits =
            fits && of_role.into_iter().all(|(name, value)| env.push(format!("{name}_{}", role.name), value));
    }
    if protocol.tasks() > ADDRESSED {
        notices.push(format!(
            "PAI_HOST_IP_* and PAI_PORT_LIST_* are left out: the job has {tasks} tasks, and they are given up to \
             {ADDRESSED}"
        ));
        return fits;
    }
    let job = names::object_of_run(&names::object(submission.user, &protocol.name), submission.run);
    fits && addresses(protocol, &job, env)
}

/// The address of each task; whether there was room for all.
fn addresses(protocol: &Protocol, job: &str, env: &mut Variables) -> bool {
    for role in &protocol.task_roles {
        let (task, ports) = (names::task(&role.name), ports(role));
        for index in 0..role.instances {
            let of = format!("{}_{index}", role.name);
            // A single task has no service; its host is its own.
            let host = match protocol.tasks() {
                1 => "localhost".to_owned(),
                _ => format!("{job}-{task}-{index}.{job}"),
            };
            let fits = env.push(format!("PAI_HOST_IP_{of}"), host)
                && ports
                    .iter()
                    .all(|(label, ports)| env.push(format!("PAI_PORT_LIST_{of}_{label}"), joined(ports)));
            if !fits {
                return false;
            }
        }
    }
    true
}

fn joined(ports: &[i64]) -> String {
    ports.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

/// The ports of each label: one after the other.
fn ports(role: &TaskRole) -> Vec<(&str, Vec<i64>)> {
    let mut next = FIRST_PORT;
    let mut found = Vec::new();
    for (label, count) in &role.resources.ports {
        found.push((label.as_str(), (next..next + count).collect()));
        next += count;
    }
    found
}

/// Ports without names, because a container's port name has at most 15 characters.
pub(super) fn container_ports(role: &TaskRole) -> Vec<Value> {
    ports(role).into_iter().flat_map(|(_, ports)| ports).map(|port| json!({"containerPort": port})).collect()
}

/// Replaces the hosts of one run by those of another.
pub(super) fn readdress(env: &mut Value, old: &str, new: &str) {
    for entry in env.as_array_mut().into_iter().flatten() {
        let is_host = entry["name"].as_str().is_some_and(|name| name.starts_with("PAI_HOST_IP_"));
        let moved = entry["value"].as_str().filter(|_| is_host).and_then(|host| {
            let task = host.strip_prefix(old)?.strip_suffix(old)?.strip_suffix('.')?;
            Some(format!("{new}{task}.{new}"))
        });
        if let Some(moved) = moved {
            entry["value"] = moved.into();
        }
    }
}
