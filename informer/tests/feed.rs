//! A feed against the embedded API server, with faults between them.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use fleet_apiserver::{
    ApiServer, Config,
    faults::{Fate, FaultLayer, FrameFate, Link, Script},
};
use fleet_informer::{Feed, INCARNATION_ANNOTATION, Kube, News, Selection, Source};
use fleet_mirror::{Change, Mirror};
use http::Method;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::{
    Api, Client,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::json;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tower::Layer;

/// Refuses the second read of each path.
#[derive(Default)]
struct SecondIsTooOld(Mutex<BTreeMap<String, u32>>);

impl Script for SecondIsTooOld {
    fn request(&self, method: &Method, path: &str) -> Fate {
        let mut counts = self.0.lock().unwrap();
        let count = counts.entry(path.to_owned()).or_default();
        *count += 1;
        let refused = (*method == Method::GET && path.ends_with("/configmaps") && *count == 2).then_some(410);
        Fate { refused, ..Fate::default() }
    }

    fn frame(&self) -> FrameFate {
        FrameFate::Arrives
    }
}

fn map(name: &str) -> ConfigMap {
    let mut map = ConfigMap::default();
    map.metadata.name = Some(name.to_owned());
    map
}

/// What a feed reports, and what stops it.
pub fn heard(feed: Feed<ConfigMap>) -> (mpsc::UnboundedReceiver<Change<ConfigMap>>, CancellationToken) {
    let (into, told) = mpsc::unbounded_channel();
    let stop = CancellationToken::new();
    tokio::spawn(feed.run(stop.clone(), move |news| {
        let listens = match news {
            News::Change(change) => into.send(change).is_ok(),
            News::NotServed => true,
        };
        std::future::ready(listens)
    }));
    (told, stop)
}

struct Stage {
    client: Client,
    source: Source,
    told: mpsc::UnboundedReceiver<Change<ConfigMap>>,
    stop: CancellationToken,
}

impl Stage {
    async fn new(script: Arc<dyn Script>) -> Self {
        let server = ApiServer::open(Config::default()).await.unwrap();
        let client = Client::new(server.router(), "default");
        let far = Client::new(FaultLayer::new(Link::default(), script).layer(server.router()), "default");
        let source = Source::asked(far.clone(), "hub");
        let api: Api<ConfigMap> = Api::namespaced(far, "default");
        let feed = Feed { source: source.clone(), api, selection: Selection::default(), name: "maps".into() };
        let (told, stop) = heard(feed);
        Self { client, source, told, stop }
    }

    async fn next(&mut self) -> Change<ConfigMap> {
        let told = tokio::time::timeout(Duration::from_secs(20), self.told.recv());
        told.await.expect("in time").expect("told")
    }

    async fn create(&self, name: &str) {
        let maps: Api<ConfigMap> = Api::namespaced(self.client.clone(), "default");
        maps.create(&PostParams::default(), &map(name)).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_is_too_old_lists_again() {
    let mut stage = Stage::new(Arc::new(SecondIsTooOld::default())).await;
    let mut log = Vec::new();
    let mut mirror = Mirror::<String>::default();
    while log.len() < 4 {
        let change = stage.next().await;
        log.push(match &change {
            Change::Listing => "listing",
            Change::Reset(listing) => {
                assert!(listing.incarnation.is_some() && listing.version != fleet_mirror::Version::Unknown);
                "all"
            }
            _ => "other",
        });
        assert!(!mirror.take::<Kube, ConfigMap>(change, |map, _| map.metadata.name.unwrap()).restored);
    }
    assert_eq!(log, ["listing", "all", "listing", "all"]);
    stage.create("a").await;
    let told = stage.next().await;
    assert!(matches!(&told, Change::Apply(map) if map.metadata.name.as_deref() == Some("a")), "{told:?}");
    stage.stop.cancel();
}

#[tokio::test(start_paused = true)]
async fn another_incarnation_ends_the_feed() {
    struct Fine;
    impl Script for Fine {
        fn request(&self, _: &Method, _: &str) -> Fate {
            Fate::default()
        }
        fn frame(&self) -> FrameFate {
            FrameFate::Arrives
        }
    }
    let mut stage = Stage::new(Arc::new(Fine)).await;
    assert!(matches!(stage.next().await, Change::Listing));
    assert!(matches!(stage.next().await, Change::Reset(_)));
    let before = stage.source.incarnation();
    stage.source.ask().await.unwrap();
    assert!(before.is_some() && !stage.source.is_restored());
    let namespaces: Api<Namespace> = Api::all(stage.client.clone());
    let patch = json!({"metadata": {"annotations": {INCARNATION_ANNOTATION: "another"}}});
    namespaces.patch("kube-system", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    stage.source.ask().await.unwrap();
    stage.source.restored().await;
    assert_eq!(stage.source.incarnation(), before, "what was known is of the one before");
    stage.stop.cancel();
}
