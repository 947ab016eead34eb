//! What is wrong with a configuration, and what each part of compiling needs.

use crate::{
    config::{ConfigError, ConfigErrors},
    topology::{ChainNo, Topology},
};

/// Most cells of a configuration, inferred ones included: a wrong number in the file must not exhaust memory.
pub(crate) const MAX_CELLS: u64 = 4_000_000;

/// The errors found so far.
#[derive(Default)]
pub(crate) struct Wrongs(pub Vec<ConfigError>);

impl Wrongs {
    pub(crate) fn add(
        &mut self,
        path: impl Into<String>,
        found: impl Into<String>,
        allowed: impl Into<String>,
    ) {
        self.0.push(ConfigError { path: path.into(), found: found.into(), allowed: allowed.into() });
    }

    pub(super) fn check(self) -> Result<Self, ConfigErrors> {
        if self.0.is_empty() { Ok(self) } else { Err(ConfigErrors(self.0)) }
    }
}

/// Position of a chain by its name.
pub(super) fn chain_number(topology: &Topology, name: &str) -> Option<ChainNo> {
    topology.chains.iter().position(|chain| chain.name == name).map(ChainNo::of)
}
