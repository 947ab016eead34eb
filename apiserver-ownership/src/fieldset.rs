//! Sets of field paths in the `FieldsV1` form, and the sets of an object or of a change.
//!
//! Inputs: JSON tries (`f:name`, `k:{keys}`, `v:value`, `.` for the node itself) and schemas. The tries are used as
//! they are stored, so tracking a write needs no conversion. Absent on purpose: managers and times (see `managed`).

use fleet_apiserver_schema::{ListKind, Schema};
use serde_json::{Map, Value};
use std::collections::{HashMap, HashSet};

/// A set of paths.
pub type Set = Map<String, Value>;

fn node(v: &Value) -> Option<&Set> {
    v.as_object()
}

/// The node itself is in the set, not only things below it.
fn owned(set: &Set) -> bool {
    set.is_empty() || set.contains_key(".")
}

fn tidy(v: &mut Value) {
    if let Value::Object(m) = v
        && m.len() == 1
        && m.contains_key(".")
    {
        m.clear();
    }
}

/// Adds the paths of `b` to `a`; true when `a` changed.
pub fn union(a: &mut Set, b: &Set) -> bool {
    let mut changed = false;
    for (key, bv) in b {
        match a.get_mut(key) {
            None => {
                a.insert(key.clone(), bv.clone());
                changed = true;
            }
            Some(_) if key == "." => {}
            Some(Value::Object(am)) => {
                let Some(bm) = node(bv) else { continue };
                match (am.is_empty(), bm.is_empty()) {
                    (true, true) => {}
                    (true, false) => {
                        *am = bm.clone();
                        am.insert(".".into(), Value::Object(Map::new()));
                        changed = true;
                    }
                    (false, true) => {
                        if !am.contains_key(".") {
                            am.insert(".".into(), Value::Object(Map::new()));
                            changed = true;
                        }
                    }
                    (false, false) => changed |= union(am, bm),
                }
            }
            Some(_) => {}
        }
    }
    changed
}

/// Removes the paths of `b` from `a`; true when `a` changed. It costs no more than the smaller of the two: one change is taken from
/// many sets.
pub fn subtract(a: &mut Set, b: &Set) -> bool {
    let mut changed = false;
    if a.len() < b.len() {
        let keys: Vec<String> = a.keys().filter(|key| b.contains_key(*key)).cloned().collect();
        for key in keys {
            changed |= b.get(&key).is_some_and(|bv| take(a, &key, bv));
        }
    } else {
        for (key, bv) in b {
            changed |= take(a, key, bv);
        }
    }
    changed
}

/// Removes what is at one element.
fn take(a: &mut Set, key: &str, bv: &Value) -> bool {
    let Some(bm) = node(bv) else { return false };
    if key == "." {
        return a.remove(".").is_some();
    }
    let Some(Value::Object(am)) = a.get_mut(key) else { return false };
    let mut changed = false;
    let gone = if am.is_empty() {
        owned(bm)
    } else {
        if bm.is_empty() {
            changed |= am.remove(".").is_some();
        } else {
            changed |= subtract(am, bm);
        }
        am.is_empty()
    };
    if gone {
        a.remove(key);
        changed = true;
    } else if let Some(v) = a.get_mut(key) {
        tidy(v);
    }
    changed
}

/// Calls `f` with each path that is in both sets: at each level first what is there itself, then what is below. It costs no
/// more than the smaller of the two.
pub fn common(a: &Set, b: &Set, path: &mut String, f: &mut dyn FnMut(&str)) {
    let both = in_both(a, b);
    for (key, _, _) in both.iter().filter(|(_, am, bm)| owned(am) && owned(bm)) {
        let length = path.len();
        push(path, key);
        f(path);
        path.truncate(length);
    }
    for (key, am, bm) in both {
        let length = path.len();
        push(path, key);
        common(am, bm, path, f);
        path.truncate(length);
    }
}

/// The elements below which both sets have something, in order.
fn in_both<'s>(a: &'s Set, b: &'s Set) -> Vec<(&'s str, &'s Set, &'s Set)> {
    let (few, many) = if a.len() < b.len() { (a, b) } else { (b, a) };
    let mut found = Vec::new();
    for (key, one) in few {
        if key != "."
            && let (Some(one), Some(other)) = (node(one), many.get(key).and_then(node))
        {
            found.push((key.as_str(), one, other));
        }
    }
    found
}

/// One path element the way messages show it.
pub fn shown(key: &str) -> String {
    let mut out = String::new();
    push(&mut out, key);
    out
}

/// Appends one element the way messages show it: `.spec`, `[name="x"]`.
fn push(path: &mut String, key: &str) {
    if let Some(name) = key.strip_prefix("f:") {
        path.push('.');
        path.push_str(name);
    } else if let Some(keys) = key.strip_prefix("k:") {
        let parsed: Map<String, Value> = serde_json::from_str(keys).unwrap_or_default();
        let list: Vec<String> = parsed.iter().map(|(k, v)| format!("{k}={v}")).collect();
        path.push_str(&format!("[{}]", list.join(",")));
    } else if let Some(value) = key.strip_prefix("v:") {
        path.push_str(&format!("[={value}]"));
    }
}

/// How a value is split into fields.
pub enum Shape<'s> {
    /// One value.
    Leaf,
    /// Fields one by one.
    Fields,
    /// Items told apart by keys.
    Items(&'s [Box<str>], Option<&'s Schema>),
    /// Items are their own keys.
    Values,
}

/// The shape of a value under a schema; without one, objects are split and lists are not.
pub fn shape<'s>(schema: Option<&'s Schema>, value: &Value) -> Shape<'s> {
    let node = schema.map(Schema::get);
    match value {
        Value::Object(m) if !m.is_empty() && !node.is_some_and(|n| n.atomic_map) => Shape::Fields,
        Value::Array(list) if !list.is_empty() => match schema.map(Schema::list_kind) {
            Some(ListKind::Map(keys)) => Shape::Items(keys, node.and_then(|n| n.items.as_deref())),
            Some(ListKind::Set) => Shape::Values,
            _ => Shape::Leaf,
        },
        _ => Shape::Leaf,
    }
}

/// The `f:` element of a field.
fn field_key(name: &str) -> String {
    ["f:", name].concat()
}

/// The `k:` element of a list item.
pub fn item_key(keys: &[Box<str>], items: Option<&Schema>, item: &Value) -> String {
    let found = |key: &str| item.get(key).filter(|v| !v.is_null());
    // Most lists have one key, which is a text.
    if let [key] = keys
        && let Some(Value::String(text)) = found(key)
    {
        let mut out = String::with_capacity(key.len() + text.len() + 9);
        out.push_str("k:{");
        push_text(key, &mut out);
        out.push(':');
        push_text(text, &mut out);
        out.push('}');
        return out;
    }
    let mut out = Map::new();
    for key in keys {
        let default = || {
            let rules = items.and_then(|i| i.field(key)).and_then(|f| f.rules.as_ref());
            rules.and_then(|r| r.default.clone()).or_else(|| (&**key == "protocol").then(|| "TCP".into()))
        };
        if let Some(v) = found(key).cloned().or_else(default) {
            out.insert(key.to_string(), v);
        }
    }
    format!("k:{}", Value::Object(out))
}

/// Appends a text as JSON has it.
fn push_text(text: &str, out: &mut String) {
    if text.bytes().all(|b| b >= b' ' && b != b'"' && b != b'\\') {
        out.push('"');
        out.push_str(text);
        out.push('"');
    } else {
        out.push_str(&Value::from(text).to_string());
    }
}

/// Where the items of a list stand, by their `k:` elements; of two with one key the first.
pub fn index(keys: &[Box<str>], items: Option<&Schema>, list: &[Value]) -> HashMap<String, usize> {
    let mut index = HashMap::with_capacity(list.len());
    for (i, item) in list.iter().enumerate() {
        index.entry(item_key(keys, items, item)).or_insert(i);
    }
    index
}

/// All paths of a value. With `parents`, maps and lists themselves are included, as an update records them.
pub fn of(schema: Option<&Schema>, value: &Value, parents: bool) -> Set {
    let mut out = Map::new();
    match (shape(schema, value), value) {
        (Shape::Fields, Value::Object(map)) => {
            for (key, v) in map {
                let inner = of(schema.and_then(|s| s.field(key)), v, parents);
                out.insert(field_key(key), Value::Object(inner));
            }
            if parents {
                out.insert(".".into(), Value::Object(Map::new()));
            }
        }
        (Shape::Items(keys, items), Value::Array(list)) => {
            for item in list {
                let mut inner = of(items, item, parents);
                inner.insert(".".into(), Value::Object(Map::new()));
                out.insert(item_key(keys, items, item), Value::Object(inner));
            }
            if parents {
                out.insert(".".into(), Value::Object(Map::new()));
            }
        }
        (Shape::Values, Value::Array(list)) => {
            for item in list {
                out.insert(format!("v:{item}"), Value::Object(Map::new()));
            }
            if parents {
                out.insert(".".into(), Value::Object(Map::new()));
            }
        }
        _ => {}
    }
    out
}

/// The paths a change touched.
#[derive(Default)]
pub struct FieldChange {
    /// Added or with another value.
    pub set: Set,
    /// Removed.
    pub removed: Set,
}

impl FieldChange {
    /// True when nothing changed.
    pub fn is_empty(&self) -> bool {
        self.set.is_empty() && self.removed.is_empty()
    }

    /// Nests a change below one path element.
    fn nest(&mut self, key: impl Fn() -> String, inner: FieldChange) {
        if !inner.set.is_empty() {
            self.set.insert(key(), Value::Object(inner.set));
        }
        if !inner.removed.is_empty() {
            self.removed.insert(key(), Value::Object(inner.removed));
        }
    }
}

/// Compares two values.
pub fn diff(schema: Option<&Schema>, old: &Value, new: &Value) -> FieldChange {
    let mut out = FieldChange::default();
    match (shape(schema, old), old, shape(schema, new), new) {
        (Shape::Fields, Value::Object(a), Shape::Fields, Value::Object(b)) => {
            for (key, bv) in b {
                let element = || field_key(key);
                let field = || schema.and_then(|s| s.field(key));
                match a.get(key) {
                    None => {
                        out.set.insert(element(), Value::Object(of(field(), bv, true)));
                    }
                    Some(av) if av == bv => {}
                    Some(av) => compare(&mut out, element, field(), av, bv),
                }
            }
            for (key, av) in a {
                if !b.contains_key(key) {
                    let inner = of(schema.and_then(|s| s.field(key)), av, true);
                    out.removed.insert(field_key(key), Value::Object(inner));
                }
            }
        }
        (Shape::Items(keys, items), Value::Array(a), Shape::Items(..), Value::Array(b)) => {
            let index: std::collections::BTreeMap<String, &Value> =
                a.iter().map(|v| (item_key(keys, items, v), v)).collect();
            let mut kept = std::collections::BTreeSet::new();
            for bv in b {
                let key = item_key(keys, items, bv);
                match index.get(&key) {
                    None => {
                        let mut inner = of(items, bv, true);
                        inner.insert(".".into(), Value::Object(Map::new()));
                        out.set.insert(key.clone(), Value::Object(inner));
                    }
                    Some(av) if *av == bv => {}
                    Some(av) => compare(&mut out, || key.clone(), items, av, bv),
                }
                kept.insert(key);
            }
            for (key, av) in index {
                if !kept.contains(&key) {
                    let mut inner = of(items, av, true);
                    inner.insert(".".into(), Value::Object(Map::new()));
                    out.removed.insert(key, Value::Object(inner));
                }
            }
        }
        (Shape::Values, Value::Array(a), Shape::Values, Value::Array(b)) => {
            let elements = |list: &[Value]| list.iter().map(|v| format!("v:{v}")).collect::<HashSet<_>>();
            let (before, now) = (elements(a), elements(b));
            let empty = || Value::Object(Map::new());
            out.set.extend(now.difference(&before).map(|element| (element.clone(), empty())));
            out.removed.extend(before.difference(&now).map(|element| (element.clone(), empty())));
        }
        _ => {}
    }
    out
}

fn compare(
    out: &mut FieldChange,
    element: impl Fn() -> String,
    schema: Option<&Schema>,
    old: &Value,
    new: &Value,
) {
    let leaf = |v: &Value| matches!(shape(schema, v), Shape::Leaf);
    match (leaf(old), leaf(new)) {
        (false, false) => out.nest(element, diff(schema, old, new)),
        (true, true) => {
            out.set.insert(element(), Value::Object(Map::new()));
        }
        // From or to an empty map or list: the children come or go, the node itself stays.
        (true, false) => {
            let mut inner = of(schema, new, true);
            inner.remove(".");
            out.set.insert(element(), Value::Object(inner));
        }
        (false, true) => {
            let mut inner = of(schema, old, true);
            inner.remove(".");
            out.removed.insert(element(), Value::Object(inner));
            out.set.insert(element(), Value::Object(Map::new()));
        }
    }
}

/// Drops the paths without an owner: identity, and what the server fills in.
pub fn strip(set: &mut Set, subresource: &str) {
    for key in ["f:apiVersion", "f:kind", "."] {
        set.remove(key);
    }
    if let Some(Value::Object(meta)) = set.get_mut("f:metadata") {
        for key in [
            "f:name",
            "f:namespace",
            "f:creationTimestamp",
            "f:selfLink",
            "f:uid",
            "f:generation",
            "f:managedFields",
            "f:resourceVersion",
            ".",
        ] {
            meta.remove(key);
        }
        if meta.is_empty() {
            set.remove("f:metadata");
        }
    }
    if subresource == "status" {
        set.remove("f:spec");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn set(v: Value) -> Set {
        v.as_object().unwrap().clone()
    }

    #[test]
    fn set_arithmetic() {
        let mut a = set(json!({"f:a": {}, "f:b": {"f:c": {}}}));
        assert!(union(&mut a, &set(json!({"f:b": {"f:d": {}}, "f:e": {}}))));
        assert_eq!(Value::Object(a.clone()), json!({"f:a": {}, "f:b": {"f:c": {}, "f:d": {}}, "f:e": {}}));
        assert!(!union(&mut a, &set(json!({"f:a": {}}))));
        assert!(subtract(&mut a, &set(json!({"f:b": {"f:c": {}, "f:d": {}}, "f:a": {}}))));
        assert_eq!(Value::Object(a), json!({"f:e": {}}));
    }

    #[test]
    fn what_two_sets_have_in_common_is_the_same_either_way() {
        let large = set(json!({"f:a": {}, "f:b": {".": {}, "f:c": {}, "f:d": {}}, "f:e": {}, "f:x": {}}));
        let small = set(json!({"f:b": {".": {}, "f:c": {}}, "f:e": {"f:y": {}}, "f:z": {}}));
        let paths = |a: &Set, b: &Set| {
            let mut found = Vec::new();
            common(a, b, &mut String::new(), &mut |path| found.push(path.to_string()));
            found
        };
        assert_eq!(paths(&large, &small), [".b", ".b.c"]);
        assert_eq!(paths(&small, &large), [".b", ".b.c"]);
        let (mut less, mut few) = (large.clone(), small.clone());
        assert!(subtract(&mut less, &small) && subtract(&mut few, &large));
        assert_eq!(Value::Object(less), json!({"f:a": {}, "f:b": {"f:d": {}}, "f:e": {}, "f:x": {}}));
        assert_eq!(Value::Object(few), json!({"f:e": {"f:y": {}}, "f:z": {}}));
    }

    #[test]
    fn the_key_of_an_item_is_json() {
        let keys = |names: &[&str]| names.iter().map(|name| Box::from(*name)).collect::<Vec<Box<str>>>();
        for name in ["a", "", "a b/c.d", "\"", "\\", "\u{1}", "\n", "\u{7f}", "é", "日本"] {
            let want = format!("k:{}", json!({"name": name}));
            assert_eq!(item_key(&keys(&["name"]), None, &json!({"name": name, "x": 1})), want);
        }
        assert_eq!(item_key(&keys(&["port"]), None, &json!({"port": 80})), "k:{\"port\":80}");
        assert_eq!(
            item_key(&keys(&["port", "protocol"]), None, &json!({"port": 80})),
            "k:{\"port\":80,\"protocol\":\"TCP\"}"
        );
        assert_eq!(item_key(&keys(&["name"]), None, &json!({"name": null})), "k:{}");
    }

    #[test]
    fn lists_by_key() {
        let pod = Schema::builtin("api.core.v1.Pod");
        let old = json!({"spec": {"containers": [{"name": "a", "image": "x"}]}});
        let new = json!({"spec": {"containers": [{"name": "a", "image": "y"}, {"name": "b"}]}});
        let change = diff(Some(&pod), &old, &new);
        let want = json!({"f:spec": {"f:containers": {
            "k:{\"name\":\"a\"}": {"f:image": {}}, "k:{\"name\":\"b\"}": {".": {}, "f:name": {}}}}});
        assert_eq!(Value::Object(change.set), want);
        assert!(change.removed.is_empty());
    }
}
