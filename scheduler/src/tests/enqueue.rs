use std::collections::BTreeMap;

use super::bed::Bed;
use crate::config::Hook::*;
use crate::config::PluginName::*;
use crate::*;

fn config(tier: Vec<Plugin>) -> Config {
    Config {
        actions: vec![Action::Enqueue, Action::Allocate],
        tiers: vec![tier],
        action_arguments: BTreeMap::new(),
    }
}

#[test]
fn examples_of_enqueue() {
    let phase = |group: &str, pods: &[&str], queue: &str| {
        let bed = Bed::new(&Config {
            actions: vec![Action::Enqueue],
            ..config(vec![
                Plugin::with(Drf, &[JobOrder, JobEnqueued]),
                Plugin::with(Proportion, &[QueueOrder, JobEnqueued]),
                Plugin::with(Sla, &[JobOrder, JobEnqueued]).argument("sla-waiting-time", "3m"),
                Plugin::with(Gang, &[JobOrder]),
            ])
        });
        bed.queues(&[queue]).groups(&[group]).pods(pods).cycle().phase("pg1")
    };
    assert_eq!(phase("pg1 c1 min=2", &["p1 pg1 c1m1", "p2 pg1 c1m1"], "c1 cap=c4m4"), "Inqueue");
    assert_eq!(phase("pg1 c1 phase=Running", &["p1 pg1 c1m1 on=n1"], "c1"), "Running");
    assert_eq!(phase("pg1 c1 phase=Pending minres=c8m8", &[], "c1 cap=c1m1"), "Pending");
    // Past its waiting time it is let in.
    assert_eq!(phase("pg1 c1 phase=Pending minres=c8m8 sla=0", &[], "c1 cap=c1m1"), "Inqueue");
}

#[test]
fn overcommit() {
    let phase = |factor: &str, minimum: &str| {
        let bed = Bed::new(&config(vec![Plugin::new(Overcommit).argument("overcommit-factor", factor)]))
            .nodes(&["n1 c2m4", "n2 c4m16"])
            .groups(&[&format!("pg default phase=Pending {minimum}")]);
        bed.cycle().phase("pg")
    };
    assert_eq!(phase("1.2", "minres=c2m2"), "Inqueue");
    assert_eq!(phase("0.8", "minres=c2m2"), "Inqueue");
    assert_eq!(phase("1.2", "minres=c7m2"), "Inqueue");
    assert_eq!(phase("1.2", "minres=c20m20"), "Pending");
    assert_eq!(phase("1.2", ""), "Inqueue");
}

/// A scheduler that is started again finds bound pods of a group whose admission nobody has written yet.
#[test]
fn a_group_that_holds_some_of_its_places_asks_for_the_rest() {
    for plugin in [
        Plugin::with(Proportion, &[JobEnqueued]),
        Plugin::with(Capacity, &[JobEnqueued]),
        Plugin::new(Overcommit).argument("overcommit-factor", "1.0"),
    ] {
        let phase = |held: usize, others: &[&str]| {
            let pods: Vec<String> = (0..4)
                .map(|i| format!("p-a-{i} pg c1 {}", if i < held { "on=n1" } else { "" }))
                .chain(others.iter().map(ToString::to_string))
                .collect();
            let pods: Vec<&str> = pods.iter().map(String::as_str).collect();
            let groups = ["o q1 phase=Running", "pg q1 min=4 phase=Pending minres=c4"];
            let bed = Bed::new(&Config { actions: vec![Action::Enqueue], ..config(vec![plugin.clone()]) });
            bed.nodes(&["n1 c4"]).queues(&["q1 w1 cap=c4"]).groups(&groups).pods(&pods).cycle().phase("pg")
        };
        for held in 0..4 {
            assert_eq!(phase(held, &[]), "Inqueue", "{plugin:?} {held}");
        }
        assert_eq!(phase(1, &["o-a-0 o c1 on=n1"]), "Pending", "{plugin:?}: another holds what it needs");
    }
}

/// A scheduler that was killed after its bindings and before it wrote whom it had admitted: nobody else gets in for what
/// those were promised, although groups without pods go before them otherwise.
#[test]
fn groups_with_places_are_inside_before_all_that_wait() {
    for queues in [&["q1 w1"][..], &["p w1 cap=c32", "q1 w1 parent=p", "q2 w9 parent=p"]] {
        for held in 0..=5 {
            let mut bed = Bed::new(&Config::default()).nodes(&["n1 c32 pods=99"]).queues(queues);
            for i in 0..20 {
                // The first come last in any order of names or times.
                let queue = if queues.len() > 1 && i >= held { "q2" } else { "q1" };
                bed.group(&format!("pg{i} {queue} phase=Pending minres=c6 created={}", 20 - i));
                let place = if i < held { "on=n1" } else { "" };
                bed.pod(&format!("p-a-{i} pg{i} c1 {place}"));
            }
            bed.cycle_at(0);
            bed.settle();
            bed.cycle_at(1);
            let inside: Vec<usize> = (0..20).filter(|i| bed.phase(&format!("pg{i}")) != "Pending").collect();
            assert_eq!(inside.len(), 5, "{queues:?} {held}: {inside:?}");
            assert!((0..held).all(|i| inside.contains(&i)), "{queues:?} {held}: {inside:?}");
        }
    }
}

#[test]
fn admission_by_queue() {
    for (plugin, queues) in [
        (Proportion, ["q1 w1 cap=c2m2", "q2 w1 cap=c3m3", "q3 cap=c3m3 state=Closed"]),
        (Capacity, ["q1 des=c2m2 cap=c2m2", "q2 des=c2m2 cap=c3m3", "q3 cap=c3m3 state=Closed"]),
    ] {
        let run = |hooks: &[Hook], group: &str, pod: &str| {
            Bed::new(&config(vec![Plugin::with(plugin, hooks)]))
                .nodes(&["n1 c2m3", "n2 c2m3"])
                .queues(&queues)
                .groups(&["pg1 q1 phase=Running minres=c1m2", "pg2 q2 phase=Running minres=c2m1", group])
                .pods(&["pod1 pg1 c1m2 on=n1", "pod2 pg2 c2m1 on=n2", pod])
                .cycle()
                .binds()
        };
        let all = [Allocatable, Overused, JobEnqueued];
        assert_eq!(run(&all, "pg3 q1 phase=Pending minres=c1", "pod3 pg3 c1"), "pod3>n1", "{plugin:?}");
        let gate = [JobEnqueued];
        assert_eq!(run(&gate, "pg5 q1 phase=Pending minres=c1m1", "pod5 pg5 c1m1"), "", "{plugin:?}");
        assert_eq!(run(&gate, "pg6 q3 phase=Pending minres=c1m1", "pod6 pg6 c1m1"), "", "{plugin:?}");
    }
}

#[test]
fn what_runs_already_is_not_counted_twice() {
    let hooks = [Allocatable, Overused, JobEnqueued];
    let mut bed = Bed::new(&config(vec![Plugin::with(Proportion, &hooks)]))
        .nodes(&["n1 c4m8"])
        .queues(&["q1 cap=c4m8"])
        .groups(&["pga q1 min=3 minres=c3m3"])
        .pods(&["a-a-0 pga c1m1", "a-a-1 pga c1m1", "a-a-2 pga c1m1"]);
    bed.cycle_at(0);
    assert_eq!(bed.bound.len(), 3);
    bed.group("pgb q1 phase=Pending minres=c1m1");
    bed.pod("b-b-0 pgb c1m1");
    bed.cycle_at(1);
    assert_eq!((bed.phase("pgb"), bed.bound.len()), ("Inqueue", 4));
}

#[test]
fn pods_that_come_before_their_podgroup_pass_no_gate() {
    let hooks = [Allocatable, Overused, JobEnqueued];
    for first in ["", "phase=Pending"] {
        let mut bed = Bed::new(&config(vec![Plugin::with(Proportion, &hooks)]))
            .nodes(&["n1 c20m20"])
            .queues(&["q1 cap=c5m5"]);
        for i in 0..20 {
            // A pod that is seen first makes a group without an object, which no gate holds back.
            if first.is_empty() {
                bed.cluster.put_group(GroupInput {
                    namespace: "default".into(),
                    name: format!("pg{i}").into(),
                    queue: "q1".into(),
                    min_member: 1 << 40,
                    no_gate: true,
                    ..GroupInput::default()
                });
            } else {
                bed.group(&format!("pg{i} q1 {first} minres=c1m1"));
            }
            bed.pod(&format!("p-a-{i} pg{i} c1m1"));
        }
        bed.cycle_at(0);
        (0..20).for_each(|i| bed.group(&format!("pg{i} q1 phase=Pending minres=c1m1")));
        bed.cycle_at(1);
        let inside = (0..20).filter(|i| bed.phase(&format!("pg{i}")) != "Pending").count();
        assert_eq!((inside, bed.bound.len()), (5, 5), "{first}");
    }
}

/// A queue that is full of low priorities refuses a group of low priority, and no other for its sake.
#[test]
fn a_refusal_holds_for_no_higher_priority() {
    let config = Config {
        actions: vec![Action::Enqueue, Action::Preempt],
        tiers: vec![vec![Plugin::new(Gang), Plugin::new(Capacity)]],
        ..Config::default()
    };
    let bed = Bed::new(&config)
        .nodes(&["n1 c8"])
        .queues(&["q cap=c4"])
        .groups(&["run q prio=1 min=2 minres=c4", "low q prio=1 phase=Pending minres=c2 created=1"])
        .groups(&["high q prio=9 phase=Pending minres=c2 created=2"])
        .pods(&["r-a-0 run c2 on=n1", "r-a-1 run c2 on=n1"])
        .cycle();
    assert_eq!((bed.phase("low"), bed.phase("high")), ("Pending", "Inqueue"));
    assert!(bed.why("low").starts_with("queue q: 4 of 4 cpu are in use"), "{}", bed.why("low"));
}
