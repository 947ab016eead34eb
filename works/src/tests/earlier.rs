//! Creates that an earlier process of the agent may have sent.

use fleet_mirror::Change;

use super::{
    late::{A_WHILE, SENT, arrives_and_is_removed, is_there, reach, start_with_a_late_create},
    *,
};
use crate::{keys::ObjectId, late::LateCreates, state::State};

const MOST: Duration = Duration::from_secs(60);

/// A Work under a leader's term whose job is named like it.
fn of_term(name: &str, term: Option<i64>) -> Work {
    let mut manifest = job();
    manifest["metadata"]["name"] = name.into();
    let mut work = work(name, 1, vec![manifest]);
    (work.metadata.uid, work.metadata.resource_version) = (Some(name.to_owned()), Some("1".to_owned()));
    work.spec.term = term;
    work
}

fn applied(mut work: Work, status: &str) -> Work {
    let condition = json!({"type": "Applied", "status": status, "reason": "Any", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z"});
    work.status = serde_json::from_value(json!({"conditions": [condition]})).expect("a status");
    work
}

fn is_doubted(state: &State, name: &str) -> bool {
    state.late.left(&ObjectId::of_manifest(&of_term(name, None).spec.workload.manifests[0])).is_some()
}

#[tokio::test]
async fn a_restarted_agent_doubts_creates_that_its_predecessor_may_have_sent() {
    let mut state = State::new(LateCreates::new(MOST));
    state.earlier_term = 3;
    let found = vec![
        of_term("older", Some(2)),
        of_term("same", Some(3)),
        of_term("newer", Some(4)),
        of_term("none", None),
        applied(of_term("stands", Some(3)), "True"),
        applied(of_term("failed", Some(3)), "False"),
    ];
    state.take_works(Change::reset(found));
    // A term is stored before anything is done for it, so nothing was sent for a newer one.
    let doubted = ["older", "same", "newer", "none", "stands", "failed"].map(|name| is_doubted(&state, name));
    assert_eq!(doubted, [true, true, false, false, false, true]);
}

#[tokio::test]
async fn what_comes_after_the_first_list_is_not_of_a_predecessor() {
    let mut state = State::new(LateCreates::new(MOST));
    state.earlier_term = 3;
    state.take_works(Change::reset(Vec::new()));
    state.take_works(Change::Apply(of_term("watched", Some(3))));
    state.take_works(Change::reset(vec![of_term("watched", Some(3)), of_term("listed", Some(3))]));
    assert_eq!(["watched", "listed"].map(|name| is_doubted(&state, name)), [false, false]);
}

#[tokio::test]
async fn after_a_restart_a_run_is_not_over_before_the_create_of_the_predecessor_can_have_arrived() {
    let (mut fixture, stage) = start_with_a_late_create(None).await;
    // Here the agent stores the term.
    let name = fleet_api::names::MEMBER_NAMESPACE;
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    fixture.create(&fixture.member, "", "v1", "namespaces", namespace).await;
    let mut of_leader = work("w", 1, vec![job()]);
    of_leader.spec.term = Some(1);
    submit(&fixture, of_leader).await;
    reach(&stage, SENT).await;
    fixture.restart();
    works(&fixture).delete("w", &DeleteParams::default()).await.unwrap();
    run(&fixture, Permits::default());
    tokio::time::sleep(A_WHILE).await;
    assert!(is_there(&fixture, "w").await, "its job may still arrive");
    arrives_and_is_removed(&fixture, &stage).await;
    wait_work(&fixture, "w", "gone", |work| work.is_none()).await;
}
