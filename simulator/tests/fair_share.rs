//! The benchmark of fair-share preemption, scaled down: it loses little work, and `Pending` is logged when a reason changes.

#[path = "../examples/fair_share/measure.rs"]
mod measure;

use measure::{LEAVES, LOADS, measure};

/// Fewer jobs than in the benchmark, and enough that queues form in all leaves.
const JOBS: u64 = 50 * LEAVES;

#[test]
fn fair_shares_lose_little_work_and_are_told_of_in_few_lines() {
    // By load: most work lost, most lines `Pending`, in percent. The first preemptions by share of six hours spare
    // nobody, so that so few jobs lose more than those of the benchmark.
    let bounds =
        [("mixed", 3.0, 70.0), ("one priority", 3.0, 70.0), ("short", 2.5, 25.0), ("at once", 2.0, 10.0)];
    for (load, (name, lost, pending)) in LOADS.iter().zip(bounds) {
        assert_eq!(load.name, name);
        let found = measure(load, JOBS).expect("a run");
        let told = format!(
            "{name}: {:.2} % of the work lost, {} preemptions ({:?}), {:.0} % of {} lines are Pending, {:.1} s",
            found.lost_percent,
            found.preemptions,
            found.preempted,
            found.pending_percent(),
            found.lines,
            found.wall.as_secs_f64()
        );
        println!("{told}");
        assert!(found.preemptions > 0, "{told}");
        assert!(found.lost_percent <= lost && found.pending_percent() <= pending, "{told}");
    }
}
