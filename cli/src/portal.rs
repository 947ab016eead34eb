//! `fleet portal`: pages and OpenPAI's REST API beside the hub, until Ctrl-C or SIGTERM.
//!
//! What pages are made from is followed with the kubeconfig's own credential, for all viewers. What a user sees of it,
//! and everything that is written, is the hub's to allow: each request goes there with its user's token.

use std::{process::ExitCode, sync::Arc};

use anyhow::{Context, bail};
use fleet_kubesim::LocalFleet;
use fleet_portal::{
    board::Board,
    web::{self, Web},
};
use kube::Client;
use tokio::{
    net::TcpListener,
    signal::unix::{SignalKind, signal},
};
use tokio_util::sync::CancellationToken;

use crate::args::{Connect, PortalArgs, PortalCommand};

pub async fn run(connect: &Connect, args: &PortalArgs) -> anyhow::Result<ExitCode> {
    if let Some(PortalCommand::Token) = args.command {
        println!("{}", token(connect)?);
        return Ok(ExitCode::SUCCESS);
    }
    if !args.listen.ip().is_loopback() && !args.allow_plain_http {
        bail!(
            "--listen: found {}, allowed is an address of this machine alone, such as 127.0.0.1:9286: tokens would cross \
             the network unencrypted; put a proxy with TLS before it, or say --allow-plain-http",
            args.listen
        );
    }
    let mut interrupt = signal(SignalKind::interrupt()).context("signals cannot be received")?;
    let mut terminate = signal(SignalKind::terminate()).context("signals cannot be received")?;
    let own = connect.hub().await?;
    let hub = connect.hub_without_credential().await?;
    let listener = TcpListener::bind(args.listen)
        .await
        .with_context(|| format!("--listen {}: the address cannot be used", args.listen))?;
    let address = listener.local_addr().context("the address of the socket")?;
    let namespace = args.scope.namespace.clone().unwrap_or(hub.namespace);
    println!("http://{address}\nready");
    let serving = serve(listener, own.server.client, hub.server.client, hub.server.url, namespace);
    tokio::select! {
        biased;
        _ = interrupt.recv() => Ok(ExitCode::SUCCESS),
        _ = terminate.recv() => Ok(ExitCode::SUCCESS),
        ended = serving => ended.map(|()| ExitCode::SUCCESS),
    }
}

/// Serves the portal of a fleet in this process, for as long as it is not dropped.
pub async fn beside(fleet: &LocalFleet, listener: TcpListener) -> anyhow::Result<()> {
    serve(listener, fleet.hub(), fleet.hub(), "the hub".to_owned(), "default".to_owned()).await
}

/// `own` is what the watches go by; `hub` carries no credential.
async fn serve(
    listener: TcpListener,
    own: Client,
    hub: Client,
    url: String,
    namespace: String,
) -> anyhow::Result<()> {
    let board = Arc::new(Board::default());
    let shutdown = CancellationToken::new();
    let _ends_with_this = shutdown.clone().drop_guard();
    let following = tokio::spawn(board.clone().follow(own, shutdown));
    let web = Arc::new(Web::new(board, hub, url, namespace));
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
    // Through JSON: the token's own type belongs to a crate this one does not use.
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
