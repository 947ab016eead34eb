//! The member scheduler's planner alone, without an API server.

use std::{collections::BTreeMap, sync::Arc, time::Instant};

use fleet_placement::{Node, PodShape};
use fleet_resources::Resources;
use fleet_scheduler::{
    Action, Cluster, Config, GroupInput, Hook, Labels, Limits, Phase, Plugin, PluginName, PodInput, PodSpec,
    Policy, QueueInput, Status,
};

/// One row: name, value, unit, and target (at least or at most, depending on the unit).
pub struct Row {
    pub what: String,
    pub found: f64,
    pub unit: &'static str,
    pub aim: f64,
}

pub fn node(i: usize, gpus: i64) -> Node {
    Node {
        name: format!("node-{i:05}"),
        ready: true,
        max_pods: 110,
        allocatable: Resources::from_pairs([("cpu", 96_000), ("memory", 1 << 40), ("nvidia.com/gpu", gpus)]),
        labels: BTreeMap::from([("kubernetes.io/hostname".to_owned(), format!("node-{i:05}"))]),
        ..Node::default()
    }
}

pub fn spec(cpu_milli: i64, gpus: i64) -> Arc<PodSpec> {
    let requests = Resources::from_pairs([("cpu", cpu_milli), ("memory", 1 << 30), ("nvidia.com/gpu", gpus)]);
    Arc::new(PodSpec { shape: PodShape { requests, ..PodShape::default() }, extras: None })
}

pub fn cluster(config: &Config, nodes: usize) -> anyhow::Result<Cluster> {
    let mut cluster = Cluster::new(Policy::compile(config)?);
    cluster.put_queue(QueueInput::named("default"));
    (0..nodes).for_each(|i| cluster.put_node(&node(i, 8)));
    Ok(cluster)
}

pub fn gang(cluster: &mut Cluster, queue: &str, name: &str, pods: i64, spec: &Arc<PodSpec>) -> u32 {
    let id = cluster.put_group(GroupInput {
        namespace: "default".into(),
        name: name.into(),
        queue: queue.into(),
        min_member: pods,
        phase: Phase::Inqueue,
        ..GroupInput::default()
    });
    for i in 0..pods {
        cluster.add_pod(PodInput {
            namespace: "default".into(),
            name: format!("{name}-w-{i}").into(),
            group: id,
            spec: spec.clone(),
            preemptable: true,
            labels: Labels::default(),
            ..PodInput::default()
        });
    }
    id
}

/// Cycles until nothing more is placed. Returns (pods bound, seconds).
pub fn settle(cluster: &mut Cluster) -> (usize, f64) {
    let start = Instant::now();
    let mut bound = 0;
    loop {
        let outcome = cluster.cycle(0, &Limits::default());
        bound += outcome.bound.iter().map(|(_, pods)| pods.len()).sum::<usize>();
        if !outcome.more {
            return (bound, start.elapsed().as_secs_f64());
        }
    }
}

pub fn rows() -> anyhow::Result<Vec<Row>> {
    let mut rows = Vec::new();
    let config = Config::default();
    let mut add =
        |what: &str, found: f64, unit, aim| rows.push(Row { what: what.to_owned(), found, unit, aim });

    // Gangs of 8 to 512 identical pods on 10,000 nodes, a pod an eighth of a cpu core.
    let mut wide = cluster(&config, 10_000)?;
    let shape = spec(250, 0);
    let sizes = [8, 16, 32, 64, 128, 256, 512];
    let mut pods = 0;
    for i in 0.. {
        if pods >= 200_000 {
            break;
        }
        let size = sizes[i % sizes.len()];
        gang(&mut wide, "default", &format!("g{i}"), size, &shape);
        pods += size;
    }
    let (bound, seconds) = settle(&mut wide);
    anyhow::ensure!(bound as i64 == pods, "{bound} of {pods} pods have places");
    add("planner: 200,000 pods in gangs of 8-512, 10,000 nodes", bound as f64 / seconds, "pods/s", 100_000.0);

    // Singles of the same class on 1,000 nodes.
    let mut singles = cluster(&config, 1_000)?;
    for i in 0..10_000 {
        gang(&mut singles, "default", &format!("s{i}"), 1, &shape);
    }
    let (bound, seconds) = settle(&mut singles);
    anyhow::ensure!(bound == 10_000, "{bound} of 10,000 pods have places");
    add("planner: 10,000 single pods, 1,000 nodes", bound as f64 / seconds, "pods/s", 100_000.0);

    // One wide gang on nodes that are partly full, best of five.
    let mut best = f64::MAX;
    for _ in 0..5 {
        let mut one = cluster(&config, 10_000)?;
        for i in 0..2_000 {
            gang(&mut one, "default", &format!("f{i}"), 1 + (i % 4), &spec(4_000 + i % 16 * 7, 1 + i % 3));
        }
        settle(&mut one);
        gang(&mut one, "default", "wide", 1_024, &spec(8_000, 8));
        let (bound, seconds) = settle(&mut one);
        anyhow::ensure!(bound == 1_024, "{bound} of 1,024 pods have places");
        best = best.min(seconds * 1e3);
    }
    add("planner: one gang of 1,024 pods, 10,000 nodes", best, "ms", 20.0);

    add("planner: reclaim for a gang of 512 pods, 1,000 nodes full of others", reclaim()? * 1e3, "ms", 100.0);
    let what =
        "planner: 5,000 nodes, 87,000 groups, 140,000 pods from nothing to the first bind, reading aside";
    add(what, restart()?, "s", 5.0);
    Ok(rows)
}

/// Seconds from nothing known to the first bind, on a cluster that runs.
fn restart() -> anyhow::Result<f64> {
    let start = Instant::now();
    let mut running = cluster(&Config::default(), 5_000)?;
    let shape = spec(100, 0);
    let mut pods = 0;
    for i in 0..87_000 {
        let group = gang(&mut running, "default", &format!("g{i}"), 0, &shape);
        for n in 0..1 + usize::from(i % 5 < 3) {
            running.add_pod(PodInput {
                namespace: "default".into(),
                name: format!("g{i}-w-{n}").into(),
                group,
                spec: shape.clone(),
                status: Status::Running,
                node: Some(format!("node-{:05}", pods % 5_000).as_str().into()),
                preemptable: true,
                ..PodInput::default()
            });
            pods += 1;
        }
    }
    gang(&mut running, "default", "new", 8, &shape);
    let outcome = running.cycle(0, &Limits::default());
    anyhow::ensure!(outcome.bound.len() == 1, "the new gang has no places among {pods} pods");
    Ok(start.elapsed().as_secs_f64())
}

/// Seconds until a gang's victims are known, on nodes full of single pods of a queue that holds too much.
fn reclaim() -> anyhow::Result<f64> {
    let config = Config {
        actions: vec![Action::Enqueue, Action::Allocate, Action::Reclaim],
        tiers: vec![
            vec![
                Plugin::new(PluginName::Priority),
                Plugin::new(PluginName::Gang),
                Plugin::new(PluginName::Conformance),
            ],
            vec![
                Plugin::new(PluginName::Drf).without(Hook::Preemptable),
                Plugin::new(PluginName::Predicates),
                Plugin::new(PluginName::Capacity),
                Plugin::new(PluginName::Binpack),
            ],
        ],
        ..Config::default()
    };
    let mut best = f64::MAX;
    for _ in 0..3 {
        let mut full = cluster(&config, 1_000)?;
        for (name, gpus) in [("greedy", 0), ("owed", 8_000)] {
            let mut queue = QueueInput::named(name);
            queue.deserved = Resources::from_pairs([("nvidia.com/gpu", gpus), ("cpu", gpus * 12_000)]);
            full.put_queue(queue);
        }
        let one = spec(2_000, 1);
        for i in 0..8_000 {
            let group = gang(&mut full, "greedy", &format!("g{i}"), 0, &one);
            full.add_pod(PodInput {
                namespace: "default".into(),
                name: format!("g{i}-w-0").into(),
                group,
                spec: one.clone(),
                status: Status::Running,
                node: Some(format!("node-{:05}", i / 8).as_str().into()),
                preemptable: true,
                ..PodInput::default()
            });
        }
        full.cycle(0, &Limits::default());
        gang(&mut full, "owed", "wide", 512, &spec(8_000, 8));
        let start = Instant::now();
        let outcome = full.cycle(1, &Limits::default());
        let seconds = start.elapsed().as_secs_f64();
        anyhow::ensure!(outcome.evicted.len() == 4_096, "{} victims for 4,096 GPUs", outcome.evicted.len());
        best = best.min(seconds);
    }
    Ok(best)
}
