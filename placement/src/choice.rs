//! Which cluster to try first.

use std::cmp::Ordering;

use fleet_resources::Resources;

/// What the choice knows of a cluster that admits the job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate<'c> {
    pub name: &'c str,
    /// Index of the affinity group that admits it; lower groups are tried first.
    pub group: usize,
    /// The job failed or was refused there recently: tried last.
    pub avoided: bool,
    /// The job is already there.
    pub current: bool,
    /// Sums over the cluster's nodes.
    pub allocatable: &'c Resources,
    /// Sums over the cluster's nodes, reserved amounts deducted.
    pub free: &'c Resources,
}

/// Whether jobs go to the emptiest cluster or to the fullest that can hold them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClusterOrder {
    #[default]
    Spread,
    Pack,
}

/// The candidates, best first: those not avoided, the lower affinity group, where the job is already, then by the
/// largest share of a resource in use after the job (of those it requests), then by name.
pub fn choose_cluster<'r, 'c>(
    candidates: &'r [Candidate<'c>],
    request: &Resources,
    order: ClusterOrder,
) -> Vec<&'r Candidate<'c>> {
    let mut ranked: Vec<(Share, &Candidate<'c>)> =
        candidates.iter().map(|c| (share_after(c, request), c)).collect();
    ranked.sort_by(|(share, a), (other, b)| {
        let by_share = match order {
            ClusterOrder::Spread => share.cmp(other),
            ClusterOrder::Pack => other.cmp(share),
        };
        (a.avoided, a.group, !a.current)
            .cmp(&(b.avoided, b.group, !b.current))
            .then(by_share)
            .then_with(|| a.name.cmp(b.name))
    });
    ranked.into_iter().map(|(_, candidate)| candidate).collect()
}

/// A fraction `used / whole`, compared exactly.
struct Share {
    used: i128,
    whole: i128,
}

impl Share {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.used * other.whole).cmp(&(other.used * self.whole))
    }
}

fn share_after(candidate: &Candidate<'_>, request: &Resources) -> Share {
    let mut largest = Share { used: 0, whole: 1 };
    for (name, amount) in request.iter() {
        let whole = i128::from(candidate.allocatable.get(name.as_str()).max(1));
        let free = i128::from(candidate.free.get(name.as_str()));
        let share = Share { used: whole - free + i128::from(amount), whole };
        if share.cmp(&largest) == Ordering::Greater {
            largest = share;
        }
    }
    largest
}

#[cfg(test)]
mod tests {
    use super::*;

    /// GPUs of a cluster, and how many of them are free.
    type Whole = (Resources, Resources);

    fn gpus(all: i64, free: i64) -> Whole {
        let of = |n| Resources::from_pairs([("nvidia.com/gpu", n)]);
        (of(all), of(free))
    }

    fn candidate<'c>(name: &'c str, (allocatable, free): &'c Whole) -> Candidate<'c> {
        Candidate { name, group: 0, avoided: false, current: false, allocatable, free }
    }

    fn check(candidates: &[Candidate<'_>], order: ClusterOrder, expected: &[&str]) {
        let request = Resources::from_pairs([("nvidia.com/gpu", 4)]);
        let names = |candidates: &[Candidate<'_>]| -> Vec<String> {
            let chosen = choose_cluster(candidates, &request, order);
            chosen.into_iter().map(|c| c.name.to_owned()).collect()
        };
        assert_eq!(names(candidates), expected);
        let reversed: Vec<Candidate<'_>> = candidates.iter().rev().cloned().collect();
        assert_eq!(names(&reversed), expected, "input order must not matter");
    }

    #[test]
    fn orders() {
        let (half, large) = (gpus(32, 32), gpus(64, 40));
        let all = [candidate("b", &half), candidate("a", &half), candidate("c", &large)];
        check(&all, ClusterOrder::Spread, &["a", "b", "c"]);
        check(&all, ClusterOrder::Pack, &["c", "a", "b"]);
    }

    #[test]
    fn avoided_last_then_groups_then_where_it_is() {
        let (empty, half) = (gpus(8, 8), gpus(8, 4));
        let mut all =
            [candidate("a", &empty), candidate("b", &empty), candidate("c", &half), candidate("d", &empty)];
        all[0].avoided = true;
        all[1].group = 1;
        all[2].current = true;
        check(&all, ClusterOrder::Spread, &["c", "d", "b", "a"]);
    }
}
