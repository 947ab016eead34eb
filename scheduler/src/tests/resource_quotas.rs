//! ResourceQuotas of namespaces at the gate of queues.

use std::collections::BTreeMap;

use fleet_resources::Resources;
use proptest::prelude::*;

use super::bed::Bed;
use crate::resource_quotas::ResourceQuota;
use crate::*;

fn config() -> Config {
    Config {
        actions: vec![Action::Enqueue, Action::Allocate],
        tiers: vec![vec![
            Plugin::new(PluginName::Gang),
            Plugin::new(PluginName::ResourceQuota),
            Plugin::new(PluginName::Predicates),
        ]],
        action_arguments: BTreeMap::new(),
    }
}

fn quota(hard: &[(&str, i64)], used: &[(&str, i64)]) -> ResourceQuota {
    ResourceQuota {
        hard: Resources::from_pairs(hard.iter().copied()),
        used: Resources::from_pairs(used.iter().copied()),
    }
}

fn group(bed: &mut Bed, name: &str, min: i64, resources: &[(&str, i64)]) {
    bed.cluster.put_group(GroupInput {
        namespace: "default".into(),
        name: name.into(),
        queue: "default".into(),
        min_member: min,
        min_resources: Some(Resources::from_pairs(resources.iter().copied())),
        ..GroupInput::default()
    });
}

#[test]
fn what_a_quota_has_no_room_for_stays_outside_and_says_so() {
    let mut bed = Bed::new(&config()).nodes(&["n1 c16"]);
    bed.cluster.set_resource_quota(
        "default",
        "team",
        Some(quota(&[("requests.cpu", 6_000), ("pods", 10)], &[("requests.cpu", 2_000), ("pods", 1)])),
    );
    bed.cluster.set_resource_quota("other", "team", Some(quota(&[("pods", 0)], &[])));
    group(&mut bed, "wide", 5, &[("requests.cpu", 5_000), ("pods", 5)]);
    group(&mut bed, "fits", 3, &[("requests.cpu", 3_000), ("pods", 3)]);
    group(&mut bed, "late", 2, &[("requests.cpu", 2_000), ("pods", 2)]);
    group(&mut bed, "unnamed", 2, &[("limits.memory", 1 << 40)]);
    bed.cycle_at(0);
    let phases = |bed: &Bed| ["fits", "late", "unnamed", "wide"].map(|name| bed.phase(name)).join(" ");
    assert_eq!(phases(&bed), "Inqueue Pending Inqueue Pending");
    // What was promised stays promised in the next cycle, until its pods exist.
    bed.cycle_at(1);
    assert_eq!(
        bed.why("wide"),
        "resource quota team of namespace default: 5 of 6 requests.cpu are used or promised, 5 are asked for"
    );
    assert_eq!(phases(&bed), "Inqueue Pending Inqueue Pending");
    (0..3).for_each(|i| bed.pod(&format!("fits-a-{i} fits c1")));
    let used = quota(&[("requests.cpu", 6_000), ("pods", 10)], &[("requests.cpu", 5_000), ("pods", 4)]);
    bed.cluster.set_resource_quota("default", "team", Some(used));
    bed.cycle_at(2);
    assert_eq!(phases(&bed), "Inqueue Pending Inqueue Pending");
    bed.cluster.set_resource_quota("default", "team", None);
    bed.cycle_at(3);
    assert_eq!(phases(&bed), "Inqueue Inqueue Inqueue Inqueue");
}

#[test]
fn without_the_plugin_quotas_are_not_asked() {
    let mut bed = Bed::new(&Config::default()).nodes(&["n1 c16"]);
    bed.cluster.set_resource_quota("default", "team", Some(quota(&[("pods", 0)], &[])));
    group(&mut bed, "g", 1, &[("pods", 1)]);
    bed.cycle_at(0);
    assert_eq!(bed.phase("g"), "Inqueue");
}

proptest! {
    /// Whoever is let in fits beside all that were let in before; whoever is not would not fit.
    #[test]
    fn quotas_are_never_exceeded_and_never_left_idle(
        hard in 1_i64..20, used in 0_i64..10, wanted in proptest::collection::vec(1_i64..8, 1..8), cycles in 1_i64..4,
    ) {
        let mut bed = Bed::new(&config()).nodes(&["n1 c16"]);
        bed.cluster.set_resource_quota("default", "q", Some(quota(&[("pods", hard)], &[("pods", used)])));
        for (i, n) in wanted.iter().enumerate() {
            group(&mut bed, &format!("g{i}"), *n, &[("pods", *n)]);
        }
        (0..cycles).for_each(|now| bed.cycle_at(now));
        let inside = |i: usize| bed.phase(&format!("g{i}")) == "Inqueue";
        let sum: i64 = (0..wanted.len()).filter(|i| inside(*i)).map(|i| wanted[i]).sum();
        prop_assert!(sum == 0 || used + sum <= hard, "{used} + {sum} of {hard}");
        for (i, n) in wanted.iter().enumerate().filter(|(i, _)| !inside(*i)) {
            prop_assert!(used + sum + n > hard, "g{i} of {n} would fit beside {used} + {sum} of {hard}");
        }
    }
}
