//! Feeds of the core: the objects of an API server, as a bounded channel of changes and deletions.
//!
//! The informer lists and watches, and a mirror interprets the result; of each object the mirror only keeps
//! that it exists.

use std::{fmt::Debug, future::Future};

use fleet_informer::{Feed, Kube, News};
use fleet_mirror::{Change, Key, Mirror};
use kube::Resource;
use serde::de::DeserializeOwned;
use tokio_util::sync::CancellationToken;

/// A change of a kind.
#[derive(Clone, Debug)]
pub enum Event<K> {
    /// New, or another version.
    Apply(K),
    Gone(Key),
    /// All existing objects have been reported.
    Listed,
}

/// Feeds `sink` until `shutdown` is cancelled, or until `sink` returns `false` because the receiver is gone.
pub async fn run<K, F, S>(feed: Feed<K>, shutdown: CancellationToken, sink: F)
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
    F: Fn(Event<K>) -> S + Sync,
    S: Future<Output = bool> + Send,
{
    let (mut mirror, mut is_listed) = (Mirror::<()>::default(), false);
    let (source, sink) = (feed.source.clone(), &sink);
    let take = |news| {
        let told = match news {
            News::Change(change) => take(&mut mirror, change, || source.went_back("an object went back")),
            // A member without the definition has no objects, and no list will come.
            News::NotServed if !is_listed => vec![Event::Listed],
            News::NotServed => Vec::new(),
        };
        is_listed |= told.iter().any(|told| matches!(told, Event::Listed));
        async move {
            for one in told {
                if !sink(one).await {
                    return false;
                }
            }
            true
        }
    };
    feed.run(shutdown, take).await;
}

fn take<K: Resource>(mirror: &mut Mirror<()>, change: Change<K>, went_back: impl FnOnce()) -> Vec<Event<K>> {
    let is_listing = change.is_listing();
    let mut objects = Vec::new();
    let outcome = mirror.take::<Kube, K>(change, |object, _| objects.push(object));
    if outcome.restored {
        went_back();
    }
    // First come, first served.
    objects.sort_by_key(|object| object.meta().creation_timestamp.as_ref().map(|time| time.0));
    let gone = outcome.changed.into_iter().map(|changed| changed.key).filter(|key| !mirror.contains_key(key));
    let mut told: Vec<Event<K>> = gone.map(Event::Gone).collect();
    told.extend(objects.into_iter().map(Event::Apply));
    told.extend(is_listing.then_some(Event::Listed));
    told
}
