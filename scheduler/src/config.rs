//! The configuration of the scheduler: actions, and plugins in tiers, with the names of `volcano-scheduler.conf`.
//!
//! The file itself is parsed elsewhere, with line numbers. Here every name and argument has a type, and [`Policy`]
//! is what the actions use.

use std::collections::{BTreeMap, BTreeSet};

use crate::devices::{Choice, DevicePolicy};
use crate::extender::ExtenderPolicy;
use crate::node_groups::NodeGroupPolicy;
use crate::numa::NumaAware;
use crate::score::Scoring;
use crate::usage::UsagePolicy;

/// A step of a cycle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Action {
    Enqueue,
    Allocate,
    Preempt,
    Reclaim,
    Backfill,
    Shuffle,
}

impl Action {
    pub const ALL: [(&str, Self); 6] = [
        ("enqueue", Self::Enqueue),
        ("allocate", Self::Allocate),
        ("preempt", Self::Preempt),
        ("reclaim", Self::Reclaim),
        ("backfill", Self::Backfill),
        ("shuffle", Self::Shuffle),
    ];

    pub fn read(text: &str) -> Option<Self> {
        Self::ALL.iter().find(|(name, _)| *name == text).map(|(_, action)| *action)
    }

    /// Arguments under `configurations`.
    pub fn arguments(self) -> &'static [&'static str] {
        match self {
            Self::Preempt | Self::Reclaim => &["allowWholeBundle", "enableTopologyAwarePreemption"],
            Self::Allocate => &["predicateErrorCacheEnable"],
            _ => &[],
        }
    }
}

macro_rules! plugins {
    ($($variant:ident $name:literal $acted:literal [$($argument:literal),*];)*) => {
        /// A set of rules.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum PluginName { $($variant,)* }

        impl PluginName {
            pub const ALL: &[(&str, PluginName)] = &[$(($name, PluginName::$variant),)*];

            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// Arguments by name; a name that ends in `.` is a prefix.
            pub fn arguments(self) -> &'static [&'static str] {
                match self { $(Self::$variant => &[$($argument),*],)* }
            }

            /// False: the plugin is known, but has no effect.
            pub fn is_acted_on(self) -> bool {
                match self { $(Self::$variant => $acted,)* }
            }
        }
    };
}

plugins! {
    Gang "gang" true [];
    Priority "priority" true [];
    Conformance "conformance" true [];
    Drf "drf" true [];
    Proportion "proportion" true [];
    Capacity "capacity" true ["ancestorReclaimLevel"];
    Predicates "predicates" true ["predicate.NodeAffinityEnable", "predicate.NodePortsEnable",
        "predicate.TaintTolerationEnable", "predicate.PodAffinityEnable", "predicate.NodeVolumeLimitsEnable",
        "predicate.VolumeZoneEnable", "predicate.PodTopologySpreadEnable", "predicate.VolumeBindingEnable",
        "predicate.DynamicResourceAllocationEnable", "predicate.CacheEnable", "predicate.GPUSharingEnable"];
    NodeOrder "nodeorder" true ["leastrequested.weight", "mostrequested.weight", "nodeaffinity.weight",
        "podaffinity.weight", "balancedresource.weight", "tainttoleration.weight", "imagelocality.weight",
        "podtopologyspread.weight", "selectorspread.weight"];
    Binpack "binpack" true ["binpack.weight", "binpack.cpu", "binpack.memory", "binpack.resources",
        "binpack.resources."];
    Sla "sla" true ["sla-waiting-time"];
    Overcommit "overcommit" true ["overcommit-factor"];
    Spare "spare" true ["spare.weight"];
    NetworkTopologyAware "network-topology-aware" true ["weight", "hypernode.binpack.cpu", "hypernode.binpack.memory",
        "hypernode.binpack.resources", "hypernode.binpack.resources."];
    Tdm "tdm" true ["tdm.revocable-zone.", "tdm.evict.period"];
    TaskTopology "task-topology" true ["task-topology.weight"];
    NumaAware "numa-aware" true ["weight"];
    DeviceShare "deviceshare" true ["deviceshare.GPUSharingEnable", "deviceshare.GPUNumberEnable", "deviceshare.VGPUEnable",
        "deviceshare.NodeLockEnable", "deviceshare.SchedulePolicy", "deviceshare.ScheduleWeight",
        "deviceshare.AscendMindClusterVNPUEnable", "deviceshare.KnownGeometriesCMName",
        "deviceshare.KnownGeometriesCMNamespace"];
    ResourceQuota "resourcequota" true [];
    Usage "usage" true ["usage.weight", "cpu.weight", "memory.weight", "thresholds.cpu", "thresholds.mem"];
    Extender "extender" true ["extender.urlPrefix", "extender.httpTimeout", "extender.onSessionOpenVerb",
        "extender.onSessionCloseVerb", "extender.predicateVerb", "extender.prioritizeVerb", "extender.preemptableVerb",
        "extender.reclaimableVerb", "extender.queueOverusedVerb", "extender.jobEnqueueableVerb",
        "extender.jobReadyVerb", "extender.ignorable"];
    NodeGroup "nodegroup" true ["strict"];
    ResourceStrategyFit "resource-strategy-fit" true ["resourceStrategyFitWeight", "resources."];
    Pdb "pdb" true [];
    Cdp "cdp" false [];
    Rescheduling "rescheduling" false ["interval", "metricsPeriod", "strategies", "queueSelector", "labelSelector"];
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
}

/// A hook of plugins; the `enable...` fields turn it on and off for each plugin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Hook {
    JobOrder,
    Hierarchy,
    JobReady,
    JobPipelined,
    TaskOrder,
    Preemptable,
    Reclaimable,
    Preemptive,
    QueueOrder,
    ClusterOrder,
    Predicate,
    BestNode,
    NodeOrder,
    TargetJob,
    ReservedNodes,
    JobEnqueued,
    Victim,
    JobStarving,
    Overused,
    Allocatable,
    HyperNodeOrder,
    HyperNodeGradient,
    SubJobReady,
    SubJobPipelined,
    SubJobOrder,
}

impl Hook {
    /// Field of the file to hook.
    pub const ALL: [(&str, Self); 25] = [
        ("enableJobOrder", Self::JobOrder),
        ("enableHierarchy", Self::Hierarchy),
        ("enableJobReady", Self::JobReady),
        ("enableJobPipelined", Self::JobPipelined),
        ("enableTaskOrder", Self::TaskOrder),
        ("enablePreemptable", Self::Preemptable),
        ("enableReclaimable", Self::Reclaimable),
        ("enablePreemptive", Self::Preemptive),
        ("enableQueueOrder", Self::QueueOrder),
        ("enabledClusterOrder", Self::ClusterOrder),
        ("enablePredicate", Self::Predicate),
        ("enableBestNode", Self::BestNode),
        ("enableNodeOrder", Self::NodeOrder),
        ("enableTargetJob", Self::TargetJob),
        ("enableReservedNodes", Self::ReservedNodes),
        ("enableJobEnqueued", Self::JobEnqueued),
        ("enabledVictim", Self::Victim),
        ("enableJobStarving", Self::JobStarving),
        ("enabledOverused", Self::Overused),
        ("enabledAllocatable", Self::Allocatable),
        ("enabledHyperNodeOrder", Self::HyperNodeOrder),
        ("enabledHyperNodeGradient", Self::HyperNodeGradient),
        ("enabledSubJobReady", Self::SubJobReady),
        ("enabledSubJobPipelined", Self::SubJobPipelined),
        ("enabledSubJobOrder", Self::SubJobOrder),
    ];

    pub fn read(text: &str) -> Option<Self> {
        Self::ALL.iter().find(|(name, _)| *name == text).map(|(_, hook)| *hook)
    }
}

/// Hooks that are on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hooks(u32);

impl Default for Hooks {
    /// The default of the file's parser: everything but hierarchy and the order of clusters.
    fn default() -> Self {
        let mut hooks = Self(u32::MAX);
        hooks.set(Hook::Hierarchy, false);
        hooks.set(Hook::ClusterOrder, false);
        hooks
    }
}

impl Hooks {
    pub const NONE: Self = Self(0);

    pub fn set(&mut self, hook: Hook, on: bool) {
        let bit = 1 << hook as u32;
        self.0 = if on { self.0 | bit } else { self.0 & !bit };
    }

    pub fn of(hooks: &[Hook]) -> Self {
        let mut found = Self::NONE;
        hooks.iter().for_each(|hook| found.set(*hook, true));
        found
    }

    pub fn has(self, hook: Hook) -> bool {
        self.0 & (1 << hook as u32) != 0
    }
}

pub type Arguments = BTreeMap<String, String>;

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
        Self {
            actions: vec![Action::Enqueue, Action::Allocate, Action::Backfill],
            tiers: vec![
                vec![Plugin::new(Priority), Plugin::new(Gang), Plugin::new(Conformance)],
                vec![
                    Plugin::new(Drf).without(Hook::Preemptable).without(Hook::JobOrder),
                    Plugin::new(Predicates),
                    Plugin::new(Capacity),
                    Plugin::new(Binpack).argument("binpack.resources", "*"),
                    Plugin::new(Spare),
                    Plugin::new(NetworkTopologyAware),
                ],
            ],
            action_arguments: BTreeMap::new(),
        }
    }
}

/// An invalid argument.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("plugin {plugin}, argument {argument}: found {found}; allowed: {allowed}")]
pub struct ArgumentError {
    pub plugin: &'static str,
    pub argument: String,
    pub found: String,
    pub allowed: &'static str,
}

/// One rule of the order of jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobOrder {
    Priority,
    Repair,
    Gang,
    Drf,
    Sla { wait_s: Option<i64> },
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

/// Whether a filter of Kubernetes is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Filters {
    /// False: only resources are checked.
    pub any: bool,
    pub node_affinity: bool,
    pub ports: bool,
    pub taints: bool,
    pub pods: bool,
    pub spread: bool,
    pub volumes: bool,
}

/// The compiled configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    pub actions: Vec<Action>,
    pub job_order: Vec<JobOrder>,
    /// Queues are ordered by share.
    pub orders_queues: bool,
    pub proportion: bool,
    pub capacity: bool,
    pub hierarchy: bool,
    /// Plugin drf has shares over a tree of queues, and orders queues by it.
    pub fair_tree: Option<TreeOrder>,
    pub ancestor_reclaim_level: usize,
    /// A queue at or above what it deserves is skipped.
    pub overused: bool,
    /// A queue may not exceed what it deserves (proportion) or its capability (capacity).
    pub allocatable: bool,
    pub preemptive: bool,
    /// Admission into queues checks their limits.
    pub queue_admission: bool,
    /// Admission checks the ResourceQuotas of namespaces.
    pub resource_quota: bool,
    /// Thousandths of the cluster that may be requested at once.
    pub overcommit: Option<i64>,
    pub sla: Option<Option<i64>>,
    /// Tiers of plugins that decide about victims.
    pub preemptable: Vec<Vec<PluginName>>,
    pub reclaimable: Vec<Vec<PluginName>>,
    /// Plugins that decide which groups starve: the first tier that has any.
    pub starving: Vec<PluginName>,
    pub pipelined: bool,
    /// A gang is bound only when it has its minimum.
    pub gang: bool,
    pub filters: Filters,
    pub scoring: Scoring,
    pub topology: bool,
    /// Weight of the buckets of plugin task-topology, and whether they order tasks; zero: off.
    pub task_topology: (i64, bool),
    /// Parts of cards are allocated.
    pub devices: Option<DevicePolicy>,
    /// Pods with whole cpus go where the kubelet accepts them.
    pub numa: Option<NumaAware>,
    /// Nodes are judged by their measured load.
    pub usage: Option<UsagePolicy>,
    /// Queues have affinity to groups of nodes.
    pub node_groups: Option<NodeGroupPolicy>,
    /// An external server takes part in decisions.
    pub extender: Option<ExtenderPolicy>,
    /// Zone to minutes of the day (from, to) in which its nodes may be used.
    pub revocable_zones: Option<BTreeMap<String, (i64, i64)>>,
    /// Preempt and reclaim may evict whole gangs.
    pub whole_gangs: bool,
}

impl Policy {
    pub fn has(&self, action: Action) -> bool {
        self.actions.contains(&action)
    }

    /// # Errors
    /// The first argument of the wrong type.
    pub fn compile(config: &Config) -> Result<Self, ArgumentError> {
        let plugins: Vec<&Plugin> = config.tiers.iter().flatten().collect();
        let find = |name: PluginName| plugins.iter().find(|plugin| plugin.name == name).copied();
        let on = |name: PluginName, hook: Hook| find(name).is_some_and(|plugin| plugin.hooks.has(hook));
        let sla = find(PluginName::Sla).map(read_sla).transpose()?;
        let mut job_order = Vec::new();
        let repair = |order: &mut Vec<JobOrder>| {
            if !order.contains(&JobOrder::Repair) {
                order.push(JobOrder::Repair);
            }
        };
        for plugin in plugins.iter().filter(|plugin| plugin.hooks.has(Hook::JobOrder)) {
            match plugin.name {
                PluginName::Priority => job_order.push(JobOrder::Priority),
                PluginName::Gang => {
                    repair(&mut job_order);
                    job_order.push(JobOrder::Gang);
                }
                PluginName::Drf => {
                    repair(&mut job_order);
                    job_order.push(JobOrder::Drf);
                }
                PluginName::Sla => job_order.push(JobOrder::Sla { wait_s: sla.flatten() }),
                _ => {}
            }
        }
        let tiers_of = |hook: Hook, able: &[PluginName]| -> Vec<Vec<PluginName>> {
            let tier = |tier: &Vec<Plugin>| -> Vec<PluginName> {
                let of_hook =
                    tier.iter().filter(|plugin| plugin.hooks.has(hook) && able.contains(&plugin.name));
                of_hook.map(|plugin| plugin.name).collect()
            };
            config.tiers.iter().map(tier).filter(|tier| !tier.is_empty()).collect()
        };
        use PluginName::{Capacity, Conformance, Drf, Gang, Predicates, Priority, Proportion};
        let starving = tiers_of(Hook::JobStarving, &[Gang, Priority]).into_iter().next().unwrap_or_default();
        let queues = [Proportion, Capacity];
        let any_queue = |hook: Hook| queues.iter().any(|name| on(*name, hook));
        let predicates = find(Predicates).filter(|plugin| plugin.hooks.has(Hook::Predicate));
        let filter = |name: &str| -> Result<bool, ArgumentError> {
            predicates.map_or(Ok(false), |plugin| Ok(read_bool(plugin, name)?.unwrap_or(true)))
        };
        let whole = [Action::Preempt, Action::Reclaim].iter().all(|action| {
            let value = config.action_arguments.get(action).and_then(|all| all.get("allowWholeBundle"));
            value.is_none_or(|value| value != "false")
        });
        Ok(Self {
            actions: config.actions.clone(),
            job_order,
            orders_queues: any_queue(Hook::QueueOrder),
            proportion: find(Proportion).is_some(),
            capacity: find(Capacity).is_some(),
            hierarchy: on(Capacity, Hook::Hierarchy) || on(Drf, Hook::Hierarchy),
            fair_tree: on(Drf, Hook::Hierarchy).then(|| tree_order(&plugins)),
            ancestor_reclaim_level: match find(Capacity) {
                Some(plugin) => {
                    let level = read_int(plugin, "ancestorReclaimLevel", "a whole number from 0")?;
                    usize::try_from(level.unwrap_or(0)).unwrap_or(0)
                }
                None => 0,
            },
            overused: on(Proportion, Hook::Overused),
            allocatable: any_queue(Hook::Allocatable),
            preemptive: any_queue(Hook::Preemptive),
            queue_admission: any_queue(Hook::JobEnqueued),
            resource_quota: on(PluginName::ResourceQuota, Hook::JobEnqueued),
            overcommit: match find(PluginName::Overcommit)
                .filter(|plugin| plugin.hooks.has(Hook::JobEnqueued))
            {
                Some(plugin) => Some(read_overcommit(plugin)?),
                None => None,
            },
            sla,
            preemptable: tiers_of(Hook::Preemptable, &[Gang, Priority, Conformance, Drf, PluginName::Pdb]),
            reclaimable: tiers_of(
                Hook::Reclaimable,
                &[Gang, Priority, Conformance, Drf, Proportion, Capacity, PluginName::Pdb],
            ),
            starving,
            pipelined: on(Gang, Hook::JobPipelined) || on(Priority, Hook::JobPipelined),
            gang: on(Gang, Hook::JobReady),
            filters: Filters {
                any: predicates.is_some(),
                node_affinity: filter("predicate.NodeAffinityEnable")?,
                ports: filter("predicate.NodePortsEnable")?,
                taints: filter("predicate.TaintTolerationEnable")?,
                pods: filter("predicate.PodAffinityEnable")?,
                spread: filter("predicate.PodTopologySpreadEnable")?,
                volumes: filter("predicate.VolumeZoneEnable")? || filter("predicate.VolumeBindingEnable")?,
            },
            scoring: Scoring::compile(&plugins)?,
            topology: find(PluginName::NetworkTopologyAware).is_some(),
            task_topology: match find(PluginName::TaskTopology) {
                Some(plugin) => {
                    let weight = read_int(plugin, "task-topology.weight", "a whole number")?.unwrap_or(1);
                    let scores = plugin.hooks.has(Hook::NodeOrder);
                    (if scores { weight } else { 0 }, plugin.hooks.has(Hook::TaskOrder))
                }
                None => (0, false),
            },
            devices: find(PluginName::DeviceShare).map(read_devices).transpose()?,
            extender: find(PluginName::Extender).map(ExtenderPolicy::compile).transpose()?,
            numa: find(PluginName::NumaAware).map(NumaAware::compile).transpose()?,
            usage: find(PluginName::Usage).map(UsagePolicy::compile).transpose()?,
            node_groups: find(PluginName::NodeGroup).map(NodeGroupPolicy::compile).transpose()?,
            revocable_zones: find(PluginName::Tdm).map(read_zones).transpose()?,
            whole_gangs: whole,
        })
    }
}

/// The plugin named first decides.
fn tree_order(plugins: &[&Plugin]) -> TreeOrder {
    use PluginName::{Capacity, Drf, Proportion};
    let mut ordering =
        plugins.iter().filter(|plugin| plugin.hooks.has(Hook::QueueOrder)).map(|plugin| plugin.name);
    match ordering.find(|name| [Drf, Capacity, Proportion].contains(name)) {
        Some(Drf) => TreeOrder::First,
        _ if ordering.any(|name| name == Drf) => TreeOrder::Last,
        _ => TreeOrder::Never,
    }
}

pub(crate) fn error(plugin: &Plugin, argument: &str, found: &str, allowed: &'static str) -> ArgumentError {
    ArgumentError {
        plugin: plugin.name.as_str(),
        argument: argument.to_owned(),
        found: format!("{found:?}"),
        allowed,
    }
}

pub(crate) fn read_bool(plugin: &Plugin, name: &str) -> Result<Option<bool>, ArgumentError> {
    match plugin.arguments.get(name).map(String::as_str) {
        None => Ok(None),
        Some("true") => Ok(Some(true)),
        Some("false") => Ok(Some(false)),
        Some(found) => Err(error(plugin, name, found, "true or false")),
    }
}

/// A whole number; one written with a decimal point is accepted, too.
pub(crate) fn read_int(
    plugin: &Plugin,
    name: &str,
    allowed: &'static str,
) -> Result<Option<i64>, ArgumentError> {
    let Some(text) = plugin.arguments.get(name) else { return Ok(None) };
    let whole = text.strip_suffix(".0").unwrap_or(text);
    whole.parse().map(Some).map_err(|_| error(plugin, name, text, allowed))
}

/// Thousandths of a percent, from 0 to 100 percent.
pub(crate) fn read_percent(plugin: &Plugin, name: &str) -> Result<Option<i64>, ArgumentError> {
    let Some(text) = plugin.arguments.get(name) else { return Ok(None) };
    let percent = thousandths(text).filter(|percent| (0..=100_000).contains(percent));
    let wrong = || error(plugin, name, text, "a number of percent from 0 to 100");
    percent.map(Some).ok_or_else(wrong)
}

/// Thousandths; factors below one are the default.
fn read_overcommit(plugin: &Plugin) -> Result<i64, ArgumentError> {
    const DEFAULT: i64 = 1_200;
    let name = "overcommit-factor";
    let Some(text) = plugin.arguments.get(name) else { return Ok(DEFAULT) };
    let factor =
        thousandths(text).ok_or_else(|| error(plugin, name, text, "a number from 1, such as 1.2"))?;
    Ok(if factor < 1_000 { DEFAULT } else { factor })
}

/// `1.25` as 1250.
fn thousandths(text: &str) -> Option<i64> {
    let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
    let part: String = part.chars().chain("000".chars()).take(3).collect();
    let whole: i64 = whole.parse().ok()?;
    let part: i64 = part.parse().ok()?;
    whole.checked_mul(1_000)?.checked_add(part)
}

/// Seconds to wait, if the plugin sets a time for all jobs.
fn read_sla(plugin: &Plugin) -> Result<Option<i64>, ArgumentError> {
    let name = "sla-waiting-time";
    let Some(text) = plugin.arguments.get(name) else { return Ok(None) };
    match duration_s(text) {
        Some(seconds) => Ok(Some(seconds)),
        None => Err(error(plugin, name, text, "a duration such as 30m or 1h30m")),
    }
}

/// `1h2m3s` in seconds; also days, as Volcano's annotations may say.
pub fn duration_s(text: &str) -> Option<i64> {
    let mut sum = 0_i64;
    let mut rest = text.trim();
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit())?;
        let number: i64 = rest[..digits].parse().ok()?;
        let (unit, length) = match &rest.as_bytes()[digits] {
            b'd' => (86_400, 1),
            b'h' => (3_600, 1),
            b'm' if rest[digits..].starts_with("ms") => (0, 2),
            b'm' => (60, 1),
            b's' => (1, 1),
            _ => return None,
        };
        sum = sum.checked_add(number.checked_mul(unit)?)?;
        rest = &rest[digits + length..];
    }
    Some(sum)
}

fn read_devices(plugin: &Plugin) -> Result<DevicePolicy, ArgumentError> {
    let on = |name: &str| -> Result<bool, ArgumentError> { Ok(read_bool(plugin, name)?.unwrap_or(false)) };
    let policy = "deviceshare.SchedulePolicy";
    let choice = match plugin.arguments.get(policy).map(String::as_str) {
        None | Some("" | "binpack") => Choice::Binpack,
        Some("spread") => Choice::Spread,
        Some(found) => return Err(error(plugin, policy, found, "binpack or spread")),
    };
    let weight = read_int(plugin, "deviceshare.ScheduleWeight", "a whole number")?;
    Ok(DevicePolicy {
        sharing: on("deviceshare.GPUSharingEnable")?,
        number: on("deviceshare.GPUNumberEnable")?,
        virtual_cards: on("deviceshare.VGPUEnable")?,
        choice,
        weight: if plugin.hooks.has(Hook::NodeOrder) { weight.unwrap_or(0) } else { 0 },
    })
}

/// From which to which minute of the day the nodes of each zone may be used.
fn read_zones(plugin: &Plugin) -> Result<BTreeMap<String, (i64, i64)>, ArgumentError> {
    let mut zones = BTreeMap::new();
    for (name, text) in &plugin.arguments {
        let Some(zone) = name.strip_prefix("tdm.revocable-zone.") else { continue };
        let minute = |text: &str| -> Option<i64> {
            let (h, m) = text.trim().split_once(':')?;
            let (h, m): (i64, i64) = (h.parse().ok()?, m.parse().ok()?);
            ((0..=23).contains(&h) && (0..60).contains(&m)).then_some(h * 60 + m)
        };
        let window = text.split_once('-').and_then(|(from, to)| Some((minute(from)?, minute(to)?)));
        let window =
            window.ok_or_else(|| error(plugin, name, text, "two times of the day such as 22:00-06:00"))?;
        zones.insert(zone.to_owned(), window);
    }
    Ok(zones)
}

/// Verbs of an extender that are never called.
const UNASKED: [&str; 2] = ["extender.onSessionOpenVerb", "extender.onSessionCloseVerb"];

/// Known plugins and arguments that are named and have no effect.
pub fn not_acted_on(config: &Config) -> BTreeSet<&'static str> {
    let plugins = || config.tiers.iter().flatten();
    let idle = plugins().map(|plugin| plugin.name).filter(|name| !name.is_acted_on());
    let given = |name: &&str| plugins().any(|plugin| plugin.arguments.contains_key(*name));
    idle.map(PluginName::as_str).chain(UNASKED.into_iter().filter(given)).collect()
}
