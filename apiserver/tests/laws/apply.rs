//! Server-side apply: idempotent; a manager owns what it applied and nothing else; it conflicts where values differ and
//! nowhere else; what a manager leaves out goes away unless another one owns it.

use crate::api::{Answer, Api};
use crate::patches::sorted;
use crate::{cases, fresh, run, thing, things};
use proptest::option::of as some;
use proptest::prelude::*;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

fn word() -> impl Strategy<Value = String> {
    "[u-w]"
}

fn list_of(names: &'static str, most: usize) -> impl Strategy<Value = Vec<String>> {
    prop::collection::btree_set(names, 1..=most).prop_map(|s| s.into_iter().collect())
}

/// A configuration with some of all shapes.
fn config() -> impl Strategy<Value = Value> {
    let object = (some(word()), word()).prop_map(|(x, y)| match x {
        Some(x) => json!({"x": x, "y": y}),
        None => json!({"y": y}),
    });
    let free = prop::collection::btree_map("[k-m]", word(), 1..3);
    let item = (some(word()), some(word()));
    let items = prop::collection::btree_map("[p-r]", item, 1..4).prop_map(|m| {
        let item = |(name, (v, w)): (String, (Option<String>, Option<String>))| {
            let mut item = json!({"name": name});
            for (key, value) in [("v", v), ("w", w)] {
                if let Some(value) = value {
                    item[key] = value.into();
                }
            }
            item
        };
        m.into_iter().map(item).collect::<Vec<_>>()
    });
    (
        word(),
        some(0..3i64),
        some(object),
        some(free),
        some(items),
        some(list_of("[s-u]", 3)),
        some(list_of("[h-i]", 2)),
        some(prop::collection::btree_map("[g-h]", word(), 1..3)),
    )
        .prop_map(|(a, b, o, f, m, s, t, q)| {
            let all = json!({"a": a, "b": b, "o": o, "f": f, "m": m, "s": s, "t": t, "q": q});
            let given = all.as_object().unwrap().iter().filter(|(_, v)| !v.is_null());
            Value::Object(given.map(|(k, v)| (k.clone(), v.clone())).collect())
        })
}

/// Leaf paths of a configuration with their values, as messages show them: the slow way, by the meaning of each field.
fn leaves(spec: &Value) -> BTreeMap<String, Value> {
    let mut out = BTreeMap::new();
    for (key, value) in spec.as_object().into_iter().flatten() {
        let path = format!(".spec.{key}");
        match key.as_str() {
            "o" | "f" => {
                for (k, v) in value.as_object().unwrap() {
                    out.insert(format!("{path}.{k}"), v.clone());
                }
            }
            "m" => {
                for item in value.as_array().unwrap() {
                    let at = format!("{path}[name={}]", item["name"]);
                    // That the item is there is a value of its own.
                    out.insert(at.clone(), Value::Null);
                    for (k, v) in item.as_object().unwrap() {
                        out.insert(format!("{at}.{k}"), v.clone());
                    }
                }
            }
            "s" => {
                for v in value.as_array().unwrap() {
                    out.insert(format!("{path}[={v}]"), Value::Null);
                }
            }
            _ => {
                out.insert(path, value.clone());
            }
        }
    }
    out
}

/// Leaf paths of a FieldsV1.
fn owned(fields: &Value) -> BTreeSet<String> {
    fn walk(fields: &Value, path: &str, out: &mut BTreeSet<String>) {
        let map = fields.as_object().unwrap();
        if map.is_empty() || map.contains_key(".") {
            out.insert(path.to_string());
        }
        for (element, inner) in map.iter().filter(|(k, _)| *k != ".") {
            let (kind, rest) = element.split_once(':').unwrap();
            let next = match kind {
                "f" => format!("{path}.{rest}"),
                "v" => format!("{path}[={rest}]"),
                _ => {
                    let keys: Value = serde_json::from_str(rest).unwrap();
                    format!("{path}[name={}]", keys["name"])
                }
            };
            walk(inner, &next, out);
        }
    }
    let mut out = BTreeSet::new();
    walk(fields, "", &mut out);
    out
}

/// What a manager owns of an object by applying.
fn owned_by(object: &Value, manager: &str) -> BTreeSet<String> {
    let entries = object["metadata"]["managedFields"].as_array().map(Vec::as_slice).unwrap_or_default();
    let mine = entries.iter().find(|e| e["manager"] == manager && e["operation"] == "Apply");
    mine.map(|e| owned(&e["fieldsV1"])).unwrap_or_default()
}

/// An object under test.
struct Object<'a> {
    api: &'a Api,
    name: String,
}

impl<'a> Object<'a> {
    fn new(api: &'a Api) -> Object<'a> {
        Object { api, name: fresh() }
    }

    async fn apply(&self, manager: &str, force: bool, spec: &Value) -> Answer {
        let path = format!("{}/{}?fieldManager={manager}&force={force}", things(), self.name);
        let mut body = thing(&self.name, "spec", spec);
        if spec.is_null() {
            body.as_object_mut().unwrap().remove("spec");
        }
        self.api.patch(&path, "apply", body).await
    }

    async fn applied(&self, manager: &str, force: bool, spec: &Value) -> Value {
        let answer = self.apply(manager, force, spec).await;
        assert!(answer.code < 300, "{}", answer.text);
        answer.body
    }

    async fn gone(self) {
        self.api.delete(&format!("{}/{}", things(), self.name), Value::Null).await.expect(200);
    }
}

/// The spec without regard to the order of lists that are told apart by keys.
fn spec(object: &Value) -> Value {
    let mut spec = sorted(object["spec"].clone());
    if let Some(set) = spec.get_mut("s").and_then(Value::as_array_mut) {
        set.sort_by_key(Value::to_string);
    }
    spec
}

fn paths(config: &Value) -> BTreeSet<String> {
    leaves(config).into_keys().collect()
}

/// Paths both name with different values.
fn disputed(a: &Value, b: &Value) -> BTreeSet<String> {
    let (a, b) = (leaves(a), leaves(b));
    a.into_iter().filter(|(path, v)| b.get(path).is_some_and(|w| w != v)).map(|(path, _)| path).collect()
}

async fn alone(api: &Api, first: Value, second: Value) {
    let object = Object::new(api);
    let made = object.applied("one", false, &first).await;
    assert_eq!(owned_by(&made, "one"), paths(&first), "a manager owns what it applied");
    assert_eq!(spec(&made), spec(&json!({"spec": first})));
    let again = object.applied("one", false, &first).await;
    assert_eq!(made, again, "the second time changes nothing, not even the revision");
    let changed = object.applied("one", false, &second).await;
    assert_eq!(spec(&changed), spec(&json!({"spec": second})), "what is left out goes away");
    assert_eq!(owned_by(&changed, "one"), paths(&second));
    object.gone().await;
}

async fn together(api: &Api, one: Value, two: Value) {
    let object = Object::new(api);
    let made = object.applied("one", false, &one).await;
    let differ = disputed(&one, &two);
    let answer = object.apply("two", false, &two).await;
    if differ.is_empty() {
        assert_eq!(answer.code, 200, "{}", answer.text);
        assert_eq!(owned_by(&answer.body, "one"), paths(&one), "equal values are shared");
        assert_eq!(owned_by(&answer.body, "two"), paths(&two));
    } else {
        let answer = answer.fails(409, "Conflict");
        let named: BTreeSet<String> = answer.causes().iter().map(|(_, field)| field.to_string()).collect();
        assert_eq!(named, differ, "each conflict is named, and nothing else");
        assert!(answer.causes().iter().all(|(reason, _)| *reason == "FieldManagerConflict"));
        let path = format!("{}/{}", things(), object.name);
        assert_eq!(api.get(&path).await.body, made, "a refused apply changes nothing");
    }
    let forced = object.applied("two", true, &two).await;
    assert_eq!(owned_by(&forced, "two"), paths(&two));
    let left: BTreeSet<String> = paths(&one).difference(&differ).cloned().collect();
    assert_eq!(owned_by(&forced, "one"), left, "who is overruled owns the rest");
    for (path, value) in leaves(&two) {
        assert_eq!(leaves(&forced["spec"]).get(&path), Some(&value), "{path} is as it was applied");
    }
    // Undo by omission: what the first applied and the second did not goes away.
    let undone = object.applied("one", false, &Value::Null).await;
    assert_eq!(spec(&undone), spec(&json!({"spec": two})), "what nobody owns is gone, the rest stays");
    assert!(owned_by(&undone, "one").is_empty());
    assert_eq!(owned_by(&undone, "two"), paths(&two));
    object.gone().await;
}

async fn beside_updates(api: &Api, applied: Value, put: Value) {
    let object = Object::new(api);
    object.applied("one", false, &applied).await;
    let path = format!("{}/{}", things(), object.name);
    let mut body = api.get(&path).await.expect(200).body;
    body["spec"] = put.clone();
    let written = api.put(&format!("{path}?fieldManager=writer"), body).await.expect(200).body;
    assert_eq!(spec(&written), spec(&json!({"spec": put})));
    // Whoever writes takes what it changes; what it removes is nobody's.
    let (before, after) = (leaves(&applied), leaves(&put));
    let kept = before.iter().filter(|(path, v)| after.get(*path) == Some(v)).map(|(path, _)| path.clone());
    assert_eq!(owned_by(&written, "one"), kept.collect());
    for entry in written["metadata"]["managedFields"].as_array().into_iter().flatten() {
        // Maps and lists themselves are recorded for updates; every leaf must be there.
        for path in owned(&entry["fieldsV1"]) {
            let parent =
                after.keys().any(|leaf| leaf.starts_with(&path)) || path.is_empty() || path == ".spec";
            assert!(parent, "{} owns {path}, which is not there: {written}", entry["manager"]);
        }
    }
    // A later apply without force takes back nothing the writer changed.
    let again = object.apply("one", false, &applied).await;
    let differ = disputed(&applied, &put);
    assert_eq!(again.code == 409, !differ.is_empty(), "{}", again.text);
    let back = object.applied("one", true, &applied).await;
    for (path, value) in leaves(&applied) {
        assert_eq!(leaves(&back["spec"]).get(&path), Some(&value), "{path} is as it was applied");
    }
    object.gone().await;
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn one_manager_owns_and_undoes(first in config(), second in config()) {
        things();
        run(async |api| alone(api, first, second).await);
    }

    #[test]
    fn two_managers_share_conflict_and_leave(one in config(), two in config()) {
        things();
        run(async |api| together(api, one, two).await);
    }

    #[test]
    fn writers_take_what_they_change(applied in config(), put in config()) {
        things();
        run(async |api| beside_updates(api, applied, put).await);
    }
}
