//! Validation of values: custom resources against their schema, and metadata of every object.
//!
//! Inputs: a pruned object with defaults, and for a change the object before. Returns all causes at once. Absent on
//! purpose: CEL rules (see `rules`).

use crate::schema::{ListKind, Rules, Schema, Type};
use crate::{formats, keyed};
use fleet_apiserver_cel::cause::Cause;
use fleet_apiserver_ground::tree;
use serde_json::Value;
use std::collections::HashMap;

/// Causes collected at most.
const MAX_CAUSES: usize = 50;

/// Checks a value against a schema.
pub fn schema(schema: &Schema, value: &Value, path: &str, causes: &mut Vec<Cause>) {
    changed(schema, value, None, path, causes);
}

/// Checks a value against a schema; what equals its counterpart in the value before is not judged again.
pub fn changed(schema: &Schema, value: &Value, old: Option<&Value>, path: &str, causes: &mut Vec<Cause>) {
    single(schema, value, old, path, causes);
    if path.is_empty() && schema.get().keyed {
        keyed::check(schema, value, old, causes);
    }
}

/// Checks a value and what is in it, one by one.
fn single(schema: &Schema, value: &Value, old: Option<&Value>, path: &str, causes: &mut Vec<Cause>) {
    if old == Some(value) {
        return;
    }
    let node = schema.get();
    if causes.len() >= MAX_CAUSES || (value.is_null() && node.nullable) {
        return;
    }
    let want = match (node.ty, value) {
        (Type::Object, v) if !v.is_object() => Some("object"),
        (Type::Array, v) if !v.is_array() => Some("array"),
        (Type::String, v) if !v.is_string() => Some("string"),
        (Type::Integer, v) if !is_integer(v) => Some("integer"),
        (Type::Number, v) if !v.is_number() => Some("number"),
        (Type::Boolean, v) if !v.is_boolean() => Some("boolean"),
        (Type::IntOrString, v) if !(v.is_string() || v.is_i64() || v.is_u64()) => Some("integer,string"),
        _ => None,
    };
    if let Some(want) = want {
        let found = match value {
            Value::Null => "null",
            Value::Bool(_) => "boolean",
            Value::Number(n) if n.is_i64() => "integer",
            Value::Number(_) => "number",
            Value::String(_) => "string",
            Value::Array(_) => "array",
            Value::Object(_) => "object",
        };
        let why = format!("{path} in body must be of type {want}: \"{found}\"");
        let mut cause = Cause::invalid(path, &Value::String(found.into()), &why);
        cause.reason = "FieldValueTypeInvalid";
        causes.push(cause);
        return;
    }
    if let Some(rules) = &node.rules {
        check_rules(rules, value, old, path, causes);
    }
    match value {
        Value::Object(map) => {
            for name in &node.required {
                if !map.contains_key(&**name) {
                    causes.push(Cause::required(join(path, name), ""));
                }
            }
            for (key, v) in map {
                let before = old.and_then(|old| old.get(key));
                if path.is_empty() && matches!(key.as_str(), "metadata" | "apiVersion" | "kind") {
                    if let Some(naming) = node.naming.as_ref().filter(|_| key == "metadata") {
                        single(naming, v, before, key, causes);
                    }
                    continue;
                }
                if let Some(field) = node.field(key) {
                    schema_field(field, v, before, path, key, causes);
                }
            }
        }
        Value::Array(list) => list_items(node, list, old, path, causes),
        _ => {}
    }
}

/// Within 64 bits. What has more is read as a float, of which the whole ones count as integers up to 2^53, as in the real
/// server; bounds of 32 bits it takes from `minimum` and `maximum`, not from the format.
fn is_integer(value: &Value) -> bool {
    const WHOLE: f64 = 9_007_199_254_740_991.0;
    value.is_i64()
        || (!value.is_u64() && value.as_f64().is_some_and(|f| f.fract() == 0.0 && f.abs() <= WHOLE))
}

fn list_items(node: &Schema, list: &[Value], old: Option<&Value>, path: &str, causes: &mut Vec<Cause>) {
    if let Some(items) = &node.items {
        let before = Before::of(node.list_kind(), old);
        for (i, v) in list.iter().enumerate() {
            let before = before.counterpart(node.list_kind(), v);
            single(items, v, before, &format!("{path}[{i}]"), causes);
        }
    }
}

/// The items of a list before, by their keys. Items of other lists have no identity over a change.
struct Before<'a>(HashMap<String, &'a Value>);

impl<'a> Before<'a> {
    fn of(kind: &ListKind, old: Option<&'a Value>) -> Self {
        let mut known = HashMap::new();
        if matches!(kind, ListKind::Map(_)) {
            for item in old.and_then(Value::as_array).into_iter().flatten() {
                known.entry(identity(kind, item)).or_insert(item);
            }
        }
        Self(known)
    }

    fn counterpart(&self, kind: &ListKind, item: &Value) -> Option<&'a Value> {
        // Most lists are new or have no keys.
        if self.0.is_empty() { None } else { self.0.get(&identity(kind, item)).copied() }
    }
}

/// What tells an item from the others of its list.
fn identity(kind: &ListKind, item: &Value) -> String {
    match kind {
        ListKind::Atomic => String::new(),
        ListKind::Set => item.to_string(),
        ListKind::Map(keys) => {
            keys.iter().map(|k| item.get(&**k).map(Value::to_string).unwrap_or_default() + "\0").collect()
        }
    }
}

fn schema_field(
    field: &Schema,
    v: &Value,
    old: Option<&Value>,
    path: &str,
    key: &str,
    causes: &mut Vec<Cause>,
) {
    let node = field.get();
    // A scalar without rules needs no path of its own.
    if node.rules.is_none()
        && matches!((node.ty, v), (Type::String, Value::String(_)) | (Type::Boolean, Value::Bool(_)))
    {
        return;
    }
    single(field, v, old, &join(path, key), causes);
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_string() } else { format!("{path}.{name}") }
}

fn check_rules(rules: &Rules, value: &Value, old: Option<&Value>, path: &str, causes: &mut Vec<Cause>) {
    check_number(rules, value, path, causes);
    if !check_text(rules, value, path, causes) || !check_size(rules, value, path, causes) {
        return;
    }
    if !rules.enumeration.is_empty() && !rules.enumeration.contains(value) {
        let allowed: Vec<String> = rules.enumeration.iter().map(Value::to_string).collect();
        let message = format!("Unsupported value: {value}: supported values: {}", allowed.join(", "));
        causes.push(Cause::new("FieldValueNotSupported", path, message));
    }
    for s in &rules.all_of {
        single(s, value, old, path, causes);
    }
    // A combination as a whole has no place of its own, as in the real server.
    let whole =
        |why: String| Cause::invalid("<nil>", &Value::String(String::new()), &format!("{path:?} {why}"));
    let found = |alternatives: &[Schema]| {
        let one = |s: &Schema| {
            let mut inner = Vec::new();
            single(s, value, old, path, &mut inner);
            inner
        };
        alternatives.iter().map(one).collect::<Vec<_>>()
    };
    let any = found(&rules.any_of);
    if !any.is_empty() && any.iter().all(|inner| !inner.is_empty()) {
        causes.push(whole("must validate at least one schema (anyOf)".into()));
        causes.extend(any.into_iter().next().unwrap_or_default());
    }
    let one = found(&rules.one_of);
    let good = one.iter().filter(|inner| inner.is_empty()).count();
    let must = "must validate one and only one schema (oneOf).";
    if !one.is_empty() && good == 0 {
        causes.push(whole(format!("{must} Found none valid")));
        causes.extend(one.into_iter().next().unwrap_or_default());
    } else if good > 1 {
        causes.push(whole(format!("{must} Found {good} valid alternatives")));
    }
    if let Some(not) = &rules.not {
        let mut inner = Vec::new();
        // Here what has not changed counts too.
        schema(not, value, path, &mut inner);
        if inner.is_empty() {
            causes.push(whole("must not validate the schema (not)".into()));
        }
    }
}

fn check_number(rules: &Rules, value: &Value, path: &str, causes: &mut Vec<Cause>) {
    let mut invalid =
        |why: String| causes.push(Cause::invalid(path, value, &format!("{path} in body {why}")));
    if let Some(n) = value.as_f64() {
        if let Some((min, exclusive)) = rules.minimum
            && (n < min || (exclusive && n <= min))
        {
            invalid(format!("should be greater than {}{min}", if exclusive { "" } else { "or equal to " }));
        }
        if let Some((max, exclusive)) = rules.maximum
            && (n > max || (exclusive && n >= max))
        {
            invalid(format!("should be less than {}{max}", if exclusive { "" } else { "or equal to " }));
        }
        if let Some(m) = rules.multiple_of
            && m > 0.0
            && (n / m).fract() != 0.0
        {
            invalid(format!("should be a multiple of {m}"));
        }
    }
}

/// False when nothing more is said of the value.
fn check_text(rules: &Rules, value: &Value, path: &str, causes: &mut Vec<Cause>) -> bool {
    let mut invalid =
        |why: String| causes.push(Cause::invalid(path, value, &format!("{path} in body {why}")));
    if let Some(text) = value.as_str() {
        let n = text.chars().count() as u64;
        if rules.length.0.is_some_and(|min| n < min) {
            invalid(format!("should be at least {} chars long", rules.length.0.unwrap_or(0)));
        }
        if let Some(max) = rules.length.1.filter(|max| n > *max) {
            causes.push(Cause::new(
                "FieldValueTooLong",
                path,
                format!("Too long: may not be more than {max} bytes"),
            ));
            return false;
        }
        if let Some(pattern) = &rules.pattern
            && !pattern.is_match(text)
        {
            invalid(format!("should match '{}'", pattern.text()));
        }
        if let Some(format) = &rules.format
            && !has_format(format, text)
        {
            invalid(format!("must be of type {format}: {text:?}"));
        }
    }
    true
}

/// False when nothing more is said of the value.
fn check_size(rules: &Rules, value: &Value, path: &str, causes: &mut Vec<Cause>) -> bool {
    // The number is shown, not what is counted.
    let mut invalid = |shown: u64, why: String| {
        causes.push(Cause::invalid(path, &Value::from(shown), &format!("{path} in body {why}")));
    };
    if let Some(list) = value.as_array() {
        let n = list.len() as u64;
        if let Some(min) = rules.items.0.filter(|min| n < *min) {
            invalid(n, format!("should have at least {min} items"));
        }
        if let Some(max) = rules.items.1.filter(|max| n > *max) {
            let message = format!("Too many: {n}: must have at most {max} items");
            causes.push(Cause::new("FieldValueTooMany", path, message));
            return false;
        }
    }
    if let Some(map) = value.as_object() {
        let n = map.len() as u64;
        if let Some(min) = rules.properties.0.filter(|min| n < *min) {
            invalid(min, format!("should have at least {min} properties"));
        }
        if let Some(max) = rules.properties.1.filter(|max| n > *max) {
            let message = format!("Too many: {n}: must have at most {max} items");
            causes.push(Cause::new("FieldValueTooMany", path, message));
            return false;
        }
    }
    true
}

fn has_format(format: &str, text: &str) -> bool {
    match format {
        "k8s-short-name" => name(NameRule::Label, text).is_none(),
        "k8s-long-name" => name(NameRule::Subdomain, text).is_none(),
        _ => formats::fits(format, text),
    }
}

/// What a valid name of a kind looks like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameRule {
    /// DNS-1123 subdomain.
    Subdomain,
    /// DNS-1123 label.
    Label,
    /// Any path segment.
    Path,
}

/// Why a name is not valid, or None.
pub fn name(rule: NameRule, name: &str) -> Option<String> {
    match rule {
        NameRule::Path => {
            let bad = name == "." || name == ".." || name.contains('/') || name.contains('%');
            bad.then(|| "may not be '.' or '..', or contain '/' or '%'".to_string())
        }
        NameRule::Label if name.len() > 63 => Some("must be no more than 63 characters".into()),
        NameRule::Subdomain if name.len() > 253 => Some("must be no more than 253 characters".into()),
        NameRule::Label => (!is_label(name)).then(|| {
            "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start \
             and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is \
             '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
                .to_string()
        }),
        NameRule::Subdomain => (!name.split('.').all(is_label)).then(|| {
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must \
             start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
             '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
                .to_string()
        }),
    }
}

fn is_label(s: &str) -> bool {
    let ok = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let b = s.as_bytes();
    b.first().is_some_and(ok) && b.last().is_some_and(ok) && b.iter().all(|c| ok(c) || *c == b'-')
}

/// A key as labels have it: an optional prefix and a name.
pub fn is_qualified(key: &str) -> bool {
    let (prefix, name) = match key.split_once('/') {
        Some((p, n)) => (Some(p), n),
        None => (None, key),
    };
    prefix.is_none_or(|p| self::name(NameRule::Subdomain, p).is_none())
        && !name.is_empty()
        && is_label_value(name)
}

/// A value as labels have it.
pub fn is_label_value(s: &str) -> bool {
    let b = s.as_bytes();
    let edge = |c: &u8| c.is_ascii_alphanumeric();
    b.is_empty()
        || (b.len() <= 63
            && b.first().is_some_and(edge)
            && b.last().is_some_and(edge)
            && b.iter().all(|c| edge(c) || matches!(c, b'-' | b'_' | b'.')))
}

/// Checks names, labels, annotations, finalizers and owner references.
pub fn metadata(rule: NameRule, value: &Value, causes: &mut Vec<Cause>) {
    let (found, base) = (tree::meta_text(value, "name"), tree::meta_text(value, "generateName"));
    if let Some(why) = name(rule, base.strip_suffix('-').unwrap_or(base)).filter(|_| !base.is_empty()) {
        causes.push(Cause::invalid("metadata.generateName", &Value::String(base.into()), &why));
    }
    if found.is_empty() {
        causes.push(Cause::required("metadata.name", "name or generateName is required"));
    } else if let Some(why) = name(rule, found) {
        causes.push(Cause::invalid("metadata.name", &Value::String(found.into()), &why));
    }
    labels(tree::at(value, &["metadata", "labels"]), "metadata.labels", causes);
    let annotations = tree::at(value, &["metadata", "annotations"]).and_then(Value::as_object);
    let mut size = 0;
    for (k, v) in annotations.into_iter().flatten() {
        size += k.len() + v.as_str().map_or(0, str::len);
        if !is_qualified(&k.to_lowercase()) {
            causes.push(Cause::invalid("metadata.annotations", &Value::String(k.clone()), QUALIFIED));
        }
    }
    if size > 256 * 1024 {
        causes.push(Cause::new(
            "FieldValueTooLong",
            "metadata.annotations",
            "Too long: may not be more than 262144 bytes",
        ));
    }
    for f in tree::list(value, &["metadata", "finalizers"]) {
        if !f.as_str().is_some_and(is_qualified) {
            causes.push(Cause::invalid("metadata.finalizers", f, QUALIFIED));
        }
    }
    let owners = tree::list(value, &["metadata", "ownerReferences"]);
    for o in owners {
        for (key, why) in [
            ("apiVersion", "version must not be empty"),
            ("kind", "must not be empty"),
            ("name", "must not be empty"),
            ("uid", "must not be empty"),
        ] {
            if tree::text(o, &[key]).is_empty() {
                let field = format!("metadata.ownerReferences.{key}");
                causes.push(Cause::invalid(field, &Value::String(String::new()), why));
            }
        }
        if tree::text(o, &["kind"]) == "Event" && tree::text(o, &["apiVersion"]) == "v1" {
            let why = "/v1, Kind=Event is disallowed from being an owner".to_string();
            causes.push(Cause::invalid("metadata.ownerReferences", o, &why));
        }
    }
    let finalizers = tree::list(value, &["metadata", "finalizers"]);
    if ["orphan", "foregroundDeletion"].iter().all(|one| finalizers.iter().any(|f| f == one)) {
        let why = "finalizer orphan and foregroundDeletion cannot be both set";
        causes.push(Cause::invalid("metadata.finalizers", &Value::Array(finalizers.to_vec()), why));
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

/// Message for a qualified name without its last part.
pub const NO_NAME_PART: &str = "name part must be non-empty";

/// Message for a key that labels cannot have.
pub const QUALIFIED: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end \
    with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
    '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";

/// Message for a value that labels cannot have.
pub const LABEL_VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', \
    and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for \
    validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";

const LABEL_1035: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic \
    character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is \
    '[a-z]([-a-z0-9]*[a-z0-9])?')";

/// Why a text is no label that begins with a letter (RFC 1035), or None.
pub fn label_problem(text: &str) -> Option<&'static str> {
    if text.len() > 63 {
        return Some("must be no more than 63 characters");
    }
    let fine = name(NameRule::Label, text).is_none() && text.starts_with(|c: char| c.is_ascii_lowercase());
    (!fine).then_some(LABEL_1035)
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
        if !is_qualified(k) {
            causes.push(Cause::invalid(path, &Value::String(k.clone()), QUALIFIED));
        }
        if !v.as_str().is_some_and(is_label_value) {
            causes.push(Cause::invalid(path, v, LABEL_VALUE));
        }
    }
}
