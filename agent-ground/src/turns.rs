//! Changes of a feed relative to the cached state of the member or the hub.

use std::{fmt::Debug, sync::Arc};

use fleet_informer::{Feed, Kube, News};
use fleet_mirror::{Change, Changed, Listing, Mirror, Outcome};
use kube::Resource;
use serde::de::DeserializeOwned;
use tokio_util::sync::CancellationToken;

/// Namespace (empty for cluster-scoped objects) and name.
pub type ObjectKey = fleet_mirror::Key;

pub fn key_of<K: Resource>(object: &K) -> ObjectKey {
    let meta = object.meta();
    (meta.namespace.clone().unwrap_or_default(), meta.name.clone().unwrap_or_default())
}

/// Whether two versions of an object differ in nothing but what a write of the status changes. The answer to such
/// a write may show a change that somebody else made just before: it enters the cache with the answer, and the
/// watch, which then has nothing newer, does not report it.
pub fn is_same_but_status<K: Resource>(before: &K, now: &K) -> bool {
    let (before, now) = (before.meta(), now.meta());
    before.uid == now.uid
        && before.generation == now.generation
        && before.deletion_timestamp == now.deletion_timestamp
        && before.finalizers == now.finalizers
        && before.annotations == now.annotations
        && before.labels == now.labels
}

/// The change of one object.
#[derive(Clone, Debug)]
pub enum Turn<K> {
    /// It is new, or another version of `before`.
    Applied {
        now: Arc<K>,
        before: Option<Arc<K>>,
    },
    Deleted(Arc<K>),
}

/// Applies a change. Deletions come first: an object that reuses a name is reported after the end of the old
/// one.
pub fn take<K: Resource>(mirror: &mut Mirror<Arc<K>>, change: Change<K>) -> Vec<Turn<K>> {
    let outcome = mirror.take::<Kube, K>(change, |object, _| Arc::new(object));
    turns(mirror, outcome)
}

/// Like [`take`], for a list that was requested beside the feed's.
pub fn check<K: Resource>(mirror: &mut Mirror<Arc<K>>, listing: Listing<K>) -> Vec<Turn<K>> {
    let outcome = mirror.check::<Kube, K>(listing, |object, _| Arc::new(object));
    turns(mirror, outcome)
}

fn turns<K: Resource>(mirror: &Mirror<Arc<K>>, outcome: Outcome<Arc<K>>) -> Vec<Turn<K>> {
    let (mut ends, mut turns) = (Vec::new(), Vec::new());
    for Changed { key, before } in outcome.changed {
        let now = mirror.get(&key).cloned();
        let is_it = |before: &Arc<K>| now.as_ref().is_some_and(|now| now.meta().uid == before.meta().uid);
        let (before, ended) = match before {
            Some(before) if is_it(&before) => (Some(before), None),
            other => (None, other),
        };
        ends.extend(ended.map(Turn::Deleted));
        turns.extend(now.map(|now| Turn::Applied { now, before }));
    }
    ends.extend(turns);
    ends
}

/// Passes the changes of a feed to `on_news`, which must not block, until `shutdown`.
pub async fn follow<K, F>(feed: Feed<K>, shutdown: CancellationToken, mut on_news: F)
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
    F: FnMut(News<K>) + Send,
{
    feed.run(shutdown, |news| {
        on_news(news);
        std::future::ready(true)
    })
    .await;
}

/// Changes of a kind that has no other cache.
#[derive(Clone, Debug)]
pub enum Shown<K> {
    Applied(Arc<K>),
    Deleted(Arc<K>),
    /// All existing objects have been reported.
    Synced,
}

/// Like [`follow`], with a mirror of its own.
pub async fn show<K, F>(feed: Feed<K>, shutdown: CancellationToken, mut on_change: F)
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
    F: FnMut(Shown<K>) + Send,
{
    let mut mirror = Mirror::default();
    let on_news = |news| {
        let News::Change(change) = news else { return };
        let is_listing = change.is_listing();
        for turn in take(&mut mirror, change) {
            on_change(match turn {
                Turn::Applied { now, .. } => Shown::Applied(now),
                Turn::Deleted(object) => Shown::Deleted(object),
            });
        }
        if is_listing {
            on_change(Shown::Synced);
        }
    };
    follow(feed, shutdown, on_news).await;
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
    fn the_end_of_one_comes_before_another_of_its_name() {
        let mut mirror = Mirror::default();
        let mut log = |change| -> Vec<String> {
            let turns = take(&mut mirror, change).into_iter();
            turns
                .map(|turn| match turn {
                    Turn::Applied { now, before: None } => format!("+{}", key_of(&*now).1),
                    Turn::Applied { now, before: Some(_) } => format!("~{}", key_of(&*now).1),
                    Turn::Deleted(object) => format!("-{}", key_of(&*object).1),
                })
                .collect()
        };
        let listing = vec![object("a", "1", "1"), object("b", "2", "2")];
        assert_eq!(log(Change::reset(listing)), ["+a", "+b"]);
        assert!(log(Change::Listing).is_empty());
        let listing = vec![object("b", "2", "2"), object("c", "3", "3")];
        assert_eq!(log(Change::reset(listing)), ["-a", "+c"]);
        assert_eq!(log(Change::Apply(object("c", "4", "4"))), ["-c", "+c"]);
        assert_eq!(log(Change::Apply(object("c", "4", "5"))), ["~c"]);
    }
}
