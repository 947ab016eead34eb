//! Registrations: APIServices, webhooks, policies that refuse and policies that change, and their bindings.

use crate::api::{Api, random};
use crate::table::{SUBDOMAIN, kept, merged, refused, tells};
use serde_json::{Value, json};

const GROUP: &str = "/apis/admissionregistration.k8s.io/v1";
const SERVICES: &str = "/apis/apiregistration.k8s.io/v1/apiservices";
const VERSION: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";

/// An APIService under the name that it has to have.
fn service(version: &str, group: &str, spec: Value) -> Value {
    let base = json!({"metadata": {"name": format!("{version}.{group}")}, "spec": {"group": group, "version": version,
        "groupPriorityMinimum": 100, "versionPriority": 10}});
    merged(&base, &json!({"spec": spec}))
}

#[tokio::test]
async fn api_services() {
    let api = Api::new().await;
    let group = format!("{}.example.com", random("g"));
    let named = |name: &str| merged(&service("v1", &group, json!({})), &json!({"metadata": {"name": name}}));
    let local = json!({"groupPriorityMinimum": 0, "versionPriority": 1001, "caBundle": "eA==", "insecureSkipTLSVerify": true});
    let must = format!("must be `spec.version+\".\"+spec.group`: \"v1.{group}\"");
    refused(
        &api,
        SERVICES,
        &[
            (named("x"), &[&format!("metadata.name: Invalid value: \"x\": {must}")]),
            (named("x/y"), &["metadata.name: Invalid value: \"x/y\": may not contain '/'"]),
            (
                service("v2", "", json!({})),
                &["spec.group: Required value: only v1 may have an empty group and it better be legacy kube"],
            ),
            (
                service("V.1", "G_", local),
                &[
                    &format!("spec.group: Invalid value: \"G_\": {SUBDOMAIN}"),
                    &format!("spec.version: Invalid value: \"V.1\": {VERSION}"),
                    "spec.groupPriorityMinimum: Invalid value: 0: must be positive and less than 20000",
                    "spec.versionPriority: Invalid value: 1001: must be positive and less than 1000",
                    "spec.caBundle: Invalid value: \"1 bytes\": local APIServices may not have a caBundle",
                    "spec.insecureSkipTLSVerify: Invalid value: true: local APIServices may not have insecureSkipTLSVerify",
                ],
            ),
            (
                service("v1", &group, json!({"service": {}, "insecureSkipTLSVerify": true, "caBundle": "eA=="})),
                &[
                    "spec.service.namespace: Required value",
                    "spec.service.name: Required value",
                    "spec.insecureSkipTLSVerify: Invalid value: true: may not be true if caBundle is present",
                ],
            ),
        ],
    )
    .await;
    let sent = service("v1", &group, json!({"service": {"namespace": "default", "name": "s", "port": 443}}));
    api.post(SERVICES, sent.clone()).await.expect(201);
    let at = format!("{SERVICES}/v1.{group}");
    // Who writes it says which version he has seen.
    tells(
        &api.put(&at, sent).await,
        &["metadata.resourceVersion: Invalid value: 0: must be specified for an update"],
    );
    let maybe = json!({"status": {"conditions": [{"type": "Available", "status": "Maybe"}]}});
    let words = "status.conditions[0].status: Unsupported value: \"Maybe\": supported values: \"True\", \"False\", \"Unknown\"";
    kept(&api, &format!("{at}/status"), &[(maybe, &[words])]).await;
    api.delete(&at, Value::Null).await.expect(200);
    api.done().await;
}

fn hook(change: Value) -> Value {
    let base = json!({"name": "a.b.c", "admissionReviewVersions": ["v1"], "sideEffects": "None",
        "clientConfig": {"url": "https://x/"}, "rules": []});
    json!({"metadata": {"name": random("w-")}, "webhooks": [merged(&base, &change)]})
}

fn rule(change: Value) -> Value {
    let base =
        json!({"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]});
    merged(&base, &change)
}

#[tokio::test]
async fn webhooks_have_an_address_and_rules() {
    let api = Api::new().await;
    let at = "webhooks[0]";
    let reached = |service: Value| hook(json!({"clientConfig": {"url": null, "service": service}}));
    let stars = json!({"scope": "X", "apiGroups": ["*", "a"], "apiVersions": ["*", ""], "operations": ["*", "X"],
        "resources": ["*", "pods", "", "pods/*", "pods/status", "*/x", "y/x", "*/*"]});
    let (r, shown) = (
        format!("{at}.rules[0]"),
        "Invalid value: [\"*\",\"pods\",\"\",\"pods/*\",\"pods/status\",\"*/x\",\"y/x\",\"*/*\"]: if",
    );
    let (c, port) = (
        format!("{at}.clientConfig.service"),
        "Invalid value: 70000: port is not valid: must be between 1 and 65535, inclusive",
    );
    refused(
        &api,
        &format!("{GROUP}/validatingwebhookconfigurations"),
        &[
            (
                // A real server takes one for the other.
                reached(json!({"namespace": "n", "port": 70_000, "path": "x//Y_/"})),
                &[
                    &format!("{c}.namespace: Required value"),
                    &format!("{c}.port: {port}"),
                    &format!("{c}.path: Invalid value: \"x//Y_/\": must start with a '/'"),
                    &format!("{c}.path: Invalid value: \"x//Y_/\": segment[0] may not be empty"),
                    &format!("{c}.path: Invalid value: \"x//Y_/\": segment[1] may not be empty"),
                    &format!("{c}.path: Invalid value: \"x//Y_/\": segment[2]: {SUBDOMAIN}"),
                ],
            ),
            (
                hook(json!({"failurePolicy": "", "matchPolicy": "", "sideEffects": ""})),
                &[
                    &format!("{at}.failurePolicy: Unsupported value: \"\": supported values: \"Fail\", \"Ignore\""),
                    &format!("{at}.matchPolicy: Unsupported value: \"\": supported values: \"Equivalent\", \"Exact\""),
                    &format!("{at}.sideEffects: Unsupported value: \"\": supported values: \"None\", \"NoneOnDryRun\""),
                ],
            ),
            (
                hook(json!({"rules": [rule(stars)]})),
                &[
                    &format!("{r}.operations: Invalid value: [\"*\",\"X\"]: if '*' is present, must not specify other operations"),
                    &format!("{r}.operations[1]: Unsupported value: \"X\": supported values: \"*\", \"CONNECT\", \"CREATE\", \"DELETE\", \"UPDATE\""),
                    &format!("{r}.apiGroups: Invalid value: [\"*\",\"a\"]: if '*' is present, must not specify other API groups"),
                    &format!("{r}.apiVersions: Invalid value: [\"*\",\"\"]: if '*' is present, must not specify other API versions"),
                    &format!("{r}.apiVersions[1]: Required value"),
                    &format!("{r}.resources[2]: Required value"),
                    &format!("{r}.resources[4]: Invalid value: \"pods/status\": if 'pods/*' is present, must not specify pods/status"),
                    &format!("{r}.resources[6]: Invalid value: \"y/x\": if '*/x' is present, must not specify y/x"),
                    &format!("{r}.resources: {shown} '*/*' is present, must not specify other resources"),
                    &format!("{r}.resources: {shown} '*' is present, must not specify other resources without subresources"),
                    &format!("{r}.scope: Unsupported value: \"X\": supported values: \"*\", \"Cluster\", \"Namespaced\""),
                ],
            ),
        ],
    )
    .await;
    api.done().await;
}

#[tokio::test]
async fn webhooks_match_by_conditions() {
    let api = Api::new().await;
    let at = "webhooks[0].matchConditions";
    let condition = |name: &str, expression: &str| json!({"name": name, "expression": expression});
    let conditions = json!([
        condition("", ""),
        condition("a b", " 1 "),
        condition("a", "namespaceObject.metadata.name == 'x'"),
        condition("a", "params.x"),
        condition("b", "request.nope == 1"),
        condition("e", "object.x")
    ]);
    let many: Vec<Value> = (0..65).map(|i| condition(&format!("n{i}"), "true")).collect();
    let params = "compilation failed: ERROR: <input>:1:1: undeclared reference to 'params' (in container '')\n | params.x\n | ^";
    let nope =
        "compilation failed: ERROR: <input>:1:8: undefined field 'nope'\n | request.nope == 1\n | .......^";
    let hooks = format!("{GROUP}/validatingwebhookconfigurations");
    refused(
        &api,
        &hooks,
        &[
            (
                hook(json!({"matchConditions": conditions})),
                &[
                    &format!("{at}[0].expression: Required value"),
                    &format!("{at}[0].name: Required value"),
                    &format!("{at}[1].expression: Invalid value: \"1\": must evaluate to bool but got int"),
                    &format!("{at}[1].name: Invalid value: \"a b\": name part must consist of…"),
                    &format!("{at}[3].expression: Invalid value: \"params.x\": {params}"),
                    &format!("{at}[3].name: Duplicate value: \"a\""),
                    &format!("{at}[4].expression: Invalid value: \"request.nope == 1\": {nope}"),
                    &format!(
                        "{at}[5].expression: Invalid value: \"object.x\": must evaluate to bool but got dyn"
                    ),
                ],
            ),
            (
                hook(json!({"matchConditions": many})),
                &[&format!("{at}: Too many: 65: must have at most 64 items")],
            ),
        ],
    )
    .await;
    let reserved = json!({"metadata": {"name": format!("{}.static.k8s.io", random("w-"))}});
    let made =
        api.post(&format!("{hooks}?dryRun=All"), merged(&hook(json!({})), &reserved)).await.expect(201);
    let warning = "are reserved for static manifest-based configurations and cannot be managed via the API";
    assert!(made.warnings().iter().any(|told| told.contains(warning)), "{:?}", made.warnings());
    api.done().await;
}

fn policy(spec: Value) -> Value {
    let base = json!({"metadata": {"name": random("p-")}, "spec": {
        "matchConstraints": {"resourceRules": [rule(json!({}))]}, "validations": [{"expression": "true"}]}});
    merged(&base, &json!({"spec": spec}))
}

#[tokio::test]
async fn policies_know_the_types_of_their_variables() {
    let api = Api::new().await;
    let at = "spec.validations";
    let checks = json!([{"expression": "object.x"}, {"expression": "variables.a"}, {"expression": "true", "messageExpression": "object.x"},
        {"expression": "true", "messageExpression": "authorizer.path('/x').check('get').reason()"},
        {"expression": "true", "reason": ""}, {"expression": "namespaceObject.metadata.nope == ''"}]);
    let variables = json!([{"name": "a", "expression": "1"}, {"name": "b", "expression": "has(object.b) ? object.b : 'b'"}]);
    let typed = json!([{"expression": "variables.zz == 1"}, {"expression": "variables.a == 'x'"},
        {"expression": "variables.b == 1", "messageExpression": "variables.a"}]);
    let of = |place: &str, text: &str, why: &str| format!("{at}{place}: Invalid value: \"{text}\": {why}");
    let failed = |column: usize, why: &str, text: &str| {
        format!(
            "compilation failed: ERROR: <input>:1:{column}: {why}\n | {text}\n | {}^",
            ".".repeat(column - 1)
        )
    };
    let none = |name: &str| format!("undeclared reference to '{name}' (in container '')");
    let reason = "authorizer.path('/x').check('get').reason()";
    let nope = "namespaceObject.metadata.nope == ''";
    refused(
        &api,
        &format!("{GROUP}/validatingadmissionpolicies"),
        &[
            (
                policy(json!({"validations": checks})),
                &[
                    &of("[0].expression", "object.x", "must evaluate to bool but got dyn"),
                    &of("[1].expression", "variables.a", &failed(1, &none("variables"), "variables.a")),
                    &of("[2].messageExpression", "object.x", "must evaluate to string but got dyn"),
                    &of("[3].messageExpression", reason, &failed(1, &none("authorizer"), reason)),
                    &format!("{at}[4].reason: Unsupported value: \"\": supported values: \"Forbidden\", \"Invalid\", \"RequestEntityTooLarge\""),
                    &of("[5].expression", nope, &failed(25, "undefined field 'nope'", nope)),
                ],
            ),
            (
                policy(json!({"variables": variables, "validations": typed})),
                &[
                    &of("[0].expression", "variables.zz == 1", &failed(10, "undefined field 'zz'", "variables.zz == 1")),
                    &of("[1].expression", "variables.a == 'x'", &failed(13, "found no matching overload for '_==_' applied to '(int, string)'", "variables.a == 'x'")),
                    &of("[2].messageExpression", "variables.a", "must evaluate to string but got int"),
                ],
            ),
        ],
    )
    .await;
    let made =
        api.post(&format!("{GROUP}/validatingadmissionpolicies"), policy(json!({}))).await.expect(201).body;
    let at = format!("{GROUP}/validatingadmissionpolicies/{}", made["metadata"]["name"].as_str().unwrap());
    let warnings = json!([{"warning": "", "fieldRef": ""}, {"warning": "x", "fieldRef": "a["}]);
    let status = json!({"status": {"typeChecking": {"expressionWarnings": warnings}}});
    let w = "status.typeChecking.expressionWarnings";
    kept(
        &api,
        &format!("{at}/status"),
        &[(
            status,
            &[
                &format!("{w}[0].warning: Required value"),
                &format!("{w}[0].fieldRef: Required value"),
                &format!("{w}[1].fieldRef: Invalid value: \"a[\": invalid JSONPath: unterminated array"),
            ],
        )],
    )
    .await;
    api.delete(&at, Value::Null).await.expect(200);
    api.done().await;
}

#[tokio::test]
async fn policies_that_change_have_types_and_operations() {
    let api = Api::new().await;
    let policy = |mutations: Value, rules: Value| {
        json!({"metadata": {"name": random("m-")}, "spec": {"matchConstraints": {"resourceRules": [rule(rules)]},
            "reinvocationPolicy": "Never", "mutations": mutations}})
    };
    let fields =
        |text: &str| json!({"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": text}});
    let patches = |text: &str| json!({"patchType": "JSONPatch", "jsonPatch": {"expression": text}});
    let mutations = json!([fields("Object{}"), fields("object"), patches("object"), patches("[1]"), patches("[]"), patches(" "), {"patchType": ""}, {"patchType": "X"}]);
    let (m, operations) = ("spec.mutations", "spec.matchConstraints.resourceRules.operations");
    refused(
        &api,
        &format!("{GROUP}/mutatingadmissionpolicies"),
        &[
            (
                policy(mutations, json!({})),
                &[
                    &format!("{m}[1].applyConfiguration.expression: Invalid value: \"object\": must evaluate to Object but got dyn"),
                    &format!("{m}[2].jsonPatch.expression: Invalid value: \"object\": must evaluate to list(JSONPatch) but got dyn"),
                    &format!("{m}[3].jsonPatch.expression: Invalid value: \"[1]\": must evaluate to list(JSONPatch) but got list(int)"),
                    &format!("{m}[4].jsonPatch.expression: Invalid value: \"[]\": must evaluate to list(JSONPatch) but got list(dyn)"),
                    &format!("{m}[5].jsonPatch.expression: Required value"),
                    &format!("{m}[6].patchType: Required value"),
                    &format!("{m}[7].patchType: Unsupported value: \"X\": supported values: \"ApplyConfiguration\", \"JSONPatch\""),
                ],
            ),
            (
                policy(json!([fields("Object{}")]), json!({"operations": ["CREATE", "DELETE"]})),
                &[&format!("{operations}: Unsupported value: \"DELETE\": supported values: \"*\", \"CONNECT\", \"CREATE\", \"UPDATE\"")],
            ),
        ],
    )
    .await;
    let bound = json!({"metadata": {"name": random("b-")}, "spec": {"policyName": "A_", "paramRef": {"name": "a/b", "selector": {}}}});
    refused(
        &api,
        &format!("{GROUP}/mutatingadmissionpolicybindings"),
        &[(
            bound,
            &[
                &format!("spec.policyName: Invalid value: \"A_\": {SUBDOMAIN}"),
                "spec.paramRef.name: Invalid value: \"a/b\": may not contain '/'",
                "spec.paramRef.name: Forbidden: name and selector are mutually exclusive",
                "spec.paramRef.selector: Forbidden: name and selector are mutually exclusive",
                "spec.paramRef.parameterNotFoundAction: Required value",
            ],
        )],
    )
    .await;
    api.done().await;
}
