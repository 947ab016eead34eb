//! What every part of a server may use: its objects, what it serves, time, ids.
//!
//! Absent on purpose: who asks and what is admitted, which stand above it (see `admission::core`).

use crate::registry::Registry;
use arc_swap::ArcSwap;
use fleet_apiserver_ground::clock::Clock;
use fleet_apiserver_ground::ids::Ids;
use fleet_apiserver_ground::store::{Store, Table};
use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// The lower half of a server.
pub struct Base {
    /// Objects.
    pub store: Store,
    /// What is served now.
    pub registry: ArcSwap<Registry>,
    /// Time of the objects.
    pub clock: Clock,
    /// Uids and generated names.
    pub ids: Ids,
    /// Addresses given to services that are being written.
    pub addresses: Addresses,
    /// Set when the server goes down.
    pub closing: CancellationToken,
    /// Namespaces, needed by every create.
    pub namespaces: Arc<Table>,
    /// One change of the set of custom resources at a time.
    pub crd_lock: tokio::sync::Mutex<()>,
    /// gitVersion of /version.
    pub git_version: String,
    /// Field managers whose new objects have no managedFields until somebody applies them server-side.
    pub untracked: BTreeSet<String>,
    /// The server's certificate authority, for the ConfigMap of each namespace.
    pub ca_pem: String,
}

/// What writes under way were given: addresses and ports as numbers, and when.
#[derive(Default)]
pub struct Addresses(pub Mutex<HashMap<u32, Instant>>);
