//! Validation rules of Volcano's definitions with messages that include the value found, also for rules of
//! [`super`] whose message does not.
//!
//! A rule sees one object. Cycles are followed for three steps beyond the items without dependencies; the
//! agent's webhook and its controllers find a cycle behind a longer chain.

use serde_json::{Value, json};

/// One rule like [`super::Rule`], with an expression for the message.
struct Rule {
    path: &'static [&'static str],
    rule: &'static str,
    /// For servers that cannot evaluate `found`.
    message: &'static str,
    found: &'static str,
}

/// Names of items whose `depends` are all in the list `$done`; `$has` is whether an item `t` depends on
/// anything.
macro_rules! ready {
    ($has:literal, $depends:literal, $done:literal) => {
        concat!(
            "self.filter(t, has(t.name) && (!(",
            $has,
            ") || ",
            $depends,
            ".all(d, d in ",
            $done,
            "))).map(t, t.name)"
        )
    };
}

/// A list that contains the list of items that are ready after three steps.
macro_rules! ready_in_three {
    ($has:literal, $depends:literal) => {
        concat!(
            "[",
            ready!($has, $depends, "[]"),
            "].map(r, ",
            ready!($has, $depends, "r"),
            ").map(r, ",
            ready!($has, $depends, "r"),
            ")"
        )
    };
}

/// Either all items become ready, or the next step makes more of them ready. Names of no item are another rule's
/// concern: `$named` is whether `d` is one that `t` may depend on.
macro_rules! no_cycle {
    ($has:literal, $depends:literal, $named:literal) => {
        concat!(
            "!self.all(t, !(",
            $has,
            ") || ",
            $depends,
            ".all(d, ",
            $named,
            ")) || ",
            ready_in_three!($has, $depends),
            ".all(r, size(r) == size(self.filter(t, has(t.name))) || size(",
            ready!($has, $depends, "r"),
            ") > size(r))"
        )
    };
}

/// Names of the items that are not ready.
macro_rules! in_cycle {
    ($has:literal, $depends:literal) => {
        concat!(
            ready_in_three!($has, $depends),
            ".map(r, self.filter(t, has(t.name) && !(t.name in r)).map(t, t.name))[0]"
        )
    };
}

/// All events of a policy `$p`.
macro_rules! events {
    ($p:literal) => {
        concat!(
            "((has(",
            $p,
            ".event) ? [",
            $p,
            ".event] : []) + (has(",
            $p,
            ".events) ? ",
            $p,
            ".events : []))"
        )
    };
}

const EVENT_ONCE: &str = concat!(
    "self.all(p, ",
    events!("p"),
    ".all(e, self.exists_one(q, e in ",
    events!("q"),
    ") && ",
    events!("p"),
    ".exists_one(x, x == e)))"
);
const EVENT_ONCE_MESSAGE: &str = "found one event twice; allowed: each event once in a list of policies";
const EVENT_ONCE_FOUND: &str = concat!(
    "'found the event ' + self.map(p, ",
    events!("p"),
    ".filter(e, !self.exists_one(q, e in ",
    events!("q"),
    ") || !",
    events!("p"),
    ".exists_one(x, x == e))).filter(found, size(found) > 0)[0][0] + ' twice; allowed: each event once in a list of policies'"
);
const CODE_ONCE: &str =
    "self.all(p, !has(p.exitCode) || self.exists_one(q, has(q.exitCode) && q.exitCode == p.exitCode))";
const CODE_ONCE_MESSAGE: &str = "found one exitCode twice; allowed: each exitCode once in a list of policies";
const CODE_ONCE_FOUND: &str = "'found the exitCode ' + string(self.filter(p, has(p.exitCode) && !self.exists_one(q, \
    has(q.exitCode) && q.exitCode == p.exitCode))[0].exitCode) + ' twice; allowed: each exitCode once in a list of policies'";
const ANY_ALONE: &str = concat!(
    "!self.exists(p, '*' in ",
    events!("p"),
    ") || size(self.filter(p, size(",
    events!("p"),
    ") > 0)) == 1"
);
const ANY_ALONE_MESSAGE: &str =
    "found the event * beside another event; allowed: * alone, with exitCodes at most";
const ANY_ALONE_FOUND: &str = concat!(
    "'found the event * beside ' + self.map(p, ",
    events!("p"),
    ".filter(e, e != '*')).filter(found, size(found) > 0).map(found, found.join(', ')).join(', ') + \
    '; allowed: * alone, with exitCodes at most'"
);
const ACTS: &str = "has(self.action)";
const ACTS_MESSAGE: &str = "found no action; allowed: AbortJob, RestartJob, RestartTask, RestartPod, RestartPartition, \
    TerminateJob, CompleteJob, ResumeJob";
const TIMEOUT: &str = "!has(self.timeout) || self.timeout.matches('^([0-9]+([.][0-9]+)?(ns|us|ms|s|m|h))+$') || self.timeout == '0'";
const TIMEOUT_MESSAGE: &str =
    "found a timeout that is no duration; allowed: durations such as 90s, 10m, 1h30m";
const TIMEOUT_FOUND: &str =
    "'found timeout ' + self.timeout + '; allowed: durations such as 90s, 10m, 1h30m'";
const MODE: &str = "!has(self.mode) || self.mode in ['', 'hard', 'soft']";
const MODE_MESSAGE: &str = "found an unknown mode; allowed: hard, soft";
const MODE_FOUND: &str = "'found mode ' + self.mode + '; allowed: hard, soft'";
const TIER: &str = "!has(self.highestTierAllowed) || self.highestTierAllowed >= 0";
const TIER_MESSAGE: &str = "found negative highestTierAllowed; allowed: 0 or more";
const TIER_FOUND: &str =
    "'found highestTierAllowed ' + string(self.highestTierAllowed) + '; allowed: 0 or more'";
const ONE_TIER: &str = "!(has(self.highestTierAllowed) && has(self.highestTierName))";
const ONE_TIER_MESSAGE: &str =
    "found highestTierAllowed and highestTierName together; allowed: one of the two";
const ONE_TIER_FOUND: &str = "'found highestTierAllowed ' + string(self.highestTierAllowed) + ' and highestTierName ' + \
    self.highestTierName + ' together; allowed: one of the two'";
const UNIQUE: &str = "self.all(one, self.exists_one(other, other.name == one.name))";
const UNIQUE_MESSAGE: &str = "found one name twice; allowed: names that differ";
const UNIQUE_FOUND: &str = "'found the name ' + self.filter(one, !self.exists_one(other, other.name == one.name))[0].name \
    + ' twice; allowed: names that differ'";

const JOB: &[Rule] = &[
    Rule {
        path: &["tasks"],
        rule: no_cycle!(
            "has(t.dependsOn) && has(t.dependsOn.name)",
            "t.dependsOn.name",
            "self.exists(o, has(o.name) && o.name == d)"
        ),
        message: "found tasks that depend on each other; allowed: dependsOn without a cycle",
        found: concat!(
            "'found tasks ' + ",
            in_cycle!("has(t.dependsOn) && has(t.dependsOn.name)", "t.dependsOn.name"),
            " + ' that depend on each other, or on such a task; allowed: dependsOn without a cycle'"
        ),
    },
    Rule {
        path: &["tasks", "*", "dependsOn"],
        rule: "!has(self.iteration) || self.iteration in ['', 'any', 'all']",
        message: "found an unknown iteration; allowed: any, all",
        found: "'found iteration ' + self.iteration + '; allowed: any, all'",
    },
    Rule {
        path: &["tasks", "*"],
        rule: "!has(self.minAvailable) || has(self.replicas) || self.minAvailable <= 1",
        message: "found minAvailable over replicas, which is 1 where it is not said; allowed: minAvailable up to replicas",
        found: "'found minAvailable ' + string(self.minAvailable) + ' over replicas, which is 1 where it is not said; \
                allowed: minAvailable up to replicas'",
    },
    Rule {
        path: &["tasks", "*"],
        rule: "!has(self.maxRetry) || self.maxRetry >= -1",
        message: "found maxRetry below -1; allowed: -1 (never failed), 0 (the default) or more",
        found: "'found maxRetry ' + string(self.maxRetry) + '; allowed: -1 (never failed), 0 (the default) or more'",
    },
    Rule {
        path: &["tasks", "*"],
        rule: "!has(self.topologyPolicy) || self.topologyPolicy in ['', 'none', 'best-effort', 'restricted', \
               'single-numa-node']",
        message: "found an unknown topologyPolicy; allowed: none, best-effort, restricted, single-numa-node",
        found: "'found topologyPolicy ' + self.topologyPolicy + '; allowed: none, best-effort, restricted, \
                single-numa-node'",
    },
    Rule {
        path: &["tasks", "*", "partitionPolicy"],
        rule: "!has(self.minPartitions) || (self.minPartitions >= 0 && self.minPartitions <= self.totalPartitions)",
        message: "found minPartitions out of range; allowed: 0 to totalPartitions",
        found: "'found minPartitions ' + string(self.minPartitions) + ' of totalPartitions ' + \
                string(self.totalPartitions) + '; allowed: 0 to totalPartitions'",
    },
    Rule {
        path: &["tasks", "*", "partitionPolicy", "networkTopology"],
        rule: MODE,
        message: MODE_MESSAGE,
        found: MODE_FOUND,
    },
    Rule {
        path: &["tasks", "*", "partitionPolicy", "networkTopology"],
        rule: TIER,
        message: TIER_MESSAGE,
        found: TIER_FOUND,
    },
    Rule {
        path: &["tasks", "*", "partitionPolicy", "networkTopology"],
        rule: ONE_TIER,
        message: ONE_TIER_MESSAGE,
        found: ONE_TIER_FOUND,
    },
    Rule { path: &["networkTopology"], rule: MODE, message: MODE_MESSAGE, found: MODE_FOUND },
    Rule { path: &["networkTopology"], rule: TIER, message: TIER_MESSAGE, found: TIER_FOUND },
    Rule {
        path: &["tasks", "*", "template", "spec", "containers"],
        rule: "size(self) > 0",
        message: "found no containers; allowed: at least one",
        found: "",
    },
    Rule {
        path: &["tasks", "*", "template", "spec", "containers"],
        rule: UNIQUE,
        message: UNIQUE_MESSAGE,
        found: UNIQUE_FOUND,
    },
    Rule {
        path: &["tasks", "*", "template", "spec", "initContainers"],
        rule: UNIQUE,
        message: UNIQUE_MESSAGE,
        found: UNIQUE_FOUND,
    },
    Rule {
        path: &["tasks", "*", "template", "spec"],
        rule: "!has(self.initContainers) || self.initContainers.all(one, !self.containers.exists(other, \
               other.name == one.name))",
        message: "found a container and an init container of one name; allowed: names that differ",
        found: "'found a container and an init container named ' + self.initContainers.filter(one, \
                self.containers.exists(other, other.name == one.name))[0].name + '; allowed: names that differ'",
    },
    Rule {
        path: &["tasks", "*", "template", "spec", "volumes"],
        rule: UNIQUE,
        message: UNIQUE_MESSAGE,
        found: UNIQUE_FOUND,
    },
    Rule {
        path: &[],
        rule: "!has(self.plugins) || !('mpi' in self.plugins) || !has(self.tasks) || self.tasks.exists(t, has(t.name) && \
               (self.plugins['mpi'].join(' ').matches('(^| )-+master([= ]|$)') \
               ? self.plugins['mpi'].join(' ').matches('(^| )-+master[= ]' + t.name + '( |$)') : t.name == 'master'))",
        message: "found the plugin mpi without the task of its master; allowed: a task named master, or as --master= says",
        found: "'found the plugin mpi with tasks ' + self.tasks.map(t, has(t.name) ? t.name : '-').join(', ') + ' and no \
                master among them; allowed: a task named master, or as --master= says'",
    },
    Rule { path: &["policies"], rule: EVENT_ONCE, message: EVENT_ONCE_MESSAGE, found: EVENT_ONCE_FOUND },
    Rule {
        path: &["tasks", "*", "policies"],
        rule: EVENT_ONCE,
        message: EVENT_ONCE_MESSAGE,
        found: EVENT_ONCE_FOUND,
    },
    Rule { path: &["policies"], rule: CODE_ONCE, message: CODE_ONCE_MESSAGE, found: CODE_ONCE_FOUND },
    Rule {
        path: &["tasks", "*", "policies"],
        rule: CODE_ONCE,
        message: CODE_ONCE_MESSAGE,
        found: CODE_ONCE_FOUND,
    },
    Rule { path: &["policies"], rule: ANY_ALONE, message: ANY_ALONE_MESSAGE, found: ANY_ALONE_FOUND },
    Rule {
        path: &["tasks", "*", "policies"],
        rule: ANY_ALONE,
        message: ANY_ALONE_MESSAGE,
        found: ANY_ALONE_FOUND,
    },
    Rule { path: &["policies", "*"], rule: ACTS, message: ACTS_MESSAGE, found: "" },
    Rule { path: &["tasks", "*", "policies", "*"], rule: ACTS, message: ACTS_MESSAGE, found: "" },
    Rule { path: &["policies", "*"], rule: TIMEOUT, message: TIMEOUT_MESSAGE, found: TIMEOUT_FOUND },
    Rule {
        path: &["tasks", "*", "policies", "*"],
        rule: TIMEOUT,
        message: TIMEOUT_MESSAGE,
        found: TIMEOUT_FOUND,
    },
    Rule {
        path: &[],
        rule: "!has(self.ttlSecondsAfterFinished) || self.ttlSecondsAfterFinished >= 0",
        message: "found negative ttlSecondsAfterFinished; allowed: 0 or more",
        found: "'found ttlSecondsAfterFinished ' + string(self.ttlSecondsAfterFinished) + '; allowed: 0 or more'",
    },
    Rule {
        path: &["volumes", "*"],
        rule: "size(self.mountPath) > 0 && !self.mountPath.contains(':')",
        message: "found a mountPath that is none; allowed: a path without a colon",
        found: "'found mountPath ' + self.mountPath + '; allowed: a path without a colon'",
    },
];

const POD_GROUP: &[Rule] = &[
    Rule { path: &["networkTopology"], rule: MODE, message: MODE_MESSAGE, found: MODE_FOUND },
    Rule { path: &["networkTopology"], rule: TIER, message: TIER_MESSAGE, found: TIER_FOUND },
    Rule {
        path: &["minTaskMember"],
        rule: "self.all(task, self[task] >= 0)",
        message: "found a negative minimum of a task; allowed: 0 or more",
        found: "'found ' + self.filter(task, self[task] < 0).map(task, '%s %s'.format([task, string(self[task])])) + \
                '; allowed: 0 or more'",
    },
];

const HYPER_NODE: &[Rule] = &[
    Rule {
        path: &[],
        rule: "has(self.members) && size(self.members) > 0",
        message: "found no members; allowed: at least one",
        found: "",
    },
    // A pattern that does not compile cannot be matched; the server reports it.
    Rule {
        path: &["members", "*", "selector", "regexMatch"],
        rule: "'a'.matches(self.pattern) in [true, false]",
        message: "found a pattern that is no regular expression; allowed: a regular expression",
        found: "",
    },
];

const JOB_FLOW: &[Rule] = &[
    Rule {
        path: &[],
        rule: "has(self.flows) && size(self.flows) > 0",
        message: "found no flows; allowed: at least one",
        found: "",
    },
    Rule {
        path: &["flows"],
        rule: no_cycle!(
            "has(t.dependsOn) && has(t.dependsOn.targets)",
            "t.dependsOn.targets",
            "d != t.name && self.exists(o, o.name == d)"
        ),
        message: "found flows that depend on each other; allowed: dependsOn without a cycle",
        found: concat!(
            "'found flows ' + ",
            in_cycle!("has(t.dependsOn) && has(t.dependsOn.targets)", "t.dependsOn.targets"),
            " + ' that depend on each other, or on such a flow; allowed: dependsOn without a cycle'"
        ),
    },
];

const RULES: &[(&str, &[Rule])] = &[
    ("jobs.batch.volcano.sh", JOB),
    ("podgroups.scheduling.volcano.sh", POD_GROUP),
    ("hypernodes.topology.volcano.sh", HYPER_NODE),
    ("jobflows.flow.volcano.sh", JOB_FLOW),
];

/// The event and the events of a policy.
macro_rules! event_and_events {
    () => {
        "'found ' + (has(self.event) ? 'event %s'.format([self.event]) : 'no event') + ', ' + \
         (has(self.events) && size(self.events) > 0 ? 'events %s'.format([self.events]) : 'no events')"
    };
}

/// Expressions for the value found, for rules of [`super`], by the beginning of their message.
const FOUND: &[(&str, &str)] = &[
    (
        "found two tasks of one name",
        "'found two tasks named ' + self.filter(t, has(t.name) && !self.exists_one(o, has(o.name) && o.name == t.name))[0]\
         .name + '; allowed: names that differ'",
    ),
    (
        "found minAvailable over replicas",
        "'found minAvailable ' + string(self.minAvailable) + ' over replicas ' + string(self.replicas) + '; allowed: \
         minAvailable up to replicas'",
    ),
    (
        "found a name that is no DNS label",
        "'found name ' + self.name + '; allowed: up to 63 lower-case letters, digits and inner dashes'",
    ),
    (
        "found minAvailable over the sum",
        "'found minAvailable ' + string(self.minAvailable) + ' over the sum ' + string(self.tasks.map(task, \
         has(task.replicas) ? task.replicas : 1).sum()) + ' of the replicas of all tasks; allowed: up to that sum'",
    ),
    ("found negative maxRetry", "'found maxRetry ' + string(self.maxRetry) + '; allowed: 0 or more'"),
    (
        "found two volumes of one mountPath",
        "'found mountPath ' + self.filter(v, !self.exists_one(o, o.mountPath == v.mountPath))[0].mountPath + ' twice; \
         allowed: paths that differ'",
    ),
    (
        "found both or neither of volumeClaimName",
        "'found ' + (has(self.volumeClaimName) ? 'volumeClaimName ' + self.volumeClaimName + ' and a volumeClaim' : \
         'neither volumeClaimName nor volumeClaim') + '; allowed: exactly one of them'",
    ),
    (
        "found an unknown action",
        "'found action ' + self.action + '; allowed: AbortJob, RestartJob, RestartTask, RestartPod, RestartPartition, \
         TerminateJob, CompleteJob, ResumeJob'",
    ),
    (
        "found an unknown plugin",
        "'found plugin ' + self.filter(name, !(name in ['env', 'svc', 'ssh', 'pytorch', 'tensorflow', 'mpi', 'ray', \
         'hcclrank'])).map(name, name).join(', ') + '; allowed: env, svc, ssh, pytorch, tensorflow, mpi, ray, hcclrank'",
    ),
    (
        "found dependsOn naming no task",
        "'found dependsOn naming ' + self.map(t, has(t.dependsOn) && has(t.dependsOn.name) ? t.dependsOn.name.filter(name, \
         !self.exists(o, has(o.name) && o.name == name)) : []).filter(found, size(found) > 0) + '; allowed: names of tasks \
         of this job'",
    ),
    ("found highestTierAllowed and highestTierName together", ONE_TIER_FOUND),
    (
        "found none or several of event, events",
        concat!(
            event_and_events!(),
            " + ', ' + (has(self.exitCode) ? 'exitCode %s'.format([string(self.exitCode)]) : 'no exitCode') + '; allowed: \
             exactly one of event, events and exitCode, an exitCode other than 0'"
        ),
    ),
    (
        "found an unknown event",
        concat!(
            event_and_events!(),
            " + '; allowed: * alone, or PodPending, PodFailed, PodEvicted, Unknown, TaskCompleted, TaskFailed, JobUpdated'"
        ),
    ),
    (
        "found a negative history limit",
        "'found ' + (has(self.successfulJobsHistoryLimit) ? 'successfulJobsHistoryLimit \
         %s'.format([string(self.successfulJobsHistoryLimit)]) : 'no successfulJobsHistoryLimit') + ', ' + \
         (has(self.failedJobsHistoryLimit) ? 'failedJobsHistoryLimit %s'.format([string(self.failedJobsHistoryLimit)]) : \
         'no failedJobsHistoryLimit') + '; allowed: 0 or more'",
    ),
    (
        "found none or several of exactMatch",
        "'found ' + (has(self.exactMatch) ? 'exactMatch' : 'no exactMatch') + ', ' + (has(self.regexMatch) ? 'regexMatch' \
         : 'no regexMatch') + ', ' + (has(self.labelMatch) ? 'labelMatch' : 'no labelMatch') + '; allowed: exactly one of \
         them'",
    ),
    (
        "found a partitionPolicy whose partitions",
        "'found ' + string(self.partitionPolicy.totalPartitions) + ' partitions of ' + \
         string(self.partitionPolicy.partitionSize) + ' for ' + string(self.replicas) + ' replicas; allowed: totalPartitions \
         x partitionSize = replicas'",
    ),
    ("found weight out of range", "'found weight ' + string(self.weight) + '; allowed: 1 to 65535'"),
    ("found negative priority", "'found priority ' + string(self.priority) + '; allowed: 0 or more'"),
    (
        "found an unknown dequeueStrategy",
        "'found dequeueStrategy ' + self.dequeueStrategy + '; allowed: traverse, fifo'",
    ),
    ("found negative minMember", "'found minMember ' + string(self.minMember) + '; allowed: 0 or more'"),
    ("found an unknown type", "'found type ' + self.type + '; allowed: Node, HyperNode'"),
    (
        "found an unknown concurrencyPolicy",
        "'found concurrencyPolicy ' + self.concurrencyPolicy + '; allowed: Allow, Forbid, Replace'",
    ),
    (
        "found negative startingDeadlineSeconds",
        "'found startingDeadlineSeconds ' + string(self.startingDeadlineSeconds) + '; allowed: 0 or more'",
    ),
    (
        "found a schedule that is none",
        "'found schedule ' + self.schedule + '; allowed: five fields such as */5 * * * *, or @hourly, @daily, @weekly, \
         @monthly, @yearly'",
    ),
    (
        "found an unknown jobRetainPolicy",
        "'found jobRetainPolicy ' + self.jobRetainPolicy + '; allowed: retain, delete'",
    ),
    (
        "found two flows of one name",
        "'found two flows named ' + self.filter(f, !self.exists_one(o, o.name == f.name))[0].name + '; allowed: names that \
         differ'",
    ),
    (
        "found dependsOn.targets naming no other flow",
        "'found dependsOn.targets naming ' + self.map(f, has(f.dependsOn) && has(f.dependsOn.targets) ? \
         f.dependsOn.targets.filter(name, name == f.name || !self.exists(o, o.name == name)) : [])\
         .filter(found, size(found) > 0) + '; allowed: names of other flows of this JobFlow'",
    ),
];

/// A field below `spec`, with its default as JSON.
type Default = (&'static [&'static str], &'static str);

/// Defaults that Volcano's admission writes into objects and that depend on nothing else.
const DEFAULTS: &[(&str, &[Default])] = &[
    (
        "jobs.batch.volcano.sh",
        &[(&["queue"], "\"default\""), (&["maxRetry"], "3"), (&["tasks", "*", "maxRetry"], "3")],
    ),
    ("queues.scheduling.volcano.sh", &[(&["weight"], "1"), (&["reclaimable"], "true")]),
    ("podgroups.scheduling.volcano.sh", &[(&["queue"], "\"default\"")]),
];

/// Defaults of a definition, each with its path below `spec`.
pub(super) fn defaults(definition: &str) -> impl Iterator<Item = (&'static [&'static str], Value)> {
    let of_definition = move |(name, _): &&(&'static str, &'static [Default])| *name == definition;
    let all = DEFAULTS.iter().filter(of_definition).flat_map(|(_, defaults)| *defaults);
    // Constants of this file; a test evaluates them.
    all.map(|(path, json)| (*path, serde_json::from_str(json).unwrap_or_default()))
}

/// Rules of a definition, each with its path and its schema form.
pub(super) fn rules(definition: &str) -> impl Iterator<Item = (&'static [&'static str], Value)> {
    let of_definition = move |(name, _): &&(&'static str, &'static [Rule])| *name == definition;
    RULES.iter().filter(of_definition).flat_map(|(_, rules)| *rules).map(|rule| {
        let mut value = json!({"rule": rule.rule, "message": rule.message});
        if !rule.found.is_empty() {
            value["messageExpression"] = formatted(rule.found).into();
        }
        (rule.path, value)
    })
}

/// The message expression of a rule of a Volcano definition.
pub(super) fn found(definition: &str, message: &str) -> Option<String> {
    if !definition.ends_with(".volcano.sh") {
        return None;
    }
    FOUND.iter().find(|(beginning, _)| message.starts_with(beginning)).map(|(_, found)| formatted(found))
}

/// Rewrites a concatenation with `+` and `join` as one `format`. An API server cannot bound the length of a
/// concatenation and refuses it; the cost of a `format` follows from its own text.
fn formatted(sum: &str) -> String {
    let (mut text, mut values) = (String::new(), Vec::new());
    for part in parts(&sum.replace(".join(', ')", "")) {
        match part.strip_prefix('\'').and_then(|rest| rest.strip_suffix('\'')).filter(|t| !t.contains('\'')) {
            Some(literal) => text.push_str(&literal.replace('%', "%%")),
            None => {
                text.push_str("%s");
                values.push(part);
            }
        }
    }
    if values.is_empty() { format!("'{text}'") } else { format!("'{text}'.format([{}])", values.join(", ")) }
}

/// The summands of an expression, split outside quotes and brackets.
fn parts(sum: &str) -> Vec<String> {
    let (mut found, mut part, mut depth, mut quoted) = (Vec::new(), String::new(), 0_i32, false);
    for c in sum.chars() {
        match c {
            '\'' => quoted = !quoted,
            '(' | '[' | '{' if !quoted => depth += 1,
            ')' | ']' | '}' if !quoted => depth -= 1,
            _ => {}
        }
        if c == '+' && depth == 0 && !quoted {
            found.push(part.trim().to_string());
            part.clear();
        } else {
            part.push(c);
        }
    }
    found.push(part.trim().to_string());
    found
}

#[cfg(test)]
mod tests {
    #[test]
    fn sums_of_texts_become_one_format() {
        let check = |sum: &str, want: &str| assert_eq!(super::formatted(sum), want);
        check("'found a + b'", "'found a + b'");
        check("'found ' + self.n + '; 5% + more'", "'found %s; 5%% + more'.format([self.n])");
        check(
            "'a ' + self.map(t, t.x + 1).join(', ') + ' b ' + (has(self.n) ? 'c ' + self.n : 'd')",
            "'a %s b %s'.format([self.map(t, t.x + 1), (has(self.n) ? 'c ' + self.n : 'd')])",
        );
    }
}
