//! Details of policies, webhooks, definitions, autoscalers, rights and levels: which part is blamed, and in what words.

use crate::api::{Api, CRDS, RBAC, random, signing_request};
use crate::table::merged;
use serde_json::{Value, json};

const REGISTRATIONS: &str = "/apis/admissionregistration.k8s.io/v1";

/// Each object is refused, and the answer says so. Nothing is stored.
async fn refused(api: &Api, path: &str, cases: &[(Value, &str)]) {
    for (object, says) in cases {
        let answer = api.post(&format!("{path}?dryRun=All"), object.clone()).await.fails(422, "Invalid");
        assert!(answer.message().contains(says), "{object}\n  {says}\n  {}", answer.message());
    }
}

/// Each object is accepted. Nothing is stored.
async fn accepted(api: &Api, path: &str, objects: &[Value]) {
    for object in objects {
        api.post(&format!("{path}?dryRun=All"), object.clone()).await.expect(201);
    }
}

/// Each change is refused, and the answer says so.
async fn kept(api: &Api, at: &str, cases: &[(Value, &str)]) {
    for (change, says) in cases {
        let answer = api.patch(at, "merge", change.clone()).await.fails(422, "Invalid");
        assert!(answer.message().contains(says), "{change}\n  {says}\n  {}", answer.message());
    }
}

fn autoscaler(spec: Value) -> Value {
    let base = json!({"metadata": {"name": "h"}, "spec": {"maxReplicas": 5,
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}}});
    merged(&base, &json!({"spec": spec}))
}

#[tokio::test]
async fn autoscalers_have_bounds_and_a_target() {
    let api = Api::new().await;
    let path = api.group("autoscaling/v2", "horizontalpodautoscalers");
    let down = |rules: Value| autoscaler(json!({"behavior": {"scaleDown": rules}}));
    let target = |target: Value| autoscaler(json!({"scaleTargetRef": target}));
    refused(
        &api,
        &path,
        &[
            (
                autoscaler(json!({"maxReplicas": 0})),
                "spec.maxReplicas: Required value: must be set and greater than 0",
            ),
            (
                autoscaler(json!({"maxReplicas": -1})),
                "spec.maxReplicas: Invalid value: -1: must be greater than or equal to 1",
            ),
            (
                autoscaler(json!({"minReplicas": 0})),
                "spec.metrics: Forbidden: must specify at least one Object or External metric to support scaling to zero",
            ),
            (target(json!({"apiVersion": "v1"})), "\"v1\": apiVersion must specify API group"),
            (target(json!({"apiVersion": "a/b/c"})), "\"a/b/c\": unexpected GroupVersion string: a/b/c"),
            (
                down(json!({"stabilizationWindowSeconds": -1})),
                "stabilizationWindowSeconds: Invalid value: -1: must be greater than or equal to zero",
            ),
            (
                down(json!({"policies": [{"value": 1, "periodSeconds": 1}]})),
                "policies[0].type: Unsupported value: \"\": supported values: \"Percent\", \"Pods\"",
            ),
        ],
    )
    .await;
    accepted(&api, &path, &[target(json!({"apiVersion": null, "kind": "ReplicationController"}))]).await;
    api.post(&path, autoscaler(json!({}))).await.expect(201);
    let status = |field: &str| json!({"status": {field: -1}});
    kept(
        &api,
        &format!("{path}/h/status"),
        &[
            (status("currentReplicas"), "status.currentReplicas: Invalid value: -1: must be greater than"),
            (status("desiredReplicas"), "status.desiredReplicas: Invalid value: -1: must be greater than"),
        ],
    )
    .await;
    api.done().await;
}

#[tokio::test]
async fn autoscalers_have_metrics_with_targets() {
    let api = Api::new().await;
    let path = api.group("autoscaling/v2", "horizontalpodautoscalers");
    let metric = |metric: Value| autoscaler(json!({"metrics": [metric]}));
    let of = |kind: &str, field: &str, source: Value| metric(json!({"type": kind, field: source}));
    let named = |target: Value| json!({"metric": {"name": "m"}, "target": target});
    let cpu = |target: Value| of("Resource", "resource", json!({"name": "cpu", "target": target}));
    refused(
        &api,
        &path,
        &[
            (metric(json!({})), "spec.metrics[0].type: Required value: must specify a metric source type"),
            (metric(json!({})), "\"ContainerResource\", \"External\", \"Object\", \"Pods\", \"Resource\""),
            (
                of("Pods", "pods", named(json!({"type": "AverageValue"}))),
                "pods.target.averageValue: Required value: must specify a positive target averageValue",
            ),
            (
                of("External", "external", named(json!({"type": "Value", "value": "1", "averageValue": "1"}))),
                "external.target.value: Forbidden: may not set both a target value for metric and a per-pod target",
            ),
            (
                of("External", "external", named(json!({"type": "Value", "value": "0"}))),
                "external.target.value: Invalid value: \"0\": must be positive",
            ),
            (
                of("External", "external", json!({"target": {"type": "Value", "value": "1"}})),
                "external.metric.name: Required value: must specify a metric name",
            ),
            (
                of("Object", "object", named(json!({"type": "Value", "value": "1"}))),
                "object.describedObject.kind: Required value",
            ),
            (
                cpu(json!({"type": "Utilization", "averageUtilization": 5, "averageValue": "1"})),
                "resource.target.averageValue: Forbidden: may not set both a target raw value",
            ),
            (
                cpu(json!({"averageUtilization": 5})),
                "resource.target.type: Required value: must specify a metric target type",
            ),
            (
                cpu(json!({"type": "X", "averageUtilization": 5})),
                "resource.target.type: Invalid value: \"X\": must be either Utilization, Value, or AverageValue",
            ),
        ],
    )
    .await;
    api.done().await;
}

#[tokio::test]
async fn bindings_show_what_may_not_change() {
    let api = Api::new().await;
    let path = format!("{RBAC}/namespaces/{}/rolebindings", api.ns);
    let binding = |change: Value| {
        let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"});
        merged(&json!({"metadata": {"name": "b"}, "roleRef": role}), &change)
    };
    refused(
        &api,
        &path,
        &[
            (
                binding(json!({"roleRef": {"kind": "Thing"}})),
                "roleRef.kind: Unsupported value: \"Thing\": supported values: \"Role\", \"ClusterRole\"",
            ),
            (
                binding(json!({"subjects": [{"kind": "Robot", "name": "x"}]})),
                "supported values: \"ServiceAccount\", \"User\", \"Group\"",
            ),
        ],
    )
    .await;
    api.post(&path, binding(json!({}))).await.expect(201);
    let shown = "roleRef: Invalid value: {\"APIGroup\":\"rbac.authorization.k8s.io\",\"Kind\":\"Role\",\"Name\":\"q\"}: cannot change roleRef";
    kept(&api, &format!("{path}/b"), &[(json!({"roleRef": {"name": "q"}}), shown)]).await;
    api.done().await;
}

fn rule(change: Value) -> Value {
    let base =
        json!({"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]});
    merged(&base, &change)
}

#[tokio::test]
async fn webhooks_are_told_what_is_wrong() {
    let api = Api::new().await;
    let hook = |change: Value| {
        let base = json!({"name": "a.b.c", "admissionReviewVersions": ["v1"], "sideEffects": "None",
            "clientConfig": {"url": "https://x/"}, "rules": []});
        json!({"metadata": {"name": random("w-")}, "webhooks": [merged(&base, &change)]})
    };
    let ruled = |change: Value| hook(json!({"rules": [rule(change)]}));
    let versions = |list: Value| hook(json!({"admissionReviewVersions": list}));
    let unknown = json!({"objectSelector": {"matchExpressions": [{"key": "a", "operator": "Is"}]}});
    let path = format!("{REGISTRATIONS}/mutatingwebhookconfigurations");
    refused(
        &api,
        &path,
        &[
            (
                hook(json!({"sideEffects": null})),
                "webhooks[0].sideEffects: Required value: must specify one of None, NoneOnDryRun",
            ),
            (versions(json!([])), "Required value: must specify one of v1, v1beta1"),
            (versions(json!(["v9"])), "must include at least one of v1, v1beta1"),
            (
                versions(json!(["v1", "v1"])),
                "webhooks[0].admissionReviewVersions[1]: Invalid value: \"v1\": duplicate version",
            ),
            (
                ruled(json!({"operations": ["READ"]})),
                "webhooks[0].rules[0].operations[0]: Unsupported value: \"READ\"",
            ),
            (
                ruled(json!({"scope": "Here"})),
                "scope: Unsupported value: \"Here\": supported values: \"*\", \"Cluster\", \"Namespaced\"",
            ),
            (
                ruled(json!({"resources": ["pods/*", "pods/log"]})),
                "resources[1]: Invalid value: \"pods/log\": if 'pods/*' is present, must not specify pods/log",
            ),
            (
                hook(json!({"name": "A.b.c"})),
                "webhooks[0].name: Invalid value: \"A.b.c\": a lowercase RFC 1123 subdomain",
            ),
            (hook(unknown), "webhooks[0].objectSelector.matchExpressions[0].operator: Invalid value: \"Is\""),
            (
                hook(json!({"reinvocationPolicy": "Often"})),
                "reinvocationPolicy: Unsupported value: \"Often\": supported values: \"IfNeeded\", \"Never\"",
            ),
            (
                hook(json!({"clientConfig": {"url": "http://x"}})),
                "url: Invalid value: \"http\": 'https' is the only allowed URL scheme; desired format: https://host[/path]",
            ),
        ],
    )
    .await;
    accepted(&api, &path, &[versions(json!(["v1beta1"])), ruled(json!({"resources": ["pods", "*"]}))]).await;
    api.done().await;
}

#[tokio::test]
async fn policies_are_told_what_is_wrong() {
    let api = Api::new().await;
    let policy = |spec: Value| {
        let base = json!({"metadata": {"name": random("p-")}, "spec": {
            "matchConstraints": {"resourceRules": [rule(json!({}))]}, "validations": [{"expression": "true"}]}});
        merged(&base, &json!({"spec": spec}))
    };
    let check =
        |change: Value| policy(json!({"validations": [merged(&json!({"expression": "true"}), &change)]}));
    let note = |key: &str, value: &str| {
        policy(json!({"auditAnnotations": [{"key": key, "valueExpression": value}]}))
    };
    let kind =
        |version: &str, kind: &str| policy(json!({"paramKind": {"apiVersion": version, "kind": kind}}));
    let none = "Required value: validations or auditAnnotations must contain at least one item";
    let [checks, notes] = ["validations", "auditAnnotations"].map(|list| format!("spec.{list}: {none}"));
    let path = format!("{REGISTRATIONS}/validatingadmissionpolicies");
    refused(
        &api,
        &path,
        &[
            (policy(json!({"validations": []})), checks.as_str()),
            (policy(json!({"validations": []})), notes.as_str()),
            (
                check(json!({"expression": " "})),
                "spec.validations[0].expression: Required value: expression is not specified",
            ),
            (check(json!({"message": " "})), "message: Invalid value: \" \": must be non-empty if specified"),
            (check(json!({"message": "a\nb"})), "\"a\\nb\": must not contain line breaks"),
            (
                check(json!({"messageExpression": " "})),
                "messageExpression: Invalid value: \" \": must be non-empty if specified",
            ),
            (
                policy(json!({"variables": [{"name": "in", "expression": "1"}]})),
                "spec.variables[0].name: Invalid value: \"in\": must be a valid CEL identifier",
            ),
            (note("a b", "'x'"), "spec.auditAnnotations[0].key: Invalid value: "),
            (note("a", ""), "valueExpression: Required value: valueExpression is not specified"),
            (kind("a/b/c", "K"), "unexpected GroupVersion string: a/b/c"),
            (kind("v1", "a_b"), "spec.paramKind.kind: Invalid value: \"a_b\": may have mixed case"),
        ],
    )
    .await;
    let lines = json!({"expression": "object.metadata.name != 'x' ||\n  object.metadata.name != 'y'"});
    accepted(&api, &path, &[check(lines), note("a", "'x'"), kind("apps/v1", "Deployment")]).await;
    api.done().await;
}

#[tokio::test]
async fn bindings_of_policies_are_told_what_is_wrong() {
    let api = Api::new().await;
    let binding = |spec: Value| {
        let base = json!({"metadata": {"name": random("b-")}, "spec": {"policyName": "p", "validationActions": ["Deny"]}});
        merged(&base, &json!({"spec": spec}))
    };
    let parameters = |change: Value| {
        let base = json!({"name": "a", "parameterNotFoundAction": "Deny"});
        binding(json!({"paramRef": merged(&base, &change)}))
    };
    let both = json!({"selector": {"matchLabels": {"a": "b"}}});
    let about = json!({"matchResources": {"resourceRules": [rule(json!({"operations": ["READ"]}))]}});
    refused(
        &api,
        &format!("{REGISTRATIONS}/validatingadmissionpolicybindings"),
        &[
            (
                parameters(both.clone()),
                "spec.paramRef.name: Forbidden: name and selector are mutually exclusive",
            ),
            (parameters(both), "spec.paramRef.selector: Forbidden: name and selector are mutually exclusive"),
            (
                parameters(json!({"parameterNotFoundAction": "Maybe"})),
                "Unsupported value: \"Maybe\": supported values: \"Deny\", \"Allow\"",
            ),
            (
                binding(about),
                "spec.matchResources.resourceRules[0].operations[0]: Unsupported value: \"READ\"",
            ),
            (binding(json!({"validationActions": []})), "at least one validation action is required"),
            (binding(json!({"policyName": "A B"})), "spec.policyName: Invalid value: \"A B\""),
        ],
    )
    .await;
    api.done().await;
}

#[tokio::test]
async fn definitions_are_told_what_is_wrong() {
    let api = Api::new().await;
    let group = format!("{}.example.com", random("g"));
    let version = |change: Value| {
        let base = json!({"name": "v1", "served": true, "storage": true,
            "schema": {"openAPIV3Schema": {"type": "object"}}});
        merged(&base, &change)
    };
    let definition = |change: Value| {
        let base = json!({"metadata": {"name": format!("things.{group}")}, "spec": {"group": group,
            "scope": "Namespaced", "names": {"plural": "things", "kind": "Thing"}, "versions": [version(json!({}))]}});
        merged(&base, &change)
    };
    let spec = |change: Value| definition(json!({"spec": change}));
    let hook = |change: Value| {
        let webhook = json!({"clientConfig": {"url": "https://x"}, "conversionReviewVersions": ["v1"]});
        spec(json!({"conversion": {"strategy": "Webhook", "webhook": merged(&webhook, &change)}}))
    };
    let service = json!({"clientConfig": {"service": {"namespace": "a", "name": "b"}}});
    let bare = json!({"strategy": "Webhook"});
    refused(
        &api,
        CRDS,
        &[
            (
                definition(json!({"metadata": {"name": "x.y"}})),
                "metadata.name: Invalid value: \"x.y\": must be spec.names.plural+\".\"+spec.group",
            ),
            (spec(json!({"scope": ""})), "spec.scope: Required value"),
            (
                spec(json!({"versions": [version(json!({})), version(json!({"storage": false}))]})),
                "must contain unique version names",
            ),
            (
                spec(json!({"versions": [version(json!({"additionalPrinterColumns": [{"name": "a", "type": "string"}]}))]})),
                "spec.additionalPrinterColumns[0].JSONPath: Required value",
            ),
            (
                spec(json!({"versions": [version(json!({"schema": null}))]})),
                "spec.versions[0].schema.openAPIV3Schema: Required value",
            ),
            (
                spec(json!({"conversion": bare.clone()})),
                "spec.conversion.webhookClientConfig: Required value: required when strategy is set to Webhook",
            ),
            (spec(json!({"conversion": bare})), "spec.conversion.conversionReviewVersions: Required value"),
            (
                hook(service),
                "spec.conversion.webhookClientConfig: Required value: exactly one of url or service is required",
            ),
            (
                hook(json!({"clientConfig": {"url": "http://x"}})),
                "spec.conversion.webhookClientConfig.url: Invalid value: \"http\"",
            ),
            (
                hook(json!({"conversionReviewVersions": ["v9"]})),
                "spec.conversion.conversionReviewVersions: Invalid value: [\"v9\"]: must include at least one of v1, v1beta1",
            ),
        ],
    )
    .await;
    accepted(&api, CRDS, &[definition(json!({})), hook(json!({}))]).await;
    api.done().await;
}

#[tokio::test]
async fn questions_of_rights_are_told_what_is_wrong() {
    let api = Api::new().await;
    let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
    let review = |change: Value| {
        let base = json!({"spec": {"user": "b", "resourceAttributes": {"verb": "get", "resource": "pods"}}});
        merged(&base, &change)
    };
    let both = json!({"spec": {"nonResourceAttributes": {"path": "/x", "verb": "get"}}});
    let cases = [
        (
            review(both),
            "spec.nonResourceAttributes: Invalid value: {\"Path\":\"/x\",\"Verb\":\"get\"}: cannot be specified in combination with resourceAttributes",
        ),
        (
            review(json!({"metadata": {"name": "x"}})),
            "metadata: Invalid value: {\"name\":\"x\"}: must be empty",
        ),
    ];
    refused(&api, path, &cases).await;
    // A newer client may know more operators.
    let near = json!({"labelSelector": {"requirements": [{"key": "a", "operator": "Near"}]}});
    api.post(path, review(json!({"spec": {"resourceAttributes": near}}))).await.expect(201);
    api.done().await;
}

const FLOW: &str = "/apis/flowcontrol.apiserver.k8s.io/v1";

#[tokio::test]
async fn levels_and_schemas_are_told_what_is_wrong() {
    let api = Api::new().await;
    let level = |spec: Value| json!({"metadata": {"name": random("l-")}, "spec": spec});
    let hands = json!({"type": "Queue", "queuing": {"queues": 1024, "handSize": 8, "queueLengthLimit": 5}});
    refused(
        &api,
        &format!("{FLOW}/prioritylevelconfigurations"),
        &[
            (level(json!({"type": "Exempt"})), "must be 'Exempt' if and only if `name` is 'exempt'"),
            (
                level(json!({"type": "Limited", "limited": {"limitResponse": hands}})),
                "required entropy bits of deckSize 1024 and handSize 8 should not be greater than 60",
            ),
        ],
    )
    .await;
    let schema = |change: Value| {
        let base = json!({"subjects": [{"kind": "Group", "group": {"name": "g"}}]});
        json!({"metadata": {"name": random("f-")}, "spec": {"priorityLevelConfiguration": {"name": "catch-all"},
            "rules": [merged(&base, &change)]}})
    };
    let resources = |change: Value| {
        let base = json!({"verbs": ["get"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"]});
        schema(json!({"resourceRules": [merged(&base, &change)]}))
    };
    let urls = |list: Value| schema(json!({"nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": list}]}));
    let account = json!({"subjects": [{"kind": "ServiceAccount", "serviceAccount": {"name": "*"}}]});
    let schemas = format!("{FLOW}/flowschemas");
    refused(
        &api,
        &schemas,
        &[
            (
                resources(json!({"verbs": ["frob"]})),
                "resourceRules[0].verbs: Unsupported value: [\"frob\"]: supported values: \"create\", \"delete\"",
            ),
            (
                resources(json!({"verbs": ["*", "get"]})),
                "if '*' is present, must not specify other verbs",
            ),
            (
                resources(json!({"apiGroups": ["*", "a"]})),
                "if '*' is present, must not specify other api groups",
            ),
            (
                resources(json!({"apiGroups": []})),
                "apiGroups: Required value: resource rules must supply at least one api group",
            ),
            (
                resources(json!({"resources": []})),
                "resources: Required value: resource rules must supply at least one resource",
            ),
            (resources(json!({"namespaces": ["A"]})), "each member of this list must be '*' or a DNS-1123 label; "),
            (schema(account), "namespace: Required value: must specify namespace for service account"),
            (urls(json!(["x"])), "nonResourceURLs[0]: Invalid value: \"x\": must start with slash"),
            (urls(json!(["*", "/a"])), "if '*' is present, must not specify other non-resource URLs"),
        ],
    )
    .await;
    accepted(&api, &schemas, &[resources(json!({})), urls(json!(["/a/*"]))]).await;
    api.done().await;
}

#[tokio::test]
async fn what_every_cluster_needs_stays_as_it_is() {
    let api = Api::new().await;
    let levels = format!("{FLOW}/prioritylevelconfigurations");
    let schemas = format!("{FLOW}/flowschemas");
    let label = json!({"metadata": {"labels": {"a": "b"}}});
    for path in [&levels, &schemas] {
        for name in ["exempt", "catch-all"] {
            api.patch(&format!("{path}/{name}?dryRun=All"), "merge", label.clone()).await.expect(200);
        }
    }
    let order = json!({"spec": {"matchingPrecedence": 9999}});
    let fixed = "spec of 'catch-all' must equal the fixed value";
    kept(&api, &format!("{schemas}/catch-all?dryRun=All"), &[(order, fixed)]).await;
    let lent = json!({"spec": {"limited": {"lendablePercent": 5}}});
    kept(&api, &format!("{levels}/catch-all?dryRun=All"), &[(lent, fixed)]).await;
    let shares = json!({"spec": {"exempt": {"nominalConcurrencyShares": 5}}});
    api.patch(&format!("{levels}/exempt?dryRun=All"), "merge", shares).await.expect(200);
    api.done().await;
}

#[tokio::test]
async fn decisions_on_certificates_stay() {
    let api = Api::new().await;
    let path = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
    let name = random("csr-");
    let asked = |request: &str| {
        json!({"metadata": {"name": name}, "spec": {"request": request, "usages": ["client auth"],
            "signerName": "example.com/signer"}})
    };
    let garbage = "spec.request: Invalid value: \"eA==\": PEM block type must be CERTIFICATE REQUEST";
    refused(&api, path, &[(asked("eA=="), garbage)]).await;
    api.post(path, asked(&signing_request("dave"))).await.expect(201);
    let at = format!("{path}/{name}/status");
    let said = |kinds: &[&str]| {
        let one = |kind: &&str| json!({"type": kind, "status": "True", "reason": "R"});
        json!({"status": {"conditions": kinds.iter().map(one).collect::<Vec<Value>>()}})
    };
    let added = "status.conditions: Forbidden: updates may not add a condition of type \"Approved\"";
    kept(&api, &at, &[(said(&["Approved"]), added)]).await;
    api.patch(&at, "merge", said(&["Failed"])).await.expect(200);
    let removed = "status.conditions: Forbidden: updates may not remove a condition of type \"Failed\"";
    let certificate = json!({"status": {"certificate": "eA=="}});
    let missing = "\"<certificate data>\": must contain at least one CERTIFICATE PEM block";
    kept(&api, &at, &[(said(&[]), removed), (certificate, missing)]).await;
    api.delete(&format!("{path}/{name}"), Value::Null).await.expect(200);
    api.done().await;
}

#[tokio::test]
async fn a_request_for_a_token_is_of_its_account() {
    let api = Api::new().await;
    let account = api.get(&api.core("serviceaccounts/default")).await.expect(200).body;
    let path = api.core("serviceaccounts/default/token");
    let asked = |meta: Value| json!({"metadata": meta, "spec": {}});
    let made = api.post(&path, asked(json!({"namespace": api.ns}))).await.expect(201).body;
    for field in ["name", "namespace", "uid"] {
        assert_eq!(made["metadata"][field], account["metadata"][field], "{field}");
    }
    api.post(&path, asked(json!({"namespace": "other"}))).await.fails(400, "BadRequest");
    let other = api.post(&path, asked(json!({"uid": "other"}))).await.fails(409, "Conflict");
    let says = "Operation cannot be fulfilled on TokenRequest.authentication.k8s.io \"default\": the UID in the token request (other)";
    assert!(other.message().starts_with(says), "{}", other.message());
    api.done().await;
}

#[tokio::test]
async fn api_services_are_told_what_is_wrong() {
    let api = Api::new().await;
    let service = |version: &str, group: &str, port: u32| {
        json!({"metadata": {"name": format!("{version}.{group}")}, "spec": {"group": group, "version": version,
            "groupPriorityMinimum": 100, "versionPriority": 10, "insecureSkipTLSVerify": true,
            "service": {"namespace": "default", "name": "s", "port": port}}})
    };
    let group = format!("{}.example.com", random("g"));
    let path = "/apis/apiregistration.k8s.io/v1/apiservices";
    refused(
        &api,
        path,
        &[
            (service("v2", "", 443), "spec.group: Required value: only v1 may have an empty group"),
            (service("V1", &group, 443), "spec.version: Invalid value: \"V1\": a DNS-1035 label"),
            (
                service("v1", &group, 70_000),
                "spec.service.port: Invalid value: 70000: port is not valid: must be between 1 and 65535, inclusive",
            ),
        ],
    )
    .await;
    accepted(&api, path, &[service("v1", &group, 443)]).await;
    api.done().await;
}
