//! The cluster's own scheduler: binds pods one by one to the node with the most free resources, by what its
//! watches have shown.
//!
//! Like kube-scheduler, it takes pods with its name, without a node and without gates, oldest first. It knows
//! requests and node selectors, and nothing of gangs, reserved nodes, or bindings in flight elsewhere.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use fleet_policies::workload::template_requests;
use fleet_resources::{ResourceName, Resources};
use futures::{StreamExt, future::BoxFuture};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{
    Api, Client, ResourceExt,
    api::{Patch, PatchParams, PostParams, Request},
    runtime::watcher::Event,
};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::events;

/// The scheduler of pods that name none.
const NAME: &str = "default-scheduler";
/// Unschedulable pods are retried after this time at the latest.
const AGAIN: Duration = Duration::from_secs(5);

type Key = (String, String);

#[derive(Clone, Debug)]
struct Known {
    uid: String,
    node: Option<String>,
    requests: Resources,
    selector: BTreeMap<String, String>,
    waits: bool,
    ended: bool,
    told: bool,
    created: String,
}

#[derive(Debug, Default)]
struct Room {
    allocatable: Resources,
    used: Resources,
    labels: BTreeMap<String, String>,
    cordoned: bool,
}

struct Scheduler {
    client: Client,
    nodes: BTreeMap<String, Room>,
    pods: BTreeMap<Key, Known>,
    due: BTreeSet<(String, Key)>,
}

/// Runs until `shutdown` is cancelled.
pub fn run(client: Client, shutdown: CancellationToken) -> BoxFuture<'static, anyhow::Result<()>> {
    Box::pin(async move {
        shutdown.run_until_cancelled(work(client)).await;
        Ok(())
    })
}

async fn work(client: Client) {
    let mut nodes = Box::pin(events::<Node>(Api::all(client.clone())));
    let mut pods = Box::pin(events::<Pod>(Api::all(client.clone())));
    let mut scheduler =
        Scheduler { client, nodes: BTreeMap::new(), pods: BTreeMap::new(), due: BTreeSet::new() };
    loop {
        tokio::select! {
            biased;
            Some(event) = nodes.next() => scheduler.see_node(event),
            Some(event) = pods.next() => scheduler.see_pod(event),
            () = std::future::ready(()), if !scheduler.due.is_empty() => {
                if let Some((_, key)) = scheduler.due.pop_first() {
                    scheduler.place(&key).await;
                }
            }
            () = tokio::time::sleep(AGAIN) => scheduler.all_due(),
        }
    }
}

impl Scheduler {
    fn see_node(&mut self, event: Event<Node>) {
        match event {
            Event::Apply(node) | Event::InitApply(node) => {
                let name = node.name_any();
                let amounts = node.status.as_ref().and_then(|status| status.allocatable.as_ref());
                let amounts =
                    amounts.into_iter().flatten().map(|(name, amount)| (name.as_str(), amount.0.as_str()));
                let room = self.nodes.entry(name).or_default();
                room.allocatable = Resources::parse(amounts).unwrap_or_default();
                room.labels = node.labels().clone();
                room.cordoned = node.spec.as_ref().is_some_and(|spec| spec.unschedulable == Some(true));
                self.all_due();
            }
            Event::Delete(node) => drop(self.nodes.remove(&node.name_any())),
            Event::Init | Event::InitDone => {}
        }
    }

    fn see_pod(&mut self, event: Event<Pod>) {
        match event {
            Event::Apply(pod) | Event::InitApply(pod) => {
                let key = (pod.namespace().unwrap_or_default(), pod.name_any());
                let mut now = read(&pod);
                let before = self.pods.remove(&key);
                if let Some(before) = &before {
                    self.count(before, -1);
                    if before.uid == now.uid {
                        // The watch may not show its own binding yet.
                        now.node = now.node.or(before.node.clone());
                        now.told = before.told;
                        now.waits = now.waits && now.node.is_none();
                    }
                }
                self.count(&now, 1);
                if now.waits {
                    self.due.insert((now.created.clone(), key.clone()));
                }
                let freed = now.ended && before.is_some_and(|before| !before.ended);
                self.pods.insert(key, now);
                if freed {
                    self.all_due();
                }
            }
            Event::Delete(pod) => {
                let key = (pod.namespace().unwrap_or_default(), pod.name_any());
                if let Some(before) = self.pods.remove(&key) {
                    self.count(&before, -1);
                    self.all_due();
                }
            }
            Event::Init | Event::InitDone => {}
        }
    }

    fn all_due(&mut self) {
        let waiting = self.pods.iter().filter(|(_, pod)| pod.waits);
        self.due.extend(waiting.map(|(key, pod)| (pod.created.clone(), key.clone())));
    }

    fn count(&mut self, pod: &Known, sign: i64) {
        let Some(room) = pod.node.as_ref().filter(|_| !pod.ended).and_then(|node| self.nodes.get_mut(node))
        else {
            return;
        };
        let mut requests = pod.requests.clone();
        requests.set(ResourceName::PODS, 1);
        if sign > 0 { room.used.add(&requests) } else { room.used.sub(&requests) }
    }

    async fn place(&mut self, key: &Key) {
        let Some(pod) = self.pods.get(key).filter(|pod| pod.waits).cloned() else { return };
        let mut requests = pod.requests.clone();
        requests.set(ResourceName::PODS, 1);
        let fits = |room: &Room| {
            !room.cordoned
                && requests.fits_in(&room.allocatable.minus(&room.used))
                && pod.selector.iter().all(|(label, value)| room.labels.get(label) == Some(value))
        };
        // The emptiest by cpu, like the default scores.
        let fit = self.nodes.iter().filter(|(_, room)| fits(room));
        let best = fit.max_by_key(|(name, room)| {
            (room.allocatable.minus(&room.used).get(ResourceName::CPU), std::cmp::Reverse((*name).clone()))
        });
        match best.map(|(name, _)| name.clone()) {
            Some(node) => self.bind(key, pod, node).await,
            None => self.tell(key, pod).await,
        }
    }

    async fn bind(&mut self, key: &Key, pod: Known, node: String) {
        let bound = Known { node: Some(node.clone()), waits: false, ..pod.clone() };
        self.count(&bound, 1);
        self.pods.insert(key.clone(), bound.clone());
        let body = json!({"apiVersion": "v1", "kind": "Binding",
            "metadata": {"name": key.1, "namespace": key.0, "uid": pod.uid},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node}});
        let request = Request::new(format!("/api/v1/namespaces/{}/pods", key.0)).create_subresource(
            "binding",
            &key.1,
            &PostParams::default(),
            body.to_string().into_bytes(),
        );
        let Ok(request) = request else { return };
        if let Err(error) = self.client.request_text(request).await {
            tracing::debug!(pod = %key.1, %error, "not bound");
            self.count(&bound, -1);
            self.pods.insert(key.clone(), Known { waits: false, ..pod });
        }
    }

    async fn tell(&mut self, key: &Key, pod: Known) {
        if pod.told {
            return;
        }
        if let Some(known) = self.pods.get_mut(key) {
            known.told = true;
        }
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &key.0);
        let condition = json!({"type": "PodScheduled", "status": "False", "reason": "Unschedulable",
            "message": format!("0/{} nodes are available", self.nodes.len())});
        let patch = Patch::Strategic(json!({"status": {"conditions": [condition]}}));
        // A pod deleted meanwhile needs no status.
        let _ = pods.patch_status(&key.1, &PatchParams::default(), &patch).await;
    }
}

fn read(pod: &Pod) -> Known {
    let spec = pod.spec.clone().unwrap_or_default();
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default();
    let ended = matches!(phase, "Succeeded" | "Failed");
    let node = spec.node_name.clone().filter(|node| !node.is_empty());
    let mut template = json!({"spec": spec});
    // A template names no node.
    if let Some(fields) = template["spec"].as_object_mut() {
        fields.remove("nodeName");
    }
    let gated = spec.scheduling_gates.as_ref().is_some_and(|gates| !gates.is_empty());
    let is_ours = spec.scheduler_name.as_deref().is_none_or(|name| name.is_empty() || name == NAME);
    Known {
        uid: pod.uid().unwrap_or_default(),
        waits: is_ours && !gated && node.is_none() && !ended && pod.metadata.deletion_timestamp.is_none(),
        node,
        requests: template_requests(&template).unwrap_or_default(),
        selector: spec.node_selector.unwrap_or_default(),
        ended,
        told: false,
        created: pod.creation_timestamp().map(|time| time.0.to_string()).unwrap_or_default(),
    }
}
