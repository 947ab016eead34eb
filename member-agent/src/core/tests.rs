use serde_json::json;

use super::*;
use crate::{fixture::Fixture, state::testing};

fn core(context: Arc<Context>) -> Core {
    let (_, changes) = changes();
    let (_, requests) = mpsc::channel(1);
    let (reports, _) = watch::channel(None);
    Core::new(context, Channels { changes, requests, reports, notices: Notices::new().0 })
}

fn object(value: serde_json::Value) -> Object {
    serde_json::from_value(value).expect("an object")
}

#[tokio::test]
async fn nothing_is_decided_on_a_part_of_what_stands() {
    let fixture = Fixture::new(&[]).await;
    let mut core = core(fixture.context.clone());
    let pod = |i: usize| {
        let mut pod = testing::pod(&format!("pod{i}: gpu=1"));
        let group = ("scheduling.k8s.io/group-name".to_owned(), format!("pg{i}"));
        pod.metadata.annotations.get_or_insert_default().extend([group]);
        pod
    };
    let group = |i: usize| {
        object(
            json!({"metadata": {"name": format!("pg{i}"), "namespace": "default", "uid": format!("pg{i}")},
            "spec": {"queue": "q", "minMember": 1, "minResources": {"nvidia.com/gpu": "1"}},
            "status": {"phase": "Pending"}}),
        )
    };
    let queue = object(json!({"metadata": {"name": "q"}, "spec": {"capability": {"nvidia.com/gpu": "5"}}}));
    // The order in which an agent that was killed may hear its listings.
    let listings = [
        CoreChange::Node(Change::All(vec![testing::node("n1 100")])),
        CoreChange::Pod(Change::All((0..20).map(pod).collect())),
        CoreChange::PodGroup(Change::All((0..20).map(group).collect())),
        CoreChange::PriorityClass(Change::All(Vec::new())),
        CoreChange::HyperNode(Change::All(Vec::new())),
        CoreChange::ResourceQuota(Change::All(Vec::new())),
        CoreChange::Budget(Change::All(Vec::new())),
        CoreChange::Numatopology(Change::All(Vec::new())),
        CoreChange::Queue(Change::All(vec![queue])),
    ];
    for listing in listings {
        assert!(core.reported_at.is_none() && core.next_wake().is_none(), "before {listing:?}");
        core.apply(listing);
        core.decide();
    }
    assert!(core.reported_at.is_some());
    let inside = core.state.pod_groups.values().map(|known| core.state.cluster.group(known.group).phase);
    assert_eq!(inside.filter(|phase| *phase != fleet_scheduler::Phase::Pending).count(), 5);
}
