//! The table of plugins, and the calls of their hooks.
//!
//! A plugin is one file here, which implements [`Rules`], and one line in the table below. Calls are resolved when
//! the table is compiled: a plugin without a hook costs nothing at it, and no call goes through a pointer.

pub mod rules;

use std::collections::BTreeSet;

use crate::group::Group;
use crate::ids::{GroupId, NodeId, PodId, QueueId};
use crate::misfit::{Fit, Misfit};
use crate::node::NodeState;
use crate::pod::{Class, Reserved, Status};
use crate::settings::{ArgumentError, Arguments, Hook, Hooks, Settings};
use crate::state::State;
use rules::{On, Rules, Spreads, Taking};

/// Calls `$then` with the rules of each plugin whose hook is on.
macro_rules! each {
    ($plugins:ident, $hook:expr, [$($module:ident)*], |$rules:ident| $then:expr) => {
        $(if let Some($rules) = On::at(&$plugins.$module, $hook) { $then; })*
    };
}

macro_rules! table {
    ($($module:ident::$name:ident,)*) => {
        $(pub mod $module;)*

        /// The plugins by name.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum PluginName { $($name,)* }

        impl PluginName {
            pub const ALL: &[(&str, PluginName)] = &[$(($module::$name::NAME, PluginName::$name),)*];

            pub fn as_str(self) -> &'static str {
                match self { $(Self::$name => $module::$name::NAME,)* }
            }

            /// Arguments by name; a name that ends in `.` is a prefix.
            pub fn arguments(self) -> &'static [&'static str] {
                match self { $(Self::$name => $module::$name::ARGUMENTS,)* }
            }

            /// Arguments that are accepted and have no effect.
            pub fn idle(self) -> &'static [&'static str] {
                match self { $(Self::$name => $module::$name::IDLE,)* }
            }

            /// Whether the plugin acts at the hook.
            pub fn has(self, hook: Hook) -> bool {
                match self { $(Self::$name => const { Hooks::of($module::$name::HOOKS) }.has(hook),)* }
            }

            /// Whether it orders jobs with those first that lost places.
            pub(crate) fn repairs_first(self) -> bool {
                match self { $(Self::$name => $module::$name::REPAIRS_FIRST,)* }
            }
        }

        /// The plugins that are on.
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct Plugins { $(pub $module: Option<On<$module::$name>>,)* }

        impl Plugins {
            /// Turns a plugin on. Named again, its first arguments stay.
            pub(crate) fn turn_on(
                &mut self,
                name: PluginName,
                hooks: Hooks,
                arguments: &Arguments,
            ) -> Result<(), ArgumentError> {
                match name {
                    $(PluginName::$name => {
                        let settings = Settings { kind: "plugin", plugin: name.as_str(), hooks, arguments };
                        let rules = $module::$name::compile(&settings)?;
                        self.$module.get_or_insert(On { hooks, rules });
                    })*
                }
                Ok(())
            }

            /// Whether the plugin is on, and acts at the hook.
            pub(crate) fn is_on(&self, name: PluginName, hook: Hook) -> bool {
                match name { $(PluginName::$name => On::at(&self.$module, hook).is_some(),)* }
            }

            pub(crate) fn admits(&self, class: &Class, node: &NodeState) -> Result<(), Misfit> {
                each!(self, Hook::Predicate, [$($module)*], |rules| rules.admits(class, node)?);
                Ok(())
            }

            pub(crate) fn admits_queue(&self, state: &State, queue: QueueId, node: &NodeState) -> Result<(), Misfit> {
                each!(self, Hook::Predicate, [$($module)*], |rules| rules.admits_queue(state, queue, node)?);
                Ok(())
            }

            pub(crate) fn fits(&self, state: &State, class: &Class, node: NodeId, fit: Fit) -> Result<(), Misfit> {
                each!(self, Hook::Predicate, [$($module)*], |rules| rules.fits(state, class, node, fit)?);
                Ok(())
            }

            pub(crate) fn agrees(
                &self,
                state: &State,
                pod: PodId,
                node: NodeId,
                spreads: &Spreads,
                fit: Fit,
            ) -> Result<(), Misfit> {
                each!(self, Hook::Predicate, [$($module)*], |rules| rules.agrees(state, pod, node, spreads, fit)?);
                Ok(())
            }

            pub(crate) fn is_sensitive(&self, class: &Class) -> bool {
                each!(self, Hook::Predicate, [$($module)*], |rules| if rules.is_sensitive(class) { return true });
                false
            }

            pub(crate) fn judges_alone(&self, state: &State, group: GroupId) -> bool {
                each!(self, Hook::Predicate, [$($module)*], |rules| if rules.judges_alone(state, group) { return true });
                false
            }

            pub(crate) fn fixed_score(&self, class: &Class, node: &NodeState) -> i64 {
                let mut score = 0;
                each!(self, Hook::NodeOrder, [$($module)*], |rules| score += rules.fixed_score(class, node));
                score
            }

            pub(crate) fn node_score(&self, state: &State, class: &Class, node: NodeId) -> i64 {
                let mut score = 0;
                each!(self, Hook::NodeOrder, [$($module)*], |rules| score += rules.node_score(state, class, node));
                score
            }

            pub(crate) fn scores_pod(&self, state: &State, pod: PodId) -> bool {
                each!(self, Hook::NodeOrder, [$($module)*], |rules| if rules.scores_pod(state, pod) { return true });
                false
            }

            pub(crate) fn pod_score(&self, state: &State, pod: PodId, node: NodeId) -> i64 {
                let mut score = 0;
                each!(self, Hook::NodeOrder, [$($module)*], |rules| score += rules.pod_score(state, pod, node));
                score
            }

            pub(crate) fn reserve(&self, state: &State, pod: PodId, status: Status, node: Option<NodeId>) -> Reserved {
                let mut reserved = Reserved::default();
                if let Some(node) = node {
                    each!(self, Hook::Predicate, [$($module)*], |rules| {
                        rules.reserve(state, pod, status, node, &mut reserved)
                    });
                }
                reserved
            }

            pub(crate) fn job_order(&self, name: PluginName, state: &State, group: &Group) -> i64 {
                match name {
                    $(PluginName::$name => {
                        On::at(&self.$module, Hook::JobOrder).map_or(0, |rules| rules.job_order(state, group))
                    })*
                }
            }

            pub(crate) fn starves(&self, name: PluginName, group: &Group) -> bool {
                match name {
                    $(PluginName::$name => {
                        On::at(&self.$module, Hook::JobStarving).is_none_or(|rules| rules.starves(group))
                    })*
                }
            }

            pub(crate) fn leavers(&self, state: &State) -> Vec<PodId> {
                let mut found = Vec::new();
                each!(self, Hook::Victim, [$($module)*], |rules| found.extend(rules.leavers(state)));
                found
            }

            /// The caller has looked whether the hook of the action is on.
            pub(crate) fn victims(
                &self,
                name: PluginName,
                state: &State,
                taking: Taking,
                candidates: &[PodId],
            ) -> Option<Vec<PodId>> {
                match name {
                    $(PluginName::$name => self.$module.as_ref()?.rules.victims(state, taking, candidates),)*
                }
            }
        }
    };
}

table! {
    gang::Gang,
    priority::Priority,
    conformance::Conformance,
    drf::Drf,
    proportion::Proportion,
    capacity::Capacity,
    predicates::Predicates,
    nodeorder::NodeOrder,
    binpack::Binpack,
    sla::Sla,
    overcommit::Overcommit,
    spare::Spare,
    network_topology_aware::NetworkTopologyAware,
    tdm::Tdm,
    task_topology::TaskTopology,
    numa_aware::NumaAware,
    deviceshare::DeviceShare,
    resourcequota::ResourceQuota,
    usage::Usage,
    extender::Extender,
    nodegroup::NodeGroup,
    resource_strategy_fit::ResourceStrategyFit,
    pdb::Pdb,
    cdp::Cdp,
    rescheduling::Rescheduling,
}

impl PluginName {
    pub fn read(text: &str) -> Option<Self> {
        Self::ALL.iter().find(|(name, _)| *name == text).map(|(_, plugin)| *plugin)
    }

    /// Whether an argument of that name exists.
    pub fn takes(self, argument: &str) -> bool {
        let matches =
            |known: &&str| *known == argument || (known.ends_with('.') && argument.starts_with(*known));
        self.arguments().iter().any(matches)
    }

    /// Whether it acts at any hook.
    pub fn is_acted_on(self) -> bool {
        !self.idle().contains(&self.as_str())
    }
}

/// Names of plugins and arguments that are given and have no effect.
pub(crate) fn idle<'a>(given: impl Iterator<Item = (PluginName, &'a Arguments)>) -> BTreeSet<&'static str> {
    let of = |(name, arguments): (PluginName, &Arguments)| -> Vec<&'static str> {
        let idle = name.idle().iter().copied();
        idle.filter(|idle| *idle == name.as_str() || arguments.contains_key(*idle)).collect()
    };
    given.flat_map(of).collect()
}
