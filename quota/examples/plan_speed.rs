//! Prints how long a plan takes over 100,000 waiting jobs in 1,000 leaves: from
//! nothing, and after one job has ended. Fixed inputs; run with `--release`.

use std::sync::Arc;
use std::time::Instant;

use fleet_quota::{AnyPlace, JobId, NodeSpec, PlanLimits, Planner, QuotaTree, WaitingJob};
use fleet_resources::Resources;

fn node(name: &str, min: i64, max: i64, children: Vec<NodeSpec>) -> NodeSpec {
    let amount = |n: i64| [("cpu".to_owned(), n.to_string())].into();
    NodeSpec { name: name.to_owned(), min: amount(min), max: amount(max), children, ..NodeSpec::default() }
}

fn main() {
    let parents = (0..10).map(|p| {
        let leaves = (0..100).map(|l| node(&format!("l{p}-{l}"), 20, 120, vec![])).collect();
        node(&format!("p{p}"), 2_000, 6_000, leaves)
    });
    let spec = node("root", 20_000, 20_000, parents.collect());
    let tree = Arc::new(QuotaTree::build(&spec).expect("the tree above is valid").0);
    let mut planner = Planner::new(Arc::clone(&tree));
    for (n, leaf) in tree.leaves().enumerate() {
        for i in 0..100_i64 {
            let (cores, priority) = [(1, 50), (5, 100), (20, 200)][(i % 3) as usize];
            let name = format!("j{n:04}-{i:03}");
            planner.enqueue(WaitingJob {
                id: JobId::new(&name),
                name: name.as_str().into(),
                run_time_ms: None,
                leaf,
                request: Resources::from_pairs([("cpu", cores * 1000)]),
                preemptible: true,
                priority,
                enqueued_at_ms: i,
                not_before_ms: 0,
                shape: cores as u64,
            });
        }
    }
    let step = |planner: &mut Planner, what: &str| {
        let start = Instant::now();
        let found = planner.plan(1_000, PlanLimits::default(), &mut AnyPlace);
        let took = start.elapsed().as_secs_f64() * 1000.0;
        let admitted: Vec<JobId> = found.admitted().map(|(id, _)| id.clone()).collect();
        let waiting = planner.queues().len();
        println!("{what}: {took:.2} ms, {} admitted, {waiting} still wait", admitted.len());
        admitted
    };
    let admitted = step(&mut planner, "from nothing");
    for id in admitted.iter().take(5) {
        planner.release(id);
        step(&mut planner, "after one job ended");
    }
}
