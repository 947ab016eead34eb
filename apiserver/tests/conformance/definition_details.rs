//! Details of definitions and custom resources: texts and order of causes, scales, columns, repeated keys, owners that are sent.

use crate::api::{Answer, Api, CRDS, TABLE, config_map, random};
use serde_json::{Value, json};

fn told(answer: &Answer) -> Vec<String> {
    let causes = answer.body["details"]["causes"].as_array().cloned().unwrap_or_default();
    let text = |cause: &Value, key: &str| cause[key].as_str().unwrap_or_default().to_string();
    causes.iter().map(|c| format!("{}: {}", text(c, "field"), text(c, "message"))).collect()
}

fn version(spec: Value) -> Value {
    json!({"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object",
        "properties": {"spec": spec, "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}}})
}

fn open() -> Value {
    json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
}

/// Makes a kind with this version; gives the path of its objects, and an object of a name and a spec.
async fn kind(api: &Api, version: Value) -> (String, Box<dyn Fn(&str, Value) -> Value>) {
    let group = api.crd("things", "Thing", json!([version])).await;
    let path = api.group(&format!("{group}/v1"), "things");
    let thing = move |name: &str, spec: Value| json!({"apiVersion": format!("{group}/v1"), "kind": "Thing", "metadata": {"name": name}, "spec": spec});
    (path, Box::new(thing))
}

/// Makes a ConfigMap that says who owns its fields.
async fn owned(api: &Api, name: &str, entries: Value) -> Answer {
    let mut object = config_map(name);
    object["data"] = json!({"a": "1"});
    object["metadata"]["managedFields"] = entries;
    api.post(&format!("{}?fieldManager=me", api.core("configmaps")), object).await
}

#[tokio::test]
async fn a_definition_is_told_what_is_wrong_in_order() {
    let api = Api::new().await;
    let label = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";
    let long = "A".repeat(64);
    let mut of_kind = version(json!({"type": "object", "properties": {"b": {"type": "colour"}, "a": {}}}));
    of_kind["additionalPrinterColumns"] = json!([{"name": "", "type": "string", "jsonPath": "spec"}]);
    let asked = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "other.example.com"},
        "spec": {"group": "example.com", "scope": "Galaxy", "versions": [of_kind],
            "names": {"plural": "things", "kind": "Thing", "singular": long}}});
    let refused = api.post(CRDS, asked).await.fails(422, "Invalid");
    let schema = "spec.validation.openAPIV3Schema.properties[spec]";
    let wants = [
        "metadata.name: Invalid value: \"other.example.com\": must be spec.names.plural+\".\"+spec.group".to_string(),
        "spec.scope: Unsupported value: \"Galaxy\": supported values: \"Cluster\", \"Namespaced\"".into(),
        format!("spec.names.singular: Invalid value: \"{long}\": must be no more than 63 characters,{label}"),
        format!("{schema}.properties[a].type: Required value: must not be empty for specified object fields"),
        format!("{schema}.properties[b].type: Unsupported value: \"colour\": supported values: \"array\", \"boolean\", \"integer\", \"number\", \"object\", \"string\""),
        "spec.additionalPrinterColumns[0].name: Required value".into(),
        "spec.additionalPrinterColumns[0].JSONPath: Invalid value: \"spec\": must be a simple json path starting with .".into(),
    ];
    assert_eq!(told(&refused), wants);
    api.done().await;
}

#[tokio::test]
async fn definitions_are_refused_in_words() {
    let api = Api::new().await;
    let nullable = json!({"schema": {"openAPIV3Schema": {"nullable": true}}});
    let status = |more: Value| crate::table::merged(&json!({"subresources": {"status": {}}}), &more);
    let selectable = |path: &str| json!({"selectableFields": [{"jsonPath": path}]});
    let at = "spec.selectableFields[0].jsonPath: Invalid value: ";
    for (change, want) in [
        (
            nullable,
            "spec.validation.openAPIV3Schema.nullable: Forbidden: nullable cannot be true at the root".to_string(),
        ),
        (
            json!({"deprecated": true, "deprecationWarning": ""}),
            "spec.versions[0].deprecationWarning: Invalid value: \"\": must not be an empty string".into(),
        ),
        (
            json!({"deprecated": true, "deprecationWarning": "a\u{7}"}),
            "spec.versions[0].deprecationWarning: Invalid value: \"a\\a\": must only contain printable UTF-8 characters; non-printable character found at index 1".into(),
        ),
        (
            status(json!({"schema": {"openAPIV3Schema": {"type": "array", "items": {"type": "string"}}}})),
            "spec.validation.openAPIV3Schema.type: Invalid value: \"array\": only \"object\" is allowed as the type at the root of the schema if the status subresource is enabled".into(),
        ),
        (selectable(".spec[0]"), format!("{at}\".spec[0]\": is an invalid path: array notation is not allowed")),
        (selectable("spec"), format!("{at}\"spec\": is an invalid path: expected [ or . but got: spec")),
        (selectable(".spec.x."), format!("{at}\".spec.x.\": is an invalid path: unexpected end of JSON path")),
        (
            json!({"subresources": {"scale": {"specReplicasPath": "spec.n", "statusReplicasPath": ".status.n"}}}),
            "spec.subresources.scale.specReplicasPath: Invalid value: \"spec.n\": must be a simple json path starting with .".into(),
        ),
    ] {
        let group = format!("{}.example.com", random("g"));
        let base = version(json!({"type": "object", "properties": {"x": {"type": "string"}}}));
        let asked = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("things.{group}")},
            "spec": {"group": group, "scope": "Namespaced", "names": {"plural": "things", "kind": "Thing"},
                "versions": [crate::table::merged(&base, &change)]}});
        let refused = api.post(CRDS, asked).await.fails(422, "Invalid");
        assert!(told(&refused).contains(&want), "{want}\n{}", refused.text);
    }
    api.done().await;
}

#[tokio::test]
async fn rules_that_are_not_judged_are_told() {
    let api = Api::new().await;
    let mut spec = json!({"type": "object", "properties": {"name": {"type": "string", "pattern": "^a", "maxLength": 3},
        "n": {"type": "integer"}}});
    spec["x-kubernetes-validations"] = json!([{"rule": "self.n < 5", "message": "n is small"}]);
    let (path, thing) = kind(&api, version(spec)).await;
    let unchecked = "<nil>: Invalid value: null: some validation rules were not checked because the object was invalid; correct the existing errors to complete validation";
    for (spec, want) in [
        (json!({"name": "b", "n": 9}), "spec: Invalid value: n is small"),
        (json!({"name": "abcd", "n": 9}), unchecked),
        (json!({"name": "a", "n": "x"}), unchecked),
    ] {
        let refused = api.post(&path, thing("t", spec)).await.fails(422, "Invalid");
        assert_eq!(told(&refused).pop().as_deref(), Some(want), "{}", refused.text);
    }
    api.done().await;
}

#[tokio::test]
async fn a_scale_has_the_numbers_of_its_object() {
    let api = Api::new().await;
    let mut of_kind = version(open());
    of_kind["subresources"] = json!({"status": {}, "scale": {"specReplicasPath": ".spec.size",
        "statusReplicasPath": ".status.size", "labelSelectorPath": ".status.selector"}});
    let (path, thing) = kind(&api, of_kind).await;
    let refused = api.post(&path, thing("t", json!({"size": -1}))).await.fails(422, "Invalid");
    assert_eq!(told(&refused), [".spec.size: Invalid value: -1: should be a non-negative integer"]);
    let refused = api.post(&path, thing("t", json!({"size": "x"}))).await.fails(422, "Invalid");
    let why = ".spec.size accessor error: x is of the type string, expected int64";
    assert_eq!(told(&refused), [format!(".spec.size: Invalid value: 0: {why}")]);

    api.post(&path, thing("t", json!({}))).await.expect(201);
    let scale = format!("{path}/t/scale");
    let missing = "the spec replicas field \".spec.size\" does not exist";
    let answer = api.get(&scale).await.fails(500, "InternalError");
    assert_eq!(answer.message(), format!("Internal error occurred: {missing}"));
    assert_eq!(answer.body["details"]["causes"][0]["message"], missing);
    let refused = api.patch(&scale, "merge", json!({"status": {}})).await.fails(400, "BadRequest");
    assert_eq!(refused.message(), "the spec replicas field \".spec.size\" cannot be empty");
    let made = api.patch(&scale, "merge", json!({"spec": {"replicas": 2}})).await.expect(200);
    assert_eq!(made.body["spec"]["replicas"], 2);
    let refused = api.patch(&scale, "merge", json!({"spec": {"replicas": -1}})).await.fails(422, "Invalid");
    assert_eq!(refused.body["details"]["kind"], "Thing", "the object is judged, and not the Scale");
    assert_eq!(refused.causes(), [("FieldValueInvalid", ".spec.size")]);

    let odd = json!({"status": {"size": 1, "selector": ["a"]}});
    let refused = api.patch(&format!("{path}/t/status"), "merge", odd).await.fails(422, "Invalid");
    let why = ".status.selector accessor error: [a] is of the type []interface {}, expected string";
    assert_eq!(told(&refused), [format!(".status.selector: Invalid value: \"\": {why}")]);
    api.done().await;
}

#[tokio::test]
async fn cells_have_the_type_of_their_column() {
    let api = Api::new().await;
    let column =
        |name: &str, ty: &str, path: &str| json!({"name": name, "type": ty, "jsonPath": path, "priority": 1});
    let mut of_kind = version(open());
    of_kind["additionalPrinterColumns"] = json!([
        column("A", "integer", ".spec.text"),
        column("B", "integer", ".spec.float"),
        column("C", "number", ".spec.n"),
        column("D", "boolean", ".spec.text"),
        column("E", "date", ".spec.text"),
        column("F", "string", ".spec.list[*].name"),
        column("G", "string", ".spec.list"),
        column("H", "string", ".spec.list[5].name"),
        column("I", "string", ".spec.list[?(@.name=='b')].n"),
        column("J", "string", ".spec.nothing"),
    ]);
    let (path, thing) = kind(&api, of_kind).await;
    let list = json!([{"name": "a<"}, {"name": "b", "n": 2}]);
    let spec = json!({"text": "x", "float": 2.5, "n": 3, "list": list, "nothing": null});
    api.post(&path, thing("t", spec)).await.expect(201);
    let table = api.get_as(&path, TABLE).await.expect(200).body;
    let shown = "[{\"name\":\"a\\u003c\"},{\"n\":2,\"name\":\"b\"}]";
    let wants = json!(["t", null, 2, 3, null, "<invalid>", "a<", shown, null, "2", "<no value>"]);
    assert_eq!(table["rows"][0]["cells"], wants);
    assert_eq!(table["columnDefinitions"][1]["priority"], 1);
    // A path that cannot be read ends the columns.
    let mut of_kind = version(open());
    of_kind["additionalPrinterColumns"] = json!([
        column("A", "string", ".spec.a"),
        column("B", "string", ".spec.b["),
        column("C", "string", ".spec.c")
    ]);
    let (path, _) = kind(&api, of_kind).await;
    let table = api.get_as(&path, TABLE).await.expect(200).body;
    assert_eq!(table["columnDefinitions"].as_array().map(Vec::len), Some(2), "{table}");
    api.done().await;
}

#[tokio::test]
async fn repeated_keys_of_yaml_are_told_by_their_lines() {
    let api = Api::new().await;
    let path = api.core("configmaps");
    let yaml = |name: &str| {
        format!("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name}\ndata:\n  a: x\n  a: z\n")
            .into_bytes()
    };
    let line = "line 7: key \"a\" already set in map";
    let send = |at: String, kind: &'static str, body: Vec<u8>| {
        let api = api.clone();
        let verb = if kind.ends_with("apply-patch+yaml") { "PATCH" } else { "POST" };
        async move { api.raw(verb, &at, &[("content-type", kind)], body).await }
    };
    let strict = send(format!("{path}?fieldValidation=Strict"), "application/yaml", yaml("a")).await;
    let strict = strict.fails(400, "BadRequest");
    let says = format!("strict decoding error: yaml: unmarshal errors:\n  {line}");
    assert!(strict.message().ends_with(&says), "{}", strict.text);
    let warned = send(path.clone(), "application/yaml", yaml("a")).await.expect(201);
    assert_eq!(warned.body["data"]["a"], "z", "the last one counts");
    assert_eq!(warned.warnings(), [format!("299 - \"{}\"", line.replace('"', "\\\""))]);
    let ignored = send(format!("{path}?fieldValidation=Ignore"), "application/yaml", yaml("b")).await;
    assert!(ignored.expect(201).warnings().is_empty());

    let applied = "application/apply-patch+yaml";
    let at = |more: &str| format!("{path}/c?fieldManager=m{more}");
    let strict = send(at("&fieldValidation=Strict"), applied, yaml("c")).await.fails(400, "BadRequest");
    let says = format!(
        "error strict decoding YAML: error converting YAML to JSON: yaml: unmarshal errors:\n  {line}"
    );
    assert_eq!(strict.message(), says);
    let warned = send(at(""), applied, yaml("c")).await.expect(201);
    assert_eq!(warned.warnings(), [format!("299 - \"{}\"", line.replace('"', "\\\""))]);
    api.done().await;
}

#[tokio::test]
async fn repeated_keys_of_json_are_told_where_they_are() {
    let api = Api::new().await;
    let path = format!("{}?fieldValidation=Strict", api.core("pods"));
    let body = br#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p"},"spec":{"bogus":{"a":1,"a":2},"containers":[{"name":"c","name":"d","image":"i"}]}}"#;
    let refused = api.raw("POST", &path, &[("content-type", "application/json")], body.to_vec()).await;
    let refused = refused.fails(400, "BadRequest");
    let says =
        "strict decoding error: duplicate field \"spec.containers[0].name\", unknown field \"spec.bogus\"";
    assert!(refused.message().ends_with(says), "{}", refused.text);
    api.done().await;
}

#[tokio::test]
async fn owners_that_come_with_a_new_object_are_kept() {
    let api = Api::new().await;
    let entry = |fields: Value| {
        json!({"manager": "other", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1",
            "time": "2026-01-01T00:00:00Z", "fieldsV1": fields})
    };
    let named = |answer: &Answer| -> Vec<String> {
        let list = answer.body["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
        list.iter()
            .map(|e| format!("{} {}", e["manager"].as_str().unwrap_or_default(), e["fieldsV1"]))
            .collect()
    };
    // What the object has belongs to who makes it; the rest stays.
    let some = json!([entry(json!({"f:data": {"f:a": {}, "f:b": {}}, "x:later": {}}))]);
    let made = owned(&api, "a", some).await.expect(201);
    let mine = "me {\"f:data\":{\".\":{},\"f:a\":{}}}";
    assert_eq!(named(&made), ["other {\"f:data\":{\"f:b\":{}}}", mine]);
    for entries in [
        json!([]),
        json!([{}]),
        json!([entry(json!({"data": {}}))]),
        json!([entry(json!({"k:{": {}}))]),
        json!([crate::table::merged(&entry(json!({"f:b": {}})), &json!({"operation": "Steal"}))]),
    ] {
        let made = owned(&api, &random("c-"), entries.clone()).await.expect(201);
        assert_eq!(named(&made), [mine], "{entries}");
    }
    let unseen = json!([crate::table::merged(&entry(json!({"f:b": {}})), &json!({"manager": "a\u{7}"}))]);
    let refused = owned(&api, "bad", unseen).await.fails(422, "Invalid");
    let says = "metadata.managedFields[0].manager: Invalid value: \"a\\a\": invalid character U+0007 (at position 1)";
    assert_eq!(told(&refused), [says]);
    api.done().await;
}

#[tokio::test]
async fn names_are_told_each_rule_that_they_break() {
    let api = Api::new().await;
    let name = "A".repeat(254);
    let refused = api.post(&api.core("configmaps"), config_map(&name)).await.fails(422, "Invalid");
    let shown = format!("metadata.name: Invalid value: \"{}…: ", &name[..199]);
    let found = told(&refused);
    assert_eq!(found.len(), 2, "{}", refused.text);
    assert_eq!(found[0], format!("{shown}must be no more than 253 characters"));
    assert!(found[1].starts_with(&format!("{shown}a lowercase RFC 1123 subdomain must")), "{}", found[1]);
    let mut object = config_map("a");
    object["metadata"]["labels"] = json!({"/": "-\u{200b}"});
    let refused = api.post(&api.core("configmaps"), object).await.fails(422, "Invalid");
    let starts = [
        "metadata.labels: Invalid value: \"/\": prefix part must be non-empty",
        "metadata.labels: Invalid value: \"/\": name part must be non-empty",
        "metadata.labels: Invalid value: \"/\": name part must consist of",
        "metadata.labels: Invalid value: \"-\\u200b\": a valid label must be",
    ];
    let found = told(&refused);
    assert_eq!(found.len(), starts.len(), "{}", refused.text);
    for (found, start) in found.iter().zip(starts) {
        assert!(found.starts_with(start), "{found}");
    }
    api.done().await;
}
