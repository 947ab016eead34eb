//! Cached forms of objects that are not cached whole.

use core::time::Duration;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, OnceLock},
};

use fleet_api::{
    Cluster,
    cluster::{DRAIN_TAINT, GONE_TAINT},
    names,
    policy::{OverrideSpec, PolicyStatus, Preemption, PropagationSpec, ResourceSelector},
};
use fleet_policies::{
    choice::{ObjectRef, PolicyRule, PolicyScope, PreemptionRule},
    nesting,
    overrides::{self, OverridePolicy},
    selector, spec,
    workload::{self, DependencyRef, WorkloadKind},
};
use fleet_quota_tree::PREEMPTIBLE_LABEL;
use k8s_openapi::{
    api::coordination::v1::Lease,
    apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta},
};
use kube_core::{DynamicObject, ResourceExt, TypeMeta};
use serde_json::Value;

use crate::kinds::KindRef;

/// Namespace and name.
pub type Key = fleet_mirror::Key;

/// A propagated object or a dependency.
#[derive(Clone, Debug)]
pub struct Object {
    pub value: Arc<Value>,
    pub uid: String,
    pub labels: BTreeMap<String, String>,
    pub deleting: bool,
    pub created: String,
    pub derived: Derived,
}

/// What is found in an object once, when it is first asked for: many jobs may ask for the same object, again and again.
#[derive(Clone, Debug, Default)]
pub struct Derived {
    size: OnceLock<Result<usize, String>>,
    dependencies: OnceLock<BTreeSet<DependencyRef>>,
}

impl Object {
    /// As [`nesting::size`] finds it.
    pub fn size(&self) -> &Result<usize, String> {
        self.derived.size.get_or_init(|| nesting::size(&self.value))
    }

    /// What its pods need; `workload`: of its own kind.
    pub fn dependencies(&self, workload: WorkloadKind) -> &BTreeSet<DependencyRef> {
        self.derived.dependencies.get_or_init(|| workload::dependencies(workload, &self.value))
    }

    /// What the choice of its policy needs to know.
    pub fn reference(&self, kind: &KindRef, key: &Key) -> ObjectRef {
        reference(kind, key, self.labels.clone())
    }

    /// From its label; jobs may be preempted unless it says otherwise.
    pub fn is_preemptible(&self) -> bool {
        self.labels.get(PREEMPTIBLE_LABEL).is_none_or(|text| text != "false")
    }
}

pub(super) fn reference(kind: &KindRef, key: &Key, labels: BTreeMap<String, String>) -> ObjectRef {
    ObjectRef {
        api_version: kind.api_version.clone(),
        kind: kind.kind.clone(),
        namespace: key.0.clone(),
        name: key.1.clone(),
        labels,
    }
}

/// One parsed policy.
#[derive(Clone, Debug)]
pub struct PolicyEntry {
    pub rule: PolicyRule,
    pub spec: PropagationSpec,
    pub generation: i64,
    /// The rules that the policy breaks; such a policy governs nothing.
    pub violations: Vec<String>,
    pub conditions: Vec<Condition>,
}

/// The Lease of a cluster's agent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AgentLease {
    pub version: String,
    /// Changes with every renewal, and with nothing else.
    pub(super) renewal: String,
    pub duration: Option<Duration>,
    /// Time beyond the duration within which the pods of fenced jobs are gone.
    pub grace: Option<Duration>,
    /// The hub's mark: jobs are being moved off the cluster.
    pub declared_lost: bool,
    /// The incarnation of the hub for which the agent has removed all runs without a Work.
    pub sorted: Option<String>,
}

/// Longest time that a member's lease may ask for: it is added to times, and a member may write any number.
pub const LONGEST_SAID: Duration = Duration::from_secs(30 * 24 * 3600);

pub(super) fn cluster_of_lease(lease: &Lease) -> Option<String> {
    let namespace = lease.namespace().filter(|_| lease.name_any() == names::LEASE_NAME)?;
    namespace.strip_prefix(names::CLUSTER_NAMESPACE_PREFIX).map(str::to_string)
}

pub(super) fn read_lease(lease: &Lease) -> AgentLease {
    let version = lease.resource_version().unwrap_or_default();
    let spec = lease.spec.as_ref();
    let seconds = spec.and_then(|spec| spec.lease_duration_seconds);
    let grace = lease.annotations().get(names::FENCE_GRACE_ANNOTATION);
    let bounded = |seconds: u64| Duration::from_secs(seconds).min(LONGEST_SAID);
    AgentLease {
        renewal: spec
            .and_then(|spec| spec.renew_time.as_ref())
            .map_or_else(|| version.clone(), |time| time.0.to_string()),
        version,
        duration: seconds.and_then(|s| u64::try_from(s).ok()).map(bounded),
        grace: grace.and_then(|text| text.parse().ok()).map(bounded),
        declared_lost: lease.annotations().contains_key(names::DECLARED_LOST_ANNOTATION),
        sorted: lease.annotations().get(names::SORTED_ANNOTATION).cloned(),
    }
}

/// Whether the condition Ready of a cluster is True.
pub fn ready(cluster: &Cluster) -> bool {
    let conditions = cluster.status.as_ref().map_or(&[][..], |status| &status.conditions);
    conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// Whether the cluster is being drained.
pub fn is_drained(cluster: &Cluster) -> bool {
    has_taint(cluster, DRAIN_TAINT)
}

/// Whether an administrator declared the cluster gone.
pub fn is_gone(cluster: &Cluster) -> bool {
    has_taint(cluster, GONE_TAINT)
}

fn has_taint(cluster: &Cluster, key: &str) -> bool {
    cluster.spec.taints.iter().any(|taint| taint.key == key)
}

/// Converts the API's form to the rules' form with the same fields; an unparseable spec overrides nothing.
fn override_spec(wire: &OverrideSpec) -> overrides::OverrideSpec {
    let value = serde_json::to_value(wire).unwrap_or_default();
    serde_json::from_value(value).unwrap_or_default()
}

/// Items of a list lack apiVersion and kind; they are added, because a copy goes to the members.
pub(super) fn read_object(kind: &KindRef, object: DynamicObject) -> Object {
    let mut object = object;
    let resource = kind.resource();
    object.types = Some(TypeMeta { api_version: resource.api_version, kind: resource.kind });
    let created =
        object.metadata.creation_timestamp.as_ref().map(|time| time.0.to_string()).unwrap_or_default();
    Object {
        uid: object.metadata.uid.clone().unwrap_or_default(),
        labels: object.metadata.labels.clone().unwrap_or_default(),
        deleting: object.metadata.deletion_timestamp.is_some(),
        created,
        derived: Derived::default(),
        value: Arc::new(serde_json::to_value(object).unwrap_or_default()),
    }
}

/// An override policy in the form of the rules.
pub(super) fn read_override(scope: PolicyScope, key: Key, spec: &OverrideSpec) -> OverridePolicy {
    OverridePolicy { scope, namespace: key.0, name: key.1, spec: override_spec(spec) }
}

/// Parses a policy. An invalid one keeps its violations and governs nothing.
pub fn read_policy(
    scope: PolicyScope,
    meta: &ObjectMeta,
    spec: PropagationSpec,
    status: Option<PolicyStatus>,
) -> PolicyEntry {
    let namespace = meta.namespace.clone().unwrap_or_default();
    let value = serde_json::to_value(&spec).unwrap_or_default();
    let violations = spec::validate(&value, scope, &namespace).iter().map(ToString::to_string).collect();
    let rule = PolicyRule {
        scope,
        namespace: namespace.clone(),
        name: meta.name.clone().unwrap_or_default(),
        uid: meta.uid.clone().unwrap_or_default(),
        priority: spec.priority.unwrap_or(0),
        preemption: match spec.preemption {
            Some(Preemption::Always) => PreemptionRule::Always,
            _ => PreemptionRule::Never,
        },
        deleting: meta.deletion_timestamp.is_some(),
        selectors: spec.resource_selectors.iter().map(|s| selector_of(s, &namespace)).collect(),
    };
    PolicyEntry {
        rule,
        spec,
        generation: meta.generation.unwrap_or(0),
        violations,
        conditions: status.unwrap_or_default().conditions,
    }
}

fn selector_of(wire: &ResourceSelector, policy_namespace: &str) -> selector::ResourceSelector {
    let value = serde_json::to_value(wire).unwrap_or_default();
    let mut read: selector::ResourceSelector = serde_json::from_value(value).unwrap_or_default();
    if read.namespace.is_empty() {
        read.namespace = policy_namespace.to_string();
    }
    read
}
