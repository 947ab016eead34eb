//! The member process: registers its cluster on the hub, keeps its lease, reports capacity, answers
//! reservations, applies Works, reports status, and brings the job controllers and the gang scheduler
//! to members that have none.

mod context;
mod lease;
mod options;
mod reservations;

pub use context::{CALL_TIMEOUT, CallError, Context, call};
pub use lease::LeaseClock;
pub use options::{JobController, MemberAccess, Options};
pub use reservations::Reservations;

use tokio_util::sync::CancellationToken;

/// Runs the agent of one member until `shutdown` is cancelled. Never returns an error for something that
/// may pass (an API server away); only for what cannot (two agents under one name).
pub async fn run(
    hub: kube::Client,
    member: kube::Client,
    options: Options,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    let (_lease_sender, lease) = LeaseClock::new();
    let (reservations, _requests) = Reservations::new();
    let context = std::sync::Arc::new(Context::new(hub, member, options, shutdown, lease, reservations));
    context.shutdown.cancelled().await;
    Ok(())
}
