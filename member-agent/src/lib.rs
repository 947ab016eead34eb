//! The member process: registers its cluster on the hub, keeps its lease, reports capacity, answers
//! reservations, applies Works, reports status, and brings the job controllers and the gang scheduler
//! to members that have none.

mod options;

pub use options::{JobController, MemberAccess, Options};

use tokio_util::sync::CancellationToken;

/// Runs the agent of one member until `shutdown` is cancelled. Never returns an error for something that
/// may pass (an API server away); only for what cannot (two agents under one name).
pub async fn run(
    hub: kube::Client,
    member: kube::Client,
    options: Options,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    let _ = (hub, member, options);
    shutdown.cancelled().await;
    Ok(())
}
