//! Compiles the configuration: infers what the file leaves out, and checks everything that HiveD checks, and more:
//! cycles, nodes and devices that occur twice, pins, paths, promises that do not fit.

mod promises;
mod trees;
mod types;
mod wrongs;

use std::collections::BTreeMap;

use crate::{
    config::{ClusterConfig, ConfigErrors, quote},
    topology::{Topology, VcNo},
};
use wrongs::Wrongs;

/// Compiles a configuration.
pub(crate) fn compile(config: ClusterConfig) -> Result<Topology, ConfigErrors> {
    let mut wrongs = Wrongs::default();
    let types = types::read(&config.physical_cluster.cell_types, &mut wrongs);
    wrongs = wrongs.check()?;
    let mut topology = Topology { config, ..Topology::default() };
    trees::build(&mut topology, &types, &mut wrongs);
    wrongs = wrongs.check()?;
    virtual_clusters(&mut topology, &mut wrongs);
    wrongs = wrongs.check()?;
    promises::check(&topology, &mut wrongs);
    wrongs.check()?;
    Ok(topology)
}

fn virtual_clusters(topology: &mut Topology, wrongs: &mut Wrongs) {
    let clusters = topology.config.virtual_clusters.clone();
    let mut pin_owners: BTreeMap<String, String> = BTreeMap::new();
    for (name, vc) in &clusters {
        let path = format!("virtualClusters.{name}");
        if !is_dns_label(name) {
            wrongs.add(
                &path,
                quote(name),
                "a name of at most 63 letters, digits and `-`, that begins and ends with a letter or digit",
            );
        }
        let number = VcNo::of(topology.vcs.len());
        topology.vc_numbers.insert(name.clone(), number);
        topology.vcs.push(crate::topology::Vc { name: name.clone(), ..Default::default() });
        for (index, cell) in vc.virtual_cells.iter().enumerate() {
            let path = format!("{path}.virtualCells[{index}]");
            promises::add_virtual(topology, number, cell, &path, wrongs);
        }
        for (index, pin) in vc.pinned_cells.iter().enumerate() {
            let path = format!("{path}.pinnedCells[{index}].pinnedCellId");
            if let Some(owner) = pin_owners.insert(pin.pinned_cell_id.clone(), path.clone()) {
                let allowed = format!("a pin that no other entry has; {owner} has it");
                wrongs.add(&path, quote(&pin.pinned_cell_id), allowed);
                continue;
            }
            promises::add_pinned(topology, number, &pin.pinned_cell_id, &path, wrongs);
        }
    }
}

/// Upper case is accepted: HiveD's own examples name VCs `VC1`.
fn is_dns_label(name: &str) -> bool {
    let inner = |c: char| c.is_ascii_alphanumeric() || c == '-';
    let outer = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    name.len() <= 63 && name.chars().all(inner) && outer(name.chars().next()) && outer(name.chars().last())
}
