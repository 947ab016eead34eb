//! Draws a run from a seed: a random fleet, random jobs, random faults, then quiet.
//!
//! A fencing level promises nothing beyond what it covers (`docs/guarantees.md`). So a seed first draws what may
//! move its jobs, and [`Reach`] keeps the faults within that.

use std::time::Duration;

use fleet_api::cluster::{CORDON_TAINT, DRAIN_TAINT};
use serde_json::{Value, json};

use super::{
    plan::{EXPECT_LABEL, Event, Process, Rates, Server, Side, SimulationPlan, Way, What},
    quotas::Quotas,
    random::Random,
};
use fleet_simulator::scenario::{ClusterSpec, NodePool, ObjectName};

/// Faults happen in this time.
const FAULTS_S: u64 = 240;
/// After the faults, the time in which everything must have come to its end.
const QUIET: Duration = Duration::from_secs(3600);

/// In how many of 1000 seeds the disk of each server is full for a while.
const FULL_DISKS: u32 = 200;

/// In how many of 1000 seeds there are virtual clusters.
const VIRTUAL_CLUSTERS: u32 = 200;

/// What may move a job off a cluster that is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Moves {
    Nothing,
    /// A failure of the job, no loss.
    Failure,
    /// The loss of its cluster, at a fencing level.
    Loss(&'static str),
}

/// How far faults on the side of a member go.
#[derive(Clone, Copy, Debug)]
struct Reach {
    /// Requests to the member, of 1000, and how late they are at most.
    worst_own: u32,
    latest_own_ms: u64,
    /// How long an agent, hollow kubelets, a member's server are away at most.
    agent_away_ms: u64,
    nodes_away_ms: u64,
    member_away_ms: u64,
}

impl Reach {
    fn of(moves: Moves) -> Self {
        let all = Self {
            worst_own: 250,
            latest_own_ms: 40_000,
            agent_away_ms: 120_000,
            nodes_away_ms: 120_000,
            member_away_ms: 90_000,
        };
        // An agent that is dead past the deadline, or does not reach its own member in time, asks no pod to end.
        let lease = Self {
            worst_own: 30,
            latest_own_ms: 2_000,
            agent_away_ms: 4_000,
            nodes_away_ms: 4_000,
            member_away_ms: 4_000,
        };
        match moves {
            Moves::Nothing | Moves::Failure | Moves::Loss("None") => all,
            // The watchdog asks nobody. Hollow ones live and write with the kubelets, so these must not be away.
            Moves::Loss("Watchdog") => Self { agent_away_ms: 200_000, ..lease },
            Moves::Loss(_) => lease,
        }
    }
}

impl SimulationPlan {
    /// A random fleet, random jobs, random faults, then quiet.
    pub fn of_seed(seed: u64) -> Self {
        let random = &mut Random::branch(seed, "plan");
        let names: Vec<String> = ["east", "west", "north"]
            .into_iter()
            .take(random.between(2, 3) as usize)
            .map(str::to_string)
            .collect();
        let clusters = names.iter().map(|name| cluster(random, name)).collect::<Vec<_>>();
        let moves = match random.below(100) {
            0..25 => Moves::Nothing,
            25..45 => Moves::Failure,
            45..55 => Moves::Loss("None"),
            55..85 => Moves::Loss("Lease"),
            _ => Moves::Loss("Watchdog"),
        };
        let mut quotas = Quotas::draw(seed);
        let mut objects = vec![policy(random, moves)];
        objects.extend(quotas.objects(tree(random)));
        let mut plan = Self {
            seed,
            objects,
            events: Vec::new(),
            calm: Some(Duration::from_secs(FAULTS_S + 30)),
            until: Duration::from_secs(FAULTS_S + 30) + QUIET,
            drift_ppm: *random.one_of(&[0, 100, 1000]),
            settled: false,
            standby: random.per_mille(400),
            lingering: random.per_mille(500),
            fair: false,
            liars: Vec::new(),
            clusters,
        };
        plan.add_jobs(random, &mut quotas, &names, moves);
        plan.add_faults(random, &names, Reach::of(moves));
        plan.add_cuts(random, &names, moves);
        plan.add_taints(random, &names);
        plan.add_lost_history(seed, &names);
        plan.add_full_disks(seed, &names);
        if let Some(tree) = quotas.edit() {
            plan.add(random.time(20_000, FAULTS_S * 800), What::Apply(tree));
        }
        let random = &mut Random::branch(seed, "nodes cells share");
        if random.per_mille(VIRTUAL_CLUSTERS) {
            plan.add_cells(random);
        }
        plan.events.sort_by_key(|event| event.at);
        plan
    }

    fn add(&mut self, at: Duration, what: What) {
        self.events.push(Event { at, what });
    }

    fn add_jobs(&mut self, random: &mut Random, quotas: &mut Quotas, names: &[String], moves: Moves) {
        for index in 0..random.between(4, 10) {
            let at = random.time(0, FAULTS_S * 700);
            let mut job = job(random, &format!("j{index}"), &self.clusters, moves);
            quotas.rank(&mut job);
            let stranger = random.per_mille(60);
            if stranger {
                job["metadata"]["labels"][EXPECT_LABEL] = "Any".into();
            }
            let namespace = job["metadata"]["namespace"].as_str().unwrap_or_default().to_string();
            let (kind, name) = (job["kind"].as_str().unwrap_or_default(), format!("j{index}"));
            let object = ObjectName {
                api_version: job["apiVersion"].as_str().map(str::to_string),
                kind: kind.to_string(),
                namespace,
                name,
            };
            let manifest = job.clone();
            self.add(at, What::Apply(job));
            if random.per_mille(150) {
                let deleted = at + random.time(50, 90_000);
                self.add(deleted, What::Delete(object));
                if random.per_mille(300) {
                    // The same name again, while the old one may still be on its way out.
                    self.add(deleted + random.time(1, 3_000), What::Apply(manifest.clone()));
                }
            }
            if stranger {
                let mut stranger = manifest_without_requests(&manifest);
                stranger["metadata"]["annotations"] = json!({"sim.fleet.dev/runtime": "forever"});
                let cluster = random.one_of(names).clone();
                self.add(Duration::ZERO, What::ApplyInMember { cluster, object: stranger });
            }
        }
    }

    fn processes(&self, names: &[String]) -> Vec<Process> {
        let mut processes = vec![Process::Controller];
        processes.extend(self.standby.then_some(Process::Standby));
        for name in names {
            processes.push(Process::Agent(name.clone()));
            processes.push(Process::Nodes(name.clone()));
        }
        processes
    }

    /// Faults of the network, crashes, servers and nodes that are away.
    fn add_faults(&mut self, random: &mut Random, names: &[String], reach: Reach) {
        let processes = self.processes(names);
        let ways = processes.iter().flat_map(|process| {
            let sides: &[Side] = match process {
                Process::Controller | Process::Standby => &[Side::Hub],
                Process::Agent(_) => &[Side::Hub, Side::Own],
                Process::Nodes(_) => &[Side::Own],
            };
            sides.iter().map(move |side| (process.clone(), *side))
        });
        for (process, side) in ways {
            if random.per_mille(800) {
                let from = random.time(0, FAULTS_S * 500);
                let to = from + random.time(5_000, FAULTS_S * 500);
                let rates = rates(random, side, reach);
                self.add(from, What::NetworkFaults { process: process.clone(), side, rates });
                self.add(to, What::NetworkFaults { process, side, rates: Rates::default() });
            }
        }
        for _ in 0..random.between(0, 12) {
            let process = match random.below(10) {
                0..=4 => random.one_of(&processes[..=usize::from(self.standby)]).clone(),
                _ => random.one_of(&processes).clone(),
            };
            let most = match process {
                Process::Agent(_) => reach.agent_away_ms,
                Process::Nodes(_) => reach.nodes_away_ms,
                Process::Controller | Process::Standby => 120_000,
            };
            let longest = if random.per_mille(200) { most } else { most.min(4_000) };
            let what = What::Crash {
                process,
                after_writes: random.below(25),
                unheard: random.per_mille(500),
                restart_after: Some(random.time(10, longest)),
            };
            self.add(random.time(0, FAULTS_S * 1000), what);
        }
        if random.per_mille(400) {
            let cluster = random.one_of(names).clone();
            let from = random.time(0, FAULTS_S * 900);
            let hung = random.per_mille(500);
            self.add(from, What::MemberDown { cluster: cluster.clone(), hung });
            self.add(from + random.time(500, reach.member_away_ms), What::MemberUp { cluster });
        }
        if random.per_mille(400) {
            let at = random.below(self.clusters.len() as u64) as usize;
            let (cluster, name) =
                (self.clusters[at].name.clone(), self.clusters[at].node_pools[0].node_name(0));
            let from = random.time(0, FAULTS_S * 900);
            let node = |ready| What::Node { cluster: cluster.clone(), name: name.clone(), ready };
            let (down, up) = (node(false), node(true));
            self.add(from, down);
            self.add(from + random.time(500, 60_000), up);
        }
    }

    /// The hub forgets its history, also right before all faults end: then nothing lists again for a long time.
    fn add_lost_history(&mut self, seed: u64, names: &[String]) {
        let random = &mut Random::branch(seed, "history");
        for _ in 0..random.below(4) {
            let process = match random.per_mille(300) {
                true => Process::Agent(random.one_of(names).clone()),
                false => Process::Controller,
            };
            let at = random.time(1_000, FAULTS_S * 1000);
            self.add(at, What::History { process: process.clone(), over: false });
            self.add(at + Duration::from_millis(50), What::History { process, over: true });
        }
    }

    /// Disks of servers are full. What frees room passes, so that fenced jobs can be stopped all the same: no fencing level
    /// bounds how long that lasts.
    fn add_full_disks(&mut self, seed: u64, names: &[String]) {
        let random = &mut Random::branch(seed, "disks");
        let servers = std::iter::once(Server::Hub).chain(names.iter().cloned().map(Server::Member));
        for server in servers {
            if !random.per_mille(FULL_DISKS) {
                continue;
            }
            let from = random.time(1_000, FAULTS_S * 900);
            let longest = if random.per_mille(300) { 120_000 } else { 20_000 };
            let to = from + random.time(500, longest);
            let room = Some(random.below(16_000) as u32);
            self.add(from, What::Disk { server: server.clone(), room });
            self.add(to.min(Duration::from_secs(FAULTS_S)), What::Disk { server, room: None });
        }
    }

    /// Ways to the hub that are cut, or closed by credentials.
    fn add_cuts(&mut self, random: &mut Random, names: &[String], moves: Moves) {
        for _ in 0..random.between(0, 3) {
            let process = match random.per_mille(150) {
                true if self.standby && random.per_mille(500) => Process::Standby,
                true => Process::Controller,
                false => Process::Agent(random.one_of(names).clone()),
            };
            let from = random.time(0, FAULTS_S * 900);
            // Long enough for a cluster to be lost, where that moves jobs.
            let lost = matches!(moves, Moves::Loss(_)) && random.per_mille(500);
            let to = from
                + match lost {
                    true => random.time(75_000, 200_000),
                    false if random.per_mille(500) => random.time(500, 150_000),
                    false => random.time(500, 20_000),
                };
            let way = *random.one_of(&[Way::Both, Way::Both, Way::Requests, Way::Answers]);
            self.add(from, What::Partition { process: process.clone(), way });
            self.add(to, What::Heal { process });
        }
        if random.per_mille(150) {
            let process = Process::Agent(random.one_of(names).clone());
            let from = random.time(0, FAULTS_S * 900);
            let rates = Rates { unauthorized: 1000, ..Rates::default() };
            let faults = |rates| What::NetworkFaults { process: process.clone(), side: Side::Hub, rates };
            self.add(from, faults(rates));
            self.add(from + random.time(500, 60_000), faults(Rates::default()));
        }
    }

    /// A cluster is drained, or tainted so that jobs leave it, and taken back into use.
    fn add_taints(&mut self, random: &mut Random, names: &[String]) {
        if !random.per_mille(250) {
            return;
        }
        let cluster = random.one_of(names).clone();
        let taints = match random.per_mille(700) {
            true => {
                json!([{"key": CORDON_TAINT, "effect": "NoSchedule"}, {"key": DRAIN_TAINT, "effect": "NoExecute"}])
            }
            false => json!([{"key": "example.com/maintenance", "effect": "NoExecute"}]),
        };
        let tainted = |taints: Value| {
            What::Apply(json!({"apiVersion": "fleet.dev/v1alpha1", "kind": "Cluster",
                "metadata": {"name": cluster}, "spec": {"taints": taints}}))
        };
        let from = random.time(20_000, FAULTS_S * 800);
        self.add(from, tainted(taints));
        self.add(from + random.time(1_000, 90_000), tainted(json!([])));
    }
}

fn rates(random: &mut Random, side: Side, reach: Reach) -> Rates {
    let worst = *random.one_of(&[5_u64, 30, 100, 250]);
    let (worst, latest_ms) = match side {
        Side::Hub => (worst, 40_000),
        Side::Own => (worst.min(reach.worst_own.into()), reach.latest_own_ms),
    };
    let mut rate = || random.below(worst) as u32;
    Rates {
        latest_ms,
        unauthorized: 0,
        request_lost: rate(),
        answer_lost: rate(),
        twice: rate() / 2,
        late: rate(),
        refused: rate(),
        frames: rate(),
    }
}

fn cluster(random: &mut Random, name: &str) -> ClusterSpec {
    let gpus = *random.one_of(&[2_u64, 4, 8]);
    let pool = NodePool {
        name: format!("{name}-a"),
        count: random.between(1, 3) as usize,
        allocatable: [("cpu", 32), ("nvidia.com/gpu", gpus), ("pods", 110)]
            .into_iter()
            .map(|(name, amount)| (name.to_string(), amount.to_string()))
            .chain([("memory".to_string(), "128Gi".to_string())])
            .collect(),
        labels: Default::default(),
        taints: Vec::new(),
    };
    ClusterSpec {
        name: name.to_string(),
        labels: Default::default(),
        provider: None,
        region: Some(format!("cn-{name}")),
        zones: Vec::new(),
        reservation: !random.per_mille(150),
        node_pools: vec![pool],
    }
}

fn policy(random: &mut Random, moves: Moves) -> Value {
    let mut policy = json!({
        "apiVersion": "policy.one.alibabacloud.com/v1alpha1",
        "kind": "ClusterPropagationPolicy",
        "metadata": {"name": "gangs"},
        "spec": {
            "propagateDeps": true,
            "placement": {"replicaScheduling": {
                "replicaSchedulingType": "Divided", "customSchedulingType": "Gang"}},
            "resourceSelectors": [
                {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob"},
                {"apiVersion": "batch/v1", "kind": "Job"}],
        },
    });
    if random.per_mille(700) {
        policy["spec"]["suspension"] = json!({"scheduling": true});
    }
    if moves != Moves::Nothing {
        policy["spec"]["failover"] = json!({"application": {
            "decisionConditions": {"tolerationSeconds": random.one_of(&[0, 2, 20])},
            "purgeMode": "Directly", "backoffLimit": 3}});
    }
    if let Moves::Loss(level) = moves {
        policy["spec"]["failover"]["cluster"] = json!({"purgeMode": "Directly", "fencing": level,
            "tolerationSeconds": random.one_of(&[0, 0, 20])});
    }
    policy
}

fn tree(random: &mut Random) -> Value {
    let mut max = json!({});
    if random.per_mille(500) {
        max["kube-queue/max-jobs"] = random.between(1, 4).into();
    }
    if random.per_mille(500) {
        max["nvidia.com/gpu"] = random.between(8, 16).into();
    }
    json!({
        "apiVersion": "scheduling.sigs.k8s.io/v1beta1",
        "kind": "ElasticQuotaTree",
        "metadata": {"name": "tree", "namespace": "kube-system"},
        "spec": {"root": {"name": "root", "children": [
            {"name": "a", "namespaces": ["team-a"], "max": max},
            {"name": "b", "namespaces": ["team-b"]}]}},
    })
}

/// A job of a member's own users, which takes no room worth speaking of.
fn manifest_without_requests(job: &Value) -> Value {
    match job {
        Value::Object(fields) => {
            let kept = fields.iter().filter(|(name, _)| *name != "resources");
            Value::Object(
                kept.map(|(name, value)| (name.clone(), manifest_without_requests(value))).collect(),
            )
        }
        Value::Array(items) => items.iter().map(manifest_without_requests).collect(),
        other => other.clone(),
    }
}

/// The name of the nodes of cells in a cluster.
pub(super) fn cell_pool(cluster: &str) -> String {
    format!("{cluster}-c")
}

/// Whether so many pods of so many GPUs fit into these nodes of one cluster while they are empty.
pub(super) fn fits<'p>(pools: impl IntoIterator<Item = &'p NodePool>, pods: u64, gpus: u64) -> bool {
    let room = |pool: &NodePool| {
        let has: u64 = pool.allocatable["nvidia.com/gpu"].parse().unwrap_or(0);
        pool.count as u64 * has.checked_div(gpus).unwrap_or(u64::from(u16::MAX))
    };
    pools.into_iter().map(room).sum::<u64>() >= pods
}

fn job(random: &mut Random, name: &str, clusters: &[ClusterSpec], moves: Moves) -> Value {
    let namespace = *random.one_of(&["team-a", "team-a", "team-b"]);
    let workers = random.between(1, 3);
    // A node has 2 GPUs or more and a cluster one node or more; some jobs exceed every cluster.
    let gpus = if random.per_mille(60) { 64 } else { random.between(0, 2) };
    let fails = random.below(10);
    let batch = random.per_mille(250);
    let pods = if batch { workers } else { workers + 1 };
    let at: Vec<&ClusterSpec> =
        clusters.iter().filter(|cluster| fits(&cluster.node_pools, pods, gpus)).collect();
    // Some run long enough to be there still when their cluster counts as lost.
    let runtime =
        if random.per_mille(250) { random.between(90_000, 400_000) } else { random.between(200, 90_000) };
    let mut annotations = json!({"sim.fleet.dev/runtime": format!("{runtime}ms")});
    let expect = match fails {
        _ if at.is_empty() => "Waits",
        0 => {
            annotations["sim.fleet.dev/result"] = "fail".into();
            "Failed"
        }
        1 if moves != Moves::Nothing => {
            annotations["sim.fleet.dev/fail-on"] = random.one_of(&at).name.as_str().into();
            "Any"
        }
        _ => "Succeeded",
    };
    let mut amounts = json!({"cpu": "1", "memory": "1Gi"});
    if gpus > 0 {
        amounts["nvidia.com/gpu"] = gpus.to_string().into();
    }
    let metadata = json!({"name": name, "namespace": namespace, "annotations": annotations,
        "labels": {EXPECT_LABEL: expect}});
    let resources = json!({"requests": amounts, "limits": amounts});
    if batch {
        let container =
            json!({"name": "main", "image": "registry.example.com/train:v1", "resources": resources});
        return json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata,
            "spec": {"parallelism": workers, "completions": workers, "backoffLimit": 0,
                "template": {"spec": {"restartPolicy": "Never", "containers": [container]}}}});
    }
    let container =
        json!({"name": "pytorch", "image": "registry.example.com/train:v1", "resources": resources});
    let role = |replicas: u64| {
        json!({"replicas": replicas, "restartPolicy": "Never",
            "template": {"spec": {"containers": [container.clone()]}}})
    };
    json!({"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": metadata,
        "spec": {"runPolicy": {"cleanPodPolicy": "None"},
            "pytorchReplicaSpecs": {"Master": role(1), "Worker": role(workers)}}})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_always_makes_the_same_plan() {
        for seed in 0..50 {
            let (one, two) = (SimulationPlan::of_seed(seed), SimulationPlan::of_seed(seed));
            assert_eq!(one.events, two.events);
            assert_eq!(one.objects, two.objects);
            assert!(one.events.windows(2).all(|pair| pair[0].at <= pair[1].at));
            assert!(!one.events.is_empty() && one.clusters.len() >= 2);
        }
        assert_ne!(SimulationPlan::of_seed(1).events, SimulationPlan::of_seed(2).events);
    }
}
