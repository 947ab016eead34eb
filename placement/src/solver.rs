//! The packing search.
//!
//! Nodes with the same free amounts (of what the gang requests) that admit the same components form a class. The
//! search moves whole classes, so its cost depends on the number of classes, not of nodes.
//!
//! First come a few greedy fills: components in the order of how hard they are to place, each best-fit; then other
//! orders and fills. If all fail, a depth-first search over components decides, bounded by [`MAX_STEPS`]. It is
//! exact on small inputs.

mod fill;
mod search;

use std::collections::BTreeMap;

use fleet_resources::{ResourceName, Resources};

use crate::gang::Gang;

/// Limit on the work of the exact search: groups of nodes copied, about 20 ms. It also bounds the depth of the
/// recursion, to its square root.
pub(crate) const MAX_STEPS: usize = 300_000;
/// Most pods of one gang that are placed; names are written per pod.
pub(crate) const MAX_GANG_PODS: i64 = 200_000;
/// Orders of components tried greedily before the exact search.
const MAX_ORDERS: usize = 24;
/// Limit on orders times classes, so that many classes stay fast.
const MAX_ORDER_WORK: usize = 20_000;

/// Equal nodes.
#[derive(Clone, Debug)]
pub(crate) struct Class {
    /// Per component, whether it may use these nodes.
    pub admitted: Vec<bool>,
    /// Free amounts of one node, in the order of `Problem::names`; the number
    /// of free pods comes last.
    pub free: Vec<i64>,
    /// Free units of extended resources that the gang does not request.
    pub spared: i64,
    /// (caller's node or shape, how many nodes it stands for).
    pub members: Vec<(usize, i64)>,
}

impl Class {
    pub fn count(&self) -> i64 {
        self.members.iter().map(|(_, n)| n).sum()
    }
}

/// A gang, and classes of nodes to place it on.
#[derive(Clone, Debug)]
pub(crate) struct Problem {
    pub names: Vec<ResourceName>,
    /// Per component, the request of one pod; the number of pods (one) is last.
    pub requests: Vec<Vec<i64>>,
    pub classes: Vec<Class>,
    index: BTreeMap<(Vec<bool>, Vec<i64>, i64), usize>,
}

/// Nodes of one class that have taken the same pods so far.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    pub class: usize,
    pub count: i64,
    pub free: Vec<i64>,
    /// Pods taken, per component.
    pub taken: Vec<i64>,
}

/// Per node or shape of the caller and per distinct filling: pods per component on each of a number of nodes.
pub(crate) type NodeCounts = Vec<(usize, Vec<i64>)>;

/// Places `wanted` pods of each kind, all or none, on nodes given as plain vectors. `requests` has the request of
/// one pod of each kind; `nodes` has for each node which kinds it admits and what is free, with the same order of
/// resources. Returns per filling the node and how many pods of each kind it gets. A node occurs more than once
/// only with different fillings.
pub fn pack(
    requests: &[Vec<i64>],
    wanted: &[i64],
    nodes: &[(Vec<bool>, Vec<i64>)],
) -> Option<Vec<(usize, Vec<i64>)>> {
    let mut problem = Problem {
        names: Vec::new(),
        requests: requests.to_vec(),
        classes: Vec::new(),
        index: BTreeMap::new(),
    };
    for (node, (admitted, free)) in nodes.iter().enumerate() {
        problem.offer_vector(node, 1, admitted.clone(), free.clone(), 0);
    }
    problem.seal();
    problem.solve(wanted)
}

impl Problem {
    pub fn new(gang: &Gang) -> Self {
        let mut names: Vec<ResourceName> = gang
            .components
            .iter()
            .flat_map(|component| component.shape.requests.iter())
            .filter(|(_, amount)| *amount > 0)
            .map(|(name, _)| name.clone())
            .collect();
        names.sort_unstable();
        names.dedup();
        let requests = gang
            .components
            .iter()
            .map(|component| {
                let amounts = names.iter().map(|name| component.shape.requests.get(name.as_str()).max(0));
                amounts.chain([1]).collect()
            })
            .collect();
        Self { names, requests, classes: Vec::new(), index: BTreeMap::new() }
    }

    /// Adds `count` equal nodes known to the caller as `member`.
    pub fn offer(
        &mut self,
        member: usize,
        count: i64,
        admitted: impl Iterator<Item = bool>,
        free: &Resources,
        free_pods: i64,
    ) {
        let admitted: Vec<bool> = admitted.collect();
        let amounts = self.names.iter().map(|name| free.get(name.as_str()));
        let vector: Vec<i64> = amounts.chain([free_pods]).collect();
        let spared = free
            .iter()
            .filter(|(name, _)| name.is_extended() && self.names.binary_search(name).is_err())
            .map(|(_, amount)| amount.max(0))
            .fold(0, i64::saturating_add);
        self.offer_vector(member, count, admitted, vector, spared);
    }

    /// As [`offer`](Self::offer), with amounts in the order of `names`, free pods last, and the free units of
    /// extended resources that the gang does not request.
    pub fn offer_vector(
        &mut self,
        member: usize,
        count: i64,
        admitted: Vec<bool>,
        vector: Vec<i64>,
        spared: i64,
    ) {
        let key = (admitted, vector, spared);
        if let Some(at) = self.index.get(&key) {
            self.classes[*at].members.push((member, count));
            return;
        }
        self.classes.push(Class {
            admitted: key.0.clone(),
            free: key.1.clone(),
            spared,
            members: vec![(member, count)],
        });
        self.index.insert(key, self.classes.len() - 1);
    }

    /// All nodes have been offered.
    pub fn seal(&mut self) {
        self.index.clear();
    }

    /// Places exactly `wanted` pods of each component, or `None`.
    pub fn solve(&self, wanted: &[i64]) -> Option<NodeCounts> {
        self.pack(wanted).map(|groups| self.spread(&groups))
    }

    /// Places at least `minimum` and up to `wanted` pods of each component.
    pub fn solve_between(&self, minimum: &[i64], wanted: &[i64]) -> Option<NodeCounts> {
        if let Some(counts) = self.solve(wanted) {
            return Some(counts);
        }
        if minimum == wanted {
            return None;
        }
        let mut groups = self.pack(minimum)?;
        for k in self.hardest_first(wanted) {
            self.fill(&mut groups, k, wanted[k] - minimum[k], fill::Fit::Tightest);
        }
        Some(self.spread(&groups))
    }

    /// How many pods of component `k` fit alone, at most `limit`.
    pub fn fits_alone(&self, k: usize, limit: i64) -> i64 {
        let mut sum = 0_i64;
        for class in self.classes.iter().filter(|class| class.admitted[k]) {
            let each = capacity(&class.free, &self.requests[k]);
            sum = sum.saturating_add(each.saturating_mul(class.count()));
        }
        sum.min(limit)
    }

    /// Places as many pods of each component as one greedy pass can; returns how many of each are left.
    pub fn fill_all(&self, wanted: &[i64]) -> (Vec<Group>, Vec<i64>) {
        let (mut groups, mut left) = (self.start(), vec![0; wanted.len()]);
        for k in self.hardest_first(wanted) {
            left[k] = self.fill(&mut groups, k, wanted[k], fill::Fit::Tightest);
        }
        (groups, left)
    }

    fn pack(&self, wanted: &[i64]) -> Option<Vec<Group>> {
        if wanted.iter().fold(0_i64, |sum, n| sum.saturating_add(*n)) > MAX_GANG_PODS {
            return None;
        }
        // A cheap necessary condition, and the usual reason of a refusal.
        for (k, n) in wanted.iter().enumerate() {
            if self.fits_alone(k, *n) < *n {
                return None;
            }
        }
        let hardest = self.hardest_first(wanted);
        if hardest.len() > 1 && !self.sums_fit(wanted) {
            return None;
        }
        let limit = (MAX_ORDER_WORK / self.classes.len().max(1)).clamp(1, MAX_ORDERS);
        for order in orders(&hardest, limit) {
            for fit in [fill::Fit::Tightest, fill::Fit::Exact, fill::Fit::Roomiest] {
                if let Some(groups) = self.greedy(wanted, &order, fit) {
                    return Some(groups);
                }
            }
        }
        self.search(wanted, &hardest)
    }

    /// Indexes of components that want pods, hardest first: fewest nodes that could take a pod, then the largest
    /// share of what the largest node has.
    fn hardest_first(&self, wanted: &[i64]) -> Vec<usize> {
        let mut order: Vec<usize> = (0..wanted.len()).filter(|k| wanted[*k] > 0).collect();
        order.sort_by_cached_key(|k| {
            let holds = self.fits_alone(*k, i64::MAX);
            // Pods the nodes hold per pod wanted, in thousandths.
            let slack = i128::from(holds) * 1000 / i128::from(wanted[*k].max(1));
            (slack, *k)
        });
        order
    }

    fn sums_fit(&self, wanted: &[i64]) -> bool {
        (0..self.names.len()).all(|r| {
            let free: i128 = self
                .classes
                .iter()
                .map(|class| i128::from(class.free[r].max(0)) * i128::from(class.count()))
                .sum();
            let asked: i128 = wanted
                .iter()
                .zip(&self.requests)
                .map(|(n, request)| i128::from(*n) * i128::from(request[r]))
                .sum();
            asked <= free
        })
    }

    fn start(&self) -> Vec<Group> {
        let groups = self.classes.iter().enumerate().map(|(class, nodes)| Group {
            class,
            count: nodes.count(),
            free: nodes.free.clone(),
            taken: vec![0; self.requests.len()],
        });
        groups.collect()
    }

    /// Assigns the fillings of each class to its members, in the order offered.
    fn spread(&self, groups: &[Group]) -> NodeCounts {
        let mut left: Vec<std::vec::IntoIter<(usize, i64)>> =
            self.classes.iter().map(|class| class.members.clone().into_iter()).collect();
        let mut open: Vec<(usize, i64)> = vec![(0, 0); self.classes.len()];
        let mut counts = Vec::new();
        for group in groups.iter().filter(|group| group.taken.iter().any(|n| *n > 0)) {
            let mut nodes = group.count;
            while nodes > 0 {
                let (member, remaining) = &mut open[group.class];
                if *remaining == 0 {
                    let Some(next) = left[group.class].next() else { break };
                    (*member, *remaining) = next;
                }
                let step = nodes.min(*remaining);
                counts.extend((0..step).map(|_| (*member, group.taken.clone())));
                *remaining -= step;
                nodes -= step;
            }
        }
        counts
    }
}

/// How many pods of `request` fit in `free`.
pub(crate) fn capacity(free: &[i64], request: &[i64]) -> i64 {
    let asked = free.iter().zip(request).filter(|(_, amount)| **amount > 0);
    asked.map(|(free, amount)| (*free).max(0) / amount).min().unwrap_or(i64::MAX)
}

/// The order given first, then others; at most `limit`.
fn orders(first: &[usize], limit: usize) -> Vec<Vec<usize>> {
    let mut all = vec![first.to_vec()];
    let mut at = 0;
    // Each order is followed by those with one earlier pair swapped: breadth first, so orders similar to the first
    // come first.
    while at < all.len() && all.len() < limit {
        for i in 1..first.len() {
            let mut next = all[at].clone();
            next.swap(i - 1, i);
            if !all.contains(&next) && all.len() < limit {
                all.push(next);
            }
        }
        at += 1;
    }
    all
}
