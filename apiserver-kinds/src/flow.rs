//! Kinds of priority and fairness, and the objects of theirs that every cluster has.
//!
//! Inputs: decoded objects. Source: Kubernetes 1.36. The server keeps them for its clients; it limits requests by rules
//! of its own, and not by these.

use fleet_apiserver_ground::tree::{self, default_to};
use fleet_apiserver_schema::field::At;
use fleet_apiserver_schema::validate::NameRule;
use serde_json::{Value, json};

/// The table of the schemas, and of the levels.
const SCHEMAS: &str = "flowcontrol.apiserver.k8s.io/flowschemas";
const LEVELS: &str = "flowcontrol.apiserver.k8s.io/prioritylevelconfigurations";
/// Lowest precedence of a schema.
const LAST: i64 = 10_000;
/// Levels of which nothing is asked but that they are there.
const EXEMPT: &str = "exempt";

/// Fills in the defaults.
pub fn defaults(plural: &str, value: &mut Value) {
    let spec = tree::child(value, "spec");
    if plural == "flowschemas" {
        default_to(spec, "matchingPrecedence", 1000);
        return;
    }
    let kind = spec.get("type").and_then(Value::as_str).unwrap_or_default();
    if kind == "Exempt" {
        let exempt = tree::object(spec.entry("exempt").or_insert_with(|| json!({})));
        default_to(exempt, "nominalConcurrencyShares", 0);
        default_to(exempt, "lendablePercent", 0);
    }
    if let Some(Value::Object(limited)) = spec.get_mut("limited") {
        default_to(limited, "nominalConcurrencyShares", 30);
        default_to(limited, "lendablePercent", 0);
        let response = tree::object(limited.entry("limitResponse").or_insert_with(|| json!({})));
        if response.get("type").and_then(Value::as_str) == Some("Queue") {
            let queuing = tree::object(response.entry("queuing").or_insert_with(|| json!({})));
            default_to(queuing, "queues", 64);
            default_to(queuing, "handSize", 8);
            default_to(queuing, "queueLengthLimit", 50);
        }
    }
}

/// Checks a FlowSchema.
pub fn schema(new: &At) {
    let spec = new.at("spec");
    let (order, name) = (spec.at("matchingPrecedence"), new.at("metadata.name"));
    let first = order.number().unwrap_or(0);
    if first <= 0 {
        order.invalid("must be a positive value");
    } else if first > LAST {
        order.invalid(&format!("must not be greater than {LAST}"));
    } else if first == 1 && name.text() != EXEMPT {
        order.invalid("only the schema named 'exempt' may have matchingPrecedence 1");
    }
    let level = spec.at("priorityLevelConfiguration.name");
    if level.text().is_empty() {
        level.required("must reference a priority level");
    } else {
        level.name(NameRule::Subdomain);
    }
    let method = spec.at("distinguisherMethod");
    if method.is_set() {
        method.at("type").need_one_of(&["ByNamespace", "ByUser"]);
    }
    spec.at("rules").items().for_each(|rule| one_rule(&rule));
}

fn one_rule(rule: &At) {
    let subjects = rule.at("subjects");
    if subjects.is_empty() {
        subjects.required("subjects must contain at least one value");
    }
    for subject in subjects.items() {
        let kind = subject.at("kind");
        let parts = [("User", "user"), ("Group", "group"), ("ServiceAccount", "serviceAccount")];
        kind.need_one_of(&["Group", "ServiceAccount", "User"]);
        for (of, field) in parts {
            let part = subject.at(field);
            if kind.text() == of && !part.is_set() {
                part.required(&format!("{field} is required when subject kind is '{of}'"));
            } else if kind.text() != of && part.is_set() {
                part.forbidden(&format!("{field} is forbidden when subject kind is not '{of}'"));
            } else if part.is_set() {
                part.at("name").need();
            }
        }
        if kind.text() == "ServiceAccount" && subject.at("serviceAccount").is_set() {
            subject.at("serviceAccount.namespace").need();
        }
    }
    let (resources, paths) = (rule.at("resourceRules"), rule.at("nonResourceRules"));
    if resources.is_empty() && paths.is_empty() {
        rule.required("at least one of resourceRules and nonResourceRules has to be non-empty");
    }
    for resource in resources.items() {
        for field in ["verbs", "apiGroups", "resources"] {
            whole_or_parts(&resource.at(field), field);
        }
        if resource.at("namespaces").is_empty() && !resource.at("clusterScope").is_true() {
            resource
                .at("namespaces")
                .required("resource rules that are not cluster scoped must supply at least one namespace");
        }
    }
    for path in paths.items() {
        whole_or_parts(&path.at("verbs"), "verbs");
        whole_or_parts(&path.at("nonResourceURLs"), "nonResourceURLs");
    }
}

/// A list has items, and `*` stands alone.
fn whole_or_parts(list: &At, what: &str) {
    if list.is_empty() {
        list.required(&format!("{what} must contain at least one value"));
    } else if list.len() > 1 && list.items().any(|item| item.text() == "*") {
        list.invalid("if '*' is present, must not specify other values");
    }
}

/// Checks a PriorityLevelConfiguration.
pub fn level(new: &At) {
    let spec = new.at("spec");
    let (kind, limited, exempt) = (spec.at("type"), spec.at("limited"), spec.at("exempt"));
    let is_exempt = new.at("metadata.name").text() == EXEMPT;
    kind.need_one_of(&["Exempt", "Limited"]);
    if is_exempt && kind.text() != "Exempt" {
        kind.invalid("must be 'Exempt' if `name` is 'exempt'");
    } else if !is_exempt && kind.text() == "Exempt" {
        kind.invalid("must be 'Limited' if `name` is not 'exempt'");
    }
    match kind.text() {
        "Exempt" if limited.is_set() => limited.forbidden("must be nil if the type is not Limited"),
        "Limited" if exempt.is_set() => exempt.forbidden("must be nil if the type is Limited"),
        "Limited" if !limited.is_set() => limited.required("must not be empty when type is Limited"),
        _ => {}
    }
    for part in [&limited, &exempt] {
        let (shares, lendable) = (part.at("nominalConcurrencyShares"), part.at("lendablePercent"));
        if shares.number().is_some_and(|n| n < 0) {
            shares.invalid("must be a non-negative integer");
        }
        if lendable.number().is_some_and(|n| !(0..=100).contains(&n)) {
            lendable.invalid("must be between 0 and 100, inclusive");
        }
    }
    let borrowing = limited.at("borrowingLimitPercent");
    if borrowing.number().is_some_and(|n| n < 0) {
        borrowing.invalid("if specified, must be a non-negative integer");
    }
    if limited.is_set() {
        response(&limited.at("limitResponse"));
    }
}

fn response(response: &At) {
    let (kind, queuing) = (response.at("type"), response.at("queuing"));
    kind.need_one_of(&["Queue", "Reject"]);
    match kind.text() {
        "Reject" if queuing.is_set() => {
            queuing.forbidden("must be nil if limited.limitResponse.type is not Limited")
        }
        "Queue" if !queuing.is_set() => {
            queuing.required("must not be empty if limited.limitResponse.type is Limited");
        }
        _ => {}
    }
    if !queuing.is_set() {
        return;
    }
    let (queues, hand, length) =
        (queuing.at("queues"), queuing.at("handSize"), queuing.at("queueLengthLimit"));
    let number = |at: &At| at.number().unwrap_or(0);
    if number(&queues) <= 0 {
        queues.invalid("must be positive");
    } else if number(&queues) > 10_000_000 {
        queues.invalid("must not be greater than 10000000");
    }
    if number(&length) <= 0 {
        length.invalid("must be positive");
    }
    if number(&hand) <= 0 {
        hand.invalid("must be positive");
    } else if number(&hand) > number(&queues) {
        hand.invalid(&format!("should not be greater than queues ({})", number(&queues)));
    } else if entropy(number(&queues), number(&hand)) > 60.0 {
        hand.invalid("required entropy bits of deck size and hand size should not be greater than 60");
    }
}

/// Bits that tell apart the hands of so many queues.
fn entropy(queues: i64, hand: i64) -> f64 {
    (0..hand).map(|i| ((queues - i).max(1) as f64).log2()).sum()
}

/// How many queues, how many of them a hand has, and how long one is.
type Queues = (i64, i64, i64);

/// The shares of a level, and its queues if it has any.
type Shares = (i64, Option<Queues>);

/// Name, shares (None: exempt), and what may be lent.
const OWN_LEVELS: [(&str, Option<Shares>, i64); 8] = [
    ("exempt", None, 0),
    ("catch-all", Some((5, None)), 0),
    ("system", Some((30, Some((64, 6, 50)))), 33),
    ("node-high", Some((40, Some((64, 6, 50)))), 25),
    ("leader-election", Some((10, Some((16, 4, 50)))), 0),
    ("workload-high", Some((40, Some((128, 6, 50)))), 50),
    ("workload-low", Some((100, Some((128, 6, 50)))), 90),
    ("global-default", Some((20, Some((128, 6, 50)))), 50),
];

fn everything(subjects: &[Value]) -> Value {
    json!([{"subjects": subjects,
        "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "clusterScope": true, "namespaces": ["*"]}],
        "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}]}])
}

fn part(subjects: &[Value], groups: &[&str], resources: &[&str], namespace: &str) -> Value {
    let (cluster, namespace) = (namespace.is_empty(), if namespace.is_empty() { "*" } else { namespace });
    let mut rule =
        json!({"verbs": ["*"], "apiGroups": groups, "resources": resources, "namespaces": [namespace]});
    if cluster {
        rule["clusterScope"] = json!(true);
    }
    json!([{"subjects": subjects, "resourceRules": [rule]}])
}

fn meta(name: &str) -> Value {
    json!({"name": name, "generation": 1, "annotations": {"apf.kubernetes.io/autoupdate-spec": "true"}})
}

const API: &str = "flowcontrol.apiserver.k8s.io/v1";

fn own_levels() -> Vec<(&'static str, Value)> {
    let mut out = Vec::new();
    for (name, shares, lendable) in OWN_LEVELS {
        let spec = match shares {
            None => {
                json!({"type": "Exempt", "exempt": {"nominalConcurrencyShares": 0, "lendablePercent": 0}})
            }
            Some((shares, queues)) => {
                let response = match queues {
                    None => json!({"type": "Reject"}),
                    Some((queues, hand, length)) => json!({"type": "Queue",
                        "queuing": {"queues": queues, "handSize": hand, "queueLengthLimit": length}}),
                };
                json!({"type": "Limited", "limited": {"nominalConcurrencyShares": shares, "limitResponse": response,
                    "lendablePercent": lendable}})
            }
        };
        let object = json!({"apiVersion": API, "kind": "PriorityLevelConfiguration", "metadata": meta(name),
            "spec": spec, "status": {}});
        out.push((LEVELS, object));
    }
    out
}

/// The objects every cluster has, as (table, object).
pub fn own_objects() -> Vec<(&'static str, Value)> {
    let mut out = own_levels();
    let group = |name: &str| json!({"kind": "Group", "group": {"name": name}});
    let user = |name: &str| json!({"kind": "User", "user": {"name": name}});
    let account = |name: &str| {
        json!({"kind": "ServiceAccount",
        "serviceAccount": {"namespace": "kube-system", "name": name}})
    };
    let (all, nobody) = (group("system:authenticated"), group("system:unauthenticated"));
    let both = [nobody.clone(), all.clone()];
    let (nodes, accounts) = (group("system:nodes"), group("system:serviceaccounts"));
    let controllers = [user("system:kube-controller-manager"), user("system:kube-scheduler")];
    let probes = json!([{"subjects": both, "nonResourceRules": [{"verbs": ["get"],
        "nonResourceURLs": ["/healthz", "/readyz", "/livez"]}]}]);
    let leases = ["coordination.k8s.io"];
    let mut of_nodes = part(std::slice::from_ref(&nodes), &[""], &["nodes", "nodes/status"], "");
    if let Some(rules) = of_nodes[0]["resourceRules"].as_array_mut() {
        rules
            .push(json!({"verbs": ["*"], "apiGroups": leases, "resources": ["leases"], "namespaces": ["*"]}));
    }
    let mut endpoints = part(
        &[
            controllers[0].clone(),
            account("endpoint-controller"),
            account("endpointslicemirroring-controller"),
        ],
        &[""],
        &["endpoints"],
        "",
    );
    endpoints[0]["resourceRules"][0]["verbs"] = json!(["get", "create", "update"]);
    let system_accounts =
        json!({"kind": "ServiceAccount", "serviceAccount": {"namespace": "kube-system", "name": "*"}});
    let schemas: [(&str, &str, i64, &str, Value); 13] = [
        ("exempt", "exempt", 1, "", everything(&[group("system:masters")])),
        ("probes", "exempt", 2, "", probes),
        (
            "system-leader-election",
            "leader-election",
            100,
            "ByUser",
            part(&controllers, &leases, &["leases"], "kube-system"),
        ),
        ("endpoint-controller", "workload-high", 150, "ByUser", endpoints),
        (
            "workload-leader-election",
            "leader-election",
            200,
            "ByUser",
            part(std::slice::from_ref(&system_accounts), &leases, &["leases"], "*"),
        ),
        ("system-node-high", "node-high", 400, "ByUser", of_nodes),
        ("system-nodes", "system", 500, "ByUser", everything(&[nodes])),
        ("kube-controller-manager", "workload-high", 800, "ByNamespace", everything(&controllers[..1])),
        ("kube-scheduler", "workload-high", 800, "ByNamespace", everything(&controllers[1..])),
        ("kube-system-service-accounts", "workload-high", 900, "ByNamespace", everything(&[system_accounts])),
        ("service-accounts", "workload-low", 9000, "ByUser", everything(&[accounts])),
        ("global-default", "global-default", 9900, "ByUser", everything(&both)),
        ("catch-all", "catch-all", LAST, "ByUser", everything(&both)),
    ];
    for (name, level, order, method, rules) in schemas {
        let mut spec = json!({"priorityLevelConfiguration": {"name": level}, "matchingPrecedence": order, "rules": rules});
        if !method.is_empty() {
            spec["distinguisherMethod"] = json!({"type": method});
        }
        let status = json!({"conditions": [{"type": "Dangling", "status": "False", "reason": "Found",
            "message": format!("This FlowSchema references the PriorityLevelConfiguration object named {level:?} and it exists")}]});
        let object = json!({"apiVersion": API, "kind": "FlowSchema", "metadata": meta(name), "spec": spec, "status": status});
        out.push((SCHEMAS, object));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_objects_of_every_cluster_pass_their_own_checks() {
        for (table, mut object) in own_objects() {
            let plural = table.rsplit('/').next().unwrap();
            let before = object.clone();
            defaults(plural, &mut object);
            assert_eq!(object, before, "they have all defaults");
            let causes = fleet_apiserver_schema::field::Causes::default();
            let at = At::root(&object, &causes);
            if table == SCHEMAS {
                schema(&at)
            } else {
                level(&at)
            }
            assert!(causes.borrow().is_empty(), "{}: {:?}", object["metadata"]["name"], causes.borrow());
        }
    }
}
