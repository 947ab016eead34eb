//! Details of requests: which words a refusal has, what an option does, which rules a schema keeps.

use crate::api::{Answer, Api, CRDS, config_map, deployment, pod, random};
use serde_json::{Value, json};

const V2: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
const NO_PAGE: &str = "404 page not found\n";

/// A PATCH by server-side apply.
async fn apply(api: &Api, path: &str, manager: &str, body: Value) -> Answer {
    api.patch(&format!("{path}?fieldManager={manager}"), "apply", body).await
}

fn map(name: &str, data: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data})
}

fn managers(answer: &Answer) -> Vec<String> {
    let list = answer.body["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
    list.iter().map(|e| e["manager"].as_str().unwrap_or_default().to_string()).collect()
}

fn sniffed(answer: &Answer) -> bool {
    answer.headers.get("x-content-type-options").is_none_or(|v| v != "nosniff")
}

/// A kind of this test alone, and the path of its objects; one, `x`, is there.
async fn widgets(api: &Api) -> (String, String) {
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let version = json!([{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}}}]);
    let group = api.crd("widgets", "Widget", version).await;
    let path = api.group(&format!("{group}/v1"), "widgets");
    api.post(&path, widget(&group, "x")).await.expect(201);
    (group, path)
}

fn widget(group: &str, name: &str) -> Value {
    json!({"apiVersion": format!("{group}/v1"), "kind": "Widget", "metadata": {"name": name}})
}

#[tokio::test]
async fn conflicts_are_told_by_manager() {
    let api = Api::new().await;
    let maps = api.core("configmaps");
    let made = map("m", json!({"x": "1", "y": "1"}));
    api.post(&format!("{maps}?fieldManager=a"), made).await.expect(201);
    let at = format!("{maps}/m");
    apply(&api, &at, "b", map("m", json!({"z": "1"}))).await.expect(200);
    let two = "Apply failed with 2 conflicts: conflicts with \"a\" using v1:\n- .data.x\n- .data.y";
    let three = "Apply failed with 3 conflicts: conflicts with \"a\" using v1:\n- .data.x\n- .data.y\nconflicts with \"b\":\n- .data.z";
    for (data, says) in [
        (json!({"x": "2"}), "Apply failed with 1 conflict: conflict with \"a\" using v1: .data.x"),
        (json!({"x": "2", "y": "2"}), two),
        (json!({"x": "2", "y": "2", "z": "2"}), three),
    ] {
        let refused = apply(&api, &at, "c", map("m", data)).await.fails(409, "Conflict");
        assert_eq!(refused.message(), says);
    }
    api.done().await;
}

#[tokio::test]
async fn what_is_applied_is_of_the_type_of_the_url() {
    let api = Api::new().await;
    let other = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "m"}});
    let refused = apply(&api, &api.core("configmaps/m"), "a", other).await.fails(400, "BadRequest");
    assert_eq!(refused.message(), "invalid object type: /v1, Kind=Pod");
    let mut old = deployment("d");
    old["apiVersion"] = json!("apps/v1beta1");
    let at = api.group("apps/v1", "deployments/d");
    let refused = apply(&api, &at, "a", old).await.fails(400, "BadRequest");
    assert_eq!(refused.message(), "invalid object type: apps/v1beta1, Kind=Deployment");
    // Applied configurations are YAML, of which JSON is a part.
    let media = [("content-type", "application/apply-patch+json")];
    let path = api.core("configmaps/m?fieldManager=a");
    let body = map("m", json!({})).to_string();
    let refused = api.raw("PATCH", &path, &media, body).await.fails(415, "UnsupportedMediaType");
    assert_eq!(refused.message(), "415: Unsupported Media Type");
    api.done().await;
}

#[tokio::test]
async fn custom_resources_are_told_by_their_plural() {
    let api = Api::new().await;
    let (group, path) = widgets(&api).await;
    let at = format!("{path}/x");
    let refused = api.put(&at, widget(&group, "x")).await.fails(422, "Invalid");
    let says = format!(
        "widgets.{group} \"x\" is invalid: metadata.resourceVersion: Invalid value: 0: must be specified for an update"
    );
    assert_eq!((refused.message(), &refused.body["details"]["kind"]), (&*says, &json!("widgets")));
    let missing = api.get(&format!("{at}/scale")).await.fails(404, "NotFound");
    assert_eq!(missing.message(), format!("widgets.{group} \"x\" not found"));
    assert_eq!(missing.body["details"], json!({"name": "x", "group": group, "kind": "widgets"}));
    for (method, verb) in [("DELETE", "delete"), ("POST", "create")] {
        let json = [("content-type", "application/json")];
        let refused =
            api.raw(method, &format!("{at}/status"), &json, "{}").await.fails(405, "MethodNotAllowed");
        let says = format!("{verb} is not supported on resources of kind \"widgets.{group}\"");
        assert_eq!(refused.message(), says);
        assert_eq!(refused.body["details"], json!({"group": group, "kind": "widgets"}));
    }
    for media in ["application/json", "text/plain", "application/strategic-merge-patch+json"] {
        let refused = api.raw("PATCH", &at, &[("content-type", media)], "{}").await;
        let refused = refused.fails(415, "UnsupportedMediaType");
        let says = "the body of the request was in an unknown format - accepted media types include: application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml";
        assert_eq!((refused.message(), refused.body.get("details")), (says, None));
    }
    api.done().await;
}

#[tokio::test]
async fn a_custom_resource_says_what_it_is() {
    let api = Api::new().await;
    let (group, path) = widgets(&api).await;
    let mut other = widget(&group, "y");
    other["kind"] = json!("Foo");
    let refused = api.post(&path, other).await.fails(422, "Invalid");
    let says = format!("Widget.{group} \"y\" is invalid: kind: Invalid value: \"Foo\": must be Widget");
    assert_eq!(refused.message(), says);
    let refused = api.post(&path, widget("other.example.com", "y")).await.fails(400, "BadRequest");
    let says = format!(
        "the API version in the data (other.example.com/v1) does not match the expected API version ({group}/v1)"
    );
    assert_eq!(refused.message(), says);
    let at = format!("{path}/x");
    for (change, field) in [(json!({"kind": "Foo"}), "kind"), (json!({"apiVersion": "a.b/v1"}), "apiVersion")]
    {
        let refused = api.patch(&at, "merge", change).await.fails(422, "Invalid");
        assert_eq!(refused.causes(), [("FieldValueInvalid", field)]);
    }
    api.done().await;
}

#[tokio::test]
async fn what_nobody_serves_is_no_page() {
    let api = Api::new().await;
    let (group, _) = widgets(&api).await;
    let everywhere = format!("/apis/{group}/v1/widgets");
    for (method, path) in [
        ("GET", "/apis/nope.example.com/v1/things"),
        ("GET", "/apis/apps/v1beta1/deployments"),
        ("GET", &*format!("/apis/{group}/v1/gadgets")),
        ("GET", &*format!("{everywhere}/x")),
        ("POST", &*everywhere),
        ("DELETE", &*everywhere),
    ] {
        let json = [("content-type", "application/json")];
        let answer = api.raw(method, path, &json, widget(&group, "y").to_string()).await.expect(404);
        assert_eq!((answer.text.as_str(), sniffed(&answer)), (NO_PAGE, false), "{method} {path}");
    }
    api.get(&everywhere).await.expect(200);
    for path in ["/api/v1/foo", "/apis/apps/v1/foo"] {
        let answer = api.get(path).await.fails(404, "NotFound");
        assert_eq!(answer.message(), "the server could not find the requested resource");
    }
    api.done().await;
}

#[tokio::test]
async fn a_watch_without_a_revision_says_when_it_has_shown_all() {
    let api = Api::new().await;
    let path = api.core("secrets");
    api.post(&path, json!({"metadata": {"name": "a"}})).await.expect(201);
    for query in ["watch=true", "watch=1&resourceVersion=0", "watch=1&resourceVersion="] {
        let events =
            api.events(&format!("{path}?{query}&allowWatchBookmarks=true"), "application/json", 2).await;
        assert_eq!(
            (&events[0]["type"], &events[1]["type"]),
            (&json!("ADDED"), &json!("BOOKMARK")),
            "{query}"
        );
        assert_eq!(events[1]["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
    }
    let ends = format!("{path}?watch=true&timeoutSeconds=1");
    let events = api.events(&ends, "application/json", 9).await;
    assert!(events.iter().all(|e| e["type"] == "ADDED"), "{events:?}");
    api.done().await;
}

#[tokio::test]
async fn discovery_names_groups_alone() {
    let api = Api::new().await;
    for (path, core) in [("/api", true), ("/apis", false)] {
        let found = api.get_as(path, V2).await.expect(200).body;
        for item in found["items"].as_array().unwrap() {
            let fields: Vec<&String> = item["metadata"].as_object().unwrap().keys().collect();
            assert_eq!(fields.is_empty(), core, "{item}");
            assert!(core || fields == ["name"], "{item}");
        }
    }
    api.done().await;
}

#[tokio::test]
async fn an_empty_list_resets_who_owns_what() {
    let api = Api::new().await;
    let maps = api.core("configmaps");
    let at = format!("{maps}/m?fieldManager=second");
    for (n, list) in [json!([]), json!([{}])].into_iter().enumerate() {
        let name = format!("m{n}");
        api.post(&format!("{maps}?fieldManager=first"), config_map(&name)).await.expect(201);
        let at = at.replace("/m?", &format!("/{name}?"));
        let change = json!({"metadata": {"managedFields": list}, "data": {"b": "2"}});
        let merged = api.patch(&at, "merge", change).await.expect(200);
        assert_eq!(managers(&merged), ["second"], "{}", merged.text);
        let operation = json!([{"op": "replace", "path": "/metadata/managedFields", "value": list}]);
        let bare = api.patch(&at, "json", operation).await.expect(200);
        assert_eq!(managers(&bare), Vec::<String>::new(), "{}", bare.text);
    }
    // By a subresource the list is nobody's.
    let pods = api.core("pods");
    api.post(&format!("{pods}?fieldManager=first"), pod("p")).await.expect(201);
    for list in [json!([]), json!([{}]), json!([{"manager": "x"}])] {
        let change = json!({"metadata": {"managedFields": list}, "status": {"message": list.to_string()}});
        let kept =
            api.patch(&format!("{pods}/p/status?fieldManager=second"), "merge", change).await.expect(200);
        assert_eq!(managers(&kept), ["first", "second"], "{}", kept.text);
    }
    api.done().await;
}

#[tokio::test]
async fn a_patch_has_so_many_operations() {
    let api = Api::new().await;
    let maps = api.core("configmaps");
    api.post(&maps, config_map("m")).await.expect(201);
    let one = json!({"op": "add", "path": "/data/b", "value": "c"});
    let many = Value::Array(vec![one; 10_001]);
    let refused = api.patch(&format!("{maps}/m"), "json", many).await.fails(413, "RequestEntityTooLarge");
    let says = "Request entity too large: The allowed maximum operations in a JSON patch is 10000, got 10001";
    assert_eq!(refused.message(), says);
    api.done().await;
}

#[tokio::test]
async fn what_is_being_deleted_is_not_held_and_what_is_not_is_not_marked() {
    let api = Api::new().await;
    let maps = api.core("configmaps");
    let at = format!("{maps}/held");
    let mut held = config_map("held");
    held["metadata"]["finalizers"] = json!(["test.dev/hold"]);
    api.post(&maps, held).await.expect(201);
    let time = "2001-01-01T00:00:00Z";
    for (key, value, shown) in [
        ("deletionTimestamp", json!(time), format!("\"{time}\"")),
        ("deletionGracePeriodSeconds", json!(5), "5".into()),
    ] {
        let refused =
            api.patch(&at, "merge", json!({"metadata": {(key): value}})).await.fails(422, "Invalid");
        let says = format!("metadata.{key}: Invalid value: {shown}: field is immutable");
        assert!(refused.message().contains(&says), "{}", refused.text);
    }
    // One that stays for a while is told apart when its dependents are not to be orphans.
    api.delete(&at, json!({"orphanDependents": false})).await.expect(202);
    api.delete(&at, Value::Null).await.expect(200);
    let kept = api.patch(&at, "merge", json!({"metadata": {"deletionTimestamp": time}})).await.expect(200);
    assert_ne!(kept.body["metadata"]["deletionTimestamp"], time);
    let more = json!({"metadata": {"finalizers": ["test.dev/hold", "test.dev/c", "test.dev/b"]}});
    let refused = api.patch(&at, "merge", more).await.fails(422, "Invalid");
    let says = "found new finalizers []string{\"test.dev/b\", \"test.dev/c\"}";
    assert!(refused.message().ends_with(says), "{}", refused.text);
    api.patch(&at, "merge", json!({"metadata": {"finalizers": null}})).await.expect(200);
    api.done().await;
}

#[tokio::test]
async fn options_of_a_body_are_all_options() {
    let api = Api::new().await;
    let maps = api.core("configmaps");
    let at = format!("{maps}/m");
    api.post(&maps, config_map("m")).await.expect(201);
    let refused = api.delete(&at, json!({"dryRun": ["Some"]})).await.fails(422, "Invalid");
    let says = "dryRun: Unsupported value: [\"Some\"]: supported values: \"All\"";
    assert!(refused.message().contains(says), "{}", refused.text);
    api.delete(&at, json!({"dryRun": ["All"]})).await.expect(200);
    api.delete(&format!("{at}?dryRun=All"), Value::Null).await.expect(200);
    api.get(&at).await.expect(200);
    api.delete(&format!("{at}?dryRun=All&propagationPolicy=Sideways"), json!({})).await.expect(200);
    api.get(&at).await.expect(404);
    api.done().await;
}

#[tokio::test]
async fn only_equal_owners_are_one() {
    let api = Api::new().await;
    let maps = api.core("configmaps");
    let owner = api.post(&maps, config_map("owner")).await.expect(201).body;
    let one =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]});
    let mut controller = one.clone();
    controller["controller"] = json!(true);
    let owned = |list: Value| {
        let mut child = config_map("child");
        child["metadata"]["ownerReferences"] = list;
        child
    };
    let count = |answer: &Answer| answer.body["metadata"]["ownerReferences"].as_array().map_or(0, Vec::len);
    let made = api.post(&maps, owned(json!([one, controller]))).await.expect(201);
    assert_eq!((count(&made), made.warnings().len()), (2, 0), "{:?}", made.warnings());
    let at = format!("{maps}/child");
    let (early, late) =
        ("duplicate entries; API server", "duplicate entries after mutating admission happens");
    let put = api.put(&at, owned(json!([one, one, one]))).await.expect(200);
    let patched = api.patch(&at, "merge", owned(json!([controller, controller]))).await.expect(200);
    for (answer, says) in [(&put, early), (&patched, late)] {
        assert_eq!(count(answer), 1, "{}", answer.text);
        assert!(matches!(&answer.warnings()[..], [one] if one.contains(says)), "{:?}", answer.warnings());
    }
    api.done().await;
}

#[tokio::test]
async fn refusals_and_probes_are_plain() {
    let api = Api::new().await;
    let robot = api.account("robot").await;
    for (method, path, says) in [
        ("POST", "/version", "cannot post path \"/version\""),
        ("GET", "/metrics", "cannot get path \"/metrics\""),
        ("GET", "/api/v1/nodes", "cannot list resource \"nodes\""),
    ] {
        let refused = robot.raw(method, path, &[], Vec::new()).await.fails(403, "Forbidden");
        assert!(refused.message().contains(says), "{}", refused.text);
        assert!(!sniffed(&refused), "{method} {path}");
    }
    let ready = api.get("/readyz?verbose&exclude=ping&exclude=b&exclude=a").await.expect(200);
    assert!(!sniffed(&ready) && !sniffed(&api.get("/livez").await));
    for line in ["[+]ping excluded: ok\n", "[+]informer-sync ok\n", "no matches for \"a\",\"b\"\n"] {
        assert!(ready.text.contains(line), "{line}: {}", ready.text);
    }
    for check in ["shutdown", "informer-sync", "etcd-readiness"] {
        api.get(&format!("/readyz/{check}")).await.expect(200);
        api.get(&format!("/livez/{check}")).await.expect(404);
    }
    api.done().await;
}

fn definition(schema: &Value) -> Value {
    let group = format!("{}.example.com", random("g"));
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("things.{group}")},
        "spec": {"group": group, "scope": "Namespaced", "names": {"plural": "things", "kind": "Thing"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}]}})
}

#[tokio::test]
async fn value_validations_only_judge() {
    let api = Api::new().await;
    let base = json!({"type": "object", "properties": {"s": {"type": "string"}, "l": {"type": "array", "items": {"type": "string"}}}});
    for (key, part, says) in [
        (
            "anyOf",
            json!([{"properties": {"foo": {}}}]),
            "properties[foo]: Required value: because it is defined in ",
        ),
        (
            "not",
            json!({"properties": {"s": {"items": {}}}}),
            "properties[s].items: Required value: because it is defined in ",
        ),
        (
            "oneOf",
            json!([{"properties": {"s": {"title": "t"}}}]),
            "oneOf[0].properties[s].title: Forbidden: must be empty to be structural",
        ),
        (
            "allOf",
            json!([{"properties": {"l": {"items": {"nullable": true}}}}]),
            "allOf[0].properties[l].items.nullable: Forbidden: must be false to be structural",
        ),
        (
            "not",
            json!({"properties": {"s": {"description": "d"}}}),
            "not.properties[s].description: Forbidden: must be empty to be structural",
        ),
        (
            "anyOf",
            json!([{"x-kubernetes-map-type": "atomic"}]),
            "anyOf[0].x-kubernetes-map-type: Forbidden: must be undefined to be structural",
        ),
        (
            "anyOf",
            json!([{"properties": {"l": {"x-kubernetes-list-type": "set"}}}]),
            "anyOf[0].properties[l].x-kubernetes-list-type: Forbidden: must be undefined to be structural",
        ),
        (
            "allOf",
            json!([{"x-kubernetes-validations": [{"rule": "true"}]}]),
            "allOf[0].x-kubernetes-validations: Forbidden: must be empty to be structural",
        ),
        (
            "anyOf",
            json!([{"properties": {"s": {"x-kubernetes-int-or-string": true}}}]),
            "anyOf[0].properties[s].x-kubernetes-int-or-string: Forbidden: must be false to be structural",
        ),
        (
            "not",
            json!({"properties": {"metadata": {}}}),
            "not.properties[metadata]: Forbidden: must not be specified in a nested context",
        ),
        ("anyOf", json!([{"type": "object"}]), "anyOf[0].type: Forbidden: must be empty to be structural"),
    ] {
        let mut schema = base.clone();
        schema[key] = part;
        let refused = api.post(CRDS, definition(&schema)).await.fails(422, "Invalid");
        assert!(refused.message().contains(says), "{says}\n{}", refused.message());
    }
    let mixed = json!([{"type": "integer"}, {"type": "string"}]);
    let pattern = json!([{"anyOf": mixed}, {"pattern": "^a"}]);
    for property in [
        json!({"x-kubernetes-int-or-string": true, "anyOf": mixed}),
        json!({"x-kubernetes-int-or-string": true, "allOf": pattern}),
        // Only the root is asked.
        json!({"type": "object", "anyOf": [{"properties": {"foo": {}}}]}),
    ] {
        let mut schema = base.clone();
        schema["properties"]["q"] = property;
        schema["oneOf"] = json!([{"required": ["s"]}, {"required": ["l"]}]);
        api.post(&format!("{CRDS}?dryRun=All"), definition(&schema)).await.expect(201);
    }
    api.done().await;
}

#[tokio::test]
async fn roots_and_items_have_types() {
    let api = Api::new().await;
    let text = json!({"type": "string"});
    let of = |property: Value| json!({"type": "object", "properties": {"o": property}});
    for (schema, says) in [
        (
            json!({"type": "object", "additionalProperties": text}),
            "openAPIV3Schema.additionalProperties: Forbidden: must not be used at the root",
        ),
        (json!({"description": "d"}), "openAPIV3Schema.type: Required value: must not be empty at the root"),
        (
            json!({"type": "object", "nullable": true}),
            "openAPIV3Schema.nullable: Forbidden: nullable cannot be true at the root",
        ),
        (
            of(json!({"type": "array", "items": {"description": "d"}})),
            "properties[o].items.type: Required value: must not be empty for specified array items",
        ),
        (
            of(json!({"x-kubernetes-int-or-string": true, "x-kubernetes-preserve-unknown-fields": true})),
            "x-kubernetes-preserve-unknown-fields: Invalid value: true: must be false if x-kubernetes-int-or-string is true",
        ),
        (
            of(json!({"type": "object", "properties": {"a": text}, "additionalProperties": text})),
            "additionalProperties: Forbidden: additionalProperties and properties are mutual exclusive",
        ),
        (
            of(json!({"type": "string", "$ref": "#/x"})),
            "properties[o].$ref: Forbidden: $ref is not supported",
        ),
        (of(json!({"type": "string", "id": "x"})), "properties[o].id: Forbidden: id is not supported"),
    ] {
        let refused = api.post(CRDS, definition(&schema)).await.fails(422, "Invalid");
        assert!(refused.message().contains(says), "{says}\n{}", refused.message());
        assert_eq!(refused.causes().len(), 1, "{}", refused.message());
    }
    let open = json!({"x-kubernetes-preserve-unknown-fields": true});
    api.post(&format!("{CRDS}?dryRun=All"), definition(&open)).await.expect(201);
    api.done().await;
}
