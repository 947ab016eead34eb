//! Groups of checks: how writes of all kinds go, whatever the kind says.

use crate::api::{Api, CRDS, RBAC, config_map, deployment, pod, random};
use crate::table::{Case, new_objects};
use serde_json::{Value, json};

#[tokio::test]
async fn applied_scales_own_the_replicas() {
    let api = Api::new().await;
    let path = api.group("apps/v1", "deployments");
    api.post(&path, deployment("d")).await.expect(201);
    let at = format!("{path}/d/scale?fieldManager=scaler");
    let scale = |n: i64| json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "d"}, "spec": {"replicas": n}});
    // The number that a creator left to the server is the creator's.
    let refused = api.patch(&at, "apply", scale(4)).await.fails(409, "Conflict");
    assert_eq!(refused.causes(), [("FieldManagerConflict", ".spec.replicas")]);
    let made = api.patch(&format!("{at}&force=true"), "apply", scale(4)).await.expect(200).body;
    assert_eq!((&made["kind"], &made["spec"]["replicas"]), (&json!("Scale"), &json!(4)));
    let seen = api.get(&format!("{path}/d")).await.body;
    assert_eq!(seen["spec"]["replicas"], 4);
    let entries = seen["metadata"]["managedFields"].as_array().unwrap();
    let mine = entries.iter().find(|e| e["manager"] == "scaler").unwrap();
    assert_eq!((&mine["operation"], &mine["subresource"]), (&json!("Apply"), &json!("scale")));
    assert_eq!(mine["fieldsV1"], json!({"f:spec": {"f:replicas": {}}}));
    let mut other = deployment("d");
    other["spec"]["replicas"] = json!(9);
    let lost =
        api.patch(&format!("{path}/d?fieldManager=other"), "apply", other).await.fails(409, "Conflict");
    assert!(lost.causes().contains(&("FieldManagerConflict", ".spec.replicas")), "{}", lost.text);
    api.patch(
        &at,
        "apply",
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}}),
    )
    .await
    .fails(400, "BadRequest");
    api.done().await;
}

#[tokio::test]
async fn some_kinds_ask_which_version_was_seen() {
    let api = Api::new().await;
    for (path, body) in [
        (
            api.group("coordination.k8s.io/v1", "leases"),
            json!({"metadata": {"name": "x"}, "spec": {"holderIdentity": "a"}}),
        ),
        (
            api.group("storage.k8s.io/v1", "csistoragecapacities"),
            json!({"metadata": {"name": "x"}, "storageClassName": "fast"}),
        ),
    ] {
        let made = api.post(&path, body.clone()).await.expect(201);
        let mut changed = body.clone();
        changed["metadata"]["labels"] = json!({"a": "b"});
        let refused = api.put(&format!("{path}/x"), changed.clone()).await.fails(422, "Invalid");
        assert_eq!(refused.causes(), [("FieldValueInvalid", "metadata.resourceVersion")]);
        changed["metadata"]["resourceVersion"] = json!(made.rv());
        api.put(&format!("{path}/x"), changed).await.expect(200);
    }
    let maps = api.core("configmaps");
    api.post(&maps, config_map("x")).await.expect(201);
    api.put(&format!("{maps}/x"), config_map("x")).await.expect(200);
    api.done().await;
}

#[tokio::test]
async fn some_kinds_are_made_by_a_put() {
    let api = Api::new().await;
    let role = json!({"metadata": {"name": "p"}, "rules": []});
    for (path, body) in [
        (
            api.group("coordination.k8s.io/v1", "leases"),
            json!({"metadata": {"name": "p"}, "spec": {"holderIdentity": "a"}}),
        ),
        (api.core("endpoints"), json!({"metadata": {"name": "p"}})),
        (api.core("services"), json!({"metadata": {"name": "p"}, "spec": {"ports": [{"port": 80}]}})),
        (format!("{RBAC}/namespaces/{}/roles", api.ns), role),
    ] {
        api.put(&format!("{path}/p"), body).await.expect(201);
        api.get(&format!("{path}/p")).await.expect(200);
    }
    api.put(&api.core("configmaps/p"), config_map("p")).await.fails(404, "NotFound");
    api.put(&api.core("pods/p"), pod("p")).await.fails(404, "NotFound");
    api.done().await;
}

#[tokio::test]
async fn making_by_apply_takes_the_right_to_create() {
    let api = Api::new().await;
    let role = json!({"metadata": {"name": "patcher"}, "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["patch", "get"]}]});
    api.post(&format!("{RBAC}/namespaces/{}/roles", api.ns), role).await.expect(201);
    let patcher = api.account("patcher").await;
    let bind = json!({"metadata": {"name": "patcher"}, "roleRef": {"kind": "Role", "name": "patcher"},
        "subjects": [{"kind": "ServiceAccount", "name": "patcher", "namespace": api.ns}]});
    api.post(&format!("{RBAC}/namespaces/{}/rolebindings", api.ns), bind).await.expect(201);
    let at = format!("{}?fieldManager=m", api.core("configmaps/new"));
    // A real server takes a moment to know the role.
    patcher.until_code(&api.core("configmaps/new"), 404).await;
    let refused = patcher.patch(&at, "apply", config_map("new")).await.fails(403, "Forbidden");
    assert!(refused.message().contains("cannot create resource \"configmaps\""), "{}", refused.message());
    api.post(&api.core("configmaps"), config_map("new")).await.expect(201);
    patcher.patch(&format!("{at}&force=true"), "apply", config_map("new")).await.expect(200);
    api.done().await;
}

#[tokio::test]
async fn an_owner_counts_once() {
    let api = Api::new().await;
    let owner = api.post(&api.core("configmaps"), config_map("owner")).await.expect(201).body;
    let reference =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]});
    let mut twice = config_map("child");
    twice["metadata"]["ownerReferences"] = json!([reference, reference]);
    let made = api.post(&api.core("configmaps"), twice).await.expect(201);
    assert_eq!(made.body["metadata"]["ownerReferences"].as_array().unwrap().len(), 1);
    assert!(made.warnings()[0].contains("duplicate UID(s) observed"), "{:?}", made.warnings());
    let mut two = config_map("two");
    let mut controller = reference.clone();
    controller["controller"] = json!(true);
    let mut other = controller.clone();
    other["uid"] = json!("another");
    two["metadata"]["ownerReferences"] = json!([controller, other]);
    let refused = api.post(&api.core("configmaps"), two).await.fails(422, "Invalid");
    assert!(
        refused.causes().contains(&("FieldValueInvalid", "metadata.ownerReferences")),
        "{}",
        refused.text
    );
    let mut nameless = config_map("n");
    nameless["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "v1", "kind": "", "name": "", "uid": ""}]);
    let refused = api.post(&api.core("configmaps"), nameless).await.fails(422, "Invalid");
    for field in ["kind", "name", "uid"] {
        let at = format!("metadata.ownerReferences.{field}");
        assert!(refused.causes().iter().any(|c| c.1 == at), "{}", refused.text);
    }
    api.done().await;
}

#[tokio::test]
async fn containers_for_debugging_come_and_stay() {
    let api = Api::new().await;
    api.post(&api.core("pods"), pod("p")).await.expect(201);
    let at = api.core("pods/p/ephemeralcontainers");
    let debug = |image: &str| json!({"spec": {"ephemeralContainers": [{"name": "d", "image": image}]}});
    let main = api.patch(&api.core("pods/p"), "strategic-merge", debug("sh")).await.fails(422, "Invalid");
    assert!(main.causes().contains(&("FieldValueForbidden", "spec")), "{}", main.text);
    let made = api.patch(&at, "strategic-merge", debug("sh")).await.expect(200).body;
    assert_eq!(made["spec"]["ephemeralContainers"][0]["name"], "d");
    api.patch(&at, "strategic-merge", debug("bash")).await.fails(422, "Invalid");
    api.patch(&at, "merge", json!({"spec": {"ephemeralContainers": []}})).await.fails(422, "Invalid");
    let probed = json!({"spec": {"ephemeralContainers": [{"name": "e", "image": "i", "livenessProbe": {"exec": {"command": ["a"]}}}]}});
    let refused = api.patch(&at, "strategic-merge", probed).await.fails(422, "Invalid");
    assert!(
        refused.causes().iter().any(|c| c.0 == "FieldValueForbidden" && c.1.ends_with("livenessProbe")),
        "{}",
        refused.text
    );
    api.done().await;
}

#[tokio::test]
async fn definitions_are_checked_beyond_their_schemas() {
    let api = Api::new().await;
    let group = format!("{}.example.com", random("g"));
    let version = |v: Value| {
        let base = json!({"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object",
            "properties": {"spec": {"type": "object", "properties": {"replicas": {"type": "integer"}}}}}}});
        json!([crate::table::merged(&base, &v)])
    };
    let base = json!({"metadata": {"name": format!("things.{group}")}, "spec": {"group": group, "scope": "Namespaced",
        "names": {"plural": "things", "kind": "Thing"}, "versions": version(json!({}))}});
    let names = |n: Value| json!({"spec": {"names": n}});
    let versions = |v: Value| json!({"spec": {"versions": version(v)}});
    let column = |c: Value| {
        versions(
            json!({"additionalPrinterColumns": [crate::table::merged(&json!({"name": "N", "type": "string", "jsonPath": ".spec.n"}), &c)]}),
        )
    };
    let property = |p: Value| {
        versions(json!({"schema": {"openAPIV3Schema": {"properties": {"spec": {"properties": {"x": p}}}}}}))
    };
    let scale = |s: Value| {
        versions(
            json!({"subresources": {"scale": crate::table::merged(&json!({"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}), &s)}}),
        )
    };
    let cases: &[Case] = &[
        (names(json!({"kind": "thing_s"})), "Invalid", "spec.names.kind"),
        (names(json!({"singular": "A"})), "Invalid", "spec.names.singular"),
        (names(json!({"shortNames": ["T"]})), "Invalid", "spec.names.shortNames[0]"),
        (names(json!({"listKind": "Thing"})), "Invalid", "spec.names.listKind"),
        (json!({"spec": {"scope": "Galaxy"}}), "NotSupported", "spec.scope"),
        (json!({"spec": {"preserveUnknownFields": true}}), "Invalid", "spec.preserveUnknownFields"),
        (json!({"spec": {"conversion": {"strategy": "Magic"}}}), "NotSupported", "spec.conversion.strategy"),
        (versions(json!({"name": "V1"})), "Invalid", "spec.versions[0].name"),
        (versions(json!({"deprecationWarning": "x"})), "Invalid", "spec.versions[0].deprecationWarning"),
        (column(json!({"type": "color"})), "Invalid", "spec.additionalPrinterColumns[0].type"),
        (column(json!({"name": ""})), "Required", "spec.additionalPrinterColumns[0].name"),
        (column(json!({"format": "x"})), "Invalid", "spec.additionalPrinterColumns[0].format"),
        (
            scale(json!({"specReplicasPath": ".status.x"})),
            "Invalid",
            "spec.subresources.scale.specReplicasPath",
        ),
        (scale(json!({"statusReplicasPath": ""})), "Required", "spec.subresources.scale.statusReplicasPath"),
        (
            property(json!({"type": "integer", "default": "seven"})),
            "TypeInvalid",
            "spec.validation.openAPIV3Schema.properties[spec].properties[x].default",
        ),
        (
            property(json!({"type": "object", "x-kubernetes-embedded-resource": true})),
            "Required",
            "spec.validation.openAPIV3Schema.properties[spec].properties[x].properties",
        ),
        (
            versions(
                json!({"schema": {"openAPIV3Schema": {"properties": {"metadata": {"type": "object", "properties": {"labels": {"type": "object"}}}}}}}),
            ),
            "Forbidden",
            "spec.validation.openAPIV3Schema.properties[metadata]",
        ),
    ];
    new_objects(&api, CRDS, &base, cases).await;
    let at = format!("{CRDS}/things.{group}");
    api.post(CRDS, base).await.expect(201);
    // Before, they may still change.
    api.until(&at, |a| a.body.to_string().contains("InitialNamesAccepted")).await;
    for (change, field) in [
        (json!({"spec": {"scope": "Cluster"}}), "spec.scope"),
        (json!({"spec": {"names": {"kind": "Other", "listKind": "OtherList"}}}), "spec.names.kind"),
        (versions(json!({"name": "v2"})), "status.storedVersions[0]"),
    ] {
        let refused = api.patch(&at, "merge", change).await.fails(422, "Invalid");
        assert!(refused.causes().contains(&("FieldValueInvalid", field)), "{field}: {}", refused.text);
    }
    api.delete(&at, Value::Null).await.expect(200);
    api.done().await;
}

#[tokio::test]
async fn nothing_is_written_in_a_dry_run_by_any_verb() {
    let api = Api::new().await;
    let pods = api.core("pods");
    api.post(&pods, pod("p")).await.expect(201);
    let before = api.get(&format!("{pods}/p")).await.rv();
    let bind = json!({"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n"}});
    api.post(&format!("{pods}/p/binding?dryRun=All"), bind).await.expect(201);
    api.post(&format!("{pods}/p/eviction?dryRun=All"), json!({"metadata": {"name": "p"}})).await.expect(201);
    api.patch(&format!("{pods}/p/status?dryRun=All"), "merge", json!({"status": {"phase": "Running"}}))
        .await
        .expect(200);
    api.patch(
        &format!("{pods}/p?dryRun=All&fieldManager=m"),
        "apply",
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "labels": {"a": "b"}}}),
    )
    .await
    .expect(200);
    api.delete(&format!("{pods}?dryRun=All"), Value::Null).await.expect(200);
    api.delete(&format!("{pods}/p"), json!({"dryRun": ["All"]})).await.expect(200);
    let after = api.get(&format!("{pods}/p")).await.expect(200);
    assert_eq!(after.rv(), before);
    for bad in ["dryRun=None", "dryRun="] {
        let answer = api.delete(&format!("{pods}/p?{bad}"), Value::Null).await;
        assert_eq!(answer.code, 422, "{bad}: {}", answer.text);
    }
    api.delete(&format!("{pods}/p"), json!({"kind": "Pod", "apiVersion": "v1"}))
        .await
        .fails(400, "BadRequest");
    api.done().await;
}

/// A write compares its lists with those before it by key. Item by item, 10,000 would take a minute of a core.
#[tokio::test]
async fn long_lists_cost_what_they_are_long() {
    const ITEMS: usize = 10_000;
    let api = Api::new().await;
    let path = api.group("apps/v1", "deployments");
    let with = |names: &mut dyn Iterator<Item = usize>| {
        let mut object = deployment("d");
        let env: Vec<Value> = names.map(|n| json!({"name": format!("E{n}"), "value": "v"})).collect();
        object["spec"]["template"]["spec"]["containers"][0]["env"] = json!(env);
        object
    };
    let count = |answer: &Value| {
        answer["spec"]["template"]["spec"]["containers"][0]["env"].as_array().map_or(0, Vec::len)
    };
    let began = std::time::Instant::now();
    let at = |manager: &str| format!("{path}/d?fieldManager={manager}&force=true");
    api.patch(&at("one"), "apply", with(&mut (0..ITEMS))).await.expect(201);
    // Half of them become another's too, which a change of the first leaves.
    api.patch(&at("two"), "apply", with(&mut (0..ITEMS / 2))).await.expect(200);
    let left = api.patch(&at("one"), "apply", with(&mut (ITEMS - 1..ITEMS))).await.expect(200).body;
    assert_eq!(count(&left), ITEMS / 2 + 1);
    let left = api.patch(&at("two"), "apply", with(&mut (0..1))).await.expect(200).body;
    assert_eq!(count(&left), 2);
    api.put(&format!("{path}/d?fieldManager=three"), with(&mut (0..ITEMS))).await.expect(200);
    let changed = api.put(&format!("{path}/d"), with(&mut (0..ITEMS).rev())).await.expect(200).body;
    assert_eq!(count(&changed), ITEMS);
    let finalizers: Vec<String> = (0..ITEMS).map(|n| format!("example.com/f{n}")).collect();
    let mut map = config_map("m");
    for finalizers in [&finalizers[..], &finalizers[1..], &[]] {
        map["metadata"]["finalizers"] = json!(finalizers);
        let path = format!("{}/m?fieldManager=one", api.core("configmaps"));
        let code = if finalizers.len() == ITEMS { 201 } else { 200 };
        api.patch(&path, "apply", map.clone()).await.expect(code);
    }
    assert!(began.elapsed().as_secs() < 30, "{:?}", began.elapsed());
    api.done().await;
}
