//! An API server as one process sees it, and the incarnation of its state.
//!
//! A hub that was restored from an older store says so in the annotation [`INCARNATION_ANNOTATION`] of its
//! namespace kube-system. Without it, a version that is lower than one seen before shows a restore.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use fleet_mirror::{INCARNATION_ANNOTATION, Version};
use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Client, api::ListParams};
use tokio_util::sync::CancellationToken;

use crate::{Backoff, LIST_TIMEOUT};

const NAMESPACE: &str = "kube-system";
/// How often a server is asked, beside lists and broken watches. On some servers a watch from a version that the
/// restored store has not reached yet is silent.
const ASK_EVERY: Duration = Duration::from_secs(30);
const FORBIDDEN: u16 = 403;

/// Clones share their knowledge.
#[derive(Clone)]
pub struct Source(Arc<Inner>);

struct Inner {
    /// `None`: this server is not asked.
    client: Option<Client>,
    name: String,
    known: Mutex<Known>,
    /// One request at a time: answers that overtake each other would look like a restore.
    asking: tokio::sync::Mutex<()>,
    restored: CancellationToken,
}

#[derive(Default)]
struct Known {
    /// The first incarnation seen; none before.
    incarnation: Option<Option<String>>,
    /// Of the newest list of the namespace.
    version: Version,
    /// Requests begun, and the last one answered.
    begun: u64,
    answered: u64,
}

impl Source {
    /// A server whose store may be restored. `name` is its name in logs and the seed of its back-off.
    pub fn asked(client: Client, name: &str) -> Self {
        Self::new(Some(client), name)
    }

    /// A server that is not asked for its incarnation.
    pub fn unasked(name: &str) -> Self {
        Self::new(None, name)
    }

    fn new(client: Option<Client>, name: &str) -> Self {
        let restored = CancellationToken::new();
        Self(Arc::new(Inner {
            client,
            name: name.to_owned(),
            known: Mutex::default(),
            asking: tokio::sync::Mutex::default(),
            restored,
        }))
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        // Nothing under the lock can panic.
        self.0.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The incarnation when this process began to follow the server; `None` if it has none.
    pub fn incarnation(&self) -> Option<String> {
        self.known().incarnation.clone().flatten()
    }

    /// Waits until a restore was seen: anything derived from the store may be wrong.
    pub async fn restored(&self) {
        self.0.restored.cancelled().await;
    }

    pub fn is_restored(&self) -> bool {
        self.0.restored.is_cancelled()
    }

    /// The store was restored.
    pub fn went_back(&self, why: &str) {
        if !self.0.restored.is_cancelled() {
            tracing::warn!(server = self.0.name, why, "the server's store went back in time; starting over");
        }
        self.0.restored.cancel();
    }

    /// Asks once. Before, a list could not be assigned to an incarnation.
    pub async fn begin(&self) {
        let mut backoff = Backoff::new(&self.0.name);
        while self.known().incarnation.is_none() {
            match self.ask().await {
                Ok(()) => {}
                Err(error) => {
                    tracing::debug!(server = self.0.name, %error, "cannot ask which incarnation the server is");
                    backoff.wait().await;
                }
            }
        }
    }

    /// Asks periodically until it is dropped.
    pub async fn keep_asking(&self) {
        loop {
            tokio::time::sleep(ASK_EVERY).await;
            if let Err(error) = self.ask().await {
                tracing::debug!(server = self.0.name, %error, "cannot ask which incarnation the server is");
            }
        }
    }

    /// Asks for the incarnation; reports a new one.
    ///
    /// # Errors
    /// The server does not answer; then the incarnation of the last list is not known.
    pub async fn ask(&self) -> Result<(), String> {
        let Some(client) = &self.0.client else {
            self.known().incarnation.get_or_insert_default();
            return Ok(());
        };
        let before = self.known().begun;
        let _turn = self.0.asking.lock().await;
        let number = {
            let mut known = self.known();
            // Another task has asked since, and has the answer by now.
            if known.answered > before {
                return Ok(());
            }
            known.begun += 1;
            known.begun
        };
        let namespaces: Api<Namespace> = Api::all(client.clone());
        let only = ListParams::default().fields(&format!("metadata.name={NAMESPACE}"));
        let listed = match tokio::time::timeout(LIST_TIMEOUT, namespaces.list(&only)).await {
            Ok(Ok(listed)) => listed,
            Ok(Err(kube::Error::Api(status))) if status.code == FORBIDDEN => {
                if self.known().incarnation.is_none() {
                    tracing::warn!(
                        server = self.0.name,
                        "may not list namespace {NAMESPACE}; a restored store is noticed by its versions alone"
                    );
                }
                let mut known = self.known();
                known.incarnation.get_or_insert_default();
                known.answered = number;
                return Ok(());
            }
            Ok(Err(error)) => return Err(error.to_string()),
            Err(_) => return Err(format!("no answer within {} s", LIST_TIMEOUT.as_secs())),
        };
        let version = Version::of(listed.metadata.resource_version.as_ref());
        let annotations =
            listed.items.into_iter().next().and_then(|namespace| namespace.metadata.annotations);
        let incarnation = annotations.and_then(|mut all| all.remove(INCARNATION_ANNOTATION));
        self.hear(incarnation, version, number);
        Ok(())
    }

    fn hear(&self, incarnation: Option<String>, version: Version, number: u64) {
        let why = {
            let mut known = self.known();
            known.answered = number;
            let first = known.incarnation.get_or_insert_with(|| incarnation.clone());
            let is_other = *first != incarnation;
            let is_older = version.is_older(&known.version);
            known.version = version;
            match (is_other, is_older) {
                (true, _) => Some("another incarnation"),
                (false, true) => Some("a lower version than before"),
                (false, false) => None,
            }
        };
        if let Some(why) = why {
            self.went_back(why);
        }
    }
}
