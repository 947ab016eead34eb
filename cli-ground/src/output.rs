//! Prints objects as YAML, JSON and names, like kubectl.

use anyhow::Context;
use serde_json::{Value, json};

use crate::args::{Format, Listing};
use fleet_console::{
    jsonpath::{self, Template},
    table::Table,
    terminal,
};

/// Removes fields that no reader needs.
pub fn tidy(mut object: Value) -> Value {
    if let Some(metadata) = object.pointer_mut("/metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
    object
}

/// Several objects as one list.
pub fn list(items: Vec<Value>) -> Value {
    json!({"apiVersion": "v1", "items": items, "kind": "List", "metadata": {"resourceVersion": ""}})
}

/// # Errors
/// The value cannot be written as YAML.
pub fn yaml(value: &Value) -> anyhow::Result<String> {
    let mut text = fleet_api::yaml::write(&sorted(value)).context("output")?;
    if !text.ends_with('\n') {
        text.push('\n');
    }
    Ok(text)
}

/// # Errors
/// The value cannot be written as JSON.
pub fn json(value: &Value) -> anyhow::Result<String> {
    // kubectl indents by four.
    let mut text = Vec::new();
    let formatter = serde_json::ser::PrettyFormatter::with_indent(b"    ");
    let mut serializer = serde_json::Serializer::with_formatter(&mut text, formatter);
    serde::Serialize::serialize(&sorted(value), &mut serializer).context("output")?;
    text.push(b'\n');
    Ok(String::from_utf8(text)?)
}

/// The value in the requested format of a command that prints its own data, if any. `named` is the field by
/// which `-o name` names an item, and its prefix.
///
/// # Errors
/// The value cannot be serialized, or the template is invalid.
pub fn data(format: Option<&Format>, value: &Value, named: (&str, &str)) -> anyhow::Result<Option<String>> {
    Ok(Some(match format {
        Some(Format::Json) => json(value)?,
        Some(Format::Yaml) => yaml(value)?,
        Some(Format::JsonPath(template)) => Template::read(template)?.print(value)?,
        Some(Format::Columns(spec)) => columns(spec, &items(value), Headers::Printed)?,
        Some(Format::Name) => {
            let (prefix, path) = named;
            let names =
                items(value).into_iter().map(|item| Ok(format!("{prefix}{}\n", jsonpath::cell(item, path)?)));
            names.collect::<anyhow::Result<String>>()?
        }
        Some(Format::Wide) | None => return Ok(None),
    }))
}

/// The items of a list, or the one object.
pub fn items(value: &Value) -> Vec<&Value> {
    match value["items"].as_array() {
        Some(items) => items.iter().collect(),
        None => vec![value],
    }
}

/// Whether a table begins with its headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Headers {
    Printed,
    Left,
}

impl Headers {
    pub fn of(how: &Listing) -> Self {
        if how.no_headers { Self::Left } else { Self::Printed }
    }
}

/// A table of custom columns.
///
/// # Errors
/// A column is invalid.
pub fn columns(spec: &str, items: &[&Value], headers: Headers) -> anyhow::Result<String> {
    let columns = jsonpath::columns(spec)?;
    let headers_of = columns.iter().map(|(header, _)| header.clone()).collect();
    let mut table = Table { headers: headers_of, ..Table::default() };
    for item in items {
        let cells: anyhow::Result<Vec<String>> =
            columns.iter().map(|(_, path)| jsonpath::cell(item, path)).collect();
        table.rows.push(cells?);
    }
    Ok(match headers {
        Headers::Printed => table.print(),
        Headers::Left => table.rows_within(terminal::width()),
    })
}

/// Orders items by a field of their data.
///
/// # Errors
/// The path is invalid.
pub fn sort<T>(items: &mut [T], path: Option<&str>, data: impl Fn(&T) -> &Value) -> anyhow::Result<()> {
    let Some(path) = path else { return Ok(()) };
    for item in items.iter() {
        jsonpath::sort_key(data(item), path)?;
    }
    items.sort_by_cached_key(|item| jsonpath::sort_key(data(item), path).unwrap_or_default());
    Ok(())
}

/// Sorts keys at every level, whichever map type the JSON library uses.
fn sorted(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let mut pairs: Vec<_> = map.iter().collect();
            pairs.sort_by_key(|(key, _)| *key);
            Value::Object(pairs.into_iter().map(|(key, value)| (key.clone(), sorted(value))).collect())
        }
        Value::Array(items) => Value::Array(items.iter().map(sorted).collect()),
        other => other.clone(),
    }
}
