//! Plugin deviceshare: parts of GPUs by memory and cores, and whole cards, on the cards of a node.
//!
//! Source: Volcano's plugin of that name (`volcano.sh/gpu-memory`, `gpu-number`, `vgpu-number`, `vgpu-memory`,
//! `vgpu-memory-percentage`, `vgpu-cores`). Deliberately absent: locks of nodes, NPUs, MIG geometries.

use super::rules::Rules;
use crate::amounts::CPU;
use crate::devices::{ALL_CORES, Ask, Choice, Loads, Part, Sharing, WHOLE, choose, count_parts};
use crate::ids::{NodeId, PodId};
use crate::misfit::{Fit, Misfit};
use crate::pod::{Class, Reserved, Status};
use crate::score::{FULL, asked};
use crate::settings::{ArgumentError, Hook, Settings};
use crate::state::State;

/// Weight without a `deviceshare.ScheduleWeight`, if no policy is named.
const DEFAULT_WEIGHT: i64 = 10;
/// Cards by which fragments may grow or shrink between the least and the highest score.
const RANGE: i64 = 16;
const NO_CARD: Misfit = Misfit::Rule("had no card with enough left");

/// Which nodes and cards are preferred.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preference {
    Binpack,
    Spread,
    /// Where most stays usable for what pods usually request (Fleet's own, and its default).
    Usable,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceShare {
    /// `deviceshare.GPUSharingEnable`
    pub sharing: bool,
    /// `deviceshare.GPUNumberEnable`
    pub number: bool,
    /// `deviceshare.VGPUEnable`
    pub virtual_cards: bool,
    pub preference: Preference,
    /// Weight among node scores; 0: off.
    pub weight: i64,
}

impl Rules for DeviceShare {
    const NAME: &'static str = "deviceshare";
    const ARGUMENTS: &'static [&'static str] = &[
        "deviceshare.GPUSharingEnable",
        "deviceshare.GPUNumberEnable",
        "deviceshare.VGPUEnable",
        "deviceshare.NodeLockEnable",
        "deviceshare.SchedulePolicy",
        "deviceshare.ScheduleWeight",
        "deviceshare.AscendMindClusterVNPUEnable",
        "deviceshare.KnownGeometriesCMName",
        "deviceshare.KnownGeometriesCMNamespace",
    ];
    const IDLE: &'static [&'static str] = &[
        "deviceshare.NodeLockEnable",
        "deviceshare.AscendMindClusterVNPUEnable",
        "deviceshare.KnownGeometriesCMName",
        "deviceshare.KnownGeometriesCMNamespace",
    ];
    const HOOKS: &'static [Hook] = &[Hook::Predicate, Hook::NodeOrder];

    fn compile(settings: &Settings<'_>) -> Result<Self, ArgumentError> {
        let policy = "deviceshare.SchedulePolicy";
        let (preference, weight) = match settings.text(policy) {
            None | Some("" | "usable") => (Preference::Usable, DEFAULT_WEIGHT),
            // As in Volcano, they only choose among the cards of a node, until there is a weight.
            Some("binpack") => (Preference::Binpack, 0),
            Some("spread") => (Preference::Spread, 0),
            Some(found) => return Err(settings.error(policy, found, "usable, binpack or spread")),
        };
        Ok(Self {
            sharing: settings.flag("deviceshare.GPUSharingEnable", false)?,
            number: settings.flag("deviceshare.GPUNumberEnable", false)?,
            virtual_cards: settings.flag("deviceshare.VGPUEnable", false)?,
            preference,
            weight: settings.weight("deviceshare.ScheduleWeight", weight)?,
        })
    }

    fn fits(&self, state: &State, class: &Class, node: NodeId, fit: Fit) -> Result<(), Misfit> {
        if self.asks(class).is_empty() { Ok(()) } else { self.choose(state, class, node, fit).map(drop) }
    }

    fn is_sensitive(&self, class: &Class) -> bool {
        !self.asks(class).is_empty()
    }

    fn node_score(&self, state: &State, class: &Class, node: NodeId) -> i64 {
        if self.weight == 0 || self.asks(class).is_empty() {
            return 0;
        }
        let Ok(parts) = self.choose(state, class, node, Fit::Now) else { return 0 };
        let loads = loads(state, node, Fit::Now);
        self.weight
            * match self.preference {
                Preference::Binpack => fullness(state, node, &parts, &loads),
                Preference::Spread => FULL - fullness(state, node, &parts, &loads),
                Preference::Usable => self.usability(state, class, node, (&parts, &loads)),
            }
    }

    fn reserve(&self, state: &State, pod: PodId, status: Status, node: NodeId, reserved: &mut Reserved) {
        let class = state.class(state.pod(pod).class);
        if !self.asks(class).is_empty() {
            let fit = if status == Status::Pipelined { Fit::Future } else { Fit::Now };
            reserved.parts = self.choose(state, class, node, fit).unwrap_or_default();
        }
    }
}

impl DeviceShare {
    /// Whether the plugin handles this request.
    fn concerns(&self, ask: &Ask) -> bool {
        match ask.sharing {
            Sharing::Virtual => self.virtual_cards,
            Sharing::Memory if ask.cores == ALL_CORES => self.number,
            Sharing::Memory => self.sharing,
        }
    }

    /// Requests of the class that the plugin handles.
    pub(crate) fn asks<'c>(&self, class: &'c Class) -> &'c [Ask] {
        let asks = class.extras().map_or(&[][..], |extras| &extras.devices);
        if asks.iter().any(|ask| self.concerns(ask)) { asks } else { &[] }
    }

    /// Cards of the node for one more pod of the class.
    fn choose(&self, state: &State, class: &Class, node: NodeId, fit: Fit) -> Result<Vec<Part>, Misfit> {
        let cards = &state.nodes.get(node).cards;
        let choice = match self.preference {
            Preference::Binpack => Choice::Binpack,
            Preference::Spread => Choice::Spread,
            Preference::Usable => Choice::Usable(&state.usual),
        };
        choose(cards, &loads(state, node, fit), self.asks(class), choice).ok_or(NO_CARD)
    }

    /// The higher, the less fragments grow; the fuller node among equals.
    fn usability(
        &self,
        state: &State,
        class: &Class,
        node: NodeId,
        (parts, loads): (&[Part], &Loads),
    ) -> i64 {
        let Some(sharing) = self.asks(class).first().map(|ask| ask.sharing) else { return 0 };
        let cards = &state.nodes.get(node).cards;
        let idle = state.nodes.cell(node, CPU).idle();
        let before = state.usual.fragments(cards, loads, None, sharing, Some(idle));
        let mut with = loads.clone();
        parts.iter().for_each(|part| with.entry(part.card.clone()).or_default().add(part));
        let left = idle - asked(class, CPU);
        let growth = state.usual.fragments(cards, &with, None, sharing, Some(left)) - before;
        let range = RANGE * WHOLE * state.usual.weight(sharing).max(1);
        let free = cards.iter().filter(|card| !loads.contains_key(&card.id)).count() as i64;
        (FULL / 2 - growth.clamp(-range, range) * (FULL / 2 / range)).max(0) - free
    }
}

/// How full the cards of the parts would be.
fn fullness(state: &State, node: NodeId, parts: &[Part], loads: &Loads) -> i64 {
    let (mut used, mut whole) = (0_i64, 0_i64);
    for part in parts {
        let card = state.nodes.get(node).cards.iter().find(|card| card.id == part.card);
        whole = whole.saturating_add(card.map_or(0, |card| card.memory));
        let before = loads.get(&part.card).map_or(0, |load| load.memory);
        used = used.saturating_add(part.memory).saturating_add(before);
    }
    if whole > 0 { (i128::from(used) * i128::from(FULL) / i128::from(whole)) as i64 } else { 0 }
}

fn loads(state: &State, node: NodeId, fit: Fit) -> Loads {
    let (mut loads, cards) = (Loads::new(), &state.nodes.get(node).cards);
    for pod in state.nodes.get(node).pods.iter().map(|pod| state.pod(*pod)) {
        if fit == Fit::Future && pod.status == Status::Releasing {
            continue;
        }
        let asks = state.class(pod.class).extras().map_or(&[][..], |extras| &extras.devices);
        count_parts(&mut loads, cards, asks, &pod.reserved.parts);
    }
    loads
}
