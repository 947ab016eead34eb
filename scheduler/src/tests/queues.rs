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

#[test]
fn a_group_that_has_ended_holds_no_room_in_its_queue() {
    let tiers = vec![vec![Plugin::new(PluginName::Gang), Plugin::new(PluginName::Capacity)]];
    let config = Config { tiers, ..Config::default() };
    let mut bed = Bed::new(&config)
        .nodes(&["n1 c8m8"])
        .queues(&["q cap=c2m2"])
        .groups(&["first q min=2 minres=c2m2 phase=Pending"])
        .pods(&["first-w-0 first c1m1", "first-w-1 first c1m1"])
        .cycle();
    assert_eq!(bed.binds(), "first-w-0>n1 first-w-1>n1");
    let queue = |bed: &Bed| bed.cluster.queue(bed.cluster.find_queue("q").unwrap()).clone();
    // Its job is done: one pod has ended, the other is taken away. What its owner says of the phase comes first.
    let group = bed.cluster.find_group("default", "first").unwrap();
    bed.cluster.set_phase(group, Phase::Running);
    bed.cluster.update_pod(bed.pods["first-w-0"], Status::Succeeded, Some("n1"));
    bed.cluster.set_phase(group, Phase::Pending);
    let mut bed = bed.cycle();
    bed.cluster.update_pod(bed.pods["first-w-1"], Status::Releasing, Some("n1"));
    let mut bed = bed.cycle();
    bed.end("first-w-1");
    let mut bed = bed.cycle();
    let stands = queue(&bed);
    assert_eq!((stands.phases[Phase::Inqueue as usize], stands.phases[Phase::Pending as usize]), (0, 1));
    assert!(stands.inqueue.iter().all(|amount| *amount == 0), "{:?}", stands.inqueue);
    // Gone with its last pod, too.
    bed.end("first-w-0");
    bed.group("second q min=2 minres=c2m2 phase=Pending");
    ["second-w-0 second c1m1", "second-w-1 second c1m1"].iter().for_each(|pod| bed.pod(pod));
    let mut bed = bed.cycle();
    assert!(bed.binds().contains("second-w-0>n1 second-w-1>n1"), "{}", bed.binds());
    // New pods let it wait again.
    bed.pod("first-w-2 first c1m1");
    bed.pod("first-w-3 first c1m1");
    let bed = bed.cycle();
    let why = bed.cluster.group(group).why.clone().unwrap_or_default();
    assert!(why.contains("queue q: 2 of 2 cpu are in use"), "{why}");
}

#[test]
fn amounts_over_those_above_and_paths_through_others_are_wrong() {
    let bed = Bed::new(&Config::default()).queues(&[
        "top cap=c8m8",
        "middle parent=top",
        "fine parent=middle cap=c8",
        "wide parent=middle cap=c9",
        "eager parent=middle des=c9",
        "sure parent=top gua=m9",
        "other parent=top cap=g4",
        "bold cap=c2m8 des=c3",
        "promising cap=m8 des=c2 gua=c3",
        "rich cap=m8 gua=m9",
        "a tree=root/x:1/1",
        "b tree=root/x/y:1/1/1",
        "c tree=root/xy:1/1",
    ]);
    let said = |name: &str| {
        let id = bed.cluster.find_queue(name).unwrap();
        bed.cluster.queue_problem(id).unwrap_or_default()
    };
    assert_eq!(
        said("wide"),
        "field spec.capability: found 9 cpu; allowed: up to the capability of top above it, 8"
    );
    assert_eq!(
        said("eager"),
        "field spec.deserved: found 9 cpu; allowed: up to the capability of top above it, 8"
    );
    assert!(said("sure").starts_with("field spec.guarantee.resource: found 9Gi memory"), "{}", said("sure"));
    assert_eq!(said("bold"), "field spec.deserved: found 3 cpu; allowed: up to its capability, 2");
    assert_eq!(
        said("promising"),
        "field spec.guarantee.resource: found 3 cpu; allowed: up to its deserved, 2"
    );
    assert_eq!(
        said("rich"),
        "field spec.guarantee.resource: found 9Gi memory; allowed: up to its capability, 8Gi"
    );
    for fine in ["top", "middle", "fine", "other", "c"] {
        assert_eq!(said(fine), "", "{fine}");
    }
    let wanted = "field metadata.annotations[volcano.sh/hierarchy]: found x, and x/y of queue b; allowed: paths of which none \
                  leads through another";
    assert_eq!(said("a"), wanted);
    assert!(said("b").contains("found x/y, and x of queue a"), "{}", said("b"));
}

#[test]
fn who_waits_for_places_in_a_queue_that_gives_none_is_told_why() {
    let mut bed = Bed::new(&Config::default())
        .nodes(&["n1 c8"])
        .queues(&["q"])
        .groups(&["a q", "b q min=2", "be q"])
        .pods(&["a-a-0 a c9", "b-a-0 b c1", "b-a-1 b c1", "be-a-0 be"]);
    bed.queue("q state=Closed");
    bed.cycle_at(0);
    for group in ["a", "b", "be"] {
        assert_eq!(bed.why(group), "queue q is Closed; allowed: a queue that is Open", "{group}");
    }
    bed.queue("q");
    bed.cycle_at(1);
    assert_eq!(bed.binds(), "b-a-0>n1 b-a-1>n1 be-a-0>n1");
    assert_eq!((bed.why("b").as_str(), bed.why("be").as_str()), ("", ""));
    assert!(bed.why("a").starts_with("0/1 nodes are unavailable: 1 Insufficient cpu."), "{}", bed.why("a"));
}

#[test]
fn reasons_are_worded_and_counted_as_volcano_does() {
    let mut bed = Bed::new(&Config::default())
        .nodes(&["n1 c4m4", "n2 c8m1", "n3 c1m1", "n4 c8m8 cordoned", "n5 c8m8 taint=gpu"])
        .groups(&["a default min=2"])
        .pods(&["a-a-0 a c3m2", "a-a-1 a c3m2"]);
    bed.cycle_at(0);
    assert_eq!(
        bed.why("a"),
        "0/5 nodes are unavailable: 1 node(s) had untolerated taints, 1 node(s) were unschedulable, 2 Insufficient cpu, \
         2 Insufficient memory. 1 of 2 pods fits; cpu: requested 3, available 1; memory: requested 2Gi, available 1Gi"
    );
}

#[test]
fn nobody_goes_ahead_of_the_first_of_a_fifo_queue() {
    let run = |strategy: &str| {
        let mut bed = Bed::new(&Config::default())
            .nodes(&["n1 c4"])
            .queues(&[&format!("q {strategy}")])
            .groups(&["big q created=1", "small q created=2", "more q created=3"])
            .pods(&["b-a-0 big c5", "s-a-0 small c1", "m-a-0 more c1"]);
        bed.cycle_at(0);
        bed.cycle_at(1);
        bed
    };
    assert_eq!(run("").binds(), "m-a-0>n1 s-a-0>n1");
    let mut bed = run("fifo");
    assert_eq!(bed.binds(), "");
    assert_eq!(
        bed.why("small"),
        "behind big, for which there is no room: dequeueStrategy of queue q is fifo"
    );
    bed.end("b-a-0");
    bed.cycle_at(2);
    assert_eq!(bed.binds(), "m-a-0>n1 s-a-0>n1");
    assert_eq!(bed.why("small"), "");
    // Nor is anybody let in ahead of it.
    let enter = |strategy: &str| {
        let mut bed =
            Bed::new(&Config::default()).nodes(&["n1 c4"]).queues(&[&format!("q cap=c4 {strategy}")]).groups(
                &["big q created=1 phase=Pending minres=c5", "small q created=2 phase=Pending minres=c1"],
            );
        bed.cycle_at(0);
        (bed.phase("big"), bed.phase("small"))
    };
    assert_eq!(enter(""), ("Pending", "Inqueue"));
    assert_eq!(enter("fifo"), ("Pending", "Pending"));
}
