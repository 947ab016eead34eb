//! Connects to the hub of a kubeconfig. Errors name the unusable kubeconfig and its mistake.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, bail};
use fleet_kubesim::local_fleet::Home;
use kube::{
    Client, Config,
    config::{AuthInfo, KubeConfigOptions, Kubeconfig},
};

use crate::{
    args::Connect,
    server::{HUB_PATIENCE, Server, innermost},
};

/// The hub, and the default namespace of its user.
#[derive(Clone)]
pub struct Hub {
    pub server: Server,
    pub namespace: String,
    /// Time-out of one request, of the hub and of members; `None`: the default of each.
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

    /// The hub of these options, without credentials: for a process that acts only for its callers.
    ///
    /// # Errors
    /// As [`Connect::hub`].
    pub async fn hub_without_credential(&self) -> anyhow::Result<Hub> {
        let (origin, mut kubeconfig) = self.kubeconfig()?;
        for user in &mut kubeconfig.auth_infos {
            user.auth_info = Some(AuthInfo::default());
        }
        let (mut server, namespace) = server("hub", &origin, kubeconfig, self.context.as_deref()).await?;
        server.patience = self.request_timeout.unwrap_or(server.patience);
        Ok(Hub { server, namespace, request_timeout: self.request_timeout })
    }

    /// The kubeconfig these options name, and where it is from.
    ///
    /// # Errors
    /// There is none, or it cannot be read.
    pub fn kubeconfig(&self) -> anyhow::Result<(String, Kubeconfig)> {
        if let Some(file) = &self.kubeconfig {
            return Ok((file.display().to_string(), read(file)?));
        }
        if let Some(list) = std::env::var_os("KUBECONFIG").filter(|list| !list.is_empty()) {
            let mut merged: Option<Kubeconfig> = None;
            let mut missing = Vec::new();
            for file in std::env::split_paths(&list).filter(|file| !file.as_os_str().is_empty()) {
                // As in kubectl, missing files of a list are skipped.
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
                    bail!("KUBECONFIG: {} does not exist; start a fleet with `fleet up`", missing.join(", "))
                }
            };
        }
        let own = std::env::home_dir().map(|home| home.join(".kube/config")).filter(|file| file.exists());
        let home = fleet_home().unwrap_or_default();
        let running = Home::is_held(&home).then(|| home.join("kubeconfig")).filter(|file| file.exists());
        match choose(self.is_plugin, own, running) {
            Some(Chosen { file, note }) => {
                if let Some(note) = note {
                    eprintln!("{note}");
                }
                Ok((file.display().to_string(), read(&file)?))
            }
            None => bail!(
                "no kubeconfig: KUBECONFIG is not set, ~/.kube/config does not exist, and no fleet runs in {}; start \
                 one with `fleet up`, or name a kubeconfig with --kubeconfig",
                home.display()
            ),
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Chosen {
    file: PathBuf,
    /// A note for the user if another choice was possible.
    note: Option<String>,
}

/// Without options and variables: the running fleet of this machine. A plugin uses kubectl's choice.
fn choose(is_plugin: bool, own: Option<PathBuf>, running: Option<PathBuf>) -> Option<Chosen> {
    match (own, running) {
        (Some(own), Some(running)) if !is_plugin => {
            let note = Some(format!(
                "note: this is the fleet of `fleet up` ({}); for the other one: --kubeconfig {}",
                running.display(),
                own.display()
            ));
            Some(Chosen { file: running, note })
        }
        (Some(file), _) | (None, Some(file)) => Some(Chosen { file, note: None }),
        (None, None) => None,
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
        // The parser shows the location on further lines; one line is enough here.
        let text = innermost(&error);
        let first = text.lines().next().unwrap_or_default();
        anyhow::anyhow!("kubeconfig {} is invalid: {first}", file.display())
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
            "kubeconfig {origin}: context: found {chosen:?}; allowed: {}",
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_running_fleet_is_found_without_a_variable() {
        let file = |name: &str| Some(PathBuf::from(name));
        let chosen = |is_plugin: bool, own: Option<PathBuf>, running: Option<PathBuf>| {
            choose(is_plugin, own, running).map(|chosen| (chosen.file.display().to_string(), chosen.note))
        };
        assert_eq!(chosen(false, None, None), None);
        assert_eq!(chosen(false, file("own"), None), Some(("own".to_string(), None)));
        assert_eq!(chosen(false, None, file("up")), Some(("up".to_string(), None)));
        let (found, note) = chosen(false, file("own"), file("up")).expect("one");
        assert_eq!(found, "up");
        assert!(note.is_some_and(|note| note.contains("--kubeconfig own")));
        // kubectl goes by ~/.kube/config, and its plugin with it.
        assert_eq!(chosen(true, file("own"), file("up")), Some(("own".to_string(), None)));
        assert_eq!(chosen(true, None, file("up")), Some(("up".to_string(), None)));
    }
}
