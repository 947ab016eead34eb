//! From a parsed body to an object of a known kind: unknown fields, nulls, pruning and schema defaults.
//!
//! Inputs: a value and its schema. Types of built-in kinds are checked here, as by a typed decoder; types of custom
//! resources in `validate`. Absent on purpose: defaults of built-in kinds.

use crate::go_names;
use crate::patch::json_type;
use crate::schema::{MICRO_TIME, Schema, Type};
use crate::times;
use serde_json::{Map, Value};

/// What decoding found.
#[derive(Debug, Default)]
pub struct Report {
    /// Paths of fields that the schema does not know; they were removed.
    pub unknown: Vec<String>,
    /// Values that a typed decoder could not take.
    pub mismatched: Vec<String>,
}

/// Fields reported at most; the rest is removed silently.
const MAX_REPORTED: usize = 100;

/// What the real server says of a quantity that is none.
const NO_QUANTITY: &str =
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";

struct Walk<'r> {
    /// The schema of the whole object, if it is of a built-in kind.
    root: Option<&'r Schema>,
    path: String,
    report: &'r mut Report,
    typed: bool,
}

/// Decodes an object of a built-in kind in place.
pub fn builtin(schema: &Schema, value: &mut Value, report: &mut Report) {
    Walk { root: Some(schema), path: String::new(), report, typed: true }.visit(schema, value);
}

/// Prunes a custom resource in place; nulls of non-nullable fields go away.
pub fn custom(schema: &Schema, value: &mut Value, report: &mut Report) {
    Walk { root: None, path: String::new(), report, typed: false }.visit(schema, value);
    if let Some(metadata) = value.get_mut("metadata") {
        let meta = Schema::builtin(crate::OBJECT_META);
        // Already pruned by the walk above; this pass checks the types of metadata.
        let mut walk = Walk { root: None, path: "metadata".into(), report, typed: true };
        walk.visit(&meta, metadata);
    }
}

/// Removes what a schema does not know.
pub fn prune(schema: &Schema, value: &mut Value) {
    let mut report = Report::default();
    Walk { root: None, path: String::new(), report: &mut report, typed: false }.visit(schema, value);
}

impl Walk<'_> {
    fn mismatch(&mut self, value: &Value, want: &str) {
        self.unreadable(json_type(value), want);
    }

    fn out_of_range(&mut self, value: &Value, want: &str) {
        self.unreadable(&format!("number {value}"), want);
    }

    fn unreadable(&mut self, found: &str, want: &str) {
        if !self.typed || self.report.mismatched.len() >= MAX_REPORTED {
            return;
        }
        let text = match self.root.and_then(|root| go_names::place(root, &self.path)) {
            Some(at) => {
                format!("json: cannot unmarshal {found} into Go struct field {} of type {}", at.field, at.ty)
            }
            None => format!("json: cannot unmarshal {found} into field {} of type {want}", self.path),
        };
        self.report.mismatched.push(text);
    }

    fn no_quantity(&mut self) {
        if self.typed && self.report.mismatched.len() < MAX_REPORTED {
            self.report.mismatched.push(NO_QUANTITY.into());
        }
    }

    /// Bytes and times are read by a typed decoder; times are kept the one way it writes them.
    fn formatted(&mut self, format: &str, text: &mut String) {
        use base64::Engine;
        let why = match format {
            "byte" => match base64::engine::general_purpose::STANDARD.decode(text.as_bytes()) {
                Ok(_) => return,
                Err(base64::DecodeError::InvalidByte(at, _)) => {
                    format!("illegal base64 data at input byte {at}")
                }
                Err(_) => format!("illegal base64 data at input byte {}", text.len() / 4 * 4),
            },
            "date-time" => match times::read(text) {
                Some(t) => {
                    *text = fleet_apiserver_ground::clock::stamp(t);
                    return;
                }
                None => times::problem(text, times::SECONDS),
            },
            MICRO_TIME => match times::read_micros(text) {
                Some(t) => {
                    *text = t.strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string();
                    return;
                }
                None => times::problem(text, times::MICROS),
            },
            _ => return,
        };
        if self.report.mismatched.len() < MAX_REPORTED {
            self.report.mismatched.push(why);
        }
    }

    fn enter<T>(&mut self, name: &str, f: impl FnOnce(&mut Self) -> T) -> T {
        let length = self.path.len();
        if length > 0 {
            self.path.push('.');
        }
        self.path.push_str(name);
        let out = f(self);
        self.path.truncate(length);
        out
    }

    fn visit(&mut self, schema: &Schema, value: &mut Value) {
        let node = schema.get();
        match (node.ty, &mut *value) {
            (Type::Any, Value::Object(map)) if !node.is_opaque() => self.object(node, map),
            (Type::Any, _) => {}
            (Type::Object, Value::Object(map)) => self.object(node, map),
            (Type::Array, Value::Array(list)) => {
                if let Some(items) = &node.items {
                    // Scalars of custom resources have nothing to prune.
                    for (i, item) in list.iter_mut().enumerate() {
                        let length = self.path.len();
                        self.path.push_str(&format!("[{i}]"));
                        self.visit(items, item);
                        self.path.truncate(length);
                    }
                }
            }
            (Type::String, Value::String(text)) => {
                if self.typed
                    && let Some(format) = node.rules.as_ref().and_then(|r| r.format.as_deref())
                {
                    self.formatted(format, text);
                }
            }
            (Type::Integer, Value::Number(n)) => {
                // Whole floats such as 1.0 decode as integers; only rewrite when exact.
                if n.is_f64() {
                    match n.as_f64().filter(|f| f.fract() == 0.0 && f.abs() < 9e15) {
                        Some(f) if self.typed => *value = Value::from(f as i64),
                        Some(_) => {}
                        None => {
                            let found = Value::Number(n.clone());
                            self.out_of_range(&found, "int64");
                        }
                    }
                }
                let small = node.rules.as_ref().is_some_and(|r| r.format.as_deref() == Some("int32"));
                let fits = match value.as_i64() {
                    Some(n) => !small || i32::try_from(n).is_ok(),
                    // Above what an int64 holds.
                    None => !value.is_u64(),
                };
                if !fits {
                    let found = value.clone();
                    self.out_of_range(&found, if small { "int32" } else { "int64" });
                }
            }
            (Type::Number, Value::Number(_)) | (Type::Boolean, Value::Bool(_)) => {}
            (Type::IntOrString, Value::Number(_) | Value::String(_)) => {}
            (Type::Quantity, Value::String(text)) => {
                if self.typed && fleet_resources::quantity::parse("", text).is_err() {
                    self.no_quantity();
                }
            }
            (Type::Quantity, Value::Number(n)) => *value = Value::String(n.to_string()),
            (Type::Quantity, _) => self.no_quantity(),
            (want, other) => {
                let name = match want {
                    Type::Object => "object",
                    Type::Array => "array",
                    Type::Integer => "int64",
                    Type::Number => "float64",
                    Type::Boolean => "bool",
                    Type::IntOrString => "int32",
                    Type::String | Type::Any | Type::Quantity => "string",
                };
                let other = std::mem::take(other);
                self.mismatch(&other, name);
                *value = other;
            }
        }
    }

    fn object(&mut self, node: &Schema, map: &mut Map<String, Value>) {
        let opaque = node.is_opaque();
        let mut gone: Vec<String> = Vec::new();
        for (key, value) in map.iter_mut() {
            let Some(field) = node.field(key) else {
                // A custom resource may not carry unknown fields even below a bare `type: object`.
                let keep = node.preserve || (opaque && (self.typed || node.ty == Type::Any));
                let embedded = node.embedded && matches!(key.as_str(), "apiVersion" | "kind" | "metadata");
                if !keep && !embedded {
                    if self.report.unknown.len() < MAX_REPORTED {
                        let path =
                            if self.path.is_empty() { key.clone() } else { format!("{}.{key}", self.path) };
                        self.report.unknown.push(path);
                    }
                    gone.push(key.clone());
                } else if embedded && key == "metadata" && value.is_object() {
                    let meta = Schema::builtin(crate::OBJECT_META);
                    self.enter(key, |w| w.visit(&meta, value));
                }
                continue;
            };
            if value.is_null() {
                let target = field.get();
                let keep = target.nullable || (target.ty == Type::Any && !self.typed);
                if !keep {
                    gone.push(key.clone());
                }
                continue;
            }
            self.enter(key, |w| w.visit(field, value));
        }
        for key in gone {
            map.remove(&key);
        }
    }
}

/// Fills in the defaults of a custom resource's schema.
pub fn defaults(schema: &Schema, value: &mut Value) {
    let node = schema.get();
    if !node.has_defaults {
        return;
    }
    match value {
        Value::Object(map) => {
            for (name, field) in node.properties() {
                if !field.has_defaults {
                    continue;
                }
                if let Some(default) = field.rules.as_ref().and_then(|r| r.default.as_ref()) {
                    let missing = match map.get(name) {
                        None => true,
                        Some(v) => v.is_null() && !field.nullable,
                    };
                    if missing {
                        map.insert(name.to_string(), default.clone());
                    }
                }
                if let Some(v) = map.get_mut(name) {
                    defaults(field, v);
                }
            }
            if let Some(additional) = &node.additional {
                for (key, v) in map.iter_mut() {
                    if !node.properties().any(|(n, _)| n == key) {
                        defaults(additional, v);
                    }
                }
            }
        }
        Value::Array(list) => {
            if let Some(items) = &node.items {
                list.iter_mut().for_each(|v| defaults(items, v));
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests;
