//! Two controllers on one hub: one leads, the other takes over.

mod hub;

use std::time::Duration;

use fleet_controller::{Election, Options};
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use hub::{Hub, hub_with, until};

fn options(identity: &str, duration_ms: u64) -> Options {
    Options {
        election: Some(Election {
            namespace: "kube-system".to_string(),
            identity: identity.to_string(),
            duration: Duration::from_millis(duration_ms),
        }),
        ..Options::default()
    }
}

fn second(
    hub: &Hub,
    identity: &str,
    duration_ms: u64,
) -> (CancellationToken, JoinHandle<anyhow::Result<()>>) {
    let stop = CancellationToken::new();
    let run = fleet_controller::run(hub.client.clone(), options(identity, duration_ms), stop.clone());
    (stop, tokio::spawn(run))
}

/// Holder and term, once `is` likes them.
async fn until_led(hub: &Hub, is: impl Fn(&str, i32) -> bool) -> (String, i32) {
    let leases: Api<Lease> = Api::namespaced(hub.client.clone(), "kube-system");
    until("the leader", || async {
        let spec = leases.get_opt("fleet-controller").await.ok()??.spec?;
        let (holder, term) = (spec.holder_identity?, spec.lease_transitions?);
        is(&holder, term).then_some((holder, term))
    })
    .await
}

#[tokio::test]
async fn the_next_one_leads_at_once_when_the_leader_stops_and_members_hear_the_term() {
    let hub = hub_with(options("one", 12_000)).await;
    until_led(&hub, |holder, term| (holder, term) == ("one", 1)).await;
    let (_stop, _task) = second(&hub, "two", 12_000);
    hub.member("east").await;
    hub.apply("propagationpolicy-gang.yaml").await;
    hub.apply("pytorchjob.yaml").await;
    let reservation = hub.reservation("east").await;
    assert_eq!(reservation.spec.term, Some(1));
    hub.shutdown.cancel();
    until_led(&hub, |holder, term| (holder, term) == ("two", 2)).await;
    // The new leader goes on with what the old one asked.
    let work = hub.accept("east").await;
    assert_eq!((work.spec.epoch, work.spec.term), (1, Some(2)));
}

#[tokio::test]
async fn a_leader_that_dies_is_replaced_when_its_lease_has_lapsed() {
    let hub = hub_with(options("standby", 400)).await;
    until_led(&hub, |holder, _| holder == "standby").await;
    hub.shutdown.cancel();
    let (_, dying) = second(&hub, "dying", 400);
    until_led(&hub, |holder, _| holder == "dying").await;
    let (_stop, _task) = second(&hub, "heir", 400);
    // As SIGKILL does: nothing is given back.
    dying.abort();
    let (_, term) = until_led(&hub, |holder, _| holder == "heir").await;
    assert_eq!(term, 3);
    hub.member("east").await;
}

#[tokio::test]
async fn a_leader_whose_name_is_taken_by_another_process_steps_down() {
    let hub = hub_with(options("same", 600)).await;
    until_led(&hub, |_, term| term == 1).await;
    // It takes over at once, as a restarted process would.
    let (_stop, _task) = second(&hub, "same", 600);
    until_led(&hub, |_, term| term >= 2).await;
    hub.member("east").await;
}
