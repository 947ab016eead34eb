//! Division of replicas among clusters.
//!
//! Webster's method (Sainte-Laguë): the next replica goes to the cluster with the most votes per `2 * seats + 1`.
//! Unlike other divisor methods, it favours neither large nor small clusters. A cluster's number never falls when
//! the total grows.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BinaryHeap};

/// Which cluster gets the odd replica if votes and seats are equal. It depends on the object's uid, so that not
/// every object favours the same cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TieOrder {
    #[default]
    Ascending,
    Descending,
}

impl TieOrder {
    /// Descending if the FNV-1a hash (32 bit) of the uid is odd.
    pub fn of_uid(uid: &str) -> Self {
        let hash = uid
            .bytes()
            .fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
        if hash % 2 == 1 { Self::Descending } else { Self::Ascending }
    }
}

/// Every cluster gets all replicas.
pub fn duplicate(replicas: i64, clusters: &[String]) -> BTreeMap<String, i64> {
    clusters.iter().map(|name| (name.clone(), replicas)).collect()
}

/// Divides `total` by weight. Weights below one get nothing; if every weight is below one, all count as one.
/// Clusters that get nothing are left out.
pub fn divide(total: i64, weights: &[(String, i64)], tie: TieOrder) -> BTreeMap<String, i64> {
    extend(total, weights, &BTreeMap::new(), tie)
}

/// As [`divide`], but clusters keep what they have (`current`) and only the difference moves: additional replicas
/// are divided by weight, surplus ones are removed in proportion to what each cluster has.
pub fn redivide(
    total: i64,
    weights: &[(String, i64)],
    current: &BTreeMap<String, i64>,
    tie: TieOrder,
) -> BTreeMap<String, i64> {
    let held = fleet_resources::sum(current.values().copied());
    match total.cmp(&held) {
        Ordering::Equal => current.clone(),
        Ordering::Greater => extend(total, weights, current, tie),
        Ordering::Less => {
            let shares: Vec<(String, i64)> = current.iter().map(|(name, n)| (name.clone(), *n)).collect();
            divide(total, &shares, tie)
        }
    }
}

/// Uses as few clusters as possible: those in use first, then those with most capacity; within these, divided by
/// capacity. `None` if the total capacity is too small.
pub fn aggregate(
    total: i64,
    available: &[(String, i64)],
    current: &BTreeMap<String, i64>,
    tie: TieOrder,
) -> Option<BTreeMap<String, i64>> {
    let mut order: Vec<&(String, i64)> = available.iter().filter(|(_, room)| *room > 0).collect();
    order.sort_by_key(|(name, room)| (!current.contains_key(name), -room, name));
    let mut sum = 0_i64;
    let mut chosen = Vec::new();
    for (name, room) in order {
        if sum >= total {
            break;
        }
        sum = sum.saturating_add(*room);
        chosen.push((name.clone(), *room));
    }
    (sum >= total).then(|| divide(total, &chosen, tie))
}

struct Seat<'a> {
    votes: i128,
    seats: i64,
    name: &'a str,
    tie: TieOrder,
}

impl Ord for Seat<'_> {
    /// Greater is served first.
    fn cmp(&self, other: &Self) -> Ordering {
        let quotient = |votes: i128, divisor_of: i64| votes.saturating_mul(2 * i128::from(divisor_of) + 1);
        let names = match self.tie {
            TieOrder::Ascending => other.name.cmp(self.name),
            TieOrder::Descending => self.name.cmp(other.name),
        };
        quotient(self.votes, other.seats)
            .cmp(&quotient(other.votes, self.seats))
            .then(other.seats.cmp(&self.seats))
            .then(names)
    }
}

impl PartialOrd for Seat<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Seat<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Seat<'_> {}

fn extend(
    total: i64,
    weights: &[(String, i64)],
    current: &BTreeMap<String, i64>,
    tie: TieOrder,
) -> BTreeMap<String, i64> {
    let all_equal = weights.iter().all(|(_, weight)| *weight < 1);
    let mut seats: Vec<Seat<'_>> = weights
        .iter()
        .filter(|(_, weight)| all_equal || *weight >= 1)
        .map(|(name, weight)| Seat {
            votes: if all_equal { 1 } else { i128::from(*weight) },
            seats: current.get(name).copied().unwrap_or(0),
            name,
            tie,
        })
        .collect();
    let unweighted = fleet_resources::sum(
        current
            .iter()
            .filter(|(name, _)| !seats.iter().any(|seat| seat.name == name.as_str()))
            .map(|(_, n)| *n),
    );
    let total = total.saturating_sub(unweighted);
    start_near_the_end(&mut seats, total);
    let mut left = total.saturating_sub(fleet_resources::sum(seats.iter().map(|seat| seat.seats)));
    let mut heap: BinaryHeap<Seat<'_>> = seats.into();
    while left > 0 {
        let Some(mut seat) = heap.pop() else { break };
        seat.seats += 1;
        left -= 1;
        heap.push(seat);
    }
    let mut result = current.clone();
    result.extend(heap.into_iter().map(|seat| (seat.name.to_owned(), seat.seats)));
    result.retain(|_, n| *n > 0);
    result
}

/// Gives each cluster its certain part at once, so that millions of replicas do not take millions of steps.
/// Webster's method gives each of `n` clusters at least its exact share less (n + 1) / 2; twice that is left to the
/// steps. Clusters that have more than their share keep it, and the others divide the rest.
fn start_near_the_end(seats: &mut [Seat<'_>], total: i64) {
    let slack = i128::try_from(2 * seats.len() + 2).unwrap_or(i128::MAX);
    let mut open: Vec<usize> = (0..seats.len()).collect();
    let mut rest = i128::from(total);
    loop {
        let votes: i128 = open.iter().map(|i| seats[*i].votes).sum();
        let share = |seat: &Seat<'_>| rest.max(0) * seat.votes / votes.max(1);
        let (over, under): (Vec<usize>, Vec<usize>) =
            open.iter().partition(|i| i128::from(seats[**i].seats) > share(&seats[**i]));
        if over.is_empty() {
            for i in under {
                let sure = (share(&seats[i]) - slack).max(i128::from(seats[i].seats));
                seats[i].seats = i64::try_from(sure).unwrap_or(i64::MAX);
            }
            return;
        }
        rest -= over.iter().map(|i| i128::from(seats[*i].seats)).sum::<i128>();
        open = under;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pairs(list: &[(&str, i64)]) -> Vec<(String, i64)> {
        list.iter().map(|(name, n)| ((*name).to_owned(), *n)).collect()
    }

    fn map(list: &[(&str, i64)]) -> BTreeMap<String, i64> {
        pairs(list).into_iter().collect()
    }

    fn check(total: i64, weights: &[(&str, i64)], tie: TieOrder, expected: &[(&str, i64)]) {
        assert_eq!(divide(total, &pairs(weights), tie), map(expected), "{total} by {weights:?}");
    }

    #[test]
    fn divisions() {
        use TieOrder::{Ascending, Descending};
        check(9, &[("a", 1), ("b", 2)], Ascending, &[("a", 3), ("b", 6)]);
        check(1, &[("a", 1), ("b", 1)], Ascending, &[("a", 1)]);
        check(1, &[("a", 1), ("b", 1)], Descending, &[("b", 1)]);
        check(3, &[("a", 0), ("b", 0)], Ascending, &[("a", 2), ("b", 1)]);
        check(4, &[("a", 0), ("b", 5)], Ascending, &[("b", 4)]);
        check(0, &[("a", 1)], Ascending, &[]);
        check(5, &[], Ascending, &[]);
        check(1_000_000_000, &[("a", 1)], Ascending, &[("a", 1_000_000_000)]);
        check(2_000_000_000, &[("a", 1), ("b", 1)], Ascending, &[("a", 1_000_000_000), ("b", 1_000_000_000)]);
        // Wikipedia's Sainte-Laguë example: 100 000, 80 000, 30 000, 20 000 votes for 8 seats.
        check(
            8,
            &[("a", 100), ("b", 80), ("c", 30), ("d", 20)],
            Ascending,
            &[("a", 3), ("b", 3), ("c", 1), ("d", 1)],
        );
    }

    #[test]
    fn scaling_keeps_what_runs() {
        let weights = pairs(&[("a", 1), ("b", 1)]);
        let current = map(&[("a", 4), ("b", 0)]);
        assert_eq!(redivide(6, &weights, &current, TieOrder::Ascending), map(&[("a", 4), ("b", 2)]));
        assert_eq!(
            redivide(3, &weights, &map(&[("a", 4), ("b", 2)]), TieOrder::Ascending),
            map(&[("a", 2), ("b", 1)])
        );
    }

    #[test]
    fn aggregated_takes_the_fewest_clusters() {
        let available = pairs(&[("a", 5), ("b", 8), ("c", 2)]);
        let run =
            |total, current: &[(&str, i64)]| aggregate(total, &available, &map(current), TieOrder::Ascending);
        assert_eq!(run(6, &[]), Some(map(&[("b", 6)])));
        assert_eq!(run(2, &[("c", 1)]), Some(map(&[("c", 2)])));
        assert_eq!(run(13, &[]), Some(map(&[("a", 5), ("b", 8)])));
        assert_eq!(run(16, &[]), None);
    }

    /// One replica after the other.
    fn one_by_one(
        total: i64,
        weights: &[(String, i64)],
        current: &BTreeMap<String, i64>,
    ) -> BTreeMap<String, i64> {
        let mut result = current.clone();
        for _ in current.values().sum::<i64>()..total {
            let best = weights.iter().filter(|(_, weight)| *weight > 0).max_by(|(a, va), (b, vb)| {
                let n = |name: &String| result.get(name).copied().unwrap_or(0);
                (va * (2 * n(b) + 1)).cmp(&(vb * (2 * n(a) + 1))).then(n(b).cmp(&n(a))).then(b.cmp(a))
            });
            let Some((name, _)) = best else { break };
            *result.entry(name.clone()).or_default() += 1;
        }
        result.retain(|_, n| *n > 0);
        result
    }

    proptest! {
        #[test]
        fn large_steps_change_nothing(
            more in 0_i64..400,
            clusters in proptest::collection::vec((1_i64..60, 0_i64..40), 1..6),
        ) {
            let name = |i: usize| format!("c{i}");
            let weights: Vec<(String, i64)> =
                clusters.iter().enumerate().map(|(i, (weight, _))| (name(i), *weight)).collect();
            let current: BTreeMap<String, i64> =
                clusters.iter().enumerate().map(|(i, (_, n))| (name(i), *n)).collect();
            let total = more + current.values().sum::<i64>();
            prop_assert_eq!(
                extend(total, &weights, &current, TieOrder::Ascending),
                one_by_one(total, &weights, &current)
            );
        }

        #[test]
        fn nothing_is_lost_and_quota_is_monotone(
            total in 0_i64..200,
            weights in proptest::collection::vec(0_i64..50, 1..6),
        ) {
            let named: Vec<(String, i64)> =
                weights.iter().enumerate().map(|(i, w)| (format!("c{i}"), *w)).collect();
            let small = divide(total, &named, TieOrder::Ascending);
            let large = divide(total + 1, &named, TieOrder::Ascending);
            prop_assert_eq!(small.values().sum::<i64>(), total);
            for (name, n) in &small {
                prop_assert!(large.get(name).copied().unwrap_or(0) >= *n);
            }
        }
    }
}
