use fleet_cells::{Ask, Cells, Decision, GroupRequest, Unreported};
use serde_json::{Value, json};

use super::{tree::Detail, *};
use fleet_api::cells::{CellConfigurationSpec, CellGroup};

const TWO: &str = include_str!("../../../cells/testdata/two-virtual-clusters.yaml");
const ONE: &str = include_str!("../../../cells/testdata/one-virtual-cluster.yaml");

pub(crate) fn now() -> Timestamp {
    "2026-01-01T00:00:00Z".parse().expect("a time")
}

/// The lab's two virtual clusters, with groups that were placed in this order: name, VC, priority.
pub(crate) fn standing(groups: &[(&str, &str, i32)]) -> Standing {
    let config = file::read(TWO).expect("the lab's file").config;
    let clusters = vec![cluster("only")];
    let (placed, _) = read::name_members(config.clone(), &read::members(&clusters, []));
    let mut cells = Cells::new(placed, Unreported::Good).expect("valid");
    let mut bindings = Vec::new();
    for (name, vc, priority) in groups {
        let request = GroupRequest::new(&format!("default/{name}"), vc, *priority, 1, 1);
        let Decision::Place(proposal) = cells.schedule(&request, &Ask::default()) else {
            panic!("{name} fits")
        };
        cells.commit(&proposal).expect("nothing changed");
        let group = CellGroup::of(&cells.bound_group(request.name()).expect("it runs"));
        bindings.push(binding(name, json!({"groups": [group]})));
    }
    let object = json!({"apiVersion": "fleet.dev/v1alpha1", "kind": "CellConfiguration",
        "metadata": {"name": "cells", "generation": 1, "uid": "u"}, "spec": CellConfigurationSpec::of(&config)});
    Standing {
        configurations: vec![serde_json::from_value(object).expect("a configuration")],
        bindings,
        clusters,
    }
}

fn cluster(name: &str) -> Cluster {
    let value = json!({"apiVersion": "fleet.dev/v1alpha1", "kind": "Cluster", "metadata": {"name": name}, "spec": {}});
    serde_json::from_value(value).expect("a cluster")
}

fn binding(name: &str, cells: Value) -> ResourceBinding {
    let value = json!({"apiVersion": "fleet.dev/v1alpha1", "kind": "ResourceBinding",
        "metadata": {"name": format!("{name}-job"), "namespace": "default"},
        "spec": {"resource": {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "namespace": "default", "name": name},
            "policy": {"kind": "PropagationPolicy", "name": "p"}, "cells": cells}});
    serde_json::from_value(value).expect("a binding")
}

fn drawn(rows: &[tree::Row]) -> Vec<String> {
    let job = |job: &tree::Occupant| format!("{} {} {}", job.job, job.virtual_cluster, job.class);
    let line = |row: &tree::Row| {
        format!(
            "{}{} {} {}/{} {} [{}] {}",
            "  ".repeat(row.depth),
            row.cell_type,
            row.name,
            row.used,
            row.leaves,
            row.healthiness,
            row.virtual_clusters.join(","),
            row.jobs.iter().map(job).collect::<Vec<_>>().join(", ")
        )
    };
    rows.iter().map(|row| line(row).trim_end().to_string()).collect()
}

#[test]
fn a_leaf_names_the_virtual_cluster_of_its_jobs() {
    let tree: fleet_api::ElasticQuotaTree = serde_json::from_value(json!({
        "apiVersion": "scheduling.sigs.k8s.io/v1beta1", "kind": "ElasticQuotaTree", "metadata": {"name": "t"},
        "spec": {"root": {"name": "root", "children": [
            {"name": "ml", "children": [{"name": "train", "attributes": {"fleet.dev/virtual-cluster": "vc1"}}]},
            {"name": "train"}]}}}))
    .expect("a tree");
    for (path, vc) in
        [("root/ml/train", Some("vc1")), ("root/train", None), ("root/no", None), ("x/ml/train", None)]
    {
        assert_eq!(of_leaf(std::slice::from_ref(&tree), path).as_deref(), vc, "{path}");
    }
}

#[test]
fn a_job_asks_by_label_by_hiveds_annotation_or_by_its_leaf() {
    use fleet_policies::workload::WorkloadKind::BatchJob;
    let job = |labels: serde_json::Value, hived: &str| {
        let annotations = match hived {
            "" => json!({}),
            text => json!({fleet_api::names::POD_SCHEDULING_SPEC_ANNOTATION: text}),
        };
        json!({"metadata": {"name": "j", "labels": labels}, "spec": {"parallelism": 1, "completions": 1,
            "template": {"metadata": {"annotations": annotations}, "spec": {"containers": [{"name": "c"}]}}}})
    };
    let hived = "virtualCluster: vc2\npriority: 120\nleafCellNumber: 1\n";
    let label = |vc: &str, class: &str| json!({"fleet.dev/virtual-cluster": vc, "fleet.dev/class": class});
    for (labels, hived, leaf, vc, class) in [
        (label("vc1", "prod"), "", None, "vc1", "prod"),
        (label("vc1", "120"), "", Some("vc3"), "vc1", "crit"),
        (label("vc1", "crit"), "", None, "vc1", "crit"),
        (json!({}), hived, None, "vc2", "crit"),
        (json!({"fleet.dev/class": "oppo"}), "", Some("vc3"), "vc3", "oppo"),
        (json!({}), "", Some("vc3"), "vc3", "test"),
        (json!({}), "", None, "", ""),
        (label("vc1", "gold"), "", None, "", ""),
    ] {
        let found = super::asked(BatchJob, &job(labels.clone(), hived), leaf);
        assert_eq!(found, (vc.to_owned(), class.to_owned()), "{labels} {hived:?} {leaf:?}");
    }
}

#[test]
fn the_tree_shows_who_is_on_it() {
    let mut standing = standing(&[("own", "vc1", 100), ("guest", "vc1", -1)]);
    let picture = standing.picture(now()).expect("readable").expect("in force");
    assert_eq!(
        drawn(&tree::physical(&picture, Detail::Folded)),
        [
            "GPU-C-NODE-POOL 0 1/1 Healthy [] default/guest vc1 oppo",
            "GPU-D-NODE-POOL 1 1/1 Healthy [vc1] default/own vc1 prod",
            "  GPU-D-NODE hostname-dan 1/1 Healthy [vc1] default/own vc1 prod",
        ]
    );
    let own = tree::of_virtual_cluster(&picture, "vc1", Detail::Every).expect("a VC");
    assert_eq!(own[0].address, "vc1/0");
    assert_eq!(own[0].stands_for, "1/hostname-dan");
    assert!(own.last().is_some_and(|row| row.address.ends_with("-opp")), "{own:?}");
    assert_eq!(tree::of_virtual_cluster(&picture, "nobody", Detail::Every), None);
    // A bad node is seen where it is.
    standing.configurations[0].status =
        serde_json::from_value(json!({"badNodes": ["only/hostname-dan"]})).expect("a status");
    let picture = standing.picture(now()).expect("readable").expect("in force");
    assert!(drawn(&tree::physical(&picture, Detail::Folded))[1].contains("Bad"));
}

#[test]
fn a_plan_names_what_is_lost_and_by_whom() {
    let standing = standing(&[("own", "vc1", 100), ("kept", "default", 100)]);
    let same = plan::plan(&standing, &file::read(TWO).expect("a file"), now()).expect("a plan");
    assert!(!same.is_change && same.promises.is_empty() && same.jobs.is_empty(), "{same:?}");
    let one = plan::plan(&standing, &file::read(ONE).expect("a file"), now()).expect("a plan");
    assert!(one.is_change);
    assert_eq!(one.virtual_clusters_removed, ["vc1"]);
    let lost: Vec<(&str, &str, &str)> =
        one.jobs.iter().map(|job| (job.job.as_str(), job.class.as_str(), job.becomes.as_str())).collect();
    assert!(lost.iter().any(|(job, class, _)| *job == "default/own" && *class == "prod"), "{lost:?}");
    let changes: Vec<(&str, u64, u64)> =
        one.promises.iter().map(|p| (p.vc.as_str(), p.before, p.after)).collect();
    assert_eq!(changes, [("default", 1, 0), ("default", 0, 2), ("vc1", 1, 0)]);
    // Without a configuration everything is gained.
    let nothing = Standing { configurations: Vec::new(), ..standing.clone() };
    let first = plan::plan(&nothing, &file::read(TWO).expect("a file"), now()).expect("a plan");
    assert_eq!((first.name.as_str(), first.virtual_clusters_added.len()), ("cells", 2));
    assert_eq!(first.nodes_added, ["only/hostname-carol", "only/hostname-dan"]);
    // Two members, and nobody says which has the nodes.
    let two =
        Standing { clusters: vec![cluster("east"), cluster("west")], configurations: Vec::new(), ..standing };
    let unsure = plan::plan(&two, &file::read(TWO).expect("a file"), now()).expect("a plan");
    assert!(
        unsure.unnamed[1].starts_with("physicalCluster.physicalCells[1].cluster: found nothing"),
        "{unsure:?}"
    );
}

#[test]
fn a_member_has_the_nodes_that_its_report_names() {
    let reports = |status: Value| {
        let mut east = cluster("east");
        east.status = serde_json::from_value(status).expect("a status");
        // The other member has no nodes, and says so.
        let mut west = cluster("west");
        west.status =
            serde_json::from_value(json!({"nodeSummary": {"totalNum": 0, "readyNum": 0}})).expect("a status");
        Standing { clusters: vec![east, west], configurations: Vec::new(), ..standing(&[]) }
    };
    let shape = |node: &str| json!([{"count": 1, "allocatable": {}, "free": {}, "nodes": [node]}]);
    let unnamed = |standing: &Standing| {
        plan::plan(standing, &file::read(TWO).expect("a file"), now()).expect("a plan").unnamed.len()
    };
    assert_eq!(unnamed(&reports(json!({}))), 2);
    // Nothing runs on one, and the other is kept for cells by now; or it takes no pods.
    let kept = json!({"idleNodes": ["hostname-carol"], "cellNodeShapes": shape("hostname-dan")});
    assert_eq!(unnamed(&reports(kept)), 0);
    let cordoned = json!([{"name": "hostname-carol", "reason": "Cordoned"}]);
    assert_eq!(unnamed(&reports(json!({"unusableNodes": cordoned, "nodeShapes": shape("hostname-dan")}))), 0);
}

#[test]
fn every_mistake_of_a_file_has_its_path() {
    let wrong = TWO
        .replace("cellNumber: 1", "cellNumber: 7")
        .replace("GPU-D-NODE-POOL.GPU-D-NODE", "NOWHERE.GPU-D-NODE");
    let text = file::read(&wrong).expect_err("mistakes").to_string();
    assert!(text.starts_with("hivedscheduler.config.virtualClusters."), "{text}");
    assert!(text.contains("vc1.virtualCells[0].cellType") && text.contains("allowed"), "{text}");
    let told = |text: &str| file::read(text).expect_err("no configuration").to_string();
    assert_eq!(told(""), "the file: found nothing; allowed: one configuration of cells");
    assert_eq!(told("a: 1\n---\nb: 2\n"), "the file: found 2 documents; allowed: one configuration of cells");
    assert_eq!(
        told("{}"),
        "physicalCluster.physicalCells: found nothing; allowed: at least one tree of cells"
    );
    assert_eq!(
        told("kind: Pod\napiVersion: v1\n"),
        "apiVersion: found \"v1\"; allowed: fleet.dev/v1alpha1\nkind: found \"Pod\"; allowed: CellConfiguration"
    );
    assert_eq!(
        told("hivedscheduler: {}"),
        "hivedscheduler.config: found nothing; allowed: the configuration, as text or as an object"
    );
    assert!(
        told("hivedscheduler: {config: 'a: ['}").starts_with("hivedscheduler.config: found invalid YAML")
    );
    // Our own object, made of the same file.
    let config = file::read(TWO).expect("a file").config;
    let object = json!({"apiVersion": "fleet.dev/v1alpha1", "kind": "CellConfiguration", "metadata": {"name": "lab"},
        "spec": CellConfigurationSpec::of(&config)});
    let read = file::read(&object.to_string()).expect("JSON is YAML");
    assert_eq!((read.name.as_deref(), &read.config), (Some("lab"), &config));
    let mut broken = object;
    broken["spec"]["virtualClusters"]["vc1"]["virtualCells"][0]["cellNumber"] = json!(9);
    assert!(told(&broken.to_string()).starts_with("spec.virtualClusters: found 9 cells"));
}

#[test]
fn a_plan_names_nodes_that_their_member_does_not_have() {
    let absent = |total: i64, nodes: &[&str]| {
        let mut standing = standing(&[]);
        let shapes = json!([{"count": nodes.len(), "allocatable": {}, "free": {}, "nodes": nodes}]);
        let status = json!({"nodeSummary": {"totalNum": total, "readyNum": total}, "nodeShapes": shapes});
        standing.clusters[0].status = serde_json::from_value(status).expect("a status");
        plan::plan(&standing, &file::read(TWO).expect("a file"), now()).expect("a plan").absent
    };
    assert_eq!(absent(2, &["hostname-carol", "hostname-dan"]), [""; 0]);
    assert_eq!(
        absent(3, &["hostname-carol", "a-host", "hostname-dn"]),
        ["found only/hostname-dan; allowed: nodes of only, of which these are no cells: hostname-dn, a-host"]
    );
    // It has more nodes than it names.
    assert_eq!(absent(4, &["hostname-carol", "a-host", "hostname-dn"]), [""; 0]);
    let ten: Vec<String> = (0..10).map(|number| format!("n{number}")).collect();
    let ten: Vec<&str> = ten.iter().map(String::as_str).collect();
    let told = absent(10, &ten);
    assert_eq!(
        told,
        [
            "found only/hostname-carol, only/hostname-dan; allowed: nodes of only, of which these are no cells: n0, n1, \
          n2, n3, n4, n5, n6, n7 and 2 more"
        ]
    );
}
