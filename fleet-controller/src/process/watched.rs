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
use crate::discovery::{self, KindId};

/// Back-off before discovery is repeated for a kind that the hub does not serve.
const UNKNOWN_PAUSE: Duration = Duration::from_secs(10);

#[derive(Default)]
pub(super) struct Watched {
    /// Kinds that are watched.
    kinds: BTreeSet<KindId>,
    /// Kinds that the hub does not serve, and when to try again.
    pub unknown: BTreeMap<KindId, Instant>,
    /// Kinds in the running discovery, with the objects to reconcile afterwards.
    asking: BTreeMap<KindId, BTreeSet<Dirty>>,
    /// The same for the next discovery.
    waiting: BTreeMap<KindId, BTreeSet<Dirty>>,
    /// One task at a time: what policies name is not to become a load on the hub.
    pub questions: JoinSet<Vec<Answer>>,
}

/// How the hub serves a kind; `None`: it does not serve it.
pub(super) type Answer = (KindId, Option<KindRef>);

/// What one discovery has found.
#[derive(Debug, Default, PartialEq, Eq)]
struct DiscoveryResult {
    /// Kinds to watch from now on.
    kinds: Vec<KindRef>,
    /// What is reconciled at once: it did not know yet that a kind is not served.
    news: BTreeSet<Dirty>,
    /// What asks again after the back-off.
    again: BTreeSet<Dirty>,
}

impl Watched {
    /// Notes a kind for the running discovery or the next.
    fn want(&mut self, id: KindId, asker: Dirty) {
        let round = if self.asking.contains_key(&id) { &mut self.asking } else { &mut self.waiting };
        round.entry(id).or_default().insert(asker);
    }

    /// The kinds of the next discovery, unless one is running or there is nothing to ask.
    fn next_round(&mut self) -> Option<BTreeSet<KindId>> {
        if !self.asking.is_empty() || self.waiting.is_empty() {
            return None;
        }
        self.asking = std::mem::take(&mut self.waiting);
        Some(self.asking.keys().cloned().collect())
    }

    fn found(&mut self, answers: Vec<Answer>, next: Instant) -> DiscoveryResult {
        let mut asked = std::mem::take(&mut self.asking);
        let mut found = DiscoveryResult::default();
        // Kinds that nobody asks for any more.
        self.unknown.retain(|_, due| *due + 6 * UNKNOWN_PAUSE > next);
        for (id, kind) in answers {
            let askers = asked.remove(&id).unwrap_or_default();
            if let Some(kind) = kind {
                self.unknown.remove(&id);
                found.kinds.push(kind);
                continue;
            }
            let (api_version, kind) = &id;
            if self.unknown.insert(id.clone(), next).is_none() {
                tracing::warn!(%api_version, %kind, "a kind to propagate is not served by the hub");
                found.news.extend(askers.iter().cloned());
            }
            found.again.extend(askers);
        }
        found
    }
}

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
        let object = self.world.bound_object(entry);
        let wanted =
            object.is_some_and(|object| !manifests::kinds_needed(&self.world, key, entry, object).is_empty());
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
        // An invalid policy governs nothing.
        if !policy.violations.is_empty() {
            return;
        }
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
        self.watched.want(id, asker);
        self.ask();
    }

    /// Starts the next discovery.
    fn ask(&mut self) {
        if let Some(wanted) = self.watched.next_round() {
            let hub = self.hub.clone();
            self.watched.questions.spawn(async move { discovery::discover(&hub, wanted).await });
        }
    }

    /// Handles the result of discovery.
    pub(super) fn answered(&mut self, answers: Result<Vec<Answer>, JoinError>) {
        let answers = match answers {
            Ok(answers) => answers,
            Err(failed) if failed.is_panic() => std::panic::resume_unwind(failed.into_panic()),
            // The runtime is shutting down, and this loop with it.
            Err(_) => return,
        };
        let next = Instant::now() + UNKNOWN_PAUSE;
        let found = self.watched.found(answers, next);
        for kind in found.kinds {
            self.watch(kind);
        }
        for asker in found.news {
            self.world.mark(asker);
        }
        for asker in found.again {
            self.timers.ring_at(next, asker);
        }
        self.ask();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(kind: &str) -> KindId {
        ("example.com/v1".to_string(), kind.to_string())
    }

    fn asker(name: &str) -> Dirty {
        Dirty::Policy(PolicyScope::Namespaced, ("team".to_string(), name.to_string()))
    }

    #[tokio::test(start_paused = true)]
    async fn however_many_kinds_policies_name_one_discovery_runs_at_a_time() {
        let mut watched = Watched::default();
        watched.want(id("First"), asker("a"));
        assert_eq!(watched.next_round(), Some([id("First")].into()));
        for n in 0..1_000 {
            watched.want(id(&format!("Kind{n}")), asker("a"));
        }
        watched.want(id("First"), asker("b"));
        assert_eq!(watched.next_round(), None, "one is running");
        let next = Instant::now() + UNKNOWN_PAUSE;
        let found = watched.found(vec![(id("First"), None)], next);
        assert_eq!(found.news, [asker("a"), asker("b")].into());
        assert_eq!(watched.next_round().map(|round| round.len()), Some(1_000));
        let unserved = (0..1_000).map(|n| (id(&format!("Kind{n}")), None)).collect();
        let found = watched.found(unserved, next);
        assert_eq!(
            (found.news, found.again),
            ([asker("a")].into(), [asker("a")].into()),
            "once, not a thousand times"
        );
        assert_eq!(watched.next_round(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn kinds_that_nobody_asks_for_any_more_are_forgotten() {
        let mut watched = Watched::default();
        let now = Instant::now();
        watched.found(vec![(id("Gone"), None)], now + UNKNOWN_PAUSE);
        watched.found(vec![(id("Asked"), None)], now + 8 * UNKNOWN_PAUSE);
        assert_eq!(watched.unknown.keys().cloned().collect::<Vec<_>>(), [id("Asked")]);
    }
}
