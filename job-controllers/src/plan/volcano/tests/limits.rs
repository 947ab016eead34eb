//! How much one Job may ask of the controller.

use super::*;
use crate::plan::limits::BURST;

#[test]
fn a_pass_creates_a_burst_and_the_next_goes_on() {
    let spec = json!({"tasks": [task("a", 300), task("b", 300)]});
    let plan = Case::new(spec.clone(), in_phase("Pending"), &[]).admitted().plan();
    let last = &plan.create[BURST - 1]["metadata"]["name"];
    assert_eq!((plan.create.len(), last), (BURST, &json!("j-b-199")));
    let known: Vec<String> =
        (0..300).flat_map(|n| [format!("j-a-{n} Running"), format!("j-b-{n} Running")]).take(500).collect();
    let known: Vec<&str> = known.iter().map(String::as_str).collect();
    let plan = Case::new(spec, in_phase("Running"), &known).admitted().plan();
    assert_eq!((plan.create.len(), &plan.status.unwrap()["running"]), (100, &json!(500)));
}

#[test]
fn a_job_of_more_pods_than_the_limit_gets_none_and_says_so() {
    for replicas in [i64::from(i32::MAX), i64::MAX] {
        for (plugins, most) in [(json!({}), "100000 in all"), (json!({"mpi": []}), "5000 in all, since")] {
            let mut large = task("b", replicas);
            large["minAvailable"] = i64::MIN.into();
            large["partitionPolicy"] = json!({"partitionSize": i64::MAX, "minPartitions": i64::MAX});
            let spec = json!({"tasks": [task("master", 2), large], "plugins": plugins});
            let status = json!({"state": {"phase": "Pending"}, "retryCount": i64::MAX, "version": i64::MAX});
            let plan = Case::new(spec.clone(), status.clone(), &[]).admitted().plan();
            assert!(plan.create.is_empty());
            let state = &plan.status.unwrap()["state"];
            let found = replicas.saturating_add(2);
            let why = format!("field spec.tasks: found {found} pods; allowed: at most {most}");
            assert_eq!(state["reason"], "InvalidSpec");
            assert!(state["message"].as_str().unwrap().starts_with(&why), "{state}");
            let plan = Case::new(spec, status, &["j-b-0 Failed"]).command("RestartJob").plan();
            assert_eq!(plan.status.unwrap()["retryCount"], i64::MAX);
        }
    }
}
