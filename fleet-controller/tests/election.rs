//! Two controllers on one hub: one leads, the other takes over.

use std::{sync::Arc, time::Duration};

use axum::{
    extract::Request,
    http::{Method, StatusCode},
    middleware::{Next, from_fn},
};
use fleet_api::{ResourceBinding, Work};
use fleet_controller::{Election, Options};
use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, Client, api::ListParams};
use serde_json::json;
use tokio::{sync::watch, task::JoinHandle};
use tokio_util::sync::CancellationToken;

use crate::hub::{Hub, hub_with, until};

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
    through(hub.client.clone(), identity, duration_ms)
}

fn through(
    client: Client,
    identity: &str,
    duration_ms: u64,
) -> (CancellationToken, JoinHandle<anyhow::Result<()>>) {
    let stop = CancellationToken::new();
    let run = fleet_controller::run(client, options(identity, duration_ms), stop.clone());
    (stop, tokio::spawn(run))
}

/// The first binding of a job that is sent through a client, on its way until it is let through.
struct Late {
    sent: watch::Sender<bool>,
    through: watch::Sender<bool>,
    answer: watch::Sender<Option<StatusCode>>,
}

impl Late {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            sent: watch::Sender::new(false),
            through: watch::Sender::new(false),
            answer: watch::Sender::new(None),
        })
    }

    fn client(self: &Arc<Self>, hub: &Hub) -> Client {
        let late = self.clone();
        let hold = move |request: Request, next: Next| {
            let late = late.clone();
            async move {
                let path = request.uri().path();
                let binds = request.method() == Method::PATCH
                    && path.contains("/resourcebindings/")
                    && !path.ends_with("/status");
                if !binds || late.sent.send_replace(true) {
                    return next.run(request).await;
                }
                // What has left a machine arrives, whatever becomes of its sender.
                let arrives = tokio::spawn(async move {
                    let _ = late.through.subscribe().wait_for(|through| *through).await;
                    let answer = next.run(request).await;
                    late.answer.send_replace(Some(answer.status()));
                    answer
                });
                arrives.await.expect("it arrives")
            }
        };
        Client::new(hub.router.clone().layer(from_fn(hold)), "default")
    }
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

#[tokio::test]
async fn what_a_deposed_leader_sent_late_changes_nothing() {
    let hub = hub_with(options("first", 400)).await;
    until_led(&hub, |holder, _| holder == "first").await;
    hub.shutdown.cancel();
    let late = Late::new();
    let (_, deposed) = through(late.client(&hub), "deposed", 400);
    until_led(&hub, |holder, _| holder == "deposed").await;
    hub.member("east").await;
    hub.member("west").await;
    hub.policy(json!({})).await;
    hub.apply("pytorchjob.yaml").await;
    let reservation = hub.reservation("east").await;
    hub.answer(&reservation, json!({"phase": "Reserved", "reportSequence": 2})).await;
    until("the binding to be sent", || async { late.sent.borrow().then_some(()) }).await;
    deposed.abort();

    // The next leader binds the job to the places that were reserved, and later moves it.
    let (_stop, _task) = second(&hub, "heir", 400);
    let old = hub.work("east").await;
    // On a loaded machine the heir may lose its short lease and take it again.
    assert_eq!(old.spec.epoch, 1);
    assert!(old.spec.term >= Some(3), "{:?}", old.spec.term);
    hub.taint("east", json!([{"key": "power", "effect": "NoExecute"}])).await;
    hub.let_go(&old).await;
    let new = hub.accept("west").await;
    assert_eq!(new.spec.epoch, 2);

    let bindings: Api<ResourceBinding> = Api::namespaced(hub.client.clone(), "default");
    let before = bindings.get("pytorch-test-pytorchjob").await.expect("there").spec;
    late.through.send_replace(true);
    let answer = until("the answer to the late binding", || async { *late.answer.borrow() }).await;
    assert_eq!(answer, StatusCode::UNPROCESSABLE_ENTITY);
    assert_eq!(bindings.get("pytorch-test-pytorchjob").await.expect("there").spec, before);
    let works: Api<Work> = Api::namespaced(hub.client.clone(), "fleet-east");
    assert!(works.list(&ListParams::default()).await.expect("listed").items.is_empty());
}
