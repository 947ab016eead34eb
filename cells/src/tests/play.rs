//! A cluster to play with.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    Ask, Cells, GroupRequest, GroupState, Member, NodeName, PodDecision, PodGroup, Unreported,
    config::{ClusterConfig, Document, read_document},
};

pub(super) fn read(text: &str) -> ClusterConfig {
    let value: serde_json::Value = serde_saphyr::from_str(text).expect("YAML");
    match read_document(&value).expect("a configuration") {
        Document::Config(config) => *config,
        Document::Wrapped(inner) => read(&inner),
    }
}

pub(super) fn errors(text: &str) -> Vec<String> {
    let value: serde_json::Value = serde_saphyr::from_str(text).expect("YAML");
    let read = ClusterConfig::read(&value).and_then(|config| Cells::new(config, Unreported::Good));
    read.map(|_| Vec::new()).unwrap_or_else(|errors| errors.0.iter().map(ToString::to_string).collect())
}

pub(super) fn design() -> Play {
    Play::new(include_str!("../../testdata/design.yaml"))
}

pub(super) fn nodes(names: &[&str]) -> BTreeSet<NodeName> {
    names.iter().map(|name| NodeName::new("", name)).collect()
}

/// What a pod asks for.
#[derive(Clone)]
pub(super) struct Pod {
    pub request: GroupRequest,
    pub leaves: i64,
}

/// `members` are (pods, leaves each); the pod is of the first kind.
pub(super) fn pod(vc: &str, priority: i32, group: &str, members: &[(i64, i64)]) -> Pod {
    let mut request = GroupRequest::new(group, vc, priority, 1, 1);
    request.ignore_k8s_suggested_nodes = false;
    let member = |(pods, leaves): &(i64, i64)| Member {
        pod_number: *pods,
        leaf_cell_number: *leaves,
        ..Member::default()
    };
    request.affinity_group.root =
        PodGroup { members: members.iter().map(member).collect(), ..PodGroup::default() };
    Pod { request, leaves: members[0].1 }
}

impl Pod {
    pub(super) fn of(mut self, leaf_type: &str) -> Self {
        self.request.leaf_cell_type = leaf_type.to_string();
        self
    }

    pub(super) fn pin(mut self, id: &str) -> Self {
        self.request.pinned_cell_id = id.to_string();
        self
    }

    pub(super) fn lazy(mut self) -> Self {
        self.request.lazy_preemption_enable = true;
        self
    }

    pub(super) fn size(mut self, leaves: i64) -> Self {
        self.leaves = leaves;
        self
    }
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Bind(String, Vec<i32>),
    /// Names of the victims' pods.
    Preempt(BTreeSet<String>),
    Wait(String),
    Refuse(String),
}

pub(super) struct Play {
    pub cells: Cells,
    /// Group of each pod that was bound or waits for victims.
    pub pods: BTreeMap<String, String>,
    pub suggested: Option<BTreeSet<NodeName>>,
    pub now_ms: i64,
}

impl Play {
    pub(super) fn new(text: &str) -> Self {
        Self::of(read(text))
    }

    pub(super) fn of(config: ClusterConfig) -> Self {
        let cells = Cells::new(config, Unreported::Good).unwrap_or_else(|errors| panic!("{errors}"));
        Self { cells, pods: BTreeMap::new(), suggested: None, now_ms: 0 }
    }

    pub(super) fn ask(&mut self, name: &str, pod: &Pod) -> Outcome {
        let ask = Ask { now_ms: self.now_ms, suggested: self.suggested.as_ref(), ..Ask::default() };
        let decision = self.cells.schedule_pod(&pod.request, name, pod.leaves, &ask);
        self.audit();
        match decision {
            PodDecision::Bind(place) => {
                self.pods.insert(name.to_string(), pod.request.name().to_string());
                Outcome::Bind(place.node, place.leaf_cells)
            }
            PodDecision::Preempt(victims) => {
                self.pods.insert(name.to_string(), pod.request.name().to_string());
                Outcome::Preempt(victims.into_iter().flat_map(|victim| victim.pods).collect())
            }
            PodDecision::Wait(reason) => Outcome::Wait(reason.to_string()),
            PodDecision::Refuse(refusal) => Outcome::Refuse(refusal.to_string()),
        }
    }

    pub(super) fn bound(&mut self, name: &str, pod: &Pod) -> (String, Vec<i32>) {
        match self.ask(name, pod) {
            Outcome::Bind(node, leaves) => (node, leaves),
            other => panic!("{name}: {other:?}"),
        }
    }

    #[track_caller]
    pub(super) fn binds(&mut self, name: &str, pod: &Pod, node: &str, leaves: impl IntoIterator<Item = i32>) {
        let leaves: Vec<i32> = leaves.into_iter().collect();
        assert_eq!(self.ask(name, pod), Outcome::Bind(node.to_string(), leaves), "{name}");
    }

    #[track_caller]
    pub(super) fn waits(&mut self, name: &str, pod: &Pod, reason: &str) {
        match self.ask(name, pod) {
            Outcome::Wait(found) => assert!(found.contains(reason), "{name}: {found}"),
            other => panic!("{name}: {other:?}"),
        }
    }

    #[track_caller]
    pub(super) fn refused(&mut self, name: &str, pod: &Pod, reason: &str) {
        match self.ask(name, pod) {
            Outcome::Refuse(found) => assert!(found.contains(reason), "{name}: {found}"),
            other => panic!("{name}: {other:?}"),
        }
    }

    #[track_caller]
    pub(super) fn preempts(&mut self, name: &str, pod: &Pod, victims: &[&str]) {
        let victims = victims.iter().map(ToString::to_string).collect();
        assert_eq!(self.ask(name, pod), Outcome::Preempt(victims), "{name}");
    }

    pub(super) fn delete(&mut self, name: &str) {
        let group = self.pods.remove(name).unwrap_or_else(|| panic!("{name} was never bound"));
        self.cells.delete_pod(&group, name);
        self.audit();
    }

    pub(super) fn health(&mut self, node: &str, good: bool) {
        assert!(self.cells.set_node_health(&NodeName::new("", node), good), "{node}");
        self.audit();
    }

    pub(super) fn state(&self, group: &str) -> Option<GroupState> {
        self.cells.group(group).map(|group| group.state)
    }

    pub(super) fn audit(&self) {
        let broken = self.cells.audit();
        assert!(broken.is_empty(), "{broken:#?}");
    }
}
