//! The store without HTTP, for simulators in the same process: objects in bulk, and the commit log as a stream.
//!
//! Inputs: trees of one resource, with everything a client would send. A create applies defaults and validates as a
//! request does; an update does not validate again. Objects written here have no managedFields, because nobody
//! shares these fields with a simulator. Absent on purpose: permissions and admission.

use crate::ApiServer;
use crate::verbs::write;
use fleet_apiserver_admission::call::Core;
use fleet_apiserver_ground::feed::Listener;
use fleet_apiserver_ground::store::{EventKind, Obj, Range, Refused, Write};
use fleet_apiserver_ground::tree;
use fleet_apiserver_schema::registry::ServedResource;
use serde_json::Value;
use std::sync::Arc;

/// Most events of one batch.
const BATCH: usize = 1024;

/// Why something was not written.
#[derive(Debug, thiserror::Error)]
pub enum DirectError {
    /// No such resource is served.
    #[error("resource {plural:?} of {api_version:?}: not served here")]
    Unknown { api_version: String, plural: String },
    /// The object was refused, as by a request.
    #[error("{key}: {why}")]
    Refused { key: String, why: String },
    /// The store could not take it.
    #[error("the store: {0}")]
    Store(String),
}

impl From<Refused> for DirectError {
    fn from(refused: Refused) -> DirectError {
        match refused {
            Refused::Closed(why) | Refused::NotStored(why) => DirectError::Store(why),
            other => DirectError::Store(format!("{other:?}")),
        }
    }
}

/// One version of an object, in its compact form. Fields are read from it without making a tree.
#[derive(Debug, Clone)]
pub struct Stored(Arc<Obj>);

impl Stored {
    /// `namespace/name`, or the name of a cluster-scoped object.
    pub fn key(&self) -> &str {
        &self.0.key
    }

    /// resourceVersion.
    pub fn revision(&self) -> u64 {
        self.0.rv
    }

    /// The text at a path of fields, or "".
    pub fn text(&self, path: &[&str]) -> String {
        self.0.text(path)
    }

    /// True if there is a value at a path of fields.
    pub fn has(&self, path: &[&str]) -> bool {
        self.0.has(path)
    }

    /// The value at a path of fields.
    pub fn at(&self, path: &[&str]) -> Option<Value> {
        self.0.at(path)
    }

    /// The whole object.
    pub fn value(&self) -> Value {
        self.0.full()
    }

    /// Bytes of this version, without what it shares with others.
    pub fn size(&self) -> usize {
        self.0.size()
    }
}

/// A change of an object.
#[derive(Debug, Clone)]
pub enum ObjectChange {
    /// It was created or changed.
    Put(Stored),
    /// It was deleted; this was its last version.
    Gone(Stored),
}

/// The objects of one resource.
#[derive(Clone)]
pub struct Objects {
    core: Arc<Core>,
    entry: ServedResource,
}

impl ApiServer {
    /// A resource without HTTP.
    ///
    /// # Errors
    /// When it is not served.
    pub fn objects(&self, api_version: &str, plural: &str) -> Result<Objects, DirectError> {
        let core = self.core().clone();
        let entry = core.registry.load().find(api_version, plural).cloned();
        let unknown =
            || DirectError::Unknown { api_version: api_version.to_string(), plural: plural.to_string() };
        Ok(Objects { entry: entry.ok_or_else(unknown)?, core })
    }
}

impl Objects {
    fn key(&self, value: &Value) -> String {
        let name = tree::meta_text(value, "name");
        if self.entry.resource.namespaced {
            format!("{}/{name}", tree::meta_text(value, "namespace"))
        } else {
            name.to_string()
        }
    }

    /// The current version of an object.
    pub fn get(&self, key: &str) -> Option<Stored> {
        self.entry.table.get(key).map(Stored)
    }

    /// Number of objects.
    pub fn len(&self) -> usize {
        self.entry.table.len()
    }

    /// True without objects.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All objects.
    pub fn all(&self) -> Vec<Stored> {
        self.entry.table.objects().into_iter().map(Stored).collect()
    }

    /// Creates objects, each on its own, and waits once until all are durable.
    ///
    /// # Errors
    /// The first object that was refused; those before it were created.
    pub async fn create(&self, values: Vec<Value>) -> Result<Vec<Stored>, DirectError> {
        let mut out = Vec::with_capacity(values.len());
        for mut value in values {
            let refused = |key: String, why: String| DirectError::Refused { key, why };
            write::prepare(&self.core, &self.entry.resource, &mut value)
                .map_err(|e| refused(self.key(&value), e.message().to_string()))?;
            let key = self.key(&value);
            let namespace = tree::meta_text(&value, "namespace").to_string();
            let create = Write::Create { table: self.entry.table.clone(), key: key.clone(), value };
            let open = || {
                namespace.is_empty() || self.core.namespaces.get(&namespace).is_some_and(|ns| !ns.deleting())
            };
            match self.core.store.commit_if(vec![create], open) {
                Ok(objs) => out.extend(objs.into_iter().map(Stored)),
                Err(Refused::Exists(_)) => return Err(refused(key, "already exists".into())),
                Err(Refused::Barred) => {
                    return Err(refused(key, format!("namespace {namespace:?} takes no new objects")));
                }
                Err(e) => return Err(e.into()),
            }
        }
        self.settled(out).await
    }

    /// Writes new states over the versions from which they were made, each on its own, and waits once until all are
    /// durable. None: that object had changed or was deleted meanwhile.
    ///
    /// # Errors
    /// The store takes no writes.
    pub async fn update(&self, changes: Vec<(Stored, Value)>) -> Result<Vec<Option<Stored>>, DirectError> {
        let table = &self.entry.table;
        self.each(changes.into_iter().map(|(prev, value)| Write::Update {
            table: table.clone(),
            prev: prev.0,
            value,
        }))
        .await
    }

    /// Removes objects at once, without regard to finalizers, and waits until that is durable.
    ///
    /// # Errors
    /// The store takes no writes.
    pub async fn remove(&self, objects: Vec<Stored>) -> Result<Vec<Option<Stored>>, DirectError> {
        let table = &self.entry.table;
        self.each(objects.into_iter().map(|prev| Write::Delete {
            table: table.clone(),
            prev: prev.0,
            value: None,
        }))
        .await
    }

    async fn each(&self, writes: impl Iterator<Item = Write>) -> Result<Vec<Option<Stored>>, DirectError> {
        let mut out = Vec::new();
        for write in writes {
            match self.core.store.commit(vec![write]) {
                Ok(objs) => out.extend(objs.into_iter().map(|o| Some(Stored(o)))),
                Err(Refused::Changed(_)) => out.push(None),
                Err(e) => return Err(e.into()),
            }
        }
        if let Some(last) = out.iter().flatten().map(Stored::revision).max() {
            self.core.store.wait(last).await?;
        }
        Ok(out)
    }

    async fn settled(&self, out: Vec<Stored>) -> Result<Vec<Stored>, DirectError> {
        if let Some(last) = out.iter().map(Stored::revision).max() {
            self.core.store.wait(last).await?;
        }
        Ok(out)
    }

    /// Follows all changes, beginning with the present objects.
    pub fn follow(&self) -> Follower {
        let feed = self.entry.table.feed.listen(None, || self.core.store.durable());
        Follower { objects: self.clone(), cursor: None, feed }
    }

    /// RFC 3339 time of the server, in whole seconds.
    pub fn now(&self) -> String {
        self.core.clock.stamp()
    }
}

/// A position in the commit log of one resource. It never blocks a writer.
pub struct Follower {
    objects: Objects,
    /// None: all objects must be read again.
    cursor: Option<u64>,
    feed: Listener,
}

/// Changes in commit order.
#[derive(Debug)]
pub struct Changes {
    /// True: the follower has just begun or fell behind the log. `changes` has all objects; any other is gone.
    pub whole: bool,
    /// The changes.
    pub changes: Vec<ObjectChange>,
}

impl Follower {
    /// The next changes; None when the server closes.
    pub async fn next(&mut self) -> Option<Changes> {
        let (core, table) = (self.objects.core.clone(), self.objects.entry.table.clone());
        loop {
            self.feed.settle();
            let Some(cursor) = self.cursor else {
                let page = core.store.page(&table, Range::default()).await.ok()??;
                self.cursor = Some(page.rv);
                let changes = page.items.into_iter().map(|o| ObjectChange::Put(Stored(o))).collect();
                return Some(Changes { whole: true, changes });
            };
            let limit = core.store.durable();
            let Some(events) = table.events(cursor, limit, BATCH) else {
                self.cursor = None;
                continue;
            };
            if let Some(last) = events.last() {
                self.cursor = Some(last.rv);
                let change = |e: &Arc<fleet_apiserver_ground::store::Event>| match e.kind {
                    EventKind::Deleted => ObjectChange::Gone(Stored(e.obj.clone())),
                    EventKind::Added | EventKind::Modified => ObjectChange::Put(Stored(e.obj.clone())),
                };
                return Some(Changes { whole: false, changes: events.iter().map(change).collect() });
            }
            self.cursor = Some(cursor.max(limit));
            tokio::select! {
                biased;
                () = core.closing.cancelled() => return None,
                alive = self.feed.woken() => if !alive { return None },
            }
        }
    }
}
