//! Feeds: what an API server holds, as a stream of changes into a bounded channel.
//!
//! Built on kube's watcher; added are the seeded backoff, a bound on the initial listing, and whole
//! listings in one piece, so that a reader can tell what has gone. Deliberately absent: a store.

use std::{fmt::Debug, future::Future, pin::pin, time::Duration};

use futures::{StreamExt, future::Either};
use kube::{
    Api, Resource,
    runtime::watcher::{self, Event},
};
use serde::de::DeserializeOwned;
use tokio_util::sync::CancellationToken;

use crate::clock::Backoff;

/// Longest wait for the next object of a listing.
const LIST_TIMEOUT: Duration = Duration::from_secs(30);
/// Longer than the watcher's own idle bound of 295 s: a quiet watch is no fault.
const WATCH_TIMEOUT: Duration = Duration::from_secs(3600);

/// One change.
#[derive(Clone, Debug)]
pub(crate) enum Change<K> {
    Apply(K),
    Delete(K),
    /// Everything there is: what is not named is gone.
    All(Vec<K>),
}

/// A change, or the moment before a listing is asked for: what stood by then is named in it, or gone.
#[derive(Clone, Debug)]
pub(crate) enum News<K> {
    Listing,
    /// The API server does not serve the kind, so far: there are none.
    NotServed,
    Change(Change<K>),
}

/// Feeds `sink` until `shutdown` is cancelled or `sink` says that nobody listens any more (`false`).
/// `name` names the feed in logs and seeds its backoff.
pub(crate) async fn run<K, F, S>(
    name: String,
    api: Api<K>,
    config: watcher::Config,
    shutdown: CancellationToken,
    mut sink: F,
) where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
    F: FnMut(Change<K>) -> S,
    S: Future<Output = bool>,
{
    let sink = |news| match news {
        News::Listing | News::NotServed => Either::Left(std::future::ready(true)),
        News::Change(change) => Either::Right(sink(change)),
    };
    run_with_listings(name, api, config, shutdown, sink).await;
}

/// As [`run`]; says when it begins to list, too.
pub(crate) async fn run_with_listings<K, F, S>(
    name: String,
    api: Api<K>,
    config: watcher::Config,
    shutdown: CancellationToken,
    mut sink: F,
) where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
    F: FnMut(News<K>) -> S,
    S: Future<Output = bool>,
{
    let mut backoff = Backoff::new(&name);
    while !shutdown.is_cancelled() {
        let ended = shutdown.run_until_cancelled(follow(&name, &api, &config, &mut backoff, &mut sink)).await;
        if ended == Some(Ended::NobodyListens) {
            return;
        }
    }
}

const NOT_FOUND: u16 = 404;
const FORBIDDEN: u16 = 403;

/// The status code with which the API server has refused to list.
fn refused_listing(error: &watcher::Error) -> Option<u16> {
    match error {
        watcher::Error::InitialListFailed(kube::Error::Api(status)) => Some(status.code),
        _ => None,
    }
}

#[derive(PartialEq, Eq)]
enum Ended {
    NobodyListens,
    Stalled,
}

async fn follow<K, F, S>(
    name: &str,
    api: &Api<K>,
    config: &watcher::Config,
    backoff: &mut Backoff,
    sink: &mut F,
) -> Ended
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
    F: FnMut(News<K>) -> S,
    S: Future<Output = bool>,
{
    let mut events = pin!(watcher::watcher(api.clone(), config.clone()));
    let mut listing: Option<Vec<K>> = None;
    loop {
        let patience = if listing.is_some() { LIST_TIMEOUT } else { WATCH_TIMEOUT };
        let Ok(next) = tokio::time::timeout(patience, events.next()).await else {
            if listing.is_some() {
                tracing::warn!(feed = name, "no answer to a listing within {} s", LIST_TIMEOUT.as_secs());
            }
            return Ended::Stalled;
        };
        let change = match next {
            None => return Ended::Stalled,
            Some(Err(error)) => {
                match refused_listing(&error) {
                    Some(NOT_FOUND) if !sink(News::NotServed).await => return Ended::NobodyListens,
                    Some(FORBIDDEN) => tracing::warn!(feed = name, %error, "the listing is not allowed"),
                    _ => tracing::debug!(feed = name, %error, "the watch failed"),
                }
                backoff.wait().await;
                continue;
            }
            Some(Ok(Event::Init)) => {
                listing = Some(Vec::new());
                // Comes before the request.
                if !sink(News::Listing).await {
                    return Ended::NobodyListens;
                }
                continue;
            }
            Some(Ok(Event::InitApply(object))) => {
                listing.get_or_insert_default().push(object);
                continue;
            }
            Some(Ok(Event::InitDone)) => Change::All(listing.take().unwrap_or_default()),
            Some(Ok(Event::Apply(object))) => Change::Apply(object),
            Some(Ok(Event::Delete(object))) => Change::Delete(object),
        };
        backoff.reset();
        if !sink(News::Change(change)).await {
            return Ended::NobodyListens;
        }
    }
}
