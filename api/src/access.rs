//! RBAC and admission policies of the hub, read from the charts' manifests, for installs without Helm.
//!
//! Deliberately absent: the evaluation of roles (the API server does it) and the client that applies the
//! manifests.

use serde_json::{Value, json};

use crate::{names, yaml};

/// Secret on the hub, in a cluster's own namespace, with which users of the hub reach that member: `token`
/// and `caBundle`. Administrators write it. No member may read or write Secrets of the hub.
pub const ACCESS_SECRET: &str = "member-access";

/// Account of a member's agent on the hub, in the cluster's own namespace.
pub const AGENT_ACCOUNT: &str = "member-agent";
/// Account that gets an agent its first token, and the Secret to which its own token is bound.
pub const BOOTSTRAP: &str = "member-bootstrap";
/// Secret in which the first user of a bootstrap token leaves a word; see `fleet-bootstrap-claim` of the admission policies.
pub const CLAIM: &str = "member-agent-claim";
/// Annotation of that Secret, and of a request for the agent's first token.
pub const CLAIM_ANNOTATION: &str = "fleet.dev/claim";

/// Names that no member may have, because the namespace `fleet-NAME` is in use: `fleet-system` by the agents,
/// `fleet-hub` by the charts for the controller, [`PAI_USERS`] by users.
pub const RESERVED_CLUSTERS: [&str; 3] = ["hub", "system", "pai-users"];

/// Namespace on the hub whose ServiceAccounts are the users of OpenPAI's REST API.
pub const PAI_USERS: &str = "fleet-pai-users";
/// Role there of the portal, and of users that are administrators.
pub const PAI_PORTAL_ROLE: &str = "fleet-pai-portal";
pub const PAI_ADMIN_ROLE: &str = "fleet-pai-admin";

/// Template of the rights of one member's agent on the hub; `CLUSTER` is replaced by the cluster's name.
const HUB_ACCESS: &str = include_str!("../../charts/member-agent/hub-access.yaml");
/// The admission policies of a hub. They restrict writes that RBAC cannot.
const ADMISSION: &str = include_str!("../../charts/fleet/files/admission.yaml");
/// Roles for users of the hub.
const TENANT: &str = include_str!("../../charts/fleet/files/tenant.yaml");
/// Namespace and rights of the users of OpenPAI's REST API; `JOBS` is replaced by the namespace of their jobs.
const PAI_USERS_MANIFESTS: &str = include_str!("../../charts/fleet/files/pai-users.yaml");
/// Rules of the controller's ClusterRole.
const CONTROLLER: &str = include_str!("../../charts/fleet/files/controller-rules.yaml");

/// The account, the rights and the Cluster of a member's agent on the hub.
///
/// # Errors
/// Never: a test reads the file.
pub fn member_rights(cluster: &str) -> Result<Vec<Value>, yaml::YamlError> {
    yaml::read_all(&HUB_ACCESS.replace("CLUSTER", cluster))
}

/// Rights of an agent in its member, shared with chart `member-agent`: cluster-wide, and in `fleet-system`.
const AGENT_RULES: &str = include_str!("../../charts/member-agent/files/agent-rules.yaml");
const JOB_CONTROLLER_RULES: &str = include_str!("../../charts/member-agent/files/job-controller-rules.yaml");
const STATE_RULES: &str = include_str!("../../charts/member-agent/files/state-rules.yaml");

/// Rules of the agent's ClusterRole in its member, and of its Role in `fleet-system`. `makes_pods`: it runs
/// job controllers.
///
/// # Errors
/// Never: a test reads the files.
pub fn agent_rules(makes_pods: bool) -> Result<(Vec<Value>, Vec<Value>), yaml::YamlError> {
    let mut rules: Vec<Value> = yaml::read(AGENT_RULES)?;
    if makes_pods {
        rules.extend(yaml::read::<Vec<Value>>(JOB_CONTROLLER_RULES)?);
    }
    Ok((rules, yaml::read(STATE_RULES)?))
}

/// The bootstrap account. Its token, valid for an hour, gets a member's agent its first credential. It may
/// claim the agent's account, create tokens of it and delete itself.
pub fn bootstrap_rights(cluster: &str) -> Vec<Value> {
    let namespace = names::cluster_namespace(cluster);
    let metadata = json!({"name": BOOTSTRAP, "namespace": namespace});
    vec![
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}),
        json!({"apiVersion": "v1", "kind": "Secret", "type": "Opaque",
            "metadata": {"name": CLAIM, "namespace": namespace}}),
        json!({"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "metadata": metadata}),
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": metadata, "rules": [
            {"apiGroups": [""], "resources": ["serviceaccounts/token"], "resourceNames": [AGENT_ACCOUNT],
                "verbs": ["create"]},
            {"apiGroups": [""], "resources": ["secrets"], "resourceNames": [CLAIM], "verbs": ["patch"]},
            {"apiGroups": [""], "resources": ["secrets"], "resourceNames": [BOOTSTRAP], "verbs": ["delete"]}]}),
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": metadata,
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": BOOTSTRAP},
            "subjects": [{"kind": "ServiceAccount", "name": BOOTSTRAP, "namespace": namespace}]}),
    ]
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

/// Namespace and roles of the users of OpenPAI's REST API, whose jobs are in `jobs`.
///
/// # Errors
/// Never: a test reads the file.
pub fn pai_users(jobs: &str) -> Result<Vec<Value>, yaml::YamlError> {
    yaml::read_all(&PAI_USERS_MANIFESTS.replace("namespace: JOBS", &format!("namespace: {jobs:?}")))
}

/// The rules of the controller's role on the hub.
///
/// # Errors
/// Never: a test reads the file.
pub fn controller_rules() -> Result<Vec<Value>, yaml::YamlError> {
    yaml::read(CONTROLLER)
}

/// The reference to the only Secret with which a cluster may be reached.
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
        let users = pai_users("jobs").unwrap();
        assert_eq!(users[0]["metadata"]["name"], PAI_USERS);
        assert!(!json!(users).to_string().contains("JOBS"));
        for role in [PAI_PORTAL_ROLE, PAI_ADMIN_ROLE] {
            let of = |object: &&Value| object["kind"] == "Role" && object["metadata"]["name"] == role;
            let role = users.iter().find(of).unwrap();
            assert_eq!(role["metadata"]["namespace"], PAI_USERS);
        }
        let (rules, state) = agent_rules(true).unwrap();
        assert!(rules.iter().chain(&state).all(|rule| rule["verbs"].is_array()));
        assert!(controller_rules().unwrap().iter().all(|rule| rule["verbs"].is_array()));
    }
}
