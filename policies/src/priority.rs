//! Which PriorityClasses the objects of a namespace may name.
//!
//! Classes whose name begins with `system-` are for the namespaces of a cluster itself, from which nothing is propagated. The
//! annotation [`NAMESPACES_ANNOTATION`] of any other class names the namespaces that may use it. ResourceQuotas with a scope
//! for PriorityClasses count pods, and jobs on a hub have none.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde_json::Value;

/// Annotation on a PriorityClass of the hub: the namespaces that may use it, separated by commas.
pub const NAMESPACES_ANNOTATION: &str = "fleet.dev/namespaces";
/// Prefix of the classes that Kubernetes keeps for itself.
const SYSTEM: &str = "system-";
/// Fields that name a class: of pods and Volcano's jobs, and of Kubeflow's scheduling policies.
const FIELDS: [&str; 2] = ["priorityClassName", "priorityClass"];

/// A PriorityClass of the hub.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Class {
    pub value: i32,
    /// The namespaces that may use it; `None`: all.
    namespaces: Option<BTreeSet<String>>,
}

/// Classes by name.
pub type Classes = BTreeMap<String, Class>;

impl Class {
    /// `listed`: the annotation, if it has one.
    pub fn new(value: i32, listed: Option<&str>) -> Self {
        let names = |listed: &str| {
            listed.split(',').map(|name| name.trim().to_owned()).filter(|name| !name.is_empty()).collect()
        };
        Self { value, namespaces: listed.map(names) }
    }
}

/// Whether an object names only classes that its namespace may use.
///
/// # Errors
/// Field, class and what is allowed.
pub fn check(classes: &Classes, namespace: &str, manifest: &Value) -> Result<(), String> {
    let refused = |name: &str| refusal(classes, namespace, name);
    find(&manifest["spec"], &At::Root("spec"), &refused).map_or(Ok(()), Err)
}

/// Why a namespace may not name the class; `None` if it may. A class that only a member has is refused:
/// the hub knows neither its value nor who may use it.
pub fn refusal(classes: &Classes, namespace: &str, name: &str) -> Option<String> {
    if name.starts_with(SYSTEM) {
        return Some(format!(
            "found {name}; allowed in namespace {namespace}: a class that is not of the system"
        ));
    }
    let Some(class) = classes.get(name) else {
        return Some(format!(
            "found {name}; allowed: a PriorityClass of the hub, which has none of this name"
        ));
    };
    let listed = class.namespaces.as_ref()?;
    (!listed.contains(namespace)).then(|| {
        format!(
            "found {name}; allowed: a class whose annotation {NAMESPACES_ANNOTATION}, if any, names {namespace}"
        )
    })
}

/// The first field below `value` that names a refused class, with the reason.
fn find(value: &Value, at: &At<'_>, refused: &dyn Fn(&str) -> Option<String>) -> Option<String> {
    match value {
        Value::Object(fields) => fields.iter().find_map(|(field, value)| {
            let at = At::Field(at, field);
            match value.as_str().filter(|name| !name.is_empty() && FIELDS.contains(&field.as_str())) {
                Some(name) => refused(name).map(|why| format!("{at}: {why}")),
                None => find(value, &at, refused),
            }
        }),
        Value::Array(items) => {
            let mut items = items.iter().enumerate();
            items.find_map(|(index, item)| find(item, &At::Item(at, index), refused))
        }
        _ => None,
    }
}

/// Where a value stands; written only for the one that is refused, since names in an object may be long.
enum At<'a> {
    Root(&'a str),
    Field(&'a At<'a>, &'a str),
    Item(&'a At<'a>, usize),
}

impl fmt::Display for At<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root(name) => f.write_str(name),
            Self::Field(above, name) => write!(f, "{above}.{name}"),
            Self::Item(above, index) => write!(f, "{above}[{index}]"),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_field_that_schedulers_read_is_looked_at() {
        let classes = Classes::from([("others".to_owned(), Class::new(1, Some("x, y")))]);
        let check = |spec: Value| super::check(&classes, "team", &json!({"spec": spec})).err();
        for (spec, path) in [
            (
                json!({"template": {"spec": {"priorityClassName": "others"}}}),
                "spec.template.spec.priorityClassName",
            ),
            (
                json!({"tasks": [{}, {"template": {"spec": {"priorityClassName": "system-x"}}}]}),
                "spec.tasks[1].template.spec.priorityClassName",
            ),
            (json!({"priorityClassName": "system-node-critical"}), "spec.priorityClassName"),
            (
                json!({"runPolicy": {"schedulingPolicy": {"priorityClass": "others"}}}),
                "spec.runPolicy.schedulingPolicy.priorityClass",
            ),
        ] {
            let told = check(spec.clone()).unwrap_or_default();
            assert!(told.starts_with(&format!("{path}: found ")), "{spec}: {told}");
        }
        assert_eq!(check(json!({"args": ["system-x"], "priorityClassName": ""})), None);
        let unknown = check(json!({"priorityClassName": "only-a-member-has-it"})).unwrap_or_default();
        assert!(unknown.contains("allowed: a PriorityClass of the hub"), "{unknown}");
        let in_x = json!({"spec": {"priorityClassName": "others"}});
        assert_eq!(super::check(&classes, "x", &in_x), Ok(()));
    }

    #[test]
    fn what_is_below_a_long_name_is_looked_at_without_writing_its_place() {
        let classes = Classes::from([("open".to_owned(), Class::new(1, None))]);
        let many: Vec<Value> = (0..100_000).map(|_| json!({"priorityClassName": "open"})).collect();
        let mut manifest = json!({"spec": {"n".repeat(1_000_000): many}});
        // With the place of each written out, they have 200 GB.
        assert_eq!(super::check(&classes, "team", &manifest), Ok(()));
        manifest["spec"]["z"] = json!([{"priorityClassName": "other"}]);
        let why = super::check(&classes, "team", &manifest).unwrap_err();
        assert!(why.starts_with("spec.z[0].priorityClassName: found other"), "{why}");
    }
}
