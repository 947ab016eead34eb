//! Feeds of the core: the member's nodes, pods, groups and queues, and the hub's reservations.

use std::sync::Arc;

use fleet_agent_ground::{
    Event, Object, feed_events,
    lean::{LeanNode, LeanPod},
    resource,
    volcano::{commands, pod_groups, queues},
};
use fleet_api::{Reservation, names};
use fleet_informer::Selection;
use kube::Api;
use tokio::sync::{mpsc, watch};

use crate::groups::hyper_nodes;
use crate::{
    changes::{
        BUDGETS, CoreChange, HYPER_NODES, NUMATOPOLOGIES, POD_GROUPS, PRIORITY_CLASSES, QUEUES,
        RESOURCE_QUOTAS, send,
    },
    context::Context,
    scheduler,
};

/// Feeds the member's nodes, pods and copies of reservations to the core.
pub(crate) async fn feed_member(context: Arc<Context>, changes: mpsc::Sender<CoreChange>) {
    let (sender, shutdown) = (changes.clone(), context.shutdown.clone());
    let nodes = Api::<LeanNode>::all(context.member.client.clone());
    let nodes = context.member.feed(nodes, Selection::default(), "core/nodes");
    let nodes =
        feed_events(nodes, shutdown.clone(), move |told| send(sender.clone(), CoreChange::Node(told)));
    let sender = changes.clone();
    let pods = Api::<LeanPod>::all(context.member.client.clone());
    let pods = context.member.feed(pods, Selection::default(), "core/pods");
    let pods = feed_events(pods, shutdown.clone(), move |told| send(sender.clone(), CoreChange::Pod(told)));
    let sender = changes.clone();
    let copies = Api::<Reservation>::namespaced(context.member.client.clone(), names::MEMBER_NAMESPACE);
    let copies = context.member.feed(copies, Selection::default(), "core/copies");
    let copies = feed_events(copies, shutdown, move |told| send(sender.clone(), CoreChange::Copy(told)));
    let copies = async {
        // A member without the definition has no holds.
        if context.settings.reservation {
            copies.await;
        }
    };
    let groups = feed_groups(context.clone(), changes.clone());
    let conf = async {
        if let Some(file) = context.settings.scheduler_conf.clone() {
            let (sources, source) = watch::channel(None);
            let loads = scheduler::loads::run(context.clone(), source, changes.clone());
            let conf = scheduler::conf::watch(file, changes, sources);
            context.shutdown.run_until_cancelled(async { tokio::join!(conf, loads) }).await;
        }
    };
    tokio::join!(nodes, pods, copies, groups, conf);
}

/// Feeds the hub's reservations for this member to the core.
pub(crate) async fn feed_hub(context: Arc<Context>, changes: mpsc::Sender<CoreChange>) {
    let asked = Api::<Reservation>::namespaced(context.hub.client.clone(), &context.cluster_namespace());
    let asked = context.hub.feed(asked, Selection::default(), "core/reservations");
    let send = move |told| send(changes.clone(), CoreChange::Reservation(told));
    feed_events(asked, context.shutdown.clone(), send).await;
}

/// Converts an object's change to a change of the core.
type Wrap = fn(Event<Object>) -> CoreChange;

/// Feeds PodGroups, Queues, PriorityClasses and other inputs of the scheduler to the core, if this agent
/// schedules.
async fn feed_groups(context: Arc<Context>, changes: mpsc::Sender<CoreChange>) {
    if context.settings.scheduler_names.is_empty() {
        return;
    }
    let classes = resource("scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses");
    let quotas = resource("", "v1", "ResourceQuota", "resourcequotas");
    let numa = resource("nodeinfo.volcano.sh", "v1alpha1", "Numatopology", "numatopologies");
    let budgets = resource("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets");
    let kinds: [(&str, kube::discovery::ApiResource, Wrap); 8] = [
        (BUDGETS, budgets, CoreChange::Budget),
        ("commands", commands(), CoreChange::Command),
        (HYPER_NODES, hyper_nodes(), CoreChange::HyperNode),
        (POD_GROUPS, pod_groups(), CoreChange::PodGroup),
        (QUEUES, queues(), CoreChange::Queue),
        (PRIORITY_CLASSES, classes, CoreChange::PriorityClass),
        (RESOURCE_QUOTAS, quotas, CoreChange::ResourceQuota),
        (NUMATOPOLOGIES, numa, CoreChange::Numatopology),
    ];
    let feeds = kinds.map(|(name, kind, wrap)| {
        let changes = changes.clone();
        let api = Api::<Object>::all_with(context.member.client.clone(), &kind);
        let feed = context.member.feed(api, Selection::default(), &format!("core/{name}"));
        feed_events(feed, context.shutdown.clone(), move |told| send(changes.clone(), wrap(told)))
    });
    futures::future::join_all(feeds).await;
}
