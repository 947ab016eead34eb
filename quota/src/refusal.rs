//! Why a job cannot be admitted now: data, and one sentence made from it.

use std::fmt;

use fleet_resources::{ResourceName, quantity};
use serde::{Deserialize, Serialize};

use fleet_quota_tree::MAX_JOBS;

/// The kind of limit that a job exceeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Rule {
    Max,
    /// All jobs together that may not be preempted must fit inside min.
    Min,
}

/// The limit that a job exceeds on one node, in base units.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Shortfall {
    pub rule: Rule,
    pub resource: ResourceName,
    /// Path of the node whose limit it is.
    pub path: String,
    /// The node is an ancestor of the job's leaf.
    pub in_parent: bool,
    pub request: i64,
    pub limit: i64,
    pub used: i64,
    /// What jobs that never waited in a queue use beside that; 0 as the ledger knows it, which counts all in `used`.
    #[serde(default)]
    pub unqueued: i64,
}

/// Why a job is not admitted. The variants' names are reasons of the one vocabulary.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum QuotaRefusal {
    /// The job would not be admitted even if the quota were empty.
    ExceedsQuota(Shortfall),
    InsufficientQuota(Shortfall),
    InsufficientQuotaInParent(Shortfall),
    MaxJobs(Shortfall),
    /// A job that may not be preempted would exceed min.
    InsufficientMin(Shortfall),
}

impl QuotaRefusal {
    pub(crate) fn of(shortfall: Shortfall) -> Self {
        if shortfall.request > shortfall.limit {
            Self::ExceedsQuota(shortfall)
        } else if shortfall.rule == Rule::Min {
            Self::InsufficientMin(shortfall)
        } else if shortfall.resource.as_str() == MAX_JOBS {
            Self::MaxJobs(shortfall)
        } else if shortfall.in_parent {
            Self::InsufficientQuotaInParent(shortfall)
        } else {
            Self::InsufficientQuota(shortfall)
        }
    }

    pub fn shortfall(&self) -> &Shortfall {
        match self {
            Self::ExceedsQuota(shortfall)
            | Self::InsufficientQuota(shortfall)
            | Self::InsufficientQuotaInParent(shortfall)
            | Self::MaxJobs(shortfall)
            | Self::InsufficientMin(shortfall) => shortfall,
        }
    }

    /// As it stands, with the part of `used` that jobs without a queue use told apart.
    #[must_use]
    pub fn beside(mut self, unqueued: i64) -> Self {
        let (Self::ExceedsQuota(shortfall)
        | Self::InsufficientQuota(shortfall)
        | Self::InsufficientQuotaInParent(shortfall)
        | Self::MaxJobs(shortfall)
        | Self::InsufficientMin(shortfall)) = &mut self;
        shortfall.used -= unqueued;
        shortfall.unqueued += unqueued;
        self
    }

    /// The reason's text in the one vocabulary.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::ExceedsQuota(_) => "ExceedsQuota",
            Self::InsufficientQuota(_) => "InsufficientQuota",
            Self::InsufficientQuotaInParent(_) => "InsufficientQuotaInParent",
            Self::MaxJobs(_) => "MaxJobs",
            Self::InsufficientMin(_) => "InsufficientMin",
        }
    }

    /// One sentence with resource, path, request, max and used.
    pub fn sentence(&self) -> String {
        self.to_string()
    }
}

impl fmt::Display for QuotaRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shortfall = self.shortfall();
        let name = shortfall.resource.as_str();
        let amount = |amount| quantity::format(name, amount);
        let shown = if name == MAX_JOBS { "jobs" } else { name };
        let place = if shortfall.in_parent { "parent quota" } else { "quota" };
        let bound = match shortfall.rule {
            Rule::Max => "max",
            Rule::Min => "min (the job may not be preempted)",
        };
        write!(
            f,
            "Insufficient quota({shown}) in {place} {}: request {}, {bound} {}, used {}",
            shortfall.path,
            amount(shortfall.request),
            amount(shortfall.limit),
            amount(shortfall.used)
        )?;
        if shortfall.unqueued > 0 {
            write!(f, ", unqueued {}", amount(shortfall.unqueued))?;
        }
        match self {
            Self::ExceedsQuota(_) => f.write_str("; the job can never be admitted here"),
            _ => f.write_str("; wait for running jobs to complete"),
        }
    }
}
