//! `fleet-controller --kubeconfig FILE`: the hub process on any Kubernetes.

use std::path::PathBuf;

use anyhow::Context;
use clap::Parser;
use fleet_controller::{Options, run};
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
    run(hub, Options::default(), shutdown).await
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
