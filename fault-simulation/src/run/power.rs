//! Servers that lose their power, and a hub that is restored from a backup.

use std::time::Duration;

use fleet_api::mutation::{self, Mutation};
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::Run;
use crate::plan::Server;

/// How long a server works on without anybody hearing of it, before its power is off: what it does in this time was
/// never answered, and is lost.
const FAILING: Duration = Duration::from_millis(20);
/// Commits that a disk without fsync loses.
const NOT_SYNCED: u64 = 24;

impl Run<'_> {
    /// A server loses its power. What it has answered is there when it is back.
    pub(super) async fn lose_power(&mut self, server: &Server) {
        let Some(answered) = self.sim.fail_power(server) else { return };
        sleep(FAILING).await;
        let kept = match mutation::is_on(Mutation::CommitNotSynced) {
            true => answered.saturating_sub(NOT_SYNCED),
            false => answered,
        };
        if self.sim.lose_power(server, kept) {
            self.sim.count_fault("power lost");
        }
    }

    /// The hub is restored to what it was so long ago. Then users do again what they have done since.
    pub(super) async fn restore(&mut self, back: Duration) -> anyhow::Result<()> {
        if !self.sim.restore_hub(back) {
            self.observer.tell("Refused", "", json!({"message": "no backup is so old"}));
            return Ok(());
        }
        self.sim.count_fault("hub restored");
        self.observer.goes_back();
        self.namespaces.retain(|(server, _)| *server != Server::Hub);
        let then = Instant::now() - back;
        let again = self.written.iter().position(|(at, _)| *at > then).unwrap_or(self.written.len());
        for (_, what) in self.written.split_off(again) {
            self.happen(&what).await?;
        }
        Ok(())
    }
}
