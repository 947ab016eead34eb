use serde_json::json;

use super::*;

fn schema(rule: &str) -> Value {
    json!({"type": "object", "properties": {"spec": {"type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "x-kubernetes-validations": [{"rule": rule, "message": "found a and b; allowed: one"}]}}})
}

fn messages(rules: &Rules, value: Value, old: Option<Value>) -> Vec<String> {
    rules.broken(&value, old.as_ref()).into_iter().map(|c| format!("{}: {}", c.field, c.message)).collect()
}

#[test]
fn a_broken_rule_names_its_field_and_message() {
    let rules = Rules::compile(&schema("!(has(self.a) && has(self.b))")).expect("has rules");
    let both = json!({"spec": {"a": 1, "b": 2}});
    assert_eq!(messages(&rules, json!({"spec": {"a": 1}}), None), [""; 0]);
    assert_eq!(messages(&rules, both.clone(), None), ["spec: Invalid value: found a and b; allowed: one"]);
    assert_eq!(messages(&rules, both.clone(), Some(both.clone())), [""; 0], "nothing changed");
    assert_eq!(
        messages(&rules, json!({"spec": {"a": 3, "b": 2}}), Some(both)).len(),
        1,
        "changed, and broken"
    );
}

#[test]
fn a_rule_that_does_not_parse_is_told() {
    assert_eq!(problems(&schema("!(has(self.a)"), "s").len(), 1);
    assert!(problems(&schema("has(self.a)"), "s").is_empty());
    assert!(Rules::compile(&json!({"type": "object"})).is_none());
}

#[test]
fn items_with_keys_are_compared_with_what_they_were() {
    let rules = Rules::compile(&json!({"type": "object", "properties": {"l": {"type": "array",
        "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"], "items": {"type": "object",
            "properties": {"k": {"type": "string"}, "v": {"type": "integer"}}, KEY: [
                {"rule": "self.v < 5", "message": "small"}, {"rule": "self.v >= oldSelf.v", "message": "grow"}]}}}}))
    .expect("has rules");
    let old = || Some(json!({"l": [{"k": "x", "v": 9}, {"k": "y", "v": 1}]}));
    assert_eq!(messages(&rules, json!({"l": [{"k": "y", "v": 2}, {"k": "x", "v": 9}]}), old()), [""; 0]);
    let less = json!({"l": [{"k": "z", "v": 1}, {"k": "x", "v": 8}]});
    assert_eq!(messages(&rules, less, old()), ["l[1]: Invalid value: small", "l[1]: Invalid value: grow"]);
}

/// Each item looked for among all takes many minutes.
#[test]
fn items_of_a_long_list_are_found_in_what_it_was_without_a_search() {
    const ITEMS: usize = 20_000;
    let keys = json!(["k", "n"]);
    let fields = json!({"k": {"type": "string", "format": "duration"}, "n": {"type": "integer"}, "v": {"type": "integer"}});
    let rules = Rules::compile(&json!({"type": "object", "properties": {"l": {"type": "array",
        "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": keys,
        "items": {"type": "object", "properties": fields, KEY: [{"rule": "self.v >= oldSelf.v", "message": "grow"}]}}}}))
    .expect("has rules");
    // A minute is sixty seconds, also where it is a key.
    let list = |unit: &str, parts: usize, value: usize| -> Vec<Value> {
        let item = |i: usize| json!({"k": format!("{}{unit}", i * parts), "n": i % 2, "v": value});
        (0..ITEMS).map(item).collect()
    };
    let (mut before, now) = (list("m", 1, 1), list("s", 60, 2));
    before.reverse();
    before[0]["v"] = json!(3);
    let last = ITEMS - 1;
    assert_eq!(
        messages(&rules, json!({"l": now}), Some(json!({"l": before}))),
        [format!("l[{last}]: Invalid value: grow")]
    );
}

#[test]
fn places_below_a_long_key_are_written_only_for_what_is_told() {
    const ITEMS: i64 = 50_000;
    let rules = Rules::compile(&json!({"type": "object", "properties": {"m": {"type": "object",
        "additionalProperties": {"type": "array", "items": {"type": "integer", KEY: [
            {"rule": "self >= 0", "message": "positive"}]}}}}}))
    .expect("has rules");
    let key = "k".repeat(1_000_000);
    let object = |item: i64| json!({"m": {key.clone(): vec![item; ITEMS as usize]}});
    // With the place of each written out, they have 50 GB.
    assert_eq!(messages(&rules, object(1), None), [""; 0]);
    let told = messages(&rules, object(-1), None);
    assert_eq!(told.len(), 2, "and no more");
    assert!(told[1].starts_with("m[kkk") && told[1].ends_with("k][1]: Invalid value: -1: positive"));
}

#[test]
fn a_rule_says_what_it_judged_and_where() {
    let text = |rule: Value| json!({"type": "string", KEY: [rule]});
    let rules = Rules::compile(&json!({"type": "object", "properties": {
        "s": text(json!({"rule": "self != 'x'"})),
        "e": text(json!({"rule": "int(self) > 1", "message": "number"})),
        "q": {"x-kubernetes-int-or-string": true, KEY: [{"rule": "type(self) == int ? self > 3 : self.endsWith('%')"}]},
        "o": {"type": "object", "properties": {"m": {"type": "object", "additionalProperties": {"type": "integer"}}},
            KEY: [{"rule": "false", "fieldPath": ".m['x.y']", "messageExpression": "'no ' + string(1)"},
                  {"rule": "self.m.q == 1", "reason": "FieldValueForbidden"},
                  {"rule": "oldSelf.hasValue()", "optionalOldSelf": true, "reason": "FieldValueRequired", "message": "old"}]}}}))
    .expect("has rules");
    assert_eq!(
        messages(&rules, json!({"s": "x"}), None),
        ["s: Invalid value: \"x\": failed rule: self != 'x'"]
    );
    let why = "type conversion error from 'string' to 'int' evaluating rule: number";
    assert_eq!(messages(&rules, json!({"e": "x"}), None), [format!("e: Invalid value: \"string\": {why}")]);
    assert_eq!(messages(&rules, json!({"q": 4}), None), [""; 0]);
    assert_eq!(messages(&rules, json!({"q": "4%"}), None), [""; 0]);
    assert_eq!(messages(&rules, json!({"q": 2}), None).len(), 1);
    assert_eq!(
        messages(&rules, json!({"o": {}}), None),
        [
            "o.m[x.y]: Invalid value: no 1",
            "o: Invalid value: \"object\": no such key: m evaluating rule: self.m.q == 1",
            "o: Required value: old"
        ]
    );
}
