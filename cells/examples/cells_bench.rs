//! Speed of decisions and of recovery: `cargo run --release -p fleet-cells --example cells_bench`.
//!
//! 65,536 devices in four levels (device, socket, node, rack), 100 virtual clusters with racks, nodes and sockets. The
//! load is fixed; times depend on the machine. A decision is `schedule` and, when it places, `commit`.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use fleet_cells::{
    Ask, Cells, Decision, GroupRequest, Unreported,
    config::{CellType, ClusterConfig, PhysicalCell, PhysicalCluster, VirtualCell, VirtualCluster},
};

const RACKS: usize = 512;
const NODES_PER_RACK: i64 = 16;
const VCS: usize = 100;

fn config(vcs: usize) -> ClusterConfig {
    let mut cell_types = BTreeMap::new();
    for (name, child, number, node) in
        [("socket", "gpu", 4, false), ("node", "socket", 2, true), ("rack", "node", NODES_PER_RACK, false)]
    {
        let cell_type =
            CellType { child_cell_type: child.into(), child_cell_number: number, is_node_level: node };
        cell_types.insert(name.to_string(), cell_type);
    }
    let physical_cells = vec![PhysicalCell { cell_type: "rack".into(), ..PhysicalCell::default() }; RACKS];
    let mut virtual_clusters = BTreeMap::new();
    for vc in 0..vcs {
        // 3 racks, 22 nodes and 16 sockets are 78 nodes: 7,800 of the 8,192 nodes are promised.
        let cell = |path: &str, number| VirtualCell { cell_type: path.into(), cell_number: number };
        let own = VirtualCluster {
            virtual_cells: match vcs {
                1 => vec![cell("rack", RACKS as i64)],
                _ => vec![cell("rack", 3), cell("rack.node", 22), cell("rack.node.socket", 16)],
            },
            pinned_cells: Vec::new(),
        };
        virtual_clusters.insert(format!("vc-{vc:02}"), own);
    }
    let physical_cluster = PhysicalCluster { sku_types: BTreeMap::new(), cell_types, physical_cells };
    ClusterConfig { physical_cluster, virtual_clusters }
}

/// SplitMix64.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }
}

/// Gangs as traces have them: most small, some of whole nodes, few of many.
fn request(dice: &mut Dice, number: usize, vcs: usize) -> GroupRequest {
    let (pods, devices) = match dice.below(100) {
        0..=49 => (1, 1),
        50..=64 => (1, 2),
        65..=74 => (1, 4),
        75..=84 => (1, 8),
        85..=92 => (2, 8),
        93..=96 => (4, 8),
        97..=98 => (8, 8),
        _ => (16, 8),
    };
    let priority = [-1, 10, 10, 100][dice.below(4) as usize];
    let vc = format!("vc-{:02}", dice.below(vcs as u64));
    let mut request = GroupRequest::new(&format!("g{number}"), &vc, priority, pods, devices);
    if pods > 1 && dice.below(2) == 0 {
        request.affinity_group.root.within_one_cell = "rack".into();
    }
    request.lazy_preemption_enable = dice.below(4) == 0;
    request
}

fn row(name: &str, times: &mut [Duration]) {
    times.sort_unstable();
    let at = |share: usize| times[(times.len() - 1) * share / 100].as_secs_f64() * 1e3;
    println!(
        "{name:<24} {:>8} {:>10.4} {:>10.4} {:>10.4} {:>10.4}",
        times.len(),
        at(50),
        at(90),
        at(99),
        at(100)
    );
}

fn main() {
    load("100 virtual clusters, one node in a hundred is bad", config(VCS), VCS);
    load("one virtual cluster that was promised everything", config(1), 1);
    recovery();
}

/// Fills the cluster, then keeps it full: one group goes for each that comes.
fn load(title: &str, config: ClusterConfig, vcs: usize) {
    let started = Instant::now();
    let mut cells = match Cells::new(config, Unreported::Good) {
        Ok(cells) => cells,
        Err(errors) => {
            eprintln!("{errors}");
            std::process::exit(2);
        }
    };
    println!("65,536 devices, {title}; configured in {:.3} s", started.elapsed().as_secs_f64());
    let nodes: Vec<_> = cells.nodes().cloned().collect();
    for node in nodes.iter().skip(37).step_by(100).filter(|_| vcs > 1) {
        cells.set_node_health(node, false);
    }
    let mut dice = Dice(1);
    let mut running: Vec<String> = Vec::new();
    let mut times: BTreeMap<&str, Vec<Duration>> = BTreeMap::new();
    for step in 0..60_000_usize {
        if running.len() > 20_000 || (step > 30_000 && step % 2 == 0) {
            let gone = running.swap_remove(dice.below(running.len() as u64) as usize);
            let started = Instant::now();
            cells.release(&gone);
            times.entry("6 release").or_default().push(started.elapsed());
        }
        let request = request(&mut dice, step, vcs);
        let (kind, time) = decide(&mut cells, &request, step as i64 * 1_000, &mut running);
        times.entry(kind).or_default().push(time);
        times.entry("1 all decisions").or_default().push(time);
    }
    println!(
        "{:<24} {:>8} {:>10} {:>10} {:>10} {:>10}",
        "", "number", "p50 ms", "p90 ms", "p99 ms", "max ms"
    );
    for (name, times) in &mut times {
        row(name, times);
    }
    println!();
}

/// One decision, committed; victims go at once.
fn decide(
    cells: &mut Cells,
    request: &GroupRequest,
    now_ms: i64,
    running: &mut Vec<String>,
) -> (&'static str, Duration) {
    let ask = Ask { now_ms, ..Ask::default() };
    let started = Instant::now();
    let decision = cells.schedule(request, &ask);
    let kind = match &decision {
        Decision::Place(proposal) | Decision::Preempt(proposal) => {
            if cells.commit(proposal).is_err() {
                eprintln!("a proposal could not be committed");
                std::process::exit(1);
            }
            if decision.is_place() { "2 place" } else { "3 preempt" }
        }
        Decision::Wait(_) => "4 wait",
        Decision::Refuse(_) => "5 refuse",
    };
    let time = started.elapsed();
    if let Decision::Preempt(proposal) = &decision {
        for victim in &proposal.victims {
            cells.release(&victim.group);
            running.retain(|name| *name != victim.group);
        }
        if let Decision::Place(again) = cells.schedule(request, &ask) {
            let _ = cells.commit(&again);
        }
    }
    if cells.group(request.name()).is_some() {
        running.push(request.name().to_string());
    }
    (kind, time)
}

/// 20,000 groups that run, of one to four devices each.
fn recovery() {
    let Ok(mut cells) = Cells::new(config(VCS), Unreported::Good) else { return };
    let mut dice = Dice(2);
    let mut placed = 0;
    let mut number = 0;
    while placed < 20_000 && number < 200_000 {
        number += 1;
        let vc = format!("vc-{:02}", number % VCS);
        let priority = if dice.below(4) == 0 { -1 } else { 10 };
        let devices = [1, 1, 2, 4][dice.below(4) as usize];
        let request = GroupRequest::new(&format!("r{number}"), &vc, priority, 1, devices);
        if let Decision::Place(proposal) = cells.schedule(&request, &Ask::default()) {
            placed += usize::from(cells.commit(&proposal).is_ok());
        }
    }
    let bound = cells.bound_groups();
    let good = cells.good_nodes();
    let started = Instant::now();
    let recovered = Cells::recover(cells.config().clone(), &good, bound, 0);
    let elapsed = started.elapsed().as_secs_f64();
    match recovered {
        Ok((again, lost)) if lost.is_empty() && again.groups().len() == placed => {
            println!("recovery of {placed} groups: {elapsed:.3} s");
        }
        Ok((_, lost)) => println!("recovery lost {} of {placed} groups", lost.len()),
        Err(errors) => println!("{errors}"),
    }
}
