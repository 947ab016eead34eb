//! The agent over embedded API servers: join, lease, capacity, reservations, gangs.

use std::{collections::BTreeMap, time::Duration};

use crate::bed::{Bed, PATIENCE, create, options, server, until};
use fleet_api::{Cluster, crds::Side, names, reservation::ReservationPhase};
use k8s_openapi::api::{
    coordination::v1::Lease,
    core::v1::{ConfigMap, Event, Pod, Secret},
};
use kube::{
    Api,
    api::{DeleteParams, ListParams, PostParams},
};
use member_agent::Options;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

fn with_status(check: impl Fn(&fleet_api::ClusterStatus) -> bool) -> impl Fn(Option<&Cluster>) -> bool {
    move |cluster| cluster.and_then(|cluster| cluster.status.as_ref()).is_some_and(&check)
}

#[tokio::test]
async fn it_joins_reports_and_keeps_its_lease() {
    let bed = Bed::new(&["n1 8", "n2 8"]).await;
    let agent = bed.start(Options {
        region: Some("r1".into()),
        api_endpoint: Some("https://east".into()),
        ..options()
    });
    let clusters: Api<Cluster> = Api::all(bed.hub.clone());
    let reported = with_status(|status| status.node_shapes.iter().map(|shape| shape.count).sum::<i64>() == 2);
    let cluster = until(&clusters, "east", "reported", reported).await.unwrap();
    assert_eq!(cluster.spec.sync_mode.as_deref(), Some("Pull"));
    assert_eq!(cluster.spec.region.as_deref(), Some("r1"));
    assert_eq!((cluster.spec.api_endpoint, cluster.spec.secret_ref), (None, None), "not an agent's to say");
    let secrets: Api<Secret> = Api::all(bed.hub.clone());
    assert_eq!(secrets.list(&ListParams::default()).await.unwrap().items.len(), 0);
    let status = cluster.status.unwrap();
    let proposed = status.proposed.unwrap();
    assert_eq!(proposed.api_endpoint.as_deref(), Some("https://east"));
    assert_eq!(proposed.region.as_deref(), Some("r1"));
    assert!(status.kubernetes_version.is_some_and(|version| version.starts_with('v')));
    assert!(
        status.api_enablements.contains(&"kubeflow.org/v1/PyTorchJob".to_owned()),
        "{:?}",
        status.api_enablements
    );
    assert!(status.api_enablements.contains(&"v1/ConfigMap".to_owned()));
    assert_eq!(status.reservation, Some(true));
    assert_eq!(status.node_summary.unwrap().ready_num, 2);
    let sums = status.resource_summary.unwrap();
    assert_eq!((&*sums.allocatable["nvidia.com/gpu"], &*sums.allocatable["pods"]), ("16", "220"));
    assert!(status.conditions.is_empty(), "the hub writes the conditions");

    // A pod that waits, then runs, is in the next reports, whose numbers rise.
    let first = status.report_sequence.unwrap();
    bed.pod("big", 1, "pod", 0, 99, None).await;
    bed.pod("small", 1, "pod", 0, 3, None).await;
    let counted = with_status(|status| {
        status.resource_summary.as_ref().is_some_and(|sums| {
            sums.allocated.get("nvidia.com/gpu").is_some_and(|gpus| gpus == "3")
                && sums.allocating.get("nvidia.com/gpu").is_some_and(|gpus| gpus == "99")
        })
    });
    let cluster = until(&clusters, "east", "counted", counted).await.unwrap();
    assert!(cluster.status.unwrap().report_sequence.unwrap() > first);

    let leases: Api<Lease> = Api::namespaced(bed.hub.clone(), "fleet-east");
    let renewed = |lease: &Lease| lease.spec.as_ref().and_then(|spec| spec.renew_time.clone());
    let before = renewed(&leases.get(names::LEASE_NAME).await.unwrap());
    until(&leases, names::LEASE_NAME, "renewed", |lease| lease.is_some_and(|lease| renewed(lease) > before))
        .await;
    agent.stop().await;
}

#[tokio::test]
async fn a_restarted_agent_takes_its_lease_over_and_a_second_one_is_refused() {
    let bed = Bed::new(&[]).await;
    let agent = bed.start(options());
    let leases: Api<Lease> = Api::namespaced(bed.hub.clone(), "fleet-east");
    let holder = |lease: Option<&Lease>| lease?.spec.as_ref()?.holder_identity.clone();
    let held = until(&leases, names::LEASE_NAME, "held", |lease| holder(lease).is_some()).await;
    let first = holder(held.as_ref()).unwrap();
    agent.stop().await;

    let agent = bed.start(options());
    let before = held.unwrap().metadata.resource_version;
    let again = until(&leases, names::LEASE_NAME, "renewed", |lease| {
        lease.is_some_and(|lease| lease.metadata.resource_version != before)
    });
    assert_eq!(holder(again.await.as_ref()), Some(first.clone()), "the same installation keeps its name");
    let maps: Api<ConfigMap> = Api::namespaced(bed.member.clone(), names::MEMBER_NAMESPACE);
    assert!(maps.get("fleet-agent").await.is_ok());

    // Another member under the same name.
    let (_server, other) = server(Side::Member).await;
    let second = member_agent::run(bed.hub.clone(), other, options(), CancellationToken::new());
    let error = tokio::time::timeout(PATIENCE, second).await.unwrap().unwrap_err().to_string();
    assert!(error.starts_with("cluster \"east\": its lease fleet-east/member-agent is held by"), "{error}");
    assert!(error.contains(&first), "{error}");
    agent.stop().await;
}

#[tokio::test]
async fn a_lease_whose_holder_is_dead_is_taken_after_it_lapses() {
    let bed = Bed::new(&[]).await;
    let leases: Api<Lease> = Api::namespaced(bed.hub.clone(), "fleet-east");
    create(&leases, json!({
        "metadata": {"name": names::LEASE_NAME},
        "spec": {"holderIdentity": "east-dead", "leaseDurationSeconds": 1, "renewTime": "2020-01-01T00:00:00.000000Z"},
    }))
    .await;
    let agent = bed.start(options());
    until(&leases, names::LEASE_NAME, "taken", |lease| {
        let holder = lease.and_then(|lease| lease.spec.as_ref()?.holder_identity.as_deref());
        holder.is_some_and(|holder| holder != "east-dead")
    })
    .await;
    agent.stop().await;
}

#[tokio::test]
async fn a_reservation_is_held_in_the_member_and_its_gang_takes_the_places() {
    let bed = Bed::new(&["n1 8", "n2 8"]).await;
    let agent = bed.start(options());
    bed.ask("job", &[("master", 1, 2), ("worker", 2, 6)], 60).await;
    let held = bed.phase("job", ReservationPhase::Reserved).await.status.unwrap();
    assert_eq!(held.nodes.values().map(Vec::len).sum::<usize>(), 3);
    assert!(held.expires_at.is_some() && held.report_sequence.is_some());
    let copy = bed.copies().get("job").await.unwrap();
    assert_eq!(copy.spec.binding.uid, "uid-job");

    // The report of that number counts it, and says so without a pod in sight.
    let clusters: Api<Cluster> = Api::all(bed.hub.clone());
    let counted = with_status(|status| status.report_sequence >= held.report_sequence);
    let cluster = until(&clusters, "east", "counted", counted).await.unwrap();
    assert_eq!(cluster.status.unwrap().resource_summary.unwrap().allocated["nvidia.com/gpu"], "14");

    bed.ask("late", &[("worker", 2, 4)], 60).await;
    let refused = bed.phase("late", ReservationPhase::Refused).await.status.unwrap();
    let sentence = "0 of 2 pods fit; 0/2 nodes are available: 2 Insufficient nvidia.com/gpu";
    assert_eq!(refused.message.as_deref(), Some(sentence));
    assert_eq!(refused.refusals[0].component, "worker");

    // A pod without a hold does not get between.
    bed.pod("other", 1, "pod", 0, 6, None).await;
    bed.pod("job", 3, "master", 0, 2, Some("job")).await;
    bed.pod("job", 3, "worker", 0, 6, Some("job")).await;
    bed.pod("job", 3, "worker", 1, 6, Some("job")).await;
    assert_eq!(bed.node_of("job-master-0").await, held.nodes["master"][0]);
    assert_eq!(bed.node_of("job-worker-0").await, held.nodes["worker"][0]);
    assert_eq!(bed.node_of("job-worker-1").await, held.nodes["worker"][1]);

    // The hub's object goes: so do the copy and the places, and the pods keep theirs.
    bed.asked().delete("job", &DeleteParams::default()).await.unwrap();
    until(&bed.copies(), "job", "gone", |copy| copy.is_none()).await;
    for pod in ["job-master-0", "job-worker-0", "job-worker-1"] {
        bed.pods().delete(pod, &DeleteParams::default().grace_period(0)).await.unwrap();
    }
    bed.node_of("other-pod-0").await;
    agent.stop().await;
}

#[tokio::test]
async fn a_hold_nobody_comes_for_lapses() {
    let bed = Bed::new(&["n1 8"]).await;
    let agent = bed.start(options());
    bed.ask("job", &[("worker", 1, 8)], 1).await;
    bed.phase("job", ReservationPhase::Expired).await;
    assert!(bed.copies().get_opt("job").await.unwrap().is_none(), "the copy is deleted first");
    bed.ask("next", &[("worker", 1, 8)], 60).await;
    bed.phase("next", ReservationPhase::Reserved).await;
    agent.stop().await;
}

#[tokio::test]
async fn holds_survive_a_restart_and_go_with_their_reservation() {
    let bed = Bed::new(&["n1 8"]).await;
    let agent = bed.start(options());
    bed.ask("kept", &[("worker", 1, 4)], 60).await;
    bed.ask("dropped", &[("worker", 1, 4)], 60).await;
    let kept = bed.phase("kept", ReservationPhase::Reserved).await;
    bed.phase("dropped", ReservationPhase::Reserved).await;
    agent.stop().await;
    bed.asked().delete("dropped", &DeleteParams::default()).await.unwrap();

    let agent = bed.start(options());
    until(&bed.copies(), "dropped", "gone", |copy| copy.is_none()).await;
    bed.ask("more", &[("worker", 2, 4)], 60).await;
    let refused = bed.phase("more", ReservationPhase::Refused).await.status.unwrap();
    assert_eq!(refused.refusals[0].fit, 1, "only what was dropped is free");
    assert_eq!(bed.asked().get("kept").await.unwrap().status, kept.status);
    agent.stop().await;
}

#[tokio::test]
async fn a_gang_that_does_not_fit_waits_whole_and_says_why() {
    let bed = Bed::new(&["n1 8"]).await;
    let agent = bed.start(options());
    bed.pod("gang", 2, "worker", 0, 6, None).await;
    let waiting = |sentence: &'static str| {
        move |pod: Option<&Pod>| {
            let status = pod.and_then(|pod| pod.status.as_ref());
            let conditions = status.and_then(|status| status.conditions.as_ref());
            conditions.into_iter().flatten().any(|condition| {
                condition.type_ == "PodScheduled"
                    && condition.status == "False"
                    && condition.reason.as_deref() == Some("Unschedulable")
                    && condition.message.as_deref() == Some(sentence)
            })
        }
    };
    until(&bed.pods(), "gang-worker-0", "told", waiting("waiting for the gang: 1 of 2 pods exist")).await;
    bed.pod("gang", 2, "worker", 1, 6, None).await;
    let sentence = "0/1 nodes are unavailable: 1 Insufficient nvidia.com/gpu. 1 of 2 pods fits; \
                    nvidia.com/gpu: requested 6, available 2";
    until(&bed.pods(), "gang-worker-0", "told", waiting(sentence)).await;
    until(&bed.pods(), "gang-worker-1", "told", waiting(sentence)).await;
    let events: Api<Event> = Api::namespaced(bed.member.clone(), "default");
    let told = |event: &Event| event.reason.as_deref() == Some("FailedScheduling");
    assert!(events.list(&ListParams::default()).await.unwrap().items.iter().any(told));
    // Room comes: the gang is bound, whole.
    bed.add_node("n2 8").await;
    let nodes = [bed.node_of("gang-worker-0").await, bed.node_of("gang-worker-1").await];
    assert_ne!(nodes[0], nodes[1]);
    agent.stop().await;
}

#[tokio::test]
async fn a_gang_left_half_bound_by_a_crash_gives_its_places_back() {
    let bed = Bed::new(&["n1 8"]).await;
    bed.pod("gang", 2, "worker", 0, 6, None).await;
    bed.pod("gang", 2, "worker", 1, 6, None).await;
    let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "gang-worker-0"},
                         "target": {"apiVersion": "v1", "kind": "Node", "name": "n1"}});
    let _: Value = bed
        .pods()
        .create_subresource("binding", "gang-worker-0", &PostParams::default(), &binding)
        .await
        .unwrap();
    let agent = bed.start(options());
    until(&bed.pods(), "gang-worker-0", "taken back", |pod| {
        pod.is_none_or(|pod| pod.metadata.deletion_timestamp.is_some())
    })
    .await;
    agent.stop().await;
}

#[tokio::test]
async fn an_answer_that_loses_a_race_is_given_again() {
    let bed = Bed::new(&["n1 8"]).await;
    bed.link.lose_race("/reservations/job/status");
    let agent = bed.start(options());
    bed.ask("job", &[("worker", 2, 1)], 60).await;
    bed.phase("job", ReservationPhase::Reserved).await;
    assert!(bed.link.race_is_lost());
    agent.stop().await;
}

#[tokio::test]
async fn a_gang_one_of_whose_bindings_is_refused_gives_all_its_places_back() {
    let bed = Bed::new(&["n1 8"]).await;
    bed.forbid(Some("/gang-worker-1/binding"));
    let agent = bed.start(options());
    for index in 0..3 {
        bed.pod("gang", 3, "worker", index, 2, None).await;
    }
    for index in [0, 2] {
        until(&bed.pods(), &format!("gang-worker-{index}"), "taken back", |pod| {
            pod.is_none_or(|pod| pod.metadata.deletion_timestamp.is_some())
        })
        .await;
    }
    assert!(bed.pods().get("gang-worker-1").await.unwrap().spec.unwrap().node_name.is_none());
    // A binding that is refused once only is made again, and nobody leaves.
    let bed = Bed::new(&["n1 8"]).await;
    bed.forbid(Some("/gang-worker-1/binding"));
    let patient = Options { gang_grace: Duration::from_secs(60), ..options() };
    let second = bed.start(patient);
    for index in 0..3 {
        bed.pod("gang", 3, "worker", index, 2, None).await;
    }
    assert_eq!(bed.node_of("gang-worker-0").await, "n1");
    bed.forbid(None);
    assert_eq!(bed.node_of("gang-worker-1").await, "n1");
    agent.stop().await;
    second.stop().await;
}

#[tokio::test]
async fn many_gangs_are_bound_with_an_event_each() {
    let bed = Bed::new(&["n1 100", "n2 100", "n3 100"]).await;
    let agent = bed.start(options());
    for gang in 0..50 {
        let name = format!("g{gang}");
        for index in 0..3 {
            bed.pod(&name, 3, "worker", index, 2, None).await;
        }
    }
    let mut used: BTreeMap<String, u32> = BTreeMap::new();
    for gang in 0..50 {
        for index in 0..3 {
            *used.entry(bed.node_of(&format!("g{gang}-worker-{index}")).await).or_default() += 2;
        }
    }
    assert!(used.values().all(|gpus| *gpus <= 100) && used.values().sum::<u32>() == 300, "{used:?}");
    let events: Api<Event> = Api::namespaced(bed.member.clone(), "default");
    let list = events.list(&ListParams::default()).await.unwrap();
    let scheduled = list.items.iter().find(|event| event.reason.as_deref() == Some("Scheduled")).unwrap();
    let pod = scheduled.involved_object.name.as_deref().unwrap();
    let message = scheduled.message.as_deref().unwrap();
    assert!(message.starts_with(&format!("Successfully assigned default/{pod} to n")), "{message}");
    agent.stop().await;
}

#[tokio::test]
async fn of_two_decisions_at_once_with_room_for_one_the_second_is_refused() {
    let bed = Bed::new(&["n1 8", "n2 8"]).await;
    let agent = bed.start(options());
    let gang = [("master", 1, 1), ("worker", 9, 1)];
    tokio::join!(bed.ask("a", &gang, 60), bed.ask("b", &gang, 60));
    let asked = bed.asked();
    let answered = |found: Option<&fleet_api::Reservation>| {
        found.and_then(|found| found.status.as_ref()).is_some_and(|status| status.phase.is_some())
    };
    let mut phases = Vec::new();
    for name in ["a", "b"] {
        let status = until(&asked, name, "answered", answered).await.unwrap().status.unwrap();
        phases.push(format!("{:?} {}", status.phase.unwrap(), status.message.unwrap_or_default()));
    }
    phases.sort();
    assert_eq!(phases[0].split(' ').next(), Some("Refused"), "{phases:?}");
    assert_eq!(phases[1], "Reserved 10 places held");
    assert_eq!(bed.copies().list(&ListParams::default()).await.unwrap().items.len(), 1);
    agent.stop().await;
}
