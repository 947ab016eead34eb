//! The protobuf form of an OpenAPI v2 document, after `OpenAPIv2.proto` of gnostic.
//!
//! Inputs: the document as JSON. Field numbers stand beside the names they belong to. Absent on purpose: fields that the
//! document never has.

use serde_json::{Map, Value};

/// A message being written.
#[derive(Default)]
struct Message(Vec<u8>);

const VARINT: u64 = 0;
const DOUBLE: u64 = 1;
const BYTES: u64 = 2;

impl Message {
    fn varint(&mut self, mut n: u64) {
        while n >= 0x80 {
            self.0.push(n as u8 | 0x80);
            n >>= 7;
        }
        self.0.push(n as u8);
    }

    fn bytes(&mut self, field: u64, bytes: &[u8]) {
        self.varint(field << 3 | BYTES);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    fn message(&mut self, field: u64, inner: Message) {
        self.bytes(field, &inner.0);
    }

    fn text(&mut self, field: u64, value: Option<&Value>) {
        if let Some(text) = value.and_then(Value::as_str) {
            self.bytes(field, text.as_bytes());
        }
    }

    fn number(&mut self, field: u64, value: Option<&Value>) {
        match value {
            Some(Value::Bool(true)) => {
                self.varint(field << 3 | VARINT);
                self.varint(1);
            }
            Some(Value::Number(n)) => {
                self.varint(field << 3 | VARINT);
                self.varint(n.as_i64().unwrap_or_default() as u64);
            }
            _ => {}
        }
    }

    fn double(&mut self, field: u64, value: Option<&Value>) {
        if let Some(n) = value.and_then(Value::as_f64) {
            self.varint(field << 3 | DOUBLE);
            self.0.extend_from_slice(&n.to_bits().to_le_bytes());
        }
    }

    /// `Any`: a value as YAML, of which JSON is a part.
    fn any(&mut self, field: u64, value: &Value) {
        let mut any = Message::default();
        any.bytes(2, value.to_string().as_bytes());
        self.message(field, any);
    }

    /// Name and value of an entry of a map.
    fn named(&mut self, field: u64, name: &str, value: Message) {
        let mut entry = Message::default();
        entry.bytes(1, name.as_bytes());
        entry.message(2, value);
        self.message(field, entry);
    }

    /// Everything that starts with `x-`.
    fn extensions(&mut self, field: u64, map: &Value) {
        for (name, value) in fields(map).filter(|(name, _)| name.starts_with("x-")) {
            let mut any = Message::default();
            any.bytes(2, value.to_string().as_bytes());
            self.named(field, name, any);
        }
    }
}

fn fields(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flat_map(Map::iter)
}

fn items<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value.get(key).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// `Document`.
pub fn document(value: &Value) -> Vec<u8> {
    let mut out = Message::default();
    out.text(1, value.get("swagger"));
    let mut info = Message::default();
    info.text(1, value.pointer("/info/title"));
    info.text(2, value.pointer("/info/version"));
    out.message(2, info);
    let mut paths = Message::default();
    for (path, item) in value.get("paths").into_iter().flat_map(fields) {
        paths.named(2, path, path_item(item));
    }
    out.message(8, paths);
    let mut definitions = Message::default();
    for (name, definition) in value.get("definitions").into_iter().flat_map(fields) {
        definitions.named(1, name, schema(definition));
    }
    out.message(9, definitions);
    out.0
}

fn path_item(item: &Value) -> Message {
    let mut out = Message::default();
    for (field, method) in [(2, "get"), (3, "put"), (4, "post"), (5, "delete"), (8, "patch")] {
        if let Some(value) = item.get(method) {
            out.message(field, operation(value));
        }
    }
    out
}

fn operation(value: &Value) -> Message {
    let mut out = Message::default();
    for given in items(value, "parameters") {
        let (mut item, mut parameter) = (Message::default(), Message::default());
        let mut inner = Message::default();
        if given["in"] == "body" {
            inner.text(2, given.get("name"));
            inner.text(3, given.get("in"));
            inner.number(4, given.get("required"));
            inner.message(5, schema(&given["schema"]));
            parameter.message(1, inner);
        } else {
            inner.text(2, given.get("in"));
            inner.text(4, given.get("name"));
            inner.text(6, given.get("type"));
            inner.number(20, given.get("uniqueItems"));
            let mut plain = Message::default();
            plain.message(3, inner);
            parameter.message(2, plain);
        }
        item.message(1, parameter);
        out.message(8, item);
    }
    let mut responses = Message::default();
    for (code, given) in value.get("responses").into_iter().flat_map(fields) {
        let (mut choice, mut response) = (Message::default(), Message::default());
        response.text(1, given.get("description"));
        if let Some(given) = given.get("schema") {
            let mut item = Message::default();
            item.message(1, schema(given));
            response.message(2, item);
        }
        choice.message(1, response);
        responses.named(1, code, choice);
    }
    out.message(9, responses);
    out.extensions(13, value);
    out
}

fn schema(value: &Value) -> Message {
    let mut out = Message::default();
    for (field, key) in [(1, "$ref"), (2, "format"), (3, "title"), (4, "description"), (13, "pattern")] {
        out.text(field, value.get(key));
    }
    if let Some(default) = value.get("default") {
        out.any(5, default);
    }
    for (field, key) in [(6, "multipleOf"), (7, "maximum"), (9, "minimum")] {
        out.double(field, value.get(key));
    }
    for (field, key) in [
        (8, "exclusiveMaximum"),
        (10, "exclusiveMinimum"),
        (11, "maxLength"),
        (12, "minLength"),
        (14, "maxItems"),
        (15, "minItems"),
        (16, "uniqueItems"),
        (17, "maxProperties"),
        (18, "minProperties"),
    ] {
        out.number(field, value.get(key));
    }
    for name in items(value, "required") {
        out.text(19, Some(name));
    }
    for one in items(value, "enum") {
        out.any(20, one);
    }
    match value.get("additionalProperties") {
        Some(Value::Bool(allowed)) => {
            let mut item = Message::default();
            item.varint(2 << 3 | VARINT);
            item.varint(u64::from(*allowed));
            out.message(21, item);
        }
        Some(inner) => {
            let mut item = Message::default();
            item.message(1, schema(inner));
            out.message(21, item);
        }
        None => {}
    }
    if let Some(kind) = value.get("type") {
        let mut item = Message::default();
        item.text(1, Some(kind));
        out.message(22, item);
    }
    if let Some(inner) = value.get("items") {
        let mut item = Message::default();
        item.message(1, schema(inner));
        out.message(23, item);
    }
    for one in items(value, "allOf") {
        out.message(24, schema(one));
    }
    if let Some(given) = value.get("properties") {
        let mut properties = Message::default();
        for (name, inner) in fields(given) {
            properties.named(1, name, schema(inner));
        }
        out.message(25, properties);
    }
    out.extensions(31, value);
    out
}
