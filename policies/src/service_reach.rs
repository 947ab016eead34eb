//! How far a Service reaches beyond its namespace.
//!
//! A Service of type ClusterIP concerns pods of its namespace and who asks for its name. All else takes something that the
//! whole cluster shares: addresses of others, a port of every node, an address of the load balancer, a name that points
//! elsewhere.

use serde_json::Value;

/// Types of Services that the administrator of a member may permit.
pub const TYPES: [&str; 3] = ["NodePort", "LoadBalancer", "ExternalName"];
const OWN: &str = "ClusterIP";

/// Whether a Service takes addresses: traffic of the whole cluster to them would go to its pods (CVE-2020-8554). Who may
/// write Services cannot be told from who owns an address, so nobody may.
///
/// # Errors
/// The field, the value found and what is allowed.
pub fn takes_no_addresses(object: &Value) -> Result<(), String> {
    let addresses = &object["spec"]["externalIPs"];
    let is_empty = addresses.is_null() || addresses.as_array().is_some_and(Vec::is_empty);
    if !is_service(object) || is_empty {
        return Ok(());
    }
    let found = crate::spec::shortened(&addresses.to_string());
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    Err(format!(
        "Service {name}: spec.externalIPs: found {found}, to which pods of a whole member may speak; allowed: none"
    ))
}

/// The type of a Service that reaches beyond its namespace; `None` of any other object.
pub fn beyond(object: &Value) -> Option<String> {
    let found = &object["spec"]["type"];
    let is_own = found.is_null() || found == OWN || found == "";
    let text = || found.as_str().map_or_else(|| found.to_string(), str::to_owned);
    (is_service(object) && !is_own).then(text)
}

fn is_service(object: &Value) -> bool {
    object["kind"] == "Service" && object["apiVersion"] == "v1"
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn service(spec: Value) -> Value {
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s", "namespace": "n"}, "spec": spec})
    }

    #[test]
    fn no_service_takes_addresses_of_others() {
        for kind in ["ClusterIP", "NodePort", "LoadBalancer"] {
            let taken = service(json!({"type": kind, "externalIPs": ["10.0.0.1"]}));
            let why = takes_no_addresses(&taken).expect_err("an address");
            assert!(why.starts_with("Service s: spec.externalIPs: found [\"10.0.0.1\"]"), "{why}");
            assert!(why.ends_with("allowed: none"), "{why}");
        }
        for odd in [json!("10.0.0.1"), json!({"a": "b"})] {
            assert!(takes_no_addresses(&service(json!({"externalIPs": odd}))).is_err());
        }
        for none in [json!({}), json!({"externalIPs": []}), json!({"externalIPs": null})] {
            assert_eq!(takes_no_addresses(&service(none)), Ok(()));
        }
        let mut other = service(json!({"externalIPs": ["10.0.0.1"]}));
        other["apiVersion"] = "serving.knative.dev/v1".into();
        assert_eq!(takes_no_addresses(&other), Ok(()));
    }

    #[test]
    fn services_of_other_types_reach_beyond() {
        for kind in TYPES {
            assert_eq!(beyond(&service(json!({"type": kind}))).as_deref(), Some(kind));
        }
        assert_eq!(beyond(&service(json!({"type": ["NodePort"]}))).as_deref(), Some("[\"NodePort\"]"));
        for own in [json!({}), json!({"type": "ClusterIP"}), json!({"type": ""})] {
            assert_eq!(beyond(&service(own)), None);
        }
        assert_eq!(
            beyond(&json!({"apiVersion": "batch/v1", "kind": "Job", "spec": {"type": "NodePort"}})),
            None
        );
    }
}
