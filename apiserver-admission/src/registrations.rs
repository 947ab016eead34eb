//! The registered webhooks and policies of a server, compiled when they change.

use super::hook::Hook;
use super::mutation::Mutation;
use super::policy::Policy;
use arc_swap::ArcSwapOption;
use fleet_apiserver_ground::store::{Store, Table};
use fleet_apiserver_kinds::registration::GROUP;
use std::sync::Arc;

const PLURALS: [&str; 6] = [
    "mutatingwebhookconfigurations",
    "validatingwebhookconfigurations",
    "validatingadmissionpolicies",
    "validatingadmissionpolicybindings",
    "mutatingadmissionpolicies",
    "mutatingadmissionpolicybindings",
];

/// Registrations in the form that is used.
pub struct Compiled {
    state: u64,
    /// Mutating webhooks, in order.
    pub mutating: Vec<Hook>,
    /// Validating webhooks.
    pub validating: Vec<Hook>,
    /// Policies that are bound.
    pub policies: Vec<Policy>,
    /// Policies that change objects, and are bound.
    pub mutations: Vec<Mutation>,
}

impl Compiled {
    /// Whether there is anything that changes objects.
    pub fn mutates(&self) -> bool {
        !self.mutating.is_empty() || !self.mutations.is_empty()
    }
}

/// The registrations of a server, compiled when they change.
pub struct Admission {
    tables: [Arc<Table>; 6],
    compiled: ArcSwapOption<Compiled>,
}

impl Admission {
    /// Follows the registrations of this store.
    pub fn new(store: &Store) -> Admission {
        let tables = PLURALS.map(|p| store.table(&format!("{GROUP}/{p}")));
        Admission { tables, compiled: ArcSwapOption::empty() }
    }

    /// True when a mutating webhook or policy is registered.
    pub fn mutates(&self) -> bool {
        !self.tables[0].is_empty() || !self.tables[4].is_empty()
    }

    /// True when nothing is registered.
    pub fn is_idle(&self) -> bool {
        self.tables.iter().all(|t| t.is_empty())
    }

    /// What is registered now; None: nothing.
    pub fn current(&self) -> Option<Arc<Compiled>> {
        if self.is_idle() {
            return None;
        }
        let state = self.tables.iter().map(|t| t.last()).max().unwrap_or(0);
        if let Some(known) = self.compiled.load_full().filter(|c| c.state == state) {
            return Some(known);
        }
        let [mutating, validating, policies, bindings, mutations, bound] = &self.tables;
        let compiled = Arc::new(Compiled {
            state,
            mutating: mutating.objects().iter().flat_map(|o| Hook::compile_all(&o.value())).collect(),
            validating: validating.objects().iter().flat_map(|o| Hook::compile_all(&o.value())).collect(),
            policies: Policy::compile_all(&policies.objects(), &bindings.objects()),
            mutations: Mutation::compile_all(&mutations.objects(), &bound.objects()),
        });
        self.compiled.store(Some(compiled.clone()));
        Some(compiled)
    }
}
