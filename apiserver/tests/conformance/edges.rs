//! Rules at the edges of a request: names and namespaces of a body, owners of defaults, keys of lists, quotas of
//! changes, levels of namespaces, names of definitions, expressions of policies.

use crate::api::{Api, CRDS, TABLE, config_map, deployment, pod, random};
use serde_json::{Value, json};

const HOOKS: &str = "/apis/admissionregistration.k8s.io/v1";

/// A PATCH by server-side apply.
async fn apply(api: &Api, path: &str, manager: &str, body: Value) -> crate::api::Answer {
    api.patch(&format!("{path}?fieldManager={manager}"), "apply", body).await
}

#[tokio::test]
async fn a_body_names_the_object_of_its_url() {
    let api = Api::new().await;
    let maps = api.core("configmaps");
    let mut other = config_map("b");
    // Whether the object exists does not matter.
    for exists in [false, true] {
        if exists {
            api.post(&maps, config_map("a")).await.expect(201);
        }
        let refused = api.put(&format!("{maps}/a"), other.clone()).await.fails(400, "BadRequest");
        assert_eq!(refused.message(), "the name of the object (b) does not match the name on the URL (a)");
    }
    other["metadata"] = json!({"name": "a", "namespace": "elsewhere"});
    let says = "the namespace of the provided object does not match the namespace sent on the request";
    let refused = api.put(&format!("{maps}/a"), other.clone()).await.fails(400, "BadRequest");
    assert_eq!(refused.message(), says);
    let before = api.get(&format!("{maps}/a")).await.rv();
    let moved = json!({"metadata": {"namespace": "elsewhere"}});
    let refused = api.patch(&format!("{maps}/a"), "merge", moved).await.fails(400, "BadRequest");
    assert_eq!(refused.message(), says);
    assert_eq!(api.get(&format!("{maps}/a")).await.rv(), before);
    let refused = api.post(&maps, other).await.fails(400, "BadRequest");
    assert!(refused.message().contains("sent on the request"), "{}", refused.text);
    api.done().await;
}

#[tokio::test]
async fn who_creates_an_object_owns_its_defaults() {
    let api = Api::new().await;
    let path = api.group("apps/v1", "deployments");
    let made = api.post(&format!("{path}?fieldManager=creator"), deployment("d")).await.expect(201).body;
    let owned = &made["metadata"]["managedFields"][0]["fieldsV1"]["f:spec"];
    assert!(owned["f:replicas"].is_object() && owned["f:strategy"]["f:type"].is_object(), "{owned}");
    let wanted = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"},
        "spec": {"replicas": 3}});
    let refused = apply(&api, &format!("{path}/d"), "other", wanted).await.fails(409, "Conflict");
    assert_eq!(refused.causes(), [("FieldManagerConflict", ".spec.replicas")]);
    assert!(refused.message().contains("conflict with \"creator\""), "{}", refused.text);
    // What an apply leaves out belongs to nobody.
    let mut config = deployment("e");
    config["apiVersion"] = json!("apps/v1");
    config["kind"] = json!("Deployment");
    apply(&api, &format!("{path}/e"), "first", config).await.expect(201);
    let wanted = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "e"},
        "spec": {"replicas": 3}});
    apply(&api, &format!("{path}/e"), "other", wanted).await.expect(200);
    let made = api.post(&api.core("pods"), pod("p")).await.expect(201).body;
    let owned = &made["metadata"]["managedFields"][0]["fieldsV1"]["f:spec"];
    assert!(owned["f:restartPolicy"].is_object() && owned["f:enableServiceLinks"].is_object(), "{owned}");
    for admitted in ["f:priority", "f:preemptionPolicy", "f:serviceAccountName", "f:tolerations"] {
        assert!(owned[admitted].is_null(), "{admitted}: {owned}");
    }
    let made = api.get(&format!("/api/v1/namespaces/{}", api.ns)).await.body;
    let owned = &made["metadata"]["managedFields"][0]["fieldsV1"];
    assert!(owned["f:metadata"]["f:labels"].is_object(), "{owned}");
    assert!(owned["f:spec"].is_null(), "finalizers are the server's: {owned}");
    api.done().await;
}

#[tokio::test]
async fn an_applied_item_has_its_key() {
    let api = Api::new().await;
    let path = format!("{}/d", api.group("apps/v1", "deployments"));
    let mut config = deployment("d");
    config["apiVersion"] = json!("apps/v1");
    config["kind"] = json!("Deployment");
    config["spec"]["template"]["spec"]["containers"] = json!([{"image": "i"}]);
    let refused = apply(&api, &path, "m", config.clone()).await.fails(500, "");
    assert!(
        refused.message().contains(
            ".spec.template.spec.containers: element 0: associative list with keys has an element that omits"
        ),
        "{}",
        refused.text
    );
    // The protocol of a port has a default.
    config["spec"]["template"]["spec"]["containers"] =
        json!([{"name": "c", "image": "i", "ports": [{"containerPort": 80}]}]);
    apply(&api, &path, "m", config).await.expect(201);
    api.done().await;
}

#[tokio::test]
async fn owners_and_finalizers_make_sense() {
    let api = Api::new().await;
    let maps = api.core("configmaps");
    for (group, version) in [("v1", "/v1")] {
        let mut map = config_map("a");
        map["metadata"]["ownerReferences"] =
            json!([{"apiVersion": group, "kind": "Event", "name": "e", "uid": "1"}]);
        let refused = api.post(&maps, map).await.fails(422, "Invalid");
        assert_eq!(refused.causes(), [("FieldValueInvalid", "metadata.ownerReferences")]);
        assert!(
            refused.message().contains(&format!("{version}, Kind=Event is disallowed")),
            "{}",
            refused.text
        );
    }
    let mut map = config_map("a");
    map["metadata"]["finalizers"] = json!(["orphan", "foregroundDeletion"]);
    let refused = api.post(&maps, map).await.fails(422, "Invalid");
    assert_eq!(refused.causes(), [("FieldValueInvalid", "metadata.finalizers")]);
    let refused = api.get(&format!("{maps}?labelSelector=a%20b")).await.fails(400, "BadRequest");
    let says = "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt";
    assert_eq!(refused.message(), says);
    api.done().await;
}

#[tokio::test]
async fn what_grows_is_charged_to_the_quota() {
    let api = Api::new().await;
    let (quotas, pods, services) = (api.core("resourcequotas"), api.core("pods"), api.core("services"));
    let hard = json!({"requests.cpu": "1", "services.nodeports": "0"});
    api.post(&quotas, json!({"metadata": {"name": "q"}, "spec": {"hard": hard}})).await.expect(201);
    let mut sized = pod("p");
    sized["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "500m"}});
    let status = |want: &'static str| {
        move |found: &crate::api::Answer| found.body["status"]["used"]["requests.cpu"] == want
    };
    api.until(&format!("{quotas}/q"), status("0")).await;
    api.post(&pods, sized).await.expect(201);
    api.until(&format!("{quotas}/q"), status("500m")).await;
    let name = api.get(&format!("{pods}/p")).await.body["spec"]["containers"][0]["name"].clone();
    let resize = |cpu: &str| json!({"spec": {"containers": [{"name": name, "resources": {"requests": {"cpu": cpu}}}]}});
    let path = format!("{pods}/p/resize");
    let refused = api.patch(&path, "strategic-merge", resize("3")).await.fails(403, "Forbidden");
    let says =
        "exceeded quota: q, requested: requests.cpu=2500m, used: requests.cpu=500m, limited: requests.cpu=1";
    assert!(refused.message().contains(says), "{}", refused.text);
    api.patch(&path, "strategic-merge", resize("1")).await.expect(200);
    api.until(&format!("{quotas}/q"), status("1")).await;
    api.patch(&path, "strategic-merge", resize("250m")).await.expect(200);
    api.post(&services, json!({"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}}))
        .await
        .expect(201);
    let open = json!({"spec": {"type": "NodePort"}});
    api.patch(&format!("{services}/s"), "merge", open).await.fails(403, "Forbidden");
    api.done().await;
}

#[tokio::test]
async fn a_pod_keeps_its_class_when_it_is_resized() {
    let api = Api::new().await;
    let pods = api.core("pods");
    let made = api.post(&pods, pod("p")).await.expect(201).body;
    assert_eq!(made["status"]["qosClass"], "BestEffort");
    let name = &made["spec"]["containers"][0]["name"];
    let resize = json!({"spec": {"containers": [{"name": name, "resources": {"requests": {"cpu": "1"}}}]}});
    let refused =
        api.patch(&format!("{pods}/p/resize"), "strategic-merge", resize).await.fails(422, "Invalid");
    assert!(
        refused.message().contains("Pod QOS Class may not change as a result of resizing"),
        "{}",
        refused.text
    );
    api.done().await;
}

#[tokio::test]
async fn the_level_of_a_namespace_is_checked_against_its_pods() {
    let api = Api::new().await;
    let path = format!("/api/v1/namespaces/{}", api.ns);
    let level = |key: &str, value: &str| json!({"metadata": {"labels": {(format!("pod-security.kubernetes.io/{key}")): value}}});
    let refused = api.patch(&path, "merge", level("warn", "strict")).await.fails(422, "Invalid");
    assert_eq!(refused.causes(), [("FieldValueInvalid", "metadata.labels[pod-security.kubernetes.io/warn]")]);
    assert!(
        refused.message().contains("must be one of privileged, baseline, restricted"),
        "{}",
        refused.text
    );
    api.patch(&path, "merge", level("enforce-version", "1.2")).await.fails(422, "Invalid");
    let made =
        json!({"metadata": {"name": random("ns-"), "labels": {"pod-security.kubernetes.io/audit": "x"}}});
    api.post("/api/v1/namespaces", made).await.fails(422, "Invalid");
    api.post(&api.core("pods"), pod("p")).await.expect(201);
    api.post(&api.core("pods"), pod("q")).await.expect(201);
    // A server may learn of the second pod a moment later.
    let start = std::time::Instant::now();
    let told = loop {
        let told = api.patch(&path, "merge", level("enforce", "restricted")).await.expect(200).warnings();
        if told.iter().any(|line| line.contains("other pod")) || start.elapsed().as_secs() > 30 {
            break told;
        }
        api.patch(&path, "merge", level("enforce", "privileged")).await.expect(200);
    };
    assert!(
        told[0].contains("violate the new PodSecurity enforce level \\\"restricted:latest\\\""),
        "{told:?}"
    );
    assert!(told[1].contains("p (and 1 other pod): allowPrivilegeEscalation != false, "), "{told:?}");
    // Nothing new is enforced.
    let told = api.patch(&path, "merge", level("enforce", "baseline")).await.expect(200).warnings();
    assert!(told.is_empty(), "{told:?}");
    api.done().await;
}

fn definition(plural: &str, group: &str, kind: &str, schema: Value) -> Value {
    json!({"metadata": {"name": format!("{plural}.{group}")}, "spec": {"group": group, "scope": "Namespaced",
        "names": {"plural": plural, "kind": kind},
        "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}]}})
}

fn conditions(crd: &Value) -> Vec<(String, String, String)> {
    let text = |c: &Value, key: &str| c[key].as_str().unwrap_or_default().to_string();
    let list = crd["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let mut all: Vec<_> =
        list.iter().map(|c| (text(c, "type"), text(c, "status"), text(c, "reason"))).collect();
    all.sort();
    all
}

#[tokio::test]
async fn a_name_in_use_is_not_accepted_until_it_is_free() {
    let api = Api::new().await;
    let group = format!("{}.example.com", random("g"));
    let object = json!({"type": "object"});
    api.post(CRDS, definition("foos", &group, "Foo", object.clone())).await.expect(201);
    api.until_code(&format!("/apis/{group}/v1/namespaces/{}/foos", api.ns), 200).await;
    let second = format!("{CRDS}/foozes.{group}");
    api.post(CRDS, definition("foozes", &group, "Foo", object.clone())).await.expect(201);
    let told = api.until(&second, |found| conditions(&found.body).len() >= 2).await.body;
    let row =
        |kind: &str, status: &str, reason: &str| (kind.to_string(), status.to_string(), reason.to_string());
    assert_eq!(
        conditions(&told),
        [row("Established", "False", "NotAccepted"), row("NamesAccepted", "False", "ListKindConflict")]
    );
    assert_eq!(told["status"]["acceptedNames"]["plural"], "foozes");
    assert_eq!(told["status"]["acceptedNames"]["kind"], "");
    api.get(&format!("/apis/{group}/v1/namespaces/{}/foozes", api.ns)).await.expect(404);
    api.delete(&format!("{CRDS}/foos.{group}"), Value::Null).await.expect(200);
    api.until_code(&format!("/apis/{group}/v1/namespaces/{}/foozes", api.ns), 200).await;
    let told = api.get(&second).await.body;
    assert_eq!(
        conditions(&told),
        [row("Established", "True", "InitialNamesAccepted"), row("NamesAccepted", "True", "NoConflicts")]
    );
    // Another group may use the same names.
    let other = format!("{}.example.com", random("g"));
    api.post(CRDS, definition("foozes", &other, "Foo", object)).await.expect(201);
    api.until_code(&format!("/apis/{other}/v1/namespaces/{}/foozes", api.ns), 200).await;
    for (plural, group) in [("foozes", &group), ("foozes", &other)] {
        api.delete(&format!("{CRDS}/{plural}.{group}"), Value::Null).await.expect(200);
    }
    api.done().await;
}

#[tokio::test]
async fn patterns_embedded_objects_and_rules_are_told_as_they_are() {
    let api = Api::new().await;
    let group = format!("{}.example.com", random("g"));
    let spec = |inner: Value| json!({"type": "object", "properties": {"spec": inner}});
    let broken = spec(json!({"type": "string", "pattern": "("}));
    let refused = api.post(CRDS, definition("bars", &group, "Bar", broken)).await.fails(422, "Invalid");
    let at = "spec.validation.openAPIV3Schema.properties[spec].pattern";
    assert_eq!(refused.causes(), [("FieldValueInvalid", at)]);
    let schema = spec(json!({"type": "object", "properties": {
        "n": {"type": "integer", "x-kubernetes-validations": [{"rule": "self > 1", "message": "is small"}]},
        "inner": {"type": "object", "x-kubernetes-embedded-resource": true,
            "x-kubernetes-preserve-unknown-fields": true}},
        "x-kubernetes-validations": [{"rule": "!has(self.n) || self.n < 9", "message": "is big"}]}));
    api.post(CRDS, definition("foos", &group, "Foo", schema)).await.expect(201);
    let path = format!("/apis/{group}/v1/namespaces/{}/foos", api.ns);
    api.until_code(&path, 200).await;
    let foo = |spec: Value| json!({"apiVersion": format!("{group}/v1"), "kind": "Foo", "metadata": {"name": "f"}, "spec": spec});
    let refused = api.post(&path, foo(json!({"inner": {"a": 1}}))).await.fails(422, "Invalid");
    assert_eq!(
        refused.causes(),
        [
            ("FieldValueRequired", "spec.inner.apiVersion"),
            ("FieldValueRequired", "spec.inner.kind"),
            // Some rules were not checked.
            ("FieldValueInvalid", "<nil>"),
        ]
    );
    let refused = api.post(&path, foo(json!({"n": 1}))).await.fails(422, "Invalid");
    assert!(refused.message().contains("spec.n: Invalid value: 1: is small"), "{}", refused.text);
    let refused = api.post(&path, foo(json!({"n": 9}))).await.fails(422, "Invalid");
    assert!(refused.message().contains("spec: Invalid value: is big"), "{}", refused.text);
    let whole = json!({"n": 2, "inner": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}}});
    api.post(&path, foo(whole)).await.expect(201);
    api.delete(&format!("{CRDS}/foos.{group}"), Value::Null).await.expect(200);
    api.done().await;
}

#[tokio::test]
async fn expressions_of_policies_are_checked_and_may_ask_what_is_allowed() {
    let api = Api::new().await;
    let name = random("policy-");
    let (policies, bindings) = (
        format!("{HOOKS}/validatingadmissionpolicies"),
        format!("{HOOKS}/validatingadmissionpolicybindings"),
    );
    let policy = |part: Value| {
        let mut spec = json!({"matchConstraints": {"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"],
            "operations": ["CREATE"], "resources": ["configmaps"]}]}});
        spec.as_object_mut().unwrap().extend(part.as_object().unwrap().clone());
        json!({"metadata": {"name": name}, "spec": spec})
    };
    let one = |expression: &str| json!({"validations": [{"expression": expression}]});
    let first = "spec.validations[0].expression";
    for (part, field, says) in [
        (one("nosuch == 1"), first, "undeclared reference to 'nosuch'"),
        (one("params.data.a == 'b'"), first, "undeclared reference to 'params'"),
        (one("1 + 1"), first, "must evaluate to bool"),
        (one("authorizer.frob('a')"), first, "undeclared reference to 'frob'"),
        (
            json!({"validations": [{"expression": "true", "messageExpression": "1"}]}),
            "spec.validations[0].messageExpression",
            "must evaluate to string",
        ),
        (
            json!({"auditAnnotations": [{"key": "k", "valueExpression": "3"}]}),
            "spec.auditAnnotations[0].valueExpression",
            "must evaluate to one of [string null_type]",
        ),
        (
            json!({"validations": [{"expression": "true"}],
                "matchConditions": [{"name": "c", "expression": "variables.x"}]}),
            "spec.matchConditions[0].expression",
            "undeclared reference to 'variables'",
        ),
    ] {
        let refused = api.post(&policies, policy(part)).await.fails(422, "Invalid");
        assert_eq!(refused.causes(), [("FieldValueInvalid", field)], "{}", refused.text);
        assert!(refused.message().contains(says), "{}", refused.text);
    }
    let both = json!({"metadata": {"name": name},
        "spec": {"policyName": name, "validationActions": ["Deny", "Warn"]}});
    let refused = api.post(&bindings, both).await.fails(422, "Invalid");
    assert_eq!(refused.causes(), [("FieldValueInvalid", "spec.validationActions")]);
    let asks = "authorizer.group('').resource('secrets').namespace(request.namespace).check('create').allowed() \
        && !authorizer.serviceAccount(request.namespace, 'default').group('').resource('pods').check('get').allowed() \
       ";
    let part = json!({"validations": [{"expression": asks, "message": "may not make Secrets"}]});
    api.post(&policies, policy(part)).await.expect(201);
    let bound = json!({"metadata": {"name": name}, "spec": {"policyName": name, "validationActions": ["Deny"],
        "matchResources": {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": api.ns}}}}});
    api.post(&bindings, bound).await.expect(201);
    // Who may make ConfigMaps and nothing else is refused once the policy is known.
    let bob = random("bob-");
    let role = json!({"metadata": {"name": "maps"},
        "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create"]}]});
    api.post(&api.group("rbac.authorization.k8s.io/v1", "roles"), role).await.expect(201);
    let grant = json!({"metadata": {"name": "maps"}, "subjects": [{"kind": "User", "name": bob}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "maps"}});
    api.post(&api.group("rbac.authorization.k8s.io/v1", "rolebindings"), grant).await.expect(201);
    let path = format!("{}?dryRun=All", api.core("configmaps"));
    let start = std::time::Instant::now();
    let refused = loop {
        let body = config_map("c").to_string();
        let headers = [("content-type", "application/json"), ("impersonate-user", bob.as_str())];
        let answer = api.raw("POST", &path, &headers, body).await;
        // Nor does it know the role at once.
        if answer.code != 201 && !answer.message().contains("cannot create resource") {
            break answer;
        }
        assert!(start.elapsed().as_secs() < 30, "never refused");
    };
    assert!(refused.message().contains("may not make Secrets"), "{}", refused.text);
    api.post(&path, config_map("c")).await.expect(201);
    api.delete(&format!("{bindings}/{name}"), Value::Null).await.expect(200);
    api.delete(&format!("{policies}/{name}"), Value::Null).await.expect(200);
    api.done().await;
}

#[tokio::test]
async fn a_request_for_a_certificate_shows_how_long_and_whether_it_is_issued() {
    let api = Api::new().await;
    let requests = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
    let name = random("csr-");
    let spec = json!({"request": crate::api::signing_request("joe"), "usages": ["client auth"],
        "signerName": "kubernetes.io/kube-apiserver-client", "expirationSeconds": 3600});
    api.post(requests, json!({"metadata": {"name": name}, "spec": spec})).await.expect(201);
    let cells =
        api.get_as(&format!("{requests}/{name}"), TABLE).await.expect(200).body["rows"][0]["cells"].clone();
    assert_eq!((&cells[4], &cells[5]), (&json!("60m"), &json!("Pending")), "{cells}");
    api.delete(&format!("{requests}/{name}"), Value::Null).await.expect(200);
    api.done().await;
}

#[tokio::test]
async fn the_older_paths_of_watches_take_the_same_parameters() {
    let api = Api::new().await;
    api.post(&api.core("configmaps"), config_map("a")).await.expect(201);
    api.post(&api.core("configmaps"), config_map("b")).await.expect(201);
    let base = format!("/api/v1/watch/namespaces/{}/configmaps", api.ns);
    // Each ends by itself.
    let ended = api.get(&format!("{base}?timeoutSeconds=1&labelSelector=none")).await.expect(200);
    assert!(ended.text.is_empty(), "{}", ended.text);
    let one = api.get(&format!("{base}/b?timeoutSeconds=1&resourceVersion=0")).await.expect(200);
    let events: Vec<Value> = one.text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(events.len(), 1, "{}", one.text);
    assert_eq!(events[0]["object"]["metadata"]["name"], "b");
    api.done().await;
}

/// What a pod asks for in all: sidecars run beside its containers, and amounts of the whole pod replace their sum.
#[tokio::test]
async fn sidecars_and_whole_pods_are_counted() {
    let api = Api::new().await;
    let (quotas, pods) = (api.core("resourcequotas"), api.core("pods"));
    let hard = json!({"requests.cpu": "4", "limits.cpu": "100"});
    api.post(&quotas, json!({"metadata": {"name": "q"}, "spec": {"hard": hard}})).await.expect(201);
    let cpu = |n: &str| json!({"requests": {"cpu": n}, "limits": {"cpu": n}});
    let pod = |name: &str, sidecar: Option<&str>, whole: Value| {
        let mut pod = pod(name);
        pod["spec"]["containers"][0]["resources"] = cpu("2");
        pod["spec"]["initContainers"] = sidecar.map_or(
            Value::Null,
            |n| json!([{"name": "s", "image": "i", "restartPolicy": "Always", "resources": cpu(n)}]),
        );
        pod["spec"]["resources"] = whole;
        pod
    };
    let over =
        |asked: &str| format!("exceeded quota: q, requested: requests.cpu={asked}, used: requests.cpu=0");
    let fifty = json!({"limits": {"cpu": "50"}, "requests": {"cpu": "50"}});
    for (refused, asked) in [
        (pod("sidecar", Some("3"), Value::Null), "5"),
        (pod("whole", None, fifty.clone()), "50"),
        (pod("both", Some("1"), fifty), "50"),
    ] {
        let refused = api.post(&pods, refused).await.fails(403, "Forbidden");
        assert!(refused.message().contains(&over(asked)), "{}", refused.text);
    }
    // Containers cannot ask for more than their pod.
    let less = json!({"requests": {"cpu": "1"}, "limits": {"cpu": "1"}});
    let refused = api.post(&pods, pod("less", None, less)).await.fails(422, "Invalid");
    for says in [
        "spec.resources.requests[cpu]: Invalid value: \"1\": must be greater than or equal to aggregate container requests of 2",
        "spec.resources.containers[0][cpu].limits: Invalid value: \"2\": must be less than or equal to pod limits of 1",
    ] {
        assert!(refused.message().contains(says), "{}", refused.text);
    }
    let most = json!([{"type": "Pod", "max": {"cpu": "3"}}]);
    let range = json!({"metadata": {"name": "l"}, "spec": {"limits": most}});
    api.post(&api.core("limitranges"), range).await.expect(201);
    let fits = json!({"requests": {"cpu": "2"}, "limits": {"cpu": "4"}});
    for (refused, found) in [(pod("sidecar", Some("2"), Value::Null), "4"), (pod("whole", None, fits), "4")] {
        let refused = api.post(&pods, refused).await.fails(403, "Forbidden");
        let says = format!("maximum cpu usage per Pod is 3, but limit is {found}");
        assert!(refused.message().contains(&says), "{}", refused.text);
    }
    // A limit of the whole pod is no request where its containers request less.
    let made =
        api.post(&pods, pod("p", Some("500m"), json!({"limits": {"cpu": "3"}}))).await.expect(201).body;
    assert_eq!(made["spec"]["resources"], json!({"limits": {"cpu": "3"}, "requests": {"cpu": "2500m"}}));
    assert_eq!(made["status"]["qosClass"], "Burstable");
    let used = |found: &crate::api::Answer| found.body["status"]["used"]["requests.cpu"] == "2500m";
    api.until(&format!("{quotas}/q"), used).await;
    api.done().await;
}
