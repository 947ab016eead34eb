use serde_json::json;

use super::*;
use crate::writes::Verb;

fn check(known: Value, desired: Value, planned: &[Write], expected: Pace) {
    assert_eq!(of_bound(&known, &desired, &[], planned), expected, "{desired}");
}

fn condition(kind: &str, status: &str) -> Value {
    json!({"type": kind, "status": status})
}

#[test]
fn only_what_follows_what_happens_waits() {
    let waits = json!({"conditions": [condition("Scheduled", "False"), condition("Queuing", "True")]});
    let bound = json!({"run": {"epoch": 1, "since": "t", "startedAt": null},
            "conditions": [condition("Scheduled", "True"), condition("Queuing", "False"), condition("FullyApplied", "True")]});
    check(waits.clone(), bound.clone(), &[], Pace::Between);
    let with = |field: &str, value: Value| {
        let mut status = bound.clone();
        status[field] = value;
        status
    };
    check(bound.clone(), with("aggregatedStatus", json!([{"clusterName": "east"}])), &[], Pace::Between);
    check(bound.clone(), with("unhealthySince", json!("t")), &[], Pace::Now);
    check(with("unhealthySince", json!("t")), bound.clone(), &[], Pace::Now);
    check(bound.clone(), with("result", json!({})), &[], Pace::Now);
    check(bound.clone(), with("attempts", json!([{}])), &[], Pace::Now);
    check(bound.clone(), with("run", json!({"epoch": 1, "since": "t", "lostSince": "t"})), &[], Pace::Now);
    check(waits.clone(), json!({"conditions": [condition("FullyApplied", "False")]}), &[], Pace::Now);
    check(waits.clone(), json!({"conditions": [condition("EditPending", "True")]}), &[], Pace::Now);
    let event = Write::new(Target::Event, "team", "e", Verb::Create(json!({})));
    check(waits, bound.clone(), &[event], Pace::Now);
}
