//! Pods that outlive their job or its run, and who needs what they use.

use super::*;

/// The job `first` has ended, and a pod of it lives; `second` waits for its cells. Returns the key of its Work.
fn ended() -> (Stage, Key, Value) {
    let mut stage = Stage::new();
    stage.submit("first");
    let asked = only(stage.pass());
    let (place, mut work) = stage.start("first", &asked);
    let key_of_work = (place.0, work["metadata"]["name"].as_str().expect("a name").to_string());
    let mut bound = stage.world.bindings[&key("first")].object.clone();
    bound.status = Some(read(json!({"result": {"outcome": "Succeeded", "cluster": "m", "epoch": 1,
        "recordedAt": "1970-01-01T00:00:00Z"}})));
    stage.observe(Observation::Binding(Change::Apply(bound)));
    work["status"] = json!({"livePods": 1});
    stage.observe(Observation::Work(Change::Apply(read(work.clone()))));
    stage.look("first");
    (stage, key_of_work, work)
}

fn steps(stage: &Stage) -> Vec<Write> {
    let options = Options::default();
    dispatch::plan(&stage.world, &stage.intents, &key("first"), None, &options, stage.now).writes
}

fn asks_for_their_end(write: &Write) -> bool {
    matches!(&write.verb, Verb::Merge(patch) if patch["metadata"]["annotations"][names::END_PODS_ANNOTATION].is_string())
}

#[test]
fn pods_of_an_ended_job_are_told_to_end_when_another_job_needs_their_cells() {
    let (mut stage, work_key, mut work) = ended();
    stage.pass();
    assert!(!steps(&stage).iter().any(asks_for_their_end), "nobody needs them");
    stage.submit("second");
    stage.pass();
    let asked = steps(&stage).into_iter().find(asks_for_their_end).expect("the agent is asked");
    assert_eq!((&asked.target, &asked.namespace, &asked.name), (&Target::Work, &work_key.0, &work_key.1));
    let Verb::Merge(patch) = &asked.verb else { panic!("{asked:?}") };
    let taker = format!("default/{}", key("second").1);
    assert_eq!(patch["metadata"]["annotations"][names::END_PODS_ANNOTATION], taker.as_str());
    assert_eq!(asked.then.len(), 1, "the owner is told");
    // A restarted controller asks again.
    stage.intents = Intents::default();
    stage.restart();
    stage.pass();
    assert!(steps(&stage).iter().any(asks_for_their_end));
    // Once it is written, nothing is left to do but to wait.
    work["metadata"]["annotations"] = json!({names::END_PODS_ANNOTATION: taker});
    stage.observe(Observation::Work(Change::Apply(read(work))));
    stage.look("first");
    stage.pass();
    assert!(stage.intents.pod_ends.is_empty() && !steps(&stage).iter().any(asks_for_their_end));
}

#[test]
fn a_run_that_its_policy_keeps_goes_when_another_job_needs_its_cells() {
    let mut stage = Stage::new();
    stage.submit("first");
    let asked = only(stage.pass());
    let (place, work) = stage.start("first", &asked);
    let mut kept = stage.world.bindings[&key("first")].object.clone();
    kept.spec.clusters = Vec::new();
    kept.status =
        Some(read(json!({"attempts": [{"cluster": "m", "epoch": 1, "reason": "ApplicationFailure",
        "message": "failed", "endedAt": "1970-01-01T00:00:00Z", "purge": "Never"}]})));
    stage.observe(Observation::Binding(Change::Apply(kept)));
    stage.look("first");
    let deletes = |stage: &Stage| {
        let of_work =
            |write: &Write| write.target == Target::Work && matches!(write.verb, Verb::Delete { .. });
        steps(stage).iter().any(of_work)
    };
    assert!(!deletes(&stage), "the policy keeps it");
    stage.submit("second");
    stage.pass();
    let work_key = (place.0, work["metadata"]["name"].as_str().expect("a name").to_string());
    assert!(stage.intents.pod_ends.contains_key(&work_key), "{:?}", stage.intents.pod_ends);
    assert!(deletes(&stage));
}
