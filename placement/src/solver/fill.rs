//! Greedy fills: one component at a time over all groups of nodes.

use super::{Group, Problem, capacity};

/// Which nodes a component takes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fit {
    /// Nodes with the least free of what the pods request most: large holes stay.
    Tightest,
    /// Nodes that the component fills with the least left over.
    Exact,
    /// Nodes with the most free: every node keeps some capacity.
    Roomiest,
}

impl Problem {
    /// Components in `order`, each by `fit`; `None` when one does not fit.
    pub(super) fn greedy(&self, wanted: &[i64], order: &[usize], fit: Fit) -> Option<Vec<Group>> {
        let mut groups = self.start();
        for k in order {
            if self.fill(&mut groups, *k, wanted[*k], fit) > 0 {
                return None;
            }
        }
        Some(groups)
    }

    /// Places up to `pods` pods of component `k`; returns how many are left.
    pub(super) fn fill(&self, groups: &mut Vec<Group>, k: usize, pods: i64, fit: Fit) -> i64 {
        let mut left = pods;
        let mut order = self.ranked(groups, k, fit);
        order.reverse();
        while left > 0 {
            let Some((_, at)) = order.pop() else { break };
            let each = capacity(&groups[at].free, &self.requests[k]);
            let full = (left / each).min(groups[at].count);
            if full > 0 {
                self.take(groups, at, full, k, each);
                left -= full * each;
                continue;
            }
            // The rest fits on one node: the first in order that holds it with the least capacity, so that no
            // larger hole is broken up.
            let tightest = order
                .iter()
                .rev()
                .map(|(_, other)| (capacity(&groups[*other].free, &self.requests[k]), *other))
                .filter(|(other, _)| *other >= left && *other < each)
                .min_by_key(|(other, _)| *other);
            let target = if fit == Fit::Roomiest { at } else { tightest.map_or(at, |(_, other)| other) };
            self.take(groups, target, 1, k, left);
            left = 0;
        }
        left
    }

    /// Groups that take at least one pod, first choice first.
    fn ranked(&self, groups: &[Group], k: usize, fit: Fit) -> Vec<(RankKey, usize)> {
        let request = &self.requests[k];
        let mut order: Vec<(RankKey, usize)> = groups
            .iter()
            .enumerate()
            .filter(|(_, group)| group.count > 0 && self.classes[group.class].admitted[k])
            .filter_map(|(at, group)| {
                let each = capacity(&group.free, request);
                (each > 0).then(|| (self.rank(group, request, each, fit), at))
            })
            .collect();
        order.sort_unstable();
        order
    }

    fn rank(&self, group: &Group, request: &[i64], each: i64, fit: Fit) -> RankKey {
        // Free amounts of resources that this pod does not request but others may: a pod without GPUs avoids nodes
        // with GPUs.
        let unasked = |r: &usize| request[*r] == 0 && self.names[*r].is_extended();
        let spared = (0..self.names.len())
            .filter(unasked)
            .map(|r| group.free[r].max(0))
            .fold(self.classes[group.class].spared, i64::saturating_add);
        let left_over: i128 = (0..self.names.len())
            .filter(|r| request[*r] > 0)
            .map(|r| i128::from(group.free[r]) * 1024 / i128::from(request[r]) - i128::from(each) * 1024)
            .sum();
        let untouched = i64::from(group.taken.iter().all(|n| *n == 0));
        match fit {
            Fit::Tightest => [i128::from(spared), i128::from(each), left_over, i128::from(untouched)],
            Fit::Exact => [i128::from(spared), left_over, i128::from(each), i128::from(untouched)],
            Fit::Roomiest => [i128::from(spared), -i128::from(each), -left_over, i128::from(untouched)],
        }
    }

    /// `nodes` nodes of the group get `each` pods of component `k`.
    pub(super) fn take(&self, groups: &mut Vec<Group>, at: usize, nodes: i64, k: usize, each: i64) {
        let mut filled = groups[at].clone();
        filled.count = nodes;
        filled.taken[k] += each;
        for (free, amount) in filled.free.iter_mut().zip(&self.requests[k]) {
            *free = free.saturating_sub(amount.saturating_mul(each));
        }
        if nodes == groups[at].count {
            groups[at] = filled;
        } else {
            groups[at].count -= nodes;
            groups.push(filled);
        }
    }
}

/// Smaller is served first; the group's index breaks ties.
type RankKey = [i128; 4];
