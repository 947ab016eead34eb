//! Running jobs that are changed: the change waits for the next run, or ends this one, as the policy says.

use super::*;

/// What is written of a running job: another image, more pods, or nothing changed.
fn written(edits: Option<&str>, change: fn(&mut Value)) -> String {
    let mut stage = Stage::new();
    stage.submit("first");
    let asked = only(stage.pass());
    stage.start("first", &asked);
    let mut bound = stage.world.bindings[&key("first")].object.clone();
    bound.spec.running_edits = edits.map(|edits| read(json!(edits)));
    stage.observe(Observation::Binding(Change::Apply(bound)));
    let mut changed = job("first");
    change(&mut changed);
    let kind = kinds::known("batch/v1", "Job").expect("a kind");
    stage.observe(Observation::Object(kind, Change::Apply(read(changed))));
    stage.look("first");
    let step =
        dispatch::plan(&stage.world, &stage.intents, &key("first"), None, &Options::default(), stage.now);
    let all = step.writes.iter().chain(step.later.iter().map(|(_, write)| write));
    let of_binding = all.filter(|write| write.target == Target::Binding);
    let told: Vec<&Value> = of_binding
        .filter_map(|write| match &write.verb {
            Verb::MergeStatus(body) => Some(&body["status"]),
            _ => None,
        })
        .collect();
    let of = |field: &str| told.iter().map(|status| status[field].to_string()).collect::<String>();
    let (attempts, conditions) = (of("attempts"), of("conditions"));
    let is_pending =
        conditions.contains("EditPending") && conditions.contains("takes effect with the next run");
    assert!(!is_pending || attempts == "null", "{attempts}");
    if is_pending { "pending".to_string() } else { attempts }
}

#[test]
fn a_running_job_that_is_changed_runs_on_or_queues_again_as_its_policy_says() {
    let image = |job: &mut Value| job["spec"]["template"]["spec"]["containers"][0]["image"] = "j".into();
    let pods = |job: &mut Value| {
        job["spec"]["parallelism"] = 3.into();
        job["spec"]["completions"] = 3.into();
    };
    for change in [image as fn(&mut Value), pods] {
        assert_eq!(written(None, change), "pending");
        assert_eq!(written(Some("NextRun"), change), "pending");
        let given_up = written(Some("Requeue"), change);
        assert!(given_up.contains("\"reason\":\"Edited\""), "{given_up}");
        assert!(given_up.contains("changed while the job ran"), "{given_up}");
    }
}

/// What a run may be told while it runs ends no run.
#[test]
fn a_change_that_a_running_job_follows_ends_nothing() {
    for change in [
        (|_| ()) as fn(&mut Value),
        |job| job["spec"]["activeDeadlineSeconds"] = 600.into(),
        |job| job["metadata"]["annotations"] = json!({"who": "me"}),
    ] {
        assert_eq!(written(Some("Requeue"), change), "null");
    }
}
