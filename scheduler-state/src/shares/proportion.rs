//! Volcano's `proportion`: what queues deserve by weight, filled up to what each requests.

/// One queue. All vectors have the same length.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProportionQueue {
    pub weight: i64,
    pub capability: Vec<Option<i64>>,
    pub guarantee: Vec<i64>,
    /// Held and requested.
    pub request: Vec<i64>,
}

/// What each queue deserves of `total`.
///
/// In each dimension, the queues that still want more share the rest by weight. A queue gets no more than it
/// requests or may have, and no less than its guarantee, which is not lent.
pub fn proportion(total: &[i64], queues: &[ProportionQueue]) -> Vec<Vec<i64>> {
    let mut deserved = vec![vec![0; total.len()]; queues.len()];
    for (d, total) in total.iter().enumerate() {
        let guaranteed: i64 = queues.iter().map(|queue| queue.guarantee[d]).fold(0, i64::saturating_add);
        let caps: Vec<i64> = queues
            .iter()
            .map(|queue| {
                let own = queue.guarantee[d];
                let room = total.saturating_sub(guaranteed).saturating_add(own).max(0);
                let most = queue.capability[d].map_or(room, |capability| capability.min(room));
                most.min(queue.request[d]).max(own)
            })
            .collect();
        fill(*total, queues, &caps, d, &mut deserved);
    }
    deserved
}

fn fill(total: i64, queues: &[ProportionQueue], caps: &[i64], d: usize, deserved: &mut [Vec<i64>]) {
    let mut remaining = total;
    let mut open: Vec<usize> = (0..queues.len()).collect();
    // A round closes a queue, or is the last: at most one more round than there are queues.
    while remaining > 0 && !open.is_empty() {
        let weights: i128 = open.iter().map(|q| i128::from(queues[*q].weight.max(1))).sum();
        let mut given = 0_i64;
        for q in &open {
            let part = i128::from(remaining) * i128::from(queues[*q].weight.max(1)) / weights;
            let part = i64::try_from(part).unwrap_or(i64::MAX);
            let least = queues[*q].guarantee[d];
            let next = deserved[*q][d].saturating_add(part).min(caps[*q]).max(least);
            given = given.saturating_add(next - deserved[*q][d]);
            deserved[*q][d] = next;
        }
        if given <= 0 {
            return;
        }
        remaining = remaining.saturating_sub(given).max(0);
        open.retain(|q| deserved[*q][d] < caps[*q]);
    }
    // Nothing was left to share, or no queue was open: guarantees still hold.
    for (queue, deserved) in queues.iter().zip(deserved) {
        deserved[d] = deserved[d].max(queue.guarantee[d]);
    }
}
