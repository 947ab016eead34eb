//! Plugin task-topology: tasks of one job that should share nodes, or avoid each other, in buckets.
//!
//! Pure. Input: rules, and tasks in their order. Output: an order of placement, and points for nodes. A bucket
//! wants one node. The points of a node for a task are the tasks of its bucket that are there or would fit there
//! together, less the tasks on the node that its rules avoid. Source: Volcano's plugin of that name.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::amounts::{CPU, MEMORY, Request};
use crate::ids::{NodeId, PodId};

/// The rules of a PodGroup's annotations, by names of tasks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TaskTopology {
    pub affinity: Vec<Vec<Arc<str>>>,
    pub anti_affinity: Vec<Vec<Arc<str>>>,
    /// Earlier names are placed first.
    pub order: Vec<Arc<str>>,
}

/// Most names that one annotation may have: a job's tasks are compared with each other by them.
pub const MAX_NAMES: usize = 1000;
/// Most different requests of one bucket that are tried beside a task.
const MAX_REQUESTS: usize = 32;

/// `ps,worker;ps,chief` as groups of names, up to the group that exceeds [`MAX_NAMES`].
fn groups(text: &str) -> Vec<Vec<Arc<str>>> {
    let mut left = MAX_NAMES;
    let mut found = Vec::new();
    for group in text.split(';') {
        let names = group.split(',').map(str::trim).filter(|name| !name.is_empty());
        let names: Vec<Arc<str>> = names.take(left + 1).map(Arc::from).collect();
        let Some(rest) = left.checked_sub(names.len()) else { break };
        left = rest;
        if !names.is_empty() {
            found.push(names);
        }
    }
    found
}

impl TaskTopology {
    /// From the annotations `volcano.sh/task-topology-affinity`, `-anti-affinity` and `-task-order`; `None` if they
    /// contain no rule.
    pub fn read(affinity: Option<&str>, anti_affinity: Option<&str>, order: Option<&str>) -> Option<Self> {
        let found = Self {
            affinity: groups(affinity.unwrap_or_default()),
            anti_affinity: groups(anti_affinity.unwrap_or_default()),
            order: groups(order.unwrap_or_default()).into_iter().flatten().collect(),
        };
        (!found.affinity.is_empty() || !found.anti_affinity.is_empty()).then_some(found)
    }

    /// How strongly rules bind each task that they name: most by anti-affinity to others, then to its own kind, then
    /// by affinity to others, then to its own kind.
    fn strengths(&self) -> BTreeMap<&str, i64> {
        let mut found: BTreeMap<&str, i64> = BTreeMap::new();
        for (groups, own) in [(&self.affinity, 1), (&self.anti_affinity, 3)] {
            for group in groups {
                let strength = own + i64::from(group.len() > 1);
                for name in group {
                    let known = found.entry(name).or_default();
                    *known = strength.max(*known);
                }
            }
        }
        found
    }
}

/// The rules for the roles of one job, which have numbers here.
#[derive(Clone, Debug, Default)]
struct Rules {
    at: BTreeMap<Arc<str>, usize>,
    /// Order of each: as the annotation names them, then by strength.
    ranks: Vec<(usize, i64)>,
    /// Pairs with affinity, by number and number.
    near: Vec<bool>,
    /// Pairs with anti-affinity.
    apart: Vec<bool>,
}

impl Rules {
    /// Of the roles among `tasks` that the rules name.
    fn new(rules: &TaskTopology, tasks: &[Task]) -> Self {
        let strengths = rules.strengths();
        let mut named: BTreeMap<&str, usize> = BTreeMap::new();
        for (place, name) in rules.order.iter().enumerate() {
            named.entry(name).or_insert(place);
        }
        let mut found = Self::default();
        for task in tasks {
            let Some(strength) = strengths.get(&*task.role) else { continue };
            if !found.at.contains_key(&task.role) {
                found.at.insert(task.role.clone(), found.ranks.len());
                let place = named.get(&*task.role).copied().unwrap_or(rules.order.len());
                found.ranks.push((place, -strength));
            }
        }
        found.near = found.pairs(&rules.affinity);
        found.apart = found.pairs(&rules.anti_affinity);
        found
    }

    /// A group of one name is about tasks of that name among themselves.
    fn pairs(&self, groups: &[Vec<Arc<str>>]) -> Vec<bool> {
        let number = self.ranks.len();
        let mut found = vec![false; number * number];
        for group in groups {
            let known: BTreeSet<usize> = group.iter().filter_map(|name| self.at.get(name).copied()).collect();
            for a in &known {
                for b in &known {
                    if (a == b) == (group.len() == 1) {
                        found[a * number + b] = true;
                    }
                }
            }
        }
        found
    }

    /// Tasks with affinity to `role` among `tasks`, less those with anti-affinity.
    fn affinity(&self, role: usize, tasks: impl Iterator<Item = (usize, i64)>, only_apart: bool) -> i64 {
        let own = role * self.ranks.len();
        let of = |(other, count): (usize, i64)| {
            let near = !only_apart && self.near[own + other];
            count * (i64::from(near) - i64::from(self.apart[own + other]))
        };
        tasks.map(of).sum()
    }
}

/// A task, for the buckets.
#[derive(Clone, Debug)]
pub struct Task {
    pub pod: PodId,
    pub role: Arc<str>,
    /// Its present node.
    pub node: Option<NodeId>,
    pub request: Request,
}

#[derive(Clone, Debug, Default)]
struct Bucket {
    roles: BTreeMap<usize, i64>,
    /// Tasks that wait, by their request, in the order of the first of each.
    waiting: Vec<(Request, i64)>,
    /// Places of requests in that list.
    requests: BTreeMap<Request, usize>,
    /// Placed tasks, by node.
    standing: BTreeMap<NodeId, i64>,
    /// Size of the waiting tasks.
    size: i64,
}

/// A task in its bucket.
#[derive(Clone, Debug)]
struct Put {
    bucket: usize,
    role: usize,
    /// Where its request is in its bucket's list; `None`: it has a place.
    waits: Option<usize>,
}

/// A job's tasks in buckets.
#[derive(Clone, Debug)]
pub struct Buckets {
    rules: Rules,
    buckets: Vec<Bucket>,
    of: BTreeMap<PodId, Put>,
    /// Placed tasks on each node.
    on_nodes: BTreeMap<NodeId, BTreeMap<usize, i64>>,
    /// Number of tasks of the largest bucket.
    largest: i64,
}

/// Numbers of tasks by role.
type Roles = Vec<(usize, i64)>;

/// Buckets by their numbers of tasks of each role: equal ones suit a task alike. In each, the smaller bucket first.
#[derive(Default)]
struct Alike(BTreeMap<Roles, BTreeSet<(i64, usize)>>);

impl Alike {
    fn change(&mut self, at: usize, bucket: &mut Bucket, change: impl FnOnce(&mut Bucket)) {
        let roles =
            |bucket: &Bucket| -> Roles { bucket.roles.iter().map(|(role, count)| (*role, *count)).collect() };
        let before = roles(bucket);
        if let Some(alike) = self.0.get_mut(&before) {
            alike.remove(&(bucket.size, at));
            if alike.is_empty() {
                self.0.remove(&before);
            }
        }
        change(bucket);
        self.0.entry(roles(bucket)).or_default().insert((bucket.size, at));
    }

    /// The bucket with most points for a task, the smaller among equals, and the points.
    fn best(&self, rules: &Rules, role: usize) -> Option<(i64, usize)> {
        let each = self.0.iter().filter_map(|(roles, alike)| {
            let points = rules.affinity(role, roles.iter().copied(), false);
            alike.first().map(|(size, at)| (Reverse(points), *size, *at))
        });
        each.min().map(|(Reverse(points), _, at)| (points, at))
    }
}

/// One size for all resources: a mebibyte, a millicore and a thousandth of anything else are equal.
fn size(request: &Request) -> i64 {
    let of = |(place, amount): &(u16, i64)| match usize::from(*place) {
        CPU => *amount,
        MEMORY => *amount >> 20,
        _ => *amount,
    };
    request.iter().map(of).sum()
}

impl Buckets {
    /// Puts tasks in buckets: placed tasks by their nodes, each other task where it has most affinity, the smaller
    /// bucket among equals. `tasks` are in their normal order of placement.
    pub fn new(rules: &TaskTopology, tasks: Vec<Task>) -> Self {
        let mut found = Self {
            rules: Rules::new(rules, &tasks),
            buckets: Vec::new(),
            of: BTreeMap::new(),
            on_nodes: BTreeMap::new(),
            largest: 0,
        };
        let known = |task: Task| found.rules.at.get(&task.role).map(|role| (*role, task));
        let mut tasks: Vec<(usize, Task)> = tasks.into_iter().filter_map(known).collect();
        tasks.sort_by_key(|(role, task)| (task.node.is_none(), task.node, found.rules.ranks[*role]));
        let mut of_node: BTreeMap<NodeId, usize> = BTreeMap::new();
        let mut alike = Alike::default();
        for (role, task) in tasks {
            let known = match task.node {
                Some(node) => of_node.get(&node).copied(),
                None => alike.best(&found.rules, role).filter(|(points, _)| *points >= 0).map(|(_, at)| at),
            };
            let at = known.unwrap_or_else(|| {
                found.buckets.push(Bucket::default());
                found.buckets.len() - 1
            });
            if let Some(node) = task.node {
                of_node.insert(node, at);
            }
            found.put(at, role, &task, &mut alike);
        }
        found.largest =
            found.buckets.iter().map(|bucket| bucket.roles.values().sum::<i64>()).max().unwrap_or(0);
        found
    }

    fn put(&mut self, at: usize, role: usize, task: &Task, alike: &mut Alike) {
        let mut waits = None;
        alike.change(at, &mut self.buckets[at], |bucket| {
            *bucket.roles.entry(role).or_default() += 1;
            if let Some(node) = task.node {
                *bucket.standing.entry(node).or_default() += 1;
                return;
            }
            bucket.size += size(&task.request);
            let next = bucket.waiting.len();
            let place = *bucket.requests.entry(task.request.clone()).or_insert(next);
            if place == next {
                bucket.waiting.push((task.request.clone(), 0));
            }
            bucket.waiting[place].1 += 1;
            waits = Some(place);
        });
        self.of.insert(task.pod, Put { bucket: at, role, waits });
        if let Some(node) = task.node {
            *self.on_nodes.entry(node).or_default().entry(role).or_default() += 1;
        }
    }

    /// Waiting tasks in the order of placement: tasks in buckets first, begun and large buckets before others;
    /// within a bucket by the rules' order. `others` are all waiting tasks in their own order.
    pub fn order(&self, others: &[PodId]) -> Vec<PodId> {
        let mut order: Vec<_> = others
            .iter()
            .enumerate()
            .map(|(own, pod)| match self.of.get(pod) {
                Some(put) => {
                    let bucket = &self.buckets[put.bucket];
                    let rank = put.waits.map(|_| self.rules.ranks[put.role]);
                    (false, bucket.standing.is_empty(), -bucket.size, put.bucket, rank, own, *pod)
                }
                None => (true, true, 0, 0, None, own, *pod),
            })
            .collect();
        order.sort();
        order.into_iter().map(|(.., pod)| pod).collect()
    }

    /// Points of a node for a task, of [`full`](Self::full); `free` is what the node has, now or soon.
    pub fn points(&self, pod: PodId, node: NodeId, free: impl Fn(usize) -> i64) -> i64 {
        let Some(put) = self.of.get(&pod) else { return 0 };
        let (bucket, Some(own)) = (&self.buckets[put.bucket], put.waits) else { return 0 };
        let mut points = bucket.standing.get(&node).copied().unwrap_or(0);
        if let Some(standing) = self.on_nodes.get(&node) {
            let standing = standing.iter().map(|(role, count)| (*role, *count));
            points += self.rules.affinity(put.role, standing, true).min(0);
        }
        // The task itself, and as many of its bucket as fit beside it, each request in its turn.
        let mut left: BTreeMap<u16, i64> = BTreeMap::new();
        let mut fit = |request: &Request, count: i64| {
            let room = |left: &BTreeMap<u16, i64>, place: u16| {
                left.get(&place).copied().unwrap_or_else(|| free(usize::from(place)))
            };
            let mut times = count;
            for (place, amount) in request.iter().filter(|(_, amount)| *amount > 0) {
                times = times.min(room(&left, *place).max(0) / amount);
            }
            for (place, amount) in request.iter() {
                let rest = room(&left, *place) - amount * times;
                left.insert(*place, rest);
            }
            times
        };
        if fit(&bucket.waiting[own].0, 1) == 0 {
            return 0;
        }
        points += 1;
        let beside = bucket.waiting.iter().enumerate();
        let beside = beside.map(|(at, (request, count))| (request, count - i64::from(at == own)));
        for (request, count) in beside.filter(|(_, count)| *count > 0).take(MAX_REQUESTS) {
            points += fit(request, count);
        }
        points
    }

    /// Most points that a node can have.
    pub fn full(&self) -> i64 {
        self.largest.max(1)
    }

    /// The task got a place.
    pub fn placed(&mut self, pod: PodId, node: NodeId) {
        let Some(put) = self.of.get_mut(&pod) else { return };
        let Some(own) = put.waits.take() else { return };
        let bucket = &mut self.buckets[put.bucket];
        let (request, count) = &mut bucket.waiting[own];
        *count -= 1;
        bucket.size -= size(request);
        *bucket.standing.entry(node).or_default() += 1;
        *self.on_nodes.entry(node).or_default().entry(put.role).or_default() += 1;
    }
}

#[cfg(test)]
mod tests;
