//! Prints how long a plan takes over 100,000 waiting jobs in 1,000 leaves: from
//! nothing, and after one job has ended. Fixed inputs; run with `--release`.

use std::sync::Arc;
use std::time::Instant;

use fleet_quota::{JobId, Ledger, NodeSpec, PlanLimits, Queues, QuotaTree, WaitingJob, plan};
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
    let mut queues = Queues::new();
    for (n, leaf) in tree.leaves().enumerate() {
        for i in 0..100_i64 {
            let (cores, priority) = [(1, 50), (5, 100), (20, 200)][(i % 3) as usize];
            let name = format!("j{n:04}-{i:03}");
            queues.enqueue(WaitingJob {
                id: JobId::new(&name),
                name,
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
    let mut ledger = Ledger::new(Arc::clone(&tree));
    let step = |ledger: &mut Ledger, queues: &mut Queues, what: &str| {
        let start = Instant::now();
        let found = plan(ledger, queues, 1_000, PlanLimits::default(), &mut |_| true);
        let took = start.elapsed().as_secs_f64() * 1000.0;
        let admitted: Vec<JobId> = found.admitted().cloned().collect();
        println!(
            "{what}: {took:.2} ms, {} admitted, {} still wait",
            admitted.len(),
            queues.len() - admitted.len()
        );
        for id in &admitted {
            queues.remove(id);
        }
        admitted
    };
    let admitted = step(&mut ledger, &mut queues, "from nothing");
    for id in admitted.iter().take(5) {
        ledger.release(id);
        step(&mut ledger, &mut queues, "after one job ended");
    }
}
