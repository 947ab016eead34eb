use super::*;
use crate::field::Causes;
use serde_json::{Value, json};

fn found(list: Value) -> Vec<String> {
    let causes = Causes::default();
    let value = json!({"status": {"conditions": list}});
    check(&At::root(&value, &causes).at("status.conditions"));
    causes.into_inner().into_iter().map(|c| format!("{}: {}", c.field, c.message)).collect()
}

#[test]
fn what_a_condition_has_to_say() {
    let fine = json!({"type": "Ready", "status": "True", "reason": "ReasonA:b", "lastTransitionTime": "2026-01-01T00:00:00Z"});
    assert!(found(json!([fine])).is_empty());
    let at = "status.conditions[0]";
    let empty = found(json!([{"type": "Ready"}]));
    let wants = [
        "status: Unsupported value: \"\": supported values: \"False\", \"True\", \"Unknown\"",
        "lastTransitionTime: Required value",
        "reason: Required value",
    ];
    assert_eq!(empty, wants.map(|want| format!("{at}.{want}")));
    let mut bad = fine.clone();
    bad["reason"] = json!("1");
    bad["observedGeneration"] = json!(-1);
    let bad = found(json!([bad]));
    let generation = "observedGeneration: Invalid value: -1: must be greater than or equal to zero";
    assert_eq!(bad[0], format!("{at}.{generation}"));
    assert!(bad[1].starts_with(&format!("{at}.reason: Invalid value: \"1\": a condition reason must start")));
    assert_eq!(found(json!([fine, fine])), ["status.conditions[1].type: Duplicate value: \"Ready\""]);
    for (text, want) in [("a", true), ("a_", true), ("a,", false), ("_a", false), ("a b", false)] {
        assert_eq!(is_reason(text), want, "{text}");
    }
}
