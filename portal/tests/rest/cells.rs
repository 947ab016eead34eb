//! Virtual clusters and their cells over the REST API.

use std::collections::BTreeMap;

use axum::{
    body::Body,
    http::{Request, header},
};
use serde_json::{Value, json};

use super::{Hub, variant};

const CELLS: &str = include_str!("../../../examples/hived/two-virtual-clusters.yaml");

/// The lab's configuration in force, as the controller writes it, and its virtual clusters.
async fn configure(hub: &Hub) {
    configure_cells(hub, CELLS, json!({})).await;
    for vc in ["default", "vc1"] {
        hub.create("/apis/fleet.dev/v1alpha1/virtualclusters", {
            json!({"apiVersion": "fleet.dev/v1alpha1", "kind": "VirtualCluster", "metadata": {"name": vc},
                "spec": {"name": vc, "configuration": "cells"}})
        })
        .await;
        let cells = if vc == "vc1" { "GPU-D" } else { "GPU-C" };
        let leaves = json!({"leafCells": [{"cellType": cells, "guaranteed": 1, "used": 0, "bad": 0, "borrowedOut": 0,
            "borrowedIn": 0}]});
        let _: Value =
            hub.admin.request(status(&format!("virtualclusters/{vc}"), leaves)).await.expect("a status");
    }
}

fn status(of: &str, status: Value) -> Request<Vec<u8>> {
    Request::patch(format!("/apis/fleet.dev/v1alpha1/{of}/status"))
        .header(header::CONTENT_TYPE, "application/merge-patch+json")
        .body(json!({"status": status}).to_string().into_bytes())
        .expect("a request")
}

/// A configuration of the lab in force, with rules of who may use what.
async fn configure_cells(hub: &Hub, file: &str, access: Value) {
    let file: Value = fleet_api::yaml::read(file).expect("YAML");
    let text = file["hivedscheduler"]["config"].as_str().expect("a configuration");
    let spec: Value = fleet_api::yaml::read(text).expect("YAML");
    hub.create("/apis/fleet.dev/v1alpha1/cellconfigurations", {
        json!({"apiVersion": "fleet.dev/v1alpha1", "kind": "CellConfiguration", "metadata": {"name": "cells"},
            "spec": spec})
    })
    .await;
    let in_force = json!({"inForce": {"generation": 1, "physicalCluster": spec["physicalCluster"],
        "virtualClusters": spec["virtualClusters"], "access": access}, "badNodes": ["hostname-dan"]});
    let _: Value = hub.admin.request(status("cellconfigurations/cells", in_force)).await.expect("a status");
}

const ONE_CLUSTER: &str = include_str!("../../../examples/hived/one-virtual-cluster.yaml");

#[tokio::test]
async fn what_can_never_run_in_its_virtual_cluster_is_refused_at_once() {
    let hub = Hub::start().await;
    configure_cells(&hub, ONE_CLUSTER, json!({})).await;
    let refused = async |job: &str, words: &str| {
        hub.refused(("POST", "/jobs", Some("r1"), job), (400, "InvalidProtocolError", words)).await;
    };
    let four = variant("gang", "default", "prod", 4);
    let too_many = "found 4 SKUs that start together; allowed: at most 2 SKUs";
    refused(&four, too_many).await;
    refused(&four, "all that virtual cluster default has").await;
    refused(
        &variant("x", "vc9", "prod", 1),
        "defaults.virtualCluster: found \"vc9\"; allowed: one of default",
    )
    .await;
    // There are two GPUs, and no node has both.
    let wide = variant("wide", "default", "prod", 1).replace("gpu: 1", "gpu: 2");
    assert_ne!(wide, variant("wide", "default", "prod", 1), "the file asks for GPUs");
    refused(&wide, "a pod asks for 2 cells of type GPU, one node").await;
    refused(&wide.replace("prod", "oppo"), "a pod asks for 2 cells of type GPU, one node").await;
    // One task at a time there is room, and opportunistic jobs may be of any size.
    let alone =
        four.replace("name: gang", "name: alone").replace("gangAllocation: true", "gangAllocation: false");
    for job in [alone, variant("idle", "default", "oppo", 4), variant("pair", "default", "prod", 2)] {
        let (status, body) = hub.ask("POST", "/jobs", Some("r1"), &job).await;
        assert_eq!(status, 202, "{job}: {body}");
    }
    // Of who may not read the configuration the controller is the judge.
    assert_eq!(hub.submit(&four).await.0, 202);
}

#[tokio::test]
async fn a_virtual_cluster_that_is_not_the_callers_is_refused() {
    let hub = Hub::start().await;
    let access = json!({"default": {"submitterNamespaces": ["team-a"]}, "vc1": {"guaranteedNamespaces": []}});
    configure_cells(&hub, CELLS, access).await;
    for (job, words) in [
        (
            variant("a", "default", "oppo", 1),
            "virtual cluster default admits no jobs of namespace \"default\"",
        ),
        (
            variant("b", "vc1", "prod", 1),
            "admits only opportunistic jobs of namespace \"default\", found class prod",
        ),
    ] {
        hub.refused(("POST", "/jobs", Some("r1"), &job), (403, "ForbiddenUserError", words)).await;
    }
    assert_eq!(hub.ask("POST", "/jobs", Some("r1"), &variant("c", "vc1", "oppo", 1)).await.0, 202);
}

#[tokio::test]
async fn virtual_clusters_and_sku_types_are_those_in_force() {
    let hub = Hub::start().await;
    assert_eq!(hub.ask("GET", "/virtual-clusters", Some("r1"), "").await, (200, json!({})));
    configure(&hub).await;
    let (status, all) = hub.ask("GET", "/virtual-clusters", Some("r1"), "").await;
    assert_eq!(status, 200, "{all}");
    let names: Vec<&String> = all.as_object().expect("an object").keys().collect();
    assert_eq!(names, ["default", "vc1"]);
    let one = hub.ask("GET", "/virtual-clusters/vc1", Some("r1"), "").await;
    assert_eq!(one, (200, all["vc1"].clone()));
    let (status, types) = hub.ask("GET", "/cluster/sku-types?vc=vc1", Some("r1"), "").await;
    assert_eq!((status, types["GPU-D"]["gpu"].as_i64()), (200, Some(1)), "{types}");
    assert_eq!(types.as_object().map(|types| types.len()), Some(1), "of vc1 alone: {types}");
    let none = ("GET", "/virtual-clusters/vc9", Some("r1"), "");
    hub.refused(none, (404, "NoVirtualClusterError", "allowed: default, vc1")).await;
    // alice may read jobs and no virtual clusters.
    hub.refused(("GET", "/virtual-clusters", Some("a1"), ""), (403, "ForbiddenUserError", "virtualclusters"))
        .await;
    hub.refused(("GET", "/virtual-clusters", None, ""), (401, "UnauthorizedUserError", "")).await;
}

#[tokio::test]
async fn hiveds_inspect_api_shows_cells_and_groups() {
    let hub = Hub::start().await;
    let inspect = async |path: &str, token: &str| {
        let request = Request::get(format!("/v1/inspect{path}"))
            .header(header::AUTHORIZATION, format!("Bearer {token}"))
            .body(Body::empty());
        hub.send(request.expect("a request")).await
    };
    let (status, none) = inspect("/clusterstatus", "r1").await;
    assert_eq!((status, none["code"].as_str()), (404, Some("NoCellsError")), "{none}");
    configure(&hub).await;
    let (status, cells) = inspect("/clusterstatus", "r1").await;
    assert_eq!(status, 200, "{cells}");
    let physical = cells["physicalCluster"].as_array().expect("trees").clone();
    let health: BTreeMap<&str, &str> = physical
        .iter()
        .filter_map(|cell| Some((cell["cellType"].as_str()?, cell["cellHealthiness"].as_str()?)))
        .collect();
    assert_eq!(health.len(), 2, "{cells}");
    assert!(health.values().any(|health| *health == "Bad"), "{health:?}");
    assert_eq!(
        inspect("/clusterstatus/physicalcluster", "r1").await,
        (200, cells["physicalCluster"].clone())
    );
    let (_, virtuals) = inspect("/clusterstatus/virtualclusters/", "r1").await;
    assert_eq!(virtuals, cells["virtualClusters"]);
    assert_eq!(inspect("/clusterstatus/virtualclusters/vc1", "r1").await, (200, virtuals["vc1"].clone()));
    assert_eq!(inspect("/affinitygroups/", "r1").await, (200, json!({"items": []})));
    assert_eq!(inspect("/affinitygroups/default/none", "r1").await.0, 404);
    assert_eq!(inspect("/", "r1").await.0, 200);
    assert_eq!(inspect("/clusterstatus", "b1").await.0, 403);
    assert_eq!(inspect("/clusterstatus", "wrong").await.0, 401);
}
