//! What a run of the whole simulation consists of: a fleet, and what happens to it when.
//!
//! Made from a scenario file or from a seed. A list of events and nothing else, so that a failing run can be
//! made shorter by leaving events out.

use std::{fmt, time::Duration};

use serde_json::{Value, json};

use super::random::Random;
use crate::scenario::{self, Action, ClusterSpec, NodePool, ObjectName, Scenario};

/// A process of the fleet.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Process {
    Controller,
    Agent(String),
    /// The hollow kubelets of a member.
    Nodes(String),
}

impl fmt::Display for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Controller => f.write_str("controller"),
            Self::Agent(cluster) => write!(f, "agent {cluster}"),
            Self::Nodes(cluster) => write!(f, "nodes {cluster}"),
        }
    }
}

/// Which API server.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Server {
    Hub,
    Member(String),
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Hub => f.write_str("hub"),
            Self::Member(cluster) => write!(f, "member {cluster}"),
        }
    }
}

/// How often requests of one process meet each fault, of 1000.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rates {
    pub request_lost: u32,
    pub answer_lost: u32,
    pub twice: u32,
    pub late: u32,
    /// 409 for writes, 410 for reads, 429, 500 or 503 for both.
    pub refused: u32,
    /// Watches: torn in the middle of a line, broken between two, or late.
    pub frames: u32,
}

/// Which way of a partition is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    Both,
    Requests,
    Answers,
}

/// Something that happens.
#[derive(Clone, Debug, PartialEq)]
pub enum What {
    /// A user applies an object on the hub.
    Apply(Value),
    /// Somebody in a member makes an object there.
    ApplyInMember {
        cluster: String,
        object: Value,
    },
    /// A user deletes an object on the hub.
    Delete(ObjectName),
    Node {
        cluster: String,
        name: String,
        ready: bool,
    },
    /// Agent and hub cannot talk, until healed.
    Partition {
        cluster: String,
        way: Way,
    },
    Heal {
        cluster: String,
    },
    /// The agent's calls to its own member hang or are refused, until healed.
    MemberDown {
        cluster: String,
        hung: bool,
    },
    MemberUp {
        cluster: String,
    },
    /// The process dies at the `after_writes`-th write from now (0: at once); with `unheard`, before that write
    /// takes effect.
    Crash {
        process: Process,
        after_writes: u64,
        unheard: bool,
        restart_after: Option<Duration>,
    },
    /// From now on requests of the process meet faults at these rates.
    Weather {
        process: Process,
        rates: Rates,
    },
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |object: &Value| {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_string();
            let meta = &object["metadata"];
            format!("{} {}/{}", text(&object["kind"]), text(&meta["namespace"]), text(&meta["name"]))
        };
        match self {
            Self::Apply(object) => write!(f, "apply {}", name(object)),
            Self::ApplyInMember { cluster, object } => write!(f, "apply {} in {cluster}", name(object)),
            Self::Delete(object) => write!(f, "delete {} {}/{}", object.kind, object.namespace, object.name),
            Self::Node { cluster, name, ready } => write!(f, "node {cluster}/{name} ready {ready}"),
            Self::Partition { cluster, way } => write!(f, "partition {cluster} {way:?}"),
            Self::Heal { cluster } => write!(f, "heal {cluster}"),
            Self::MemberDown { cluster, hung } => write!(f, "member {cluster} down, hung {hung}"),
            Self::MemberUp { cluster } => write!(f, "member {cluster} up"),
            Self::Crash { process, after_writes, unheard, restart_after } => {
                write!(f, "crash {process} after {after_writes} writes, unheard {unheard}, ")?;
                match restart_after {
                    Some(pause) => write!(f, "back after {} ms", pause.as_millis()),
                    None => f.write_str("for good"),
                }
            }
            Self::Weather { process, rates } => write!(f, "weather {process} {rates:?}"),
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    pub at: Duration,
    pub what: What,
}

/// One run.
#[derive(Clone, Debug)]
pub struct Plan {
    pub seed: u64,
    pub clusters: Vec<ClusterSpec>,
    /// Applied at 0, before anything else.
    pub objects: Vec<Value>,
    /// By time.
    pub events: Vec<Event>,
    /// When every fault is over, with everything that is down back again; `None`: never, the events say all.
    pub calm: Option<Duration>,
    /// Virtual end. For a plan from a seed the time until which the end state must be reached.
    pub until: Duration,
    /// Clocks of processes run up to this much fast or slow, in millionths.
    pub drift_ppm: i32,
}

/// Virtual end of a scenario that names none.
const DEFAULT_UNTIL: Duration = Duration::from_secs(2 * 3600);
/// Faults happen in this time.
const STORM_S: u64 = 240;
/// After the faults, the time in which everything must have come to its end.
const QUIET: Duration = Duration::from_secs(1500);

impl Plan {
    /// A scenario file, as it stands.
    pub fn of_scenario(scenario: &Scenario) -> Self {
        let event = |event: &scenario::Event| {
            let what = match &event.action {
                Action::Apply(manifest) => What::Apply(manifest.value.clone()),
                Action::Delete(name) => What::Delete(name.clone()),
                Action::Node { cluster, name, ready } => {
                    What::Node { cluster: cluster.clone(), name: name.clone(), ready: *ready }
                }
                Action::Partition { cluster } => What::Partition { cluster: cluster.clone(), way: Way::Both },
                Action::Heal { cluster } => What::Heal { cluster: cluster.clone() },
                Action::Crash { process, restart_after } => What::Crash {
                    process: match process {
                        scenario::Process::Hub => Process::Controller,
                        scenario::Process::Agent { cluster } => Process::Agent(cluster.clone()),
                    },
                    after_writes: 0,
                    unheard: false,
                    restart_after: *restart_after,
                },
            };
            Event { at: event.at, what }
        };
        Self {
            seed: scenario.seed,
            clusters: scenario.clusters.clone(),
            objects: scenario.objects.iter().map(|manifest| manifest.value.clone()).collect(),
            events: scenario.events.iter().map(event).collect(),
            calm: None,
            until: scenario.until.unwrap_or(DEFAULT_UNTIL),
            drift_ppm: 0,
        }
    }

    /// A random fleet, random jobs, random faults, then quiet.
    pub fn of_seed(seed: u64) -> Self {
        let random = &mut Random::branch(seed, "plan");
        let names: Vec<String> = ["east", "west", "north"]
            .into_iter()
            .take(random.between(2, 3) as usize)
            .map(str::to_string)
            .collect();
        let clusters = names.iter().map(|name| cluster(random, name)).collect::<Vec<_>>();
        let failover = random.per_mille(700);
        let mut plan = Self {
            seed,
            objects: vec![policy(random, failover), tree(random)],
            events: Vec::new(),
            calm: Some(Duration::from_secs(STORM_S + 30)),
            until: Duration::from_secs(STORM_S + 30) + QUIET,
            drift_ppm: *random.one_of(&[0, 100, 1000]),
            clusters,
        };
        plan.add_jobs(random, &names, failover);
        plan.add_faults(random, &names);
        plan.events.sort_by_key(|event| event.at);
        plan
    }

    /// Nothing says when the run ends: it ends when nothing is left to happen.
    pub fn until_is_default(&self) -> bool {
        self.until == DEFAULT_UNTIL
    }

    fn add(&mut self, at: Duration, what: What) {
        self.events.push(Event { at, what });
    }

    fn add_jobs(&mut self, random: &mut Random, names: &[String], failover: bool) {
        for index in 0..random.between(4, 10) {
            let at = random.time(0, STORM_S * 700);
            let mut job = job(random, &format!("j{index}"), &self.clusters, failover);
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

    fn add_faults(&mut self, random: &mut Random, names: &[String]) {
        let mut processes = vec![Process::Controller];
        for name in names {
            processes.push(Process::Agent(name.clone()));
            processes.push(Process::Nodes(name.clone()));
        }
        for process in &processes {
            if random.per_mille(800) {
                let from = random.time(0, STORM_S * 500);
                let to = from + random.time(5_000, STORM_S * 500);
                let rates = rates(random);
                self.add(from, What::Weather { process: process.clone(), rates });
                self.add(to, What::Weather { process: process.clone(), rates: Rates::default() });
            }
        }
        for _ in 0..random.between(0, 12) {
            let process = match random.below(10) {
                0..=4 => Process::Controller,
                _ => random.one_of(&processes).clone(),
            };
            let longest = if random.per_mille(200) { 120_000 } else { 4_000 };
            let what = What::Crash {
                process,
                after_writes: random.below(25),
                unheard: random.per_mille(500),
                restart_after: Some(random.time(10, longest)),
            };
            self.add(random.time(0, STORM_S * 1000), what);
        }
        for _ in 0..random.between(0, 3) {
            let cluster = random.one_of(names).clone();
            let from = random.time(0, STORM_S * 900);
            let longest = if random.per_mille(500) { 150_000 } else { 20_000 };
            let to = from + random.time(500, longest);
            let way = *random.one_of(&[Way::Both, Way::Both, Way::Requests, Way::Answers]);
            self.add(from, What::Partition { cluster: cluster.clone(), way });
            self.add(to, What::Heal { cluster });
        }
        if random.per_mille(400) {
            let cluster = random.one_of(names).clone();
            let from = random.time(0, STORM_S * 900);
            let hung = random.per_mille(500);
            self.add(from, What::MemberDown { cluster: cluster.clone(), hung });
            self.add(from + random.time(500, 90_000), What::MemberUp { cluster });
        }
        if random.per_mille(400) {
            let at = random.below(self.clusters.len() as u64) as usize;
            let (cluster, name) =
                (self.clusters[at].name.clone(), self.clusters[at].node_pools[0].node_name(0));
            let from = random.time(0, STORM_S * 900);
            let node = |ready| What::Node { cluster: cluster.clone(), name: name.clone(), ready };
            let (down, up) = (node(false), node(true));
            self.add(from, down);
            self.add(from + random.time(500, 60_000), up);
        }
    }
}

fn rates(random: &mut Random) -> Rates {
    let worst = *random.one_of(&[5, 30, 100, 250]);
    let mut rate = || random.below(worst) as u32;
    Rates {
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

fn policy(random: &mut Random, failover: bool) -> Value {
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
    if failover {
        policy["spec"]["failover"] = json!({"application": {
            "decisionConditions": {"tolerationSeconds": random.one_of(&[0, 2, 20])},
            "purgeMode": "Directly", "backoffLimit": 3}});
        if random.per_mille(600) {
            policy["spec"]["failover"]["cluster"] =
                json!({"purgeMode": "Directly", "fencing": "Lease", "tolerationSeconds": 0});
        }
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

/// Label of random jobs: how they are to end.
pub const EXPECT_LABEL: &str = "sim.fleet.dev/expect";

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

/// Whether so many pods of so many GPUs fit into the empty cluster.
fn fits(cluster: &ClusterSpec, pods: u64, gpus: u64) -> bool {
    let room = |pool: &NodePool| {
        let has: u64 = pool.allocatable["nvidia.com/gpu"].parse().unwrap_or(0);
        pool.count as u64 * has.checked_div(gpus).unwrap_or(u64::from(u16::MAX))
    };
    cluster.node_pools.iter().map(room).sum::<u64>() >= pods
}

fn job(random: &mut Random, name: &str, clusters: &[ClusterSpec], failover: bool) -> Value {
    let namespace = *random.one_of(&["team-a", "team-a", "team-b"]);
    let workers = random.between(1, 3);
    // A node has 2 GPUs or more and a cluster one node or more; some jobs exceed every cluster.
    let gpus = if random.per_mille(60) { 64 } else { random.between(0, 2) };
    let fails = random.below(10);
    let batch = random.per_mille(250);
    let pods = if batch { workers } else { workers + 1 };
    let at: Vec<&ClusterSpec> = clusters.iter().filter(|cluster| fits(cluster, pods, gpus)).collect();
    let mut annotations = json!({"sim.fleet.dev/runtime": format!("{}ms", random.between(200, 90_000))});
    let expect = match fails {
        _ if at.is_empty() => "Waits",
        0 => {
            annotations["sim.fleet.dev/result"] = "fail".into();
            "Failed"
        }
        1 if failover => {
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
            let (one, two) = (Plan::of_seed(seed), Plan::of_seed(seed));
            assert_eq!(one.events, two.events);
            assert_eq!(one.objects, two.objects);
            assert!(one.events.windows(2).all(|pair| pair[0].at <= pair[1].at));
            assert!(!one.events.is_empty() && one.clusters.len() >= 2);
        }
        assert_ne!(Plan::of_seed(1).events, Plan::of_seed(2).events);
    }
}
