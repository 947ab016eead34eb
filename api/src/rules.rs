//! Validation rules that schema types cannot express, as `x-kubernetes-validations`. The API server refuses
//! an object that breaks one, with the rule's message.
//!
//! Each message names the field, the value found and the values allowed. The controller still validates
//! policies with `fleet-policies`, because an API server may be older than a rule.

mod volcano;

use serde_json::{Value, json};

/// Rule that amounts do not exceed others, within the cost limit of CEL: each string counts with the longest
/// length that a request can carry, which leaves room for seven resource names. The agent checks all of them.
macro_rules! up_to {
    ($lower:literal, $upper:literal) => {
        concat!(
            "['cpu', 'memory', 'pods', 'ephemeral-storage', 'hugepages-2Mi', 'nvidia.com/gpu', 'amd.com/gpu'].all(name, ",
            "!(name in ", $lower, ") || !(name in ", $upper, ") || ",
            "quantity(string(", $lower, "[name])).compareTo(quantity(string(", $upper, "[name]))) <= 0)"
        )
    };
}

/// One rule: its path below `spec`, the condition, and the message if it does not hold.
struct Rule {
    /// Property names; `*` steps into the items of a list. A first `/` means the whole object instead of `spec`.
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
    Rule {
        path: &["/"],
        rule: "!has(self.spec.tasks) || self.spec.tasks.all(task, !has(task.name) || size(self.metadata.name) + \
               size(task.name) + 2 + size(string(has(task.replicas) && task.replicas > 0 ? task.replicas - 1 : 0)) <= 63)",
        message: "found names of job and task that make names of pods over 63 characters; allowed: JOB-TASK-INDEX of up \
                  to 63",
    },
    Rule {
        path: &[],
        rule: "!has(self.maxRetry) || self.maxRetry >= 0",
        message: "found negative maxRetry; allowed: 0 or more",
    },
    Rule {
        path: &["volumes"],
        rule: "self.all(volume, self.exists_one(other, other.mountPath == volume.mountPath))",
        message: "found two volumes of one mountPath; allowed: paths that differ",
    },
    Rule {
        path: &["volumes", "*"],
        rule: "has(self.volumeClaimName) != has(self.volumeClaim)",
        message: "found both or neither of volumeClaimName and volumeClaim; allowed: exactly one of them",
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

const VOLCANO_QUEUE: &[Rule] = &[
    Rule {
        path: &["/"],
        rule: "!has(self.spec.parent) || self.spec.parent != self.metadata.name",
        message: "field spec.parent: found the queue itself; allowed: another queue",
    },
    Rule {
        path: &["/"],
        rule: "self.metadata.name != 'root' || !has(self.spec.parent) || self.spec.parent == ''",
        message: "field spec.parent: found a parent of root; allowed: none",
    },
    Rule {
        path: &[],
        rule: "!has(self.weight) || (self.weight >= 1 && self.weight <= 65535)",
        message: "found weight out of range; allowed: 1 to 65535",
    },
    Rule {
        path: &[],
        rule: "!has(self.priority) || self.priority >= 0",
        message: "found negative priority; allowed: 0 or more",
    },
    Rule {
        path: &[],
        rule: "!has(self.dequeueStrategy) || self.dequeueStrategy in ['', 'traverse', 'fifo']",
        message: "found an unknown dequeueStrategy; allowed: traverse, fifo",
    },
    Rule {
        path: &[],
        rule: concat!(
            "!has(self.guarantee) || !has(self.guarantee.resource) || !has(self.capability) || ",
            up_to!("self.guarantee.resource", "self.capability")
        ),
        message: "found guarantee over capability; allowed: guarantee up to capability",
    },
    Rule {
        path: &[],
        rule: concat!(
            "!has(self.guarantee) || !has(self.guarantee.resource) || !has(self.deserved) || ",
            up_to!("self.guarantee.resource", "self.deserved")
        ),
        message: "found guarantee over deserved; allowed: guarantee up to deserved",
    },
    Rule {
        path: &[],
        rule: concat!(
            "!has(self.deserved) || !has(self.capability) || ",
            up_to!("self.deserved", "self.capability")
        ),
        message: "found deserved over capability; allowed: deserved up to capability",
    },
];

/// Maps of quantities that are zero or more, by definition and path below `spec`.
const AMOUNTS: &[(&str, &[&str])] = &[
    ("queues.scheduling.volcano.sh", &["capability"]),
    ("queues.scheduling.volcano.sh", &["deserved"]),
    ("queues.scheduling.volcano.sh", &["guarantee", "resource"]),
    ("podgroups.scheduling.volcano.sh", &["minResources"]),
];

const POD_GROUP: &[Rule] = &[
    Rule {
        path: &[],
        rule: "!has(self.minMember) || self.minMember >= 0",
        message: "found negative minMember; allowed: 0 or more",
    },
    Rule {
        path: &["networkTopology"],
        rule: "!(has(self.highestTierAllowed) && has(self.highestTierName))",
        message: "found highestTierAllowed and highestTierName together; allowed: one of the two",
    },
];

const HYPER_NODE: &[Rule] = &[
    Rule {
        path: &["members", "*"],
        rule: "self.type in ['Node', 'HyperNode']",
        message: "found an unknown type; allowed: Node, HyperNode",
    },
    Rule {
        path: &["members", "*", "selector"],
        rule: "(has(self.exactMatch) ? 1 : 0) + (has(self.regexMatch) ? 1 : 0) + (has(self.labelMatch) ? 1 : 0) == 1",
        message: "found none or several of exactMatch, regexMatch and labelMatch; allowed: exactly one of them",
    },
    Rule {
        path: &["/"],
        rule: "!has(self.spec.members) || self.spec.members.all(member, member.type != 'HyperNode' || \
               !has(member.selector.exactMatch) || member.selector.exactMatch.name != self.metadata.name)",
        message: "found the hypernode among its own members; allowed: other hypernodes",
    },
];

const CRON_JOB: &[Rule] = &[
    Rule {
        path: &[],
        rule: "!has(self.concurrencyPolicy) || self.concurrencyPolicy in ['', 'Allow', 'Forbid', 'Replace']",
        message: "found an unknown concurrencyPolicy; allowed: Allow, Forbid, Replace",
    },
    Rule {
        path: &[],
        rule: "!has(self.startingDeadlineSeconds) || self.startingDeadlineSeconds >= 0",
        message: "found negative startingDeadlineSeconds; allowed: 0 or more",
    },
    Rule {
        path: &[],
        rule: "(!has(self.successfulJobsHistoryLimit) || self.successfulJobsHistoryLimit >= 0) && \
               (!has(self.failedJobsHistoryLimit) || self.failedJobsHistoryLimit >= 0)",
        message: "found a negative history limit; allowed: 0 or more",
    },
    Rule {
        path: &[],
        rule: "self.schedule.startsWith('@') || \
               self.schedule.matches('^[ ]*([-0-9A-Za-z*,/#?]+[ ]+){4}[-0-9A-Za-z*,/#?]+[ ]*$')",
        message: "found a schedule that is none; allowed: five fields such as */5 * * * *, or @hourly, @daily, @weekly, \
                  @monthly, @yearly",
    },
    Rule {
        path: &["/"],
        rule: "size(self.metadata.name) <= 52",
        message: "found a name over 52 characters; allowed: up to 52, its jobs have longer ones",
    },
];

const JOB_FLOW: &[Rule] = &[
    Rule {
        path: &[],
        rule: "!has(self.jobRetainPolicy) || self.jobRetainPolicy in ['', 'retain', 'delete']",
        message: "found an unknown jobRetainPolicy; allowed: retain, delete",
    },
    Rule {
        path: &["flows"],
        rule: "self.all(flow, self.exists_one(other, other.name == flow.name))",
        message: "found two flows of one name; allowed: names that differ",
    },
    Rule {
        path: &["flows"],
        rule: "self.all(flow, !has(flow.dependsOn) || !has(flow.dependsOn.targets) || flow.dependsOn.targets.all(name, \
               name != flow.name && self.exists(other, other.name == name)))",
        message: "found dependsOn.targets naming no other flow; allowed: names of flows of this JobFlow",
    },
];

const CELL_CONFIGURATION: &[Rule] = &[Rule {
    path: &["virtualClusters"],
    rule: "self.all(name, name.matches('^[A-Za-z0-9]([-A-Za-z0-9]{0,61}[A-Za-z0-9])?$'))",
    message: "found a name that is no DNS label; allowed: up to 63 letters, digits and inner dashes",
}];

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
    ("queues.scheduling.volcano.sh", VOLCANO_QUEUE),
    ("podgroups.scheduling.volcano.sh", POD_GROUP),
    ("hypernodes.topology.volcano.sh", HYPER_NODE),
    ("cronjobs.batch.volcano.sh", CRON_JOB),
    ("jobflows.flow.volcano.sh", JOB_FLOW),
    ("cellconfigurations.fleet.dev", CELL_CONFIGURATION),
];

/// Adds the rules and defaults of a definition to its schema (the schema of the whole object).
pub fn add(definition: &str, schema: &mut Value) {
    let rules = RULES.iter().filter(|(name, _)| *name == definition).flat_map(|(_, rules)| *rules);
    let stated = rules.map(|rule| {
        let mut value = json!({"rule": rule.rule, "message": rule.message});
        if let Some(found) = volcano::found(definition, rule.message) {
            value["messageExpression"] = found.into();
        }
        (rule.path, value)
    });
    for (path, rule) in stated.chain(volcano::rules(definition)) {
        let place = match path {
            ["/", path @ ..] => step(schema, path),
            path => step(&mut schema["properties"]["spec"], path),
        };
        let Some(place) = place.as_object_mut() else { continue };
        let list = place.entry("x-kubernetes-validations").or_insert_with(|| json!([]));
        if let Some(list) = list.as_array_mut() {
            list.push(rule);
        }
    }
    for (_, path) in AMOUNTS.iter().filter(|(name, _)| *name == definition) {
        crate::schema::at_least_zero(step(&mut schema["properties"]["spec"], path));
    }
    for (path, default) in volcano::defaults(definition) {
        if let Some(place) = step(&mut schema["properties"]["spec"], path).as_object_mut() {
            place.insert("default".to_owned(), default);
        }
    }
}

fn step<'s>(mut place: &'s mut Value, path: &[&str]) -> &'s mut Value {
    for step in path {
        place = match *step {
            "*" => &mut place["items"],
            name => &mut place["properties"][name],
        };
    }
    place
}
