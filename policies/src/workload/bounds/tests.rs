use serde_json::json;

use super::*;
use crate::workload::{WorkloadKind, check, requests_of_any_pods};

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
fn pods_name_a_bounded_number_of_resources() {
    let amounts = |from: usize, number: usize| {
        let named = (from..from + number).map(|i| (format!("example.com/r{i}"), Value::from("1")));
        Value::from(named.collect::<serde_json::Map<_, _>>())
    };
    let of = |number: usize, field: &str| {
        judged(json!({"containers": [{"resources": {field: amounts(0, number)}}]}))
    };
    for field in ["limits", "requests"] {
        assert_eq!(of(64, field), Ok(()));
        let expected = format!(
            "spec.template.spec.containers[0].resources.{field}: found 65; allowed: at most 64 resources"
        );
        assert_eq!(of(65, field), Err(expected));
    }
    for (spec, path) in [
        (json!({"overhead": amounts(0, 65)}), "overhead"),
        (json!({"resources": {"requests": amounts(0, 65)}}), "resources.requests"),
        (
            json!({"initContainers": [{}, {"resources": {"limits": amounts(0, 65)}}]}),
            "initContainers[1].resources.limits",
        ),
    ] {
        let text = judged(spec).expect_err("it is too much");
        assert_eq!(text, format!("spec.template.spec.{path}: found 65; allowed: at most 64 resources"));
    }
    let long = |length: usize| {
        let limits = json!({"x".repeat(length): "1"});
        judged(json!({"containers": [{"resources": {"limits": limits}}]}))
    };
    assert_eq!(long(317), Ok(()));
    let text = long(318).expect_err("it is too long");
    assert!(text.contains("found 318; allowed: names of resources of at most 317 characters"), "{text}");
}

/// Five templates of 64 resources each are within the bound of one list. The same resources count once.
#[test]
fn many_templates_are_no_way_around_the_bound_of_resources() {
    let amounts = |from: usize| {
        let named = (from..from + 64).map(|i| (format!("example.com/r{i}"), Value::from("1")));
        Value::from(named.collect::<serde_json::Map<_, _>>())
    };
    let judged = |step: usize| {
        let task = |i: usize| {
            let limits = amounts(i * step);
            json!({"name": format!("t{i}"), "template": template(json!({"containers": [{"resources": {"limits": limits}}]}))})
        };
        let tasks: Vec<Value> = (0..5).map(task).collect();
        check(WorkloadKind::VolcanoJob, &json!({"spec": {"tasks": tasks}})).map_err(|e| e.to_string())
    };
    assert_eq!((judged(0), judged(48)), (Ok(()), Ok(())));
    let text = judged(64).expect_err("it is too much");
    let expected =
        "spec.tasks[4].template.spec.containers[0].resources.limits: found 320; allowed: at most 256";
    assert!(text.starts_with(expected), "{text}");
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

#[test]
fn templates_below_a_long_name_are_looked_at_without_writing_their_places() {
    let term = json!({"labelSelector": {}});
    let spec = json!({"containers": [], "topologySpreadConstraints": vec![term; 64]});
    let mut pods = vec![json!({"template": {"spec": spec}}); 2_000];
    let object = |pods: &Vec<Value>| json!({"spec": {"n".repeat(1_000_000): pods}});
    // With the place of each term written out, they have 128 GB.
    let broad = object(&pods);
    assert_eq!(check_templates(&broad), Ok(()));
    assert_eq!(requests_of_any_pods(&broad).map(|requests| requests.to_string()), Ok(String::new()));
    pods[1_999]["template"]["spec"]["overhead"] = json!({"cpu": "x"});
    let error = requests_of_any_pods(&object(&pods)).unwrap_err().to_string();
    assert!(error.contains("nn[1999].template.spec.overhead: "), "{}", &error[error.len() - 200..]);
}
