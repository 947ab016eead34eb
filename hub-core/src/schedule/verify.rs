//! The check of a plan before anything of it is sent: no decision may break an invariant of `docs/ARCHITECTURE.md`.
//!
//! Pure over what is known of each job and the ledger as the plan left it. Written without the planner's own
//! searches, so that an error there does not hide itself here. It costs by what was decided, not by what waits.

use std::collections::{BTreeMap, BTreeSet};

use fleet_quota::{JobId, Ledger, MAX_JOBS, NodeId, TakeRule};
use fleet_resources::Resources;

use crate::planner::Decision;

/// An invariant that a plan would break; numbers are those of `docs/ARCHITECTURE.md`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Violation {
    pub invariant: u8,
    pub what: String,
}

impl std::fmt::Display for Violation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "invariant {}: {}", self.invariant, self.what)
    }
}

/// What is known of a job that a plan decides about.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Known {
    /// Where it is bound, or on its way to.
    pub target: Option<String>,
    /// It has ended.
    pub is_over: bool,
    /// It waits in a queue, whose limits hold for it.
    pub is_queued: bool,
    pub is_preemptible: bool,
    pub total: Resources,
}

/// What the decisions of a plan would break. `known`: `None` for a job that is gone, about which nothing is sent.
pub(super) fn broken(
    known: impl Fn(&JobId) -> Option<Known>,
    ledger: Option<&Ledger>,
    decisions: &[Decision],
) -> Vec<Violation> {
    let mut found = Vec::new();
    let mut placed = BTreeSet::new();
    let mut used = BTreeMap::new();
    for decision in decisions {
        match decision {
            Decision::Ask { job, cluster } | Decision::Bind { job, cluster } => {
                let Some(known) = known(job) else { continue };
                let mut say = |invariant, what: String| {
                    found.push(Violation {
                        invariant,
                        what: format!("{job} is to be placed in {cluster}: {what}"),
                    });
                };
                if !placed.insert(job) {
                    say(1, "the plan places it twice".to_string());
                }
                if let Some(target) = &known.target {
                    say(1, format!("it is bound to {target}"));
                }
                if known.is_over {
                    say(4, "it has ended".to_string());
                }
                if let (true, Some(ledger)) = (known.is_queued, ledger)
                    && let Some(what) = over_quota(ledger, job, &known.total, &mut used)
                {
                    say(3, what);
                }
            }
            Decision::Regroup { .. } => {}
            Decision::Evict { job, taker, rule, .. } => {
                let Some(known) = known(job) else { continue };
                let mut say = |what: &str| {
                    let what = format!("{job} is to make room for {taker}: {what}");
                    found.push(Violation { invariant: 4, what });
                };
                // Whose cells they are is no matter of quota: there the class alone decides.
                if !known.is_preemptible && *rule != TakeRule::VirtualCluster {
                    say("it may not be preempted");
                }
                if job == taker {
                    say("it is the same job");
                }
            }
        }
    }
    found
}

/// Why the quota of a job that holds places does not add up. `used`: sums already read, by node.
pub(super) fn over_quota(
    ledger: &Ledger,
    job: &JobId,
    total: &Resources,
    used: &mut BTreeMap<NodeId, Resources>,
) -> Option<String> {
    let tree = ledger.tree();
    let Some(held) = ledger.job(job).filter(|held| held.request == *total) else {
        return Some("its quota is not counted".to_string());
    };
    let asked = total.iter().filter(|(_, amount)| *amount > 0).map(|(name, _)| name.as_str());
    let asked: Vec<&str> = asked.chain([MAX_JOBS]).collect();
    tree.path_to_root(held.leaf).find_map(|node| {
        let used = used.entry(node).or_insert_with(|| ledger.used(node));
        asked.iter().find_map(|resource| {
            let (max, found) = (tree.max(node, resource)?, used.get(resource));
            let path = &tree.node(node).path;
            (found > max).then(|| format!("{path} would use {found} {resource}, allowed are {max}"))
        })
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use fleet_quota::{AdmittedJob, NodeSpec, QuotaTree};

    use super::*;

    fn cpu(cores: i64) -> Resources {
        Resources::from_pairs([("cpu", cores * 1000)])
    }

    /// 8 cores in all, 6 and two jobs in `a`; these jobs of so many cores hold quota there.
    fn ledger(held: &[(&str, i64)]) -> Ledger {
        let root: NodeSpec = serde_json::from_value(serde_json::json!({"name": "root", "max": {"cpu": 8},
            "children": [{"name": "a", "namespaces": ["a"], "max": {"cpu": 6, "kube-queue/max-jobs": 2}}]}))
        .expect("a node");
        let (tree, _) = QuotaTree::build(&root).expect("a tree");
        let leaf = tree.find("root/a").expect("there");
        let mut ledger = Ledger::new(Arc::new(tree));
        for (name, cores) in held {
            ledger.admit(AdmittedJob {
                id: JobId::new(name),
                leaf,
                request: cpu(*cores),
                preemptible: true,
                priority: 0,
                enqueued_at_ms: 0,
                admitted_at_ms: 0,
                preemptions: 0,
            });
        }
        ledger
    }

    fn ask(job: &str) -> Decision {
        Decision::Ask { job: JobId::new(job), cluster: "east".to_string() }
    }

    fn bind(job: &str) -> Decision {
        Decision::Bind { job: JobId::new(job), cluster: "west".to_string() }
    }

    fn evict(job: &str, taker: &str) -> Decision {
        Decision::Evict {
            job: JobId::new(job),
            taker: JobId::new(taker),
            cluster: "east".to_string(),
            rule: TakeRule::Reclaim,
            lost_work_ms: 0,
        }
    }

    /// Jobs ask for 2 cores; `firm` may not be preempted, `bound` is bound, `over` has ended, `direct` has no
    /// queue, `gone` is gone.
    fn known(job: &JobId) -> Option<Known> {
        let name = job.as_str();
        let known = Known {
            target: (name == "bound").then(|| "north".to_string()),
            is_over: name == "over",
            is_queued: name != "direct",
            is_preemptible: name != "firm",
            total: cpu(2),
        };
        (name != "gone").then_some(known)
    }

    #[track_caller]
    fn check(held: &[(&str, i64)], decisions: &[Decision], expected: &[&str]) {
        let found = broken(known, Some(&ledger(held)), decisions);
        let found: Vec<String> = found.iter().map(ToString::to_string).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn a_plan_that_breaks_nothing() {
        check(&[("one", 2), ("two", 2)], &[ask("one"), bind("two"), evict("bound", "three")], &[]);
        // Without a queue nothing limits it; of what is gone nothing is sent.
        check(&[("large", 9)], &[ask("direct"), bind("gone"), evict("gone", "one")], &[]);
        assert_eq!(broken(known, None, &[ask("one")]), []);
    }

    #[test]
    fn a_job_placed_twice() {
        check(
            &[("one", 2)],
            &[ask("one"), bind("one")],
            &["invariant 1: one is to be placed in west: the plan places it twice"],
        );
        check(
            &[("bound", 2)],
            &[ask("bound")],
            &["invariant 1: bound is to be placed in east: it is bound to north"],
        );
        check(&[("over", 2)], &[bind("over")], &["invariant 4: over is to be placed in west: it has ended"]);
    }

    #[test]
    fn quota_over_its_max() {
        check(
            &[("large", 5), ("one", 2)],
            &[ask("one")],
            &["invariant 3: one is to be placed in east: root/a would use 7000 cpu, allowed are 6000"],
        );
        check(
            &[("one", 2), ("two", 2), ("three", 2)],
            &[ask("three")],
            &[
                "invariant 3: three is to be placed in east: root/a would use 3 kube-queue/max-jobs, allowed are 2",
            ],
        );
        check(&[], &[ask("one")], &["invariant 3: one is to be placed in east: its quota is not counted"]);
        check(
            &[("one", 1)],
            &[ask("one")],
            &["invariant 3: one is to be placed in east: its quota is not counted"],
        );
    }

    #[test]
    fn a_run_that_may_not_be_ended() {
        check(
            &[],
            &[evict("firm", "one")],
            &["invariant 4: firm is to make room for one: it may not be preempted"],
        );
        check(&[], &[evict("one", "one")], &["invariant 4: one is to make room for one: it is the same job"]);
    }
}
