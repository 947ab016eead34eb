//! Group `policy.one.alibabacloud.com/v1alpha1`: which objects go to which member clusters, and how.
//!
//! Field names and defaults follow Karmada's policy API with the additions of the ACK One fleet
//! (`customSchedulingType`, `suspension.scheduling`) and of Fleet (`failover.cluster.fencing`).

use std::collections::BTreeSet;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector};
use kube::CustomResource;
#[cfg(feature = "schemas")]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

mod overrides;

pub use overrides::*;

/// Spec of a PropagationPolicy or ClusterPropagationPolicy.
#[derive(CustomResource, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "schemas", derive(JsonSchema))]
#[cfg_attr(not(feature = "schemas"), kube(schema = "disabled"))]
#[kube(
    group = "policy.one.alibabacloud.com",
    version = "v1alpha1",
    kind = "PropagationPolicy",
    plural = "propagationpolicies",
    shortname = "pp",
    namespaced,
    status = "PolicyStatus",
    derive = "Default",
    printcolumn = r#"{"name":"CONFLICT-RESOLUTION","type":"string","jsonPath":".spec.conflictResolution"}"#,
    printcolumn = r#"{"name":"PRIORITY","type":"integer","jsonPath":".spec.priority"}"#,
    printcolumn = r#"{"name":"AGE","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct PropagationSpec {
    /// The objects this policy governs; one match is enough. Fleet's own kinds, Events and Leases are never propagated.
    #[cfg_attr(feature = "schemas", schemars(length(min = 1, max = 256)))]
    pub resource_selectors: Vec<ResourceSelector>,
    /// Older spelling of `propagateDeps`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub association: Option<bool>,
    /// Also send the ConfigMaps, Secrets, ServiceAccounts and PVCs that the pod templates name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub propagate_deps: Option<bool>,
    /// Explicit priority between policies; higher wins. Default 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<i32>,
    /// Whether this policy may take over objects another policy already governs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preemption: Option<Preemption>,
    /// OverridePolicies that must exist before objects are sent; no effect yet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dependent_overrides: Vec<String>,
    /// Name printed as the source of scheduling events. Default `default-scheduler`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduler_name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub placement: Option<Placement>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failover: Option<Failover>,
    /// What to do when an object of the same name, not made by Fleet, exists in the member.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conflict_resolution: Option<ConflictResolution>,
    /// When a change of the policy takes effect; no effect yet, it is always at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub activation_preference: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspension: Option<Suspension>,
    /// Leave the member's copies when the object on the hub is deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preserve_resources_on_deletion: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule_priority: Option<SchedulePriority>,
    /// Who binds the pods of a job with reserved places. Default `Fleet`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_scheduling: Option<PodScheduling>,
    /// What happens to a running job that is changed. Default `NextRun`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub running_edits: Option<RunningEdits>,
}

/// The cluster-scoped form of [`PropagationPolicy`]: the same fields, but it selects in any namespace.
#[derive(CustomResource, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "schemas", derive(JsonSchema))]
#[cfg_attr(not(feature = "schemas"), kube(schema = "disabled"))]
#[kube(
    group = "policy.one.alibabacloud.com",
    version = "v1alpha1",
    kind = "ClusterPropagationPolicy",
    plural = "clusterpropagationpolicies",
    shortname = "cpp",
    status = "PolicyStatus",
    derive = "Default",
    printcolumn = r#"{"name":"CONFLICT-RESOLUTION","type":"string","jsonPath":".spec.conflictResolution"}"#,
    printcolumn = r#"{"name":"PRIORITY","type":"integer","jsonPath":".spec.priority"}"#,
    printcolumn = r#"{"name":"AGE","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
pub struct ClusterPropagationPolicySpec {
    #[serde(flatten)]
    pub propagation: PropagationSpec,
}

/// Conditions of a policy: `Valid` is False with the first violation if a rule is broken.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "schemas", derive(JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct PolicyStatus {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "schemas", derive(JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct ResourceSelector {
    pub api_version: String,
    pub kind: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// When set, `labelSelector` is ignored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label_selector: Option<LabelSelector>,
}

#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "schemas", derive(JsonSchema))]
pub enum Preemption {
    Never,
    Always,
}

#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "schemas", derive(JsonSchema))]
pub enum ConflictResolution {
    Abort,
    Overwrite,
}

/// `Fleet`: pod templates name the agent's scheduler, which binds the gang as a whole. `Gates`: they keep
/// their scheduler and get a scheduling gate; once all pods of the gang exist, the agent removes it and gives
/// each pod a selector of its reserved node. `AsWritten`: they are sent unchanged, so a gang that another
/// scheduler binds may start in part.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "schemas", derive(JsonSchema))]
pub enum PodScheduling {
    #[default]
    Fleet,
    Gates,
    AsWritten,
}

/// `NextRun`: the run stays as it was sent, and the change waits for the job's next run. `Requeue`: the run is given
/// up, and the job goes through its queue again as it is now.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "schemas", derive(JsonSchema))]
pub enum RunningEdits {
    #[default]
    NextRun,
    Requeue,
}

#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "schemas", derive(JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Suspension {
    /// Wait in the queue before being scheduled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduling: Option<bool>,
    /// Do not send anything to any member.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dispatching: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dispatching_on_clusters: Option<SuspendClusters>,
}

#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "schemas", derive(JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct SuspendClusters {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cluster_names: Vec<String>,
}

#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "schemas", derive(JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct SchedulePriority {
    /// `KubePriorityClass`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority_class_source: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority_class_name: Option<String>,
}

/// Where objects may go and how their replicas are spread.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "schemas", derive(JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Placement {
    /// Excludes `clusterAffinities`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_affinity: Option<ClusterAffinity>,
    /// Groups tried in order. Excludes `clusterAffinity`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cluster_affinities: Vec<ClusterAffinityTerm>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cluster_tolerations: Vec<Toleration>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schemas", schemars(length(max = 8)))]
    pub spread_constraints: Vec<SpreadConstraint>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replica_scheduling: Option<ReplicaScheduling>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workload_affinity: Option<WorkloadAffinity>,
}

/// A toleration of a cluster's taint; the shape of a pod's toleration.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "schemas", derive(JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Toleration {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operator: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effect: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub toleration_seconds: Option<i64>,
}

/// All given fields must hold; `exclude` wins over everything.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "schemas", derive(JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct ClusterAffinity {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label_selector: Option<LabelSelector>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field_selector: Option<FieldSelector>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cluster_names: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exclude: Vec<String>,
}

/// Expressions over `provider`, `region` and `zone`, operators In and NotIn.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "schemas", derive(JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct FieldSelector {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub match_expressions: Vec<FieldRequirement>,
}

#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "schemas", derive(JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct FieldRequirement {
    pub key: String,
    pub operator: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<String>,
}

#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "schemas", derive(JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct ClusterAffinityTerm {
    #[cfg_attr(feature = "schemas", schemars(length(max = 32)))]
    pub affinity_name: String,
    #[serde(flatten)]
    pub affinity: ClusterAffinity,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub overflow_affinities: Vec<OverflowAffinity>,
}

#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "schemas", derive(JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct OverflowAffinity {
    pub affinity_name: String,
    #[serde(flatten)]
    pub affinity: ClusterAffinity,
}

#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "schemas", derive(JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct SpreadConstraint {
    /// `cluster`, `region`, `zone` or `provider`; excludes `spreadByLabel`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spread_by_field: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spread_by_label: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_groups: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_groups: Option<i32>,
}

#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "schemas", derive(JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct ReplicaScheduling {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replica_scheduling_type: Option<ReplicaSchedulingType>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replica_division_preference: Option<ReplicaDivisionPreference>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight_preference: Option<WeightPreference>,
    /// `Gang`: every replica of the object on exactly one cluster, all or nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub custom_scheduling_type: Option<CustomSchedulingType>,
}

#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "schemas", derive(JsonSchema))]
pub enum ReplicaSchedulingType {
    Duplicated,
    Divided,
}

#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "schemas", derive(JsonSchema))]
pub enum ReplicaDivisionPreference {
    Aggregated,
    Weighted,
}

#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "schemas", derive(JsonSchema))]
pub enum CustomSchedulingType {
    Gang,
}

#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "schemas", derive(JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct WeightPreference {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub static_weight_list: Vec<StaticWeight>,
    /// `AvailableReplicas`; wins over the static list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dynamic_weight: Option<DynamicWeight>,
}

#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "schemas", derive(JsonSchema))]
pub enum DynamicWeight {
    AvailableReplicas,
}

#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "schemas", derive(JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct StaticWeight {
    pub target_cluster: ClusterAffinity,
    #[cfg_attr(feature = "schemas", schemars(range(min = 1)))]
    pub weight: i64,
}

#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "schemas", derive(JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct WorkloadAffinity {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub affinity: Option<GroupByLabel>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub anti_affinity: Option<GroupByLabel>,
}

#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "schemas", derive(JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct GroupByLabel {
    pub group_by_label_key: String,
}

/// What happens when the job or its cluster fails.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "schemas", derive(JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Failover {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub application: Option<ApplicationFailover>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<ClusterFailover>,
    /// Accepts that the old and the new run of a job may run at the same time, which `Gracefully` requires.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allow_two_runs: Option<bool>,
}

#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "schemas", derive(JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct ApplicationFailover {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decision_conditions: Option<DecisionConditions>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub purge_mode: Option<PurgeMode>,
    /// Only with `Gracefully`; default 600.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grace_period_seconds: Option<i32>,
    /// Runs that may fail before the job ends Failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backoff_limit: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state_preservation: Option<StatePreservation>,
}

#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "schemas", derive(JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct DecisionConditions {
    /// Seconds a job may stay failed or unhealthy. Default 300; 0 is at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub toleration_seconds: Option<i32>,
}

/// `Immediately` and `Graciously` are older spellings of `Directly` and `Gracefully`.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "schemas", derive(JsonSchema))]
pub enum PurgeMode {
    Directly,
    Immediately,
    Gracefully,
    Graciously,
    Never,
}

#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "schemas", derive(JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct ClusterFailover {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub purge_mode: Option<PurgeMode>,
    /// How certain it must be that the old run is stopped before a new one starts. Default `Lease`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fencing: Option<Fencing>,
    /// Seconds a cluster may stay lost before its jobs move. Default 300; 0 is at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub toleration_seconds: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state_preservation: Option<StatePreservation>,
}

#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "schemas", derive(JsonSchema))]
pub enum Fencing {
    None,
    Lease,
    Watchdog,
}

#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "schemas", derive(JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct StatePreservation {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<StatePreservationRule>,
}

#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "schemas", derive(JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct StatePreservationRule {
    pub alias_label_name: String,
    pub json_path: String,
}

impl PropagationSpec {
    /// Every cluster that the spec names, with the field.
    pub fn named_clusters(&self) -> BTreeSet<(String, String)> {
        let mut named = BTreeSet::new();
        let Some(placement) = &self.placement else { return named };
        let mut add = |at: &str, affinity: &ClusterAffinity| {
            for (field, names) in [("clusterNames", &affinity.cluster_names), ("exclude", &affinity.exclude)]
            {
                named.extend(names.iter().map(|name| (format!("spec.placement.{at}.{field}"), name.clone())));
            }
        };
        if let Some(affinity) = &placement.cluster_affinity {
            add("clusterAffinity", affinity);
        }
        for (i, term) in placement.cluster_affinities.iter().enumerate() {
            add(&format!("clusterAffinities[{i}]"), &term.affinity);
        }
        let scheduling = placement.replica_scheduling.as_ref();
        let weights = scheduling.and_then(|scheduling| scheduling.weight_preference.as_ref());
        for (i, weight) in weights.iter().flat_map(|weights| &weights.static_weight_list).enumerate() {
            let at = format!("replicaScheduling.weightPreference.staticWeightList[{i}].targetCluster");
            add(&at, &weight.target_cluster);
        }
        named
    }
}
