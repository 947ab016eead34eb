//! One task of a Job: a template and how many pods are made from it.

use serde_json::Value;

use fleet_agent_ground::Object;
use fleet_policies::{
    WorkloadKind,
    workload::{HOSTS_MAX, PODS_MAX, lists_hosts},
};

use crate::{
    cycle,
    plan::{count, limits},
};

pub(crate) const DEFAULT_MAX_RETRY: i64 = 3;

pub(super) struct Task<'a> {
    pub name: String,
    pub replicas: i64,
    pub min_available: i64,
    pub template: &'a Value,
    pub policies: &'a [Value],
    /// Pods of one partition are restarted together; 0: no partitions.
    pub partition_size: i64,
    pub spec: &'a Value,
    /// Addresses in its list of hosts at most.
    hosts_max: i64,
}

/// The tasks in their order; one without a name is `default<i>`, as in Volcano's admission.
pub(super) fn of(job: &Object) -> Vec<Task<'_>> {
    let tasks = job.spec["tasks"].as_array().map_or(&[][..], Vec::as_slice);
    let hosts_max = match too_many(job) {
        None => HOSTS_MAX,
        Some(_) => HOSTS_MAX / i64::try_from(tasks.len().max(1)).unwrap_or(i64::MAX),
    };
    let read = |(i, spec): (usize, &'_ Value)| -> (String, i64) {
        let name = spec["name"].as_str().filter(|name| !name.is_empty());
        // Above the limit the job is refused, and no loop is longer.
        let replicas = count(&spec["replicas"], 1).min(PODS_MAX);
        (name.map_or_else(|| format!("default{i}"), str::to_owned), replicas)
    };
    tasks
        .iter()
        .enumerate()
        .map(|(i, spec)| {
            let (name, replicas) = read((i, spec));
            let partition = &spec["partitionPolicy"];
            let partition_size = partition["partitionSize"].as_i64().unwrap_or(0);
            let min_by_partitions =
                partition["minPartitions"].as_i64().map(|min| min.saturating_mul(partition_size));
            let min = spec["minAvailable"].as_i64().or(min_by_partitions).unwrap_or(replicas);
            Task {
                name,
                replicas,
                min_available: min,
                template: &spec["template"],
                policies: spec["policies"].as_array().map_or(&[][..], Vec::as_slice),
                partition_size,
                spec,
                hosts_max,
            }
        })
        .collect()
}

/// Why no more pods of the job are created, if it is too large.
pub(super) fn too_many(job: &Object) -> Option<String> {
    let tasks = job.spec["tasks"].as_array().into_iter().flatten();
    let pods = fleet_resources::sum(tasks.map(|task| count(&task["replicas"], 1)));
    let lists_hosts = lists_hosts(WorkloadKind::VolcanoJob, &job.spec);
    limits::too_many("spec.tasks", pods, lists_hosts)
}

/// Why some of the job's tasks can never start, if so.
pub fn problem(job: &Object) -> Option<String> {
    if let Some(why) = too_many(job) {
        return Some(why);
    }
    let tasks = of(job);
    let needs = |task: &Task<'_>| -> Vec<&str> {
        let names = task.spec["dependsOn"]["name"].as_array().into_iter().flatten();
        names
            .filter_map(Value::as_str)
            .filter_map(|name| tasks.iter().find(|t| t.name == name))
            .map(|t| t.name.as_str())
            .collect()
    };
    let needs = tasks.iter().map(|task| (task.name.as_str(), needs(task))).collect();
    cycle::find(&needs).map(|cycle| format!("field spec.tasks: {}", cycle::sentence(&cycle)))
}

impl Task<'_> {
    pub fn pod_name(&self, job: &Object, index: i64) -> String {
        format!("{}-{}-{index}", job.name(), self.name)
    }

    /// Index of a pod of this task, if the name matches and the index is below the replicas.
    pub fn index_of(&self, job: &Object, pod: &str) -> Option<i64> {
        let rest = pod.strip_prefix(job.name())?.strip_prefix('-')?;
        let index: i64 = rest.strip_prefix(self.name.as_str())?.strip_prefix('-')?.parse().ok()?;
        (0..self.replicas).contains(&index).then_some(index)
    }

    pub fn partition_of(&self, index: i64) -> i64 {
        if self.partition_size <= 0 { 0 } else { index / self.partition_size }
    }

    /// Container restarts after which the task counts as failed; `None`: never.
    pub fn max_restarts(&self) -> Option<i64> {
        match self.spec["maxRetry"].as_i64().unwrap_or(0) {
            -1 => None,
            0 => Some(DEFAULT_MAX_RETRY),
            limit => Some(limit),
        }
    }

    /// The host name of one of its pods and the subdomain, as the svc plugin or the template sets them.
    pub fn host(&self, job: &Object, index: i64) -> (String, String) {
        let of_template = |field: &str| self.template["spec"][field].as_str().filter(|text| !text.is_empty());
        let host = of_template("hostname").map_or_else(|| self.pod_name(job, index), str::to_owned);
        (host, of_template("subdomain").unwrap_or(job.name()).to_owned())
    }

    /// `host.subdomain` of each pod; a host name set in the template is one address for all.
    pub fn hosts(&self, job: &Object) -> Vec<String> {
        let named = self.template["spec"]["hostname"].as_str().is_some_and(|name| !name.is_empty());
        let count = self.replicas.min(if named { 1 } else { self.hosts_max });
        (0..count)
            .map(|index| {
                let (host, subdomain) = self.host(job, index);
                format!("{host}.{subdomain}")
            })
            .collect()
    }
}
