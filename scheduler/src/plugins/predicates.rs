//! Plugin predicates: the filters of Kubernetes. Without it, only amounts are checked.

use fleet_resources::constraints::{self, Taint, TaintEffect};

use super::rules::{Rules, Spreads};
use crate::ids::{NodeId, PodId};
use crate::misfit::{Fit, Misfit};
use crate::node::NodeState;
use crate::pod::{Class, Port, Status};
use crate::settings::{ArgumentError, Hook, Settings};
use crate::state::State;

const VOLUME: Misfit = Misfit::Rule("had volume node affinity conflict");
const PORTS: Misfit = Misfit::Rule("didn't have free ports for the requested pod ports");
const POD_AFFINITY: Misfit = Misfit::Rule("didn't match pod affinity rules");
const ANTI_AFFINITY: Misfit = Misfit::Rule("didn't match pod anti-affinity rules");
const SPREAD: Misfit = Misfit::Rule("didn't match pod topology spread constraints");

/// Which filters are on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Predicates {
    node_affinity: bool,
    ports: bool,
    taints: bool,
    pods: bool,
    spread: bool,
    volumes: bool,
}

impl Rules for Predicates {
    const NAME: &'static str = "predicates";
    const ARGUMENTS: &'static [&'static str] = &[
        "predicate.NodeAffinityEnable",
        "predicate.NodePortsEnable",
        "predicate.TaintTolerationEnable",
        "predicate.PodAffinityEnable",
        "predicate.NodeVolumeLimitsEnable",
        "predicate.VolumeZoneEnable",
        "predicate.PodTopologySpreadEnable",
        "predicate.VolumeBindingEnable",
        "predicate.DynamicResourceAllocationEnable",
        "predicate.CacheEnable",
        "predicate.GPUSharingEnable",
    ];
    const IDLE: &'static [&'static str] = &[
        "predicate.CacheEnable",
        "predicate.DynamicResourceAllocationEnable",
        "predicate.GPUSharingEnable",
        "predicate.NodeVolumeLimitsEnable",
    ];
    const HOOKS: &'static [Hook] = &[Hook::Predicate];

    fn compile(settings: &Settings<'_>) -> Result<Self, ArgumentError> {
        for name in Self::IDLE {
            settings.flag(name, true)?;
        }
        let zones = settings.flag("predicate.VolumeZoneEnable", true)?;
        let binding = settings.flag("predicate.VolumeBindingEnable", true)?;
        Ok(Self {
            node_affinity: settings.flag("predicate.NodeAffinityEnable", true)?,
            ports: settings.flag("predicate.NodePortsEnable", true)?,
            taints: settings.flag("predicate.TaintTolerationEnable", true)?,
            pods: settings.flag("predicate.PodAffinityEnable", true)?,
            spread: settings.flag("predicate.PodTopologySpreadEnable", true)?,
            volumes: zones || binding,
        })
    }

    fn admits(&self, class: &Class, node: &NodeState) -> Result<(), Misfit> {
        let shape = &class.spec.shape;
        if node.unschedulable {
            let cordon = Taint {
                key: "node.kubernetes.io/unschedulable".to_owned(),
                value: String::new(),
                effect: TaintEffect::NoSchedule,
            };
            if !shape.tolerations.iter().any(|t| t.tolerates(&cordon)) {
                return Err(Misfit::Unschedulable);
            }
        }
        let selected = || {
            shape.node_selector.iter().all(|(key, value)| node.labels.get(key) == Some(value))
                && constraints::any_term_matches(&shape.node_affinity, &node.name, &node.labels)
        };
        if self.node_affinity && !selected() {
            return Err(Misfit::NodeAffinity);
        }
        if self.taints && !constraints::tolerates(&shape.tolerations, &node.taints) {
            return Err(Misfit::Taint);
        }
        if let Some(extras) = class.extras() {
            let reaches = |terms: &Vec<_>| constraints::any_term_matches(terms, &node.name, &node.labels);
            if self.volumes && !extras.volumes.iter().all(reaches) {
                return Err(VOLUME);
            }
        }
        Ok(())
    }

    fn agrees(
        &self,
        state: &State,
        id: PodId,
        node: NodeId,
        spreads: &Spreads,
        fit: Fit,
    ) -> Result<(), Misfit> {
        let class = state.class(state.pod(id).class);
        let node = state.nodes.get(node);
        let ports = ports(class);
        if self.ports && ports.iter().any(|port| node.ports.iter().any(|used| used.collides(port))) {
            return Err(PORTS);
        }
        if fit == Fit::Now {
            self.agrees_with_leaving(state, id, node)?;
        }
        if state.terms.is_empty() {
            return Ok(());
        }
        if self.pods {
            near_and_apart(state, id, node)?;
        }
        if self.spread { spread(state, id, node, spreads) } else { Ok(()) }
    }
}

impl Predicates {
    /// Terminating pods still have their ports, and still count for anti-affinity.
    fn agrees_with_leaving(&self, state: &State, id: PodId, node: &NodeState) -> Result<(), Misfit> {
        let pod = state.pod(id);
        let class = state.class(pod.class);
        if ports(class).is_empty() && class.anti_affinity.is_empty() && pod.matches.is_empty() {
            return Ok(());
        }
        let standing = node.pods.iter().map(|other| state.pod(*other));
        for other in standing.filter(|other| other.status == Status::Releasing) {
            let theirs = state.class(other.class);
            let collide = |port: &Port| ports(theirs).iter().any(|other| other.collides(port));
            if self.ports && ports(class).iter().any(collide) {
                return Err(PORTS);
            }
            let apart = class.anti_affinity.iter().any(|term| other.matches.contains(term))
                || theirs.anti_affinity.iter().any(|term| pod.matches.contains(term));
            if self.pods && apart {
                return Err(ANTI_AFFINITY);
            }
        }
        Ok(())
    }
}

fn ports(class: &Class) -> &[Port] {
    class.extras().map_or(&[], |extras| &extras.ports)
}

/// Affinity and anti-affinity to other pods, in both directions.
fn near_and_apart(state: &State, id: PodId, node: &NodeState) -> Result<(), Misfit> {
    let pod = state.pod(id);
    let class = state.class(pod.class);
    let domain = |term| node.labels.get(state.terms.key(term)).map(String::as_str);
    for term in &class.affinity {
        let own = pod.matches.contains(term);
        let first = state.terms.selected_anywhere(*term) == 0 && own;
        let near = domain(*term).is_some_and(|d| first || state.terms.selected(*term, d) > 0);
        if !near {
            return Err(POD_AFFINITY);
        }
    }
    let apart = |term: &u32| domain(*term).is_none_or(|d| state.terms.selected(*term, d) == 0);
    let repelled = pod.matches.iter().any(|term| state.terms.repels(*term, domain(*term)));
    if repelled || !class.anti_affinity.iter().all(apart) { Err(ANTI_AFFINITY) } else { Ok(()) }
}

fn spread(state: &State, id: PodId, node: &NodeState, spreads: &Spreads) -> Result<(), Misfit> {
    let pod = state.pod(id);
    let class = state.class(pod.class);
    for (at, (rule, term)) in class.spread.iter().enumerate().filter(|(_, (rule, _))| rule.hard) {
        let Some(domain) = node.labels.get(state.terms.key(*term)) else { return Err(SPREAD) };
        let own = i64::from(pod.matches.contains(term));
        let least = spreads.least.get(at).copied().unwrap_or(0);
        if state.terms.selected(*term, domain) + own - least > rule.max_skew {
            return Err(SPREAD);
        }
    }
    Ok(())
}
