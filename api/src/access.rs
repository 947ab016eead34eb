//! Who may do what on the hub: the charts' own manifests, for whoever installs a hub or adds a member without helm.
//!
//! Deliberately absent: which requests a role allows (the API server judges that), and how the manifests are applied.

use serde_json::{Value, json};

use crate::{names, yaml};

/// Secret on the hub, in a cluster's own namespace, by which the hub's users reach that member: `token` and
/// `caBundle`. An administrator writes it; no member may read or write Secrets of the hub.
pub const ACCESS_SECRET: &str = "member-access";

/// Names no member may have, because the namespace `fleet-NAME` is another's: the agents' own (`fleet-system`), and
/// the one in which the charts put the controller (`fleet-hub`).
pub const RESERVED_CLUSTERS: [&str; 2] = ["hub", "system"];

/// What one member's agent may do on the hub; `CLUSTER` stands for the cluster's name.
const HUB_ACCESS: &str = include_str!("../../charts/member-agent/hub-access.yaml");
/// The admission policies of a hub, which bound writes that roles cannot.
const ADMISSION: &str = include_str!("../../charts/fleet/files/admission.yaml");
/// Roles for users of the hub.
const TENANT: &str = include_str!("../../charts/fleet/files/tenant.yaml");
/// Rules of the controller's ClusterRole.
const CONTROLLER: &str = include_str!("../../charts/fleet/files/controller-rules.yaml");

/// The account, the rights and the Cluster of a member's agent on the hub.
///
/// # Errors
/// Never: a test reads the file.
pub fn member_rights(cluster: &str) -> Result<Vec<Value>, yaml::YamlError> {
    yaml::read_all(&HUB_ACCESS.replace("CLUSTER", cluster))
}

/// The ValidatingAdmissionPolicies of a hub with their bindings.
///
/// # Errors
/// Never: a test reads the file.
pub fn admission() -> Result<Vec<Value>, yaml::YamlError> {
    yaml::read_all(ADMISSION)
}

/// ClusterRoles of a hub's tenants: `fleet-tenant` for the namespace of their jobs, `fleet-queue-reader` for that of
/// the queues.
///
/// # Errors
/// Never: a test reads the file.
pub fn tenant_roles() -> Result<Vec<Value>, yaml::YamlError> {
    yaml::read_all(TENANT)
}

/// The rules of the controller's role on the hub.
///
/// # Errors
/// Never: a test reads the file.
pub fn controller_rules() -> Result<Vec<Value>, yaml::YamlError> {
    yaml::read(CONTROLLER)
}

/// The reference to the one Secret by which a cluster may be reached.
pub fn secret_reference(cluster: &str) -> Value {
    json!({"namespace": names::cluster_namespace(cluster), "name": ACCESS_SECRET})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_charts_files_can_be_read() {
        let kinds = |objects: Vec<Value>| -> Vec<String> {
            objects.iter().map(|object| object["kind"].as_str().unwrap_or_default().to_owned()).collect()
        };
        let rights = member_rights("east").unwrap();
        assert!(!rights.iter().any(|object| object.to_string().contains("CLUSTER")));
        assert!(kinds(rights).contains(&"Cluster".to_owned()));
        assert!(kinds(admission().unwrap()).iter().all(|kind| kind.starts_with("ValidatingAdmissionPolicy")));
        assert!(kinds(tenant_roles().unwrap()).iter().all(|kind| kind == "ClusterRole"));
        assert!(controller_rules().unwrap().iter().all(|rule| rule["verbs"].is_array()));
    }
}
