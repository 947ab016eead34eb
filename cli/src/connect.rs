//! From a kubeconfig to the hub. A kubeconfig that cannot be used is named, with what is wrong in it.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, bail};
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};

use crate::{
    args::Connect,
    server::{HUB_PATIENCE, Server, innermost},
};

/// The hub, and the namespace in which a user of it looks.
#[derive(Clone)]
pub struct Hub {
    pub server: Server,
    pub namespace: String,
    /// What a user allows for one answer, of the hub and of members.
    pub request_timeout: Option<Duration>,
}

impl Connect {
    /// The hub these options name.
    ///
    /// # Errors
    /// No kubeconfig, or one that cannot be used.
    pub async fn hub(&self) -> anyhow::Result<Hub> {
        let (origin, mut kubeconfig) = self.kubeconfig()?;
        if let Some(url) = &self.url {
            for cluster in kubeconfig.clusters.iter_mut().filter_map(|named| named.cluster.as_mut()) {
                cluster.server = Some(url.clone());
            }
        }
        let (mut server, namespace) = server("hub", &origin, kubeconfig, self.context.as_deref()).await?;
        server.patience = self.request_timeout.unwrap_or(server.patience);
        Ok(Hub { server, namespace, request_timeout: self.request_timeout })
    }

    fn kubeconfig(&self) -> anyhow::Result<(String, Kubeconfig)> {
        if let Some(file) = &self.kubeconfig {
            return Ok((file.display().to_string(), read(file)?));
        }
        if let Some(list) = std::env::var_os("KUBECONFIG").filter(|list| !list.is_empty()) {
            let mut merged: Option<Kubeconfig> = None;
            let mut missing = Vec::new();
            for file in std::env::split_paths(&list).filter(|file| !file.as_os_str().is_empty()) {
                // As kubectl does: of a list, files that are not there are passed over.
                if !file.exists() {
                    missing.push(file.display().to_string());
                    continue;
                }
                let next = read(&file)?;
                merged = Some(match merged {
                    Some(merged) => merged.merge(next).context("the files of KUBECONFIG do not merge")?,
                    None => next,
                });
            }
            return match merged {
                Some(merged) => Ok((format!("KUBECONFIG={}", list.to_string_lossy()), merged)),
                None => {
                    bail!("KUBECONFIG: {} is not there; start a fleet with `fleet up`", missing.join(", "))
                }
            };
        }
        let mut candidates = Vec::new();
        candidates.extend(std::env::home_dir().map(|home| home.join(".kube/config")));
        candidates.extend(fleet_home().map(|home| home.join("kubeconfig")));
        match candidates.iter().find(|file| file.exists()) {
            Some(file) => Ok((file.display().to_string(), read(file)?)),
            None => bail!(
                "no kubeconfig: KUBECONFIG is not set and {} is not there; start a fleet with `fleet up`, or \
                 name one with --kubeconfig",
                candidates.iter().map(|file| file.display().to_string()).collect::<Vec<_>>().join(" or ")
            ),
        }
    }
}

/// `$FLEET_HOME` or `~/.fleet`.
pub fn fleet_home() -> Option<PathBuf> {
    match std::env::var_os("FLEET_HOME").filter(|home| !home.is_empty()) {
        Some(home) => Some(PathBuf::from(home)),
        None => std::env::home_dir().map(|home| home.join(".fleet")),
    }
}

/// Reads one kubeconfig file.
///
/// # Errors
/// Names the file and what is wrong.
pub fn read(file: &Path) -> anyhow::Result<Kubeconfig> {
    let text = std::fs::read_to_string(file)
        .with_context(|| format!("kubeconfig {} cannot be read", file.display()))?;
    Kubeconfig::from_yaml(&text).map_err(|error| {
        // The reader draws the place below its first line; an error here is one line.
        let text = innermost(&error);
        let first = text.lines().next().unwrap_or_default();
        anyhow::anyhow!("kubeconfig {} is not one: {first}", file.display())
    })
}

/// The server of a context, and its namespace.
///
/// # Errors
/// The context, its cluster or its user is missing or unusable.
pub async fn server(
    name: &str,
    origin: &str,
    kubeconfig: Kubeconfig,
    context: Option<&str>,
) -> anyhow::Result<(Server, String)> {
    let known: Vec<String> = kubeconfig.contexts.iter().map(|context| context.name.clone()).collect();
    let chosen = context.map(str::to_string).or_else(|| kubeconfig.current_context.clone());
    match chosen.as_deref().filter(|chosen| !chosen.is_empty()) {
        Some(chosen) if !known.iter().any(|name| name == chosen) => bail!(
            "kubeconfig {origin}: context: found {chosen:?}, allowed is {}",
            if known.is_empty() { "none (it has no contexts)".to_string() } else { known.join(", ") }
        ),
        None => bail!("kubeconfig {origin}: current-context is not set; choose one with --context"),
        _ => {}
    }
    let options = KubeConfigOptions { context: chosen, ..KubeConfigOptions::default() };
    let config = Config::from_custom_kubeconfig(kubeconfig, &options)
        .await
        .with_context(|| format!("kubeconfig {origin}"))?;
    let url = config.cluster_url.to_string().trim_end_matches('/').to_string();
    let namespace = config.default_namespace.clone();
    let client = Client::try_from(config).with_context(|| format!("kubeconfig {origin}"))?;
    Ok((Server { client, name: name.to_string(), url, patience: HUB_PATIENCE }, namespace))
}
