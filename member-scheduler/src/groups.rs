//! PodGroups, Queues and PriorityClasses: their specs are inputs of the scheduler; changed results are
//! written to their statuses.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use fleet_api::patch::merge_diff;
use fleet_scheduler::{
    GroupId, Phase, QueueInput,
    queue::{DEFAULT_QUEUE, ROOT_QUEUE},
};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::queue_objects::read_queue;
use crate::{
    commands::{self, CLOSED_BY_PARENT},
    hyper_nodes::HyperNodes,
};
use crate::{context::Context, scheduler::status};
use fleet_agent_ground::{
    Admissions, CallError, Event, Object, controller_of, requests as writes, resource,
    volcano::{pod_groups, queues},
};
use fleet_member_state::{GangKey, MemberState, PodGroupObject, PodKey};

/// Most pending status writes of PodGroups.
const GROUP_WRITES: usize = 64;
/// Least time between two status writes of a queue.
const QUEUE_INTERVAL: Duration = Duration::from_secs(1);

pub(crate) fn hyper_nodes() -> kube::discovery::ApiResource {
    resource("topology.volcano.sh", "v1alpha1", "HyperNode", "hypernodes")
}

pub(crate) fn priority_class(told: Event<Object>, state: &mut MemberState) {
    match told {
        Event::Apply(class) => state.set_priority_class(class.name(), class.rest["value"].as_i64()),
        Event::Gone((_, name)) => state.set_priority_class(&name, None),
        Event::Listed => {}
    }
}

/// The scheduler name to which these PodGroups, Queues and Commands belong.
const VOLCANO: &str = "volcano";

/// Written and desired statuses.
#[derive(Debug, Default)]
pub(crate) struct Statuses {
    /// Volcano manages the member's Queues, HyperNodes, Commands and PodGroups; this agent writes only the
    /// status of PodGroups whose pods it places.
    beside_volcano: bool,
    /// Groups whose statuses may be outdated.
    groups: BTreeSet<(String, String)>,
    /// Written statuses of queues, by name.
    queues: BTreeMap<String, Value>,
    due_queues: BTreeSet<String>,
    /// Queues without a parent, which get one: as in Volcano, the root.
    orphans: BTreeSet<String>,
    queues_at: Option<Instant>,
    queues_written: Option<Instant>,
    in_flight: usize,
    pub hyper_nodes: HyperNodes,
    pub commands: commands::Commands,
    /// Number of status computations, for the ids of conditions.
    looks: u64,
}

/// One status to write, or the parent of a queue.
pub(crate) struct StatusWrite {
    of: Of,
    uid: String,
    patch: Value,
    wanted: Value,
}

#[derive(Clone, Debug)]
enum Of {
    Group(String, String),
    Queue(String),
    /// The `spec.parent` of a queue.
    Parent(String),
    HyperNode(String),
}

#[derive(Debug)]
pub(crate) struct Written {
    of: Of,
    /// The written status; `None` if the write failed.
    status: Option<Value>,
    gone: bool,
}

impl StatusWrite {
    pub async fn perform(self, context: Arc<Context>) -> Written {
        let mut object = Object::default();
        let kind = match &self.of {
            Of::Group(namespace, name) => {
                object.metadata.namespace = Some(namespace.clone());
                object.metadata.name = Some(name.clone());
                pod_groups()
            }
            Of::Queue(name) | Of::Parent(name) => {
                object.metadata.name = Some(name.clone());
                queues()
            }
            Of::HyperNode(name) => {
                object.metadata.name = Some(name.clone());
                hyper_nodes()
            }
        };
        object.metadata.uid = Some(self.uid).filter(|uid| !uid.is_empty());
        let (part, patch) = match &self.of {
            Of::Parent(_) => (None, self.patch),
            _ => (Some("status"), json!({"status": self.patch})),
        };
        let answer: Result<Object, CallError> =
            writes::patch(&context.member.client, &kind, &object, part, &patch).await;
        match answer {
            Ok(_) => Written { of: self.of, status: Some(self.wanted), gone: false },
            Err(error) => {
                tracing::debug!(of = ?self.of, %error, "a status was not written");
                Written { of: self.of, status: None, gone: error.is_not_found() }
            }
        }
    }
}

/// A PodGroup for pods without one, and the pods that get its name.
pub(crate) struct Description {
    pub gang: GangKey,
    pub object: Value,
    pub pods: Vec<PodKey>,
}

impl Description {
    /// Returns the gang if it must be tried again.
    pub async fn perform(self, context: Arc<Context>) -> Option<GangKey> {
        match writes::create::<Object>(&context.member.client, &self.object).await {
            Err(error) if error.is_conflict() => {}
            // A member without the definition, or a terminating namespace.
            Err(error) if error.is_not_found() => return None,
            Err(error) => {
                tracing::debug!(gang = ?self.gang, %error, "cannot create a PodGroup");
                return Some(self.gang);
            }
            Ok(_) => {}
        }
        let pods = resource("", "v1", "Pod", "pods");
        let name = &self.object["metadata"]["name"];
        let patch = json!({"metadata": {"annotations": {"scheduling.k8s.io/group-name": name}}});
        let mut failed = false;
        for pod in &self.pods {
            let mut object = Object::default();
            object.metadata.namespace = Some(pod.namespace.clone());
            object.metadata.name = Some(pod.name.clone());
            let written = writes::patch(&context.member.client, &pods, &object, None, &patch).await;
            failed |= written.is_err_and(|error| !error.is_not_found());
        }
        failed.then_some(self.gang)
    }
}

impl Statuses {
    /// `scheduler_names`: names whose pods this agent places.
    pub fn new(scheduler_names: &BTreeSet<String>) -> Self {
        Self { beside_volcano: !scheduler_names.contains(VOLCANO), ..Self::default() }
    }

    /// Commands whose writes may start now.
    pub fn commands_due(&mut self, state: &MemberState, now: Instant) -> Vec<commands::CommandWrite> {
        if self.beside_volcano { Vec::new() } else { self.commands.due(state, now) }
    }

    pub fn pod_group(&mut self, told: Event<Object>, state: &mut MemberState, admissions: &Admissions) {
        match told {
            Event::Apply(group) => {
                let object = read_group(&group);
                self.groups.insert((object.namespace.clone(), object.name.clone()));
                state.put_pod_group(&object);
            }
            Event::Gone((namespace, name)) => remove(state, admissions, &namespace, &name),
            Event::Listed => {}
        }
    }

    pub fn queue(&mut self, told: Event<Object>, state: &mut MemberState) {
        match told {
            Event::Apply(queue) => {
                self.queues.insert(queue.name().to_owned(), queue.status.clone());
                self.due_queues.insert(queue.name().to_owned());
                if queue.annotation(CLOSED_BY_PARENT) == Some("true") {
                    self.commands.closed_by_parent.insert(queue.name().to_owned());
                } else {
                    self.commands.closed_by_parent.remove(queue.name());
                }
                let input = read_queue(&queue);
                if input.parent.is_none() && queue.name() != ROOT_QUEUE && !self.beside_volcano {
                    self.orphans.insert(queue.name().to_owned());
                } else {
                    self.orphans.remove(queue.name());
                }
                state.cluster.put_queue(input);
            }
            Event::Gone((_, name)) => self.queue_gone(&name, state),
            Event::Listed => {}
        }
    }

    fn queue_gone(&mut self, name: &str, state: &mut MemberState) {
        self.queues.remove(name);
        self.commands.closed_by_parent.remove(name);
        self.orphans.remove(name);
        state.cluster.remove_queue(name);
        // Pods without a queue are placed as well.
        if name == DEFAULT_QUEUE {
            state.cluster.put_queue(QueueInput::named(DEFAULT_QUEUE));
        }
    }

    /// A group's pods have changed.
    pub fn group_changed(&mut self, id: GroupId, state: &mut MemberState, admissions: &Admissions) {
        let Some(group) = state.cluster.try_group(id) else { return };
        let key = (group.input.namespace.to_string(), group.input.name.to_string());
        let Some(object) = state.pod_groups.get(&key) else {
            let phase = status::phase(group);
            return state.cluster.set_phase(id, phase);
        };
        if let Some(job) = &object.job {
            let verdict = match (group.phase, group.why.as_deref()) {
                (Phase::Pending, None) => return,
                (Phase::Pending, Some(why)) => Err(why.to_owned()),
                _ => Ok(()),
            };
            return admissions.set(job, Some(verdict));
        }
        let phase = status::phase(group);
        state.cluster.set_phase(id, phase);
        self.groups.insert(key);
    }

    pub fn queues_changed(&mut self, state: &mut MemberState, now: Instant) {
        for id in state.cluster.take_changed_queues() {
            let name = state.cluster.queue(id).input.name.to_string();
            if self.queues.contains_key(&name) {
                self.due_queues.insert(name);
            }
        }
        if !self.due_queues.is_empty() && self.queues_at.is_none() {
            self.queues_at = Some(self.queues_written.map_or(now, |at| at + QUEUE_INTERVAL));
        }
    }

    pub fn next_look(&self) -> Option<Instant> {
        self.queues_at.into_iter().chain(self.commands.next_look()).min()
    }

    /// Writes that may start now.
    pub fn due(&mut self, state: &mut MemberState, context: &Context, now: Instant) -> Vec<StatusWrite> {
        let mut writes = Vec::new();
        let time = format!("{:.0}", context.clock.now());
        while self.in_flight + writes.len() < GROUP_WRITES
            && let Some(key) = self.groups.pop_first()
        {
            let Some(known) = state.pod_groups.get_mut(&key) else { continue };
            let others = self.beside_volcano
                && state.cluster.try_group(known.group).is_none_or(|group| group.pods.is_empty());
            if known.job.is_some() || known.busy || others {
                continue;
            }
            self.looks += 1;
            let session = uuid::Uuid::new_v5(
                &uuid::Uuid::NAMESPACE_OID,
                format!("{}/{}/{time}", known.uid, self.looks).as_bytes(),
            );
            let wanted =
                status::of_group(&state.cluster, known.group, &known.status, &time, &session.to_string());
            let Some(wanted) = wanted else { continue };
            let Some(patch) = merge_diff(&known.status, &wanted) else { continue };
            known.busy = true;
            let uid = known.uid.clone();
            writes.push(StatusWrite { of: Of::Group(key.0, key.1), uid, patch, wanted });
        }
        while !self.beside_volcano
            && self.in_flight + writes.len() < GROUP_WRITES
            && let Some((name, known, wanted)) = self.hyper_nodes.next(state, &time)
        {
            let Some(patch) = merge_diff(&known, &wanted) else { continue };
            writes.push(StatusWrite { of: Of::HyperNode(name), uid: String::new(), patch, wanted });
        }
        while self.in_flight + writes.len() < GROUP_WRITES
            && let Some(name) = self.orphans.pop_first()
        {
            let patch = json!({"spec": {"parent": ROOT_QUEUE}});
            writes.push(StatusWrite { of: Of::Parent(name), uid: String::new(), patch, wanted: Value::Null });
        }
        if self.queues_at.is_some_and(|at| at <= now) {
            self.queues_at = None;
            self.queues_written = Some(now);
            let due = std::mem::take(&mut self.due_queues);
            for name in due.into_iter().filter(|_| !self.beside_volcano) {
                let Some(known) = self.queues.get(&name) else { continue };
                let Some(id) = state.cluster.find_queue(&name) else { continue };
                let Some(wanted) = status::of_queue(&state.cluster, id, known, &time) else { continue };
                let Some(patch) = merge_diff(known, &wanted) else { continue };
                writes.push(StatusWrite { of: Of::Queue(name), uid: String::new(), patch, wanted });
            }
        }
        self.in_flight += writes.len();
        writes
    }

    pub fn written(&mut self, written: Written, state: &mut MemberState) {
        self.in_flight -= 1;
        match written.of {
            Of::Group(namespace, name) => {
                let key = (namespace, name);
                let Some(known) = state.pod_groups.get_mut(&key) else { return };
                known.busy = false;
                if let Some(status) = written.status {
                    known.status = status;
                }
                if !written.gone {
                    self.groups.insert(key);
                }
            }
            Of::Queue(name) => {
                if let (Some(status), Some(known)) = (written.status, self.queues.get_mut(&name)) {
                    *known = status;
                }
            }
            // A write that failed is tried again when the queue changes.
            Of::Parent(_) => {}
            Of::HyperNode(name) => {
                if let Some(status) = written.status {
                    self.hyper_nodes.written(&name, status);
                }
            }
        }
    }
}

fn remove(state: &mut MemberState, admissions: &Admissions, namespace: &str, name: &str) {
    let known = state.pod_groups.get(&(namespace.to_owned(), name.to_owned()));
    if let Some(job) = known.and_then(|known| known.job.clone()) {
        admissions.set(&job, None);
    }
    state.remove_pod_group(namespace, name);
}

fn read_group(group: &Object) -> PodGroupObject {
    let owner = controller_of(&group.metadata);
    let of_volcano =
        owner.filter(|owner| owner.kind == "Job" && owner.api_version.starts_with("batch.volcano.sh/"));
    PodGroupObject {
        namespace: group.namespace().to_owned(),
        name: group.name().to_owned(),
        uid: group.uid().to_owned(),
        job: of_volcano.map(|owner| owner.uid.clone()),
        created: group.metadata.creation_timestamp.as_ref().map_or(0, |time| time.0.as_second()),
        annotations: group.metadata.annotations.clone().unwrap_or_default(),
        spec: group.spec.clone(),
        status: group.status.clone(),
        priority_class: group.spec["priorityClassName"]
            .as_str()
            .filter(|class| !class.is_empty())
            .map(str::to_owned),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_without_a_parent_gets_the_root() {
        let due = |names: &[&str], name: &str, parent: Value| {
            let names: BTreeSet<String> = names.iter().map(ToString::to_string).collect();
            let mut statuses = Statuses::new(&names);
            let mut state = MemberState::new(names);
            let queue = json!({"metadata": {"name": name}, "spec": {"parent": parent}});
            statuses.queue(Event::Apply(serde_json::from_value(queue).expect("a queue")), &mut state);
            statuses.orphans.into_iter().collect::<Vec<_>>()
        };
        let own = ["fleet", "volcano"];
        assert_eq!(due(&own, "q", Value::Null), ["q"]);
        assert_eq!(due(&own, "default", json!("")), ["default"]);
        assert_eq!(due(&own, "q", json!("team")), [""; 0]);
        assert_eq!(due(&own, "root", Value::Null), [""; 0]);
        assert_eq!(due(&["fleet"], "q", Value::Null), [""; 0], "beside Volcano it does so");
    }

    /// On the API server, once.
    #[tokio::test]
    async fn the_parent_of_a_queue_is_written() {
        let fixture =
            fleet_agent_fixture::Fixture::new(&[fleet_agent_ground::JobController::VolcanoJob]).await;
        fixture.create_node("n1").await;
        crate::fixture::run(&fixture, "actions: allocate\ntiers:\n- plugins:\n  - name: gang\n");
        let queue = json!({"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue",
            "metadata": {"name": "orphan"}, "spec": {"weight": 2}});
        let client = fixture.member.clone();
        writes::create::<Object>(&client, &queue).await.expect("created");
        let read = async || writes::get::<Object>(&client, &queues(), "", "orphan").await.expect("an answer");
        let parent = |queue: Option<Object>| queue.map(|queue| queue.spec["parent"].clone());
        for _ in 0..500 {
            if parent(read().await) == Some(json!("root")) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let queue = read().await.expect("it stands");
        assert_eq!((&queue.spec["parent"], &queue.spec["weight"]), (&json!("root"), &json!(2)));
    }

    #[tokio::test]
    async fn beside_volcano_its_commands_are_left_to_it() {
        let command: Object = serde_json::from_value(json!({
            "metadata": {"name": "c", "namespace": "default"}, "action": "CloseQueue",
            "target": {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "name": "q", "uid": "u"},
        }))
        .expect("a command");
        let due = |names: &[&str]| {
            let names: BTreeSet<String> = names.iter().map(ToString::to_string).collect();
            let mut statuses = Statuses::new(&names);
            statuses.commands.change(Event::Apply(command.clone()));
            statuses.commands_due(&MemberState::new(names), Instant::now()).len()
        };
        assert_eq!(due(&["fleet"]), 0);
        assert_eq!(due(&["fleet", "volcano"]), 1);
    }
}
