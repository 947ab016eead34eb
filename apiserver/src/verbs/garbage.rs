//! The background worker: dependents of deleted owners, terminating namespaces and CRDs, what every namespace has,
//! aggregated roles, old events.
//!
//! Inputs: the commit log, through a hook that passes on only relevant events. No polling: the only timer is for
//! events, which live one hour. Absent on purpose: workload controllers.

use crate::verbs::removal::{self, Options};
use crate::verbs::{addresses, crd, namespaces};
use fleet_apiserver_admission::access::rbac;
use fleet_apiserver_admission::call::Core;
use fleet_apiserver_ground::store::{Event, EventKind, Obj, Refused, Table, Write};
use fleet_apiserver_ground::tree;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::mpsc::{Receiver, Sender, channel};

/// Most facts that wait for the worker; beyond this it checks everything instead. A restart checks everything, too.
const QUEUE: usize = 65_536;
/// How often old events are looked for.
const EVENT_SWEEP: Duration = Duration::from_secs(300);
/// How long events are kept.
const EVENT_LIFE_S: i64 = 3600;

type Place = (Box<str>, Box<str>);

struct Fact {
    table: Arc<Table>,
    event: Arc<Event>,
}

/// The sending side, called from the commit path.
pub struct Feed {
    sender: Sender<Fact>,
    overflow: Arc<AtomicBool>,
}

/// The receiving side.
pub struct Worker {
    receiver: Receiver<Fact>,
    overflow: Arc<AtomicBool>,
    /// Uid of an owner to the places of its dependents.
    dependents: HashMap<String, BTreeSet<Place>>,
    /// Namespaces that wait for finalizers inside them.
    draining: BTreeSet<String>,
    /// A cluster role changed since aggregated ones were filled.
    roles: bool,
}

/// Makes both sides.
pub fn pair() -> (Feed, Worker) {
    let (sender, receiver) = channel(QUEUE);
    let overflow = Arc::new(AtomicBool::new(false));
    let feed = Feed { sender, overflow: overflow.clone() };
    (feed, Worker { receiver, overflow, dependents: HashMap::new(), draining: BTreeSet::new(), roles: false })
}

fn owners(obj: &Obj) -> Vec<Value> {
    obj.list(&["metadata", "ownerReferences"])
}

impl Feed {
    /// Passes an event on when the worker has to know it.
    pub fn offer(&self, table: &Arc<Table>, event: &Arc<Event>) {
        let owned = |o: &Obj| o.has(&["metadata", "ownerReferences"]);
        let matters = event.kind == EventKind::Deleted
            || owned(&event.obj)
            || event.prev.as_ref().is_some_and(|p| owned(p))
            || &*table.name == rbac::CLUSTER_ROLES
            || event.obj.deleting()
            || (event.prev.is_some() && namespaces::is_companion(&table.name, &event.obj.key, false));
        if matters && self.sender.try_send(Fact { table: table.clone(), event: event.clone() }).is_err() {
            self.overflow.store(true, Ordering::Release);
        }
    }
}

impl Worker {
    /// Runs until the server closes.
    pub async fn run(mut self, core: Arc<Core>) {
        self.rescan(&core).await;
        let mut sweep = tokio::time::interval(EVENT_SWEEP);
        sweep.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                () = core.closing.cancelled() => return,
                fact = self.receiver.recv() => {
                    let Some(fact) = fact else { return };
                    self.handle(&core, &fact.table, &fact.event).await;
                    // Many may change at once, at the start above all.
                    if self.receiver.is_empty() && std::mem::take(&mut self.roles) {
                        rbac::aggregate(&core);
                    }
                    if self.overflow.swap(false, Ordering::AcqRel) {
                        self.rescan(&core).await;
                    }
                }
                _ = sweep.tick() => forget_events(&core),
            }
        }
    }

    /// Rebuilds the index and looks at every object once.
    async fn rescan(&mut self, core: &Arc<Core>) {
        self.dependents.clear();
        let mut look = Vec::new();
        for table in core.store.tables() {
            for obj in table.objects() {
                let owned = !owners(&obj).is_empty();
                if owned {
                    self.index(&table, &obj, true);
                }
                if owned || obj.deleting() {
                    look.push((table.clone(), obj));
                }
            }
        }
        for (table, obj) in look {
            self.look(core, &table, &obj).await;
        }
    }

    fn index(&mut self, table: &Table, obj: &Obj, add: bool) {
        for owner in &owners(obj) {
            let uid = tree::text(owner, &["uid"]);
            let place = (table.name.clone(), obj.key.clone());
            if add {
                self.dependents.entry(uid.to_string()).or_default().insert(place);
            } else if let Some(set) = self.dependents.get_mut(uid) {
                set.remove(&place);
                if set.is_empty() {
                    self.dependents.remove(uid);
                }
            }
        }
    }

    async fn handle(&mut self, core: &Arc<Core>, table: &Arc<Table>, event: &Arc<Event>) {
        self.roles |= &*table.name == rbac::CLUSTER_ROLES;
        let deleted = event.kind == EventKind::Deleted;
        if namespaces::is_companion(&table.name, &event.obj.key, deleted)
            && let Some((namespace, _)) = event.obj.key.split_once('/')
        {
            namespaces::keep_companions(core, namespace);
        }
        if let Some(prev) = &event.prev {
            self.index(table, prev, false);
        }
        if !deleted {
            self.index(table, &event.obj, true);
            self.look(core, table, &event.obj).await;
            return;
        }
        if &*table.name == "/services" {
            addresses::release(core, &event.obj);
            self.drop_endpoints(core, &event.obj.key).await;
        }
        let uid = event.obj.meta_text("uid");
        for (name, key) in self.dependents.get(&uid).cloned().unwrap_or_default() {
            let table = core.store.table(&name);
            if let Some(obj) = table.get(&key) {
                self.look(core, &table, &obj).await;
            }
        }
        // A blocking dependent went away: its owners may be able to go now.
        for owner in &owners(&event.obj) {
            let namespace = event.obj.key.split_once('/').map(|(ns, _)| ns);
            if let Some((table, obj)) = find_owner(core, owner, namespace)
                && finalizer(&obj, "foregroundDeletion")
            {
                self.foreground(core, &table, &obj).await;
            }
        }
        self.content_gone(core, table, &event.obj).await;
    }

    /// A service that comes back under its name does not start with the endpoints of the one before.
    async fn drop_endpoints(&self, core: &Arc<Core>, service: &str) {
        let endpoints = core.store.table("/endpoints");
        if core.store.table("/services").get(service).is_none()
            && let Some(found) = endpoints.get(service)
        {
            self.remove(core, &endpoints, &found, "Background").await;
        }
    }

    /// Finishes a namespace or CRD whose last object may just have been deleted.
    async fn content_gone(&mut self, core: &Arc<Core>, table: &Table, obj: &Obj) {
        if let Some((ns, _)) = obj.key.split_once('/')
            && self.draining.contains(ns)
        {
            let ns = ns.to_string();
            self.drain(core, &ns).await;
        }
        if table.is_empty()
            && table.name.contains('.')
            && let Some((group, plural)) = table.name.split_once('/')
        {
            let name = format!("{plural}.{group}");
            let crds = core.store.table("apiextensions.k8s.io/customresourcedefinitions");
            let going = crds.get(&name).is_some_and(|c| c.deleting());
            if going {
                log(crd::finish_delete(core, &name).await);
            }
        }
    }

    async fn drain(&mut self, core: &Arc<Core>, namespace: &str) {
        match namespaces::empty(core, namespace).await {
            Ok(true) => {
                self.draining.remove(namespace);
            }
            Ok(false) => {
                self.draining.insert(namespace.to_string());
            }
            Err(e) => tracing::warn!(namespace, error = e.message(), "a namespace could not be emptied"),
        }
    }

    /// Does what the state of one object asks for.
    async fn look(&mut self, core: &Arc<Core>, table: &Arc<Table>, obj: &Arc<Obj>) {
        if obj.deleting() {
            if &*table.name == "/namespaces" {
                self.drain(core, &obj.key.clone()).await;
                return;
            }
            if &*table.name == "apiextensions.k8s.io/customresourcedefinitions" {
                log(crd::finish_delete(core, &obj.key).await);
                return;
            }
            if finalizer(obj, "orphan") {
                self.orphan(core, table, obj).await;
                return;
            }
            if finalizer(obj, "foregroundDeletion") {
                self.foreground(core, table, obj).await;
                return;
            }
        }
        self.collect(core, table, obj).await;
    }

    /// Deletes an object whose owners are all gone, or drops references to owners that are.
    async fn collect(&mut self, core: &Arc<Core>, table: &Arc<Table>, obj: &Arc<Obj>) {
        let references = owners(obj);
        if references.is_empty() {
            return;
        }
        let namespace = obj.key.split_once('/').map(|(ns, _)| ns);
        let (mut solid, mut dangling, mut waiting) = (0, Vec::new(), 0);
        for owner in &references {
            match owner_state(core, owner, namespace) {
                OwnerState::Solid => solid += 1,
                OwnerState::Waiting => waiting += 1,
                OwnerState::Gone => dangling.push(tree::text(owner, &["uid"]).to_string()),
            }
        }
        if solid > 0 {
            if !dangling.is_empty() {
                rewrite(core, table, &obj.key, |value| {
                    unlink(value, &dangling);
                });
            }
            return;
        }
        if dangling.is_empty() && waiting == 0 {
            return;
        }
        let deleting = obj.deleting();
        if deleting {
            return;
        }
        let uid = obj.meta_text("uid");
        let blocked = waiting > 0 && self.dependents.contains_key(&uid);
        self.remove(core, table, obj, if blocked { "Foreground" } else { "Background" }).await;
    }

    async fn remove(&self, core: &Arc<Core>, table: &Arc<Table>, obj: &Arc<Obj>, policy: &str) {
        let registry = core.registry.load_full();
        let Some(entry) = registry.stored().find(|e| e.resource.table == *table.name) else { return };
        let o = Options { propagation: policy.into(), uid: obj.meta_text("uid"), ..Options::default() };
        match removal::delete_object(core, &entry.resource, table, &obj.key, &o).await {
            Err(e) if !matches!(e.code(), 404 | 409) => log(Err::<(), _>(e)),
            _ => {}
        }
    }

    async fn orphan(&mut self, core: &Arc<Core>, table: &Arc<Table>, obj: &Arc<Obj>) {
        let uid = obj.meta_text("uid");
        for (name, key) in self.dependents.get(&uid).cloned().unwrap_or_default() {
            rewrite(core, &core.store.table(&name), &key, |value| unlink(value, std::slice::from_ref(&uid)));
        }
        drop_finalizer(core, table, &obj.key, "orphan");
    }

    /// True when a dependent of this object is being deleted in the foreground already.
    fn waits_for_itself(&self, core: &Core, uid: &str) -> bool {
        let places = self.dependents.get(uid).into_iter().flatten();
        let mut found = places.filter_map(|(table, key)| core.store.table(table).get(key));
        found.any(|o| finalizer(&o, "foregroundDeletion") && o.deleting())
    }

    async fn foreground(&mut self, core: &Arc<Core>, table: &Arc<Table>, obj: &Arc<Obj>) {
        let uid = obj.meta_text("uid");
        let mut blocking = 0;
        for (name, key) in self.dependents.get(&uid).cloned().unwrap_or_default() {
            let dependents = core.store.table(&name);
            let Some(d) = dependents.get(&key) else { continue };
            let references = owners(&d);
            let reference = references.iter().find(|o| tree::text(o, &["uid"]) == uid);
            if reference.is_some_and(|o| o.get("blockOwnerDeletion") == Some(&Value::Bool(true))) {
                blocking += 1;
            }
            let namespace = d.key.split_once('/').map(|(ns, _)| ns);
            let solid =
                references.iter().any(|o| matches!(owner_state(core, o, namespace), OwnerState::Solid));
            if solid {
                rewrite(core, &dependents, &key, |value| unlink(value, std::slice::from_ref(&uid)));
                blocking -= i32::from(blocking > 0);
            } else if !d.deleting() {
                let own = d.meta_text("uid");
                let policy = if self.dependents.contains_key(&own) { "Foreground" } else { "Background" };
                if self.waits_for_itself(core, &own) {
                    // A circle: each would wait for the next one for ever.
                    rewrite(core, &dependents, &key, unblock);
                    blocking -= i32::from(blocking > 0);
                }
                self.remove(core, &dependents, &d, policy).await;
                if dependents.get(&key).is_none() {
                    blocking -= i32::from(blocking > 0);
                }
            }
        }
        if blocking == 0 {
            drop_finalizer(core, table, &obj.key, "foregroundDeletion");
        }
    }
}

enum OwnerState {
    Solid,
    /// Being deleted in the foreground, waiting for its dependents.
    Waiting,
    Gone,
}

fn find_owner(core: &Core, owner: &Value, namespace: Option<&str>) -> Option<(Arc<Table>, Arc<Obj>)> {
    let registry = core.registry.load();
    let entry = registry.by_kind(tree::text(owner, &["apiVersion"]), tree::text(owner, &["kind"]))?;
    let name = tree::text(owner, &["name"]);
    let key = if entry.resource.namespaced { format!("{}/{name}", namespace?) } else { name.to_string() };
    let obj = entry.table.get(&key)?;
    (obj.meta_text("uid") == tree::text(owner, &["uid"])).then(|| (entry.table.clone(), obj))
}

fn owner_state(core: &Core, owner: &Value, namespace: Option<&str>) -> OwnerState {
    let registry = core.registry.load();
    let known = registry.by_kind(tree::text(owner, &["apiVersion"]), tree::text(owner, &["kind"]));
    let Some(entry) = known else {
        // A kind that is not served may come back; its dependents stay.
        return OwnerState::Solid;
    };
    if entry.resource.namespaced && namespace.is_none() {
        // A cluster-scoped object cannot depend on a namespaced one: never collected.
        return OwnerState::Solid;
    }
    match find_owner(core, owner, namespace) {
        None => OwnerState::Gone,
        Some((_, obj)) => {
            let deleting = obj.deleting();
            if deleting && finalizer(&obj, "foregroundDeletion") {
                OwnerState::Waiting
            } else {
                OwnerState::Solid
            }
        }
    }
}

fn finalizer(obj: &Obj, name: &str) -> bool {
    obj.list(&["metadata", "finalizers"]).iter().any(|f| f == name)
}

fn unblock(value: &mut Value) {
    let owners = tree::meta(value).get_mut("ownerReferences").and_then(Value::as_array_mut);
    for owner in owners.into_iter().flatten() {
        tree::object(owner).insert("blockOwnerDeletion".into(), false.into());
    }
}

fn unlink(value: &mut Value, uids: &[String]) {
    let mut left = tree::list(value, &["metadata", "ownerReferences"]).to_vec();
    left.retain(|o| !uids.iter().any(|u| u == tree::text(o, &["uid"])));
    let left = if left.is_empty() { None } else { Some(Value::Array(left)) };
    tree::put(tree::meta(value), "ownerReferences", left);
}

/// Changes the current version of an object; it is removed if it was only waiting for a finalizer.
fn rewrite(core: &Core, table: &Arc<Table>, key: &str, change: impl Fn(&mut Value)) {
    loop {
        let Some(old) = table.get(key) else { return };
        let mut value = old.full();
        let before = value.clone();
        change(&mut value);
        if value == before {
            return;
        }
        let meta = tree::at(&value, &["metadata"]).unwrap_or(&Value::Null);
        let done = meta.get("deletionTimestamp").is_some()
            && tree::list(meta, &["finalizers"]).is_empty()
            && tree::number(meta, &["deletionGracePeriodSeconds"]) == 0;
        let write = if done {
            Write::Delete { table: table.clone(), prev: old.clone(), value: Some(value) }
        } else {
            Write::Update { table: table.clone(), prev: old.clone(), value }
        };
        match core.store.commit(vec![write]) {
            Err(Refused::Changed(_)) => {}
            _ => return,
        }
    }
}

fn drop_finalizer(core: &Core, table: &Arc<Table>, key: &str, name: &str) {
    rewrite(core, table, key, |value| {
        let mut left = tree::list(value, &["metadata", "finalizers"]).to_vec();
        left.retain(|f| f != name);
        let left = if left.is_empty() { None } else { Some(Value::Array(left)) };
        tree::put(tree::meta(value), "finalizers", left);
    });
}

fn forget_events(core: &Core) {
    let table = core.store.table("/events");
    let now = core.clock.now().as_second();
    let mut latest: BTreeMap<Box<str>, Arc<Obj>> = BTreeMap::new();
    for obj in table.objects() {
        let times = [
            obj.text(&["lastTimestamp"]),
            obj.text(&["eventTime"]),
            obj.text(&["series", "lastObservedTime"]),
            obj.meta_text("creationTimestamp"),
        ];
        let newest = times.iter().filter_map(|t| t.parse::<jiff::Timestamp>().ok()).max();
        if newest.is_none_or(|t| now - t.as_second() > EVENT_LIFE_S) {
            latest.insert(obj.key.clone(), obj);
        }
    }
    for prev in latest.into_values() {
        // An event that changed meanwhile is kept until the next sweep.
        let _ = core.store.commit(vec![Write::Delete { table: table.clone(), prev, value: None }]);
    }
}

fn log<T>(result: fleet_apiserver_schema::error::ApiResult<T>) {
    if let Err(e) = result {
        tracing::warn!(error = e.message(), "background work failed");
    }
}
