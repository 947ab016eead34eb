//! The rights to preempt that the tree gives.

use crate::ledger::{AdmittedJob, Ledger};
use crate::queues::WaitingJob;
use fleet_quota_tree::{NodeId, Reclaim, Request, Within};

/// The rules by which a job may preempt, whether or not that finds victims.
pub(crate) struct Rights;

impl Rights {
    /// By its min, from other leaves.
    pub fn reclaim(ledger: &Ledger, leaf: NodeId, request: &Request) -> bool {
        let tree = ledger.tree();
        tree.node(leaf).reclaim != Reclaim::Never
            && (ledger.node_inside_min(leaf, request)
                || tree
                    .path_to_root(leaf)
                    .any(|node| tree.node(node).lends_min && ledger.node_inside_min(node, request)))
    }

    /// From its own leaf: whether there is a candidate.
    pub fn within(ledger: &Ledger, leaf: NodeId, priority: i64, enqueued_at_ms: i64) -> bool {
        // Most leaves have none, and this is asked of every class that waits.
        ledger.lowest_priority_in(leaf).is_some_and(|lowest| lowest <= priority)
            && candidates_within(ledger, leaf, priority, enqueued_at_ms).next().is_some()
    }
}

/// Jobs of the preemptor's leaf that it may preempt.
pub(super) fn own_candidates<'l>(
    ledger: &'l Ledger,
    preemptor: &WaitingJob,
) -> impl Iterator<Item = &'l AdmittedJob> + use<'l> {
    candidates_within(ledger, preemptor.leaf, preemptor.priority, preemptor.enqueued_at_ms)
}

fn candidates_within(
    ledger: &Ledger,
    leaf: NodeId,
    priority: i64,
    age: i64,
) -> impl Iterator<Item = &AdmittedJob> + use<'_> {
    let within = ledger.tree().node(leaf).within;
    let (never, newer) = (within == Within::Never, within == Within::LowerOrNewerEqualPriority);
    let jobs = ledger
        .preemptible_while(leaf, move |other| !never && (other < priority || (newer && other == priority)));
    jobs.filter(move |job| job.priority < priority || job.enqueued_at_ms > age)
}
