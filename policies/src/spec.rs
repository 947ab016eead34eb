//! The spec of a PropagationPolicy or ClusterPropagationPolicy as plain data.
//!
//! Field names and defaults are those of the Kubernetes JSON. Unknown fields are ignored here; the API server is
//! strict about them. Rules that the types cannot express are checked by [`validate`].

mod validation;

use serde::{Deserialize, Serialize};

use fleet_resources::constraints::Toleration;

use crate::selector::{LabelSelector, ResourceSelector};
pub use validation::{Violation, validate};

/// Longest user text that a message repeats.
const REPEATED_MAX: usize = 120;

/// The found text, shortened for a message.
pub(crate) fn shortened(found: &str) -> String {
    match found.char_indices().nth(REPEATED_MAX) {
        None => found.to_owned(),
        Some((at, _)) => format!("{}... ({} bytes)", &found[..at], found.len()),
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PropagationSpec {
    pub resource_selectors: Vec<ResourceSelector>,
    /// Older name of `propagateDeps`.
    #[serde(skip_serializing_if = "is_false")]
    pub association: bool,
    #[serde(skip_serializing_if = "is_false")]
    pub propagate_deps: bool,
    pub priority: i32,
    pub preemption: Preemption,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub dependent_overrides: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scheduler_name: Option<String>,
    pub placement: Placement,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failover: Option<Failover>,
    pub conflict_resolution: ConflictResolution,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub activation_preference: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suspension: Option<Suspension>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preserve_resources_on_deletion: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schedule_priority: Option<SchedulePriority>,
}

impl PropagationSpec {
    pub fn propagates_dependencies(&self) -> bool {
        self.propagate_deps || self.association
    }

    /// The job waits in a queue before it is scheduled.
    pub fn is_queued(&self) -> bool {
        self.suspension.as_ref().is_some_and(|suspension| suspension.scheduling)
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Preemption {
    #[default]
    Never,
    Always,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ConflictResolution {
    #[default]
    Abort,
    Overwrite,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Placement {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster_affinity: Option<ClusterAffinity>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cluster_affinities: Vec<ClusterAffinityTerm>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cluster_tolerations: Vec<Toleration>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub spread_constraints: Vec<SpreadConstraint>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replica_scheduling: Option<ReplicaScheduling>,
}

impl Placement {
    /// The whole object goes to exactly one cluster, all or nothing.
    pub fn is_gang(&self) -> bool {
        self.replica_scheduling
            .as_ref()
            .is_some_and(|scheduling| scheduling.custom_scheduling_type == Some(CustomSchedulingType::Gang))
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterAffinity {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label_selector: Option<LabelSelector>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub field_selector: Option<FieldSelector>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cluster_names: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub exclude: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FieldSelector {
    pub match_expressions: Vec<FieldRequirement>,
}

/// `key` is provider, region or zone.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FieldRequirement {
    pub key: String,
    pub operator: FieldOperator,
    #[serde(default)]
    pub values: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FieldOperator {
    In,
    NotIn,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterAffinityTerm {
    pub affinity_name: String,
    #[serde(flatten)]
    pub affinity: ClusterAffinity,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub overflow_affinities: Vec<ClusterAffinityTerm>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SpreadConstraint {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spread_by_field: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spread_by_label: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_groups: Option<i64>,
    /// Zero: no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_groups: Option<i64>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ReplicaScheduling {
    pub replica_scheduling_type: ReplicaSchedulingType,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replica_division_preference: Option<ReplicaDivisionPreference>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight_preference: Option<WeightPreference>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub custom_scheduling_type: Option<CustomSchedulingType>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReplicaSchedulingType {
    Duplicated,
    #[default]
    Divided,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReplicaDivisionPreference {
    Aggregated,
    Weighted,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CustomSchedulingType {
    Gang,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WeightPreference {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub static_weight_list: Vec<StaticWeight>,
    /// Overrides the static list.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dynamic_weight: Option<DynamicWeight>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StaticWeight {
    pub target_cluster: ClusterAffinity,
    pub weight: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum DynamicWeight {
    AvailableReplicas,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Failover {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub application: Option<ApplicationFailover>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster: Option<ClusterFailover>,
    /// Allows two runs of a job to be alive at the same time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_two_runs: Option<bool>,
}

impl Failover {
    /// Whether a member that is cut off stops the job before it may start elsewhere.
    pub fn is_fenced(&self) -> bool {
        self.cluster.as_ref().is_some_and(|cluster| cluster.fencing() != Fencing::None)
    }

    /// The purge mode when the job is moved for its own failure. Two runs at once are never the default: only a
    /// policy with `Gracefully` allows them.
    pub fn application_purge(&self) -> PurgeMode {
        let Some(application) = &self.application else { return PurgeMode::Directly };
        self.permitted(application.purge_mode.unwrap_or(PurgeMode::Directly))
    }

    /// The purge mode when the job is moved off a cluster that can be reached.
    pub fn cluster_purge(&self) -> PurgeMode {
        let asked = self.cluster.as_ref().and_then(|cluster| cluster.purge_mode);
        self.permitted(asked.unwrap_or(PurgeMode::Directly))
    }

    fn permitted(&self, mode: PurgeMode) -> PurgeMode {
        let refused = self.is_fenced() && self.allow_two_runs != Some(true);
        if mode == PurgeMode::Gracefully && refused { PurgeMode::Directly } else { mode }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ApplicationFailover {
    pub decision_conditions: DecisionConditions,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub purge_mode: Option<PurgeMode>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grace_period_seconds: Option<i64>,
    /// Runs before a failure is final.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backoff_limit: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state_preservation: Option<StatePreservation>,
}

impl ApplicationFailover {
    /// Seconds a job may be unhealthy, if the policy does not say.
    pub const DEFAULT_TOLERATION_S: i64 = 300;
    /// Seconds a graceful purge waits, if the policy does not say.
    pub const DEFAULT_GRACE_S: i64 = 600;

    pub fn toleration_s(&self) -> i64 {
        self.decision_conditions.toleration_seconds.unwrap_or(Self::DEFAULT_TOLERATION_S)
    }

    pub fn purge_mode(&self) -> PurgeMode {
        self.purge_mode.unwrap_or_default()
    }

    pub fn grace_period_s(&self) -> i64 {
        self.grace_period_seconds.unwrap_or(Self::DEFAULT_GRACE_S)
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DecisionConditions {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub toleration_seconds: Option<i64>,
}

/// How the old run leaves its cluster; the aliases are older spellings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum PurgeMode {
    #[serde(alias = "Immediately")]
    Directly,
    #[default]
    #[serde(alias = "Graciously")]
    Gracefully,
    Never,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterFailover {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub purge_mode: Option<PurgeMode>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state_preservation: Option<StatePreservation>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fencing: Option<Fencing>,
    /// Seconds a cluster may be lost before its jobs move.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub toleration_seconds: Option<i64>,
}

impl ClusterFailover {
    /// Seconds a cluster may be lost, if the policy does not say.
    pub const DEFAULT_TOLERATION_S: i64 = 300;

    pub fn toleration_s(&self) -> i64 {
        self.toleration_seconds.unwrap_or(Self::DEFAULT_TOLERATION_S)
    }

    pub fn fencing(&self) -> Fencing {
        self.fencing.unwrap_or_default()
    }
}

/// What ensures that a job on a lost cluster has stopped before it runs elsewhere.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Fencing {
    /// Nothing: it moves after the toleration.
    None,
    /// The member's agent stops it when its lease lapses.
    #[default]
    Lease,
    /// A side container stops it, even with the agent dead.
    Watchdog,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StatePreservation {
    pub rules: Vec<StatePreservationRule>,
}

impl StatePreservation {
    /// Most rules; the binding keeps their values of each run.
    pub const MOST_RULES: usize = 16;
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StatePreservationRule {
    pub alias_label_name: String,
    /// A path into the object's status, such as `{.conditions[0].type}`, in a form that
    /// [`JsonPath`](crate::json_path::JsonPath) reads.
    pub json_path: String,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Suspension {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dispatching: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dispatching_on_clusters: Option<SuspendClusters>,
    #[serde(skip_serializing_if = "is_false")]
    pub scheduling: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SuspendClusters {
    pub cluster_names: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SchedulePriority {
    pub priority_class_source: String,
    pub priority_class_name: String,
}

fn is_false(flag: &bool) -> bool {
    !flag
}
