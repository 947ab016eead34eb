//! Protobuf request bodies: a table-driven decoder into JSON. Answers are written by `encode`.
//!
//! Inputs: the Kubernetes envelope (`k8s\0` and an Unknown message) and the field table of the artefact.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use fleet_apiserver_schema::canonical::is_zero;
use fleet_apiserver_schema::error::{ApiError, ApiResult};
use fleet_apiserver_schema::presence::Presence;
use fleet_apiserver_schema::{Schema, artefact, builtins};
use serde_json::{Map, Value};
use std::collections::HashMap;
use std::sync::OnceLock;

mod encode;

pub use encode::encode;

/// Nesting allowed in a message.
const MAX_DEPTH: usize = 64;

#[derive(Debug, Clone, Copy, PartialEq)]
enum Card {
    One,
    List,
    Map,
}

struct Field {
    tag: u64,
    name: Box<str>,
    card: Card,
    kind: Box<str>,
}

type Table = HashMap<Box<str>, Vec<Field>>;

fn table() -> &'static Table {
    static TABLE: OnceLock<Table> = OnceLock::new();
    TABLE.get_or_init(|| {
        let artefact = artefact();
        let empty = Map::new();
        let messages = artefact.get("pb").and_then(Value::as_object).unwrap_or(&empty);
        let field = |f: &Value| Field {
            tag: f[0].as_u64().unwrap_or(0),
            name: f[1].as_str().unwrap_or_default().into(),
            card: match f[2].as_str() {
                Some("list") => Card::List,
                Some("map") => Card::Map,
                _ => Card::One,
            },
            kind: f[3].as_str().unwrap_or_default().into(),
        };
        let fields = |v: &Value| v.as_array().map(|a| a.iter().map(field).collect()).unwrap_or_default();
        messages.iter().map(|(k, v)| (k.as_str().into(), fields(v))).collect()
    })
}

struct Reader<'a>(&'a [u8]);

enum Wire<'a> {
    Varint(u64),
    Fixed64(u64),
    Fixed32(u32),
    Bytes(&'a [u8]),
}

fn bad(what: &str) -> ApiError {
    ApiError::bad_request(format!("the protobuf body could not be decoded: {what}"))
}

impl<'a> Reader<'a> {
    fn varint(&mut self) -> ApiResult<u64> {
        let mut out = 0u64;
        for shift in (0..70).step_by(7) {
            let (&b, rest) = self.0.split_first().ok_or_else(|| bad("unexpected end"))?;
            self.0 = rest;
            if shift < 64 {
                out |= u64::from(b & 0x7f) << shift;
            }
            if b & 0x80 == 0 {
                return Ok(out);
            }
        }
        Err(bad("varint too long"))
    }

    fn take(&mut self, n: usize) -> ApiResult<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(n).ok_or_else(|| bad("unexpected end"))?;
        self.0 = rest;
        Ok(head)
    }

    fn field(&mut self) -> ApiResult<(u64, Wire<'a>)> {
        let key = self.varint()?;
        let wire = match key & 7 {
            0 => Wire::Varint(self.varint()?),
            1 => Wire::Fixed64(self.take(8)?.try_into().map(u64::from_le_bytes).map_err(|_| bad("fixed64"))?),
            2 => {
                let n = usize::try_from(self.varint()?).map_err(|_| bad("length"))?;
                Wire::Bytes(self.take(n)?)
            }
            5 => Wire::Fixed32(self.take(4)?.try_into().map(u32::from_le_bytes).map_err(|_| bad("fixed32"))?),
            _ => return Err(bad("unknown wire type")),
        };
        Ok((key >> 3, wire))
    }
}

/// Decodes a whole body.
pub fn decode(body: &[u8]) -> ApiResult<Value> {
    let Some(rest) = body.strip_prefix(b"k8s\0") else { return Err(bad("the k8s prefix is missing")) };
    let (mut api_version, mut kind, mut raw) = (String::new(), String::new(), &[][..]);
    let mut reader = Reader(rest);
    while !reader.0.is_empty() {
        match reader.field()? {
            (1, Wire::Bytes(meta)) => {
                let mut inner = Reader(meta);
                while !inner.0.is_empty() {
                    match inner.field()? {
                        (1, Wire::Bytes(b)) => api_version = String::from_utf8_lossy(b).into_owned(),
                        (2, Wire::Bytes(b)) => kind = String::from_utf8_lossy(b).into_owned(),
                        _ => {}
                    }
                }
            }
            (2, Wire::Bytes(b)) => raw = b,
            _ => {}
        }
    }
    let name = message_name(&api_version, &kind);
    if !table().contains_key(name.as_str()) {
        return Err(bad(&format!("no message for {api_version}, Kind={kind}")));
    }
    let mut value = Value::Object(Map::new());
    if let Value::Object(map) = &mut value {
        message(&name, raw, map, 0)?;
        map.insert("apiVersion".into(), api_version.into());
        map.insert("kind".into(), kind.into());
    }
    Ok(value)
}

/// The name of the message of a kind.
fn message_name(api_version: &str, kind: &str) -> String {
    match kind {
        "DeleteOptions" | "Status" | "CreateOptions" | "UpdateOptions" | "PatchOptions" => {
            format!("apimachinery.pkg.apis.meta.v1.{kind}")
        }
        _ => {
            let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
            builtins::definition(group, version, kind)
        }
    }
}

fn message(name: &str, bytes: &[u8], out: &mut Map<String, Value>, depth: usize) -> ApiResult<()> {
    if depth > MAX_DEPTH {
        return Err(bad("nested too deeply"));
    }
    let fields = table().get(name).ok_or_else(|| bad(name))?;
    let schema = Schema::builtin(name);
    let mut reader = Reader(bytes);
    while !reader.0.is_empty() {
        let (tag, wire) = reader.field()?;
        let Some(field) = fields.iter().find(|f| f.tag == tag) else { continue };
        if field.name.is_empty() {
            if let Wire::Bytes(b) = wire {
                message(&field.kind, b, out, depth + 1)?;
            }
            continue;
        }
        match field.card {
            Card::Map => {
                let Wire::Bytes(b) = wire else { return Err(bad("map entry")) };
                let (key, value) = entry(&field.kind, b, depth)?;
                let slot = out.entry(&*field.name).or_insert_with(|| Value::Object(Map::new()));
                fleet_apiserver_ground::tree::object(slot).insert(key, value);
            }
            Card::List => {
                let slot = out.entry(&*field.name).or_insert_with(|| Value::Array(Vec::new()));
                if let (Value::Array(list), Some(v)) = (slot, scalar(&field.kind, &wire, depth)?) {
                    list.push(v);
                }
            }
            Card::One => {
                let Some(v) = scalar(&field.kind, &wire, depth)? else { continue };
                // The wire carries the zero values of all fields but pointers; JSON leaves most of them out.
                let optional = schema.presence(&field.name) == Some(Presence::Optional);
                if optional && is_zero(&v) {
                    continue;
                }
                out.insert(field.name.to_string(), v);
            }
        }
    }
    Ok(())
}

fn entry(kind: &str, bytes: &[u8], depth: usize) -> ApiResult<(String, Value)> {
    let (mut key, mut value) = (String::new(), None);
    let mut reader = Reader(bytes);
    while !reader.0.is_empty() {
        match reader.field()? {
            (1, Wire::Bytes(b)) => key = String::from_utf8_lossy(b).into_owned(),
            (2, wire) => value = scalar(kind, &wire, depth)?,
            _ => {}
        }
    }
    Ok((key, value.unwrap_or_else(|| Value::String(String::new()))))
}

fn scalar(kind: &str, wire: &Wire<'_>, depth: usize) -> ApiResult<Option<Value>> {
    Ok(Some(match (kind, wire) {
        ("string", Wire::Bytes(b)) => {
            Value::String(std::str::from_utf8(b).map_err(|_| bad("a string is not UTF-8"))?.to_string())
        }
        ("bytes", Wire::Bytes(b)) => Value::String(STANDARD.encode(b)),
        ("bool", Wire::Varint(n)) => Value::Bool(*n != 0),
        ("int32" | "sint32", Wire::Varint(n)) => Value::from(*n as i32),
        ("int64" | "sint64", Wire::Varint(n)) => Value::from(*n as i64),
        ("uint32" | "uint64", Wire::Varint(n)) => Value::from(*n),
        ("double", Wire::Fixed64(n)) => Value::from(f64::from_bits(*n)),
        ("float", Wire::Fixed32(n)) => Value::from(f64::from(f32::from_bits(*n))),
        (name, Wire::Bytes(b)) if name.contains('.') => return nested(name, b, depth),
        _ => return Err(bad(&format!("a field of type {kind} has another wire type"))),
    }))
}

fn nested(name: &str, bytes: &[u8], depth: usize) -> ApiResult<Option<Value>> {
    let short = name.rsplit('.').next().unwrap_or_default();
    let mut map = Map::new();
    message(name, bytes, &mut map, depth + 1)?;
    let number = |k: &str| map.get(k).and_then(Value::as_i64).unwrap_or(0);
    Ok(match short {
        "Time" | "MicroTime" => {
            if map.is_empty() {
                return Ok(None);
            }
            let nanos = i32::try_from(number("nanos")).unwrap_or(0);
            let time = jiff::Timestamp::new(number("seconds"), nanos).map_err(|_| bad("time"))?;
            let text = if short == "Time" {
                fleet_apiserver_ground::clock::stamp(time)
            } else {
                format!("{time:.6}")
            };
            Some(Value::String(text))
        }
        "Duration" if name.contains("meta") => Some(Value::String(format!("{}ns", number("duration")))),
        "Quantity" => Some(map.remove("string").unwrap_or_else(|| Value::String("0".into()))),
        "IntOrString" => Some(if number("type") == 1 {
            map.remove("strVal").unwrap_or_else(|| Value::String(String::new()))
        } else {
            Value::from(number("intVal"))
        }),
        "RawExtension" | "JSON" | "FieldsV1" => {
            let raw = map.remove("raw").or_else(|| map.remove("Raw"));
            let bytes = raw.as_ref().and_then(Value::as_str).and_then(|s| STANDARD.decode(s).ok());
            bytes.and_then(|b| serde_json::from_slice(&b).ok())
        }
        "JSONSchemaPropsOrBool" => Some(match map.remove("schema").or_else(|| map.remove("schema_")) {
            Some(s) => s,
            None => map.remove("allows").unwrap_or(Value::Bool(false)),
        }),
        "JSONSchemaPropsOrArray" => map.remove("schema"),
        "ExtraValue" | "Verbs" => map.remove("items"),
        _ => Some(Value::Object(map)),
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn garbage_is_refused() {
        for body in [&b""[..], b"k8s\0\xff", b"k8s\0\x0a\xff\xff\xff\xff\x0f", b"k8s\0\x12\x02\x08"] {
            assert_eq!(super::decode(body).unwrap_err().code(), 400);
        }
    }
}
