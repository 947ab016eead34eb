//! Volcano's `capacity`: what queues deserve and may use, as declared, along a tree of queues.

/// One queue of the tree. All vectors have the same length.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CapacityQueue {
    /// Index of the parent; `None`: below the root.
    pub parent: Option<usize>,
    pub capability: Vec<Option<i64>>,
    pub deserved: Vec<Option<i64>>,
    pub guarantee: Vec<i64>,
}

/// What a queue may use and deserves.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CapacityShares {
    /// The most it may use: its own capability or its parent's, less its siblings' guarantees.
    pub real_capability: Vec<i64>,
    /// At least its guarantee, at most its real capability; `None` if nothing is deserved.
    pub deserved: Vec<Option<i64>>,
}

/// Why the queues are not a tree.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TreeProblem {
    /// The queues of a cycle, from child to parent.
    #[error("field spec.parent: found a cycle of queues; allowed: parents that lead to root")]
    Cycle(Vec<usize>),
}

/// Computes every queue's shares of `total`, parents first.
///
/// # Errors
/// The first cycle.
pub fn capacity_shares(total: &[i64], queues: &[CapacityQueue]) -> Result<Vec<CapacityShares>, TreeProblem> {
    let order = parents_first(queues)?;
    let mut shares = vec![CapacityShares::default(); queues.len()];
    let mut guaranteed: Vec<Vec<i64>> = vec![vec![0; total.len()]; queues.len() + 1];
    let slot = |parent: Option<usize>| parent.map_or(queues.len(), |parent| parent);
    for queue in queues {
        let sums = &mut guaranteed[slot(queue.parent)];
        sums.iter_mut().zip(&queue.guarantee).for_each(|(sum, own)| *sum = sum.saturating_add(*own));
    }
    for q in order {
        let queue = &queues[q];
        let above = queue.parent.map_or_else(|| total.to_vec(), |p| shares[p].real_capability.clone());
        let siblings = &guaranteed[slot(queue.parent)];
        let real: Vec<i64> = (0..total.len())
            .map(|d| {
                let room = above[d].saturating_sub(siblings[d]).saturating_add(queue.guarantee[d]).max(0);
                queue.capability[d].map_or(room, |capability| capability.min(room))
            })
            .collect();
        let deserved = (0..total.len())
            .map(|d| match queue.deserved[d] {
                Some(deserved) => Some(deserved.min(real[d]).max(queue.guarantee[d])),
                None => (queue.guarantee[d] > 0).then_some(queue.guarantee[d]),
            })
            .collect();
        shares[q] = CapacityShares { real_capability: real, deserved };
    }
    Ok(shares)
}

fn parents_first(queues: &[CapacityQueue]) -> Result<Vec<usize>, TreeProblem> {
    let mut order = Vec::with_capacity(queues.len());
    let mut done = vec![false; queues.len()];
    for start in 0..queues.len() {
        let mut path = Vec::new();
        let mut at = Some(start);
        while let Some(q) = at.filter(|q| !done[*q]) {
            if let Some(from) = path.iter().position(|seen| *seen == q) {
                return Err(TreeProblem::Cycle(path.split_off(from)));
            }
            path.push(q);
            at = queues[q].parent;
        }
        for q in path.into_iter().rev() {
            done[q] = true;
            order.push(q);
        }
    }
    Ok(order)
}
