//! The compiled schema of a custom resource, shared by all servers of a process.
//!
//! Input: an OpenAPI v3 schema of one version of a CRD. Parsing its rules is most of the cost of opening a server,
//! and the servers of one fleet mostly serve the same CRDs. Absent on purpose: state of a single server.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;

use crate::schema::Schema;
use crate::{schema_defaults, schema_rules, structural};
use fleet_apiserver_cel::cause::Cause;
use fleet_apiserver_cel::rules::{self, Rules};
use fleet_apiserver_ground::digest;

/// Schemas kept for the next server. When the cache is full, all are dropped.
const MOST_KEPT: usize = 256;

/// A schema that may be served.
#[derive(Debug)]
pub struct Compiled {
    /// For decoding, defaults and values.
    pub schema: Arc<Schema>,
    /// Its validation rules, where it has any.
    pub rules: Option<Arc<Rules>>,
}

/// By SHA-256 of the schema as JSON.
static KEPT: Mutex<BTreeMap<[u8; 32], Arc<Compiled>>> = Mutex::new(BTreeMap::new());

fn compile(openapi: &Value) -> Compiled {
    Compiled { schema: Arc::new(Schema::compile_root(openapi)), rules: Rules::compile(openapi).map(Arc::new) }
}

/// The compiled form of a schema that was found sound when its definition was admitted.
pub fn compiled(openapi: &Value) -> Arc<Compiled> {
    let known = KEPT.lock().unwrap_or_else(PoisonError::into_inner).get(&digest(openapi)).cloned();
    known.unwrap_or_else(|| Arc::new(compile(openapi)))
}

/// Why a schema cannot be served, each cause with its path below `field`; empty for a valid one.
pub fn check(openapi: &Value, field: &str) -> Vec<Cause> {
    let digest = digest(openapi);
    if KEPT.lock().unwrap_or_else(PoisonError::into_inner).contains_key(&digest) {
        return Vec::new();
    }
    let mut causes = Vec::new();
    let unreadable = structural::unreadable(openapi);
    if unreadable.is_none() {
        structural::check(openapi, field, &mut causes);
        if causes.is_empty() {
            schema_defaults::check(openapi, field, &mut causes);
        }
    }
    schema_rules::check(openapi, field, &mut causes);
    // Mostly told above already, where it stands.
    if let Some(why) = unreadable.filter(|_| causes.is_empty()) {
        causes.push(Cause::invalid(field, &Value::String(String::new()), &why));
    }
    // Rules are looked at on sound schemas only: what they say of broken ones helps nobody.
    if causes.is_empty() {
        causes = rules::problems(openapi, field);
    }
    if causes.is_empty() {
        let compiled = Arc::new(compile(openapi));
        let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() >= MOST_KEPT {
            kept.clear();
        }
        kept.insert(digest, compiled);
    }
    causes
}

fn digest(openapi: &Value) -> [u8; 32] {
    digest::sha256(openapi.to_string().as_bytes())
}

#[cfg(test)]
mod tests;
