use super::*;

#[test]
fn a_policy_that_suspends_dispatching_for_a_while_lets_a_bound_run_go_on() {
    let settled = |known: Value, asked: Value| {
        let mut desired = json!({"suspension": asked});
        settle_queueing(&json!({"suspension": known}), &mut desired);
        desired.get("suspension").map(Value::to_string).unwrap_or_default()
    };
    let left = json!({"scheduling": false});
    assert_eq!(settled(json!({"scheduling": false, "dispatching": true}), json!({})), left.to_string());
    assert_eq!(
        settled(json!({"dispatching": true}), json!({"scheduling": true})),
        "",
        "it waits in no queue"
    );
    assert_eq!(settled(left.clone(), Value::Null), left.to_string());
    assert!(settled(left, json!({"dispatching": true})).contains("\"dispatching\":true"));
}
