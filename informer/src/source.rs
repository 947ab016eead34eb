//! An API server as one process follows it, and which incarnation of its state it is.
//!
//! A hub that was restored from an older store says so by the annotation [`INCARNATION_ANNOTATION`] of its namespace
//! kube-system; one that says nothing shows it by a version that is lower than one it has given before.

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
/// How often a server is asked, beside listings and broken watches: a watch from a time that a restored store has not
/// reached yet is silent on some.
const ASK_EVERY: Duration = Duration::from_secs(30);
const FORBIDDEN: u16 = 403;

/// Clones share what is known.
#[derive(Clone)]
pub struct Source(Arc<Inner>);

struct Inner {
    /// `None`: this server is not asked.
    client: Option<Client>,
    name: String,
    known: Mutex<Known>,
    /// One question at a time: answers that overtake each other would look like a store that goes back.
    asking: tokio::sync::Mutex<()>,
    restored: CancellationToken,
}

#[derive(Default)]
struct Known {
    /// What the server said first; none before.
    incarnation: Option<Option<String>>,
    /// Of the newest listing of the namespace.
    version: Version,
    /// Questions begun, and the last of them that was answered.
    begun: u64,
    answered: u64,
}

impl Source {
    /// A server whose store may go back in time. `name` names it in logs and seeds its backoff.
    pub fn asked(client: Client, name: &str) -> Self {
        Self::new(Some(client), name)
    }

    /// A server that is not asked which incarnation it is.
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

    /// What the server called itself when this process began to follow it; `None` where it says nothing.
    pub fn incarnation(&self) -> Option<String> {
        self.known().incarnation.clone().flatten()
    }

    /// Waits until the store is seen to have gone back in time: whatever is remembered of it may be wrong.
    pub async fn restored(&self) {
        self.0.restored.cancelled().await;
    }

    pub fn is_restored(&self) -> bool {
        self.0.restored.is_cancelled()
    }

    /// The store went back in time.
    pub fn went_back(&self, why: &str) {
        if !self.0.restored.is_cancelled() {
            tracing::warn!(server = self.0.name, why, "the server's store went back in time; starting over");
        }
        self.0.restored.cancel();
    }

    /// Asks once; until then nothing that is listed could be put to an incarnation.
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

    /// Asks from time to time, for as long as it is not dropped.
    pub async fn keep_asking(&self) {
        loop {
            tokio::time::sleep(ASK_EVERY).await;
            if let Err(error) = self.ask().await {
                tracing::debug!(server = self.0.name, %error, "cannot ask which incarnation the server is");
            }
        }
    }

    /// Asks which incarnation the server is; tells when it is another one than before.
    ///
    /// # Errors
    /// The server does not answer; then nothing is known of what was listed last.
    pub async fn ask(&self) -> Result<(), String> {
        let Some(client) = &self.0.client else {
            self.known().incarnation.get_or_insert_default();
            return Ok(());
        };
        let before = self.known().begun;
        let _turn = self.0.asking.lock().await;
        let number = {
            let mut known = self.known();
            // Somebody else has begun to ask since, and knows by now.
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
