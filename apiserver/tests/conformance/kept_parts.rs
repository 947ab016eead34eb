//! What stays of an object: its metadata when a status is written, its spec, what is shown of a change that is refused.

use crate::api::{Api, CRDS, deployment, pod, random};
use crate::table::{kept, refused, tells};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

/// The fields of the metadata that a write of the status has changed.
async fn written(api: &Api, path: &str, object: Value, status: Value) -> Vec<&'static str> {
    let made = api.post(path, object).await.expect(201).body;
    let at = format!("{path}/{}", made["metadata"]["name"].as_str().unwrap());
    let owner = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": "1"}]);
    let meta = json!({"labels": {"x": "y"}, "annotations": {"x": "y"}, "finalizers": ["x.y/z"], "ownerReferences": owner});
    let change = json!({"metadata": meta, "status": status});
    let now = api.patch(&format!("{at}/status"), "merge", change).await.expect(200).body;
    let fields = ["labels", "annotations", "finalizers", "ownerReferences"];
    let changed =
        fields.into_iter().filter(|field| now["metadata"][*field] != made["metadata"][*field]).collect();
    let free = json!({"metadata": {"finalizers": null}});
    api.patch(&at, "merge", free).await.expect(200);
    api.delete(&at, Value::Null).await;
    changed
}

#[tokio::test]
async fn a_status_has_little_of_the_metadata() {
    let api = Api::new().await;
    let named = |prefix: &str| json!({"name": random(prefix)});
    let all = vec!["labels", "annotations", "finalizers", "ownerReferences"];
    let attachment = json!({"metadata": named("a-"),
        "spec": {"attacher": "a.b", "nodeName": "n", "source": {"persistentVolumeName": "v"}}});
    let requests = json!([{"name": "r", "exactly": {"deviceClassName": "gpu"}}]);
    let claim = json!({"metadata": named("c-"), "spec": {"devices": {"requests": requests}}});
    let ranges = json!({"metadata": named("r-"), "spec": {"cidrs": ["10.201.0.0/24"]}});
    let rules =
        json!([{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}]);
    let policy = json!({"metadata": named("p-"),
        "spec": {"matchConstraints": {"resourceRules": rules}, "validations": [{"expression": "true"}]}});
    let group = format!("{}.example.com", random("g"));
    let service = json!({"metadata": {"name": format!("v1.{group}")}, "spec": {"group": group, "version": "v1",
        "groupPriorityMinimum": 1, "versionPriority": 1, "service": {"namespace": "n", "name": "s"}}});
    let budget = json!({"metadata": named("b-"), "spec": {"minAvailable": 1, "selector": {"matchLabels": {"a": "b"}}}});
    let volume = json!({"metadata": named("v-"), "spec": {"accessModes": ["ReadWriteOnce"],
        "capacity": {"storage": "1Gi"}, "hostPath": {"path": "/x"}}});
    for (path, object, status, changed) in [
        (
            "/apis/storage.k8s.io/v1/volumeattachments".to_string(),
            attachment,
            json!({"attached": true}),
            vec![],
        ),
        (api.group("resource.k8s.io/v1", "resourceclaims"), claim, json!({}), vec![]),
        ("/apis/networking.k8s.io/v1/servicecidrs".into(), ranges, json!({}), vec![]),
        (
            "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies".into(),
            policy,
            json!({}),
            vec![],
        ),
        ("/apis/apiregistration.k8s.io/v1/apiservices".into(), service, json!({}), vec![]),
        (api.group("policy/v1", "poddisruptionbudgets"), budget, json!({}), all.clone()),
        ("/api/v1/persistentvolumes".into(), volume, json!({}), all),
        (api.core("pods"), pod("p"), json!({}), vec!["labels", "annotations", "finalizers"]),
        (
            api.group("apps/v1", "deployments"),
            deployment("d"),
            json!({}),
            vec!["annotations", "finalizers", "ownerReferences"],
        ),
    ] {
        assert_eq!(written(&api, &path, object, status).await, changed, "{path}");
    }
    api.done().await;
}

#[tokio::test]
async fn budgets_have_names_of_paths() {
    let api = Api::new().await;
    let path = api.group("policy/v1", "poddisruptionbudgets");
    let budget = |name: &str, spec: Value| json!({"metadata": {"name": name}, "spec": spec});
    let least = json!({"minAvailable": 1});
    refused(
        &api,
        &path,
        &[
            (budget("a/b", least.clone()), &["metadata.name: Invalid value: \"a/b\": may not contain '/'"]),
            (budget("..", least.clone()), &["metadata.name: Invalid value: \"..\": may not be '..'"]),
            (
                budget("x", json!({"minAvailable": "101%", "unhealthyPodEvictionPolicy": ""})),
                &[
                    "spec.minAvailable: Invalid value: \"101%\": must not be greater than 100%",
                    "spec.unhealthyPodEvictionPolicy: Unsupported value: \"\": supported values: \"AlwaysAllow\", \"IfHealthyBudget\"",
                ],
            ),
        ],
    )
    .await;
    api.post(&path, budget("A_b:c", least)).await.expect(201);
    api.done().await;
}

#[tokio::test]
async fn claims_and_volumes_show_what_may_not_change() {
    let api = Api::new().await;
    let claims = api.core("persistentvolumeclaims");
    let claim = json!({"metadata": {"name": "c"}, "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "x",
        "resources": {"requests": {"storage": "1Gi"}}}});
    api.post(&claims, claim).await.expect(201);
    let fixed = "spec: Forbidden: spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims";
    let modes = "@@ -1,6 +1,6 @@\n {\n  \"AccessModes\": [\n-  \"ReadWriteOnce\"\n+  \"ReadWriteMany\"\n  ],\n  \"Selector\": null,\n  \"Resources\": {\n";
    let block = "@@ -11,7 +11,7 @@\n  },\n  \"VolumeName\": \"\",\n  \"StorageClassName\": \"x\",\n- \"VolumeMode\": \"Filesystem\",\n+ \"VolumeMode\": \"Block\",\n  \"DataSource\": null,\n  \"DataSourceRef\": null,\n  \"VolumeAttributesClassName\": null\n";
    kept(
        &api,
        &format!("{claims}/c"),
        &[
            (
                // A volume may be named, once.
                json!({"spec": {"accessModes": ["ReadWriteMany"], "volumeName": "v"}}),
                &[&format!("{fixed}\n{modes}")],
            ),
            (
                json!({"spec": {"volumeMode": "Block"}}),
                &[&format!("{fixed}\n{block}"), "volumeMode: Invalid value: \"Block\": field is immutable"],
            ),
        ],
    )
    .await;
    let bound = json!({"status": {"phase": "Bound", "capacity": {"storage": "1Gi"}}});
    api.patch(&format!("{claims}/c/status"), "merge", bound).await.expect(200);
    let limits = "@@ -4,7 +4,9 @@\n  ],\n  \"Selector\": null,\n  \"Resources\": {\n-  \"Limits\": null,\n+  \"Limits\": {\n+   \"storage\": \"2Gi\"\n+  },\n   \"Requests\": {\n    \"storage\": \"1Gi\"\n   }\n";
    let limited = json!({"spec": {"resources": {"limits": {"storage": "2Gi"}}}});
    kept(&api, &format!("{claims}/c"), &[(limited, &[&format!("{fixed}\n{limits}")])]).await;
    let (volumes, name) = ("/api/v1/persistentvolumes", random("pv-"));
    let csi = json!({"driver": "a.b", "volumeHandle": "h"});
    let volume = json!({"metadata": {"name": name}, "spec": {"accessModes": ["ReadWriteOnce"],
        "capacity": {"storage": "1Gi"}, "csi": csi}});
    api.post(volumes, volume).await.expect(201);
    let at = format!("{volumes}/{name}");
    let source =
        "spec.persistentvolumesource: Forbidden: spec.persistentvolumesource is immutable after creation";
    // The secret may be told once; it is no part of the difference.
    let change = json!({"spec": {"csi": {"volumeHandle": "i", "controllerExpandSecretRef": {"name": "a", "namespace": "b"}}}});
    let handle = "@@ -22,7 +22,7 @@\n  \"StorageOS\": null,\n  \"CSI\": {\n   \"Driver\": \"a.b\",\n-  \"VolumeHandle\": \"h\",\n+  \"VolumeHandle\": \"i\",\n   \"ReadOnly\": false,\n   \"FSType\": \"\",\n   \"VolumeAttributes\": null,\n";
    kept(&api, &at, &[(change, &[&format!("{source}\n{handle}")])]).await;
    api.delete(&at, Value::Null).await.expect(200);
    api.done().await;
}

#[tokio::test]
async fn a_deletion_counts_as_a_change_where_changes_are_counted() {
    let api = Api::new().await;
    let (drivers, name) = ("/apis/storage.k8s.io/v1/csidrivers", random("d."));
    let held = json!({"metadata": {"name": name, "finalizers": ["x.y/z"]}, "spec": {}});
    api.post(drivers, held).await.expect(201);
    let at = format!("{drivers}/{name}");
    let told = api.patch(&at, "merge", json!({"spec": {"podInfoOnMount": true}})).await.expect(200).body;
    let marked = api.delete(&at, Value::Null).await.expect(200).body;
    let of = |object: &Value| object["metadata"]["generation"].clone();
    assert_eq!((of(&told), of(&marked)), (json!(1), json!(2)));
    api.patch(&at, "merge", json!({"metadata": {"finalizers": null}})).await.expect(200);
    // A class that is not there is made by an update; of one that is there, the version has to be said.
    let (classes, name) = ("/apis/node.k8s.io/v1/runtimeclasses", random("r-"));
    let class = json!({"metadata": {"name": name}, "handler": "h"});
    let at = format!("{classes}/{name}");
    api.put(&at, class.clone()).await.expect(201);
    let unseen = "metadata.resourceVersion: Invalid value: 0: must be specified for an update";
    tells(&api.put(&at, class).await, &[unseen]);
    api.delete(&at, Value::Null).await.expect(200);
    api.done().await;
}

#[tokio::test]
async fn definitions_trust_certificates() {
    let api = Api::new().await;
    let group = format!("{}.example.com", random("g"));
    let conversion = |bundle: &str| {
        json!({"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["v1"],
            "clientConfig": {"service": {"namespace": "n", "name": "s"}, "caBundle": STANDARD.encode(bundle)}}})
    };
    let definition = |plural: &str, kind: &str, conversion: Value| {
        let schema = json!({"openAPIV3Schema": {"type": "object"}});
        json!({"metadata": {"name": format!("{plural}.{group}")}, "spec": {"group": group, "scope": "Namespaced",
            "names": {"plural": plural, "kind": kind}, "conversion": conversion,
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}]}})
    };
    api.post(CRDS, definition("as", "A", json!({"strategy": "None"}))).await.expect(201);
    let at = format!("{CRDS}/as.{group}");
    let says = |crd: &Value, status: &str| {
        let list = crd["status"]["conditions"].as_array().cloned().unwrap_or_default();
        list.iter().any(|c| c["type"] == "Established" && c["status"] == status)
    };
    api.until(&at, |answer| says(&answer.body, "True")).await;
    let changed = |bundle: &str| json!({"spec": {"conversion": conversion(bundle)}});
    let key = rcgen::KeyPair::generate().expect("a key");
    let shown: String = STANDARD.encode(key.serialize_pem()).chars().take(100).collect();
    let bad = "-----BEGIN CERTIFICATE-----\naGVsbG8=\n-----END CERTIFICATE-----\n";
    let place = "spec.conversion.webhookClientConfig.caBundle: Invalid value:";
    let load = "unable to load root certificates";
    kept(
        &api,
        &at,
        &[
            (changed("xx"), &[&format!("{place} \"eHg=\": {load}: unable to parse bytes as PEM block")]),
            (
                changed(bad),
                &[&format!(
                    "{place} {:?}: {load}: failed to parse certificate: x509: malformed certificate",
                    STANDARD.encode(bad)
                )],
            ),
            (changed(&key.serialize_pem()), &[&format!("{place} \"{shown}…")]),
        ],
    )
    .await;
    let params = rcgen::CertificateParams::new(vec!["x".to_string()]).expect("a name");
    let good = params.self_signed(&key).expect("a certificate").pem();
    api.patch(&at, "merge", changed(&good)).await.expect(200);
    // A new one is stored and not served.
    api.post(CRDS, definition("bs", "B", conversion("xx"))).await.expect(201);
    let other = format!("{CRDS}/bs.{group}");
    let held = api.until(&other, |answer| says(&answer.body, "False")).await.body;
    let conditions = held["status"]["conditions"].as_array().unwrap();
    let told = conditions.iter().find(|c| c["reason"] == "InvalidCABundle").expect("a reason");
    assert_eq!(told["message"], "The conversion webhook CABundle is invalid");
    for at in [at, other] {
        api.delete(&at, Value::Null).await.expect(200);
    }
    api.done().await;
}
