//! API servers as a parameter: the embedded one, or a real `etcd` and `kube-apiserver`.
//!
//! The convention is that of controller-runtime's envtest: `KUBEBUILDER_ASSETS` names the folder with the
//! two binaries. Without it the suites run against the embedded server, in memory.

mod arguments;
mod credentials;
mod real;

use std::path::PathBuf;

use anyhow::{Context, bail};
use fleet_api::crds::{self, Side};
use fleet_apiserver::{Access, ApiServer, Config, ServeOptions, Server};
use kube::Client;

pub use real::client as client_of;

/// Variable that names the folder with `etcd` and `kube-apiserver`.
pub const ASSETS: &str = crate::wait::REAL_SERVERS;

/// Which API servers a test runs against.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ApiServers {
    Embedded,
    /// Those of this folder.
    Real(PathBuf),
}

/// Whether an embedded server also listens; a real one always does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Door {
    InProcess,
    Listening,
}

/// One API server with Fleet's definitions in it.
pub struct Plane {
    pub name: String,
    pub client: Client,
    /// How others reach it; absent when it has no socket.
    pub address: Option<Address>,
    keep: Keep,
}

/// How a client outside this process reaches a server.
#[derive(Clone, Debug)]
pub struct Address {
    /// `https://127.0.0.1:PORT`.
    pub url: String,
    pub token: String,
    pub ca_pem: String,
    pub kubeconfig: String,
}

/// What lives as long as the server is wanted.
enum Keep {
    Embedded { server: ApiServer, served: Option<Server> },
    Real(#[allow(dead_code, reason = "ends its processes when dropped")] Box<real::Running>),
}

impl ApiServers {
    /// What the environment asks for.
    ///
    /// # Errors
    /// `KUBEBUILDER_ASSETS` names a folder without the binaries.
    pub fn from_env() -> anyhow::Result<Self> {
        let Some(folder) = std::env::var_os(ASSETS).filter(|folder| !folder.is_empty()) else {
            return Ok(Self::Embedded);
        };
        let folder = PathBuf::from(folder);
        for binary in ["etcd", "kube-apiserver"] {
            if !folder.join(binary).is_file() {
                bail!("{ASSETS}={}: found no {binary} there; allowed: a folder with both", folder.display());
            }
        }
        Ok(Self::Real(folder))
    }

    pub fn are_real(&self) -> bool {
        matches!(self, Self::Real(_))
    }

    /// Starts one server and installs the definitions of its side.
    ///
    /// # Errors
    /// It does not start or does not become ready in time.
    pub async fn start(&self, name: &str, side: Side, door: Door) -> anyhow::Result<Plane> {
        self.start_as(name, side, door, Access::AlwaysAllow).await
    }

    /// As [`Self::start`], and the server asks the roles who may do what; a real one always does.
    ///
    /// # Errors
    /// As there.
    pub async fn start_with_roles(&self, name: &str, side: Side, door: Door) -> anyhow::Result<Plane> {
        self.start_as(name, side, door, Access::Rbac).await
    }

    async fn start_as(&self, name: &str, side: Side, door: Door, access: Access) -> anyhow::Result<Plane> {
        install_crypto();
        match self {
            Self::Embedded => embedded(name, side, door, access).await,
            Self::Real(folder) => {
                let (running, client, address) = real::start(folder, name).await?;
                real::install(&client, crds::definitions(side)).await.with_context(|| name.to_string())?;
                let keep = Keep::Real(Box::new(running));
                Ok(Plane { name: name.to_string(), client, address: Some(address), keep })
            }
        }
    }
}

impl Plane {
    /// Ends the server.
    pub async fn stop(self) {
        if let Keep::Embedded { server, served } = self.keep {
            if let Some(served) = served {
                served.shutdown().await;
            }
            server.shutdown().await;
        }
    }
}

async fn embedded(name: &str, side: Side, door: Door, access: Access) -> anyhow::Result<Plane> {
    let config = Config { crds: crds::definitions(side), access, ..Config::default() };
    let server = ApiServer::open(config).await.with_context(|| format!("API server {name}"))?;
    let client = Client::new(server.router(), "default");
    let served = match door {
        Door::InProcess => None,
        Door::Listening => Some(server.serve(ServeOptions::default()).await?),
    };
    let address = served.as_ref().map(|served| Address {
        url: format!("https://{}", served.local_addr()),
        token: server.admin_token(),
        ca_pem: served.ca_pem().to_string(),
        kubeconfig: served.kubeconfig(name),
    });
    Ok(Plane { name: name.to_string(), client, address, keep: Keep::Embedded { server, served } })
}

/// The one TLS provider of the workspace, as every `main` installs it.
pub fn install_crypto() {
    // An error says that another test of this process was first.
    let _ = rustls::crypto::ring::default_provider().install_default();
}
