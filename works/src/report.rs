//! The status of a Work, from the objects in the member. Pure.

use fleet_api::work::{ManifestIdentifier, ManifestStatus, Work, WorkStatus};
use fleet_policies::{
    nesting,
    workload::{health, outcome},
};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::api::DynamicObject;
use serde_json::Value;
use std::{collections::BTreeMap, sync::Arc};

use crate::marks::{epoch_of, kind_of};

/// The one condition type of a Work's status.
const APPLIED: &str = "Applied";

/// Result of applying.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Applied {
    Yes,
    No { reason: Reason, message: String },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    NameTaken,
    NotPermitted,
    AppliedFailed,
    StaleEpoch,
    StaleTerm,
    WaitingForCleanup,
}

impl Reason {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NameTaken => "NameTaken",
            Self::NotPermitted => "NotPermitted",
            Self::AppliedFailed => "AppliedFailed",
            Self::StaleEpoch => "StaleEpoch",
            Self::StaleTerm => "StaleTerm",
            Self::WaitingForCleanup => "WaitingForCleanup",
        }
    }
}

/// The new status of the Work, from its old status, the result of applying (`None`: not tried), and the
/// Work's objects in the member by position.
pub(crate) fn status(
    work: &Work,
    applied: Option<&Applied>,
    objects: &[Option<Arc<DynamicObject>>],
    now: Timestamp,
) -> WorkStatus {
    let mut status = work.status.clone().unwrap_or_default();
    if let Some(applied) = applied {
        set_applied(&mut status, applied, work.metadata.generation, now);
    }
    let mut places: BTreeMap<i64, usize> = BTreeMap::new();
    for (at, one) in status.manifest_statuses.iter().enumerate() {
        places.entry(one.identifier.ordinal).or_insert(at);
    }
    for (ordinal, (manifest, object)) in work.spec.workload.manifests.iter().zip(objects).enumerate() {
        // A deleted object keeps its last status, which may have the result of the job.
        let Some(object) = object else { continue };
        let found = &object.data["status"];
        let is_governed = ordinal == 0;
        if !is_governed && !is_said(found) {
            continue;
        }
        let entry = ManifestStatus {
            identifier: identifier(ordinal, manifest),
            status: if is_said(found) { reportable(found, object) } else { Value::Null },
            health: Some(format!("{:?}", health(kind_of(manifest), found))),
            // Only if the status has an observed generation; otherwise this would be a useless write.
            generation: object.metadata.generation.filter(|_| found["observedGeneration"].is_i64()),
        };
        match places.get(&entry.identifier.ordinal) {
            Some(at) => status.manifest_statuses[*at] = entry,
            None => status.manifest_statuses.push(entry),
        }
        if is_governed && let Some(epoch) = epoch_of(object) {
            status.observed_epoch = Some(epoch);
        }
    }
    status.manifest_statuses.retain(|one| (one.identifier.ordinal as usize) < objects.len());
    status.manifest_statuses.sort_by_key(|one| one.identifier.ordinal);
    status
}

/// A status as the hub accepts it: without what is nested too deeply. Any controller in the member may write it.
fn reportable(status: &Value, object: &DynamicObject) -> Value {
    let mut status = status.clone();
    if nesting::cut(&mut status, nesting::MAX) {
        tracing::warn!(
            namespace = object.metadata.namespace,
            name = object.metadata.name,
            "status: found more than {} levels of nested objects and lists; what is deeper is not reported",
            nesting::MAX
        );
    }
    status
}

/// Whether a status has any content.
pub(crate) fn is_said(status: &Value) -> bool {
    status.as_object().is_some_and(|fields| !fields.is_empty())
}

/// Whether nothing was reported for the Work yet.
pub(crate) fn is_unreported(work: &Work) -> bool {
    work.status.as_ref().is_none_or(|status| status.conditions.is_empty())
}

/// Whether it was reported that the member has all of the Work's objects.
pub(crate) fn is_applied(work: &Work) -> bool {
    let conditions = work.status.as_ref().map_or(&[][..], |status| &status.conditions);
    conditions.iter().any(|condition| condition.type_ == APPLIED && condition.status == "True")
}

/// Whether the end of this Work's run has been reported for its epoch.
pub(crate) fn has_ended(work: &Work) -> bool {
    let Some(status) = &work.status else { return false };
    let Some(manifest) = work.spec.workload.manifests.first() else { return false };
    status.observed_epoch == Some(work.spec.epoch)
        && status
            .manifest_statuses
            .iter()
            .any(|one| one.identifier.ordinal == 0 && outcome(kind_of(manifest), &one.status).is_some())
}

fn set_applied(status: &mut WorkStatus, applied: &Applied, generation: Option<i64>, now: Timestamp) {
    let (value, reason, message) = match applied {
        Applied::Yes => ("True", "AppliedSuccessful", "every manifest is applied in the member"),
        Applied::No { reason, message } => ("False", reason.as_str(), message.as_str()),
    };
    let old = status.conditions.iter().find(|condition| condition.type_ == APPLIED);
    let since = match old {
        Some(old) if old.status == value => old.last_transition_time.clone(),
        _ => Time(Timestamp::from_second(now.as_second()).unwrap_or(now)),
    };
    let condition = Condition {
        type_: APPLIED.to_owned(),
        status: value.to_owned(),
        reason: reason.to_owned(),
        message: message.to_owned(),
        last_transition_time: since,
        observed_generation: generation,
    };
    status.conditions.retain(|condition| condition.type_ != APPLIED);
    status.conditions.push(condition);
}

fn identifier(ordinal: usize, manifest: &Value) -> ManifestIdentifier {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let api_version = text(&manifest["apiVersion"]);
    let (group, version) = api_version.split_once('/').unwrap_or(("", &api_version));
    ManifestIdentifier {
        ordinal: i64::try_from(ordinal).unwrap_or(i64::MAX),
        group: group.to_owned(),
        version: version.to_owned(),
        kind: text(&manifest["kind"]),
        namespace: text(&manifest["metadata"]["namespace"]),
        name: text(&manifest["metadata"]["name"]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_nested_too_deeply_is_not_reported() {
        let deep = (0..90).fold(json!(1), |value, _| json!({"a": value}));
        let job = json!({"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": "a"}});
        let mut object: DynamicObject = serde_json::from_value(job.clone()).unwrap();
        let conditions = json!([{"type": "Succeeded", "status": "True"}]);
        object.data["status"] = json!({"conditions": conditions, "deep": deep});
        let mut work = Work::new("w", fleet_api::work::WorkSpec::default());
        work.spec.workload.manifests = vec![job];
        let reported = super::status(&work, None, &[Some(Arc::new(object))], Timestamp::UNIX_EPOCH);
        let said = &reported.manifest_statuses[0].status;
        assert_eq!((nesting::levels(said), &said["conditions"]), (nesting::MAX, &conditions));
    }

    /// Each reported object looked for among all takes minutes.
    #[test]
    fn the_objects_of_a_large_work_are_reported_in_one_pass() {
        const CLAIMS: usize = 100_000;
        let object = |i: usize| json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": format!("c{i}")}});
        let mut work = Work::new("w", fleet_api::work::WorkSpec::default());
        work.spec.workload.manifests = (0..CLAIMS).map(object).collect();
        let live = |phase: &str| -> Vec<Option<Arc<DynamicObject>>> {
            let found = (0..CLAIMS).map(|i| {
                let mut found: DynamicObject = serde_json::from_value(object(i)).unwrap();
                found.data["status"] = json!({"phase": phase});
                Some(Arc::new(found))
            });
            found.collect()
        };
        for phase in ["Pending", "Bound"] {
            work.status = Some(super::status(&work, None, &live(phase), Timestamp::UNIX_EPOCH));
        }
        let reported = work.status.unwrap_or_default().manifest_statuses;
        assert_eq!(reported.len(), CLAIMS);
        for at in [0, 7, CLAIMS - 1] {
            let one = &reported[at];
            assert_eq!((one.identifier.ordinal, &one.status["phase"]), (at as i64, &json!("Bound")));
        }
    }
}
