//! Replays the pods of a real GPU cluster on its nodes until they have asked for all of its GPUs, and prints
//! how much of them each way of choosing a node could hand out: ten seeded shuffles each.
//!
//! `cargo run --release -p fleet-placement --example packing -- PODS.csv NODES.csv [WAY...]` with the columns of the openb traces
//! (pods: cpu in cores, mem_gb, gpus, gpu_milli, gpu_spec; nodes: cluster, gpus, cpu, mem_gb, gpu_type).
//! The published figures it is held against are those of Weng et al., "Beware of Fragmentation", ATC'23; `Filled` is
//! Fleet's own measure.

use std::collections::HashMap;

use fleet_placement::devices::{
    Demand, DeviceNode, DeviceTask, Growth, Measure, WHOLE, first_by_fragments, least_fragments,
};

const SEEDS: u64 = 10;
/// Name and published share of GPUs handed out, in tenths of a percent.
const WAYS: [(&str, Option<i64>); 6] = [
    ("Random", Some(863)),
    ("DotProd", Some(906)),
    ("Packing", Some(918)),
    ("BestFit", Some(929)),
    ("FGD", Some(952)),
    ("Filled", None),
];

/// xorshift64*: seeded, the same everywhere.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) as usize % bound.max(1)
    }
}

fn rows(file: &str) -> Vec<HashMap<String, String>> {
    let text = std::fs::read_to_string(file).unwrap_or_else(|error| fail(&format!("{file}: {error}")));
    let mut lines = text.lines();
    let header: Vec<&str> = lines.next().unwrap_or_default().split(',').collect();
    lines
        .map(|line| header.iter().zip(line.split(',')).map(|(k, v)| (k.to_string(), v.to_string())).collect())
        .collect()
}

fn fail(message: &str) -> ! {
    eprintln!("{message}");
    std::process::exit(2)
}

fn number(row: &HashMap<String, String>, column: &str) -> f64 {
    let text = row.get(column).unwrap_or_else(|| fail(&format!("column {column} is missing")));
    text.parse().unwrap_or_else(|_| fail(&format!("{column}: found {text:?}; allowed: a number")))
}

fn tasks(file: &str) -> Vec<DeviceTask> {
    rows(file)
        .iter()
        .map(|row| DeviceTask {
            cpu: (number(row, "cpu") * 1000.0) as i64,
            memory: (number(row, "mem_gb") * 1024.0) as i64,
            count: number(row, "gpus") as usize,
            share: number(row, "gpu_milli") as i64,
            models: row["gpu_spec"].split('|').filter(|m| !m.is_empty()).map(str::to_string).collect(),
        })
        .collect()
}

fn nodes(file: &str) -> Vec<DeviceNode> {
    let all = rows(file);
    let gpu = all.iter().filter(|row| row["cluster"] == "openb" && number(row, "gpus") > 0.0);
    gpu.map(|row| DeviceNode {
        cpu: (number(row, "cpu") * 1000.0) as i64,
        memory: (number(row, "mem_gb") * 1024.0) as i64,
        devices: vec![WHOLE; number(row, "gpus") as usize],
        model: row["gpu_type"].clone(),
    })
    .collect()
}

type Known = HashMap<(DeviceNode, DeviceTask), Option<Growth>>;

/// Devices in use first, then idle ones of a node in use, then an idle node, in points of a hundred: the rule of
/// `GpuPackingScore` in the simulator of the figures' authors.
fn packing_points(node: &DeviceNode, task: &DeviceTask) -> i64 {
    // To who asks for none, all nodes are alike.
    if task.count == 0 {
        return 0;
    }
    let idle = node.devices.iter().filter(|free| **free == WHOLE).count() as i64;
    if idle == node.devices.len() as i64 {
        return (100 / 3 - idle).max(idle);
    }
    let mut fitting: Vec<i64> = node.devices.iter().copied().filter(|free| *free >= task.share).collect();
    fitting.sort_unstable();
    fitting.truncate(task.count);
    match fitting.iter().filter(|free| **free == WHOLE).count() as i64 {
        0 => (100 - fitting.iter().map(|free| free * 100 / WHOLE).sum::<i64>() / 10).max(50),
        broken_into => (50 - broken_into).max(100 / 3),
    }
}

/// The first of the nodes with the most points, with the fullest devices that fit.
fn first_of_the_best(
    free: &[DeviceNode],
    task: &DeviceTask,
    points: &dyn Fn(&DeviceNode) -> i64,
) -> Option<(usize, Vec<usize>)> {
    let fitting = (0..free.len()).filter(|at| free[*at].fits(task));
    let best = fitting.min_by_key(|at| std::cmp::Reverse(points(&free[*at])))?;
    Some((best, free[best].tightest(task)?))
}

/// Chooses a node and devices.
fn choose(
    way: &str,
    free: &[DeviceNode],
    task: &DeviceTask,
    demand: &Demand,
    known: &mut Known,
    random: &mut Random,
) -> Option<(usize, Vec<usize>)> {
    let fitting = || (0..free.len()).filter(|at| free[*at].fits(task));
    let by = |score: &dyn Fn(&DeviceNode) -> f64| {
        let best = fitting().map(|at| (score(&free[at]), at)).min_by(|a, b| a.0.total_cmp(&b.0))?;
        Some((best.1, free[best.1].tightest(task)?))
    };
    let (cpu, gpu) = (task.cpu as f64 / 128_000.0, task.total() as f64 / 8_000.0);
    let cpu_of = |node: &DeviceNode| node.cpu as f64 / 128_000.0;
    let gpu_of = |node: &DeviceNode| node.free() as f64 / 8_000.0;
    match way {
        "Random" => {
            let open: Vec<usize> = fitting().collect();
            let at = *open.get(random.below(open.len()))?;
            let mut devices: Vec<usize> =
                (0..free[at].devices.len()).filter(|d| free[at].devices[*d] >= task.share).collect();
            while devices.len() > task.count {
                devices.swap_remove(random.below(devices.len()));
            }
            Some((at, devices))
        }
        // In whole points of a hundred, as the authors' simulator scores it.
        "DotProd" => {
            let points =
                |node: &DeviceNode| (100.0 * (1.0 - (cpu_of(node) * cpu + gpu_of(node) * gpu) / 2.0)) as i64;
            first_of_the_best(free, task, &points)
        }
        "BestFit" => by(&|node| cpu_of(node) - cpu + gpu_of(node) - gpu),
        "Packing" => first_of_the_best(free, task, &|node| packing_points(node, task)),
        "FGD" => first_by_fragments(free, task, demand.weight(), &mut |node, task| {
            grown(node, task, demand, known)
        }),
        _ => least_fragments(free, task, &mut |node, task| grown(node, task, demand, known)),
    }
}

fn grown(node: &DeviceNode, task: &DeviceTask, demand: &Demand, known: &mut Known) -> Option<Growth> {
    if !node.fits(task) {
        return None;
    }
    let key = (node.clone(), task.clone());
    known.entry(key).or_insert_with(|| demand.growth(node, task)).clone()
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [pods, node_file, only @ ..] = arguments.as_slice() else {
        fail("usage: packing PODS.csv NODES.csv [WAY...]")
    };
    let (tasks, nodes) = (tasks(pods), nodes(node_file));
    let capacity: i64 = nodes.iter().map(DeviceNode::free).sum();
    println!("{} pods, {} nodes with {} GPUs", tasks.len(), nodes.len(), capacity / WHOLE);
    println!("{:<10} {:>10} {:>10} {:>12} {:>10}", "way", "GPUs, %", "published", "least..most", "s a run");
    for (way, published) in
        WAYS.into_iter().filter(|(way, _)| only.is_empty() || only.iter().any(|o| o == way))
    {
        let measure = if way == "Filled" { Measure::Filled } else { Measure::Next };
        let (demand, mut known) = (Demand::of(measure, &tasks), Known::new());
        let mut shares = Vec::new();
        let start = std::time::Instant::now();
        for seed in 1..=SEEDS {
            let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
            let mut order: Vec<usize> = (0..tasks.len()).collect();
            for at in (1..order.len()).rev() {
                order.swap(at, random.below(at + 1));
            }
            let mut free = nodes.clone();
            let (mut arrived, mut held) = (0, 0);
            // The trace asks for less than the cluster has: once it is through, pods of it are drawn with replacement.
            let mut order = order.into_iter();
            loop {
                let task = &tasks[order.next().unwrap_or_else(|| random.below(tasks.len()))];
                if arrived + task.total() > capacity {
                    break;
                }
                arrived += task.total();
                if let Some((at, devices)) = choose(way, &free, task, &demand, &mut known, &mut random) {
                    free[at].take(task, &devices);
                    held += task.total();
                }
            }
            shares.push(held as f64 * 100.0 / capacity as f64);
        }
        let mean = shares.iter().sum::<f64>() / shares.len() as f64;
        let (least, most) = shares.iter().fold((f64::MAX, 0.0f64), |(l, m), s| (l.min(*s), m.max(*s)));
        println!(
            "{way:<10} {mean:>10.1} {:>10} {:>12} {:>10.2}",
            published.map_or("-".to_string(), |tenths| format!("{:.1}", tenths as f64 / 10.0)),
            format!("{least:.1}..{most:.1}"),
            start.elapsed().as_secs_f64() / SEEDS as f64
        );
    }
}
