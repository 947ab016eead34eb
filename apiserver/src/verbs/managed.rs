//! Who owns which field: `metadata.managedFields`, and server-side apply.
//!
//! Inputs: the live object, the new object or the applied configuration, the schema, and who writes.
//! Absent on purpose: defaults, validation and storage.

use fleet_apiserver_ground::tree;
use fleet_apiserver_ownership::fieldset::{self, Set};
use fleet_apiserver_ownership::merge::merge;
use fleet_apiserver_ownership::sent;
use fleet_apiserver_schema::canonical;
use fleet_apiserver_schema::error::{ApiError, ApiResult, Cause};
use fleet_apiserver_schema::{ListKind, Schema};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

/// Who writes, and when.
pub struct Writer<'a> {
    /// Field manager.
    pub manager: &'a str,
    /// apiVersion of the request.
    pub api_version: &'a str,
    /// Subresource, or "".
    pub subresource: &'a str,
    /// RFC 3339 seconds.
    pub now: &'a str,
    /// The kind has /status, so that the main endpoint does not own status.
    pub has_status: bool,
}

/// Update entries kept at most; more are merged into `ancient-changes`.
const MAX_UPDATE_ENTRIES: usize = 10;

/// Bytes of conflicts that are told; more are not.
const CONFLICT_BYTES: usize = 1 << 20;

fn is(entry: &Value, operation: &str, w: &Writer<'_>) -> bool {
    tree::text(entry, &["manager"]) == w.manager
        && tree::text(entry, &["operation"]) == operation
        && tree::text(entry, &["subresource"]) == w.subresource
        && (operation == "Apply" || tree::text(entry, &["apiVersion"]) == w.api_version)
}

fn fields(entry: &mut Value) -> &mut Set {
    tree::child(entry, "fieldsV1")
}

fn entry(w: &Writer<'_>, operation: &str, set: Set) -> Value {
    let mut out = json!({
        "manager": w.manager, "operation": operation, "apiVersion": w.api_version, "time": w.now,
        "fieldsType": "FieldsV1", "fieldsV1": set,
    });
    if !w.subresource.is_empty() {
        out["subresource"] = json!(w.subresource);
    }
    out
}

fn take(new: &mut Value) -> Vec<Value> {
    match tree::meta(new).remove("managedFields") {
        Some(Value::Array(list)) => list,
        _ => Vec::new(),
    }
}

/// What entries are sorted by. Times are all of one form.
fn order(entry: &Value) -> [&str; 5] {
    ["operation", "time", "manager", "apiVersion", "subresource"].map(|key| tree::text(entry, &[key]))
}

fn give(new: &mut Value, mut entries: Vec<Value>) {
    entries.retain(|e| e.get("fieldsV1").and_then(Value::as_object).is_some_and(|m| !m.is_empty()));
    entries.sort_by(|a, b| order(a).cmp(&order(b)));
    if !entries.is_empty() {
        tree::meta(new).insert("managedFields".into(), Value::Array(entries));
    }
}

/// What `f` makes of an object without its managedFields, which are there again afterwards.
pub fn without<T>(object: &mut Value, f: impl FnOnce(&Value) -> T) -> T {
    let entries =
        object.get_mut("metadata").and_then(Value::as_object_mut).and_then(|m| m.remove("managedFields"));
    let out = f(object);
    if let Some(entries) = entries {
        tree::meta(object).insert("managedFields".into(), entries);
    }
    out
}

/// True for objects that differ at most in the times of their managedFields: nothing was written then.
pub fn same_but_times(a: &Value, b: &Value) -> bool {
    let (Some(x), Some(y)) = (a.as_object(), b.as_object()) else { return a == b };
    let rest = |m: &Map<String, Value>, key: &str| m.iter().filter(|(k, _)| *k != key).count();
    let equal = |x: &Map<String, Value>, y: &Map<String, Value>, but: &str| {
        rest(x, but) == rest(y, but) && x.iter().filter(|(k, _)| *k != but).all(|(k, v)| y.get(k) == Some(v))
    };
    let none = Map::new();
    let (mx, my) = (metadata(x).unwrap_or(&none), metadata(y).unwrap_or(&none));
    let (ex, ey) = (entries(mx), entries(my));
    equal(x, y, "metadata")
        && equal(mx, my, "managedFields")
        && ex.len() == ey.len()
        && ex.iter().zip(ey).all(|(p, q)| match (p.as_object(), q.as_object()) {
            (Some(p), Some(q)) => equal(p, q, "time"),
            _ => p == q,
        })
}

fn metadata(object: &Map<String, Value>) -> Option<&Map<String, Value>> {
    object.get("metadata")?.as_object()
}

fn entries(metadata: &Map<String, Value>) -> &[Value] {
    metadata.get("managedFields").and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// Decides which managedFields a written object starts from: the client's when it sent some that can be understood, else the
/// live ones (of a new object: none), as always by a subresource. An empty list, or a single empty entry, resets them.
pub fn inherit(old: &Value, new: &mut Value, subresource: &str) {
    let live = || tree::at(old, &["metadata", "managedFields"]).cloned();
    let meta = tree::meta(new);
    let kept = match meta.remove("managedFields") {
        Some(Value::Array(list)) if subresource.is_empty() => {
            let is_reset =
                list.is_empty() || matches!(list.as_slice(), [Value::Object(one)] if one.is_empty());
            if is_reset { None } else { sent::read(list).map(Value::Array).or_else(live) }
        }
        _ => live(),
    };
    tree::put(meta, "managedFields", kept);
}

/// Whether it is kept who owns which field of an object that is about to be changed. Where objects of some managers
/// begin without, one that has no entries goes on without until it is applied.
pub fn is_tracked(untracked: &BTreeSet<String>, object: &Value) -> bool {
    untracked.is_empty() || tree::at(object, &["metadata", "managedFields"]).is_some()
}

/// Records a create, update or patch. `new` already carries the entries to start from.
pub fn track_update(schema: &Schema, old: Option<&Value>, new: &mut Value, w: &Writer<'_>) {
    let mut entries = take(new);
    let mut change = match old {
        Some(old) => fieldset::diff(Some(schema), old, new),
        None => fieldset::diff(Some(schema), &canonical::empty(new), new),
    };
    fieldset::strip(&mut change.set, "");
    fieldset::strip(&mut change.removed, "");
    if w.subresource.is_empty() && w.has_status {
        change.set.remove("f:status");
    }
    if w.subresource == "status" {
        change.set.retain(|k, _| k == "f:status" || k == "f:metadata");
    }
    if change.is_empty() {
        give(new, entries);
        return;
    }
    let mut mine = false;
    for e in &mut entries {
        if is(e, "Update", w) {
            mine = true;
            let set = fields(e);
            fieldset::subtract(set, &change.removed);
            fieldset::union(set, &change.set);
            // Fields that only went away leave no newer time behind.
            if !change.set.is_empty() {
                tree::object(e).insert("time".into(), w.now.into());
            }
        } else {
            let set = fields(e);
            fieldset::subtract(set, &change.set);
            fieldset::subtract(set, &change.removed);
        }
    }
    if !mine && !change.set.is_empty() {
        entries.push(entry(w, "Update", change.set));
    }
    merge_oldest(&mut entries);
    give(new, entries);
}

/// Merges the oldest updates of a version into one until there are few enough.
fn merge_oldest(entries: &mut Vec<Value>) {
    const ANCIENT: &str = "ancient-changes";
    let is_update = |e: &Value| tree::text(e, &["operation"]) == "Update";
    let mut left = entries.iter().filter(|e| is_update(e)).count();
    if left <= MAX_UPDATE_ENTRIES {
        return;
    }
    entries.sort_by(|a, b| order(a).cmp(&order(b)));
    // By version: where the entry stands that others are merged into.
    let mut buckets = HashMap::<String, usize>::new();
    for (i, e) in entries.iter().enumerate() {
        if is_update(e) && order(e)[2] == ANCIENT && order(e)[4].is_empty() {
            buckets.entry(order(e)[3].to_string()).or_insert(i);
        }
    }
    let mut gone = HashSet::new();
    for i in 0..entries.len() {
        if left <= MAX_UPDATE_ENTRIES {
            break;
        }
        if !is_update(&entries[i]) {
            continue;
        }
        let version = tree::text(&entries[i], &["apiVersion"]).to_string();
        let bucket = *buckets.entry(version).or_insert(i);
        if bucket == i {
            continue;
        }
        let mut merged = std::mem::take(&mut entries[i]);
        let first = tree::object(&mut entries[bucket]);
        first.insert("manager".into(), ANCIENT.into());
        first.remove("subresource");
        // The younger of the two times.
        tree::put(first, "time", merged.get("time").cloned());
        fieldset::union(fields(&mut entries[bucket]), fields(&mut merged));
        gone.insert(i);
        left -= 1;
    }
    let mut at = 0..;
    entries.retain(|_| at.next().is_none_or(|i| !gone.contains(&i)));
}

/// Server-side apply: the merged object with its new managedFields.
pub fn apply(
    schema: &Schema,
    live: Option<&Value>,
    mut config: Value,
    force: bool,
    w: &Writer<'_>,
) -> ApiResult<Value> {
    tree::meta(&mut config).remove("managedFields");
    if w.subresource == "status" {
        // Only the status is the applier's here, whatever else the configuration says.
        tree::object(&mut config).retain(|key, _| matches!(key.as_str(), "apiVersion" | "kind" | "status"));
    }
    let mut set = fieldset::of(Some(schema), &config, false);
    fieldset::strip(&mut set, w.subresource);
    if w.subresource.is_empty() && w.has_status {
        set.remove("f:status");
    }
    let Some(live) = live else {
        give(&mut config, vec![entry(w, "Apply", set)]);
        return Ok(config);
    };
    let mut new = live.clone();
    let mut entries = take(&mut new);
    if entries.is_empty() {
        let mut all = fieldset::of(Some(schema), &new, true);
        fieldset::strip(&mut all, "");
        let before = Writer { manager: "before-first-apply", subresource: "", ..*w };
        entries.push(entry(&before, "Update", all));
    }
    let previous = entries.iter().position(|e| is(e, "Apply", w)).map(|i| entries.remove(i));
    merge(Some(schema), &mut new, config);
    if let Some(old) = previous.as_ref().and_then(|p| p.get("fieldsV1")).and_then(Value::as_object) {
        let mut others = Set::new();
        for e in &mut entries {
            fieldset::union(&mut others, fields(e));
        }
        prune(Some(schema), &mut new, old, &set, &others);
    }
    let bare = {
        let mut bare = live.clone();
        tree::meta(&mut bare).remove("managedFields");
        bare
    };
    let mut change = fieldset::diff(Some(schema), &bare, &new);
    fieldset::strip(&mut change.set, "");
    let (firm, excused) = excuse(schema, live, &change.set, w);
    take_over(&mut entries, &change, &firm, &excused, force)?;
    let mut mine = entry(w, "Apply", set);
    if bare == new {
        // Only a change of the object has a time: who begins to own what is there already has none.
        let time = previous.as_ref().and_then(|p| p.get("time")).cloned();
        tree::put(tree::object(&mut mine), "time", time);
    }
    entries.push(mine);
    give(&mut new, entries);
    Ok(new)
}

/// Takes what apply changes away from other managers; they object to it unless it is forced.
fn take_over(
    entries: &mut [Value],
    change: &fieldset::FieldChange,
    firm: &Set,
    excused: &Set,
    force: bool,
) -> ApiResult<()> {
    let mut conflicts = Vec::new();
    let mut bytes = 0;
    for e in entries {
        let mut with = format!("conflict with \"{}\"", tree::text(e, &["manager"]));
        let sub = tree::text(e, &["subresource"]);
        if !sub.is_empty() {
            with.push_str(&format!(" with subresource \"{sub}\""));
        }
        if tree::text(e, &["operation"]) == "Update" {
            with.push_str(&format!(" using {}", tree::text(e, &["apiVersion"])));
        }
        let set = fields(e);
        fieldset::common(set, firm, &mut String::new(), &mut |path| {
            // Paths may be long, and have much in common.
            if bytes <= CONFLICT_BYTES {
                bytes += path.len() + with.len();
                conflicts.push(Cause::new("FieldManagerConflict", path, with.clone()));
            }
        });
        fieldset::subtract(set, excused);
        if force {
            fieldset::subtract(set, &change.set);
        }
        // What apply removed is owned by nobody any more.
        fieldset::subtract(set, &change.removed);
    }
    if !conflicts.is_empty() && !force {
        return Err(ApiError::apply_conflict(told(&conflicts), conflicts));
    }
    Ok(())
}

/// One conflict in a line; more by manager.
fn told(conflicts: &[Cause]) -> String {
    if let [one] = conflicts {
        return format!("Apply failed with 1 conflict: {}: {}", one.message, one.field);
    }
    let mut fields = BTreeMap::<&str, String>::new();
    for c in conflicts {
        let manager = c.message.strip_prefix("conflict with ").unwrap_or(&c.message);
        let list = fields.entry(manager).or_default();
        list.push_str("\n- ");
        list.push_str(&c.field);
    }
    let managers: Vec<String> =
        fields.iter().map(|(manager, list)| format!("conflicts with {manager}:{list}")).collect();
    format!("Apply failed with {} conflicts: {}", conflicts.len(), managers.join("\n"))
}

/// Splits a change into what may conflict and what kubectl may take over: fields whose live value is the one it
/// wrote itself by client-side apply, as its last-applied annotation shows.
fn excuse(schema: &Schema, live: &Value, change: &Set, w: &Writer<'_>) -> (Set, Set) {
    const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
    let text = tree::text(live, &["metadata", "annotations", LAST_APPLIED]);
    if w.manager != "kubectl" || text.is_empty() {
        return (change.clone(), Set::new());
    }
    let last: Value = serde_json::from_str(text).unwrap_or_default();
    let mut same = fieldset::of(Some(schema), &last, true);
    fieldset::subtract(&mut same, &fieldset::diff(Some(schema), live, &last).set);
    // The annotation itself always belongs to kubectl.
    let own = format!("f:{LAST_APPLIED}");
    fieldset::union(&mut same, &Set::from_iter([("f:metadata".into(), json!({"f:annotations": {own: {}}}))]));
    let mut firm = change.clone();
    fieldset::subtract(&mut firm, &same);
    let mut excused = change.clone();
    fieldset::subtract(&mut excused, &firm);
    (firm, excused)
}

/// Removes from `value` what was applied before, is not applied now, and belongs to nobody else.
fn prune(schema: Option<&Schema>, value: &mut Value, last: &Set, now: &Set, others: &Set) {
    let empty = Set::new();
    let node = schema.map(Schema::get);
    let items = node.and_then(|n| n.items.as_deref());
    // Lists are searched by key and cut once: a long one costs by its length.
    let index = match (&*value, node.map(|n| &n.list)) {
        (Value::Array(list), Some(ListKind::Map(keys))) => fieldset::index(keys, items, list),
        _ => HashMap::new(),
    };
    let mut gone_items = HashSet::new();
    let mut gone_values = HashSet::new();
    for (element, inner) in last {
        if element == "." {
            continue;
        }
        let Some(inner) = inner.as_object() else { continue };
        let applied = now.get(element).and_then(Value::as_object);
        let foreign = others.get(element).and_then(Value::as_object);
        let whole = applied.is_none() && foreign.is_none() && (inner.is_empty() || inner.contains_key("."));
        let (applied, foreign) = (applied.unwrap_or(&empty), foreign.unwrap_or(&empty));
        if let Some(name) = element.strip_prefix("f:") {
            let Value::Object(map) = &mut *value else { continue };
            if whole {
                map.remove(name);
            } else if let Some(v) = map.get_mut(name) {
                let had = has_content(v);
                prune(schema.and_then(|s| s.field(name)), v, inner, applied, foreign);
                if had && !has_content(v) && !now.contains_key(element) && !others.contains_key(element) {
                    map.remove(name);
                }
            }
        } else if let (Some(at), Value::Array(list)) = (index.get(element), &mut *value) {
            if whole {
                gone_items.insert(*at);
            } else {
                prune(items, &mut list[*at], inner, applied, foreign);
            }
        } else if let (Some(text), true) = (element.strip_prefix("v:"), whole) {
            let gone: Option<Value> = serde_json::from_str(text).ok();
            gone_values.extend(gone.map(|gone| gone.to_string()));
        }
    }
    if let (Value::Array(list), false) = (value, gone_items.is_empty() && gone_values.is_empty()) {
        let mut at = 0..;
        list.retain(|item| {
            let is_gone = at.next().is_some_and(|at| gone_items.contains(&at));
            !is_gone && (gone_values.is_empty() || !gone_values.contains(&item.to_string()))
        });
    }
}

fn has_content(v: &Value) -> bool {
    match v {
        Value::Object(m) => !m.is_empty(),
        Value::Array(l) => !l.is_empty(),
        _ => true,
    }
}
