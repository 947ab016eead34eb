//! The ideal for comparison: the same jobs and quota, with no time spent but the jobs' own.
//!
//! Pure. Parents are alike and lend each other nothing, so one of them is enough. The job of the highest class that
//! fits goes first, within a class in the order of arrival. Deliberately absent: preemption, which would only start
//! large jobs sooner by doing work twice.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, VecDeque},
};

use super::BenchCase;

/// Best possible result for the jobs of a plan.
pub(super) struct Ideal {
    /// From the first submission to the last end, seconds.
    pub wall_s: f64,
    /// Mean time to admission by class, in the order of the plan, seconds.
    pub admission_s: [f64; 3],
}

pub(super) fn ideal(plan: &BenchCase) -> Ideal {
    let cores = plan.leaves as i64 * super::MIN;
    let mut arrivals: Vec<(u64, usize)> = Vec::new();
    for (at, class) in plan.classes.iter().enumerate() {
        let of_leaf = (0..class.count).map(|n| (u64::from(n) * class.every_ms, at));
        arrivals.extend(of_leaf.flat_map(|arrival| vec![arrival; plan.leaves]));
    }
    arrivals.sort_unstable();
    let mut order: Vec<usize> = (0..plan.classes.len()).collect();
    order.sort_by_key(|class| Reverse(plan.classes[*class].priority));
    let mut arrivals = arrivals.into_iter().peekable();
    let mut waiting: [VecDeque<u64>; 3] = Default::default();
    let mut ends: BinaryHeap<Reverse<(u64, i64)>> = BinaryHeap::new();
    let (mut free, mut now, mut waited_ms) = (cores, 0, [0_u64; 3]);
    loop {
        while let Some((at, class)) = arrivals.next_if(|(at, _)| *at <= now) {
            waiting[class].push_back(at);
        }
        while let Some(Reverse((_, cores))) = ends.peek().filter(|Reverse((at, _))| *at <= now).copied() {
            ends.pop();
            free += cores;
        }
        for class in &order {
            let of = &plan.classes[*class];
            while free >= of.cores
                && let Some(came) = waiting[*class].pop_front()
            {
                free -= of.cores;
                waited_ms[*class] += now - came;
                ends.push(Reverse((now + of.run_ms, of.cores)));
            }
        }
        let next = arrivals.peek().map(|(at, _)| *at);
        let Some(at) = ends.peek().map(|Reverse((at, _))| *at).into_iter().chain(next).min() else { break };
        now = at;
    }
    let mean = |class: usize| {
        let jobs = u64::from(plan.classes[class].count) * plan.leaves as u64;
        waited_ms[class] as f64 / jobs as f64 / 1000.0
    };
    Ideal { wall_s: now as f64 / 1000.0, admission_s: [mean(0), mean(1), mean(2)] }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{args::Shape, queue::plan};

    #[test]
    fn the_ideal_is_what_the_work_takes() {
        for (shape, said_s) in [(Shape::Baseline, 68.8), (Shape::LargeScale, 4.1)] {
            let plan = plan(shape);
            let ideal = ideal(&plan);
            let least_s = plan.work_s() / plan.cores() as f64;
            assert!(ideal.wall_s >= least_s, "{}: {} s of work", plan.name, least_s);
            let off = (ideal.wall_s - said_s).abs() / said_s;
            assert!(off < 0.05, "{}: {} s, said are {said_s} s", plan.name, ideal.wall_s);
            // Higher classes go first.
            assert!(ideal.admission_s[2] <= ideal.admission_s[1]);
            assert!(ideal.admission_s[1] <= ideal.admission_s[0]);
        }
    }
}
