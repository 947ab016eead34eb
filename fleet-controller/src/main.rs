//! `fleet-controller --kubeconfig FILE`: the hub process on any Kubernetes.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use anyhow::Context;
use clap::Parser;
use fleet_controller::{Election, Options, run, serve};
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// A third of a busy process's time went into the system's allocator.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The hub process of Fleet: queues jobs, chooses a member cluster for each, sends them there.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    /// Kubeconfig of the hub; default: KUBECONFIG, ~/.kube/config, or the pod's own account.
    #[arg(long)]
    kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig.
    #[arg(long)]
    context: Option<String>,
    /// Whether controllers elect a leader; `false` only where there is certainly one.
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set, value_name = "BOOL")]
    leader_elect: bool,
    /// Namespace of the hub with the leader's Lease, named fleet-controller.
    #[arg(long, default_value = "kube-system", value_name = "NAMESPACE")]
    leader_namespace: String,
    /// Seconds without a renewal after which another controller leads.
    #[arg(long, default_value_t = 15, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(3..=600))]
    leader_lease: u64,
    /// Name of this controller in the election, different for each; default: the host's name.
    #[arg(long, value_name = "NAME")]
    identity: Option<String>,
    /// Address on which /metrics, /view and /healthz are served; default: nowhere.
    #[arg(long, value_name = "IP:PORT")]
    metrics_address: Option<SocketAddr>,
}

impl Arguments {
    fn election(&self) -> Option<Election> {
        let host =
            || std::fs::read_to_string("/proc/sys/kernel/hostname").or_else(|_| std::env::var("HOSTNAME"));
        let identity = self.identity.clone().or_else(|| host().ok()).map(|name| name.trim().to_string());
        self.leader_elect.then(|| Election {
            namespace: self.leader_namespace.clone(),
            identity: identity
                .filter(|name| !name.is_empty())
                .unwrap_or_else(|| "fleet-controller".to_string()),
            duration: Duration::from_secs(self.leader_lease),
        })
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    // One provider of cryptography in the process, chosen before anything connects.
    let _ = rustls::crypto::ring::default_provider().install_default();
    tracing_subscriber::fmt()
        .with_env_filter(
            tracing_subscriber::EnvFilter::try_from_default_env().unwrap_or_else(|_| "info".into()),
        )
        .with_writer(std::io::stderr)
        .init();
    let hub = client(&arguments).await?;
    let shutdown = CancellationToken::new();
    let stop = shutdown.clone();
    let mut terminate = signal(SignalKind::terminate()).context("signals cannot be received")?;
    tokio::spawn(async move {
        tokio::select! {
            _ = tokio::signal::ctrl_c() => {}
            _ = terminate.recv() => {}
        }
        stop.cancel();
    });
    let options = Options { election: arguments.election(), ..Options::default() };
    let Some(address) = arguments.metrics_address else { return run(hub, options, shutdown).await };
    let served = options.clone();
    let serving = async {
        let serving = serve(&served, hub.clone(), address, shutdown.clone());
        serving.await.with_context(|| format!("--metrics-address {address}"))
    };
    tokio::try_join!(serving, run(hub.clone(), options, shutdown.clone()))?;
    Ok(())
}

async fn client(arguments: &Arguments) -> anyhow::Result<Client> {
    let options = KubeConfigOptions { context: arguments.context.clone(), ..KubeConfigOptions::default() };
    let config = match &arguments.kubeconfig {
        None => Config::infer().await.context("no hub to connect to: give --kubeconfig FILE")?,
        Some(file) => {
            let read = Kubeconfig::read_from(file)
                .with_context(|| format!("--kubeconfig: {} is not a readable kubeconfig", file.display()))?;
            Config::from_custom_kubeconfig(read, &options).await.with_context(|| {
                format!("--kubeconfig: {} does not describe a cluster to use", file.display())
            })?
        }
    };
    Client::try_from(config).context("the hub's kubeconfig cannot be used")
}
