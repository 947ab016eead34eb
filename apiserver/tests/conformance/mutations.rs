//! Policies that change objects.

use crate::api::{Answer, Api, config_map, pod, random};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

const HOOKS: &str = "/apis/admissionregistration.k8s.io/v1";

/// A policy for creations of ConfigMaps and pods, with these mutations.
fn policy(name: &str, mutations: Value, change: Value) -> Value {
    let mut spec = json!({"reinvocationPolicy": "Never", "mutations": mutations,
        "matchConstraints": {"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"],
            "operations": ["CREATE", "UPDATE"], "resources": ["configmaps", "pods"]}]}});
    for (key, value) in change.as_object().into_iter().flatten() {
        spec[key] = value.clone();
    }
    json!({"metadata": {"name": name}, "spec": spec})
}

fn fields(expression: &str) -> Value {
    json!({"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}})
}

fn patches(expression: &str) -> Value {
    json!({"patchType": "JSONPatch", "jsonPatch": {"expression": expression}})
}

/// Binds a policy to the namespace of the test.
async fn bind(api: &Api, name: &str, mutations: Value, change: Value, params: Value) {
    api.post(&format!("{HOOKS}/mutatingadmissionpolicies"), policy(name, mutations, change))
        .await
        .expect(201);
    let mut binding = json!({"metadata": {"name": name}, "spec": {"policyName": name,
        "matchResources": {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": api.ns}}}}});
    if !params.is_null() {
        binding["spec"]["paramRef"] = params;
    }
    api.post(&format!("{HOOKS}/mutatingadmissionpolicybindings"), binding).await.expect(201);
}

async fn drop_policy(api: &Api, name: &str) {
    api.delete(&format!("{HOOKS}/mutatingadmissionpolicybindings/{name}"), Value::Null).await.expect(200);
    api.delete(&format!("{HOOKS}/mutatingadmissionpolicies/{name}"), Value::Null).await.expect(200);
}

/// What a dry run of a creation comes to, once the policy is known: another server takes a moment.
async fn until(api: &Api, plural: &str, object: Value, holds: impl Fn(&Answer) -> bool) -> Answer {
    let start = Instant::now();
    loop {
        let answer = api.post(&format!("{}?dryRun=All", api.core(plural)), object.clone()).await;
        if holds(&answer) {
            return answer;
        }
        assert!(start.elapsed() < Duration::from_secs(30), "never so: {}", answer.text);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test]
async fn policies_change_what_is_written() {
    let api = Api::new().await;
    let name = random("mutate-");
    let mutations = json!([
        fields("Object{metadata: Object.metadata{labels: {'team': variables.team}}}"),
        patches(
            "(has(object.metadata.annotations) ? [] : [JSONPatch{op: 'add', path: '/metadata/annotations', value: {}}]) \
             + [JSONPatch{op: 'add', path: '/metadata/annotations/' + jsonpatch.escapeKey('x.dev/seen'), \
             value: object.metadata.labels['team'] + '-seen'}]",
        ),
        patches(
            "[JSONPatch{op: 'test', path: '/metadata/name', value: 'never'}, JSONPatch{op: 'add', path: '/data', value: {'a': 'never'}}]"
        ),
    ]);
    let change = json!({"variables": [{"name": "team", "expression": "request.namespace + '-team'"}],
        "matchConditions": [{"name": "not-left", "expression": "!object.metadata.name.startsWith('left')"}]});
    bind(&api, &name, mutations, change, Value::Null).await;
    let team = format!("{}-team", api.ns);
    until(&api, "configmaps", config_map("a"), |a| a.body["metadata"]["labels"]["team"] == json!(team)).await;
    let path = api.core("configmaps");
    let mut sent = config_map("a");
    sent["metadata"]["labels"] = json!({"own": "kept"});
    let made = api.post(&path, sent).await.expect(201).body;
    assert_eq!(made["metadata"]["labels"], json!({"own": "kept", "team": team}));
    assert_eq!(made["metadata"]["annotations"], json!({"x.dev/seen": format!("{team}-seen")}));
    assert_ne!(made["data"]["a"], json!("never"), "a test that does not hold makes the patch none");
    let left = api.post(&path, config_map("left")).await.expect(201).body;
    assert_eq!(left["metadata"].get("labels"), None);
    // A change is one, too: what a client takes away comes back.
    let patch = json!({"metadata": {"labels": null}});
    let changed = api.patch(&format!("{path}/a"), "merge", patch).await.expect(200).body;
    assert_eq!(changed["metadata"]["labels"], json!({"team": team}));
    drop_policy(&api, &name).await;
    api.done().await;
}

#[tokio::test]
async fn fields_of_lists_with_keys_are_merged() {
    let api = Api::new().await;
    let name = random("merge-");
    let sidecar = "Object{spec: Object.spec{containers: object.spec.containers.map(c, Object.spec.containers{name: c.name, \
        env: [Object.spec.containers.env{name: 'ZONE', value: params.data.zone}]}), \
        initContainers: [Object.spec.initContainers{name: 'mesh', image: 'mesh:1', restartPolicy: 'Always'}]}}";
    api.post(&api.core("configmaps"), json!({"metadata": {"name": "zones"}, "data": {"zone": "z1"}}))
        .await
        .expect(201);
    let params = json!({"name": "zones", "namespace": api.ns, "parameterNotFoundAction": "Deny"});
    let change = json!({"paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
        "matchConditions": [{"name": "pods", "expression": "request.resource.resource == 'pods' && request.operation == 'CREATE'"}]});
    bind(&api, &name, json!([fields(sidecar)]), change, params).await;
    let mut sent = pod("p");
    sent["spec"]["containers"][0]["env"] = json!([{"name": "OWN", "value": "1"}]);
    let seen =
        until(&api, "pods", sent, |a| a.code == 201 && a.body["spec"].get("initContainers").is_some()).await;
    let spec = &seen.body["spec"];
    assert_eq!(
        spec["containers"][0]["env"],
        json!([{"name": "OWN", "value": "1"}, {"name": "ZONE", "value": "z1"}])
    );
    let added = &spec["initContainers"][0];
    assert_eq!(
        (&added["name"], &added["terminationMessagePath"]),
        (&json!("mesh"), &json!("/dev/termination-log")),
        "with defaults"
    );
    drop_policy(&api, &name).await;
    api.done().await;
}

#[tokio::test]
async fn mutations_that_fail_refuse_or_are_passed_over() {
    let api = Api::new().await;
    let path = api.core("configmaps");
    for (mutation, why) in [
        (fields("Object{metadata: Object.metadata{labels: {'a': object.data.none}}}"), "no such key: none"),
        (
            fields("Object{metadata: Object.metadata{labels: Object.wrong{}}}"),
            "unexpected type name \"Object.wrong\"",
        ),
        (fields("Object{none: 'x'}"), ".none: field not declared in schema"),
        (
            fields(
                "Object{metadata: Object.metadata{ownerReferences: [], finalizers: ['a/b'], labels: {'a': string(1/0)}}}",
            ),
            "division by zero",
        ),
        (patches("[JSONPatch{op: 'remove', path: '/data/none'}]"), "JSON Patch: "),
    ] {
        let name = random("broken-");
        bind(&api, &name, json!([mutation]), json!({}), Value::Null).await;
        let refused = until(&api, "configmaps", config_map("a"), |a| a.code != 201).await;
        assert_eq!((refused.code, refused.reason()), (403, "Invalid"), "{}", refused.text);
        let want = format!("policy '{name}' with binding '{name}' denied request: ");
        assert!(refused.message().starts_with(&want), "{}", refused.text);
        assert!(refused.message().contains(why), "{why}: {}", refused.text);
        let ignore = json!({"spec": {"failurePolicy": "Ignore"}});
        api.patch(&format!("{HOOKS}/mutatingadmissionpolicies/{name}"), "merge", ignore).await.expect(200);
        until(&api, "configmaps", config_map("a"), |a| a.code == 201).await;
        drop_policy(&api, &name).await;
    }
    let name = random("params-");
    let change = json!({"paramKind": {"apiVersion": "v1", "kind": "ConfigMap"}});
    let params = json!({"name": "none", "namespace": api.ns, "parameterNotFoundAction": "Deny"});
    bind(&api, &name, json!([fields("Object{}")]), change, params).await;
    let refused = until(&api, "configmaps", config_map("a"), |a| a.code != 201).await.fails(403, "Forbidden");
    assert!(refused.message().contains("failed to configure binding: no params found"), "{}", refused.text);
    drop_policy(&api, &name).await;
    api.post(&path, config_map("free")).await.expect(201);
    api.done().await;
}

#[tokio::test]
async fn policies_that_ask_for_it_see_what_comes_later() {
    let api = Api::new().await;
    let (first, second) = (random("a-first-"), random("b-second-"));
    let copies = "has(object.data) && 'late' in object.data ? [JSONPatch{op: 'add', path: '/data/saw', value: object.data.late}] : []";
    bind(&api, &first, json!([patches(copies)]), json!({"reinvocationPolicy": "IfNeeded"}), Value::Null)
        .await;
    let late = "[JSONPatch{op: 'add', path: '/data/late', value: 'yes'}]";
    bind(&api, &second, json!([patches(late)]), json!({}), Value::Null).await;
    let mut sent = config_map("a");
    sent["data"] = json!({"a": "b"});
    let seen = until(&api, "configmaps", sent, |a| a.code == 201 && a.body["data"]["late"] == "yes").await;
    assert_eq!(seen.body["data"]["saw"], json!("yes"));
    drop_policy(&api, &first).await;
    drop_policy(&api, &second).await;
    api.done().await;
}

/// What a request comes to, once the policy is known.
async fn repeated(api: &Api, path: &str, body: &Value, holds: impl Fn(&Answer) -> bool) -> Answer {
    let start = Instant::now();
    loop {
        let answer = api.post(path, body.clone()).await;
        if holds(&answer) {
            return answer;
        }
        assert!(start.elapsed() < Duration::from_secs(30), "never so: {}", answer.text);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Binds one mutation of what is done through a subresource of the core group.
async fn bind_action(api: &Api, name: &str, resource: &str, operation: &str, mutation: Value) {
    let rules = json!([{"apiGroups": [""], "apiVersions": ["v1"], "operations": [operation], "resources": [resource]}]);
    bind(api, name, json!([mutation]), json!({"matchConstraints": {"resourceRules": rules}}), Value::Null)
        .await;
}

#[tokio::test]
async fn what_is_done_to_pods_is_changed_too() {
    let api = Api::new().await;
    let pods = api.core("pods");
    let name = random("bindings-");
    let labels = "Object{metadata: Object.metadata{labels: {'by': 'policy'}}}";
    bind_action(&api, &name, "pods/binding", "CREATE", fields(labels)).await;
    let start = Instant::now();
    let mut count = 0;
    let bound = loop {
        let pod_name = format!("b{count}");
        api.post(&pods, pod(&pod_name)).await.expect(201);
        let binding = json!({"metadata": {"name": pod_name}, "target": {"kind": "Node", "name": "n"}});
        api.post(&format!("{pods}/{pod_name}/binding"), binding).await.expect(201);
        let bound = api.get(&format!("{pods}/{pod_name}")).await.expect(200).body;
        if bound["metadata"]["labels"].is_object() || start.elapsed() > Duration::from_secs(30) {
            break bound;
        }
        count += 1;
    };
    assert_eq!(
        (&bound["metadata"]["labels"], &bound["spec"]["nodeName"]),
        (&json!({"by": "policy"}), &json!("n"))
    );
    drop_policy(&api, &name).await;
    api.post(&pods, pod("p")).await.expect(201);
    let denied =
        |name: &str, why: &str| format!("policy '{name}' with binding '{name}' denied request: {why}");
    let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}});
    let evict = format!("{pods}/p/eviction?dryRun=All");
    let no_type = "error applying patch: failed to convert patch object to typed object: no corresponding type for policy/v1, Kind=Eviction";
    let (odd, other) = (
        "[JSONPatch{op: 'add', path: '/x', value: 1}]",
        "[JSONPatch{op: 'add', path: '/metadata/name', value: 'other'}]",
    );
    for (mutation, code, says) in [
        (fields("Object{deleteOptions: Object.deleteOptions{gracePeriodSeconds: 0}}"), 403, no_type),
        (patches("[JSONPatch{op: 'remove', path: '/none'}]"), 403, "JSON Patch: "),
        (patches(odd), 500, "Internal error occurred: strict decoding error: unknown field \"x\""),
        (patches(other), 400, "name in URL does not match name in Eviction object"),
    ] {
        let name = random("evictions-");
        bind_action(&api, &name, "pods/eviction", "CREATE", mutation).await;
        let refused = repeated(&api, &evict, &eviction, |a| a.code != 201).await;
        let want = if code == 403 { denied(&name, says) } else { says.to_string() };
        assert_eq!(refused.code, code, "{}", refused.text);
        assert!(refused.message().contains(&want), "{want}\n{}", refused.text);
        drop_policy(&api, &name).await;
        repeated(&api, &evict, &eviction, |a| a.code == 201).await;
    }
    api.done().await;
}

#[tokio::test]
async fn requests_for_tokens_and_streams_are_changed_too() {
    let api = Api::new().await;
    let tokens = api.core("serviceaccounts/default/token");
    let name = random("tokens-");
    let shorter = "[JSONPatch{op: 'replace', path: '/spec/expirationSeconds', value: object.spec.expirationSeconds - 1000}]";
    bind_action(&api, &name, "serviceaccounts/token", "CREATE", patches(shorter)).await;
    // Where a request names no life, it has one by then.
    let sent = json!({"spec": {}});
    repeated(&api, &tokens, &sent, |a| a.body["spec"]["expirationSeconds"] == json!(2600)).await;
    drop_policy(&api, &name).await;
    let name = random("tokens-");
    bind_action(
        &api,
        &name,
        "serviceaccounts/token",
        "CREATE",
        fields("Object{spec: Object.spec{audiences: ['a']}}"),
    )
    .await;
    let refused = repeated(&api, &tokens, &sent, |a| a.code != 201).await.fails(403, "Invalid");
    let no_type = "no corresponding type for authentication.k8s.io/v1, Kind=TokenRequest";
    assert!(refused.message().ends_with(no_type), "{}", refused.text);
    drop_policy(&api, &name).await;
    api.post(&api.core("pods"), pod("p")).await.expect(201);
    let name = random("streams-");
    let container = "[JSONPatch{op: 'add', path: '/container', value: 'other'}]";
    bind_action(&api, &name, "pods/exec", "CONNECT", patches(container)).await;
    let exec = api.core("pods/p/exec?command=a");
    let says = "container other is not valid for pod p";
    repeated(&api, &exec, &Value::Null, |a| a.code == 400 && a.message() == says).await;
    drop_policy(&api, &name).await;
    api.done().await;
}

#[tokio::test]
async fn custom_resources_are_changed_by_their_schemas() {
    let api = Api::new().await;
    let openapi = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
        "size": {"type": "integer"}, "color": {"type": "string", "default": "red"},
        "parts": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
            "items": {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}, "count": {"type": "integer"}}}},
        "tags": {"type": "array", "items": {"type": "string"}}}}}});
    let version =
        json!({"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": openapi}});
    let group = api.crd("things", "Thing", json!([version])).await;
    let path = api.group(&format!("{group}/v1"), "things");
    let thing = |name: &str| {
        json!({"apiVersion": format!("{group}/v1"), "kind": "Thing", "metadata": {"name": name},
            "spec": {"size": 1, "parts": [{"name": "a", "count": 1}]}})
    };
    let constraints = json!({"matchConstraints": {"resourceRules": [{"apiGroups": [group], "apiVersions": ["v1"],
        "operations": ["CREATE"], "resources": ["things"]}]}});
    let name = random("custom-");
    let parts = "Object{spec: Object.spec{size: object.spec.size + 1, parts: [Object.spec.parts{name: 'b', count: 2}]}}";
    bind(&api, &name, json!([fields(parts)]), constraints.clone(), Value::Null).await;
    let start = Instant::now();
    let made = loop {
        let made = api.post(&format!("{path}?dryRun=All"), thing("x")).await.expect(201).body;
        if made["spec"]["size"] == 2 || start.elapsed() > Duration::from_secs(30) {
            break made;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    assert_eq!(
        made["spec"],
        json!({"size": 2, "color": "red", "parts": [{"name": "a", "count": 1}, {"name": "b", "count": 2}]})
    );
    drop_policy(&api, &name).await;
    for (expression, why) in [
        (
            "Object{spec: Object.spec{tags: ['x']}}",
            "may not mutate atomic arrays, maps or structs: .spec.tags",
        ),
        ("Object{spec: Object.spec{other: 1}}", ".spec.other: field not declared in schema"),
    ] {
        let name = random("custom-");
        bind(&api, &name, json!([fields(expression)]), constraints.clone(), Value::Null).await;
        let start = Instant::now();
        let refused = loop {
            let answer = api.post(&format!("{path}?dryRun=All"), thing("x")).await;
            if answer.code != 201 || start.elapsed() > Duration::from_secs(30) {
                break answer;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        };
        assert!(refused.fails(403, "Invalid").message().contains(why), "{why}");
        drop_policy(&api, &name).await;
    }
    api.done().await;
}

#[tokio::test]
async fn policies_are_checked() {
    let api = Api::new().await;
    let path = format!("{HOOKS}/mutatingadmissionpolicies?dryRun=All");
    let good = json!([fields("Object{}")]);
    let made = api.post(&path, policy("x", good.clone(), json!({}))).await.expect(201).body;
    let spec = &made["spec"];
    assert_eq!(
        (&spec["failurePolicy"], &spec["matchConstraints"]["matchPolicy"]),
        (&json!("Fail"), &json!("Equivalent"))
    );
    let bad = |field: &str, value: Value| policy("x", good.clone(), json!({field: value}));
    let one = |mutation: Value| policy("x", json!([mutation]), json!({}));
    let deletes = json!({"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["DELETE"], "resources": ["pods"]}]});
    for (body, field) in [
        (bad("mutations", json!([])), "spec.mutations"),
        (bad("reinvocationPolicy", json!("Often")), "spec.reinvocationPolicy"),
        (bad("reinvocationPolicy", Value::Null), "spec.reinvocationPolicy"),
        (bad("matchConstraints", Value::Null), "spec.matchConstraints"),
        (bad("matchConstraints", deletes), "spec.matchConstraints.resourceRules.operations"),
        (one(json!({"applyConfiguration": {"expression": "Object{}"}})), "spec.mutations[0].patchType"),
        (one(json!({"patchType": "JSONPatch"})), "spec.mutations[0].jsonPatch"),
        (one(json!({"patchType": "Merge"})), "spec.mutations[0].patchType"),
        (one(fields(" ")), "spec.mutations[0].applyConfiguration.expression"),
        (one(fields("Object.spec{}")), "spec.mutations[0].applyConfiguration.expression"),
        (one(fields("{'a': 'b'}")), "spec.mutations[0].applyConfiguration.expression"),
        (one(patches("[JSONPatch{operation: 'add'}]")), "spec.mutations[0].jsonPatch.expression"),
        (
            one(patches("[JSONPatch{op: 'add', value: variables.none}]")),
            "spec.mutations[0].jsonPatch.expression",
        ),
    ] {
        let refused = api.post(&path, body).await.fails(422, "Invalid");
        assert!(refused.causes().iter().any(|c| c.1 == field), "{field}: {}", refused.text);
    }
    let both = json!({"patchType": "JSONPatch", "jsonPatch": {"expression": "[JSONPatch{}]"}, "applyConfiguration": {"expression": "Object{}"}});
    let refused = api.post(&path, one(both)).await.fails(422, "Invalid");
    assert_eq!(
        refused.causes().iter().map(|c| c.1).collect::<Vec<_>>(),
        ["spec.mutations[0].applyConfiguration"]
    );
    let bindings = format!("{HOOKS}/mutatingadmissionpolicybindings?dryRun=All");
    let refused =
        api.post(&bindings, json!({"metadata": {"name": "x"}, "spec": {}})).await.fails(422, "Invalid");
    assert!(refused.causes().iter().any(|c| c.1 == "spec.policyName"), "{}", refused.text);
    api.done().await;
}
