//! The scheduler of a member: it caches the member's state, holds places for the hub's reservations, binds
//! gangs, maintains the statuses of PodGroups, Queues and HyperNodes, and makes capacity reports.
//!
//! Data flows one way: `feeds` → `changes` → the core task with [`fleet_member_state::MemberState`] →
//! `scheduler::write`, `reservations::write`, `notices`. `core` owns the state. `fleet_scheduler` decides
//! about placement, and `scheduler::placing` about gangs with reserved places.

mod budgets;
mod changes;
mod commands;
mod context;
mod core;
mod feeds;
#[cfg(test)]
mod fixture;
mod groups;
mod hyper_nodes;
mod notices;
mod numatopologies;
mod outside;
mod queue_objects;
mod report;
mod reservations;
mod resource_quotas;
mod scheduler;
mod urgent;

use std::sync::Arc;

use fleet_agent_ground::{HoldRequest, PlaceQuestion};
use futures::future::BoxFuture;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

pub use context::{Handles, Settings};
pub use queue_objects::read_queue;
pub use report::Report;

use changes::CoreChange;
use context::Context;
use core::{Channels, Core};
use notices::Notices;

/// Validates a scheduler configuration.
///
/// # Errors
/// The mistake, with its line.
pub fn check_conf(text: &str) -> Result<(), String> {
    scheduler::conf::read(text).map(drop)
}

/// Receives requests for places from other crates ([`fleet_agent_ground::Reservations`]).
pub struct PlaceRequests {
    pub requests: mpsc::Receiver<HoldRequest>,
    pub questions: mpsc::Receiver<PlaceQuestion>,
}

/// The scheduler, ready to run.
pub struct Scheduler {
    /// Parts that run concurrently until the agent stops.
    pub parts: [BoxFuture<'static, ()>; 3],
    /// Capacity reports; only the newest one.
    pub reports: watch::Receiver<Option<Report>>,
    /// The part that follows the hub once this agent speaks for its cluster.
    pub hub: HubSide,
}

/// The scheduler's part for the hub.
pub struct HubSide {
    context: Arc<Context>,
    changes: mpsc::Sender<CoreChange>,
}

impl Scheduler {
    pub fn new(
        handles: Handles,
        settings: Settings,
        asked: PlaceRequests,
        shutdown: CancellationToken,
    ) -> Self {
        let context = Arc::new(Context::new(handles, settings, shutdown));
        let (notices, notices_receiver) = Notices::new();
        let (reports, report_receiver) = watch::channel(None);
        let (changes, changes_receiver) = changes::channel();
        let PlaceRequests { requests, questions } = asked;
        let channels = Channels { changes: changes_receiver, requests, questions, reports, notices };
        let parts = [
            Box::pin(Core::new(context.clone(), channels).run()) as BoxFuture<'static, ()>,
            Box::pin(feeds::feed_member(context.clone(), changes.clone())),
            Box::pin(notices::run(context.clone(), notices_receiver)),
        ];
        Self { parts, reports: report_receiver, hub: HubSide { context, changes } }
    }
}

impl HubSide {
    /// Answers the hub's reservations. `last_report` is the sequence number of the hub's last report.
    pub fn run(self, last_report: i64) -> BoxFuture<'static, ()> {
        let Self { context, changes } = self;
        Box::pin(async move {
            // A core that has ended has reported why.
            let _ = changes.send(CoreChange::LastReport(last_report)).await;
            feeds::feed_hub(context, changes).await;
        })
    }
}
