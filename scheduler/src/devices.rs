//! Plugin deviceshare: parts of GPUs by memory and cores, and whole cards, on the cards of a node.
//!
//! Pure. Input: the cards of a node, their use, and what a pod requests for each container. Output: one or more
//! cards for each container. Source: Volcano's plugin of that name (`volcano.sh/gpu-memory`, `gpu-number`,
//! `vgpu-number`, `vgpu-memory`, `vgpu-memory-percentage`, `vgpu-cores`). Deliberately absent: locks of nodes,
//! NPUs, MIG geometries.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::cluster::Cluster;
use crate::index::{Fit, Misfit};
use crate::node::NodeId;
use crate::pod::{Class, PodId, Status};

/// Cores of a whole card, in hundredths.
pub const ALL_CORES: i64 = 100;
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Choice {
    /// The one with the least memory left.
    #[default]
    Binpack,
    /// The one with the most.
    Spread,
}

/// The plugin's configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DevicePolicy {
    /// `deviceshare.GPUSharingEnable`
    pub sharing: bool,
    /// `deviceshare.GPUNumberEnable`
    pub number: bool,
    /// `deviceshare.VGPUEnable`
    pub virtual_cards: bool,
    pub choice: Choice,
    /// Weight among node scores; 0: off.
    pub weight: i64,
}

impl DevicePolicy {
    /// Whether the plugin handles this request.
    pub fn concerns(&self, ask: &Ask) -> bool {
        match ask.sharing {
            Sharing::Virtual => self.virtual_cards,
            Sharing::Memory if ask.cores == ALL_CORES => self.number,
            Sharing::Memory => self.sharing,
        }
    }
}

/// Use of a card.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    pub parts: i64,
    pub memory: i64,
    pub cores: i64,
}

impl Load {
    fn add(&mut self, part: &Part) {
        self.parts += 1;
        self.memory += part.memory;
        self.cores += part.cores;
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
            && self.memory - load.memory >= memory
            && ALL_CORES - load.cores >= ask.cores
            && !(alone && load.parts > 0)
            // A card in exclusive use takes no other container, whatever it requests.
            && load.cores < ALL_CORES;
        fits.then_some(memory)
    }
}

/// Cards for all requests of a pod; `None` if there are none.
pub fn choose(
    cards: &[Card],
    loads: &BTreeMap<Arc<str>, Load>,
    asks: &[Ask],
    choice: Choice,
) -> Option<Vec<Part>> {
    let mut found = Vec::new();
    let mut steps = MAX_STEPS;
    let mut loads = loads.clone();
    place(cards, &mut loads, asks, 0, choice, &mut found, &mut steps).then_some(found)
}

/// One card after the other for the containers from `container` on, with backtracking.
fn place(
    cards: &[Card],
    loads: &mut BTreeMap<Arc<str>, Load>,
    asks: &[Ask],
    container: usize,
    choice: Choice,
    found: &mut Vec<Part>,
    steps: &mut usize,
) -> bool {
    let Some(ask) = asks.get(container) else { return true };
    let has = found.iter().filter(|part| part.container == container).count() as i64;
    if has >= ask.cards {
        return place(cards, loads, asks, container + 1, choice, found, steps);
    }
    let mut fitting: Vec<(i64, usize, i64)> = Vec::new();
    // Cards of one container are taken in order of preference, so that no set is tried twice.
    for (at, card) in cards.iter().enumerate() {
        let mine = found.iter().any(|part| part.container == container && part.card == card.id);
        let load = loads.get(&card.id).copied().unwrap_or_default();
        if let Some(memory) = card.takes(ask, &load).filter(|_| !mine) {
            let left = card.memory - load.memory - memory;
            fitting.push((if choice == Choice::Binpack { left } else { -left }, at, memory));
        }
    }
    if (fitting.len() as i64) < ask.cards - has {
        return false;
    }
    fitting.sort_unstable();
    for (_, at, memory) in fitting {
        if *steps == 0 {
            return false;
        }
        *steps -= 1;
        let card = &cards[at];
        let part = Part { container, card: card.id.clone(), memory, cores: ask.cores };
        let before = loads.get(&card.id).copied().unwrap_or_default();
        loads.entry(card.id.clone()).or_default().add(&part);
        found.push(part);
        if place(cards, loads, asks, container, choice, found, steps) {
            return true;
        }
        found.pop();
        loads.insert(card.id.clone(), before);
        // For a single request, all sets are equal: what fails with the best fails with all.
        if asks.len() == 1 {
            return false;
        }
    }
    false
}

/// Cards that a node shares by memory: as many as it reports, with equal memory.
pub fn cards_by_memory(memory: i64, number: i64) -> Vec<Card> {
    let card = |at: i64| Card {
        sharing: Sharing::Memory,
        id: at.to_string().into(),
        memory: memory / number.max(1),
        ..Card::default()
    };
    (0..number.max(0)).map(card).collect()
}

impl Cluster {
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
        if self.find_pod(pod).is_none_or(|known| known.parts == parts) {
            return;
        }
        let node = self.pod(pod).node;
        self.pod_mut(pod).parts = parts;
        if let Some(node) = node {
            self.nodes.note(node);
        }
    }

    /// Requests of the class that the plugin handles.
    pub(crate) fn asks<'c>(&self, class: &'c Class) -> &'c [Ask] {
        let asks = class.extras().map_or(&[][..], |extras| &extras.devices);
        let concerned = |policy: &DevicePolicy| asks.iter().any(|ask| policy.concerns(ask));
        if self.policy.devices.as_ref().is_some_and(concerned) { asks } else { &[] }
    }

    fn loads(&self, node: NodeId, fit: Fit) -> BTreeMap<Arc<str>, Load> {
        let mut loads: BTreeMap<Arc<str>, Load> = BTreeMap::new();
        for pod in self.nodes.get(node).pods.iter().map(|pod| self.pod(*pod)) {
            if fit == Fit::Future && pod.status == Status::Releasing {
                continue;
            }
            for part in &pod.parts {
                loads.entry(part.card.clone()).or_default().add(part);
            }
        }
        loads
    }

    /// Cards of the node for one more pod of the class.
    pub(crate) fn choose_cards(&self, class: &Class, node: NodeId, fit: Fit) -> Result<Vec<Part>, Misfit> {
        let asks = self.asks(class);
        let Some(policy) = self.policy.devices.as_ref().filter(|_| !asks.is_empty()) else {
            return Ok(Vec::new());
        };
        choose(&self.nodes.get(node).cards, &self.loads(node, fit), asks, policy.choice)
            .ok_or(Misfit::Devices)
    }

    /// Points of a node by how full its cards would be, of a full score.
    pub(crate) fn cards_score(&self, class: &Class, node: NodeId) -> i64 {
        let Some(policy) = self.policy.devices.as_ref().filter(|policy| policy.weight != 0) else { return 0 };
        if self.asks(class).is_empty() {
            return 0;
        }
        let Ok(parts) = self.choose_cards(class, node, Fit::Now) else { return 0 };
        let loads = self.loads(node, Fit::Now);
        let (mut used, mut whole) = (0_i64, 0_i64);
        for part in &parts {
            let card = self.nodes.get(node).cards.iter().find(|card| card.id == part.card);
            whole += card.map_or(0, |card| card.memory);
            used += part.memory + loads.get(&part.card).map_or(0, |load| load.memory);
        }
        let full = crate::score::FULL;
        let packed =
            if whole > 0 { (i128::from(used) * i128::from(full) / i128::from(whole)) as i64 } else { 0 };
        policy.weight * if policy.choice == Choice::Binpack { packed } else { full - packed }
    }
}
