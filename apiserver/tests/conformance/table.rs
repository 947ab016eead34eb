//! Tables of checks: an object that is accepted, and changes of it that are refused, each with its cause.
//!
//! Facts are those of Kubernetes 1.36; `APISERVER_URL` shows what a real server says to the same tables.

use crate::api::{Answer, Api};
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
fn wrong(answer: &Answer, change: &Value, reason: &str, field: &str) -> Option<String> {
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

/// What Kubernetes says of a text that is no label, which is a part of a domain name.
pub const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
/// What it says of one that is no domain name.
pub const SUBDOMAIN: &str = r"a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";

/// The answer is a refusal that tells these causes and no others, in this order: fields, and messages. An ellipsis at the end
/// of one stands for more.
#[track_caller]
pub fn tells(answer: &Answer, causes: &[&str]) {
    let list = answer.body["details"]["causes"].as_array().cloned().unwrap_or_default();
    let text = |cause: &Value, key: &str| cause[key].as_str().unwrap_or_default().to_string();
    let found: Vec<String> =
        list.iter().map(|cause| format!("{}: {}", text(cause, "field"), text(cause, "message"))).collect();
    let alike = |found: &str, want: &str| match want.strip_suffix('…') {
        Some(start) => found.starts_with(start),
        None => found == want,
    };
    let all = found.len() == causes.len() && found.iter().zip(causes).all(|(found, want)| alike(found, want));
    assert!(all && answer.code == 422, "found {found:#?}\nwanted {causes:#?}\n{}", answer.text);
}

/// Each object is refused for these causes. Nothing is stored.
pub async fn refused(api: &Api, path: &str, cases: &[(Value, &[&str])]) {
    for (object, causes) in cases {
        tells(&api.post(&format!("{path}?dryRun=All"), object.clone()).await, causes);
    }
}

/// Each change, a merge patch, is refused for these causes.
pub async fn kept(api: &Api, at: &str, cases: &[(Value, &[&str])]) {
    for (change, causes) in cases {
        tells(&api.patch(at, "merge", change.clone()).await, causes);
    }
}
