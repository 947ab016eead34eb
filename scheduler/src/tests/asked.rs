use std::sync::Arc;

use super::bed::{Bed, amounts};
use crate::config::PluginName::*;
use crate::group::Topology;
use crate::topology::{HyperNodeInput, Member};
use crate::*;

/// Two switches with two nodes each, of which n1 is almost full; without the plugin gang, too.
fn bed(gang: bool) -> Bed {
    let mut plugins = vec![Plugin::new(Predicates), Plugin::new(Proportion)];
    plugins.extend(gang.then(|| Plugin::new(Gang)));
    let config = Config { actions: vec![Action::Allocate], tiers: vec![plugins], ..Config::default() };
    let mut bed = Bed::new(&config)
        .nodes(&["n1 c4m8", "n2 c4m8", "n3 c4m8", "n4 c4m8"])
        .groups(&["a default"])
        .pods(&["a-a-0 a c3m1 on=n1"]);
    for (name, nodes) in [("s0", ["n1", "n2"]), ("s1", ["n3", "n4"])] {
        let members = nodes.map(|node| Member::Node(node.to_owned())).to_vec();
        bed.cluster.hypernodes.put(HyperNodeInput { name: name.into(), tier: 1, members }).unwrap();
    }
    bed
}

fn ask(bed: &mut Bed, pods: i64, topology: Option<Topology>) -> Result<String, String> {
    let shape = fleet_placement::PodShape { requests: amounts("c2m1"), ..Default::default() };
    let worker = ("worker".to_owned(), Arc::new(PodSpec { shape, extras: None }), pods);
    let found = bed.cluster.find_places(&[worker], topology);
    bed.check();
    found.map(|places| places["worker"].join(" ")).map_err(|none| none.sentence())
}

#[test]
fn places_asked_for_keep_together_in_the_network() {
    let hard = Some(Topology { hard: true, highest_tier: Some(1) });
    let soft = Some(Topology { hard: false, highest_tier: Some(1) });
    for gang in [true, false] {
        let mut bed = bed(gang);
        assert_eq!(ask(&mut bed, 4, hard), Ok("n3 n3 n4 n4".to_owned()));
        assert_eq!(ask(&mut bed, 2, hard), Ok("n2 n2".to_owned()), "the domain with the least room left");
        assert_eq!(
            ask(&mut bed, 5, hard),
            Err("none of 2 hypernodes up to tier 1 has room for 5 pods of the gang".to_owned())
        );
        // There is room for six on the whole; what is only preferred waits for nothing.
        assert!(ask(&mut bed, 5, None).is_ok() && ask(&mut bed, 5, soft).is_ok());
        let whole = ask(&mut bed, 9, soft).unwrap_err();
        assert!(whole.starts_with("6 of 9 pods fit"), "{whole}");
    }
}

#[test]
fn a_wish_that_is_only_preferred_is_the_plugins() {
    let mut config = Config::default();
    config.tiers[1].retain(|plugin| plugin.name != NetworkTopologyAware);
    let mut bed = Bed::new(&config).nodes(&["n1 c2m2", "n2 c4m4", "n3 c4m4"]);
    let members = vec![Member::Node("n1".to_owned()), Member::Node("n3".to_owned())];
    bed.cluster.hypernodes.put(HyperNodeInput { name: "s0".into(), tier: 1, members }).unwrap();
    let topology = |hard| Some(Topology { hard, highest_tier: Some(1) });
    assert_eq!(ask(&mut bed, 3, topology(true)), Ok("n1 n3 n3".to_owned()));
    assert_eq!(ask(&mut bed, 3, topology(false)), ask(&mut bed, 3, None));
}
