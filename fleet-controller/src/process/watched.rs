//! Which kinds are watched, and discovery of kinds that were not known at the start.
//!
//! Discovery runs beside the loop, so a slow hub delays nothing else.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use fleet_api::policy::ResourceSelector;
use fleet_hub_core::{
    kinds::{self, KindRef},
    manifests,
    world::{Dirty, Key},
};
use fleet_policies::choice::PolicyScope;
use tokio::{
    task::{JoinError, JoinSet},
    time::Instant,
};

use super::Process;
use crate::discovery;

/// Timeout of discovery.
const DISCOVERY_TIMEOUT: Duration = Duration::from_secs(5);
/// Back-off before discovery is repeated for a kind that the hub does not serve.
const UNKNOWN_PAUSE: Duration = Duration::from_secs(10);

/// API version and kind.
type KindId = (String, String);

#[derive(Default)]
pub(super) struct Watched {
    /// Kinds that are watched.
    kinds: BTreeSet<KindId>,
    /// Kinds that the hub does not serve, and when to try again.
    pub unknown: BTreeMap<KindId, Instant>,
    /// Kinds in discovery, with the objects to reconcile afterwards.
    asking: BTreeMap<KindId, BTreeSet<Dirty>>,
    /// One task for each of them.
    pub questions: JoinSet<Answer>,
}

/// How the hub serves a kind; `None`: it does not serve it.
pub(super) type Answer = (KindId, Option<KindRef>);

impl Process {
    pub(super) fn watch(&mut self, kind: KindRef) {
        let id = (kind.api_version.clone(), kind.kind.clone());
        if self.watched.kinds.insert(id) {
            self.gather.start_kind(kind);
        }
    }

    /// Starts watches of dependencies when the first job has any, and of the kinds of objects that already
    /// had a binding at the start.
    pub(super) fn need_dependencies(&mut self, key: &Key) {
        let Some(entry) = self.world.bindings.get(key) else { return };
        let wanted =
            self.world.bound_object(entry).is_some_and(|object| manifests::has_dependencies(entry, object));
        let kind = entry.kind.clone();
        self.need_kind(&kind.api_version, &kind.kind, Dirty::Binding(key.clone()));
        if wanted {
            for kind in kinds::dependencies() {
                self.watch(kind);
            }
        }
    }

    /// Starts watches of the kinds that a policy selects.
    pub(super) fn need_kinds(&mut self, scope: PolicyScope, key: &Key) {
        let Some(policy) = self.world.policies.get(&(scope, key.clone())) else { return };
        let selected: Vec<ResourceSelector> = policy.spec.resource_selectors.clone();
        for ResourceSelector { api_version, kind, .. } in selected {
            self.need_kind(&api_version, &kind, Dirty::Policy(scope, key.clone()));
        }
    }

    /// Starts the watch of one kind; `asker` is reconciled again if the hub does not serve it.
    fn need_kind(&mut self, api_version: &str, kind: &str, asker: Dirty) {
        let id = (api_version.to_string(), kind.to_string());
        let asked_lately = self.watched.unknown.get(&id).is_some_and(|next| Instant::now() < *next);
        if self.watched.kinds.contains(&id) || asked_lately {
            return;
        }
        if let Some(kind) = kinds::known(api_version, kind) {
            return self.watch(kind);
        }
        let askers = self.watched.asking.entry(id.clone()).or_default();
        let is_first = askers.is_empty();
        askers.insert(asker);
        if is_first {
            let hub = self.hub.clone();
            self.watched.questions.spawn(async move {
                let asked = discovery::discover(&hub, &id.0, &id.1);
                let answer = tokio::time::timeout(DISCOVERY_TIMEOUT, asked).await;
                (id, answer.ok().flatten())
            });
        }
    }

    /// Handles the result of discovery.
    pub(super) fn answered(&mut self, answer: Result<Answer, JoinError>) {
        let (id, found) = match answer {
            Ok(answer) => answer,
            Err(failed) if failed.is_panic() => std::panic::resume_unwind(failed.into_panic()),
            // The runtime is shutting down, and this loop with it.
            Err(_) => return,
        };
        let askers = self.watched.asking.remove(&id).unwrap_or_default();
        if let Some(kind) = found {
            self.watched.unknown.remove(&id);
            return self.watch(kind);
        }
        let (api_version, kind) = &id;
        tracing::warn!(%api_version, %kind, "a kind to propagate is not served by the hub");
        let next = Instant::now() + UNKNOWN_PAUSE;
        let is_news = self.watched.unknown.insert(id, next).is_none();
        for asker in askers {
            if is_news {
                self.world.mark(asker.clone());
            }
            self.timers.ring_at(next, asker);
        }
    }
}
