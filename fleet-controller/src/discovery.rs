//! Discovery of a kind that is not known in advance.

use fleet_hub_core::kinds::{Kind, KindRef};

/// Discovers a kind on the hub. `None`: it is not served, or not namespaced.
pub async fn discover(client: &kube::Client, api_version: &str, kind: &str) -> Option<KindRef> {
    let list = match api_version.split_once('/') {
        Some(_) => client.list_api_group_resources(api_version).await,
        None => client.list_core_api_resources(api_version).await,
    };
    let list = list.ok()?;
    let found = list.resources.iter().find(|r| r.kind == kind && r.namespaced && !r.name.contains('/'))?;
    let status = list.resources.iter().any(|r| r.name == format!("{}/status", found.name));
    Some(Kind::new(api_version, kind, &found.name, status))
}
