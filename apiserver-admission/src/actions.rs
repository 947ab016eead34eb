//! What is done to an object, and is none itself: bindings, evictions, requests for tokens, options of streams.
//!
//! Inputs: what is sent, with its kind. Absent on purpose: what it leads to.

use fleet_apiserver_ground::tree;
use fleet_apiserver_schema::{Schema, decode};
use serde_json::Value;

/// Where a typed decoder finds the fields of those that are sent as bodies.
const BODIES: [(&str, &str, &str); 3] = [
    ("v1", "Binding", "api.core.v1.Binding"),
    ("policy/v1", "Eviction", "api.policy.v1.Eviction"),
    ("authentication.k8s.io/v1", "TokenRequest", "api.authentication.v1.TokenRequest"),
];

/// The fields of options that come as parameters.
const OPTIONS: [(&str, &[&str]); 6] = [
    ("PodExecOptions", &["stdin", "stdout", "stderr", "tty", "container", "command"]),
    ("PodAttachOptions", &["stdin", "stdout", "stderr", "tty", "container"]),
    ("PodPortForwardOptions", &["ports"]),
    ("PodProxyOptions", &["path"]),
    ("ServiceProxyOptions", &["path"]),
    ("NodeProxyOptions", &["path"]),
];

fn identity(sent: &Value) -> (&str, &str) {
    (tree::text(sent, &["apiVersion"]), tree::text(sent, &["kind"]))
}

/// The schema by which fields are merged into one. A real server knows only that of bindings.
///
/// # Errors
/// There is none, as it is told of a policy.
pub fn merged_by(sent: &Value) -> Result<Schema, String> {
    let (version, kind) = identity(sent);
    if (version, kind) == ("v1", "Binding") {
        return Ok(Schema::builtin(BODIES[0].2));
    }
    let group = if version.contains('/') { "" } else { "/" };
    Err(format!("no corresponding type for {group}{version}, Kind={kind}"))
}

/// Why a typed decoder does not take what a policy made of one, or None.
pub fn problem(sent: &mut Value) -> Option<String> {
    let strict = |field: &str| format!("strict decoding error: unknown field {field:?}");
    let (version, kind) = identity(sent);
    let body = BODIES.iter().find(|(v, k, _)| (*v, *k) == (version, kind));
    if let Some((_, _, schema)) = body {
        let mut report = decode::Report::default();
        decode::builtin(&Schema::builtin(schema), sent, &mut report);
        let mismatched = report.mismatched.into_iter().next();
        return mismatched.or_else(|| report.unknown.first().map(|field| strict(field.as_str())));
    }
    let (_, fields) = OPTIONS.iter().find(|(k, _)| *k == kind)?;
    let known = |key: &str| matches!(key, "apiVersion" | "kind") || fields.contains(&key);
    let unknown = sent.as_object()?.keys().find(|key| !known(key))?;
    Some(strict(unknown))
}

#[cfg(test)]
mod tests;
