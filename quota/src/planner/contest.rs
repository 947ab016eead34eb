//! The contest over the tree: each leaf puts up one class; each inner node the
//! best of its children's; the root's is served.
//!
//! Inside min before borrowers, then the smallest dominant share after the job,
//! then priority, age, name. A node's share depends on use below it alone, so
//! that after a change only the paths from the changed leaves are played again.
//! Whether a job fits and whether it borrows depends on others too: each node
//! remembers the largest amounts put up below it, and only when its room falls
//! below one of those are its leaves looked at again.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use crate::ledger::Ledger;
use crate::queues::{ClassId, OrderKey};
use crate::share::Share;
use crate::tree::{JOBS, NodeId, QuotaTree, Request};

/// What a leaf puts up.
#[derive(Clone, Debug)]
pub(super) struct Candidate {
    pub class: ClassId,
    pub job: OrderKey,
    pub request: Request,
    pub preemptible: bool,
    /// It does not stay inside min on its whole path.
    pub borrower: bool,
}

/// The candidate a node puts up, with the node's own share after it.
#[derive(Clone, Debug)]
struct Entry {
    leaf: NodeId,
    borrower: bool,
    share: Share,
}

#[derive(Clone, Debug)]
pub(super) struct Contest {
    /// By node; of leaves only.
    candidates: Vec<Option<Candidate>>,
    /// By node.
    entries: Vec<Option<Entry>>,
    /// Inner nodes to be played again; the deepest come last.
    stale: BTreeSet<NodeId>,
    bounds: Bounds,
    /// Leaves that put something up.
    live: usize,
}

/// By node and resource, at least the largest amount put up below the node: of
/// all, of those inside min, and of those that may not be preempted.
#[derive(Clone, Debug)]
struct Bounds {
    any: Vec<i64>,
    inside: Vec<i64>,
    firm: Vec<i64>,
}

impl Contest {
    pub fn new(tree: &QuotaTree) -> Self {
        let cells = tree.len() * tree.resources().len();
        Self {
            candidates: vec![None; tree.len()],
            entries: vec![None; tree.len()],
            stale: BTreeSet::new(),
            bounds: Bounds { any: vec![0; cells], inside: vec![0; cells], firm: vec![0; cells] },
            live: 0,
        }
    }

    /// No leaf puts anything up.
    pub fn is_empty(&self) -> bool {
        self.live == 0
    }

    pub fn candidate(&self, leaf: NodeId) -> Option<&Candidate> {
        self.candidates[leaf.index()].as_ref()
    }

    /// What the leaf puts up from now on.
    pub fn set(&mut self, ledger: &Ledger, leaf: NodeId, candidate: Option<Candidate>) {
        if let Some(candidate) = &candidate {
            self.bounds.raise(ledger.tree(), leaf, candidate);
        }
        let was = self.entries[leaf.index()].is_some();
        self.entries[leaf.index()] = candidate.as_ref().map(|candidate| Entry {
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

    /// Use below the node has changed: shares on its path to the root have too.
    pub fn used_changed(&mut self, ledger: &Ledger, leaf: NodeId) {
        for node in ledger.tree().path_to_root(leaf) {
            if self.entries[node.index()].is_some() {
                self.stale.extend(ledger.tree().node(node).parent);
                self.refresh_share(ledger, node);
            }
        }
    }

    /// The leaf to serve next.
    pub fn winner(&mut self, ledger: &Ledger) -> Option<NodeId> {
        while let Some(node) = self.stale.pop_last() {
            self.play(ledger, node);
        }
        self.entries[NodeId::ROOT.index()].as_ref().map(|entry| entry.leaf)
    }

    /// Leaves below `node` that put something up.
    pub fn leaves_below(&self, tree: &QuotaTree, node: NodeId) -> Vec<NodeId> {
        let mut found = Vec::new();
        if self.is_empty() {
            return found;
        }
        let mut open = vec![node];
        while let Some(node) = open.pop() {
            // An inner node that was not played again yet may not know of its children's.
            if tree.node(node).is_leaf() {
                found.extend(self.entries[node.index()].is_some().then_some(node));
            } else {
                open.extend(&tree.node(node).children);
            }
        }
        found
    }

    /// The highest node of the path whose room fell below something put up
    /// below it. Its bounds start anew: what is put up there has to be again.
    pub fn shortest(&mut self, ledger: &Ledger, leaf: NodeId) -> Option<NodeId> {
        let tree = ledger.tree();
        let node = tree.path_to_root(leaf).filter(|node| self.bounds.is_short(ledger, *node)).last()?;
        let mut open = vec![node];
        while let Some(node) = open.pop() {
            self.bounds.clear(tree, node);
            open.extend(&tree.node(node).children);
        }
        Some(node)
    }

    /// An inner node puts up the best of its children's.
    fn play(&mut self, ledger: &Ledger, node: NodeId) {
        let mut best: Option<&Entry> = None;
        for child in &ledger.tree().node(node).children {
            let Some(entry) = &self.entries[child.index()] else { continue };
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

    /// Less is served first.
    fn compare(&self, a: &Entry, b: &Entry) -> Ordering {
        let job =
            |entry: &Entry| self.candidates[entry.leaf.index()].as_ref().map(|candidate| &candidate.job);
        a.borrower.cmp(&b.borrower).then_with(|| a.share.cmp(&b.share)).then_with(|| job(a).cmp(&job(b)))
    }
}

impl Bounds {
    fn raise(&mut self, tree: &QuotaTree, leaf: NodeId, candidate: &Candidate) {
        for node in tree.path_to_root(leaf) {
            for (r, amount) in &candidate.request.amounts {
                let cell = tree.cell(node, *r);
                self.any[cell] = self.any[cell].max(*amount);
                if !candidate.borrower {
                    self.inside[cell] = self.inside[cell].max(*amount);
                }
                if !candidate.preemptible {
                    self.firm[cell] = self.firm[cell].max(*amount);
                }
            }
        }
    }

    fn clear(&mut self, tree: &QuotaTree, node: NodeId) {
        let cells = tree.cell(node, 0)..tree.cell(node, tree.resources().len());
        for bounds in [&mut self.any, &mut self.inside, &mut self.firm] {
            bounds[cells.clone()].fill(0);
        }
    }

    /// Something put up below the node may no longer fit, or may borrow now.
    fn is_short(&self, ledger: &Ledger, node: NodeId) -> bool {
        let tree = ledger.tree();
        (0..tree.resources().len()).any(|r| {
            let cell = tree.cell(node, r);
            ledger.room_at(node, r) < self.any[cell]
                || ledger.firm_room_at(node, r) < self.firm[cell]
                || (node != NodeId::ROOT
                    && r != JOBS
                    && tree.min_at(node, r) - ledger.used_at(node, r) < self.inside[cell])
        })
    }
}
