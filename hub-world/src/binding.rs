//! A ResourceBinding, parsed once for the planners.

use fleet_api::{ResourceBinding, binding::Attempt, convert, names};
use fleet_placement::Gang;
use fleet_policies::{
    reason::Reason,
    spec::{Failover, Placement, ReplicaSchedulingType},
    workload::WorkloadKind,
};
use fleet_resources::Resources;
use jiff::Timestamp;
use kube_core::ResourceExt;
use serde::de::DeserializeOwned;

use crate::{
    events::Subject,
    kinds::{self, Kind, KindRef},
    status::find_condition,
};

/// Suffix of a QueueUnit's name after that of its binding, as in kube-queue.
pub const UNIT_SUFFIX: &str = "-rb-qu";

pub const API_VERSION: &str = "fleet.dev/v1alpha1";

/// A binding with its derived parts.
#[derive(Clone, Debug)]
pub struct BindingEntry {
    pub object: ResourceBinding,
    pub kind: KindRef,
    pub workload: WorkloadKind,
    pub placement: Placement,
    pub failover: Option<Failover>,
    pub gang: Gang,
    /// Request of the whole object, in base units.
    pub total: Resources,
    /// Bindings of the same class have equal requests and constraints, so a result for one holds for all.
    pub class: String,
}

impl BindingEntry {
    /// Parses a binding; derived parts are taken from `known` if their source is unchanged.
    pub fn read(object: ResourceBinding, known: Option<&Self>) -> Self {
        let spec = &object.spec;
        let same = |known: &&Self| {
            let old = &known.object.spec;
            old.resource == spec.resource
                && old.components == spec.components
                && old.placement == spec.placement
                && old.failover == spec.failover
        };
        if let Some(known) = known.filter(same) {
            let Self { object: _, kind, workload, placement, failover, gang, total, class } = known.clone();
            return Self { object, kind, workload, placement, failover, gang, total, class };
        }
        let reference = &spec.resource;
        let kind = kinds::known(&reference.api_version, &reference.kind).unwrap_or_else(|| {
            let plural = format!("{}s", reference.kind.to_lowercase());
            Kind::new(&reference.api_version, &reference.kind, &plural, false)
        });
        let workload = kind.workload();
        let placement: Placement = convert_json(&spec.placement).unwrap_or_default();
        let failover: Option<Failover> = convert_json(&spec.failover);
        let gang = convert::gang(&spec.components).unwrap_or_default();
        let class = serde_json::to_string(&(&spec.components, &spec.placement)).unwrap_or_default();
        Self { total: gang.total(), workload, placement, failover, gang, class, kind, object }
    }

    pub fn uid(&self) -> &str {
        self.object.metadata.uid.as_deref().unwrap_or_default()
    }

    pub fn name(&self) -> &str {
        self.object.metadata.name.as_deref().unwrap_or_default()
    }

    pub fn namespace(&self) -> &str {
        self.object.metadata.namespace.as_deref().unwrap_or_default()
    }

    /// Whether all pods go to one cluster, all or nothing. True for jobs, unless the policy duplicates them.
    pub fn is_gang(&self) -> bool {
        is_gang(self.workload, &self.placement)
    }

    pub fn is_bound(&self) -> bool {
        !self.object.spec.clusters.is_empty()
    }

    /// Waits in its queue: it must not be scheduled before it is admitted.
    pub fn is_suspended(&self) -> bool {
        self.object.spec.suspension.as_ref().is_some_and(|s| s.scheduling == Some(true))
    }

    /// Has left its queue: only the scheduler writes `false`; policies with `false` have no queue.
    pub fn has_left_queue(&self) -> bool {
        self.object.spec.suspension.as_ref().is_some_and(|s| s.scheduling == Some(false))
    }

    pub fn is_finished(&self) -> bool {
        self.object.status.as_ref().is_some_and(|status| status.result.is_some())
    }

    /// The run of that epoch, if it ended before its job.
    pub fn attempt(&self, epoch: i64) -> Option<&Attempt> {
        let status = self.object.status.as_ref()?;
        status.attempts.iter().find(|attempt| attempt.epoch == epoch)
    }

    /// Whether the current run was given up.
    pub fn is_given_up(&self) -> bool {
        self.attempt(self.object.spec.epoch).is_some()
    }

    pub fn unit_name(&self) -> String {
        format!("{}{UNIT_SUFFIX}", self.name())
    }

    /// Name of this binding's Work in a cluster's namespace.
    pub fn work_name(&self) -> String {
        format!("{}-{}", self.name(), short(self.uid()))
    }

    /// Name of the reservation for the next epoch.
    pub fn reservation_name(&self) -> String {
        format!("{}-{}-{}", self.name(), short(self.uid()), self.object.spec.epoch.saturating_add(1))
    }

    pub fn source(&self) -> &str {
        self.object.spec.scheduler_name.as_deref().unwrap_or("default-scheduler")
    }

    pub fn subject(&self) -> Subject<'_> {
        Subject {
            api_version: API_VERSION,
            kind: "ResourceBinding",
            namespace: self.namespace(),
            name: self.name(),
            uid: self.uid(),
        }
    }

    /// The selected object as the subject of events.
    pub fn object_subject(&self) -> Subject<'_> {
        let reference = &self.object.spec.resource;
        Subject {
            api_version: &reference.api_version,
            kind: &reference.kind,
            namespace: &reference.namespace,
            name: &reference.name,
            uid: &reference.uid,
        }
    }

    /// Seconds since 1970 at which the binding was created.
    pub fn created_s(&self) -> i64 {
        self.object.creation_timestamp().map_or(0, |time| time.0.as_second())
    }

    /// Milliseconds since 1970 at which the job took its place; of equals, the one that was earlier goes first.
    pub fn place_ms(&self) -> i64 {
        let place = self.object.spec.queue_place.as_ref();
        let since = place.and_then(|place| place.since.as_ref()?.parse::<Timestamp>().ok());
        since.map_or(i64::MIN, Timestamp::as_millisecond).max(self.created_s().saturating_mul(1000))
    }

    /// Why the job waits, as its binding says.
    pub fn told(&self) -> Option<Reason> {
        let status = self.object.status.as_ref()?;
        Reason::from_text(&find_condition(&status.conditions, "Scheduled")?.reason)
    }
}

/// See [`BindingEntry::is_gang`]. Nothing but a job is a gang, whatever the policy says: its pods would have no places, no
/// quota would count them, and nobody would wait for their end.
pub fn is_gang(workload: WorkloadKind, placement: &Placement) -> bool {
    let copied = placement
        .replica_scheduling
        .as_ref()
        .is_some_and(|scheduling| scheduling.replica_scheduling_type == ReplicaSchedulingType::Duplicated);
    workload.is_job() && (placement.is_gang() || !copied)
}

/// First characters of a uid, enough to distinguish two objects of the same name.
fn short(uid: &str) -> &str {
    uid.get(..8).unwrap_or(uid)
}

/// Hub namespace of a target.
pub fn cluster_namespace(cluster: &str) -> String {
    names::cluster_namespace(cluster)
}

fn convert_json<W: serde::Serialize, T: DeserializeOwned>(wire: &Option<W>) -> Option<T> {
    let wire = wire.as_ref()?;
    serde_json::from_value(serde_json::to_value(wire).ok()?).ok()
}
