//! Plugin task-topology: tasks of one job that should share nodes, or avoid each other, in buckets.
//!
//! Pure. Input: rules, and tasks in their order. Output: an order of placement, and points for nodes. A bucket
//! wants one node. The points of a node for a task are the tasks of its bucket that are there or would fit there
//! together, less the tasks on the node that its rules avoid. Source: Volcano's plugin of that name.

use std::collections::BTreeMap;
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

/// `ps,worker;ps,chief` as groups of names.
fn groups(text: &str) -> Vec<Vec<Arc<str>>> {
    let names = |group: &str| -> Vec<Arc<str>> {
        group.split(',').map(str::trim).filter(|name| !name.is_empty()).map(Arc::from).collect()
    };
    text.split(';').map(names).filter(|group| !group.is_empty()).collect()
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

    /// A group of one name is about tasks of that name among themselves.
    fn pairs(groups: &[Vec<Arc<str>>], a: &str, b: &str) -> bool {
        groups.iter().any(|group| match group.as_slice() {
            [one] => &**one == a && a == b,
            names => a != b && names.iter().any(|name| &**name == a) && names.iter().any(|name| &**name == b),
        })
    }

    /// How strongly rules bind a task: most by anti-affinity to others, then to its own kind, then by affinity to
    /// others, then to its own kind; 0: none.
    fn strength(&self, role: &str) -> i64 {
        let named = |groups: &[Vec<Arc<str>>], alone: bool| {
            groups.iter().any(|group| (group.len() == 1) == alone && group.iter().any(|name| &**name == role))
        };
        [
            named(&self.affinity, true),
            named(&self.affinity, false),
            named(&self.anti_affinity, true),
            named(&self.anti_affinity, false),
        ]
        .into_iter()
        .zip(1..)
        .filter(|(found, _)| *found)
        .map(|(_, strength)| strength)
        .max()
        .unwrap_or(0)
    }

    /// Order of tasks: as the annotation names them, then by strength.
    fn rank(&self, role: &str) -> (usize, i64) {
        let named = self.order.iter().position(|name| &**name == role).unwrap_or(self.order.len());
        (named, -self.strength(role))
    }

    /// Tasks with affinity to `role` among `tasks`, less those with anti-affinity.
    fn affinity(&self, role: &str, tasks: &BTreeMap<Arc<str>, i64>, only_apart: bool) -> i64 {
        let of = |(other, count): (&Arc<str>, &i64)| {
            let near = !only_apart && Self::pairs(&self.affinity, role, other);
            let apart = Self::pairs(&self.anti_affinity, role, other);
            count * (i64::from(near) - i64::from(apart))
        };
        tasks.iter().map(of).sum()
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
    roles: BTreeMap<Arc<str>, i64>,
    /// Tasks that wait.
    waiting: Vec<Task>,
    /// Placed tasks, by node.
    standing: BTreeMap<NodeId, i64>,
    /// Size of the waiting tasks.
    size: i64,
}

/// A job's tasks in buckets.
#[derive(Clone, Debug)]
pub struct Buckets {
    rules: TaskTopology,
    buckets: Vec<Bucket>,
    of: BTreeMap<PodId, usize>,
    /// Placed tasks on each node.
    on_nodes: BTreeMap<NodeId, BTreeMap<Arc<str>, i64>>,
    /// Number of tasks of the largest bucket.
    largest: i64,
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
    pub fn new(rules: TaskTopology, tasks: Vec<Task>) -> Self {
        let mut found =
            Self { rules, buckets: Vec::new(), of: BTreeMap::new(), on_nodes: BTreeMap::new(), largest: 0 };
        let mut tasks: Vec<Task> =
            tasks.into_iter().filter(|task| found.rules.strength(&task.role) > 0).collect();
        tasks.sort_by_cached_key(|task| (task.node.is_none(), task.node, found.rules.rank(&task.role)));
        let mut of_node: BTreeMap<NodeId, usize> = BTreeMap::new();
        for task in tasks {
            let at = match task.node {
                Some(node) => *of_node.entry(node).or_insert_with(|| {
                    found.buckets.push(Bucket::default());
                    found.buckets.len() - 1
                }),
                None => found.bucket_for(&task),
            };
            found.put(at, task);
        }
        found.largest =
            found.buckets.iter().map(|bucket| bucket.roles.values().sum::<i64>()).max().unwrap_or(0);
        found
    }

    fn bucket_for(&mut self, task: &Task) -> usize {
        let points = |bucket: &Bucket| self.rules.affinity(&task.role, &bucket.roles, false);
        let best = self
            .buckets
            .iter()
            .enumerate()
            .map(|(at, bucket)| (std::cmp::Reverse(points(bucket)), bucket.size, at))
            .min();
        match best {
            Some((std::cmp::Reverse(points), _, at)) if points >= 0 => at,
            _ => {
                self.buckets.push(Bucket::default());
                self.buckets.len() - 1
            }
        }
    }

    fn put(&mut self, at: usize, task: Task) {
        let bucket = &mut self.buckets[at];
        *bucket.roles.entry(task.role.clone()).or_default() += 1;
        self.of.insert(task.pod, at);
        match task.node {
            Some(node) => {
                *bucket.standing.entry(node).or_default() += 1;
                *self.on_nodes.entry(node).or_default().entry(task.role).or_default() += 1;
            }
            None => {
                bucket.size += size(&task.request);
                bucket.waiting.push(task);
            }
        }
    }

    /// Waiting tasks in the order of placement: tasks in buckets first, begun and large buckets before others;
    /// within a bucket by the rules' order. `others` are all waiting tasks in their own order.
    pub fn order(&self, others: &[PodId]) -> Vec<PodId> {
        let role = |at: usize, pod: PodId| {
            self.buckets[at]
                .waiting
                .iter()
                .find(|task| task.pod == pod)
                .map(|task| self.rules.rank(&task.role))
        };
        let mut order: Vec<_> = others
            .iter()
            .enumerate()
            .map(|(own, pod)| match self.of.get(pod) {
                Some(at) => {
                    let bucket = &self.buckets[*at];
                    (false, bucket.standing.is_empty(), -bucket.size, *at, role(*at, *pod), own, *pod)
                }
                None => (true, true, 0, 0, None, own, *pod),
            })
            .collect();
        order.sort();
        order.into_iter().map(|(.., pod)| pod).collect()
    }

    /// Points of a node for a task, of [`full`](Self::full); `free` is what the node has, now or soon.
    pub fn points(&self, pod: PodId, node: NodeId, free: impl Fn(usize) -> i64) -> i64 {
        let Some(bucket) = self.of.get(&pod).map(|at| &self.buckets[*at]) else { return 0 };
        let Some(task) = bucket.waiting.iter().find(|task| task.pod == pod) else { return 0 };
        let mut points = bucket.standing.get(&node).copied().unwrap_or(0);
        if let Some(standing) = self.on_nodes.get(&node) {
            points += self.rules.affinity(&task.role, standing, true).min(0);
        }
        // The task itself, and as many of its bucket as fit beside it.
        let mut left: BTreeMap<u16, i64> = BTreeMap::new();
        let mut fits = |request: &Request| {
            let room = |left: &BTreeMap<u16, i64>, place: u16| {
                left.get(&place).copied().unwrap_or_else(|| free(usize::from(place)))
            };
            if request.iter().any(|(place, amount)| room(&left, *place) < *amount) {
                return false;
            }
            for (place, amount) in request.iter() {
                let rest = room(&left, *place) - amount;
                left.insert(*place, rest);
            }
            true
        };
        if !fits(&task.request) {
            return 0;
        }
        points += 1;
        points +=
            bucket.waiting.iter().filter(|other| other.pod != pod && fits(&other.request)).count() as i64;
        points
    }

    /// Most points that a node can have.
    pub fn full(&self) -> i64 {
        self.largest.max(1)
    }

    /// The task got a place.
    pub fn placed(&mut self, pod: PodId, node: NodeId) {
        let Some(bucket) = self.of.get(&pod).map(|at| &mut self.buckets[*at]) else { return };
        let Some(at) = bucket.waiting.iter().position(|task| task.pod == pod) else { return };
        let task = bucket.waiting.remove(at);
        bucket.size -= size(&task.request);
        *bucket.standing.entry(node).or_default() += 1;
        *self.on_nodes.entry(node).or_default().entry(task.role).or_default() += 1;
    }
}
