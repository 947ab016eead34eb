//! Two agents of one member: one acts, the other takes over when it dies, stops, or loses the member.

use std::{collections::BTreeSet, time::Duration};

use fleet_api::{Work, names};
use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, Client};
use member_agent::{Election, JobController, Options};
use serde_json::json;

use crate::bed::{Agent, Bed, Link, create, options, until, work};

/// Without a renewal for so long, the other one takes over.
const LEADS: Duration = Duration::from_millis(900);
/// Longer than a test waits: whoever leads now did not wait for it.
const LONG: Duration = Duration::from_secs(60);

fn named(identity: &str, duration: Duration) -> Options {
    Options {
        controllers: [JobController::PyTorchJob].into(),
        scheduler_names: ["fleet".to_owned()].into(),
        // Long enough that nobody is cut off while another one takes over.
        lease_duration: Duration::from_secs(20),
        lease_renew: Duration::from_millis(100),
        fence_grace: Duration::from_secs(4),
        election: Some(Election { identity: identity.to_owned(), duration }),
        ..options()
    }
}

/// An agent with ways of its own.
struct Pair {
    hub: Link,
    own: Link,
    agent: Agent,
}

impl Pair {
    fn start(bed: &Bed, identity: &str, duration: Duration) -> Self {
        Self::with(bed, named(identity, duration))
    }

    fn with(bed: &Bed, options: Options) -> Self {
        let [hub, own] = bed.further_links();
        let agent = bed.start_between(&hub, &own, options);
        Self { hub, own, agent }
    }
}

fn holder(lease: Option<&Lease>) -> Option<&str> {
    lease?.spec.as_ref()?.holder_identity.as_deref()
}

impl Bed {
    async fn leads(&self, identity: &str) {
        let leases: Api<Lease> = Api::namespaced(self.member.clone(), names::MEMBER_NAMESPACE);
        let what = format!("held by {identity}");
        until(&leases, names::AGENT_LEADER_LEASE, &what, |lease| holder(lease) == Some(identity)).await;
    }

    /// Waits until this agent speaks for the cluster on the hub.
    async fn speaks(&self, identity: &str) {
        let end = format!("/{identity}");
        let what = format!("held by {identity}");
        let leases = on_the_hub(&self.hub);
        until(&leases, names::LEASE_NAME, &what, |lease| {
            holder(lease).is_some_and(|holder| holder.ends_with(&end))
        })
        .await;
    }

    /// Waits until the agent has renewed its lease on the hub so often from now.
    async fn renews(&self, times: usize) {
        let leases = on_the_hub(&self.hub);
        let version = |lease: Option<&Lease>| lease.and_then(|lease| lease.metadata.resource_version.clone());
        for _ in 0..times {
            let before = version(leases.get_opt(names::LEASE_NAME).await.unwrap().as_ref());
            until(&leases, names::LEASE_NAME, "renewed", |lease| version(lease) != before).await;
        }
    }
}

fn on_the_hub(hub: &Client) -> Api<Lease> {
    Api::namespaced(hub.clone(), "fleet-east")
}

/// Writes that are more than asking for the leader's lease.
fn acts(link: &Link) -> Vec<String> {
    let asks = |write: &str| {
        write.contains(names::AGENT_LEADER_LEASE)
            || write.ends_with("/leases")
            || write.ends_with("/namespaces")
    };
    link.writes().into_iter().filter(|write| !asks(write)).collect()
}

#[tokio::test]
async fn one_of_two_agents_acts_and_the_other_takes_over_when_it_dies() {
    let bed = Bed::new(&["n1 8"]).await;
    let first = Pair::start(&bed, "first", LEADS);
    bed.leads("first").await;
    let second = Pair::start(&bed, "second", LEADS);
    create(&bed.works(), work("a", 1, json!({"fenced": true}))).await;
    let before = bed.run_pods("a").await;
    bed.speaks("first").await;
    bed.renews(5).await;
    assert_eq!((acts(&second.hub), acts(&second.own)), (Vec::new(), Vec::new()), "it stands by");

    first.agent.kill().await;
    create(&bed.works(), work("b", 1, json!({"fenced": true}))).await;
    bed.leads("second").await;
    bed.speaks("second").await;
    bed.run_pods("b").await;
    assert_eq!(bed.run_pods("a").await, before, "what runs is not made again");
    let live: BTreeSet<String> = bed.live_pods().await.into_iter().collect();
    assert_eq!(live.len(), 4, "{live:?}");
    second.agent.stop().await;
}

#[tokio::test]
async fn an_agent_that_stops_lets_the_next_one_act_at_once() {
    let bed = Bed::new(&["n1 8"]).await;
    let first = Pair::start(&bed, "first", LONG);
    bed.leads("first").await;
    let second = Pair::start(&bed, "second", LONG);
    first.agent.stop().await;
    bed.leads("second").await;
    bed.speaks("second").await;
    // A process that starts again under its name need not wait either.
    second.agent.kill().await;
    let again = Pair::start(&bed, "second", LONG);
    create(&bed.works(), work("a", 1, json!({}))).await;
    bed.run_pods("a").await;
    again.agent.stop().await;
}

#[tokio::test]
async fn an_agent_that_loses_its_member_writes_nothing_and_still_keeps_the_cluster_alive() {
    let bed = Bed::new(&["n1 8"]).await;
    let only = Pair::start(&bed, "only", LEADS);
    bed.speaks("only").await;
    create(&bed.works(), work("a", 1, json!({"fenced": true}))).await;
    let before = bed.run_pods("a").await;
    only.own.cut();
    tokio::time::sleep(LEADS).await;
    // Nobody could take over: to the hub, this member is not lost.
    let (hub, own) = (acts(&only.hub).len(), only.own.writes().len());
    bed.renews(10).await;
    let only_lease = |write: &String| write.ends_with("/leases/member-agent");
    let new: Vec<String> = acts(&only.hub).split_off(hub);
    assert!(new.iter().all(only_lease), "{new:?}");
    assert_eq!(only.own.writes().len(), own);

    only.own.join();
    create(&bed.works(), work("b", 1, json!({"fenced": true}))).await;
    bed.run_pods("b").await;
    assert_eq!(bed.run_pods("a").await, before);
    only.agent.stop().await;
}

#[tokio::test]
async fn an_agent_whose_member_went_on_without_it_stands_by() {
    let bed = Bed::new(&["n1 8"]).await;
    let first = Pair::start(&bed, "first", LEADS);
    bed.speaks("first").await;
    let second = Pair::start(&bed, "second", LEADS);
    create(&bed.works(), work("a", 1, json!({"fenced": true}))).await;
    let before = bed.run_pods("a").await;
    first.own.cut();
    bed.leads("second").await;
    // Both reach the hub, which tells the first one.
    bed.speaks("second").await;
    let acted = acts(&first.hub).len();
    bed.renews(5).await;
    let new: Vec<String> = acts(&first.hub).split_off(acted);
    assert!(new.iter().all(|write| write.ends_with("/leases/member-agent")), "{new:?}");
    first.own.join();
    create(&bed.works(), work("b", 1, json!({"fenced": true}))).await;
    bed.run_pods("b").await;
    bed.renews(5).await;
    bed.speaks("second").await;
    assert_eq!(bed.run_pods("a").await, before);

    second.agent.kill().await;
    bed.leads("first").await;
    bed.speaks("first").await;
    create(&bed.works(), work("c", 1, json!({"fenced": true}))).await;
    bed.run_pods("c").await;
    first.agent.stop().await;
}

#[tokio::test]
async fn a_standby_stops_what_a_dead_agent_would_have_stopped() {
    let bed = Bed::new(&["n1 8"]).await;
    let brief = |name| Options { lease_duration: Duration::from_secs(2), ..named(name, LEADS) };
    let first = Pair::with(&bed, brief("first"));
    bed.leads("first").await;
    let second = Pair::with(&bed, brief("second"));
    create(&bed.works(), work("a", 3, json!({"fenced": true}))).await;
    bed.run_pods("a").await;
    let record: Api<Lease> = Api::namespaced(bed.member.clone(), names::MEMBER_NAMESPACE);
    until(&record, names::LEASE_NAME, "written", |lease: Option<&Lease>| lease.is_some()).await;
    first.hub.cut();
    second.hub.cut();
    first.agent.kill().await;
    // The lease of the dead one counts on: the hub must believe the cluster alive until then, and no longer.
    bed.end_pods("a").await;
    bed.wait_marked("a", true).await;
    bed.leads("second").await;
    second.hub.join();
    bed.wait_marked("a", false).await;
    bed.run_pods("a").await;
    until(&bed.works(), "a", "there", |work: Option<&Work>| work.is_some()).await;
    second.agent.stop().await;
}
