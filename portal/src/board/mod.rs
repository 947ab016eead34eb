//! What the portal knows of its hub: one set of watches for all viewers.
//!
//! Each kind is followed by a feed and kept as facts. Who looks at them is shown what the hub's RBAC lets him see. When
//! the hub is away what was known last stays, and the state says so. Deliberately absent: anything that a restart
//! could not list again.

mod places;

use std::{
    collections::BTreeMap,
    fmt::Debug,
    sync::{
        Arc, Mutex, PoisonError, RwLock, RwLockReadGuard,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use fleet_api::{
    CellConfiguration, Cluster, ElasticQuotaTree, QueueUnit, Reservation, ResourceBinding, VirtualCluster,
    names::{CLUSTER_NAMESPACE_PREFIX, LEASE_NAME, QUOTA_NAMESPACE},
};
use fleet_hub_core::facts;
use fleet_informer::{Feed, Kube, News, Selection, Source};
use fleet_mirror::{Key, Mirror};
use fleet_openpai::cells::Standing;
pub use fleet_pages::shown::Hub;
use fleet_views::{BindingFacts, Id, Known, UnitFacts};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use tokio::{sync::watch, task::JoinSet, time::Instant};
use tokio_util::sync::CancellationToken;

/// How often the hub is asked whether it answers, and how long it may take.
const ASK_EVERY: Duration = Duration::from_secs(2);
const ANSWERS_WITHIN: Duration = Duration::from_secs(5);
/// Kinds that are followed.
const KINDS: usize = 8;

/// Shared by all viewers.
pub struct Board {
    known: RwLock<Known>,
    /// As they stand on the hub: explanations ask for what facts leave out.
    clusters: RwLock<BTreeMap<String, Arc<Cluster>>>,
    cells: RwLock<OfCells>,
    listed: AtomicUsize,
    news: watch::Sender<u64>,
    hub: Mutex<Hub>,
}

/// What says who is on which cell, as it stands on the hub.
#[derive(Default)]
struct OfCells {
    configurations: BTreeMap<String, CellConfiguration>,
    /// Bindings with cells.
    bindings: BTreeMap<Key, ResourceBinding>,
}

impl Default for Board {
    fn default() -> Self {
        Self::of(Known::default())
    }
}

impl Board {
    /// One that knows this and follows nothing.
    pub fn of(known: Known) -> Self {
        Self {
            known: RwLock::new(known),
            clusters: RwLock::default(),
            cells: RwLock::default(),
            listed: AtomicUsize::new(0),
            news: watch::Sender::new(0),
            hub: Mutex::new(Hub::Up),
        }
    }

    /// For the time of making one view; never held over an await.
    pub fn known(&self) -> RwLockReadGuard<'_, Known> {
        // Whoever panicked left the facts as they were between two changes.
        self.known.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// By name.
    pub fn clusters(&self) -> Vec<Arc<Cluster>> {
        self.clusters.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    /// Everything that says who is on which cell.
    pub fn cells(&self) -> Standing {
        let clusters = self.clusters().iter().map(|cluster| (**cluster).clone()).collect();
        let cells = self.cells.read().unwrap_or_else(PoisonError::into_inner);
        Standing {
            configurations: cells.configurations.values().cloned().collect(),
            bindings: cells.bindings.values().cloned().collect(),
            clusters,
        }
    }

    fn change_cells(&self, change: impl FnOnce(&mut OfCells)) {
        change(&mut self.cells.write().unwrap_or_else(PoisonError::into_inner));
    }

    /// Tells of each change.
    pub fn news(&self) -> watch::Receiver<u64> {
        self.news.subscribe()
    }

    pub fn hub(&self) -> Hub {
        self.hub.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether every kind has been listed once.
    pub fn is_listed(&self) -> bool {
        self.listed.load(Ordering::Relaxed) >= KINDS
    }

    /// Follows the hub until `shutdown`.
    pub async fn follow(self: Arc<Self>, hub: Client, shutdown: CancellationToken) {
        let asking = tokio::spawn({
            let (board, hub, shutdown) = (self.clone(), hub.clone(), shutdown.clone());
            async move { shutdown.run_until_cancelled(board.keep_asking(hub)).await }
        });
        while !shutdown.is_cancelled() {
            let source = Source::asked(hub.clone(), "the portal's hub");
            let mut feeds = self.feeds(&hub, &source, &shutdown);
            tokio::select! {
                () = source.restored() => {}
                () = shutdown.cancelled() => {}
                () = source.keep_asking() => {}
            }
            feeds.shutdown().await;
            // Of a store that went back in time, nothing that is known is true.
            self.change(|known| *known = Known::default());
            self.clusters.write().unwrap_or_else(PoisonError::into_inner).clear();
            self.change_cells(|cells| *cells = OfCells::default());
            self.listed.store(0, Ordering::Relaxed);
        }
        asking.abort();
    }

    fn feeds(self: &Arc<Self>, hub: &Client, source: &Source, shutdown: &CancellationToken) -> JoinSet<()> {
        let mut feeds = JoinSet::new();
        let all = Selection::default;
        let feed = |name: &str, selection| Named { name: name.to_owned(), source: source.clone(), selection };
        feeds.spawn(self.clone().run(
            feed("bindings", all()),
            Api::<ResourceBinding>::all(hub.clone()),
            shutdown.clone(),
            |object| {
                let of_cells = object.spec.cells.is_some().then(|| object.clone());
                Some((facts::binding(object), of_cells))
            },
            {
                let board = self.clone();
                move |known, key, read: Option<(Option<BindingFacts>, Option<ResourceBinding>)>| {
                    let (facts, of_cells) = read.unwrap_or_default();
                    known.set_binding(key.clone(), facts);
                    board.change_cells(|cells| match of_cells {
                        Some(object) => drop(cells.bindings.insert(key.clone(), object)),
                        None => drop(cells.bindings.remove(key)),
                    });
                }
            },
        ));
        feeds.spawn(self.clone().run(
            feed("queue units", all()),
            Api::<QueueUnit>::all(hub.clone()),
            shutdown.clone(),
            |object| Some(facts::unit(object)),
            {
                // A unit that has gone no longer says whose it was.
                let mut whose: BTreeMap<Key, Id> = BTreeMap::new();
                move |known, key, facts: Option<(Id, UnitFacts)>| match facts {
                    Some((id, unit)) => {
                        if let Some(other) =
                            whose.insert(key.clone(), id.clone()).filter(|other| *other != id)
                        {
                            known.set_unit(other, None);
                        }
                        known.set_unit(id, Some(unit));
                    }
                    None => {
                        if let Some(id) = whose.remove(key) {
                            known.set_unit(id, None);
                        }
                    }
                }
            },
        ));
        self.feeds_of_members(&mut feeds, hub, source, shutdown);
        feeds
    }

    /// The quota trees, which together say what is in force.
    fn feed_of_trees(
        self: &Arc<Self>,
        feeds: &mut JoinSet<()>,
        hub: &Client,
        feed: Named,
        shutdown: &CancellationToken,
    ) {
        let mut trees: BTreeMap<Key, ElasticQuotaTree> = BTreeMap::new();
        let api = Api::<ElasticQuotaTree>::namespaced(hub.clone(), QUOTA_NAMESPACE);
        feeds.spawn(self.clone().run(feed, api, shutdown.clone(), Some, move |known, key, object| {
            match object {
                Some(object) => trees.insert(key.clone(), object),
                None => trees.remove(key),
            };
            let all: Vec<ElasticQuotaTree> = trees.values().cloned().collect();
            known.set_tree(facts::tree(&all));
        }));
    }

    /// Clusters with their leases and places, virtual clusters, and the quota trees.
    fn feeds_of_members(
        self: &Arc<Self>,
        feeds: &mut JoinSet<()>,
        hub: &Client,
        source: &Source,
        shutdown: &CancellationToken,
    ) {
        let feed = |name: &str, selection| Named { name: name.to_owned(), source: source.clone(), selection };
        let board = self.clone();
        feeds.spawn(self.clone().run(
            feed("clusters", Selection::default()),
            Api::<Cluster>::all(hub.clone()),
            shutdown.clone(),
            Some,
            move |known, key, object: Option<Cluster>| {
                known.set_cluster(&key.1, object.as_ref().map(facts::cluster));
                let mut objects = board.clusters.write().unwrap_or_else(PoisonError::into_inner);
                match object {
                    Some(object) => objects.insert(key.1.clone(), Arc::new(object)),
                    None => objects.remove(&key.1),
                };
            },
        ));
        let board = self.clone();
        feeds.spawn(self.clone().run(
            feed("configurations of cells", Selection::default()),
            Api::<CellConfiguration>::all(hub.clone()),
            shutdown.clone(),
            Some,
            move |known, key, object: Option<CellConfiguration>| {
                board.change_cells(|cells| match object {
                    Some(object) => drop(cells.configurations.insert(key.1.clone(), object)),
                    None => drop(cells.configurations.remove(&key.1)),
                });
                known.note();
            },
        ));
        feeds.spawn(self.clone().run(
            feed("reservations", Selection::default()),
            Api::<Reservation>::all(hub.clone()),
            shutdown.clone(),
            places::facts,
            |known, key, facts| known.set_places(key.clone(), facts),
        ));
        feeds.spawn(self.clone().run(
            feed("virtual clusters", Selection::default()),
            Api::<VirtualCluster>::all(hub.clone()),
            shutdown.clone(),
            |object| Some(facts::virtual_cluster(&object)),
            |known, key, facts| known.set_virtual_cluster(&key.1, facts),
        ));
        self.feed_of_trees(feeds, hub, feed("quota trees", Selection::default()), shutdown);
        feeds.spawn(self.clone().run(
            feed("leases", Selection::fields(&format!("metadata.name={LEASE_NAME}"))),
            Api::<Lease>::all(hub.clone()),
            shutdown.clone(),
            |object| Some(places::lease(&object)),
            |known, key, facts| {
                if let Some(cluster) = key.0.strip_prefix(CLUSTER_NAMESPACE_PREFIX) {
                    known.set_lease(cluster, facts);
                }
            },
        ));
    }

    /// Follows one kind. `read` makes facts of an object; `set` takes them in, or takes in that there are none.
    fn run<K, F>(
        self: Arc<Self>,
        named: Named,
        api: Api<K>,
        shutdown: CancellationToken,
        read: impl Fn(K) -> Option<F> + Send + 'static,
        mut set: impl FnMut(&mut Known, &Key, Option<F>) + Send + 'static,
    ) -> impl Future<Output = ()> + Send
    where
        K: Resource + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
        F: Send + 'static,
    {
        let feed = Feed { source: named.source, api, selection: named.selection, name: named.name };
        let mut mirror: Mirror<()> = Mirror::default();
        let mut is_listed = false;
        feed.run(shutdown, move |news| {
            if let News::Change(change) = news {
                // The mirror says which objects are news; only the facts of those are kept, and by the board alone.
                let mut fresh: BTreeMap<Key, Option<F>> = BTreeMap::new();
                let is_whole = change.is_listing();
                let outcome = mirror.take::<Kube, K>(change, |object, _| {
                    let key = <Kube as fleet_mirror::Metadata<K>>::key(&object);
                    fresh.insert(key, read(object));
                });
                let keys = outcome.keys();
                if !keys.is_empty() {
                    self.change(|known| {
                        for key in &keys {
                            let facts = fresh.remove(key).filter(|_| mirror.contains_key(key)).flatten();
                            set(known, key, facts);
                        }
                    });
                }
                self.note_listed(is_whole, &mut is_listed);
            } else {
                // A kind that is not served has no objects.
                self.note_listed(true, &mut is_listed);
            }
            std::future::ready(true)
        })
    }

    fn note_listed(&self, is_whole: bool, is_listed: &mut bool) {
        if is_whole && !*is_listed {
            *is_listed = true;
            self.listed.fetch_add(1, Ordering::Relaxed);
            self.news.send_modify(|version| *version += 1);
        }
    }

    /// Takes in what has become known.
    pub fn change(&self, change: impl FnOnce(&mut Known)) {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        let before = known.version();
        change(&mut known);
        let is_news = known.version() != before;
        drop(known);
        if is_news {
            self.news.send_modify(|version| *version += 1);
        }
    }

    async fn keep_asking(&self, hub: Client) {
        loop {
            let asked = Instant::now();
            let found = match tokio::time::timeout(ANSWERS_WITHIN, hub.apiserver_version()).await {
                // One that refuses answers.
                Ok(Ok(_) | Err(kube::Error::Api(_))) => None,
                Ok(Err(error)) => Some(fleet_openpai::server::innermost(&error)),
                Err(_) => Some(format!("nothing heard for {} s", ANSWERS_WITHIN.as_secs())),
            };
            self.hear(found);
            tokio::time::sleep_until(asked + ASK_EVERY).await;
        }
    }

    fn hear(&self, trouble: Option<String>) {
        let mut hub = self.hub.lock().unwrap_or_else(PoisonError::into_inner);
        let next = match (&*hub, trouble) {
            (Hub::Up, Some(why)) => Hub::Away { since: Timestamp::now(), why },
            (Hub::Away { .. }, None) => Hub::Up,
            _ => return,
        };
        *hub = next;
        drop(hub);
        self.news.send_modify(|version| *version += 1);
    }
}

struct Named {
    name: String,
    source: Source,
    selection: Selection,
}
