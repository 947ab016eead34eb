//! The pages of virtual clusters and of their configuration.

use std::time::Duration;

use axum::{
    body::Body,
    http::{Request, header},
};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tower::ServiceExt;

use crate::hub::{Browser, Hub, location};

const CELLS: &str = "
physicalCluster:
  cellTypes:
    NODE: {childCellType: GPU, childCellNumber: 4, isNodeLevel: true}
  physicalCells:
  - {cellType: NODE, cellAddress: n-0}
  - {cellType: NODE, cellAddress: n-1}
virtualClusters:
  vc1: {virtualCells: [{cellType: NODE, cellNumber: 1}]}
";

/// What a configuration would change is shown first, and only what was shown is applied.
#[tokio::test]
async fn a_configuration_is_looked_at_and_applied() {
    let hub = Hub::start().await;
    let (mut root, mut alice) = (hub.sign_in("token-r").await, hub.sign_in("token-a").await);
    let path = "/virtual-clusters/configuration";
    let encoded = |text: &str| -> String { text.bytes().map(|byte| format!("%{byte:02X}")).collect() };
    let seen = |body: &str| {
        let rest = body.split("name=\"seen\" value=\"").nth(1).and_then(|rest| rest.split('"').next());
        rest.unwrap_or_default().to_owned()
    };
    let answer = hub.get(&mut alice, path).await;
    assert!(
        answer.body.contains("The configuration is not shown") && !answer.body.contains("<textarea"),
        "{}",
        answer.body
    );
    assert_eq!(hub.get(&mut Browser::default(), path).await.status, 303);

    hub.get(&mut root, path).await;
    let wrong = CELLS.replace("cellNumber: 1}", "cellNumber: 9}");
    let answer = hub.post(&mut root, path, &format!("do=preview&yaml={}", encoded(&wrong))).await;
    assert!(answer.status == 422 && answer.body.contains("id=\"troubles\""), "{}", answer.body);
    let answer = hub.post(&mut root, path, &format!("do=preview&yaml={}", encoded(CELLS))).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    assert!(
        answer.body.contains("Virtual clusters that come</b>: vc1")
            && answer.body.contains("Apply this difference"),
        "{}",
        answer.body
    );
    let first = seen(&answer.body);

    // Another text than the one that was looked at is not applied.
    let other = CELLS.replace("vc1", "vc2");
    let answer = hub.post(&mut root, path, &format!("do=apply&seen={first}&yaml={}", encoded(&other))).await;
    assert!(answer.status == 422 && answer.body.contains("It was not applied"), "{}", answer.body);
    let objects = "/apis/fleet.dev/v1alpha1/cellconfigurations";
    assert_eq!(hub.object(objects).await.expect("a list")["items"], json!([]));
    let answer = hub.post(&mut root, path, &format!("do=apply&seen={first}&yaml={}", encoded(CELLS))).await;
    assert_eq!((answer.status, location(&answer)), (303, "/virtual-clusters"), "{}", answer.body);
    let listed = hub.object(objects).await.expect("a list");
    assert!(listed["items"][0]["spec"]["virtualClusters"]["vc1"].is_object(), "{listed}");

    // Somebody else was faster: what was looked at is not what would be written.
    hub.get(&mut root, path).await;
    let more = CELLS.replace("cellNumber: 1}", "cellNumber: 2}");
    let answer = hub.post(&mut root, path, &format!("do=preview&yaml={}", encoded(&more))).await;
    let second = seen(&answer.body);
    let name = listed["items"][0]["metadata"]["name"].as_str().expect("a name");
    let patch = json!({"spec": {"access": {"vc1": {"submitterNamespaces": ["a"]}}}});
    let request = Request::patch(format!("{objects}/{name}"))
        .header(header::CONTENT_TYPE, "application/merge-patch+json")
        .body(patch.to_string().into_bytes())
        .expect("a request");
    let _: Value = hub.admin.request(request).await.expect("a change");
    let answer = hub.post(&mut root, path, &format!("do=apply&seen={second}&yaml={}", encoded(&more))).await;
    assert!(answer.status == 422 && answer.body.contains("It was not applied"), "{}", answer.body);
    // The form of another site does nothing.
    let key = std::mem::replace(&mut root.form_key, "other".into());
    let answer = hub.post(&mut root, path, &format!("do=apply&seen={second}&yaml={}", encoded(&more))).await;
    assert_eq!(answer.status, 403);
    root.form_key = key;
}

#[tokio::test]
async fn virtual_clusters_are_shown_to_who_may_list_them() {
    let hub = Hub::start().await;
    let path = "/apis/fleet.dev/v1alpha1/virtualclusters";
    let object = json!({"apiVersion": "fleet.dev/v1alpha1", "kind": "VirtualCluster", "metadata": {"name": "vc1"},
        "spec": {"name": "VC1", "configuration": "cells"}});
    hub.create(path, object).await;
    let report = async |used: i64| {
        let status = json!({"status": {"guaranteed": 8, "used": used, "borrowedOut": 1, "borrowedIn": 0, "gpu": "6/8", "waiting": 3}});
        let request = Request::patch(format!("{path}/vc1/status"))
            .header(header::CONTENT_TYPE, "application/merge-patch+json")
            .body(status.to_string().into_bytes())
            .expect("a request");
        let _: Value = hub.admin.request(request).await.expect("a status");
        hub.until(|known| known.virtual_clusters().values().any(|one| one.used == used)).await;
    };
    report(6).await;
    let (mut root, mut alice) = (hub.sign_in("token-r").await, hub.sign_in("token-a").await);
    let seen = hub.get(&mut root, "/virtual-clusters").await.body;
    assert!(seen.contains("VC1") && seen.contains("6 of 8 cells used, 8 guaranteed, 1 lent"), "{seen}");
    let seen = hub.get(&mut alice, "/virtual-clusters").await.body;
    assert!(!seen.contains("VC1") && seen.contains("Virtual clusters are not shown"), "{seen}");
    // The first page has them from the watches, to whom the hub lets list them.
    let seen = hub.get(&mut root, "/").await.body;
    assert!(seen.contains("VC1") && seen.contains("6 of 8 cells used, 8 guaranteed, 1 lent"), "{seen}");
    assert!(!hub.get(&mut alice, "/").await.body.contains("VC1"));
    // Their own page changes by itself.
    let request = Request::get("/live?page=/virtual-clusters").header(header::COOKIE, root.cookie());
    let answer =
        hub.pages.clone().oneshot(request.body(Body::empty()).expect("a request")).await.expect("one");
    let mut events = answer.into_body();
    let mut read = async |wanted: &str| {
        let reading = tokio::time::timeout(Duration::from_secs(20), async {
            let mut seen = String::new();
            while !seen.contains(wanted) {
                let frame = events.frame().await.expect("a frame").expect("no error");
                seen.push_str(&String::from_utf8_lossy(frame.data_ref().expect("data")));
            }
        });
        reading.await.unwrap_or_else(|_| panic!("{wanted:?} in the stream"));
    };
    read("6 of 8 cells used").await;
    report(7).await;
    read("7 of 8 cells used").await;
    // A dry run says how a virtual cluster stands, and that there is none of this name.
    for (vc, says) in
        [("VC1", "1 lent, 0 bad; 3 of its jobs wait."), ("vc9", "there is no virtual cluster vc9")]
    {
        hub.get(&mut root, "/submit").await;
        let fields = format!(
            "do=check&name=train&namespace=a&kind=PyTorchJob&virtual_cluster={vc}&class=prod&role0-name=Master&role0-replicas=1&\
             role0-image=i&role0-gpus=8&role0-cpu=1&role0-memory=1Gi"
        );
        let answer = hub.post(&mut root, "/submit", &fields).await;
        assert!(answer.status == 200 && answer.body.contains(says), "{vc}: {}", answer.body);
    }
}
