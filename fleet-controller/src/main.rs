//! `fleet-controller --kubeconfig FILE`: the hub process, for any Kubernetes.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use anyhow::Context;
use clap::Parser;
use fleet_controller::{Election, Options, RunLog, run, serve};
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// The system's allocator took a third of a busy process's time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The hub process of Fleet: queues jobs, chooses a member cluster for each, sends it there.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    /// Kubeconfig of the hub; default: KUBECONFIG, ~/.kube/config, or the pod's own account.
    #[arg(long)]
    kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig.
    #[arg(long)]
    context: Option<String>,
    /// Whether controllers elect a leader; `false` only if there is certainly one controller.
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set, value_name = "BOOL")]
    leader_elect: bool,
    /// Namespace of the hub with the leader's Lease, named fleet-controller.
    #[arg(long, default_value = "kube-system", value_name = "NAMESPACE")]
    leader_namespace: String,
    /// Seconds without a renewal after which another controller leads.
    #[arg(long, default_value_t = 15, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(3..=600))]
    leader_lease: u64,
    /// Name of this controller in the election, unique for each; default: the host's name.
    #[arg(long, value_name = "NAME")]
    identity: Option<String>,
    /// Address of /metrics, /view and /healthz; default: not served.
    #[arg(long, value_name = "IP:PORT")]
    metrics_address: Option<SocketAddr>,
    /// File of the run log for the portal, written while this controller leads; default: none.
    #[arg(long, value_name = "FILE")]
    run_log: Option<PathBuf>,
    /// Size of the run log in bytes, with its older part in FILE.1; at least 1Mi.
    #[arg(long, default_value = "64Mi", value_name = "SIZE", value_parser = size)]
    run_log_size: u64,
}

fn size(text: &str) -> Result<u64, String> {
    let allowed = || "allowed: a number of bytes of at least 1Mi, such as 64Mi".to_string();
    let bytes = fleet_resources::quantity::parse("memory", text).map_err(|_| allowed())?;
    u64::try_from(bytes).ok().filter(|bytes| *bytes >= fleet_controller::LEAST_SIZE).ok_or_else(allowed)
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
    // One TLS provider in the process, installed before anything connects.
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
    let mut terminate = signal(SignalKind::terminate()).context("cannot receive signals")?;
    tokio::spawn(async move {
        tokio::select! {
            _ = tokio::signal::ctrl_c() => {}
            _ = terminate.recv() => {}
        }
        stop.cancel();
    });
    let kept = |file: &PathBuf| {
        RunLog::keep(file, arguments.run_log_size)
            .with_context(|| format!("--run-log {}: allowed: a writable file", file.display()))
    };
    let run_log = arguments.run_log.as_ref().map(kept).transpose()?;
    let options = Options { election: arguments.election(), run_log, ..Options::default() };
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
            Config::from_custom_kubeconfig(read, &options)
                .await
                .with_context(|| format!("--kubeconfig: {} has no usable cluster", file.display()))?
        }
    };
    Client::try_from(config).context("cannot use the hub's kubeconfig")
}
