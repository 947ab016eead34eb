//! Custom resources that were stored before their schema became stricter, and what definitions may say.

use crate::api::{Api, CRDS, random};
use serde_json::{Value, json};

fn definition(group: &str, root: Value) -> Value {
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("things.{group}")},
        "spec": {"group": group, "scope": "Namespaced", "names": {"plural": "things", "kind": "Thing"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": root}}]}})
}

fn of(spec: Value) -> Value {
    json!({"type": "object", "properties": {"spec": {"type": "object", "properties": spec}}})
}

/// Stores an object, and then makes the schema stricter.
async fn stricter(api: &Api, before: Value, after: Value, spec: Value) -> String {
    let group = format!("{}.example.com", random("g"));
    api.post(CRDS, definition(&group, of(before))).await.expect(201);
    let things = api.group(&format!("{group}/v1"), "things");
    let thing = |name: &str| json!({"apiVersion": format!("{group}/v1"), "kind": "Thing", "metadata": {"name": name}, "spec": spec});
    api.until_code(&things, 200).await;
    api.post(&things, thing("x")).await.expect(201);
    let versions = definition(&group, of(after))["spec"]["versions"].clone();
    api.patch(&format!("{CRDS}/things.{group}"), "merge", json!({"spec": {"versions": versions}}))
        .await
        .expect(200);
    for _ in 0..600 {
        if api.post(&format!("{things}?dryRun=All"), thing("y")).await.code == 422 {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    format!("{things}/x")
}

#[tokio::test]
async fn a_value_that_changes_must_be_valid_and_one_that_stays_need_not() {
    let api = Api::new().await;
    let text = json!({"a": {"type": "string"}, "b": {"type": "string"}});
    let short = json!({"a": {"type": "string", "maxLength": 1}, "b": {"type": "string", "maxLength": 1}});
    let x = stricter(&api, text, short, json!({"a": "zzz"})).await;
    api.patch(&x, "merge", json!({"metadata": {"labels": {"a": "b"}}})).await.expect(200);
    api.patch(&x, "merge", json!({"spec": {"b": "y"}})).await.expect(200);
    let refused = api.patch(&x, "merge", json!({"spec": {"a": "yyy"}})).await.fails(422, "Invalid");
    assert_eq!(refused.causes(), [("FieldValueTooLong", "spec.a")]);
    api.patch(&x, "merge", json!({"spec": {"a": "y"}})).await.expect(200);
    api.done().await;
}

#[tokio::test]
async fn items_of_a_map_list_are_compared_by_their_keys() {
    let api = Api::new().await;
    let list = |value: Value| {
        json!({"m": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
            "items": {"type": "object", "required": ["k"], "properties": {"k": {"type": "string"}, "v": value}}}})
    };
    let (before, after) = (list(json!({"type": "string"})), list(json!({"type": "string", "maxLength": 1})));
    let x = stricter(&api, before, after, json!({"m": [{"k": "a", "v": "bad"}]})).await;
    for (items, code) in [
        (json!([{"k": "b", "v": "x"}, {"k": "a", "v": "bad"}]), 200),
        (json!([{"k": "a", "v": "worse"}]), 422),
        (json!([{"k": "b", "v": "bad"}]), 422),
    ] {
        api.patch(&format!("{x}?dryRun=All"), "merge", json!({"spec": {"m": items}})).await.expect(code);
    }
    api.done().await;
}

#[tokio::test]
async fn a_schema_may_say_what_names_its_objects_have() {
    let api = Api::new().await;
    let group = format!("{}.example.com", random("g"));
    let root = json!({"type": "object", "properties": {"metadata": {"type": "object",
        "properties": {"name": {"type": "string", "pattern": "^ok"}}}}});
    api.post(CRDS, definition(&group, root)).await.expect(201);
    let things = api.group(&format!("{group}/v1"), "things");
    api.until_code(&things, 200).await;
    let thing = |name: &str| json!({"apiVersion": format!("{group}/v1"), "kind": "Thing", "metadata": {"name": name}});
    let refused = api.post(&things, thing("bad")).await.fails(422, "Invalid");
    assert_eq!(refused.causes(), [("FieldValueInvalid", "metadata.name")]);
    api.post(&things, thing("okay")).await.expect(201);
    api.done().await;
}

#[tokio::test]
async fn combinations_say_how_many_alternatives_fit() {
    let api = Api::new().await;
    let group = format!("{}.example.com", random("g"));
    let mut root = of(json!({"a": {"type": "integer"}, "b": {"type": "integer"}}));
    root["properties"]["spec"]["oneOf"] = json!([{"required": ["a"]}, {"required": ["b"]}]);
    api.post(CRDS, definition(&group, root)).await.expect(201);
    let things = api.group(&format!("{group}/v1"), "things");
    api.until_code(&things, 200).await;
    for (spec, says) in
        [(json!({"a": 1, "b": 2}), "Found 2 valid alternatives"), (json!({}), "Found none valid")]
    {
        let thing = json!({"apiVersion": format!("{group}/v1"), "kind": "Thing", "metadata": {"name": "x"}, "spec": spec});
        let refused = api.post(&things, thing).await.fails(422, "Invalid");
        let says = format!("\"spec\" must validate one and only one schema (oneOf). {says}");
        assert!(refused.message().contains(&says), "{}", refused.message());
    }
    api.done().await;
}

#[tokio::test]
async fn a_schema_that_cannot_be_kept_is_refused_at_its_place() {
    let api = Api::new().await;
    let text = json!({"type": "string"});
    let item = json!({"type": "object", "properties": {"k": text}});
    for (spec, field) in [
        (
            json!({"l": {"type": "array", "items": item, "x-kubernetes-list-map-keys": ["k"]}}),
            "[l].x-kubernetes-list-type",
        ),
        (
            json!({"l": {"type": "array", "items": item, "x-kubernetes-list-map-keys": ["k"], "x-kubernetes-list-type": "map"}}),
            "[l].items.properties[k].default",
        ),
        (
            json!({"l": {"type": "array", "items": item, "x-kubernetes-list-type": "set"}}),
            "[l].items.x-kubernetes-map-type",
        ),
        (json!({"s": {"type": "string", "x-kubernetes-map-type": "atomic"}}), "[s].type"),
        (
            json!({"o": {"type": "object", "additionalProperties": false, "properties": {"q": text}}}),
            "[o].additionalProperties",
        ),
        (
            json!({"i": {"type": "integer", "default": 9, "x-kubernetes-validations": [{"rule": "self < 5"}]}}),
            "[i].default",
        ),
        (json!({"o": {"type": "object", "default": {"z": 1}, "properties": {"q": text}}}), "[o].default"),
        (
            json!({"i": {"type": "integer", "x-kubernetes-validations": [{"rule": "self > 1", "fieldPath": ".z"}]}}),
            "[i].x-kubernetes-validations[0].fieldPath",
        ),
        (
            json!({"i": {"type": "integer", "x-kubernetes-validations": [{"rule": "self > 1", "optionalOldSelf": true}]}}),
            "[i].x-kubernetes-validations[0].optionalOldSelf",
        ),
    ] {
        let group = format!("{}.example.com", random("g"));
        let refused = api.post(CRDS, definition(&group, of(spec))).await.fails(422, "Invalid");
        let causes = refused.causes();
        assert!(causes.iter().any(|(_, at)| at.ends_with(field)), "{field}: {}", refused.text);
    }
    for (version, field) in [
        (json!({"selectableFields": [{"jsonPath": ".spec.nope"}]}), "selectableFields[0].jsonPath"),
        (json!({"selectableFields": [{"jsonPath": ".metadata.name"}]}), "selectableFields[0].jsonPath"),
        (json!({"selectableFields": [{"jsonPath": ".spec"}]}), "selectableFields[0].jsonPath"),
        (
            json!({"additionalPrinterColumns": [{"name": "a", "type": "string", "jsonPath": "{"}]}),
            "additionalPrinterColumns[0].JSONPath",
        ),
    ] {
        let mut asked = definition(&format!("{}.example.com", random("g")), of(json!({"a": text})));
        let of_version = asked["spec"]["versions"][0].as_object_mut().unwrap();
        of_version.extend(version.as_object().unwrap().clone());
        let refused = api.post(CRDS, asked).await.fails(422, "Invalid");
        assert!(refused.causes().iter().any(|(_, at)| at.ends_with(field)), "{field}: {}", refused.text);
    }
    api.done().await;
}

#[tokio::test]
async fn a_definition_that_goes_takes_no_new_objects() {
    let api = Api::new().await;
    let group = format!("{}.example.com", random("g"));
    api.post(CRDS, definition(&group, of(json!({})))).await.expect(201);
    let things = api.group(&format!("{group}/v1"), "things");
    api.until_code(&things, 200).await;
    let thing = |name: &str| json!({"apiVersion": format!("{group}/v1"), "kind": "Thing", "metadata": {"name": name}});
    let mut held = thing("x");
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    api.post(&things, held).await.expect(201);
    api.delete(&format!("{CRDS}/things.{group}"), json!({})).await.expect(200);
    let refused = api.post(&things, thing("y")).await.fails(405, "MethodNotAllowed");
    assert_eq!(refused.message(), "create not allowed while custom resource definition is terminating");
    api.patch(&format!("{things}/x"), "merge", json!({"metadata": {"finalizers": null}})).await.expect(200);
    api.done().await;
}
