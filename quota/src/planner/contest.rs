//! Which leaf is served next. Each leaf has one candidate class; each inner node has the best of its children's;
//! the root's is served.
//!
//! The order is: inside min before borrowers, then the smallest dominant share after the job, then priority, age,
//! name. A node's share depends only on use below it, so after a change only the paths of the changed leaves are
//! recomputed. Whether a job borrows depends on other nodes, too. Each node keeps the largest amounts of candidates
//! inside min below it; only if it can lend less than one of these are its leaves considered again. Whether a
//! candidate still fits is checked when it wins. A node with less capacity than the smallest request below it has
//! no candidate, so a full tree costs nothing.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use crate::ledger::Ledger;
use crate::queues::{ClassId, OrderKey};
use crate::share::Share;
use fleet_quota_tree::{JOBS, NodeId, QuotaTree, Request};

/// The candidate of a leaf.
#[derive(Clone, Debug)]
pub(super) struct Candidate {
    pub class: ClassId,
    pub job: OrderKey,
    pub request: Request,
    pub preemptible: bool,
    /// It would exceed min on some node of its path.
    pub borrower: bool,
}

/// The candidate of a node, with the node's own share after it.
#[derive(Clone, Debug)]
struct NodeCandidate {
    leaf: NodeId,
    borrower: bool,
    share: Share,
}

#[derive(Clone, Debug)]
pub(super) struct Contest {
    /// By node, leaves only.
    candidates: Vec<Option<Candidate>>,
    /// By node.
    entries: Vec<Option<NodeCandidate>>,
    /// Inner nodes to recompute; the deepest come last.
    stale: BTreeSet<NodeId>,
    bounds: Bounds,
    /// Number of leaves with a candidate.
    live: usize,
}

/// By node and resource.
#[derive(Clone, Debug)]
struct Bounds {
    /// Upper bound of the amounts of candidates inside min below the node.
    inside: Vec<i64>,
    /// Lower bound of the amounts that any waiting job below the node requests.
    least: Vec<i64>,
}

impl Contest {
    pub fn new(tree: &QuotaTree) -> Self {
        let cells = tree.len() * tree.resources().len();
        Self {
            candidates: vec![None; tree.len()],
            entries: vec![None; tree.len()],
            stale: BTreeSet::new(),
            bounds: Bounds { inside: vec![0; cells], least: vec![i64::MAX; cells] },
            live: 0,
        }
    }

    /// A contest in which no node is closed.
    pub fn open(tree: &QuotaTree) -> Self {
        let mut contest = Self::new(tree);
        contest.bounds.least.fill(i64::MIN);
        contest
    }

    /// No leaf has a candidate.
    pub fn is_empty(&self) -> bool {
        self.live == 0
    }

    pub fn candidate(&self, leaf: NodeId) -> Option<&Candidate> {
        self.candidates[leaf.index()].as_ref()
    }

    /// Sets the candidate of the leaf.
    pub fn set(&mut self, ledger: &Ledger, leaf: NodeId, candidate: Option<Candidate>) {
        if let Some(candidate) = &candidate {
            self.bounds.raise(ledger.tree(), leaf, candidate);
        }
        let was = self.entries[leaf.index()].is_some();
        self.entries[leaf.index()] = candidate.as_ref().map(|candidate| NodeCandidate {
            leaf,
            borrower: candidate.borrower,
            share: Share::after(ledger, leaf, &candidate.request, 1),
        });
        self.candidates[leaf.index()] = candidate;
        let is = self.entries[leaf.index()].is_some();
        self.live = self.live + usize::from(is) - usize::from(was);
        if was || is {
            self.stale.extend(ledger.tree().node(leaf).parent);
        }
    }

    /// A job with this request waits below the leaf.
    pub fn waits(&mut self, tree: &QuotaTree, leaf: NodeId, request: &Request) {
        for node in tree.path_to_root(leaf) {
            for r in 0..tree.resources().len() {
                let least = &mut self.bounds.least[tree.cell(node, r)];
                *least = (*least).min(request.amount(r));
            }
        }
    }

    /// Use below the node has changed, and with it shares and capacity on its path.
    pub fn used_changed(&mut self, ledger: &Ledger, leaf: NodeId) {
        if self.is_empty() {
            return;
        }
        for node in ledger.tree().path_to_root(leaf) {
            self.stale.extend(ledger.tree().node(node).parent);
            self.refresh_share(ledger, node);
        }
    }

    /// The leaf to serve next.
    pub fn winner(&mut self, ledger: &Ledger) -> Option<NodeId> {
        while let Some(node) = self.stale.pop_last() {
            self.play(ledger, node);
        }
        let winner = self.entries[NodeId::ROOT.index()].as_ref().map(|entry| entry.leaf);
        winner.filter(|_| !self.bounds.is_closed(ledger, NodeId::ROOT))
    }

    /// Leaves below `node` with a candidate.
    pub fn leaves_below(&self, tree: &QuotaTree, node: NodeId) -> Vec<NodeId> {
        self.leaves_where(tree, node, |_| true)
    }

    /// Leaves with a candidate that takes part: every node above has capacity for some job below it.
    pub fn open_leaves(&self, ledger: &Ledger) -> Vec<NodeId> {
        self.leaves_where(ledger.tree(), NodeId::ROOT, |node| !self.bounds.is_closed(ledger, node))
    }

    fn leaves_where(&self, tree: &QuotaTree, node: NodeId, is_open: impl Fn(NodeId) -> bool) -> Vec<NodeId> {
        let mut found = Vec::new();
        if self.is_empty() {
            return found;
        }
        let mut open = vec![node];
        while let Some(node) = open.pop() {
            if !is_open(node) {
                continue;
            }
            // An inner node that was not recomputed yet may not know its children's candidates.
            if tree.node(node).is_leaf() {
                found.extend(self.entries[node.index()].is_some().then_some(node));
            } else {
                open.extend(&tree.node(node).children);
            }
        }
        found
    }

    /// Leaves whose candidate became a borrower because use at `leaf` has grown.
    pub fn now_borrowing(&mut self, ledger: &Ledger, leaf: NodeId) -> Vec<NodeId> {
        let tree = ledger.tree();
        let path = tree.path_to_root(leaf).filter(|node| *node != NodeId::ROOT);
        let Some(node) = path.filter(|node| self.bounds.is_short(ledger, *node)).last() else {
            return Vec::new();
        };
        self.bounds.clear_inside(tree, node);
        let mut flipped = Vec::new();
        for at in self.leaves_below(tree, node) {
            let Some(candidate) = self.candidates[at.index()].as_ref().filter(|c| !c.borrower) else {
                continue;
            };
            if ledger.inside_min(at, &candidate.request) {
                self.bounds.raise(tree, at, candidate);
            } else {
                flipped.push(at);
            }
        }
        flipped
    }

    /// Leaves whose candidate came inside min because use at `leaf` has shrunk.
    pub fn now_inside(&self, ledger: &Ledger, leaf: NodeId) -> Vec<NodeId> {
        let tree = ledger.tree();
        let Some(top) = tree.path_to_root(leaf).filter(|node| *node != NodeId::ROOT).last() else {
            return Vec::new();
        };
        let mut found = self.leaves_below(tree, top);
        found.retain(|at| {
            let candidate = self.candidates[at.index()].as_ref();
            candidate.is_some_and(|c| c.borrower && ledger.inside_min(*at, &c.request))
        });
        found
    }

    /// An inner node gets the best candidate of its children.
    fn play(&mut self, ledger: &Ledger, node: NodeId) {
        let mut best: Option<&NodeCandidate> = None;
        for child in &ledger.tree().node(node).children {
            let Some(entry) = &self.entries[child.index()] else { continue };
            if self.bounds.is_closed(ledger, *child) {
                continue;
            }
            if best.is_none_or(|best| self.compare(entry, best) == Ordering::Less) {
                best = Some(entry);
            }
        }
        let best = best.cloned();
        if best.is_none() && self.entries[node.index()].is_none() {
            return;
        }
        self.entries[node.index()] = best;
        self.refresh_share(ledger, node);
        self.stale.extend(ledger.tree().node(node).parent);
    }

    fn refresh_share(&mut self, ledger: &Ledger, node: NodeId) {
        let Some(entry) = &mut self.entries[node.index()] else { return };
        if let Some(candidate) = &self.candidates[entry.leaf.index()] {
            entry.share = Share::after(ledger, node, &candidate.request, 1);
        }
    }

    /// The lesser one is served first.
    fn compare(&self, a: &NodeCandidate, b: &NodeCandidate) -> Ordering {
        let job = |entry: &NodeCandidate| {
            self.candidates[entry.leaf.index()].as_ref().map(|candidate| &candidate.job)
        };
        a.borrower.cmp(&b.borrower).then_with(|| a.share.cmp(&b.share)).then_with(|| job(a).cmp(&job(b)))
    }
}

impl Bounds {
    fn raise(&mut self, tree: &QuotaTree, leaf: NodeId, candidate: &Candidate) {
        if candidate.borrower {
            return;
        }
        for node in tree.path_to_root(leaf) {
            for (r, amount) in &candidate.request.amounts {
                let inside = &mut self.inside[tree.cell(node, *r)];
                *inside = (*inside).max(*amount);
            }
        }
    }

    fn clear_inside(&mut self, tree: &QuotaTree, node: NodeId) {
        let mut open = vec![node];
        while let Some(node) = open.pop() {
            self.inside[tree.cell(node, 0)..tree.cell(node, tree.resources().len())].fill(0);
            open.extend(&tree.node(node).children);
        }
    }

    /// Some candidate below the node may borrow now.
    fn is_short(&self, ledger: &Ledger, node: NodeId) -> bool {
        let tree = ledger.tree();
        (0..tree.resources().len()).filter(|r| *r != JOBS).any(|r| {
            tree.min_at(node, r).saturating_sub(ledger.used_at(node, r)) < self.inside[tree.cell(node, r)]
        })
    }

    /// No waiting job below the node fits there. If part of a min is not lent, a job may add less than it requests,
    /// so nothing can be concluded.
    fn is_closed(&self, ledger: &Ledger, node: NodeId) -> bool {
        let tree = ledger.tree();
        !tree.keeps_back()
            && (0..tree.resources().len()).any(|r| ledger.room_at(node, r) < self.least[tree.cell(node, r)])
    }
}
