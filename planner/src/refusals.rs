//! Members' refusals, and the back-off after all candidates have refused.

use std::{
    collections::{BTreeMap, BTreeSet},
    hash::{DefaultHasher, Hash, Hasher},
};

use fleet_cells::NodeName;
use fleet_quota::JobId;

use crate::settings::Settings;

/// The refusals of one job.
#[derive(Clone, Debug, Default)]
pub(crate) struct Refusals {
    /// Clusters that refused it since its last back-off; they are not tried until then.
    pub tried: BTreeSet<String>,
    pub rounds: u32,
    pub until_ms: Option<i64>,
    pub message: String,
    pub excluded: Excluded,
}

/// By component, cell nodes of which a member has said that they do not take its pods. They concern this job alone, and
/// only for a while: labels, taints and free amounts change.
#[derive(Clone, Debug, Default)]
pub(crate) struct Excluded {
    nodes: BTreeMap<String, BTreeSet<NodeName>>,
    until_ms: i64,
}

/// How long excluded nodes are left out. Then the job asks for them once more.
const EXCLUDED_MS: i64 = 60_000;

impl Excluded {
    pub fn add(&mut self, component: &str, nodes: impl Iterator<Item = NodeName>, now_ms: i64) {
        self.nodes.entry(component.to_string()).or_default().extend(nodes);
        self.until_ms = now_ms + EXCLUDED_MS;
    }

    /// Drops them when their time is over; returns when that is.
    pub fn end(&mut self, now_ms: i64) -> Option<i64> {
        if self.until_ms <= now_ms {
            self.nodes.clear();
        }
        (!self.nodes.is_empty()).then_some(self.until_ms)
    }

    /// Nodes that do not take all of these components.
    pub fn of<'c>(&self, components: impl Iterator<Item = &'c str>) -> BTreeSet<NodeName> {
        if self.nodes.is_empty() {
            return BTreeSet::new();
        }
        let components: BTreeSet<&str> = components.collect();
        components.into_iter().filter_map(|name| self.nodes.get(name)).flatten().cloned().collect()
    }
}

/// Distinguishes sets of nodes among remembered answers; 0: no nodes.
pub(crate) fn mark(nodes: &BTreeSet<NodeName>) -> u64 {
    if nodes.is_empty() {
        return 0;
    }
    let mut hasher = DefaultHasher::new();
    nodes.hash(&mut hasher);
    hasher.finish() | 1
}

impl Refusals {
    pub fn is_held_back(&self, now_ms: i64) -> bool {
        self.until_ms.is_some_and(|until| now_ms < until)
    }

    /// Every candidate with capacity refused: back off, then try all of them again.
    pub fn hold_back(&mut self, id: &JobId, settings: &Settings, now_ms: i64) {
        let factor = 1_i64 << self.rounds.min(16);
        let pause = settings.backoff_base_ms.saturating_mul(factor).min(settings.backoff_max_ms);
        self.until_ms = Some(now_ms + jittered(pause, id, self.rounds));
        self.rounds += 1;
        self.tried.clear();
    }
}

/// Between three and five quarters of the back-off, by the job's name and the round, so that jobs that were
/// refused together are not retried together.
fn jittered(pause_ms: i64, id: &JobId, round: u32) -> i64 {
    const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0100_0000_01b3;
    let bytes = id.as_str().bytes().chain(round.to_le_bytes());
    let hash = bytes.fold(OFFSET, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(PRIME));
    // The low half of FNV-1a is well mixed; 513 steps over half the pause.
    let step = i64::try_from(hash % 513).unwrap_or(0);
    (pause_ms.saturating_mul(768 + step) / 1024).max(1)
}
