//! ResourceQuotas: limits of a namespace, charged when an object is created, and their status.
//!
//! Inputs: new objects, and the commit log. A create and its charge to each quota are one commit, so two creates
//! cannot both use the last free amount. Deletes and ended pods are released a moment later, as by the quota
//! controller of Kubernetes. Absent on purpose: charges for updates (a resized claim, a service of another type).

use fleet_apiserver_ground::store::{Event, Obj, Range, Refused, Store, Table, Write};
use fleet_apiserver_ground::tree;
use fleet_apiserver_kinds::pods::amounts::{self, Part};
use fleet_apiserver_kinds::qos;
use fleet_apiserver_schema::base::Base;
use fleet_apiserver_schema::error::{ApiError, ApiResult};
use fleet_apiserver_schema::resource::Resource;
use fleet_resources::quantity;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;

/// Shortest time between two counts of a namespace.
const PAUSE: Duration = Duration::from_millis(50);
/// Kinds that are counted under their plain names.
const COUNTED: [&str; 7] = [
    "pods",
    "services",
    "configmaps",
    "secrets",
    "persistentvolumeclaims",
    "replicationcontrollers",
    "resourcequotas",
];

const CLAIMS: &str = "persistentvolumeclaims";
const DEVICES: &str = "deviceclass.resource.k8s.io/devices";
const CLASS_STORAGE: &str = "storageclass.storage.k8s.io/requests.storage";
/// Names that bound what is asked of one class; the class stands before them, with a dot between.
const CLASSED: [&str; 3] = [CLASS_STORAGE, "storageclass.storage.k8s.io/persistentvolumeclaims", DEVICES];
/// Devices that a request for all of them may get at most.
const MOST_DEVICES: i64 = 32;

/// Amounts by the names a quota uses, in base units.
type Amounts = BTreeMap<String, i64>;

/// What the commit path tells the loop.
pub struct Quotas {
    table: Arc<Table>,
    state: Mutex<State>,
    wake: Notify,
}

#[derive(Default)]
struct State {
    /// Namespaces that had a quota when they were last looked at.
    with: BTreeSet<Box<str>>,
    changed: BTreeSet<Box<str>>,
}

impl Quotas {
    /// Follows the quotas of a store.
    pub fn new(store: &Store) -> Quotas {
        Quotas { table: store.table("/resourcequotas"), state: Mutex::default(), wake: Notify::new() }
    }

    /// Notes the namespace of an event that may matter; called from the commit path.
    pub fn offer(&self, table: &Arc<Table>, event: &Event) {
        let Some((namespace, _)) = event.obj.key.split_once('/') else { return };
        if self.table.is_empty() && !Arc::ptr_eq(table, &self.table) {
            return;
        }
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if Arc::ptr_eq(table, &self.table) {
            state.with.insert(namespace.into());
        }
        if state.with.contains(namespace) && state.changed.insert(namespace.into()) {
            self.wake.notify_one();
        }
    }

    fn of(&self, namespace: &str) -> Vec<Arc<Obj>> {
        within(&self.table, namespace)
    }
}

/// Keeps the status of all quotas until the server closes.
pub async fn run(base: Arc<Base>, known: Arc<Quotas>) {
    for quota in known.table.objects() {
        let mut state = known.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((namespace, _)) = quota.key.split_once('/') {
            state.with.insert(namespace.into());
            state.changed.insert(namespace.into());
        }
        known.wake.notify_one();
    }
    loop {
        tokio::select! {
            biased;
            () = base.closing.cancelled() => return,
            () = known.wake.notified() => {}
        }
        let changed = {
            let mut state = known.state.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::take(&mut state.changed)
        };
        for namespace in changed {
            refresh(&base, &known, &namespace);
        }
        tokio::time::sleep(PAUSE).await;
    }
}

fn refresh(base: &Base, known: &Quotas, namespace: &str) {
    // Each quota is read before the objects it counts: a create in between changes the quota, too, and this write
    // is refused.
    let quotas = known.of(namespace);
    if quotas.is_empty() {
        known.state.lock().unwrap_or_else(PoisonError::into_inner).with.remove(namespace);
    }
    for quota in quotas {
        let used = shown(&usage(base, namespace, &quota));
        let status = json!({"hard": quota.at(&["spec", "hard"]).unwrap_or_else(|| json!({})), "used": used});
        if quota.at(&["status"]).as_ref() == Some(&status) {
            continue;
        }
        let mut value = quota.full();
        tree::object(&mut value).insert("status".into(), status);
        let write = Write::Update { table: known.table.clone(), prev: quota.clone(), value };
        if let Err(Refused::Changed(_)) = base.store.commit(vec![write]) {
            // Its own event brings the loop back.
            known.wake.notify_one();
        }
    }
}

fn within(table: &Table, namespace: &str) -> Vec<Arc<Obj>> {
    let prefix = format!("{namespace}/");
    let range = Range { prefix: &prefix, ..Range::default() };
    table.page(range, u64::MAX).0.map(|p| p.items).unwrap_or_default()
}

/// The resource whose unit an amount has: `requests.cpu` is counted as `cpu`.
fn unit(name: &str) -> &str {
    if name.ends_with(CLASS_STORAGE) {
        return "storage";
    }
    name.strip_prefix("requests.").or_else(|| name.strip_prefix("limits.")).unwrap_or(name)
}

fn amount(name: &str, value: &Value) -> i64 {
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_string);
    quantity::parse(unit(name), &text).unwrap_or(0)
}

fn shown(amounts: &Amounts) -> Value {
    let text = |(name, n): (&String, &i64)| (name.clone(), quantity::format(unit(name), *n).into());
    Value::Object(amounts.iter().map(text).collect())
}

/// What a quota allows.
fn hard(quota: &Obj) -> Amounts {
    let hard = quota.at(&["spec", "hard"]).unwrap_or_default();
    hard.as_object().into_iter().flatten().map(|(k, v)| (k.clone(), amount(k, v))).collect()
}

/// Everything that exists and counts against a quota.
fn usage(base: &Base, namespace: &str, quota: &Obj) -> Amounts {
    let mut used: Amounts = hard(quota).into_keys().map(|name| (name, 0)).collect();
    for table in base.store.tables() {
        let (group, plural) = table.name.split_once('/').unwrap_or(("", &table.name));
        if !used.keys().any(|name| concerns(name, group, plural)) {
            continue;
        }
        for obj in within(&table, namespace) {
            let value = obj.value();
            if !in_scope(quota, (group, plural), &value) {
                continue;
            }
            for (name, n) in &mut used {
                *n = n.saturating_add(cost(name, group, plural, &value));
            }
        }
    }
    used
}

/// A name that bounds what one class is asked for: the class, and the name without it.
fn of_class(name: &str) -> Option<(&str, &str)> {
    CLASSED.iter().find_map(|kept| Some((name.strip_suffix(kept)?.strip_suffix('.')?, *kept)))
}

/// True when objects of a kind can count against a name.
fn concerns(name: &str, group: &str, plural: &str) -> bool {
    if let Some((_, kept)) = of_class(name) {
        let (of, kind) = if kept == DEVICES { ("resource.k8s.io", "resourceclaims") } else { ("", CLAIMS) };
        return (group, plural) == (of, kind);
    }
    match name.strip_prefix("count/") {
        Some(kind) => kind.split_once('.').unwrap_or((kind, "")) == (plural, group),
        None if !group.is_empty() => false,
        None if COUNTED.contains(&name) => name == plural,
        None if name.starts_with("services.") => plural == "services",
        None if name == "requests.storage" => plural == "persistentvolumeclaims",
        None => plural == "pods",
    }
}

/// What one object that is in the scopes of a quota counts against a name of it.
fn cost(name: &str, group: &str, plural: &str, value: &Value) -> i64 {
    if !concerns(name, group, plural) {
        return 0;
    }
    if let Some((class, kept)) = of_class(name) {
        return match kept {
            DEVICES => devices(value, class),
            _ if class_of_claim(value) != class => 0,
            CLASS_STORAGE => storage(value),
            _ => 1,
        };
    }
    let kind = tree::text(value, &["spec", "type"]);
    match name {
        _ if name.starts_with("count/") => 1,
        "services.loadbalancers" => i64::from(kind == "LoadBalancer"),
        "services.nodeports" => node_ports(value),
        "requests.storage" => storage(value),
        _ if plural != "pods" => 1,
        _ if matches!(tree::text(value, &["status", "phase"]), "Succeeded" | "Failed") => 0,
        "pods" => 1,
        _ => pod_amount(value, name),
    }
}

/// What a claim asks for, or what its volume is already grown to.
fn storage(claim: &Value) -> i64 {
    let of = |path: &[&str]| tree::at(claim, path).map_or(0, |n| amount("storage", n));
    of(&["spec", "resources", "requests", "storage"]).max(of(&["status", "allocatedResources", "storage"]))
}

/// The node ports that a service gets. One for a load balancer may have them declined, but for those it names.
fn node_ports(service: &Value) -> i64 {
    let kind = tree::text(service, &["spec", "type"]);
    let declined = tree::at(service, &["spec", "allocateLoadBalancerNodePorts"]) == Some(&Value::Bool(false));
    let ports = tree::list(service, &["spec", "ports"]).iter();
    let n = match kind {
        "LoadBalancer" if declined => ports.filter(|p| tree::number(p, &["nodePort"]) != 0).count(),
        "NodePort" | "LoadBalancer" => ports.len(),
        _ => 0,
    };
    i64::try_from(n).unwrap_or(i64::MAX)
}

/// The storage class a claim asks for.
pub fn class_of_claim(claim: &Value) -> &str {
    match tree::text(claim, &["metadata", "annotations", "volume.beta.kubernetes.io/storage-class"]) {
        "" => tree::text(claim, &["spec", "storageClassName"]),
        annotated => annotated,
    }
}

/// The devices of a class that a claim can get at most.
fn devices(claim: &Value, class: &str) -> i64 {
    let of = |request: &Value| match (tree::text(request, &["deviceClassName"]) == class, request) {
        (false, _) => 0,
        (true, request) if tree::text(request, &["allocationMode"]) == "All" => MOST_DEVICES,
        (true, request) => tree::at(request, &["count"]).and_then(Value::as_i64).unwrap_or(1),
    };
    let one = |request: &Value| match request.get("exactly").filter(|e| e.is_object()) {
        Some(exactly) => of(exactly),
        None => tree::list(request, &["firstAvailable"]).iter().map(of).max().unwrap_or(0),
    };
    tree::list(claim, &["spec", "devices", "requests"]).iter().map(one).fold(0, i64::saturating_add)
}

/// True for a pod that looks for, or avoids, pods of other namespaces.
fn crosses_namespaces(pod: &Value) -> bool {
    let names_others = |term: &Value| {
        !tree::list(term, &["namespaces"]).is_empty()
            || term.get("namespaceSelector").is_some_and(|s| !s.is_null())
    };
    ["podAffinity", "podAntiAffinity"].iter().any(|kind| {
        let part = |key: &str| tree::list(pod, &["spec", "affinity", kind, key]).iter();
        part("requiredDuringSchedulingIgnoredDuringExecution").any(names_others)
            || part("preferredDuringSchedulingIgnoredDuringExecution")
                .any(|w| w.get("podAffinityTerm").is_some_and(names_others))
    })
}

/// Where a container has the amount of a quota's name: `limits.memory`, `requests.memory`, or `memory`, which means
/// requests.
fn stated<'a>(container: &'a Value, name: &str) -> Option<&'a Value> {
    let part = if name.starts_with("limits.") { "limits" } else { "requests" };
    tree::at(container, &["resources", part, unit(name)])
}

/// What the pod asks for in all.
fn pod_amount(pod: &Value, name: &str) -> i64 {
    let part = if name.starts_with("limits.") { Part::Limits } else { Part::Requests };
    pod.get("spec").map_or(0, |spec| amounts::of_pod(spec, part, unit(name)))
}

/// A quota with scopes counts the objects that are in all of them. Only pods and claims are in any.
fn in_scope(quota: &Obj, kind: (&str, &str), value: &Value) -> bool {
    let holds = |scope: &str, operator: &str, values: &[Value]| match kind {
        ("", "pods") => pod_is_in(value, scope, operator, values),
        ("", CLAIMS) if scope == "VolumeAttributesClass" => {
            let names = attributes_classes(value);
            match names.is_empty() {
                true => chosen("", operator, values),
                false => names.into_iter().any(|name| chosen(name, operator, values)),
            }
        }
        _ => false,
    };
    let plain = quota.list(&["spec", "scopes"]);
    let selected = quota.list(&["spec", "scopeSelector", "matchExpressions"]);
    plain.iter().all(|s| holds(s.as_str().unwrap_or_default(), "Exists", &[]))
        && selected.iter().all(|e| {
            holds(tree::text(e, &["scopeName"]), tree::text(e, &["operator"]), tree::list(e, &["values"]))
        })
}

fn pod_is_in(pod: &Value, scope: &str, operator: &str, values: &[Value]) -> bool {
    let ends = || tree::at(pod, &["spec", "activeDeadlineSeconds"]).is_some_and(|v| !v.is_null());
    let best_effort =
        || pod.get("spec").and_then(Value::as_object).is_none_or(|spec| qos(spec) == "BestEffort");
    match scope {
        "Terminating" => ends(),
        "NotTerminating" => !ends(),
        "BestEffort" => best_effort(),
        "NotBestEffort" => !best_effort(),
        "CrossNamespacePodAffinity" => crosses_namespaces(pod),
        "PriorityClass" => chosen(tree::text(pod, &["spec", "priorityClassName"]), operator, values),
        _ => false,
    }
}

/// What a selector says to a class; "" is none.
fn chosen(class: &str, operator: &str, values: &[Value]) -> bool {
    match operator {
        "In" => values.iter().any(|v| v == class),
        "NotIn" => !values.iter().any(|v| v == class),
        "DoesNotExist" => class.is_empty(),
        _ => !class.is_empty(),
    }
}

/// The classes of attributes that a claim asks for, has, or is on its way to.
fn attributes_classes(claim: &Value) -> BTreeSet<&str> {
    let paths: [&[&str]; 3] = [
        &["spec", "volumeAttributesClassName"],
        &["status", "currentVolumeAttributesClassName"],
        &["status", "modifyVolumeStatus", "targetVolumeAttributesClassName"],
    ];
    paths.into_iter().map(|path| tree::text(claim, path)).filter(|name| !name.is_empty()).collect()
}

/// The writes that charge a new object to the quotas of its namespace, to be committed with it.
///
/// # Errors
/// 403 if a quota is exceeded, or if the object does not say how much it uses.
pub fn charge(
    base: &Base,
    known: &Quotas,
    r: &Resource,
    namespace: &str,
    value: &Value,
) -> ApiResult<Vec<Write>> {
    if namespace.is_empty() || known.table.is_empty() {
        return Ok(Vec::new());
    }
    charge_more(base, known, r, namespace, None, value)
}

/// The same for what a changed object uses more than before.
///
/// # Errors
/// 403 if a quota is exceeded.
pub fn charge_change(
    base: &Base,
    known: &Quotas,
    r: &Resource,
    namespace: &str,
    old: &Value,
    new: &Value,
) -> ApiResult<Vec<Write>> {
    let grows = r.is("", "pods") || r.is("", "services") || r.is("", CLAIMS);
    if !grows || known.table.is_empty() || old.get("spec") == new.get("spec") {
        return Ok(Vec::new());
    }
    charge_more(base, known, r, namespace, Some(old), new)
}

fn charge_more(
    base: &Base,
    known: &Quotas,
    r: &Resource,
    namespace: &str,
    before: Option<&Value>,
    value: &Value,
) -> ApiResult<Vec<Write>> {
    let mut writes = Vec::new();
    let (name, (group, plural)) = (tree::meta_text(value, "name"), (r.group.as_str(), r.plural.as_str()));
    for quota in known.of(namespace) {
        let hard = hard(&quota);
        let mine = |key: &&String| concerns(key, group, plural);
        if !in_scope(&quota, (group, plural), value) {
            continue;
        }
        if before.is_none() && plural == "pods" && group.is_empty() {
            unstated(r, &quota, hard.keys().filter(mine), value)?;
        }
        // What was not in the scopes before was not charged.
        let before = before.filter(|old| in_scope(&quota, (group, plural), old));
        let asked: Amounts = hard
            .keys()
            .filter(mine)
            .map(|key| {
                let of = |value: &Value| cost(key, group, plural, value);
                (key.clone(), of(value) - before.map_or(0, of))
            })
            .filter(|(_, n)| *n > 0)
            .collect();
        if asked.is_empty() {
            continue;
        }
        let mut used = match quota.at(&["status", "used"]) {
            Some(Value::Object(known)) => known.iter().map(|(k, v)| (k.clone(), amount(k, v))).collect(),
            _ => usage(base, namespace, &quota),
        };
        let over: Vec<&String> = asked
            .iter()
            .filter(|(key, n)| used.get(*key).copied().unwrap_or(0).saturating_add(**n) > hard[*key])
            .map(|(key, _)| key)
            .collect();
        if !over.is_empty() {
            return Err(ApiError::forbidden(r, name, &exceeded(&quota, &over, &asked, &used)));
        }
        for (key, n) in asked {
            let place: &mut i64 = used.entry(key).or_insert(0);
            *place = place.saturating_add(n);
        }
        let mut changed = quota.full();
        let status = tree::child(&mut changed, "status");
        status.insert("hard".into(), quota.at(&["spec", "hard"]).unwrap_or_default());
        status.insert("used".into(), shown(&used));
        writes.push(Write::Update { table: known.table.clone(), prev: quota, value: changed });
    }
    Ok(writes)
}

/// The words for the names of a quota of which more is asked for than is left. A bound is told as it was written.
fn exceeded(quota: &Obj, over: &[&String], asked: &Amounts, used: &Amounts) -> String {
    let list = |amounts: &Amounts| {
        let text = |key: &&String| {
            let n = amounts.get(*key).copied().unwrap_or(0);
            format!("{key}={}", quantity::format(unit(key), n))
        };
        over.iter().map(text).collect::<Vec<_>>().join(",")
    };
    let bounds = quota.at(&["spec", "hard"]).unwrap_or_default();
    let bound = |key: &&String| {
        let written = bounds.get(key.as_str()).unwrap_or(&Value::Null);
        format!("{key}={}", written.as_str().map_or_else(|| written.to_string(), str::to_string))
    };
    format!(
        "exceeded quota: {}, requested: {}, used: {}, limited: {}",
        quota.meta_text("name"),
        list(asked),
        list(used),
        over.iter().map(bound).collect::<Vec<_>>().join(",")
    )
}

/// A quota on an amount asks every container to state it, unless the pod states something as a whole.
fn unstated<'a>(
    r: &Resource,
    quota: &Obj,
    names: impl Iterator<Item = &'a String>,
    pod: &Value,
) -> ApiResult<()> {
    if pod.get("spec").and_then(Value::as_object).is_some_and(amounts::is_whole) {
        return Ok(());
    }
    let lists = ["containers", "initContainers"].map(|list| tree::list(pod, &["spec", list]));
    let mut missing: BTreeMap<&String, BTreeSet<&str>> = BTreeMap::new();
    for name in names.filter(|n| matches!(unit(n), "cpu" | "memory") && !n.starts_with("count/")) {
        for container in lists.into_iter().flatten().filter(|c| stated(c, name).is_none()) {
            missing.entry(name).or_default().insert(tree::text(container, &["name"]));
        }
    }
    if missing.is_empty() {
        return Ok(());
    }
    let text = |(name, containers): (&String, BTreeSet<&str>)| {
        format!("{name} for: {}", Vec::from_iter(containers).join(","))
    };
    let list: Vec<String> = missing.into_iter().map(text).collect();
    let why = format!("failed quota: {}: must specify {}", quota.meta_text("name"), list.join("; "));
    Err(ApiError::forbidden(r, tree::meta_text(pod, "name"), &why))
}
