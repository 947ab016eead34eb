//! IPAddresses: the objects that say which service has an address of the cluster.
//!
//! Inputs: services that come and go. Absent on purpose: giving addresses out (see `kinds::services`).

use fleet_apiserver_admission::call::Core;
use fleet_apiserver_ground::store::{Obj, Write};
use fleet_apiserver_ground::tree;
use serde_json::{Value, json};

const TABLE: &str = "networking.k8s.io/ipaddresses";

/// The address of a service that is about to be made, written in the same commit.
pub fn of_new(core: &Core, writes: &[Write]) -> Option<Write> {
    let Some(Write::Create { value: service, .. }) = writes.first() else { return None };
    let ip = tree::text(service, &["spec", "clusterIP"]);
    let table = core.store.table(TABLE);
    if ip.parse::<std::net::IpAddr>().is_err() || table.get(ip).is_some() {
        return None;
    }
    let of = tree::meta_text(service, "uid");
    let uid = uuid::Uuid::new_v5(&uuid::Uuid::NAMESPACE_OID, format!("{of} {ip}").as_bytes());
    let meta = |key: &str| tree::meta_text(service, key);
    let value = json!({"apiVersion": "networking.k8s.io/v1", "kind": "IPAddress",
        "metadata": {"name": ip, "uid": uid.to_string(), "creationTimestamp": meta("creationTimestamp"),
            "labels": {"ipaddress.kubernetes.io/ip-family": "IPv4",
                "ipaddress.kubernetes.io/managed-by": "ipallocator.k8s.io"}},
        "spec": {"parentRef": {"resource": "services", "namespace": meta("namespace"), "name": meta("name")}}});
    Some(Write::Create { table, key: ip.to_string(), value })
}

/// Removes the address of a service that is gone.
pub fn release(core: &Core, service: &Obj) {
    let table = core.store.table(TABLE);
    let Some(prev) = table.get(&service.text(&["spec", "clusterIP"])) else { return };
    let parent = prev.at(&["spec", "parentRef"]).unwrap_or(Value::Null);
    let of = format!("{}/{}", tree::text(&parent, &["namespace"]), tree::text(&parent, &["name"]));
    if *service.key == *of && tree::text(&parent, &["resource"]) == "services" {
        // Who changed it meanwhile keeps it.
        let _ = core.store.commit(vec![Write::Delete { table, prev, value: None }]);
    }
}
