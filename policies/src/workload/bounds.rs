//! How much a pod template may ask of those who place its pods. They compare each term with each node, for each pod, so a job
//! with thousands of terms would keep the hub and its member's agent busy while others wait, and one with thousands of resources
//! would fill the memory of the agent.

use std::collections::BTreeSet;

use serde_json::Value;

use super::WorkloadError;
use crate::pod_security;

/// The most, and the text that says so.
type Bound = (usize, &'static str);

/// Entries of one list. People write a handful.
const ENTRIES: Bound = (64, "at most 64");
/// Values of one expression, such as the names of nodes.
const VALUES: Bound = (256, "at most 256");
const CONTAINERS: Bound = (256, "at most 256 containers and initContainers together");
/// Resources in one list of amounts.
const RESOURCES: Bound = (64, "at most 64 resources");
/// Different resources in all templates of an object. A scheduler has a number for each on each of its nodes, whoever names it.
const ALL_RESOURCES: Bound = (256, "at most 256 different resources in all templates");
/// As of a Kubernetes name with its prefix.
const RESOURCE_NAME: Bound = (317, "names of resources of at most 317 characters");
/// In all templates of an object: many lists that are each within their bounds take as long as one that is not.
const COMPARED: Bound = (8192, "at most 8192 expressions and values in all terms of all templates");

/// A list of terms in the spec of a pod, and where a term keeps its expressions (empty: in itself).
type Terms = (&'static str, &'static [&'static str]);

const TERMS: [Terms; 8] = [
    ("/tolerations", &[]),
    ("/topologySpreadConstraints", &["/labelSelector"]),
    ("/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms", &[""]),
    ("/affinity/nodeAffinity/preferredDuringSchedulingIgnoredDuringExecution", &["/preference"]),
    ("/affinity/podAffinity/requiredDuringSchedulingIgnoredDuringExecution", &SELECTORS),
    ("/affinity/podAffinity/preferredDuringSchedulingIgnoredDuringExecution", &PREFERRED_SELECTORS),
    ("/affinity/podAntiAffinity/requiredDuringSchedulingIgnoredDuringExecution", &SELECTORS),
    ("/affinity/podAntiAffinity/preferredDuringSchedulingIgnoredDuringExecution", &PREFERRED_SELECTORS),
];
const SELECTORS: [&str; 2] = ["/labelSelector", "/namespaceSelector"];
const PREFERRED_SELECTORS: [&str; 2] =
    ["/podAffinityTerm/labelSelector", "/podAffinityTerm/namespaceSelector"];

/// Whether all pod templates of an object of any kind are within these bounds, wherever they are.
///
/// # Errors
/// Names the field, what was found and what is allowed.
pub fn check_templates(object: &Value) -> Result<(), WorkloadError> {
    let (mut result, mut compared) = (Ok(()), 0);
    let mut resources = BTreeSet::new();
    pod_security::visit(object, &mut String::new(), &mut |path, found| {
        // A template is shown before its spec.
        if result.is_ok() && found["containers"].is_array() {
            result =
                pod(found, path, &mut compared).and_then(|()| pod_resources(found, path, &mut resources));
        }
    });
    result
}

/// The lists of amounts of a pod: of all its containers, and its own.
fn pod_resources<'v>(
    spec: &'v Value,
    path: &str,
    found: &mut BTreeSet<&'v str>,
) -> Result<(), WorkloadError> {
    let at = |field: &str| format!("{path}.{field}").trim_start_matches('.').to_owned();
    for field in ["containers", "initContainers", "ephemeralContainers"] {
        for (i, container) in list(&spec[field]).iter().enumerate() {
            for amounts in ["limits", "requests"] {
                let of_container = || at(&format!("{field}[{i}].resources.{amounts}"));
                names(&container["resources"][amounts], of_container, found)?;
            }
        }
    }
    for amounts in ["limits", "requests"] {
        names(&spec["resources"][amounts], || at(&format!("resources.{amounts}")), found)?;
    }
    names(&spec["overhead"], || at("overhead"), found)
}

fn names<'v>(
    amounts: &'v Value,
    path: impl Fn() -> String,
    found: &mut BTreeSet<&'v str>,
) -> Result<(), WorkloadError> {
    let Some(amounts) = amounts.as_object() else { return Ok(()) };
    within(amounts.len(), RESOURCES, &path)?;
    for name in amounts.keys() {
        within(name.len(), RESOURCE_NAME, &path)?;
        found.insert(name);
    }
    within(found.len(), ALL_RESOURCES, &path)
}

fn pod(spec: &Value, path: &str, compared: &mut usize) -> Result<(), WorkloadError> {
    let at = |field: &str| format!("{path}.{field}").trim_start_matches('.').to_owned();
    let containers = list(&spec["containers"]).len() + list(&spec["initContainers"]).len();
    within(containers, CONTAINERS, || at("containers"))?;
    let labels = spec["nodeSelector"].as_object().map_or(0, serde_json::Map::len);
    within(labels, ENTRIES, || at("nodeSelector"))?;
    for (field, selectors) in TERMS {
        let Some(found) = spec.pointer(field) else { continue };
        terms(found, &|| at(&field[1..].replace('/', ".")), selectors, compared)?;
    }
    Ok(())
}

/// A path, written for an error alone: where templates are, names may be long.
type Path<'p> = &'p dyn Fn() -> String;

fn terms(
    found: &Value,
    path: Path<'_>,
    selectors: &[&str],
    compared: &mut usize,
) -> Result<(), WorkloadError> {
    let found = list(found);
    within(found.len(), ENTRIES, path)?;
    for (i, term) in found.iter().enumerate() {
        for selector in selectors {
            let Some(selected) = term.pointer(selector) else { continue };
            let at = || format!("{}[{i}]{}", path(), selector.replace('/', "."));
            expressions(selected, &at, compared)?;
        }
    }
    Ok(())
}

fn expressions(term: &Value, path: Path<'_>, compared: &mut usize) -> Result<(), WorkloadError> {
    for name in ["matchExpressions", "matchFields"] {
        let found = list(&term[name]);
        within(found.len(), ENTRIES, || format!("{}.{name}", path()))?;
        for (i, expression) in found.iter().enumerate() {
            let values = list(&expression["values"]).len();
            within(values, VALUES, || format!("{}.{name}[{i}].values", path()))?;
            *compared += 1 + values;
        }
    }
    within(*compared, COMPARED, path)
}

fn within(found: usize, bound: Bound, path: impl FnOnce() -> String) -> Result<(), WorkloadError> {
    let (most, allowed) = bound;
    if found <= most {
        return Ok(());
    }
    Err(WorkloadError::Field { path: path(), found: found.to_string(), allowed })
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests;
