//! Laws on trees that bound two resources: what is taken in one of them is no way around the min in the other.

use proptest::prelude::*;

use super::*;

const NAMES: [&str; 2] = ["cpu", "nvidia.com/gpu"];
const LEAVES: [&str; 5] = ["a/1", "a/2", "b/1", "b/2", "c"];

/// Amounts of both resources.
type Both = [i64; 2];

#[derive(Clone, Debug)]
struct RequestedJob {
    leaf: usize,
    amounts: Both,
    priority: i64,
}

fn asked() -> impl Strategy<Value = RequestedJob> {
    (0_usize..5, 0_i64..5, 0_i64..5, -1_i64..2).prop_map(|(leaf, cores, gpus, priority)| RequestedJob {
        leaf,
        // A job asks for something.
        amounts: [if gpus == 0 { cores.max(1) } else { cores }, gpus],
        priority,
    })
}

/// By leaf the min, and what the inner nodes guarantee beyond that of their leaves.
/// The last of `extra` is what the root has beyond all mins.
fn two_resource_tree(mins: &[Both; 5], extra: &[Both; 3], share: bool) -> QuotaTree {
    let quantities =
        |amounts: Both| NAMES.into_iter().zip(amounts).map(|(n, a)| (n.to_owned(), a.to_string()));
    let node = |name: &str, min: Both, children: Vec<NodeSpec>| NodeSpec {
        name: name.to_owned(),
        min: quantities(min).collect(),
        children,
        ..NodeSpec::default()
    };
    let sum = |parts: [Both; 3]| [0, 1].map(|r| parts.iter().map(|part| part[r]).sum::<i64>());
    let inner = |name: &str, at: usize| {
        let leaves = vec![node("1", mins[2 * at], Vec::new()), node("2", mins[2 * at + 1], Vec::new())];
        node(name, sum([mins[2 * at], mins[2 * at + 1], extra[at]]), leaves)
    };
    let children = vec![inner("a", 0), inner("b", 1), node("c", mins[4], Vec::new())];
    let mins = mins.iter().chain(extra).fold([0, 0], |sum: Both, part| [0, 1].map(|r| sum[r] + part[r]));
    let mut root = node("root", mins, children);
    root.max = quantities(mins).collect();
    if share {
        root.attributes.insert("fleet.dev/share-preemption".to_owned(), "FairShare".to_owned());
    }
    QuotaTree::build(&root).unwrap().0
}

fn resources(amounts: Both) -> Resources {
    let [cores, gpus] = amounts;
    Resources::from_pairs([(NAMES[0], cores * 1000), (NAMES[1], gpus)])
}

/// The slow way to know what the jobs below a node use, without those that are gone.
fn used_below(planner: &Planner, node: NodeId, name: &str, gone: &[&JobId]) -> i64 {
    let stay = planner.ledger().jobs().filter(|job| !gone.contains(&&job.id));
    let below = stay.filter(|job| planner.tree().path_to_root(job.leaf).any(|on_path| on_path == node));
    below.map(|job| job.request.get(name)).sum()
}

/// `a` borrows GPUs alone: the cores of its first leaf are lent by its second.
#[test]
fn a_parent_inside_its_min_of_cores_gives_none_because_it_borrows_gpus() {
    let mins = [[0, 0], [8, 6], [2, 2], [2, 4], [4, 2]];
    let mut planner = Planner::new(Arc::new(two_resource_tree(&mins, &[[0, 0], [0, 0], [0, 2]], false)));
    let mut clusters = Clusters::endless();
    let running =
        [("a1", "a/1", [8, 0]), ("a2", "a/2", [0, 12]), ("b1", "b/1", [8, 0]), ("b2", "b/1", [0, 4])];
    for (id, path, amounts) in running {
        let job = admitted(planner.tree(), id, path, 0, 0, 0);
        planner.admit(AdmittedJob { request: resources(amounts), ..job });
        clusters.hold(id, "any", 0);
    }
    let job = waiting(planner.tree(), "c1", "c", 0, 0, 10);
    planner.enqueue(WaitingJob { request: resources([4, 2]), ..job });
    let plan = planner.plan(1000, PlanLimits::default(), &mut clusters);
    let lines: Vec<String> = plan.decisions.iter().map(said).collect();
    assert_eq!(lines, ["c1 preempts a2 (Reclaim), b1 (Reclaim) for any"]);
}

proptest! {
    #![proptest_config(super::histories::cases(256))]

    /// A victim of a reclaim or by share uses something that is short for the preemptor when the victims before it are gone,
    /// at a node above both; and of that resource the victim's side uses more than its min, from its leaf up to the sibling of
    /// the preemptor's path.
    #[test]
    fn a_victim_gives_what_is_short_and_what_its_side_borrows(
        mins in proptest::array::uniform5(proptest::array::uniform2(0_i64..6)),
        extra in proptest::array::uniform3(proptest::array::uniform2(0_i64..4)),
        share in any::<bool>(),
        running in proptest::collection::vec(asked(), 3..20),
        comes in asked(),
    ) {
        let mut planner = Planner::new(Arc::new(two_resource_tree(&mins, &extra, share)));
        let mut clusters = Clusters::endless();
        for (i, job) in running.iter().enumerate() {
            let id = format!("j{i:02}");
            let job = AdmittedJob {
                request: resources(job.amounts),
                ..admitted(planner.tree(), &id, LEAVES[job.leaf], 0, job.priority, i as i64)
            };
            if planner.ledger().check(job.leaf, &job.request, true).is_ok() {
                planner.admit(job);
                clusters.hold(&id, "any", 0);
            }
        }
        let preemptor = waiting(planner.tree(), "comes", LEAVES[comes.leaf], 0, comes.priority, 100);
        let preemptor = WaitingJob { request: resources(comes.amounts), ..preemptor };
        planner.enqueue(preemptor.clone());
        let plan = planner.plan(1000, PlanLimits::default(), &mut clusters);
        let tree = planner.tree();
        for (_, take) in plan.takes() {
            let own = |victim: &&Victim| victim.rule == TakeRule::InQueuePriority;
            let mut gone: Vec<&JobId> = take.victims.iter().filter(own).map(|victim| &victim.job).collect();
            for victim in take.victims.iter().filter(|victim| !own(victim)) {
                let job = planner.ledger().job(&victim.job).unwrap();
                let meets = |node: &NodeId| tree.is_below(preemptor.leaf, *node);
                let gives = |name: &&str| {
                    let asked = preemptor.request.get(name);
                    let short = tree.path_to_root(job.leaf).filter(meets).any(|node| {
                        let max = tree.max(node, name);
                        max.is_some_and(|max| used_below(&planner, node, name, &gone) + asked > max)
                    });
                    let borrowed = tree.path_to_root(job.leaf).take_while(|node| !meets(node)).all(|node| {
                        used_below(&planner, node, name, &gone) > tree.min(node, name)
                    });
                    asked > 0 && job.request.get(name) > 0 && short && borrowed
                };
                prop_assert!(NAMES.iter().any(gives), "{} of {:?}\n{:?}", victim.job, take, planner.ledger());
                gone.push(&victim.job);
            }
        }
    }
}
