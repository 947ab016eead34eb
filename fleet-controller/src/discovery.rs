//! Discovery of kinds that are not known in advance.

use std::{collections::BTreeSet, time::Duration};

use fleet_hub_core::kinds::{Kind, KindRef};

/// API version and kind.
pub type KindId = (String, String);

/// Timeout of each request.
const TIMEOUT: Duration = Duration::from_secs(5);

/// How the hub serves each of `wanted`; `None`: not, or not namespaced, or it did not answer.
///
/// One request for the groups, and one for each version of a group that is both wanted and served, one after the other: kinds
/// that do not exist cost nothing, however many a policy names.
pub async fn discover(client: &kube::Client, wanted: BTreeSet<KindId>) -> Vec<(KindId, Option<KindRef>)> {
    let served = served(client).await;
    let versions: BTreeSet<&str> = wanted
        .iter()
        .map(|(version, _)| version.as_str())
        .filter(|version| served.contains(*version))
        .collect();
    let mut lists = Vec::new();
    for version in versions {
        let list = async {
            match version.contains('/') {
                true => client.list_api_group_resources(version).await,
                false => client.list_core_api_resources(version).await,
            }
        };
        lists.extend(tokio::time::timeout(TIMEOUT, list).await.ok().and_then(Result::ok));
    }
    wanted
        .into_iter()
        .map(|(version, kind)| {
            let list = lists.iter().find(|list| list.group_version == version);
            let found = list.and_then(|list| {
                let found = list
                    .resources
                    .iter()
                    .find(|r| r.kind == kind && r.namespaced && !r.name.contains('/'))?;
                let status = list.resources.iter().any(|r| r.name == format!("{}/status", found.name));
                Some(Kind::new(&version, &kind, &found.name, status))
            });
            ((version, kind), found)
        })
        .collect()
}

/// Every version of every group; that of the core group always.
async fn served(client: &kube::Client) -> BTreeSet<String> {
    let groups = tokio::time::timeout(TIMEOUT, client.list_api_groups()).await.ok().and_then(Result::ok);
    let groups = groups.map(|list| list.groups).unwrap_or_default();
    let versions = groups.into_iter().flat_map(|group| group.versions).map(|version| version.group_version);
    versions.chain(["v1".to_string()]).collect()
}
