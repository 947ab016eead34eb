//! Hollow nodes and their kubelets for one member.
//!
//! Inputs: a client of the member, the nodes to create, a default run time. Pods bound to these nodes become
//! Running, then Succeeded or Failed by the rules of [`fleet_simulator::run_plan`]. All state is in the API
//! objects, so a restart continues where it stopped. Not here: binding pods to nodes, images, volumes, logs,
//! probes.

mod admission;
mod group;
mod kubelet;
mod nodes;
mod options;
mod owners;
pub(crate) mod pod;
pub(crate) mod status;
pub(crate) mod timers;
mod watchdog;

pub use group::{Removed, remove};
pub(crate) use kubelet::sleep_until;
pub use nodes::ensure;
pub(crate) use nodes::node;
pub use options::{Clock, FIELD_MANAGER, HollowNode, NodeSpec, Options};
pub use watchdog::Containers;

use futures::future::BoxFuture;
use kube::Client;
use tokio_util::sync::CancellationToken;

/// Creates the nodes and runs their kubelets until `shutdown` is cancelled.
///
/// # Errors
/// Only if a node cannot be written at all; if the server becomes unavailable later, requests are retried.
pub fn run(
    client: Client,
    options: Options,
    shutdown: CancellationToken,
) -> BoxFuture<'static, anyhow::Result<()>> {
    Box::pin(run_in_place(client, options, shutdown))
}

async fn run_in_place(client: Client, options: Options, shutdown: CancellationToken) -> anyhow::Result<()> {
    let ready = tokio::select! {
        biased;
        () = shutdown.cancelled() => return Ok(()),
        ready = nodes::ensure(&client, &options) => ready,
    };
    ready?;
    serve_in_place(client, options, shutdown).await;
    Ok(())
}

/// Runs the kubelets of nodes that exist until `shutdown` is cancelled.
pub fn serve(client: Client, options: Options, shutdown: CancellationToken) -> BoxFuture<'static, ()> {
    Box::pin(serve_in_place(client, options, shutdown))
}

async fn serve_in_place(client: Client, options: Options, shutdown: CancellationToken) {
    tokio::join!(nodes::heartbeats(&client, &options, &shutdown), kubelet::run(&client, &options, &shutdown),);
}
