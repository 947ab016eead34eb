//! How much a pod template may ask of those who place its pods. They compare each term with each node, for each pod, so a job
//! with thousands of terms would keep the hub and its member's agent busy while others wait.

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
    pod_security::visit(object, &mut String::new(), &mut |path, found| {
        // A template is shown before its spec.
        if result.is_ok() && found["containers"].is_array() {
            result = pod(found, path, &mut compared);
        }
    });
    result
}

fn pod(spec: &Value, path: &str, compared: &mut usize) -> Result<(), WorkloadError> {
    let at = |field: &str| format!("{path}.{field}").trim_start_matches('.').to_owned();
    let containers = list(&spec["containers"]).len() + list(&spec["initContainers"]).len();
    within(containers, CONTAINERS, || at("containers"))?;
    let labels = spec["nodeSelector"].as_object().map_or(0, serde_json::Map::len);
    within(labels, ENTRIES, || at("nodeSelector"))?;
    for (field, selectors) in TERMS {
        let Some(found) = spec.pointer(field) else { continue };
        terms(found, &at(&field[1..].replace('/', ".")), selectors, compared)?;
    }
    Ok(())
}

fn terms(found: &Value, path: &str, selectors: &[&str], compared: &mut usize) -> Result<(), WorkloadError> {
    let found = list(found);
    within(found.len(), ENTRIES, || path.to_owned())?;
    for (i, term) in found.iter().enumerate() {
        for selector in selectors {
            let Some(selected) = term.pointer(selector) else { continue };
            expressions(selected, &format!("{path}[{i}]{}", selector.replace('/', ".")), compared)?;
        }
    }
    Ok(())
}

fn expressions(term: &Value, path: &str, compared: &mut usize) -> Result<(), WorkloadError> {
    for name in ["matchExpressions", "matchFields"] {
        let found = list(&term[name]);
        within(found.len(), ENTRIES, || format!("{path}.{name}"))?;
        for (i, expression) in found.iter().enumerate() {
            let values = list(&expression["values"]).len();
            within(values, VALUES, || format!("{path}.{name}[{i}].values"))?;
            *compared += 1 + values;
        }
    }
    within(*compared, COMPARED, || path.to_owned())
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
mod tests {
    use serde_json::json;

    use super::*;
    use crate::workload::{WorkloadKind, check};

    const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
    const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

    fn template(mut spec: Value) -> Value {
        if !spec["containers"].is_array() {
            spec["containers"] = json!([{"name": "c"}]);
        }
        json!({"spec": spec})
    }

    /// A batch Job with that spec of its pods.
    fn judged(spec: Value) -> Result<(), String> {
        let job = json!({"spec": {"template": template(spec)}});
        check(WorkloadKind::BatchJob, &job).map_err(|error| error.to_string())
    }

    /// What `spec` makes of the most entries is right, and one more is wrong there.
    fn bounded(most: usize, path: &str, spec: impl Fn(Vec<Value>) -> Value) {
        let of = |number: usize| judged(spec(vec![json!({}); number]));
        assert_eq!(of(most), Ok(()), "{path}");
        let expected = format!("spec.template.spec.{path}: found {}; allowed: at most {most}", most + 1);
        let text = of(most + 1).expect_err("it is too much");
        assert!(text.starts_with(&expected), "{text}");
    }

    #[test]
    fn a_template_asks_for_no_more_than_can_be_compared() {
        let affinity = |which: &str, list: &str, terms: Value| json!({"affinity": {which: {list: terms}}});
        let node = |terms: Value| affinity("nodeAffinity", REQUIRED, json!({"nodeSelectorTerms": terms}));
        let preferred = |term: Value| affinity("nodeAffinity", PREFERRED, json!([{"preference": term}]));
        let required = format!("affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms");
        bounded(64, &required, |terms| node(terms.into()));
        for list in ["matchExpressions", "matchFields"] {
            bounded(64, &format!("{required}[0].{list}"), |found| node(json!([{list: found}])));
            let values = format!("{required}[1].{list}[0].values");
            bounded(256, &values, |found| node(json!([{}, {list: [{"values": found}]}])));
            let preference = format!("affinity.nodeAffinity.{PREFERRED}[0].preference.{list}");
            bounded(64, &preference, |found| preferred(json!({list: found})));
        }
        for which in ["nodeAffinity", "podAffinity", "podAntiAffinity"] {
            let path = format!("affinity.{which}.{PREFERRED}");
            bounded(64, &path, |terms| affinity(which, PREFERRED, terms.into()));
        }
        for which in ["podAffinity", "podAntiAffinity"] {
            let path = format!("affinity.{which}.{REQUIRED}");
            bounded(64, &path, |terms| affinity(which, REQUIRED, terms.into()));
            let selector = |found: Vec<Value>| json!({"labelSelector": {"matchExpressions": found}});
            let of_term = format!("{path}[0].labelSelector.matchExpressions");
            bounded(64, &of_term, |found| affinity(which, REQUIRED, json!([selector(found)])));
            let of_term =
                format!("affinity.{which}.{PREFERRED}[0].podAffinityTerm.labelSelector.matchExpressions");
            let weighed = |found: Vec<Value>| json!([{"podAffinityTerm": selector(found)}]);
            bounded(64, &of_term, |found| affinity(which, PREFERRED, weighed(found)));
        }
        bounded(64, "tolerations", |found| json!({"tolerations": found}));
        bounded(64, "topologySpreadConstraints", |found| json!({"topologySpreadConstraints": found}));
        bounded(256, "containers", |found| json!({"containers": found}));
        bounded(256, "containers", |mut found| {
            let init = found.split_off(100);
            json!({"containers": found, "initContainers": init})
        });
        let labels = |number: usize| {
            let labels = (0..number).map(|i| (format!("l{i}"), Value::from("x")));
            let labels: serde_json::Map<String, Value> = labels.collect();
            judged(json!({"nodeSelector": labels}))
        };
        assert_eq!(labels(64), Ok(()));
        let text = labels(65).expect_err("it is too much");
        assert_eq!(text, "spec.template.spec.nodeSelector: found 65; allowed: at most 64");
    }

    /// 32 lists of 255 values, each with its expression, are 8192; a further expression is too much, wherever it is.
    #[test]
    fn many_lists_are_no_way_around_the_bound_of_one() {
        let term = json!({"matchExpressions": [{"key": "k", "operator": "In", "values": vec!["v"; 255]}]});
        let of = |terms: Vec<Value>| {
            template(json!({"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}}}))
        };
        let full = || of(vec![term.clone(); 32]);
        let judged = |other: Value| {
            let tasks = json!([{"name": "a", "template": full()}, {"name": "b", "template": other}]);
            check(WorkloadKind::VolcanoJob, &json!({"spec": {"tasks": tasks}})).map_err(|e| e.to_string())
        };
        assert_eq!(judged(of(Vec::new())), Ok(()));
        let text = judged(of(vec![json!({"matchFields": [{}]})])).expect_err("it is too much");
        let expected = format!(
            "spec.tasks[1].template.spec.affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms[0]: found 8193; \
             allowed: at most 8192 expressions"
        );
        assert!(text.starts_with(&expected), "{text}");
    }

    #[test]
    fn pods_of_every_kind_are_bounded() {
        let many = || template(json!({"tolerations": vec![json!({}); 65]}));
        let role = || json!({"Worker": {"template": many()}, "Launcher": {"template": many()}});
        for (kind, spec, path) in [
            (
                WorkloadKind::PyTorchJob,
                json!({"pytorchReplicaSpecs": {"Worker": {"template": many()}}}),
                ".Worker.",
            ),
            (WorkloadKind::TFJob, json!({"tfReplicaSpecs": {"PS": {"template": many()}}}), ".PS."),
            (WorkloadKind::MPIJob, json!({"mpiReplicaSpecs": role()}), ".mpiReplicaSpecs."),
            (WorkloadKind::VolcanoJob, json!({"tasks": [{"template": many()}]}), ".tasks[0]."),
            (WorkloadKind::BatchJob, json!({"template": many()}), "spec.template."),
            (WorkloadKind::Deployment, json!({"template": many()}), "spec.template."),
            (WorkloadKind::Other, many()["spec"].clone(), "spec.tolerations"),
            (WorkloadKind::Other, json!({"jobTemplate": {"spec": {"template": many()}}}), ".jobTemplate."),
        ] {
            let text = check(kind, &json!({"spec": spec})).expect_err("it is too much").to_string();
            let said = text.contains(path) && text.ends_with("tolerations: found 65; allowed: at most 64");
            assert!(said, "{kind:?}: {text}");
        }
        // What has no pods may name its fields as it likes.
        let settings = json!({"data": {}, "spec": {"tolerations": vec![json!({}); 65]}});
        assert_eq!(check(WorkloadKind::Other, &settings), Ok(()));
    }
}
