//! Works: applies what the hub wants in this member, reports how it fares, and removes it again.
//!
//! `desired` and `report` decide, as pure functions; `state` holds what the watches show; `apply` and
//! `cleanup` write. Deliberately absent: choosing what to apply (the hub's), running jobs (`jobs` or the
//! member's operators), stopping fenced jobs when the lease has run out.

mod apply;
mod cleanup;
mod desired;
mod member;
mod report;
mod state;
#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fleet_api::Work;
use kube::{Api, api::DynamicObject, discovery::ApiResource, runtime::watcher};
use tokio::task::JoinSet;

use crate::{
    Context,
    clock::Clock,
    jobs::{Pod, resource},
    reconcile::{Change, Next, Queue, follow},
};
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
        clock: context.clock,
        context: context.clone(),
    });
    works.watch_hub();
    works.watch_pods();
    for (group, version, kind, plural) in KNOWN_KINDS {
        works.watch_kind(resource(group, version, kind, plural));
    }
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
        };
        done.unwrap_or_else(|error| {
            let cluster = &self.context.options.cluster;
            tracing::warn!(cluster, ?key, %error, "could not bring the member in line; trying again");
            Next::Retry
        })
    }

    fn watch_hub(self: &Arc<Self>) {
        let works = self.clone();
        let shutdown = self.context.shutdown.clone();
        let on_change = move |change| works.work_changed(change);
        let (name, api) = (self.name("works"), self.hub.clone());
        self.watches().spawn(follow(name, api, watcher::Config::default(), shutdown, on_change));
    }

    fn watch_pods(self: &Arc<Self>) {
        let works = self.clone();
        let shutdown = self.context.shutdown.clone();
        let api: Api<Pod> = Api::all_with(self.context.member.clone(), &resource("", "v1", "Pod", "pods"));
        let on_change = move |change| works.pod_changed(change);
        self.watches().spawn(follow(self.name("pods"), api, watcher::Config::default(), shutdown, on_change));
    }

    /// Starts the watch over the objects of a kind that Fleet made, once.
    fn watch_kind(self: &Arc<Self>, resource: ApiResource) {
        let kind = KindId::of(&resource);
        if !self.state().add_kind(kind.clone(), resource.clone()) {
            return;
        }
        let works = self.clone();
        let shutdown = self.context.shutdown.clone();
        let api: Api<DynamicObject> = Api::all_with(self.context.member.clone(), &resource);
        let config = watcher::Config::default().labels(&format!("{}=true", fleet_api::names::MANAGED_LABEL));
        let on_change = move |change| works.object_changed(&kind, change);
        let name = self.name(&format!("{}.{}", resource.plural, resource.group));
        self.watches().spawn(follow(name, api, config, shutdown, on_change));
    }

    fn add(&self, keys: impl IntoIterator<Item = Key>) {
        keys.into_iter().for_each(|key| self.queue.add(key));
    }

    fn work_changed(&self, change: Change<Work>) {
        let keys = {
            let mut state = self.state();
            match change {
                Change::Applied(work) => state.put_work(work),
                Change::Deleted(work) => state.end_work(&work),
                Change::Synced => {
                    state.works_synced = true;
                    state.leftovers()
                }
            }
        };
        self.add(keys);
    }

    fn pod_changed(&self, change: Change<Pod>) {
        let keys = {
            let mut state = self.state();
            match change {
                Change::Applied(pod) => {
                    state.put_pod(pod);
                    return;
                }
                Change::Deleted(pod) => state.end_pod(&pod),
                Change::Synced => {
                    state.pods_synced = true;
                    let mut keys = state.all_works();
                    keys.extend(state.leftovers());
                    keys
                }
            }
        };
        self.add(keys);
    }

    fn object_changed(&self, kind: &KindId, change: Change<DynamicObject>) {
        let keys = {
            let mut state = self.state();
            match change {
                Change::Applied(object) => state.put_object(kind, object),
                Change::Deleted(object) => state.end_object(kind, &object),
                Change::Synced => {
                    state.set_synced(kind);
                    state.leftovers()
                }
            }
        };
        self.add(keys);
    }
}
