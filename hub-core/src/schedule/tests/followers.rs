//! Runs whose pods get their cells one by one.

use super::*;

fn one_by_one(pods: i64) -> Value {
    let mut job = job("first");
    job["spec"]["parallelism"] = pods.into();
    job["spec"]["completions"] = 2.into();
    job["metadata"]["annotations"] = json!({names::GANG_ALLOCATION_ANNOTATION: "false"});
    job
}

#[test]
fn a_reservation_of_cells_says_how_many_pods_follow_one_another() {
    let mut stage = Stage::new();
    stage.submit_as("first", one_by_one(1));
    let Verb::Create(body) = only(stage.pass()).verb else { panic!("a reservation") };
    assert_eq!(body["spec"]["completions"], json!({"job": 2}));
    assert_eq!(body["spec"]["components"][0]["replicas"], 1);
}

#[test]
fn a_run_without_pods_ends_where_its_virtual_cluster_has_no_cells_any_more() {
    let mut stage = Stage::new();
    let status = json!({"reservation": true, "reportSequence": 1, "apiEnablements": ["batch/v1/Job"],
        "nodeShapes": [{"count": 1, "allocatable": {}, "free": {}, "nodes": ["e"]}],
        "conditions": [{"type": "Ready", "status": "True", "reason": "r", "message": "m",
            "lastTransitionTime": "1970-01-01T00:00:00Z"}]});
    stage.observe(Observation::Cluster(Change::Apply(read(json!({"apiVersion": API, "kind": "Cluster",
        "metadata": {"name": "east", "uid": "east"}, "spec": {}, "status": status})))));
    let node = |child: &str| json!({"childCellType": child, "childCellNumber": 2, "isNodeLevel": true});
    let sku = json!({"gpu": 1, "cpu": 4, "memory": "8Gi"});
    stage.reconfigure(
        "physicalCluster",
        json!({"skuTypes": {"GPU": sku, "BIG": sku}, "cellTypes": {"NODE": node("GPU"), "BIG-NODE": node("BIG")},
            "physicalCells": [{"cellType": "NODE", "cellAddress": "n", "cluster": "m"},
                {"cellType": "BIG-NODE", "cellAddress": "e", "cluster": "east"}]}),
    );
    stage.pass();
    for write in stage.scheduler.keep_cell_nodes(&stage.world, "east") {
        stage.reserved(&write);
    }
    stage.world.recount.insert("east".to_string());
    stage.submit_as("first", one_by_one(2));
    let asked = only(stage.pass());
    let (place, _) = stage.start("first", &asked);
    let promised = json!({"vc": {"virtualCells": [{"cellType": "BIG-NODE", "cellNumber": 1}]}});
    stage.reconfigure("virtualClusters", promised);
    stage.look("first");
    stage.pass();
    assert!(stage.intents.evictions.is_empty(), "a pod of it runs");
    let mut ended = stage.world.reservations[&place].clone();
    ended.status =
        Some(read(json!({"phase": "Reserved", "nodes": {"job": ["n", ""]}, "ended": {"job": [0]}})));
    stage.observe(Observation::Reservation(Change::Apply(ended)));
    stage.look("first");
    stage.pass();
    let eviction = &stage.intents.evictions[&key("first")];
    let message = "no pod of it is left on cells in m, which can give its other pods none: ";
    assert_eq!((eviction.epoch, eviction.reason), (1, Reason::InvalidCells));
    assert!(eviction.message.starts_with(message), "{}", eviction.message);
}

#[test]
fn pods_of_a_job_whose_number_is_edited_get_cells_as_its_run_asked() {
    let mut stage = Stage::new();
    let mut job = one_by_one(2);
    stage.submit_as("first", job.clone());
    let asked = only(stage.pass());
    let (place, _) = stage.start("first", &asked);
    job["spec"]["parallelism"] = 0.into();
    let kind = kinds::known("batch/v1", "Job").expect("a kind");
    stage.observe(Observation::Object(kind, Change::Apply(read(job))));
    let mut ended = stage.world.reservations[&place].clone();
    ended.status =
        Some(read(json!({"phase": "Reserved", "nodes": {"job": ["n", ""]}, "ended": {"job": [0]}})));
    stage.observe(Observation::Reservation(Change::Apply(ended)));
    stage.look("first");
    let regroup: Vec<Write> = stage.pass().into_iter().filter(|write| write.name == place.1).collect();
    let Verb::Merge(patch) = only(regroup).verb else { panic!("a patch") };
    let second = patch["spec"]["cells"].as_array().into_iter().flatten().map(|group| &group["places"][0]);
    let second = second.filter(|place| place["index"] == 1).map(|place| place["node"].clone());
    assert_eq!(second.collect::<Vec<_>>(), [json!("n")], "{patch}");
}
