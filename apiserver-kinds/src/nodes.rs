//! Taints of nodes by their conditions, as the node lifecycle controller of Kubernetes sets them.
//!
//! Inputs: the commit log. Admission taints a new node as not ready; the taint is removed once the node reports
//! that it is ready. Absent on purpose: detecting that a node is silent, and evicting its pods.

use fleet_apiserver_ground::store::{Event, Obj, Refused, Store, Table, Write};
use fleet_apiserver_ground::tree;
use fleet_apiserver_schema::base::Base;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::Notify;

/// Condition, the status of it that taints, and the taint.
const TAINTS: [(&str, &str, &str); 6] = [
    ("Ready", "False", "node.kubernetes.io/not-ready"),
    ("Ready", "Unknown", "node.kubernetes.io/unreachable"),
    ("MemoryPressure", "True", "node.kubernetes.io/memory-pressure"),
    ("DiskPressure", "True", "node.kubernetes.io/disk-pressure"),
    ("PIDPressure", "True", "node.kubernetes.io/pid-pressure"),
    ("NetworkUnavailable", "True", "node.kubernetes.io/network-unavailable"),
];
const CORDONED: &str = "node.kubernetes.io/unschedulable";

/// What the commit path tells the loop.
pub struct Nodes {
    table: Arc<Table>,
    changed: Mutex<BTreeSet<Box<str>>>,
    wake: Notify,
}

impl Nodes {
    /// Follows the nodes of a store.
    pub fn new(store: &Store) -> Nodes {
        Nodes { table: store.table("/nodes"), changed: Mutex::default(), wake: Notify::new() }
    }

    /// Notes a node whose taints are not what its conditions ask for; called from the commit path.
    pub fn offer(&self, table: &Arc<Table>, event: &Event) {
        if Arc::ptr_eq(table, &self.table) && !event.obj.deleting() && wanted(&event.obj).is_some() {
            self.mark(&event.obj.key);
        }
    }

    fn mark(&self, key: &str) {
        self.changed.lock().unwrap_or_else(PoisonError::into_inner).insert(key.into());
        self.wake.notify_one();
    }
}

/// The taints a node should have, where it has others. A node that has never said whether it is ready stays as it is.
fn wanted(node: &Obj) -> Option<Vec<Value>> {
    let conditions = node.list(&["status", "conditions"]);
    let is = |kind: &str| {
        conditions.iter().find(|c| tree::text(c, &["type"]) == kind).map(|c| tree::text(c, &["status"]))
    };
    is("Ready")?;
    let mut due: Vec<&str> = TAINTS
        .iter()
        .filter(|(kind, status, _)| is(kind) == Some(status))
        .map(|(_, _, taint)| *taint)
        .collect();
    if node.at(&["spec", "unschedulable"]) == Some(json!(true)) {
        due.push(CORDONED);
    }
    let ours = |t: &Value| {
        let key = tree::text(t, &["key"]);
        tree::text(t, &["effect"]) == "NoSchedule"
            && (key == CORDONED || TAINTS.iter().any(|(_, _, taint)| *taint == key))
    };
    let has = node.list(&["spec", "taints"]);
    let mut should: Vec<Value> =
        has.iter().filter(|t| !ours(t) || due.contains(&tree::text(t, &["key"]))).cloned().collect();
    for key in due {
        if !should.iter().any(|t| ours(t) && tree::text(t, &["key"]) == key) {
            should.push(json!({"key": key, "effect": "NoSchedule"}));
        }
    }
    (should != has).then_some(should)
}

/// Keeps the taints until the server closes.
pub async fn run(base: Arc<Base>, nodes: Arc<Nodes>) {
    for node in nodes.table.objects() {
        if wanted(&node).is_some() {
            nodes.mark(&node.key);
        }
    }
    loop {
        tokio::select! {
            biased;
            () = base.closing.cancelled() => return,
            () = nodes.wake.notified() => {}
        }
        let changed = std::mem::take(&mut *nodes.changed.lock().unwrap_or_else(PoisonError::into_inner));
        for name in changed {
            let Some(node) = nodes.table.get(&name) else { continue };
            let Some(taints) = wanted(&node) else { continue };
            let mut value = node.full();
            let spec = tree::child(&mut value, "spec");
            if taints.is_empty() {
                spec.remove("taints");
            } else {
                spec.insert("taints".into(), Value::Array(taints));
            }
            let write = Write::Update { table: nodes.table.clone(), prev: node, value };
            if let Err(Refused::Changed(_)) = base.store.commit(vec![write]) {
                // Its own event brings the loop back, or it is gone.
                nodes.mark(&name);
            }
        }
    }
}
