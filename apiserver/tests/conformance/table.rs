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

#[track_caller]
fn named(answer: &crate::api::Answer, change: &Value, reason: &str, field: &str) {
    assert_eq!((answer.code, answer.reason()), (422, "Invalid"), "{change}\n{}", answer.text);
    let reason = format!("FieldValue{reason}");
    let wanted = (reason.as_str(), field);
    assert!(answer.causes().contains(&wanted), "{change}\nwanted {wanted:?}, found {:?}", answer.causes());
    let details = &answer.body["details"];
    assert!(details["kind"].is_string() && details["causes"][0]["message"].is_string(), "{}", answer.text);
}

/// The base is accepted; each change of it is refused. Nothing is stored.
pub async fn new_objects(api: &Api, path: &str, base: &Value, cases: &[Case]) {
    let path = format!("{path}?dryRun=All");
    api.post(&path, base.clone()).await.expect(201);
    for (change, reason, field) in cases {
        let answer = api.post(&path, merged(base, change)).await;
        named(&answer, change, reason, field);
    }
}

/// Each change of the base is accepted.
pub async fn accepted(api: &Api, path: &str, base: &Value, changes: &[Value]) {
    for change in changes {
        let answer = api.post(&format!("{path}?dryRun=All"), merged(base, change)).await;
        assert_eq!(answer.code, 201, "{change}\n{}", answer.text);
    }
}

/// The base is stored; each change of it is refused, and those that are let through change what is there.
pub async fn changes(api: &Api, path: &str, base: &Value, refused: &[Case], let_through: &[Value]) {
    let name = base["metadata"]["name"].as_str().expect("a name").to_string();
    api.post(path, base.clone()).await.expect(201);
    let at = format!("{path}/{name}");
    for (change, reason, field) in refused {
        let answer = api.patch(&at, "merge", change.clone()).await;
        named(&answer, change, reason, field);
    }
    for change in let_through {
        let before = api.get(&at).await.rv();
        let answer = api.patch(&at, "merge", change.clone()).await;
        assert_eq!(answer.code, 200, "{change}\n{}", answer.text);
        assert_ne!(answer.rv(), before, "{change} changed nothing");
    }
}
