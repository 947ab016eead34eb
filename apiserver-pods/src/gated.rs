//! What more may change of a pod that gates hold back: it may be tied to fewer nodes, not to others.
//!
//! Inputs: the spec before, and what is left of the changes of it. Absent on purpose: affinity to pods, which stays
//! as it is.

use fleet_apiserver_ground::tree;
use fleet_apiserver_schema::error::Cause;
use fleet_apiserver_schema::field::same;
use serde_json::{Map, Value, json};

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";

/// Checks the change of what nodes a pod may have, and takes it back in `now`.
pub(crate) fn check(before: &Value, now: &mut Map<String, Value>, causes: &mut Vec<Cause>) {
    let was = before.get("nodeSelector").unwrap_or(&Value::Null);
    let is = now.get("nodeSelector").cloned().unwrap_or_default();
    if !same(was, &is) {
        check_selector(was, &is, causes);
        tree::put(now, "nodeSelector", before.get("nodeSelector").cloned());
    }
    let was = tree::at(before, &["affinity", "nodeAffinity"]).cloned().unwrap_or_default();
    let is = now.get("affinity").and_then(|a| a.get("nodeAffinity")).cloned().unwrap_or_default();
    if was != is {
        check_affinity(&was, &is, causes);
        take_back(before, was, now);
    }
}

fn check_selector(was: &Value, is: &Value, causes: &mut Vec<Cause>) {
    let kept = |(key, value): (&String, &Value)| is.get(key) == Some(value);
    if !was.as_object().into_iter().flatten().all(kept) {
        let why = "only additions to spec.nodeSelector are allowed (no mutations or deletions)";
        causes.push(Cause::invalid("spec.nodeSelector", is, why));
    }
}

fn check_affinity(was: &Value, is: &Value, causes: &mut Vec<Cause>) {
    let terms = |affinity| tree::list(affinity, &[REQUIRED, "nodeSelectorTerms"]);
    let (old, new) = (terms(was), terms(is));
    let field = format!("spec.affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms");
    if !old.is_empty() && old.len() != new.len() {
        let found = if new.is_empty() { Value::Null } else { new.iter().map(shown).collect() };
        let why = "no additions/deletions to non-empty NodeSelectorTerms list are allowed";
        causes.push(Cause::invalid(field, &found, why));
        return;
    }
    for (i, (before, now)) in old.iter().zip(new).enumerate() {
        if !only_adds(before, now) {
            let why = "only additions are allowed (no mutations or deletions)";
            causes.push(Cause::invalid(format!("{field}[{i}]"), &shown(now), why));
        }
    }
}

/// Requirements may be added to a term that has some; one without any selects nothing, and stays so.
fn only_adds(before: &Value, now: &Value) -> bool {
    const PARTS: [&str; 2] = ["matchExpressions", "matchFields"];
    let part = |term, key| tree::list(term, &[key]);
    if PARTS.iter().all(|key| part(before, *key).is_empty()) {
        return PARTS.iter().all(|key| part(now, *key).is_empty());
    }
    PARTS.iter().all(|key| part(now, *key).starts_with(part(before, *key)))
}

/// A term as messages show it: with the fields it does not have, and in capitals.
fn shown(term: &Value) -> Value {
    let requirement = |r: &Value| {
        json!({"Key": tree::text(r, &["key"]), "Operator": tree::text(r, &["operator"]),
            "Values": r.get("values").cloned().unwrap_or_default()})
    };
    let part = |key: &str| match tree::list(term, &[key]) {
        [] => Value::Null,
        list => list.iter().map(requirement).collect(),
    };
    json!({"MatchExpressions": part("matchExpressions"), "MatchFields": part("matchFields")})
}

/// Puts the former affinity to nodes back, so that what else changed of the affinity is found.
fn take_back(before: &Value, was: Value, now: &mut Map<String, Value>) {
    let none_before = before.get("affinity").is_none_or(Value::is_null);
    let alone = now.get("affinity").and_then(Value::as_object).is_some_and(|affinity| {
        ["podAffinity", "podAntiAffinity"].iter().all(|key| affinity.get(*key).is_none_or(Value::is_null))
    });
    if none_before && (alone || !now.contains_key("affinity")) {
        now.remove("affinity");
        return;
    }
    let affinity = tree::object(now.entry("affinity").or_insert_with(|| json!({})));
    tree::put(affinity, "nodeAffinity", Some(was).filter(|was| !was.is_null()));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_of(before: &Value, now: &Value) -> (Vec<Cause>, Value) {
        let mut causes = Vec::new();
        let mut rest = now.as_object().cloned().unwrap_or_default();
        check(before, &mut rest, &mut causes);
        (causes, Value::Object(rest))
    }

    #[test]
    fn a_gated_pod_is_tied_to_fewer_nodes_only() {
        let affinity =
            |terms: Value| json!({"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}}});
        let one = json!({"key": "a", "operator": "In", "values": ["b"]});
        let two = json!({"key": "c", "operator": "Exists"});
        let before = affinity(json!([{"matchExpressions": [one]}]));
        let (causes, rest) = check_of(&before, &affinity(json!([{"matchExpressions": [one, two]}])));
        assert_eq!((causes, rest), (vec![], before.clone()));
        let (causes, _) = check_of(&before, &affinity(json!([{"matchExpressions": [two]}])));
        let field = format!("spec.affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms[0]");
        let why = "Invalid value: {\"MatchExpressions\":[{\"Key\":\"c\",\"Operator\":\"Exists\",\"Values\":null}],\"MatchFields\":null}: only additions are allowed (no mutations or deletions)";
        assert_eq!((causes[0].field.as_str(), causes[0].message.as_str()), (field.as_str(), why));
        // A pod that had no affinity at all may get one to nodes.
        let (causes, rest) = check_of(&json!({}), &before);
        assert_eq!((causes, rest), (vec![], json!({})));
        let (causes, _) =
            check_of(&json!({"nodeSelector": {"a": "b"}}), &json!({"nodeSelector": {"a": "c"}}));
        let why = "Invalid value: {\"a\":\"c\"}: only additions to spec.nodeSelector are allowed (no mutations or deletions)";
        assert_eq!(causes, [Cause::new("FieldValueInvalid", "spec.nodeSelector", why)]);
    }
}
