//! What a plan says: which jobs start and where, which preempt, for which a claim reserves capacity, and why the
//! others wait.

use fleet_resources::Resources;
use serde::{Deserialize, Serialize};

use crate::names::{ClusterName, JobId};
use crate::refusal::QuotaRefusal;
use fleet_quota_tree::NodeId;

/// Limits of one plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlanLimits {
    /// Most jobs admitted.
    pub admissions: usize,
    /// Most questions to clusters about places.
    pub probes: usize,
    /// Most searches for victims; 0 turns preemption off.
    pub searches: usize,
}

impl Default for PlanLimits {
    fn default() -> Self {
        Self { admissions: 10_000, probes: 100_000, searches: 256 }
    }
}

/// The rule by which a victim is preempted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum TakeRule {
    Reclaim,
    FairShare,
    InQueuePriority,
    /// A higher class takes cells of a virtual cluster; no rule of quota.
    VirtualCluster,
}

impl TakeRule {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Reclaim => "Reclaim",
            Self::FairShare => "FairShare",
            Self::InQueuePriority => "InQueuePriority",
            Self::VirtualCluster => "VirtualCluster",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Victim {
    pub job: JobId,
    pub rule: TakeRule,
    /// Work since its last checkpoint, in milliseconds.
    pub lost_work_ms: i64,
}

/// A preemption. Until its victims have ended, the preemptor waits with [`WaitReason::WaitingForVictims`], and
/// their capacity is reserved for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Take {
    /// The cluster in which the preemptor will start.
    pub cluster: ClusterName,
    /// Jobs to evict now, in the order in which they were chosen; never empty.
    pub victims: Vec<Victim>,
    /// Jobs that are ending already, whose capacity the preemptor also needs.
    pub awaited: Vec<JobId>,
}

/// Capacity reserved for a job that others have passed for too long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    pub cluster: ClusterName,
    /// The leaf's path; quota is reserved on each node of it.
    pub path: String,
    pub since_ms: i64,
    /// Since when others have passed the job.
    pub passed_since_ms: i64,
    /// The expected start of the job, from the expected ends of others; `None` if some of these are not known.
    pub start_ms: Option<i64>,
    /// The claim is given up then at the latest.
    pub until_ms: i64,
    /// What the claim has kept idle so far: amounts times seconds.
    pub idled: Resources,
}

/// Why a job waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WaitReason {
    /// The quota tree has no capacity.
    Quota(QuotaRefusal),
    /// Quota is free, but no cluster can hold the gang now.
    NoPlace,
    /// An earlier job of the leaf goes first and cannot start.
    BehindHead(JobId),
    /// Capacity is free, but reserved for `holder`.
    Claimed { holder: JobId },
    /// The job could preempt `victim`, which is protected until then because it was preempted before or started a
    /// moment ago.
    Protected { victim: JobId, until_ms: i64 },
    /// The victims of its preemption in `cluster` are ending.
    WaitingForVictims { cluster: ClusterName, victims: Vec<JobId> },
    /// The job backs off. As a decision: it gives up its preemption, because what its victims left is not enough.
    Backoff { until_ms: i64 },
}

/// Why a job that waits elsewhere may not be admitted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotAdmitted {
    /// The quota tree has no capacity.
    Quota(QuotaRefusal),
    /// Capacity is free, but reserved for this job.
    Reserved(JobId),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The job has quota, and places in [`Places`](crate::Places).
    Admit {
        cluster: ClusterName,
    },
    Take(Take),
    /// A claim was made.
    Claim(Claim),
    /// A claim was given up: its time is over, or no start is in sight.
    GiveUp(Claim),
    Wait(WaitReason),
}

/// The decision on one job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    pub job: JobId,
    pub leaf: NodeId,
    pub outcome: Outcome,
}

/// The result of one planning cycle.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QuotaPlan {
    /// In the order in which they were made. A reason to wait is reported only when its kind has changed, and only
    /// for the first of equal jobs of a leaf. [`equals`](crate::Planner::equals) has the other jobs,
    /// [`reason`](crate::Planner::reason) the present reason of any job.
    pub decisions: Vec<Decision>,
    /// A limit was reached: plan again soon.
    pub more: bool,
    /// Plan again at this time, even if nothing happens.
    pub wake_at_ms: Option<i64>,
}

impl QuotaPlan {
    /// Jobs that start, and where.
    pub fn admitted(&self) -> impl Iterator<Item = (&JobId, &ClusterName)> {
        self.decisions.iter().filter_map(|decision| match &decision.outcome {
            Outcome::Admit { cluster } => Some((&decision.job, cluster)),
            _ => None,
        })
    }

    /// Jobs that preempt, and their victims.
    pub fn takes(&self) -> impl Iterator<Item = (&JobId, &Take)> {
        self.decisions.iter().filter_map(|decision| match &decision.outcome {
            Outcome::Take(take) => Some((&decision.job, take)),
            _ => None,
        })
    }
}
