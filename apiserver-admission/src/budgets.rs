//! PodDisruptionBudgets: their status, and whether an eviction is allowed.
//!
//! Inputs: the commit log (pods and budgets), and evictions. A budget's status is written as the disruption
//! controller of Kubernetes writes it, so that one may run beside this or instead. Absent on purpose: stale
//! `disruptedPods` of pods that were never deleted; an eviction deletes its pod at once.

use fleet_apiserver_ground::packed::Node;
use fleet_apiserver_ground::store::{Event, Obj, Range, Refused, Store, Table, Write};
use fleet_apiserver_ground::tree;
use fleet_apiserver_schema::base::Base;
use fleet_apiserver_schema::error::{ApiError, ApiResult, Cause};
use fleet_apiserver_schema::selectors::Labels;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;

/// Shortest time between two looks at the pods of namespaces with budgets.
const PAUSE: Duration = Duration::from_millis(50);
/// Attempts of an eviction that lost a race for its budget.
const ATTEMPTS: usize = 16;

/// What the commit path tells the loop.
pub struct Budgets {
    pods: Arc<Table>,
    budgets: Arc<Table>,
    changed: Mutex<BTreeSet<Box<str>>>,
    wake: Notify,
}

impl Budgets {
    /// Follows the budgets of a store.
    pub fn new(store: &Store) -> Budgets {
        Budgets {
            pods: store.table("/pods"),
            budgets: store.table("policy/poddisruptionbudgets"),
            changed: Mutex::default(),
            wake: Notify::new(),
        }
    }

    /// Notes the namespace of an event that may matter; called from the commit path.
    pub fn offer(&self, table: &Arc<Table>, event: &Event) {
        let matters = Arc::ptr_eq(table, &self.budgets) || Arc::ptr_eq(table, &self.pods);
        if matters && !self.budgets.is_empty() {
            self.mark(&event.obj.key);
        }
    }

    fn mark(&self, key: &str) {
        let namespace = key.split_once('/').map_or(key, |(ns, _)| ns);
        let mut changed = self.changed.lock().unwrap_or_else(PoisonError::into_inner);
        if !changed.contains(namespace) {
            changed.insert(namespace.into());
        }
        drop(changed);
        self.wake.notify_one();
    }
}

/// Keeps the status of all budgets until the server closes.
pub async fn run(base: Arc<Base>, known: Arc<Budgets>) {
    for budget in known.budgets.objects() {
        known.mark(&budget.key);
    }
    loop {
        tokio::select! {
            biased;
            () = base.closing.cancelled() => return,
            () = known.wake.notified() => {}
        }
        let changed = {
            let mut changed = known.changed.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::take(&mut *changed)
        };
        for namespace in changed {
            refresh(&base, &known, &namespace).await;
        }
        tokio::time::sleep(PAUSE).await;
    }
}

async fn refresh(base: &Base, known: &Budgets, namespace: &str) {
    let prefix = format!("{namespace}/");
    let range = Range { prefix: &prefix, ..Range::default() };
    let Ok(Some(budgets)) = base.store.page(&known.budgets, range).await else { return };
    if budgets.items.is_empty() {
        return;
    }
    let Ok(Some(pods)) = base.store.page(&known.pods, range).await else { return };
    for budget in budgets.items {
        let status = judge(base, namespace, &budget, &pods.items);
        if budget.at(&["status"]).as_ref() == Some(&status) {
            continue;
        }
        let mut value = budget.full();
        tree::object(&mut value).insert("status".into(), status);
        let write = Write::Update { table: known.budgets.clone(), prev: budget.clone(), value };
        if let Err(Refused::Changed(_)) = base.store.commit(vec![write]) {
            // Its own event brings the loop back.
            known.mark(&budget.key);
        }
    }
}

/// The labels a budget selects by; none select nothing, empty ones everything.
fn selector(budget: &Obj) -> Option<Labels> {
    budget.at(&["spec", "selector"]).filter(|s| !s.is_null()).map(|s| Labels::from_object(&s))
}

fn covers(budget: &Obj, pod: &Obj) -> bool {
    selector(budget).is_some_and(|s| s.matches(&pod.node()))
}

fn is_ready(pod: &Obj) -> bool {
    let conditions = pod.node().at(&["status", "conditions"]).map(Node::items).unwrap_or_default();
    let says = |c: &Node<'_>, key: &str, text: &str| c.get(key).and_then(Node::text).as_deref() == Some(text);
    conditions.iter().any(|c| says(c, "type", "Ready") && says(c, "status", "True"))
}

fn is_finished(pod: &Obj) -> bool {
    matches!(pod.text(&["status", "phase"]).as_str(), "Succeeded" | "Failed")
}

/// Pods that the controllers of these pods want together; a pod without one counts for itself.
fn wanted(base: &Base, namespace: &str, pods: &[&Arc<Obj>]) -> i64 {
    let mut owners: BTreeMap<String, i64> = BTreeMap::new();
    let mut alone = 0;
    for pod in pods {
        let references = pod.list(&["metadata", "ownerReferences"]);
        let controller = references.iter().find(|o| o.get("controller") == Some(&Value::Bool(true)));
        let Some(owner) = controller else {
            alone += 1;
            continue;
        };
        let table = match tree::text(owner, &["kind"]) {
            "ReplicaSet" => "apps/replicasets",
            "StatefulSet" => "apps/statefulsets",
            "ReplicationController" => "/replicationcontrollers",
            _ => "",
        };
        let key = format!("{namespace}/{}", tree::text(owner, &["name"]));
        let found = (!table.is_empty()).then(|| base.store.table(table).get(&key)).flatten();
        match found {
            Some(o) => {
                let replicas = o.number(&["spec", "replicas"]);
                owners.insert(tree::text(owner, &["uid"]).to_string(), replicas);
            }
            None => alone += 1,
        }
    }
    alone + owners.values().sum::<i64>()
}

/// A count, or a share of a whole rounded up.
fn scaled(value: &Value, whole: i64) -> i64 {
    match value {
        Value::String(text) => {
            let percent = text.strip_suffix('%').and_then(|p| p.parse::<i64>().ok()).unwrap_or(0);
            whole.saturating_mul(percent.clamp(0, 100)).saturating_add(99) / 100
        }
        other => other.as_i64().unwrap_or(0),
    }
}

/// The status of a budget, given the pods of its namespace.
fn judge(base: &Base, namespace: &str, budget: &Obj, pods: &[Arc<Obj>]) -> Value {
    let selector = selector(budget);
    let selects = |p: &Obj| selector.as_ref().is_some_and(|s| s.matches(&p.node()));
    let mine: Vec<&Arc<Obj>> = pods.iter().filter(|p| selects(p) && !is_finished(p)).collect();
    let healthy = mine.iter().filter(|p| is_ready(p) && !p.deleting());
    let healthy = i64::try_from(healthy.count()).unwrap_or(i64::MAX);
    let count = i64::try_from(mine.len()).unwrap_or(i64::MAX);
    let spec = |key: &str| budget.at(&["spec", key]).filter(|v| !v.is_null());
    let (expected, desired) = match (spec("maxUnavailable").as_ref(), spec("minAvailable").as_ref()) {
        (Some(most), _) => {
            let expected = wanted(base, namespace, &mine);
            (expected, (expected - scaled(most, expected)).max(0))
        }
        (None, Some(least @ Value::String(_))) => {
            let expected = wanted(base, namespace, &mine);
            (expected, scaled(least, expected))
        }
        (None, Some(least)) => (count, scaled(least, count)),
        (None, None) => (count, 0),
    };
    let allowed = if expected > 0 { (healthy - desired).max(0) } else { 0 };
    let (verdict, reason) =
        if allowed > 0 { ("True", "SufficientPods") } else { ("False", "InsufficientPods") };
    let generation = budget.number(&["metadata", "generation"]);
    let conditions = budget.list(&["status", "conditions"]);
    let known = conditions
        .iter()
        .find(|c| tree::text(c, &["type"]) == "DisruptionAllowed" && tree::text(c, &["status"]) == verdict);
    let since = known.map(|c| tree::text(c, &["lastTransitionTime"]).to_string());
    json!({
        "observedGeneration": generation, "disruptionsAllowed": allowed, "currentHealthy": healthy,
        "desiredHealthy": desired, "expectedPods": expected,
        "conditions": [{"type": "DisruptionAllowed", "status": verdict, "reason": reason, "message": "",
            "observedGeneration": generation, "lastTransitionTime": since.unwrap_or_else(|| base.clock.stamp())}],
    })
}

/// Uses one disruption of the budget that covers a pod, or refuses with 429.
pub async fn take(base: &Base, known: &Budgets, namespace: &str, pod: &Obj, dry_run: bool) -> ApiResult<()> {
    let phase = pod.text(&["status", "phase"]);
    let leaving = pod.has(&["metadata", "deletionTimestamp"]);
    if leaving || matches!(phase.as_str(), "Succeeded" | "Failed" | "Pending") || known.budgets.is_empty() {
        return Ok(());
    }
    for _ in 0..ATTEMPTS {
        // The status may be a moment behind the pods it counts.
        refresh(base, known, namespace).await;
        let prefix = format!("{namespace}/");
        let range = Range { prefix: &prefix, ..Range::default() };
        let page = base.store.page(&known.budgets, range).await?;
        let mut mine = page.map(|p| p.items).unwrap_or_default().into_iter().filter(|b| covers(b, pod));
        let Some(budget) = mine.next() else { return Ok(()) };
        if mine.next().is_some() {
            let message = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
            return Err(ApiError::internal("InternalError", message));
        }
        let status = |key: &str| budget.number(&["status", key]);
        if !is_ready(pod) {
            let always = budget.text(&["spec", "unhealthyPodEvictionPolicy"]) == "AlwaysAllow";
            let sound = status("currentHealthy") >= status("desiredHealthy") && status("desiredHealthy") > 0;
            if always || sound {
                return Ok(());
            }
        }
        if status("disruptionsAllowed") <= 0 {
            let name = budget.meta_text("name");
            let why = format!(
                "The disruption budget {name} needs {} healthy pods and has {} currently",
                status("desiredHealthy"),
                status("currentHealthy")
            );
            let message = "Cannot evict pod as it would violate the pod's disruption budget.";
            return Err(ApiError::too_many_requests(message, Cause::new("DisruptionBudget", "", why)));
        }
        if dry_run {
            return Ok(());
        }
        // Whoever evicts at the same time loses this race, looks again, and finds one fewer.
        let mut value = budget.full();
        let left = tree::child(&mut value, "status");
        left.insert("disruptionsAllowed".into(), (status("disruptionsAllowed") - 1).into());
        let write = Write::Update { table: known.budgets.clone(), prev: budget.clone(), value };
        match base.store.commit_to_free(vec![write]) {
            Ok(_) => return Ok(()),
            Err(Refused::Changed(_)) => {}
            Err(e) => return Err(e.into()),
        }
    }
    let why = "too many evictions at once";
    Err(ApiError::too_many_requests("Cannot evict pod now.", Cause::new("DisruptionBudget", "", why)))
}
