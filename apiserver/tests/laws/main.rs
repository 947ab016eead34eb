//! Laws of patches, server-side apply, lists and watches under random objects and writes, each against a slow oracle
//! written here. They speak HTTPS only and can run against another server, see `conformance/api.rs`.

#[path = "../conformance/api.rs"]
mod api;
mod apply;
mod patches;
mod watch;

use api::{Api, random};
use proptest::test_runner::Config as ProptestConfig;
use serde_json::{Value, json};
use std::sync::OnceLock;
use tokio::runtime::Runtime;

/// Settings of each law: `FLEET_LAW_CASES` cases, 32 when it is not set.
fn cases() -> ProptestConfig {
    let cases = std::env::var("FLEET_LAW_CASES").ok().and_then(|v| v.parse().ok()).unwrap_or(32);
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

/// One server for all cases of this program's process.
fn server() -> &'static (Runtime, Api) {
    static SERVER: OnceLock<(Runtime, Api)> = OnceLock::new();
    SERVER.get_or_init(|| {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime");
        let api = runtime.block_on(Api::new());
        (runtime, api)
    })
}

/// Runs one case.
fn run<T>(case: impl AsyncFnOnce(&Api) -> T) -> T {
    let (runtime, api) = server();
    runtime.block_on(case(api))
}

/// The collection of a kind with every shape of list and map, made on first use.
fn things() -> &'static str {
    static PATH: OnceLock<String> = OnceLock::new();
    PATH.get_or_init(|| {
        let text = json!({"type": "string"});
        let item = json!({"type": "object", "required": ["name"],
            "properties": {"name": text, "v": text, "w": text}});
        let spec = json!({"type": "object", "properties": {
            "a": text, "b": {"type": "integer"},
            "o": {"type": "object", "properties": {"x": text, "y": text}},
            "f": {"type": "object", "additionalProperties": text},
            "m": {"type": "array", "items": item, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
            "s": {"type": "array", "items": text, "x-kubernetes-list-type": "set"},
            "t": {"type": "array", "items": text, "x-kubernetes-list-type": "atomic"},
            "q": {"type": "object", "additionalProperties": text, "x-kubernetes-map-type": "atomic"}}});
        let free = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        let schema = json!({"openAPIV3Schema": {"type": "object", "properties": {"spec": spec, "free": free}}});
        let versions = json!([{"name": "v1", "served": true, "storage": true, "schema": schema}]);
        run(async |api| {
            let group = api.crd("things", "Thing", versions).await;
            api.group(&format!("{group}/v1"), "things")
        })
    })
}

/// A Thing of the collection, with a name of its own.
fn thing(name: &str, part: &str, value: &Value) -> Value {
    let group = things().split('/').nth(2).expect("a group");
    json!({"apiVersion": format!("{group}/v1"), "kind": "Thing", "metadata": {"name": name}, part: value})
}

fn fresh() -> String {
    random("x")
}
