//! Dominant shares: how much of what its parent can lend a node uses above its own min, in the resource where that
//! part is largest, divided by its weight.
//!
//! Source: Ghodsi et al., Dominant Resource Fairness (NSDI 2011), here on a tree, and for borrowed amounts only.

use std::cmp::Ordering;

use crate::ledger::Ledger;
use fleet_quota_tree::{JOBS, NodeId, Request};

/// A node's share, compared exactly. A share of a node with weight zero is larger than any share of a node with a
/// weight.
#[derive(Clone, Copy, Debug)]
pub struct Share {
    borrowed: i128,
    lendable: i128,
    weight_milli: i64,
}

impl Share {
    /// The share of `node` after `request` is added (`sign` 1), released (-1), or neither (0).
    pub(crate) fn after(ledger: &Ledger, node: NodeId, request: &Request, sign: i64) -> Self {
        let tree = ledger.tree();
        let mut share = Self { borrowed: 0, lendable: 1, weight_milli: tree.node(node).weight_milli };
        let Some(parent) = tree.node(node).parent else {
            return share;
        };
        let mut asked = request.amounts.iter().peekable();
        for r in 0..tree.resources().len() {
            let change = match asked.next_if(|(index, _)| *index == r) {
                Some((_, amount)) => sign.saturating_mul(*amount),
                None => 0,
            };
            let lendable = tree.lendable_at(parent, r);
            if r == JOBS || lendable == i64::MAX {
                continue;
            }
            let used = ledger.used_at(node, r).saturating_add(change);
            let borrowed = i128::from(used) - i128::from(tree.min_at(node, r));
            let candidate =
                Self { borrowed: borrowed.max(0), lendable: i128::from(lendable.max(1)), ..share };
            if candidate.cmp(&share) == Ordering::Greater {
                share = candidate;
            }
        }
        share
    }
}

impl Ord for Share {
    fn cmp(&self, other: &Self) -> Ordering {
        let weightless = |share: &Self| share.weight_milli == 0;
        let weight = |share: &Self| if weightless(share) { 1 } else { i128::from(share.weight_milli) };
        // Amounts are below 2^63 and weights below 2^63 / 1000 in practice;
        // saturation only makes two absurd shares equal.
        let side = |a: &Self, b: &Self| a.borrowed.saturating_mul(b.lendable).saturating_mul(weight(b));
        weightless(self).cmp(&weightless(other)).then_with(|| side(self, other).cmp(&side(other, self)))
    }
}

impl PartialOrd for Share {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Share {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Share {}
