//! `fleet apiserver`: one API server in this process, kept in a data directory, until Ctrl-C or SIGTERM.
//!
//! The controllers of the member agent run with it, as clients of the server, so a kube-controller-manager
//! can replace them.

use std::{
    collections::BTreeSet,
    fs,
    io::{ErrorKind, Write},
    path::{Path, PathBuf, absolute},
    process::ExitCode,
};

use anyhow::{Context, bail};
use fleet_apiserver::{Access, ApiServer, Config, ServeOptions, Server, private};
use kube::Client;
use member_agent::JobController;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::args::{ApiServerArgs, Controller};

/// Name of cluster, user and context in the kubeconfig.
const CONTEXT: &str = "fleet-apiserver";

pub async fn run(args: ApiServerArgs) -> anyhow::Result<ExitCode> {
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot receive signals")?;
    let mut terminate = signal(SignalKind::terminate()).context("cannot receive signals")?;
    let controllers = controllers(&args.controllers)?;
    let directory = absolute(&args.data_dir)
        .with_context(|| format!("--data-dir {}: cannot create the path", args.data_dir.display()))?;
    private::directory(&directory).with_context(|| format!("data directory {}", directory.display()))?;
    let kubeconfig = directory.join("kubeconfig");

    let access = if args.always_allow { Access::AlwaysAllow } else { Access::Rbac };
    let config = Config { data_dir: Some(directory.clone()), access, ..Config::default() };
    let api = ApiServer::open(config).await.context("cannot start the API server")?;
    // A kubeconfig left by a killed server would make a waiting script believe that this server is ready. It
    // is moved only once the directory is known to be ours.
    put_aside(&kubeconfig)?;
    let options = ServeOptions { listen: args.listen, extra_sans: args.sans };
    let served = api.serve(options).await?;
    publish(&served, &kubeconfig)?;
    say(&format!("https://{}\nexport KUBECONFIG={}\n", served.local_addr(), kubeconfig.display()))?;

    let stop = CancellationToken::new();
    let client = Client::new(api.router(), "default");
    let beside = tokio::spawn({
        let stop = stop.clone();
        async move { member_agent::jobs::run_alone(client, CONTEXT, &controllers, stop).await }
    });
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    stop.cancel();
    let ended = beside.await;
    served.shutdown().await;
    api.shutdown().await;
    let _ = put_aside(&kubeconfig);
    ended.context("a controller ended abnormally")?;
    Ok(ExitCode::SUCCESS)
}

/// Name of the kubeconfig while its server does not answer.
fn aside(kubeconfig: &Path) -> PathBuf {
    kubeconfig.with_extension("last")
}

/// Removes the kubeconfig but keeps its disk blocks: on a full disk a new file could not be written.
fn put_aside(kubeconfig: &Path) -> anyhow::Result<()> {
    match fs::rename(kubeconfig, aside(kubeconfig)) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(error).with_context(|| kubeconfig.display().to_string())
        }
        _ => Ok(()),
    }
}

/// Writes the kubeconfig; the moved one is restored if its content is the same.
fn publish(served: &Server, kubeconfig: &Path) -> anyhow::Result<()> {
    let (aside, text) = (aside(kubeconfig), served.kubeconfig(CONTEXT));
    let write = if fs::read(&aside).is_ok_and(|found| found == text.as_bytes()) {
        fs::rename(&aside, kubeconfig)
    } else {
        private::write(kubeconfig, &text)
    };
    write.with_context(|| kubeconfig.display().to_string())
}

fn controllers(names: &[Controller]) -> anyhow::Result<BTreeSet<JobController>> {
    if names.len() > 1 && names.contains(&Controller::None) {
        bail!("--controllers: found none beside others; allowed: none alone, or a list without it");
    }
    let chosen = names.iter().filter_map(|name| match name {
        Controller::Deployment => Some(JobController::Deployment),
        Controller::Job => Some(JobController::BatchJob),
        Controller::None => None,
    });
    Ok(chosen.collect())
}

fn say(text: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).context("cannot write to stdout")
}
