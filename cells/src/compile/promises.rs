//! Promises to virtual clusters, and whether they fit the physical cells.

use super::wrongs::{Wrongs, chain_number};
use crate::{
    config::{VirtualCell, any, quote},
    topology::{CellNo, Chain, ChainNo, Level, Slot, SlotNo, Topology, VcNo},
};

/// Promises over physical cells in one file; a wrong number must not exhaust memory.
const MAX_SLOTS: i64 = 1_000_000;

pub(super) fn add_virtual(
    topology: &mut Topology,
    vc: VcNo,
    cell: &VirtualCell,
    path: &str,
    wrongs: &mut Wrongs,
) {
    let Some((chain, level)) = read_path(topology, &cell.cell_type, path, wrongs) else { return };
    let room = MAX_SLOTS - i64::try_from(topology.slots.len()).unwrap_or(MAX_SLOTS);
    if !(0..=room).contains(&cell.cell_number) {
        let allowed = format!("an integer of 0 to {room}");
        wrongs.add(format!("{path}.cellNumber"), cell.cell_number.to_string(), allowed);
        return;
    }
    for _ in 0..cell.cell_number {
        let slot = add_slot(topology, vc, chain, level, None);
        topology.vcs[vc.at()].by_level.entry((chain, level)).or_default().push(slot);
    }
}

pub(super) fn add_pinned(topology: &mut Topology, vc: VcNo, id: &str, path: &str, wrongs: &mut Wrongs) {
    let Some(cell) = topology.pins.get(id).copied() else {
        let known = any(topology.pins.keys().map(String::as_str));
        wrongs.add(path, quote(id), format!("a pinnedCellId of physicalCluster.physicalCells: {known}"));
        return;
    };
    let taken = topology
        .slots
        .iter()
        .filter_map(|slot| slot.pinned)
        .find(|other| topology.contains(*other, cell) || topology.contains(cell, *other));
    if let Some(other) = taken {
        let address = &topology.cell(other).address;
        wrongs.add(
            path,
            quote(id),
            format!("a pin that shares no cell with another; {address} is pinned too"),
        );
        return;
    }
    if !topology.cell(cell).whole {
        let found = format!("`{id}`, whose cell lacks children that its type says");
        wrongs.add(path, found, "a pin on a cell with all its children");
        return;
    }
    let (chain, level) = (topology.cell(cell).chain, topology.cell(cell).level);
    let slot = add_slot(topology, vc, chain, level, Some(cell));
    topology.vcs[vc.at()].pins.insert(id.to_string(), slot);
}

fn add_slot(
    topology: &mut Topology,
    vc: VcNo,
    chain: ChainNo,
    level: Level,
    pinned: Option<CellNo>,
) -> SlotNo {
    let slot = SlotNo::of(topology.slots.len());
    let index = topology.vc(vc).slots.len() as u32;
    topology.slots.push(Slot { vc, chain, level, index, pinned });
    topology.vcs[vc.at()].slots.push(slot);
    slot
}

/// Parses a path of types: chain first, promised type last; types between must be on the way from one to the other.
fn read_path(topology: &Topology, text: &str, path: &str, wrongs: &mut Wrongs) -> Option<(ChainNo, Level)> {
    let field = format!("{path}.cellType");
    let mut parts = text.split('.');
    let first = parts.next().unwrap_or_default();
    let Some(number) = chain_number(topology, first) else {
        let known = any(topology.chains.iter().map(|chain| chain.name.as_str()));
        let found = if topology.config.physical_cluster.cell_types.contains_key(first) {
            format!("{}, whose first type is the top of no physical cell", quote(text))
        } else {
            format!("{}, whose first type is unknown", quote(text))
        };
        wrongs.add(field, found, format!("a path that begins with the type of a top cell: {known}"));
        return None;
    };
    let chain = topology.chain(number);
    let mut level = chain.top();
    for part in parts {
        let below = (1..level).rev().map(|level| chain.level(level).name.as_str());
        match chain.level_of(part) {
            Some(next) if next < level => level = next,
            _ => {
                let known = any(below);
                let found =
                    format!("{}, where `{part}` does not lie below {}", quote(text), chain.level(level).name);
                wrongs.add(
                    field,
                    found,
                    format!("types of chain {}, from the top down: {known}", chain.name),
                );
                return None;
            }
        }
    }
    Some((number, level))
}

/// Whether the promises of each chain fit its physical cells: first by their numbers alone, as HiveD does, then with
/// the cells that pins split.
pub(super) fn check(topology: &Topology, wrongs: &mut Wrongs) {
    for (position, chain) in topology.chains.iter().enumerate() {
        let number = ChainNo::of(position);
        let tops = whole_blocks(topology, number, &[]);
        let by_number = demand(topology, number, true);
        if let Some(short) = shortage(chain, &tops, &by_number) {
            report(topology, number, short, "", wrongs);
            continue;
        }
        let pinned: Vec<CellNo> = topology
            .slots
            .iter()
            .filter(|slot| slot.chain == number)
            .filter_map(|slot| slot.pinned)
            .collect();
        let split = whole_blocks(topology, number, &pinned);
        if let Some(short) = shortage(chain, &split, &demand(topology, number, false)) {
            report(topology, number, short, " beside the pinned cells", wrongs);
        }
    }
}

/// Promised cells by level (index 0 is level 1).
fn demand(topology: &Topology, chain: ChainNo, with_pinned: bool) -> Vec<u64> {
    let mut demand = vec![0; usize::from(topology.chain(chain).top())];
    for slot in topology.slots.iter().filter(|slot| slot.chain == chain) {
        if with_pinned || slot.pinned.is_none() {
            demand[usize::from(slot.level) - 1] += 1;
        }
    }
    demand
}

/// The largest whole cells of a chain that hold no pinned cell, counted by level.
fn whole_blocks(topology: &Topology, chain: ChainNo, pinned: &[CellNo]) -> Vec<u64> {
    let chain = topology.chain(chain);
    let mut blocks = vec![0; chain.levels.len()];
    let mut open: Vec<CellNo> = chain.level(chain.top()).cells.clone();
    while let Some(cell) = open.pop() {
        let holds_pin = pinned.iter().any(|pin| topology.contains(cell, *pin));
        if pinned.contains(&cell) {
            continue;
        }
        if topology.cell(cell).whole && !holds_pin {
            blocks[usize::from(topology.cell(cell).level) - 1] += 1;
        } else {
            open.extend(&topology.cell(cell).children);
        }
    }
    blocks
}

struct Short {
    level: Level,
    needed: u64,
    available: u64,
}

/// From the top down: cells left over at a level are split into cells of the next.
fn shortage(chain: &Chain, blocks: &[u64], demand: &[u64]) -> Option<Short> {
    let mut left = 0;
    for level in (1..=chain.top()).rev() {
        let position = usize::from(level) - 1;
        let children = chain.levels.get(position + 1).map_or(0, |upper| u64::from(upper.children));
        let available = left * children + blocks[position];
        let needed = demand[position];
        if needed > available {
            return Some(Short { level, needed, available });
        }
        left = available - needed;
    }
    None
}

fn report(topology: &Topology, number: ChainNo, short: Short, beside: &str, wrongs: &mut Wrongs) {
    let chain = topology.chain(number);
    let cell_type = &chain.level(short.level).name;
    let mut owners: Vec<String> = Vec::new();
    for vc in &topology.vcs {
        let count = vc
            .slots
            .iter()
            .map(|slot| topology.slot(*slot))
            .filter(|slot| slot.chain == number && slot.level == short.level)
            .count();
        if count > 0 {
            owners.push(format!("{} {count}", vc.name));
        }
    }
    wrongs.add(
        "virtualClusters",
        format!(
            "{} cells of type {cell_type} (level {}) promised in chain {} ({})",
            short.needed,
            short.level,
            chain.name,
            owners.join(", ")
        ),
        format!("at most {}: what the physical cells have left{beside}", short.available),
    );
}
