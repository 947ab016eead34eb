//! The LimitRanger plugin: defaults that a LimitRange sets in new pods, and pods and claims that it refuses.
//!
//! Inputs: a new pod or claim, or one that was resized, and the LimitRanges of its namespace. Source: the plugin of Kubernetes 1.36.

use fleet_apiserver_ground::store::{Obj, Range};
use fleet_apiserver_ground::tree;
use fleet_apiserver_kinds::pods::amounts::{self, Part};
use fleet_apiserver_schema::base::Base;
use fleet_apiserver_schema::error::{ApiError, ApiResult};
use fleet_apiserver_schema::resource::Resource;
use fleet_resources::quantity;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;

const ANNOTATION: &str = "kubernetes.io/limit-ranger";
const CLAIMS: &str = "persistentvolumeclaims";

fn ranges(base: &Base, namespace: &str) -> Vec<Arc<Obj>> {
    let table = base.store.table("/limitranges");
    if namespace.is_empty() || table.is_empty() {
        return Vec::new();
    }
    let prefix = format!("{namespace}/");
    let range = Range { prefix: &prefix, ..Range::default() };
    table.page(range, u64::MAX).0.map(|p| p.items).unwrap_or_default()
}

fn limits(range: &Obj, kind: &str) -> Vec<Value> {
    let mut all = range.list(&["spec", "limits"]);
    all.retain(|l| tree::text(l, &["type"]) == kind);
    all
}

/// Fills the default requests and limits of the namespace into a new pod. The annotation tells what the last range set.
pub fn fill(base: &Base, r: &Resource, namespace: &str, value: &mut Value) {
    if !r.is("", "pods") {
        return;
    }
    for range in ranges(base, namespace) {
        let notes = fill_from(&limits(&range, "Container"), value);
        if !notes.is_empty() {
            let annotations =
                tree::object(tree::meta(value).entry("annotations").or_insert_with(|| json!({})));
            annotations
                .insert(ANNOTATION.into(), format!("LimitRanger plugin set: {}", notes.join("; ")).into());
        }
    }
}

/// Fills the defaults of one range, all its limits of containers together, and says what was set.
fn fill_from(limits: &[Value], pod: &mut Value) -> Vec<String> {
    let defaults = |key: &str| -> Map<String, Value> {
        let lists = limits.iter().filter_map(|limit| limit.get(key).and_then(Value::as_object));
        lists.flatten().map(|(name, amount)| (name.clone(), amount.clone())).collect()
    };
    let (requests, most) = (defaults("defaultRequest"), defaults("default"));
    let mut notes = Vec::new();
    for (list, word) in [("containers", "container"), ("initContainers", "init container")] {
        let containers = tree::child(pod, "spec").get_mut(list).and_then(Value::as_array_mut);
        for c in containers.into_iter().flatten() {
            let name = tree::text(c, &["name"]).to_string();
            for (to, what, defaults) in [("requests", "request", &requests), ("limits", "limit", &most)] {
                let added = add(c, to, defaults);
                if !added.is_empty() {
                    notes.push(format!("{} {what} for {word} {name}", added.join(", ")));
                }
            }
        }
    }
    notes
}

fn add(container: &mut Value, part: &str, defaults: &Map<String, Value>) -> Vec<String> {
    if defaults.is_empty() {
        return Vec::new();
    }
    let resources = tree::child(container, "resources");
    let amounts = tree::object(resources.entry(part).or_insert_with(|| json!({})));
    let missing = defaults.iter().filter(|(name, _)| !amounts.contains_key(*name));
    let missing: Vec<(String, Value)> = missing.map(|(n, v)| (n.clone(), v.clone())).collect();
    let names = missing.iter().map(|(n, _)| n.clone()).collect();
    amounts.extend(missing);
    names
}

/// What something asks for and may use.
struct ResourceRequirements {
    requests: Map<String, Value>,
    limits: Map<String, Value>,
}

impl ResourceRequirements {
    fn of(at: &Value) -> ResourceRequirements {
        let part = |key: &str| at.get(key).and_then(Value::as_object).cloned().unwrap_or_default();
        ResourceRequirements { requests: part("requests"), limits: part("limits") }
    }

    /// Of a pod in all, without the overhead of its runtime.
    fn of_pod(pod: &Value) -> ResourceRequirements {
        let spec = pod.get("spec").unwrap_or(&Value::Null);
        let shown = |(name, n): (&str, i64)| (name.to_string(), quantity::format(name, n).into());
        let part = |part: Part| amounts::stated(spec, part).into_iter().map(shown).collect();
        ResourceRequirements { requests: part(Part::Requests), limits: part(Part::Limits) }
    }
}

/// Refuses a pod or claim that is outside the limits of its namespace: a new one, one that grew.
///
/// # Errors
/// 403 with each limit of the first range that is broken, and the value found.
pub fn check(base: &Base, r: &Resource, namespace: &str, value: &Value) -> ApiResult<()> {
    if !r.is("", "pods") && !r.is("", CLAIMS) {
        return Ok(());
    }
    for range in ranges(base, namespace) {
        let why = broken(&range.list(&["spec", "limits"]), r, value);
        let text = match why.as_slice() {
            [] => continue,
            [one] => one.clone(),
            many => format!("[{}]", many.join(", ")),
        };
        return Err(ApiError::forbidden(r, tree::meta_text(value, "name"), &text));
    }
    Ok(())
}

/// What limits refuse, in their order, each text once.
fn broken(limits: &[Value], r: &Resource, value: &Value) -> Vec<String> {
    let mut why = Vec::new();
    for limit in limits {
        match (tree::text(limit, &["type"]), r.plural.as_str()) {
            ("PersistentVolumeClaim", CLAIMS) => {
                let resources = tree::at(value, &["spec", "resources"]).unwrap_or(&Value::Null);
                // A claim has no limits, whatever it says.
                let asked =
                    ResourceRequirements { limits: Map::new(), ..ResourceRequirements::of(resources) };
                judge(limit, &asked, "PersistentVolumeClaim", &mut why);
            }
            ("Container", "pods") => {
                let lists = ["containers", "initContainers"].map(|l| tree::list(value, &["spec", l]));
                for c in lists.into_iter().flatten() {
                    let asked = ResourceRequirements::of(c.get("resources").unwrap_or(&Value::Null));
                    judge(limit, &asked, "Container", &mut why);
                }
            }
            ("Pod", "pods") => judge(limit, &ResourceRequirements::of_pod(value), "Pod", &mut why),
            _ => {}
        }
    }
    let mut told = BTreeSet::new();
    why.retain(|text| told.insert(text.clone()));
    why
}

fn judge(limit: &Value, asked: &ResourceRequirements, kind: &str, why: &mut Vec<String>) {
    let parse = |name: &str, v: Option<&Value>| {
        let text = v?.as_str()?;
        Some((quantity::parse(name, text).ok()?, text.to_string()))
    };
    let bounds = |key: &str| limit.get(key).and_then(Value::as_object).into_iter().flatten();
    for (name, bound) in bounds("min") {
        let Some((least, shown)) = parse(name, Some(bound)) else { continue };
        let start = format!("minimum {name} usage per {kind} is {shown}");
        match parse(name, asked.requests.get(name)) {
            None => why.push(format!("{start}.  No request is specified")),
            Some((n, text)) if n < least => why.push(format!("{start}, but request is {text}")),
            Some(_) => {
                if let Some((n, text)) = parse(name, asked.limits.get(name)).filter(|(n, _)| *n < least) {
                    let _ = n;
                    why.push(format!("{start}, but limit is {text}"));
                }
            }
        }
    }
    for (name, bound) in bounds("max") {
        let Some((most, shown)) = parse(name, Some(bound)) else { continue };
        let start = format!("maximum {name} usage per {kind} is {shown}");
        let request = parse(name, asked.requests.get(name));
        if kind == "PersistentVolumeClaim" {
            match request {
                None => why.push(format!("{start}.  No request is specified")),
                Some((n, text)) if n > most => why.push(format!("{start}, but request is {text}")),
                Some(_) => {}
            }
            continue;
        }
        match (parse(name, asked.limits.get(name)), request) {
            (None, _) => why.push(format!("{start}.  No limit is specified")),
            (Some((n, text)), _) if n > most => why.push(format!("{start}, but limit is {text}")),
            (_, Some((n, text))) if n > most => why.push(format!("{start}, but request is {text}")),
            _ => {}
        }
    }
    // Storage has no limit that could be too far from a request.
    for (name, bound) in bounds("maxLimitRequestRatio").filter(|_| kind != "PersistentVolumeClaim") {
        let Some((ratio, shown)) = parse("cpu", Some(bound)) else { continue };
        let start = format!("{name} max limit to request ratio per {kind} is {shown}");
        let request = parse(name, asked.requests.get(name)).map_or(0, |r| r.0);
        let most = parse(name, asked.limits.get(name)).map_or(0, |l| l.0);
        if request == 0 {
            why.push(format!("{start}, but no request is specified or request is 0"));
        } else if most == 0 {
            why.push(format!("{start}, but no limit is specified or limit is 0"));
        } else if i128::from(most) * 1000 > i128::from(ratio) * i128::from(request) {
            why.push(format!("{start}, but provided ratio is {:.6}", most as f64 / request as f64));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_told_in_their_order_and_the_same_text_once() {
        let container =
            json!({"name": "c", "resources": {"requests": {"cpu": "100m"}, "limits": {"cpu": "1"}}});
        let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [container.clone(), container]}});
        let limits = [
            json!({"type": "Pod", "max": {"cpu": "1500m"}}),
            json!({"type": "Container", "min": {"cpu": "200m"}, "maxLimitRequestRatio": {"cpu": "4"}}),
        ];
        let pods = fleet_apiserver_schema::builtins::find("", "pods");
        assert_eq!(
            broken(&limits, pods, &pod),
            [
                "maximum cpu usage per Pod is 1500m, but limit is 2",
                "minimum cpu usage per Container is 200m, but request is 100m",
                "cpu max limit to request ratio per Container is 4, but provided ratio is 10.000000",
            ]
        );
    }

    #[test]
    fn the_limits_of_a_range_set_one_set_of_defaults() {
        let limits = [
            json!({"type": "Container", "default": {"cpu": "1", "memory": "1Gi"}, "defaultRequest": {"cpu": "100m"}}),
            json!({"type": "Container", "default": {"cpu": "2"}}),
        ];
        let mut pod = json!({"spec": {"containers": [{"name": "a"}], "initContainers": [
            {"name": "i", "resources": {"limits": {"cpu": "3"}}}]}});
        let notes = fill_from(&limits, &mut pod);
        let resources = |list: &str| pod["spec"][list][0]["resources"].clone();
        assert_eq!(
            resources("containers"),
            json!({"requests": {"cpu": "100m"}, "limits": {"cpu": "2", "memory": "1Gi"}})
        );
        assert_eq!(resources("initContainers")["limits"], json!({"cpu": "3", "memory": "1Gi"}));
        assert_eq!(
            notes,
            [
                "cpu request for container a",
                "cpu, memory limit for container a",
                "cpu request for init container i",
                "memory limit for init container i",
            ]
        );
    }
}
