//! Cards of a node: parts of them by memory and cores, and whole ones.
//!
//! Input: the cards of a node, their use, and what a pod requests for each container. Output: one or more cards for
//! each container.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::usual::Usual;

/// Cores of a whole card, in hundredths.
pub const ALL_CORES: i64 = 100;
/// Most cards of a node that shares by memory.
pub const MOST_CARDS: i64 = 1024;
/// Most steps of a search over several containers.
const MAX_STEPS: usize = 10_000;

/// The two ways of sharing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sharing {
    /// `volcano.sh/gpu-memory` and `gpu-number`: cards by number, memory only.
    #[default]
    Memory,
    /// `volcano.sh/vgpu-*`: cards by uuid, with a limit of pods per card.
    Virtual,
}

/// One card of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Card {
    pub sharing: Sharing,
    /// Its uuid, or its number.
    pub id: Arc<str>,
    /// Type, as the device plugin names it.
    pub kind: Arc<str>,
    /// Mebibytes, or another unit that the device plugin uses.
    pub memory: i64,
    /// Most containers; 0: no limit.
    pub slots: i64,
}

/// The request of one container.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ask {
    pub sharing: Sharing,
    /// Number of different cards.
    pub cards: i64,
    /// Memory of each; 0 with `percent` 0: all of it.
    pub memory: i64,
    /// Memory in hundredths of the card's, if `memory` is 0.
    pub percent: i64,
    /// Hundredths of the card's cores; [`ALL_CORES`]: exclusive use.
    pub cores: i64,
}

/// A container's part of a card.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// Number of the container among those that request cards.
    pub container: usize,
    pub card: Arc<str>,
    pub memory: i64,
    pub cores: i64,
}

/// Which of the cards that fit.
#[derive(Clone, Copy, Debug, Default)]
pub enum Choice<'u> {
    /// The one with the least memory left.
    #[default]
    Binpack,
    /// The one with the most.
    Spread,
    /// The one on which most stays usable for what usually comes.
    Usable(&'u Usual),
}

/// Use of a card.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    pub parts: i64,
    pub memory: i64,
    pub cores: i64,
}

impl Load {
    /// Counts one more part.
    pub fn add(&mut self, part: &Part) {
        self.parts += 1;
        self.memory = self.memory.saturating_add(part.memory);
        self.cores = self.cores.saturating_add(part.cores);
    }
}

impl Card {
    /// Memory that the request would take here, if the card is usable for it.
    pub fn takes(&self, ask: &Ask, load: &Load) -> Option<i64> {
        let memory = match (ask.memory, ask.percent) {
            (0, 0) => self.memory,
            (0, percent) => self.memory.saturating_mul(percent) / 100,
            (memory, _) => memory,
        };
        let alone = ask.cores >= ALL_CORES;
        let fits = self.sharing == ask.sharing
            && (self.slots == 0 || load.parts < self.slots)
            && memory >= 0
            && self.memory.saturating_sub(load.memory) >= memory
            && ALL_CORES.saturating_sub(load.cores) >= ask.cores
            && !(alone && load.parts > 0)
            // A card in exclusive use takes no other container, whatever it requests.
            && load.cores < ALL_CORES;
        fits.then_some(memory)
    }
}

/// Use of the cards of a node, by their ids.
pub type Loads = BTreeMap<Arc<str>, Load>;

/// Counts what a pod with these requests uses of the node's cards. Its parts may be what annotations say: they name the cards, but how
/// much counts is what the pod requests, and only on a card that could hold that.
pub fn count_parts(loads: &mut Loads, cards: &[Card], asks: &[Ask], parts: &[Part]) {
    for part in parts {
        let Some(ask) = asks.get(part.container) else { continue };
        let is_it = |card: &&Card| card.id == part.card && card.sharing == ask.sharing;
        let Some(card) = cards.iter().find(is_it) else { continue };
        let Some(memory) = card.takes(ask, &Load::default()) else { continue };
        let part = Part { container: part.container, card: card.id.clone(), memory, cores: ask.cores };
        loads.entry(card.id.clone()).or_default().add(&part);
    }
}

/// Cards for all requests of a pod; `None` if there are none.
pub fn choose(cards: &[Card], loads: &Loads, asks: &[Ask], choice: Choice<'_>) -> Option<Vec<Part>> {
    let mut search =
        Search { cards, asks, choice, loads: loads.clone(), found: Vec::new(), steps: MAX_STEPS };
    search.place(0).then_some(search.found)
}

struct Search<'a> {
    cards: &'a [Card],
    asks: &'a [Ask],
    choice: Choice<'a>,
    loads: Loads,
    found: Vec<Part>,
    steps: usize,
}

impl Search<'_> {
    /// One card after the other for the containers from `container` on, with backtracking.
    fn place(&mut self, container: usize) -> bool {
        let Some(ask) = self.asks.get(container) else { return true };
        let has = self.found.iter().filter(|part| part.container == container).count() as i64;
        if has >= ask.cards {
            return self.place(container + 1);
        }
        let fitting = self.fitting(container, ask);
        if (fitting.len() as i64) < ask.cards - has {
            return false;
        }
        for (at, memory) in fitting {
            if self.steps == 0 {
                return false;
            }
            self.steps -= 1;
            let card = &self.cards[at];
            let part = Part { container, card: card.id.clone(), memory, cores: ask.cores };
            let before = self.loads.get(&card.id).copied().unwrap_or_default();
            self.loads.entry(card.id.clone()).or_default().add(&part);
            self.found.push(part);
            if self.place(container) {
                return true;
            }
            self.found.pop();
            self.loads.insert(card.id.clone(), before);
            // For a single request, all sets are equal: what fails with the best fails with all.
            if self.asks.len() == 1 {
                return false;
            }
        }
        false
    }

    /// Cards for one more part of the container with the memory that it would take, best first. Cards of one
    /// container are taken in this order, so that no set is tried twice.
    fn fitting(&self, container: usize, ask: &Ask) -> Vec<(usize, i64)> {
        let mut fitting: Vec<((i64, i64), usize, i64)> = Vec::new();
        for (at, card) in self.cards.iter().enumerate() {
            let mine = self.found.iter().any(|part| part.container == container && part.card == card.id);
            let load = self.loads.get(&card.id).copied().unwrap_or_default();
            let Some(memory) = card.takes(ask, &load).filter(|_| !mine) else { continue };
            let left = card.memory - load.memory - memory;
            let rank = match self.choice {
                Choice::Binpack => (0, left),
                Choice::Spread => (0, -left),
                Choice::Usable(usual) => {
                    let mut with = load;
                    with.add(&Part { memory, cores: ask.cores, ..Part::default() });
                    (usual.fragments(self.cards, &self.loads, Some((at, with)), ask.sharing, None), left)
                }
            };
            fitting.push((rank, at, memory));
        }
        fitting.sort_unstable();
        fitting.into_iter().map(|(_, at, memory)| (at, memory)).collect()
    }
}

/// Cards that a node shares by memory: as many as it reports, at most [`MOST_CARDS`], with equal memory.
pub fn cards_by_memory(memory: i64, number: i64) -> Vec<Card> {
    let card = |at: i64| Card {
        sharing: Sharing::Memory,
        id: at.to_string().into(),
        memory: memory / number.max(1),
        ..Card::default()
    };
    (0..number.clamp(0, MOST_CARDS)).map(card).collect()
}
