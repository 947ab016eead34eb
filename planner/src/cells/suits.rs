//! Which clusters could ever hold the groups of a job, whatever runs there now.

use super::{
    CellRoom,
    ask::{CellGroupAsk, CellJob},
};

/// Most answers remembered.
const ANSWERS_KEPT: usize = 4096;

impl CellRoom {
    /// Of a job whose pods start one by one: the clusters that could hold all of them, if there are any. In another one
    /// its run would never be complete.
    pub(crate) fn suited(&mut self, asks: &CellJob, clusters: Vec<String>) -> Vec<String> {
        let kinds = kinds(asks.groups.iter());
        if asks.whole || kinds.len() < 2 {
            return clusters;
        }
        let suited: Vec<String> =
            clusters.iter().filter(|cluster| self.could_hold(&kinds, cluster)).cloned().collect();
        if suited.is_empty() { clusters } else { suited }
    }

    /// Whether a cluster could hold each of these groups.
    pub(crate) fn could_hold(&mut self, groups: &[&CellGroupAsk], cluster: &str) -> bool {
        groups.iter().all(|ask| {
            let key = (ask.plain(), cluster.to_string());
            if let Some(known) = self.suits.get(&key) {
                return *known;
            }
            let Some(cells) = self.cells.as_mut() else { return false };
            let answer = cells.could_hold(&ask.request, cluster);
            if self.suits.len() >= ANSWERS_KEPT {
                self.suits.clear();
            }
            self.suits.insert(key, answer);
            answer
        })
    }
}

/// One group of each kind: groups of pods that start one by one are alike.
pub(crate) fn kinds<'g>(groups: impl Iterator<Item = &'g CellGroupAsk>) -> Vec<&'g CellGroupAsk> {
    let mut kinds: Vec<&CellGroupAsk> = Vec::new();
    for ask in groups {
        let is_like = |known: &&CellGroupAsk| {
            let mut request = ask.request.clone();
            request.affinity_group.name.clone_from(&known.request.affinity_group.name);
            request == known.request
        };
        if !kinds.iter().any(is_like) {
            kinds.push(ask);
        }
    }
    kinds
}
