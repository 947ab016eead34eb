//! Plugin nodeorder: the scores of Kubernetes: use of cpu and memory, preferred nodes, taints, preferred pods, even
//! spreading.

use fleet_resources::constraints::TaintEffect;

use super::rules::Rules;
use crate::amounts::{CPU, MEMORY};
use crate::ids::{NodeId, PodId};
use crate::node::NodeState;
use crate::pod::Class;
use crate::score::{FULL, POINT, asked, parts};
use crate::settings::{ArgumentError, Hook, Settings};
use crate::state::State;

/// Soft taints beyond this number make no difference.
const MOST_SOFT_TAINTS: i64 = 10;

/// Weights; zero: off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeOrder {
    least_requested: i64,
    most_requested: i64,
    balanced: i64,
    node_affinity: i64,
    taints: i64,
    pod_affinity: i64,
    spread: i64,
}

impl Rules for NodeOrder {
    const NAME: &'static str = "nodeorder";
    const ARGUMENTS: &'static [&'static str] = &[
        "leastrequested.weight",
        "mostrequested.weight",
        "nodeaffinity.weight",
        "podaffinity.weight",
        "balancedresource.weight",
        "tainttoleration.weight",
        "imagelocality.weight",
        "podtopologyspread.weight",
        "selectorspread.weight",
    ];
    const IDLE: &'static [&'static str] = &["imagelocality.weight", "selectorspread.weight"];
    const HOOKS: &'static [Hook] = &[Hook::NodeOrder];

    fn compile(settings: &Settings<'_>) -> Result<Self, ArgumentError> {
        for name in Self::IDLE {
            settings.whole(name)?;
        }
        Ok(Self {
            least_requested: settings.weight("leastrequested.weight", 1)?,
            most_requested: settings.weight("mostrequested.weight", 0)?,
            balanced: settings.weight("balancedresource.weight", 1)?,
            node_affinity: settings.weight("nodeaffinity.weight", 2)?,
            taints: settings.weight("tainttoleration.weight", 3)?,
            pod_affinity: settings.weight("podaffinity.weight", 2)?,
            spread: settings.weight("podtopologyspread.weight", 2)?,
        })
    }

    fn fixed_score(&self, class: &Class, node: &NodeState) -> i64 {
        let mut score = 0;
        if self.node_affinity != 0
            && let Some(preferred) = class.extras().map(|extras| &extras.preferred_nodes)
            && !preferred.is_empty()
        {
            let whole: i64 = preferred.iter().map(|(weight, _)| *weight).sum();
            let held = preferred.iter().filter(|(_, term)| term.matches(&node.name, &node.labels));
            let held: i64 = held.map(|(weight, _)| *weight).sum();
            score += self.node_affinity * if whole > 0 { FULL / whole * held } else { 0 };
        }
        if self.taints != 0 {
            let tolerations = &class.spec.shape.tolerations;
            let soft = node.taints.iter().filter(|taint| {
                taint.effect == TaintEffect::PreferNoSchedule
                    && !tolerations.iter().any(|t| t.tolerates(taint))
            });
            let soft = (soft.count() as i64).min(MOST_SOFT_TAINTS);
            score += self.taints * (FULL - FULL / MOST_SOFT_TAINTS * soft);
        }
        score
    }

    fn node_score(&self, state: &State, class: &Class, node: NodeId) -> i64 {
        if self.least_requested == 0 && self.most_requested == 0 && self.balanced == 0 {
            return 0;
        }
        let cells = state.nodes.cells(node);
        let part = |place: usize| {
            let cell = cells[place];
            let used = cell.used.saturating_add(asked(class, place)).clamp(0, cell.allocatable.max(0));
            parts(used, cell.allocatable)
        };
        let (cpu, memory) = (part(CPU), part(MEMORY));
        self.least_requested * (FULL - (cpu + memory) / 2)
            + self.most_requested * ((cpu + memory) / 2)
            + self.balanced * (FULL - (cpu - memory).abs() / 2)
    }

    fn scores_pod(&self, state: &State, pod: PodId) -> bool {
        let class = state.class(state.pod(pod).class);
        !class.preferred_pods.is_empty() || class.spread.iter().any(|(rule, _)| !rule.hard)
    }

    fn pod_score(&self, state: &State, pod: PodId, node: NodeId) -> i64 {
        let class = state.class(state.pod(pod).class);
        let labels = &state.nodes.get(node).labels;
        let count =
            |term: u32| labels.get(state.terms.key(term)).map_or(0, |d| state.terms.selected(term, d));
        let near: i64 = class.preferred_pods.iter().map(|(weight, term)| weight * count(*term).min(1)).sum();
        let crowd: i64 =
            class.spread.iter().filter(|(rule, _)| !rule.hard).map(|(_, term)| count(*term)).sum();
        self.pod_affinity * near * POINT - self.spread * crowd * POINT
    }
}
