//! Kinds of priority and fairness, and the objects of theirs that every cluster has.
//!
//! Inputs: decoded objects. Source: Kubernetes 1.36. The server keeps them for its clients; it limits requests by rules
//! of its own, and not by these.

use fleet_apiserver_ground::tree::{self, default_to};
use fleet_apiserver_schema::canonical;
use fleet_apiserver_schema::error::Cause;
use fleet_apiserver_schema::field::{At, same, same_but};
use fleet_apiserver_schema::validate::{self, NameRule};
use serde_json::{Value, json};

/// The table of the schemas, and of the levels.
const SCHEMAS: &str = "flowcontrol.apiserver.k8s.io/flowschemas";
const LEVELS: &str = "flowcontrol.apiserver.k8s.io/prioritylevelconfigurations";
/// Lowest precedence of a schema.
const LAST: i64 = 10_000;
/// Levels of which nothing is asked but that they are there.
const EXEMPT: &str = "exempt";
/// Schemas, and levels, whose spec is what it is.
const FIXED: [&str; 2] = [EXEMPT, "catch-all"];
/// What a rule may be about, unless it is about everything.
const VERBS: [&str; 9] =
    ["create", "delete", "deletecollection", "get", "list", "patch", "proxy", "update", "watch"];

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
    let kind = spec.at("distinguisherMethod.type");
    if spec.at("distinguisherMethod").is_set() && !matches!(kind.text(), "ByNamespace" | "ByUser") {
        // Shown with the name of the internal type.
        let found = json!({"Type": kind.text()});
        let why = format!("Unsupported value: {found}: supported values: \"ByNamespace\", \"ByUser\"");
        kind.note(Cause::new("FieldValueNotSupported", kind.path(), why));
    }
    let level = spec.at("priorityLevelConfiguration.name");
    if level.text().is_empty() {
        level.required("must reference a priority level");
    } else {
        level.name(NameRule::Subdomain);
    }
    spec.at("rules").items().for_each(|rule| one_rule(&rule));
    if fixed(SCHEMAS, new.value()).is_some_and(|fixed| !same(&fixed, spec.value())) {
        spec.invalid(&format!("spec of '{}' must equal the fixed value", name.text()));
    }
    conditions(new);
}

/// The spec that an object of this name must have, in the form in which it is stored.
fn fixed(table: &str, value: &Value) -> Option<Value> {
    let name = FIXED.into_iter().find(|name| *name == tree::meta_text(value, "name"))?;
    let is = |(of, object): &(&str, Value)| *of == table && tree::meta_text(object, "name") == name;
    let (_, mut object) = own_objects().into_iter().find(is)?;
    canonical::complete(&mut object);
    object.get("spec").cloned()
}

fn conditions(new: &At) {
    let list = new.at("status.conditions");
    list.unique("type");
    list.items().for_each(|condition| {
        condition.at("type").need();
    });
}

fn one_rule(rule: &At) {
    let subjects = rule.at("subjects");
    if subjects.is_empty() {
        subjects.required("subjects must contain at least one value");
    }
    subjects.items().for_each(|subject| one_subject(&subject));
    let (resources, paths) = (rule.at("resourceRules"), rule.at("nonResourceRules"));
    if resources.is_empty() && paths.is_empty() {
        rule.required("at least one of resourceRules and nonResourceRules has to be non-empty");
    }
    for resource in resources.items() {
        verbs(&resource.at("verbs"));
        let (groups, kinds) = (resource.at("apiGroups"), resource.at("resources"));
        whole_or_parts(&groups, "resource rules must supply at least one api group", "api groups");
        whole_or_parts(&kinds, "resource rules must supply at least one resource", "resources");
        namespaces(&resource.at("namespaces"), resource.at("clusterScope").is_true());
    }
    for path in paths.items() {
        verbs(&path.at("verbs"));
        let urls = path.at("nonResourceURLs");
        if !whole_or_parts(&urls, "nonResourceURLs must contain at least one value", "non-resource URLs") {
            urls.items().for_each(|url| path_form(&url));
        }
    }
}

fn one_subject(subject: &At) {
    let kind = subject.at("kind");
    let parts = [("User", "user"), ("Group", "group"), ("ServiceAccount", "serviceAccount")];
    if parts.iter().all(|(of, _)| *of != kind.text()) {
        kind.unsupported(&["Group", "ServiceAccount", "User"]);
        return;
    }
    for (of, field) in parts {
        let part = subject.at(field);
        match (kind.text() == of, part.is_set()) {
            (true, false) => part.required(&format!("{field} is required when subject kind is '{of}'")),
            (false, true) => part.forbidden(&format!("{field} is forbidden when subject kind is not '{of}'")),
            (true, true) if of == "ServiceAccount" => account(&part),
            (true, true) => {
                part.at("name").need();
            }
            (false, false) => {}
        }
    }
}

fn account(account: &At) {
    let (name, namespace) = (account.at("name"), account.at("namespace"));
    if name.need() && name.text() != "*" {
        name.name(NameRule::Subdomain);
    }
    if namespace.text().is_empty() {
        namespace.required("must specify namespace for service account");
    }
    namespace.name(NameRule::Label);
}

fn verbs(list: &At) {
    let whole = whole_or_parts(list, "verbs must contain at least one value", "verbs");
    if !whole && list.items().any(|verb| !VERBS.contains(&verb.text())) {
        list.unsupported(&VERBS);
    }
}

fn namespaces(list: &At, cluster: bool) {
    if list.is_empty() && cluster {
        return;
    }
    let missing = "resource rules that are not cluster scoped must supply at least one namespace";
    if whole_or_parts(list, missing, "namespaces") {
        return;
    }
    for namespace in list.items() {
        if let Some(why) = validate::name(NameRule::Label, namespace.text()) {
            let first = "each member of this list must be '*' or a DNS-1123 label";
            namespace.invalid(&format!("{first}; {why}"));
        }
    }
}

/// A list has items, and `*` stands alone. True if it is there.
fn whole_or_parts(list: &At, missing: &str, others: &str) -> bool {
    let whole = list.items().any(|item| item.text() == "*");
    if list.is_empty() {
        list.required(missing);
    } else if list.len() > 1 && whole {
        list.invalid(&format!("if '*' is present, must not specify other {others}"));
    }
    whole
}

/// A path that is not about resources: no blanks, no empty segments, `*` only for what follows.
fn path_form(at: &At) {
    let text = at.text();
    let why = match text {
        "" => "must not be empty",
        "/" => return,
        _ if !text.starts_with('/') => "must start with slash",
        _ if text.contains(' ') => "must not contain white-space",
        _ if text.contains("//") => "must not contain double slash",
        _ if text.strip_suffix("/*").unwrap_or(text).contains('*') => "wildcard can only do suffix matching",
        _ => return,
    };
    at.note(Cause::invalid(at.path(), &json!(text), why));
}

/// Checks a PriorityLevelConfiguration.
pub fn level(new: &At) {
    let spec = new.at("spec");
    let (kind, limited, exempt) = (spec.at("type"), spec.at("limited"), spec.at("exempt"));
    let name = new.at("metadata.name");
    if (name.text() == EXEMPT) != (kind.text() == "Exempt") {
        kind.invalid("must be 'Exempt' if and only if `name` is 'exempt'");
    }
    match kind.text() {
        "Exempt" | "Limited" => {}
        _ => kind.unsupported(&["Exempt", "Limited"]),
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
    if let Some(fixed) = fixed(LEVELS, new.value()) {
        let name = name.text();
        // Of an exempt level the shares may change.
        if name == EXEMPT && !same_but(&fixed, spec.value(), &["exempt"]) {
            spec.invalid(&format!(
                "spec of '{name}' except the 'spec.exempt' field must equal the fixed value"
            ));
        } else if name != EXEMPT && !same(&fixed, spec.value()) {
            spec.invalid(&format!("spec of '{name}' must equal the fixed value"));
        }
    }
    conditions(new);
}

fn response(response: &At) {
    let (kind, queuing) = (response.at("type"), response.at("queuing"));
    match kind.text() {
        "Reject" if queuing.is_set() => {
            queuing.forbidden("must be nil if limited.limitResponse.type is not Limited")
        }
        "Queue" if !queuing.is_set() => {
            queuing.required("must not be empty if limited.limitResponse.type is Limited");
        }
        "Queue" => queues(&queuing),
        "Reject" => {}
        _ => kind.unsupported(&["Queue", "Reject"]),
    }
}

fn queues(queuing: &At) {
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
    } else if entropy(number(&queues), number(&hand)) > MOST_BITS {
        hand.invalid(&format!(
            "required entropy bits of deckSize {} and handSize {} should not be greater than {MOST_BITS}",
            number(&queues),
            number(&hand)
        ));
    }
}

/// Bits of a hash that choose a hand.
const MOST_BITS: i64 = 60;

/// Bits that tell apart the hands of so many queues, at most.
fn entropy(queues: i64, hand: i64) -> i64 {
    ((queues as f64).log2() * hand as f64).ceil() as i64
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
            canonical::complete(&mut object);
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
