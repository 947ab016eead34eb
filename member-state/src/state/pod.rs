//! The scheduler's view of a pod.

use crate::shape;
use std::{collections::BTreeSet, sync::Arc};

use fleet_api::names;
use fleet_placement::PodShape;
use fleet_scheduler::{Labels, PodId, PodSpec, Status, devices::Part, group::Topology};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};

use super::{
    gangs::GangKey,
    pod_key::PodKey,
    pod_owner::{self, PodOwner},
};
use fleet_agent_ground::lean::{LeanGate, LeanPod};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodEntry {
    pub uid: String,
    /// Whether this agent binds pods with its `schedulerName`.
    pub ours: bool,
    pub scheduler_name: String,
    pub node: Option<String>,
    /// Node of a binding in flight.
    pub assumed: Option<String>,
    pub finished: bool,
    pub deleting: bool,
    pub gated: bool,
    pub spec: Arc<PodSpec>,
    /// Why its requests cannot be parsed; such a pod is never bound.
    pub unreadable: Option<String>,
    pub gang: GangKey,
    pub gang_size: usize,
    pub component: String,
    /// Last `-` part of the name, if it is a number.
    pub index: Option<usize>,
    pub reservation: Option<String>,
    /// It runs on the cells of its reservation and nowhere else, also when that is not held.
    pub on_cells: bool,
    /// For a pod that names no reservation: its possible job.
    pub pod_owner: Option<Arc<PodOwner>>,
    /// Other gates of a pod with Fleet's gate, which waits until its place is reserved.
    pub held_back: Option<Arc<[String]>>,
    /// Fleet's gate was removed, and the watch has not shown that yet.
    pub let_go: bool,
    /// A pod of a DaemonSet, or one that the node runs itself.
    pub of_node: bool,
    pub priority: i32,
    pub created: Option<Timestamp>,
    pub started: Option<Timestamp>,
    /// Why it waits, from its condition.
    pub told: Option<String>,
    /// Its id in the scheduler.
    pub id: Option<PodId>,
    pub phase: Phase,
    /// The scheduler has decided to evict it, and the watch has not shown that yet.
    pub evicting: bool,
    /// Owner of the PodGroup that is created for it, and possibly for other pods of that owner.
    pub group_owner: Option<Arc<Value>>,
    /// The name of its group is to be written on it.
    pub unnamed: bool,
    /// The queue that the pod names itself.
    pub queue: Option<String>,
    pub labels: Labels,
    /// Parts of devices in its annotations.
    pub parts: Vec<Part>,
    pub preemptable: bool,
    pub never_preempts: bool,
    pub critical: bool,
    /// Seconds after its start during which it is no victim (plugin cdp).
    pub cooldown_s: i64,
    /// The network domain that it requires together with its gang.
    pub topology: Option<Topology>,
    /// Kept if a PodGroup is to be created.
    pub priority_class: Option<String>,
}

/// A pod's phase, as far as places depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    Pending,
    Running,
    Succeeded,
    Failed,
    Unknown,
}

impl Phase {
    fn read(text: Option<&str>) -> Self {
        match text {
            Some("Running") => Self::Running,
            Some("Succeeded") => Self::Succeeded,
            Some("Failed") => Self::Failed,
            Some("Unknown") => Self::Unknown,
            _ => Self::Pending,
        }
    }
}

/// Priority classes of pods that must always run.
const CRITICAL_CLASSES: [&str; 2] = ["system-cluster-critical", "system-node-critical"];
/// Pods of this namespace are never victims.
const SYSTEM_NAMESPACE: &str = "kube-system";

fn is_true(value: Option<&String>) -> bool {
    value.is_some_and(|value| value == "true")
}

/// The other gates of a pod with Fleet's gate.
fn held_back(gates: &[LeanGate]) -> Option<Arc<[String]>> {
    let (ours, others): (Vec<_>, Vec<_>) = gates.iter().partition(|gate| gate.name == names::PLACES_GATE);
    (!ours.is_empty()).then(|| others.iter().map(|gate| gate.name.clone()).collect())
}

/// The scheduler whose users expect PodGroups.
const VOLCANO: &str = "volcano";

/// The annotation takes precedence over the label; an invalid value counts as no.
fn is_preemptable(word: Option<&String>) -> bool {
    word.is_none_or(|text| text == "true")
}

fn owner_kind(meta: &ObjectMeta) -> Option<&str> {
    Some(&meta.owner_references.as_ref()?.first()?.kind)
}

/// The owner of the PodGroup created for a pod: its controller, or the pod itself.
fn group_owner(meta: &ObjectMeta) -> Value {
    match meta.owner_references.as_ref().and_then(|owners| owners.first()) {
        Some(owner) => {
            json!({"apiVersion": owner.api_version, "kind": owner.kind, "name": owner.name, "uid": owner.uid,
            "controller": true, "blockOwnerDeletion": true})
        }
        None => {
            json!({"apiVersion": "v1", "kind": "Pod", "name": meta.name, "uid": meta.uid, "controller": true,
            "blockOwnerDeletion": true})
        }
    }
}

/// The network topology in Volcano's annotations.
fn topology<'a>(annotation: impl Fn(&str) -> Option<&'a String>) -> Option<Topology> {
    let hard = match annotation("volcano.sh/network-topology-mode")?.as_str() {
        "hard" => true,
        "soft" => false,
        _ => return None,
    };
    let tier = annotation("volcano.sh/network-topology-highest-tier");
    Some(Topology { hard, highest_tier: tier.and_then(|tier| tier.parse().ok()) })
}

/// Label or annotation: how long a pod is no victim after its start.
const COOLDOWN: &str = "volcano.sh/cooldown-time";

/// Size of a gang that is unknown until its PodGroup exists.
pub const UNKNOWN_SIZE: usize = usize::MAX >> 2;

impl PodEntry {
    /// `None` for a pod without a uid, which no API server sends.
    pub fn read(pod: &LeanPod, scheduler_names: &BTreeSet<String>) -> Option<Self> {
        let key = PodKey::of(pod);
        let meta = &pod.metadata;
        let annotation = |name: &str| meta.annotations.as_ref().and_then(|all| all.get(name));
        let label = |name: &str| meta.labels.as_ref().and_then(|all| all.get(name));
        let scheduler_name = pod.spec.scheduler_name.clone().unwrap_or_default();
        let (shape, unreadable) = match shape::shape(&pod.spec) {
            Ok(shape) => (shape, None),
            Err(error) => (PodShape::default(), Some(error.to_string())),
        };
        let extras = crate::extras::read(&pod.spec, &key.namespace, annotation);
        let extras = (extras != fleet_scheduler::Extras::default()).then(|| Arc::new(extras));
        let asks = extras.as_ref().map_or(&[][..], |extras| &extras.devices);
        let parts =
            if asks.is_empty() { Vec::new() } else { crate::devices::parts(meta.annotations.as_ref(), asks) };
        let phase = Phase::read(pod.status.phase.as_deref());
        let class = pod.spec.priority_class_name.as_deref().unwrap_or_default();
        let preemptable =
            is_preemptable(annotation("volcano.sh/preemptable").or(label("volcano.sh/preemptable")));
        let group =
            annotation("scheduling.k8s.io/group-name").or(annotation("scheduling.volcano.sh/group-name"));
        let gang = annotation(names::GANG_ANNOTATION);
        // Volcano's users expect a PodGroup, whoever creates the pods.
        let described = group.is_none() || group == gang;
        let scheduler_name_is_volcano = scheduler_name == VOLCANO;
        let owner = (scheduler_name_is_volcano && described).then(|| group_owner(meta));
        let own = owner.as_ref().filter(|_| group.or(gang).is_none());
        let own = own.map(|owner| format!("podgroup-{}", owner["uid"].as_str().unwrap_or_default()));
        let least = annotation("scheduling.volcano.sh/group-min-member").filter(|_| own.is_some());
        let size = annotation(names::GANG_SIZE_ANNOTATION).or(least).and_then(|size| size.parse().ok());
        let size = size.or(own.is_some().then_some(1));
        let group = group.or(gang).or(own.as_ref()).map(String::as_str);
        let reservation = annotation(names::RESERVATION_ANNOTATION).cloned();
        Some(Self {
            uid: meta.uid.clone()?,
            ours: scheduler_names.contains(&scheduler_name),
            scheduler_name,
            node: pod.spec.node_name.clone().filter(|node| !node.is_empty()),
            assumed: None,
            finished: matches!(phase, Phase::Succeeded | Phase::Failed),
            deleting: meta.deletion_timestamp.is_some(),
            gated: !pod.spec.scheduling_gates.is_empty(),
            spec: Arc::new(PodSpec { shape, extras }),
            unreadable,
            gang: GangKey::new(&key, group),
            gang_size: size.unwrap_or(if group.is_some() { UNKNOWN_SIZE } else { 1 }),
            component: pod_owner::role(meta),
            index: pod_owner::number(meta, &key.name),
            pod_owner: if reservation.is_none() { PodOwner::read(meta).map(Arc::new) } else { None },
            on_cells: reservation.is_some() && is_true(annotation(names::ON_CELLS_ANNOTATION)),
            reservation,
            held_back: held_back(&pod.spec.scheduling_gates),
            let_go: false,
            of_node: matches!(owner_kind(meta), Some("DaemonSet" | "Node")),
            priority: pod.spec.priority.unwrap_or(0),
            created: meta.creation_timestamp.as_ref().map(|time| time.0),
            started: pod.status.start_time.as_ref().map(|time| time.0),
            told: None,
            id: None,
            phase,
            evicting: false,
            group_owner: owner.map(Arc::new),
            unnamed: own.is_some(),
            queue: annotation("scheduling.volcano.sh/queue-name")
                .or(annotation("volcano.sh/queue-name"))
                .cloned(),
            parts,
            labels: Labels::new(meta.labels.as_ref().unwrap_or(&Default::default())),
            preemptable,
            never_preempts: pod.spec.preemption_policy.as_deref() == Some("Never"),
            priority_class: pod.spec.priority_class_name.clone().filter(|_| scheduler_name_is_volcano),
            cooldown_s: label(COOLDOWN)
                .or(annotation(COOLDOWN))
                .and_then(|text| fleet_scheduler::config::duration_s(text))
                .unwrap_or(0),
            topology: topology(annotation),
            critical: CRITICAL_CLASSES.contains(&class) || key.namespace == SYSTEM_NAMESPACE,
        })
    }

    /// Keeps state that the API server does not have.
    pub fn inherit(&mut self, known: &Self) {
        if self.node.is_none() {
            self.assumed.clone_from(&known.assumed);
            self.told.clone_from(&known.told);
        }
        if self.spec == known.spec {
            self.spec = known.spec.clone();
        }
        self.let_go = known.let_go && self.held_back.is_some();
        self.id = known.id;
        self.evicting = known.evicting && !self.deleting && !self.finished;
    }

    pub fn requests(&self) -> &fleet_resources::Resources {
        &self.spec.shape.requests
    }

    /// Its status in the scheduler's terms.
    pub fn status(&self) -> Status {
        match self.phase {
            Phase::Succeeded => Status::Succeeded,
            Phase::Failed => Status::Failed,
            _ if self.deleting || self.evicting => Status::Releasing,
            Phase::Running if self.node.is_some() => Status::Running,
            Phase::Unknown if self.node.is_some() => Status::Unknown,
            _ if self.node.is_some() => Status::Bound,
            _ if self.assumed.is_some() => Status::Binding,
            _ if self.gated || self.unreadable.is_some() => Status::Gated,
            _ => Status::Pending,
        }
    }

    /// Whether both count as the same pods in the same place.
    pub fn counts_as(&self, other: &Self) -> bool {
        self.counted_on() == other.counted_on()
            && self.wants_node() == other.wants_node()
            && self.spec == other.spec
            && self.component == other.component
    }

    /// The node on which the pod's requests count.
    pub fn counted_on(&self) -> Option<&str> {
        if self.finished { None } else { self.node.as_deref().or(self.assumed.as_deref()) }
    }

    /// Not finished and without a node, whichever scheduler places it.
    pub fn wants_node(&self) -> bool {
        !self.finished && !self.deleting && self.counted_on().is_none()
    }

    /// Waits for this agent to bind it.
    pub fn is_pending(&self) -> bool {
        self.ours && !self.gated && self.wants_node()
    }
}
