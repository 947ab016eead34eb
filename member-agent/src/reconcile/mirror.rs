//! A mirror of what a watch shows: each event becomes a change against what was known, also over a
//! restart of the watch, where objects that are no longer listed count as deleted.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet, VecDeque},
    fmt::Debug,
    sync::Arc,
};

use kube::{Api, Resource, runtime::watcher};
use serde::de::DeserializeOwned;
use tokio_util::sync::CancellationToken;

use crate::feed;

/// Namespace (empty for cluster-scoped objects) and name.
pub(crate) type ObjectKey = (String, String);

pub(crate) fn key_of<K: Resource>(object: &K) -> ObjectKey {
    let meta = object.meta();
    (meta.namespace.clone().unwrap_or_default(), meta.name.clone().unwrap_or_default())
}

/// What a watch event means.
#[derive(Clone, Debug)]
pub(crate) enum Change<K> {
    Applied(Arc<K>),
    Deleted(Arc<K>),
    /// A listing is about to be asked for.
    Listing,
    /// Everything that exists has been shown: these are all.
    Synced(Arc<BTreeSet<ObjectKey>>),
}

/// Objects by key, kept at their newest version whether it came from a watch or from the answer to a
/// write of our own.
#[derive(Debug)]
pub(crate) struct Stored<K> {
    objects: BTreeMap<ObjectKey, Kept<K>>,
    /// How many listings have begun.
    listings: u64,
    /// Uids of the latest deletions, and their order: an answer that comes after the news of the end revives
    /// nothing.
    ended: HashSet<String>,
    ends: VecDeque<String>,
}

#[derive(Debug)]
struct Kept<K> {
    object: Arc<K>,
    /// How many listings had begun by then.
    listings: u64,
}

/// How many ends are remembered; far more than writes can be in flight.
const ENDED_CAPACITY: usize = 1024;

impl<K> Default for Stored<K> {
    fn default() -> Self {
        Self { objects: BTreeMap::new(), listings: 0, ended: HashSet::new(), ends: VecDeque::new() }
    }
}

impl<K: Resource> Stored<K> {
    pub(crate) fn get(&self, key: &ObjectKey) -> Option<&Arc<K>> {
        self.objects.get(key).map(|kept| &kept.object)
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &Arc<K>> {
        self.objects.values().map(|kept| &kept.object)
    }

    /// A listing is about to be asked for.
    pub(crate) fn begin_listing(&mut self) {
        self.listings += 1;
    }

    /// Objects known before the last listing was asked for that it does not name: they are gone. No watch will
    /// show the end of one that was known from the answer to a write of our own alone.
    pub(crate) fn unlisted(&self, listed: &BTreeSet<ObjectKey>) -> Vec<Arc<K>> {
        let gone =
            self.objects.iter().filter(|(key, kept)| kept.listings < self.listings && !listed.contains(*key));
        gone.map(|(_, kept)| kept.object.clone()).collect()
    }

    /// Objects told of since the last listing was asked for that it does not name: made after it was taken, or gone
    /// before that, which no watch will show.
    pub(crate) fn doubtful(&self, listed: &BTreeSet<ObjectKey>) -> BTreeSet<ObjectKey> {
        let young = self
            .objects
            .iter()
            .filter(|(key, kept)| kept.listings == self.listings && !listed.contains(*key));
        young.map(|(key, _)| key.clone()).collect()
    }

    /// Keeps the object unless a newer version is known. Returns whether it was kept.
    pub(crate) fn put(&mut self, object: Arc<K>) -> bool {
        let key = key_of(&*object);
        if let Some(known) = self.get(&key)
            && version(&**known) > version(&*object)
        {
            return false;
        }
        if let Some(uid) = &object.meta().uid
            && self.ended.contains(uid)
        {
            return false;
        }
        self.objects.insert(key, Kept { object, listings: self.listings });
        true
    }

    /// Forgets whatever has this key, which may come back.
    pub(crate) fn drop_key(&mut self, key: &ObjectKey) {
        self.objects.remove(key);
    }

    /// Forgets the object, unless what is known came after its deletion.
    pub(crate) fn remove(&mut self, object: &K) -> Option<Arc<K>> {
        if let Some(uid) = &object.meta().uid {
            if self.ends.len() == ENDED_CAPACITY
                && let Some(oldest) = self.ends.pop_front()
            {
                self.ended.remove(&oldest);
            }
            if self.ended.insert(uid.clone()) {
                self.ends.push_back(uid.clone());
            }
        }
        let key = key_of(object);
        let known = self.get(&key)?;
        if known.meta().uid != object.meta().uid && version(&**known) > version(object) {
            return None;
        }
        self.objects.remove(&key).map(|kept| kept.object)
    }
}

/// The resourceVersion as a number; they grow over all objects of a kind (Kubernetes 1.35 promises it,
/// every server in use does it). Unreadable ones compare as older.
fn version<K: Resource>(object: &K) -> u64 {
    object.meta().resource_version.as_deref().and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// Watches until `shutdown` and hands each change to `on_change`, which must not block. `name` names the
/// watch in logs and seeds its backoff.
pub(crate) async fn follow<K, F>(
    name: String,
    api: Api<K>,
    config: watcher::Config,
    shutdown: CancellationToken,
    on_change: F,
) where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
    F: FnMut(Change<K>),
{
    let mut seen = Seen { known: BTreeMap::new(), on_change };
    feed::run_with_listings(name, api, config, shutdown, |news| {
        match news {
            feed::News::Listing => (seen.on_change)(Change::Listing),
            feed::News::Change(change) => seen.take(change),
            feed::News::NotServed => {}
        }
        std::future::ready(true)
    })
    .await;
}

struct Seen<K, F> {
    known: BTreeMap<ObjectKey, Arc<K>>,
    on_change: F,
}

impl<K: Resource, F: FnMut(Change<K>)> Seen<K, F> {
    fn take(&mut self, change: feed::Change<K>) {
        match change {
            feed::Change::Apply(object) => self.apply(object),
            feed::Change::Delete(object) => {
                self.known.remove(&key_of(&object));
                (self.on_change)(Change::Deleted(Arc::new(object)));
            }
            feed::Change::All(objects) => {
                let listed: BTreeSet<ObjectKey> = objects.iter().map(key_of).collect();
                let mut gone: Vec<ObjectKey> =
                    self.known.keys().filter(|key| !listed.contains(*key)).cloned().collect();
                gone.sort();
                for key in gone {
                    if let Some(object) = self.known.remove(&key) {
                        (self.on_change)(Change::Deleted(object));
                    }
                }
                for object in objects {
                    self.apply(object);
                }
                (self.on_change)(Change::Synced(Arc::new(listed)));
            }
        }
    }

    fn apply(&mut self, mut object: K) {
        object.meta_mut().managed_fields = None;
        let object = Arc::new(object);
        if let Some(old) = self.known.insert(key_of(&*object), object.clone()) {
            // Replaced while the watch was away: the end of the old one is news of its own.
            if old.meta().uid != object.meta().uid {
                (self.on_change)(Change::Deleted(old));
            } else if old.meta().resource_version == object.meta().resource_version {
                return;
            }
        }
        (self.on_change)(Change::Applied(object));
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;

    use super::*;

    fn object(name: &str, uid: &str, version: &str) -> ConfigMap {
        let mut object = ConfigMap::default();
        object.metadata.name = Some(name.to_owned());
        object.metadata.uid = Some(uid.to_owned());
        object.metadata.resource_version = Some(version.to_owned());
        object
    }

    #[test]
    fn a_listing_ends_what_it_does_not_name() {
        let mut log = Vec::new();
        let mut seen = Seen {
            known: BTreeMap::new(),
            on_change: |change| {
                log.push(match change {
                    Change::Applied(o) => format!("+{}", key_of(&*o).1),
                    Change::Deleted(o) => format!("-{}", key_of::<ConfigMap>(&*o).1),
                    Change::Listing => "listing".to_owned(),
                    Change::Synced(_) => "synced".to_owned(),
                });
            },
        };
        seen.take(feed::Change::All(vec![object("a", "1", "1"), object("b", "2", "2")]));
        seen.take(feed::Change::All(vec![object("b", "2", "2"), object("c", "3", "3")]));
        seen.take(feed::Change::Apply(object("c", "4", "4")));
        assert_eq!(log, ["+a", "+b", "synced", "-a", "+c", "synced", "-c", "+c"]);
    }

    #[test]
    fn what_only_an_answer_told_of_ends_with_the_listing_that_does_not_name_it() {
        let names = |gone: Vec<Arc<ConfigMap>>| gone.iter().map(|o| key_of(&**o).1).collect::<Vec<_>>();
        let mut stored = Stored::default();
        stored.put(Arc::new(object("made", "1", "5")));
        stored.put(Arc::new(object("stands", "2", "6")));
        stored.begin_listing();
        // Made after the listing was asked for: it may be missing there.
        stored.put(Arc::new(object("younger", "3", "8")));
        let listed: BTreeSet<ObjectKey> = [(String::new(), "stands".to_owned())].into();
        assert_eq!(names(stored.unlisted(&listed)), ["made"]);
        assert_eq!(stored.doubtful(&listed), [(String::new(), "younger".to_owned())].into());
        stored.remove(&object("made", "1", "5"));
        assert!(!stored.put(Arc::new(object("made", "1", "7"))), "ended");
    }

    #[test]
    fn an_old_answer_revives_nothing() {
        let mut stored = Stored::default();
        assert!(stored.put(Arc::new(object("a", "1", "5"))));
        assert!(!stored.put(Arc::new(object("a", "1", "4"))), "older");
        stored.remove(&object("a", "1", "6"));
        assert!(!stored.put(Arc::new(object("a", "1", "7"))), "ended");
        assert!(stored.put(Arc::new(object("a", "2", "8"))), "another object of that name");
        stored.remove(&object("a", "1", "6"));
        assert!(stored.get(&(String::new(), "a".to_owned())).is_some(), "news of the old one");
    }
}
