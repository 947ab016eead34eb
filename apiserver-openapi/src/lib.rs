//! OpenAPI v3 and v2: what kubectl needs to validate and to explain; and objects in protobuf.
//!
//! Inputs: the registry and the schemas. Absent on purpose: descriptions of built-in kinds.

mod etag;
pub mod objects;
mod protobuf;
mod v2;

pub use etag::etagged;
pub use v2::swagger;

use axum::body::Body;
use fleet_apiserver_admission::call::Core;
use fleet_apiserver_schema as schema;
use fleet_apiserver_schema::error::ApiResult;
use fleet_apiserver_schema::http_io;
use fleet_apiserver_schema::registry::Registry;
use fleet_apiserver_schema::resource::Resource;
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

fn hash(core: &Core, api_version: &str) -> String {
    let registry = core.registry.load();
    let mut text = format!("{api_version} {}", core.git_version);
    for e in registry.all().iter().filter(|e| e.resource.custom && e.resource.api_version() == api_version) {
        text.push_str(&format!(" {} {}", e.resource.kind, e.resource.crd_revision));
    }
    fleet_apiserver_ground::digest::hex(&fleet_apiserver_ground::digest::sha256(text.as_bytes()))
        .to_uppercase()
}

fn path_of(api_version: &str) -> String {
    if api_version.contains('/') { format!("apis/{api_version}") } else { format!("api/{api_version}") }
}

/// The index of documents.
pub fn index(core: &Core) -> ApiResult<Response<Body>> {
    let mut paths = Map::new();
    for v in core.registry.load().api_versions() {
        let path = path_of(&v);
        let url = format!("/openapi/v3/{path}?hash={}", hash(core, &v));
        paths.insert(path, json!({"serverRelativeURL": url}));
    }
    Ok(http_io::value_response(StatusCode::OK, &json!({"paths": paths})))
}

/// One document, or None for an unknown group version.
pub fn document(core: &Core, path: &str, headers: &HeaderMap) -> Option<Response<Body>> {
    let api_version = path.strip_prefix("apis/").or_else(|| path.strip_prefix("api/"))?;
    let registry = core.registry.load();
    if !registry.serves(api_version) {
        return None;
    }
    let body = build(core, &registry, api_version).to_string().into_bytes();
    let mut response = etagged(body, headers);
    let h = response.headers_mut();
    h.insert(header::CACHE_CONTROL, HeaderValue::from_static("public, immutable"));
    h.insert(header::EXPIRES, HeaderValue::from_static("Fri, 01 Jan 2100 00:00:00 GMT"));
    Some(response)
}

/// The schema of a custom resource, from its CRD.
fn given(core: &Core, r: &Resource) -> Option<Value> {
    let crd = core.store.table("apiextensions.k8s.io/customresourcedefinitions").get(&r.qualified())?;
    let versions = crd.list(&["spec", "versions"]);
    let mine = versions.iter().find(|v| fleet_apiserver_ground::tree::text(v, &["name"]) == r.version)?;
    fleet_apiserver_ground::tree::at(mine, &["schema", "openAPIV3Schema"]).cloned()
}

fn build(core: &Core, registry: &Registry, api_version: &str) -> Value {
    let artefact = schema::artefact();
    let empty = Map::new();
    let defs = artefact.get("defs").and_then(Value::as_object).unwrap_or(&empty);
    let mut schemas = Map::new();
    let mut wanted: BTreeSet<String> = BTreeSet::new();
    let mut paths = Map::new();
    for e in registry.all().iter().filter(|e| e.resource.api_version() == api_version) {
        let r = &*e.resource;
        let gvk = json!({"group": r.group, "version": r.version, "kind": r.kind});
        let name = definition_name(r);
        if r.custom {
            let mut root = given(core, r).unwrap_or_else(|| json!({"type": "object"}));
            let props = fleet_apiserver_ground::tree::child(&mut root, "properties");
            props.insert("apiVersion".into(), json!({"type": "string"}));
            props.insert("kind".into(), json!({"type": "string"}));
            let meta = format!("io.k8s.{}", schema::OBJECT_META);
            props.insert(
                "metadata".into(),
                json!({"allOf": [{"$ref": format!("#/components/schemas/{meta}")}]}),
            );
            root["x-kubernetes-group-version-kind"] = json!([gvk]);
            schemas.insert(name.clone(), root);
            wanted.insert(schema::OBJECT_META.to_string());
        } else {
            wanted.insert(fleet_apiserver_schema::builtins::definition(&r.group, &r.version, &r.kind));
        }
        paths.extend(operations(r, &gvk, &name));
    }
    // Follow references until nothing new turns up.
    while let Some(name) = wanted.pop_first() {
        let full = format!("io.k8s.{name}");
        if schemas.contains_key(&full) {
            continue;
        }
        let Some(def) = defs.get(&name) else { continue };
        schemas.insert(full, translate(def, &mut wanted));
    }
    json!({"openapi": "3.0.0", "info": {"title": "Kubernetes", "version": "v1.36.0"}, "paths": paths,
        "components": {"schemas": schemas}})
}

fn definition_name(r: &Resource) -> String {
    if r.custom {
        let mut parts: Vec<&str> = r.group.split('.').collect();
        parts.reverse();
        format!("{}.{}.{}", parts.join("."), r.version, r.kind)
    } else {
        format!("io.k8s.{}", fleet_apiserver_schema::builtins::definition(&r.group, &r.version, &r.kind))
    }
}

fn translate(node: &Value, wanted: &mut BTreeSet<String>) -> Value {
    match node {
        Value::Object(map) => {
            let mut out = Map::new();
            for (k, v) in map {
                match (k.as_str(), v.as_str()) {
                    ("$ref", Some(name)) => {
                        wanted.insert(name.to_string());
                        let target = json!({"$ref": format!("#/components/schemas/io.k8s.{name}")});
                        out.insert("allOf".into(), json!([target]));
                    }
                    ("type", Some("quantity")) => {
                        out.insert("oneOf".into(), json!([{"type": "string"}, {"type": "number"}]));
                    }
                    _ => {
                        out.insert(k.clone(), translate(v, wanted));
                    }
                }
            }
            Value::Object(out)
        }
        Value::Array(list) => Value::Array(list.iter().map(|v| translate(v, wanted)).collect()),
        other => other.clone(),
    }
}

fn operations(r: &Resource, gvk: &Value, definition: &str) -> Map<String, Value> {
    let query =
        |name: &str| json!({"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": true}});
    let common = json!([query("dryRun"), query("fieldManager"), query("fieldValidation")]);
    let body = json!({"content": {"application/json": {"schema": {"$ref": format!("#/components/schemas/{definition}")}}}});
    let op = |action: &str| {
        json!({"x-kubernetes-action": action, "x-kubernetes-group-version-kind": gvk, "parameters": common,
            "responses": {"200": {"description": "OK", "content": body["content"]}}})
    };
    let mut base = format!("/{}", path_of(&r.api_version()));
    if r.namespaced {
        base.push_str("/namespaces/{namespace}");
    }
    let collection = format!("{base}/{}", r.plural);
    let mut post = op("post");
    post["requestBody"] = body.clone();
    let mut out = Map::new();
    if r.create_only {
        out.insert(collection, json!({"post": post}));
        return out;
    }
    let mut put = op("put");
    put["requestBody"] = body.clone();
    let item = json!({"get": op("get"), "put": put, "patch": op("patch"), "delete": op("delete")});
    out.insert(format!("{collection}/{{name}}"), item);
    out.insert(collection, json!({"get": op("list"), "post": post}));
    out
}
