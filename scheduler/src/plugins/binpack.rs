//! Plugin binpack: fuller nodes first, by a weight of each requested resource.

use std::collections::BTreeMap;

use super::rules::Rules;
use crate::amounts::{CPU, MEMORY};
use crate::ids::NodeId;
use crate::pod::Class;
use crate::score::parts;
use crate::settings::{ArgumentError, Hook, Settings};
use crate::state::State;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binpack {
    pub weight: i64,
    /// Weight of each resource by name; `*`: all others.
    resources: BTreeMap<String, i64>,
}

impl Rules for Binpack {
    const NAME: &'static str = "binpack";
    const ARGUMENTS: &'static [&'static str] =
        &["binpack.weight", "binpack.cpu", "binpack.memory", "binpack.resources", "binpack.resources."];
    const HOOKS: &'static [Hook] = &[Hook::NodeOrder];

    fn compile(settings: &Settings<'_>) -> Result<Self, ArgumentError> {
        // As in Volcano, a negative weight is 1.
        let weight = |name: &str| -> Result<i64, ArgumentError> {
            let found = settings.weight(name, 1)?;
            Ok(if found < 0 { 1 } else { found })
        };
        let mut resources = BTreeMap::from([
            ("cpu".to_owned(), weight("binpack.cpu")?),
            ("memory".to_owned(), weight("binpack.memory")?),
        ]);
        let named = settings.text("binpack.resources").unwrap_or_default();
        for name in named.split(',').map(str::trim).filter(|name| !name.is_empty()) {
            resources.insert(name.to_owned(), weight(&format!("binpack.resources.{name}"))?);
        }
        Ok(Self { weight: weight("binpack.weight")?, resources })
    }

    /// Weighted mean of the use of each requested resource.
    fn node_score(&self, state: &State, class: &Class, node: NodeId) -> i64 {
        if self.weight == 0 {
            return 0;
        }
        let cells = state.nodes.cells(node);
        let (mut sum, mut weights) = (0_i64, 0_i64);
        let every = self.resources.get("*").copied();
        for (place, amount) in class.request.iter() {
            let place = usize::from(*place);
            let named = match place {
                CPU => self.resources.get("cpu").copied(),
                MEMORY => self.resources.get("memory").copied(),
                _ => self.resources.get(state.dimensions.name(place).as_str()).copied().or(every),
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
        self.weight * if weights == 0 { 0 } else { sum / weights }
    }
}
