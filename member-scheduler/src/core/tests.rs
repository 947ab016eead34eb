use fleet_agent_ground::{Event, Object};
use serde_json::json;

use fleet_member_state::testing;

use super::*;
use fleet_agent_fixture::Fixture;

fn core(context: Arc<Context>) -> Core {
    let (_, changes) = crate::changes::channel();
    let (_, requests) = mpsc::channel(1);
    let (_, questions) = mpsc::channel(1);
    let (reports, _) = watch::channel(None);
    Core::new(context, Channels { changes, requests, questions, reports, notices: Notices::new().0 })
}

fn object(value: serde_json::Value) -> Object {
    serde_json::from_value(value).expect("an object")
}

#[tokio::test]
async fn nothing_is_decided_on_a_part_of_what_stands() {
    let fixture = Fixture::new(&[]).await;
    let mut core = core(crate::fixture::context(&fixture));
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
    let listings: Vec<Vec<CoreChange>> = vec![
        vec![CoreChange::Node(Event::Apply(testing::node("n1 100"))), CoreChange::Node(Event::Listed)],
        (0..20)
            .map(|i| CoreChange::Pod(Event::Apply(pod(i))))
            .chain([CoreChange::Pod(Event::Listed)])
            .collect(),
        (0..20)
            .map(|i| CoreChange::PodGroup(Event::Apply(group(i))))
            .chain([CoreChange::PodGroup(Event::Listed)])
            .collect(),
        vec![CoreChange::PriorityClass(Event::Listed)],
        vec![CoreChange::HyperNode(Event::Listed)],
        vec![CoreChange::ResourceQuota(Event::Listed)],
        vec![CoreChange::Budget(Event::Listed)],
        vec![CoreChange::Numatopology(Event::Listed)],
        vec![CoreChange::Queue(Event::Apply(queue)), CoreChange::Queue(Event::Listed)],
    ];
    for told in listings.into_iter().flatten() {
        assert!(core.reported_at.is_none() && core.next_wake().is_none(), "before {told:?}");
        core.apply(told);
        core.decide();
    }
    assert!(core.reported_at.is_some());
    let inside = core.state.pod_groups.values().map(|known| core.state.cluster.group(known.group).phase);
    assert_eq!(inside.filter(|phase| *phase != fleet_scheduler::Phase::Pending).count(), 5);
}
