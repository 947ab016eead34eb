//! What others report of nodes, pods and namespaces: cards, NUMA cells, budgets, quotas.

use std::sync::Arc;

use super::State;
use crate::budgets::Budget;
use crate::devices::{Card, Part};
use crate::ids::PodId;
use crate::numa::Numa;
use crate::pod::Status;
use crate::resource_quotas::ResourceQuota;

impl State {
    /// Sets the cards of a node.
    pub fn set_cards(&mut self, node: &str, cards: Vec<Card>) {
        let id = self.nodes.intern(node);
        if self.nodes.get(id).cards != cards {
            self.nodes.state_mut(id).cards = cards;
            self.nodes.note(id);
            self.freed();
        }
    }

    /// Sets the cards of a pod, as its annotations say.
    pub fn set_parts(&mut self, pod: PodId, parts: Vec<Part>) {
        if self.find_pod(pod).is_none_or(|known| known.reserved.parts == parts) {
            return;
        }
        let node = self.pod(pod).node;
        self.pod_mut(pod).reserved.parts = parts;
        if let Some(node) = node {
            self.nodes.note(node);
        }
    }

    /// Sets the exporter's report of a node; `None`: none any more. It includes what running pods were given.
    pub fn set_numa(&mut self, node: &str, numa: Option<Numa>) {
        let id = self.nodes.intern(node);
        if self.nodes.get(id).numa.as_deref() == numa.as_ref() {
            return;
        }
        for pod in self.nodes.get(id).pods.clone() {
            let started =
                !matches!(self.pod(pod).status, Status::Binding | Status::Bound | Status::Pipelined);
            if started && let Some(given) = &mut self.pod_mut(pod).reserved.cpus {
                given.reported = true;
            }
        }
        self.nodes.state_mut(id).numa = numa.map(Arc::new);
        self.nodes.note(id);
        self.freed();
    }

    /// `None`: the budget is gone.
    pub fn set_budget(&mut self, namespace: &str, name: &str, budget: Option<Budget>) {
        let of_namespace = self.budgets.entry(namespace.into()).or_default();
        let before = match &budget {
            Some(budget) => of_namespace.insert(name.into(), budget.clone()),
            None => of_namespace.remove(name),
        };
        if before != budget {
            self.freed();
        }
    }

    /// `None`: the quota is gone.
    pub fn set_resource_quota(&mut self, namespace: &str, name: &str, quota: Option<ResourceQuota>) {
        match quota {
            Some(quota) => {
                self.resource_quotas.entry(namespace.into()).or_default().insert(name.into(), quota);
            }
            None => {
                if let Some(quotas) = self.resource_quotas.get_mut(namespace) {
                    quotas.remove(name);
                    if quotas.is_empty() {
                        self.resource_quotas.remove(namespace);
                    }
                }
            }
        }
    }
}
