//! Values as JSON, as a mutation puts them into an object.
//!
//! Absent on purpose: values of libraries, such as quantities, which have no form of their own there.

use super::convert;
use super::value::{Key, Value};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Number, Value as Json};

/// The value as JSON.
///
/// # Errors
/// It has a part that JSON cannot have, or an object with a name that does not fit its place.
pub fn to_json(value: &Value) -> Result<Json, String> {
    let mut wrong = Vec::new();
    if let Value::Map(map) = value
        && let Some(name) = &map.made
    {
        places(value, &mut name.to_string(), &mut wrong);
    }
    if wrong.is_empty() { written(value) } else { Err(format!("type mismatch: {}", wrong.join("\n"))) }
}

/// The name of an object that an expression makes is its place in the whole; lists and maps between have none.
fn places(value: &Value, place: &mut String, wrong: &mut Vec<String>) {
    match value {
        Value::Map(map) => {
            if let Some(found) = map.made.as_deref().filter(|found| *found != place.as_str()) {
                wrong.push(format!(
                    "unexpected type name {found:?}, expected {place:?}, which matches field name path from root Object type"
                ));
            }
            for (key, inner) in &map.entries {
                let length = place.len();
                if let (Some(_), Key::Text(name)) = (&map.made, key) {
                    place.push('.');
                    place.push_str(name);
                }
                places(inner, place, wrong);
                place.truncate(length);
            }
        }
        Value::List(list) => list.items.iter().for_each(|item| places(item, place, wrong)),
        Value::Optional(Some(inner)) => places(inner, place, wrong),
        _ => {}
    }
}

fn written(value: &Value) -> Result<Json, String> {
    Ok(match value {
        Value::Null | Value::Optional(None) => Json::Null,
        Value::Bool(b) => Json::Bool(*b),
        Value::Int(n) => (*n).into(),
        Value::Uint(n) => (*n).into(),
        // A double that is whole is written without a fraction, as all numbers of JSON are one kind.
        Value::Double(n) if n.fract() == 0.0 && n.abs() < 1e15 => (*n as i64).into(),
        Value::Double(n) => {
            Json::Number(Number::from_f64(*n).ok_or_else(|| format!("{n} cannot be written as JSON"))?)
        }
        Value::Text(text) => Json::String(text.to_string()),
        Value::Bytes(bytes) => Json::String(STANDARD.encode(bytes)),
        Value::Duration(_) | Value::Time(..) => match convert::string(value) {
            Ok(Value::Text(text)) => Json::String(text.to_string()),
            _ => return Err(format!("a value of type '{}' cannot be written as JSON", value.kind())),
        },
        Value::Optional(Some(inner)) => written(inner)?,
        Value::List(list) => Json::Array(list.items.iter().map(written).collect::<Result<_, _>>()?),
        Value::Map(map) => {
            let mut out = serde_json::Map::new();
            for (key, inner) in &map.entries {
                let Key::Text(name) = key else {
                    return Err(format!(
                        "found a key of type '{}' in a map; allowed: string",
                        key.value().kind()
                    ));
                };
                out.insert(name.to_string(), written(inner)?);
            }
            Json::Object(out)
        }
        Value::Type(_) | Value::Library(_) => {
            return Err(format!("a value of type '{}' cannot be written as JSON", value.kind()));
        }
    })
}
