//! Time measurement of the benchmark: a watch of the bindings.

use std::{borrow::Cow, collections::BTreeMap, time::Instant};

use fleet_api::ResourceBinding;
use futures::StreamExt;
use kube::{Api, Client, api::ObjectMeta, runtime::watcher};
use serde::Deserialize;
use tokio::sync::mpsc;

/// Capacity of the sightings channel; the watch waits while it is full.
const SIGHTINGS: usize = 16_384;

/// State of a job, named `namespace/name`.
pub(super) enum Sighting {
    Admitted(String, Instant),
    Ended(String, Instant),
}

/// The fields of a binding that are read; it is one more watch beside those that are measured.
#[derive(Clone, Debug, Deserialize)]
struct Seen {
    metadata: ObjectMeta,
    spec: SeenSpec,
    #[serde(default)]
    status: SeenStatus,
}

#[derive(Clone, Debug, Deserialize)]
struct SeenSpec {
    resource: SeenName,
    #[serde(default)]
    clusters: Vec<serde::de::IgnoredAny>,
}

#[derive(Clone, Debug, Deserialize)]
struct SeenName {
    name: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct SeenStatus {
    result: Option<serde::de::IgnoredAny>,
}

impl kube::Resource for Seen {
    type DynamicType = ();
    type Scope = k8s_openapi::NamespaceResourceScope;

    fn kind(_: &()) -> Cow<'_, str> {
        <ResourceBinding as kube::Resource>::kind(&())
    }

    fn group(_: &()) -> Cow<'_, str> {
        <ResourceBinding as kube::Resource>::group(&())
    }

    fn version(_: &()) -> Cow<'_, str> {
        <ResourceBinding as kube::Resource>::version(&())
    }

    fn plural(_: &()) -> Cow<'_, str> {
        <ResourceBinding as kube::Resource>::plural(&())
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

/// Reports when each job is first seen with a target, and when it has ended.
pub(super) fn watch(hub: Client) -> mpsc::Receiver<Sighting> {
    let (tell, sightings) = mpsc::channel(SIGHTINGS);
    tokio::spawn(async move {
        let mut events = Box::pin(watcher(Api::<Seen>::all(hub), watcher::Config::default()));
        let mut seen: BTreeMap<String, bool> = BTreeMap::new();
        while let Some(event) = events.next().await {
            let Ok(watcher::Event::Apply(binding) | watcher::Event::InitApply(binding)) = event else {
                continue;
            };
            let now = Instant::now();
            let ended = binding.status.result.is_some();
            if !ended && binding.spec.clusters.is_empty() {
                continue;
            }
            let namespace = binding.metadata.namespace.unwrap_or_default();
            let id = format!("{namespace}/{}", binding.spec.resource.name);
            if seen.get(&id).is_some_and(|known| *known || !ended) {
                continue;
            }
            seen.insert(id.clone(), ended);
            let sighting = if ended { Sighting::Ended(id, now) } else { Sighting::Admitted(id, now) };
            if tell.send(sighting).await.is_err() {
                return;
            }
        }
    });
    sightings
}
