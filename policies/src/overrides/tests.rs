use serde_json::json;

use super::*;

/// Embedded YAML stands in as JSON, of which YAML is a superset.
struct JsonAsYaml;

impl YamlText for JsonAsYaml {
    fn read(&self, text: &str) -> Result<Value, String> {
        serde_json::from_str(text).map_err(|error| error.to_string())
    }

    fn write(&self, value: &Value) -> Result<String, String> {
        Ok(value.to_string())
    }
}

fn policy(name: &str, scope: PolicyScope, overriders: &Value) -> OverridePolicy {
    OverridePolicy {
        scope,
        namespace: if scope == PolicyScope::Namespaced { "n".into() } else { String::new() },
        name: name.into(),
        spec: serde_json::from_value(json!({"overrideRules": [
            {"targetCluster": {"clusterNames": ["east"]}, "overriders": overriders}]}))
        .unwrap(),
    }
}

fn job() -> Value {
    json!({"metadata": {"name": "a", "labels": {"k": "v"}}, "data": {"c.json": "{\"x\":1}"},
        "spec": {"roles": {"Worker": {"template": {"spec": {"containers": [
            {"name": "main", "image": "registry.example.com/team/app:v1", "command": ["run"], "args": ["-a"]}]}}}}}})
}

const CONTAINER: &str = "/spec/roles/Worker/template/spec/containers/0";

fn run(object: &mut Value, cluster: &str, policies: &[OverridePolicy]) -> Result<Vec<String>, OverrideError> {
    let reference = ObjectRef {
        kind: "PyTorchJob".into(),
        namespace: "n".into(),
        name: "a".into(),
        ..ObjectRef::default()
    };
    let cluster = ClusterFacts { name: cluster.into(), ready: true, ..ClusterFacts::default() };
    apply(object, &reference, &cluster, policies, &JsonAsYaml, &mut Visits::default())
}

/// What `overriders` make of the value at `pointer`.
fn check(overriders: Value, pointer: &str, expected: Value) {
    let mut object = job();
    run(&mut object, "east", &[policy("p", PolicyScope::Namespaced, &overriders)]).unwrap();
    assert_eq!(object.pointer(pointer), Some(&expected), "{overriders}");
    let mut elsewhere = job();
    let applied = run(&mut elsewhere, "west", &[policy("p", PolicyScope::Namespaced, &overriders)]);
    assert_eq!((applied, elsewhere), (Ok(vec![]), job()), "other clusters keep the object");
}

#[test]
fn overriders() {
    let image = |component: &str, operator: &str, value: &str| json!({"imageOverrider": [{"component": component, "operator": operator, "value": value}]});
    let at = |field: &str| format!("{CONTAINER}/{field}");
    check(image("Registry", "replace", "mirror:5000"), &at("image"), json!("mirror:5000/team/app:v1"));
    check(image("Registry", "remove", ""), &at("image"), json!("team/app:v1"));
    check(
        image("Repository", "replace", "other/app"),
        &at("image"),
        json!("registry.example.com/other/app:v1"),
    );
    check(image("Tag", "replace", "v2"), &at("image"), json!("registry.example.com/team/app:v2"));
    check(
        image("Tag", "replace", "sha256:ab"),
        &at("image"),
        json!("registry.example.com/team/app@sha256:ab"),
    );
    let list = |field: &str, operator: &str, words: &[&str]| json!({field: [{"containerName": "main", "operator": operator, "value": words}]});
    check(list("commandOverrider", "add", &["-v"]), &at("command"), json!(["run", "-v"]));
    check(list("argsOverrider", "remove", &["-a"]), &at("args"), json!([]));
    let labels =
        |operator: &str, value: Value| json!({"labelsOverrider": [{"operator": operator, "value": value}]});
    check(labels("add", json!({"b": "1"})), "/metadata/labels", json!({"k": "v", "b": "1"}));
    check(labels("replace", json!({"k": "2", "none": "3"})), "/metadata/labels", json!({"k": "2"}));
    check(labels("remove", json!({"k": ""})), "/metadata/labels", json!({}));
    check(
        json!({"annotationsOverrider": [{"operator": "add", "value": {"a": "b"}}]}),
        "/metadata/annotations/a",
        json!("b"),
    );
    let plain =
        |path: &str, operator: &str| json!({"plaintext": [{"path": path, "operator": operator, "value": 7}]});
    check(plain("/spec/x", "add"), "/spec/x", json!(7));
    check(plain(&at("name"), "replace"), &at("name"), json!(7));
    check(plain(&at("args/-"), "add"), &at("args"), json!(["-a", 7]));
    for field in ["json", "yaml"] {
        check(
            json!({"fieldOverrider": [{"fieldPath": "/data/c.json", field: [{"subPath": "/x", "operator": "replace", "value": 2}]}]}),
            "/data/c.json",
            json!("{\"x\":2}"),
        );
    }
}

#[test]
fn no_override_builds_what_no_stack_can_walk_through() {
    let nested = |levels: usize| (0..levels).fold(json!(1), |value, _| json!({"a": value}));
    let mut steps = vec![json!({"path": "/spec/a", "operator": "add", "value": nested(50)})];
    steps.extend((1..80).map(|n| {
        let path = format!("/spec/a{}", "/a".repeat(50 * n));
        json!({"path": path, "operator": "replace", "value": nested(50)})
    }));
    let mut object = job();
    let chain = json!({"plaintext": steps});
    let error = run(&mut object, "east", &[policy("p", PolicyScope::Namespaced, &chain)]).unwrap_err();
    assert!(error.field.starts_with("/spec/a/a/a"), "{error}");
    assert!(error.field.len() <= 160, "{error}");
    let end = "found 102 levels of nested objects and lists; allowed: 64 levels";
    assert!(error.to_string().ends_with(end), "{error}");
    assert_eq!(object, job());
    for overriders in [
        json!({"labelsOverrider": [{"operator": "add", "value": {"x": nested(62)}}]}),
        json!({"annotationsOverrider": [{"operator": "add", "value": {"x": nested(62)}}]}),
        json!({"fieldOverrider": [{"fieldPath": "/data/c.json", "json": [{"subPath": "/x", "operator": "replace", "value": nested(64)}]}]}),
        json!({"fieldOverrider": [{"fieldPath": "/data/c.json", "yaml": [{"subPath": "/x", "operator": "add", "value": nested(64)}]}]}),
    ] {
        let mut object = job();
        let found = run(&mut object, "east", &[policy("p", PolicyScope::Namespaced, &overriders)]);
        let found = found.expect_err("nested too deeply").to_string();
        assert!(
            found.ends_with("found 65 levels of nested objects and lists; allowed: 64 levels"),
            "{found}"
        );
    }
    check(
        json!({"plaintext": [{"path": "/spec/x", "operator": "add", "value": nested(62)}]}),
        "/spec/x",
        nested(62),
    );
}

#[test]
fn a_policy_has_an_allowance() {
    let refused = |overriders: Value, field: &str, allowed: &str| {
        let mut object = job();
        let found = run(&mut object, "east", &[policy("p", PolicyScope::Namespaced, &overriders)]);
        let found = found.expect_err("more than the allowance");
        assert_eq!((found.field.as_str(), found.allowed.as_str()), (field, allowed), "{found}");
        assert_eq!(object, job());
    };
    let plain = |n: usize| {
        let one = json!({"path": "/spec/x", "operator": "add", "value": 1});
        json!({"plaintext": vec![one; n]})
    };
    check(plain(1024), "/spec/x", json!(1));
    refused(plain(1025), "/spec/x", "1024 overriders and operations of all policies of the object");
    let words =
        |n: usize| json!({"containerName": "main", "operator": "add", "value": vec!["x".repeat(1000); n]});
    let bytes = "4000000 bytes added by all policies of the object";
    refused(json!({"argsOverrider": vec![words(1000); 5]}), "args", bytes);
    refused(json!({"commandOverrider": vec![words(1000); 5]}), "command", bytes);
    let text = json!({"path": "/data/c.json", "operator": "replace", "value": json!({"k": "x".repeat(1_000_000)}).to_string()});
    let again =
        json!({"fieldPath": "/data/c.json", "json": [{"subPath": "/a", "operator": "add", "value": 1}]});
    refused(json!({"plaintext": [text.clone(), text.clone(), text.clone(), text]}), "/data/c.json", bytes);
    let mut object = job();
    object["data"]["c.json"] = json!({"k": "x".repeat(1_000_000)}).to_string().into();
    let many = policy("p", PolicyScope::Namespaced, &json!({"fieldOverrider": vec![again; 20]}));
    let found = run(&mut object, "east", &[many]).unwrap_err();
    assert_eq!(found.allowed, bytes, "each reading and writing of a document counts");
    // Each overrider of images or words visits the whole object.
    let mut object = job();
    object["spec"]["rows"] = json!(vec![0; 10_000]);
    let image = json!({"component": "Tag", "operator": "replace", "value": "v"});
    let many = policy("p", PolicyScope::Namespaced, &json!({"imageOverrider": vec![image; 500]}));
    let found = run(&mut object, "east", &[many]).unwrap_err();
    assert_eq!(found.allowed, "1000000 values visited by all policies of the object");
}

/// Work is bounded for an object with all that it depends on: each policy, rule, overrider and byte counts, also of policies
/// that change nothing.
#[test]
fn all_that_a_job_depends_on_is_overridden_within_one_bound() {
    let empty = |names: &[&str]| OverrideRule {
        target_cluster: Some(ClusterAffinity {
            cluster_names: names.iter().map(|name| (*name).to_owned()).collect(),
            ..ClusterAffinity::default()
        }),
        overriders: Overriders::default(),
    };
    let with_rules = |rules: Vec<OverrideRule>| {
        let mut policy = policy("p", PolicyScope::Namespaced, &json!({}));
        policy.spec.override_rules = rules;
        policy
    };
    let mut broad = with_rules(Vec::new());
    broad.spec.resource_selectors = vec![Default::default(); 10_000];
    let image = json!({"component": "Repository", "operator": "add", "value": "x"});
    let images = policy("p", PolicyScope::Namespaced, &json!({"imageOverrider": vec![image; 400]}));
    let mut large = job();
    large["spec"]["roles"]["Worker"]["template"]["spec"]["containers"][0]["image"] =
        "x".repeat(100_000).into();
    for (what, object, policies, most) in [
        ("empty rules", job(), vec![with_rules(vec![empty(&["east"]); 64]); 500], 50),
        ("rules for other clusters", job(), vec![with_rules(vec![empty(&["west"]); 64]); 2_000], 20),
        ("many policies", job(), vec![with_rules(Vec::new()); 4_096], 300),
        ("broad selectors", job(), vec![broad; 10], 50),
        ("a long image", large, vec![images], 2_000),
    ] {
        let cluster = ClusterFacts { name: "east".to_owned(), ..ClusterFacts::default() };
        let reference = ObjectRef { namespace: "n".to_owned(), ..ObjectRef::default() };
        let (mut visits, mut objects) = (Visits::default(), 0);
        let refused = loop {
            let mut object = object.clone();
            match apply(&mut object, &reference, &cluster, &policies, &JsonAsYaml, &mut visits) {
                Ok(_) if objects < most => objects += 1,
                Ok(_) => panic!("{what}: more than {most} objects"),
                Err(error) => break error.allowed,
            }
        };
        assert!(refused.contains("visited") || refused.contains("bytes"), "{what}: {refused}");
    }
}

#[test]
fn words_are_removed_in_one_pass() {
    // With a pass for each word, this would be ten thousand million comparisons.
    let words: Vec<String> = (0..100_000).map(|n| format!("w{n}")).collect();
    let gone: Vec<String> = (0..100_000).map(|n| format!("g{n}")).collect();
    let change = |operator: &str, value: &[String]| json!({"containerName": "main", "operator": operator, "value": value});
    let overriders =
        json!({"argsOverrider": [change("add", &words), change("remove", &gone), change("remove", &words)]});
    check(overriders, &format!("{CONTAINER}/args"), json!(["-a"]));
}

#[test]
fn cluster_policies_come_first_and_all_apply_or_none() {
    let set = |value: &str| json!({"labelsOverrider": [{"operator": "add", "value": {"who": value}}]});
    let policies = [
        policy("b", PolicyScope::Namespaced, &set("namespaced b")),
        policy("z", PolicyScope::Cluster, &set("cluster")),
        policy("a", PolicyScope::Namespaced, &set("namespaced a")),
    ];
    let mut object = job();
    assert_eq!(run(&mut object, "east", &policies), Ok(vec!["z".into(), "a".into(), "b".into()]));
    assert_eq!(object["metadata"]["labels"]["who"], "namespaced b");

    let broken = policy(
        "c",
        PolicyScope::Namespaced,
        &json!({"plaintext": [{"path": "/spec/none", "operator": "remove"}]}),
    );
    let mut object = job();
    let error = run(&mut object, "east", &[policies[0].clone(), broken]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "override policy c: /spec/none of PyTorchJob n/a: found nothing; allowed: a field that exists"
    );
    assert_eq!(object, job(), "nothing was changed");
}

/// The error of overriders that try to make something else of the job.
#[track_caller]
fn refused(overriders: Value, expected: &str) {
    let mut object = job();
    let found = run(&mut object, "east", &[policy("p", PolicyScope::Namespaced, &overriders)]);
    let found = found.expect_err("identity was overridden").to_string();
    assert_eq!(found, format!("override policy p: {expected}"));
    assert_eq!(object, job(), "nothing was changed");
}

#[test]
fn identity_is_not_overridden() {
    let plain =
        |path: &str, value: Value| json!({"plaintext": [{"path": path, "operator": "add", "value": value}]});
    let hub = "allowed: the value on the hub";
    refused(plain("/kind", json!("Pod")), &format!("/kind of PyTorchJob n/a: found \"Pod\"; {hub}"));
    refused(
        plain("/apiVersion", json!("v1")),
        &format!("/apiVersion of PyTorchJob n/a: found \"v1\"; {hub}"),
    );
    for field in ["name", "namespace", "generateName", "uid", "finalizers", "ownerReferences"] {
        let path = format!("/metadata/{field}");
        refused(plain(&path, json!("x")), &format!("{path} of PyTorchJob n/a: found \"x\"; {hub}"));
    }
    // The whole of metadata, and a path with a character written as an escape.
    refused(
        plain("/metadata", json!({"name": "b"})),
        &format!("/metadata/name of PyTorchJob n/a: found \"b\"; {hub}"),
    );
    refused(
        json!({"plaintext": [{"path": "/metadata", "operator": "remove"}]}),
        &format!("/metadata/name of PyTorchJob n/a: found null; {hub}"),
    );
    // A predicate of an image overrider is a pointer, too.
    refused(
        json!({"imageOverrider": [{"predicate": {"path": "/metadata/name"}, "component": "Tag", "operator": "replace", "value": "x"}]}),
        &format!("/metadata/name of PyTorchJob n/a: found \"a:x\"; {hub}"),
    );
    let own = "allowed: no change: labels and annotations under fleet.dev/ and those that name a quota are Fleet's own";
    refused(
        json!({"labelsOverrider": [{"operator": "add", "value": {"quota.scheduling.alibabacloud.com/name": "other"}}]}),
        &format!(
            "/metadata/labels/quota.scheduling.alibabacloud.com~1name of PyTorchJob n/a: found \"other\"; {own}"
        ),
    );
    refused(
        json!({"annotationsOverrider": [{"operator": "add", "value": {"fleet.dev/reservation": "other"}}]}),
        &format!("/metadata/annotations/fleet.dev~1reservation of PyTorchJob n/a: found \"other\"; {own}"),
    );
    refused(
        plain("/spec/roles/Worker/template/metadata", json!({"labels": {"fleet.dev/binding-uid": "u"}})),
        &format!(
            "/spec/roles/Worker/template/metadata/labels/fleet.dev~1binding-uid of PyTorchJob n/a: found \"u\"; {own}"
        ),
    );
    // What users say of their own job stays theirs.
    check(
        json!({"annotationsOverrider": [{"operator": "add", "value": {"fleet.dev/after-end": "10s"}}]}),
        "/metadata/annotations/fleet.dev~1after-end",
        json!("10s"),
    );
}
