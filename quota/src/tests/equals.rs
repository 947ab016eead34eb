//! Victims of equal shares: least lost work decides, and the name is last.

use proptest::prelude::*;

use super::*;

#[test]
fn least_lost_work_decides_between_equal_shares_of_two_leaves() {
    for (a_lost_ms, b_lost_ms, victim) in [(60_000, 5_000, "b1"), (5_000, 60_000, "a1")] {
        let mut fleet = Fleet::new("root 8-8; a 0-8; b 0-8; c 4-8", "any 8");
        fleet.run("a1", "a", 4, 0, "any");
        fleet.run("b1", "b", 4, 0, "any");
        fleet.clusters.lost.extend([("a1".into(), a_lost_ms), ("b1".into(), b_lost_ms)]);
        fleet.submit("c1", "c", 2, 0);
        assert_eq!(fleet.plan(), [format!("c1 preempts {victim} (Reclaim) for any")]);
    }
}

#[derive(Clone, Debug)]
struct Runs {
    leaf: usize,
    cores: i64,
    priority: i64,
    lost_ms: i64,
}

fn runs() -> impl Strategy<Value = Runs> {
    // Few values, so that many jobs are equal in all but their names.
    (0_usize..4, 1_i64..4, -1_i64..1, 0_i64..2).prop_map(|(leaf, cores, priority, lost)| Runs {
        leaf,
        cores,
        priority,
        lost_ms: lost * 5_000,
    })
}

/// Four leaves with equal rights under the root or under two equal parents, and one that takes.
const FLAT: (&str, [&str; 4]) = (
    "root 20-20 @share-preemption=FairShare; w 2-20; x 2-20; y 2-20; z 2-20; own 6-20",
    ["w", "x", "y", "z"],
);
const DEEP: (&str, [&str; 4]) = (
    "root 20-20 @share-preemption=FairShare; a 4-20; a/w 2-20; a/x 2-20; b 4-20; b/w 2-20; b/x 2-20; own 6-20",
    ["a/w", "a/x", "b/w", "b/x"],
);

proptest! {
    #![proptest_config(super::histories::cases(128))]

    /// Leaves that swap their names, with their jobs, lose the same jobs as before: when a min is taken back and by share.
    /// The jobs' own names decide where all else is equal.
    #[test]
    fn names_of_equal_leaves_do_not_change_who_is_a_victim(
        running in proptest::collection::vec(runs(), 4..14),
        order in Just([0_usize, 1, 2, 3]).prop_shuffle(),
        swaps in proptest::array::uniform3(any::<bool>()),
        takes in proptest::collection::vec(1_i64..6, 1..4),
    ) {
        let [parents, first, second] = swaps.map(usize::from);
        let below = |at: usize| at ^ if at < 2 { first } else { second } ^ (2 * parents);
        for ((text, names), renamed) in [(FLAT, order), (DEEP, [0, 1, 2, 3].map(below))] {
            let told = |name_of: &dyn Fn(usize) -> usize| {
                let mut fleet = Fleet::new(text, "any 20");
                for (i, job) in running.iter().enumerate() {
                    let (id, path) = (format!("j{i:02}"), names[name_of(job.leaf)]);
                    let fits = leaf(fleet.planner.tree(), path);
                    if fleet.planner.ledger().check(fits, &cpu(job.cores), true).is_ok() {
                        let job_as_run = admitted(fleet.planner.tree(), &id, path, job.cores, job.priority, 0);
                        fleet.planner.admit(job_as_run);
                        fleet.clusters.hold(&id, "any", job.cores);
                        fleet.clusters.lost.insert(id.as_str().into(), job.lost_ms);
                    }
                }
                let mut lines = Vec::new();
                for (i, cores) in takes.iter().enumerate() {
                    fleet.now_ms = 20_000 * (i as i64 + 1);
                    fleet.submit(&format!("t{i}"), "own", *cores, 0);
                    lines.extend(fleet.plan());
                    for id in fleet.planner.ending_jobs().cloned().collect::<Vec<_>>() {
                        fleet.end(id.as_str());
                    }
                    lines.extend(fleet.plan());
                }
                lines
            };
            prop_assert_eq!(told(&|at| at), told(&|at| renamed[at]), "{}", text);
        }
    }
}
