//! Plugin spare (Fleet's own): nodes with free devices are left to pods that request devices.

use super::rules::Rules;
use crate::amounts::PODS;
use crate::ids::NodeId;
use crate::pod::Class;
use crate::score::{FULL, asked};
use crate::settings::{ArgumentError, Hook, Settings};
use crate::state::State;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spare {
    weight: i64,
}

impl Rules for Spare {
    const NAME: &'static str = "spare";
    const ARGUMENTS: &'static [&'static str] = &["spare.weight"];
    const HOOKS: &'static [Hook] = &[Hook::NodeOrder];

    fn compile(settings: &Settings<'_>) -> Result<Self, ArgumentError> {
        Ok(Self { weight: settings.from_zero("spare.weight", 100)? })
    }

    fn node_score(&self, state: &State, class: &Class, node: NodeId) -> i64 {
        let cells = state.nodes.cells(node).iter().enumerate().skip(PODS + 1);
        let mut idle = cells.filter(|(_, cell)| cell.idle() > 0);
        let lonely =
            idle.any(|(place, _)| state.dimensions.name(place).is_extended() && asked(class, place) == 0);
        if lonely { -self.weight * FULL } else { 0 }
    }
}
