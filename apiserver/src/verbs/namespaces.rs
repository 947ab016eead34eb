//! Namespaces: what a new one gets, and how one is emptied.
//!
//! Inputs: namespace objects. Absent on purpose: others' finalizers, for which it only waits.

use crate::verbs::removal::{self, Options};
use fleet_apiserver_admission::call::Core;
use fleet_apiserver_ground::store::{Range, Refused, Write};
use fleet_apiserver_ground::{incarnation, tree};
use fleet_apiserver_schema::error::ApiResult;
use serde_json::{Value, json};
use std::sync::Arc;

/// Namespaces that exist from the start and stay.
pub const PERMANENT: [&str; 4] = ["default", "kube-system", "kube-public", "kube-node-lease"];

fn object(core: &Core, kind: &str, namespace: &str, name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": name, "namespace": namespace,
        "uid": core.ids.uuid().to_string(), "creationTimestamp": core.clock.stamp()}})
}

/// The default ServiceAccount and the root certificate of a new namespace, written in the same commit.
pub fn companions(core: &Core, namespace: &str) -> Vec<Write> {
    let mut out = Vec::new();
    let accounts = core.store.table("/serviceaccounts");
    let key = format!("{namespace}/default");
    if accounts.get(&key).is_none() {
        let value = object(core, "ServiceAccount", namespace, "default");
        out.push(Write::Create { table: accounts, key, value });
    }
    let maps = core.store.table("/configmaps");
    let key = format!("{namespace}/kube-root-ca.crt");
    if maps.get(&key).is_none() {
        let mut value = object(core, "ConfigMap", namespace, "kube-root-ca.crt");
        value["data"] = json!({"ca.crt": core.ca_pem});
        out.push(Write::Create { table: maps, key, value });
    }
    out
}

/// In a store in memory, the incarnation is derived from the first revision, so that a simulation can be repeated.
fn first_incarnation(floor: u64) -> String {
    uuid::Uuid::new_v5(&uuid::Uuid::NAMESPACE_OID, &floor.to_be_bytes()).to_string()
}

/// Gives kube-system a new incarnation.
pub fn renew_incarnation(core: &Core) -> Result<(), Refused> {
    let Some(prev) = core.namespaces.get("kube-system") else { return Ok(()) };
    let mut value = prev.full();
    let annotations = tree::object(tree::meta(&mut value).entry("annotations").or_insert_with(|| json!({})));
    annotations.insert(incarnation::ANNOTATION.into(), uuid::Uuid::new_v4().to_string().into());
    let write = Write::Update { table: core.namespaces.clone(), prev, value };
    core.store.commit_to_free(vec![write]).map(drop)
}

/// The writes that make a namespace at start.
pub fn make(core: &Core, name: &str, floor: u64) -> Vec<Write> {
    let mut value = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name,
        "uid": core.ids.uuid().to_string(), "creationTimestamp": core.clock.stamp(),
        "labels": {"kubernetes.io/metadata.name": name}},
        "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}});
    if name == "kube-system" {
        value["metadata"]["annotations"] = json!({incarnation::ANNOTATION: first_incarnation(floor)});
    }
    let mut out = vec![Write::Create { table: core.namespaces.clone(), key: name.into(), value }];
    out.extend(companions(core, name));
    out
}

/// Deletes the content of a terminating namespace, and the namespace once none is left. True when done.
pub async fn empty(core: &Arc<Core>, name: &str) -> ApiResult<bool> {
    let prefix = format!("{name}/");
    let registry = core.registry.load_full();
    let mut left = 0;
    for entry in registry.stored().filter(|e| e.resource.namespaced) {
        let page = core.store.page(&entry.table, Range { prefix: &prefix, ..Range::default() }).await?;
        for obj in page.map(|p| p.items).unwrap_or_default() {
            let o = Options { propagation: "Background".into(), ..Options::default() };
            match removal::delete_object(core, &entry.resource, &entry.table, &obj.key, &o).await {
                Ok(removal::Done::Pending(_)) => left += 1,
                Ok(removal::Done::Gone(_)) => {}
                Err(e) if e.code() == 404 => {}
                Err(e) => return Err(e),
            }
        }
    }
    if left > 0 {
        return Ok(false);
    }
    loop {
        let Some(ns) = core.store.read(&core.namespaces, name).await? else { return Ok(true) };
        let mut finalizers = ns.list(&["spec", "finalizers"]);
        finalizers.retain(|f| f != "kubernetes");
        let mut value = ns.full();
        let before = value.clone();
        let done = finalizers.is_empty() && ns.list(&["metadata", "finalizers"]).is_empty();
        tree::child(&mut value, "spec").insert("finalizers".into(), Value::Array(finalizers));
        if !done && value == before {
            return Ok(true);
        }
        let write = if done {
            Write::Delete { table: core.namespaces.clone(), prev: ns.clone(), value: Some(value) }
        } else {
            Write::Update { table: core.namespaces.clone(), prev: ns.clone(), value }
        };
        match core.store.commit(vec![write]) {
            Ok(objs) => {
                core.store.wait(objs[0].rv).await?;
                return Ok(true);
            }
            Err(Refused::Changed(_)) => {}
            Err(e) => return Err(e.into()),
        }
    }
}

/// By what pods and servers inside a cluster find the API server, and whom it trusts.
pub fn own_services(ca_pem: &str) -> Vec<(&'static str, Value)> {
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "kubernetes", "namespace": "default",
            "labels": {"component": "apiserver", "provider": "kubernetes"}},
        "spec": {"type": "ClusterIP", "clusterIP": "10.96.0.1", "clusterIPs": ["10.96.0.1"], "ipFamilies": ["IPv4"],
            "ipFamilyPolicy": "SingleStack", "internalTrafficPolicy": "Cluster", "sessionAffinity": "None",
            "ports": [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": 6443}]},
        "status": {"loadBalancer": {}}});
    let trust = json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "extension-apiserver-authentication", "namespace": "kube-system"},
        "data": {"client-ca-file": ca_pem, "requestheader-allowed-names": "[]",
            "requestheader-extra-headers-prefix": "[\"X-Remote-Extra-\"]",
            "requestheader-group-headers": "[\"X-Remote-Group\"]",
            "requestheader-username-headers": "[\"X-Remote-User\"]"}});
    let range = json!({"apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR", "metadata": {"name": "kubernetes"},
        "spec": {"cidrs": ["10.96.0.0/16"]}});
    vec![("/services", service), ("/configmaps", trust), ("networking.k8s.io/servicecidrs", range)]
}
