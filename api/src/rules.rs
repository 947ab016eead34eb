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

/// Definitions with rules, by name.
const RULES: &[(&str, &[Rule])] = &[
    ("propagationpolicies.policy.one.alibabacloud.com", POLICY),
    ("clusterpropagationpolicies.policy.one.alibabacloud.com", POLICY),
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
