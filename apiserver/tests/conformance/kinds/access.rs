//! Groups of checks: kinds that say who may do what, and who somebody is.

use super::spec;
use crate::api::{Api, RBAC, random, signing_request};
use crate::table::{Case, changes, new_objects};
use serde_json::{Value, json};

#[tokio::test]
async fn roles_and_bindings_themselves() {
    let api = Api::new().await;
    let rule = |r: Value| json!({"rules": [r]});
    let roles = format!("{RBAC}/namespaces/{}/roles", api.ns);
    let base = json!({"metadata": {"name": "r"}, "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]});
    let cases: &[Case] = &[
        (rule(json!({"apiGroups": [""], "resources": ["pods"]})), "Required", "rules[0].verbs"),
        (rule(json!({"resources": ["pods"], "verbs": ["get"]})), "Required", "rules[0].apiGroups"),
        (rule(json!({"apiGroups": [""], "verbs": ["get"]})), "Required", "rules[0].resources"),
        (rule(json!({"nonResourceURLs": ["/x"], "verbs": ["get"]})), "Invalid", "rules[0].nonResourceURLs"),
        (json!({"metadata": {"name": "a/b"}}), "Invalid", "metadata.name"),
    ];
    new_objects(&api, &roles, &base, cases).await;
    let cluster = format!("{RBAC}/clusterroles");
    let both =
        rule(json!({"nonResourceURLs": ["/x"], "resources": ["pods"], "apiGroups": [""], "verbs": ["get"]}));
    let named = json!({"metadata": {"name": random("cr-")}, "rules": [{"nonResourceURLs": ["/x"], "verbs": ["get"]}]});
    new_objects(&api, &cluster, &named, &[(both, "Invalid", "rules[0].nonResourceURLs")]).await;
    let bindings = format!("{RBAC}/namespaces/{}/rolebindings", api.ns);
    let base = json!({"metadata": {"name": "b"}, "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"},
        "subjects": [{"kind": "User", "name": "u"}]});
    let subject = |s: Value| json!({"subjects": [s]});
    let cases: &[Case] = &[
        (json!({"roleRef": {"kind": "Thing"}}), "NotSupported", "roleRef.kind"),
        (json!({"roleRef": {"apiGroup": "other"}}), "NotSupported", "roleRef.apiGroup"),
        (json!({"roleRef": {"name": ""}}), "Required", "roleRef.name"),
        (subject(json!({"kind": "Robot", "name": "x"})), "NotSupported", "subjects[0].kind"),
        (subject(json!({"kind": "User", "name": ""})), "Required", "subjects[0].name"),
        (
            subject(json!({"kind": "User", "name": "x", "apiGroup": "other"})),
            "NotSupported",
            "subjects[0].apiGroup",
        ),
    ];
    new_objects(&api, &bindings, &base, cases).await;
    changes(
        &api,
        &bindings,
        &base,
        &[(json!({"roleRef": {"name": "q"}}), "Invalid", "roleRef")],
        &[subject(json!({"kind": "User", "name": "v"}))],
    )
    .await;
    let all = format!("{RBAC}/clusterrolebindings");
    let base = json!({"metadata": {"name": random("crb-")}, "roleRef": {"kind": "ClusterRole", "name": "view"}, "subjects": [{"kind": "Group", "name": "g"}]});
    let cases: &[Case] = &[
        (subject(json!({"kind": "ServiceAccount", "name": "x"})), "Required", "subjects[0].namespace"),
        (json!({"roleRef": {"kind": "Role"}}), "NotSupported", "roleRef.kind"),
    ];
    new_objects(&api, &all, &base, cases).await;
    api.done().await;
}

#[tokio::test]
async fn certificates_are_asked_for_approved_and_signed() {
    let api = Api::new().await;
    let path = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
    let name = random("csr-");
    let base = json!({"metadata": {"name": name}, "spec": {"request": signing_request("dave"), "usages": ["client auth"],
        "signerName": "example.com/signer", "username": "somebody-else"}});
    let cases: &[Case] = &[
        (spec(json!({"request": "eA=="})), "Invalid", "spec.request"),
        (spec(json!({"request": ""})), "Invalid", "spec.request"),
        (spec(json!({"usages": []})), "Required", "spec.usages"),
        (spec(json!({"usages": ["world domination"]})), "NotSupported", "spec.usages[0]"),
        (spec(json!({"signerName": ""})), "Required", "spec.signerName"),
        (spec(json!({"signerName": "nodomain"})), "Invalid", "spec.signerName"),
        (spec(json!({"expirationSeconds": 60})), "Invalid", "spec.expirationSeconds"),
    ];
    new_objects(&api, path, &base, cases).await;
    let made = api.post(path, base).await.expect(201).body;
    assert_ne!(made["spec"]["username"], "somebody-else");
    assert!(!made["spec"]["groups"].as_array().unwrap().is_empty());
    let at = format!("{path}/{name}");
    let with = |kinds: &[&str]| {
        let mut body = made.clone();
        body["metadata"].as_object_mut().unwrap().remove("resourceVersion");
        let list: Vec<Value> =
            kinds.iter().map(|k| json!({"type": k, "status": "True", "reason": "R"})).collect();
        body["status"]["conditions"] = json!(list);
        body
    };
    api.put(&format!("{at}/approval"), with(&["Approved", "Denied"])).await.fails(422, "Invalid");
    api.put(&format!("{at}/status"), with(&["Approved"])).await.fails(422, "Invalid");
    api.put(&format!("{at}/approval"), with(&["Approved"])).await.expect(200);
    api.put(&format!("{at}/approval"), with(&[])).await.fails(422, "Invalid");
    let garbage = json!({"status": {"certificate": "bm90IGEgY2VydA=="}});
    api.patch(&format!("{at}/status"), "merge", garbage).await.fails(422, "Invalid");
    // Approving takes a right on the signer.
    let role = json!({"metadata": {"name": name}, "rules": [{"apiGroups": ["certificates.k8s.io"], "verbs": ["get", "update", "patch"],
        "resources": ["certificatesigningrequests", "certificatesigningrequests/approval"]}]});
    api.post(&format!("{RBAC}/clusterroles"), role).await.expect(201);
    let weak = api.account("weak").await;
    let bind = json!({"metadata": {"name": name}, "roleRef": {"kind": "ClusterRole", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": "weak", "namespace": api.ns}]});
    api.post(&format!("{RBAC}/clusterrolebindings"), bind).await.expect(201);
    // A server may learn of the role a moment later.
    let start = std::time::Instant::now();
    let refused = loop {
        let answer = weak.put(&format!("{at}/approval"), with(&["Approved"])).await;
        if !answer.message().contains("cannot update resource") || start.elapsed().as_secs() > 30 {
            break answer.fails(403, "Forbidden");
        }
    };
    assert!(
        refused.message().contains("user not permitted to approve requests with signerName"),
        "{}",
        refused.message()
    );
    for what in [at, format!("{RBAC}/clusterroles/{name}"), format!("{RBAC}/clusterrolebindings/{name}")] {
        api.delete(&what, Value::Null).await.expect(200);
    }
    api.done().await;
}
