//! Parts of cards: what fits, which card, and a search of everything beside it.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;

use super::bed::Bed;
use crate::devices::{ALL_CORES, Ask, Card, Choice, Load, Part, Sharing, Usual, choose};
use crate::*;

fn config(arguments: &[(&str, &str)]) -> Config {
    let plugin = Plugin::new(PluginName::DeviceShare);
    let plugin = arguments.iter().fold(plugin, |plugin, (name, value)| plugin.argument(name, value));
    Config {
        actions: vec![Action::Allocate, Action::Preempt],
        tiers: vec![vec![
            Plugin::new(PluginName::Priority),
            Plugin::new(PluginName::Gang),
            Plugin::new(PluginName::Predicates),
            plugin,
        ]],
        action_arguments: BTreeMap::new(),
    }
}

const SHARED: (&str, &str) = ("deviceshare.GPUSharingEnable", "true");
const NUMBER: (&str, &str) = ("deviceshare.GPUNumberEnable", "true");
const VIRTUAL: (&str, &str) = ("deviceshare.VGPUEnable", "true");

fn memory(memory: i64) -> Ask {
    Ask { cards: 1, memory, ..Ask::default() }
}

fn whole(cards: i64) -> Ask {
    Ask { cards, percent: 100, cores: ALL_CORES, ..Ask::default() }
}

fn virtual_card(cards: i64, memory: i64, cores: i64) -> Ask {
    Ask { sharing: Sharing::Virtual, cards, memory, cores, percent: 0 }
}

fn cards(sharing: Sharing, memory: &[i64], slots: i64) -> Vec<Card> {
    let card = |(at, memory): (usize, &i64)| Card {
        sharing,
        id: format!("card-{at}").into(),
        kind: "T".into(),
        memory: *memory,
        slots,
    };
    memory.iter().enumerate().map(card).collect()
}

fn pod(bed: &mut Bed, text: &str, asks: &[Ask]) {
    bed.pod_with(text, Extras { devices: asks.to_vec(), ..Extras::default() });
}

/// `pod>node:card+card ...`
fn parts(bed: &Bed) -> String {
    let text = |(pod, node): (&String, &String)| {
        let known = bed.cluster.pod(bed.pods[pod]);
        let cards: Vec<&str> = known.reserved.parts.iter().map(|part| &*part.card).collect();
        format!("{pod}>{node}:{}", cards.join("+"))
    };
    bed.bound.iter().map(text).collect::<Vec<_>>().join(" ")
}

#[test]
fn a_part_fits_on_one_card_or_not_at_all() {
    let mut bed = Bed::new(&config(&[SHARED, NUMBER])).nodes(&["n1 c8", "n2 c8"]);
    for node in ["n1", "n2"] {
        bed.cluster.set_cards(node, cards(Sharing::Memory, &[16, 16], 0));
    }
    bed.group("g default min=0");
    // 20 of 32 would be free as a sum, but no card has 12 left beside 10.
    pod(&mut bed, "a-a-0 g c1", &[memory(10)]);
    pod(&mut bed, "a-a-1 g c1", &[memory(12)]);
    pod(&mut bed, "a-a-2 g c1", &[memory(6)]);
    pod(&mut bed, "a-a-3 g c1", &[whole(2)]);
    pod(&mut bed, "a-a-4 g c1", &[memory(5)]);
    bed.cycle_at(0);
    assert_eq!(parts(&bed), "a-a-0>n1:card-0 a-a-1>n1:card-1 a-a-2>n1:card-0 a-a-3>n2:card-0+card-1");
    assert!(bed.why("g").contains("had no card with enough left"), "{}", bed.why("g"));
    bed.end("a-a-2");
    bed.cycle_at(1);
    assert!(parts(&bed).contains("a-a-4>n1:card-0"), "{}", parts(&bed));
}

#[test]
fn cores_and_slots_bound_a_virtual_card_and_all_cores_are_the_card_alone() {
    let mut bed = Bed::new(&config(&[VIRTUAL])).nodes(&["n1 c8"]);
    bed.cluster.set_cards("n1", cards(Sharing::Virtual, &[100, 100, 100], 2));
    bed.group("g default min=0");
    pod(&mut bed, "a-a-0 g c1", &[virtual_card(1, 30, 60)]);
    pod(&mut bed, "a-a-1 g c1", &[virtual_card(1, 30, 60)]);
    pod(&mut bed, "a-a-2 g c1", &[virtual_card(1, 30, 40)]);
    pod(&mut bed, "a-a-3 g c1", &[virtual_card(1, 10, ALL_CORES)]);
    // A card with all its cores taken takes nobody, even one who asks for none.
    pod(&mut bed, "a-a-4 g c1", &[virtual_card(2, 10, 0)]);
    pod(&mut bed, "a-a-5 g c1", &[virtual_card(1, 10, 0)]);
    bed.cycle_at(0);
    let wanted = "a-a-0>n1:card-0 a-a-1>n1:card-1 a-a-2>n1:card-0 a-a-3>n1:card-2 a-a-5>n1:card-1";
    assert_eq!(parts(&bed), wanted);
}

#[test]
fn binpack_fills_a_card_and_spread_begins_another() {
    for (policy, wanted) in
        [("binpack", "a-a-0>n1:card-0 a-a-1>n1:card-0"), ("spread", "a-a-0>n1:card-0 a-a-1>n2:card-0")]
    {
        let arguments =
            [SHARED, ("deviceshare.SchedulePolicy", policy), ("deviceshare.ScheduleWeight", "10")];
        let mut bed = Bed::new(&config(&arguments)).nodes(&["n1 c8", "n2 c8"]);
        bed.cluster.set_cards("n1", cards(Sharing::Memory, &[16, 16], 0));
        bed.cluster.set_cards("n2", cards(Sharing::Memory, &[16, 16], 0));
        bed.group("g default min=0");
        pod(&mut bed, "a-a-0 g c1", &[memory(4)]);
        pod(&mut bed, "a-a-1 g c1", &[memory(4)]);
        bed.cycle_at(0);
        if policy == "spread" {
            // On two nodes with two cards each, the second part begins a card of its own.
            let cards: std::collections::BTreeSet<String> =
                parts(&bed).split(' ').map(|pod| pod.split_once('>').unwrap().1.to_owned()).collect();
            assert_eq!(cards.len(), 2, "{}", parts(&bed));
        } else {
            assert_eq!(parts(&bed), wanted);
        }
    }
}

/// Annotations of a bound pod are its owner's text.
#[test]
fn a_pod_uses_no_more_of_cards_than_it_asks_for_whatever_its_parts_say() {
    let binpack = ("deviceshare.SchedulePolicy", "binpack");
    let mut bed = Bed::new(&config(&[SHARED, VIRTUAL, binpack])).nodes(&["n1 c8"]);
    let mut both = cards(Sharing::Memory, &[16, 16], 0);
    both.push(Card { sharing: Sharing::Virtual, id: "v".into(), kind: "T".into(), memory: 100, slots: 4 });
    bed.cluster.set_cards("n1", both);
    bed.group("g default min=0");
    pod(&mut bed, "a-a-0 g c1 on=n1", &[memory(1)]);
    let part = |container, card: &str, memory, cores| Part { container, card: card.into(), memory, cores };
    let told = |bed: &mut Bed, parts: Vec<Part>| bed.cluster.set_parts(bed.pods["a-a-0"], parts);
    // Exclusive use, a part of a card of the other kind, cards that do not exist, more containers than ask.
    let whole = part(0, "card-0", 16, ALL_CORES);
    told(&mut bed, vec![whole, part(0, "v", 100, ALL_CORES), part(0, "x", 1, 0), part(1, "card-1", 16, 0)]);
    pod(&mut bed, "b-a-0 g c1", &[memory(15)]);
    pod(&mut bed, "b-a-1 g c1", &[memory(16)]);
    pod(&mut bed, "b-a-2 g c1", &[virtual_card(1, 100, 0)]);
    bed.cycle_at(0);
    assert_eq!(parts(&bed), "b-a-0>n1:card-0 b-a-1>n1:card-1 b-a-2>n1:v");
    // Nor does it seem to use less than nothing, or so much that the sum is less than nothing.
    for memory_told in [-100, i64::MAX] {
        told(&mut bed, vec![part(0, "card-0", memory_told, 0)]);
        pod(&mut bed, &format!("c-a-{} g c1", memory_told.signum() + 1), &[memory(1)]);
        bed.cycle_at(1);
        assert!(!parts(&bed).contains("c-a"), "{}", parts(&bed));
    }
}

#[test]
fn a_part_is_taken_back_from_whom_has_it() {
    let mut bed = Bed::new(&config(&[SHARED])).nodes(&["n1 c8"]);
    bed.cluster.set_cards("n1", cards(Sharing::Memory, &[16, 16], 0));
    bed.group("low default min=0 prio=1");
    pod(&mut bed, "l-a-0 low c1", &[memory(16)]);
    pod(&mut bed, "l-a-1 low c1", &[memory(8)]);
    bed.cycle_at(0);
    bed.settle();
    bed.group("high default min=1 prio=10");
    pod(&mut bed, "h-a-0 high c1", &[memory(10)]);
    bed.cycle_at(1);
    assert_eq!(bed.evicted.len(), 1, "one of the two is enough");
    bed.settle();
    bed.cycle_at(2);
    assert!(bed.bound.contains_key("h-a-0"));
}

#[test]
fn what_the_annotations_say_counts_and_without_the_plugin_nothing_does() {
    let mut bed = Bed::new(&config(&[VIRTUAL])).nodes(&["n1 c8"]);
    bed.cluster.set_cards("n1", cards(Sharing::Virtual, &[100], 10));
    bed.group("g default min=0");
    pod(&mut bed, "r-a-0 g c1 on=n1", &[virtual_card(1, 80, 10)]);
    let part = Part { container: 0, card: "card-0".into(), memory: 80, cores: 10 };
    bed.cluster.set_parts(bed.pods["r-a-0"], vec![part]);
    pod(&mut bed, "a-a-0 g c1", &[virtual_card(1, 30, 10)]);
    bed.cycle_at(0);
    assert_eq!(bed.binds(), "");
    let mut bed = Bed::new(&Config::default()).nodes(&["n1 c8"]);
    bed.group("g default min=0");
    pod(&mut bed, "a-a-0 g c1", &[virtual_card(1, 30, 10)]);
    bed.cycle_at(0);
    assert_eq!(bed.binds(), "a-a-0>n1");
}

/// Whether the asks fit: every card is tried for every part.
fn possible(
    cards: &[Card],
    loads: &mut Vec<Load>,
    parts: &[(usize, &Ask)],
    taken: &mut Vec<(usize, usize)>,
) -> bool {
    let Some(((container, ask), rest)) = parts.split_first() else { return true };
    (0..cards.len()).any(|at| {
        if taken.contains(&(*container, at)) {
            return false;
        }
        let Some(memory) = cards[at].takes(ask, &loads[at]) else { return false };
        let before = loads[at];
        loads[at] =
            Load { parts: before.parts + 1, memory: before.memory + memory, cores: before.cores + ask.cores };
        taken.push((*container, at));
        let found = possible(cards, loads, rest, taken);
        taken.pop();
        loads[at] = before;
        found
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    /// Cards are found exactly when a search of everything finds some, and what is found stays within each card.
    #[test]
    fn cards_are_found_when_there_are_any(
        sizes in proptest::collection::vec(4_i64..20, 1..5),
        standing in proptest::collection::vec((0_usize..5, 1_i64..10, 0_i64..60), 0..4),
        asks in proptest::collection::vec((1_i64..3, 0_i64..12, 0_i64..5), 1..4),
        slots in 0_i64..4, spread in any::<bool>(), usable in any::<bool>(),
    ) {
        let cards = cards(Sharing::Virtual, &sizes, slots);
        let mut loads = vec![Load::default(); cards.len()];
        for (at, memory, cores) in standing {
            let load = &mut loads[at % cards.len()];
            if let Some(memory) = cards[at % cards.len()].takes(&virtual_card(1, memory, cores), load) {
                *load = Load { parts: load.parts + 1, memory: load.memory + memory, cores: load.cores + cores };
            }
        }
        let asks: Vec<Ask> = asks.into_iter().map(|(n, memory, cores)| virtual_card(n, memory, cores * 25)).collect();
        let parts: Vec<(usize, &Ask)> =
            asks.iter().enumerate().flat_map(|(at, ask)| (0..ask.cards).map(move |_| (at, ask))).collect();
        let wanted = possible(&cards, &mut loads.clone(), &parts, &mut Vec::new());
        let named: BTreeMap<Arc<str>, Load> =
            cards.iter().zip(&loads).map(|(card, load)| (card.id.clone(), *load)).collect();
        let choice = if spread { Choice::Spread } else { Choice::Binpack };
        let usual = Usual::new([(asks.clone(), 1_000, 3), (vec![virtual_card(1, 9, 0)], 500, 1)]);
        let choice = if usable { Choice::Usable(&usual) } else { choice };
        let found = choose(&cards, &named, &asks, choice);
        prop_assert_eq!(found.is_some(), wanted, "{:?}", found);
        for part in found.iter().flatten() {
            let at = cards.iter().position(|card| card.id == part.card).unwrap();
            let load = &mut loads[at];
            prop_assert!(load.cores < ALL_CORES, "the card is somebody's own");
            *load = Load { parts: load.parts + 1, memory: load.memory + part.memory, cores: load.cores + part.cores };
            prop_assert!(load.memory <= cards[at].memory && load.cores <= ALL_CORES);
            prop_assert!(slots == 0 || load.parts <= slots);
        }
        if let Some(found) = found {
            for (at, ask) in asks.iter().enumerate() {
                let own: std::collections::BTreeSet<_> =
                    found.iter().filter(|part| part.container == at).map(|part| part.card.clone()).collect();
                prop_assert_eq!(own.len() as i64, ask.cards);
            }
        }
    }
}

#[test]
fn parts_go_where_most_stays_usable() {
    let place = |policy: Option<&str>| {
        let arguments = policy.map(|policy| ("deviceshare.SchedulePolicy", policy));
        let arguments: Vec<_> = [SHARED, NUMBER].into_iter().chain(arguments).collect();
        let mut bed = Bed::new(&config(&arguments)).nodes(&["n1 c8", "n2 c8"]);
        // One card is in use by half on n2: a further part there leaves three whole cards.
        bed.cluster.set_cards("n1", cards(Sharing::Memory, &[16, 16], 0));
        bed.cluster.set_cards("n2", cards(Sharing::Memory, &[16, 16], 0));
        bed.group("g default min=0");
        pod(&mut bed, "r-a-0 g c1 on=n2", &[memory(8)]);
        bed.cluster.set_parts(
            bed.pods["r-a-0"],
            vec![Part { container: 0, card: "card-1".into(), memory: 8, cores: 0 }],
        );
        pod(&mut bed, "a-a-0 g c1 prio=9", &[memory(8)]);
        pod(&mut bed, "b-a-0 g c1 prio=5", &[whole(2)]);
        pod(&mut bed, "b-a-1 g c1 prio=1", &[whole(1)]);
        bed.cycle_at(0);
        parts(&bed)
    };
    let wanted = "a-a-0>n2:card-1 b-a-0>n1:card-0+card-1 b-a-1>n2:card-0";
    assert_eq!(place(None), wanted);
    assert_eq!(place(Some("usable")), wanted);
    assert_ne!(place(Some("spread")), wanted);
}

#[test]
fn what_is_usual_follows_the_pods() {
    let mut bed = Bed::new(&config(&[SHARED])).nodes(&["n1 c8"]);
    bed.group("g default min=0");
    pod(&mut bed, "a-a-0 g c1", &[memory(8)]);
    bed.cycle_at(0);
    assert!(bed.cluster.usual.weight(Sharing::Memory) > 0);
    bed.end("a-a-0");
    bed.cycle_at(1);
    assert_eq!(bed.cluster.usual.weight(Sharing::Memory), 0);
    assert!(bed.cluster.card_pods.is_empty());
}
