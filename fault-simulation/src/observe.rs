//! Watches the fleet from outside, checks every change, and writes the run log.
//!
//! Its watches meet no faults. Within one server the order of changes is exact. Between two servers it is that of
//! the virtual clock, on which requests take time.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use fleet_api::names;
use fleet_check::{Judge, ObservedChange, Plain, Violation};
use futures::StreamExt;
use kube::{Api, Client, ResourceExt, api::ApiResource, core::GroupVersionKind, runtime::watcher};
use serde_json::{Map, Value, json};
use tokio::{sync::Notify, task::JoinSet, time::Instant};

/// Changes of one object in one window above which something runs in circles.
const CIRCLES: u32 = 1_000;
const WINDOW_MS: u64 = 10_000;

/// One line of the run log.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    pub at_ms: u64,
    pub event: &'static str,
    /// `namespace/name`; empty for what is not about one job.
    pub job: String,
    pub fields: Map<String, Value>,
}

impl Line {
    /// The line as the log's contract has it.
    pub fn to_json(&self) -> Value {
        let mut line = json!({"t": self.at_ms as f64 / 1000.0, "event": self.event});
        if !self.job.is_empty() {
            line["job"] = self.job.as_str().into();
        }
        if let Some(object) = line.as_object_mut() {
            object.extend(self.fields.clone());
        }
        line
    }
}

/// A broken invariant, and when.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ObservedViolation {
    pub at_ms: u64,
    pub violation: Violation,
}

#[derive(Default)]
struct Seen {
    judge: Judge,
    lines: Vec<Line>,
    found: Vec<ObservedViolation>,
    known: BTreeSet<Violation>,
    bindings: BTreeMap<String, Arc<Value>>,
    reservations: BTreeMap<String, String>,
    /// Runs by uid: pods that run, and whether the start was told.
    gangs: BTreeMap<String, (BTreeSet<String>, bool)>,
    /// Epochs of runs by uid.
    epochs: BTreeMap<String, i64>,
    fenced: BTreeSet<(String, String)>,
    /// By object the window in which it changed last, and how often.
    changes: BTreeMap<String, (u64, u32)>,
    in_circles: bool,
    circles: Arc<Notify>,
}

/// The watches of one run; dropped, they end.
pub struct Observer {
    seen: Arc<Mutex<Seen>>,
    began: Instant,
    _watches: JoinSet<()>,
}

/// Kinds that have pods.
pub(super) const JOBS: [(&str, &str); 6] = [
    ("kubeflow.org/v1", "PyTorchJob"),
    ("kubeflow.org/v1", "TFJob"),
    ("kubeflow.org/v2beta1", "MPIJob"),
    ("batch.volcano.sh/v1alpha1", "Job"),
    ("batch/v1", "Job"),
    ("apps/v1", "Deployment"),
];

/// The resource of a kind.
pub fn resource(api_version: &str, kind: &str) -> ApiResource {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind))
}

impl Observer {
    /// Starts watching.
    ///
    /// `cells`: there are virtual clusters, so that nodes are watched too.
    pub fn start(
        hub: &Client,
        members: &BTreeMap<String, Client>,
        judge: Judge,
        cells: bool,
        began: Instant,
    ) -> Self {
        let seen = Arc::new(Mutex::new(Seen { judge, ..Seen::default() }));
        let mut watches = JoinSet::new();
        let mut follow =
            |client: &Client, cluster: Option<&String>, api_version: &'static str, kind: &'static str| {
                let api = Api::all_with(client.clone(), &resource(api_version, kind));
                watches.spawn(watch(api, seen.clone(), cluster.cloned(), (api_version, kind), began));
            };
        // Jobs before their bindings, so that the leaf that a label names is known.
        for (api_version, kind) in JOBS {
            follow(hub, None, api_version, kind);
        }
        follow(hub, None, "scheduling.sigs.k8s.io/v1beta1", "ElasticQuotaTree");
        // Clusters before bindings, so that it is known whether a run's cluster is lost when the hub leaves it.
        follow(hub, None, "fleet.dev/v1alpha1", "Cluster");
        if cells {
            follow(hub, None, "fleet.dev/v1alpha1", "CellConfiguration");
        }
        follow(hub, None, "fleet.dev/v1alpha1", "ResourceBinding");
        follow(hub, None, "fleet.dev/v1alpha1", "Reservation");
        for (name, client) in members {
            // Runs before their pods, so that a pod's run is known.
            for (api_version, kind) in JOBS {
                follow(client, Some(name), api_version, kind);
            }
            follow(client, Some(name), "apps/v1", "ReplicaSet");
            if cells {
                follow(client, Some(name), "v1", "Node");
            }
            follow(client, Some(name), "fleet.dev/v1alpha1", "Reservation");
            follow(client, Some(name), "v1", "Pod");
        }
        Self { seen, began, _watches: watches }
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a line of the one who drives the run.
    pub fn tell(&self, event: &'static str, job: &str, fields: Value) {
        let at_ms = ms(self.began);
        self.seen().tell(at_ms, event, job, fields);
    }

    pub fn add(&self, violation: Violation) {
        let at_ms = ms(self.began);
        self.seen().broken(at_ms, violation);
    }

    /// The hub was restored to an older state.
    pub fn goes_back(&self) {
        self.seen().judge.hub_goes_back();
    }

    /// What has lasted too long by now.
    pub fn look(&self) {
        let at_ms = ms(self.began);
        let mut seen = self.seen();
        for violation in seen.judge.until(at_ms) {
            seen.broken(at_ms, violation);
        }
    }

    pub fn found(&self) -> Vec<ObservedViolation> {
        self.seen().found.clone()
    }

    pub fn lines(&self) -> Vec<Line> {
        self.seen().lines.clone()
    }

    /// Whether a job is bound and has not ended.
    pub fn has_runs(&self) -> bool {
        let bound = |binding: &Arc<Value>| {
            !binding["spec"]["clusters"][0].is_null() && binding["status"]["result"].is_null()
        };
        self.seen().bindings.values().any(bound)
    }

    /// An object is written again and again without a pause: such a run comes to no end in any time.
    pub fn runs_in_circles(&self) -> bool {
        self.seen().in_circles
    }

    /// Told when [`Self::runs_in_circles`] becomes true.
    pub fn circles(&self) -> Arc<Notify> {
        self.seen().circles.clone()
    }

    /// How many lines there are, to see whether anything still happens.
    pub fn count(&self) -> usize {
        self.seen().lines.len()
    }
}

fn ms(began: Instant) -> u64 {
    u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX)
}

async fn watch(
    api: Api<Plain>,
    seen: Arc<Mutex<Seen>>,
    cluster: Option<String>,
    (api_version, kind): (&'static str, &'static str),
    began: Instant,
) {
    let mut events = Box::pin(watcher(api, watcher::Config::default()));
    let note = |object: &Arc<Value>, gone: bool| {
        let change = ObservedChange { cluster: cluster.clone(), object: object.clone(), gone };
        seen.lock().unwrap_or_else(PoisonError::into_inner).see(ms(began), kind, change);
    };
    let mut standing: BTreeMap<(Option<String>, String), Arc<Value>> = BTreeMap::new();
    let mut listed = BTreeMap::new();
    let read = |object: Plain| {
        ((object.namespace(), object.name_any()), Arc::new(object.of_kind(api_version, kind)))
    };
    while let Some(event) = events.next().await {
        match event {
            // Only a watch that fell out of the server's log ends; it lists anew.
            Err(_) => tokio::task::yield_now().await,
            Ok(watcher::Event::Init) => listed.clear(),
            Ok(watcher::Event::InitApply(object)) => {
                let (key, object) = read(object);
                note(&object, false);
                listed.insert(key, object);
            }
            Ok(watcher::Event::InitDone) => {
                for (key, object) in &standing {
                    if !listed.contains_key(key) {
                        note(object, true);
                    }
                }
                standing = std::mem::take(&mut listed);
            }
            Ok(watcher::Event::Apply(object)) => {
                let (key, object) = read(object);
                note(&object, false);
                standing.insert(key, object);
            }
            Ok(watcher::Event::Delete(object)) => {
                let (key, object) = read(object);
                note(&object, true);
                standing.remove(&key);
            }
        }
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// For whom an attempt made room (`namespace/name` of the binding), by which rule, and how many seconds of work
/// that cost.
fn taker(attempt: &Value) -> Option<(&str, &str, i64)> {
    if attempt["reason"] != "Preempted" {
        return None;
    }
    let (taker, rest) = text(&attempt["message"]).strip_prefix("preempted by ")?.split_once(" in ")?;
    let (_, rule) = rest.split_once(" (")?;
    let (rule, rest) = rule.split_once(')')?;
    let lost_s = rest.trim_start_matches("; ").split(' ').next().and_then(|text| text.parse().ok());
    Some((taker, rule, lost_s.unwrap_or(0)))
}

impl Seen {
    fn tell(&mut self, at_ms: u64, event: &'static str, job: &str, fields: Value) {
        let fields = fields.as_object().cloned().unwrap_or_default();
        self.lines.push(Line { at_ms, event, job: job.to_string(), fields });
    }

    fn broken(&mut self, at_ms: u64, violation: Violation) {
        if self.known.insert(violation.clone()) {
            self.tell(
                at_ms,
                "Violation",
                "",
                json!({"invariant": violation.invariant, "what": violation.what}),
            );
            self.found.push(ObservedViolation { at_ms, violation });
        }
    }

    fn see(&mut self, at_ms: u64, kind: &str, change: ObservedChange) {
        let meta = &change.object["metadata"];
        tracing::trace!(
            at_ms,
            cluster = change.cluster.as_deref().unwrap_or("hub"),
            kind,
            name = text(&meta["name"]),
            uid = text(&meta["uid"]),
            ends = !meta["deletionTimestamp"].is_null(),
            gone = change.gone,
            phase = text(&change.object["status"]["phase"]),
            "seen"
        );
        self.count(at_ms, kind, &change);
        for violation in self.judge.see_at(at_ms, &change) {
            self.broken(at_ms, violation);
        }
        match (kind, &change.cluster) {
            ("ResourceBinding", None) => self.see_binding(at_ms, &change),
            ("Reservation", None) => self.see_reservation(at_ms, &change),
            ("Pod", Some(_)) => self.see_pod(at_ms, &change),
            ("Reservation" | "ReplicaSet" | "Node", Some(_)) | (_, None) => {}
            (_, Some(_)) => self.see_run(at_ms, &change),
        }
    }

    /// 9: whatever fails is tried again after a pause.
    fn count(&mut self, at_ms: u64, kind: &str, change: &ObservedChange) {
        let meta = &change.object["metadata"];
        let (window, count) = self.changes.entry(text(&meta["uid"]).to_string()).or_default();
        let now = at_ms / WINDOW_MS;
        *count = if *window == now { *count + 1 } else { 1 };
        *window = now;
        if *count > CIRCLES {
            self.in_circles = true;
            self.circles.notify_one();
            let place = change.cluster.as_deref().unwrap_or("hub");
            let (namespace, name) = (text(&meta["namespace"]), text(&meta["name"]));
            let what =
                format!("{kind} {namespace}/{name} in {place} is written again and again without a pause");
            self.broken(at_ms, Violation { invariant: 9, what });
        }
    }

    fn see_binding(&mut self, at_ms: u64, change: &ObservedChange) {
        let (now, uid) = (&*change.object, text(&change.object["metadata"]["uid"]).to_string());
        let resource = &now["spec"]["resource"];
        let job = format!("{}/{}", text(&resource["namespace"]), text(&resource["name"]));
        if change.gone {
            self.bindings.remove(&uid);
            return;
        }
        let old = self.bindings.insert(uid, change.object.clone()).unwrap_or_default();
        let condition = |object: &Value, kind: &str| -> Value {
            let all = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
            all.into_iter().find(|condition| condition["type"] == kind).unwrap_or_default()
        };
        let target = |object: &Value| text(&object["spec"]["clusters"][0]["name"]).to_string();
        let suspended = |object: &Value| object["spec"]["suspension"]["scheduling"] == true;
        let (from, to, epoch) = (target(&old), target(now), &now["spec"]["epoch"]);
        let (was, is) = (condition(&old, "Queuing"), condition(now, "Queuing"));
        if is["status"] == "True" && was["status"] != "True" && old["status"]["attempts"].is_null() {
            self.tell(at_ms, "Queued", &job, json!({}));
        }
        let (was, is) = (condition(&old, "Scheduled"), condition(now, "Scheduled"));
        if is["status"] == "False" && (is["reason"] != was["reason"] || is["message"] != was["message"]) {
            self.tell(at_ms, "Pending", &job, json!({"reason": is["reason"], "message": is["message"]}));
        }
        if to != from && !to.is_empty() {
            if suspended(&old) {
                self.tell(at_ms, "Admitted", &job, json!({}));
            }
            let components = &now["spec"]["clusters"][0]["components"];
            self.tell(at_ms, "Bound", &job, json!({"cluster": to, "epoch": epoch, "components": components}));
        }
        let cells = |object: &Value| object["spec"]["cells"]["groups"].clone();
        if cells(now) != cells(&old) {
            self.tell(at_ms, "Cells", &job, json!({"cluster": to, "epoch": epoch, "groups": cells(now)}));
        }
        let attempts = |object: &Value| object["status"]["attempts"].as_array().map_or(0, Vec::len);
        for attempt in now["status"]["attempts"].as_array().into_iter().flatten().skip(attempts(&old)) {
            let mut fields = json!({"cluster": attempt["cluster"], "epoch": attempt["epoch"],
                "reason": attempt["reason"], "message": attempt["message"]});
            let taker = taker(attempt);
            if let Some((binding, rule, lost_s)) = taker {
                fields["by"] = self.job_of(binding).into();
                fields["lost_s"] = lost_s.into();
                fields["reason"] = rule.into();
            }
            self.tell(at_ms, if taker.is_some() { "Preempted" } else { "Evicted" }, &job, fields);
        }
        if to.is_empty() && !from.is_empty() && suspended(now) {
            let last = now["status"]["attempts"].as_array().and_then(|all| all.last()).cloned();
            let reason = last.map(|last| last["reason"].clone()).unwrap_or_default();
            self.tell(at_ms, "Requeued", &job, json!({"reason": reason}));
        }
        let result = &now["status"]["result"];
        if !result.is_null() && old["status"]["result"].is_null() {
            let all = now["status"]["attempts"].as_array().into_iter().flatten();
            let before = all.filter(|attempt| attempt["epoch"] != result["epoch"]).count();
            let fields = json!({"cluster": result["cluster"], "epoch": result["epoch"],
                "result": result["outcome"], "attempts": before + 1});
            self.tell(at_ms, "Finished", &job, fields);
        }
    }

    /// The job of a binding, by `namespace/name`; the binding's own name where it is not known.
    fn job_of(&self, binding: &str) -> String {
        let is = |known: &&Arc<Value>| {
            let meta = &known["metadata"];
            binding == format!("{}/{}", text(&meta["namespace"]), text(&meta["name"]))
        };
        let resource = self.bindings.values().find(is).map(|known| &known["spec"]["resource"]);
        resource
            .map_or(binding.to_string(), |job| format!("{}/{}", text(&job["namespace"]), text(&job["name"])))
    }

    fn see_reservation(&mut self, at_ms: u64, change: &ObservedChange) {
        let object = &change.object;
        let uid = text(&object["metadata"]["uid"]).to_string();
        if change.gone {
            self.reservations.remove(&uid);
            return;
        }
        let phase = text(&object["status"]["phase"]).to_string();
        if self.reservations.insert(uid, phase.clone()).as_ref() == Some(&phase) {
            return;
        }
        let binding = &object["spec"]["binding"];
        let known = self.bindings.get(text(&binding["uid"])).map(|known| &known["spec"]["resource"]);
        let job = known.map(|job| format!("{}/{}", text(&job["namespace"]), text(&job["name"])));
        let namespace = text(&object["metadata"]["namespace"]);
        let cluster = namespace.strip_prefix(names::CLUSTER_NAMESPACE_PREFIX).unwrap_or(namespace);
        let status = &object["status"];
        let (event, fields) = match phase.as_str() {
            "Reserved" => (
                "Reserved",
                json!({"cluster": cluster, "epoch": object["spec"]["epoch"], "nodes": status["nodes"]}),
            ),
            "Refused" => {
                let fields = json!({"cluster": cluster, "epoch": object["spec"]["epoch"], "message": status["message"]});
                ("ReservationRefused", fields)
            }
            _ => return,
        };
        self.tell(at_ms, event, &job.unwrap_or_default(), fields);
    }

    fn see_run(&mut self, at_ms: u64, change: &ObservedChange) {
        let meta = &change.object["metadata"];
        let epoch = text(&meta["annotations"][names::EPOCH_ANNOTATION]).parse::<i64>();
        let Ok(epoch) = epoch else { return };
        let uid = text(&meta["uid"]).to_string();
        self.epochs.insert(uid.clone(), epoch);
        let fenced = &meta["annotations"]["fleet.dev/fenced"];
        if !fenced.is_null() && !change.gone && self.fenced.insert((uid, text(fenced).to_string())) {
            let job = format!("{}/{}", text(&meta["namespace"]), text(&meta["name"]));
            self.tell(at_ms, "Fenced", &job, json!({"cluster": change.cluster, "epoch": epoch}));
        }
    }

    fn see_pod(&mut self, at_ms: u64, change: &ObservedChange) {
        let pod = &change.object;
        let meta = &pod["metadata"];
        let owner = &meta["ownerReferences"][0];
        let run = text(&owner["uid"]).to_string();
        let Some(epoch) = self.epochs.get(&run).copied() else { return };
        let (pods, told) = self.gangs.entry(run).or_default();
        let name = text(&meta["name"]).to_string();
        if change.gone || pod["status"]["phase"] != "Running" {
            pods.remove(&name);
            return;
        }
        pods.insert(name);
        let size = text(&meta["annotations"][names::GANG_SIZE_ANNOTATION]).parse().unwrap_or(1);
        if pods.len() >= size && !*told {
            *told = true;
            let job = format!("{}/{}", text(&meta["namespace"]), text(&owner["name"]));
            self.tell(at_ms, "Started", &job, json!({"cluster": change.cluster, "epoch": epoch}));
        }
    }
}
