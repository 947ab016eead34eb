//! Works: applies what the hub wants in this member, reports how it fares, and removes it again.
//!
//! `desired` and `report` decide, as pure functions; `state` holds what the watches show; `apply` and
//! `cleanup` write; `fence` stops fenced jobs while the cluster is cut off; `epochs` remembers what must not begin
//! again. Deliberately absent: choosing what to apply (the hub's), running jobs (`jobs` or the member's operators).

mod after_end;
mod apply;
mod cleanup;
mod desired;
mod epochs;
mod fence;
mod inject;
mod member;
mod report;
mod state;
mod templates;
#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fleet_api::Work;
use fleet_informer::{News, Selection};
use kube::{Api, api::DynamicObject, discovery::ApiResource};
use tokio::task::JoinSet;

use crate::Context;
use epochs::Epochs;
use fleet_agent_ground::{Backoff, Clock, Next, Pod, Queue, Standing, follow, resource};
use state::{KindId, ObjectId, State};

/// Works that are worked on at a time.
const WORKS_IN_FLIGHT: usize = 64;

/// The kinds whose plural is known, watched from the start so that leftovers of a Work that vanished
/// while the agent was away are found.
const KNOWN_KINDS: [(&str, &str, &str, &str); 12] = [
    ("kubeflow.org", "v1", "PyTorchJob", "pytorchjobs"),
    ("kubeflow.org", "v1", "TFJob", "tfjobs"),
    ("kubeflow.org", "v2beta1", "MPIJob", "mpijobs"),
    ("batch.volcano.sh", "v1alpha1", "Job", "jobs"),
    ("batch", "v1", "Job", "jobs"),
    ("apps", "v1", "Deployment", "deployments"),
    ("apps", "v1", "StatefulSet", "statefulsets"),
    ("", "v1", "ConfigMap", "configmaps"),
    ("", "v1", "Secret", "secrets"),
    ("", "v1", "ServiceAccount", "serviceaccounts"),
    ("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims"),
    ("", "v1", "Service", "services"),
];

/// What is to be looked at.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Key {
    Work(String),
    /// An object in the member that Fleet made and that may belong to no Work any more.
    Leftover(ObjectId),
    /// A job that must not run while this cluster is cut off.
    Fence(ObjectId),
}

/// Applies Works until the agent stops.
///
/// # Errors
/// None at present; what fails is tried again.
pub async fn run(context: Arc<Context>) -> anyhow::Result<()> {
    let works = Arc::new(Works {
        hub: Api::namespaced(context.hub.clone(), &context.cluster_namespace()),
        state: Mutex::default(),
        queue: Arc::new(Queue::new()),
        watches: Mutex::default(),
        epochs: Epochs::default(),
        clock: context.clock,
        context: context.clone(),
    });
    works.watch_pods();
    for (group, version, kind, plural) in KNOWN_KINDS {
        works.watch_kind(resource(group, version, kind, plural));
    }
    let shutdown = context.shutdown.clone();
    let (beginning, standing) = (works.clone(), works.clone());
    works.watches().spawn(async move {
        shutdown.run_until_cancelled(beginning.begin_with_hub()).await;
    });
    let shutdown = context.shutdown.clone();
    works.watches().spawn(async move {
        shutdown.run_until_cancelled(standing.follow_standing()).await;
    });
    let worker = works.clone();
    let work = move |key| {
        let works = worker.clone();
        async move { works.look_at(key).await }
    };
    works.queue.clone().run(WORKS_IN_FLIGHT, context.shutdown.clone(), work).await;
    let mut watches = std::mem::take(&mut *works.watches());
    while watches.join_next().await.is_some() {}
    Ok(())
}

struct Works {
    context: Arc<Context>,
    hub: Api<Work>,
    state: Mutex<State>,
    queue: Arc<Queue<Key>>,
    watches: Mutex<JoinSet<()>>,
    epochs: Epochs,
    clock: Clock,
}

impl Works {
    fn state(&self) -> MutexGuard<'_, State> {
        // No code that can panic runs under the lock, so the state is whole even then.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn watches(&self) -> MutexGuard<'_, JoinSet<()>> {
        self.watches.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn name(&self, what: &str) -> String {
        format!("{}/works/{what}", self.context.options.cluster)
    }

    async fn look_at(self: &Arc<Self>, key: Key) -> Next {
        let done = match &key {
            Key::Work(name) => self.look_at_work(name).await,
            Key::Leftover(id) => self.look_at_leftover(id).await,
            Key::Fence(id) => self.look_at_fence(id).await,
        };
        done.unwrap_or_else(|error| {
            let cluster = &self.context.options.cluster;
            tracing::warn!(cluster, ?key, %error, "could not bring the member in line; trying again");
            Next::Retry
        })
    }

    /// Looks at Works once this agent speaks for the cluster and knows what must not begin again.
    async fn begin_with_hub(self: Arc<Self>) {
        let mut backoff = Backoff::new(&self.name("epochs"));
        loop {
            let loaded = async {
                self.context.terms.load().await?;
                self.epochs.load(&self.context).await
            };
            match loaded.await {
                Ok(epochs) => {
                    let mut state = self.state();
                    for (uid, epoch) in epochs {
                        state.see_epoch(&uid, epoch);
                    }
                    break;
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot read the epochs kept in the member; trying again")
                }
            }
            backoff.wait().await;
        }
        self.context.lease.renewed().await;
        self.context.sources.hub.begin().await;
        while let Err(error) = self.context.terms.begin().await {
            tracing::warn!(%error, "cannot note in the member which incarnation the hub is; trying again");
            backoff.wait().await;
        }
        self.watch_hub();
    }

    fn watch_hub(self: &Arc<Self>) {
        let works = self.clone();
        let feed = self.context.hub_feed(self.hub.clone(), Selection::default(), "works/works");
        let following = follow(feed, self.context.shutdown.clone(), move |change| works.work_changed(change));
        self.watches().spawn(following);
    }

    fn watch_pods(self: &Arc<Self>) {
        let works = self.clone();
        let api: Api<Pod> = Api::all_with(self.context.member.clone(), &resource("", "v1", "Pod", "pods"));
        let feed = self.context.member_feed(api, Selection::default(), "works/pods");
        let following = follow(feed, self.context.shutdown.clone(), move |change| works.pod_changed(change));
        self.watches().spawn(following);
    }

    /// Starts the watch over the objects of a kind that Fleet made, once.
    fn watch_kind(self: &Arc<Self>, resource: ApiResource) {
        let kind = KindId::of(&resource);
        if !self.state().add_kind(kind.clone(), resource.clone()) {
            return;
        }
        let works = self.clone();
        let api: Api<DynamicObject> = Api::all_with(self.context.member.clone(), &resource);
        let selection = Selection::labels(&format!("{}=true", fleet_api::names::MANAGED_LABEL));
        let name = format!("works/{}.{}", resource.plural, resource.group);
        let feed = self.context.member_feed(api, selection, &name);
        let on_change = move |change| works.object_changed(&kind, change);
        self.watches().spawn(follow(feed, self.context.shutdown.clone(), on_change));
    }

    /// Tells the hub, with the next renewal of the lease, once nothing runs here that no Work names.
    fn note_sorted(&self, state: &mut State) {
        if !state.is_sorted && state.is_sorted_out() {
            state.is_sorted = true;
            self.context.sorted();
        }
    }

    fn add(&self, keys: impl IntoIterator<Item = Key>) {
        keys.into_iter().for_each(|key| self.queue.add(key));
    }

    fn work_changed(&self, news: News<Work>) {
        let News::Change(change) = news else { return };
        let keys = {
            let mut state = self.state();
            let epoch = state.epoch_of_works();
            let keys = state.take_works(change);
            if state.epoch_of_works() != epoch {
                self.context.sources.hub.went_back("a Work went back");
            }
            self.note_sorted(&mut state);
            keys
        };
        self.add(keys);
    }

    fn pod_changed(&self, news: News<Pod>) {
        let News::Change(change) = news else { return };
        let (is_listing, is_cut_off) =
            (change.is_listing(), self.context.lease.standing() == Standing::CutOff);
        let keys = {
            let mut state = self.state();
            let (mut keys, owners) = state.take_pods(change);
            for owner in owners {
                // Only a job that must not run, or one that has ended, is looked at for a pod of its own.
                if state.job_has_ended(&owner) {
                    keys.extend(state.interested(&owner));
                }
                keys.extend(is_cut_off.then_some(Key::Fence(owner)));
            }
            if is_listing {
                state.pods_synced = true;
                keys.extend(state.all_works());
                keys.extend(state.leftovers());
                keys.extend(state.fenced().into_iter().map(Key::Fence));
            }
            self.note_sorted(&mut state);
            keys
        };
        self.add(keys);
    }

    fn object_changed(&self, kind: &KindId, news: News<DynamicObject>) {
        let keys = {
            let mut state = self.state();
            let keys = match news {
                News::NotServed => {
                    state.set_unserved(kind);
                    Vec::new()
                }
                News::Change(change) => {
                    self.context.owned.take(&kind.api_version, &kind.kind, &change);
                    let (mut keys, fresh) = state.take_objects(kind, change);
                    if self.context.lease.standing() == Standing::CutOff {
                        let fenced = fresh.iter().filter(|object| fence::is_fenced_level(object));
                        keys.extend(fenced.map(|object| Key::Fence(ObjectId::of_object(kind, object))));
                    }
                    keys
                }
            };
            self.note_sorted(&mut state);
            keys
        };
        self.add(keys);
    }
}
