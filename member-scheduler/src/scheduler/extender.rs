//! Plugin extender: requests to a server of the cluster's owner, in Volcano's format.
//!
//! Verbs: `predicate` (may this task run on this node), `prioritize` (how good are these nodes for this
//! task), `jobEnqueueable` (may this job enter its queue), `queueOverused` (is its queue full), `jobReady`
//! (may this job start in its places), `preemptable` and `reclaimable` (which of these tasks may be evicted
//! for that one). Two verbs tell it of a cycle, `onSessionOpen` with all nodes, jobs and queues and `onSessionClose`;
//! nothing waits for their answers. A task contains its pod as the API server has it; nodes and jobs contain what the scheduler
//! knows of them. Deliberately absent: when to send requests ([`fleet_scheduler::extender`]).

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use fleet_scheduler::{
    Action, GroupId, NodeId, QueueId, Status,
    amounts::{CPU, MEMORY, PODS},
    extender::Answer,
    node::Cell,
    plugins::extender::Extender as ExtenderPolicy,
};
use futures::{StreamExt, stream};
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, api::DynamicObject};
use serde_json::{Value, json};

use super::binding::{Binding, Check};
use crate::context::Context;
use crate::outside;
use fleet_agent_ground::call;
use fleet_member_state::{MemberState, PodEntry, PodKey};

/// Most nodes scored in one request.
const SCORED_NODES: usize = 1_000;
/// Most concurrent requests about pods of one gang.
const CHECKS_AT_ONCE: usize = 16;
/// Volcano's code for a waiting task.
const PENDING: i64 = 1;
/// Volcano's code for a refused job.
const REJECT: i64 = -1;

/// A request about a group.
#[derive(Clone, Debug)]
pub(crate) struct Inquiry {
    policy: ExtenderPolicy,
    /// The task's pod, which is included in the request.
    pod: Option<PodKey>,
    body: Value,
    about: About,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum About {
    Entry,
    Queue,
    Nodes,
}

/// Candidates for eviction, about which the extender is asked first.
#[derive(Clone, Debug)]
pub(crate) struct Leave {
    policy: ExtenderPolicy,
    verb: String,
    body: Value,
}

/// What the extender is told of a cycle.
#[derive(Debug)]
pub(crate) struct Session {
    policy: ExtenderPolicy,
    body: Value,
}

/// The state before a cycle; `None` if the extender wants to hear of none.
pub(crate) fn session(state: &MemberState) -> Option<Session> {
    let policy = state.cluster.policy.extender()?;
    if policy.session_open.is_none() && policy.session_close.is_none() {
        return None;
    }
    let mut body = json!({});
    if policy.session_open.is_some() {
        let jobs = state.cluster.group_list().into_iter().filter_map(|group| job(state, group));
        let nodes = state.cluster.nodes.ids().map(|node| node_info(state, node, &[]));
        let queues = state.cluster.queue_ids().map(|queue| self::queue(state, queue));
        let named = |objects: &mut dyn Iterator<Item = Value>, key: &str| -> Value {
            objects.map(|object| (object[key].as_str().unwrap_or_default().to_owned(), object)).collect()
        };
        body = json!({
            "Jobs": named(&mut { jobs }, "UID"),
            "Nodes": named(&mut { nodes }, "Name"),
            "Queues": named(&mut { queues }, "UID"),
        });
    }
    Some(Session { policy: policy.clone(), body })
}

/// Tells the extender that a cycle began, and, once `ended` is, that it has ended.
pub(crate) async fn tell_of(session: Session, ended: tokio::sync::oneshot::Receiver<()>) {
    let Session { policy, body } = session;
    let tell = async |verb: &Option<String>, body: &Value| {
        let Some(verb) = verb else { return };
        let told = async {
            let client = outside::client(Duration::from_millis(policy.timeout_ms), false)?;
            outside::tell(client.post(format!("{}/{verb}", policy.url)).json(body)).await
        };
        if let Err(error) = told.await {
            tracing::debug!(error, verb, "the extender was not told of a cycle");
        }
    };
    tell(&policy.session_open, &body).await;
    // An agent that stops tells of no end.
    if ended.await.is_ok() {
        tell(&policy.session_close, &json!({})).await;
    }
}

/// The extender's answer about a gang's places.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ExtenderAnswer {
    Fine,
    /// Pods that must not be bound to their nodes, and why.
    Refused(BTreeMap<PodKey, String>),
    Silent(String),
}

/// The check of a pod before its binding; `None` if no extender wants it.
pub(crate) fn check(state: &MemberState, key: &PodKey, pod: &PodEntry, node: NodeId) -> Option<Arc<Check>> {
    let asks = |policy: &&ExtenderPolicy| policy.predicate.is_some() || policy.job_ready.is_some();
    let policy = state.cluster.policy.extender().filter(asks)?;
    // The pod already counts on the node; the extender expects the node without it.
    let own = pod.id.and_then(|id| state.cluster.find_pod(id)).map(|pod| state.cluster.class(pod.class));
    let node = node_info(state, node, own.map_or(&[], |class| &class.request));
    let task = task(state, key, pod);
    let group = pod.id.and_then(|id| state.cluster.find_pod(id)).map(|known| known.group);
    let job = group.and_then(|group| job(state, group)).filter(|_| policy.job_ready.is_some());
    Some(Arc::new(Check { policy: policy.clone(), task, node, job: job.unwrap_or_default() }))
}

/// The request whether the group may enter its queue.
pub(crate) fn may_enter(state: &MemberState, group: GroupId) -> Option<Inquiry> {
    let policy = state.cluster.policy.extender()?.clone();
    Some(Inquiry { policy, pod: None, body: json!({"job": job(state, group)?}), about: About::Entry })
}

/// The request whether the group's queue may hold more.
pub(crate) fn may_hold(state: &MemberState, group: GroupId) -> Option<Inquiry> {
    let policy = state.cluster.policy.extender()?.clone();
    let body = json!({"queue": queue(state, state.cluster.try_group(group)?.queue)});
    Some(Inquiry { policy, pod: None, body, about: About::Queue })
}

/// The request which of these pods may be evicted for the group; `None` if no extender wants it.
pub(crate) fn may_leave(
    state: &MemberState,
    taker: GroupId,
    action: Action,
    victims: &[PodKey],
) -> Option<Leave> {
    let policy = state.cluster.policy.extender()?.clone();
    let verb = if action == Action::Reclaim { &policy.reclaimable } else { &policy.preemptable };
    let verb = verb.clone()?;
    let group = state.cluster.try_group(taker)?;
    let first = group.pods.iter().find(|id| state.cluster.pod(**id).status == Status::Pipelined)?;
    let key = state.key_of(*first)?;
    let evictor = task(state, &key, state.pod(&key)?);
    let evictees: Vec<Value> =
        victims.iter().filter_map(|key| Some(task(state, key, state.pod(key)?))).collect();
    Some(Leave { policy, verb, body: json!({"evictor": evictor, "evictees": evictees}) })
}

/// Uids of pods that may be evicted. Without an answer none may, unless the extender is ignorable.
pub(crate) async fn allowed(leave: &Leave) -> BTreeSet<String> {
    let uids = |list: &Value| -> BTreeSet<String> {
        let tasks = list.as_array().into_iter().flatten();
        tasks.filter_map(|task| task["UID"].as_str().map(str::to_owned)).collect()
    };
    let all = uids(&leave.body["evictees"]);
    match post(&leave.policy, &leave.verb, &leave.body).await {
        // Zero: it abstains.
        Ok(said) if said["status"].as_i64() == Some(0) => all,
        Ok(said) => uids(&said["victims"]),
        Err(error) if leave.policy.ignorable => {
            tracing::debug!(error, "the extender is ignored");
            all
        }
        Err(error) => {
            tracing::warn!(error, "no answer from the extender; nothing is evicted");
            BTreeSet::new()
        }
    }
}

fn job(state: &MemberState, group: GroupId) -> Option<Value> {
    let known = state.cluster.try_group(group)?;
    let input = &known.input;
    let queue = &state.cluster.queue(known.queue).input.name;
    let minimum: BTreeMap<&str, String> = input
        .min_resources
        .iter()
        .flat_map(|resources| resources.iter())
        .map(|(name, amount)| (name.as_str(), fleet_resources::quantity::format(name.as_str(), amount)))
        .collect();
    Some(json!({
        "UID": format!("{}/{}", input.namespace, input.name),
        "Name": input.name,
        "Namespace": input.namespace,
        "Queue": queue,
        "Priority": input.priority,
        "MinAvailable": input.min_member,
        "PodGroup": {
            "metadata": {"name": input.name, "namespace": input.namespace},
            "spec": {"minMember": input.min_member, "queue": queue, "minResources": minimum},
        },
    }))
}

fn queue(state: &MemberState, queue: QueueId) -> Value {
    let queue = &state.cluster.queue(queue).input;
    json!({
        "UID": queue.name,
        "Name": queue.name,
        "Weight": queue.weight,
        "Queue": {"metadata": {"name": queue.name}, "spec": {"weight": queue.weight, "reclaimable": queue.reclaimable}},
    })
}

/// The request to score nodes for pods of the group's class.
pub(crate) fn scores(state: &mut MemberState, group: GroupId, class: u32) -> Option<Inquiry> {
    let policy = state.cluster.policy.extender()?.clone();
    let known = state.cluster.try_group(group)?;
    let id = known.pending.iter().map(|order| order.3).find(|id| state.cluster.pod(*id).class == class)?;
    let key = state.key_of(id)?;
    let nodes = state.cluster.best_nodes(id, SCORED_NODES);
    let nodes: Vec<Value> = nodes.into_iter().map(|node| node_info(state, node, &[])).collect();
    let body = json!({"task": task(state, &key, state.pod(&key)?), "nodes": nodes});
    Some(Inquiry { policy, pod: Some(key), body, about: About::Nodes })
}

/// Sends a request about a group. No answer counts as no, with the error, unless the extender is ignorable.
pub(crate) async fn answer(context: &Context, inquiry: Inquiry) -> Answer {
    let Inquiry { policy, pod, mut body, about } = inquiry;
    let verb = match about {
        About::Nodes => &policy.prioritize,
        About::Entry => &policy.enqueueable,
        About::Queue => &policy.queue_overused,
    };
    let said = async {
        if let Some(pod) = &pod {
            body["task"]["Pod"] = read(context, pod).await?;
        }
        let said = post(&policy, verb.as_deref().unwrap_or_default(), &body).await?;
        let refused = match about {
            About::Entry => (said["status"].as_i64() == Some(REJECT)).then_some("refused by the extender"),
            About::Queue => {
                (said["overused"] == true).then_some("the extender reports its queue as overused")
            }
            About::Nodes => None,
        };
        if about != About::Nodes {
            return Ok(refused.map_or(Answer::Yes, |why| Answer::No(why.to_owned())));
        }
        match said["errorMessage"].as_str().filter(|text| !text.is_empty()) {
            Some(error) => Err(error.to_owned()),
            None => Ok(Answer::Scores(points(&said["nodeScore"]))),
        }
    };
    match said.await {
        Ok(answer) => answer,
        Err(error) if policy.ignorable => {
            tracing::debug!(error, "the extender is ignored");
            if pod.is_some() { Answer::Scores(BTreeMap::new()) } else { Answer::Yes }
        }
        Err(error) => Answer::No(silence(&error)),
    }
}

fn points(scores: &Value) -> BTreeMap<String, f64> {
    let scores = scores.as_object().into_iter().flatten();
    scores.filter_map(|(node, score)| Some((node.clone(), score.as_f64()?))).collect()
}

fn silence(error: &str) -> String {
    format!("the extender does not answer: {error}")
}

/// Asks for every pod of a gang whether it may be bound to its node.
pub(crate) async fn verdict(context: &Context, bindings: &[Binding]) -> ExtenderAnswer {
    let checks: Vec<(PodKey, Arc<Check>)> =
        bindings.iter().filter_map(|binding| Some((binding.pod.clone(), binding.check.clone()?))).collect();
    if let Some((_, check)) = checks.first()
        && let Some(why) = not_ready(check).await
    {
        return ExtenderAnswer::Silent(why);
    }
    let checks = checks.into_iter().filter(|(_, check)| check.policy.predicate.is_some());
    let mut said = stream::iter(checks)
        .map(|(pod, check)| async move {
            let said = may_go(context, &check, &pod).await;
            (pod, check, said)
        })
        .buffer_unordered(CHECKS_AT_ONCE);
    let mut refused = BTreeMap::new();
    while let Some((pod, check, said)) = said.next().await {
        match said {
            Ok(None) => {}
            Ok(Some(why)) => drop(refused.insert(pod, why)),
            Err(error) if check.policy.ignorable => tracing::debug!(error, "the extender is ignored"),
            Err(error) => return ExtenderAnswer::Silent(silence(&error)),
        }
    }
    if refused.is_empty() { ExtenderAnswer::Fine } else { ExtenderAnswer::Refused(refused) }
}

/// Why a job that has its places may not start; `None`: it may.
async fn not_ready(check: &Check) -> Option<String> {
    let verb = check.policy.job_ready.as_deref()?;
    match post(&check.policy, verb, &json!({"job": check.job})).await {
        Ok(said) => (said["status"] == false).then(|| "the extender reports the job as not ready".to_owned()),
        Err(error) if check.policy.ignorable => {
            tracing::debug!(error, "the extender is ignored");
            None
        }
        Err(error) => Some(silence(&error)),
    }
}

/// Why the pod may not be bound to its node; `None`: it may.
async fn may_go(context: &Context, check: &Check, pod: &PodKey) -> Result<Option<String>, String> {
    let mut task = check.task.clone();
    task["Pod"] = read(context, pod).await?;
    let body = json!({"task": task, "node": check.node});
    let said = post(&check.policy, check.policy.predicate.as_deref().unwrap_or_default(), &body).await?;
    Ok(said["status"].as_str().filter(|why| !why.is_empty()).map(str::to_owned))
}

/// The pod as the API server has it.
async fn read(context: &Context, pod: &PodKey) -> Result<Value, String> {
    let resource = kube::discovery::ApiResource::erase::<Pod>(&());
    let pods: Api<DynamicObject> =
        Api::namespaced_with(context.member.client.clone(), &pod.namespace, &resource);
    let found = call(pods.get(&pod.name)).await.map_err(|error| format!("pod {}: {error}", pod.name))?;
    serde_json::to_value(found).map_err(|error| error.to_string())
}

async fn post(policy: &ExtenderPolicy, verb: &str, body: &Value) -> Result<Value, String> {
    let client = outside::client(Duration::from_millis(policy.timeout_ms), false)?;
    outside::ask(client.post(format!("{}/{verb}", policy.url)).json(body)).await
}

// ---- Volcano's structures, with its field names

fn task(state: &MemberState, key: &PodKey, pod: &PodEntry) -> Value {
    let group = pod.id.and_then(|id| state.cluster.find_pod(id)).map(|known| known.group);
    let group = group.and_then(|group| state.cluster.try_group(group));
    let requests = pod.requests();
    let scalars: BTreeMap<&str, i64> = requests
        .iter()
        .filter(|(name, _)| !["cpu", "memory"].contains(&name.as_str()))
        .map(|(name, amount)| (name.as_str(), amount * 1_000))
        .collect();
    let amounts = json!({
        "MilliCPU": requests.get("cpu"), "Memory": requests.get("memory"), "ScalarResources": scalars,
    });
    json!({
        "UID": pod.uid,
        "Job": group.map(|group| format!("{}/{}", group.input.namespace, group.input.name)),
        "Name": key.name,
        "Namespace": key.namespace,
        "TaskRole": pod.component,
        "Resreq": amounts,
        "InitResreq": amounts,
        "Status": PENDING,
        "Priority": pod.priority,
        "Preemptable": pod.preemptable,
        "BestEffort": requests.iter().next().is_none(),
    })
}

/// The node without the requests of `own`.
fn node_info(state: &MemberState, id: NodeId, own: &[(u16, i64)]) -> Value {
    let cluster = &state.cluster;
    let node = cluster.nodes.get(id);
    let mut cells: Vec<Cell> = cluster.nodes.cells(id).to_vec();
    own.iter().for_each(|(place, amount)| cells[usize::from(*place)].used -= amount);
    let amounts = |of: fn(&Cell) -> i64| {
        let amount = |place: usize| of(&cells[place]) / cluster.dimensions.parts(place).max(1);
        let scalars: BTreeMap<&str, i64> = (0..cells.len())
            .filter(|place| ![CPU, MEMORY, PODS].contains(place))
            .map(|place| (cluster.dimensions.name(place).as_str(), amount(place) * 1_000))
            .collect();
        json!({"MilliCPU": amount(CPU), "Memory": amount(MEMORY), "ScalarResources": scalars})
    };
    let taints = node.taints.iter().map(|taint| serde_json::to_value(taint).unwrap_or_default());
    json!({
        "Name": &*node.name,
        "Node": {
            "metadata": {"name": &*node.name, "labels": node.labels},
            "spec": {"taints": taints.collect::<Vec<_>>(), "unschedulable": node.unschedulable},
        },
        "Allocatable": amounts(|cell| cell.allocatable),
        "Used": amounts(|cell| cell.used),
        "Idle": amounts(Cell::idle),
        "Releasing": amounts(|cell| cell.releasing),
        "Pipelined": amounts(|cell| cell.pipelined),
    })
}

#[cfg(test)]
mod tests;
