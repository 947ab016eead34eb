//! Claims of devices, their templates and classes: what may be asked for, given and reported, and by whom.

use crate::api::{Api, RBAC, random};
use crate::table::{LABEL, SUBDOMAIN, kept, merged, refused, tells};
use serde_json::{Value, json};

/// A claim with these devices.
fn claim(devices: Value) -> Value {
    json!({"metadata": {"name": "c"}, "spec": {"devices": devices}})
}

/// A request for one device of a class.
fn exactly(change: Value) -> Value {
    merged(&json!({"name": "r", "exactly": {"deviceClassName": "gpu"}}), &json!({"exactly": change}))
}

fn asks(requests: Value) -> Value {
    claim(json!({"requests": requests}))
}

#[tokio::test]
async fn claims_ask_for_devices_of_classes() {
    let api = Api::new().await;
    let path = api.group("resource.k8s.io/v1", "resourceclaims");
    let at = "spec.devices.requests[0]";
    let (both, one) =
        (exactly(json!({})), "exactly one of `exactly` or `firstAvailable` is required".to_string());
    let alternative = |name: &str| json!({"name": name, "deviceClassName": "gpu"});
    let first = |list: Vec<Value>| asks(json!([{"name": "r", "firstAvailable": list}]));
    let nine: Vec<Value> = (0..9).map(|i| alternative(&format!("s{i}"))).collect();
    let many: Vec<Value> = (0..33).map(|i| merged(&both, &json!({"name": format!("r{i}")}))).collect();
    let of = |change: Value| asks(json!([exactly(change)]));
    let key = format!("{at}.exactly.tolerations[0].key: Invalid value: \"a b\": name part must consist of…");
    let value = format!(
        "{at}.exactly.tolerations[0].value: Invalid value: \"x\": must be empty for operator `Exists`"
    );
    let operator = format!(
        "{at}.exactly.tolerations[1].operator: Unsupported value: \"Maybe\": supported values: \"Equal\", \"Exists\""
    );
    let effect = format!(
        "{at}.exactly.tolerations[1].effect: Unsupported value: \"Foo\": supported values: \"NoExecute\", \"NoSchedule\", \"None\""
    );
    let tolerations =
        json!([{"key": "a b", "operator": "Exists", "value": "x"}, {"operator": "Maybe", "effect": "Foo"}]);
    let cases: &[(Value, &[&str])] = &[
        (asks(json!([{"name": "r"}])), &[&format!("{at}: Required value: {one}")]),
        (
            asks(json!([merged(&both, &json!({"firstAvailable": [alternative("s")]}))])),
            &[&format!("{at}: Invalid value: null: {one}, but multiple fields are set")],
        ),
        (asks(json!([both, both])), &["spec.devices.requests[1]: Duplicate value: \"r\""]),
        (
            asks(json!([{"name": "R", "exactly": {"deviceClassName": "GPU"}}])),
            &[
                &format!("{at}.name: Invalid value: \"R\": {LABEL}"),
                &format!("{at}.exactly.deviceClassName: Invalid value: \"GPU\": {SUBDOMAIN}"),
            ],
        ),
        (asks(json!(many)), &["spec.devices.requests: Too many: 33: must have at most 32 items"]),
        (
            of(json!({"allocationMode": "Some"})),
            &[&format!(
                "{at}.exactly.allocationMode: Unsupported value: \"Some\": supported values: \"All\", \"ExactCount\""
            )],
        ),
        (
            of(json!({"allocationMode": "All", "count": 5})),
            &[&format!(
                "{at}.exactly.count: Invalid value: 5: must not be specified when allocationMode is 'All'"
            )],
        ),
        (
            of(json!({"count": -1})),
            &[&format!("{at}.exactly.count: Invalid value: -1: must be greater than zero")],
        ),
        (first(nine), &[&format!("{at}.firstAvailable: Too many: 9: must have at most 8 items")]),
        (
            first(vec![alternative("s"), alternative("s")]),
            &[&format!("{at}.firstAvailable[1]: Duplicate value: \"s\"")],
        ),
        (of(json!({"selectors": [{}]})), &[&format!("{at}.exactly.selectors[0].cel: Required value")]),
        (of(json!({"tolerations": tolerations})), &[&key, &value, &operator, &effect]),
    ];
    refused(&api, &path, cases).await;
    let made = api.post(&path, of(json!({"tolerations": [{"key": "k"}]}))).await.expect(201).body;
    let asked = &made["spec"]["devices"]["requests"][0]["exactly"];
    let whole = json!({"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1,
        "tolerations": [{"key": "k", "operator": "Equal"}]});
    assert_eq!(asked, &whole);
    let changed = json!({"spec": {"devices": {"requests": [{"name": "Q"}]}}});
    let shown = "spec: Invalid value: {\"Devices\":{\"Requests\":[{\"Name\":\"Q\",\"Exactly\":null,\"FirstAvailable\":null}],\"Constraints\":null,\"Config\":null}}: field is immutable";
    kept(&api, &format!("{path}/c"), &[(changed, &[shown])]).await;
    api.done().await;
}

#[tokio::test]
async fn selectors_of_devices_have_types_and_a_price() {
    let api = Api::new().await;
    let path = api.group("resource.k8s.io/v1", "resourceclaims");
    let at = "spec.devices.requests[0].exactly.selectors[0].cel.expression";
    let of = |text: &str| asks(json!([exactly(json!({"selectors": [{"cel": {"expression": text}}]}))]));
    for fine in [
        "device.attributes['a'].b",
        "device.capacity['a'].mem.compareTo(quantity('1Gi')) > 0",
        "cel.bind(d, device.attributes['a.b'], d.one && d.two)",
        "device.attributes['a'].ver.isGreaterThan(semver('1.2.3'))",
    ] {
        api.post(&format!("{path}?dryRun=All"), of(fine)).await.expect(201);
    }
    let nested = "device.attributes.exists(d, device.attributes[d].exists(a, device.attributes[d].exists(b, device.attributes[d].exists(c, true))))";
    let other = "must evaluate to bool or the unknown type, not";
    let nope = format!(
        "{at}: Invalid value: \"device.nope == 1\": compilation failed: ERROR: <input>:1:7: undefined field 'nope'\n | device.nope == 1\n | ......^"
    );
    let long = format!("'{}' == 'a'", "a".repeat(10_300));
    refused(
        &api,
        &path,
        &[
            (of("1"), &[&format!("{at}: Invalid value: \"1\": {other} int")]),
            (of("device.driver"), &[&format!("{at}: Invalid value: \"device.driver\": {other} string")]),
            (of("device"), &[&format!("{at}: Invalid value: \"device\": {other} kubernetes.DRADevice")]),
            (of("device.nope == 1"), &[&nope]),
            (of(nested), &[&format!("{at}: Forbidden: too complex, exceeds cost limit")]),
            (of(&long), &[&format!("{at}: Too long: may not be more than 10240 bytes")]),
            (
                of(""),
                &[&format!("{at}: Invalid value: \"\": compilation failed: ERROR: <input>:1:0: Syntax error: mismatched input '<EOF>' expecting…")],
            ),
        ],
    )
    .await;
    api.done().await;
}

#[tokio::test]
async fn constraints_and_configurations_name_requests() {
    let api = Api::new().await;
    let path = api.group("resource.k8s.io/v1", "resourceclaims");
    let with = |more: Value| {
        let alternative = json!({"name": "f", "firstAvailable": [{"name": "s", "deviceClassName": "gpu"}]});
        claim(merged(&json!({"requests": [exactly(json!({})), alternative]}), &more))
    };
    let constrained = |list: Value| with(json!({"constraints": list}));
    let configured = |list: Value| with(json!({"config": list}));
    let opaque =
        |driver: &str, parameters: Value| json!({"opaque": {"driver": driver, "parameters": parameters}});
    let at = |kind: &str, place: &str| format!("spec.devices.{kind}{place}");
    let c = |place: &str, says: &str| format!("{}: {says}", at("constraints", place));
    let k = |place: &str, says: &str| format!("{}: {says}", at("config", place));
    let other = "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'";
    let whole = "a fully qualified name must be a domain and a name separated by a slash";
    let identifier = "a valid C identifier must start with alphabetic character or '_', followed by a string of alphanumeric characters or '_' (e.g. 'my_name',  or 'MY_NAME',  or 'MyName', regex used for validation is '[A-Za-z_][A-Za-z0-9_]*')";
    let no_object = "Invalid value: \"<value omitted>\": must be a valid JSON object";
    let names = json!([{"matchAttribute": "a_b/1b"}, {"distinctAttribute": "/b"}, {"matchAttribute": "a/"}, {"matchAttribute": "b"}]);
    let drivers = json!([{"opaque": {}}, opaque("x y", json!(1)), opaque("A.b", json!({}))]);
    let large = opaque("a.b", json!({"a": "x".repeat(10_300)}));
    refused(
        &api,
        &path,
        &[
            (
                constrained(json!([{}])),
                &[&c("[0]", "Required value: exactly one of \"matchAttribute\" or \"distinctAttribute\" is required, but multiple fields are set")],
            ),
            (
                constrained(names),
                &[
                    &c("[0].matchAttribute", &format!("Invalid value: \"a_b\": {SUBDOMAIN}")),
                    &c("[0].matchAttribute", &format!("Invalid value: \"1b\": {identifier}")),
                    &c("[1].distinctAttribute", "Invalid value: \"\": the domain must not be empty"),
                    &c("[2].matchAttribute", "Invalid value: \"\": the name must not be empty"),
                    &c("[3].matchAttribute", &format!("Invalid value: \"b\": {whole}")),
                ],
            ),
            (
                constrained(json!([{"requests": ["r", "r", "zz", "f/s", "f/t", "a/b/c"], "matchAttribute": "a/b"}])),
                &[
                    &c("[0].requests[2]", &format!("Invalid value: \"zz\": {other}")),
                    &c("[0].requests[4]", &format!("Invalid value: \"f/t\": {other}")),
                    &c("[0].requests[5]", &format!("Invalid value: \"a/b/c\": {other}")),
                    &c("[0].requests[1]", "Duplicate value: \"r\""),
                ],
            ),
            (configured(json!([{}])), &[&k("[0].opaque", "Required value")]),
            (
                configured(drivers),
                &[
                    &k("[0].opaque.driver", "Required value"),
                    &k("[0].opaque.parameters", "Required value"),
                    &k("[1].opaque.driver", &format!("Invalid value: \"x y\": {SUBDOMAIN}")),
                    &k("[1].opaque.parameters", no_object),
                ],
            ),
            (
                configured(json!([large])),
                &[&k("[0].opaque.parameters", "Too long: may not be more than 10240 bytes")],
            ),
        ],
    )
    .await;
    api.done().await;
}

#[tokio::test]
async fn templates_and_classes() {
    let api = Api::new().await;
    let path = api.group("resource.k8s.io/v1", "resourceclaimtemplates");
    let template = |meta: Value, requests: Value| json!({"metadata": {"name": "t"}, "spec": {"metadata": meta, "spec": {"devices": {"requests": requests}}}});
    let good = json!([exactly(json!({}))]);
    let looks = json!([exactly(json!({"adminAccess": true}))]);
    let unmarked = "spec.devices.requests[0].adminAccess: Forbidden: admin access to devices requires the `resource.kubernetes.io/admin-access: true` label on the containing namespace";
    let one = "spec.spec.devices.requests[0]: Required value: exactly one of `exactly` or `firstAvailable` is required";
    let cannot = |field: &str| format!("spec.metadata.{field}: Forbidden: cannot be set");
    let cases: &[(Value, &[&str])] = &[
        (
            template(
                json!({"labels": {"a b": "c"}, "name": "x", "finalizers": ["a/b"], "uid": "u"}),
                good.clone(),
            ),
            &[
                "spec.metadata.labels: Invalid value: \"a b\": name part must consist of…",
                &cannot("name"),
                &cannot("uID"),
                &cannot("finalizers"),
            ],
        ),
        (template(json!({}), json!([{"name": "r"}])), &[one]),
        (template(json!({}), looks.clone()), &[unmarked]),
    ];
    refused(&api, &path, cases).await;
    let named = json!([merged(&looks[0], &json!({"name": "R"}))]);
    let label = format!("spec.devices.requests[0].name: Invalid value: \"R\": {LABEL}");
    let claims = api.group("resource.k8s.io/v1", "resourceclaims");
    refused(&api, &claims, &[(asks(named), &[unmarked, &label])]).await;
    let marked = json!({"metadata": {"labels": {"resource.kubernetes.io/admin-access": "true"}}});
    api.patch(&format!("/api/v1/namespaces/{}", api.ns), "merge", marked).await.expect(200);
    api.post(&path, template(json!({"labels": {"a": "b"}}), looks)).await.expect(201);
    let other =
        json!({"spec": {"spec": {"devices": {"requests": [exactly(json!({"deviceClassName": "q"}))]}}}});
    let shown = "spec: Invalid value: {\"labels\":{\"a\":\"b\"},\"Spec\":{\"Devices\":{\"Requests\":[{\"Name\":\"r\",\"Exactly\":{\"DeviceClassName\":\"q\",…";
    kept(&api, &format!("{path}/t"), &[(other, &[shown])]).await;
    let class = |spec: Value| json!({"metadata": {"name": random("k-")}, "spec": spec});
    let no_resource = |name: &str| {
        format!("spec.extendedResourceName: Invalid value: {name:?}: must be a valid extended resource name")
    };
    let classes = "/apis/resource.k8s.io/v1/deviceclasses";
    refused(
        &api,
        classes,
        &[
            (class(json!({"extendedResourceName": "gpu"})), &[&no_resource("gpu")]),
            (
                class(json!({"extendedResourceName": "kubernetes.io/gpu"})),
                &[&no_resource("kubernetes.io/gpu")],
            ),
            (
                class(json!({"selectors": [{}], "config": [{}]})),
                &["spec.selectors[0].cel: Required value", "spec.config[0].opaque: Required value"],
            ),
        ],
    )
    .await;
    let fine = class(json!({"extendedResourceName": "example.com/gpu"}));
    api.post(&format!("{classes}?dryRun=All"), fine).await.expect(201);
    api.done().await;
}

/// A device that is given to request `r`.
fn given(change: Value) -> Value {
    merged(&json!({"request": "r", "driver": "a.b", "pool": "p", "device": "d"}), &change)
}

/// What a driver says of a device.
fn said(change: Value) -> Value {
    merged(&json!({"driver": "a.b", "pool": "p", "device": "d"}), &change)
}

fn allocation(results: Value) -> Value {
    json!({"status": {"allocation": {"devices": {"results": results}}}})
}

/// A claim with one request.
async fn asked(api: &Api) -> String {
    let path = api.group("resource.k8s.io/v1", "resourceclaims");
    api.post(&path, asks(json!([exactly(json!({}))]))).await.expect(201);
    format!("{path}/c/status")
}

#[tokio::test]
async fn claims_are_given_devices() {
    let api = Api::new().await;
    let at = asked(&api).await;
    let user = |name: &str, uid: &str| json!({"resource": "pods", "name": name, "uid": uid});
    let users = json!({"status": {"reservedFor": [user("p", "1"), user("q", "1"), {}]}});
    let (r, c) = ("status.allocation.devices.results", "status.allocation.devices.config");
    let other = "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'";
    let normal = "uid must be in RFC 4122 normalized form, `xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx` with lowercase hexadecimal characters";
    let opaque = json!({"driver": "a.b", "parameters": {}});
    let mut bad = allocation(json!([
        given(json!({"request": "zz", "driver": "", "pool": "", "device": "D", "shareID": "x"})),
        given(json!({"shareID": "A23E4567-e89b-12d3-a456-426614174000"})),
        given(json!({"bindingConditions": ["a"]}))
    ]));
    bad["status"]["allocation"]["devices"]["config"] = json!([{"source": "", "opaque": opaque}, {"source": "From", "requests": ["r", "r", "q"], "opaque": opaque}]);
    kept(
        &api,
        &at,
        &[
            (
                users,
                &[
                    "status.reservedFor[2].resource: Required value",
                    "status.reservedFor[2].name: Required value",
                    "status.reservedFor[2].uid: Required value",
                    "status.reservedFor[1]: Duplicate value: \"1\"",
                    "status.reservedFor: Forbidden: may not be specified when `allocated` is not set",
                ],
            ),
            (
                bad,
                &[
                    &format!("{r}[0].request: Invalid value: \"zz\": {other}"),
                    &format!("{r}[0].driver: Required value"),
                    &format!("{r}[0].pool: Required value"),
                    &format!("{r}[0].device: Invalid value: \"D\": {LABEL}"),
                    &format!("{r}[0].shareID: Invalid value: \"x\": error validating uid: invalid UUID length: 1"),
                    &format!("{r}[1].shareID: Invalid value: \"A23E4567-e89b-12d3-a456-426614174000\": {normal}"),
                    &format!("{r}[2].bindingFailureConditions: Invalid value: null: bindingFailureConditions are required to use bindingConditions"),
                    &format!("{c}[0].source: Required value"),
                    &format!("{c}[1].source: Unsupported value: \"From\": supported values: \"FromClaim\", \"FromClass\""),
                    &format!("{c}[1].requests[2]: Invalid value: \"q\": {other}"),
                    &format!("{c}[1].requests[1]: Duplicate value: \"r\""),
                ],
            ),
            (
                allocation(json!([given(json!({"adminAccess": true}))])),
                &["status.allocation.devices.results[0].adminAccess: Forbidden: admin access to devices requires…"],
            ),
        ],
    )
    .await;
    api.done().await;
}

#[tokio::test]
async fn drivers_report_on_devices_that_are_given() {
    let api = Api::new().await;
    let at = asked(&api).await;
    let mut whole = allocation(json!([given(json!({}))]));
    whole["status"]["reservedFor"] = json!([{"resource": "pods", "name": "p", "uid": "1"}]);
    api.patch(&at, "merge", whole).await.expect(200);
    let shown = "status.allocation: Invalid value: {\"Devices\":{\"Results\":[{\"Request\":\"r\",\"Driver\":\"a.b\",\"Pool\":\"p\",\"Device\":\"e\",…";
    kept(&api, &at, &[(allocation(json!([given(json!({"device": "e"}))])), &[shown])]).await;
    let said_of = |list: Value| json!({"status": {"devices": list}});
    let (d, key) =
        ("status.devices", "{\"Driver\":\"a.b\",\"Pool\":\"p\",\"Device\":\"d\",\"ShareID\":\"\"}");
    let strange = said_of(json!([
        said(json!({"device": "x"})),
        said(json!({"data": [1]})),
        said(
            json!({"networkData": {"interfaceName": "x".repeat(257), "ips": ["1.2.3.4", "10.0.0.1/24", "10.0.0.1/24", "::0:1/64"]}})
        )
    ]));
    kept(
        &api,
        &at,
        &[(
            strange,
            &[
                &format!("{d}[0]: Invalid value: {}: must be an allocated device in the claim", key.replace("\"d\"", "\"x\"")),
                &format!("{d}[1].data: Invalid value: \"<value omitted>\": must be a valid JSON object"),
                &format!("{d}[2].networkData.interfaceName: Too long: may not be more than 256 bytes"),
                &format!("{d}[2].networkData.ips[0]: Invalid value: \"1.2.3.4\": must be a valid address in CIDR form, (e.g. 10.9.8.7/24 or 2001:db8::1/64)"),
                &format!("{d}[2].networkData.ips[3]: Invalid value: \"::0:1/64\": must be in canonical form (\"::1/64\")"),
                &format!("{d}[2].networkData.ips[2]: Duplicate value: \"10.0.0.1/24\""),
                &format!("{d}[2]: Duplicate value: {key}"),
            ],
        )],
    )
    .await;
    let told =
        api.patch(&at, "merge", said_of(json!([said(json!({"data": {"a": 1}}))]))).await.expect(200).body;
    assert_eq!(told["status"]["devices"][0]["data"], json!({"a": 1}));
    // What was said of a device goes with it.
    let freed = json!({"status": {"allocation": null, "reservedFor": null}});
    let left = api.patch(&at, "merge", freed).await.expect(200).body;
    assert!(left["status"].as_object().is_none_or(|status| status.is_empty()), "{}", left["status"]);
    api.done().await;
}

#[tokio::test]
async fn devices_are_given_and_reported_by_who_may() {
    let api = Api::new().await;
    let at = asked(&api).await;
    let (role, bob) = (random("dra-"), random("bob-"));
    let rules = json!([{"apiGroups": ["resource.k8s.io"], "resources": ["resourceclaims", "resourceclaims/status"], "verbs": ["*"]}]);
    api.post(&format!("{RBAC}/clusterroles"), json!({"metadata": {"name": role}, "rules": rules}))
        .await
        .expect(201);
    let binding = json!({"metadata": {"name": role}, "subjects": [{"kind": "User", "name": bob}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role}});
    api.post(&format!("{RBAC}/clusterrolebindings"), binding).await.expect(201);
    let by_bob = async |change: &Value| {
        let headers = [("content-type", "application/merge-patch+json"), ("impersonate-user", bob.as_str())];
        let start = std::time::Instant::now();
        loop {
            let answer = api.raw("PATCH", &at, &headers, change.to_string()).await;
            // A server may learn of the role a moment later.
            if answer.code != 403 || start.elapsed().as_secs() > 30 {
                return answer;
            }
        }
    };
    let given = allocation(json!([given(json!({}))]));
    let binds = format!(
        "status.allocation: Forbidden: changing status.allocation or status.reservedFor requires resource=\"resourceclaims/binding\", verb=\"patch\" permission: resourceclaims.resource.k8s.io is forbidden: User \"{bob}\" cannot patch resource \"resourceclaims/binding\" in API group \"resource.k8s.io\" at the cluster scope"
    );
    tells(&by_bob(&given).await, &[&binds]);
    api.patch(&at, "merge", given).await.expect(200);
    let reports = |driver: &str| {
        format!(
            "status.devices: Forbidden: changing status.devices requires resource=\"resourceclaims/driver\", verb=\"[arbitrary-node:patch]\" permission: resourceclaims.resource.k8s.io \"{driver}\" is forbidden: User \"{bob}\" cannot arbitrary-node:patch resource \"resourceclaims/driver\" in API group \"resource.k8s.io\" in the namespace \"{}\"",
            api.ns
        )
    };
    let missing = "status.devices[0]: Invalid value: {\"Driver\":\"c.d\",\"Pool\":\"p\",\"Device\":\"d\",\"ShareID\":\"\"}: must be an allocated device in the claim";
    let two = json!({"status": {"devices": [said(json!({"driver": "c.d"})), said(json!({}))]}});
    tells(&by_bob(&two).await, &[&reports("a.b"), &reports("c.d"), missing]);
    let rules = json!({"rules": [rules[0], {"apiGroups": ["resource.k8s.io"], "resources": ["resourceclaims/driver"],
        "resourceNames": ["a.b"], "verbs": ["arbitrary-node:patch"]}]});
    api.patch(&format!("{RBAC}/clusterroles/{role}"), "merge", rules).await.expect(200);
    let one = json!({"status": {"devices": [said(json!({}))]}});
    let start = std::time::Instant::now();
    while by_bob(&one).await.code != 200 {
        assert!(start.elapsed().as_secs() < 30, "never allowed");
    }
    for kind in ["clusterroles", "clusterrolebindings"] {
        api.delete(&format!("{RBAC}/{kind}/{role}"), Value::Null).await.expect(200);
    }
    api.done().await;
}
