//! Claims and volumes in use are not deleted: a finalizer holds them until nothing uses them any more.
//!
//! Inputs: the commit log (pods, claims and volumes). New ones get the finalizer from `plugins`. It is removed here as
//! a controller manager removes it, so that one may run beside this.

use fleet_apiserver_ground::store::{Event, EventKind, Obj, Range, Refused, Store, Table, Write};
use fleet_apiserver_ground::tree;
use fleet_apiserver_schema::base::Base;
use serde_json::Value;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::Notify;

/// Holds a claim.
pub const CLAIM: &str = "kubernetes.io/pvc-protection";
/// Holds a volume.
pub const VOLUME: &str = "kubernetes.io/pv-protection";

/// Adds a finalizer to a new object.
pub fn hold(value: &mut Value, finalizer: &str) {
    let list = tree::meta(value).entry("finalizers").or_insert_with(|| Value::Array(Vec::new()));
    if let Value::Array(list) = list
        && !list.iter().any(|f| f == finalizer)
    {
        list.push(finalizer.into());
    }
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Held {
    Claim(String),
    Volume(String),
}

/// What the commit path tells the loop.
pub struct Protection {
    pods: Arc<Table>,
    claims: Arc<Table>,
    volumes: Arc<Table>,
    changed: Mutex<BTreeSet<Held>>,
    wake: Notify,
}

impl Protection {
    /// Follows the storage of a store.
    pub fn new(store: &Store) -> Protection {
        Protection {
            pods: store.table("/pods"),
            claims: store.table("/persistentvolumeclaims"),
            volumes: store.table("/persistentvolumes"),
            changed: Mutex::default(),
            wake: Notify::new(),
        }
    }

    /// Notes what an event may free; called from the commit path.
    pub fn offer(&self, table: &Arc<Table>, event: &Event) {
        let gone = event.kind == EventKind::Deleted;
        if Arc::ptr_eq(table, &self.claims) {
            if event.obj.deleting() && !gone {
                self.mark([Held::Claim(event.obj.key.to_string())]);
            }
        } else if Arc::ptr_eq(table, &self.volumes) {
            if event.obj.deleting() && !gone {
                self.mark([Held::Volume(event.obj.key.to_string())]);
            }
        } else if gone && Arc::ptr_eq(table, &self.pods) && !self.claims.is_empty() {
            let namespace = event.obj.meta_text("namespace");
            let names = claims_of(&event.obj).into_iter();
            self.mark(names.map(|name| Held::Claim(format!("{namespace}/{name}"))));
        }
    }

    fn mark(&self, held: impl IntoIterator<Item = Held>) {
        self.changed.lock().unwrap_or_else(PoisonError::into_inner).extend(held);
        self.wake.notify_one();
    }
}

/// The names of the claims that a pod uses.
fn claims_of(pod: &Obj) -> Vec<String> {
    let name = |volume: &Value| {
        if let Some(name) = tree::at(volume, &["persistentVolumeClaim", "claimName"]).and_then(Value::as_str)
        {
            return Some(name.to_string());
        }
        let own = tree::at(volume, &["ephemeral"]).is_some_and(|own| !own.is_null());
        own.then(|| format!("{}-{}", pod.meta_text("name"), tree::text(volume, &["name"])))
    };
    pod.list(&["spec", "volumes"]).iter().filter_map(name).collect()
}

/// Frees what is not used any more until the server closes.
pub async fn run(base: Arc<Base>, known: Arc<Protection>) {
    let claims = known.claims.objects().into_iter().filter(|o| o.deleting());
    known.mark(claims.map(|o| Held::Claim(o.key.to_string())));
    let volumes = known.volumes.objects().into_iter().filter(|o| o.deleting());
    known.mark(volumes.map(|o| Held::Volume(o.key.to_string())));
    loop {
        tokio::select! {
            biased;
            () = base.closing.cancelled() => return,
            () = known.wake.notified() => {}
        }
        let changed = std::mem::take(&mut *known.changed.lock().unwrap_or_else(PoisonError::into_inner));
        for held in changed {
            free(&base, &known, held).await;
        }
    }
}

async fn free(base: &Base, known: &Protection, held: Held) {
    let (table, key, finalizer) = match &held {
        Held::Claim(key) => (&known.claims, key, CLAIM),
        Held::Volume(key) => (&known.volumes, key, VOLUME),
    };
    let Ok(Some(prev)) = base.store.read(table, key).await else { return };
    let mut finalizers = prev.list(&["metadata", "finalizers"]);
    if !prev.deleting()
        || !finalizers.iter().any(|f| f == finalizer)
        || is_used(base, known, &held, &prev).await
    {
        return;
    }
    finalizers.retain(|f| f != finalizer);
    let write = if finalizers.is_empty() {
        Write::Delete { table: table.clone(), prev, value: None }
    } else {
        let mut value = prev.full();
        tree::meta(&mut value).insert("finalizers".into(), Value::Array(finalizers));
        Write::Update { table: table.clone(), prev, value }
    };
    match base.store.commit(vec![write]) {
        Ok(_) => {}
        Err(Refused::Changed(_)) => known.mark([held]),
        Err(e) => tracing::warn!(key, error = ?e, "a finalizer could not be removed"),
    }
}

/// A volume is used while it is bound, a claim by pods that have a node.
async fn is_used(base: &Base, known: &Protection, held: &Held, object: &Obj) -> bool {
    let Held::Claim(key) = held else { return object.text(&["status", "phase"]) == "Bound" };
    let Some((namespace, name)) = key.split_once('/') else { return false };
    let prefix = format!("{namespace}/");
    let range = Range { prefix: &prefix, ..Range::default() };
    // What cannot be told is taken for used; the next event looks again.
    let Ok(Some(pods)) = base.store.page(&known.pods, range).await else { return true };
    pods.items.iter().any(|pod| {
        !pod.text(&["spec", "nodeName"]).is_empty() && claims_of(pod).iter().any(|claim| claim == name)
    })
}
