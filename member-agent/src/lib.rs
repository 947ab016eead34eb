//! The member process: registers its cluster on the hub, renews its lease, reports capacity, answers
//! reservations, applies Works, reports status, and runs job controllers and the gang scheduler for members
//! that have none.

mod capacity;
mod context;
pub mod credential;
mod join;
mod leadership;
mod lease;
mod options;
pub mod process_name;
mod record;
mod rights;
mod standing;
mod webhook;

use std::sync::Arc;

use fleet_agent_ground::{Admissions, LeaseClock, Owned, Reservations, Sorted};
use fleet_api::patience;
use fleet_member_scheduler::{HubSide, PlaceRequests, Report, Scheduler};
use futures::future::BoxFuture;
use tokio::{sync::watch, task::JoinSet};
use tokio_util::sync::CancellationToken;

pub use fleet_agent_ground::{AgentMetrics, JobController, permits};
pub use fleet_job_controllers as jobs;
pub use leadership::Election;
pub use lease::TwoAgents;
pub use options::{DEFAULT_WATCHDOG_IMAGE, Options, Reach, Webhook};
pub use record::RECORD_TIMEOUT;

use context::Context;
use leadership::{Clients, Leadership, lead};
use lease::Holder;
use webhook::Registration;

/// Validates a scheduler configuration file.
///
/// # Errors
/// The file cannot be read, or it is invalid: the mistake with its line.
pub fn check_scheduler_conf(file: &std::path::Path) -> anyhow::Result<()> {
    let shown = file.display();
    let text = std::fs::read_to_string(file).map_err(|error| anyhow::anyhow!("{shown}: {error}"))?;
    fleet_member_scheduler::check_conf(&text).map_err(|error| anyhow::anyhow!("{shown}: {error}"))
}

/// Runs the agent of one member until `shutdown` is cancelled. Temporary failures (an API server that is
/// away) are not errors; permanent ones (two members under one name) are.
///
/// Of several agents of one member, one acts ([`Options::election`]). Parts that concern only the member (scheduler, job controllers, stopping fenced jobs) run from the start,
/// with or without the hub. Parts that speak for the cluster on the hub, or follow it, start when the agent
/// holds the lease.
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
    let registration = Registration::default();
    let answering = webhook::answer(member.clone(), options.clone(), registration.clone(), shutdown.clone());
    let acting = async {
        let Some(election) = options.election.clone() else {
            let clients = Clients { hub: hub.clone(), member, lease: hub };
            return lives(clients, Leadership::alone(), registration, options, shutdown).await;
        };
        let body = |clients, leadership, stop| {
            lives(clients, leadership, registration.clone(), options.clone(), stop)
        };
        lead((hub, member), election, &shutdown, body).await
    };
    // If one fails, the process ends.
    tokio::try_join!(acting, answering).map(drop)
}

async fn lives(
    clients: Clients,
    leadership: Leadership,
    registration: Registration,
    options: Options,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    // A restored API server ends one life and starts the next, like a restart of the process.
    while !shutdown.is_cancelled() {
        live(clients.clone(), leadership.clone(), registration.clone(), options.clone(), &shutdown).await?;
    }
    Ok(())
}

/// Runs until `shutdown` is cancelled, or until cached state of hub or member may be wrong.
async fn live(
    clients: Clients,
    leadership: Leadership,
    registration: Registration,
    options: Options,
    shutdown: &CancellationToken,
) -> anyhow::Result<()> {
    // A part that fails stops the others, but no other agents of the caller.
    let stop = shutdown.child_token();
    let clock = LeaseClock::default();
    let context = Arc::new(Context::new(clients, leadership, options, stop.clone(), clock));
    let (places, requests, questions) = Reservations::new();
    let (owned, admissions, sorted) = (Owned::default(), Admissions::default(), Sorted::default());
    let scheduler = scheduler(&context, &owned, &admissions, PlaceRequests { requests, questions });

    let mut parts = JoinSet::new();
    for part in scheduler.parts {
        parts.spawn(ends_well(part));
    }
    parts.spawn(standing::run(context.clone()));
    parts.spawn(record::run(context.clone()));
    parts.spawn(until_stopped(stop.clone(), jobs(&context, admissions, places.clone())));
    parts.spawn(until_stopped(stop.clone(), works(&context, owned, places, sorted.clone())));
    if context.options.webhook.is_some() {
        let cluster = context.options.cluster.clone();
        let registering = webhook::register(registration, context.member.clone(), cluster);
        parts.spawn(until_stopped(stop.clone(), Box::pin(registering)));
    }
    parts.spawn(follow_incarnation(context.clone()));
    parts.spawn(speak_for_the_cluster(context, sorted, scheduler.hub, scheduler.reports));

    let mut outcome = Ok(());
    while let Some(ended) = parts.join_next().await {
        let ended = ended
            .unwrap_or_else(|error| Err(anyhow::anyhow!("a part of the agent ended abnormally: {error}")));
        // A part that returns has nothing to do, or was stopped.
        if ended.is_err() && outcome.is_ok() {
            outcome = ended;
            stop.cancel();
        }
    }
    outcome
}

/// A part that retries forever never fails.
async fn ends_well(part: BoxFuture<'static, ()>) -> anyhow::Result<()> {
    part.await;
    Ok(())
}

/// Drops `part` when the agent stops, with its writes in flight.
async fn until_stopped(stop: CancellationToken, part: BoxFuture<'static, ()>) -> anyhow::Result<()> {
    stop.run_until_cancelled(part).await;
    Ok(())
}

fn scheduler(context: &Context, owned: &Owned, admissions: &Admissions, asked: PlaceRequests) -> Scheduler {
    let options = &context.options;
    let handles = fleet_member_scheduler::Handles {
        hub: context.hub_link(),
        member: context.member_link(),
        clock: context.clock,
        counts: context.counts.clone(),
        terms: context.terms.clone(),
        owned: owned.clone(),
        admissions: admissions.clone(),
    };
    let settings = fleet_member_scheduler::Settings {
        scheduler_names: options.scheduler_names.clone(),
        scheduler_conf: options.scheduler_conf.clone(),
        permits: options.permits.clone(),
        reservation: options.reservation,
        report_interval: options.report_interval,
        gang_grace: options.gang_grace,
    };
    Scheduler::new(handles, settings, asked, context.shutdown.clone())
}

/// The job controllers named by the options.
fn jobs(context: &Context, admissions: Admissions, places: Reservations) -> BoxFuture<'static, ()> {
    let options = &context.options;
    let handles = fleet_job_controllers::Handles {
        member: context.member_link(),
        clock: context.clock,
        lease: Some(context.lease.clone()),
        // Where another scheduler runs, it admits the groups.
        admissions: Some(admissions).filter(|_| !options.scheduler_names.is_empty()),
        places: Some(places),
    };
    fleet_job_controllers::run(handles, &options.controllers, context.shutdown.clone())
}

fn works(context: &Context, owned: Owned, places: Reservations, sorted: Sorted) -> BoxFuture<'static, ()> {
    let options = &context.options;
    let handles = fleet_works::Handles {
        hub: context.hub_link(),
        member: context.member_link(),
        clock: context.clock,
        counts: context.counts.clone(),
        lease: context.lease.clone(),
        terms: context.terms.clone(),
        owned,
        places,
        sorted,
    };
    let settings = fleet_works::Settings {
        permits: options.permits.clone(),
        scheduler_names: options.scheduler_names.clone(),
        controllers: options.controllers.clone(),
        fence_grace: options.fence_grace,
        max_pod_grace: options.max_pod_grace,
        member_request_timeout: options.member_request_timeout,
        watchdog_image: options.watchdog_image.clone(),
        watchdog_stops_within: options.watchdog_stops_within,
    };
    fleet_works::run(handles, settings, context.shutdown.clone())
}

/// Ends this life when a restore of the hub's or the member's store is detected.
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

/// Everything the hub must know about the cluster; starts when the lease is held.
async fn speak_for_the_cluster(
    context: Arc<Context>,
    sorted: Sorted,
    hub: HubSide,
    reports: watch::Receiver<Option<Report>>,
) -> anyhow::Result<()> {
    let shutdown = context.shutdown.clone();
    let preparing = async {
        let (installation, status) = tokio::join!(join::identity(&context), join::join(&context));
        let mut holder = Holder::new(context.clone(), sorted, &installation);
        holder.acquire().await?;
        Ok::<_, TwoAgents>((holder, status))
    };
    let Some(prepared) = shutdown.run_until_cancelled(preparing).await else { return Ok(()) };
    let (holder, status) = prepared?;
    let last_report = status.report_sequence.unwrap_or(0);

    let mut parts = JoinSet::new();
    parts.spawn(holder.run());
    parts.spawn(ends_well(hub.run(last_report)));
    parts.spawn(capacity::run(context.clone(), reports, status));
    while let Some(ended) = parts.join_next().await {
        // The rest is dropped with the set.
        ended??;
    }
    Ok(())
}
