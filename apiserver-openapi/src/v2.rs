//! OpenAPI v2: the v3 documents, converted and merged into one.
//!
//! Inputs: the registry. Absent on purpose: what v2 cannot express (alternatives, null).

use super::{build, etagged, protobuf};

use axum::body::Body;
use fleet_apiserver_admission::call::Core;
use fleet_apiserver_schema::error::ApiResult;
use fleet_apiserver_schema::http_io;
use http::{HeaderMap, HeaderValue, Response, header};
use serde_json::{Map, Value, json};

/// Media type of the protobuf form.
const PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";

/// OpenAPI v2 of everything served, as JSON, or as protobuf, which Kubernetes clients request.
pub fn swagger(core: &Core, headers: &HeaderMap) -> ApiResult<Response<Body>> {
    let accept = headers.get(header::ACCEPT).and_then(|v| v.to_str().ok()).unwrap_or_default();
    let packed = accept.contains("com.github.proto-openapi.spec.v2");
    if !packed {
        http_io::negotiate(headers)?;
    }
    let registry = core.registry.load();
    let (mut definitions, mut paths) = (Map::new(), Map::new());
    for api_version in registry.api_versions() {
        let mut document = build(core, &registry, &api_version);
        let schemas = document.get_mut("components").and_then(|c| c.get_mut("schemas")).map(Value::take);
        if let Some(Value::Object(schemas)) = schemas {
            definitions.extend(schemas.into_iter().map(|(name, schema)| (name, older(schema))));
        }
        if let Some(Value::Object(found)) = document.get_mut("paths").map(Value::take) {
            paths.extend(found.into_iter().map(|(path, item)| (path, older_item(item))));
        }
    }
    let document = json!({"swagger": "2.0", "info": {"title": "Kubernetes", "version": core.git_version},
        "paths": paths, "definitions": definitions});
    if !packed {
        return Ok(etagged(document.to_string().into_bytes(), headers));
    }
    let mut response = etagged(protobuf::document(&document), headers);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(PROTOBUF));
    Ok(response)
}

/// Converts a schema to v2: references are elsewhere, and must be alone.
fn older(node: Value) -> Value {
    match node {
        Value::Object(map) => {
            let one = map.get("allOf").and_then(Value::as_array).filter(|l| l.len() == 1 && map.len() == 1);
            if let Some(reference) = one.and_then(|l| l.first()) {
                return older(reference.clone());
            }
            let mut out = Map::new();
            for (key, value) in map {
                match (key.as_str(), value) {
                    ("$ref", Value::String(target)) => {
                        out.insert(key, target.replace("#/components/schemas/", "#/definitions/").into());
                    }
                    // v2 knows neither; what they guard stays open.
                    ("oneOf" | "anyOf" | "not" | "nullable", _) => {}
                    (_, value) => {
                        out.insert(key, older(value));
                    }
                }
            }
            Value::Object(out)
        }
        Value::Array(list) => Value::Array(list.into_iter().map(older).collect()),
        other => other,
    }
}

/// The operations of a path: parameters have their type inline, and the body is one of them.
fn older_item(item: Value) -> Value {
    let Value::Object(operations) = item else { return item };
    let rewrite =
        |(method, mut operation): (String, Value)| {
            let content = |v: &Value| v.pointer("/content/application~1json/schema").cloned().map(older);
            let body = operation.get("requestBody").and_then(content);
            let answer = operation.pointer("/responses/200").and_then(content);
            let map = fleet_apiserver_ground::tree::object(&mut operation);
            map.remove("requestBody");
            let mut parameters: Vec<Value> = Vec::new();
            if let Some(Value::Array(known)) = map.remove("parameters") {
                parameters.extend(known.iter().map(
                    |p| json!({"name": p["name"], "in": p["in"], "type": "string", "uniqueItems": true}),
                ));
            }
            if let Some(schema) = body {
                parameters.push(json!({"name": "body", "in": "body", "required": true, "schema": schema}));
            }
            map.insert("parameters".into(), Value::Array(parameters));
            let mut ok = json!({"description": "OK"});
            if let Some(schema) = answer {
                ok["schema"] = schema;
            }
            map.insert("responses".into(), json!({"200": ok}));
            (method, operation)
        };
    Value::Object(operations.into_iter().map(rewrite).collect())
}
