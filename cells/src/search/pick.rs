//! Which leaves of one node a pod gets: those with the lowest common ancestor, out of the fullest cells.

use crate::topology::{CellNo, LeafNo, Level, Topology};

/// The cells below a view (a node, or a promise within a node), by their offset from it.
struct Tree<'a> {
    topology: &'a Topology,
    view: CellNo,
    unit: Level,
    /// Available units.
    units: Vec<u32>,
    /// Leaves that another group would lose.
    cost: Vec<u32>,
}

/// Picks `cells` whole cells of level `unit`. `available` says whether a leaf is available, and its cost.
pub(crate) fn pick(
    topology: &Topology,
    view: CellNo,
    cells: u32,
    unit: Level,
    available: impl Fn(LeafNo) -> Option<u32>,
) -> Option<Vec<LeafNo>> {
    let size = topology.cell(view).size as usize;
    let mut tree = Tree { topology, view, unit, units: vec![0; size], cost: vec![0; size] };
    tree.fill(available);
    if tree.units[0] < cells {
        return None;
    }
    let mut leaves = Vec::with_capacity(cells as usize);
    tree.collect(0, cells, &mut leaves);
    leaves.sort_unstable();
    Some(leaves)
}

impl Tree<'_> {
    fn fill(&mut self, available: impl Fn(LeafNo) -> Option<u32>) {
        let mut had = vec![0_u32; self.units.len()];
        for offset in (0..self.units.len()).rev() {
            let cell = self.topology.cell(self.number(offset));
            if cell.level == 1
                && let Some(cost) = available(cell.first_leaf)
            {
                had[offset] = 1;
                self.cost[offset] = cost;
            }
            if cell.level == self.unit {
                self.units[offset] = u32::from(cell.whole && had[offset] == cell.leaves);
            }
            if offset > 0
                && let Some(parent) = cell.parent
            {
                let parent = (parent.0 - self.view.0) as usize;
                had[parent] += had[offset];
                self.cost[parent] += self.cost[offset];
                if cell.level >= self.unit {
                    self.units[parent] += self.units[offset];
                }
            }
        }
    }

    fn number(&self, offset: usize) -> CellNo {
        CellNo(self.view.0 + offset as u32)
    }

    fn level(&self, offset: usize) -> Level {
        self.topology.cell(self.number(offset)).level
    }

    fn children(&self, offset: usize) -> impl Iterator<Item = usize> + '_ {
        let children = &self.topology.cell(self.number(offset)).children;
        children.iter().map(|child| (child.0 - self.view.0) as usize)
    }

    /// The lowest level of a cell at or below this one with so many units.
    fn lowest(&self, offset: usize, cells: u32) -> Level {
        if self.level(offset) == self.unit {
            return self.unit;
        }
        self.children(offset)
            .filter(|child| self.units[*child] >= cells)
            .map(|child| self.lowest(child, cells))
            .min()
            .unwrap_or(self.level(offset))
    }

    fn collect(&self, offset: usize, cells: u32, leaves: &mut Vec<LeafNo>) {
        if self.level(offset) == self.unit {
            leaves.extend(self.topology.leaves_of(self.number(offset)));
            return;
        }
        let order = |child: &usize| (self.units[*child], self.cost[*child], *child);
        let enough = self.children(offset).filter(|child| self.units[*child] >= cells);
        let best = enough.min_by_key(|child| (self.lowest(*child, cells), order(child)));
        if let Some(child) = best {
            self.collect(child, cells, leaves);
            return;
        }
        // It takes several children: the fullest first, so that free leaves stay together.
        let mut children: Vec<usize> = self.children(offset).filter(|child| self.units[*child] > 0).collect();
        children.sort_by_key(order);
        let mut wanted = cells;
        for child in children {
            let taken = wanted.min(self.units[child]);
            if taken == 0 {
                break;
            }
            self.collect(child, taken, leaves);
            wanted -= taken;
        }
    }
}
