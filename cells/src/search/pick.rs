//! Which leaves of one node a pod gets: those with the lowest common ancestor, out of the fullest cells; among such
//! choices the one by which other groups lose least.

use crate::topology::{CellNo, GroupNo, LeafNo, Level, Topology};

/// What others lose by a choice: the highest priority among the victims, work lost, victims. A group is lost as a whole,
/// whatever it loses of its leaves.
pub(crate) type Loss = (i16, i64, usize);

pub(crate) const NO_LOSS: Loss = (i16::MIN, 0, 0);

/// Groups of which all sets of victims are compared; of more, cheap ones are added until they are enough.
const COMPARED: usize = 6;

/// Who would lose a leaf that is available: the group on it, and the one that reserved it.
pub(crate) type Losers = [Option<GroupNo>; 2];

/// A group that could lose leaves, and how many they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Loser {
    group: GroupNo,
    leaves: u32,
}

/// The cells below a view (a node, or a promise within a node), by their offset from it.
struct Tree<'a> {
    topology: &'a Topology,
    view: CellNo,
    unit: Level,
    /// Available units.
    units: Vec<u32>,
}

/// Leaves, and the levels and numbers of units by which they were chosen: choices with the same shape are as good.
#[derive(Default)]
struct Picked {
    leaves: Vec<LeafNo>,
    shape: Vec<(Level, u32)>,
}

/// Picks `cells` whole cells of level `unit`. `available` says whether a leaf is available, and which groups would lose
/// it; `loss`, what groups lose together.
pub(crate) fn pick(
    topology: &Topology,
    view: CellNo,
    cells: u32,
    unit: Level,
    available: impl Fn(LeafNo) -> Option<Losers>,
    loss: impl Fn(&[GroupNo]) -> Loss,
) -> Option<Vec<LeafNo>> {
    let mut tree = Tree { topology, view, unit, units: Vec::new() };
    tree.units = tree.count(|leaf| available(leaf).is_some());
    if tree.units[0] < cells {
        return None;
    }
    let best = tree.pick(cells, &tree.units);
    let mut leaves = best.leaves;
    if tree.units[0] > cells {
        let (free, losers) = losers(topology, view, &available);
        let missing = (leaves.len() as u32).saturating_sub(free);
        // Only leaves of these victims and free ones; none if that is a worse choice for the pod.
        let only = |victims: &[Loser]| {
            if victims.iter().map(|victim| victim.leaves).sum::<u32>() < missing {
                return None;
            }
            let goes = |loser: GroupNo| victims.iter().any(|victim| victim.group == loser);
            let usable =
                tree.count(|leaf| available(leaf).is_some_and(|of| of.into_iter().flatten().all(goes)));
            let picked = (usable[0] >= cells).then(|| tree.pick(cells, &usable))?;
            (picked.shape == best.shape).then_some(picked.leaves)
        };
        let cheapest = match losers.len() {
            0 => None,
            1..=COMPARED => of_all_sets(&losers, loss, only),
            _ => by_adding(losers, loss, only),
        };
        leaves = cheapest.unwrap_or(leaves);
    }
    leaves.sort_unstable();
    Some(leaves)
}

/// Free leaves of a view, and the groups that could lose some.
fn losers(
    topology: &Topology,
    view: CellNo,
    available: impl Fn(LeafNo) -> Option<Losers>,
) -> (u32, Vec<Loser>) {
    let (mut free, mut losers): (u32, Vec<Loser>) = (0, Vec::new());
    for of in topology.leaves_of(view).filter_map(available) {
        free += u32::from(of == [None, None]);
        for group in of.into_iter().flatten() {
            match losers.iter_mut().find(|known| known.group == group) {
                Some(known) => known.leaves += 1,
                None => losers.push(Loser { group, leaves: 1 }),
            }
        }
    }
    (free, losers)
}

fn groups(losers: &[Loser]) -> Vec<GroupNo> {
    losers.iter().map(|loser| loser.group).collect()
}

/// Tries every set of victims, the cheapest first.
fn of_all_sets(
    losers: &[Loser],
    loss: impl Fn(&[GroupNo]) -> Loss,
    only: impl Fn(&[Loser]) -> Option<Vec<LeafNo>>,
) -> Option<Vec<LeafNo>> {
    let members = |set: u32| -> Vec<Loser> {
        let members = losers.iter().enumerate().filter(|(at, _)| set & (1 << at) != 0);
        members.map(|(_, loser)| *loser).collect()
    };
    let mut sets: Vec<(Loss, u32)> =
        (0..1_u32 << losers.len()).map(|set| (loss(&groups(&members(set))), set)).collect();
    sets.sort_unstable();
    sets.into_iter().find_map(|(_, set)| only(&members(set)))
}

/// Adds the cheapest victims until they are enough, then keeps those that prove unnecessary, the dearest first.
fn by_adding(
    mut losers: Vec<Loser>,
    loss: impl Fn(&[GroupNo]) -> Loss,
    only: impl Fn(&[Loser]) -> Option<Vec<LeafNo>>,
) -> Option<Vec<LeafNo>> {
    losers.sort_by_cached_key(|loser| (loss(&[loser.group]), loser.group));
    let enough = (0..=losers.len()).find(|number| only(&losers[..*number]).is_some())?;
    let mut victims = losers[..enough].to_vec();
    for loser in losers[..enough].iter().rev() {
        let fewer: Vec<Loser> = victims.iter().copied().filter(|victim| victim != loser).collect();
        if only(&fewer).is_some() {
            victims = fewer;
        }
    }
    only(&victims)
}

impl Tree<'_> {
    /// Units whose leaves are all available, at or below each cell.
    fn count(&self, available: impl Fn(LeafNo) -> bool) -> Vec<u32> {
        let size = self.topology.cell(self.view).size as usize;
        let (mut had, mut units) = (vec![0_u32; size], vec![0_u32; size]);
        for offset in (0..size).rev() {
            let cell = self.topology.cell(self.number(offset));
            if cell.level == 1 {
                had[offset] = u32::from(available(cell.first_leaf));
            }
            if cell.level == self.unit {
                units[offset] = u32::from(cell.whole && had[offset] == cell.leaves);
            }
            if offset > 0
                && let Some(parent) = cell.parent
            {
                let parent = (parent.0 - self.view.0) as usize;
                had[parent] += had[offset];
                if cell.level >= self.unit {
                    units[parent] += units[offset];
                }
            }
        }
        units
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

    /// Picks out of the units that may be used, in the order of what is available.
    fn pick(&self, cells: u32, usable: &[u32]) -> Picked {
        let mut picked = Picked::default();
        self.collect(0, cells, usable, &mut picked);
        picked
    }

    /// The lowest level of a cell at or below this one with so many units.
    fn lowest(&self, offset: usize, cells: u32, usable: &[u32]) -> Level {
        if self.level(offset) == self.unit {
            return self.unit;
        }
        self.children(offset)
            .filter(|child| usable[*child] >= cells)
            .map(|child| self.lowest(child, cells, usable))
            .min()
            .unwrap_or(self.level(offset))
    }

    fn collect(&self, offset: usize, cells: u32, usable: &[u32], picked: &mut Picked) {
        if self.level(offset) == self.unit {
            picked.leaves.extend(self.topology.leaves_of(self.number(offset)));
            return;
        }
        let enough = self.children(offset).filter(|child| usable[*child] >= cells);
        let best = enough.map(|child| (self.lowest(child, cells, usable), self.units[child], child)).min();
        if let Some((level, units, child)) = best {
            picked.shape.push((level, units));
            self.collect(child, cells, usable, picked);
            return;
        }
        // It takes several children: the fullest first, so that free leaves stay together.
        let mut children: Vec<usize> = self.children(offset).filter(|child| usable[*child] > 0).collect();
        children.sort_by_key(|child| (self.units[*child], std::cmp::Reverse(usable[*child]), *child));
        let mut wanted = cells;
        for child in children {
            let taken = wanted.min(usable[child]);
            if taken == 0 {
                break;
            }
            picked.shape.extend([(self.level(offset), self.units[child]), (0, taken)]);
            self.collect(child, taken, usable, picked);
            wanted -= taken;
        }
    }
}
