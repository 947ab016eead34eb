//! `fleet portal`: the web portal and OpenPAI's REST API of a hub, until Ctrl-C or SIGTERM.
//!
//! The data of all pages is watched once, with the kubeconfig's own credential. What a user may see and write
//! is decided by the hub: each request is sent there with the user's token.

use std::{net::SocketAddr, path::Path, process::ExitCode, sync::Arc};

use anyhow::{Context, bail};
use fleet_cli_ground::args::Connect;
use fleet_kubesim::LocalFleet;
use fleet_metrics::{Exposed, Exposition, Process};
use fleet_portal::{
    board::Board,
    time::Time,
    web::{self, Audience, PortalMetrics, Web},
};
use kube::Client;
use tokio::{
    net::TcpListener,
    signal::unix::{SignalKind, signal},
};
use tokio_util::sync::CancellationToken;

use crate::args::{PortalArgs, PortalCommand};

/// Where jobs of `fleet up` are submitted to.
const NAMESPACE: &str = "default";

pub async fn run(connect: &Connect, args: &PortalArgs) -> anyhow::Result<ExitCode> {
    if let Some(PortalCommand::Token) = args.command {
        println!("{}", token(connect)?);
        return Ok(ExitCode::SUCCESS);
    }
    check_address(args)?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot receive signals")?;
    let mut terminate = signal(SignalKind::terminate()).context("cannot receive signals")?;
    if let Some(file) = &args.log {
        let audience = if args.allow_anonymous { Audience::Anybody } else { Audience::Machine };
        let serving = recorded(file, args.listen, audience);
        return tokio::select! {
            biased;
            _ = interrupt.recv() => Ok(ExitCode::SUCCESS),
            _ = terminate.recv() => Ok(ExitCode::SUCCESS),
            ended = serving => ended.map(|()| ExitCode::SUCCESS),
        };
    }
    let own = connect.hub().await?;
    let hub = connect.hub_without_credential().await?;
    let listener = listen(args.listen).await?;
    let address = listener.local_addr().context("the address of the socket")?;
    let metrics = match args.metrics_address {
        Some(address) => Some(
            TcpListener::bind(address)
                .await
                .with_context(|| format!("--metrics-address {address}: the address cannot be used"))?,
        ),
        None => None,
    };
    let namespace = args.scope.namespace.clone().unwrap_or(hub.namespace);
    println!("http://{address}\nready");
    let counts = PortalMetrics::default();
    let parts: Vec<Arc<dyn Exposed>> =
        vec![Arc::new(Process::new("fleet-portal", env!("CARGO_PKG_VERSION"))), Arc::new(counts.clone())];
    let time = args.run_log.as_deref().map(|file| Arc::new(Time::following(file)));
    let is_behind_proxy = args.behind_proxy;
    let keeper = args.users.then(|| own.server.client.clone());
    let members = args.read_members.then(|| own.server.client.clone());
    let web = move |board| {
        let web = Web::new(board, hub.server.client, hub.server.url, namespace).counting(counts);
        let web = members.into_iter().fold(Web { time, ..web }, Web::reading_members);
        keeper.into_iter().fold(web, |web, keeper| web.keeping_users(keeper, is_behind_proxy))
    };
    let serving = serve(listener, own.server.client, web);
    tokio::select! {
        biased;
        _ = interrupt.recv() => Ok(ExitCode::SUCCESS),
        _ = terminate.recv() => Ok(ExitCode::SUCCESS),
        ended = serving => ended.map(|()| ExitCode::SUCCESS),
        ended = serve_metrics(metrics, parts) => ended.map(|()| ExitCode::SUCCESS),
    }
}

/// Beyond this machine tokens would be read on the way, and a recording by anybody: only where that is said.
fn check_address(args: &PortalArgs) -> anyhow::Result<()> {
    let (is_allowed, why) = match &args.log {
        None => (
            args.allow_plain_http,
            "tokens would cross the network unencrypted; put a proxy with TLS before it, or say --allow-plain-http",
        ),
        Some(_) => (
            args.allow_anonymous,
            "with --log nobody is asked to sign in, so whoever reaches the address sees the whole log; put a proxy that \
             asks before it, or say --allow-anonymous",
        ),
    };
    if args.listen.ip().is_loopback() || is_allowed {
        return Ok(());
    }
    bail!(
        "--listen: found {}, allowed is an address of this machine alone, such as 127.0.0.1:9286: {why}",
        args.listen
    )
}

async fn listen(address: SocketAddr) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address)
        .await
        .with_context(|| format!("--listen {address}: the address cannot be used"))
}

/// Serves the pages of a run log.
async fn recorded(file: &Path, address: SocketAddr, audience: Audience) -> anyhow::Result<()> {
    let path = file.to_owned();
    let opened = tokio::task::spawn_blocking(move || Time::open(&path)).await?;
    let time = opened.map_err(|error| anyhow::anyhow!("--log {error}"))?;
    let listener = listen(address).await?;
    println!("http://{}\nready", listener.local_addr().context("the address of the socket")?);
    web::serve_recording(listener, Arc::new(time), audience).await.context("the portal does not serve")
}

/// Serves the portal of a fleet in this process until it is dropped.
pub async fn beside(
    fleet: &LocalFleet,
    listener: TcpListener,
    counts: PortalMetrics,
    run_log: &Path,
) -> anyhow::Result<()> {
    let (hub, own) = (fleet.hub(), fleet.hub());
    let time = Arc::new(Time::following(run_log));
    fleet_kubesim::local_fleet::prepare_users(&hub, NAMESPACE).await.context("users of the portal")?;
    let web = move |board| {
        let web = Web::new(board, hub.clone(), "the hub".to_owned(), NAMESPACE.to_owned());
        web.counting(counts).recorded_by(time).reading_members(own).keeping_users(hub, false)
    };
    serve(listener, fleet.hub(), web).await
}

/// Serves metrics if there is a socket for them, until it is dropped.
pub async fn serve_metrics(
    listener: Option<TcpListener>,
    parts: Vec<Arc<dyn Exposed>>,
) -> anyhow::Result<()> {
    let Some(listener) = listener else { return std::future::pending().await };
    let served = fleet_metrics::serve(listener, Exposition::new(parts), std::future::pending()).await;
    served.context("metrics are not served")
}

/// `own` is the credential of the watches; `web` serves what they show.
async fn serve(
    listener: TcpListener,
    own: Client,
    web: impl FnOnce(Arc<Board>) -> Web,
) -> anyhow::Result<()> {
    let board = Arc::new(Board::default());
    let shutdown = CancellationToken::new();
    let _ends_with_this = shutdown.clone().drop_guard();
    let following = tokio::spawn(board.clone().follow(own, shutdown));
    let web = Arc::new(web(board));
    let served = web::serve(listener, web, std::future::pending()).await;
    following.abort();
    served.context("the portal does not serve")
}

/// The token of the kubeconfig's user.
fn token(connect: &Connect) -> anyhow::Result<String> {
    let (origin, kubeconfig) = connect.kubeconfig()?;
    let chosen = connect.context.clone().or(kubeconfig.current_context.clone()).unwrap_or_default();
    let context = kubeconfig.contexts.iter().find(|context| context.name == chosen);
    let user = context.and_then(|context| context.context.as_ref()?.user.clone()).unwrap_or_default();
    let found = kubeconfig.auth_infos.iter().find(|info| info.name == user);
    // Through JSON: the token's type belongs to a crate that is not used here.
    let info = serde_json::to_value(found.and_then(|found| found.auth_info.as_ref()))?;
    if let Some(token) = info["token"].as_str() {
        return Ok(token.to_owned());
    }
    if let Some(file) = info["tokenFile"].as_str() {
        let text = std::fs::read_to_string(file).with_context(|| format!("tokenFile {file}"))?;
        return Ok(text.trim().to_owned());
    }
    bail!(
        "kubeconfig {origin}: user {user:?}: found no token; make one with `kubectl create token SERVICEACCOUNT`"
    )
}
