//! The nodes of one cluster, with equal ones grouped. Placing a gang costs by the number of different fillings, not
//! of nodes; places are released node by node.
//!
//! For planners that place many gangs one after the other. Deliberately absent: readiness; nodes that take no pods
//! are not offered.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fleet_resources::constraints;
use fleet_resources::{ResourceName, Resources};

use crate::gang::{Gang, PodShape};
use crate::node::admits;
use crate::refusal::{Refusal, refuse};
use crate::shape::NodeShape;
use crate::solver::{Problem, capacity};

/// What nodes of one kind have in common.
#[derive(Clone, Debug)]
struct Template {
    labels: BTreeMap<String, String>,
    taints: Vec<constraints::Taint>,
    /// In the order of `GroupedNodes::names`; the number of pods a node may hold comes last.
    allocatable: Vec<i64>,
    count: i64,
}

/// What is free on a node: in the order of `GroupedNodes::names`, pods last. Equal nodes have one copy until pods are placed:
/// a member may report many nodes, and many names of resources.
type Free = Arc<[i64]>;

#[derive(Clone, Debug)]
struct NodeState {
    template: usize,
    free: Free,
    name: Option<String>,
}

/// Nodes, equal ones together.
#[derive(Clone, Debug, Default)]
pub struct GroupedNodes {
    names: Vec<ResourceName>,
    templates: Vec<Template>,
    nodes: Vec<NodeState>,
    groups: BTreeMap<(usize, Free), BTreeSet<usize>>,
    /// Nodes whose names are known.
    by_name: BTreeMap<String, usize>,
}

/// Where a gang's pods stand: per node (by index) what it takes there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Places {
    taken: Vec<(usize, Resources, i64)>,
    /// Pods of each component, node by node as in `taken`; empty if only sums are known.
    pods: Vec<Vec<i64>>,
}

impl Places {
    pub fn is_empty(&self) -> bool {
        self.taken.is_empty()
    }

    /// Sum of what is taken.
    pub fn requests(&self) -> Resources {
        let mut sum = Resources::new();
        self.taken.iter().for_each(|(_, requests, _)| sum.add(requests));
        sum
    }
}

impl GroupedNodes {
    /// Nodes as the shapes describe them. `node_names` has the known names of each shape's nodes, in any order.
    pub fn new(shapes: &[NodeShape], node_names: &[Vec<String>]) -> Self {
        let mut names: Vec<ResourceName> = shapes
            .iter()
            .flat_map(|shape| shape.allocatable.iter().chain(shape.free.iter()))
            .map(|(name, _)| name.clone())
            .collect();
        names.sort_unstable();
        names.dedup();
        let mut grouped = Self { names, ..Self::default() };
        let mut templates: BTreeMap<NodeShape, usize> = BTreeMap::new();
        for (at, shape) in shapes.iter().enumerate() {
            let bare = NodeShape { free: Resources::new(), pods: 0, count: 0, ..shape.clone() };
            let next = templates.len();
            let template = *templates.entry(bare).or_insert(next);
            if template == next {
                grouped.templates.push(Template {
                    labels: shape.labels.clone(),
                    taints: shape.taints.clone(),
                    allocatable: grouped
                        .vector(&shape.allocatable, crate::node::free_pods(shape.max_pods, 0)),
                    count: 0,
                });
            }
            grouped.templates[template].count += shape.count.max(0);
            let free: Free =
                grouped.vector(&shape.free, crate::node::free_pods(shape.max_pods, shape.pods)).into();
            let known = node_names.get(at).map_or(&[][..], Vec::as_slice);
            for n in 0..usize::try_from(shape.count).unwrap_or(0) {
                let node = grouped.nodes.len();
                grouped.nodes.push(NodeState { template, free: free.clone(), name: known.get(n).cloned() });
                grouped.groups.entry((template, free.clone())).or_default().insert(node);
                if let Some(name) = known.get(n) {
                    grouped.by_name.insert(name.clone(), node);
                }
            }
        }
        grouped
    }

    /// Whether the nodes would be the same if all were empty.
    pub fn same_when_empty(&self, other: &Self) -> bool {
        let sorted = |of: &'_ Self| -> Vec<usize> {
            let mut sorted: Vec<usize> = (0..of.templates.len()).collect();
            sorted.sort_by(|one, two| of.compared(&of.templates[*one], of, &of.templates[*two]));
            sorted
        };
        self.templates.len() == other.templates.len()
            && sorted(self).into_iter().zip(sorted(other)).all(|(mine, theirs)| {
                let (mine, theirs) = (&self.templates[mine], &other.templates[theirs]);
                self.compared(mine, other, theirs).is_eq() && mine.count == theirs.count
            })
    }

    /// Compares what a template is when empty with one of the other's: names may have other positions there.
    fn compared(&self, template: &Template, other: &Self, its: &Template) -> Ordering {
        fn amounts<'n>(
            of: &'n GroupedNodes,
            template: &'n Template,
        ) -> impl Iterator<Item = (&'n ResourceName, &'n i64)> {
            of.names.iter().zip(&template.allocatable).filter(|(_, amount)| **amount != 0)
        }
        (&template.labels, &template.taints)
            .cmp(&(&its.labels, &its.taints))
            .then_with(|| template.allocatable.last().cmp(&its.allocatable.last()))
            .then_with(|| amounts(self, template).cmp(amounts(other, its)))
    }

    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    fn vector(&self, amounts: &Resources, pods: i64) -> Vec<i64> {
        self.names.iter().map(|name| amounts.get(name.as_str())).chain([pods]).collect()
    }

    /// Finds places for at least the gang's minimum, and takes them.
    ///
    /// # Errors
    /// A [`Refusal`] that says per component how many pods would fit and what the nodes lack.
    pub fn place(&mut self, gang: &Gang) -> Result<Places, Refusal> {
        let places = self.find(gang)?;
        self.apply(&places, -1);
        Ok(places)
    }

    /// As [`place`](Self::place), without a word about what is missing.
    pub fn try_place(&mut self, gang: &Gang) -> Option<Places> {
        let places = self.search(gang)?;
        self.apply(&places, -1);
        Some(places)
    }

    /// As [`place`](Self::place), but takes nothing.
    ///
    /// # Errors
    /// As there.
    pub fn find(&self, gang: &Gang) -> Result<Places, Refusal> {
        self.search(gang).ok_or_else(|| {
            let groups = self.groups.iter().enumerate();
            let groups =
                groups.map(|(at, ((template, free), nodes))| (at, *template, &free[..], nodes.len()));
            refuse(&self.problem(gang, groups), gang)
        })
    }

    /// Whether there are places for at least the gang's minimum.
    pub fn fits(&self, gang: &Gang) -> bool {
        self.search(gang).is_some()
    }

    /// The solver gets only the groups that can take a pod: most questions about a full cluster end before.
    fn search(&self, gang: &Gang) -> Option<Places> {
        let requests: Vec<Option<Vec<i64>>> =
            gang.components.iter().map(|component| self.request(&component.shape)).collect();
        let minimum = gang.minimum();
        let mut admitted: Vec<Option<Vec<bool>>> = vec![None; self.templates.len()];
        let mut fit = vec![0_i64; requests.len()];
        let mut useful: Vec<(&(usize, Free), &BTreeSet<usize>)> = Vec::new();
        for (key, nodes) in &self.groups {
            let admitted = admitted[key.0].get_or_insert_with(|| self.admitted(key.0, gang));
            let mut takes_one = false;
            for (k, request) in requests.iter().enumerate().filter(|(k, _)| admitted[*k]) {
                let each = request.as_ref().map_or(0, |request| capacity(&key.1, request));
                fit[k] = fit[k].saturating_add(each.saturating_mul(nodes.len() as i64));
                takes_one |= each > 0;
            }
            if takes_one {
                useful.push((key, nodes));
            }
        }
        if fit.iter().zip(&minimum).any(|(fit, minimum)| fit < minimum) {
            return None;
        }
        let groups = useful.iter().enumerate();
        let groups = groups.map(|(at, ((template, free), nodes))| (at, *template, &free[..], nodes.len()));
        let counts = self.problem(gang, groups).solve_between(&minimum, &gang.wanted())?;
        let mut next: Vec<std::collections::btree_set::Iter<'_, usize>> =
            useful.iter().map(|(_, nodes)| nodes.iter()).collect();
        let mut places = Places::default();
        for (group, taken) in counts {
            let Some(node) = next[group].next() else { continue };
            let mut requests = Resources::new();
            let mut pods = 0;
            for (component, count) in gang.components.iter().zip(&taken).filter(|(_, count)| **count > 0) {
                requests.add(&component.shape.requests.scaled(*count));
                pods += count;
            }
            places.taken.push((*node, requests, pods));
            places.pods.push(taken);
        }
        Some(places)
    }

    /// The request of one pod, in the order of a node's free amounts; `None` if it asks for what no node has.
    fn request(&self, shape: &PodShape) -> Option<Vec<i64>> {
        let asked = shape.requests.iter().filter(|(_, amount)| *amount > 0);
        let mut request = vec![0; self.names.len() + 1];
        for (name, amount) in asked {
            request[self.names.binary_search(name).ok()?] = amount;
        }
        request[self.names.len()] = 1;
        Some(request)
    }

    /// The places of a gang whose nodes are known by name: component to the node of each pod. `None` if a name is
    /// not known.
    pub fn named(&self, gang: &Gang, nodes: &BTreeMap<String, Vec<String>>) -> Option<Places> {
        let mut sums: BTreeMap<usize, (Resources, i64)> = BTreeMap::new();
        for component in &gang.components {
            for name in nodes.get(&component.name)? {
                let (requests, pods) = sums.entry(*self.by_name.get(name)?).or_default();
                requests.add(&component.shape.requests);
                *pods += 1;
            }
        }
        let taken = sums.into_iter().map(|(node, (requests, pods))| (node, requests, pods)).collect();
        Some(Places { taken, pods: Vec::new() })
    }

    /// Whether a node of this name is among them. `None` if no names are known.
    pub fn knows(&self, name: &str) -> Option<bool> {
        (!self.by_name.is_empty()).then(|| self.by_name.contains_key(name))
    }

    /// The node of each pod, by component and sorted, for places that were found here on nodes with known names.
    pub fn node_names(&self, gang: &Gang, places: &Places) -> BTreeMap<String, Vec<String>> {
        let mut names: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for ((node, ..), counts) in places.taken.iter().zip(&places.pods) {
            let Some(name) = self.nodes.get(*node).and_then(|node| node.name.as_ref()) else { continue };
            for (component, count) in gang.components.iter().zip(counts).filter(|(_, count)| **count > 0) {
                let list = names.entry(component.name.clone()).or_default();
                list.extend((0..*count).map(|_| name.to_string()));
            }
        }
        names.values_mut().for_each(|list| list.sort_unstable());
        names
    }

    /// Takes places found before.
    pub fn take(&mut self, places: &Places) {
        self.apply(places, -1);
    }

    /// Releases places.
    pub fn give_back(&mut self, places: &Places) {
        self.apply(places, 1);
    }

    /// Whether one of the nodes is overfull: places were taken that were not free.
    pub fn is_overfull(&self, places: &Places) -> bool {
        let nodes = places.taken.iter().filter_map(|(node, ..)| self.nodes.get(*node));
        nodes.flat_map(|node| node.free.iter()).any(|amount| *amount < 0)
    }

    fn apply(&mut self, places: &Places, sign: i64) {
        for (node, requests, pods) in &places.taken {
            let Some(state) = self.nodes.get(*node) else { continue };
            let template = state.template;
            let mut free = state.free.to_vec();
            for (name, amount) in requests.iter() {
                if let Ok(at) = self.names.binary_search(name) {
                    free[at] = free[at].saturating_add(sign * amount);
                }
            }
            if let Some(last) = free.last_mut().filter(|last| **last != i64::MAX) {
                *last = last.saturating_add(sign * pods);
            }
            let free: Free = free.into();
            let old = (template, std::mem::replace(&mut self.nodes[*node].free, free.clone()));
            if let Some(group) = self.groups.get_mut(&old) {
                group.remove(node);
                if group.is_empty() {
                    self.groups.remove(&old);
                }
            }
            self.groups.entry((template, free)).or_default().insert(*node);
        }
    }

    /// Whether the gang's minimum would fit if the nodes were empty.
    pub fn holds_when_empty(&self, gang: &Gang) -> bool {
        let templates = self.templates.iter().enumerate();
        let groups = templates
            .map(|(at, template)| (at, at, template.allocatable.as_slice(), template.count as usize));
        self.problem(gang, groups).solve(&gang.minimum()).is_some()
    }

    /// How many pods of one shape still fit. Counted node by node: pods of a single shape never compete in a
    /// packing.
    pub fn pods_of(&self, shape: &PodShape, limit: i64) -> i64 {
        let Some(request) = self.request(shape) else { return 0 };
        let mut sum = 0_i64;
        for ((template, free), nodes) in &self.groups {
            if self.admits(*template, shape) {
                let each = capacity(free, &request);
                sum = sum.saturating_add(each.saturating_mul(nodes.len() as i64));
            }
        }
        sum.min(limit)
    }

    fn admits(&self, template: usize, shape: &PodShape) -> bool {
        let template = &self.templates[template];
        admits(shape, "", &template.labels) && constraints::tolerates(&shape.tolerations, &template.taints)
    }

    /// By component, whether it may use nodes of the template.
    fn admitted(&self, template: usize, gang: &Gang) -> Vec<bool> {
        gang.components.iter().map(|component| self.admits(template, &component.shape)).collect()
    }

    /// `groups`: the caller's number, template, free amounts, number of nodes.
    fn problem<'g>(
        &self,
        gang: &Gang,
        groups: impl Iterator<Item = (usize, usize, &'g [i64], usize)>,
    ) -> Problem {
        let mut problem = Problem::new(gang);
        let at: Vec<Option<usize>> =
            problem.names.iter().map(|name| self.names.binary_search(name).ok()).collect();
        let spared: Vec<usize> = (0..self.names.len())
            .filter(|r| self.names[*r].is_extended() && !at.contains(&Some(*r)))
            .collect();
        let mut admitted: Vec<Option<Vec<bool>>> = vec![None; self.templates.len()];
        for (group, template, free, count) in groups {
            let admitted = admitted[template].get_or_insert_with(|| self.admitted(template, gang));
            let amounts = at.iter().map(|r| r.map_or(0, |r| free[r]));
            let vector: Vec<i64> = amounts.chain(free.last().copied()).collect();
            let spared = spared.iter().map(|r| free[*r].max(0)).fold(0, i64::saturating_add);
            problem.offer_vector(group, count as i64, admitted.clone(), vector, spared);
        }
        problem.seal();
        problem
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::gang::GangComponent;
    use crate::{NodeIndex, expand, fits_empty, place_gang};

    fn shape(cpu: i64, free: i64, count: i64, max_pods: i64) -> NodeShape {
        NodeShape {
            allocatable: Resources::from_pairs([("cpu", cpu)]),
            free: Resources::from_pairs([("cpu", free)]),
            max_pods,
            pods: 0,
            count,
            ..NodeShape::default()
        }
    }

    fn gang(components: &[(i64, i64)]) -> Gang {
        let component = |(at, (replicas, cpu)): (usize, &(i64, i64))| {
            let requests = Resources::from_pairs([("cpu", *cpu)]);
            GangComponent::whole(&format!("c{at}"), *replicas, PodShape { requests, ..PodShape::default() })
        };
        Gang { components: components.iter().enumerate().map(component).collect() }
    }

    #[test]
    fn nodes_with_names_are_found_again() {
        let mut nodes = GroupedNodes::new(&[shape(8, 0, 2, 0)], &[vec!["a".to_owned(), "b".to_owned()]]);
        let held = gang(&[(2, 4)]);
        let on = |names: [&str; 2]| BTreeMap::from([("c0".to_owned(), names.map(str::to_owned).to_vec())]);
        assert_eq!(nodes.named(&held, &on(["a", "x"])), None);
        let wide = gang(&[(1, 8)]);
        let both = nodes.named(&held, &on(["a", "b"])).expect("names are known");
        nodes.give_back(&both);
        assert!(nodes.find(&wide).is_err(), "4 free on each");
        nodes.take(&both);
        let one = nodes.named(&held, &on(["a", "a"])).expect("names are known");
        nodes.give_back(&one);
        assert!(nodes.find(&wide).is_ok(), "8 free on one");
    }

    /// 100,000 nodes with as many resources as are planned with are 100 MB if each has its own copy.
    #[test]
    fn equal_nodes_share_what_they_have_until_pods_are_placed() {
        let mut nodes = GroupedNodes::new(&[shape(8, 8, 1_000, 0), shape(8, 4, 1_000, 0)], &[]);
        let copies = |nodes: &GroupedNodes| {
            let all = nodes.nodes.iter().map(|node| node.free.as_ptr());
            all.collect::<BTreeSet<_>>().len()
        };
        assert_eq!(copies(&nodes), 2);
        let before = nodes.clone();
        let places = nodes.place(&gang(&[(2, 8)])).expect("two are empty");
        assert_eq!((copies(&nodes), copies(&before)), (4, 2), "those that pods are on have their own");
        nodes.give_back(&places);
        assert_eq!(nodes.groups, before.groups);
    }

    #[test]
    fn nodes_are_the_same_when_empty_whatever_is_free_and_in_any_order() {
        let labelled = |zone: &str, shape: NodeShape| {
            let labels = BTreeMap::from([("zone".to_owned(), zone.to_owned())]);
            NodeShape { labels, ..shape }
        };
        let (a, b) = (labelled("a", shape(8, 8, 2, 0)), labelled("b", shape(8, 8, 3, 0)));
        let of = |shapes: &[NodeShape]| GroupedNodes::new(shapes, &[]);
        let both = of(&[a.clone(), b.clone()]);
        let free = |shape: &NodeShape, cpu: i64, count: i64| NodeShape {
            free: Resources::from_pairs([("cpu", cpu)]),
            count,
            ..shape.clone()
        };
        assert!(both.same_when_empty(&of(&[b.clone(), free(&a, 1, 1), free(&a, 0, 1)])));
        let named = NodeShape { free: Resources::from_pairs([("a.example/x", 1)]), ..a.clone() };
        assert!(both.same_when_empty(&of(&[named, b.clone()])), "a name that no empty node has");
        let differ = [
            vec![a.clone()],
            vec![a.clone(), a.clone()],
            vec![a.clone(), free(&b, 8, 2)],
            vec![a.clone(), NodeShape { max_pods: 7, ..b.clone() }],
            vec![a.clone(), NodeShape { allocatable: Resources::from_pairs([("memory", 8)]), ..b.clone() }],
            vec![a.clone(), labelled("c", b.clone())],
            vec![a, b.clone(), labelled("c", b)],
        ];
        for shapes in differ {
            let other = of(&shapes);
            assert!(!both.same_when_empty(&other) && !other.same_when_empty(&both), "{shapes:?}");
        }
    }

    proptest! {
        #[test]
        fn the_same_gangs_fit_as_node_by_node(
            shapes in proptest::collection::vec((1_i64..9, 0_i64..9, 1_i64..4, 0_i64..4), 1..4),
            gangs in proptest::collection::vec(proptest::collection::vec((1_i64..4, 0_i64..6), 1..3), 1..8),
        ) {
            let shapes: Vec<NodeShape> =
                shapes.into_iter().map(|(cpu, free, n, pods)| shape(cpu, free.min(cpu), n, pods)).collect();
            let mut grouped = GroupedNodes::new(&shapes, &[]);
            let mut taken = Vec::new();
            let before = grouped.groups.clone();
            for components in &gangs {
                let gang = gang(components);
                // The same nodes, one by one, as they are filled now.
                let mut index = NodeIndex::new(expand(&shapes));
                let mut names: Vec<String> = index.iter().map(|node| node.name.clone()).collect();
                names.sort_unstable();
                for (at, node) in grouped.nodes.iter().enumerate() {
                    let known = index.get(&names[at]).expect("made from the same shapes").clone();
                    let used = known.allocatable.minus(&Resources::from_pairs([("cpu", node.free[0])]));
                    let pods = if known.max_pods > 0 { known.max_pods - node.free[1] } else { 0 };
                    index.upsert(crate::Node { used, pods, ..known });
                }
                prop_assert_eq!(grouped.holds_when_empty(&gang), fits_empty(&index, &gang));
                let alone = place_gang(&index, &gang).is_ok();
                prop_assert_eq!(grouped.fits(&gang), alone);
                match grouped.place(&gang) {
                    Ok(places) => {
                        prop_assert!(alone);
                        prop_assert!(grouped.nodes.iter().all(|node| node.free.iter().all(|n| *n >= 0)));
                        taken.push(places);
                    }
                    Err(_) => prop_assert!(!alone),
                }
            }
            for places in taken.iter().rev() {
                grouped.give_back(places);
            }
            prop_assert_eq!(before, grouped.groups);
        }
    }
}
