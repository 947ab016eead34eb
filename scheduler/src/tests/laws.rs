//! Laws over random small clusters, some against a search of everything.

use proptest::prelude::*;

use super::bed::Bed;
use crate::config::Hook::Preemptable;
use crate::config::PluginName::*;
use crate::*;

fn taking(queues: PluginName) -> Config {
    Config {
        actions: vec![Action::Enqueue, Action::Allocate, Action::Preempt, Action::Reclaim],
        tiers: vec![
            vec![Plugin::new(Priority), Plugin::new(Gang), Plugin::new(Conformance)],
            vec![
                Plugin::new(Drf).without(Preemptable),
                Plugin::new(Predicates),
                Plugin::new(queues),
                Plugin::new(Binpack),
            ],
        ],
        ..Config::default()
    }
}

/// Whether pods of these sizes fit on nodes with this much free: every way is tried.
fn fits(free: &mut [i64], pods: &[i64]) -> bool {
    let Some((first, rest)) = pods.split_first() else { return true };
    (0..free.len()).any(|node| {
        if free[node] < *first {
            return false;
        }
        free[node] -= first;
        let found = fits(free, rest);
        free[node] += first;
        found
    })
}

proptest! {
    #![proptest_config(ProptestConfig::default())]

    /// A gang is bound exactly when a search of everything finds a way, and then whole.
    #[test]
    fn a_gang_that_fits_is_placed(
        nodes in proptest::collection::vec(1_i64..6, 1..4),
        pods in proptest::collection::vec(1_i64..5, 1..6),
    ) {
        let names: Vec<String> = nodes.iter().enumerate().map(|(i, c)| format!("n{i} c{c}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let mut bed = Bed::new(&Config::default()).nodes(&names);
        bed.group(&format!("g default min={}", pods.len()));
        for (i, c) in pods.iter().enumerate() {
            bed.pod(&format!("p-a-{i} g c{c} role=r{c}"));
        }
        bed.cycle_at(0);
        let possible = fits(&mut nodes.clone(), &pods);
        prop_assert_eq!(bed.bound.len(), if possible { pods.len() } else { 0 }, "{}", bed.why("g"));
    }

    /// Jobs come and go: no node is overcommitted, gangs stand whole, nothing that fits is left waiting.
    #[test]
    fn places_are_given_and_come_back(
        nodes in proptest::collection::vec(2_i64..6, 1..4),
        steps in proptest::collection::vec((0_usize..6, 1_i64..4, 1_usize..4, any::<bool>()), 1..25),
    ) {
        let names: Vec<String> = nodes.iter().enumerate().map(|(i, c)| format!("n{i} c{c}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let mut bed = Bed::new(&Config::default()).nodes(&names);
        let mut gangs: Vec<Option<(usize, i64)>> = vec![None; 6];
        for (now, (slot, size, count, ends)) in steps.into_iter().enumerate() {
            match gangs[slot] {
                Some((count, _)) if ends => {
                    (0..count).for_each(|i| bed.end(&format!("p{slot}-a-{i}")));
                    gangs[slot] = None;
                }
                Some(_) => {}
                None => {
                    bed.group(&format!("g{slot} default min={count} created={now}"));
                    (0..count).for_each(|i| bed.pod(&format!("p{slot}-a-{i} g{slot} c{size}")));
                    gangs[slot] = Some((count, size));
                }
            }
            bed.cycle_at(now as i64);
            bed.settle();
            let mut free = nodes.clone();
            for (name, node) in &bed.bound {
                let slot: usize = name[1..2].parse().unwrap();
                let at: usize = node[1..].parse().unwrap();
                free[at] -= gangs[slot].unwrap().1;
            }
            for (slot, gang) in gangs.iter().enumerate() {
                let Some((count, size)) = gang else { continue };
                let held = (0..*count).filter(|i| bed.bound.contains_key(&format!("p{slot}-a-{i}"))).count();
                prop_assert!(held == 0 || held == *count, "{held} of {count}");
                if held == 0 {
                    prop_assert!(!fits(&mut free.clone(), &vec![*size; *count]), "g{slot} would fit: {free:?}");
                }
            }
        }
    }

    /// Pods that never preempt stand where room was before anybody left, whatever else of their gang preempts.
    #[test]
    fn who_never_preempts_makes_nobody_leave(
        nodes in proptest::collection::vec(2_i64..6, 1..4),
        low in proptest::collection::vec((1_i64..4, 1_usize..3, 0_usize..3), 1..5),
        high in proptest::collection::vec((1_i64..4, any::<bool>()), 1..4),
    ) {
        let names: Vec<String> = nodes.iter().enumerate().map(|(i, c)| format!("n{i} c{c}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let mut bed = Bed::new(&taking(Proportion)).nodes(&names);
        let mut sizes = std::collections::BTreeMap::new();
        for (number, (size, count, min)) in low.iter().enumerate() {
            bed.group(&format!("g{number} default min={} prio=1 created={number}", min.min(count)));
            for i in 0..*count {
                bed.pod(&format!("p{number}-a-{i} g{number} c{size}"));
                sizes.insert(format!("p{number}-a-{i}"), *size);
            }
        }
        bed.cycle_at(0);
        bed.settle();
        let mut free = nodes.clone();
        for (pod, node) in &bed.bound {
            free[node[1..].parse::<usize>().unwrap()] -= sizes[pod];
        }
        bed.group(&format!("high default min={} prio=9 created=9", high.len()));
        for (i, (size, never)) in high.iter().enumerate() {
            bed.pod(&format!("h-a-{i} high c{size} {}", if *never { "never" } else { "" }));
        }
        bed.cycle_at(1);
        let peaceful: Vec<i64> = high.iter().filter(|(_, never)| *never).map(|(size, _)| *size).collect();
        if !bed.evicted.is_empty() {
            prop_assert!(fits(&mut free, &peaceful), "{:?} left", bed.evicted);
        }
    }

    /// The same where the victims are of another queue, which holds more than it deserves: whoever of the gang has a place,
    /// pods that never preempt are where room was, and a gang of nobody else makes nobody leave.
    #[test]
    fn who_never_preempts_makes_nobody_of_another_queue_leave(
        nodes in proptest::collection::vec(2_i64..6, 1..4),
        low in proptest::collection::vec((0_usize..2, 1_i64..4, 1_usize..3, 0_usize..3), 1..5),
        high in proptest::collection::vec((1_i64..4, any::<bool>()), 1..4),
        min in 0_usize..4,
        by_capacity in any::<bool>(),
    ) {
        let names: Vec<String> = nodes.iter().enumerate().map(|(i, c)| format!("n{i} c{c}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let mut bed = Bed::new(&taking(if by_capacity { Capacity } else { Proportion })).nodes(&names);
        bed.queue("q0 w1 des=c1");
        bed.queue("q1 w3 des=c9");
        let mut sizes = std::collections::BTreeMap::new();
        for (number, (queue, size, count, min)) in low.iter().enumerate() {
            bed.group(&format!("g{number} q{queue} min={} prio=1 created={number}", min.min(count)));
            for i in 0..*count {
                bed.pod(&format!("p{number}-a-{i} g{number} c{size}"));
                sizes.insert(format!("p{number}-a-{i}"), *size);
            }
        }
        bed.cycle_at(0);
        // Of those that took others' places nobody is asked here, nor of those that wait.
        prop_assume!(bed.evicted.is_empty());
        bed.settle();
        for pod in sizes.keys().filter(|pod| !bed.bound.contains_key(*pod)).cloned().collect::<Vec<_>>() {
            bed.end(&pod);
        }
        let mut free = nodes.clone();
        for (pod, node) in &bed.bound {
            free[node[1..].parse::<usize>().unwrap()] -= sizes[pod];
        }
        bed.group(&format!("high q1 min={} prio=9 created=9", min.min(high.len())));
        for (i, (size, never)) in high.iter().enumerate() {
            bed.pod(&format!("h-a-{i} high c{size} {}", if *never { "never" } else { "" }));
        }
        bed.cycle_at(1);
        let (binds, promises) = (bed.binds(), bed.promises());
        let has_place = |i: usize| format!(" {binds} {promises}").contains(&format!(" h-a-{i}>"));
        let peaceful = high.iter().enumerate().filter(|(i, (_, never))| *never && has_place(*i));
        let peaceful: Vec<i64> = peaceful.map(|(_, (size, _))| *size).collect();
        prop_assert!(fits(&mut free, &peaceful), "{binds} | {promises} | {:?} left", bed.evicted);
        let only_peaceful = high.iter().all(|(_, never)| *never);
        prop_assert!(!only_peaceful || bed.evicted.is_empty(), "{:?} left", bed.evicted);
    }

    /// Victims are useful and none too many, nobody takes without need, and it comes to an end.
    #[test]
    fn taking_ends_and_takes_no_more_than_needed(
        nodes in proptest::collection::vec(2_i64..7, 1..4),
        weights in proptest::collection::vec(1_i64..4, 3),
        jobs in proptest::collection::vec((0_usize..3, 1_i64..4, 1_usize..4, 0_usize..4, 0_i64..3), 2..8),
        by_capacity in any::<bool>(),
    ) {
        let names: Vec<String> = nodes.iter().enumerate().map(|(i, c)| format!("n{i} c{c}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let mut bed = Bed::new(&taking(if by_capacity { Capacity } else { Proportion })).nodes(&names);
        for (q, weight) in weights.iter().enumerate() {
            bed.queue(&format!("q{q} w{weight} des=c{weight}"));
        }
        let mut sizes = std::collections::BTreeMap::new();
        for (number, (queue, size, count, min, priority)) in jobs.iter().enumerate() {
            let min = (*min).min(*count);
            // One job after the other: later ones find the cluster taken.
            bed.group(&format!("g{number} q{queue} min={min} prio={priority} created={number}"));
            for i in 0..*count {
                bed.pod(&format!("p{number}-a-{i} g{number} c{size}"));
                sizes.insert(format!("p{number}-a-{i}"), (number, *size));
            }
            // A taken pod is made again and waits, as its controller would have it.
            let mut rounds = 0;
            loop {
                let before = bed.bound.len();
                bed.cycle_at(rounds);
                let evicted = bed.evicted.clone();
                // Whoever was evicted makes room that the promises need: putting back any one of them leaves too little.
                for victim in &evicted {
                    let group = bed.cluster.pod(bed.pods[victim]).group;
                    let whole = bed.cluster.group(group).ready() < bed.cluster.group(group).min();
                    // A gang that goes whole comes back whole, or one pod does.
                    let back = |other: &&String| {
                        *other == victim || (whole && bed.cluster.pod(bed.pods[*other]).group == group)
                    };
                    let mut nodes = std::collections::BTreeMap::new();
                    let mut sum = 0;
                    for other in evicted.iter().filter(back) {
                        let size = sizes[other].1 * 1000;
                        *nodes.entry(bed.cluster.pod(bed.pods[other]).node.unwrap()).or_insert(0) += size;
                        sum += size;
                    }
                    let cpu = crate::amounts::CPU;
                    let crowded =
                        nodes.iter().any(|(node, size)| bed.cluster.nodes.cell(*node, cpu).future_idle() < *size);
                    // By weight a queue may not hold more than it deserves either.
                    let queue = bed.cluster.queue(bed.cluster.group(group).queue);
                    let deserved = queue.deserved[cpu].unwrap_or(0);
                    let over = crate::amounts::get(&queue.allocated, cpu) + sum > deserved;
                    prop_assert!(crowded || (!by_capacity && over), "{victim} left for nothing");
                }
                bed.settle();
                for victim in &evicted {
                    bed.bound.remove(victim);
                    let (number, size) = sizes[victim];
                    bed.pod(&format!("{victim} g{number} c{size}"));
                }
                rounds += 1;
                prop_assert!(rounds < 40, "it goes round: {evicted:?} {} {}", bed.binds(), bed.promises());
                if evicted.is_empty() && bed.bound.len() == before && bed.promises().is_empty() {
                    break;
                }
            }
        }
    }

    /// By reclaim nobody loses a pod whose queue is within everything that its `deserved` names and the pod asks for,
    /// and nobody leaves who holds nothing of what the taker lacks there.
    #[test]
    fn who_is_within_what_it_deserves_is_not_reclaimed(
        nodes in proptest::collection::vec((2_i64..9, 0_i64..5), 1..4),
        deserved in proptest::collection::vec((proptest::option::of(1_i64..6), proptest::option::of(1_i64..4)), 3),
        jobs in proptest::collection::vec((0_usize..3, 0_i64..4, 0_i64..3), 1..12),
        taker in (0_usize..3, 1_i64..5, 0_i64..3),
    ) {
        let names: Vec<String> = nodes.iter().enumerate().map(|(i, (c, g))| format!("n{i} c{c}g{g}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let mut config = taking(Capacity);
        config.actions = vec![Action::Allocate, Action::Reclaim];
        let mut bed = Bed::new(&config).nodes(&names);
        for (q, (cpu, gpu)) in deserved.iter().enumerate() {
            let cpu = cpu.map(|n| format!("c{n}")).unwrap_or_default();
            let gpu = gpu.map(|n| format!("g{n}")).unwrap_or_default();
            let amounts = format!("{cpu}{gpu}");
            bed.queue(&if amounts.is_empty() { format!("q{q}") } else { format!("q{q} des={amounts}") });
        }
        for (number, (queue, cpu, gpu)) in jobs.iter().enumerate() {
            bed.group(&format!("g{number} q{queue} min=0 created={number}"));
            bed.pod(&format!("p{number} g{number} c{}g{gpu}", cpu + i64::from(cpu + gpu == 0)));
        }
        bed.cycle_at(0);
        // Of those that took others' places nobody is asked here.
        prop_assume!(bed.evicted.is_empty());
        bed.settle();
        let held: Vec<(i64, i64)> = (0..3).map(|queue| {
            let of = |(number, job): &(usize, &(usize, i64, i64))| job.0 == queue && bed.bound.contains_key(&format!("p{number}"));
            let mine = jobs.iter().enumerate().filter(of).map(|(_, job)| job);
            mine.fold((0, 0), |(c, g), (_, cpu, gpu)| (c + cpu + i64::from(cpu + gpu == 0), g + gpu))
        }).collect();
        bed.group(&format!("taker q{} created=99", taker.0));
        bed.pod(&format!("t taker c{}g{}", taker.1, taker.2));
        bed.cycle_at(1);
        let evicted: Vec<usize> = bed.evicted.iter().map(|name| name[1..].parse().unwrap()).collect();
        for number in evicted {
            let (queue, cpu, gpu) = jobs[number];
            let cpu = cpu + i64::from(cpu + gpu == 0);
            let named = [(deserved[queue].0, held[queue].0, cpu), (deserved[queue].1, held[queue].1, gpu)];
            let mut asked = named.iter().filter(|(deserved, _, asks)| deserved.is_some() && *asks > 0).peekable();
            let within = asked.peek().is_some() && asked.all(|(deserved, held, _)| deserved.is_some_and(|most| *held <= most));
            prop_assert!(!within, "p{} of q{} is within {:?}: {:?}", number, queue, deserved[queue], held[queue]);
            prop_assert!((cpu > 0 && taker.1 > 0) || (gpu > 0 && taker.2 > 0), "p{} gives nothing", number);
        }
    }

    /// Several take at once, and their victims end one by one while others come and go: what is promised is there or about
    /// to be there, nobody else gets it, and where nobody ends any more each promise is kept or has ended.
    #[test]
    fn promised_room_goes_to_its_taker_or_the_promise_ends(
        nodes in proptest::collection::vec(3_i64..8, 1..4),
        steps in proptest::collection::vec((0_u8..6, 0_usize..3, 1_i64..4, 1_usize..4, 0_i64..4, 0_usize..8), 1..30),
        by_capacity in any::<bool>(),
    ) {
        let names: Vec<String> = nodes.iter().enumerate().map(|(i, c)| format!("n{i} c{c}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let mut bed = Bed::new(&taking(if by_capacity { Capacity } else { Proportion })).nodes(&names);
        (0..3).for_each(|queue| bed.queue(&format!("q{queue} w{} des=c{}", queue + 1, queue + 1)));
        let mut pods: std::collections::BTreeMap<String, String> = std::collections::BTreeMap::new();
        let mut told = Vec::new();
        // When all has come, the victims that are left end one after the other.
        let ends = std::iter::repeat_n((5, 0, 0, 0, 0, 0), 60);
        for (now, (kind, queue, size, count, priority, nth)) in (0..).zip(steps.into_iter().chain(ends)) {
            match kind {
                0..3 => {
                    let min = if kind == 0 { count } else { 1 };
                    bed.group(&format!("g{now} q{queue} min={min} prio={priority} created={now}"));
                    for i in 0..count {
                        let pod = format!("p{now}-a-{i}");
                        pods.insert(pod.clone(), format!("g{now} c{size} prio={priority}"));
                        bed.pod(&format!("{pod} {}", pods[&pod]));
                    }
                }
                3 => {
                    let runs: Vec<String> =
                        bed.bound.keys().filter(|pod| !bed.evicted.contains(*pod)).cloned().collect();
                    if let Some(pod) = runs.get(nth % runs.len().max(1)) {
                        bed.end(pod);
                    }
                }
                _ => {
                    // A victim is gone, and its controller makes it again.
                    if let Some(pod) = bed.evicted.iter().nth(nth % bed.evicted.len().max(1)).cloned() {
                        bed.evicted.remove(&pod);
                        bed.end(&pod);
                        bed.pod(&format!("{pod} {}", pods[&pod]));
                    }
                }
            }
            bed.cycle_at(now);
            bed.run();
            told.push(format!("{now}: {kind} | {} | {} | {}", bed.binds(), bed.evictions(), bed.promises()));
            for (_, cells) in bed.cluster.nodes.iter().map(|(id, _)| (id, bed.cluster.nodes.cells(id))) {
                let short = cells.iter().any(|cell| cell.future_idle() < 0);
                prop_assert!(!short, "promised twice:\n{}", told.join("\n"));
            }
            let stands = bed.evicted.is_empty() && !bed.promises().is_empty();
            prop_assert!(!stands, "a promise of nothing that ends:\n{}", told.join("\n"));
        }
    }
}
