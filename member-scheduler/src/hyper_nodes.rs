//! HyperNodes: their specs are inputs of the scheduler; results are written to their statuses.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::scheduler::status::set_valid;
use fleet_agent_ground::{Event, Object};
use fleet_member_state::{HyperNode, MemberState};

/// Written statuses of HyperNodes.
#[derive(Debug, Default)]
pub(crate) struct HyperNodes {
    statuses: BTreeMap<String, Value>,
    due: BTreeSet<String>,
}

impl HyperNodes {
    pub fn change(&mut self, told: Event<Object>, state: &mut MemberState) {
        match told {
            Event::Apply(object) => {
                self.statuses.insert(object.name().to_owned(), object.status.clone());
                self.due.insert(object.name().to_owned());
                state.put_hyper_node(object.name(), HyperNode::read(object.name(), &object.spec));
            }
            Event::Gone((_, name)) => self.gone(&name, state),
            Event::Listed => {}
        }
    }

    fn gone(&mut self, name: &str, state: &mut MemberState) {
        self.statuses.remove(name);
        self.due.remove(name);
        state.remove_hyper_node(name);
    }

    /// Applies changes to the scheduler.
    pub fn resolve(&mut self, state: &mut MemberState) {
        if state.resolve_hyper_nodes() {
            self.due.extend(self.statuses.keys().cloned());
        }
    }

    /// The next changed status: name, written status, desired status.
    pub fn next(&mut self, state: &MemberState, now: &str) -> Option<(String, Value, Value)> {
        while let Some(name) = self.due.pop_first() {
            let Some(known) = self.statuses.get(&name) else { continue };
            let Some((count, problem)) = state.hyper_node_stands(&name) else { continue };
            let wanted = status(known, count, problem, now);
            if wanted != *known {
                return Some((name, known.clone(), wanted));
            }
        }
        None
    }

    /// Records a written status.
    pub fn written(&mut self, name: &str, status: Value) {
        if let Some(known) = self.statuses.get_mut(name) {
            *known = status;
        }
    }
}

fn status(known: &Value, count: usize, problem: Option<String>, now: &str) -> Value {
    let mut status = if known.is_object() { known.clone() } else { json!({}) };
    status["nodeCount"] = count.into();
    set_valid(&mut status, problem, "MembersFound", "InvalidMember", now);
    status
}
