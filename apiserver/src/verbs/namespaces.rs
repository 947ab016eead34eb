//! Namespaces: what a new one gets, and how one is emptied.
//!
//! Inputs: namespace objects. Absent on purpose: others' finalizers, for which it only waits.

use crate::verbs::removal::{self, Options};
use fleet_apiserver_admission::call::Core;
use fleet_apiserver_ground::store::{Obj, Range, Refused, Write};
use fleet_apiserver_ground::{incarnation, tree};
use fleet_apiserver_schema::error::ApiResult;
use fleet_apiserver_schema::resource::Resource;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::SocketAddr;
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
    let key = format!("{namespace}/{ROOT_CERTIFICATE}");
    if maps.get(&key).is_none() {
        let mut value = object(core, "ConfigMap", namespace, ROOT_CERTIFICATE);
        value["data"] = json!({"ca.crt": core.ca_pem});
        out.push(Write::Create { table: maps, key, value });
    }
    out
}

/// The certificate every namespace has, as an object of the store.
const ROOT_CERTIFICATE: &str = "kube-root-ca.crt";

/// True for an object that every namespace has: it comes back when it is deleted, and the certificate when it changes.
pub fn is_companion(table: &str, key: &str, deleted: bool) -> bool {
    let name = key.split_once('/').map_or("", |(_, name)| name);
    match table {
        "/serviceaccounts" => deleted && name == "default",
        "/configmaps" => name == ROOT_CERTIFICATE,
        _ => false,
    }
}

/// Restores what every namespace has in one that stays.
pub fn keep_companions(core: &Core, namespace: &str) {
    let stays = || core.namespaces.get(namespace).is_some_and(|ns| !ns.deleting());
    if !stays() {
        return;
    }
    let mut writes = companions(core, namespace);
    let maps = core.store.table("/configmaps");
    if let Some(prev) = maps.get(&format!("{namespace}/{ROOT_CERTIFICATE}")) {
        let (mut value, data) = (prev.full(), json!({"ca.crt": core.ca_pem}));
        if value.get("data") != Some(&data) && !prev.deleting() {
            tree::object(&mut value).insert("data".into(), data);
            writes.push(Write::Update { table: maps, prev, value });
        }
    }
    // Somebody else's write in between has an event of its own.
    if !writes.is_empty()
        && let Err(e) = core.store.commit_if(writes, stays)
    {
        tracing::debug!(namespace, error = ?e, "what every namespace has was not restored");
    }
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
    annotations.insert(incarnation::ANNOTATION.into(), core.ids.uuid().to_string().into());
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
    let mut left = Left::default();
    for entry in registry.stored().filter(|e| e.resource.namespaced) {
        let page = core.store.page(&entry.table, Range { prefix: &prefix, ..Range::default() }).await?;
        for obj in page.map(|p| p.items).unwrap_or_default() {
            let o = Options { propagation: "Background".into(), ..Options::default() };
            match removal::delete_object(core, &entry.resource, &entry.table, &obj.key, &o).await {
                Ok(removal::Done::Pending(obj)) => left.note(&entry.resource, &obj),
                Ok(removal::Done::Gone(_)) => {}
                Err(e) if e.code() == 404 => {}
                Err(e) => return Err(e),
            }
        }
    }
    if !left.kinds.is_empty() {
        say(core, name, &left);
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

/// What keeps a namespace from going away.
#[derive(Default)]
struct Left {
    /// Objects by kind, and by finalizer.
    kinds: BTreeMap<String, usize>,
    finalizers: BTreeMap<String, usize>,
}

impl Left {
    fn note(&mut self, r: &Resource, obj: &Obj) {
        *self.kinds.entry(format!("{}.{}", r.plural, r.group)).or_default() += 1;
        for finalizer in obj.list(&["metadata", "finalizers"]) {
            let name = finalizer.as_str().unwrap_or_default().to_string();
            *self.finalizers.entry(name).or_default() += 1;
        }
    }

    /// Type, status, reason and message of each condition.
    fn conditions(&self) -> [(&'static str, bool, &'static str, String); 5] {
        let list = |counts: &BTreeMap<String, usize>, word: &str| {
            let one = |(what, n): (&String, &usize)| format!("{what} {word} {n} resource instances");
            counts.iter().map(one).collect::<Vec<_>>().join(", ")
        };
        let kinds = format!("Some resources are remaining: {}", list(&self.kinds, "has"));
        let held = match self.finalizers.is_empty() {
            true => ("ContentHasNoFinalizers", "All content-preserving finalizers finished".to_string()),
            false => {
                let list = list(&self.finalizers, "in");
                (
                    "SomeFinalizersRemain",
                    format!("Some content in the namespace has finalizers remaining: {list}"),
                )
            }
        };
        let fine = |what: &str| what.to_string();
        [
            (
                "NamespaceDeletionDiscoveryFailure",
                false,
                "ResourcesDiscovered",
                fine("All resources successfully discovered"),
            ),
            (
                "NamespaceDeletionGroupVersionParsingFailure",
                false,
                "ParsedGroupVersions",
                fine("All legacy kube types successfully parsed"),
            ),
            (
                "NamespaceDeletionContentFailure",
                false,
                "ContentDeleted",
                fine("All content successfully deleted, may be waiting on finalization"),
            ),
            ("NamespaceContentRemaining", true, "SomeResourcesRemain", kinds),
            ("NamespaceFinalizersRemaining", !self.finalizers.is_empty(), held.0, held.1),
        ]
    }
}

/// Says in the status of a namespace what it waits for.
fn say(core: &Core, name: &str, left: &Left) {
    let Some(prev) = core.namespaces.get(name) else { return };
    let known = prev.list(&["status", "conditions"]);
    let conditions = left.conditions().map(|(kind, holds, reason, message)| {
        let status = if holds { "True" } else { "False" };
        let before = known.iter().find(|c| tree::text(c, &["type"]) == kind);
        let since = before.filter(|c| tree::text(c, &["status"]) == status);
        let since = since.map(|c| tree::text(c, &["lastTransitionTime"]).to_string());
        json!({"type": kind, "status": status, "reason": reason, "message": message,
            "lastTransitionTime": since.unwrap_or_else(|| core.clock.stamp())})
    });
    let conditions = Value::Array(conditions.to_vec());
    if Value::Array(known) == conditions {
        return;
    }
    let mut value = prev.full();
    tree::child(&mut value, "status").insert("conditions".into(), conditions);
    let write = Write::Update { table: core.namespaces.clone(), prev, value };
    // Another writer's event brings the worker back.
    let _ = core.store.commit(vec![write]);
}

/// Where clients inside a cluster reach the server, once it listens.
pub fn announce(core: &Core, address: SocketAddr) {
    let ip = match address.ip() {
        ip if ip.is_unspecified() => "127.0.0.1".to_string(),
        ip => ip.to_string(),
    };
    let family = if address.is_ipv6() { "IPv6" } else { "IPv4" };
    let meta = |labels: Value| json!({"name": "kubernetes", "namespace": "default", "labels": labels});
    let ports = json!([{"name": "https", "port": address.port(), "protocol": "TCP"}]);
    let endpoints = json!({"apiVersion": "v1", "kind": "Endpoints",
        "metadata": meta(json!({"endpointslice.kubernetes.io/skip-mirror": "true"})),
        "subsets": [{"addresses": [{"ip": ip}], "ports": ports}]});
    let slice = json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": meta(json!({"kubernetes.io/service-name": "kubernetes"})), "addressType": family,
        "endpoints": [{"addresses": [ip], "conditions": {"ready": true}}], "ports": ports});
    let mut writes = Vec::new();
    for (table, mut value) in [("/endpoints", endpoints), ("discovery.k8s.io/endpointslices", slice)] {
        let (table, key) = (core.store.table(table), "default/kubernetes".to_string());
        let Some(prev) = table.get(&key) else {
            let meta = tree::meta(&mut value);
            let uid = uuid::Uuid::new_v5(&uuid::Uuid::NAMESPACE_OID, table.name.as_bytes());
            meta.insert("uid".into(), uid.to_string().into());
            meta.insert("creationTimestamp".into(), core.clock.stamp().into());
            writes.push(Write::Create { table, key, value });
            continue;
        };
        let mut now = prev.full();
        for (field, wanted) in value.as_object().into_iter().flatten().filter(|(f, _)| *f != "metadata") {
            tree::object(&mut now).insert(field.clone(), wanted.clone());
        }
        if now != prev.full() {
            writes.push(Write::Update { table, prev, value: now });
        }
    }
    if !writes.is_empty()
        && let Err(e) = core.store.commit(writes)
    {
        tracing::warn!(error = ?e, "the address of the server is not in its endpoints");
    }
}

/// By what pods and servers inside a cluster find the API server, and whom it trusts.
pub fn own_services(ca_pem: &str, now: &str) -> Vec<(&'static str, Value)> {
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
    // Since when tokens in secrets are marked when somebody uses them: the day of the first start.
    let tracking = json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "kube-apiserver-legacy-service-account-token-tracking", "namespace": "kube-system"},
        "data": {"since": now.split('T').next()}});
    let range = json!({"apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR", "metadata": {"name": "kubernetes"},
        "spec": {"cidrs": ["10.96.0.0/16"]},
        "status": {"conditions": [{"type": "Ready", "status": "True", "reason": "", "message": "Kubernetes Service CIDR is ready",
            "lastTransitionTime": now}]}});
    let address = json!({"apiVersion": "networking.k8s.io/v1", "kind": "IPAddress", "metadata": {"name": "10.96.0.1",
            "labels": {"ipaddress.kubernetes.io/ip-family": "IPv4",
                "ipaddress.kubernetes.io/managed-by": "ipallocator.k8s.io"}},
        "spec": {"parentRef": {"resource": "services", "namespace": "default", "name": "kubernetes"}}});
    vec![
        ("/services", service),
        ("/configmaps", trust),
        ("/configmaps", tracking),
        ("networking.k8s.io/servicecidrs", range),
        ("networking.k8s.io/ipaddresses", address),
    ]
}
