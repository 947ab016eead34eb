//! What an administrator sets up on a hub before members join it: roles and admission policies, and for each member
//! its account, its Cluster and its address.
//!
//! Every write is a server-side apply, so a hub that has everything already changes only in new addresses.

use fleet_api::{ClusterSpec, access, advice, names, yaml::YamlError};
use k8s_openapi::ByteString;
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams},
};
use serde_json::{Value, json};

/// Field manager of these writes.
const MANAGER: &str = "fleet-administrator";

/// Why a hub could not be prepared.
#[derive(Debug, thiserror::Error)]
pub enum AdmitError {
    #[error("a manifest of Fleet's own: {0}")]
    Manifest(#[from] YamlError),
    #[error("{kind} {name:?}: {source}")]
    Refused {
        kind: String,
        name: String,
        #[source]
        source: kube::Error,
    },
}

/// How the hub's users reach a member.
#[derive(Clone, Debug)]
pub struct MemberAccess {
    /// `https://HOST:PORT`
    pub url: String,
    pub token: String,
    pub ca_pem: String,
}

/// Puts the admission policies and the tenants' roles on a hub.
///
/// # Errors
/// The hub refuses one.
pub async fn prepare_hub(hub: &Client) -> Result<(), AdmitError> {
    for object in access::admission()?.iter().chain(&access::tenant_roles()?).chain(&advice::objects()) {
        apply(hub, object).await?;
    }
    Ok(())
}

/// Puts the namespace and the roles of OpenPAI's users on a hub; their jobs are in `jobs`.
///
/// # Errors
/// The hub refuses one.
pub async fn prepare_users(hub: &Client, jobs: &str) -> Result<(), AdmitError> {
    for object in &access::pai_users(jobs)? {
        apply(hub, object).await?;
    }
    Ok(())
}

/// Creates a member's account, rights and Cluster on the hub, as `fleet join` does; `access` is its address,
/// if it has one.
///
/// # Errors
/// The hub refuses one.
pub async fn admit_member(
    hub: &Client,
    cluster: &str,
    spec: ClusterSpec,
    access: Option<&MemberAccess>,
) -> Result<(), AdmitError> {
    let mut spec = json!(spec);
    spec["syncMode"] = json!("Pull");
    if let Some(access) = access {
        spec["apiEndpoint"] = json!(access.url);
        spec["secretRef"] = access::secret_reference(cluster);
    }
    for mut object in access::member_rights(cluster)? {
        if object["kind"] == "Cluster" {
            object["spec"] = spec.clone();
        }
        apply(hub, &object).await?;
    }
    let Some(access) = access else { return Ok(()) };
    let bytes = |text: &str| ByteString(text.as_bytes().to_vec());
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "type": "Opaque",
        "metadata": {"name": access::ACCESS_SECRET, "namespace": names::cluster_namespace(cluster)},
        "data": {"token": bytes(&access.token), "caBundle": bytes(&access.ca_pem)}});
    apply(hub, &secret).await
}

async fn apply(hub: &Client, object: &Value) -> Result<(), AdmitError> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (kind, name) = (text(&object["kind"]), text(&object["metadata"]["name"]));
    let version = text(&object["apiVersion"]);
    let (group, version) = version.split_once('/').unwrap_or(("", &version));
    let plural = match kind.strip_suffix('y') {
        Some(stem) => format!("{stem}ies"),
        None => format!("{kind}s"),
    };
    let of = GroupVersionKind::gvk(group, version, &kind);
    let resource = ApiResource::from_gvk_with_plural(&of, &plural.to_lowercase());
    let api: Api<DynamicObject> = match object["metadata"]["namespace"].as_str() {
        Some(namespace) => Api::namespaced_with(hub.clone(), namespace, &resource),
        None => Api::all_with(hub.clone(), &resource),
    };
    let params = PatchParams::apply(MANAGER).force();
    match api.patch(&name, &params, &Patch::Apply(object)).await {
        Ok(_) => Ok(()),
        Err(source) => Err(AdmitError::Refused { kind, name, source }),
    }
}
