//! What the status of a pod may say, and what of it the server keeps.
//!
//! Inputs: the live pod and the one with the status that was sent. Absent on purpose: whether it is true; that only
//! the kubelet knows.

use super::addresses::{self, Kind};
use fleet_apiserver_ground::tree;
use fleet_apiserver_schema::error::Cause;
use fleet_apiserver_schema::field::{At, Causes};
use fleet_apiserver_schema::validate::NameRule;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// The containers of a spec and their statuses.
const LISTS: [(&str, &str); 3] = [
    ("containers", "containerStatuses"),
    ("initContainers", "initContainerStatuses"),
    ("ephemeralContainers", "ephemeralContainerStatuses"),
];
/// Largest id of a user or a group: what 32 bits hold.
const LARGEST_ID: i64 = i32::MAX as i64;
/// Longest message about the health of a device, in bytes.
const LONGEST_MESSAGE: usize = 256;
const NOT_NEGATIVE: &str = "must be a non-negative integer";

/// Fills in what a client that knows less than the server leaves out of a status: the class of service, observed
/// generations, and the address that is written twice.
pub fn keep(live: &Value, pod: &mut Value) {
    let before = live.get("status").unwrap_or(&Value::Null);
    let status = tree::child(pod, "status");
    if status.get("qosClass").and_then(Value::as_str).unwrap_or_default().is_empty() {
        tree::put(status, "qosClass", before.get("qosClass").cloned());
    }
    keep_generation(before, status);
    let mut known: BTreeMap<&str, VecDeque<&Value>> = BTreeMap::new();
    for condition in tree::list(before, &["conditions"]) {
        known.entry(tree::text(condition, &["type"])).or_default().push_back(condition);
    }
    let conditions = status.get_mut("conditions").and_then(Value::as_array_mut);
    for condition in conditions.into_iter().flatten().filter_map(Value::as_object_mut) {
        let name = condition.get("type").and_then(Value::as_str).unwrap_or_default();
        // Several may have one type: the first of them is meant first.
        let Some(before) = known.get_mut(name).and_then(VecDeque::pop_front) else { continue };
        keep_generation(before, condition);
    }
    // Fields of features that are off in this version.
    if before.get("nodeAllocatableResourceClaimStatuses").is_none() {
        status.remove("nodeAllocatableResourceClaimStatuses");
    }
    keep_addresses(status);
}

fn keep_generation(before: &Value, now: &mut Map<String, Value>) {
    const KEY: &str = "observedGeneration";
    if now.get(KEY).and_then(Value::as_i64).unwrap_or_default() == 0 {
        tree::put(now, KEY, before.get(KEY).filter(|n| n.as_i64() != Some(0)).cloned());
    }
}

/// One address is also the first of the list. Where they differ, the one holds: older kubelets know no list.
fn keep_addresses(status: &mut Map<String, Value>) {
    let one = status.get("podIP").and_then(Value::as_str).unwrap_or_default().to_string();
    let first =
        status.get("podIPs").and_then(|list| list.get(0)).map(|ip| tree::text(ip, &["ip"]).to_string());
    if one.is_empty() {
        if let Some(first) = first.filter(|first| !first.is_empty()) {
            status.insert("podIP".into(), first.into());
        }
    } else if first.as_ref() != Some(&one) {
        status.insert("podIPs".into(), json!([{"ip": one}]));
    }
}

/// Checks the status of a pod, and how it follows from the one before.
pub(crate) fn check(old: &Value, pod: &Value, causes: &mut Vec<Cause>) {
    let found = Causes::default();
    {
        let (new, old) = (At::root(pod, &found), At::root(old, &found));
        let (status, before) = (new.at("status"), old.at("status"));
        conditions(&status.at("conditions"));
        nominated(&status.at("nominatedNodeName"), &before.at("nominatedNodeName"), &old.at("spec.nodeName"));
        let generation = status.at("observedGeneration");
        if generation.number().is_some_and(|n| n < 0) {
            generation.invalid(NOT_NEGATIVE);
        }
        let class = status.at("qosClass");
        if class.text() != before.at("qosClass").text() {
            class.invalid("field is immutable");
        }
        for (list, statuses) in LISTS {
            stay_ended(&status.at(statuses), &before.at(statuses), old.at("spec").value(), list);
        }
        claims(&status.at("resourceClaimStatuses"), new.at("spec").value());
        let extended = status.at("extendedResourceClaimStatus");
        if extended.is_set() {
            extended_claim(&extended, new.at("spec").value());
        }
        addresses::check(Kind::Pod, &status, before.value());
        addresses::check(Kind::Host, &status, before.value());
        let windows = new.at("spec.os.name").text() == "windows";
        for (_, statuses) in LISTS {
            status.at(statuses).items().for_each(|one| user(&one.at("user.linux"), windows));
        }
        for (list, statuses) in LISTS {
            let containers = by_name(tree::list(pod, &["spec", list]));
            for one in status.at(statuses).items() {
                devices(&one, list, containers.get(one.at("name").text()).copied());
            }
        }
    }
    causes.extend(found.into_inner());
}

fn conditions(conditions: &At) {
    for condition in conditions.items() {
        let generation = condition.at("observedGeneration");
        if generation.number().is_some_and(|n| n < 0) {
            generation.invalid(NOT_NEGATIVE);
        }
        let name = condition.at("type");
        if !matches!(name.text(), "PodScheduled" | "Ready" | "Initialized") {
            condition.beside("Type", Some(name.value())).qualified();
        }
    }
}

/// A node is kept free for a pod that has none yet.
fn nominated(now: &At, before: &At, node: &At) {
    if now.text().is_empty() || now.text() == before.text() {
        return;
    }
    now.name(NameRule::Subdomain);
    if !node.text().is_empty() {
        now.forbidden("may not be set on pods that are already bound to a node");
    }
}

/// The containers by their names; the first of several with one name.
fn by_name(containers: &[Value]) -> BTreeMap<&str, &Value> {
    containers.iter().rev().map(|container| (tree::text(container, &["name"]), container)).collect()
}

/// A container that has ended stays so, unless it or its pod is one that is started again.
fn stay_ended(now: &At, before: &At, spec: &Value, list: &str) {
    let restarts_all = |container: &Value| {
        let mut rules = tree::list(container, &["restartPolicyRules"]).iter();
        rules.any(|rule| tree::text(rule, &["action"]) == "RestartAllContainers")
    };
    let mut every = tree::list(spec, &["initContainers"]).iter().chain(tree::list(spec, &["containers"]));
    if list != "ephemeralContainers" && every.any(restarts_all) {
        return;
    }
    let containers = by_name(tree::list(spec, &[list]));
    let goes_on = |new: &At| !new.at("state.terminated").is_set();
    let go_on: BTreeSet<&str> = now.items().filter(goes_on).map(|new| new.at("name").text()).collect();
    for old in before.items() {
        let ended = old.at("state.terminated");
        if !ended.is_set() {
            continue;
        }
        let name = old.at("name").text();
        if !go_on.contains(name) {
            continue;
        }
        let container = containers.get(name).copied();
        let code = tree::number(ended.value(), &["exitCode"]);
        let again = list != "ephemeralContainers" && container.is_some_and(|c| starts_again(c, spec, code));
        if !again {
            old.at("state").forbidden("may not be transitioned to non-terminated state");
        }
    }
}

/// True if a container that ended with this code is started again: by its own rules and policy, or those of its pod.
fn starts_again(container: &Value, spec: &Value, code: i64) -> bool {
    let own = tree::text(container, &["restartPolicy"]);
    if !own.is_empty() {
        let matching = tree::list(container, &["restartPolicyRules"]).iter().find(|rule| {
            let listed = tree::list(rule, &["exitCodes", "values"]).iter().any(|v| v.as_i64() == Some(code));
            match tree::text(rule, &["exitCodes", "operator"]) {
                "In" => listed,
                "NotIn" => !listed,
                _ => false,
            }
        });
        let action = matching.map_or("", |rule| tree::text(rule, &["action"]));
        if matches!(action, "Restart" | "RestartAllContainers") {
            return true;
        }
    }
    let policy = match own {
        "Always" | "OnFailure" | "Never" => own,
        _ => tree::text(spec, &["restartPolicy"]),
    };
    match policy {
        "OnFailure" => code != 0,
        "Never" => false,
        _ => true,
    }
}

fn claims(statuses: &At, spec: &Value) {
    let known = by_name(tree::list(spec, &["resourceClaims"]));
    let mut seen = BTreeSet::new();
    for status in statuses.items() {
        let name = status.at("name");
        if !known.contains_key(name.text()) {
            status
                .beside("name", Some(text_of(&name)))
                .invalid("must match the name of an entry in `spec.resourceClaims`");
        }
        if !seen.insert(name.text()) {
            name.duplicate();
        }
        let made = status.at("resourceClaimName");
        if made.is_set() {
            made.any_name(NameRule::Subdomain);
        }
    }
}

static EMPTY: Value = Value::String(String::new());

/// The text of a field, also of one that is missing.
fn text_of<'v>(at: &At<'v, '_>) -> &'v Value {
    if at.is_set() { at.value() } else { &EMPTY }
}

fn extended_claim(status: &At, spec: &Value) {
    // Of two with one name the main container counts.
    let lists = ["initContainers", "containers"].map(|list| tree::list(spec, &[list]));
    let containers: BTreeMap<&str, &Value> =
        lists.into_iter().flatten().map(|c| (tree::text(c, &["name"]), c)).collect();
    let mappings = status.at("requestMappings");
    if mappings.is_empty() {
        mappings.required("at least one request mapping is required");
    }
    let mut seen = BTreeSet::new();
    for mapping in mappings.items() {
        let [container, resource, request] =
            ["containerName", "resourceName", "requestName"].map(|key| mapping.at(key));
        match containers.get(container.text()) {
            Some(found) => {
                if tree::at(found, &["resources", "requests", resource.text()]).is_none() {
                    resource.invalid("must match the extended resource name of an entry in spec.initContainers.resources.requests or spec.containers.resources.requests");
                }
            }
            None => container.invalid(
                "must match the name of an entry in spec.initContainers.name or spec.containers.name",
            ),
        }
        status.beside("requestName", Some(text_of(&request))).any_name(NameRule::Label);
        if !seen.insert((container.text(), resource.text(), request.text())) {
            [container, resource, request].iter().for_each(At::duplicate);
        }
    }
    let name = status.at("resourceClaimName");
    if name.text().is_empty() {
        name.required("");
    } else {
        name.name(NameRule::Subdomain);
    }
}

fn user(linux: &At, windows: bool) {
    if !linux.is_set() {
        return;
    }
    if windows {
        linux.forbidden("cannot be set for a windows pod");
        return;
    }
    linux.at("uid").within(0..=LARGEST_ID);
    linux.at("gid").within(0..=LARGEST_ID);
    linux.at("supplementalGroups").items().for_each(|group| group.within(0..=LARGEST_ID));
}

/// The health of the devices of a container: they are among what it asks for.
fn devices(status: &At, list: &str, container: Option<&Value>) {
    let all = status.at("allocatedResourcesStatus");
    if list == "ephemeralContainers" {
        if !all.is_empty() {
            all.forbidden("must not be specified in container status");
        }
        return;
    }
    let claims = container.filter(|_| !all.is_empty()).map(claim_names).unwrap_or_default();
    for entry in all.items() {
        let name = entry.at("name");
        if let Some(container) = container {
            check_device(&name, container, &claims);
        }
        let mut seen = BTreeSet::new();
        for one in entry.at("resources").items() {
            let health = one.at("health");
            if !matches!(health.text(), "Healthy" | "Unhealthy" | "Unknown") {
                health.unsupported(&["Healthy", "Unhealthy", "Unknown"]);
            }
            let message = one.at("message");
            if message.is_set() && message.text().is_empty() {
                message.required("must be non-empty if specified");
            } else if message.text().len() > LONGEST_MESSAGE {
                message.too_long(LONGEST_MESSAGE);
            }
            let id = one.at("resourceID");
            if !seen.insert(id.text()) {
                id.duplicate();
            }
        }
    }
}

/// The claims of a container, as the health of their devices names them.
fn claim_names(container: &Value) -> BTreeSet<String> {
    let named = |claim: &Value| match (tree::text(claim, &["name"]), tree::text(claim, &["request"])) {
        (claim, "") => format!("claim:{claim}"),
        (claim, request) => format!("claim:{claim}/{request}"),
    };
    tree::list(container, &["resources", "claims"]).iter().map(named).collect()
}

fn check_device(name: &At, container: &Value, claims: &BTreeSet<String>) {
    if !name.text().starts_with("claim:") {
        if tree::at(container, &["resources", "requests", name.text()]).is_none() {
            name.invalid("must match one of the container's resource requests");
        }
        return;
    }
    if !claims.contains(name.text()) {
        name.invalid("must match one of the container's resource claims in a format 'claim:<claimName>/<request>' or 'claim:<claimName>' if request is empty");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(spec: Value, old: Value, new: Value) -> Vec<(String, String)> {
        let mut causes = Vec::new();
        check(&json!({"spec": spec, "status": old}), &json!({"spec": spec, "status": new}), &mut causes);
        causes.into_iter().map(|c| (c.field, c.message)).collect()
    }

    #[test]
    fn what_has_ended_stays_so_unless_it_is_started_again() {
        let ended = |code: i64| json!({"containerStatuses": [{"name": "c", "state": {"terminated": {"exitCode": code}}}]});
        let runs = json!({"containerStatuses": [{"name": "c", "state": {"running": {}}}]});
        let spec = |policy: &str| json!({"restartPolicy": policy, "containers": [{"name": "c"}]});
        let refused = [(
            "status.containerStatuses[0].state".to_string(),
            "Forbidden: may not be transitioned to non-terminated state".to_string(),
        )];
        assert_eq!(told(spec("Never"), ended(1), runs.clone()), refused);
        assert_eq!(told(spec("OnFailure"), ended(0), runs.clone()), refused);
        assert!(told(spec("OnFailure"), ended(1), runs.clone()).is_empty());
        assert!(told(spec("Always"), ended(0), runs.clone()).is_empty());
        let mut own = spec("Never");
        own["containers"][0] = json!({"name": "c", "restartPolicy": "Never", "restartPolicyRules":
            [{"action": "Restart", "exitCodes": {"operator": "In", "values": [42]}}]});
        assert!(told(own.clone(), ended(42), runs.clone()).is_empty());
        assert_eq!(told(own, ended(1), runs), refused);
    }

    #[test]
    fn what_a_status_leaves_out_is_kept() {
        let live = json!({"status": {"qosClass": "Burstable", "observedGeneration": 2,
            "conditions": [{"type": "Ready", "observedGeneration": 2}]}});
        let mut pod =
            json!({"status": {"podIP": "10.0.0.1", "conditions": [{"type": "Ready"}, {"type": "Ready"}]}});
        keep(&live, &mut pod);
        assert_eq!(
            pod["status"],
            json!({"qosClass": "Burstable", "observedGeneration": 2, "podIP": "10.0.0.1",
                "podIPs": [{"ip": "10.0.0.1"}], "conditions": [{"type": "Ready", "observedGeneration": 2}, {"type": "Ready"}]})
        );
    }

    /// As many names as a body holds: a search of a list for each of them would take minutes.
    #[test]
    fn many_containers_are_found_by_their_names() {
        let names: Vec<String> = (0..60_000).map(|i| format!("c{i}")).collect();
        let all = |state: &Value| -> Value {
            names.iter().map(|name| json!({"name": name, "state": state})).collect::<Vec<_>>().into()
        };
        let spec = json!({"restartPolicy": "Always", "resourceClaims": all(&Value::Null), "containers": all(&Value::Null)});
        let ended = json!({"containerStatuses": all(&json!({"terminated": {"exitCode": 1}}))});
        let mut now = json!({"containerStatuses": all(&json!({"running": {}})),
            "resourceClaimStatuses": all(&Value::Null)});
        assert!(told(spec.clone(), ended.clone(), now.clone()).is_empty());
        now["resourceClaimStatuses"][59_999]["name"] = json!("other");
        assert_eq!(told(spec.clone(), ended.clone(), now.clone()).len(), 1);
        let mut never = spec;
        never["restartPolicy"] = json!("Never");
        assert_eq!(told(never, ended, now).len(), 1_000, "as many as are noted");
        let one_type = |seen: i64| -> Value {
            (0..200_000)
                .map(|_| json!({"type": "Ready", "observedGeneration": seen}))
                .collect::<Vec<_>>()
                .into()
        };
        let mut pod = json!({"status": {"conditions": one_type(0)}});
        keep(&json!({"status": {"conditions": one_type(7)}}), &mut pod);
        assert_eq!(pod["status"]["conditions"][199_999]["observedGeneration"], 7);
    }

    #[test]
    fn claims_and_devices_are_those_of_the_pod() {
        let spec = json!({"containers": [{"name": "c", "resources": {"requests": {"example.com/gpu": "1"}}}],
            "resourceClaims": [{"name": "a"}]});
        let found = told(
            spec,
            json!({}),
            json!({"resourceClaimStatuses": [{"name": "a"}, {"name": "b"}],
                "extendedResourceClaimStatus": {"requestMappings": [{"containerName": "c",
                    "resourceName": "example.com/other", "requestName": "r"}]},
                "containerStatuses": [{"name": "c", "allocatedResourcesStatus": [{"name": "cpu",
                    "resources": [{"resourceID": "x", "health": "Ill"}]}]}]}),
        );
        let fields: Vec<&str> = found.iter().map(|(field, _)| field.as_str()).collect();
        assert_eq!(
            fields,
            [
                "status.resourceClaimStatuses[1].name",
                "status.extendedResourceClaimStatus.requestMappings[0].resourceName",
                "status.extendedResourceClaimStatus.resourceClaimName",
                "status.containerStatuses[0].allocatedResourcesStatus[0].name",
                "status.containerStatuses[0].allocatedResourcesStatus[0].resources[0].health",
            ]
        );
        assert_eq!(
            found[4].1,
            "Unsupported value: \"Ill\": supported values: \"Healthy\", \"Unhealthy\", \"Unknown\""
        );
    }
}
