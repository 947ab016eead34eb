use super::bed::Bed;
use crate::*;

#[test]
fn a_queue_tree_that_is_none_says_which_field_and_what_is_allowed() {
    let mut bed = Bed::new(&Config::default())
        .nodes(&["n1 c8"])
        .queues(&["a parent=b", "b parent=a", "c parent=nowhere", "d parent=root", "e state=Closed"])
        .groups(&[
            "in-a a phase=Pending",
            "in-c c phase=Pending",
            "in-d d phase=Pending",
            "in-e e phase=Pending",
            "in-x x phase=Pending",
        ]);
    bed.cycle_at(0);
    let said: Vec<String> = ["in-a", "in-c", "in-d", "in-e", "in-x"].map(|name| bed.why(name)).to_vec();
    assert_eq!(
        said,
        [
            "queue a: field spec.parent: found the cycle a -> b -> a; allowed: parents that lead to root",
            "queue c: field spec.parent: found nowhere, which does not exist; allowed: a queue, or root",
            "",
            "queue e is Closed; allowed: a queue that is Open",
            "queue x does not exist",
        ]
    );
    bed.queue("b");
    bed.queue("x");
    bed.cycle_at(1);
    assert_eq!((bed.phase("in-a"), bed.phase("in-x"), bed.phase("in-e")), ("Inqueue", "Inqueue", "Pending"));
}

#[test]
fn a_queue_counts_its_groups_and_what_they_hold() {
    let mut bed = Bed::new(&Config::default())
        .nodes(&["n1 c8"])
        .queues(&["top", "left parent=top", "right parent=top"])
        .groups(&["a left", "b right phase=Running", "c right phase=Pending"])
        .pods(&["a-a-0 a c2", "b-a-0 b c3 on=n1"]);
    bed.cycle_at(0);
    let held = |bed: &Bed, name: &str| {
        let queue = bed.cluster.queue(bed.cluster.find_queue(name).unwrap());
        (queue.phases, bed.cluster.dimensions.resources(&queue.allocated).get("cpu"))
    };
    assert_eq!(held(&bed, "left"), ([0, 1, 0, 0, 0], 2000));
    assert_eq!(held(&bed, "right"), ([0, 1, 1, 0, 0], 3000));
    assert_eq!(held(&bed, "top"), ([0; 5], 5000));
    assert!(!bed.cluster.take_changed_queues().is_empty());
    bed.cycle_at(1);
    assert!(bed.cluster.take_changed_queues().is_empty(), "nothing has changed");
    // Moved under another parent.
    bed.queue("left");
    bed.cycle_at(2);
    assert_eq!((held(&bed, "left").1, held(&bed, "top").1), (2000, 3000));
}

#[test]
fn a_hypernode_names_members_that_exist() {
    use crate::topology::{HyperNodeInput, Member};
    let mut bed = Bed::new(&Config::default());
    let put = |bed: &mut Bed, name: &str, tier, child: &str| {
        let members = vec![Member::HyperNode(child.into())];
        bed.cluster.hypernodes.put(HyperNodeInput { name: name.into(), tier, members })
    };
    assert_eq!(
        put(&mut bed, "s1", 2, "s0").unwrap_err(),
        "hypernode s1, field spec.members[0]: found s0, which does not exist; allowed: nodes and hypernodes that exist"
    );
    bed.cluster.hypernodes.put(HyperNodeInput { name: "s0".into(), tier: 2, members: Vec::new() }).unwrap();
    assert_eq!(
        put(&mut bed, "s1", 2, "s0").unwrap_err(),
        "hypernode s1, field spec.members[0]: found s0 of tier 2; allowed: tiers below 2"
    );
    assert!(put(&mut bed, "s1", 3, "s0").is_ok());
}
