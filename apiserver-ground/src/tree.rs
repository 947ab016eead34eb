//! Parsing of JSON bodies, and small helpers on untyped values.
//!
//! Inputs: request bytes. Duplicate keys are reported, because strict field validation names them. Absent on
//! purpose: schemas.

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::map::Entry;
use serde_json::{Map, Number, Value};
use std::cell::RefCell;
use std::fmt;

/// Parses JSON; also returns the paths of duplicate keys.
pub fn parse(bytes: &[u8]) -> Result<(Value, Vec<String>), serde_json::Error> {
    let found = RefCell::new(Found::default());
    let mut de = serde_json::Deserializer::from_slice(bytes);
    let value = Seed(&found).deserialize(&mut de)?;
    de.end()?;
    let paths = found.into_inner().paths;
    Ok((value, paths.into_iter().map(joined).collect()))
}

/// Most duplicate keys in a message, so that a hostile body cannot make it arbitrarily long.
const NAMED: usize = 100;
/// Bytes that the paths of duplicate keys may take together. Beyond it, one of them is named.
const NAMED_BYTES: usize = 1 << 20;

/// Paths of duplicate keys, each from its end to its start. A path is built only where there is one.
#[derive(Default)]
struct Found {
    paths: Vec<Vec<String>>,
    bytes: usize,
}

impl Found {
    /// The paths that were found since there were `before` begin with this element.
    fn below(&mut self, before: usize, element: impl FnOnce() -> String) {
        if self.paths.len() <= before {
            return;
        }
        let element = element();
        self.bytes += element.len() * (self.paths.len() - before);
        if self.bytes > NAMED_BYTES {
            self.paths.truncate(before + 1);
        }
        for path in self.paths.iter_mut().skip(before) {
            path.push(element.clone());
        }
    }

    fn add(&mut self, key: &str) {
        if self.paths.len() < NAMED && self.bytes <= NAMED_BYTES {
            self.bytes += key.len();
            self.paths.push(vec![format!(".{key}")]);
        }
    }
}

fn joined(path: Vec<String>) -> String {
    let text: String = path.into_iter().rev().collect();
    text.strip_prefix('.').map(str::to_owned).unwrap_or(text)
}

/// Collects the paths of duplicate keys; each level prefixes its own element.
struct Seed<'a>(&'a RefCell<Found>);

impl<'de> DeserializeSeed<'de> for Seed<'_> {
    type Value = Value;
    fn deserialize<D: Deserializer<'de>>(self, d: D) -> Result<Value, D::Error> {
        d.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Seed<'_> {
    type Value = Value;
    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a JSON value")
    }
    fn visit_bool<E>(self, v: bool) -> Result<Value, E> {
        Ok(Value::Bool(v))
    }
    fn visit_i64<E>(self, v: i64) -> Result<Value, E> {
        Ok(Value::Number(v.into()))
    }
    fn visit_u64<E>(self, v: u64) -> Result<Value, E> {
        Ok(Value::Number(v.into()))
    }
    fn visit_f64<E>(self, v: f64) -> Result<Value, E> {
        Ok(Number::from_f64(v).map_or(Value::Null, Value::Number))
    }
    fn visit_str<E>(self, v: &str) -> Result<Value, E> {
        Ok(Value::String(v.to_owned()))
    }
    fn visit_string<E>(self, v: String) -> Result<Value, E> {
        Ok(Value::String(v))
    }
    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }
    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut out = Vec::new();
        loop {
            let before = self.0.borrow().paths.len();
            let Some(v) = seq.next_element_seed(Seed(self.0))? else { break };
            self.0.borrow_mut().below(before, || format!("[{}]", out.len()));
            out.push(v);
        }
        Ok(Value::Array(out))
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut out = Map::new();
        while let Some(key) = map.next_key::<String>()? {
            let before = self.0.borrow().paths.len();
            let value = map.next_value_seed(Seed(self.0)).map_err(A::Error::custom)?;
            self.0.borrow_mut().below(before, || format!(".{key}"));
            match out.entry(key) {
                Entry::Vacant(place) => {
                    place.insert(value);
                }
                Entry::Occupied(mut place) => {
                    self.0.borrow_mut().add(place.key());
                    place.insert(value);
                }
            }
        }
        Ok(Value::Object(out))
    }
}

/// The value at a chain of object fields.
#[inline]
pub fn at<'a>(value: &'a Value, path: &[&str]) -> Option<&'a Value> {
    path.iter().try_fold(value, |v, k| v.as_object()?.get(*k))
}

/// The string at a chain of object fields, or "".
#[inline]
pub fn text<'a>(value: &'a Value, path: &[&str]) -> &'a str {
    at(value, path).and_then(Value::as_str).unwrap_or_default()
}

/// The whole number at a chain of object fields, or 0.
#[inline]
pub fn number(value: &Value, path: &[&str]) -> i64 {
    at(value, path).and_then(Value::as_i64).unwrap_or_default()
}

/// The list at a chain of object fields, or nothing.
#[inline]
pub fn list<'a>(value: &'a Value, path: &[&str]) -> &'a [Value] {
    at(value, path).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// The object at a key, made when it is not there or not an object.
#[inline]
pub fn child<'a>(value: &'a mut Value, key: &str) -> &'a mut Map<String, Value> {
    object(object(value).entry(key).or_insert_with(|| Value::Object(Map::new())))
}

/// The value as an object, made empty when it is something else.
#[inline]
pub fn object(value: &mut Value) -> &mut Map<String, Value> {
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    match value {
        Value::Object(map) => map,
        // The line above made it an object.
        _ => unreachable!("value was just made an object"),
    }
}

/// The metadata of an object, made when missing.
#[inline]
pub fn meta(value: &mut Value) -> &mut Map<String, Value> {
    child(value, "metadata")
}

/// A metadata string, or "".
#[inline]
pub fn meta_text<'a>(value: &'a Value, key: &str) -> &'a str {
    text(value, &["metadata", key])
}

/// Puts a value unless the key is already there (and not null).
#[inline]
pub fn default_to(map: &mut Map<String, Value>, key: &str, value: impl Into<Value>) {
    match map.get(key) {
        Some(v) if !v.is_null() => {}
        _ => {
            map.insert(key.to_string(), value.into());
        }
    }
}

/// Sets or, with None, removes a key.
#[inline]
pub fn put(map: &mut Map<String, Value>, key: &str, value: Option<Value>) {
    match value {
        Some(v) => {
            map.insert(key.to_string(), v);
        }
        None => {
            map.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn reports_duplicates_and_keeps_numbers() {
        let (v, dup) = super::parse(br#"{"a":{"b":1,"b":2},"n":9007199254740993,"f":1.5}"#).unwrap();
        assert_eq!(dup, ["a.b"]);
        let (_, dup) = super::parse(br#"{"l":[1,{"x":{"y":1,"y":2}},[{"z":1,"z":2}]]}"#).unwrap();
        assert_eq!(dup, ["l[1].x.y", "l[2][0].z"]);
        assert_eq!(v["n"].to_string(), "9007199254740993");
        assert!(super::parse(b"{} x").is_err());
        let deep = "[".repeat(5000);
        assert!(super::parse(deep.as_bytes()).is_err());
    }

    #[test]
    fn paths_of_a_hostile_body_are_bounded() {
        let twice = "\"b\":1,\"b\":2,".repeat(50) + "\"c\":1";
        let long = "a".repeat(super::NAMED_BYTES / 4);
        let (_, dup) = super::parse(format!("{{\"{long}\":{{\"{long}\":{{{twice}}}}}}}").as_bytes()).unwrap();
        assert_eq!(dup, [format!("{long}.{long}.b")], "of many long paths one is named");
        let (_, dup) = super::parse(format!("{{{twice}}}").as_bytes()).unwrap();
        assert_eq!(dup.len(), 99, "each key after the first");
    }
}
