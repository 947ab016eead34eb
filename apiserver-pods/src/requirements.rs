//! Checks of what containers, and pods as a whole, ask for.
//!
//! Inputs: requests, limits and claims in the stored form. Source: the validation of Kubernetes 1.36.

use super::{amounts, names};
use fleet_apiserver_schema::error::Cause;
use fleet_apiserver_schema::field::At;
use fleet_resources::{pod::is_of_whole_pod, quantity};
use serde_json::Value;
use std::collections::BTreeSet;

/// Who asks.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asker {
    Container,
    /// The pod as a whole.
    Pod,
}

/// Names without a domain that mean something somewhere; those with the prefix of huge pages do, too.
pub const STANDARD: [&str; 20] = [
    "cpu",
    "memory",
    "ephemeral-storage",
    "requests.cpu",
    "requests.memory",
    "requests.ephemeral-storage",
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    "storage",
    "requests.storage",
    "services.nodeports",
    "services.loadbalancers",
];

/// Names without a domain of what is counted in whole pieces.
pub const PIECES: [&str; 9] = [
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    "services.nodeports",
    "services.loadbalancers",
];

const HUGE_PAGES: &str = "hugepages-";

/// Without a domain, or with that of Kubernetes.
fn is_native(name: &str) -> bool {
    !name.contains('/') || name.contains("kubernetes.io/")
}

/// What only some nodes have, which has a domain of its own.
fn is_extended(name: &str) -> bool {
    !is_native(name)
        && !name.starts_with("requests.")
        && names::qualified(&format!("requests.{name}")).is_empty()
}

/// Resources of which more may be used than was asked for.
fn overcommits(name: &str) -> bool {
    is_native(name) && !name.starts_with(HUGE_PAGES)
}

/// Checks requests and limits, and which claims are used.
pub(crate) fn check(at: &At, claims: &BTreeSet<&str>, asker: Asker) {
    check_amounts(at, &at.at("limits"), &at.at("requests"), asker);
    check_claims(&at.at("claims"), claims);
}

/// Checks what the runtime of a pod needs besides. It counts as limits, which is how its places are told.
pub(crate) fn overhead(at: &At) {
    let (limits, requests) = (at.beside("limits", Some(at.value())), at.beside("requests", None));
    check_amounts(at, &limits, &requests, Asker::Container);
}

fn check_amounts(at: &At, limits: &At, requests: &At, asker: Asker) {
    let (mut plain, mut pages) = (false, false);
    for (name, amount) in limits.entries() {
        check_name(&amount, name, asker);
        check_amount(&amount, name);
        check_pages(&amount, name);
        plain |= matches!(name, "cpu" | "memory");
        pages |= name.starts_with(HUGE_PAGES);
    }
    for (name, amount) in requests.entries() {
        check_name(&amount, name, asker);
        check_amount(&amount, name);
        within_limit(limits, requests, name, amount.text());
        check_pages(&amount, name);
        plain |= matches!(name, "cpu" | "memory");
        pages |= name.starts_with(HUGE_PAGES);
    }
    if pages && !plain {
        at.forbidden("HugePages require cpu or memory");
    }
}

fn check_name(at: &At, name: &str, asker: Asker) {
    let whys = names::qualified(name);
    let mut right = whys.is_empty();
    names::tell(at, name, whys);
    let bare = !name.contains('/');
    let pages = name.starts_with(HUGE_PAGES) || name.starts_with("requests.hugepages-");
    if right && bare && !STANDARD.contains(&name) && !pages {
        names::tell_one(at, name, "must be a standard resource type or fully qualified");
        right = false;
    }
    match asker {
        Asker::Pod => {
            if right && !is_of_whole_pod(name) {
                let message = format!(
                    "Unsupported value: {}: supported values: \"cpu\", \"hugepages-\", \"memory\"",
                    Value::from(name)
                );
                at.note(Cause::new("FieldValueNotSupported", at.path(), message));
            }
        }
        Asker::Container if bare => {
            if !matches!(name, "cpu" | "memory" | "ephemeral-storage") && !name.starts_with(HUGE_PAGES) {
                names::tell_one(at, name, "must be a standard resource for containers");
            }
        }
        Asker::Container => {
            if !is_native(name) && !is_extended(name) {
                names::tell_one(at, name, "doesn't follow extended resource name standard");
            }
        }
    }
}

fn check_amount(at: &At, name: &str) {
    at.quantity();
    if !(PIECES.contains(&name) || is_extended(name)) {
        return;
    }
    // Cpu is what is counted in thousandths.
    if quantity::parse("cpu", at.text()).is_ok_and(|thousandths| thousandths % 1000 != 0) {
        at.invalid("must be an integer");
    }
}

/// Huge pages are asked for in whole pages.
fn check_pages(at: &At, name: &str) {
    let Some(size) = name.strip_prefix(HUGE_PAGES) else { return };
    let size = quantity::parse("cpu", size).ok().filter(|n| *n > 0 && n % 1000 == 0).map(|n| n / 1000);
    let asked = quantity::parse(name, at.text()).unwrap_or(0);
    if size.is_none_or(|size| asked % size != 0) {
        at.invalid(&format!("{} is not positive integer multiple of {name}", at.text()));
    }
}

fn within_limit(limits: &At, requests: &At, name: &str, text: &str) {
    let Some(limit) = limits.value().get(name).and_then(Value::as_str) else {
        if !overcommits(name) {
            limits.required("Limit must be set for non overcommitable resources");
        }
        return;
    };
    let (Ok(asked), Ok(most)) = (quantity::parse(name, text), quantity::parse(name, limit)) else { return };
    if asked != most && !overcommits(name) {
        names::tell_one(requests, text, &format!("must be equal to {name} limit of {limit}"));
    } else if asked > most {
        names::tell_one(requests, text, &format!("must be less than or equal to {name} limit of {limit}"));
    }
}

/// What is used of the pod's claims is there, and each is named once, as a whole or by its requests.
fn check_claims(at: &At, claims: &BTreeSet<&str>) {
    let mut seen: BTreeSet<String> = BTreeSet::new();
    for claim in at.items() {
        let (name, request) = (claim.at("name").text(), claim.at("request"));
        if name.is_empty() {
            claim.required("");
            continue;
        }
        if seen.contains(name) {
            names::duplicate(&claim, name);
        } else {
            let mut key = name.to_string();
            if !request.text().is_empty() {
                names::must_be_label(&request);
                key = format!("{name}/{}", request.text());
            }
            if seen.contains(&key) {
                names::duplicate(&claim, &key);
            } else if request.text().is_empty() {
                let of_claim = |other: &&String| other.split_once('/').is_some_and(|(of, _)| of == name);
                seen.iter().filter(of_claim).for_each(|_| names::duplicate(&claim, name));
            }
            seen.insert(key);
        }
        if !claims.contains(name) {
            let listed: Vec<&str> = claims.iter().copied().collect();
            let known = match listed.is_empty() {
                true => " which is empty".to_string(),
                false => format!(": {}", listed.join(", ")),
            };
            let message = format!(
                "Not found: {}: must be one of the names in pod.spec.resourceClaims{known}",
                Value::from(name)
            );
            claim.note(Cause::new("FieldValueNotFound", claim.path(), message));
        }
    }
}

/// Checks what the pod as a whole asks for: what its containers share. They request no more than the pod, and none has
/// a higher limit.
pub(crate) fn whole_pod(spec: &At, claims: &BTreeSet<&str>) {
    let resources = spec.at("resources");
    if !resources.is_set() {
        return;
    }
    if spec.at("os.name").text() == "windows" {
        resources.forbidden("may not be set for a windows pod");
        return;
    }
    if !resources.at("claims").is_empty() {
        resources.at("claims").forbidden("claims may not be set for Resources at pod-level");
    }
    check(&resources, claims, Asker::Pod);
    let parse = |name: &str, value: &Value| quantity::parse(name, value.as_str()?).ok();
    let requests = resources.at("requests");
    if !requests.is_empty() {
        let asked = amounts::of_containers(spec.value(), amounts::Part::Requests);
        for (name, amount) in requests.entries() {
            let sum = asked.get(name);
            if parse(name, amount.value()).is_some_and(|n| n < sum) {
                let sum = quantity::format(name, sum);
                let why = format!("must be greater than or equal to aggregate container requests of {sum}");
                amount.invalid(&why);
            }
        }
    }
    let limits = resources.at("limits");
    if limits.is_empty() {
        return;
    }
    let most = amounts::of_containers(spec.value(), amounts::Part::Limits);
    for (name, amount) in limits.entries().filter(|(name, _)| name.starts_with(HUGE_PAGES)) {
        let sum = most.get(name);
        if parse(name, amount.value()).is_some_and(|n| n < sum) {
            let sum = quantity::format(name, sum);
            amount.invalid(&format!("must be greater than or equal to aggregate container limits of {sum}"));
        }
    }
    for (i, container) in spec.at("containers").items().enumerate() {
        for (name, amount) in container.at("resources.limits").entries() {
            let Some(most) = limits.value().get(name) else { continue };
            if parse(name, amount.value()) > parse(name, most) {
                // The place is told the other way round, as the real server does.
                let place = format!("{}.containers[{i}][{name}].limits", resources.path());
                let most = most.as_str().unwrap_or_default();
                amount.invalid_as(place, &format!("must be less than or equal to pod limits of {most}"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fleet_apiserver_schema::field::Causes;
    use serde_json::json;

    fn told(resources: Value) -> Vec<(String, String)> {
        let causes = Causes::default();
        let claims = BTreeSet::from(["a", "b"]);
        check(&At::root(&resources, &causes).at("resources"), &claims, Asker::Container);
        causes.into_inner().into_iter().map(|c| (c.field, c.message)).collect()
    }

    #[test]
    fn names_amounts_pages_and_claims() {
        let check = |resources: Value, wanted: &[(&str, &str)]| {
            let found = told(json!({"resources": resources}));
            let found: Vec<(&str, &str)> = found.iter().map(|(f, m)| (f.as_str(), m.as_str())).collect();
            assert_eq!(found, wanted);
        };
        check(
            json!({"limits": {"storage": "1"}}),
            &[(
                "resources.limits[storage]",
                "Invalid value: \"storage\": must be a standard resource for containers",
            )],
        );
        check(
            json!({"limits": {"requests.example.com/x": "1"}}),
            &[(
                "resources.limits[requests.example.com/x]",
                "Invalid value: \"requests.example.com/x\": doesn't follow extended resource name standard",
            )],
        );
        check(
            json!({"limits": {"hugepages-2Mi": "3Mi"}, "requests": {"hugepages-2Mi": "3Mi"}}),
            &[
                (
                    "resources.limits[hugepages-2Mi]",
                    "Invalid value: \"3Mi\": 3Mi is not positive integer multiple of hugepages-2Mi",
                ),
                (
                    "resources.requests[hugepages-2Mi]",
                    "Invalid value: \"3Mi\": 3Mi is not positive integer multiple of hugepages-2Mi",
                ),
                ("resources", "Forbidden: HugePages require cpu or memory"),
            ],
        );
        check(
            json!({"claims": [{"name": "a", "request": "r"}, {"name": "a"}, {"name": "c"}, {"name": ""}]}),
            &[
                ("resources.claims[1]", "Duplicate value: \"a\""),
                (
                    "resources.claims[2]",
                    "Not found: \"c\": must be one of the names in pod.spec.resourceClaims: a, b",
                ),
                ("resources.claims[3]", "Required value"),
            ],
        );
    }
}
