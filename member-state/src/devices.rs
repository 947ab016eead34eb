//! Devices of nodes, and requests and allocations of pods, in the names and annotations of Volcano's device
//! plugins.
//!
//! `volcano.sh/gpu-memory` and `gpu-number` share devices by memory; `volcano.sh/vgpu-*` by memory and cores,
//! with the devices in the node's annotation `volcano.sh/node-vgpu-register`
//! (`uuid,slots,memory,type,healthy[,mode]:...`). A pod's allocation is written to its annotations with its
//! binding, where the device plugin reads it.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
};

use fleet_resources::Resources;
use fleet_scheduler::devices::{ALL_CORES, Ask, Card, MOST_CARDS, Part, Sharing, cards_by_memory};

use fleet_agent_ground::lean::{LeanContainer, LeanNode, LeanPodSpec};

const GPU_MEMORY: &str = "volcano.sh/gpu-memory";
const GPU_NUMBER: &str = "volcano.sh/gpu-number";
const GPU_INDEX: &str = "volcano.sh/gpu-index";
const PREDICATE_TIME: &str = "volcano.sh/predicate-time";
const VGPU_NUMBER: &str = "volcano.sh/vgpu-number";
const VGPU_MEMORY: &str = "volcano.sh/vgpu-memory";
/// A part of a device, not a resource of a node.
pub const VGPU_PERCENT: &str = "volcano.sh/vgpu-memory-percentage";
const VGPU_CORES: &str = "volcano.sh/vgpu-cores";
const REGISTER: &str = "volcano.sh/node-vgpu-register";
const ASSIGNED: &str = "volcano.sh/vgpu-ids-new";
const TO_ALLOCATE: &str = "volcano.sh/devices-to-allocate";
const ASSIGNED_TIME: &str = "volcano.sh/vgpu-time";
const ASSIGNED_NODE: &str = "volcano.sh/vgpu-node";
const BIND_TIME: &str = "volcano.sh/bind-time";
const BIND_PHASE: &str = "volcano.sh/bind-phase";

/// Allocated parts of a pod, with the data for the device plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assigned {
    pub parts: Vec<Part>,
    pub asks: Vec<Ask>,
    /// Devices of the node.
    pub cards: Vec<Card>,
}

/// Virtual devices of a node that does not report them itself.
pub fn offered(cards: &[Card]) -> [(&'static str, i64); 3] {
    let of = || cards.iter().filter(|card| card.sharing == Sharing::Virtual);
    [
        (VGPU_NUMBER, fleet_resources::sum(of().map(|card| card.slots))),
        (VGPU_MEMORY, fleet_resources::sum(of().map(|card| card.memory))),
        (VGPU_CORES, of().count() as i64 * ALL_CORES),
    ]
}

/// Device requests of a pod: for the whole pod by memory, per container for virtual devices.
pub fn asks(spec: &LeanPodSpec) -> Vec<Ask> {
    let amounts: Vec<Resources> = spec
        .containers
        .iter()
        .map(|container: &LeanContainer| container.resources.requests().unwrap_or_default())
        .collect();
    let sum = |name: &str| fleet_resources::sum(amounts.iter().map(|amounts| amounts.get(name).max(0)));
    let mut found = Vec::new();
    if sum(GPU_NUMBER) > 0 {
        found.push(Ask { cards: sum(GPU_NUMBER), percent: 100, cores: ALL_CORES, ..Ask::default() });
    } else if sum(GPU_MEMORY) > 0 {
        found.push(Ask { cards: 1, memory: sum(GPU_MEMORY), ..Ask::default() });
    }
    for amounts in &amounts {
        let named = [VGPU_NUMBER, VGPU_MEMORY, VGPU_PERCENT, VGPU_CORES].map(|name| amounts.get(name).max(0));
        let [cards, memory, percent, cores] = named;
        if named.iter().any(|amount| *amount > 0) {
            let cards = cards.max(1);
            found.push(Ask {
                sharing: Sharing::Virtual,
                cards,
                memory,
                percent,
                cores: cores.min(ALL_CORES),
            });
        }
    }
    found
}

/// The node's healthy devices.
pub fn cards(node: &LeanNode) -> Vec<Card> {
    let amount = |name: &str| {
        let text = node.status.allocatable.0.get(name);
        text.and_then(|text| fleet_resources::quantity::parse(name, text).ok()).unwrap_or(0)
    };
    let mut found = cards_by_memory(amount(GPU_MEMORY), amount(GPU_NUMBER));
    let register = node.metadata.annotations.as_ref().and_then(|all| all.get(REGISTER));
    let entries = register.map_or("", String::as_str).split(':');
    for entry in entries.take(usize::try_from(MOST_CARDS).unwrap_or(0)) {
        let fields: Vec<&str> = entry.split(',').map(str::trim).collect();
        let [id, slots, memory, kind, healthy, ..] = fields.as_slice() else { continue };
        let (Ok(slots), Ok(memory)) = (slots.parse(), memory.parse()) else { continue };
        if *healthy == "true" {
            found.push(Card {
                sharing: Sharing::Virtual,
                id: (*id).into(),
                kind: (*kind).into(),
                memory,
                slots,
            });
        }
    }
    found
}

/// The parts in a pod's annotations that fit its requests. Anybody who may create pods in the member writes these texts, so they only
/// say which cards a pod has, as many as each request names: how much it uses there is counted by the request.
pub fn parts(annotations: Option<&BTreeMap<String, String>>, asks: &[Ask]) -> Vec<Part> {
    let text = |name: &str| annotations.and_then(|all| all.get(name)).map_or("", String::as_str);
    let of = |sharing: Sharing| asks.iter().enumerate().filter(move |(_, ask)| ask.sharing == sharing);
    let mut found = Vec::new();
    if let Some((container, ask)) = of(Sharing::Memory).next() {
        let cards = text(GPU_INDEX).split(',').map(str::trim).filter(|card| !card.is_empty());
        let part = |card: &str| Part { container, card: card.into(), memory: ask.memory, cores: ask.cores };
        found.extend(answer(ask, cards.map(|card| Some(part(card)))));
    }
    // Containers without devices have an empty text or none.
    let containers = text(ASSIGNED).split(';').map(|devices| devices.trim_matches(':'));
    for ((container, ask), devices) in of(Sharing::Virtual).zip(containers.filter(|text| !text.is_empty())) {
        found.extend(answer(ask, devices.split(':').map(|device| virtual_part(container, device))));
    }
    found
}

/// The parts, if they answer the request: each is one, and they are on as many different cards as it names.
fn answer(ask: &Ask, parts: impl Iterator<Item = Option<Part>>) -> Vec<Part> {
    let most = usize::try_from(ask.cards).unwrap_or(0);
    let found: Option<Vec<Part>> = parts.take(most.saturating_add(1)).collect();
    let found = found.unwrap_or_default();
    let cards: BTreeSet<&str> = found.iter().map(|part| &*part.card).collect();
    if cards.len() == most && found.len() == most { found } else { Vec::new() }
}

/// A part such as `GPU-a,T4,300,30`: card, type, memory, cores.
fn virtual_part(container: usize, text: &str) -> Option<Part> {
    let fields: Vec<&str> = text.split(',').map(str::trim).collect();
    let [card, _, memory, cores, ..] = fields.as_slice() else { return None };
    let memory = memory.parse().ok().filter(|memory| *memory >= 0)?;
    let cores = cores.parse().ok().filter(|cores| (0..=ALL_CORES).contains(cores))?;
    (!card.is_empty()).then(|| Part { container, card: (*card).into(), memory, cores })
}

/// Annotations with a pod's parts for the device plugin. `now` is in seconds.
pub fn annotations(assigned: &Assigned, node: &str, now: i64) -> BTreeMap<String, String> {
    let Assigned { parts, asks, cards } = assigned;
    let mut found = BTreeMap::new();
    let of = |sharing: Sharing| asks.iter().enumerate().filter(move |(_, ask)| ask.sharing == sharing);
    let numbers: Vec<&str> = of(Sharing::Memory)
        .flat_map(|(at, _)| parts.iter().filter(move |part| part.container == at).map(|part| &*part.card))
        .collect();
    if !numbers.is_empty() {
        found.insert(GPU_INDEX.to_owned(), numbers.join(","));
        found.insert(PREDICATE_TIME.to_owned(), now.to_string());
    }
    let mut devices: Vec<String> = Vec::new();
    for (at, _) in of(Sharing::Virtual) {
        let mut text = String::new();
        for part in parts.iter().filter(|part| part.container == at) {
            let kind = cards.iter().find(|card| card.id == part.card).map_or("", |card| &card.kind);
            // Writing to a String cannot fail.
            let _ = write!(text, "{},{kind},{},{}:", part.card, part.memory, part.cores);
        }
        devices.push(text);
    }
    if devices.iter().any(|device| !device.is_empty()) {
        let devices = devices.join(";");
        let pairs = [
            (ASSIGNED, devices.clone()),
            (TO_ALLOCATE, devices),
            (ASSIGNED_NODE, node.to_owned()),
            (ASSIGNED_TIME, now.to_string()),
            (BIND_TIME, now.to_string()),
            (BIND_PHASE, "allocating".to_owned()),
        ];
        found.extend(pairs.map(|(name, value)| (name.to_owned(), value)));
    }
    found
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn spec(containers: &[serde_json::Value]) -> LeanPodSpec {
        let containers: Vec<_> =
            containers.iter().map(|limits| json!({"resources": {"limits": limits}})).collect();
        serde_json::from_value(json!({"containers": containers})).unwrap()
    }

    #[test]
    fn what_pods_ask_for_is_read() {
        let by_memory = asks(&spec(&[json!({GPU_MEMORY: 4}), json!({GPU_MEMORY: 6})]));
        assert_eq!(by_memory, [Ask { cards: 1, memory: 10, ..Ask::default() }]);
        let whole = asks(&spec(&[json!({GPU_NUMBER: 2})]));
        assert_eq!(whole, [Ask { cards: 2, percent: 100, cores: ALL_CORES, ..Ask::default() }]);
        let virtual_cards = asks(&spec(&[
            json!({VGPU_NUMBER: 2, VGPU_PERCENT: 50}),
            json!({"cpu": 1}),
            json!({VGPU_MEMORY: 300, VGPU_CORES: 30}),
        ]));
        let of =
            |cards, memory, percent, cores| Ask { sharing: Sharing::Virtual, cards, memory, percent, cores };
        assert_eq!(virtual_cards, [of(2, 0, 50, 0), of(1, 300, 0, 30)]);
        assert_eq!(asks(&spec(&[json!({"nvidia.com/gpu": 1})])), []);
    }

    #[test]
    fn cards_of_a_node_are_read() {
        let node: LeanNode = serde_json::from_value(json!({
            "metadata": {"name": "n", "annotations": {REGISTER:
                "GPU-a,10,15360,NVIDIA-T4,true,hami-core:GPU-b,10,15360,NVIDIA-T4,false:broken:GPU-c,2,100,X,true:"}},
            "status": {"allocatable": {GPU_MEMORY: "32", GPU_NUMBER: "2"}},
        }))
        .unwrap();
        let text = |card: &Card| format!("{} {} {} {}", card.id, card.memory, card.slots, card.kind);
        let found: Vec<String> = cards(&node).iter().map(text).collect();
        assert_eq!(found, ["0 16 0 ", "1 16 0 ", "GPU-a 15360 10 NVIDIA-T4", "GPU-c 100 2 X"]);
    }

    #[test]
    fn what_a_pod_has_is_written_and_read_again() {
        let card = |id: &str| Card {
            sharing: Sharing::Virtual,
            id: id.into(),
            kind: "T4".into(),
            ..Card::default()
        };
        let cards = [card("GPU-a"), card("GPU-b")];
        let asks =
            asks(&spec(&[json!({VGPU_NUMBER: 2, VGPU_MEMORY: 5}), json!({VGPU_NUMBER: 1, VGPU_CORES: 20})]));
        let part = |container, id: &str, memory, cores| Part { container, card: id.into(), memory, cores };
        let has = [part(0, "GPU-a", 5, 0), part(0, "GPU-b", 5, 0), part(1, "GPU-a", 100, 20)];
        let assigned = Assigned { parts: has.to_vec(), asks: asks.clone(), cards: cards.to_vec() };
        let written = annotations(&assigned, "n1", 7);
        assert_eq!(written[ASSIGNED], "GPU-a,T4,5,0:GPU-b,T4,5,0:;GPU-a,T4,100,20:");
        assert_eq!((written[ASSIGNED_NODE].as_str(), written[BIND_PHASE].as_str()), ("n1", "allocating"));
        assert_eq!(parts(Some(&written), &asks), has);
        let by_memory = super::asks(&spec(&[json!({GPU_MEMORY: 4})]));
        let has = [Part { container: 0, card: "1".into(), memory: 4, cores: 0 }];
        let assigned = Assigned { parts: has.to_vec(), asks: by_memory, cards: Vec::new() };
        let written = annotations(&assigned, "n1", 7);
        assert_eq!(
            written.into_iter().collect::<Vec<_>>(),
            [(GPU_INDEX.to_owned(), "1".to_owned()), (PREDICATE_TIME.to_owned(), "7".to_owned()),]
        );
    }

    /// What a tenant writes in a template to get more cards than the pod asks for, or to seem to use less.
    #[test]
    fn annotations_give_no_pod_more_cards_than_it_asks_for() {
        let read = |limits: serde_json::Value, name: &str, text: &str| {
            let annotations = BTreeMap::from([(name.to_owned(), text.to_owned())]);
            let found = parts(Some(&annotations), &asks(&spec(&[limits])));
            found.iter().map(|part| format!("{}:{}", part.container, part.card)).collect::<Vec<_>>().join(" ")
        };
        let memory = || json!({GPU_MEMORY: 1});
        let card = |number: usize| format!("{number},x,1,100:");
        let eight: String = (0..8).map(card).collect();
        // By memory, no text of virtual devices counts, and the other way round.
        assert_eq!(read(memory(), ASSIGNED, &eight), "");
        assert_eq!(read(json!({VGPU_NUMBER: 1}), GPU_INDEX, "0"), "");
        assert_eq!(
            (read(memory(), GPU_INDEX, "3"), read(memory(), GPU_INDEX, "0,1,2")),
            ("0:3".into(), String::new())
        );
        let two = || json!({VGPU_NUMBER: 2, VGPU_MEMORY: 5});
        assert_eq!(read(two(), ASSIGNED, "a,T,5,0:b,T,5,0:;"), "0:a 0:b");
        assert_eq!(
            read(two(), ASSIGNED, ";a,T,5,0:b,T,5,0:;"),
            "0:a 0:b",
            "the first container has no devices"
        );
        for text in [
            eight.as_str(),
            "a,T,5,0:",
            "a,T,5,0:a,T,5,0:",
            "a,T,-100,0:b,T,5,0:",
            "a,T,5,101:b,T,5,0:",
            "a,T,99999999999999999999,0:b,T,5,0:",
            "a,T,5:b,T,5,0:",
        ] {
            assert_eq!(read(two(), ASSIGNED, text), "", "{text}");
        }
        // A second container that asks for nothing gets nothing.
        assert_eq!(read(two(), ASSIGNED, "a,T,5,0:b,T,5,0:;c,T,5,0:"), "0:a 0:b");
    }

    #[test]
    fn amounts_of_devices_stay_at_their_bounds() {
        let huge = i64::MAX.to_string();
        let by_memory = asks(&spec(&[json!({GPU_MEMORY: huge}), json!({GPU_MEMORY: huge})]));
        assert_eq!(by_memory, [Ask { cards: 1, memory: i64::MAX, ..Ask::default() }]);
        let node: LeanNode = serde_json::from_value(json!({
            "metadata": {"name": "n", "annotations": {REGISTER: format!("a,{huge},{huge},T,true:b,{huge},{huge},T,true:")}},
            "status": {"allocatable": {GPU_MEMORY: "32", GPU_NUMBER: huge}},
        }))
        .unwrap();
        let cards = cards(&node);
        assert_eq!(cards.len(), 1024 + 2);
        assert_eq!(offered(&cards), [(VGPU_NUMBER, i64::MAX), (VGPU_MEMORY, i64::MAX), (VGPU_CORES, 200)]);
    }
}
