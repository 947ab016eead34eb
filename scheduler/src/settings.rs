//! Names of `volcano-scheduler.conf`: actions, hooks, and arguments as plugins read them.

use std::collections::BTreeMap;

pub use crate::action::Action;

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

    pub const fn of(hooks: &[Hook]) -> Self {
        let (mut bits, mut at) = (0, 0);
        while at < hooks.len() {
            bits |= 1 << hooks[at] as u32;
            at += 1;
        }
        Self(bits)
    }

    pub const fn has(self, hook: Hook) -> bool {
        self.0 & (1 << hook as u32) != 0
    }
}

pub type Arguments = BTreeMap<String, String>;

/// An invalid argument.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{kind} {plugin}, argument {argument}: found {found}; allowed: {allowed}")]
pub struct ArgumentError {
    /// `plugin` or `action`.
    pub kind: &'static str,
    /// Its name.
    pub plugin: &'static str,
    pub argument: String,
    pub found: String,
    pub allowed: &'static str,
}

/// What the file says of one plugin, or of one action.
#[derive(Clone, Copy, Debug)]
pub struct Settings<'f> {
    pub kind: &'static str,
    pub plugin: &'static str,
    pub hooks: Hooks,
    pub arguments: &'f Arguments,
}

const WHOLE_NUMBER: &str = "a whole number";
const FROM_ZERO: &str = "a whole number from 0";

impl<'f> Settings<'f> {
    pub fn error(&self, argument: &str, found: &str, allowed: &'static str) -> ArgumentError {
        ArgumentError {
            kind: self.kind,
            plugin: self.plugin,
            argument: argument.to_owned(),
            found: format!("{found:?}"),
            allowed,
        }
    }

    pub fn text(&self, name: &str) -> Option<&'f str> {
        self.arguments.get(name).map(String::as_str)
    }

    pub fn flag(&self, name: &str, default: bool) -> Result<bool, ArgumentError> {
        match self.text(name) {
            None => Ok(default),
            Some("true") => Ok(true),
            Some("false") => Ok(false),
            Some(found) => Err(self.error(name, found, "true or false")),
        }
    }

    /// A whole number; one written with a decimal point is accepted, too.
    pub fn whole(&self, name: &str) -> Result<Option<i64>, ArgumentError> {
        let Some(text) = self.text(name) else { return Ok(None) };
        let whole = text.strip_suffix(".0").unwrap_or(text);
        whole.parse().map(Some).map_err(|_| self.error(name, text, WHOLE_NUMBER))
    }

    pub fn weight(&self, name: &str, default: i64) -> Result<i64, ArgumentError> {
        Ok(self.whole(name)?.unwrap_or(default))
    }

    pub fn from_zero(&self, name: &str, default: i64) -> Result<i64, ArgumentError> {
        let Some(text) = self.text(name) else { return Ok(default) };
        let found = text.strip_suffix(".0").unwrap_or(text).parse().ok().filter(|found| *found >= 0);
        found.ok_or_else(|| self.error(name, text, FROM_ZERO))
    }

    /// Thousandths of a percent, from 0 to 100 percent.
    pub fn percent(&self, name: &str) -> Result<Option<i64>, ArgumentError> {
        let Some(text) = self.text(name) else { return Ok(None) };
        let percent = thousandths(text).filter(|percent| (0..=100_000).contains(percent));
        let wrong = || self.error(name, text, "a number of percent from 0 to 100");
        percent.map(Some).ok_or_else(wrong)
    }
}

/// `1.25` as 1250; only digits and a point.
pub fn thousandths(text: &str) -> Option<i64> {
    let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
    if !whole.chars().chain(part.chars()).all(|c| c.is_ascii_digit()) {
        return None;
    }
    let part: String = part.chars().chain("000".chars()).take(3).collect();
    let whole: i64 = whole.parse().ok()?;
    let part: i64 = part.parse().ok()?;
    whole.checked_mul(1_000)?.checked_add(part)
}

/// `1h2m3s` in seconds; also days, as Volcano's annotations may say.
pub fn duration_s(text: &str) -> Option<i64> {
    fleet_resources::duration_us(text).map(|us| us / 1_000_000)
}
