//! The checker over a history, one change at a time: invariants 1 and 3 at each moment, of 4 that no run that
//! succeeded is run again or forgotten before the hub knows, and what may last for a moment only (`during`).

mod cells;

use std::collections::{BTreeMap, BTreeSet};

use fleet_api::names;
use fleet_resources::Resources;
use serde_json::Value;

use super::{
    Bounds, ObservedChange, Violation,
    during::{EARLY, Gang, Lasting},
    facts::{JOB_KINDS, Pod, job_of},
    quota::{Quota, UsageSource, Use, queues, used_by},
    real::{
        binding_of, controller, epoch_of, is_away, is_left, is_unfenced, job_key, may_have_several_runs,
        unfenced_jobs, was_moved_unfenced,
    },
    violation::{broken, over_node},
};

/// A tree that was lowered still covers what was asked for under it: a decision may be this long under way.
const UNDER_WAY_MS: u64 = 240_000;

/// A write of the hub arrives this much later at most: the cluster may be back by then.
const WRITE_UNDER_WAY_MS: u64 = 60_000;

/// What is known so far.
#[derive(Debug, Default)]
pub struct Judge {
    /// Set where changes come with their time; else nothing is judged by how long it lasts.
    bounds: Option<Bounds>,
    now_ms: u64,
    /// Clusters that say what is not so: what they show proves nothing.
    liars: BTreeSet<String>,
    nodes: BTreeMap<(String, String), Resources>,
    /// Quota trees, each with when it came into force, and what the hub says is used.
    trees: Vec<(u64, Quota)>,
    believed: Value,
    /// Labels of the hub's jobs, by job.
    labels: BTreeMap<String, Value>,
    pods: BTreeMap<String, Pod>,
    bindings: BTreeMap<String, Known>,
    used: BTreeMap<(String, String), Resources>,
    /// By job the pods of each run that may run.
    runs: BTreeMap<String, BTreeMap<(String, String), i64>>,
    unfenced: BTreeSet<String>,
    /// When each cluster was last away, as the hub has it.
    away: BTreeMap<String, Away>,
    /// Jobs of members, by uid.
    jobs: BTreeMap<String, Run>,
    /// Whether jobs of members are watched at all.
    sees_runs: bool,
    /// ReplicaSets to their Deployments, by uid.
    sets: BTreeMap<String, String>,
    /// What pods that have not ended ask for, by uid of what owns them.
    taken: BTreeMap<String, Taken>,
    gangs: BTreeMap<String, Gang>,
    holds: BTreeMap<String, Value>,
    lasting: Lasting,
    /// Uid of the binding to the first run of it that succeeded.
    succeeded: BTreeMap<String, Run>,
    /// The same from before the hub went back; they count again where the hub still knows the result.
    undone: BTreeMap<String, Run>,
    /// Uids of the runs that were there when the hub went back: it may know less of them.
    of_before: BTreeSet<String>,
    cells: cells::Cells,
}

/// A binding as it was last seen; it is remembered when it is gone, as its pods may not be.
#[derive(Debug, Default)]
struct Known {
    object: Value,
    used: Use,
    /// Leaf that its job named when it was bound, and when that was.
    leaf: Option<String>,
    bound_ms: u64,
    /// Epochs of runs that the hub left in a lost cluster without fencing, whatever ended them first.
    left: BTreeSet<i64>,
    gone: bool,
    /// The hub went back since it was seen.
    unseen: bool,
}

/// A cluster that does not answer, or did not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Away {
    Still,
    Until(u64),
}

/// Pods of one owner that have not ended.
#[derive(Debug, Default)]
struct Taken {
    job: String,
    namespace: String,
    requests: Resources,
    /// What of it the pods ask for that a watchdog holds back.
    held: Resources,
    pods: i64,
    /// Those of them that may run.
    live: i64,
}

/// A job in a member, made for one epoch of a binding.
#[derive(Clone, Debug, PartialEq)]
struct Run {
    cluster: String,
    name: String,
    binding: String,
    epoch: i64,
}

impl Judge {
    /// Allocatable amounts by cluster and node, and the quota tree.
    pub fn new(nodes: BTreeMap<(String, String), Resources>, quota: Option<Quota>) -> Self {
        Self { nodes, trees: quota.map(|quota| (0, quota)).into_iter().collect(), ..Self::default() }
    }

    /// Judges what lasts too.
    pub fn within(mut self, bounds: Bounds) -> Self {
        self.bounds = Some(bounds);
        self
    }

    /// Nothing that these clusters show counts: what is wrong there is their own doing.
    pub fn without(mut self, liars: impl IntoIterator<Item = String>) -> Self {
        self.liars.extend(liars);
        self
    }

    /// The hub was restored to an older state (`docs/operations.md`). What it believed counts when it is seen again. A
    /// run whose end it has forgotten may run again, and what it does not know any more is removed.
    pub fn hub_goes_back(&mut self) {
        self.undone.append(&mut self.succeeded);
        self.of_before.extend(self.jobs.keys().cloned());
        self.bindings.values_mut().for_each(|known| known.unseen = true);
    }

    /// Takes one change in, in the order of time, and says what it broke. Times are milliseconds from any start.
    pub fn see_at(&mut self, at_ms: u64, change: &ObservedChange) -> Vec<Violation> {
        let mut found = self.until(at_ms);
        found.extend(self.see(change));
        found
    }

    /// What has lasted too long by that time.
    pub fn until(&mut self, at_ms: u64) -> Vec<Violation> {
        self.now_ms = at_ms;
        self.bounds.map_or_else(Vec::new, |bounds| self.lasting.overdue(at_ms, bounds))
    }

    /// As [`Self::see_at`], where times are not known.
    pub fn see(&mut self, change: &ObservedChange) -> Vec<Violation> {
        let object = &change.object;
        let uid = object["metadata"]["uid"].as_str().unwrap_or_default().to_string();
        let kind = object["kind"].as_str().unwrap_or_default();
        if change.cluster.as_ref().is_some_and(|cluster| self.liars.contains(cluster)) {
            return Vec::new();
        }
        let has_pods = JOB_KINDS.contains(&kind) || kind == "Deployment";
        match &change.cluster {
            _ if kind == "Reservation" => {
                self.see_hold(change.cluster.as_deref(), uid, object, change.gone);
                Vec::new()
            }
            None if kind == "ElasticQuotaTree" => {
                self.see_tree(object, change.gone);
                Vec::new()
            }
            None if kind == "CellConfiguration" => {
                self.see_configuration(object, change.gone);
                Vec::new()
            }
            None if kind == "Cluster" => {
                self.see_whether_away(object, change.gone);
                self.see_cluster(object, change.gone);
                Vec::new()
            }
            Some(cluster) if kind == "Node" => {
                self.see_node(cluster, object, change.gone);
                Vec::new()
            }
            None if has_pods => {
                self.labels.insert(job_key(object), object["metadata"]["labels"].clone());
                self.see_cell_job(job_key(object), object);
                Vec::new()
            }
            None => self.see_binding(uid, object, change.gone),
            Some(_) if kind == "ReplicaSet" => {
                self.sets.extend(controller(object).map(|run| (uid, run.to_string())));
                Vec::new()
            }
            Some(cluster) if has_pods => self.see_run(cluster, uid, object, change.gone),
            Some(cluster) => self.see_pod(cluster, uid, object, change.gone),
        }
    }

    fn see_tree(&mut self, object: &Value, gone: bool) {
        let quota = if gone { Quota::default() } else { Quota::read(&object["spec"]) };
        if self.trees.last().is_none_or(|(_, known)| *known != quota) {
            self.trees.push((self.now_ms, quota));
        }
        self.believed = object["status"].clone();
        self.compare();
    }

    fn see_hold(&mut self, cluster: Option<&str>, uid: String, object: &Value, gone: bool) {
        let key = format!("hold {} {uid}", cluster.unwrap_or("hub"));
        // Nodes that are kept for cells are no hold for a job.
        if object["spec"]["cellNodes"].is_array() {
            match cluster {
                Some(cluster) => self.see_kept_nodes(cluster, object, gone),
                None => self.see_nodes_kept_by_hub(object, gone),
            }
            return;
        }
        if gone {
            self.holds.remove(&key);
            self.lasting.set(&key, self.now_ms, None);
        } else {
            self.holds.insert(key, object.clone());
            self.look_at_holds();
        }
    }

    /// 5: a hold is for a job that is there, has not ended, and is not past the hold's epoch; or it records cells,
    /// and pods of the job are left.
    fn look_at_holds(&mut self) {
        let mut wrong = BTreeMap::new();
        let in_use = self.bindings_with_pods();
        for (key, hold) in &self.holds {
            let binding = hold["spec"]["binding"]["uid"].as_str().unwrap_or_default();
            let owner = self.bindings.get(binding).filter(|known| !known.gone).map(|known| &known.object);
            let owned = owner.is_some_and(|binding| {
                binding["status"]["result"].is_null()
                    && hold["spec"]["epoch"].as_i64() >= binding["spec"]["epoch"].as_i64()
            });
            let has_cells = hold["spec"]["cells"].as_array().is_some_and(|cells| !cells.is_empty());
            // Pods of a cluster that lies are not seen.
            let namespace = hold["metadata"]["namespace"].as_str().unwrap_or_default();
            let is_unseen = self.liars.iter().any(|liar| names::cluster_namespace(liar) == namespace);
            if !(owned || has_cells && (is_unseen || in_use.contains(binding))) {
                let name = hold["metadata"]["name"].as_str().unwrap_or_default();
                let place = key.split(' ').nth(1).unwrap_or_default();
                wrong.insert(key.clone(), broken(5, format!("reservation {name} on {place} has no owner")));
            }
        }
        self.lasting.set_all("hold ", self.now_ms, wrong);
    }

    fn see_binding(&mut self, uid: String, object: &Value, gone: bool) -> Vec<Violation> {
        self.unfenced.extend(unfenced_jobs([object]));
        let now_ms = self.now_ms;
        let labels = self.labels.get(&job_of(object)).cloned().unwrap_or_default();
        let known = self
            .bindings
            .entry(uid.clone())
            .or_insert_with(|| Known { bound_ms: now_ms, ..Known::default() });
        let mut used = used_by(object, &labels);
        let was = std::mem::take(&mut known.used);
        if used.counts && !was.counts {
            (known.bound_ms, known.leaf) = (now_ms, used.leaf.clone());
        }
        // A label that changes while the job runs takes nothing away from the leaf it runs in.
        used.leaf.clone_from(&known.leaf);
        known.gone = gone;
        let was_unseen = std::mem::take(&mut known.unseen);
        let before = std::mem::replace(&mut known.object, object.clone());
        known.left.extend(epoch_left_behind(&before, object, &self.away, now_ms));
        used.counts &= !gone;
        // Only a change of what counts can break anything.
        let moved = was != used || was_unseen;
        known.used = used;
        let result = &object["status"]["result"];
        let is_its = |run: &&Run| result["cluster"] == run.cluster.as_str() && result["epoch"] == run.epoch;
        if !gone && let Some(run) = self.undone.get(&uid).filter(is_its) {
            self.succeeded.insert(uid.clone(), run.clone());
            self.undone.remove(&uid);
        }
        self.look_at_holds();
        let mut found = self.see_cells_of_binding(&uid, &before, object, gone);
        if moved {
            found.extend(self.over(UsageSource::Hub, &self.believed_uses()));
        }
        found
    }

    fn see_whether_away(&mut self, cluster: &Value, gone: bool) {
        let name = cluster["metadata"]["name"].as_str().unwrap_or_default();
        if gone || is_away(cluster) {
            self.away.insert(name.to_string(), Away::Still);
        } else if let Some(away @ Away::Still) = self.away.get_mut(name) {
            *away = Away::Until(self.now_ms);
        }
    }

    fn believed_uses(&self) -> Vec<(u64, Use)> {
        self.bindings
            .values()
            .filter(|known| known.used.counts && !known.unseen)
            .map(|known| (known.bound_ms, known.used.clone()))
            .collect()
    }

    /// What the pods of each job that queues take of its leaf, with when the job was bound.
    fn real_uses(&self) -> Vec<(u64, Use)> {
        let mut uses: BTreeMap<&str, (u64, Use)> = BTreeMap::new();
        for (owner, taken) in self.taken.iter().filter(|(_, taken)| taken.pods > 0) {
            let Some((uid, known)) = self.binding_of_owner(owner, &taken.job) else { continue };
            let epoch = self.run_of(owner).map_or(0, |run| run.epoch);
            let is_behind = known.left.contains(&epoch) || was_moved_unfenced(&known.object, epoch);
            if !queues(&known.object) || is_behind {
                continue;
            }
            // A watchdog lets a pod begin in no lost cluster, and the hub has ended its run.
            let is_left = is_left(&known.object, epoch);
            if is_left && taken.live == 0 {
                continue;
            }
            let (namespace, leaf) = (taken.namespace.clone(), known.leaf.clone());
            let of = uses
                .entry(uid)
                .or_insert_with(|| (known.bound_ms, Use { namespace, leaf, counts: true, ..Use::default() }));
            of.1.requests.add(&taken.requests);
            if is_left {
                of.1.requests.sub(&taken.held);
            }
        }
        uses.into_values().collect()
    }

    /// The binding of what owns a pod: by its run, or by its job where no runs are watched.
    fn binding_of_owner(&self, owner: &str, job: &str) -> Option<(&str, &Known)> {
        let of = |uid: &str| self.bindings.get_key_value(uid).map(|(uid, known)| (uid.as_str(), known));
        if !self.sees_runs {
            let is = |known: &Known| !known.gone && job_of(&known.object) == job;
            return self
                .bindings
                .iter()
                .find(|(_, known)| is(known))
                .map(|(uid, known)| (uid.as_str(), known));
        }
        of(&self.run_of(owner)?.binding)
    }

    /// Bindings that have pods in members which have not ended.
    fn bindings_with_pods(&self) -> BTreeSet<&str> {
        let live = self.taken.iter().filter(|(_, taken)| taken.pods > 0);
        live.filter_map(|(owner, _)| Some(self.run_of(owner)?.binding.as_str())).collect()
    }

    /// The run of what owns a pod.
    fn run_of(&self, owner: &str) -> Option<&Run> {
        self.jobs.get(self.sets.get(owner).map_or(owner, String::as_str))
    }

    /// 3: over its max under every tree that was in force since the oldest of these was decided.
    fn over(&self, source: UsageSource, uses: &[(u64, Use)]) -> Vec<Violation> {
        let oldest = uses.iter().map(|(bound_ms, _)| *bound_ms).min().unwrap_or(self.now_ms);
        let since = oldest.saturating_sub(UNDER_WAY_MS);
        let mut found = Vec::new();
        for (at, (_, quota)) in self.trees.iter().enumerate() {
            let ended = self.trees.get(at + 1).is_some_and(|(next, _)| *next < since);
            if ended {
                continue;
            }
            found = quota.over(source, uses.iter().map(|(_, used)| used));
            if found.is_empty() {
                break;
            }
        }
        found
    }

    /// 3: the hub counts what pods take.
    fn compare(&mut self) {
        if self.bounds.is_none() {
            return;
        }
        let Some((_, quota)) = self.trees.last() else { return };
        let uses = self.real_uses();
        let found = quota.uncounted(&self.believed, uses.iter().map(|(_, used)| used));
        // One entry for each node and resource: amounts may change while it lasts.
        let key = |what: &str| {
            format!("uncounted {}", what.chars().filter(|c| !c.is_ascii_digit()).collect::<String>())
        };
        let wrong = found.into_iter().map(|violation| (key(&violation.what), violation)).collect();
        self.lasting.set_all("uncounted ", self.now_ms, wrong);
    }

    fn see_run(&mut self, cluster: &str, uid: String, object: &Value, gone: bool) -> Vec<Violation> {
        self.sees_runs = true;
        let Some(binding) = binding_of(object).map(str::to_string) else { return Vec::new() };
        let run = Run {
            cluster: cluster.to_string(),
            name: job_key(object),
            binding: binding.clone(),
            epoch: epoch_of(object),
        };
        let mut found = Vec::new();
        let is_of_before = self.of_before.contains(&uid);
        if has_succeeded(object) && !is_of_before {
            let first = self.succeeded.entry(binding.clone()).or_insert_with(|| run.clone());
            // The end of a lost cluster's run may be seen late: what counts is that the earlier run was given up.
            let earlier = first.epoch.min(run.epoch);
            if *first != run && !self.given_up(&binding, earlier) {
                let first = &self.succeeded[&binding];
                let what = format!(
                    "{} succeeded in {} as epoch {} and ran again in {} as epoch {}",
                    run.name, first.cluster, first.epoch, run.cluster, run.epoch
                );
                found.push(broken(4, what));
            }
        }
        if gone {
            found.extend(self.forgotten(&run, object).filter(|_| !is_of_before));
            self.jobs.remove(&uid);
        } else {
            self.jobs.insert(uid, run);
        }
        found
    }

    /// A run that succeeded goes while its binding stands without knowing it.
    fn forgotten(&self, run: &Run, object: &Value) -> Option<Violation> {
        let binding = &self.bindings.get(&run.binding).filter(|known| !known.gone)?.object;
        let known = !binding["status"]["result"].is_null()
            || !binding["metadata"]["deletionTimestamp"].is_null()
            || self.given_up(&run.binding, run.epoch)
            || binding["spec"]["epoch"] != run.epoch;
        let what = || {
            let Run { cluster, name, epoch, .. } = run;
            format!("{name} succeeded in {cluster} as epoch {epoch} and was forgotten before the hub knew")
        };
        (has_succeeded(object) && !known).then(|| broken(4, what()))
    }

    /// The hub ended that run before its end was known.
    fn given_up(&self, binding: &str, epoch: i64) -> bool {
        let attempts = self.bindings.get(binding).map(|known| &known.object["status"]["attempts"]);
        attempts.and_then(Value::as_array).is_some_and(|all| all.iter().any(|one| one["epoch"] == epoch))
    }

    fn see_pod(&mut self, cluster: &str, uid: String, object: &Value, gone: bool) -> Vec<Violation> {
        let mut found = Vec::new();
        let known = self.pods.remove(&uid);
        if let Some(known) = &known {
            self.forget(known);
        }
        let pod = Pod::read(cluster, object);
        found.extend(self.see_cells_of_pod(&pod, object, gone));
        if gone {
            self.look_at_gang(&pod);
            self.compare();
            return found;
        }
        if let Some(place) = pod.takes() {
            let sum = self.used.entry(place.clone()).or_default();
            sum.add(&pod.requests);
            found.extend(over_node(&self.nodes, &place, sum));
        }
        if let Some((job, run)) = pod.may_run_for() {
            let of_job = self.runs.entry(job.clone()).or_default();
            *of_job.entry(run).or_default() += 1;
            let live: Vec<_> = of_job.iter().filter(|(_, count)| **count > 0).map(|(run, _)| run).collect();
            if live.len() > 1
                && !self.unfenced.contains(&job)
                && (!self.sees_runs || all_of_fleet(&self.jobs, &live))
            {
                found.push(broken(1, format!("{job} has pods of several runs at once: {live:?}")));
            }
        }
        let grew = self.take(&pod, known.as_ref());
        self.pods.insert(uid, pod.clone());
        if grew {
            found.extend(self.over(UsageSource::Pods, &self.real_uses()));
        }
        found.extend(self.several_runs(&pod));
        self.look_at_gang(&pod);
        self.compare();
        found
    }

    /// Takes a pod off all sums.
    fn forget(&mut self, known: &Pod) {
        if let Some(place) = known.takes() {
            self.used.entry(place).or_default().sub(&known.requests);
        }
        if let Some((job, run)) = known.may_run_for() {
            *self.runs.entry(job).or_default().entry(run).or_default() -= 1;
        }
        if let Some(gang) = self.gangs.get_mut(&known.run) {
            gang.remove(known);
        }
        if let Some(taken) = self.taken.get_mut(&known.run).filter(|_| !known.has_ended()) {
            taken.requests.sub(&known.requests);
            taken.pods -= 1;
            taken.live -= i64::from(known.may_run());
            if !known.may_run() {
                taken.held.sub(&known.requests);
            }
        }
    }

    /// Adds a pod to what its owner takes; whether that grew.
    fn take(&mut self, pod: &Pod, known: Option<&Pod>) -> bool {
        self.gangs.entry(pod.run.clone()).or_default().add(pod);
        if pod.has_ended() {
            return false;
        }
        let taken = self.taken.entry(pod.run.clone()).or_default();
        taken.job.clone_from(&pod.job);
        taken.namespace.clone_from(&pod.namespace);
        taken.requests.add(&pod.requests);
        taken.pods += 1;
        taken.live += i64::from(pod.may_run());
        if !pod.may_run() {
            taken.held.add(&pod.requests);
        }
        known.is_none_or(|known| {
            known.requests != pod.requests || known.has_ended() || known.may_run() != pod.may_run()
        })
    }

    fn look_at_gang(&mut self, pod: &Pod) {
        if pod.gang.is_some() && !pod.run.is_empty() {
            let wrong = self.gangs.get(&pod.run).and_then(|gang| gang.wrong(pod));
            self.lasting.set(&format!("gang {}", pod.run), self.now_ms, wrong);
            let early = self.gangs.get(&pod.run).and_then(|gang| gang.early(pod));
            self.lasting.set(&format!("{EARLY}{}", pod.run), self.now_ms, early);
        }
    }

    /// 1: at most one run of a binding has pods that may run, under whatever name.
    fn several_runs(&self, pod: &Pod) -> Option<Violation> {
        let binding = &self.run_of(&pod.run).filter(|_| pod.may_run())?.binding;
        let known = self.bindings.get(binding).filter(|known| !may_have_several_runs(&known.object))?;
        let live = self.taken.iter().filter(|(_, taken)| taken.live > 0);
        let runs: BTreeSet<(&str, &str, &str)> = live
            .filter_map(|(owner, _)| Some((owner.as_str(), self.run_of(owner)?)))
            .filter(|(_, run)| run.binding == *binding)
            .map(|(owner, run)| (run.cluster.as_str(), run.name.as_str(), owner))
            .collect();
        let what = || format!("{} has several live runs: {runs:?}", job_of(&known.object));
        (runs.len() > 1).then(|| broken(1, what()))
    }
}

/// The epoch of a run that the hub has just left in a lost cluster, although nothing fenced it.
fn epoch_left_behind(before: &Value, now: &Value, away: &BTreeMap<String, Away>, now_ms: u64) -> Option<i64> {
    let epoch = before["spec"]["epoch"].as_i64()?;
    let target = before["spec"]["clusters"][0]["name"].as_str()?;
    let is_lost = match away.get(target)? {
        Away::Still => true,
        Away::Until(back_ms) => now_ms.saturating_sub(*back_ms) <= WRITE_UNDER_WAY_MS,
    };
    (is_lost && is_unfenced(now) && is_left(now, epoch)).then_some(epoch)
}

/// A job of a member's own users may have the name of one of the fleet's.
fn all_of_fleet(jobs: &BTreeMap<String, Run>, live: &[&(String, String)]) -> bool {
    live.iter().filter(|(_, run)| jobs.contains_key(run)).count() > 1
}

/// A Kubeflow job or batch Job whose status says that it succeeded.
fn has_succeeded(job: &Value) -> bool {
    let conditions = job["status"]["conditions"].as_array().map_or(&[][..], Vec::as_slice);
    conditions.iter().any(|c| (c["type"] == "Succeeded" || c["type"] == "Complete") && c["status"] == "True")
}
