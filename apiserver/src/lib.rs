//! An embedded Kubernetes API server.
//!
//! Purpose: the control plane of a fleet on a laptop, in tests and in simulation, behaving to clients as Kubernetes
//! does. Inputs: HTTP requests, in process through [`ApiServer::router`] or over TLS through [`ApiServer::serve`].
//! Deliberately absent: workload controllers, API aggregation.

use axum::Router;
use axum::body::Body;
use futures::future::BoxFuture;
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

mod door;
mod verbs;

pub use door::faults;
pub use door::serve::{ServeError, ServeOptions, Server};
pub use fleet_apiserver_admission::access::user::Access;
pub use fleet_apiserver_ground::clock::Clock;
pub use fleet_apiserver_ground::disk::DiskError;
pub use fleet_apiserver_ground::ids::Ids;
pub use fleet_apiserver_ground::{incarnation, private};
pub use verbs::direct::{Changes, DirectError, Follower, ObjectChange, Objects, Stored};

use crate::door::{serve, server};
use crate::verbs::{api_services, crd, garbage, namespaces};
use arc_swap::ArcSwap;
use fleet_apiserver_admission::access::auth::Auth;
use fleet_apiserver_admission::access::pki::Authority;
use fleet_apiserver_admission::access::secrets::{Secrets, StaticTokens};
use fleet_apiserver_admission::access::user::Door;
use fleet_apiserver_admission::access::{rbac, secrets};
use fleet_apiserver_admission::call::Core;
use fleet_apiserver_admission::{budgets, conversion, protection, registrations, resource_quota};
use fleet_apiserver_ground::answers::Answers;
use fleet_apiserver_ground::disk::Disk;
use fleet_apiserver_ground::incarnation::Ledger;
use fleet_apiserver_ground::store::{Store, Write};
use fleet_apiserver_ground::{disk, tree};
use fleet_apiserver_kinds::{nodes, pods};
use fleet_apiserver_schema::base::{Addresses, Base};
use fleet_apiserver_schema::registry::Registry;
use tokio_util::sync::CancellationToken;

/// Settings of a server.
#[derive(Debug, Clone)]
pub struct Config {
    /// None: in memory. Some: a store in this directory, which one process may use at a time.
    pub data_dir: Option<PathBuf>,
    /// Go on without the objects a damaged store has lost, instead of refusing to start.
    pub accept_loss: bool,
    /// Who may do what.
    pub access: Access,
    /// Time source of objects.
    pub clock: Clock,
    /// Source of uids and generated names.
    pub ids: Ids,
    /// CustomResourceDefinitions ensured at start.
    pub crds: Vec<Value>,
    /// Appended to `v1.36.0+` in `/version`.
    pub version_suffix: String,
    /// Keep the taints of nodes by their conditions, as a controller manager does. A new node has the taint not-ready until then.
    pub node_lifecycle: bool,
    /// Field managers whose new objects have no managedFields until somebody applies them server-side. From then on,
    /// and for objects that anybody else makes, who owns which field is kept as ever. Empty, as a real server has it:
    /// all objects of all managers have them. With managers in it, an object without managedFields has none after an
    /// update either.
    pub untracked: BTreeSet<String>,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            data_dir: None,
            accept_loss: false,
            access: Access::AlwaysAllow,
            clock: Clock::default(),
            ids: Ids::default(),
            crds: Vec::new(),
            version_suffix: "fleet".into(),
            node_lifecycle: true,
            untracked: BTreeSet::new(),
        }
    }
}

/// Why a server cannot start.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The data directory cannot be used.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// The certificate authority cannot be read or made.
    #[error("certificate authority {path}: {why}; remove the pki directory to make a new one")]
    Authority { path: PathBuf, why: String },
    /// A CRD of the configuration is not acceptable.
    #[error("CustomResourceDefinition {name}: {why}")]
    Crd { name: String, why: String },
    /// The first objects could not be written.
    #[error("the store refused the first objects: {0}")]
    Store(String),
}

struct Inner {
    core: Arc<Core>,
    authority: Authority,
    admin_token: String,
    static_tokens: std::sync::Mutex<StaticTokens>,
    worker: std::sync::Mutex<Option<tokio::task::JoinHandle<()>>>,
    /// What is kept beside the store, and the store's file; None in memory, and once it is closed.
    ledger: std::sync::Mutex<Option<(Ledger, PathBuf)>>,
}

/// A running API server. Clones share it.
#[derive(Clone)]
pub struct ApiServer(Arc<Inner>);

impl ApiServer {
    /// Opens the store, ensures what every cluster has, and starts the background worker.
    pub fn open(config: Config) -> BoxFuture<'static, Result<ApiServer, OpenError>> {
        Box::pin(Self::open_in_place(config))
    }

    async fn open_in_place(config: Config) -> Result<ApiServer, OpenError> {
        // Revisions start from the wall clock, so that they never go backwards over restarts in memory.
        let floor = u64::try_from(config.clock.now().as_second()).unwrap_or(0) << 20;
        // On disk to the microsecond: a restart in the same second is above what the last run handed out too.
        let micros = u64::try_from(config.clock.now().subsec_microsecond()).unwrap_or(0);
        let precise = floor + (micros << 20) / 1_000_000;
        let unusable = |(path, why)| OpenError::Authority { path, why };
        let mut notes = Vec::new();
        let (mut ledger, mut last) = (None, 0);
        let store = match &config.data_dir {
            None => Store::memory(floor),
            Some(dir) => {
                ledger = Some(Ledger::read(dir, &dir.join(disk::FILE)));
                let (disk, mut found) = open_disk(dir, config.accept_loss)?;
                notes = std::mem::take(&mut found.notes);
                last = found.rv;
                Store::on_disk(disk, precise, found)
            }
        };
        let note = |key: &str| notes.iter().find(|(k, _)| k == key).map(|(_, v)| v.as_str());
        let boot = note(incarnation::BOOT);
        let continues = ledger.as_ref().is_none_or(|ledger| ledger.continues(boot, last));
        if let Some(ledger) = &mut ledger {
            ledger.open(boot, last, |boot| store.put_note(incarnation::BOOT, boot));
        }
        let secrets = Secrets::open(config.data_dir.as_deref(), None).map_err(unusable)?;
        let authority = Authority::open(config.data_dir.as_deref()).map_err(unusable)?;
        let tokens = StaticTokens::read(note(secrets::TOKENS));
        let signer = secrets.signer(config.data_dir.as_deref()).map_err(unusable)?;
        let auth = Auth::new(config.access, signer, tokens.salt());
        let admin_token = secrets.admin_token();
        auth.add_token(auth.digest(&admin_token), "system:admin", &["system:masters".to_string()]);
        tokens.register(&auth);
        let namespaces = store.table("/namespaces");
        let registry = Registry::new(&store, Vec::new(), 0);
        let protection = Arc::new(protection::Protection::new(&store));
        let nodes = config.node_lifecycle.then(|| Arc::new(nodes::Nodes::new(&store)));
        let base = Arc::new(Base {
            store,
            registry: ArcSwap::from_pointee(registry),
            clock: config.clock,
            ids: config.ids,
            addresses: Addresses::default(),
            closing: CancellationToken::new(),
            namespaces,
            crd_lock: tokio::sync::Mutex::new(()),
            git_version: format!("v1.36.0+{}", config.version_suffix),
            untracked: config.untracked,
            ca_pem: authority.ca_pem.clone(),
        });
        let core = Arc::new(Core {
            admission: registrations::Admission::new(&base.store),
            budgets: Arc::new(budgets::Budgets::new(&base.store)),
            quotas: Arc::new(resource_quota::Quotas::new(&base.store)),
            requests: Answers::default(),
            conversions: conversion::Conversions::default(),
            nodes,
            auth,
            shares: Arc::default(),
            base,
        });
        let (feed, worker) = garbage::pair();
        // The store holds the hook and the core holds the store: the hook must not keep the core alive.
        let weak = Arc::downgrade(&core);
        let held = protection.clone();
        core.store.on_event(Box::new(move |table, event| {
            feed.offer(table, event);
            held.offer(table, event);
            if let Some(core) = weak.upgrade() {
                core.budgets.offer(table, event);
                core.quotas.offer(table, event);
                if let Some(nodes) = &core.nodes {
                    nodes.offer(table, event);
                }
            }
        }));
        seed(&core, floor)?;
        let unnamed = !core
            .namespaces
            .get("kube-system")
            .is_some_and(|ns| ns.has(&["metadata", "annotations", incarnation::ANNOTATION]));
        if !continues || unnamed {
            tracing::warn!(
                "the store is not the one that was closed last: everybody who watches starts over"
            );
            namespaces::renew_incarnation(&core).map_err(|e| OpenError::Store(format!("{e:?}")))?;
        }
        for crd in config.crds {
            let name = tree::meta_text(&crd, "name").to_string();
            crd::ensure(&core, crd).map_err(|why| OpenError::Crd { name, why })?;
        }
        crd::refresh(&core);
        rbac::aggregate(&core);
        let [first, second, third, fourth, fifth] = std::array::from_fn(|_| core.clone());
        let worker = tokio::spawn(async move {
            let nodes = async {
                if let Some(known) = &fourth.nodes {
                    nodes::run(fourth.base.clone(), known.clone()).await;
                }
            };
            tokio::join!(
                worker.run(first),
                budgets::run(second.base.clone(), second.budgets.clone()),
                resource_quota::run(third.base.clone(), third.quotas.clone()),
                protection::run(fifth.base.clone(), protection),
                nodes
            );
        });
        Ok(ApiServer(Arc::new(Inner {
            core,
            authority,
            admin_token,
            static_tokens: std::sync::Mutex::new(tokens),
            worker: std::sync::Mutex::new(Some(worker)),
            ledger: std::sync::Mutex::new(ledger.zip(config.data_dir.map(|dir| dir.join(disk::FILE)))),
        })))
    }

    /// The in-process door. Requests without Authorization come from an administrator.
    pub fn router(&self) -> Router {
        let core = self.0.core.clone();
        Router::new().fallback(move |request: http::Request<Body>| {
            let core = core.clone();
            async move { server::handle(core, Door::Process, request).await }
        })
    }

    fn core(&self) -> &Arc<Core> {
        &self.0.core
    }

    /// The administrator's bearer token.
    pub fn admin_token(&self) -> String {
        self.0.admin_token.clone()
    }

    /// Adds a static bearer token; with a data directory its digest is kept.
    pub fn add_token(&self, token: impl Into<String>, user: &str, groups: &[&str]) {
        let token = token.into();
        let groups: Vec<String> = groups.iter().map(|g| g.to_string()).collect();
        let digest = self.0.core.auth.digest(&token);
        self.0.core.auth.add_token(digest, user, &groups);
        let mut tokens = self.0.static_tokens.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        tokens.put(digest, user, &groups);
        self.0.core.store.put_note(secrets::TOKENS, &tokens.note());
    }

    /// Which incarnation of its state this server is: another one after the store went back in time. Clients read it
    /// at the namespace kube-system, see [`incarnation::ANNOTATION`].
    pub fn incarnation(&self) -> String {
        let found = self.0.core.namespaces.get("kube-system");
        found.map(|ns| ns.text(&["metadata", "annotations", incarnation::ANNOTATION])).unwrap_or_default()
    }

    /// A client certificate and its key in PEM form, good until a day: the user is its common name, the groups (two
    /// at most) are its organizations.
    ///
    /// # Errors
    /// More than two groups, or a name that cannot stand in a certificate.
    pub fn client_certificate(
        &self,
        user: &str,
        groups: &[&str],
        last_day: jiff::civil::Date,
    ) -> Result<(String, String), String> {
        self.0.authority.client(user, groups, last_day)
    }

    /// Copies this moment of a store on disk into another directory, which can then be opened in its place. Writes go on.
    ///
    /// # Errors
    /// A text that names the directory, when it has a store already or cannot be written.
    pub async fn snapshot(&self, dir: impl Into<PathBuf>) -> Result<(), String> {
        let (core, dir) = (self.0.core.clone(), dir.into());
        let done = tokio::task::spawn_blocking(move || core.store.snapshot(&dir)).await;
        done.unwrap_or_else(|e| Err(e.to_string()))
    }

    /// For simulations: a disk on which the objects may grow by so many bytes, and that is full then. `None`: there is
    /// room again.
    pub fn limit_room(&self, bytes: Option<u32>) {
        self.0.core.store.limit_room(bytes);
    }

    /// For simulations: the newest revision.
    pub fn revision(&self) -> u64 {
        self.0.core.store.durable()
    }

    /// For simulations, in memory: a loss of power that took along all commits after that revision. False: the server
    /// does not know that state any more.
    pub fn lose_after(&self, revision: u64) -> bool {
        self.0.core.store.go_back(revision)
    }

    /// For simulations, in memory: the state of that time ago is restored, as another incarnation. False: the server
    /// does not know that state any more.
    pub fn restore(&self, ago: std::time::Duration) -> bool {
        let (core, now) = (&self.0.core, tokio::time::Instant::now());
        let revision = now.checked_sub(ago).and_then(|then| core.store.revision_at(then));
        revision.is_some_and(|revision| core.store.go_back(revision))
            && namespaces::renew_incarnation(core).is_ok()
    }

    /// Listens with TLS.
    pub fn serve(&self, options: ServeOptions) -> BoxFuture<'_, Result<Server, ServeError>> {
        Box::pin(self.serve_in_place(options))
    }

    async fn serve_in_place(&self, options: ServeOptions) -> Result<Server, ServeError> {
        let server =
            serve::serve(self.0.core.clone(), &self.0.authority, self.admin_token(), options).await?;
        if self.0.core.auth.access == Access::Rbac {
            namespaces::announce(&self.0.core, server.local_addr());
        }
        Ok(server)
    }

    /// Ends watches, writes everything out and closes the store.
    pub fn shutdown(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.shutdown_in_place())
    }

    async fn shutdown_in_place(&self) {
        let core = self.0.core.clone();
        core.closing.cancel();
        let worker = self.0.worker.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take();
        if let Some(worker) = worker {
            let _ = worker.await;
        }
        let ledger = self.0.ledger.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take();
        let close = move || {
            // Joining the committer blocks until its last fsync.
            core.store.close();
            if let Some((mut ledger, file)) = ledger {
                ledger.close(core.store.last(), &file);
            }
        };
        let _ = tokio::task::spawn_blocking(close).await;
    }
}

/// Opens the store of a directory. Secrets that an older program left in it are taken out of the file first.
fn open_disk(dir: &Path, accept_loss: bool) -> Result<(Disk, disk::FileContents), OpenError> {
    let (disk, found) = Disk::open(dir, accept_loss)?;
    if !secrets::in_clear(&found.notes) {
        return Ok((disk, found));
    }
    let tokens =
        secrets::seal(dir, &found.notes).map_err(|(path, why)| OpenError::Authority { path, why })?;
    drop((disk, found));
    Disk::rewrite(dir, &secrets::CLEAR, &[(secrets::TOKENS, tokens)])?;
    tracing::info!(path = %dir.display(), "tokens are kept by their digests from now on");
    Ok(Disk::open(dir, accept_loss)?)
}

/// Writes the namespaces and roles every cluster has.
fn seed(core: &Arc<Core>, floor: u64) -> Result<(), OpenError> {
    let mut writes = Vec::new();
    for name in namespaces::PERMANENT {
        if core.namespaces.get(name).is_none() {
            writes.extend(namespaces::make(core, name, floor));
        }
    }
    for (table, mut value) in rbac::bootstrap() {
        let table = core.store.table(table);
        let key = tree::meta_text(&value, "name").to_string();
        if table.get(&key).is_none() {
            let meta = tree::meta(&mut value);
            meta.insert("uid".into(), core.ids.uuid().to_string().into());
            meta.insert("creationTimestamp".into(), core.clock.stamp().into());
            writes.push(Write::Create { table, key, value });
        }
    }
    let mut later: Vec<(&str, Value)> = Vec::new();
    for (name, value, description) in pods::SYSTEM_CLASSES {
        later.push((pods::CLASSES, pods::system_class(name, value, description)));
    }
    if core.auth.access == Access::Rbac {
        later.extend(rbac::controllers());
        later.extend(api_services::components());
        later.extend(fleet_apiserver_kinds::flow::own_objects());
        later.extend(namespaces::own_services(&core.ca_pem, &core.clock.stamp()));
    }
    for (table, mut value) in later {
        let name = tree::meta_text(&value, "name").to_string();
        let namespace = tree::meta_text(&value, "namespace");
        let key = if namespace.is_empty() { name } else { format!("{namespace}/{name}") };
        let at = core.store.table(table);
        if at.get(&key).is_none() {
            // By name, so that the ids a simulation draws from its seed do not depend on how many of these there are.
            let uid =
                uuid::Uuid::new_v5(&uuid::Uuid::NAMESPACE_OID, format!("{floor} {table} {key}").as_bytes());
            let meta = tree::meta(&mut value);
            meta.insert("uid".into(), uid.to_string().into());
            meta.insert("creationTimestamp".into(), core.clock.stamp().into());
            writes.push(Write::Create { table: at, key, value });
        }
    }
    if writes.is_empty() {
        return Ok(());
    }
    core.store.commit(writes).map(|_| ()).map_err(|e| OpenError::Store(format!("{e:?}")))
}
