//! Actions: the steps of a cycle.

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

    pub fn as_str(self) -> &'static str {
        Self::ALL.iter().find(|(_, action)| *action == self).map_or("", |(name, _)| name)
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
