//! Reconfiguration while groups run: what it would change, and the change itself.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::{
    cells::{Cells, Unreported},
    config::{ClusterConfig, ConfigErrors},
    group::GroupState,
    recover::Recovered,
    topology::{NodeName, Topology},
};

/// Cells of a type that a VC was promised, before and after.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PromiseChange {
    pub vc: String,
    pub chain: String,
    pub cell_type: String,
    /// Not empty: a pinned cell.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub pinned_cell_id: String,
    pub before: u64,
    pub after: u64,
}

/// What a configuration changes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Difference {
    /// Promises that grow or shrink, and pinned cells, each for itself.
    pub promises: Vec<PromiseChange>,
    pub nodes_added: Vec<NodeName>,
    pub nodes_removed: Vec<NodeName>,
    /// Groups that become opportunistic, or that use devices which no configuration has any more.
    pub groups: Vec<Recovered>,
    /// Preempting groups that lose their reservations and are pending again.
    pub cancelled: Vec<String>,
}

impl Cells {
    /// What a configuration would change; changes nothing.
    ///
    /// # Errors
    /// All errors in the configuration.
    pub fn preview(
        &self,
        config: ClusterConfig,
        unreported: Unreported,
        now_ms: i64,
    ) -> Result<Difference, ConfigErrors> {
        self.reconfigured(config, unreported, now_ms).map(|(_, difference)| difference)
    }

    /// Puts another configuration in force. Running groups keep running; reservations of preempting groups are
    /// cancelled. `unreported` is for nodes that the old configuration did not have.
    ///
    /// # Errors
    /// All errors in the configuration; then nothing has changed.
    pub fn reconfigure(
        &mut self,
        config: ClusterConfig,
        unreported: Unreported,
        now_ms: i64,
    ) -> Result<Difference, ConfigErrors> {
        let (mut cells, difference) = self.reconfigured(config, unreported, now_ms)?;
        cells.generation = self.generation + 1;
        *self = cells;
        Ok(difference)
    }

    fn reconfigured(
        &self,
        config: ClusterConfig,
        unreported: Unreported,
        now_ms: i64,
    ) -> Result<(Cells, Difference), ConfigErrors> {
        let mut good = self.good_nodes();
        let old: BTreeSet<NodeName> = self.nodes().cloned().collect();
        if unreported == Unreported::Good {
            let probe = crate::compile::compile(config.clone())?;
            good.extend(probe.nodes.into_iter().map(|node| node.name).filter(|node| !old.contains(node)));
        }
        let (mut cells, groups) = Cells::recover(config, &good, self.bound_groups(), now_ms)?;
        cells.absent.clone_from(&self.absent);
        let new: BTreeSet<NodeName> = cells.nodes().cloned().collect();
        let preempting = self.groups.iter().filter(|(_, group)| group.state == GroupState::Preempting);
        let difference = Difference {
            promises: promise_changes(&self.topology, &cells.topology),
            nodes_added: new.difference(&old).cloned().collect(),
            nodes_removed: old.difference(&new).cloned().collect(),
            groups,
            cancelled: preempting.map(|(_, group)| group.request.name().to_string()).collect(),
        };
        Ok((cells, difference))
    }
}

type Promises<'a> = BTreeMap<[&'a str; 4], u64>;

fn promises(topology: &Topology) -> Promises<'_> {
    let mut promises = Promises::new();
    for slot in &topology.slots {
        let chain = topology.chain(slot.chain);
        let pin = slot.pinned.and_then(|cell| topology.cell(cell).pinned.as_deref()).unwrap_or_default();
        let key = [&topology.vc(slot.vc).name, &chain.name, &chain.level(slot.level).name, pin];
        *promises.entry(key).or_default() += 1;
    }
    promises
}

fn promise_changes(old: &Topology, new: &Topology) -> Vec<PromiseChange> {
    let (old, new) = (promises(old), promises(new));
    let keys: BTreeSet<_> = old.keys().chain(new.keys()).copied().collect();
    let change = |key: [&str; 4]| PromiseChange {
        vc: key[0].to_string(),
        chain: key[1].to_string(),
        cell_type: key[2].to_string(),
        pinned_cell_id: key[3].to_string(),
        before: old.get(&key).copied().unwrap_or(0),
        after: new.get(&key).copied().unwrap_or(0),
    };
    keys.into_iter().map(change).filter(|change| change.before != change.after).collect()
}
