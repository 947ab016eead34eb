//! Works: applies what the hub sends to this member, reports its status, and removes it again.
//!
//! `watches` → `state` → `desired` and `report`, which decide as pure functions → `apply` and `cleanup`,
//! which write. `fence` stops fenced jobs while the cluster is cut off; `epochs` records which runs must not
//! start again. Deliberately absent: choosing what to apply (the hub does), running jobs (`job-controllers`
//! or the member's operators do).

mod after_end;
mod apply;
mod cleanup;
mod desired;
mod epochs;
mod fence;
mod handles;
mod inject;
mod keys;
mod late;
mod marks;
mod member;
mod pod_templates;
mod report;
mod rights;
mod state;
mod templates;
#[cfg(test)]
mod tests;
mod unseen;
mod watches;
mod works;

use std::sync::Arc;

use fleet_agent_ground::resource;
use futures::future::BoxFuture;
use tokio_util::sync::CancellationToken;

pub use handles::{Handles, Settings};

use watches::KNOWN_KINDS;
use works::Works;

/// Most Works reconciled concurrently.
const WORKS_IN_FLIGHT: usize = 64;

/// Applies Works until `shutdown` is cancelled. Failures are retried.
pub fn run(handles: Handles, settings: Settings, shutdown: CancellationToken) -> BoxFuture<'static, ()> {
    Box::pin(run_in_place(Arc::new(Works::new(handles, settings, shutdown))))
}

async fn run_in_place(works: Arc<Works>) {
    works.watch_pods();
    for (group, version, kind, plural) in KNOWN_KINDS {
        works.watch_kind(resource(group, version, kind, plural));
    }
    let (beginning, standing) = (works.clone(), works.clone());
    works.watches().spawn(async move {
        let shutdown = beginning.shutdown.clone();
        shutdown.run_until_cancelled(beginning.begin_with_hub()).await;
    });
    works.watches().spawn(async move {
        let shutdown = standing.shutdown.clone();
        shutdown.run_until_cancelled(standing.follow_standing()).await;
    });
    let worker = works.clone();
    let work = move |key| {
        let works = worker.clone();
        async move { works.look_at(key).await }
    };
    works.queue.clone().run(WORKS_IN_FLIGHT, works.shutdown.clone(), work).await;
    let mut watches = std::mem::take(&mut *works.watches());
    while watches.join_next().await.is_some() {}
}
