//! Starting a real `etcd` and `kube-apiserver`, each server with an etcd of its own, and installing
//! definitions there.

use std::{
    net::{Ipv4Addr, TcpListener},
    path::Path,
    process::Stdio,
    time::Duration,
};

use anyhow::Context;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, Client, Config,
    api::PostParams,
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::Value;
use tempfile::TempDir;
use tokio::process::{Child, Command};

use super::{
    Address,
    arguments::{self, Layout},
    credentials::{self, Credentials},
};
use crate::wait::{Polled, wait_for};

/// A kube-apiserver takes some seconds to make its first objects.
const READY_WITHIN: Duration = Duration::from_secs(60);
const ESTABLISHED_WITHIN: Duration = Duration::from_secs(30);

/// The processes of one server and their folder. The processes are killed when this is dropped, and die
/// with the test's process group.
pub struct Running {
    _controllers: Option<Child>,
    _apiserver: Child,
    _etcd: Child,
    _folder: TempDir,
}

/// Starts one server and waits for `/readyz`.
///
/// # Errors
/// A process does not start, or the server is not ready in time; the end of its log comes with it.
pub async fn start(assets: &Path, name: &str) -> anyhow::Result<(Running, Client, Address)> {
    let folder = tempfile::Builder::new().prefix("fleet-apiserver-").tempdir()?;
    let [etcd_port, peer_port, secure_port] = free_ports()?;
    let layout = Layout { folder: folder.path(), etcd_port, peer_port, secure_port };
    let made = Credentials::make(folder.path())?;
    let url = layout.url();
    let kubeconfig = credentials::kubeconfig(name, &url, &made);
    let etcd = spawn(assets, "etcd", layout.etcd(), folder.path())?;
    let apiserver = spawn(assets, "kube-apiserver", layout.apiserver(), folder.path())?;
    let client = client(&kubeconfig).await?;
    let log = folder.path().join("kube-apiserver.log");
    let what = format!("API server {name} to be ready");
    let ready = wait_for(&what, READY_WITHIN, async || {
        let request = http::Request::get("/readyz").body(Vec::new())?;
        Ok(match client.request_text(request).await {
            Ok(_) => Polled::Yes(()),
            Err(error) => Polled::NotYet(error.to_string()),
        })
    });
    ready.await.with_context(|| format!("{}: {}", log.display(), tail(&log)))?;
    let controllers = controllers(assets, folder.path(), &kubeconfig)?;
    let address = Address { url, token: made.token, ca_pem: made.ca_pem, kubeconfig };
    Ok((
        Running { _controllers: controllers, _apiserver: apiserver, _etcd: etcd, _folder: folder },
        client,
        address,
    ))
}

/// Starts `kube-controller-manager`, where the folder has one. Without it nothing is collected as garbage, namespaces are
/// never gone and new nodes stay tainted.
fn controllers(assets: &Path, folder: &Path, kubeconfig: &str) -> anyhow::Result<Option<Child>> {
    const BINARY: &str = "kube-controller-manager";
    if !assets.join(BINARY).is_file() {
        return Ok(None);
    }
    let file = folder.join("controllers.kubeconfig");
    std::fs::write(&file, kubeconfig).with_context(|| file.display().to_string())?;
    spawn(assets, BINARY, arguments::controller_manager(&file, &folder.join("accounts.key")), folder)
        .map(Some)
}

/// A client of the server a kubeconfig names.
///
/// # Errors
/// The kubeconfig cannot be used.
pub async fn client(kubeconfig: &str) -> anyhow::Result<Client> {
    super::install_crypto();
    let read = Kubeconfig::from_yaml(kubeconfig)?;
    let config = Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await?;
    Ok(Client::try_from(config)?)
}

/// Creates definitions and waits until all are served.
///
/// # Errors
/// One is refused, or not served in time.
pub async fn install(client: &Client, definitions: Vec<Value>) -> anyhow::Result<()> {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    let mut names = Vec::new();
    for definition in definitions {
        let name = fleet_api::crds::name(&definition).to_string();
        let typed: CustomResourceDefinition = serde_json::from_value(definition)?;
        api.create(&PostParams::default(), &typed).await.with_context(|| format!("definition {name}"))?;
        names.push(name);
    }
    for name in names {
        wait_for(&format!("definition {name} to be served"), ESTABLISHED_WITHIN, async || {
            let conditions = api.get(&name).await?.status.and_then(|s| s.conditions).unwrap_or_default();
            let established = conditions.iter().any(|c| c.type_ == "Established" && c.status == "True");
            Ok(Polled::when(established, || format!("{conditions:?}")))
        })
        .await?;
    }
    Ok(())
}

fn spawn(assets: &Path, binary: &str, arguments: Vec<String>, folder: &Path) -> anyhow::Result<Child> {
    let log = std::fs::File::create(folder.join(format!("{binary}.log")))?;
    Command::new(assets.join(binary))
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .kill_on_drop(true)
        .spawn()
        .with_context(|| format!("{} does not start", assets.join(binary).display()))
}

/// Ports nobody listens on. All are held until the last is known, so that they differ.
pub fn free_ports<const N: usize>() -> anyhow::Result<[u16; N]> {
    let mut held = Vec::new();
    let mut ports = [0; N];
    for port in &mut ports {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        *port = listener.local_addr()?.port();
        held.push(listener);
    }
    Ok(ports)
}

/// The last lines of a log.
fn tail(file: &Path) -> String {
    const LINES: usize = 15;
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(LINES)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_ports_differ() {
        let [a, b, c] = free_ports().expect("ports");
        assert!(a != b && b != c && a != c);
    }
}
