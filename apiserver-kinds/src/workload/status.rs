//! What the status of a kind that makes pods may say.
//!
//! Inputs: the object and, for counts that only grow, the one before. Source: the validation of Kubernetes 1.36.

use fleet_apiserver_schema::error::Cause;
use fleet_apiserver_schema::field::At;
use serde_json::Value;

/// Counts that are not negative, in the order they are told.
fn counts(status: &At, fields: &[&str]) {
    fields.iter().for_each(|field| status.at(field).non_negative());
}

fn count(status: &At, field: &str) -> i64 {
    status.at(field).number().unwrap_or(0)
}

fn shown(status: &At, field: &str, why: &str) {
    let count = Value::from(count(status, field));
    status.note(Cause::invalid(status.at(field).path(), &count, why));
}

/// Counts of pods in some state are no more than there are pods, and only those that are ready are available.
fn bounded(status: &At, fields: &[&str], ready: &str) {
    let most = count(status, "replicas");
    for field in fields {
        if count(status, field) > most {
            shown(status, field, "cannot be greater than status.replicas");
        }
    }
    if count(status, "availableReplicas") > count(status, "readyReplicas") {
        shown(status, "availableReplicas", ready);
    }
}

/// The count of collisions only grows, and does not go away.
fn collisions(status: &At, old: Option<&At>) {
    let before = old.and_then(|old| old.at("status.collisionCount").number());
    let now = status.at("collisionCount").number();
    if before.is_some_and(|before| now.is_none_or(|now| now < before)) {
        shown(status, "collisionCount", "cannot be decremented");
    }
}

/// Checks the status of a Deployment.
pub fn deployment(new: &At, old: Option<&At>) {
    let status = new.at("status");
    counts(
        &status,
        &[
            "observedGeneration",
            "replicas",
            "updatedReplicas",
            "readyReplicas",
            "availableReplicas",
            "unavailableReplicas",
            "terminatingReplicas",
            "collisionCount",
        ],
    );
    let fields = ["updatedReplicas", "readyReplicas", "availableReplicas"];
    bounded(&status, &fields, "cannot be greater than readyReplicas");
    collisions(&status, old);
}

/// Checks the status of a ReplicaSet or a ReplicationController.
pub fn replicas(new: &At) {
    let status = new.at("status");
    counts(
        &status,
        &[
            "replicas",
            "fullyLabeledReplicas",
            "readyReplicas",
            "availableReplicas",
            "observedGeneration",
            "terminatingReplicas",
        ],
    );
    let fields = ["fullyLabeledReplicas", "readyReplicas", "availableReplicas"];
    bounded(&status, &fields, "cannot be greater than readyReplicas");
}

/// Checks the status of a StatefulSet.
pub fn stateful_set(new: &At, old: Option<&At>) {
    let status = new.at("status");
    counts(
        &status,
        &[
            "replicas",
            "readyReplicas",
            "currentReplicas",
            "updatedReplicas",
            "availableReplicas",
            "observedGeneration",
            "collisionCount",
        ],
    );
    let fields = ["readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas"];
    bounded(&status, &fields, "cannot be greater than status.readyReplicas");
    collisions(&status, old);
}

/// Checks the status of a DaemonSet.
pub fn daemon_set(new: &At, old: Option<&At>) {
    let status = new.at("status");
    counts(
        &status,
        &[
            "currentNumberScheduled",
            "numberMisscheduled",
            "desiredNumberScheduled",
            "numberReady",
            "observedGeneration",
            "updatedNumberScheduled",
            "numberAvailable",
            "numberUnavailable",
            "collisionCount",
        ],
    );
    collisions(&status, old);
}
