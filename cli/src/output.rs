//! Objects as YAML, JSON and names, the way kubectl prints them.

use anyhow::Context;
use fleet_api::crds::{self, Side};
use serde_json::{Value, json};

use crate::{
    answer::Answer,
    args::{CrdsArgs, DataFormat},
};

/// An object without what no reader wants.
pub fn tidy(mut object: Value) -> Value {
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.remove("managedFields");
    }
    object
}

/// Several objects as one.
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

/// The value in the format of a command that prints data of its own, if one was asked for.
///
/// # Errors
/// The value cannot be written.
pub fn data(format: Option<DataFormat>, value: &Value) -> anyhow::Result<Option<String>> {
    match format {
        Some(DataFormat::Json) => json(value).map(Some),
        Some(DataFormat::Yaml) => yaml(value).map(Some),
        Some(DataFormat::Wide) | None => Ok(None),
    }
}

/// Keys in order at every level, whatever map the JSON library was built with.
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

/// `fleet crds`.
///
/// # Errors
/// The definitions cannot be written.
pub fn definitions(args: &CrdsArgs) -> anyhow::Result<Answer> {
    let side = if args.hub { Side::Hub } else { Side::Member };
    Ok(Answer::text(crds::yaml(side)?))
}
