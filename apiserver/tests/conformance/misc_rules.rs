//! Bodies and configurations that do not fit: which words a refusal has, and who owns what in which order.

use crate::api::{Answer, Api, config_map, deployment};
use serde_json::{Value, json};

const JSON: [(&str, &str); 1] = [("content-type", "application/json")];

async fn apply(api: &Api, path: &str, body: &Value) -> Answer {
    api.patch(path, "apply", body.clone()).await
}

#[tokio::test]
async fn a_configuration_that_no_schema_knows_is_told_by_path() {
    let api = Api::new().await;
    let at = format!("{}?fieldManager=m", api.group("apps/v1", "deployments/d"));
    let start = "failed to create typed patch object (/d; apps/v1, Kind=Deployment): ";
    let container = |fields: Value| json!({"template": {"spec": {"containers": [fields]}}});
    for (spec, says) in [
        (json!({"foo": 1}), ".spec.foo: field not declared in schema"),
        (json!({"replicas": "three"}), ".spec.replicas: expected numeric (int or float), got string"),
        (
            container(json!({"image": "i"})),
            ".spec.template.spec.containers: element 0: associative list with keys has an element that omits all key fields [\"name\"] (and doesn't have default values for any key fields)",
        ),
        (
            container(json!({"name": "c", "ports": [{"containerPort": 1}, {"containerPort": 1}]})),
            ".spec.template.spec.containers[name=\"c\"].ports: duplicate entries for key [containerPort=1,protocol=\"TCP\"]",
        ),
        (
            container(json!({"name": "c", "image": 5})),
            ".spec.template.spec.containers[name=\"c\"].image: expected string, got &value.valueUnstructured{Value:5}",
        ),
        (
            container(json!({"name": "c", "bar": 1, "foo": 1})),
            "errors:\n  .spec.template.spec.containers[name=\"c\"].bar: field not declared in schema\n  .spec.template.spec.containers[name=\"c\"].foo: field not declared in schema",
        ),
    ] {
        for option in ["", "&fieldValidation=Strict", "&fieldValidation=Ignore"] {
            let mut config =
                json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}});
            config["spec"] = spec.clone();
            let refused = apply(&api, &format!("{at}{option}"), &config).await.fails(500, "");
            if !says.starts_with("errors:") || api.embedded().is_some() {
                assert_eq!(refused.message(), format!("{start}{says}"), "{spec}{option}");
            }
        }
    }
    // The core group has no name, and the namespace is told as it was sent.
    let mut map = config_map("m");
    map["metadata"]["namespace"] = json!(api.ns);
    map["bogus"] = json!(true);
    let refused =
        apply(&api, &format!("{}?fieldManager=m", api.core("configmaps/m")), &map).await.fails(500, "");
    let says = "failed to create typed patch object";
    let says = format!("{says} ({}/m; /v1, Kind=ConfigMap): .bogus: field not declared in schema", api.ns);
    assert_eq!(refused.message(), says);
    api.done().await;
}

#[tokio::test]
async fn a_configuration_belongs_to_its_url() {
    let api = Api::new().await;
    let maps = api.core("configmaps");
    api.post(&format!("{maps}?fieldManager=a"), config_map("m")).await.expect(201);
    let at = format!("{maps}/m?fieldManager=b");
    let refused = apply(&api, &at, &config_map("other")).await.fails(400, "BadRequest");
    let says = "the name of the object (other) does not match the name on the URL (m)";
    assert_eq!(refused.message(), says);
    // A conflict is told before.
    let mut other = config_map("other");
    other["data"]["a"] = json!("2");
    apply(&api, &at, &other).await.fails(409, "Conflict");
    let mut elsewhere = config_map("m");
    elsewhere["metadata"]["namespace"] = json!("elsewhere");
    let refused = apply(&api, &at, &elsewhere).await.fails(400, "BadRequest");
    let says = "the namespace of the provided object does not match the namespace sent on the request";
    assert_eq!(refused.message(), says);
    for list in [json!([]), json!([{"manager": "x"}])] {
        let mut owned = config_map("m");
        owned["metadata"]["managedFields"] = list;
        let refused = apply(&api, &at, &owned).await.fails(400, "BadRequest");
        assert_eq!(refused.message(), "metadata.managedFields must be nil");
    }
    let mut new = config_map("new");
    new["metadata"]["uid"] = json!("u");
    let refused = apply(&api, &format!("{maps}/new?fieldManager=b"), &new).await.fails(409, "Conflict");
    let says = "Operation cannot be fulfilled on configmaps \"new\": uid mismatch: the provided object specified uid u, and no existing object was found";
    assert_eq!(refused.message(), says);
    for (body, found) in [(json!([]), "array"), (json!("x"), "string"), (json!(5), "number")] {
        let refused = apply(&api, &at, &body).await.fails(400, "BadRequest");
        let says = format!(
            "error decoding patch: error unmarshaling JSON: while decoding JSON: json: cannot unmarshal {found} into Go value of type map[string]interface {{}}"
        );
        assert_eq!(refused.message(), says);
    }
    api.done().await;
}

#[tokio::test]
async fn managers_have_names_that_can_be_printed() {
    let api = Api::new().await;
    let at = api.core("configmaps/m");
    let of = |cause: &Value| {
        format!("{}: {}", cause["field"].as_str().unwrap(), cause["message"].as_str().unwrap())
    };
    for (query, want) in [
        ("", vec!["fieldManager: Required value: is required for apply patch"]),
        (
            "?fieldManager=a%0Ab%09",
            vec![
                "fieldManager: Invalid value: \"a\\nb\\t\": invalid character U+000A (at position 1)",
                "fieldManager: Invalid value: \"a\\nb\\t\": invalid character U+0009 (at position 3)",
            ],
        ),
        (
            "?dryRun=x&fieldValidation=y",
            vec![
                "fieldManager: Required value: is required for apply patch",
                "dryRun: Unsupported value: [\"x\"]: supported values: \"All\"",
                "fieldValidation: Unsupported value: \"y\": supported values: \"\", \"Ignore\", \"Strict\", \"Warn\"",
            ],
        ),
    ] {
        let refused = apply(&api, &format!("{at}{query}"), &config_map("m")).await.fails(422, "Invalid");
        let causes = refused.body["details"]["causes"].as_array().unwrap();
        assert_eq!(causes.iter().map(of).collect::<Vec<_>>(), want, "{query}");
        assert!(
            refused.message().starts_with("PatchOptions.meta.k8s.io \"\" is invalid: "),
            "{}",
            refused.text
        );
    }
    let long = format!("{at}?fieldManager={}", "m".repeat(129));
    let refused = apply(&api, &long, &config_map("m")).await.fails(422, "Invalid");
    assert!(
        refused.message().ends_with("fieldManager: Too long: may not be more than 128 bytes"),
        "{}",
        refused.text
    );
    api.done().await;
}

fn entries(answer: &Answer) -> Vec<String> {
    let list = answer.body["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
    let text = |e: &Value, key: &str| e[key].as_str().unwrap_or_default().to_string();
    list.iter().map(|e| format!("{} {}", text(e, "operation"), text(e, "manager"))).collect()
}

#[tokio::test]
async fn owners_are_sorted() {
    let api = Api::new().await;
    let maps = api.core("configmaps");
    let made = api.post(&format!("{maps}?fieldManager=z"), config_map("m")).await.expect(201);
    assert_eq!(entries(&made), ["Update z"]);
    let at = |manager: &str| format!("{maps}/m?fieldManager={manager}");
    let own = |key: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": {(key): "1"}});
    apply(&api, &at("y"), &own("y")).await.expect(200);
    // Long enough for the next second: the younger comes last, whatever its name.
    tokio::time::sleep(std::time::Duration::from_millis(1100)).await;
    let last = apply(&api, &at("b"), &own("b")).await.expect(200);
    assert_eq!(entries(&last), ["Apply y", "Apply b", "Update z"]);
    let times: Vec<bool> = last.body["metadata"]["managedFields"]
        .as_array()
        .unwrap()
        .iter()
        .map(|e| e["time"].is_string())
        .collect();
    assert_eq!(times, [true, true, true]);
    // Who says what is there already changes nothing, so there is no time of a change.
    let also = apply(&api, &at("c"), &own("b")).await.expect(200);
    assert_eq!(entries(&also), ["Apply c", "Apply y", "Apply b", "Update z"]);
    assert!(also.body["metadata"]["managedFields"][0].get("time").is_none(), "{}", also.text);
    // What only goes away leaves the time of its owner as it was.
    tokio::time::sleep(std::time::Duration::from_millis(1100)).await;
    let time = |a: &Answer| {
        let list = a.body["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
        list.iter().find(|e| e["operation"] == "Update").map(|e| e["time"].to_string())
    };
    let less = api.patch(&at("z"), "merge", json!({"data": {"y": null}})).await.expect(200);
    assert_eq!(time(&less), time(&also), "{}", less.text);
    assert_eq!(entries(&less), ["Apply c", "Apply b", "Update z"]);
    // Entries that cannot be read are as none.
    let list = json!([{"manager": "x", "operation": "Sideways"}]);
    let kept = api.patch(&at("z"), "merge", json!({"metadata": {"managedFields": list}})).await.expect(200);
    assert_eq!(entries(&kept), entries(&less));
    api.done().await;
}

#[tokio::test]
async fn the_oldest_updates_become_one() {
    let api = Api::new().await;
    let maps = api.core("configmaps");
    api.post(&format!("{maps}?fieldManager=m00"), config_map("m")).await.expect(201);
    let mut last = Vec::new();
    for n in 1..=11 {
        let at = format!("{maps}/m?fieldManager=m{n:02}");
        let key = format!("k{n}");
        last = entries(&api.patch(&at, "merge", json!({"data": {(key): "1"}})).await.expect(200));
    }
    assert_eq!(last.len(), 10, "{last:?}");
    assert_eq!(last.iter().filter(|e| *e == "Update ancient-changes").count(), 1, "{last:?}");
    assert!(
        last.contains(&"Update m11".to_string()) && !last.contains(&"Update m00".to_string()),
        "{last:?}"
    );
    api.done().await;
}

#[tokio::test]
async fn conflicts_are_told_level_by_level() {
    let api = Api::new().await;
    let path = api.group("apps/v1", "deployments");
    let mut made = deployment("d");
    made["spec"]["paused"] = json!(true);
    made["spec"]["minReadySeconds"] = json!(1);
    made["spec"]["strategy"] = json!({"type": "Recreate"});
    api.post(&format!("{path}?fieldManager=a"), made).await.expect(201);
    let config = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"},
        "spec": {"paused": false, "minReadySeconds": 2, "strategy": {"type": "RollingUpdate"}}});
    let refused = apply(&api, &format!("{path}/d?fieldManager=b"), &config).await.fails(409, "Conflict");
    let says = "Apply failed with 3 conflicts: conflicts with \"a\" using apps/v1:\n- .spec.minReadySeconds\n- .spec.paused\n- .spec.strategy.type";
    assert_eq!(refused.message(), says);
    api.done().await;
}

#[tokio::test]
async fn a_body_that_is_no_json_is_shown() {
    let api = Api::new().await;
    let path = api.core("configmaps");
    let none = "couldn't get version/kind; json parse error:";
    let into = r#"Go value of type struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }"#;
    for (body, says) in [
        ("", format!("{none} unexpected end of JSON input (<empty>)")),
        ("{", format!("{none} unexpected end of JSON input ({{)")),
        (
            "not json",
            format!("{none} invalid character 'o' in literal null (expecting 'u') (6e6f74206a736f6e)"),
        ),
        ("{\"a\": }", format!("{none} invalid character '}}' looking for beginning of value ({{\"a\": }})")),
        ("{} x", format!("{none} invalid character 'x' after top-level value ({{}} x)")),
        ("[]", format!("{none} json: cannot unmarshal array into {into} (5b5d)")),
        (
            "{\"kind\": 5}",
            format!(
                "{none} json: cannot unmarshal number into Go struct field .kind of type string ({{\"kind\": 5}})"
            ),
        ),
        (
            "{\"apiVersion\": \"a/b/c\"}",
            "unexpected GroupVersion string: a/b/c ({\"apiVersion\": \"a/b/c\"})".into(),
        ),
    ] {
        let refused = api.raw("POST", &path, &JSON, body).await.fails(400, "BadRequest");
        let says = format!("the object provided is unrecognized (must be of type ConfigMap): {says}");
        assert_eq!(refused.message(), says, "{body}");
    }
    api.done().await;
}

#[tokio::test]
async fn a_field_of_another_type_is_told_by_its_struct() {
    let api = Api::new().await;
    let path = api.group("apps/v1", "deployments");
    let at = |pointer: &str, value: Value| {
        let mut body = deployment("d");
        let (parent, key) = pointer.rsplit_once('/').unwrap();
        body.pointer_mut(parent).unwrap()[key] = value;
        body
    };
    let start = "Deployment in version \"v1\" cannot be handled as a Deployment: ";
    for (body, says) in [
        (
            at("/spec/replicas", json!("three")),
            "json: cannot unmarshal string into Go struct field DeploymentSpec.spec.replicas of type int32",
        ),
        (
            at("/spec/replicas", json!(1.5)),
            "json: cannot unmarshal number 1.5 into Go struct field DeploymentSpec.spec.replicas of type int32",
        ),
        (
            at("/metadata/labels", json!({"a.b/c": true})),
            "json: cannot unmarshal bool into Go struct field ObjectMeta.metadata.labels of type string",
        ),
        (
            at("/spec/template/spec/containers", json!({})),
            "json: cannot unmarshal object into Go struct field PodSpec.spec.template.spec.containers of type []v1.Container",
        ),
        (
            at("/spec/template/spec/restartPolicy", json!(1)),
            "json: cannot unmarshal number into Go struct field PodSpec.spec.template.spec.restartPolicy of type v1.RestartPolicy",
        ),
        (
            at(
                "/spec/template/spec/containers",
                json!([{"name": "c", "resources": {"limits": {"cpu": "lots"}}}]),
            ),
            "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
        ),
        (
            at("/metadata/creationTimestamp", json!("yesterday")),
            "parsing time \"yesterday\" as \"2006-01-02T15:04:05Z07:00\": cannot parse \"yesterday\" as \"2006\"",
        ),
    ] {
        let refused = api.post(&path, body).await.fails(400, "BadRequest");
        assert_eq!(refused.message(), format!("{start}{says}"));
    }
    let secret = json!({"metadata": {"name": "s"}, "data": {"a": "b!"}});
    let refused = api.post(&api.core("secrets"), secret).await.fails(400, "BadRequest");
    let says = "Secret in version \"v1\" cannot be handled as a Secret: illegal base64 data at input byte 1";
    assert_eq!(refused.message(), says);
    api.done().await;
}

#[tokio::test]
async fn a_body_of_another_kind_is_not_converted() {
    let api = Api::new().await;
    let none = "in scheme \"pkg/api/legacyscheme/scheme.go:30\"";
    for (kind, version, says) in [
        (
            "Secret",
            "v1",
            "Secret in version \"v1\" cannot be handled as a Deployment: converting (v1.Secret) to (apps.Deployment): unknown conversion".to_string(),
        ),
        (
            "Widget",
            "v1",
            format!("Widget in version \"v1\" cannot be handled as a Deployment: no kind \"Widget\" is registered for version \"v1\" {none}"),
        ),
        (
            "Deployment",
            "apps/v9",
            format!("Deployment in version \"v9\" cannot be handled as a Deployment: no kind \"Deployment\" is registered for version \"apps/v9\" {none}"),
        ),
        (
            "Deployment",
            "apps/v1beta1",
            "the API version in the data (apps/v1beta1) does not match the expected API version (apps/v1)".to_string(),
        ),
    ] {
        let mut body = deployment("d");
        body["kind"] = json!(kind);
        body["apiVersion"] = json!(version);
        let refused = api.post(&api.group("apps/v1", "deployments"), body).await.fails(400, "BadRequest");
        assert_eq!(refused.message(), says);
    }
    api.done().await;
}
