//! Substitutes for what already runs on a cluster that others own: a training operator, the cluster's own
//! scheduler, and tenants who fill nodes and leave them. They behave like the real ones and know nothing of
//! Fleet.
//!
//! Inputs: a client of the member. Not here: any label, annotation or field of Fleet.

pub mod operator;
pub mod scheduler;
pub mod tenants;

use std::time::Duration;

use futures::{Stream, StreamExt};
use kube::{Api, runtime::watcher};
use serde::de::DeserializeOwned;

/// Wait after a broken watch.
const AGAIN: Duration = Duration::from_millis(200);

/// The watch over a kind, restarted when it breaks.
fn events<K>(api: Api<K>) -> impl Stream<Item = watcher::Event<K>>
where
    K: kube::Resource + Clone + DeserializeOwned + std::fmt::Debug + Send + 'static,
{
    let source = Box::pin(watcher(api, watcher::Config::default()));
    futures::stream::unfold(source, |mut source| async move {
        loop {
            match source.next().await? {
                Ok(event) => return Some((event, source)),
                Err(error) => {
                    tracing::debug!(%error, "watch broke");
                    tokio::time::sleep(AGAIN).await;
                }
            }
        }
    })
}
