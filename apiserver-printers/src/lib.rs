//! Tables: the columns and cells of `kubectl get`.
//!
//! Inputs: objects. Absent on purpose: client-side forms; kubectl lays the cells out.

use fleet_apiserver_schema::error::{ApiError, ApiResult};
use fleet_apiserver_schema::resource::Resource;
use jiff::Timestamp;
use serde_json::{Value, json};

mod autoscaler;
mod cells;
mod columns;
mod custom;
mod network;
mod other;
mod pods;
mod storage;
mod text;
mod workloads;

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
pub fn table(r: &Resource, mut rows: Vec<Value>, columns: bool, meta: Value) -> Value {
    let definitions = if columns { columns::definitions(r) } else { Value::Null };
    if r.is("flowcontrol.apiserver.k8s.io", "flowschemas") {
        // In the order in which they are tried.
        let cell = |row: &Value, i: usize| row["cells"][i].clone();
        rows.sort_by_cached_key(|row| (cell(row, 2).as_i64(), cell(row, 0).to_string()));
    }
    json!({"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": meta, "columnDefinitions": definitions,
        "rows": rows})
}

/// One row.
pub fn row(r: &Resource, value: &Value, include: Include, now: Timestamp) -> Value {
    let mut cells = Vec::new();
    if !columns::is_named_last(r) {
        cells.push(cells::name(r, value));
    }
    if r.custom {
        cells.extend(r.columns.iter().map(|column| custom::cell(column, value, now)));
    } else {
        cells::fill(r, value, now, &mut cells);
    }
    let mut row = json!({"cells": cells});
    if r.is("", "pods")
        && let Some(ended) = pods::ended(value)
    {
        row["conditions"] = json!([ended]);
    }
    match include {
        Include::None => {}
        Include::Metadata => row["object"] = partial(value),
        Include::Object => row["object"] = value.clone(),
    }
    row
}
