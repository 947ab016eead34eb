//! HiveD's annotations: what a pod asks for, and what a bound pod carries.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::play::{Play, read};
use crate::{BoundGroup, Cells, Decision, PodBindInfo, PodSpec};

fn spec(text: &str) -> Result<PodSpec, String> {
    let value: serde_json::Value = serde_saphyr::from_str(text).expect("YAML");
    PodSpec::read(&value, "ns/pod").map_err(|error| error.to_string())
}

#[test]
fn version_1_is_read_with_its_old_names() {
    let new = spec(
        "{virtualCluster: VC1, priority: 5, leafCellType: V100, leafCellNumber: 2, ignoreK8sSuggestedNodes: false, \
         affinityGroup: {name: g, members: [{podNumber: 1, leafCellNumber: 4}, {podNumber: 2, leafCellNumber: 2}, \
         {podNumber: 1, leafCellNumber: 2}]}}",
    )
    .expect("a specification");
    let old = spec(
        "{virtualCluster: VC1, priority: 5, gpuType: V100, gpuNumber: 2, ignoreK8sSuggestedNodes: false, \
         affinityGroup: {name: g, members: [{podNumber: 1, gpuNumber: 4}, {podNumber: 3, gpuNumber: 2}]}}",
    );
    assert_eq!(Ok(new.clone()), old);
    assert_eq!((new.cells, new.places), (2, 1..4));
    assert!(!new.request.ignore_k8s_suggested_nodes && !new.request.lazy_preemption_enable);
    let alone = spec("{virtualCluster: VC1, priority: -1, leafCellNumber: 2}").expect("a specification");
    assert_eq!((alone.request.name(), alone.places), ("ns/pod", 0..1));
    assert!(alone.request.ignore_k8s_suggested_nodes);
}

#[test]
fn version_2_knows_groups_in_groups() {
    let text = "
version: v2
virtualCluster: VC1
priority: 1
cellType: SOCKET
cellNumber: 1
podRootGroup:
  name: g
  withinOneCell: RACK
  pod: {podMinNumber: 1, podMaxNumber: 1, cellsPerPod: {cellType: GPU, cellNumber: 2}}
  childGroups:
    - withinOneCell: NODE
      pod: {podMinNumber: 2, podMaxNumber: 2, cellsPerPod: {cellType: SOCKET, cellNumber: 1}, containsCurrentPod: true}
";
    let read = spec(text).expect("a specification");
    assert_eq!((read.places, read.request.affinity_group.root.within_one_cell.as_str()), (1..3, "RACK"));
    assert_eq!(read.request.affinity_group.root.child_groups[0].members[0].cell_type, "SOCKET");
    let none = spec(&text.replace(", containsCurrentPod: true", ""));
    assert_eq!(none, Err("podRootGroup: found 0 pods with containsCurrentPod; allowed: one, which says where this pod belongs".into()));
    let range = spec(&text.replace("podMaxNumber: 2", "podMaxNumber: 3"));
    assert_eq!(range, Err("podRootGroup.childGroups[0].pod.podMaxNumber: found 3 beside podMinNumber 2; allowed: the same as podMinNumber".into()));
}

#[test]
fn no_specification_makes_more_places_than_a_group_may_have() {
    let second = |children: usize, pods: i64| {
        let child = json!({"pod": {"podMinNumber": pods, "podMaxNumber": pods, "containsCurrentPod": true}});
        json!({"version": "v2", "podRootGroup": {"name": "g", "childGroups": vec![child; children]}})
    };
    let first = |members: i64, pods: i64| {
        let member = |size: i64| json!({"podNumber": pods, "leafCellNumber": size});
        let members: Vec<_> = (1..=members).map(member).collect();
        json!({"leafCellNumber": 2, "affinityGroup": {"name": "g", "members": members}})
    };
    let refused = |spec: &Value| PodSpec::read(spec, "ns/pod").map(drop).map_err(|error| error.to_string());
    let allowed = "pods in all; allowed: at most 100000 pods";
    // Its places would be 800 MB, and those of the second 2 x 10^9 steps.
    let text = refused(&second(1_000, 99_999)).expect_err("too many");
    assert_eq!(text, format!("podRootGroup.childGroups[1].pod: found 199998 {allowed}"));
    let text = refused(&first(20_000, 100_000)).expect_err("too many");
    assert_eq!(text, format!("affinityGroup.members: found 200000 {allowed}"));
    let (read, mistake) = PodSpec::parse(&second(1_000, i64::MAX), "ns/pod").expect("of the right types");
    assert!(read.places.len() <= 100_000 && mistake.is_some());
    let (read, _) = PodSpec::parse(&first(3, 60_000), "ns/pod").expect("of the right types");
    assert_eq!(read.places, 60_000..100_000);
    assert_eq!(refused(&second(1, 100_000)), Ok(()));
    assert_eq!(refused(&first(1_000, 100)), Ok(()));
}

#[test]
fn texts_of_a_specification_are_short() {
    let long = |length: usize| "x".repeat(length);
    let of = |version: &str, field: &str, length: usize| {
        PodSpec::read(&json!({"version": version, field: long(length)}), "ns/pod").map(drop)
    };
    for (version, field) in [
        ("v1", "virtualCluster"),
        ("v1", "pinnedCellId"),
        ("v1", "leafCellType"),
        ("v1", "gpuType"),
        ("v2", "cellType"),
    ] {
        assert_eq!(of(version, field, 253), Ok(()));
        let error = of(version, field, 254).expect_err("too long").to_string();
        assert_eq!(error, format!("{field}: found 254 bytes; allowed: at most 253 bytes"));
    }
    let group = json!({"affinityGroup": {"name": long(254)}});
    let error = PodSpec::read(&group, "ns/pod").expect_err("too long").to_string();
    assert_eq!(error, "affinityGroup.name: found 254 bytes; allowed: at most 253 bytes");
    let within = json!({"version": "v2", "podRootGroup": {"withinOneCell": long(254)}});
    let error = PodSpec::read(&within, "ns/pod").expect_err("too long").to_string();
    assert_eq!(error, "podRootGroup.withinOneCell: found 254 bytes; allowed: at most 253 bytes");
    for told in [json!({(long(1_000_000)): 1}), json!({"priority": long(1_000_000)})] {
        let error = PodSpec::read(&told, "ns/pod").expect_err("nonsense").to_string();
        assert!(error.len() < 1_000, "{} bytes", error.len());
    }
}

#[test]
fn forms_of_a_specification_are_checked() {
    for (text, error) in [
        ("{priority: high}", "priority: found `high`; allowed: an integer"),
        ("{version: v3}", "version: found `v3`; allowed: v1 or v2"),
        ("{affinityGroup: [a]}", "affinityGroup: found a list; allowed: an object"),
        ("{lazyPreemption: true}", "lazyPreemption: found an unknown field; allowed: "),
        (
            "{lazyPreemptionEnable: yes please}",
            "lazyPreemptionEnable: found `yes please`; allowed: true or false",
        ),
        (
            "{affinityGroup: {members: [{podNumber: a}]}}",
            "affinityGroup.members[0].podNumber: found `a`; allowed: an integer",
        ),
        ("[]", "the specification: found a list; allowed: an object"),
    ] {
        let found = spec(text).expect_err(text);
        assert!(found.starts_with(error), "{found}");
    }
}

#[test]
fn what_bound_pods_carry_is_enough_for_a_restart() {
    let text = include_str!("../../testdata/design.yaml");
    let mut play = Play::new(text);
    let wanted = spec(
        "{virtualCluster: VC2, priority: 1, leafCellNumber: 7, affinityGroup: {name: g9, members: [{podNumber: 1, \
         leafCellNumber: 7}, {podNumber: 2, leafCellNumber: 4}]}}",
    )
    .expect("a specification");
    let Decision::Place(proposal) = play.cells.schedule(&wanted.request, &crate::Ask::default()) else {
        panic!("there is room");
    };
    play.cells.commit(&proposal).expect("nothing changed");
    let carried: BTreeMap<String, PodBindInfo> = (0..3)
        .map(|pod| {
            let info = PodBindInfo::of(&wanted.request, &proposal.placement, pod).expect("a pod");
            let text = serde_json::to_string(&info).expect("JSON");
            (pod.to_string(), serde_json::from_str(&text).expect("JSON"))
        })
        .collect();
    assert_eq!(carried["0"].affinity_group_bind_info.len(), 2);
    assert_eq!(carried["0"].isolation(), "0,1,2,3,4,5,6");
    assert_eq!(PodBindInfo::of(&wanted.request, &proposal.placement, 3), None);
    let bound = BoundGroup::from_pods(wanted.request, &carried, 0).expect("pods");
    assert!(bound.pods.iter().all(Option::is_some), "{bound:?}");
    let (again, lost) =
        Cells::recover(read(text), &play.cells.good_nodes(), vec![bound], 0).expect("a configuration");
    assert_eq!(lost, []);
    assert_eq!(again.audit(), [""; 0]);
    assert_eq!(again.placement("g9"), play.cells.placement("g9"));
}
