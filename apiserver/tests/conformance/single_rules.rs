//! Single rules of built-in kinds, each with the field that is blamed.

use crate::api::{Api, pod, random};
use serde_json::{Value, json};

/// Posts each object, and looks for its field among the causes.
async fn refused(api: &Api, path: &str, cases: Vec<(Value, &str)>) {
    for (object, field) in cases {
        let answer = api.post(&format!("{path}?dryRun=All"), object.clone()).await;
        assert_eq!(answer.code, 422, "{object}: {}", answer.text);
        assert!(answer.causes().iter().any(|(_, at)| *at == field), "{field}: {}", answer.text);
    }
}

fn with(mut object: Value, part: &str, extra: Value) -> Value {
    let place = if part.is_empty() { &mut object } else { &mut object[part] };
    place.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    object
}

#[tokio::test]
async fn pods_and_services() {
    let api = Api::new().await;
    let spec = |extra: Value| with(pod("p"), "spec", extra);
    let spread = json!([{"maxSkew": 1, "topologyKey": "a", "whenUnsatisfiable": "DoNotSchedule", "matchLabelKeys": ["x"]}]);
    refused(
        &api,
        &api.core("pods"),
        vec![
            (spec(json!({"hostUsers": false, "hostNetwork": true})), "spec.hostNetwork"),
            (spec(json!({"hostUsers": false, "hostPID": true})), "spec.HostPID"),
            (
                spec(json!({"topologySpreadConstraints": spread})),
                "spec.topologySpreadConstraints[0].matchLabelKeys",
            ),
            (
                spec(json!({"resources": {"limits": {"example.com/x": "1"}}})),
                "spec.resources.limits[example.com/x]",
            ),
        ],
    )
    .await;
    let service = |extra: Value| {
        with(json!({"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}}), "spec", extra)
    };
    refused(
        &api,
        &api.core("services"),
        vec![
            (service(json!({"ipFamilies": ["IPv6"]})), "spec.ipFamilies[0]"),
            (service(json!({"ipFamilyPolicy": "RequireDualStack"})), "spec.ipFamilyPolicy"),
            (service(json!({"trafficDistribution": "X"})), "spec.trafficDistribution"),
        ],
    )
    .await;
    let services = api.core("services");
    api.post(&services, service(json!({}))).await.expect(201);
    let point = json!({"status": {"loadBalancer": {"ingress": [{"ip": "10.0.0.1"}]}}});
    api.patch(&format!("{services}/s/status"), "merge", point).await.fails(422, "Invalid");
    api.done().await;
}

#[tokio::test]
async fn workloads_events_and_nodes() {
    let api = Api::new().await;
    let set = json!({"metadata": {"name": "s"}, "spec": {"serviceName": "A_", "selector": {"matchLabels": {"a": "b"}},
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": pod("p")["spec"]}}});
    refused(&api, &api.group("apps/v1", "statefulsets"), vec![(set, "spec.serviceName")]).await;
    let ingress = json!({"metadata": {"name": "i", "annotations": {"kubernetes.io/ingress.class": "x"}},
        "spec": {"ingressClassName": "y", "defaultBackend": {"service": {"name": "s", "port": {"number": 80}}}}});
    let field = "annotations.kubernetes.io/ingress.class";
    refused(&api, &api.group("networking.k8s.io/v1", "ingresses"), vec![(ingress, field)]).await;
    let time = "2026-01-01T00:00:00.000000Z";
    let event = |extra: Value| {
        let base = json!({"metadata": {"name": "e"}, "eventTime": time, "reportingController": "a.b/c",
            "reportingInstance": "i", "action": "A", "reason": "R", "type": "Normal",
            "regarding": {"kind": "Pod", "name": "p", "namespace": api.ns}});
        with(base, "", extra)
    };
    let events = api.group("events.k8s.io/v1", "events");
    api.post(&format!("{events}?dryRun=All"), event(json!({}))).await.expect(201);
    refused(
        &api,
        &events,
        vec![
            (event(json!({"deprecatedCount": 1})), "count"),
            (event(json!({"series": {"count": 1, "lastObservedTime": time}})), "series.count"),
        ],
    )
    .await;
    let node = json!({"metadata": {"name": random("n-")}, "spec": {"podCIDR": "x"}});
    refused(&api, "/api/v1/nodes", vec![(node, "spec.podCIDRs[0]")]).await;
    let jobs = api.group("batch/v1", "jobs");
    let job = json!({"metadata": {"name": "j"}, "spec": {"suspend": true, "managedBy": "example.com/x",
        "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}}});
    api.post(&jobs, job).await.expect(201);
    let ready = json!({"status": {"ready": 5, "active": 1}});
    api.patch(&format!("{jobs}/j/status"), "merge", ready).await.fails(422, "Invalid");
    api.done().await;
}

#[tokio::test]
async fn policies_webhooks_and_reviews() {
    let api = Api::new().await;
    let group = "/apis/admissionregistration.k8s.io/v1";
    let rules = json!([{"apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["deployments"]}]);
    let policy = |extra: Value| {
        let base = json!({"metadata": {"name": random("p-")}, "spec": {"matchConstraints": {"resourceRules": rules},
            "validations": [{"expression": "true"}]}});
        with(base, "spec", extra)
    };
    let early = json!([{"name": "a", "expression": "variables.b"}, {"name": "b", "expression": "1"}]);
    refused(
        &api,
        &format!("{group}/validatingadmissionpolicies"),
        vec![
            (policy(json!({"variables": [{"name": "1a", "expression": "1"}]})), "spec.variables[0].name"),
            (policy(json!({"variables": early})), "spec.variables[0].expression"),
            (policy(json!({"matchConstraints": {}})), "spec.matchConstraints.resourceRules"),
            (
                policy(json!({"validations": [{"expression": "true", "reason": "Foo"}]})),
                "spec.validations[0].reason",
            ),
            (
                policy(json!({"validations": [{"expression": "true", "message": "a\nb"}]})),
                "spec.validations[0].message",
            ),
            (policy(json!({"paramKind": {"apiVersion": "v1", "kind": ""}})), "spec.paramKind.kind"),
        ],
    )
    .await;
    let binding = |extra: Value| {
        let base = json!({"metadata": {"name": random("b-")}, "spec": {"policyName": "p", "validationActions": ["Deny"]}});
        with(base, "spec", extra)
    };
    refused(
        &api,
        &format!("{group}/validatingadmissionpolicybindings"),
        vec![
            (binding(json!({"validationActions": ["Deny", "Deny"]})), "spec.validationActions[1]"),
            (
                binding(
                    json!({"paramRef": {"name": "a", "selector": {}, "parameterNotFoundAction": "Deny"}}),
                ),
                "spec.paramRef.name",
            ),
            (binding(json!({"paramRef": {"name": "a"}})), "spec.paramRef.parameterNotFoundAction"),
        ],
    )
    .await;
    let hook = |extra: Value| {
        let base = json!({"name": "a.b.c", "admissionReviewVersions": ["v1"], "sideEffects": "None",
            "clientConfig": {"url": "https://x/"}, "rules": []});
        json!({"metadata": {"name": random("w-")}, "webhooks": [with(base, "", extra)]})
    };
    let rule = |operations: Value, resources: Value| json!({"rules": [{"operations": operations, "apiGroups": [""], "apiVersions": ["v1"], "resources": resources}]});
    let twice = json!([{"name": "a", "expression": "true"}, {"name": "a", "expression": "true"}]);
    refused(
        &api,
        &format!("{group}/validatingwebhookconfigurations"),
        vec![
            (hook(rule(json!(["*", "CREATE"]), json!(["pods"]))), "webhooks[0].rules[0].operations"),
            (hook(rule(json!(["CREATE"]), json!(["*", "pods"]))), "webhooks[0].rules[0].resources"),
            (hook(json!({"matchConditions": twice})), "webhooks[0].matchConditions[1].name"),
            (
                hook(json!({"clientConfig": {"service": {"name": "a", "namespace": "b", "path": "x"}}})),
                "webhooks[0].clientConfig.service.path",
            ),
        ],
    )
    .await;
    let review = |extra: Value| json!({"spec": {"user": "b", "resourceAttributes": with(json!({"verb": "list", "resource": "pods"}), "", extra)}});
    let both = json!({"fieldSelector": {"rawSelector": "a=b", "requirements": [{"key": "k", "operator": "In", "values": ["v"]}]}});
    let at = "spec.resourceAttributes";
    let cases = [
        (with(review(json!({})), "", json!({"metadata": {"name": "x"}})), "metadata".to_string()),
        (review(both), format!("{at}.fieldSelector.rawSelector")),
        (review(json!({"labelSelector": {}})), format!("{at}.labelSelector.requirements")),
    ];
    let cases = cases.iter().map(|(object, field)| (object.clone(), field.as_str())).collect();
    refused(&api, "/apis/authorization.k8s.io/v1/subjectaccessreviews", cases).await;
    api.done().await;
}

#[tokio::test]
async fn a_policy_says_which_of_its_expressions_have_wrong_types() {
    let api = Api::new().await;
    let policies = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";
    let name = random("p-");
    let rules = json!([{"apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["deployments"]}]);
    let checks = json!([{"expression": "object.spec.replicas > 1"}, {"expression": "object.spec.replicass > 1"},
        {"expression": "object.spec.replicas > '1'"}]);
    let spec = json!({"matchConstraints": {"resourceRules": rules}, "validations": checks});
    api.post(policies, json!({"metadata": {"name": name}, "spec": spec})).await.expect(201);
    let at = format!("{policies}/{name}");
    let found = api.until(&at, |a| a.body["status"]["typeChecking"]["expressionWarnings"].is_array()).await;
    let warnings = found.body["status"]["typeChecking"]["expressionWarnings"].as_array().unwrap().clone();
    let places: Vec<&str> = warnings.iter().map(|w| w["fieldRef"].as_str().unwrap()).collect();
    assert_eq!(places, ["spec.validations[1].expression", "spec.validations[2].expression"], "{warnings:?}");
    assert!(warnings[0]["warning"].as_str().unwrap().contains("undefined field 'replicass'"));
    api.delete(&at, json!({})).await.expect(200);
    api.done().await;
}

#[tokio::test]
async fn an_applied_object_that_is_gone_is_not_made_under_its_old_uid() {
    let api = Api::new().await;
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "uid": "x"}});
    let path = format!("{}/a?fieldManager=m", api.core("configmaps"));
    api.patch(&path, "apply", map).await.fails(409, "Conflict");
    api.done().await;
}

#[tokio::test]
async fn devices_and_their_classes() {
    let api = Api::new().await;
    let claim = |exactly: Value, devices: Value| {
        let request = json!({"name": "r", "exactly": with(json!({"deviceClassName": "x.y"}), "", exactly)});
        json!({"metadata": {"name": "c"}, "spec": {"devices": with(json!({"requests": [request]}), "", devices)}})
    };
    let expression = |text: &str| json!({"selectors": [{"cel": {"expression": text}}]});
    let at = "spec.devices";
    let cases = [
        (
            claim(expression("x ++"), json!({})),
            format!("{at}.requests[0].exactly.selectors[0].cel.expression"),
        ),
        (claim(expression("1"), json!({})), format!("{at}.requests[0].exactly.selectors[0].cel.expression")),
        (
            claim(json!({}), json!({"constraints": [{"requests": ["zz"], "matchAttribute": "a/b"}]})),
            format!("{at}.constraints[0].requests[0]"),
        ),
        (
            claim(json!({}), json!({"config": [{"opaque": {"driver": "x y", "parameters": {}}}]})),
            format!("{at}.config[0].opaque.driver"),
        ),
    ];
    let cases = cases.iter().map(|(object, field)| (object.clone(), field.as_str())).collect();
    refused(&api, &api.group("resource.k8s.io/v1", "resourceclaims"), cases).await;
    let class = json!({"metadata": {"name": random("c-")}, "spec": expression("device.nope == 1")});
    let classes = "/apis/resource.k8s.io/v1/deviceclasses";
    refused(&api, classes, vec![(class, "spec.selectors[0].cel.expression")]).await;
    let good = expression("device.driver == 'a.b' && device.attributes['a.b'].size > 1");
    api.post(&format!("{classes}?dryRun=All"), json!({"metadata": {"name": random("c-")}, "spec": good}))
        .await
        .expect(201);
    let slice = |extra: Value| {
        let base = json!({"metadata": {"name": "s"}, "spec": {"driver": "a.b", "allNodes": true,
            "pool": {"name": "p", "resourceSliceCount": 1, "generation": 1}}});
        with(base, "spec", extra)
    };
    let slices = "/apis/resource.k8s.io/v1/resourceslices";
    api.post(&format!("{slices}?dryRun=All"), slice(json!({}))).await.expect(201);
    refused(
        &api,
        slices,
        vec![
            (
                slice(json!({"pool": {"name": "p", "resourceSliceCount": 0, "generation": 1}})),
                "spec.pool.resourceSliceCount",
            ),
            (slice(json!({"allNodes": null})), "spec"),
            (slice(json!({"devices": [{"name": "d"}, {"name": "d"}]})), "spec.devices[1]"),
        ],
    )
    .await;
    api.done().await;
}
