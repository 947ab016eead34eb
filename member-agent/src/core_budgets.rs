//! PodDisruptionBudgets in the core: how many of whom may go goes to the scheduler's plugin pdb.

use std::collections::BTreeSet;

use fleet_scheduler::budgets::Budget;

use crate::{
    feed::Change,
    jobs::Object,
    state::{MemberState, read_labels},
};

/// Budgets that the scheduler knows, by namespace and name.
#[derive(Debug, Default)]
pub(crate) struct Budgets {
    known: BTreeSet<(String, String)>,
}

impl Budgets {
    pub fn change(&mut self, change: Change<Object>, state: &mut MemberState) {
        match change {
            Change::Apply(object) => {
                // A selector that cannot be read keeps nobody, as with Volcano.
                let selector = read_labels(&object.spec["selector"]).unwrap_or_default();
                let allowed = object.status["disruptionsAllowed"].as_i64().unwrap_or(0);
                let budget = Budget { selector, allowed };
                state.cluster.set_budget(object.namespace(), object.name(), Some(budget));
                self.known.insert((object.namespace().to_owned(), object.name().to_owned()));
            }
            Change::Delete(object) => self.gone(object.namespace(), object.name(), state),
            Change::All(objects) => {
                let listed: BTreeSet<(&str, &str)> =
                    objects.iter().map(|o| (o.namespace(), o.name())).collect();
                let gone = |(namespace, name): &&(String, String)| !listed.contains(&(namespace, name));
                let gone: Vec<(String, String)> = self.known.iter().filter(gone).cloned().collect();
                gone.iter().for_each(|(namespace, name)| self.gone(namespace, name, state));
                objects.into_iter().for_each(|object| self.change(Change::Apply(object), state));
            }
        }
    }

    fn gone(&mut self, namespace: &str, name: &str, state: &mut MemberState) {
        self.known.remove(&(namespace.to_owned(), name.to_owned()));
        state.cluster.set_budget(namespace, name, None);
    }
}
