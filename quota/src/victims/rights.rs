//! The rights to preempt that the tree gives.

use crate::ledger::{AdmittedJob, Ledger};
use crate::queues::WaitingJob;
use crate::tree::{GUARANTEE, NodeId, QuotaTree, RECLAIM, Request, SHARE_PREEMPTION, WITHIN};

/// The rules by which a job may preempt, whether or not that finds victims.
pub(crate) struct Rights;

impl Rights {
    /// By its min, from other leaves.
    pub fn reclaim(ledger: &Ledger, leaf: NodeId, request: &Request) -> bool {
        let tree = ledger.tree();
        attribute(tree, leaf, RECLAIM) != "Never"
            && (ledger.node_inside_min(leaf, request)
                || tree
                    .path_to_root(leaf)
                    .any(|node| lends_min(tree, node) && ledger.node_inside_min(node, request)))
    }

    /// From larger shares.
    pub fn fair_share(tree: &QuotaTree) -> bool {
        attribute(tree, NodeId::ROOT, SHARE_PREEMPTION) == "FairShare"
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
    let within = attribute(ledger.tree(), leaf, WITHIN);
    let (never, newer) = (within == "Never", within == "LowerOrNewerEqualPriority");
    let jobs = ledger
        .preemptible_while(leaf, move |other| !never && (other < priority || (newer && other == priority)));
    jobs.filter(move |job| job.priority < priority || job.enqueued_at_ms > age)
}

/// The node lends its own min to any job below it.
pub(crate) fn lends_min(tree: &QuotaTree, node: NodeId) -> bool {
    node != NodeId::ROOT && !tree.node(node).is_leaf() && attribute(tree, node, GUARANTEE) == "Subtree"
}

pub(super) fn attribute<'t>(tree: &'t QuotaTree, node: NodeId, name: &str) -> &'t str {
    tree.node(node).attributes.get(name).map_or("", String::as_str)
}
