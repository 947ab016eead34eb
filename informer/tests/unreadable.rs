//! A feed of objects of which some cannot be read.

use std::{convert::Infallible, time::Duration};

use fleet_informer::{Feed, Selection, Source};
use fleet_mirror::Change;
use http::{Request, Response};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client, client::Body};
use tower::service_fn;

use crate::feed::heard;

fn map(name: &str, version: u32, data: &str) -> String {
    format!(
        r#"{{"metadata":{{"namespace":"n","name":"{name}","resourceVersion":"{version}"}},"data":{data}}}"#
    )
}

fn deep() -> String {
    format!("{{\"a\":\"b\"}},\"other\":{}1{}", "[".repeat(500), "]".repeat(500))
}

/// One list, and one watch with events; later watches are silent.
fn answer(request: &Request<Body>) -> Option<String> {
    let query = request.uri().query().unwrap_or_default();
    if !query.contains("watch=true") {
        let items = [map("a", 1, "{}"), map("odd", 2, "5"), map("deep", 3, &deep()), map("b", 4, "{}")];
        return Some(format!(r#"{{"metadata":{{"resourceVersion":"9"}},"items":[{}]}}"#, items.join(",")));
    }
    let event = |kind: &str, object: String| format!("{{\"type\":\"{kind}\",\"object\":{object}}}\n");
    query.contains("resourceVersion=9").then(|| {
        [
            event("ADDED", map("c", 10, "{}")),
            event("MODIFIED", map("c", 11, "7")),
            event("ADDED", map("deeper", 12, &deep())),
            event("MODIFIED", map("a", 13, r#"{"k":"v"}"#)),
        ]
        .concat()
    })
}

#[tokio::test(start_paused = true)]
async fn an_object_that_cannot_be_read_hides_no_other() {
    let service = service_fn(|request: Request<Body>| async move {
        match answer(&request) {
            Some(text) => Ok::<_, Infallible>(Response::new(Body::from(text.into_bytes()))),
            None => std::future::pending().await,
        }
    });
    let api: Api<ConfigMap> = Api::all(Client::new(service, "default"));
    let feed =
        Feed { source: Source::unasked("hub"), api, selection: Selection::default(), name: "maps".into() };
    let (mut told, stop) = heard(feed);
    let mut log = Vec::new();
    let name = |map: &ConfigMap| map.metadata.name.clone().unwrap_or_default();
    while log.len() < 5 {
        let change = tokio::time::timeout(Duration::from_secs(20), told.recv()).await;
        log.push(match change.expect("in time").expect("told") {
            Change::Listing => "listing".to_owned(),
            Change::Reset(listing) => listing.objects.iter().map(name).collect::<Vec<_>>().join(" "),
            Change::Apply(map) => format!("apply {}", name(&map)),
            Change::Delete(map) => format!("delete {}", name(&map)),
            _ => "other".to_owned(),
        });
    }
    assert_eq!(log, ["listing", "a deep b", "apply c", "apply deeper", "apply a"]);
    stop.cancel();
}
