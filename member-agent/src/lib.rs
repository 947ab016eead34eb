//! The member process: registers its cluster on the hub, keeps its lease, reports capacity, answers
//! reservations, applies Works, reports status, and brings the job controllers and the gang scheduler
//! to members that have none.

mod capacity;
mod changes;
mod context;
mod core;
mod core_budgets;
mod core_commands;
mod core_extender;
mod core_feeds;
mod core_groups;
mod core_hyper_nodes;
mod core_numa;
mod core_resource_quotas;
mod core_shared;
pub mod credential;
#[cfg(test)]
mod fixture;
mod join;
mod lean_devices;
mod lean_extras;
mod lean_numa;
mod lean_shape;
mod lease;
mod notices;
mod options;
mod outside;
mod record;
mod reservations;
mod rights;
mod scheduler;
mod standing;
mod state;
mod webhook;

use fleet_agent_ground::{LeaseClock, Reservations};
use fleet_api::patience;
use std::sync::Arc;

pub use context::Context;
pub use fleet_agent_ground::{JobController, permits};
pub use fleet_job_controllers as jobs;
pub use lease::TwoAgents;
pub use options::{DEFAULT_WATCHDOG_IMAGE, Options, Reach, Webhook};
pub use record::RECORD_TIMEOUT;

use futures::future::BoxFuture;
use tokio::{
    sync::{mpsc, watch},
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;

use crate::{
    capacity::Report,
    changes::CoreChange,
    core::{Channels, Core},
    lease::Holder,
    notices::Notices,
};

/// Whether the scheduler can be configured by this file.
///
/// # Errors
/// The file cannot be read, or what is wrong with it, with its line.
pub fn check_scheduler_conf(file: &std::path::Path) -> anyhow::Result<()> {
    let shown = file.display();
    let text = std::fs::read_to_string(file).map_err(|error| anyhow::anyhow!("{shown}: {error}"))?;
    scheduler::conf::read(&text).map(drop).map_err(|error| anyhow::anyhow!("{shown}: {error}"))
}

/// Runs the agent of one member until `shutdown` is cancelled. Never returns an error for something that
/// may pass (an API server away); only for what cannot (two agents under one name).
///
/// What concerns the member alone (scheduler, job controllers, stopping fenced jobs) runs from the start, hub or no
/// hub; what speaks for the cluster on the hub, or does what it says, begins when the lease is held.
///
/// # Errors
/// [`TwoAgents`], or a part that ended abnormally.
pub fn run(
    hub: kube::Client,
    member: kube::Client,
    options: Options,
    shutdown: CancellationToken,
) -> BoxFuture<'static, anyhow::Result<()>> {
    Box::pin(run_in_place(hub, member, options, shutdown))
}

async fn run_in_place(
    hub: kube::Client,
    member: kube::Client,
    options: Options,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    let (hub, member) = (patience::patient(hub), patience::patient(member));
    // One life after the other: an API server that went back in time ends one, as a restart of the process would.
    while !shutdown.is_cancelled() {
        live(hub.clone(), member.clone(), options.clone(), &shutdown).await?;
    }
    Ok(())
}

/// Runs until `shutdown` is cancelled, or what is remembered of hub or member may be wrong.
async fn live(
    hub: kube::Client,
    member: kube::Client,
    options: Options,
    shutdown: &CancellationToken,
) -> anyhow::Result<()> {
    let (reservations, requests, questions) = Reservations::new();
    // A part that fails stops the others, not the caller's other agents.
    let stop = shutdown.child_token();
    let context =
        Arc::new(Context::new(hub, member, options, stop.clone(), LeaseClock::default(), reservations));
    let (notices, notices_receiver) = Notices::new();
    let (reports, report_receiver) = watch::channel(None);
    let (changes, changes_receiver) = changes::channel();
    let channels = Channels { changes: changes_receiver, requests, questions, reports, notices };

    let mut parts = JoinSet::new();
    parts.spawn(Core::new(context.clone(), channels).run());
    parts.spawn(core_feeds::feed_member(context.clone(), changes.clone()));
    parts.spawn(notices::run(context.clone(), notices_receiver));
    parts.spawn(standing::run(context.clone()));
    parts.spawn(record::run(context.clone()));
    parts.spawn(run_jobs(context.clone()));
    parts.spawn(run_works(context.clone()));
    parts.spawn(webhook::run(context.clone()));
    parts.spawn(follow_incarnation(context.clone()));
    parts.spawn(speak_for_the_cluster(context, changes, report_receiver));

    let mut outcome = Ok(());
    while let Some(ended) = parts.join_next().await {
        let ended = ended
            .unwrap_or_else(|error| Err(anyhow::anyhow!("a part of the agent ended abnormally: {error}")));
        // A part that ends well has nothing to do, or was told to stop.
        if ended.is_err() && outcome.is_ok() {
            outcome = ended;
            stop.cancel();
        }
    }
    outcome
}

/// Runs the job controllers that the options name.
async fn run_jobs(context: Arc<Context>) -> anyhow::Result<()> {
    let options = &context.options;
    let handles = fleet_job_controllers::Handles {
        member: context.member_link(),
        clock: context.clock,
        lease: Some(context.lease.clone()),
        // Where others schedule, groups are let in by them, or by nobody.
        admissions: (!options.scheduler_names.is_empty()).then(|| context.admissions.clone()),
        places: Some(context.reservations().clone()),
    };
    fleet_job_controllers::run(handles, &options.controllers, context.shutdown.clone()).await;
    Ok(())
}

/// Applies Works.
async fn run_works(context: Arc<Context>) -> anyhow::Result<()> {
    let options = &context.options;
    let handles = fleet_works::Handles {
        hub: context.hub_link(),
        member: context.member_link(),
        clock: context.clock,
        lease: context.lease.clone(),
        terms: context.terms.clone(),
        owned: context.owned.clone(),
        places: context.reservations().clone(),
        sorted: context.sorted.clone(),
    };
    let settings = fleet_works::Settings {
        permits: options.permits.clone(),
        scheduler_names: options.scheduler_names.clone(),
        controllers: options.controllers.clone(),
        fence_grace: options.fence_grace,
        watchdog_image: options.watchdog_image.clone(),
        watchdog_stops_within: options.watchdog_stops_within,
    };
    fleet_works::run(handles, settings, context.shutdown.clone()).await;
    Ok(())
}

/// Ends this life when the store of the hub or of the member is seen to have gone back in time.
async fn follow_incarnation(context: Arc<Context>) -> anyhow::Result<()> {
    let sources = &context.sources;
    let restored = async {
        tokio::select! {
            biased;
            () = sources.hub.restored() => {}
            () = sources.member.restored() => {}
            () = sources.hub.keep_asking() => {}
        }
    };
    if context.shutdown.run_until_cancelled(restored).await.is_some() {
        context.shutdown.cancel();
    }
    Ok(())
}

/// Everything that the hub is to believe about the cluster: only after the lease is held.
async fn speak_for_the_cluster(
    context: Arc<Context>,
    changes: mpsc::Sender<CoreChange>,
    reports: watch::Receiver<Option<Report>>,
) -> anyhow::Result<()> {
    let shutdown = context.shutdown.clone();
    let preparing = async {
        let (installation, status) = tokio::join!(join::identity(&context), join::join(&context));
        let mut holder = Holder::new(context.clone(), &installation);
        holder.acquire().await?;
        Ok::<_, TwoAgents>((holder, status))
    };
    let Some(prepared) = shutdown.run_until_cancelled(preparing).await else { return Ok(()) };
    let (holder, status) = prepared?;
    // A core that is gone has said why itself.
    let _ = changes.send(CoreChange::LastReport(status.report_sequence.unwrap_or(0))).await;

    let mut parts = JoinSet::new();
    parts.spawn(holder.run());
    parts.spawn(core_feeds::feed_hub(context.clone(), changes));
    parts.spawn(capacity::run(context.clone(), reports, status));
    while let Some(ended) = parts.join_next().await {
        // The rest is dropped with the set.
        ended??;
    }
    Ok(())
}
