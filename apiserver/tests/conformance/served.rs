//! What the server says of itself: group versions, components, keys of tokens, metrics; and how large answers come.

use crate::api::{Api, config_map, pod, random};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};
use std::io::Read;

const SERVICES: &str = "/apis/apiregistration.k8s.io/v1/apiservices";

fn available(service: &Value) -> (String, String) {
    let conditions = service["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let said = conditions.iter().find(|c| c["type"] == "Available").cloned().unwrap_or_default();
    let text = |key: &str| said[key].as_str().unwrap_or_default().to_string();
    (text("status"), text("reason"))
}

#[tokio::test]
async fn each_group_version_has_its_api_service() {
    let api = Api::new().await;
    let local = ("True".to_string(), "Local".to_string());
    for name in ["v1.", "v1.apps", "v2.autoscaling", "v1.apiregistration.k8s.io"] {
        let found = api.get(&format!("{SERVICES}/{name}")).await.expect(200).body;
        assert_eq!(available(&found), local, "{name}");
        assert_eq!(
            found["metadata"]["labels"]["kube-aggregator.kubernetes.io/automanaged"], "onstart",
            "{name}"
        );
    }
    let group = api
        .crd("things", "Thing", json!([{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}]))
        .await;
    let own = format!("{SERVICES}/v1.{group}");
    let found = api.until_code(&own, 200).await.body;
    assert_eq!(available(&found), local);
    assert_eq!((&found["spec"]["group"], &found["spec"]["version"]), (&json!(group), &json!("v1")));
    api.delete(&format!("{}/things.{group}", crate::api::CRDS), Value::Null).await.expect(200);
    api.until_code(&own, 404).await;
    // One that is served elsewhere.
    let group = format!("{}.example.com", random("g"));
    let name = format!("v1.{group}");
    let with = |name: &str, spec: Value| {
        let mut all =
            json!({"group": group, "version": "v1", "groupPriorityMinimum": 100, "versionPriority": 10});
        for (key, value) in spec.as_object().into_iter().flatten() {
            all[key] = value.clone();
        }
        json!({"metadata": {"name": name}, "spec": all})
    };
    let service = json!({"service": {"namespace": api.ns, "name": "nobody"}});
    api.post(SERVICES, with(&name, service.clone())).await.expect(201);
    let path = format!("{SERVICES}/{name}");
    let found = api.until(&path, |a| !available(&a.body).1.is_empty()).await.body;
    assert_eq!(available(&found), ("False".into(), "ServiceNotFound".into()));
    api.delete(&path, Value::Null).await.expect(200);
    for (body, field) in [
        (with("v2.other", service.clone()), "metadata.name"),
        (with(&name, json!({"service": {"namespace": "x"}})), "spec.service.name"),
        (
            with(&name, json!({"service": service["service"], "groupPriorityMinimum": 0})),
            "spec.groupPriorityMinimum",
        ),
        (with(&name, json!({"insecureSkipTLSVerify": true})), "spec.insecureSkipTLSVerify"),
    ] {
        let refused = api.post(SERVICES, body).await.fails(422, "Invalid");
        assert!(refused.causes().iter().any(|c| c.1 == field), "{field}: {}", refused.text);
    }
    api.done().await;
}

#[tokio::test]
async fn components_are_only_read() {
    let api = Api::new().await;
    let path = "/api/v1/componentstatuses";
    let listed = api.get(path).await.expect(200);
    assert!(
        listed.warnings()[0].contains("v1 ComponentStatus is deprecated in v1.19+"),
        "{:?}",
        listed.warnings()
    );
    let names: Vec<&str> = listed.body["items"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|c| c["metadata"]["name"].as_str())
        .collect();
    assert!(names.contains(&"etcd-0") && names.contains(&"scheduler"), "{names:?}");
    api.get(&format!("{path}/none")).await.fails(404, "NotFound");
    api.post(path, json!({"metadata": {"name": "x"}})).await.fails(405, "MethodNotAllowed");
    api.delete(&format!("{path}/scheduler"), Value::Null).await.fails(405, "MethodNotAllowed");
    let all = api.get("/api/v1").await.expect(200).body;
    let found =
        all["resources"].as_array().unwrap().iter().find(|r| r["name"] == "componentstatuses").cloned();
    assert_eq!(found.unwrap()["verbs"], json!(["get", "list"]));
}

#[tokio::test]
async fn others_can_check_tokens() {
    let api = Api::new().await;
    let found = api.get("/.well-known/openid-configuration").await.expect(200).body;
    assert_eq!(found["response_types_supported"], json!(["id_token"]));
    assert!(found["jwks_uri"].as_str().unwrap().ends_with("/openid/v1/jwks"), "{found}");
    let keys = api.get("/openid/v1/jwks").await.expect(200);
    assert_eq!(keys.headers["content-type"], "application/jwk-set+json");
    let path = api.core("serviceaccounts/default/token");
    let made = api.post(&path, json!({"spec": {"audiences": ["vault"]}})).await.expect(201).body;
    let token = made["status"]["token"].as_str().unwrap();
    let part = |i: usize| -> Value {
        let part = token.split('.').nth(i).unwrap();
        serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).unwrap()).unwrap()
    };
    let (head, claims) = (part(0), part(1));
    let known = keys.body["keys"].as_array().unwrap().iter().find(|k| k["kid"] == head["kid"]).cloned();
    assert_eq!(known.unwrap()["alg"], head["alg"]);
    assert!(found["id_token_signing_alg_values_supported"].as_array().unwrap().contains(&head["alg"]));
    assert_eq!((&claims["iss"], &claims["aud"]), (&found["issuer"], &json!(["vault"])));
    // Accounts may ask; who is nobody may not.
    let account = api.account("asker").await;
    account.get("/openid/v1/jwks").await.expect(200);
    api.with_token(None).get("/openid/v1/jwks").await.expect(if api.embedded().is_some() {
        403
    } else {
        401
    });
    api.done().await;
}

#[tokio::test]
async fn keys_of_tokens_outlive_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let config = || fleet_apiserver::Config {
        data_dir: Some(dir.path().into()),
        access: fleet_apiserver::Access::Rbac,
        ..fleet_apiserver::Config::default()
    };
    let api = Api::serve(config()).await;
    let keys = api.get("/openid/v1/jwks").await.expect(200).body;
    let token = api.account("robot").await;
    let review = json!({"spec": {"token": token.token().unwrap()}});
    api.embedded().unwrap().shutdown().await;
    let api = Api::serve(config()).await;
    assert_eq!(api.get("/openid/v1/jwks").await.expect(200).body, keys);
    let reviews = "/apis/authentication.k8s.io/v1/tokenreviews";
    assert_eq!(api.post(reviews, review.clone()).await.expect(201).body["status"]["authenticated"], true);
    api.embedded().unwrap().shutdown().await;
    // Without the secret, nothing that was signed before is good.
    std::fs::remove_file(dir.path().join("pki/sa.key")).unwrap();
    let api = Api::serve(config()).await;
    assert_ne!(api.get("/openid/v1/jwks").await.expect(200).body, keys);
    assert_eq!(api.post(reviews, review).await.expect(201).body["status"].get("authenticated"), None);
    api.embedded().unwrap().shutdown().await;
}

#[tokio::test]
async fn large_answers_are_packed_on_request() {
    let api = Api::new().await;
    let mut large = config_map("large");
    large["data"] = json!({"text": "0123456789".repeat(20_000)});
    api.post(&api.core("configmaps"), large.clone()).await.expect(201);
    let path = api.core("configmaps/large");
    let gzip = [("Accept-Encoding", "gzip")];
    let answer = api.send("GET", &path, &gzip, Vec::new()).await;
    assert_eq!(answer.headers()["content-encoding"], "gzip");
    let bytes = answer.bytes().await.unwrap();
    assert!(bytes.len() < 100_000, "{}", bytes.len());
    let mut text = String::new();
    flate2::read::GzDecoder::new(&bytes[..]).read_to_string(&mut text).unwrap();
    let found: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(found["data"], large["data"]);
    let small = api.send("GET", &api.core("configmaps/kube-root-ca.crt"), &gzip, Vec::new()).await;
    assert!(small.headers().get("content-encoding").is_none());
    assert!(api.get(&path).await.expect(200).headers.get("content-encoding").is_none());
    api.done().await;
}

#[tokio::test]
async fn times_of_requests_are_in_the_metrics() {
    let api = Api::new().await;
    api.get(&api.core("secrets")).await.expect(200);
    let text = api.get("/metrics").await.expect(200).text;
    for want in
        ["apiserver_request_total{", "apiserver_request_duration_seconds_bucket{", "kubernetes_build_info{"]
    {
        assert!(text.contains(want), "{want}");
    }
    let of_secrets = |line: &&str| {
        line.starts_with("apiserver_request_duration_seconds_count{")
            && line.contains("resource=\"secrets\"")
            && line.contains("verb=\"LIST\"")
    };
    assert!(text.lines().any(|line| of_secrets(&line)), "{text}");
}

#[tokio::test]
async fn storage_in_use_is_not_deleted() {
    let api = Api::new().await;
    let claims = api.core("persistentvolumeclaims");
    let spec = json!({"accessModes": ["ReadWriteOnce"], "storageClassName": "", "resources": {"requests": {"storage": "1Gi"}}});
    let made = api.post(&claims, json!({"metadata": {"name": "c"}, "spec": spec})).await.expect(201).body;
    assert_eq!(made["metadata"]["finalizers"], json!(["kubernetes.io/pvc-protection"]));
    let mut user = pod("user");
    user["spec"]["volumes"] = json!([{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]);
    user["spec"]["nodeName"] = json!("nowhere");
    api.post(&api.core("pods"), user.clone()).await.expect(201);
    let path = format!("{claims}/c");
    let deleted = api.delete(&path, Value::Null).await.expect(200).body;
    assert!(deleted["metadata"]["deletionTimestamp"].is_string(), "{deleted}");
    // It stays for as long as the pod does.
    api.patch(&path, "merge", json!({"metadata": {"labels": {"still": "there"}}})).await.expect(200);
    tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    api.get(&path).await.expect(200);
    api.delete(&format!("{}/user?gracePeriodSeconds=0", api.core("pods")), Value::Null).await.expect(200);
    api.until_code(&path, 404).await;
    // A pod without a node does not use it yet.
    api.post(&claims, json!({"metadata": {"name": "d"}, "spec": spec})).await.expect(201);
    user["metadata"]["name"] = json!("waits");
    user["spec"]["volumes"][0]["persistentVolumeClaim"]["claimName"] = json!("d");
    user["spec"].as_object_mut().unwrap().remove("nodeName");
    api.post(&api.core("pods"), user).await.expect(201);
    api.delete(&format!("{claims}/d"), Value::Null).await.expect(200);
    api.until_code(&format!("{claims}/d"), 404).await;
    let name = random("v-");
    let volume = json!({"metadata": {"name": name}, "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
        "storageClassName": random("none-"), "hostPath": {"path": "/x"}}});
    let made = api.post("/api/v1/persistentvolumes", volume).await.expect(201).body;
    assert_eq!(made["metadata"]["finalizers"], json!(["kubernetes.io/pv-protection"]));
    api.delete(&format!("/api/v1/persistentvolumes/{name}"), Value::Null).await.expect(200);
    api.until_code(&format!("/api/v1/persistentvolumes/{name}"), 404).await;
    api.done().await;
}

#[tokio::test]
async fn json_patches_are_read_as_kubernetes_reads_them() {
    let api = Api::new().await;
    let mut made = config_map("a");
    made["data"] = json!({"x": "1"});
    made["metadata"]["finalizers"] = json!(["a.dev/1", "a.dev/2"]);
    api.post(&api.core("configmaps"), made).await.expect(201);
    let path = api.core("configmaps/a");
    let added = json!([{"op": "replace", "path": "/data/y", "value": "2"}, {"op": "replace", "path": "/metadata/labels", "value": {"l": "1"}}]);
    let found = api.patch(&path, "json", added).await.expect(200).body;
    assert_eq!(
        (&found["data"], &found["metadata"]["labels"]),
        (&json!({"x": "1", "y": "2"}), &json!({"l": "1"}))
    );
    let last = json!([{"op": "remove", "path": "/metadata/finalizers/-1"}]);
    let found = api.patch(&path, "json", last).await.expect(200).body;
    assert_eq!(found["metadata"]["finalizers"], json!(["a.dev/1"]));
    api.patch(&path, "json", json!([{"op": "test", "path": "/data/none", "value": null}])).await.expect(200);
    api.patch(&path, "json", json!([{"op": "replace", "path": "/none/y", "value": "2"}]))
        .await
        .fails(422, "Invalid");
    api.patch(&path, "json", json!([{"op": "remove", "path": "/metadata/finalizers"}])).await.expect(200);
    api.done().await;
}

#[tokio::test]
async fn protobuf_is_answered_to_who_takes_nothing_else() {
    let api = Api::new().await;
    const MEDIA: &str = "application/vnd.kubernetes.protobuf";
    let mut large = pod("p");
    large["metadata"]["labels"] = json!({"a": "b"});
    large["spec"]["containers"][0]["resources"] = json!({"limits": {"cpu": "250m", "memory": "1Gi"}});
    large["spec"]["containers"][0]["readinessProbe"] =
        json!({"httpGet": {"port": "web"}, "periodSeconds": 3});
    api.post(&api.core("pods"), large).await.expect(201);
    let mut kept = config_map("kept");
    kept["data"] = json!({"x": "1", "y": ""});
    api.post(&api.core("configmaps"), kept).await.expect(201);
    api.post(&api.core("secrets"), json!({"metadata": {"name": "s"}, "data": {"k": "aGVsbG8="}}))
        .await
        .expect(201);
    let mut scaled = crate::api::deployment("d");
    scaled["spec"]["strategy"] = json!({"rollingUpdate": {"maxSurge": "30%", "maxUnavailable": 0}});
    api.post(&api.group("apps/v1", "deployments"), scaled).await.expect(201);
    let service = json!({"metadata": {"name": "web"}, "spec": {"selector": {"a": "b"}, "ports": [{"port": 80, "targetPort": "web"}]}});
    api.post(&api.core("services"), service).await.expect(201);
    for path in [
        api.core("pods/p"),
        api.core("configmaps/kept"),
        api.core("secrets/s"),
        api.core("services/web"),
        api.group("apps/v1", "deployments/d"),
        "/apis/rbac.authorization.k8s.io/v1/clusterroles/admin".to_string(),
        "/apis/scheduling.k8s.io/v1/priorityclasses/system-node-critical".to_string(),
    ] {
        let packed = api.send("GET", &path, &[("Accept", MEDIA)], Vec::new()).await;
        assert_eq!(
            (packed.status().as_u16(), &packed.headers()["content-type"]),
            (200, &MEDIA.parse().unwrap()),
            "{path}"
        );
        let bytes = packed.bytes().await.unwrap().to_vec();
        assert!(bytes.starts_with(b"k8s\0"), "{path}");
        // What comes back as it was changes nothing: all of it was there.
        let before = api.get(&path).await.expect(200).body;
        let after = api.raw("PUT", &path, &[("Content-Type", MEDIA)], bytes).await.expect(200).body;
        assert_eq!(after, before, "{path}");
    }
    let listed = api.send("GET", &api.core("pods"), &[("Accept", MEDIA)], Vec::new()).await;
    assert!(listed.bytes().await.unwrap().starts_with(b"k8s\0"));
    // Who takes JSON, too, gets JSON.
    let both = api.get_as(&api.core("pods/p"), "application/vnd.kubernetes.protobuf,application/json").await;
    assert_eq!(both.expect(200).body["kind"], "Pod");
    let group = api
        .crd("things", "Thing", json!([{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}]))
        .await;
    api.get_as(&api.group(&format!("{group}/v1"), "things"), MEDIA).await.fails(406, "NotAcceptable");
    api.done().await;
}
