//! One review: an AdmissionReview (`admission.k8s.io/v1`) in, the same with an answer out.

use std::time::Duration;

use serde::Deserialize;
use serde_json::{Map, Value, json};

use fleet_api::names::MANAGED_LABEL;
use fleet_job_controllers::{flow_problem, volcano_job_problem};

use super::queues::Queues;
use fleet_agent_ground::{CallError, Object, controller_of};
use fleet_member_state::HyperNode;

/// Timeout of the member's API server for queues.
const READ_TIMEOUT: Duration = Duration::from_secs(3);

/// Fields of a Job's spec that may change (tasks are compared one by one), and those of a task.
const CHANGEABLE: [&str; 3] = ["minAvailable", "priorityClassName", "tasks"];
const CHANGEABLE_OF_TASK: [&str; 2] = ["minAvailable", "replicas"];
const MAY_CHANGE: &str =
    "allowed: changes of minAvailable, priorityClassName, tasks[].replicas and tasks[].minAvailable";

/// The request of the API server, as far as it is read.
#[derive(Debug, Deserialize)]
pub(super) struct Review {
    request: Request,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Request {
    uid: String,
    kind: Kind,
    #[serde(default)]
    name: String,
    operation: String,
    object: Option<Object>,
    old_object: Option<Object>,
}

#[derive(Debug, Deserialize)]
struct Kind {
    kind: String,
}

enum Said {
    Allowed,
    /// Admitted, because it could not be checked.
    Unseen(String),
    Refused(String),
}

/// Answers one review.
pub(super) async fn answer(review: Review, queues: &Queues) -> Value {
    let Review { request } = review;
    let mut response = json!({"uid": request.uid, "allowed": true});
    match look_at(&request, queues).await {
        Said::Allowed => {}
        Said::Unseen(why) => response["warnings"] = json!([why]),
        Said::Refused(why) => {
            response["allowed"] = false.into();
            response["status"] = json!({"code": 422, "reason": "Invalid", "message": why});
        }
    }
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response})
}

async fn look_at(request: &Request, queues: &Queues) -> Said {
    match (request.kind.kind.as_str(), request.operation.as_str(), &request.object) {
        ("Queue", "DELETE", _) => {
            check_result(&format!("queue {}: ", request.name), queues.refuse_end(&request.name)).await
        }
        ("Queue", _, Some(queue)) => {
            let same = request.old_object.as_ref().is_some_and(|old| {
                old.spec == queue.spec && old.metadata.annotations == queue.metadata.annotations
            });
            if same {
                return Said::Allowed;
            }
            check_result(&format!("queue {}, ", queue.name()), queues.refuse_queue(queue)).await
        }
        ("Job", "UPDATE", Some(job)) if !is_managed(job) => {
            let changed = request.old_object.as_ref().and_then(|old| fixed_field(&old.spec, &job.spec));
            changed.map_or(Said::Allowed, |field| {
                let (namespace, name) = (job.namespace(), job.name());
                Said::Refused(format!(
                    "job {namespace}/{name}, field spec.{field}: found a change; {MAY_CHANGE}"
                ))
            })
        }
        ("HyperNode", _, Some(node)) => {
            HyperNode::read(node.name(), &node.spec).problem.map_or(Said::Allowed, Said::Refused)
        }
        ("JobFlow", _, Some(flow)) => {
            let (namespace, name) = (flow.namespace(), flow.name());
            flow_problem(flow)
                .map_or(Said::Allowed, |why| Said::Refused(format!("jobflow {namespace}/{name}, {why}")))
        }
        (kind, "CREATE", Some(object)) => of_work(kind, object, queues).await,
        _ => Said::Allowed,
    }
}

/// Result of a check of queues, with the name of the object.
async fn check_result(what: &str, look: impl Future<Output = Result<Option<String>, CallError>>) -> Said {
    match tokio::time::timeout(READ_TIMEOUT, look).await {
        Ok(Ok(None)) => Said::Allowed,
        Ok(Ok(Some(why))) => Said::Refused(format!("{what}{why}")),
        Ok(Err(error)) => Said::Unseen(format!("{what}the queues could not be looked up: {error}")),
        Err(_) => {
            let within = READ_TIMEOUT.as_secs();
            Said::Unseen(format!("{what}the queues could not be looked up within {within} s"))
        }
    }
}

/// Created by Fleet.
fn is_managed(object: &Object) -> bool {
    object.metadata.labels.as_ref().is_some_and(|all| all.contains_key(MANAGED_LABEL))
}

/// The first field of a Job's spec that changed and must not.
fn fixed_field(before: &Value, after: &Value) -> Option<String> {
    let without = |value: &Value, names: &[&str]| {
        let mut fields = value.as_object().cloned().unwrap_or_default();
        names.iter().for_each(|name| drop(fields.remove(*name)));
        fields
    };
    let tasks = |spec: &Value| spec["tasks"].as_array().cloned().unwrap_or_default();
    let (old, new) = (tasks(before), tasks(after));
    if old.len() != new.len() {
        return Some("tasks".to_owned());
    }
    for (at, (old, new)) in old.iter().zip(&new).enumerate() {
        let fixed = |task: &Value| without(task, &CHANGEABLE_OF_TASK);
        if let Some(name) = first_difference(&fixed(old), &fixed(new)) {
            return Some(format!("tasks[{at}].{name}"));
        }
    }
    let fixed = |spec: &Value| without(spec, &CHANGEABLE);
    first_difference(&fixed(before), &fixed(after))
}

fn first_difference(one: &Map<String, Value>, other: &Map<String, Value>) -> Option<String> {
    let names = one.keys().chain(other.keys());
    names.filter(|name| one.get(*name) != other.get(*name)).min().cloned()
}

async fn of_work(kind: &str, object: &Object, queues: &Queues) -> Said {
    if is_managed(object) || controller_of(&object.metadata).is_some() {
        return Said::Allowed;
    }
    let name = object.metadata.name.as_deref().or(object.metadata.generate_name.as_deref());
    let (of_job, kind, namespace) = (kind == "Job", kind.to_lowercase(), object.namespace());
    if let Some(why) = volcano_job_problem(object).filter(|_| of_job) {
        return Said::Refused(format!("{kind} {namespace}/{}, {why}", name.unwrap_or_default()));
    }
    let Some(queue) = object.spec["queue"].as_str().filter(|name| !name.is_empty()) else {
        return Said::Allowed;
    };
    let what = format!("{kind} {namespace}/{}, field spec.queue: ", name.unwrap_or_default());
    check_result(&what, queues.refuse_work(queue)).await
}
