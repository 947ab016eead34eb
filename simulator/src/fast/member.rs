//! The true state of one member: its nodes, the gangs on them, and whether hub and agent can talk.
//!
//! Gangs are placed by the production solver. Deliberately absent: the hub's view of the member, which is the
//! planner's.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use fleet_placement::{Gang, GroupedNodes, NodeShape, Places};
use fleet_policies::affinity::ClusterFacts;
use fleet_resources::{Resources, quantity};

use crate::scenario::{ClusterSpec, log::NodesOf};

/// The resource of a node that every pod takes one of.
const PODS: &str = "pods";

/// One node.
#[derive(Debug)]
struct NodeState {
    name: String,
    pool: usize,
    ready: bool,
    /// Requests of the pods on it, counted here beside the solver, so that its errors show.
    used: Resources,
}

/// Nodes of one pool are alike.
#[derive(Debug)]
struct Pool {
    shape: NodeShape,
    bound: Resources,
}

/// What a run does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Run {
    /// Waits in the member for places (members that do not reserve).
    Waits,
    Runs {
        ends_ms: Option<i64>,
    },
    /// Stands still: nodes of it are away. What is left of its time, `None` for ever.
    Broken {
        left_ms: Option<i64>,
    },
    /// Stopped by the agent or the watchdog.
    Stopped,
    /// Its owner has suspended the job: it keeps its places, and has no pods.
    Suspended,
    Ended {
        well: bool,
    },
}

/// A gang in the member, also one that the hub has given up.
#[derive(Debug)]
pub(super) struct Stay {
    pub epoch: i64,
    pub run: Run,
    /// Tells ends of this start from those of an earlier one.
    pub start: u64,
    pub gang: Arc<fleet_planner::JobShape>,
    pub nodes: Arc<NodesOf>,
    places: Option<(u64, Places)>,
}

/// Between hub and agent.
#[derive(Debug, Default)]
pub(super) struct Link {
    pub partitioned: bool,
    pub unauthorized: bool,
    pub agent_away: bool,
    /// The last renewal that went through before the present cut.
    pub renewed_ms: i64,
    /// Tells timers of this cut from those of an earlier one.
    pub cut: u64,
    /// The agent is past its deadline.
    pub lapsed: bool,
    /// As the hub sees it.
    pub not_ready: bool,
    pub lost: bool,
    /// Since when it answers again; `None`: always did.
    pub ready_since_ms: Option<i64>,
}

impl Link {
    pub fn reachable(&self) -> bool {
        !self.partitioned && !self.unauthorized && !self.agent_away
    }
}

#[derive(Debug)]
pub(super) struct Member {
    pub name: Arc<str>,
    pub facts: ClusterFacts,
    pub reserves: bool,
    pub link: Link,
    /// By job number.
    pub stays: BTreeMap<usize, Stay>,
    /// Kind and name of jobs of the member's own users.
    pub own: BTreeSet<(String, String)>,
    nodes: Vec<NodeState>,
    by_name: BTreeMap<String, usize>,
    pools: Vec<Pool>,
    grouped: GroupedNodes,
    /// Rises when `grouped` is made anew: places found before mean nothing in it.
    layout: u64,
}

impl Member {
    /// # Errors
    /// A quantity that cannot be read.
    pub fn new(spec: &ClusterSpec) -> Result<Self, String> {
        let facts = ClusterFacts {
            name: spec.name.clone(),
            labels: spec.labels.clone(),
            provider: spec.provider.clone().unwrap_or_default(),
            region: spec.region.clone().unwrap_or_default(),
            zones: spec.zones.clone(),
            taints: Vec::new(),
            ready: true,
            unschedulable: false,
        };
        let mut member = Self {
            name: Arc::from(spec.name.as_str()),
            facts,
            reserves: spec.reservation,
            link: Link::default(),
            stays: BTreeMap::new(),
            own: BTreeSet::new(),
            nodes: Vec::new(),
            by_name: BTreeMap::new(),
            pools: Vec::new(),
            grouped: GroupedNodes::default(),
            layout: 0,
        };
        for pool in &spec.node_pools {
            let amounts = pool.allocatable.iter().map(|(name, text)| (name.as_str(), text.as_str()));
            let bound = Resources::parse(amounts).map_err(|error| error.to_string())?;
            let max_pods = bound.get(PODS);
            let mut allocatable = bound.clone();
            allocatable.set(PODS, 0);
            let shape = NodeShape {
                labels: pool.labels.clone(),
                taints: pool.taints.clone(),
                free: allocatable.clone(),
                allocatable,
                max_pods,
                pods: 0,
                count: 1,
            };
            for index in 0..pool.count {
                let node = member.nodes.len();
                let name = pool.node_name(index);
                member.by_name.insert(name.clone(), node);
                let used = Resources::new();
                member.nodes.push(NodeState { name, pool: member.pools.len(), ready: true, used });
            }
            member.pools.push(Pool { shape, bound });
        }
        member.lay_out();
        Ok(member)
    }

    /// The ready nodes as the agent would report them with no job of the hub on them, and their names.
    pub fn empty_shapes(&self) -> (Vec<NodeShape>, Vec<Vec<String>>) {
        let of_pool = |(at, pool): (usize, &Pool)| {
            let here = self.nodes.iter().filter(|node| node.ready && node.pool == at);
            let names: Vec<String> = here.map(|node| node.name.clone()).collect();
            (NodeShape { count: names.len() as i64, ..pool.shape.clone() }, names)
        };
        self.pools.iter().enumerate().map(of_pool).unzip()
    }

    /// The solver's nodes with what is used on them now.
    fn lay_out(&mut self) {
        let ready = self.nodes.iter().filter(|node| node.ready);
        let shape = |node: &NodeState| {
            let pool = &self.pools[node.pool].shape;
            let pods = node.used.get(PODS);
            let mut used = node.used.clone();
            used.set(PODS, 0);
            NodeShape { free: pool.allocatable.minus(&used), pods, ..pool.clone() }
        };
        let (shapes, names): (Vec<NodeShape>, Vec<Vec<String>>) =
            ready.map(|node| (shape(node), vec![node.name.clone()])).unzip();
        self.grouped = GroupedNodes::new(&shapes, &names);
        self.layout += 1;
    }

    /// Finds places for a gang and takes them.
    ///
    /// # Errors
    /// In one sentence what the nodes lack.
    pub fn place(&mut self, gang: &Gang) -> Result<(NodesOf, (u64, Places)), String> {
        let places = self.grouped.place(gang).map_err(|refusal| refusal.sentence())?;
        let nodes = self.grouped.node_names(gang, &places);
        Ok((nodes, (self.layout, places)))
    }

    /// A gang whose places were taken. Broken rules of the nodes come back.
    pub fn admit(
        &mut self,
        job: usize,
        epoch: i64,
        gang: Arc<fleet_planner::JobShape>,
        placed: Option<(NodesOf, (u64, Places))>,
    ) -> Vec<String> {
        let (nodes, places) = match placed {
            Some((nodes, places)) => (nodes, Some(places)),
            None => (NodesOf::new(), None),
        };
        let broken = self.count(&gang.gang, &nodes, 1);
        let stay = Stay { epoch, run: Run::Waits, start: 0, gang, nodes: Arc::new(nodes), places };
        self.stays.insert(job, stay);
        broken
    }

    /// Places for a gang that waits here.
    pub fn place_waiting(&mut self, job: usize) -> Option<Vec<String>> {
        let stay = self.stays.get(&job).filter(|stay| stay.run == Run::Waits && stay.nodes.is_empty())?;
        let gang = Arc::clone(&stay.gang);
        let (nodes, places) = self.place(&gang.gang).ok()?;
        let broken = self.count(&gang.gang, &nodes, 1);
        if let Some(stay) = self.stays.get_mut(&job) {
            (stay.nodes, stay.places) = (Arc::new(nodes), Some(places));
        }
        Some(broken)
    }

    /// The gang is gone; what it took is free.
    pub fn release(&mut self, job: usize) -> Option<Stay> {
        let stay = self.stays.remove(&job)?;
        self.count(&stay.gang.gang, &stay.nodes, -1);
        match &stay.places {
            Some((layout, places)) if *layout == self.layout => self.grouped.give_back(places),
            Some(_) => self.lay_out(),
            None => {}
        }
        Some(stay)
    }

    /// Counts pods on their nodes, by name; which nodes hold more than they have.
    fn count(&mut self, gang: &Gang, nodes: &NodesOf, sign: i64) -> Vec<String> {
        let mut broken = Vec::new();
        for component in &gang.components {
            let mut pod = component.shape.requests.clone();
            pod.set(PODS, 1);
            let pod = pod.scaled(sign);
            for name in nodes.get(&component.name).into_iter().flatten() {
                let Some(node) = self.by_name.get(name).map(|at| &mut self.nodes[*at]) else { continue };
                node.used.add(&pod);
                let short = node.used.shortages(&self.pools[node.pool].bound);
                if sign > 0
                    && let Some(short) = short.first()
                {
                    let amount = |amount| quantity::format(short.name.as_str(), amount);
                    let (used, has) = (amount(short.requested), amount(short.available));
                    broken.push(format!("node {name} has {has} {} and pods for {used}", short.name));
                }
            }
        }
        broken
    }

    /// A node comes or goes. The jobs with pods on it.
    pub fn set_ready(&mut self, name: &str, ready: bool) -> Vec<usize> {
        let Some(node) = self.by_name.get(name).map(|at| &mut self.nodes[*at]) else { return Vec::new() };
        if std::mem::replace(&mut node.ready, ready) == ready {
            return Vec::new();
        }
        self.lay_out();
        let here = |stay: &Stay| stay.nodes.values().flatten().any(|node| node == name);
        self.stays.iter().filter(|(_, stay)| here(stay)).map(|(job, _)| *job).collect()
    }

    /// Whether every node of the gang is ready.
    pub fn is_whole(&self, stay: &Stay) -> bool {
        let ready = |name: &String| self.by_name.get(name).is_some_and(|at| self.nodes[*at].ready);
        stay.nodes.values().flatten().all(ready)
    }

    /// What is used on its nodes, all zero when nothing runs.
    pub fn used(&self) -> Resources {
        let mut sum = Resources::new();
        self.nodes.iter().for_each(|node| sum.add(&node.used));
        sum
    }
}
