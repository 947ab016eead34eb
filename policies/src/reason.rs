//! The only vocabulary of reasons.
//!
//! A reason's text is the condition reason, the event reason, the metric label and the text of the command line.
//! Amounts and names are in the message beside it, never in the reason.

use std::fmt;

use serde::{Deserialize, Serialize};

macro_rules! reasons {
    ($($name:ident: $doc:literal,)+) => {
        /// Why a job waits, was refused, or was moved.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum Reason {
            $(#[doc = $doc] $name,)+
        }

        impl Reason {
            /// Every reason, in the order of the enum.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];

            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($name),)+
                }
            }

            /// One sentence for the generated reference.
            pub const fn describe(self) -> &'static str {
                match self {
                    $(Self::$name => $doc,)+
                }
            }

            pub fn from_text(text: &str) -> Option<Self> {
                match text {
                    $(stringify!($name) => Some(Self::$name),)+
                    _ => None,
                }
            }
        }
    };
}

reasons! {
    Enqueued: "The job has joined its queue and waits for its turn.",
    Queuing: "The job waits in its queue; it was not considered yet.",
    Dequeued: "The job has left its queue with its quota reserved.",
    ExceedsQuota: "The job requests more than its quota's max, even if the quota is empty.",
    InsufficientQuota: "The job's own quota has too little left; it waits for running jobs to end.",
    InsufficientQuotaInParent: "A quota above the job's own has too little left; it waits for running jobs to end.",
    MaxJobs: "The job's quota already runs as many jobs as it may.",
    InsufficientMin: "A job that must not be preempted does not fit inside the min of its quota.",
    NotInQuotaTree: "Neither label nor namespace of the job names a leaf of the quota tree.",
    NotAdmittedToQueue: "The leaf of the quota tree that the job's label names admits no jobs of its namespace, or its own leaf admits only what queues.",
    NotAdmittedToVirtualCluster: "The job's virtual cluster admits no jobs of its namespace, or none of its class.",
    ExceedsEveryCluster: "No cluster could hold the job, even if it were empty.",
    NoClusterFits: "No cluster that the policy allows can hold the whole job now.",
    ReservationRefused: "The chosen cluster could not reserve nodes for the whole job, or does not hold the cells of a run any more.",
    InsufficientCells: "The job's virtual cluster, or for opportunistic jobs the whole fleet, has too few free cells.",
    CellsFragmented: "Enough cells are free in total, but they are not close together as the job's pods need them.",
    WithinOneCell: "No cell of the type that must hold the whole job has enough free capacity.",
    BadCells: "The job would fit, but some of the nodes are bad now.",
    InvalidCells: "The job requests something that its virtual cluster does not have, or more than it has in total; or no CellConfiguration is valid.",
    NoPolicy: "No propagation policy selects the object.",
    PolicyInvalid: "The object's policy breaks a rule and has no effect.",
    SelectsNothing: "No object is selected by the policy.",
    KindNotServed: "The hub does not serve a kind that the policy selects.",
    UnknownCluster: "The policy names a cluster that has not joined the fleet.",
    InvalidWorkload: "The job's own fields are invalid, or describe a job that can never run.",
    WorkloadTooLarge: "The job and what it depends on are larger than one Work may be; nothing is sent.",
    OverrideInvalid: "An override policy cannot be applied to the object for the cluster.",
    PodSecurityViolation: "The pod template needs more than the pod security level of its namespace allows.",
    Edited: "The job was changed after it was bound, before its start or with `runningEdits: Requeue`; it goes through its queue again.",
    EditPending: "The running job was changed; the change takes effect with its next run.",
    NameTaken: "The cluster already has an object of that name that Fleet does not manage.",
    NotPermitted: "The member's administrator does not let Fleet apply the object there.",
    WaitingForDependencies: "An object the job depends on does not exist yet.",
    ClusterNotReady: "The cluster's agent does not answer.",
    ClusterNotAdmitted: "The policy's affinity or a taint keeps the job off the cluster.",
    Suspended: "The policy suspends the job; or its last run ended with RunTimeOver, and it is still suspended.",
    BehindHead: "The job at the head of the queue blocks it until it can start.",
    Claimed: "Capacity is reserved for a wide job that others have passed.",
    ClaimGivenUp: "The job's reservation of capacity was given up: its start could not be predicted.",
    VictimProtected: "A possible victim is protected and cannot be preempted yet.",
    WaitingForVictims: "The victims of the job's preemption are terminating.",
    Preempted: "The job was preempted and waits again.",
    Backoff: "The job was refused recently and backs off.",
    WaitingForFence: "The lost cluster may still run the job; the job moves once fencing is certain.",
    Stopped: "The job's owner stopped it.",
    ApplicationFailure: "The job failed, or stayed unhealthy beyond its toleration.",
    ClusterLost: "The job's cluster was lost.",
    TaintUntolerated: "The job does not tolerate a taint of its cluster.",
    GangNotStarted: "The gang did not start in time and released its nodes.",
    Drained: "The job's cluster is being drained.",
    ClusterGone: "The job's cluster was declared gone by an administrator.",
    RunRefused: "The member refused an epoch that it had closed; the job is placed again.",
    RunTimeOver: "The job was suspended while it ran, and the time for which the run was admitted has passed.",
    StatusRefused: "A member's report does not belong to the job's current run and was ignored.",
    WriteForbidden: "The hub forbids the controller a write for the job; it is retried with back-off.",
    BackoffLimitExceeded: "The job failed in as many runs as backoffLimit allows.",
    ScheduleBindingSucceed: "The job was bound to a cluster.",
    ScheduleBindingFailed: "The job could not be bound to a cluster.",
    ApplyPolicySucceed: "The policy now governs the object.",
    SyncWorkSucceed: "The cluster has applied the object.",
    SyncWorkFailed: "The cluster refused the object.",
    QuotaTreeWarning: "The quota tree breaks a documented rule, but is in force.",
    QuotaTreeInvalid: "The quota tree cannot be used; the last usable one stays in force.",
    CellConfigurationInForce: "The configuration of cells is in force.",
    CellConfigurationInvalid: "The configuration of cells cannot be used; the last valid one stays in force.",
    Running: "The job is running.",
    Succeeded: "The job succeeded.",
    Failed: "The job failed.",
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_read_back_and_each_has_a_sentence() {
        for reason in Reason::ALL {
            assert_eq!(Reason::from_text(reason.as_str()), Some(*reason));
            assert!(reason.describe().ends_with('.'), "{reason}");
        }
        assert_eq!(Reason::from_text("Nonsense"), None);
    }
}
