//! The state of this crate, and what its parts share.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fleet_agent_ground::{Next, Queue};
use fleet_api::Work;
use jiff::Timestamp;
use kube::Api;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::{
    epochs::Epochs,
    handles::{Handles, Settings},
    keys::Key,
    late::LateCreates,
    state::State,
};

pub(crate) struct Works {
    pub handles: Handles,
    pub settings: Settings,
    pub shutdown: CancellationToken,
    pub hub: Api<Work>,
    state: Mutex<State>,
    pub queue: Arc<Queue<Key>>,
    watches: Mutex<JoinSet<()>>,
    pub epochs: Epochs,
}

impl Works {
    pub fn new(handles: Handles, settings: Settings, shutdown: CancellationToken) -> Self {
        let namespace = fleet_api::names::cluster_namespace(handles.member.cluster());
        let late = LateCreates::new(settings.member_request_timeout);
        Self {
            hub: Api::namespaced(handles.hub.client.clone(), &namespace),
            state: Mutex::new(State::new(late)),
            queue: Arc::new(Queue::default()),
            watches: Mutex::default(),
            epochs: Epochs::new(handles.member.client.clone()),
            handles,
            settings,
            shutdown,
        }
    }

    pub fn now(&self) -> Timestamp {
        self.handles.clock.now()
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        // No code that can panic runs under the lock, so the state is consistent even then.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn watches(&self) -> MutexGuard<'_, JoinSet<()>> {
        self.watches.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn name(&self, what: &str) -> String {
        format!("{}/works/{what}", self.handles.member.cluster())
    }

    pub async fn look_at(self: &Arc<Self>, key: Key) -> Next {
        let done = match &key {
            Key::Work(name) => self.look_at_work(name).await,
            Key::Leftover(id) => self.look_at_leftover(id).await,
            Key::Fence(id) => self.look_at_fence(id).await,
        };
        done.unwrap_or_else(|error| {
            let cluster = self.handles.member.cluster();
            tracing::warn!(cluster, ?key, %error, "reconcile failed; retrying");
            Next::Retry
        })
    }

    pub fn add(&self, keys: impl IntoIterator<Item = Key>) {
        keys.into_iter().for_each(|key| self.queue.add(key));
    }
}
