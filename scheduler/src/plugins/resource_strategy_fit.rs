//! Plugin resource-strategy-fit: fuller or emptier nodes first, for each resource as configured.

use std::collections::BTreeMap;

use super::rules::Rules;
use crate::ids::NodeId;
use crate::pod::Class;
use crate::score::{FULL, parts};
use crate::settings::{ArgumentError, Hook, Settings};
use crate::state::State;

const DEFAULT_WEIGHT: i64 = 10;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceStrategyFit {
    weight: i64,
    /// For each resource: whether fuller nodes are better, and its weight.
    resources: BTreeMap<String, (bool, i64)>,
}

impl Rules for ResourceStrategyFit {
    const NAME: &'static str = "resource-strategy-fit";
    const ARGUMENTS: &'static [&'static str] = &["resourceStrategyFitWeight", "resources."];
    const HOOKS: &'static [Hook] = &[Hook::NodeOrder];

    fn compile(settings: &Settings<'_>) -> Result<Self, ArgumentError> {
        let weight = settings.weight("resourceStrategyFitWeight", DEFAULT_WEIGHT)?;
        Ok(Self {
            weight: if weight <= 0 { DEFAULT_WEIGHT } else { weight },
            resources: read_strategies(settings)?,
        })
    }

    /// Weighted mean of what would be used, or left, of each requested resource with a strategy.
    fn node_score(&self, state: &State, class: &Class, node: NodeId) -> i64 {
        let cells = state.nodes.cells(node);
        let (mut sum, mut weights) = (0_i64, 0_i64);
        for (place, amount) in class.request.iter() {
            let place = usize::from(*place);
            let named = self.resources.get(state.dimensions.name(place).as_str());
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
        self.weight * if weights == 0 { 0 } else { sum / weights }
    }
}

/// `resources.NAME.type` and `resources.NAME.weight`; default: cpu and memory are spread.
fn read_strategies(settings: &Settings<'_>) -> Result<BTreeMap<String, (bool, i64)>, ArgumentError> {
    let mut found: BTreeMap<String, (bool, i64)> = BTreeMap::new();
    for (argument, text) in settings.arguments {
        let Some((name, field)) = argument.strip_prefix("resources.").and_then(|rest| rest.rsplit_once('.'))
        else {
            continue;
        };
        let entry = found.entry(name.to_owned()).or_insert((false, 1));
        match (field, text.as_str()) {
            ("type", "MostAllocated") => entry.0 = true,
            ("type", "LeastAllocated") => entry.0 = false,
            ("type", _) => return Err(settings.error(argument, text, "LeastAllocated, MostAllocated")),
            ("weight", _) => entry.1 = settings.weight(argument, 1)?.max(1),
            _ => return Err(settings.error(argument, field, "type, weight")),
        }
    }
    if found.is_empty() {
        found = ["cpu", "memory"].map(|name| (name.to_owned(), (false, 1))).into();
    }
    Ok(found)
}
