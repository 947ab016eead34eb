//! Definitions that the real server refuses: groups of the community, rules that cost too much, types, unknown fields.

use crate::api::{Api, CRDS, random};
use serde_json::{Value, json};

fn definition(group: &str, spec: Value) -> Value {
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("things.{group}")},
        "spec": {"group": group, "scope": "Namespaced", "names": {"plural": "things", "kind": "Thing"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema":
                {"type": "object", "properties": {"spec": spec}}}}]}})
}

fn ruled(rule: &str, bound: bool) -> Value {
    let mut list = json!({"type": "array", "items": {"type": "string"},
        "x-kubernetes-validations": [{"rule": rule, "message": "m"}]});
    if bound {
        list["maxItems"] = json!(50);
        list["items"]["maxLength"] = json!(30);
    }
    json!({"type": "object", "properties": {"names": list}})
}

#[tokio::test]
async fn a_group_of_the_community_needs_its_approval() {
    let api = Api::new().await;
    let plain = json!({"type": "object"});
    let group = format!("{}.k8s.io", random("g"));
    let refused = api.post(CRDS, definition(&group, plain.clone())).await.fails(422, "Invalid");
    let field = "metadata.annotations[api-approved.kubernetes.io]";
    assert_eq!(refused.causes(), [("FieldValueRequired", field)]);
    assert!(
        refused.message().contains(
            "protected groups must have approval annotation \"api-approved.kubernetes.io\", see https://github.com/kubernetes/enhancements/pull/1111"
        ),
        "{}",
        refused.message()
    );
    for (text, code) in [("yes", 422), ("https://example.com/pull/1", 201), ("unapproved, a test", 201)] {
        let group = format!("{}.sigs.k8s.io", random("g"));
        let mut asked = definition(&group, plain.clone());
        asked["metadata"]["annotations"] = json!({"api-approved.kubernetes.io": text});
        api.post(CRDS, asked).await.expect(code);
    }
    for free in ["x-k8s.io", "k8s.io.example.com", "myk8s.io"] {
        api.post(CRDS, definition(&format!("{}.{free}", random("g")), plain.clone())).await.expect(201);
    }
    api.done().await;
}

#[tokio::test]
async fn a_rule_that_can_cost_too_much_is_refused() {
    let api = Api::new().await;
    let rule = "self.all(x, self.exists_one(y, x == y))";
    let group = format!("{}.example.com", random("g"));
    let refused = api.post(CRDS, definition(&group, ruled(rule, false))).await.fails(422, "Invalid");
    let causes = refused.causes();
    assert!(causes.iter().all(|(reason, _)| *reason == "FieldValueForbidden"), "{causes:?}");
    assert!(
        causes[0]
            .1
            .ends_with("openAPIV3Schema.properties[spec].properties[names].x-kubernetes-validations[0].rule")
    );
    let text = refused.message();
    assert!(text.contains("estimated rule cost exceeds budget by factor of more than 100x"), "{text}");
    assert!(text.contains("cost total for entire OpenAPIv3 schema exceeds budget"), "{text}");
    let at = format!("{CRDS}/things.{group}");
    api.post(CRDS, definition(&group, ruled(rule, true))).await.expect(201);
    // A change may not bring it in either.
    let dear = definition(&group, ruled(rule, false))["spec"]["versions"].clone();
    api.patch(&at, "merge", json!({"spec": {"versions": dear}})).await.fails(422, "Invalid");
    api.patch(&at, "merge", json!({"metadata": {"labels": {"a": "b"}}})).await.expect(200);
    api.done().await;
}

#[tokio::test]
async fn a_rule_has_the_types_of_its_schema() {
    let api = Api::new().await;
    for (rule, why) in [
        ("self.exists(x, x > 1)", "found no matching overload for '_>_' applied to '(string, int)'"),
        ("self.bogus == 1", "type 'list(string)' does not support field selection"),
        ("size(self)", "cel expression must evaluate to a bool"),
        ("nothing(self)", "undeclared reference to 'nothing'"),
    ] {
        let group = format!("{}.example.com", random("g"));
        let refused = api.post(CRDS, definition(&group, ruled(rule, true))).await.fails(422, "Invalid");
        assert!(refused.message().contains(why), "{}", refused.message());
    }
    api.done().await;
}

#[tokio::test]
async fn unknown_fields_of_a_definition_are_refused_when_asked_for() {
    let api = Api::new().await;
    for (pointer, name) in [
        ("/spec", "bogusField"),
        ("/spec/names", "bogusName"),
        ("/spec/versions/0", "bogusVersion"),
        ("/spec/versions/0/schema", "bogusSchema"),
        ("/spec/versions/0/schema/openAPIV3Schema", "bogusRoot"),
        ("/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/names", "bogusKeyword"),
        (
            "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/names/x-kubernetes-validations/0",
            "bogusRule",
        ),
    ] {
        let group = format!("{}.example.com", random("g"));
        let mut asked = definition(&group, ruled("self.size() < 9", true));
        asked.pointer_mut(pointer).unwrap()[name] = json!(1);
        let refused =
            api.post(&format!("{CRDS}?fieldValidation=Strict"), asked.clone()).await.fails(400, "BadRequest");
        assert!(refused.message().contains(&format!("{name}\"")), "{}", refused.message());
        let warned = api.post(CRDS, asked).await.expect(201);
        assert!(warned.warnings().iter().any(|w| w.contains(name)), "{:?}", warned.warnings());
        assert_eq!(warned.body.pointer(&format!("{pointer}/{name}")), None, "{pointer}");
    }
    api.done().await;
}
