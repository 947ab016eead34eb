//! Preemption by share against a slow oracle that tries all sets of running jobs.

use proptest::prelude::*;

use super::*;

const LEAVES: [&str; 3] = ["a", "b", "own"];

#[derive(Clone, Debug)]
struct Runs {
    leaf: usize,
    cores: i64,
    lost_ms: i64,
}

fn runs() -> impl Strategy<Value = Runs> {
    // All priorities are equal: nobody preempts in its own queue.
    (0_usize..3, 0_i64..4).prop_map(|(leaf, lost_ms)| Runs { leaf, lost_ms, cores: 0 })
}

/// By leaf: min and weight. All borrow from the root, and their shares are what they use above their min by weight.
#[derive(Clone, Debug)]
struct Leaves {
    mins: [i64; 3],
    weights: [i64; 3],
}

impl Leaves {
    fn share(&self, leaf: usize, used: i64) -> (i64, i64) {
        ((used - self.mins[leaf]).max(0), self.weights[leaf])
    }

    fn larger(one: (i64, i64), other: (i64, i64)) -> bool {
        one.0 * other.1 > other.0 * one.1
    }
}

proptest! {
    #![proptest_config(super::histories::cases(256))]

    /// A borrower that does not fit takes by share whenever that is possible at all: there are jobs after which it fits, and
    /// each is in a queue that borrows and has the larger share, with that job and without the other victims. So none of them
    /// could take the start back. Jobs are equal in size and in one cluster: of unequal ones the search does not try all sets.
    #[test]
    fn who_may_take_by_share_finds_victims_if_there_are_any(
        mins in proptest::array::uniform3(0_i64..4),
        weights in proptest::array::uniform3(1_i64..3),
        spare in 0_i64..6,
        places in 0_i64..3,
        running in proptest::collection::vec(runs(), 1..7),
        size in 1_i64..4,
        cores in 1_i64..7,
    ) {
        let running: Vec<Runs> = running.into_iter().map(|job| Runs { cores: size, ..job }).collect();
        let leaves = Leaves { mins, weights };
        let node = |at: usize| format!("{} {}-99 w={}", LEAVES[at], mins[at], weights[at]);
        let sum = running.iter().map(|job| job.cores).sum::<i64>();
        let max = sum.max(mins.iter().sum()) + spare;
        let text = format!(
            "root {max}-{max} @share-preemption=FairShare; {}; {}; {}", node(0), node(1), node(2)
        );
        let mut fleet = Fleet::new(&text, &format!("east {}", sum + places));
        for (i, job) in running.iter().enumerate() {
            fleet.run(&format!("j{i}"), LEAVES[job.leaf], job.cores, 0, "east");
            fleet.clusters.lost.insert(format!("j{i}").as_str().into(), job.lost_ms);
        }
        let used = [0, 1, 2].map(|at| running.iter().filter(|job| job.leaf == at).map(|job| job.cores).sum::<i64>());
        fleet.submit("comes", "own", cores, 0);
        let own = leaves.share(2, used[2] + cores);
        let sets = (0_u32..1 << running.len()).map(|set| {
            running.iter().enumerate().filter(move |(i, _)| set & (1 << i) > 0).map(|(_, job)| job).collect::<Vec<_>>()
        });
        let admissible = |set: &Vec<&Runs>| {
            let gone = |leaf: usize| set.iter().filter(|job| job.leaf == leaf).map(|job| job.cores).sum::<i64>();
            let of = set.iter().map(|job| job.cores).sum::<i64>();
            let fits = sum - of + cores <= max && of + places >= cores;
            fits && set.iter().all(|job| {
                let beside = leaves.share(job.leaf, used[job.leaf] - gone(job.leaf) + job.cores);
                job.leaf != 2 && Leaves::larger(beside, own)
            })
        };
        let possible = own.0 > 0 && sets.into_iter().any(|set| admissible(&set));
        let plan = fleet.planner.plan(0, PlanLimits::default(), &mut fleet.clusters);
        let acts = plan.takes().next().is_some() || plan.admitted().next().is_some();
        prop_assert!(acts || !possible, "{text}: {:?}", plan.decisions);
        for victim in plan.takes().flat_map(|(_, take)| &take.victims).filter(|v| v.rule == TakeRule::FairShare) {
            let leaf = running[victim.job.as_str()[1..].parse::<usize>().unwrap()].leaf;
            prop_assert!(Leaves::larger(leaves.share(leaf, used[leaf]), own), "{text}: {:?}", plan.decisions);
        }
    }
}
