//! A cluster in text, one cycle or more, and what came of it.
//!
//! Amounts are `c2 m4 g1`: cpu, memory in Gi, GPUs. A node is `name c2 m4 pods=10 key=value`, a queue
//! `name w1 cap=c2m4 des=c1 gua=c1 parent=q prio=1 state=Closed noreclaim fifo in=g1,g2 rather=g1 never=g3 notrather=g4 tree=root/a:1/50`, a group `name queue min=2 prio=10
//! role:master=1 phase=Pending minres=c2m2 created=5 near=ps,worker;ps,chief apart=ps order=ps,worker`, a pod `name group c1 m1 on=n1 prio=5 keep role=x
//! select:key=value` (`keep` is not preemptable).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fleet_placement::{Node, PodShape};
use fleet_resources::Resources;

use crate::*;

pub(super) struct Bed {
    pub cluster: Cluster,
    pub pods: BTreeMap<String, PodId>,
    pub bound: BTreeMap<String, String>,
    pub evicted: BTreeSet<String>,
}

/// `c2m4g1`
pub(super) fn amounts(text: &str) -> Resources {
    let mut found = Resources::new();
    let mut rest = text;
    while let Some(kind) = rest.chars().next() {
        let digits: String = rest[1..].chars().take_while(|c| c.is_ascii_digit() || *c == '.').collect();
        let (whole, part) = digits.split_once('.').unwrap_or((&digits, "0"));
        let milli: i64 =
            whole.parse::<i64>().unwrap() * 1000 + format!("{part:0<3}")[..3].parse::<i64>().unwrap();
        match kind {
            'c' => found.set("cpu", milli),
            'm' => found.set("memory", milli * (1 << 30) / 1000),
            'g' => found.set("nvidia.com/gpu", milli / 1000),
            'r' => found.set("rdma/hca", milli / 1000),
            other => panic!("amount {other} in {text}"),
        }
        rest = &rest[1 + digits.len()..];
    }
    found
}

fn is_amount(word: &str) -> bool {
    word.starts_with(['c', 'm', 'g', 'r']) && word[1..].starts_with(|c: char| c.is_ascii_digit())
}

pub(super) fn node(text: &str) -> Node {
    let mut words = text.split_whitespace();
    let mut node =
        Node { name: words.next().unwrap().to_owned(), ready: true, max_pods: 10, ..Node::default() };
    for word in words {
        match word.split_once('=') {
            None if is_amount(word) => node.allocatable.add(&amounts(word)),
            Some(("pods", n)) => node.max_pods = n.parse().unwrap(),
            Some(("taint", key)) => node.taints.push(fleet_placement::Taint {
                key: key.into(),
                value: String::new(),
                effect: fleet_placement::TaintEffect::NoSchedule,
            }),
            Some((key, value)) => drop(node.labels.insert(key.to_owned(), value.to_owned())),
            None if word == "cordoned" => node.unschedulable = true,
            None => panic!("{word} in {text}"),
        }
    }
    node
}

impl Bed {
    pub fn new(config: &Config) -> Self {
        let mut bed = Self {
            cluster: Cluster::new(Policy::compile(config).unwrap()),
            pods: BTreeMap::new(),
            bound: BTreeMap::new(),
            evicted: BTreeSet::new(),
        };
        bed.cluster.put_queue(QueueInput::named("default"));
        bed
    }

    pub fn nodes(mut self, nodes: &[&str]) -> Self {
        nodes.iter().for_each(|text| self.cluster.put_node(&node(text)));
        self
    }

    pub fn queues(mut self, queues: &[&str]) -> Self {
        queues.iter().for_each(|text| self.queue(text));
        self
    }

    pub fn queue(&mut self, text: &str) {
        let mut words = text.split_whitespace();
        let mut queue = QueueInput::named(words.next().unwrap());
        for word in words {
            match word.split_once('=') {
                Some(("cap", text)) => queue.capability = amounts(text),
                Some(("des", text)) => {
                    queue.deserved = amounts(text);
                    if text.starts_with("c0") {
                        queue.deserved_names = ["cpu".to_owned(), "memory".to_owned()].into();
                    }
                }
                Some(("gua", text)) => queue.guarantee = amounts(text),
                Some(("parent", name)) => queue.parent = Some(name.into()),
                Some(("prio", n)) => queue.priority = n.parse().unwrap(),
                Some(("tree", text)) => {
                    let (names, weights) = text.split_once(':').unwrap();
                    let weights = weights.split('/').map(|n| n.parse::<i64>().unwrap());
                    queue.hierarchy = names.split('/').map(str::to_owned).zip(weights).collect();
                }
                Some((key @ ("in" | "rather" | "never" | "notrather"), names)) => {
                    let groups = &mut queue.node_groups;
                    let set = match key {
                        "in" => &mut groups.required,
                        "rather" => &mut groups.preferred,
                        "never" => &mut groups.never,
                        _ => &mut groups.rather_not,
                    };
                    set.extend(names.split(',').map(str::to_owned));
                }
                Some(("state", state)) => queue.state = QueueState::read(state),
                None if word == "fifo" => queue.fifo = true,
                None if word == "noreclaim" => queue.reclaimable = false,
                None => queue.weight = word[1..].parse().unwrap(),
                _ => panic!("{word} in {text}"),
            }
        }
        self.cluster.put_queue(queue);
    }

    pub fn groups(mut self, groups: &[&str]) -> Self {
        groups.iter().for_each(|text| self.group(text));
        self
    }

    pub fn group(&mut self, text: &str) {
        let mut words = text.split_whitespace();
        let name: Arc<str> = words.next().unwrap().into();
        let mut group = GroupInput {
            namespace: "default".into(),
            name,
            queue: words.next().unwrap().into(),
            min_member: 1,
            phase: Phase::Inqueue,
            ..GroupInput::default()
        };
        for word in words {
            match word.split_once('=').unwrap() {
                ("min", n) => group.min_member = n.parse().unwrap(),
                ("prio", n) => group.priority = n.parse().unwrap(),
                ("created", n) => group.created = n.parse().unwrap(),
                ("phase", phase) => group.phase = Phase::read(phase),
                ("minres", text) => group.min_resources = Some(amounts(text)),
                ("preemptable", text) => group.preemptable = Some(text == "true"),
                ("sla", n) => group.sla_wait = Some(n.parse().unwrap()),
                (key @ ("near" | "apart" | "order"), text) => {
                    let known =
                        group.task_topology.take().map_or_else(Default::default, |known| (*known).clone());
                    let some = |wanted| (key == wanted).then_some(text);
                    let read = crate::task_topology::TaskTopology::read(some("near"), some("apart"), None);
                    let mut rules = read.unwrap_or_default();
                    if key == "order" {
                        rules.order = text.split(',').map(Arc::from).collect();
                    }
                    rules.affinity.extend(known.affinity);
                    rules.anti_affinity.extend(known.anti_affinity);
                    rules.order.extend(known.order);
                    group.task_topology = Some(Arc::new(rules));
                }
                ("topology", tier) => {
                    let highest_tier = tier.parse().ok();
                    let hard = highest_tier.is_some();
                    group.topology = Some(crate::group::Topology { hard, highest_tier });
                }
                (role, n) => {
                    let role = role.strip_prefix("role:").unwrap_or_else(|| panic!("{word} in {text}"));
                    group.min_roles.insert(role.into(), n.parse().unwrap());
                }
            }
        }
        self.cluster.put_group(group);
    }

    pub fn pods(mut self, pods: &[&str]) -> Self {
        pods.iter().for_each(|text| self.pod(text));
        self
    }

    pub fn pod(&mut self, text: &str) {
        self.pod_with(text, Extras::default());
    }

    pub fn pod_with(&mut self, text: &str, extras: Extras) {
        let mut words = text.split_whitespace();
        let name = words.next().unwrap();
        let group = words.next().unwrap();
        let mut shape = PodShape::default();
        let mut labels = BTreeMap::new();
        let mut input = PodInput {
            namespace: "default".into(),
            name: name.into(),
            group: self.cluster.find_group("default", group).unwrap_or_else(|| panic!("group {group}")),
            preemptable: true,
            ..PodInput::default()
        };
        for word in words {
            match word.split_once('=') {
                None if word == "keep" => input.preemptable = false,
                None if word == "never" => input.never_preempts = true,
                None if word == "critical" => input.critical = true,
                None if word == "releasing" => input.status = Status::Releasing,
                None if word == "succeeded" => input.status = Status::Succeeded,
                None if is_amount(word) => shape.requests.add(&amounts(word)),
                Some(("on", node)) => {
                    input.node = Some(node.into());
                    input.status = Status::Running;
                }
                Some(("prio", n)) => input.priority = n.parse().unwrap(),
                Some(("cooldown", n)) => input.cooldown_s = n.parse().unwrap(),
                Some(("role", role)) => input.role = role.into(),
                Some((key, value)) if key.starts_with("select:") => {
                    shape.node_selector.insert(key["select:".len()..].into(), value.into());
                }
                Some((key, value)) if key.starts_with("label:") => {
                    labels.insert(key["label:".len()..].to_owned(), value.to_owned());
                }
                _ => panic!("{word} in {text}"),
            }
        }
        let extras = (extras != Extras::default()).then(|| Arc::new(extras));
        input.spec = Arc::new(PodSpec { shape, extras });
        input.labels = Labels::new(&labels);
        self.pods.insert(name.to_owned(), self.cluster.add_pod(input));
    }

    fn name_of(&self, id: PodId) -> String {
        self.pods.iter().find(|(_, known)| **known == id).unwrap().0.clone()
    }

    pub fn cycle_at(&mut self, now: i64) {
        let outcome = self.cluster.cycle(now, &Limits::default());
        for (_, pods) in &outcome.bound {
            for (pod, node) in pods {
                let node = self.cluster.nodes.get(*node).name.to_string();
                self.bound.insert(self.name_of(*pod), node);
            }
        }
        let evicted: Vec<String> =
            outcome.evicted.iter().map(|eviction| self.name_of(eviction.pod)).collect();
        self.evicted.extend(evicted);
        self.check();
    }

    pub fn cycle(mut self) -> Self {
        self.cycle_at(0);
        self
    }

    /// Everything bound runs; everything evicted is gone.
    pub fn settle(&mut self) {
        for name in std::mem::take(&mut self.evicted) {
            let id = self.pods.remove(&name).unwrap();
            self.cluster.remove_pod(id);
        }
        for (name, node) in &self.bound.clone() {
            if let Some(id) = self.pods.get(name) {
                self.cluster.update_pod(*id, Status::Running, Some(node));
            }
        }
    }

    /// Everything bound runs that nobody asked to leave.
    pub fn run(&mut self) {
        for (name, node) in self.bound.iter().filter(|(name, _)| !self.evicted.contains(*name)) {
            if let Some(id) = self.pods.get(name) {
                self.cluster.update_pod(*id, Status::Running, Some(node));
            }
        }
    }

    pub fn end(&mut self, name: &str) {
        let id = self.pods.remove(name).unwrap();
        self.bound.remove(name);
        self.cluster.remove_pod(id);
    }

    /// `pod>node ...`, sorted.
    pub fn binds(&self) -> String {
        self.bound.iter().map(|(pod, node)| format!("{pod}>{node}")).collect::<Vec<_>>().join(" ")
    }

    pub fn evictions(&self) -> String {
        self.evicted.iter().cloned().collect::<Vec<_>>().join(" ")
    }

    /// `pod>node ...` of promised places.
    pub fn promises(&self) -> String {
        let promised = self.pods.iter().filter(|(_, id)| self.cluster.pod(**id).status == Status::Pipelined);
        let text = |(name, id): (&String, &PodId)| {
            let node = self.cluster.pod(*id).node.unwrap();
            format!("{name}>{}", self.cluster.nodes.get(node).name)
        };
        promised.map(text).collect::<Vec<_>>().join(" ")
    }

    pub fn phase(&self, group: &str) -> &'static str {
        self.cluster.group(self.cluster.find_group("default", group).unwrap()).phase.as_str()
    }

    pub fn why(&self, group: &str) -> String {
        let group = self.cluster.group(self.cluster.find_group("default", group).unwrap());
        group.why.as_deref().unwrap_or_default().to_owned()
    }

    /// No node is overcommitted, and every sum is what its parts make.
    pub fn check(&self) {
        let cluster = &self.cluster;
        for (id, node) in cluster.nodes.iter() {
            let mut used = vec![0_i64; cluster.dimensions.len()];
            let mut promised = used.clone();
            for pod in &node.pods {
                let known = cluster.pod(*pod);
                assert_eq!(known.node, Some(id));
                let to = if known.status == Status::Pipelined { &mut promised } else { &mut used };
                crate::amounts::add(to, &cluster.request_of(*pod), 1, 1);
            }
            for (place, cell) in cluster.nodes.cells(id).iter().enumerate() {
                assert_eq!(
                    (cell.used, cell.pipelined),
                    (used[place], promised[place]),
                    "{} {place}",
                    node.name
                );
                assert!(cell.idle() >= 0, "{} is overcommitted: {cell:?}", node.name);
            }
        }
    }
}
