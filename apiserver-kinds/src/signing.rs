//! Conditions of requests for certificates: what a signer cannot change of a decision, and since when a condition holds.
//!
//! Inputs: the live request and the new one. Absent on purpose: whether a condition may be there (see `certificates`).

use fleet_apiserver_ground::tree;
use serde_json::Value;

fn conditions(request: &Value) -> &[Value] {
    tree::list(request, &["status", "conditions"])
}

/// Fills in the times of conditions. A condition that was there with this status keeps the time of its change.
pub fn stamp(live: &Value, new: &mut Value, now: &str) {
    let Some(Value::Array(list)) = tree::child(new, "status").get_mut("conditions") else { return };
    for condition in list.iter_mut().filter(|c| c.is_object()) {
        let text = |c: &Value, key: &str| tree::text(c, &[key]).to_string();
        let same = |old: &&Value| ["type", "status"].iter().all(|key| text(old, key) == text(condition, key));
        let since = conditions(live).iter().filter(same).map(|old| text(old, "lastTransitionTime"));
        let since = since.into_iter().find(|time| !time.is_empty());
        let map = tree::object(condition);
        tree::default_to(map, "lastUpdateTime", now);
        tree::default_to(map, "lastTransitionTime", since.unwrap_or_else(|| now.to_string()));
    }
}

/// Puts the decisions of the live request in the places of those that a signer sent, if there are as many.
pub fn keep_decisions(live: &Value, new: &mut Value) {
    for kind in ["Approved", "Denied"] {
        let of_kind = |c: &Value| tree::text(c, &["type"]) == kind;
        let before: Vec<&Value> = conditions(live).iter().filter(|c| of_kind(c)).collect();
        if before.len() != conditions(new).iter().filter(|c| of_kind(c)).count() {
            continue;
        }
        let Some(Value::Array(list)) = tree::child(new, "status").get_mut("conditions") else { return };
        for (place, old) in list.iter_mut().filter(|c| of_kind(c)).zip(before) {
            *place = old.clone();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const NOW: &str = "2026-01-02T00:00:00Z";
    const BEFORE: &str = "2026-01-01T00:00:00Z";

    fn request(conditions: Value) -> Value {
        json!({"status": {"conditions": conditions}})
    }

    #[test]
    fn times_are_filled_in() {
        let live = request(json!([{"type": "Approved", "status": "True", "lastTransitionTime": BEFORE}]));
        let mut new = request(json!([
            {"type": "Approved", "status": "True", "lastUpdateTime": null},
            {"type": "Failed", "status": "True", "lastTransitionTime": BEFORE, "lastUpdateTime": BEFORE},
            {"type": "Denied", "status": "True"}]));
        stamp(&live, &mut new, NOW);
        let times: Vec<(&str, &str)> = conditions(&new)
            .iter()
            .map(|c| (tree::text(c, &["lastUpdateTime"]), tree::text(c, &["lastTransitionTime"])))
            .collect();
        assert_eq!(times, [(NOW, BEFORE), (BEFORE, BEFORE), (NOW, NOW)]);
    }

    #[test]
    fn a_decision_is_not_the_signers() {
        let live = request(json!([{"type": "Approved", "status": "True", "reason": "a"}]));
        let mut new = request(json!([{"type": "Approved", "status": "True", "reason": "b"}]));
        keep_decisions(&live, &mut new);
        assert_eq!(new, live);
        let mut more = request(json!([]));
        keep_decisions(&live, &mut more);
        assert_eq!(more, request(json!([])));
    }
}
