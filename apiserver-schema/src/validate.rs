//! Validation of values: custom resources against their schema, and metadata of every object.
//!
//! Inputs: a pruned object with defaults, and for a change the object before. Returns all causes at once. Absent on
//! purpose: single values (see `values`), and CEL rules.

pub use crate::names::{LABEL_VALUE, NameRule};
use crate::schema::Schema;
use crate::values::Path;
use crate::{keyed, names, values};
use fleet_apiserver_cel::cause::Cause;
use fleet_apiserver_cel::go_text;
pub use fleet_apiserver_cel::go_text::quoted;
use fleet_apiserver_ground::tree;
use serde_json::Value;

/// Checks a value against a schema.
pub fn schema(schema: &Schema, value: &Value, path: &str, causes: &mut Vec<Cause>) {
    changed(schema, value, None, path, causes);
}

/// Checks a value against a schema; what equals its counterpart in the value before is not judged again.
pub fn changed(schema: &Schema, value: &Value, old: Option<&Value>, path: &str, causes: &mut Vec<Cause>) {
    values::judge(schema, value, old, &Path::Whole(path), causes);
    if path.is_empty() && schema.get().keyed {
        keyed::check(schema, value, old, causes);
    }
}

/// Why a name is not valid, or None: the first of all reasons (see `names`).
pub fn name(rule: NameRule, name: &str) -> Option<String> {
    names::of(rule, name).into_iter().next()
}

/// A key as labels have it: an optional prefix and a name.
pub fn is_qualified(key: &str) -> bool {
    names::qualified(key).is_empty()
}

/// A value as labels have it.
pub fn is_label_value(text: &str) -> bool {
    names::label_value(text).is_empty()
}

/// Notes each thing that is wrong with a text at a place; the text is shown.
fn tell(path: &str, text: &str, whys: Vec<String>, causes: &mut Vec<Cause>) {
    causes.extend(whys.iter().map(|why| Cause::invalid(path, &Value::from(text), why)));
}

/// Checks names, labels, annotations, finalizers, owner references and managers of fields.
pub fn metadata(rule: NameRule, value: &Value, causes: &mut Vec<Cause>) {
    let (found, base) = (tree::meta_text(value, "name"), tree::meta_text(value, "generateName"));
    if !base.is_empty() {
        tell("metadata.generateName", base, names::base(rule, base), causes);
    }
    if found.is_empty() {
        causes.push(Cause::required("metadata.name", "name or generateName is required"));
    } else {
        tell("metadata.name", found, names::of(rule, found), causes);
    }
    labels(tree::at(value, &["metadata", "labels"]), "metadata.labels", causes);
    let annotations = tree::at(value, &["metadata", "annotations"]).and_then(Value::as_object);
    let mut size = 0;
    for (k, v) in annotations.into_iter().flatten() {
        size += k.len() + v.as_str().map_or(0, str::len);
        tell("metadata.annotations", k, names::qualified(&k.to_lowercase()), causes);
    }
    if size > 256 * 1024 {
        let why = "Too long: may not be more than 262144 bytes";
        causes.push(Cause::new("FieldValueTooLong", "metadata.annotations", why));
    }
    owners(tree::list(value, &["metadata", "ownerReferences"]), causes);
    let finalizers = tree::list(value, &["metadata", "finalizers"]);
    for finalizer in finalizers {
        let text = finalizer.as_str().unwrap_or_default();
        tell("metadata.finalizers", text, names::qualified(text), causes);
    }
    if ["orphan", "foregroundDeletion"].iter().all(|one| finalizers.iter().any(|f| f == one)) {
        let why = "finalizer orphan and foregroundDeletion cannot be both set";
        causes.push(Cause::invalid("metadata.finalizers", &Value::Array(finalizers.to_vec()), why));
    }
    for (i, entry) in tree::list(value, &["metadata", "managedFields"]).iter().enumerate() {
        manager(entry, i, causes);
    }
}

fn owners(owners: &[Value], causes: &mut Vec<Cause>) {
    for o in owners {
        // Of a group and a version that cannot be told apart there is no version.
        let api = tree::text(o, &["apiVersion"]);
        let version = if api.matches('/').count() > 1 { "" } else { api.rsplit('/').next().unwrap_or(api) };
        if version.is_empty() {
            let field = "metadata.ownerReferences.apiVersion";
            causes.push(Cause::invalid(field, &Value::from(api), "version must not be empty"));
        }
        for key in ["kind", "name", "uid"] {
            if tree::text(o, &[key]).is_empty() {
                let field = format!("metadata.ownerReferences.{key}");
                causes.push(Cause::invalid(field, &Value::String(String::new()), "must not be empty"));
            }
        }
        if tree::text(o, &["kind"]) == "Event" && api == "v1" {
            let why = "/v1, Kind=Event is disallowed from being an owner".to_string();
            causes.push(Cause::invalid("metadata.ownerReferences", o, &why));
        }
    }
    let mut controllers = owners.iter().filter(|o| o.get("controller") == Some(&Value::Bool(true)));
    if let (Some(first), Some(second)) = (controllers.next(), controllers.next()) {
        let of = |o: &Value| format!("{}/{}", tree::text(o, &["kind"]), tree::text(o, &["name"]));
        let found = Value::Array(owners.to_vec());
        let why = format!(
            "Invalid value: {found}: Only one reference can have Controller set to true. Found \"true\" in references for {} and {}",
            of(first),
            of(second)
        );
        causes.push(Cause::new("FieldValueInvalid", "metadata.ownerReferences", why));
    }
}

/// What is wrong with the name of a manager of fields, at the place where it is given.
pub fn field_manager(name: &str, path: &str) -> Vec<Cause> {
    const LONGEST: usize = 128;
    let mut causes = Vec::new();
    if name.len() > LONGEST {
        let why = format!("Too long: may not be more than {LONGEST} bytes");
        causes.push(Cause::new("FieldValueTooLong", path, why));
    }
    for (at, c) in name.char_indices().filter(|(_, c)| !go_text::is_printed(*c)).take(LONGEST) {
        let why = format!("invalid character U+{:04X} (at position {at})", u32::from(c));
        causes.push(Cause::invalid(path, &Value::from(name), &why));
    }
    causes
}

/// An entry of managedFields that says who it is of. What else it says was understood before, or dropped.
fn manager(entry: &Value, i: usize, causes: &mut Vec<Cause>) {
    const LONGEST: usize = 256;
    let field = |name: &str| format!("metadata.managedFields[{i}].{name}");
    causes.extend(field_manager(tree::text(entry, &["manager"]), &field("manager")));
    if tree::text(entry, &["subresource"]).len() > LONGEST {
        let why = format!("Too long: may not be more than {LONGEST} bytes");
        causes.push(Cause::new("FieldValueTooLong", field("subresource"), why));
    }
}

/// What is wrong with a key of a ConfigMap or Secret.
pub fn config_key(key: &str) -> Option<&'static str> {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    if key.len() > 253 {
        return Some("must be no more than 253 characters");
    }
    if key.is_empty() || !key.bytes().all(plain) {
        return Some(
            "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')",
        );
    }
    match key {
        "." => Some("must not be '.'"),
        ".." => Some("must not be '..'"),
        _ if key.starts_with("..") => Some("must not start with '..'"),
        _ => None,
    }
}

/// Checks a label map.
pub fn labels(map: Option<&Value>, path: &str, causes: &mut Vec<Cause>) {
    for (k, v) in map.and_then(Value::as_object).into_iter().flatten() {
        tell(path, k, names::qualified(k), causes);
        match v.as_str() {
            Some(text) => tell(path, text, names::label_value(text), causes),
            None => causes.push(Cause::invalid(path, v, LABEL_VALUE)),
        }
    }
}
