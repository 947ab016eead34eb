//! `fleet portal`: OpenPAI's REST API beside the hub, until Ctrl-C or SIGTERM.
//!
//! The process has no rights of its own: what the kubeconfig says of a user is left out, and each request goes to the
//! hub with its caller's token.

use std::process::ExitCode;

use anyhow::{Context, bail};
use fleet_portal::rest::{self, Portal};
use tokio::{
    net::TcpListener,
    signal::unix::{SignalKind, signal},
};

use crate::args::{Connect, PortalArgs};

pub async fn run(connect: &Connect, args: &PortalArgs) -> anyhow::Result<ExitCode> {
    if !args.listen.ip().is_loopback() && !args.allow_plain_http {
        bail!(
            "--listen: found {}, allowed is an address of this machine alone, such as 127.0.0.1:9286: tokens would cross \
             the network unencrypted; put a proxy with TLS before it, or say --allow-plain-http",
            args.listen
        );
    }
    let mut interrupt = signal(SignalKind::interrupt()).context("signals cannot be received")?;
    let mut terminate = signal(SignalKind::terminate()).context("signals cannot be received")?;
    let hub = connect.hub_without_credential().await?;
    let listener = TcpListener::bind(args.listen)
        .await
        .with_context(|| format!("--listen {}: the address cannot be used", args.listen))?;
    let address = listener.local_addr().context("the address of the socket")?;
    let portal = Portal {
        hub: hub.server.client,
        url: hub.server.url,
        namespace: args.scope.namespace.clone().unwrap_or(hub.namespace),
    };
    println!("http://{address}/api/v2\nready");
    let until = async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    };
    rest::serve(listener, portal, until).await.context("the portal does not serve")?;
    Ok(ExitCode::SUCCESS)
}
