//! Watches on the hub, turned into one stream of observations.
//!
//! Inputs: a client. Output: a bounded channel of [`Observation`]s, in order per kind. Deliberately
//! absent: any decision, and any memory of what was seen (that is the world's).

use std::{fmt::Debug, time::Duration};

use fleet_api::{
    Cluster, ClusterOverridePolicy, ClusterPropagationPolicy, ElasticQuotaTree, OverridePolicy,
    PropagationPolicy, Queue, QueueUnit, Reservation, ResourceBinding, Work, names,
};
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::{coordination::v1::Lease, core::v1::Namespace, scheduling::v1::PriorityClass};
use kube::{
    Api, Client, Resource,
    core::DynamicObject,
    runtime::{
        WatchStreamExt,
        utils::Backoff,
        watcher::{self, Event},
    },
};
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::kinds::KindRef;

/// What happened to objects of one kind.
#[derive(Debug)]
pub enum Change<T> {
    /// Everything there is; what is not in it is gone.
    Reset(Vec<T>),
    Apply(T),
    Delete(T),
}

/// One change seen on the hub.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "it lives in one bounded channel; a box would be an allocation an event"
)]
pub enum Observation {
    Object(KindRef, Change<DynamicObject>),
    Policy(Change<PropagationPolicy>),
    ClusterPolicy(Change<ClusterPropagationPolicy>),
    Override(Change<OverridePolicy>),
    ClusterOverride(Change<ClusterOverridePolicy>),
    Binding(Change<ResourceBinding>),
    Unit(Change<QueueUnit>),
    Queue(Change<Queue>),
    Tree(Change<ElasticQuotaTree>),
    Cluster(Change<Cluster>),
    Reservation(Change<Reservation>),
    Work(Change<Work>),
    Lease(Change<Lease>),
    Namespace(Change<Namespace>),
    PriorityClass(Change<PriorityClass>),
}

/// Kinds whose first listing the controller waits for before it plans anything, as
/// [`Observation::listed`] names them.
pub const BASE_KINDS: [&str; 14] = [
    "Policy",
    "ClusterPolicy",
    "Override",
    "ClusterOverride",
    "Binding",
    "Unit",
    "Queue",
    "Tree",
    "Cluster",
    "Reservation",
    "Work",
    "Lease",
    "Namespace",
    "PriorityClass",
];

impl Observation {
    /// The kind that this observation lists, if it is a listing.
    pub fn listed(&self) -> Option<String> {
        use Change::Reset;
        let name = match self {
            Self::Object(kind, Reset(_)) => return Some(format!("{} {}", kind.api_version, kind.kind)),
            Self::Policy(Reset(_)) => "Policy",
            Self::ClusterPolicy(Reset(_)) => "ClusterPolicy",
            Self::Override(Reset(_)) => "Override",
            Self::ClusterOverride(Reset(_)) => "ClusterOverride",
            Self::Binding(Reset(_)) => "Binding",
            Self::Unit(Reset(_)) => "Unit",
            Self::Queue(Reset(_)) => "Queue",
            Self::Tree(Reset(_)) => "Tree",
            Self::Cluster(Reset(_)) => "Cluster",
            Self::Reservation(Reset(_)) => "Reservation",
            Self::Work(Reset(_)) => "Work",
            Self::Lease(Reset(_)) => "Lease",
            Self::Namespace(Reset(_)) => "Namespace",
            Self::PriorityClass(Reset(_)) => "PriorityClass",
            _ => return None,
        };
        Some(name.to_string())
    }
}

/// Pauses between attempts of a watch that fails: doubling, without jitter, so that a run repeats.
#[derive(Clone, Debug)]
struct WatchBackoff {
    next: Duration,
}

const WATCH_BACKOFF_MIN: Duration = Duration::from_millis(100);
const WATCH_BACKOFF_MAX: Duration = Duration::from_secs(10);

impl Iterator for WatchBackoff {
    type Item = Duration;
    fn next(&mut self) -> Option<Duration> {
        let now = self.next;
        self.next = (now * 2).min(WATCH_BACKOFF_MAX);
        Some(now)
    }
}

impl Backoff for WatchBackoff {
    fn reset(&mut self) {
        self.next = WATCH_BACKOFF_MIN;
    }
}

/// Starts the watches that always run. Returns when all are started; they end with `shutdown`.
pub fn start(client: &Client, into: &mpsc::Sender<Observation>, shutdown: &CancellationToken) {
    let go = Starter { into, shutdown };
    go.watch(Api::<PropagationPolicy>::all(client.clone()), Observation::Policy);
    go.watch(Api::<ClusterPropagationPolicy>::all(client.clone()), Observation::ClusterPolicy);
    go.watch(Api::<OverridePolicy>::all(client.clone()), Observation::Override);
    go.watch(Api::<ClusterOverridePolicy>::all(client.clone()), Observation::ClusterOverride);
    go.watch(Api::<ResourceBinding>::all(client.clone()), Observation::Binding);
    go.watch(Api::<QueueUnit>::all(client.clone()), Observation::Unit);
    go.watch(Api::<Queue>::all(client.clone()), Observation::Queue);
    go.watch(Api::<ElasticQuotaTree>::all(client.clone()), Observation::Tree);
    go.watch(Api::<Cluster>::all(client.clone()), Observation::Cluster);
    go.watch(Api::<Reservation>::all(client.clone()), Observation::Reservation);
    go.watch(Api::<Work>::all(client.clone()), Observation::Work);
    go.watch_with(
        Api::<Lease>::all(client.clone()),
        watcher::Config::default().fields(&format!("metadata.name={}", names::LEASE_NAME)),
        Observation::Lease,
    );
    go.watch(Api::<Namespace>::all(client.clone()), Observation::Namespace);
    go.watch(Api::<PriorityClass>::all(client.clone()), Observation::PriorityClass);
}

/// Starts the watch on one kind of propagated or depended-on object.
pub fn start_kind(
    client: &Client,
    kind: KindRef,
    into: &mpsc::Sender<Observation>,
    shutdown: &CancellationToken,
) {
    let api = Api::<DynamicObject>::all_with(client.clone(), &kind.resource());
    Starter { into, shutdown }.watch(api, move |change| Observation::Object(kind.clone(), change));
}

struct Starter<'a> {
    into: &'a mpsc::Sender<Observation>,
    shutdown: &'a CancellationToken,
}

impl Starter<'_> {
    fn watch<K, F>(&self, api: Api<K>, wrap: F)
    where
        K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
        F: Fn(Change<K>) -> Observation + Send + 'static,
    {
        self.watch_with(api, watcher::Config::default(), wrap);
    }

    fn watch_with<K, F>(&self, api: Api<K>, config: watcher::Config, wrap: F)
    where
        K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
        F: Fn(Change<K>) -> Observation + Send + 'static,
    {
        let into = self.into.clone();
        let shutdown = self.shutdown.clone();
        tokio::spawn(async move {
            shutdown.run_until_cancelled(follow(api, config, wrap, into)).await;
        });
    }
}

/// Nobody here asks who manages which field, and it is half of what an object takes in memory.
pub fn without_managers<K: Resource>(mut object: K) -> K {
    object.meta_mut().managed_fields = None;
    object
}

async fn follow<K, F>(api: Api<K>, config: watcher::Config, wrap: F, into: mpsc::Sender<Observation>)
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
    F: Fn(Change<K>) -> Observation,
{
    let stream =
        watcher::watcher(api, config).backoff(WatchBackoff { next: WATCH_BACKOFF_MIN }).into_stream();
    let mut stream = std::pin::pin!(stream);
    let mut listing = Vec::new();
    while let Some(event) = stream.next().await {
        let change = match event {
            Ok(Event::Init) => {
                listing.clear();
                continue;
            }
            Ok(Event::InitApply(object)) => {
                listing.push(without_managers(object));
                continue;
            }
            Ok(Event::InitDone) => Change::Reset(std::mem::take(&mut listing)),
            Ok(Event::Apply(object)) => Change::Apply(without_managers(object)),
            Ok(Event::Delete(object)) => Change::Delete(object),
            Err(error) => {
                tracing::warn!(%error, kind = std::any::type_name::<K>(), "watch interrupted, trying again");
                continue;
            }
        };
        if into.send(wrap(change)).await.is_err() {
            return;
        }
    }
}
