//! The bounded exact search.

use super::{Group, MAX_STEPS, Problem, capacity};

impl Problem {
    /// Depth first over components in `order` and, for each, over groups of equal nodes: how many pods each node of
    /// the group gets. Nodes of a group are filled in descending numbers, so that equal fillings are tried once.
    /// `None` if nothing fits or the steps run out.
    pub(super) fn search(&self, wanted: &[i64], order: &[usize]) -> Option<Vec<Group>> {
        let mut search = Search { problem: self, wanted, order, steps: 0 };
        search.component(0, self.start())
    }
}

struct Search<'p> {
    problem: &'p Problem,
    wanted: &'p [i64],
    order: &'p [usize],
    steps: usize,
}

impl Search<'_> {
    fn component(&mut self, depth: usize, groups: Vec<Group>) -> Option<Vec<Group>> {
        let Some(k) = self.order.get(depth).copied() else {
            return Some(groups);
        };
        let groups = merged(groups);
        self.group(depth, k, groups, 0, self.wanted[k], i64::MAX)
    }

    /// Places `left` pods of component `k` on the groups from `at` on. `cap` is the most that one more node of
    /// group `at` may take.
    fn group(
        &mut self,
        depth: usize,
        k: usize,
        groups: Vec<Group>,
        at: usize,
        left: i64,
        cap: i64,
    ) -> Option<Vec<Group>> {
        self.steps += groups.len().max(1);
        if self.steps > MAX_STEPS {
            return None;
        }
        if left == 0 {
            return self.component(depth + 1, groups);
        }
        if at >= groups.len() || self.room(k, &groups, at, cap) < left {
            return None;
        }
        let most = self.each(k, &groups[at]).min(cap).min(left);
        if groups[at].count > 0 {
            for take in (1..=most).rev() {
                // One node of the group gets `take`; the others at most that. The filled node moves to the end,
                // where this component no longer looks.
                let mut next = groups.clone();
                if next[at].count == 1 {
                    self.problem.take(&mut next, at, 1, k, take);
                    let found = self.group(depth, k, next, at + 1, left - take, i64::MAX);
                    if found.is_some() {
                        return found;
                    }
                } else {
                    self.problem.take(&mut next, at, 1, k, take);
                    let filled = next.pop()?;
                    next.insert(at, filled);
                    let found = self.group(depth, k, next, at + 1, left - take, take);
                    if found.is_some() {
                        return found;
                    }
                }
                if self.steps > MAX_STEPS {
                    return None;
                }
            }
        }
        self.group(depth, k, groups, at + 1, left, i64::MAX)
    }

    fn each(&self, k: usize, group: &Group) -> i64 {
        if !self.problem.classes[group.class].admitted[k] {
            return 0;
        }
        capacity(&group.free, &self.problem.requests[k])
    }

    /// The most that the groups from `at` on could take.
    fn room(&self, k: usize, groups: &[Group], at: usize, cap: i64) -> i64 {
        let mut sum = 0_i64;
        for (i, group) in groups.iter().enumerate().skip(at) {
            let each = self.each(k, group).min(if i == at { cap } else { i64::MAX });
            sum = sum.saturating_add(each.saturating_mul(group.count));
        }
        sum
    }
}

/// Merges groups of the same class and filling.
fn merged(mut groups: Vec<Group>) -> Vec<Group> {
    groups.sort_by(|a, b| (a.class, &a.free, &a.taken).cmp(&(b.class, &b.free, &b.taken)));
    let mut result: Vec<Group> = Vec::with_capacity(groups.len());
    for group in groups {
        match result.last_mut() {
            Some(last) if last.class == group.class && last.taken == group.taken => last.count += group.count,
            _ => result.push(group),
        }
    }
    result
}
