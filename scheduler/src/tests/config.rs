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
