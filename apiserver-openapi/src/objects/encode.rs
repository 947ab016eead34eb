//! Objects as protobuf: the counterpart of the decoder, by the same table.
//!
//! What an object does not have is not written: readers take it for zero.

use super::{Card, table};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};

/// An object in the envelope of Kubernetes; None for a kind without a message, such as a custom resource.
pub fn encode(value: &Value) -> Option<Vec<u8>> {
    let text = |key: &str| value.get(key).and_then(Value::as_str).unwrap_or_default();
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    let name = super::message_name(api_version, kind);
    if !table().contains_key(name.as_str()) {
        return None;
    }
    let raw = message(&name, value.as_object()?);
    let mut of = Vec::new();
    bytes(1, api_version.as_bytes(), &mut of);
    bytes(2, kind.as_bytes(), &mut of);
    let mut out = b"k8s\0".to_vec();
    bytes(1, &of, &mut out);
    bytes(2, &raw, &mut out);
    // Encoding and type of what is inside: plain.
    bytes(3, b"", &mut out);
    bytes(4, b"", &mut out);
    Some(out)
}

fn varint(mut n: u64, out: &mut Vec<u8>) {
    while n >= 0x80 {
        out.push((n & 0x7f) as u8 | 0x80);
        n >>= 7;
    }
    out.push(n as u8);
}

fn number(tag: u64, n: i64, out: &mut Vec<u8>) {
    varint(tag << 3, out);
    // Negative numbers take ten bytes, as the format has it.
    varint(n as u64, out);
}

fn bytes(tag: u64, content: &[u8], out: &mut Vec<u8>) {
    varint(tag << 3 | 2, out);
    varint(content.len() as u64, out);
    out.extend_from_slice(content);
}

fn message(name: &str, map: &Map<String, Value>) -> Vec<u8> {
    let mut out = Vec::new();
    for field in table().get(name).into_iter().flatten() {
        if field.name.is_empty() {
            // Its fields stand among ours.
            let inner = message(&field.kind, map);
            if !inner.is_empty() {
                bytes(field.tag, &inner, &mut out);
            }
            continue;
        }
        match (field.card, map.get(&*field.name)) {
            (_, None | Some(Value::Null)) => {}
            (Card::List, Some(Value::Array(items))) => {
                items.iter().for_each(|item| scalar(&field.kind, field.tag, item, &mut out));
            }
            (Card::Map, Some(Value::Object(entries))) => {
                for (key, value) in entries {
                    let mut entry = Vec::new();
                    bytes(1, key.as_bytes(), &mut entry);
                    scalar(&field.kind, 2, value, &mut entry);
                    bytes(field.tag, &entry, &mut out);
                }
            }
            (_, Some(value)) => scalar(&field.kind, field.tag, value, &mut out),
        }
    }
    out
}

fn scalar(kind: &str, tag: u64, value: &Value, out: &mut Vec<u8>) {
    match (kind, value) {
        ("string", Value::String(text)) => bytes(tag, text.as_bytes(), out),
        ("bytes", Value::String(text)) => bytes(tag, &STANDARD.decode(text).unwrap_or_default(), out),
        ("bool", Value::Bool(b)) => number(tag, i64::from(*b), out),
        ("double", value) => {
            varint(tag << 3 | 1, out);
            out.extend_from_slice(&value.as_f64().unwrap_or_default().to_le_bytes());
        }
        (name, value) if name.contains('.') => bytes(tag, &nested(name, value), out),
        (_, Value::Number(n)) => number(tag, n.as_i64().unwrap_or_default(), out),
        _ => {}
    }
}

/// A message; some stand for a value of another form.
fn nested(name: &str, value: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    match (name.rsplit('.').next().unwrap_or_default(), value) {
        ("Time" | "MicroTime", Value::String(text)) => {
            if let Ok(time) = text.parse::<jiff::Timestamp>() {
                number(1, time.as_second(), &mut out);
                number(2, i64::from(time.subsec_nanosecond()), &mut out);
            }
        }
        ("Quantity", Value::String(text)) => bytes(1, text.as_bytes(), &mut out),
        ("Quantity", value) => bytes(1, value.to_string().as_bytes(), &mut out),
        ("IntOrString", Value::String(text)) => {
            number(1, 1, &mut out);
            number(2, 0, &mut out);
            bytes(3, text.as_bytes(), &mut out);
        }
        ("IntOrString", value) => {
            number(1, 0, &mut out);
            number(2, value.as_i64().unwrap_or_default(), &mut out);
            bytes(3, b"", &mut out);
        }
        ("RawExtension" | "JSON" | "FieldsV1", value) => bytes(1, value.to_string().as_bytes(), &mut out),
        ("JSONSchemaPropsOrBool", Value::Bool(b)) => number(1, i64::from(*b), &mut out),
        ("JSONSchemaPropsOrBool", value) => {
            number(1, 1, &mut out);
            wrapped(name, "schema", value, &mut out);
        }
        ("JSONSchemaPropsOrArray", value) => wrapped(name, "schema", value, &mut out),
        ("ExtraValue" | "Verbs", Value::Array(items)) => {
            items.iter().for_each(|item| scalar("string", 1, item, &mut out));
        }
        (_, Value::Object(map)) => out = message(name, map),
        _ => {}
    }
    out
}

/// A value as the field of this name of a message.
fn wrapped(name: &str, field: &str, value: &Value, out: &mut Vec<u8>) {
    let fields = table().get(name).into_iter().flatten();
    for known in fields.filter(|known| known.name.trim_end_matches('_') == field) {
        scalar(&known.kind, known.tag, value, out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_written_is_read_again() {
        for object in [
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "labels": {"a": "b"},
                "creationTimestamp": "2026-01-02T03:04:05Z", "generation": 3,
                "managedFields": [{"manager": "m", "fieldsV1": {"f:spec": {"f:x": {}}}}]},
                "spec": {"containers": [{"name": "c", "image": "i", "resources": {"limits": {"cpu": "250m"}},
                    "ports": [{"containerPort": 80}], "securityContext": {"runAsNonRoot": false, "runAsUser": 0},
                    "livenessProbe": {"httpGet": {"port": "web", "path": "/"}, "periodSeconds": 5},
                    "env": [{"name": "E", "valueFrom": {"configMapKeyRef": {"name": "m", "key": "k"}}}]}],
                    "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}],
                    "terminationGracePeriodSeconds": 0, "priority": -5}, "status": {}}),
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "data": {"k": "aGVsbG8="}}),
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": {"replicas": 0,
                "selector": {"matchLabels": {"a": "b"}}, "strategy": {"rollingUpdate": {"maxSurge": "25%", "maxUnavailable": 1}},
                "template": {"metadata": {}, "spec": {"containers": []}}}, "status": {}}),
            json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "x"},
                "spec": {"group": "g", "names": {"plural": "p", "kind": "K"}, "scope": "Cluster", "versions": [{"name": "v1",
                    "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object",
                    "properties": {"a": {"type": "array", "items": {"type": "string", "default": "x"}},
                        "b": {"type": "object", "additionalProperties": {"type": "number", "maximum": 1.5}}}}}}]},
                "status": {"acceptedNames": {"plural": "p", "kind": "K"}}}),
        ] {
            let written = encode(&object).expect("a message");
            let mut read = super::super::decode(&written).expect("an envelope");
            let mut wanted = object.clone();
            for value in [&mut read, &mut wanted] {
                fleet_apiserver_schema::canonical::complete(value);
            }
            assert_eq!(read, wanted);
        }
        assert_eq!(encode(&json!({"apiVersion": "x.dev/v1", "kind": "Thing"})), None);
    }
}
