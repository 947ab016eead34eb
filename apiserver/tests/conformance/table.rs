//! Tables of checks: an object that is accepted, and changes of it that are refused, each with its cause.
//!
//! Facts are those of Kubernetes 1.36; `APISERVER_URL` shows what a real server says to the same tables.

use crate::api::Api;
use serde_json::{Map, Value};

/// A change (as a merge patch), the reason of the cause it is refused for, and the field that is named.
pub type Case = (Value, &'static str, &'static str);

/// RFC 7386.
pub fn merged(base: &Value, patch: &Value) -> Value {
    let Value::Object(changes) = patch else { return patch.clone() };
    let mut out = base.as_object().cloned().unwrap_or_else(Map::new);
    for (key, change) in changes {
        if change.is_null() {
            out.remove(key);
        } else {
            let before = out.get(key).cloned().unwrap_or_default();
            out.insert(key.clone(), merged(&before, change));
        }
    }
    Value::Object(out)
}

/// What is wrong with the answer to a change that should be refused.
fn wrong(answer: &crate::api::Answer, change: &Value, reason: &str, field: &str) -> Option<String> {
    let reason = format!("FieldValue{reason}");
    let details = &answer.body["details"];
    let told = details["kind"].is_string() && details["causes"][0]["message"].is_string();
    let refused = (answer.code, answer.reason()) == (422, "Invalid");
    if refused && told && answer.causes().contains(&(reason.as_str(), field)) {
        return None;
    }
    Some(format!(
        "{change}\n  wanted {reason} {field}\n  found {} {} {:?}",
        answer.code,
        answer.message(),
        answer.causes()
    ))
}

#[track_caller]
fn none(wrong: &[String]) {
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}

/// The base is accepted; each change of it is refused. Nothing is stored.
pub async fn new_objects(api: &Api, path: &str, base: &Value, cases: &[Case]) {
    let path = format!("{path}?dryRun=All");
    api.post(&path, base.clone()).await.expect(201);
    let mut found = Vec::new();
    for (change, reason, field) in cases {
        let answer = api.post(&path, merged(base, change)).await;
        found.extend(wrong(&answer, change, reason, field));
    }
    none(&found);
}

/// Each change of the base is accepted.
pub async fn accepted(api: &Api, path: &str, base: &Value, changes: &[Value]) {
    let mut found = Vec::new();
    for change in changes {
        let answer = api.post(&format!("{path}?dryRun=All"), merged(base, change)).await;
        if answer.code != 201 {
            found.push(format!("{change}\n  {} {}", answer.code, answer.message()));
        }
    }
    none(&found);
}

/// The base is stored; each change of it is refused, and those that are let through change what is there.
pub async fn changes(api: &Api, path: &str, base: &Value, refused: &[Case], let_through: &[Value]) {
    let name = base["metadata"]["name"].as_str().expect("a name").to_string();
    api.post(path, base.clone()).await.expect(201);
    let at = format!("{path}/{name}");
    let mut found = Vec::new();
    for (change, reason, field) in refused {
        let answer = api.patch(&at, "merge", change.clone()).await;
        found.extend(wrong(&answer, change, reason, field));
    }
    for change in let_through {
        let before = api.get(&at).await.rv();
        let answer = api.patch(&at, "merge", change.clone()).await;
        if answer.code != 200 || answer.rv() == before {
            found.push(format!("{change}\n  {} {}", answer.code, answer.message()));
        }
    }
    none(&found);
}
