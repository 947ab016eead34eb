//! Plugin network-topology-aware: gangs that prefer it go into one domain of the network.
//!
//! Hard constraints hold without the plugin. The search is in `actions/domains`.

use super::rules::Rules;
use crate::settings::{ArgumentError, Hook, Settings};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetworkTopologyAware;

impl Rules for NetworkTopologyAware {
    const NAME: &'static str = "network-topology-aware";
    const ARGUMENTS: &'static [&'static str] = &[
        "weight",
        "hypernode.binpack.cpu",
        "hypernode.binpack.memory",
        "hypernode.binpack.resources",
        "hypernode.binpack.resources.",
    ];
    const HOOKS: &'static [Hook] = &[Hook::HyperNodeOrder, Hook::HyperNodeGradient];

    fn compile(settings: &Settings<'_>) -> Result<Self, ArgumentError> {
        for name in settings.arguments.keys().filter(|name| *name != "hypernode.binpack.resources") {
            settings.whole(name)?;
        }
        Ok(Self)
    }
}
