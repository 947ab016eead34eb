//! Completion for `kubectl fleet`: kubectl runs `kubectl_complete-fleet` with the typed words and reads one
//! word per line, then a line with a directive for the shell.
//!
//! `typed` says where the last word stands and what it may be; names come from the hub. A hub that does not answer
//! completes nothing.

mod typed;

use std::time::Duration;

use fleet_cli_ground::{args::Connect, connect::Hub, discovery, members, server::Selectors};
use fleet_openpai::jobs;
use fleet_pai::names::id;
use serde_json::Value;

use typed::{Wanted, value_of};

/// kubectl runs the plugin `NAME`'s completion under this name.
pub const PREFIX: &str = "kubectl_complete-";
/// The shell adds no names of files.
const NO_FILES: &str = ":4";
/// The shell adds names of files.
const FILES: &str = ":0";
/// A user waits at the prompt.
const PATIENCE: Duration = Duration::from_secs(2);

/// The words that complete the last one, and the line for the shell.
pub async fn run(words: &[String]) -> String {
    let last = words.last().map(String::as_str).unwrap_or_default();
    let wanted = typed::wanted(words);
    let asked = tokio::time::timeout(PATIENCE, candidates(&wanted, words)).await;
    let mut found = asked.ok().and_then(Result::ok).unwrap_or_default();
    found.retain(|word| word.starts_with(last));
    found.sort();
    found.dedup();
    found.push(if wanted == Wanted::Files { FILES } else { NO_FILES }.to_string());
    found.join("\n") + "\n"
}

async fn candidates(wanted: &Wanted, words: &[String]) -> anyhow::Result<Vec<String>> {
    let connect = Connect {
        kubeconfig: value_of(words, "kubeconfig").map(Into::into),
        context: value_of(words, "context"),
        ..Connect::default()
    };
    let sought = match wanted {
        Wanted::Words(words) => return Ok(words.clone()),
        Wanted::Files | Wanted::Nothing => return Ok(Vec::new()),
        Wanted::Contexts => {
            let contexts = connect.kubeconfig()?.1.contexts;
            return Ok(contexts.into_iter().map(|context| context.name).collect());
        }
        sought => sought,
    };
    let hub = connect.hub().await?;
    let namespace = value_of(words, "namespace").unwrap_or_else(|| hub.namespace.clone());
    match sought {
        Wanted::Clusters => {
            let clusters = members::clusters(&hub).await?;
            Ok(clusters.into_iter().filter_map(|cluster| cluster.metadata.name).collect())
        }
        Wanted::Namespaces => named(&hub, "/api/v1/namespaces", "/metadata/name").await,
        Wanted::VirtualClusters => {
            named(&hub, "/apis/fleet.dev/v1alpha1/virtualclusters", "/spec/name").await
        }
        Wanted::Jobs => governed(&hub, &namespace).await,
        Wanted::PaiJobs => {
            let items = jobs::list(&hub.server, Some(&namespace)).await?;
            Ok(items.into_iter().map(|item| id(&item.username, &item.name)).collect())
        }
        Wanted::Names(word, form) => {
            let kinds = discovery::kinds(&hub.server).await?;
            let Some(kind) = discovery::resolve(&kinds, word).first().copied() else { return Ok(Vec::new()) };
            let found = named(&hub, &kind.path(Some(&namespace)), "/metadata/name").await?;
            Ok(found.into_iter().map(|name| form.write(word, name)).collect())
        }
        Wanted::KindsAndJobs => {
            let (kinds, jobs) = tokio::try_join!(kinds(&hub), governed(&hub, &namespace))?;
            Ok(kinds.into_iter().chain(jobs).collect())
        }
        _ => kinds(&hub).await,
    }
}

async fn kinds(hub: &Hub) -> anyhow::Result<Vec<String>> {
    let kinds = discovery::kinds(&hub.server).await?;
    Ok(kinds.into_iter().filter(|kind| kind.listable).map(|kind| kind.plural_group()).collect())
}

/// Names of the objects of a namespace that a policy governs.
async fn governed(hub: &Hub, namespace: &str) -> anyhow::Result<Vec<String>> {
    let path = format!("/apis/fleet.dev/v1alpha1/namespaces/{namespace}/resourcebindings");
    named(hub, &path, "/spec/resource/name").await
}

async fn named(hub: &Hub, path: &str, field: &str) -> anyhow::Result<Vec<String>> {
    let listed = hub.server.list(path, &Selectors::default(), "application/json").await?;
    let items: Vec<Value> = listed["items"].as_array().cloned().unwrap_or_default();
    Ok(items.iter().filter_map(|item| item.pointer(field)?.as_str().map(str::to_string)).collect())
}
