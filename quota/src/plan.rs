//! What a plan says: who starts where, who makes room for whom, for whom room
//! is kept, and why the others wait.

use fleet_resources::Resources;
use serde::{Deserialize, Serialize};

use crate::ledger::JobId;
use crate::places::ClusterName;
use crate::tree::NodeId;
use crate::verdict::Verdict;

/// Bounds of one plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlanLimits {
    /// Jobs admitted at most.
    pub admissions: usize,
    /// Times that a cluster is asked for places, at most.
    pub probes: usize,
    /// Searches for victims at most; 0: nobody is taken.
    pub searches: usize,
}

impl Default for PlanLimits {
    fn default() -> Self {
        Self { admissions: 10_000, probes: 100_000, searches: 256 }
    }
}

/// By which right a victim is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum TakeRule {
    Reclaim,
    FairShare,
    InQueuePriority,
}

impl TakeRule {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Reclaim => "Reclaim",
            Self::FairShare => "FairShare",
            Self::InQueuePriority => "InQueuePriority",
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

/// Jobs make room for a waiting one. Until they have ended the taker waits with
/// [`WaitReason::WaitingForVictims`] and their room is kept for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Take {
    /// Where the taker is going to start.
    pub cluster: ClusterName,
    /// To be evicted now, in the order in which they were chosen; never empty.
    pub victims: Vec<Victim>,
    /// Jobs on their way out already that the taker counts on as well.
    pub awaited: Vec<JobId>,
}

/// Room kept for a job that others have passed for too long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    pub cluster: ClusterName,
    /// The leaf's path; room is kept on each node of it.
    pub path: String,
    pub since_ms: i64,
    /// Since when others have passed the job.
    pub passed_since_ms: i64,
    /// When the job is expected to start by what is known of the ends of others;
    /// `None` where nothing is known of some.
    pub start_ms: Option<i64>,
    /// It is given up then at the latest.
    pub until_ms: i64,
    /// What it kept idle so far: amounts times seconds.
    pub idled: Resources,
}

/// Why a job waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WaitReason {
    /// The tree has no room.
    Quota(Verdict),
    /// The tree has room, no cluster holds the gang now.
    NoPlace,
    /// An earlier job of the leaf goes first and cannot start.
    BehindHead(JobId),
    /// There is room, but it is kept for `holder`.
    Claimed { holder: JobId },
    /// It could take `victim`, which was preempted before and is protected until it has run for long enough.
    Protected { victim: JobId, until_ms: i64 },
    /// Jobs that make room for it in `cluster` are ending.
    WaitingForVictims { cluster: ClusterName, victims: Vec<JobId> },
    /// It was refused lately.
    Backoff { until_ms: i64 },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It holds quota and, in the oracle, places.
    Admit {
        cluster: ClusterName,
    },
    Take(Take),
    /// A claim was given.
    Claim(Claim),
    /// A claim was given up: its time is over, or no start is in sight any more.
    GiveUp(Claim),
    Wait(WaitReason),
}

/// What was decided on one job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    pub job: JobId,
    pub leaf: NodeId,
    pub outcome: Outcome,
}

/// What to do now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// In the order in which they were taken. A reason to wait is named once,
    /// when it has changed in kind, for the first of equal jobs of a leaf:
    /// [`equals`](crate::Planner::equals) gives the others and
    /// [`reason`](crate::Planner::reason) tells any job's on demand.
    pub decisions: Vec<Decision>,
    /// A bound was hit: plan again soon.
    pub more: bool,
    /// Plan again then, even if nothing happens.
    pub wake_at_ms: Option<i64>,
}

impl Plan {
    /// Who starts and where.
    pub fn admitted(&self) -> impl Iterator<Item = (&JobId, &ClusterName)> {
        self.decisions.iter().filter_map(|decision| match &decision.outcome {
            Outcome::Admit { cluster } => Some((&decision.job, cluster)),
            _ => None,
        })
    }

    /// Who takes and from whom.
    pub fn takes(&self) -> impl Iterator<Item = (&JobId, &Take)> {
        self.decisions.iter().filter_map(|decision| match &decision.outcome {
            Outcome::Take(take) => Some((&decision.job, take)),
            _ => None,
        })
    }
}
