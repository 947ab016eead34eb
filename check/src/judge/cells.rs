//! 10: cells are given once and promises are kept, judged by the devices that pods really have.
//!
//! A pod has the leaf cells that its annotation names, on its node, until it has ended. What a virtual cluster must be
//! able to start is stated by a rule that is weaker than any allocator: a cell of a promised type with nobody of that
//! virtual cluster on it will do.

mod moved;

use std::collections::{BTreeMap, BTreeSet};

use fleet_api::names;
use serde_json::Value;

use super::{Judge, Known, UNDER_WAY_MS};
use crate::{
    Violation,
    cell_config::{Config, Node, Tree},
    facts::{Pod, job_of},
    quota::{leaf_label, queues},
    requests,
    violation::broken,
};

/// HiveD's annotation on a pod: the numbers of its devices.
const ISOLATION: &str = "hivedscheduler.microsoft.com/pod-leaf-cell-isolation";
const DEVICES: &str = "nvidia.com/gpu";
/// Bindings of pods may be under way for so long when a node becomes one of cells.
const BINDS_UNDER_WAY_MS: u64 = 90_000;
const DEFAULT_CLASS: i64 = 10;

#[derive(Debug, Default)]
pub(super) struct Cells {
    /// What is in force as far as that is known, and since when. The first one has always been.
    config: Option<Config>,
    since_ms: u64,
    spec: Value,
    changes: u32,
    /// What an administrator wrote last, in force or not yet, and when.
    written: Value,
    written_ms: u64,
    homes: BTreeMap<String, BTreeSet<String>>,
    bad: BTreeSet<Node>,
    /// Clusters that are away, or tainted.
    closed: BTreeSet<String>,
    /// Live pods with a node that ask for devices, by uid.
    pods: BTreeMap<String, Placed>,
    /// Nodes that members keep for cells, by cluster and reservation, and since when.
    kept: BTreeMap<(String, String), (u64, BTreeSet<Node>)>,
    /// Those that the hub has released. A member gives the nodes to others before its copy is gone.
    released: BTreeSet<(String, String)>,
    /// Jobs of the hub.
    jobs: BTreeMap<String, Value>,
    /// The same as they were when their bindings were bound last: a run keeps the class with which it began.
    bound_jobs: BTreeMap<String, Value>,
    /// Bindings whose groups lost their promise, with the epoch.
    lost: BTreeSet<(String, i64)>,
}

/// A pod on its node.
#[derive(Clone, Debug)]
struct Placed {
    /// For people.
    name: String,
    node: Node,
    leaves: BTreeSet<i64>,
    run: String,
    bound_ms: u64,
}

/// What a job asks of its virtual cluster.
#[derive(Debug)]
struct CellDemand {
    vc: String,
    class: i64,
    pods: usize,
    /// Leaf cells of each pod.
    cells: usize,
    pin: Option<String>,
    leaf_type: Option<String>,
    within: Option<String>,
    whole: bool,
    lazy: bool,
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// What a label or an annotation of a job says.
fn word<'j>(job: &'j Value, name: &str) -> Option<&'j str> {
    let meta = &job["metadata"];
    meta["labels"][name].as_str().or_else(|| meta["annotations"][name].as_str())
}

/// -1 is opportunistic; nothing where it cannot be read.
fn class(job: &Value) -> Option<i64> {
    match word(job, names::CLASS_LABEL) {
        None => Some(DEFAULT_CLASS),
        Some("oppo") => Some(-1),
        Some("test") => Some(10),
        Some("prod") => Some(100),
        Some(number) => number.parse().ok(),
    }
}

impl CellDemand {
    fn read(job: &Value, binding: &Value) -> Option<Self> {
        let word = |name: &str| word(job, name).map(str::to_string);
        let components = binding["spec"]["components"].as_array()?;
        let live = components.iter().filter(|component| component["replicas"].as_i64() > Some(0));
        let devices: BTreeSet<i64> =
            live.clone().map(|c| requests::amounts(&c["request"]).get(DEVICES)).collect();
        // Pods of several sizes are not judged.
        let cells = devices.first().filter(|_| devices.len() == 1)?;
        let cells = word(names::CELLS_PER_POD_ANNOTATION).map_or(Some(*cells), |cells| cells.parse().ok())?;
        Some(Self {
            vc: word(names::VIRTUAL_CLUSTER_LABEL)?,
            class: class(job)?,
            pods: live
                .filter_map(|c| usize::try_from(c["replicas"].as_i64()?).ok())
                .fold(0, usize::saturating_add),
            cells: usize::try_from(cells).ok().filter(|cells| *cells > 0)?,
            pin: word(names::PINNED_CELL_ANNOTATION),
            leaf_type: word(names::LEAF_CELL_TYPE_ANNOTATION),
            within: word(names::WITHIN_ONE_CELL_ANNOTATION),
            whole: word(names::GANG_ALLOCATION_ANNOTATION).as_deref() != Some("false"),
            lazy: word(names::LAZY_PREEMPTION_ANNOTATION).as_deref() == Some("true"),
        })
    }
}

impl Judge {
    pub(super) fn see_cell_job(&mut self, key: String, job: &Value) {
        if job["metadata"]["labels"][names::VIRTUAL_CLUSTER_LABEL].is_string() {
            self.cells.jobs.insert(key, job.clone());
        }
    }

    pub(super) fn see_configuration(&mut self, object: &Value, gone: bool) {
        let written = if gone { Value::Null } else { object["spec"].clone() };
        if self.cells.written != written {
            (self.cells.written, self.cells.written_ms) = (written, self.now_ms);
        }
        let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
        let in_force = conditions.into_iter().any(|c| {
            c["type"] == "Valid"
                && c["status"] == "True"
                && c["observedGeneration"] == object["metadata"]["generation"]
        });
        let spec = if in_force && !gone { object["spec"].clone() } else { Value::Null };
        if self.cells.spec != spec {
            (self.cells.since_ms, self.cells.changes) =
                if self.cells.changes == 0 { (0, 1) } else { (self.now_ms, self.cells.changes + 1) };
            self.cells.spec = spec;
            self.read_configuration();
        }
    }

    fn read_configuration(&mut self) {
        self.cells.config = Config::read(&self.cells.spec, &self.cells.homes);
        self.lasting.set_all("promise ", self.now_ms, BTreeMap::new());
        self.lasting.set_all("cells ", self.now_ms, BTreeMap::new());
        self.look_at_promises();
    }

    pub(super) fn see_cluster(&mut self, object: &Value, gone: bool) {
        let name = text(&object["metadata"]["name"]).to_string();
        let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
        let ready = conditions.into_iter().any(|c| c["type"] == "Ready" && c["status"] == "True");
        let tainted = object["spec"]["taints"].as_array().is_some_and(|taints| !taints.is_empty());
        if gone || !ready || tainted {
            self.cells.closed.insert(name)
        } else {
            self.cells.closed.remove(&name)
        };
        self.look_at_promises();
    }

    pub(super) fn see_node(&mut self, cluster: &str, object: &Value, gone: bool) {
        let name = text(&object["metadata"]["name"]).to_string();
        let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
        let ready = conditions.into_iter().any(|c| c["type"] == "Ready" && c["status"] == "True");
        let node = (cluster.to_string(), name.clone());
        let usable = ready && !gone && object["spec"]["unschedulable"] != true;
        if usable {
            self.cells.bad.remove(&node)
        } else {
            self.cells.bad.insert(node)
        };
        if self.cells.homes.entry(name).or_default().insert(cluster.to_string()) {
            self.read_configuration();
        } else {
            self.look_at_promises();
        }
    }

    /// The hub keeps nodes of a member for cells, or releases them.
    pub(super) fn see_nodes_kept_by_hub(&mut self, object: &Value, gone: bool) {
        let (namespace, name) = (text(&object["metadata"]["namespace"]), text(&object["metadata"]["name"]));
        let key = (namespace.trim_start_matches("fleet-").to_string(), name.to_string());
        if !gone {
            self.cells.released.remove(&key);
        } else if self.cells.released.insert(key.clone()) {
            self.cells.kept.remove(&key);
        }
    }

    /// A member says which of its nodes it keeps for cells.
    pub(super) fn see_kept_nodes(&mut self, cluster: &str, object: &Value, gone: bool) {
        let key = (cluster.to_string(), text(&object["metadata"]["name"]).to_string());
        if gone || self.cells.released.contains(&key) {
            self.cells.kept.remove(&key);
            return;
        }
        let nodes = object["spec"]["cellNodes"].as_array().into_iter().flatten();
        let nodes = nodes.map(|node| (cluster.to_string(), text(node).to_string())).collect();
        self.cells.kept.entry(key).or_insert((self.now_ms, BTreeSet::new())).1 = nodes;
    }

    pub(super) fn see_cells_of_pod(&mut self, pod: &Pod, object: &Value, gone: bool) -> Vec<Violation> {
        let known = self.cells.pods.remove(&pod.uid);
        let (stranger, record) = (format!("stranger {}", pod.uid), format!("record {}", pod.uid));
        let place = pod.takes().filter(|_| !gone && pod.requests.get(DEVICES) > 0);
        let Some(node) = place else {
            self.lasting.set(&stranger, self.now_ms, None);
            self.lasting.set(&record, self.now_ms, None);
            if known.is_some() {
                self.look_at_promises();
                self.look_at_holds();
            }
            return Vec::new();
        };
        let isolation = object["metadata"]["annotations"][ISOLATION].as_str().unwrap_or_default();
        let leaves: BTreeSet<i64> =
            isolation.split(',').filter_map(|leaf| leaf.trim().parse().ok()).collect();
        let name = format!("{}/{} of {} in {}", pod.namespace, pod.name, pod.job, pod.cluster);
        let bound_ms = known.as_ref().map_or(self.now_ms, |known| known.bound_ms);
        let is_new = known.is_none_or(|known| known.leaves != leaves || known.node != node);
        let placed = Placed { name, node, leaves, run: pod.run.clone(), bound_ms };
        let mut found = Vec::new();
        if is_new {
            found.extend(self.given_twice(&placed));
            found.extend(self.on_kept_node(pod, &placed));
        }
        self.cells.pods.insert(pod.uid.clone(), placed);
        self.look_at_records();
        self.look_at_promises();
        found
    }

    /// A leaf cell has one owner.
    fn given_twice(&self, placed: &Placed) -> Option<Violation> {
        let other = self
            .cells
            .pods
            .values()
            .find(|other| other.node == placed.node && !other.leaves.is_disjoint(&placed.leaves))?;
        let leaf = placed.leaves.intersection(&other.leaves).next().copied().unwrap_or_default();
        let (cluster, node) = &placed.node;
        let what =
            format!("leaf cell {leaf} of {cluster}/{node} has two owners: {}, {}", other.name, placed.name);
        Some(broken(10, what))
    }

    /// What has no cells is not placed on nodes that are kept for cells.
    fn on_kept_node(&self, pod: &Pod, placed: &Placed) -> Option<Violation> {
        let since = self.cells.kept.values().filter(|(_, nodes)| nodes.contains(&placed.node));
        let since_ms = since.map(|(since_ms, _)| *since_ms).min()?;
        let known = self.run_of(&pod.run).and_then(|run| self.bindings.get(&run.binding));
        // A run that had its places before goes on in them.
        let of_fleet = known.is_some_and(|known| known.bound_ms > since_ms);
        let late = placed.bound_ms > since_ms + BINDS_UNDER_WAY_MS;
        let (cluster, node) = &placed.node;
        let what = || {
            format!(
                "{} has no cells and was placed on {cluster}/{node}, which is kept for cells",
                placed.name
            )
        };
        (of_fleet && late && placed.leaves.is_empty()).then(|| broken(10, what()))
    }

    pub(super) fn see_cells_of_binding(
        &mut self,
        uid: &str,
        was: &Value,
        now: &Value,
        gone: bool,
    ) -> Vec<Violation> {
        let groups = now["spec"]["cells"]["groups"].as_array().map_or(&[][..], Vec::as_slice);
        let epoch = now["spec"]["epoch"].as_i64().unwrap_or_default();
        let mut found: Vec<Violation> = self.moved(uid, was, now).into_iter().collect();
        if groups.iter().any(|group| !group["lazilyPreempted"].is_null())
            && self.cells.lost.insert((uid.to_string(), epoch))
        {
            found.extend(self.lost_for_nothing(now));
        }
        let attempts =
            |binding: &Value| binding["status"]["attempts"].as_array().cloned().unwrap_or_default();
        let fresh = attempts(now).into_iter().skip(attempts(was).len());
        found.extend(fresh.filter_map(|attempt| self.preempted_by_another(uid, now, &attempt)));
        let target = |binding: &Value| binding["spec"]["clusters"][0]["name"].is_string();
        if target(now)
            && !target(was)
            && let Some(job) = self.cells.jobs.get(&job_of(now))
        {
            self.cells.bound_jobs.insert(uid.to_string(), job.clone());
        }
        let ended = gone || (target(was) != target(now));
        if let Some(asked) = self.asked(now).filter(|_| ended) {
            // Somebody of it started or went: what is free is counted anew from here.
            self.lasting.set(&format!("promise {}", asked.vc), self.now_ms, None);
        }
        if now["spec"]["cells"].is_object() || self.asked(now).is_some() {
            self.look_at_records();
            self.look_at_promises();
        }
        found
    }

    fn asked(&self, binding: &Value) -> Option<CellDemand> {
        CellDemand::read(self.cells.jobs.get(&job_of(binding))?, binding)
    }

    /// What its run was asked to be.
    fn asked_when_bound(&self, binding: &Value) -> Option<CellDemand> {
        CellDemand::read(self.cells.bound_jobs.get(text(&binding["metadata"]["uid"]))?, binding)
    }

    /// Only another configuration, or its own wish, takes a group its promise.
    fn lost_for_nothing(&self, binding: &Value) -> Option<Violation> {
        let asked = self.asked_when_bound(binding)?;
        let what = || {
            format!("{} lost its promise, which it did not offer, under one configuration", job_of(binding))
        };
        (!asked.lazy && self.cells.changes <= 1).then(|| broken(10, what()))
    }

    /// A guaranteed job is preempted only by a higher class of its own virtual cluster.
    fn preempted_by_another(&self, uid: &str, binding: &Value, attempt: &Value) -> Option<Violation> {
        let rest = text(&attempt["message"]).strip_prefix("preempted by ")?;
        let (taker, rest) = rest.split_once(" in ")?;
        let by_cells = attempt["reason"] == "Preempted" && rest.contains("(VirtualCluster)");
        let victim = self.asked_when_bound(binding)?;
        if !by_cells || victim.class < 0 {
            return None;
        }
        let epoch = attempt["epoch"].as_i64().unwrap_or_default();
        if self.cells.lost.contains(&(uid.to_string(), epoch)) || self.may_have_lost_its_promise(uid) {
            return None;
        }
        let named = |known: &&Known| {
            let meta = &known.object["metadata"];
            taker == format!("{}/{}", text(&meta["namespace"]), text(&meta["name"]))
        };
        let taker = self.asked(&self.bindings.values().find(named)?.object)?;
        let what = || {
            let (victim_vc, taker_vc) = (&victim.vc, &taker.vc);
            format!(
                "{} of {victim_vc}, class {}, was preempted by {taker_vc}, class {}",
                job_of(binding),
                victim.class,
                taker.class
            )
        };
        (taker.vc != victim.vc || taker.class <= victim.class).then(|| broken(10, what()))
    }

    /// A run that began under a former configuration may lose its promise and make room in one decision: then nothing
    /// says that it was lost.
    fn may_have_lost_its_promise(&self, uid: &str) -> bool {
        let written_ms = self.cells.written_ms;
        self.now_ms <= written_ms + UNDER_WAY_MS
            && self.bindings.get(uid).is_some_and(|known| known.bound_ms < written_ms)
    }

    /// What the hub has written of each pod's cells is what the pod has; pins and whole cells are kept to.
    fn look_at_records(&mut self) {
        let mut wrong = BTreeMap::new();
        for (uid, placed) in self.cells.pods.iter().filter(|(_, placed)| !placed.leaves.is_empty()) {
            let Some(run) = self.run_of(&placed.run) else { continue };
            let Some(known) = self.bindings.get(&run.binding).filter(|known| !known.gone) else { continue };
            let spec = &known.object["spec"];
            let runs = spec["clusters"][0]["name"] == run.cluster.as_str()
                && spec["epoch"] == run.epoch
                && known.object["status"]["result"].is_null();
            if !runs {
                continue;
            }
            let groups = spec["cells"]["groups"].as_array().into_iter().flatten();
            let mut pods = groups.flat_map(|group| group["pods"].as_array().into_iter().flatten());
            let is_it = |pod: &Value| {
                let leaves = pod["leafCells"].as_array().into_iter().flatten();
                pod["node"] == placed.node.1.as_str()
                    && leaves.filter_map(Value::as_i64).collect::<BTreeSet<_>>() == placed.leaves
            };
            if !pods.any(is_it) {
                let what = format!(
                    "{} has leaf cells {:?} of {}, of which its binding says nothing",
                    placed.name, placed.leaves, placed.node.1
                );
                wrong.insert(format!("record {uid}"), broken(10, what));
            }
            wrong.extend(
                self.elsewhere(placed, known).map(|violation| (format!("record {uid} place"), violation)),
            );
        }
        self.lasting.set_all("record ", self.now_ms, wrong);
    }

    /// A pod that is not where its job asks to be.
    fn elsewhere(&self, placed: &Placed, known: &Known) -> Option<Violation> {
        let config = self.cells.config.as_ref()?;
        let first = self.cells.changes == 1;
        if !first && known.bound_ms < self.cells.since_ms + UNDER_WAY_MS {
            return None;
        }
        let asked = self.asked_when_bound(&known.object).filter(|asked| asked.class >= 0)?;
        let (cluster, node) = (placed.node.0.as_str(), placed.node.1.as_str());
        let name = &placed.name;
        if let Some(pin) = &asked.pin {
            let there = config.pinned(pin).is_some_and(|nodes| nodes.contains(&placed.node));
            return (!there)
                .then(|| broken(10, format!("{name} is on {cluster}/{node}, not in its pinned cell {pin}")));
        }
        let within = asked.within.as_ref().filter(|_| asked.whole)?;
        let leaves =
            crate::cell_config::leaves_of(&self.cells.spec["physicalCluster"]["cellTypes"], within, 0)?;
        let mates = self.cells.pods.values().filter(|mate| mate.run == placed.run);
        let cells: BTreeSet<Option<(usize, usize)>> = mates
            .flat_map(|mate| mate.leaves.iter().map(move |leaf| (mate, *leaf)))
            .map(|(mate, leaf)| config.cell_of((&mate.node.0, &mate.node.1), leaf, leaves))
            .collect();
        (cells.len() > 1)
            .then(|| broken(10, format!("pods of {} are not within one {within}", job_of(&known.object))))
    }

    /// A virtual cluster's guaranteed jobs start while its cells are free.
    fn look_at_promises(&mut self) {
        let Some(config) = self.cells.config.as_ref().filter(|_| self.bounds.is_some()) else { return };
        let mut wrong = BTreeMap::new();
        for vc in config.vcs.keys() {
            let key = format!("promise {vc}");
            if let Some(waits) = self.refused_for_nothing(config, vc) {
                wrong.insert(
                    key,
                    broken(10, format!("{waits} of virtual cluster {vc} waits while its cells are free")),
                );
            }
        }
        self.lasting.set_all("promise ", self.now_ms, wrong);
    }

    /// A job of the virtual cluster that could start, where all that wait in it could.
    fn refused_for_nothing(&self, config: &Config, vc: &str) -> Option<String> {
        let undisturbed =
            config.nodes().all(|node| !self.cells.bad.contains(node) && !self.cells.closed.contains(&node.0));
        let strangers = self
            .cells
            .pods
            .values()
            .any(|placed| placed.leaves.is_empty() && config.nodes().any(|node| *node == placed.node));
        if !undisturbed || strangers {
            return None;
        }
        let mut named = None;
        for known in self.bindings.values().filter(|known| waits(known)) {
            let Some(job) = self.cells.jobs.get(&job_of(&known.object)) else { continue };
            if job["metadata"]["labels"][names::VIRTUAL_CLUSTER_LABEL] != vc || is_suspended(job) {
                continue;
            }
            // Of what cannot be read, and of what has failed before, it is not known whether it may start.
            let asked = CellDemand::read(job, &known.object)?;
            if asked.class < 0 {
                continue;
            }
            if self.waits_for_quota(&known.object, job)
                || has_failed(&known.object)
                || !self.could_start(config, &asked)
            {
                return None;
            }
            named.get_or_insert_with(|| job_of(&known.object));
        }
        named
    }

    /// A queue without a limit on the way is no reason to wait.
    fn waits_for_quota(&self, binding: &Value, job: &Value) -> bool {
        if !queues(binding) {
            return false;
        }
        let Some((_, quota)) = self.trees.last() else { return true };
        let leaf = leaf_label(&job["metadata"]["labels"]);
        let path = quota.path_of(leaf.as_deref(), text(&binding["metadata"]["namespace"]));
        let limited = |at: &usize| !quota.nodes[*at].max.is_empty() || quota.nodes[*at].max_jobs.is_some();
        path.is_empty() || path.iter().any(limited)
    }

    fn could_start(&self, config: &Config, asked: &CellDemand) -> bool {
        let Some(promises) = config.vcs.get(&asked.vc) else { return false };
        if asked.within.is_some() {
            return false;
        }
        let used = self.used_by_vc(&asked.vc);
        if let Some(pin) = &asked.pin {
            let Some(nodes) = config.pinned(pin).filter(|_| promises.pins.contains(pin)) else {
                return false;
            };
            let tree = nodes.first().and_then(|node| config.tree_of((&node.0, &node.1)));
            let enough =
                tree.and_then(|tree| nodes_needed(asked, tree)).is_some_and(|needed| needed <= nodes.len());
            return enough && !used.iter().any(|(node, _)| nodes.contains(node));
        }
        let pinned: BTreeSet<&Node> =
            promises.pins.iter().filter_map(|pin| config.pinned(pin)).flatten().collect();
        promises.cells.iter().any(|promise| {
            let Some(tree) = config.chain(&promise.chain).next() else { return false };
            if asked.leaf_type.as_ref().is_some_and(|wanted| *wanted != tree.leaf_type)
                || asked.cells > promise.leaves
            {
                return false;
            }
            let touched: BTreeSet<_> = used
                .iter()
                .filter(|(node, _)| !pinned.contains(node))
                .filter_map(|((cluster, node), leaf)| config.cell_of((cluster, node), *leaf, promise.leaves))
                .filter(|(at, _)| config.trees[*at].chain == promise.chain)
                .collect();
            let free = promise.number.saturating_sub(touched.len());
            let unit = promise.leaves.min(tree.node_leaves);
            let Some(needed) = pieces(asked, unit) else { return false };
            let alone =
                config.chain(&promise.chain).map(|tree| &tree.nodes[0].0).collect::<BTreeSet<_>>().len() == 1;
            let pieces_of_one = promise.leaves / unit;
            free > 0 && (needed <= pieces_of_one || (alone && needed <= free * pieces_of_one))
        })
    }

    /// Leaf cells that jobs of a virtual cluster have, guaranteed or once guaranteed: by their pods, and by their bindings.
    fn used_by_vc(&self, vc: &str) -> BTreeSet<(Node, i64)> {
        let mut used = BTreeSet::new();
        for placed in self.cells.pods.values() {
            let binding = self.run_of(&placed.run).and_then(|run| self.bindings.get(&run.binding));
            let job = binding.and_then(|known| self.cells.jobs.get(&job_of(&known.object)));
            if job.is_some_and(|job| {
                job["metadata"]["labels"][names::VIRTUAL_CLUSTER_LABEL] == vc && class(job) >= Some(0)
            }) {
                used.extend(placed.leaves.iter().map(|leaf| (placed.node.clone(), *leaf)));
            }
        }
        for known in
            self.bindings.values().filter(|known| !known.gone && known.object["status"]["result"].is_null())
        {
            for group in known.object["spec"]["cells"]["groups"].as_array().into_iter().flatten() {
                if group["request"]["virtualCluster"] != vc || group["request"]["priority"].as_i64() < Some(0)
                {
                    continue;
                }
                for pod in group["pods"].as_array().into_iter().flatten() {
                    let leaves = pod["leafCells"].as_array().into_iter().flatten().filter_map(Value::as_i64);
                    let node = (text(&group["cluster"]).to_string(), text(&pod["node"]).to_string());
                    used.extend(leaves.map(|leaf| (node.clone(), leaf)));
                }
            }
        }
        used
    }
}

fn waits(known: &Known) -> bool {
    let object = &known.object;
    !known.gone
        && object["spec"]["clusters"][0].is_null()
        && object["status"]["result"].is_null()
        && object["metadata"]["deletionTimestamp"].is_null()
}

fn is_suspended(job: &Value) -> bool {
    let spec = &job["spec"];
    spec["suspend"] == true
        || spec["runPolicy"]["suspend"] == true
        || names::is_stopped(&job["metadata"]["annotations"])
        || !job["metadata"]["deletionTimestamp"].is_null()
}

fn has_failed(binding: &Value) -> bool {
    let attempts = binding["status"]["attempts"].as_array().into_iter().flatten();
    attempts.into_iter().any(|attempt| attempt["reason"] != "Preempted")
}

/// Cells of so many leaf cells that the pods which start together take, if each has its own.
fn pieces(asked: &CellDemand, leaves: usize) -> Option<usize> {
    let each = leaves.checked_div(asked.cells).filter(|each| *each > 0)?;
    Some(if asked.whole { asked.pods.div_ceil(each) } else { 1 })
}

fn nodes_needed(asked: &CellDemand, tree: &Tree) -> Option<usize> {
    pieces(asked, tree.node_leaves)
}
