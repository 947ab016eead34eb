//! The configuration of the scheduler: actions, and plugins in tiers, with the names of `volcano-scheduler.conf`.
//!
//! The file itself is parsed elsewhere, with line numbers. [`Policy`] is what the actions use.

use std::collections::{BTreeMap, BTreeSet};

use crate::plugins::Plugins;
use crate::settings::Settings;

pub use crate::plugins::PluginName;
pub use crate::settings::{Action, ArgumentError, Arguments, Hook, Hooks, duration_s};

/// A plugin as the file names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plugin {
    pub name: PluginName,
    pub hooks: Hooks,
    pub arguments: Arguments,
}

impl Plugin {
    pub fn new(name: PluginName) -> Self {
        Self { name, hooks: Hooks::default(), arguments: Arguments::new() }
    }

    pub fn with(name: PluginName, hooks: &[Hook]) -> Self {
        Self { name, hooks: Hooks::of(hooks), arguments: Arguments::new() }
    }

    pub fn argument(mut self, name: &str, value: &str) -> Self {
        self.arguments.insert(name.to_owned(), value.to_owned());
        self
    }

    pub fn without(mut self, hook: Hook) -> Self {
        self.hooks.set(hook, false);
        self
    }
}

/// Actions in their order, and plugins in tiers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    pub actions: Vec<Action>,
    pub tiers: Vec<Vec<Plugin>>,
    pub action_arguments: BTreeMap<Action, Arguments>,
}

impl Default for Config {
    /// Without a file: Volcano's built-in actions. Gangs are packed, not spread, and nodes with devices are left to
    /// pods that request devices.
    fn default() -> Self {
        use PluginName::*;
        let preferences = ["leastrequested.weight", "balancedresource.weight"];
        let preferences =
            preferences.iter().fold(Plugin::new(NodeOrder), |plugin, name| plugin.argument(name, "0"));
        Self {
            actions: vec![Action::Enqueue, Action::Allocate, Action::Backfill],
            tiers: vec![
                vec![Plugin::new(Priority), Plugin::new(Gang), Plugin::new(Conformance)],
                vec![
                    Plugin::new(Drf).without(Hook::Preemptable).without(Hook::JobOrder),
                    Plugin::new(Predicates),
                    Plugin::new(Capacity),
                    preferences,
                    Plugin::new(Binpack).argument("binpack.resources", "*"),
                    Plugin::new(Spare),
                    Plugin::new(NetworkTopologyAware),
                ],
            ],
            action_arguments: BTreeMap::new(),
        }
    }
}

/// One rule of the order of jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobOrder {
    /// A gang that had its places and lost some comes before all gangs that wait for their first.
    Repair,
    Plugin(PluginName),
}

/// Where the order of drf's tree comes among the orders of queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TreeOrder {
    /// Before priority and share.
    First,
    Last,
    /// Only reclaim uses the tree.
    Never,
}

/// What plugins proportion, capacity and drf make of queues together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueRules {
    pub proportion: bool,
    pub capacity: bool,
    pub hierarchy: bool,
    /// Queues are ordered by share.
    pub order: bool,
    /// Plugin drf has shares over a tree of queues, and orders queues by it.
    pub tree: Option<TreeOrder>,
    pub ancestor_reclaim_level: usize,
    /// A queue at or above what it deserves is skipped.
    pub overused: bool,
    /// A queue may not exceed what it deserves (proportion) or its capability (capacity).
    pub allocatable: bool,
    /// Admission into queues checks their limits.
    pub admission: bool,
}

impl QueueRules {
    fn new(plugins: &Plugins, config: &Config) -> Self {
        use PluginName::{Capacity, Drf, Proportion};
        let any = |hook: Hook| [Proportion, Capacity].iter().any(|name| plugins.is_on(*name, hook));
        let by_tree = plugins.is_on(Drf, Hook::Hierarchy);
        let capacity = plugins.capacity.as_ref();
        Self {
            proportion: plugins.proportion.is_some(),
            capacity: capacity.is_some(),
            hierarchy: by_tree || plugins.is_on(Capacity, Hook::Hierarchy),
            order: any(Hook::QueueOrder),
            tree: by_tree.then(|| tree_order(config)),
            ancestor_reclaim_level: capacity.map_or(0, |on| on.rules.ancestor_reclaim_level),
            overused: plugins.is_on(Proportion, Hook::Overused),
            allocatable: any(Hook::Allocatable),
            admission: any(Hook::JobEnqueued),
        }
    }
}

/// The plugin named first decides.
fn tree_order(config: &Config) -> TreeOrder {
    use PluginName::{Capacity, Drf, Proportion};
    let plugins = config.tiers.iter().flatten();
    let mut ordering = plugins.filter(|plugin| plugin.hooks.has(Hook::QueueOrder)).map(|plugin| plugin.name);
    match ordering.find(|name| [Drf, Capacity, Proportion].contains(name)) {
        Some(Drf) => TreeOrder::First,
        _ if ordering.any(|name| name == Drf) => TreeOrder::Last,
        _ => TreeOrder::Never,
    }
}

/// The compiled configuration: which plugins are on, and where they stand.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    pub actions: Vec<Action>,
    pub plugins: Plugins,
    pub job_order: Vec<JobOrder>,
    pub queues: QueueRules,
    /// Tiers of plugins that decide about victims.
    pub preemptable: Vec<Vec<PluginName>>,
    pub reclaimable: Vec<Vec<PluginName>>,
    /// Plugins that decide which groups starve: the first tier that has any.
    pub starving: Vec<PluginName>,
    /// A gang is bound only when it has its minimum.
    pub gang: bool,
    /// Preempt and reclaim may evict whole gangs.
    pub whole_gangs: bool,
}

impl Policy {
    pub fn has(&self, action: Action) -> bool {
        self.actions.contains(&action)
    }

    pub fn extender(&self) -> Option<&crate::plugins::extender::Extender> {
        self.plugins.extender.as_ref().map(|on| &on.rules)
    }

    /// Gangs that only prefer a topology domain get one.
    pub(crate) fn prefers_domains(&self) -> bool {
        self.plugins.network_topology_aware.is_some()
    }

    /// Weight of the buckets of plugin task-topology, and whether they order tasks; zero: off.
    pub(crate) fn buckets(&self) -> (i64, bool) {
        self.plugins.task_topology.as_ref().map_or((0, false), |on| (on.rules.weight, on.rules.orders))
    }

    /// # Errors
    /// The first argument of the wrong type.
    pub fn compile(config: &Config) -> Result<Self, ArgumentError> {
        let mut plugins = Plugins::default();
        for plugin in config.tiers.iter().flatten() {
            plugins.turn_on(plugin.name, plugin.hooks, &plugin.arguments)?;
        }
        let whole_gangs = whole_gangs(config)?;
        Ok(Self {
            actions: config.actions.clone(),
            job_order: job_order(config),
            queues: QueueRules::new(&plugins, config),
            preemptable: tiers(config, Hook::Preemptable),
            reclaimable: tiers(config, Hook::Reclaimable),
            starving: tiers(config, Hook::JobStarving).into_iter().next().unwrap_or_default(),
            gang: plugins.is_on(PluginName::Gang, Hook::JobReady),
            whole_gangs,
            plugins,
        })
    }
}

/// Whether preempt and reclaim may evict whole gangs. All arguments of actions are flags.
fn whole_gangs(config: &Config) -> Result<bool, ArgumentError> {
    let mut allowed = true;
    for (action, arguments) in &config.action_arguments {
        let plugin = action.as_str();
        let settings = Settings { kind: "action", plugin, hooks: Hooks::NONE, arguments };
        for name in arguments.keys() {
            let on = settings.flag(name, true)?;
            allowed &= on || name != "allowWholeBundle";
        }
    }
    Ok(allowed)
}

fn job_order(config: &Config) -> Vec<JobOrder> {
    let mut found = Vec::new();
    for name in tiers(config, Hook::JobOrder).into_iter().flatten() {
        if name.repairs_first() && !found.contains(&JobOrder::Repair) {
            found.push(JobOrder::Repair);
        }
        found.push(JobOrder::Plugin(name));
    }
    found
}

/// The plugins with a hook, by tier; tiers without any are left out.
fn tiers(config: &Config, hook: Hook) -> Vec<Vec<PluginName>> {
    let tier = |tier: &Vec<Plugin>| -> Vec<PluginName> {
        let of_hook = tier.iter().filter(|plugin| plugin.hooks.has(hook) && plugin.name.has(hook));
        of_hook.map(|plugin| plugin.name).collect()
    };
    config.tiers.iter().map(tier).filter(|tier| !tier.is_empty()).collect()
}

/// Known plugins and arguments that are named and have no effect.
pub fn not_acted_on(config: &Config) -> BTreeSet<&'static str> {
    let given = config.tiers.iter().flatten().map(|plugin| (plugin.name, &plugin.arguments));
    crate::plugins::idle(given)
}
