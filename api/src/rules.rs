//! Rules of the definitions that a schema's types cannot say, as `x-kubernetes-validations`: the API server
//! refuses an object that breaks one, with the message that stands here.
//!
//! Each message names the field, what was found and what is allowed. The controller judges policies by
//! `fleet-policies` all the same: an API server may be older than a rule.

use serde_json::{Value, json};

/// One rule: where it stands below `spec`, what must hold, and what is said when it does not.
struct Rule {
    /// Property names; `*` steps into the items of a list.
    path: &'static [&'static str],
    rule: &'static str,
    message: &'static str,
}

const POLICY: &[Rule] = &[
    Rule {
        path: &["placement"],
        rule: "!(has(self.clusterAffinity) && has(self.clusterAffinities))",
        message: "found clusterAffinity and clusterAffinities together; allowed: one of the two forms",
    },
    Rule {
        path: &["placement", "spreadConstraints", "*"],
        rule: "!(has(self.spreadByField) && has(self.spreadByLabel))",
        message: "found spreadByField and spreadByLabel together; allowed: one of the two",
    },
    Rule {
        path: &["placement", "spreadConstraints", "*"],
        rule: "!has(self.maxGroups) || self.maxGroups == 0 || !has(self.minGroups) || self.minGroups <= self.maxGroups",
        message: "found minGroups over maxGroups; allowed: minGroups up to maxGroups",
    },
    Rule {
        path: &["suspension"],
        rule: "!(has(self.dispatching) && self.dispatching && has(self.dispatchingOnClusters) \
               && has(self.dispatchingOnClusters.clusterNames) && size(self.dispatchingOnClusters.clusterNames) > 0)",
        message: "found dispatching true with dispatchingOnClusters; allowed: one of the two",
    },
    Rule {
        path: &["failover", "application", "decisionConditions"],
        rule: "!has(self.tolerationSeconds) || self.tolerationSeconds >= 0",
        message: "found negative tolerationSeconds; allowed: 0 or more",
    },
    Rule {
        path: &["failover", "application"],
        rule: "!has(self.gracePeriodSeconds) || self.gracePeriodSeconds > 0",
        message: "found gracePeriodSeconds below 1; allowed: 1 or more",
    },
    Rule {
        path: &["failover", "application"],
        rule: "!has(self.gracePeriodSeconds) || !has(self.purgeMode) || self.purgeMode in ['Gracefully', 'Graciously']",
        message: "found gracePeriodSeconds with another purgeMode; allowed: only with purgeMode Gracefully",
    },
    Rule {
        path: &["failover", "application"],
        rule: "!has(self.backoffLimit) || (self.backoffLimit >= 1 && self.backoffLimit <= 50)",
        message: "found backoffLimit out of range; allowed: 1 to 50",
    },
    Rule {
        path: &["failover", "cluster"],
        rule: "!has(self.tolerationSeconds) || self.tolerationSeconds >= 0",
        message: "found negative tolerationSeconds; allowed: 0 or more",
    },
    Rule {
        path: &["failover"],
        rule: "!has(self.cluster) || (has(self.cluster.fencing) && self.cluster.fencing == 'None') \
               || (has(self.allowTwoRuns) && self.allowTwoRuns) \
               || !((has(self.application) && has(self.application.purgeMode) \
                     && self.application.purgeMode in ['Gracefully', 'Graciously']) \
                    || (has(self.cluster.purgeMode) && self.cluster.purgeMode in ['Gracefully', 'Graciously']))",
        message: "found purgeMode Gracefully for a fenced job; allowed: Directly, or allowTwoRuns true, or cluster.fencing None",
    },
    Rule {
        path: &[],
        rule: "!has(self.failover) || !has(self.failover.application) || (has(self.propagateDeps) && self.propagateDeps) \
               || (has(self.association) && self.association)",
        message: "found failover.application without propagateDeps; allowed: with propagateDeps true",
    },
];

const VOLCANO_JOB: &[Rule] = &[
    Rule {
        path: &[],
        rule: "has(self.tasks) && size(self.tasks) > 0",
        message: "found no tasks; allowed: at least one task",
    },
    Rule {
        path: &["tasks"],
        rule: "self.all(task, !has(task.name) || self.exists_one(other, has(other.name) && other.name == task.name))",
        message: "found two tasks of one name; allowed: names that differ",
    },
    Rule {
        path: &["tasks", "*"],
        rule: "!has(self.minAvailable) || !has(self.replicas) || self.minAvailable <= self.replicas",
        message: "found minAvailable over replicas; allowed: minAvailable up to replicas",
    },
    Rule {
        path: &["tasks", "*"],
        rule: "!has(self.name) || self.name.matches('^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$')",
        message: "found a name that is no DNS label; allowed: up to 63 lower-case letters, digits and inner dashes",
    },
    Rule {
        path: &[],
        rule: "!has(self.minAvailable) || !has(self.tasks) || self.minAvailable <= self.tasks.map(task, \
               has(task.replicas) ? task.replicas : 1).sum()",
        message: "found minAvailable over the sum of the tasks' replicas; allowed: up to that sum",
    },
    Rule { path: &["tasks", "*", "policies", "*"], rule: POLICY_ACTION, message: ACTION_MESSAGE },
    Rule { path: &["policies", "*"], rule: POLICY_ACTION, message: ACTION_MESSAGE },
    Rule { path: &["tasks", "*", "policies", "*"], rule: POLICY_TRIGGER, message: TRIGGER_MESSAGE },
    Rule { path: &["policies", "*"], rule: POLICY_TRIGGER, message: TRIGGER_MESSAGE },
    Rule { path: &["tasks", "*", "policies", "*"], rule: POLICY_EVENTS, message: EVENTS_MESSAGE },
    Rule { path: &["policies", "*"], rule: POLICY_EVENTS, message: EVENTS_MESSAGE },
    Rule {
        path: &["plugins"],
        rule: "self.all(name, name in ['env', 'svc', 'ssh', 'pytorch', 'tensorflow', 'mpi', 'ray', 'hcclrank'])",
        message: "found an unknown plugin; allowed: env, svc, ssh, pytorch, tensorflow, mpi, ray, hcclrank",
    },
    Rule {
        path: &["tasks"],
        rule: "self.all(task, !has(task.dependsOn) || !has(task.dependsOn.name) || task.dependsOn.name.all(name, \
               self.exists(other, has(other.name) && other.name == name)))",
        message: "found dependsOn naming no task; allowed: names of tasks of this job",
    },
    // A task names earlier tasks only, so there is no cycle; the order in the list is the order of starting.
    Rule {
        path: &["tasks"],
        rule: "self.all(task, !has(task.dependsOn) || !has(task.dependsOn.name) || !has(task.name) || \
               (task.dependsOn.name.all(name, name != task.name) && !self.exists(other, has(other.name) && \
               other.name in task.dependsOn.name && has(other.dependsOn) && has(other.dependsOn.name) && \
               task.name in other.dependsOn.name)))",
        message: "found tasks that depend on each other; allowed: dependsOn without a cycle",
    },
    Rule {
        path: &["networkTopology"],
        rule: "!(has(self.highestTierAllowed) && has(self.highestTierName))",
        message: "found highestTierAllowed and highestTierName together; allowed: one of the two",
    },
    Rule {
        path: &["tasks", "*"],
        rule: "!has(self.partitionPolicy) || !has(self.replicas) || \
               self.partitionPolicy.totalPartitions * self.partitionPolicy.partitionSize == self.replicas",
        message: "found a partitionPolicy whose partitions do not make up the replicas; allowed: totalPartitions x \
                  partitionSize = replicas",
    },
];

const POLICY_ACTION: &str = "!has(self.action) || self.action in ['AbortJob', 'RestartJob', 'RestartTask', 'RestartPod', \
    'RestartPartition', 'TerminateJob', 'CompleteJob', 'ResumeJob']";
const ACTION_MESSAGE: &str = "found an unknown action; allowed: AbortJob, RestartJob, RestartTask, RestartPod, \
    RestartPartition, TerminateJob, CompleteJob, ResumeJob";
const POLICY_TRIGGER: &str = "(has(self.event) ? 1 : 0) + (has(self.events) && size(self.events) > 0 ? 1 : 0) + \
    (has(self.exitCode) ? 1 : 0) == 1 && (!has(self.exitCode) || self.exitCode != 0)";
const TRIGGER_MESSAGE: &str = "found none or several of event, events and exitCode, or exitCode 0; allowed: exactly one of \
    them, an exitCode other than 0";
const POLICY_EVENTS: &str = "(!has(self.event) || self.event in ['*', 'PodPending', 'PodFailed', 'PodEvicted', 'Unknown', \
    'TaskCompleted', 'TaskFailed', 'JobUpdated']) && (!has(self.events) || self.events.all(event, event in ['*', 'PodPending', \
    'PodFailed', 'PodEvicted', 'Unknown', 'TaskCompleted', 'TaskFailed', 'JobUpdated']) && (!('*' in self.events) || \
    size(self.events) == 1))";
const EVENTS_MESSAGE: &str = "found an unknown event, or * beside others; allowed: *, PodPending, PodFailed, PodEvicted, \
    Unknown, TaskCompleted, TaskFailed, JobUpdated";

/// Definitions with rules, by name.
const RULES: &[(&str, &[Rule])] = &[
    ("propagationpolicies.policy.one.alibabacloud.com", POLICY),
    ("clusterpropagationpolicies.policy.one.alibabacloud.com", POLICY),
    ("jobs.batch.volcano.sh", VOLCANO_JOB),
];

/// Adds the rules of a definition to its schema (the schema of the whole object).
pub fn add(definition: &str, schema: &mut Value) {
    let rules = RULES.iter().filter(|(name, _)| *name == definition).flat_map(|(_, rules)| *rules);
    for rule in rules {
        let mut place = &mut schema["properties"]["spec"];
        for step in rule.path {
            place = match *step {
                "*" => &mut place["items"],
                name => &mut place["properties"][name],
            };
        }
        let Some(place) = place.as_object_mut() else { continue };
        let list = place.entry("x-kubernetes-validations").or_insert_with(|| json!([]));
        if let Some(list) = list.as_array_mut() {
            list.push(json!({"rule": rule.rule, "message": rule.message}));
        }
    }
}
