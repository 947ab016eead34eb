//! The tournament over the tree: each leaf puts up its first job that may
//! start; each inner node the best of its children's; the root's is served.
//!
//! After a change only the path from that leaf to the root is played again: a
//! job's share depends on use below it alone. Whether it fits and whether it
//! borrows depends on others too; each node remembers the largest amounts of
//! the jobs put up below it, and only when its room falls below one of those
//! are they looked at again.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use crate::ledger::Ledger;
use crate::plan::{Decision, Outcome, WaitReason};
use crate::queues::{ClassKey, LeafQueue, OrderKey, QueuePolicy, Queues, WaitingJob};
use crate::share::Share;
use crate::tree::{NodeId, Request};

/// A leaf's jobs during one plan.
struct LeafLine<'q> {
    policy: QueuePolicy,
    /// First remaining job of each class that is still in the running.
    heads: BTreeSet<(&'q OrderKey, &'q ClassKey)>,
    queue: &'q LeafQueue,
}

/// The job a node puts up.
#[derive(Clone)]
struct Entry<'q> {
    leaf: NodeId,
    job: &'q WaitingJob,
    class: &'q ClassKey,
    request: Request,
    borrower: bool,
}

/// What an inner node compares its children by.
struct Standing<'e> {
    borrower: bool,
    share: Share,
    job: &'e WaitingJob,
}

pub(super) struct Tournament<'q> {
    queues: &'q Queues,
    now_ms: i64,
    lines: Vec<Option<LeafLine<'q>>>,
    entries: Vec<Option<Entry<'q>>>,
    bounds: Bounds,
}

/// By node and resource, at least the largest amount asked for by a leaf's
/// entry below the node: of all entries, of those inside min, and of those that
/// may not be preempted.
struct Bounds {
    any: Vec<i64>,
    inside: Vec<i64>,
    firm: Vec<i64>,
}

impl<'q> Tournament<'q> {
    pub fn new(ledger: &Ledger, queues: &'q Queues, now_ms: i64, decisions: &mut Vec<Decision>) -> Self {
        let count = ledger.tree().len();
        let mut tournament = Self {
            queues,
            now_ms,
            lines: (0..count).map(|_| None).collect(),
            entries: vec![None; count],
            bounds: Bounds::new(count * ledger.tree().resources().len()),
        };
        for (leaf, queue) in queues.leaves() {
            // A leaf of an older tree: its jobs wait until they are moved.
            if leaf.index() < count && !queue.classes.is_empty() {
                tournament.open(leaf, queue, decisions);
                tournament.put_up(ledger, leaf, decisions);
            }
        }
        for node in ledger.tree().ids().rev() {
            tournament.play(ledger, node);
        }
        tournament
    }

    /// The job to serve next; the present ledger has room for it.
    pub fn winner(&self) -> Option<(NodeId, &'q WaitingJob)> {
        let entry = self.entries[NodeId::ROOT.index()].as_ref()?;
        Some((entry.leaf, entry.job))
    }

    /// The winner's job is in the ledger now.
    pub fn admitted(&mut self, ledger: &Ledger, leaf: NodeId, decisions: &mut Vec<Decision>) {
        if let Some(entry) = self.entries[leaf.index()].take() {
            self.advance(leaf, &entry, decisions);
        }
        self.put_up(ledger, leaf, decisions);
        let tight = ledger.tree().path_to_root(leaf).filter(|node| self.bounds.is_short(ledger, *node));
        if let Some(node) = tight.last() {
            self.look_again(ledger, node, decisions);
        }
        self.play_path(ledger, leaf);
    }

    /// Room below `node` became short for some entry: each leaf's is checked
    /// again, and the bounds below become exact.
    fn look_again(&mut self, ledger: &Ledger, node: NodeId, decisions: &mut Vec<Decision>) {
        let tree = ledger.tree();
        let mut below = vec![node];
        let mut at = 0;
        while at < below.len() {
            below.extend(&tree.node(below[at]).children);
            at += 1;
        }
        for id in &below {
            self.bounds.clear(ledger, *id);
        }
        for leaf in below.iter().filter(|id| tree.node(**id).is_leaf()) {
            if self.entries[leaf.index()].is_some() {
                self.put_up(ledger, *leaf, decisions);
            }
        }
        for id in below.iter().rev() {
            self.play(ledger, *id);
        }
    }

    /// The winner's job cannot start, nor can its equals.
    pub fn refused(
        &mut self,
        ledger: &Ledger,
        leaf: NodeId,
        reason: WaitReason,
        decisions: &mut Vec<Decision>,
    ) {
        if let Some(entry) = self.entries[leaf.index()].take() {
            self.set_aside(leaf, &entry.job.order_key(), entry.class, reason, decisions);
        }
        self.put_up(ledger, leaf, decisions);
        self.play_path(ledger, leaf);
    }

    fn open(&mut self, leaf: NodeId, queue: &'q LeafQueue, decisions: &mut Vec<Decision>) {
        let mut heads = BTreeSet::new();
        for (class, keys) in &queue.classes {
            if let Some(head) = self.first_ready(leaf, keys.iter(), decisions) {
                heads.insert((head, class));
            }
        }
        self.lines[leaf.index()] = Some(LeafLine { policy: queue.policy, heads, queue });
    }

    /// The next job of the entry's class takes its place among the heads.
    fn advance(&mut self, leaf: NodeId, entry: &Entry<'q>, decisions: &mut Vec<Decision>) {
        let Some(mut line) = self.lines[leaf.index()].take() else {
            return;
        };
        let own = entry.job.order_key();
        line.heads.retain(|(_, class)| *class != entry.class);
        let after = (std::ops::Bound::Excluded(&own), std::ops::Bound::Unbounded);
        let keys = line.queue.classes.get(entry.class);
        let next = keys.and_then(|keys| self.first_ready(leaf, keys.range::<OrderKey, _>(after), decisions));
        if let Some(next) = next {
            line.heads.insert((next, entry.class));
        }
        self.lines[leaf.index()] = Some(line);
    }

    /// The first job that is not backing off.
    fn first_ready(
        &self,
        leaf: NodeId,
        keys: impl Iterator<Item = &'q OrderKey>,
        decisions: &mut Vec<Decision>,
    ) -> Option<&'q OrderKey> {
        for key in keys {
            let Some(job) = self.queues.get(&key.id) else { continue };
            if job.not_before_ms <= self.now_ms {
                return Some(key);
            }
            let reason = WaitReason::Backoff { until_ms: job.not_before_ms };
            decisions.push(waits(leaf, job, reason));
        }
        None
    }

    /// Finds the leaf's first job that its quota path has room for; those
    /// before it are set aside with the reason.
    fn put_up(&mut self, ledger: &Ledger, leaf: NodeId, decisions: &mut Vec<Decision>) {
        self.entries[leaf.index()] = None;
        loop {
            let Some(line) = &self.lines[leaf.index()] else { return };
            let Some((key, class)) = line.heads.first().copied() else {
                return;
            };
            let Some(job) = self.queues.get(&key.id) else { return };
            let request = ledger.tree().request(&job.request);
            match ledger.check_request(leaf, &request, job.preemptible) {
                Ok(()) => {
                    let borrower = !ledger.inside_min(leaf, &request);
                    self.bounds.raise(ledger, leaf, &request, borrower, job.preemptible);
                    self.entries[leaf.index()] = Some(Entry { leaf, job, class, request, borrower });
                    return;
                }
                Err(verdict) => self.set_aside(leaf, key, class, WaitReason::Quota(verdict), decisions),
            }
        }
    }

    /// Takes a class out of the running; a blocking head takes all others too.
    fn set_aside(
        &mut self,
        leaf: NodeId,
        key: &OrderKey,
        class: &ClassKey,
        reason: WaitReason,
        decisions: &mut Vec<Decision>,
    ) {
        let Some(line) = &mut self.lines[leaf.index()] else {
            return;
        };
        if let Some(job) = self.queues.get(&key.id) {
            decisions.push(waits(leaf, job, reason));
        }
        line.heads.retain(|(_, other)| *other != class);
        if line.policy.blocks(key.priority.0) {
            for (other, _) in std::mem::take(&mut line.heads) {
                if let Some(job) = self.queues.get(&other.id) {
                    decisions.push(waits(leaf, job, WaitReason::BehindHead(key.id.clone())));
                }
            }
        }
    }

    fn play_path(&mut self, ledger: &Ledger, leaf: NodeId) {
        for node in ledger.tree().path_to_root(leaf) {
            self.play(ledger, node);
        }
    }

    /// An inner node puts up the best of its children's jobs.
    fn play(&mut self, ledger: &Ledger, node: NodeId) {
        let tree = ledger.tree();
        if tree.node(node).is_leaf() {
            return;
        }
        let mut best: Option<(Standing<'q>, NodeId)> = None;
        for child in &tree.node(node).children {
            let Some(entry) = &self.entries[child.index()] else {
                continue;
            };
            let standing = Standing {
                borrower: entry.borrower,
                share: Share::after(ledger, *child, &entry.request, 1),
                job: entry.job,
            };
            if best.as_ref().is_none_or(|(best, _)| standing.cmp(best) == Ordering::Less) {
                best = Some((standing, *child));
            }
        }
        self.entries[node.index()] = best.and_then(|(_, child)| self.entries[child.index()].clone());
    }
}

impl Bounds {
    fn new(cells: usize) -> Self {
        Self { any: vec![0; cells], inside: vec![0; cells], firm: vec![0; cells] }
    }

    fn raise(&mut self, ledger: &Ledger, leaf: NodeId, request: &Request, borrower: bool, preemptible: bool) {
        let tree = ledger.tree();
        for node in tree.path_to_root(leaf) {
            for (r, amount) in &request.amounts {
                let cell = tree.cell(node, *r);
                self.any[cell] = self.any[cell].max(*amount);
                if !borrower {
                    self.inside[cell] = self.inside[cell].max(*amount);
                }
                if !preemptible {
                    self.firm[cell] = self.firm[cell].max(*amount);
                }
            }
        }
    }

    fn clear(&mut self, ledger: &Ledger, node: NodeId) {
        let tree = ledger.tree();
        let cells = tree.cell(node, 0)..tree.cell(node, tree.resources().len());
        for bounds in [&mut self.any, &mut self.inside, &mut self.firm] {
            bounds[cells.clone()].fill(0);
        }
    }

    /// Some entry below the node may no longer fit, or may borrow now.
    fn is_short(&self, ledger: &Ledger, node: NodeId) -> bool {
        let tree = ledger.tree();
        (0..tree.resources().len()).any(|r| {
            let cell = tree.cell(node, r);
            ledger.room_at(node, r) < self.any[cell]
                || ledger.firm_room_at(node, r) < self.firm[cell]
                || (node != NodeId::ROOT
                    && tree.min_at(node, r) - ledger.used_at(node, r) < self.inside[cell])
        })
    }
}

impl Standing<'_> {
    /// Less is served first.
    fn cmp(&self, other: &Self) -> Ordering {
        let by_job = |job: &WaitingJob| (-i128::from(job.priority), job.enqueued_at_ms);
        self.borrower
            .cmp(&other.borrower)
            .then_with(|| self.share.cmp(&other.share))
            .then_with(|| by_job(self.job).cmp(&by_job(other.job)))
            .then_with(|| (&self.job.name, &self.job.id).cmp(&(&other.job.name, &other.job.id)))
    }
}

fn waits(leaf: NodeId, job: &WaitingJob, reason: WaitReason) -> Decision {
    Decision { job: job.id.clone(), leaf, outcome: Outcome::Wait(reason) }
}
