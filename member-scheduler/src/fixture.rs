//! The scheduler on a member's API server, for tests.

use std::{sync::Arc, time::Duration};

use fleet_agent_fixture::Fixture;
use fleet_agent_ground::{Admissions, AgentMetrics, Clock, Owned, Permits, Reservations, Terms};

use crate::{Handles, PlaceRequests, Scheduler, Settings, context::Context};

pub(crate) fn handles(fixture: &Fixture) -> Handles {
    let (hub, member) = (fixture.hub_link(), fixture.member_link());
    Handles {
        terms: Arc::new(Terms::new(member.client.clone(), hub.source.clone(), "east")),
        hub,
        member,
        clock: Clock::start(),
        counts: AgentMetrics::default().of("east"),
        owned: Owned::default(),
        admissions: Admissions::default(),
    }
}

pub(crate) fn settings() -> Settings {
    Settings {
        scheduler_names: ["fleet".to_owned(), "volcano".to_owned()].into(),
        scheduler_conf: None,
        permits: Permits::default(),
        reservation: true,
        report_interval: Duration::from_millis(100),
        gang_grace: Duration::from_secs(5),
    }
}

pub(crate) fn context(fixture: &Fixture) -> Arc<Context> {
    Arc::new(Context::new(handles(fixture), settings(), fixture.shutdown.clone()))
}

/// Runs the scheduler with this configuration until the fixture is dropped.
pub(crate) fn run(fixture: &Fixture, scheduler_conf: &str) {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("volcano-scheduler.conf");
    std::fs::write(&file, scheduler_conf).expect("a file");
    let settings = Settings { scheduler_conf: Some(file), ..settings() };
    let (places, requests, questions) = Reservations::new();
    let asked = PlaceRequests { requests, questions };
    let scheduler = Scheduler::new(handles(fixture), settings, asked, fixture.shutdown.clone());
    tokio::spawn(async move {
        futures::future::join_all(scheduler.parts).await;
        drop((folder, places));
    });
}
