//! Checks a plan before anything of it is sent: no decision may break an invariant of `docs/ARCHITECTURE.md`.
//!
//! Pure function of the known jobs and the ledger after the plan. Independent of the planner's own searches,
//! so that an error there is found here. Its cost depends on the decisions, not on the waiting jobs.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use fleet_quota::{JobId, Ledger, TakeRule};
use fleet_quota_tree::{MAX_JOBS, NodeId};
use fleet_resources::{ResourceName, Resources};

use crate::Decision;

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

/// The known state of a job that a plan decides about.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Known {
    /// The cluster to which it is bound, or being bound.
    pub target: Option<String>,
    /// It has ended.
    pub is_over: bool,
    /// It waits in a queue, whose limits apply to it.
    pub is_queued: bool,
    pub is_preemptible: bool,
    pub total: Resources,
}

/// The invariants that the decisions would break. `known` is `None` for a job that is gone, about which
/// nothing is sent.
pub fn broken(
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
            Decision::Regroup { .. } | Decision::Move { .. } => {}
            Decision::EndPods { job, taker, .. } => {
                let Some(known) = known(job) else { continue };
                if !known.is_over {
                    let what = format!("pods of {job} are to end for {taker}: it has not ended");
                    found.push(Violation { invariant: 4, what });
                }
            }
            Decision::Evict { job, taker, rule, .. } => {
                let Some(known) = known(job) else { continue };
                let mut say = |what: &str| {
                    let what = format!("{job} is preempted by {taker}: {what}");
                    found.push(Violation { invariant: 4, what });
                };
                // Cells are allocated by class alone, not by quota.
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

/// Why the quota of a job that holds places is exceeded: a max, or a min if it may not be preempted. `used`: sums already computed, by node.
pub fn over_quota(
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
    let beyond_max = tree.path_to_root(held.leaf).find_map(|node| {
        let used = used.entry(node).or_insert_with(|| ledger.used(node));
        asked.iter().find_map(|resource| {
            let (max, found) = (tree.max(node, resource)?, used.get(resource));
            let path = &tree.node(node).path;
            (found > max).then(|| format!("{path} would use {found} {resource}, allowed: {max}"))
        })
    });
    let is_asked = |(_, name): &(usize, &ResourceName)| total.get(name.as_str()) > 0;
    let resources: Vec<_> = tree.resources().iter().enumerate().filter(is_asked).collect();
    let beyond_min = || {
        tree.path_to_root(held.leaf).find_map(|node| {
            resources.iter().find_map(|(r, resource)| {
                let (room, path) = (ledger.firm_room_at(node, *r), &tree.node(node).path);
                let over = room.saturating_neg();
                (over > 0).then(|| {
                    format!(
                        "{path} would exceed its min by {over} {resource} of jobs that may not be preempted"
                    )
                })
            })
        })
    };
    beyond_max.or_else(|| if held.preemptible { None } else { beyond_min() })
}
