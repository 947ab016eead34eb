//! Tables: the columns and cells of `kubectl get`.
//!
//! Inputs: objects. Absent on purpose: client-side forms; kubectl lays the cells out.

use fleet_apiserver_ground::tree;
use fleet_apiserver_schema::error::{ApiError, ApiResult};
use fleet_apiserver_schema::resource::Resource;
use jiff::Timestamp;
use serde_json::{Value, json};

mod cells;
mod other;
mod text;
mod workloads;

use text::age;

/// What a row carries beside its cells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Include {
    /// Nothing.
    None,
    /// Metadata.
    Metadata,
    /// The whole object.
    Object,
}

impl Include {
    /// Reads `includeObject`.
    pub fn parse(text: &str) -> ApiResult<Include> {
        match text {
            "" | "Metadata" => Ok(Include::Metadata),
            "None" => Ok(Include::None),
            "Object" => Ok(Include::Object),
            other => Err(ApiError::bad_request(format!("unrecognized includeObject value: {other:?}"))),
        }
    }
}

/// Only the metadata of an object.
pub fn partial(value: &Value) -> Value {
    json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1",
        "metadata": value.get("metadata").cloned().unwrap_or_default()})
}

/// A Table document.
pub fn table(r: &Resource, rows: Vec<Value>, columns: bool, meta: Value) -> Value {
    let definitions = if columns { column_definitions(r) } else { Value::Null };
    json!({"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": meta, "columnDefinitions": definitions,
        "rows": rows})
}

fn column_definitions(r: &Resource) -> Value {
    let name = |priority: i64| {
        json!({"name": "Name", "type": "string", "format": "name",
            "description": "Name must be unique within a namespace. Is required when creating resources, although some resources may allow a client to request the generation of an appropriate name automatically. Name is primarily intended for creation idempotence and configuration definition. Cannot be updated. More info: https://kubernetes.io/docs/concepts/overview/working-with-objects/names#names", "priority": priority})
    };
    let mut out = Vec::new();
    if !named_last(r) {
        out.push(name(0));
    }
    if r.custom {
        out.extend(r.columns.iter().map(|c| {
            json!({"name": c.name, "type": c.ty, "format": c.format, "description": c.description, "priority": c.priority})
        }));
        return Value::Array(out);
    }
    for column in cells::columns(r).split(',').filter(|c| !c.is_empty()) {
        let (name, priority) = match column.strip_suffix("/1") {
            Some(n) => (n, 1),
            None => (column, 0),
        };
        let (name, ty) = match name.split_once(':') {
            Some((n, t)) => (n, t),
            None => (name, "string"),
        };
        out.push(json!({"name": name, "type": ty, "format": "", "description": name, "priority": priority}));
    }
    if named_last(r) {
        out.push(
            json!({"name": "Name", "type": "string", "format": "name", "description": "Name of the event.",
            "priority": 1}),
        );
    }
    Value::Array(out)
}

/// Events are told apart by what they say: their names come last, and only when asked for.
fn named_last(r: &Resource) -> bool {
    !r.custom && r.plural == "events"
}

/// One row.
pub fn row(r: &Resource, value: &Value, include: Include, now: Timestamp) -> Value {
    let mut cells = Vec::new();
    if !named_last(r) {
        cells.push(json!(tree::meta_text(value, "name")));
    }
    if r.custom {
        for c in &r.columns {
            let found = c.path.find(value);
            let cell = match (found.first(), c.ty.as_str()) {
                (None, _) => Value::Null,
                (Some(v), "date") => json!(age(v.as_str().unwrap_or_default(), now)),
                (Some(v @ Value::String(_)), "integer") => {
                    v.as_str().and_then(|s| s.parse::<i64>().ok()).map_or((*v).clone(), Value::from)
                }
                (Some(v @ (Value::Number(_) | Value::Bool(_))), "string") => json!(v.to_string()),
                (Some(v @ (Value::Object(_) | Value::Array(_))), _) => json!(v.to_string()),
                (Some(v), _) => (*v).clone(),
            };
            // Several hits are joined, as kubectl shows them.
            let cell = if found.len() > 1 && c.ty == "string" {
                let list: Vec<String> =
                    found.iter().map(|v| v.as_str().map_or_else(|| v.to_string(), str::to_string)).collect();
                json!(list.join(","))
            } else {
                cell
            };
            cells.push(cell);
        }
    } else {
        cells::fill(r, value, now, &mut cells);
    }
    let mut row = json!({"cells": cells});
    match include {
        Include::None => {}
        Include::Metadata => row["object"] = partial(value),
        Include::Object => row["object"] = value.clone(),
    }
    row
}
