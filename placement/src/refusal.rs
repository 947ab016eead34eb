//! Why a gang does not fit, as numbers and as one sentence.

use std::{collections::BTreeMap, fmt};

use fleet_resources::{Resources, Shortage, quantity};
use serde::{Deserialize, Serialize};

use crate::gang::Gang;
use crate::solver::{Group, MAX_GANG_PODS, Problem};

/// What is missing for one component.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ComponentRefusal {
    pub name: String,
    /// Pods that fit beside those of the other components; at most `wanted`.
    pub fit: i64,
    pub wanted: i64,
    /// Number of nodes.
    pub nodes: i64,
    /// Nodes whose selectors, affinity and taints admit the component.
    pub admitted: i64,
    /// What the admitted nodes lack for one more pod once those that fit are placed.
    pub lacks: Vec<Lack>,
}

/// Nodes that lack the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lack {
    pub nodes: i64,
    /// The request of one pod, and what is free; empty: a free pod slot.
    pub short: Vec<Shortage>,
}

/// A resource that some nodes lack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LackOf {
    pub nodes: i64,
    /// What is free on the best of them.
    pub short: Shortage,
    /// All of them have as much free.
    pub equal: bool,
}

impl LackOf {
    /// Such as `nvidia.com/gpu: requested 4, available 2`.
    pub fn amounts(&self) -> String {
        let text = self.short.to_string();
        if self.equal { text } else { text.replace(", available ", ", available at most ") }
    }
}

impl ComponentRefusal {
    /// Counts nodes by what they lack.
    pub fn lack(&mut self, nodes: i64, mut short: Vec<Shortage>) {
        for one in &mut short {
            one.available = one.available.max(0);
        }
        match self.lacks.iter_mut().find(|known| known.short == short) {
            Some(known) => known.nodes = known.nodes.saturating_add(nodes),
            None => self.lacks.push(Lack { nodes, short }),
        }
    }

    /// By resource, that of most nodes first. A node that lacks two counts for both, as in Kubernetes.
    pub fn by_resource(&self) -> Vec<LackOf> {
        let mut found: Vec<LackOf> = Vec::new();
        for lack in &self.lacks {
            for short in &lack.short {
                let Some(known) = found.iter_mut().find(|known| known.short.name == short.name) else {
                    found.push(LackOf { nodes: lack.nodes, short: short.clone(), equal: true });
                    continue;
                };
                known.nodes = known.nodes.saturating_add(lack.nodes);
                known.equal &= known.short == *short;
                known.short.available = known.short.available.max(short.available);
            }
        }
        found.sort_by(|a, b| (b.nodes, &a.short.name).cmp(&(a.nodes, &b.short.name)));
        found
    }

    /// Why no node takes one more pod, in the words of Kubernetes. `who`: ` for NAME`, or nothing.
    fn unavailable(&self, who: &str) -> String {
        if self.nodes == 0 {
            return "there are no nodes".to_owned();
        }
        if self.admitted == 0 {
            return format!(
                "none of {} nodes is ready and admitted by node selector, affinity and taints{who}",
                self.nodes
            );
        }
        let mut parts: Vec<(i64, String)> = Vec::new();
        for lack in self.by_resource() {
            let name = lack.short.name.as_str();
            let amount = |amount| quantity::format(name, amount);
            let mut text = format!("Insufficient {name}");
            if lack.equal {
                let (requested, available) = (amount(lack.short.requested), amount(lack.short.available));
                text.push_str(&format!(" (requested {requested}, available {available})"));
            }
            parts.push((lack.nodes, text));
        }
        let full = self.lacks.iter().filter(|lack| lack.short.is_empty()).map(|lack| lack.nodes);
        parts.push((fleet_resources::sum(full), "Too many pods".to_owned()));
        parts.push((self.nodes - self.admitted, "not ready or not admitted".to_owned()));
        parts.retain(|(nodes, _)| *nodes > 0);
        parts.sort_by_key(|(nodes, _)| std::cmp::Reverse(*nodes));
        let parts: Vec<String> = parts.into_iter().map(|(nodes, text)| format!("{nodes} {text}")).collect();
        let are = if self.nodes == 1 { "node is" } else { "nodes are" };
        format!("0/{} {are} available{who}: {}", self.nodes, listed(&parts))
    }
}

/// Entries of a list in a sentence. Names of resources are the pods' owners' choice, as many as they like.
const MOST_LISTED: usize = 16;

/// The entries, separated by commas; beyond the first 16 only their number.
pub fn listed(entries: &[String]) -> String {
    match entries.split_at_checked(MOST_LISTED) {
        Some((first, more @ [_, ..])) => format!("{} and {} more", first.join(", "), more.len()),
        _ => entries.join(", "),
    }
}

/// Why a gang does not fit on a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    pub components: Vec<ComponentRefusal>,
}

impl Refusal {
    /// How many pods fit, such as `1 of 3 pods fits`.
    pub fn counts(&self) -> String {
        let sum = |of: fn(&ComponentRefusal) -> i64| fleet_resources::sum(self.components.iter().map(of));
        let (fit, wanted) = (sum(|component| component.fit), sum(|component| component.wanted));
        let pods = if wanted == 1 { "pod" } else { "pods" };
        let fits = if fit == 1 || wanted == 1 { "fits" } else { "fit" };
        format!("{fit} of {wanted} {pods} {fits}")
    }

    /// One sentence for conditions and messages, such as
    /// `1 of 3 pods fits, then 0/4 nodes are available: 3 Insufficient nvidia.com/gpu, 1 Insufficient cpu`.
    pub fn sentence(&self) -> String {
        let pods = fleet_resources::sum(self.components.iter().map(|component| component.wanted));
        if pods > MAX_GANG_PODS {
            return format!("the job asks for {pods} pods at once; allowed: at most {MAX_GANG_PODS}");
        }
        let wanted: Vec<&ComponentRefusal> =
            self.components.iter().filter(|component| component.wanted > 0).collect();
        let blocked: Vec<&&ComponentRefusal> =
            wanted.iter().filter(|component| component.fit < component.wanted).collect();
        if blocked.is_empty() {
            return "each component fits alone, but not all together".to_owned();
        }
        // Components that lack the same are named together.
        let mut of_names: Vec<(String, Vec<&str>)> = Vec::new();
        for component in blocked {
            let key = component.unavailable("");
            match of_names.iter_mut().find(|(known, _)| *known == key) {
                Some((_, names)) => names.push(&component.name),
                None => of_names.push((key, vec![&component.name])),
            }
        }
        let all = of_names.len() == 1 && of_names[0].1.len() == wanted.len();
        let parts = of_names.iter().filter_map(|(_, names)| {
            let first = wanted.iter().find(|component| component.name == names[0])?;
            let who = if all { String::new() } else { format!(" for {}", names.join(" and ")) };
            Some(first.unavailable(&who))
        });
        // The counts are of pods that fit now; the nodes are those for one more.
        let fits_some = wanted.iter().any(|component| component.fit > 0);
        let then = if fits_some { ", then" } else { ";" };
        format!("{}{then} {}", self.counts(), parts.collect::<Vec<_>>().join("; "))
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.sentence())
    }
}

/// The refusal of a gang whose minimum `problem` cannot place.
pub(crate) fn refuse(problem: &Problem, gang: &Gang) -> Refusal {
    let minimum = gang.minimum();
    let (groups, missing) = problem.fill_all(&minimum);
    let nodes = fleet_resources::sum(groups.iter().map(|group| group.count));
    let components = gang.components.iter().zip(minimum.iter().zip(missing)).enumerate();
    Refusal {
        components: components
            .map(|(k, (component, (wanted, missing)))| {
                let admitted = |group: &&Group| problem.classes[group.class].admitted[k];
                let mut refusal = ComponentRefusal {
                    name: component.name.clone(),
                    fit: wanted - missing,
                    wanted: *wanted,
                    nodes,
                    admitted: fleet_resources::sum(groups.iter().filter(admitted).map(|group| group.count)),
                    lacks: Vec::new(),
                };
                if missing > 0 {
                    count_lacks(problem, k, groups.iter().filter(admitted), &mut refusal);
                }
                refusal
            })
            .collect(),
    }
}

/// Counts what the nodes lack for one more pod of component `k`.
fn count_lacks<'g>(
    problem: &Problem,
    k: usize,
    groups: impl Iterator<Item = &'g Group>,
    refusal: &mut ComponentRefusal,
) {
    let named =
        |amounts: &[i64]| Resources::from_pairs(problem.names.iter().cloned().zip(amounts.iter().copied()));
    let request = named(&problem.requests[k]);
    let mut nodes_by_free: BTreeMap<&[i64], i64> = BTreeMap::new();
    for group in groups {
        *nodes_by_free.entry(&group.free).or_default() += group.count;
    }
    for (free, nodes) in nodes_by_free {
        refusal.lack(nodes, request.shortages(&named(free)));
    }
}
