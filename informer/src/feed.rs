//! One feed: the objects of one kind, listed and watched until the process stops.
//!
//! Requests, back-off and the order of lists and events know nothing of the kind ([`Run`]): they are compiled once. Each
//! kind adds a function that reads one object from its text.

use std::{any::Any, future::Future, time::Duration};

use fleet_mirror::{Change, Listing, Version};
use futures::{FutureExt, StreamExt, future::BoxFuture};
use kube::{
    Api, Client, Resource,
    api::{ListParams, WatchEvent, WatchParams},
};
use serde::de::DeserializeOwned;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::{
    Backoff, LIST_TIMEOUT, Source,
    lenient::{self, Text, Unreadable, skipped},
    without_managers,
};

/// Objects of one page of a list.
const PAGE: u32 = 500;
/// A watch without events for this long is restarted: longer than servers let one last.
const WATCH_IDLE: Duration = Duration::from_secs(295);
/// When to list again after a list that left the order of some changes open.
const RELIST_AFTER: Duration = Duration::from_secs(60);
/// No process is that old.
const FOR_EVER: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

const GONE: u16 = 410;
const NOT_FOUND: u16 = 404;
const FORBIDDEN: u16 = 403;

/// Which objects of the kind.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    pub labels: Option<String>,
    pub fields: Option<String>,
}

impl Selection {
    pub fn labels(selector: &str) -> Self {
        Self { labels: Some(selector.to_owned()), fields: None }
    }

    pub fn fields(selector: &str) -> Self {
        Self { labels: None, fields: Some(selector.to_owned()) }
    }
}

/// What a feed reports.
#[derive(Clone, Debug)]
pub enum News<K> {
    /// The API server does not serve the kind so far: there are no objects.
    NotServed,
    Change(Change<K>),
}

/// One kind on one API server.
#[derive(Clone)]
pub struct Feed<K> {
    pub source: Source,
    pub api: Api<K>,
    pub selection: Selection,
    /// Name of the feed in logs, and seed of its back-off.
    pub name: String,
}

/// An object of whatever kind the feed has, and its version.
struct Item {
    object: Box<dyn Any + Send>,
    version: Option<String>,
}

fn read_item<K: Resource + DeserializeOwned + Send + 'static>(text: &str) -> Result<Item, Unreadable> {
    let object = without_managers(lenient::read::<K>(text)?);
    let version = object.meta().resource_version.clone();
    Ok(Item { object: Box::new(object), version })
}

/// Returns `false` when there is no listener.
type Sink<'s> = dyn FnMut(News<Item>) -> BoxFuture<'s, bool> + Send + 's;

/// Why a watch ended.
enum Ended {
    /// There is no listener any more, or the server's store was restored and the listener starts over.
    ForGood,
    /// Everything must be listed again.
    Relist,
}

impl<K> Feed<K>
where
    K: Resource + DeserializeOwned + Send + 'static,
{
    /// Feeds `sink` until `shutdown` is cancelled, or until `sink` returns `false` because there is no listener.
    pub async fn run<F, S>(self, shutdown: CancellationToken, mut sink: F)
    where
        F: FnMut(News<K>) -> S + Send,
        S: Future<Output = bool> + Send,
    {
        let url = self.api.resource_url().to_owned();
        let client = self.api.into_client();
        let Self { source, selection, name, .. } = self;
        let backoff = Backoff::new(&name);
        let run = Run {
            source,
            client,
            url,
            selection,
            name,
            backoff,
            seen: Version::Unknown,
            read: read_item::<K>,
        };
        let mut typed = |news: News<Item>| sink(news.of_kind()).boxed();
        run.run(shutdown, &mut typed).await;
    }
}

impl News<Item> {
    fn of_kind<K: 'static>(self) -> News<K> {
        match self {
            Self::NotServed => News::NotServed,
            Self::Change(change) => News::Change(change.map(|item| {
                let object = item.object.downcast::<K>();
                // The feed's own function has read it.
                *object.unwrap_or_else(|_| unreachable!("an object of another kind"))
            })),
        }
    }
}

/// A feed without its kind.
struct Run {
    source: Source,
    client: Client,
    url: String,
    selection: Selection,
    name: String,
    read: fn(&str) -> Result<Item, Unreadable>,
    backoff: Backoff,
    /// Everything up to this version was reported.
    seen: Version,
}

impl Run {
    fn run<'r, 's: 'r>(mut self, shutdown: CancellationToken, sink: &'r mut Sink<'s>) -> BoxFuture<'r, ()> {
        async move {
            let following = async {
                self.source.begin().await;
                while let Ended::Relist = self.follow(sink).await {}
            };
            shutdown.run_until_cancelled(following).await;
        }
        .boxed()
    }

    async fn follow(&mut self, sink: &mut Sink<'_>) -> Ended {
        if !sink(News::Change(Change::Listing)).await {
            return Ended::ForGood;
        }
        let (listing, mut from) = match self.list().await {
            Ok(listed) => listed,
            Err(error) => {
                match code_of(&error) {
                    Some(NOT_FOUND) if !sink(News::NotServed).await => return Ended::ForGood,
                    Some(FORBIDDEN) => {
                        tracing::warn!(feed = self.name, %error, "the listing is not allowed")
                    }
                    _ => tracing::debug!(feed = self.name, %error, "cannot list"),
                }
                self.backoff.wait().await;
                return Ended::Relist;
            }
        };
        if listing.version.is_older(&self.seen) {
            self.source.went_back("a listing with a lower version than was seen before");
        }
        if self.source.is_restored() {
            return Ended::ForGood;
        }
        self.backoff.reset();
        self.seen = listing.version.clone();
        if !sink(News::Change(Change::Reset(listing))).await {
            return Ended::ForGood;
        }
        loop {
            if let Some(ended) = self.watch(&mut from, sink).await {
                return ended;
            }
            // The server may be another one by now. If it does not answer, it is asked again with the next watch.
            if let Err(error) = self.source.ask().await {
                tracing::debug!(feed = self.name, %error, "cannot ask which incarnation the server is");
            }
            if self.source.is_restored() {
                return Ended::ForGood;
            }
        }
    }

    /// All objects, with the version from which to watch.
    async fn list(&self) -> Result<(Listing<Item>, String), Failed> {
        let Selection { labels, fields } = self.selection.clone();
        let mut params = ListParams {
            label_selector: labels,
            field_selector: fields,
            limit: Some(PAGE),
            ..ListParams::default()
        };
        let mut objects = Vec::new();
        let version = loop {
            let asked =
                tokio::time::timeout(LIST_TIMEOUT, lenient::page(&self.client, &self.url, &params)).await;
            let lenient::Page { metadata, items } =
                asked.map_err(|_| Failed::TimedOut)?.map_err(Failed::Api)?;
            objects.extend(items.unwrap_or_default().iter().filter_map(|text| self.item(text)));
            params.continue_token = metadata.continue_.filter(|token| !token.is_empty());
            if params.continue_token.is_none() {
                break metadata.resource_version.unwrap_or_default();
            }
        };
        // Asked after the list: the list is of the incarnation known before, or useless.
        self.source.ask().await.map_err(Failed::NotAsked)?;
        let incarnation = self.source.incarnation();
        Ok((Listing { objects, version: Version::parse(&version), incarnation }, version))
    }

    fn item(&self, text: &Text) -> Option<Item> {
        match (self.read)(text.get()) {
            Ok(item) => Some(item),
            Err(unreadable) => {
                skipped(&self.url, &unreadable);
                None
            }
        }
    }

    /// Watches from a version; `None`: watch again.
    async fn watch(&mut self, from: &mut String, sink: &mut Sink<'_>) -> Option<Ended> {
        let Selection { labels, fields } = self.selection.clone();
        let params = WatchParams {
            label_selector: labels,
            field_selector: fields,
            bookmarks: true,
            ..WatchParams::default()
        };
        let asked =
            tokio::time::timeout(LIST_TIMEOUT, lenient::watch(&self.client, &self.url, &params, from)).await;
        let mut events =
            match asked.map_err(|_| Failed::TimedOut).and_then(|answer| answer.map_err(Failed::Api)) {
                Ok(events) => events.boxed(),
                Err(error) => return self.trouble(error).await,
            };
        let relist_at = self.relist_at();
        loop {
            let patience = relist_at.min(Instant::now() + WATCH_IDLE);
            let change = match tokio::time::timeout_at(patience, events.next()).await {
                Err(_) if Instant::now() >= relist_at => return Some(Ended::Relist),
                Err(_) | Ok(None) => return None,
                Ok(Some(Err(error))) => {
                    // The rest of the stream may be readable.
                    self.trouble(Failed::Api(error)).await;
                    continue;
                }
                Ok(Some(Ok(WatchEvent::Error(status)))) => {
                    return self.trouble(Failed::Api(kube::Error::Api(status.boxed()))).await;
                }
                Ok(Some(Ok(WatchEvent::Bookmark(bookmark)))) => {
                    self.pass(from, bookmark.metadata.resource_version);
                    continue;
                }
                Ok(Some(Ok(WatchEvent::Added(text) | WatchEvent::Modified(text)))) => {
                    match (self.read)(text.get()) {
                        Ok(item) => Change::Apply(item),
                        Err(unreadable) => {
                            skipped(&self.url, &unreadable);
                            if !unreadable.version.is_empty() {
                                self.pass(from, unreadable.version);
                            }
                            continue;
                        }
                    }
                }
                Ok(Some(Ok(WatchEvent::Deleted(text)))) => match (self.read)(text.get()) {
                    Ok(item) => Change::Delete(item),
                    // A form of it that could be read may be known: a list shows that it is gone.
                    Err(unreadable) => {
                        skipped(&self.url, &unreadable);
                        self.backoff.wait().await;
                        return Some(Ended::Relist);
                    }
                },
            };
            let version = change.objects().first().and_then(|item| item.version.clone());
            let Some(version) = version.filter(|version| !version.is_empty()) else {
                return Some(Ended::Relist);
            };
            self.pass(from, version);
            self.backoff.reset();
            if !sink(News::Change(change)).await {
                return Some(Ended::ForGood);
            }
        }
    }

    /// Versions that cannot be compared leave the order open; the next list settles it.
    fn relist_at(&self) -> Instant {
        match self.seen {
            Version::Number(_) => Instant::now() + FOR_EVER,
            Version::Unknown | Version::Opaque(_) => Instant::now() + RELIST_AFTER,
        }
    }

    fn pass(&mut self, from: &mut String, version: String) {
        self.seen = Version::parse(&version);
        *from = version;
    }

    async fn trouble(&mut self, error: Failed) -> Option<Ended> {
        let code = code_of(&error);
        match code {
            Some(FORBIDDEN) => tracing::warn!(feed = self.name, %error, "the watch is not allowed"),
            _ => tracing::debug!(feed = self.name, %error, "the watch failed"),
        }
        self.backoff.wait().await;
        (code == Some(GONE)).then_some(Ended::Relist)
    }
}

/// Why a request failed.
#[derive(Debug)]
enum Failed {
    Api(kube::Error),
    TimedOut,
    /// The server's incarnation is not known.
    NotAsked(String),
}

impl std::fmt::Display for Failed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Api(error) => write!(f, "{error}"),
            Self::TimedOut => write!(f, "no answer within {} s", LIST_TIMEOUT.as_secs()),
            Self::NotAsked(why) => f.write_str(why),
        }
    }
}

/// The status code of the API server's refusal.
fn code_of(error: &Failed) -> Option<u16> {
    match error {
        Failed::Api(kube::Error::Api(status)) => Some(status.code),
        _ => None,
    }
}
