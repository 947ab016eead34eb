use super::bed::Bed;
use crate::config::PluginName::*;
use crate::*;

#[test]
fn arguments_are_typed() {
    let check = |plugin: Plugin, wanted: &str| {
        let config = Config { tiers: vec![vec![plugin]], ..Config::default() };
        assert_eq!(Policy::compile(&config).unwrap_err().to_string(), wanted);
    };
    check(
        Plugin::new(Overcommit).argument("overcommit-factor", "much"),
        "plugin overcommit, argument overcommit-factor: found \"much\"; allowed: a number from 1, such as 1.2",
    );
    check(
        Plugin::new(Binpack).argument("binpack.cpu", "x"),
        "plugin binpack, argument binpack.cpu: found \"x\"; allowed: a whole number",
    );
    check(
        Plugin::new(Predicates).argument("predicate.NodePortsEnable", "yes"),
        "plugin predicates, argument predicate.NodePortsEnable: found \"yes\"; allowed: true or false",
    );
    check(
        Plugin::new(Tdm).argument("tdm.revocable-zone.rz1", "late"),
        "plugin tdm, argument tdm.revocable-zone.rz1: found \"late\"; allowed: two times of the day such as 22:00-06:00",
    );
    check(
        Plugin::new(Sla).argument("sla-waiting-time", "soon"),
        "plugin sla, argument sla-waiting-time: found \"soon\"; allowed: a duration such as 30m or 1h30m",
    );
    assert!(Binpack.takes("binpack.resources.nvidia.com/gpu") && !Binpack.takes("binpack.gpu"));
}

#[test]
fn nodes_that_are_revoked_by_the_clock() {
    let config = Config {
        actions: vec![Action::Allocate, Action::Shuffle],
        tiers: vec![vec![
            Plugin::new(Gang),
            Plugin::new(Predicates),
            Plugin::new(Tdm).argument("tdm.revocable-zone.rz1", "22:00-06:00"),
        ]],
        ..Config::default()
    };
    let mut bed = Bed::new(&config)
        .nodes(&["n1 c8 volcano.sh/revocable-zone=rz1"])
        .groups(&["plain default", "night default"])
        .pods(&["p-a-0 plain c1"]);
    let own = Extras { revocable_zone: Some("*".into()), ..Extras::default() };
    bed.pod_with("n-a-0 night c1", own);
    bed.cycle_at(12 * 3600);
    assert_eq!(bed.binds(), "");
    bed.cycle_at(23 * 3600);
    assert_eq!(bed.binds(), "n-a-0>n1");
    bed.settle();
    bed.cycle_at(24 * 3600 + 5 * 3600);
    assert_eq!(bed.evictions(), "");
    bed.cycle_at(24 * 3600 + 6 * 3600);
    assert_eq!(bed.evictions(), "n-a-0");
}

#[test]
fn the_table_is_consistent() {
    let mut names = std::collections::BTreeSet::new();
    for (name, plugin) in PluginName::ALL {
        assert!(names.insert(name), "{name} is there twice");
        assert_eq!((PluginName::read(name), plugin.as_str()), (Some(*plugin), *name));
        for idle in plugin.idle() {
            assert!(*idle == *name || plugin.takes(idle), "{name} has no argument {idle}");
        }
        let hooks: Vec<Hook> =
            Hook::ALL.iter().map(|(_, hook)| *hook).filter(|hook| plugin.has(*hook)).collect();
        assert_eq!(plugin.is_acted_on(), !hooks.is_empty(), "{name} acts at {hooks:?}");
    }
}

#[test]
fn a_hook_that_is_off_is_not_asked() {
    let bed = |plugin: Plugin| {
        let config = Config {
            actions: vec![Action::Allocate],
            tiers: vec![vec![Plugin::new(Gang), plugin]],
            ..Config::default()
        };
        Bed::new(&config)
            .nodes(&["n1 c8 taint=closed"])
            .groups(&["g default"])
            .pods(&["g-a-0 g c1"])
            .cycle()
            .binds()
    };
    assert_eq!(bed(Plugin::new(Predicates)), "");
    assert_eq!(bed(Plugin::new(Predicates).without(Hook::Predicate)), "g-a-0>n1");
}

#[test]
fn preferred_nodes_count_without_a_file() {
    let mut bed = Bed::new(&Config::default())
        .nodes(&["n1 c8m8", "n2 c8m8 disk=fast", "n3 c8m8"])
        .groups(&["g default"]);
    let term = fleet_placement::NodeSelectorTerm {
        match_expressions: vec![fleet_resources::NodeSelectorRequirement {
            key: "disk".into(),
            operator: fleet_resources::constraints::NodeSelectorOperator::In,
            values: vec!["fast".into()],
        }],
        ..Default::default()
    };
    bed.pod_with("g-a-0 g c1m1", Extras { preferred_nodes: vec![(1, term)], ..Extras::default() });
    bed.cycle_at(0);
    assert_eq!(bed.binds(), "g-a-0>n2");
}

#[test]
fn an_equal_group_is_told_why_it_may_not_enter() {
    let config = Config {
        actions: vec![Action::Enqueue, Action::Allocate],
        tiers: vec![vec![Plugin::new(Gang), Plugin::new(Overcommit)]],
        ..Config::default()
    };
    let bed = Bed::new(&config)
        .nodes(&["n1 c4m4"])
        .groups(&["a default phase=Pending minres=c9", "b default phase=Pending minres=c9"])
        .cycle();
    assert_eq!(bed.why("a"), "the cluster is full: 9 cpu are asked for, 4800m may be promised");
    assert_eq!(bed.why("b"), bed.why("a"));
}

#[test]
fn nonsense_is_refused_with_what_was_found() {
    let check = |plugin: Plugin, wanted: &str| {
        let config = Config { tiers: vec![vec![plugin]], ..Config::default() };
        assert_eq!(Policy::compile(&config).unwrap_err().to_string(), wanted);
    };
    for factor in ["-1", "1.-5", "+1.2", "1e3", ""] {
        check(
            Plugin::new(Overcommit).argument("overcommit-factor", factor),
            &format!(
                "plugin overcommit, argument overcommit-factor: found {factor:?}; allowed: a number from 1, such as 1.2"
            ),
        );
    }
    check(
        Plugin::new(Capacity).argument("ancestorReclaimLevel", "-1"),
        "plugin capacity, argument ancestorReclaimLevel: found \"-1\"; allowed: a whole number from 0",
    );
    check(
        Plugin::new(Tdm).argument("tdm.revocable-zone.rz1", "10:00-10:00"),
        "plugin tdm, argument tdm.revocable-zone.rz1: found \"10:00-10:00\"; allowed: two times of the day such as \
         22:00-06:00",
    );
    check(
        Plugin::new(NetworkTopologyAware).argument("weight", "heavy"),
        "plugin network-topology-aware, argument weight: found \"heavy\"; allowed: a whole number",
    );
    check(
        Plugin::new(Predicates).argument("predicate.CacheEnable", "often"),
        "plugin predicates, argument predicate.CacheEnable: found \"often\"; allowed: true or false",
    );
    let arguments = [("allowWholeBundle".to_owned(), "perhaps".to_owned())];
    let config =
        Config { action_arguments: [(Action::Reclaim, arguments.into())].into(), ..Config::default() };
    assert_eq!(
        Policy::compile(&config).unwrap_err().to_string(),
        "action reclaim, argument allowWholeBundle: found \"perhaps\"; allowed: true or false"
    );
}

/// Decisions that depend on time are made in time, even without other events.
#[test]
fn no_timeout_waits_for_an_event() {
    let bed = |plugin: Plugin| {
        let config = Config {
            actions: vec![Action::Enqueue, Action::Allocate, Action::Shuffle],
            tiers: vec![vec![Plugin::new(Gang), Plugin::new(Overcommit), plugin]],
            ..Config::default()
        };
        Bed::new(&config).nodes(&["n1 c4 volcano.sh/revocable-zone=rz1"])
    };
    let mut sla = bed(Plugin::new(Sla).argument("sla-waiting-time", "5m")).groups(&[
        "a default phase=Pending created=40 minres=c9",
        "b default phase=Pending created=50 minres=c9",
    ]);
    sla.cycle_at(100);
    assert_eq!((sla.phase("a"), sla.cluster.next_look()), ("Pending", Some(340)));
    sla.cycle_at(340);
    assert_eq!((sla.phase("a"), sla.phase("b"), sla.cluster.next_look()), ("Inqueue", "Pending", Some(350)));
    let mut tdm = bed(Plugin::new(Tdm).argument("tdm.revocable-zone.rz1", "22:00-06:00"));
    tdm.cycle_at(5 * 3600 + 30);
    assert_eq!(tdm.cluster.next_look(), Some(6 * 3600));
    tdm.cycle_at(6 * 3600);
    assert_eq!(tdm.cluster.next_look(), Some(22 * 3600));
    tdm.cycle_at(23 * 3600);
    assert_eq!(tdm.cluster.next_look(), Some(30 * 3600));
    let mut usage = bed(Plugin::new(Usage));
    usage.cluster.set_load("n1", crate::usage::Load { cpu: 0, memory: 0, at: 1_000 });
    usage.cycle_at(1_000);
    assert_eq!(usage.cluster.next_look(), Some(1_301));
    usage.cycle_at(1_301);
    assert_eq!(usage.cluster.next_look(), None);
    assert_eq!(bed(Plugin::new(Predicates)).cycle().cluster.next_look(), None);
}
