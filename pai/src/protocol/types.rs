//! The protocol's types, after defaults are applied.

use std::collections::BTreeMap;

use crate::Doc;

/// Most tasks of a job: the pods of one workload that a hub takes.
pub(crate) const TASKS_MAX: i64 = 100_000;
/// Most task roles of a job: the tasks that the definition of the Volcano Job allows.
pub(crate) const ROLES_MAX: usize = 100;

/// A job as its owner describes it.
#[derive(Clone, Debug, PartialEq)]
pub struct Protocol {
    pub name: String,
    pub version: Option<String>,
    pub contributor: Option<String>,
    pub description: Option<String>,
    pub prerequisites: Vec<Prerequisite>,
    /// Maps that templates can refer to.
    pub parameters: Doc,
    pub secrets: Doc,
    /// Retries of the whole job after failures that count.
    pub job_retry_count: i64,
    /// In the order of the file.
    pub task_roles: Vec<TaskRole>,
    pub deployments: Vec<Deployment>,
    /// Name of the deployment whose commands run before and after those of the roles.
    pub deployment: Option<String>,
    pub virtual_cluster: String,
    pub extras: Extras,
    /// Things the file asks for that Fleet does not do, for people.
    pub notices: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PrerequisiteKind {
    Script,
    Output,
    Data,
    DockerImage,
}

impl PrerequisiteKind {
    pub const ALL: [(Self, &'static str); 4] = [
        (Self::Script, "script"),
        (Self::Output, "output"),
        (Self::Data, "data"),
        (Self::DockerImage, "dockerimage"),
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Script => "script",
            Self::Output => "output",
            Self::Data => "data",
            Self::DockerImage => "dockerimage",
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Prerequisite {
    pub name: String,
    pub kind: PrerequisiteKind,
    /// One, but for data.
    pub uri: Vec<String>,
    pub auth: Option<RegistryAuth>,
    /// As it stands in the file, for templates.
    pub doc: Doc,
    pub require: Vec<String>,
}

/// How to log in to an image's registry. May hold templates of secrets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RegistryAuth {
    pub username: String,
    pub password: String,
    pub registry_uri: Option<String>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct TaskRole {
    pub name: String,
    pub instances: i64,
    pub completion: Completion,
    /// Retries of one task after failures that count; -1: after any failure, -2: always. Of incremental jobs only.
    pub task_retry_count: i64,
    pub docker_image: String,
    pub data: Option<String>,
    pub output: Option<String>,
    pub script: Option<String>,
    pub prerequisites: Vec<String>,
    /// Shared memory in MiB.
    pub shm_mb: i64,
    pub infiniband: bool,
    pub resources: TaskResources,
    pub commands: Vec<String>,
    /// Where it stands in the file.
    pub(crate) line: u64,
}

/// When a role ends its job. -1: never.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// So many failed tasks fail the attempt.
    pub min_failed: i64,
    /// So many succeeded tasks make the attempt succeed.
    pub min_succeeded: i64,
}

/// What one task asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TaskResources {
    pub cpu: i64,
    pub memory_mb: i64,
    pub gpu: i64,
    /// Label to number of ports, in the order of the file; `ssh` and `http` are always there.
    pub ports: Vec<(String, i64)>,
}

/// Commands before and after those of roles, for one place to run at.
#[derive(Clone, Debug, PartialEq)]
pub struct Deployment {
    pub name: String,
    pub task_roles: BTreeMap<String, RoleCommands>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RoleCommands {
    pub before: Vec<String>,
    pub after: Vec<String>,
}

/// What is beyond the protocol proper.
#[derive(Clone, Debug, PartialEq)]
pub struct Extras {
    /// All tasks start together, or none.
    pub gang_allocation: bool,
    pub hived: HivedExtras,
    /// All of it, as it stands in the file.
    pub doc: Doc,
}

/// Priority of a job in its virtual cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// Runs on capacity that others leave idle, and is preempted by any other class.
    Opportunistic,
    Test,
    Production,
    Number(i64),
}

impl Class {
    /// Priorities that HiveD takes.
    pub const RANGE: (i64, i64) = (-1, 1000);

    pub fn priority(self) -> i64 {
        match self {
            Self::Opportunistic => -1,
            Self::Test => 10,
            Self::Production => 100,
            Self::Number(priority) => priority,
        }
    }

    /// The class by name, where the priority is that of one.
    pub fn of_priority(priority: i64) -> Self {
        match priority {
            -1 => Self::Opportunistic,
            10 => Self::Test,
            100 => Self::Production,
            priority => Self::Number(priority),
        }
    }

    pub fn is_opportunistic(self) -> bool {
        self.priority() < 0
    }
}

impl std::fmt::Display for Class {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Opportunistic => f.write_str("oppo"),
            Self::Test => f.write_str("test"),
            Self::Production => f.write_str("prod"),
            Self::Number(priority) => write!(f, "{priority}"),
        }
    }
}

/// `extras.hivedScheduler`.
#[derive(Clone, Debug, PartialEq)]
pub struct HivedExtras {
    pub class: Class,
    /// What the file says of roles; a role may be absent.
    pub roles: BTreeMap<String, HivedRole>,
    pub groups: Vec<RoleGroup>,
    /// Cells as SKUs, with topology: some field asks for the second form of the scheduling spec.
    pub is_v2: bool,
    pub gang_release: Option<bool>,
    pub lazy_preemption: Option<bool>,
    pub ignore_suggested_nodes: Option<bool>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HivedRole {
    pub sku_type: Option<String>,
    /// Taken in the second form only; the first computes it from what the tasks ask for.
    pub sku_num: Option<i64>,
    pub pinned_cell_id: Option<String>,
    pub affinity_group: Option<String>,
    /// Type of a cell that must hold the whole role.
    pub within_one: Option<String>,
    pub gang_release: Option<bool>,
    pub lazy_preemption: Option<bool>,
    pub ignore_suggested_nodes: Option<bool>,
    pub(crate) line: u64,
}

/// Roles that start together within one cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoleGroup {
    pub roles: Vec<String>,
    pub within_one: Option<String>,
}

impl Protocol {
    pub fn role(&self, name: &str) -> Option<&TaskRole> {
        self.task_roles.iter().find(|role| role.name == name)
    }

    pub fn prerequisite(&self, kind: PrerequisiteKind, name: &str) -> Option<&Prerequisite> {
        self.prerequisites.iter().find(|one| one.kind == kind && one.name == name)
    }

    /// All tasks of all roles.
    pub fn tasks(&self) -> i64 {
        self.task_roles.iter().map(|role| role.instances).sum()
    }

    pub fn gpus(&self) -> i64 {
        self.task_roles.iter().map(|role| role.instances * role.resources.gpu).sum()
    }

    /// The settings of a role for HiveD.
    pub fn hived_role(&self, role: &str) -> HivedRole {
        self.extras.hived.roles.get(role).cloned().unwrap_or_default()
    }
}
