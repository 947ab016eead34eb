//! Fleet's marks on objects of the member, and the kinds of these objects. Pure.

use std::collections::BTreeSet;

use fleet_api::names::{BINDING_UID_LABEL, EPOCH_ANNOTATION, FENCING_ANNOTATION, MANAGED_LABEL};
use fleet_policies::WorkloadKind;
use kube::{ResourceExt, api::DynamicObject};
use serde_json::{Value, json};

/// Annotation on objects other than jobs: uids of the bindings that need the object, sorted and separated by
/// commas. The object is deleted with the last one.
pub(crate) const BINDINGS_ANNOTATION: &str = "fleet.dev/bindings";

pub(crate) fn kind_of(manifest: &Value) -> WorkloadKind {
    let text = |field: &str| manifest[field].as_str().unwrap_or_default();
    WorkloadKind::of(text("apiVersion"), text("kind"))
}

pub(crate) fn is_managed(live: &DynamicObject) -> bool {
    live.labels().get(MANAGED_LABEL).is_some_and(|value| value == "true")
}

/// The bindings that need an object.
pub(crate) fn bindings_of(live: &DynamicObject) -> BTreeSet<String> {
    let listed = live.annotations().get(BINDINGS_ANNOTATION).map(String::as_str).unwrap_or_default();
    let listed = listed.split(',').filter(|uid| !uid.is_empty()).map(str::to_owned);
    listed.chain(live.labels().get(BINDING_UID_LABEL).cloned()).collect()
}

/// The epoch under which an object was applied.
pub(crate) fn epoch_of(object: &DynamicObject) -> Option<i64> {
    object.annotations().get(EPOCH_ANNOTATION)?.parse().ok()
}

/// Whether the object is of this run. One of somebody else, or of another epoch, says nothing of a create that is on its
/// way.
pub(crate) fn is_of_run(live: &DynamicObject, binding_uid: &str, epoch: i64) -> bool {
    is_managed(live) && bindings_of(live).contains(binding_uid) && epoch_of(live) == Some(epoch)
}

/// Whether a job in the member must be stopped when its cluster is cut off.
pub(crate) fn is_fenced_level(live: &DynamicObject) -> bool {
    live.annotations().contains_key(FENCING_ANNOTATION)
}

/// Whether side containers stop the job's pods when the member's record expires.
pub(crate) fn is_watched(live: &DynamicObject) -> bool {
    live.annotations().get(FENCING_ANNOTATION).is_some_and(|level| level == "Watchdog")
}

/// Path of the field that suspends a kind; `None` if it has none.
pub(crate) fn suspend_path(api_version: &str, kind: &str) -> Option<&'static [&'static str]> {
    match (api_version.split('/').next().unwrap_or_default(), kind) {
        ("kubeflow.org", _) => Some(&["spec", "runPolicy", "suspend"]),
        ("batch", "Job") => Some(&["spec", "suspend"]),
        _ => None,
    }
}

/// A nested object such as `{"spec": {"suspend": value}}`.
pub(crate) fn at_path(path: &[&str], value: Value) -> Value {
    path.iter().rev().fold(value, |inner, field| json!({*field: inner}))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_say_where_they_stand_still() {
        let patch =
            |api_version, kind| suspend_path(api_version, kind).map(|path| at_path(path, true.into()));
        assert_eq!(
            patch("kubeflow.org/v1", "TFJob"),
            Some(json!({"spec": {"runPolicy": {"suspend": true}}}))
        );
        assert_eq!(patch("batch/v1", "Job"), Some(json!({"spec": {"suspend": true}})));
        assert_eq!(patch("batch.volcano.sh/v1alpha1", "Job"), None);
    }
}
