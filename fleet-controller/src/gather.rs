//! Watches on the hub, as one stream of observations.
//!
//! Input: a client. Output: a bounded channel of [`Observation`]s, in order per kind. Deliberately absent:
//! decisions and cached objects (the world has them).

use std::fmt::Debug;

use fleet_api::{
    CellConfiguration, Cluster, ClusterOverridePolicy, ClusterPropagationPolicy, ElasticQuotaTree,
    OverridePolicy, PropagationPolicy, Queue, QueueUnit, Reservation, ResourceBinding, VirtualCluster, Work,
    names,
};
use fleet_informer::{Feed, News, Selection, Source};
use k8s_openapi::api::{coordination::v1::Lease, core::v1::Namespace, scheduling::v1::PriorityClass};
use kube::{Api, Client, Resource, core::DynamicObject};
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use fleet_hub_core::{
    kinds::KindRef,
    observation::{Change, Observation},
};

/// The watched hub, and the channel for observations.
#[derive(Clone)]
pub struct Gather {
    /// Its requests time out if no answer begins.
    pub client: Client,
    pub source: Source,
    pub into: mpsc::Sender<Observation>,
    pub shutdown: CancellationToken,
}

impl Gather {
    /// Starts the permanent watches. Returns when all are started; they end on `shutdown`.
    pub fn start(&self) {
        self.watch(self.all::<PropagationPolicy>(), Observation::Policy);
        self.watch(self.all::<ClusterPropagationPolicy>(), Observation::ClusterPolicy);
        self.watch(self.all::<OverridePolicy>(), Observation::Override);
        self.watch(self.all::<ClusterOverridePolicy>(), Observation::ClusterOverride);
        self.watch(self.all::<ResourceBinding>(), Observation::Binding);
        self.watch(self.all::<QueueUnit>(), Observation::Unit);
        self.watch(self.all::<Queue>(), Observation::Queue);
        self.watch(self.all::<ElasticQuotaTree>(), Observation::Tree);
        self.watch(self.all::<CellConfiguration>(), Observation::CellConfiguration);
        self.watch(self.all::<VirtualCluster>(), Observation::VirtualCluster);
        self.watch(self.all::<Cluster>(), Observation::Cluster);
        self.watch(self.all::<Reservation>(), Observation::Reservation);
        self.watch(self.all::<Work>(), Observation::Work);
        let agents = Selection::fields(&format!("metadata.name={}", names::LEASE_NAME));
        self.watch_some(self.all::<Lease>(), agents, Observation::Lease);
        self.watch(self.all::<Namespace>(), Observation::Namespace);
        self.watch(self.all::<PriorityClass>(), Observation::PriorityClass);
        let (source, shutdown) = (self.source.clone(), self.shutdown.clone());
        tokio::spawn(async move { shutdown.run_until_cancelled(source.keep_asking()).await });
    }

    /// Starts the watch of one kind of propagated object or dependency.
    pub fn start_kind(&self, kind: KindRef) {
        let api = Api::<DynamicObject>::all_with(self.client.clone(), &kind.resource());
        self.watch(api, move |change| Observation::Object(kind.clone(), change));
    }

    fn all<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = ()>,
    {
        Api::all(self.client.clone())
    }

    fn watch<K, F>(&self, api: Api<K>, wrap: F)
    where
        K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
        F: Fn(Change<K>) -> Observation + Send + 'static,
    {
        self.watch_some(api, Selection::default(), wrap);
    }

    fn watch_some<K, F>(&self, api: Api<K>, selection: Selection, wrap: F)
    where
        K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
        F: Fn(Change<K>) -> Observation + Send + 'static,
    {
        let name = format!("hub{}", api.resource_url());
        let feed = Feed { source: self.source.clone(), api, selection, name };
        let (into, shutdown) = (self.into.clone(), self.shutdown.clone());
        tokio::spawn(feed.run(shutdown, move |news| {
            let observation = match news {
                News::Change(change) => Some(wrap(change)),
                News::NotServed => None,
            };
            let into = into.clone();
            async move {
                match observation {
                    Some(observation) => into.send(observation).await.is_ok(),
                    None => true,
                }
            }
        }));
    }
}
