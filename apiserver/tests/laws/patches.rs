//! Merge patches do what RFC 7386 says, JSON patches lead from one tree to another, strategic merge patches agree with
//! apply where both know the same keys, and no patch changes anything the second time.

use crate::api::{Api, deployment};
use crate::{cases, fresh, run, thing, things};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

fn tree() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        "[a-z~/]{0,4}".prop_map(Value::from),
    ];
    let inner = leaf.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[a-c~/]{1,2}", inner, 0..4)
                .prop_map(|m| Value::Object(m.into_iter().collect())),
        ]
    });
    prop::collection::btree_map("[a-d]", inner, 0..5).prop_map(|m| Value::Object(m.into_iter().collect()))
}

/// A tree in which some values ask for removal.
fn patch() -> impl Strategy<Value = Value> {
    (tree(), prop::collection::vec("[a-d]", 0..3)).prop_map(|(mut tree, gone)| {
        for key in gone {
            tree[key] = Value::Null;
        }
        tree
    })
}

/// RFC 7386, as it stands there.
fn merge_patch(target: Value, patch: &Value) -> Value {
    let Value::Object(patch) = patch else { return patch.clone() };
    let mut target = if let Value::Object(map) = target { map } else { Map::new() };
    for (key, value) in patch {
        let before = target.remove(key);
        if !value.is_null() {
            target.insert(key.clone(), merge_patch(before.unwrap_or(Value::Null), value));
        }
    }
    Value::Object(target)
}

/// The merge patch that leads from one tree to another.
fn difference(from: &Value, to: &Value) -> Value {
    let (Value::Object(a), Value::Object(b)) = (from, to) else { return to.clone() };
    let mut out = Map::new();
    for key in a.keys().filter(|k| !b.contains_key(*k)) {
        out.insert(key.clone(), Value::Null);
    }
    for (key, value) in b {
        match a.get(key) {
            Some(before) if before == value => {}
            Some(before) if before.is_object() && value.is_object() => {
                out.insert(key.clone(), difference(before, value));
            }
            _ => {
                out.insert(key.clone(), value.clone());
            }
        }
    }
    Value::Object(out)
}

/// Patches twice; the second time changes nothing. Returns the object.
async fn twice(api: &Api, path: &str, kind: &str, patch: &Value) -> Value {
    let first = api.patch(path, kind, patch.clone()).await.expect(200).body;
    let second = api.patch(path, kind, patch.clone()).await.expect(200).body;
    assert_eq!(first, second, "a second {kind} patch changed something");
    first
}

async fn merging(api: &Api, before: Value, patch: Value, goal: Value) {
    let name = fresh();
    let item = format!("{}/{name}", things());
    api.post(things(), thing(&name, "free", &before)).await.expect(201);
    let found = twice(api, &item, "merge", &json!({"free": patch})).await;
    let expect = merge_patch(before, &patch);
    assert_eq!(found["free"], expect);
    let found = twice(api, &item, "merge", &json!({"free": difference(&expect, &goal)})).await;
    assert_eq!(found["free"], goal);
    api.delete(&item, Value::Null).await;
}

/// A JSON patch that leads from one tree to another, one operation a field.
fn operations(from: &Value, to: &Value) -> Value {
    let escape = |key: &str| format!("/free/{}", key.replace('~', "~0").replace('/', "~1"));
    let (a, b) = (from.as_object().unwrap(), to.as_object().unwrap());
    let mut out = Vec::new();
    for (key, value) in a {
        out.push(json!({"op": "test", "path": escape(key), "value": value}));
        if !b.contains_key(key) {
            out.push(json!({"op": "remove", "path": escape(key)}));
        }
    }
    for (key, value) in b {
        let op = if a.contains_key(key) { "replace" } else { "add" };
        out.push(json!({"op": op, "path": escape(key), "value": value}));
    }
    Value::Array(out)
}

async fn json_patching(api: &Api, before: Value, goal: Value) {
    let name = fresh();
    let item = format!("{}/{name}", things());
    let made = api.post(things(), thing(&name, "free", &before)).await.expect(201);
    let there = operations(&before, &goal);
    let found = api.patch(&item, "json", there.clone()).await.expect(200);
    assert_eq!(found.body["free"], goal);
    assert_eq!(found.rv() == made.rv(), before == goal, "a new revision for a change, and for nothing else");
    if before != goal && before.as_object().is_some_and(|b| b.iter().any(|(k, v)| goal.get(k) != Some(v))) {
        // A test that does not hold any more refuses the whole patch.
        api.patch(&item, "json", there).await.expect(422);
        assert_eq!(api.get(&item).await.rv(), found.rv());
    }
    api.delete(&item, Value::Null).await;
}

fn containers() -> impl Strategy<Value = Value> {
    let env = prop::collection::btree_map("[A-C]", "[a-z]{0,3}", 1..4).prop_map(|m| {
        m.into_iter().map(|(name, value)| json!({"name": name, "value": value})).collect::<Vec<_>>()
    });
    let one = ("[x-z]{1,3}", proptest::option::of(env), proptest::option::of("[a-z]{1,5}"));
    let item = one.prop_map(|(image, env, class)| {
        let mut item = json!({"image": format!("{image}:1")});
        if let Some(env) = env {
            item["env"] = json!(env);
        }
        if let Some(class) = class {
            item["args"] = json!([class]);
        }
        item
    });
    prop::collection::btree_map("c[1-3]", item, 1..4).prop_map(|m| {
        let named = |(name, mut item): (String, Value)| {
            item["name"] = name.into();
            item
        };
        Value::Array(m.into_iter().map(named).collect())
    })
}

/// Lists whose items have names, in the order of names.
pub fn sorted(mut value: Value) -> Value {
    match &mut value {
        Value::Array(list) => {
            for item in list.iter_mut() {
                *item = sorted(item.take());
            }
            if list.iter().all(|i| i.get("name").is_some()) {
                list.sort_by_key(|i| i["name"].to_string());
            }
        }
        Value::Object(map) => {
            for item in map.values_mut() {
                *item = sorted(item.take());
            }
        }
        _ => {}
    }
    value
}

async fn strategic_and_apply(api: &Api, before: Value, patch: Value, labels: Value) {
    let (one, other) = (fresh(), fresh());
    let path = api.group("apps/v1", "deployments");
    for name in [&one, &other] {
        let mut made = deployment(name);
        made["spec"]["selector"]["matchLabels"]["app"] = json!("laws");
        made["spec"]["template"]["metadata"]["labels"]["app"] = json!("laws");
        made["spec"]["template"]["spec"]["containers"] = before.clone();
        api.post(&path, made).await.expect(201);
    }
    let change = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"labels": labels},
        "spec": {"template": {"spec": {"containers": patch}}}});
    let merged = twice(api, &format!("{path}/{one}"), "strategic-merge", &change).await;
    let applied = twice(api, &format!("{path}/{other}?fieldManager=laws&force=true"), "apply", &change).await;
    assert_eq!(sorted(merged["spec"].clone()), sorted(applied["spec"].clone()));
    assert_eq!(merged["metadata"]["labels"], applied["metadata"]["labels"]);
    assert_eq!(merged["metadata"]["generation"], applied["metadata"]["generation"]);
    // The order a client asks for is the order it gets, and a container it removes is gone.
    let mut names: Vec<Value> = merged["spec"]["template"]["spec"]["containers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|c| c["name"].clone())
        .collect();
    names.reverse();
    let order = json!({"spec": {"template": {"spec": {"$setElementOrder/containers":
        names.iter().map(|n| json!({"name": n})).collect::<Vec<_>>()}}}});
    let found = twice(api, &format!("{path}/{one}"), "strategic-merge", &order).await;
    let now: Vec<Value> = found["spec"]["template"]["spec"]["containers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|c| c["name"].clone())
        .collect();
    assert_eq!(now, names);
    if names.len() > 1 {
        let gone =
            json!({"spec": {"template": {"spec": {"containers": [{"name": names[0], "$patch": "delete"}]}}}});
        let found = twice(api, &format!("{path}/{one}"), "strategic-merge", &gone).await;
        let left = found["spec"]["template"]["spec"]["containers"].as_array().unwrap();
        assert!(left.len() == names.len() - 1 && left.iter().all(|c| c["name"] != names[0]));
    }
    for name in [&one, &other] {
        api.delete(&format!("{path}/{name}"), Value::Null).await;
    }
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn merge_patches_do_what_the_standard_says(before in tree(), patch in patch(), goal in tree()) {
        things();
        run(async |api| merging(api, before, patch, goal).await);
    }

    #[test]
    fn json_patches_lead_to_their_goal_or_change_nothing(before in tree(), goal in tree()) {
        things();
        run(async |api| json_patching(api, before, goal).await);
    }

    #[test]
    fn strategic_merge_agrees_with_apply(
        before in containers(), patch in containers(), label in "[a-z]{1,4}"
    ) {
        run(async |api| strategic_and_apply(api, before, patch, json!({"l": label})).await);
    }
}
