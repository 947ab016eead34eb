//! What is usually asked of the cards of a node, and how much of a node that leaves unused.

use super::cards::{ALL_CORES, Ask, Card, Load, Loads, Sharing};
use super::{Demand, DeviceNode, DeviceTask, Measure, WHOLE};

/// Kinds of requests that count; the most frequent ones.
const MOST_KINDS: usize = 16;
/// Weights are parts of this, so that single pods that come and go change little.
const PARTS: i64 = 64;

/// One kind of pods.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Kind {
    weight: i64,
    sharing: Sharing,
    /// The request of each container.
    asks: Vec<Ask>,
    /// Millicores.
    cpu: i64,
}

/// What is usually asked of cards.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usual {
    kinds: Vec<Kind>,
}

impl Usual {
    /// From requests of pods, each with its cpu in millicores and the number of such pods.
    pub fn new(pods: impl IntoIterator<Item = (Vec<Ask>, i64, i64)>) -> Self {
        let kind = |(asks, cpu, weight): (Vec<Ask>, i64, i64)| {
            Some(Kind { weight, sharing: asks.first()?.sharing, asks, cpu })
        };
        let mut kinds: Vec<Kind> = pods.into_iter().filter_map(kind).filter(|kind| kind.weight > 0).collect();
        kinds.sort_unstable_by(|a, b| b.cmp(a));
        kinds.truncate(MOST_KINDS);
        let sum: i64 = kinds.iter().map(|kind| kind.weight).sum();
        kinds.iter_mut().for_each(|kind| kind.weight = (kind.weight * PARTS / sum.max(1)).max(1));
        Self { kinds }
    }

    /// Sum of the weights of pods that share cards in this way.
    pub fn weight(&self, sharing: Sharing) -> i64 {
        self.kinds.iter().filter(|kind| kind.sharing == sharing).map(|kind| kind.weight).sum()
    }

    /// Thousandths of cards that the usual pods are expected to leave unused, times [`Self::weight`]. `with`
    /// replaces the use of one card. `cpu` is what is free on the node, in millicores; `None`: enough.
    pub fn fragments(
        &self,
        cards: &[Card],
        loads: &Loads,
        with: Option<(usize, Load)>,
        sharing: Sharing,
        cpu: Option<i64>,
    ) -> i64 {
        let own = || cards.iter().enumerate().filter(|(_, card)| card.sharing == sharing);
        let load = |at: usize, card: &Card| match with {
            Some((changed, load)) if changed == at => load,
            _ => loads.get(&card.id).copied().unwrap_or_default(),
        };
        let devices: Vec<i64> = own().map(|(at, card)| free(card, &load(at, card))).collect();
        let node = DeviceNode { cpu: cpu.unwrap_or(i64::MAX), memory: 0, devices, model: String::new() };
        let largest = own().map(|(_, card)| card.memory).max().unwrap_or(0);
        let kinds = self.kinds.iter().filter(|kind| kind.sharing == sharing);
        Demand::weighted(Measure::Filled, kinds.map(|kind| (kind.task(largest), kind.weight)))
            .fragments(&node)
    }
}

impl Kind {
    /// As one task on cards of this memory.
    fn task(&self, memory: i64) -> DeviceTask {
        let count = fleet_resources::sum(self.asks.iter().map(|ask| ask.cards));
        let share = self.asks.iter().map(|ask| share(ask, memory)).max().unwrap_or(0);
        DeviceTask {
            cpu: self.cpu,
            memory: 0,
            count: usize::try_from(count).unwrap_or(0),
            share,
            models: Vec::new(),
        }
    }
}

/// Thousandths of a card that a request takes: of its memory or of its cores, whatever is more.
fn share(ask: &Ask, memory: i64) -> i64 {
    let by_memory = match (ask.memory, ask.percent) {
        (0, 0) => WHOLE,
        (0, percent) => percent.saturating_mul(WHOLE / 100),
        (asked, _) => asked.saturating_mul(WHOLE).saturating_add(memory.max(1) - 1) / memory.max(1),
    };
    by_memory.max(ask.cores.saturating_mul(WHOLE / ALL_CORES)).max(1)
}

/// Thousandths of a card that are free for others.
fn free(card: &Card, load: &Load) -> i64 {
    let full = (card.slots > 0 && load.parts >= card.slots) || load.cores >= ALL_CORES;
    if full || card.memory <= 0 {
        return 0;
    }
    let memory = card.memory.saturating_sub(load.memory).saturating_mul(WHOLE) / card.memory;
    memory.min(ALL_CORES.saturating_sub(load.cores).saturating_mul(WHOLE / ALL_CORES)).max(0)
}
