use std::collections::BTreeMap;

use fleet_cells::{Ask, Cells, Decision, GroupRequest, NodeName, Unreported};
use serde_json::json;

use super::{class::*, read::*, *};

const LAB: &str = include_str!("../../../cells/testdata/two-virtual-clusters.yaml");

fn lab() -> CellConfigurationSpec {
    let document: Value = crate::yaml::read(LAB).expect("YAML");
    let text = document["hivedscheduler"]["config"].as_str().expect("text");
    let inner: Value = crate::yaml::read(text).expect("YAML");
    serde_json::from_value(inner).expect("a spec")
}

#[test]
fn the_labs_file_is_a_spec_and_comes_back() {
    let spec = lab();
    let config = spec.config().expect("well formed");
    assert_eq!(CellConfigurationSpec::of(&config).config().expect("well formed"), config);
    Cells::new(config, Unreported::Good).expect("a valid configuration");
}

#[test]
fn mistakes_are_told_with_their_paths() {
    let mut spec = lab();
    spec.physical_cluster["physicalCells"][1]["cellAdress"] = json!("x");
    spec.virtual_clusters["vc1"]["virtualCells"][0]["cellNumber"] = json!(-1);
    let text = spec.config().expect_err("two mistakes").to_string();
    assert!(text.contains("physicalCluster.physicalCells[1].cellAdress: found an unknown field"), "{text}");
    assert!(text.contains("virtualClusters.vc1.virtualCells[0].cellNumber: found -1"), "{text}");
    let mut spec = lab();
    spec.virtual_clusters["VC1"] = json!({});
    let text = spec.config().expect_err("one object for two").to_string();
    assert_eq!(
        text,
        "virtualClusters.vc1: found `vc1` beside `VC1`; allowed: names that differ in more than capitals"
    );
}

fn members(list: &[(&str, &[&str])]) -> Members {
    let nodes = |nodes: &[&str]| nodes.iter().map(|node| (*node).to_string()).collect();
    let reported = list.iter().map(|(name, have)| ((*name).to_string(), nodes(have))).collect();
    Members { reported, ..Members::default() }
}

/// The members of the lab's two trees, and what is said of those without one.
fn named(members: &Members) -> (String, Vec<String>) {
    let (config, unnamed) = name_members(lab().config().expect("well formed"), members);
    let trees = config.physical_cluster.physical_cells.into_iter();
    let unnamed: Vec<String> = unnamed.iter().map(ToString::to_string).collect();
    (trees.map(|tree| tree.cluster).collect::<Vec<_>>().join(" "), unnamed)
}

#[test]
fn members_are_found_by_their_nodes() {
    assert_eq!(named(&members(&[("east", &[])])), ("east east".into(), vec![]));
    let two = members(&[("east", &["hostname-dan"]), ("west", &["hostname-carol"])]);
    assert_eq!(named(&two), ("west east".into(), vec![]));
    let both = members(&[("east", &["hostname-dan", "hostname-carol"]), ("west", &["hostname-carol"])]);
    let (trees, unnamed) = named(&both);
    assert_eq!(trees, " east");
    assert_eq!(
        unnamed,
        [
            "physicalCluster.physicalCells[0].cluster: found nothing, and nodes of these names in east, west; allowed: east, west"
        ]
    );
    let (_, unnamed) = named(&members(&[("east", &[]), ("west", &[])]));
    let told = "physicalCells[1].cluster: found nothing, and no member known to have a node of hostname-dan";
    assert!(unnamed[1].contains(told), "{unnamed:?}");
    assert_eq!(named(&members(&[])), (" ".into(), vec![]));
}

#[test]
fn what_a_member_has_got_no_other_claims() {
    let mut both = members(&[
        ("east", &["hostname-dan", "hostname-carol"]),
        ("west", &["hostname-dan", "hostname-carol"]),
    ]);
    both.before = [NodeName::new("east", "hostname-carol"), NodeName::new("west", "hostname-dan")].into();
    assert_eq!(named(&both), ("east west".into(), vec![]));
    // Not even a member that is alone now, or when the owner says nothing.
    let mut alone = members(&[("west", &["hostname-carol"])]);
    alone.before = both.before.clone();
    assert_eq!(named(&alone), ("east west".into(), vec![]));
    // An administrator names another one; what was assigned before him is nobody's claim to the rest.
    let mut config = lab().config().expect("well formed");
    config.physical_cluster.physical_cells[1].cluster = "east".to_string();
    let (config, unnamed) = name_members(config, &both);
    let trees = config.physical_cluster.physical_cells.iter();
    assert_eq!(trees.map(|tree| tree.cluster.as_str()).collect::<Vec<_>>(), ["east", "east"]);
    assert_eq!(unnamed, []);
}

#[test]
fn a_claim_counts_when_every_other_member_has_named_its_nodes() {
    let mut first = members(&[("east", &["hostname-dan", "hostname-carol"]), ("west", &[])]);
    first.partial = ["west".to_string()].into();
    let (trees, unnamed) = named(&first);
    assert_eq!(trees, " ");
    assert!(
        unnamed[0].ends_with(
            "found nothing, and nodes of these names in east, but not yet the names of all nodes of west; allowed: east, west"
        ),
        "{unnamed:?}"
    );
    // That its own list is not complete takes nothing from anybody.
    first.partial = ["east".to_string()].into();
    assert_eq!(named(&first), ("east east".into(), vec![]));
}

#[test]
fn a_later_claim_is_told() {
    let (config, _) = name_members(lab().config().expect("well formed"), &members(&[("east", &[])]));
    let cluster = |name: &str, nodes: &[&str]| -> crate::Cluster {
        serde_json::from_value(
            json!({"metadata": {"name": name}, "spec": {}, "status": {"idleNodes": nodes}}),
        )
        .expect("a member")
    };
    let clusters =
        [cluster("east", &["hostname-carol", "hostname-dan"]), cluster("west", &["hostname-dan", "other"])];
    let told = other_claims(&config, &[0, 1], &clusters);
    assert_eq!(
        told,
        [
            "physicalCluster.physicalCells[1].cluster: found nothing, and east had its nodes first; west reports nodes of such \
          names too (hostname-dan), which changes nothing; allowed: the member that has them"
        ]
    );
    assert_eq!(other_claims(&config, &[0], &clusters), [""; 0], "an administrator has named the member");
}

#[test]
fn a_placed_group_comes_back_from_its_binding() {
    let mut cells = Cells::new(lab().config().expect("well formed"), Unreported::Good).expect("valid");
    let request = GroupRequest::new("default/job", "vc1", 100, 1, 1);
    let Decision::Place(proposal) = cells.schedule(&request, &Ask::default()) else {
        panic!("the cluster is idle")
    };
    cells.commit(&proposal).expect("nothing changed");
    let mut bound = cells.bound_group("default/job").expect("it runs");
    bound.pods = vec![Some("worker-0".to_string())];
    let group = CellGroup::of(&bound);
    assert_eq!(group.pods[0].node, "hostname-dan");
    let written: CellGroup =
        serde_json::from_value(serde_json::to_value(&group).expect("JSON")).expect("a group");
    assert_eq!(written.bound(bound.work_since_ms).expect("readable"), bound);
}

#[test]
fn classes_have_names_and_numbers() {
    for (name, number) in [("oppo", -1), ("test", 10), ("prod", 100), ("7", 7)] {
        assert_eq!(class_priority(name), Some(number));
        assert_eq!(class_name(number), name);
    }
    for wrong in ["1001", "-2", "gold", ""] {
        assert_eq!(class_priority(wrong), None, "{wrong}");
    }
}

#[test]
fn a_status_counts_as_openpais_page_does() {
    let config = lab().config().expect("well formed");
    let mut cells = Cells::new(config.clone(), Unreported::Good).expect("valid");
    let jobs = BTreeMap::from([
        (100, status::JobCounts { waiting: 3, running: 1 }),
        (10, status::JobCounts::default()),
        (-1, status::JobCounts { waiting: 0, running: 1 }),
    ]);
    for (name, vc, priority) in [("a", "vc1", 100), ("b", "vc1", -1)] {
        let Decision::Place(proposal) =
            cells.schedule(&GroupRequest::new(name, vc, priority, 1, 1), &Ask::default())
        else {
            panic!("{name} fits")
        };
        cells.commit(&proposal).expect("nothing changed");
    }
    let told = |vc: &str, jobs: &BTreeMap<i32, status::JobCounts>| {
        status::status(&config, &cells.vc_status(vc).expect("a VC"), jobs)
    };
    let own = told("vc1", &jobs);
    let shown = |text: &Option<String>| text.clone().unwrap_or_default();
    assert_eq!(
        [shown(&own.allocation), shown(&own.gpu), shown(&own.cpu), shown(&own.memory)],
        ["100%", "1/1", "2/2", "4Gi/4Gi"]
    );
    assert_eq!((own.waiting, own.running, own.borrowed_in, own.borrowed_out), (3, 2, 1, 0));
    let classes: Vec<&str> = own.jobs.iter().map(|jobs| jobs.class.as_str()).collect();
    assert_eq!(classes, ["prod", "oppo"]);
    let lender = told("default", &BTreeMap::new());
    assert_eq!((shown(&lender.gpu), lender.used, lender.borrowed_out), ("0/1".to_string(), 0, 1));
    // On a bad node nothing counts as good, and nothing as in good use.
    cells.set_node_health(&fleet_cells::NodeName::new("", "hostname-dan"), false);
    let own = status::status(&config, &cells.vc_status("vc1").expect("a VC"), &jobs);
    assert_eq!(
        (shown(&own.gpu), shown(&own.allocation), own.used, own.bad),
        ("0/0".into(), "0%".into(), 1, 1)
    );
    // Without SKU types a leaf cell is one device, and no CPUs or memory are promised.
    let mut bare = config.clone();
    bare.physical_cluster.sku_types.clear();
    let own = status::status(&bare, &cells.vc_status("vc1").expect("a VC"), &jobs);
    assert_eq!([shown(&own.gpu), shown(&own.cpu), shown(&own.memory)], ["0/0", "-", "-"]);
}
