//! The score of a node for a pod: the sum of the plugins' points, in millionths of Volcano's points.

use std::collections::BTreeMap;

use fleet_resources::constraints::TaintEffect;

use crate::amounts::{CPU, Dimensions, MEMORY, PODS};
use crate::config::{ArgumentError, Hook, Plugin, PluginName, read_int};
use crate::node::{Cell, NodeState};
use crate::pod::Class;

/// Parts of a point.
pub const POINT: i64 = 1_000_000;
/// Volcano's highest score of a node.
pub const FULL: i64 = 100 * POINT;
/// Soft taints beyond this number make no difference.
const MOST_SOFT_TAINTS: i64 = 10;

/// Weights of all scores; zero: off.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scoring {
    pub least_requested: i64,
    pub most_requested: i64,
    pub balanced: i64,
    pub node_affinity: i64,
    pub taints: i64,
    pub pod_affinity: i64,
    pub spread: i64,
    pub binpack: i64,
    /// Weight of each resource by name; `*`: all others.
    pub binpack_resources: BTreeMap<String, i64>,
    /// Weight of plugin resource-strategy-fit. For each resource: whether fuller nodes are better, and its weight.
    pub strategy: i64,
    pub strategy_resources: BTreeMap<String, (bool, i64)>,
    /// Against nodes with free devices that the pod does not request.
    pub spare: i64,
}

/// Weight of plugin resource-strategy-fit if none is set.
const DEFAULT_STRATEGY_WEIGHT: i64 = 10;

/// `resources.NAME.type` and `resources.NAME.weight`; default: cpu and memory are spread.
fn read_strategies(plugin: &Plugin) -> Result<BTreeMap<String, (bool, i64)>, ArgumentError> {
    let mut found: BTreeMap<String, (bool, i64)> = BTreeMap::new();
    for (argument, text) in &plugin.arguments {
        let Some((name, field)) = argument.strip_prefix("resources.").and_then(|rest| rest.rsplit_once('.'))
        else {
            continue;
        };
        let entry = found.entry(name.to_owned()).or_insert((false, 1));
        match (field, text.as_str()) {
            ("type", "MostAllocated") => entry.0 = true,
            ("type", "LeastAllocated") => entry.0 = false,
            ("type", _) => {
                return Err(crate::config::error(plugin, argument, text, "LeastAllocated, MostAllocated"));
            }
            ("weight", _) => entry.1 = read_int(plugin, argument, WHOLE_NUMBER)?.unwrap_or(1).max(1),
            _ => return Err(crate::config::error(plugin, argument, field, "type, weight")),
        }
    }
    if found.is_empty() {
        found = ["cpu", "memory"].map(|name| (name.to_owned(), (false, 1))).into();
    }
    Ok(found)
}

const WHOLE_NUMBER: &str = "a whole number";

impl Scoring {
    pub(crate) fn compile(plugins: &[&Plugin]) -> Result<Self, ArgumentError> {
        let mut scoring = Self::default();
        for plugin in plugins.iter().filter(|plugin| plugin.hooks.has(Hook::NodeOrder)) {
            let weight = |name: &str, default: i64| -> Result<i64, ArgumentError> {
                Ok(read_int(plugin, name, WHOLE_NUMBER)?.unwrap_or(default))
            };
            match plugin.name {
                PluginName::NodeOrder => {
                    scoring.least_requested = weight("leastrequested.weight", 1)?;
                    scoring.most_requested = weight("mostrequested.weight", 0)?;
                    scoring.balanced = weight("balancedresource.weight", 1)?;
                    scoring.node_affinity = weight("nodeaffinity.weight", 2)?;
                    scoring.taints = weight("tainttoleration.weight", 3)?;
                    scoring.pod_affinity = weight("podaffinity.weight", 2)?;
                    scoring.spread = weight("podtopologyspread.weight", 2)?;
                }
                PluginName::Binpack => {
                    let at_least_one = |found: i64| if found < 0 { 1 } else { found };
                    scoring.binpack = at_least_one(weight("binpack.weight", 1)?);
                    let resources = &mut scoring.binpack_resources;
                    resources.insert("cpu".to_owned(), at_least_one(weight("binpack.cpu", 1)?));
                    resources.insert("memory".to_owned(), at_least_one(weight("binpack.memory", 1)?));
                    let named = plugin.arguments.get("binpack.resources").map_or("", String::as_str);
                    for name in named.split(',').map(str::trim).filter(|name| !name.is_empty()) {
                        let own = weight(&format!("binpack.resources.{name}"), 1)?;
                        resources.insert(name.to_owned(), at_least_one(own));
                    }
                }
                PluginName::ResourceStrategyFit => {
                    let own = weight("resourceStrategyFitWeight", DEFAULT_STRATEGY_WEIGHT)?;
                    scoring.strategy = if own <= 0 { DEFAULT_STRATEGY_WEIGHT } else { own };
                    scoring.strategy_resources = read_strategies(plugin)?;
                }
                PluginName::Spare => scoring.spare = weight("spare.weight", 100)?,
                _ => {}
            }
        }
        Ok(scoring)
    }

    /// The part that depends only on the node and its use, with the pod placed there.
    pub fn node_score(&self, dimensions: &Dimensions, class: &Class, cells: &[Cell], fixed: i64) -> i64 {
        let mut score = fixed;
        let asked = |place: usize| {
            class.request.iter().find(|(at, _)| usize::from(*at) == place).map_or(0, |(_, amount)| *amount)
        };
        if self.least_requested != 0 || self.most_requested != 0 || self.balanced != 0 {
            let part = |place: usize| {
                let cell = cells[place];
                let used = cell.used.saturating_add(asked(place)).clamp(0, cell.allocatable.max(0));
                parts(used, cell.allocatable)
            };
            let (cpu, memory) = (part(CPU), part(MEMORY));
            score += self.least_requested * (FULL - (cpu + memory) / 2);
            score += self.most_requested * ((cpu + memory) / 2);
            score += self.balanced * (FULL - (cpu - memory).abs() / 2);
        }
        if self.binpack != 0 {
            score += self.binpack * self.packed(dimensions, class, cells);
        }
        if self.strategy != 0 {
            score += self.strategy * self.by_strategy(dimensions, class, cells);
        }
        if self.spare != 0 {
            let lonely = cells.iter().enumerate().skip(PODS + 1).any(|(place, cell)| {
                cell.idle() > 0 && dimensions.name(place).is_extended() && asked(place) == 0
            });
            score -= if lonely { self.spare * FULL } else { 0 };
        }
        score
    }

    /// Weighted mean of the use of each requested resource, of a full score.
    fn packed(&self, dimensions: &Dimensions, class: &Class, cells: &[Cell]) -> i64 {
        let (mut sum, mut weights) = (0_i64, 0_i64);
        let every = self.binpack_resources.get("*").copied();
        for (place, amount) in class.request.iter() {
            let place = usize::from(*place);
            let named = match place {
                CPU => self.binpack_resources.get("cpu").copied(),
                MEMORY => self.binpack_resources.get("memory").copied(),
                _ => self.binpack_resources.get(dimensions.name(place).as_str()).copied().or(every),
            };
            let Some(weight) = named.filter(|weight| *weight > 0) else { continue };
            let cell = cells[place];
            let used = cell.used.saturating_add(*amount);
            if used > cell.allocatable {
                return 0;
            }
            sum += weight * parts(used, cell.allocatable);
            weights += weight;
        }
        if weights == 0 { 0 } else { sum / weights }
    }

    /// Weighted mean of what would be used, or left, of each requested resource with a strategy.
    fn by_strategy(&self, dimensions: &Dimensions, class: &Class, cells: &[Cell]) -> i64 {
        let (mut sum, mut weights) = (0_i64, 0_i64);
        for (place, amount) in class.request.iter() {
            let place = usize::from(*place);
            let named = self.strategy_resources.get(dimensions.name(place).as_str());
            let Some((most, weight)) = named else { continue };
            let cell = cells[place];
            let used = cell.used.saturating_add(*amount);
            if used > cell.allocatable {
                return 0;
            }
            let part = parts(used, cell.allocatable);
            sum += weight * if *most { part } else { FULL - part };
            weights += weight;
        }
        if weights == 0 { 0 } else { sum / weights }
    }

    /// The part that depends only on the node's labels and taints.
    pub fn fixed_score(&self, class: &Class, node: &NodeState) -> i64 {
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
}

/// The used part of `of`, of a full score.
pub(crate) fn parts(used: i64, of: i64) -> i64 {
    if of <= 0 {
        return FULL;
    }
    // Bytes of a large node times a full score exceed i64.
    match used.checked_mul(FULL) {
        Some(product) => product / of,
        None => (i128::from(used) * i128::from(FULL) / i128::from(of)) as i64,
    }
}
