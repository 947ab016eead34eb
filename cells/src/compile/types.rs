//! Cell types: the path of each down to its leaf type.

use std::collections::BTreeMap;

use super::wrongs::{MAX_CELLS, Wrongs};
use crate::config::{CellType, MAX_DEPTH, quote};

/// One step of a path of types.
#[derive(Clone, Debug)]
pub(super) struct Step {
    pub name: String,
    pub children: u32,
    pub leaves: u32,
    pub is_node: bool,
}

/// A type with everything below it, the leaf type first.
#[derive(Clone, Debug)]
pub(super) struct Path {
    pub steps: Vec<Step>,
    /// Level of nodes, if there is one at or below this type.
    pub node_level: Option<u8>,
}

pub(super) type Types = BTreeMap<String, Path>;

/// Reads all types: no cycle, at most one node level in a path, no number that cannot be built.
pub(super) fn read(types: &BTreeMap<String, CellType>, wrongs: &mut Wrongs) -> Types {
    let mut read = Types::new();
    for (name, cell_type) in types {
        let path = format!("physicalCluster.cellTypes.{name}");
        if name.is_empty() || name.contains(['.', '/']) {
            wrongs.add(&path, quote(name), "a name without `.` and `/`, which join types and addresses");
            continue;
        }
        if cell_type.child_cell_number < 1 {
            let allowed = "an integer of 1 or more";
            wrongs.add(format!("{path}.childCellNumber"), cell_type.child_cell_number.to_string(), allowed);
            continue;
        }
        if let Some(steps) = descend(name, types, &path, wrongs) {
            read.insert(name.clone(), steps);
        }
    }
    read
}

fn descend(name: &str, types: &BTreeMap<String, CellType>, path: &str, wrongs: &mut Wrongs) -> Option<Path> {
    let mut names = vec![name];
    while let Some(cell_type) = names.last().and_then(|name| types.get(*name)) {
        let child = cell_type.child_cell_type.as_str();
        if names.contains(&child) {
            names.push(child);
            let cycle = names.join(" -> ");
            wrongs.add(format!("{path}.childCellType"), cycle, "types that do not contain themselves");
            return None;
        }
        names.push(child);
        if names.len() > MAX_DEPTH {
            let allowed = format!("at most {MAX_DEPTH} levels of types");
            wrongs.add(format!("{path}.childCellType"), "more levels", allowed);
            return None;
        }
    }
    let leaf = *names.last()?;
    if leaf.is_empty() || leaf.contains(['.', '/']) {
        wrongs.add(format!("{path}.childCellType"), quote(leaf), "a name without `.` and `/`");
        return None;
    }
    climb(&names, types, path, wrongs)
}

/// From the leaf type up, with the numbers of leaves.
fn climb(
    names: &[&str],
    types: &BTreeMap<String, CellType>,
    path: &str,
    wrongs: &mut Wrongs,
) -> Option<Path> {
    let mut steps: Vec<Step> = Vec::new();
    let mut node: Option<usize> = None;
    for name in names.iter().rev() {
        let Some(cell_type) = types.get(*name) else {
            steps.push(Step { name: (*name).to_string(), children: 0, leaves: 1, is_node: false });
            continue;
        };
        let below = steps.last().map_or(1, |step| u64::from(step.leaves));
        let leaves = below.saturating_mul(u64::try_from(cell_type.child_cell_number).unwrap_or(u64::MAX));
        let (Ok(children), Ok(leaves)) = (u32::try_from(cell_type.child_cell_number), u32::try_from(leaves))
        else {
            wrongs.add(
                format!("{path}.childCellNumber"),
                format!("{leaves} leaf cells in one cell of {name}"),
                format!("at most {MAX_CELLS}"),
            );
            return None;
        };
        if cell_type.is_node_level {
            if let Some(lower) = node {
                // Reported once, at the upper of the two types.
                if *name == names[0] {
                    wrongs.add(
                        format!("{path}.isNodeLevel"),
                        format!("node level on {name} and on {} below it", steps[lower].name),
                        "one node level from the top of a chain to its leaves",
                    );
                }
                return None;
            }
            node = Some(steps.len());
        }
        let is_node = cell_type.is_node_level;
        steps.push(Step { name: (*name).to_string(), children, leaves, is_node });
    }
    let node_level = node.and_then(|position| u8::try_from(position + 1).ok());
    Some(Path { steps, node_level })
}
