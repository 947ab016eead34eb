//! Conversion of custom resources between versions by webhooks.
//!
//! Inputs: objects, the resource in the version they are wanted in, and the `clientConfig` of their definition. Absent
//! on purpose: when an object has to be converted.

use super::remote::Remote;
use dashmap::DashMap;
use fleet_apiserver_ground::tree;
use fleet_apiserver_schema::base::Base;
use fleet_apiserver_schema::decode;
use fleet_apiserver_schema::error::{ApiError, ApiResult};
use fleet_apiserver_schema::resource::Resource;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// How long a webhook may take, as in Kubernetes.
const WITHIN: Duration = Duration::from_secs(30);

/// The webhooks that were called, by the name of the definition and its revision.
#[derive(Default)]
pub struct Conversions(DashMap<String, (u64, Arc<Remote>)>);

impl Conversions {
    fn remote(&self, r: &Resource, config: &Value) -> Arc<Remote> {
        let name = r.qualified();
        if let Some(known) = self.0.get(&name).filter(|known| known.0 == r.crd_revision) {
            return known.1.clone();
        }
        let remote = Arc::new(Remote::new(config, WITHIN));
        self.0.insert(name, (r.crd_revision, remote.clone()));
        remote
    }

    /// Brings objects into a version of their kind. Those that have it already stay as they are.
    ///
    /// # Errors
    /// 500 with what the webhook said, or why it could not be asked.
    pub async fn convert(
        &self,
        base: &Base,
        r: &Resource,
        wanted: &str,
        objects: Vec<&mut Value>,
    ) -> ApiResult<()> {
        let Some(config) = &r.webhook else { return Ok(()) };
        let other = |object: &&mut Value| tree::text(object, &["apiVersion"]) != wanted;
        let mut objects: Vec<&mut Value> = objects.into_iter().filter(other).collect();
        let Some(first) = objects.first() else { return Ok(()) };
        let from = tree::text(first, &["apiVersion"]).to_string();
        let failed = |why: &str| {
            let of = format!("{from}, Kind={}", r.kind);
            Err(ApiError::internal("", format!("conversion webhook for {of} failed: {why}")))
        };
        let uid = base.ids.uuid().to_string();
        let sent: Vec<&Value> = objects.iter().map(|object| &**object).collect();
        let review = json!({"kind": "ConversionReview", "apiVersion": "apiextensions.k8s.io/v1",
            "request": {"uid": uid, "desiredAPIVersion": wanted, "objects": sent}});
        let answer = match self.remote(r, config).post(base, &review).await {
            Ok(answer) => answer,
            Err(why) => return failed(&why),
        };
        let response = answer.get("response").cloned().unwrap_or_default();
        if tree::text(&response, &["uid"]) != uid {
            let found = tree::text(&response, &["uid"]);
            return failed(&format!("expected response.uid={uid:?}, got {found:?}"));
        }
        if tree::text(&response, &["result", "status"]) != "Success" {
            let why = match tree::text(&response, &["result", "message"]) {
                "" => "response.result.status was not Success",
                message => message,
            };
            return failed(why);
        }
        let converted = tree::list(&response, &["convertedObjects"]);
        if converted.len() != objects.len() {
            let (found, count) = (converted.len(), objects.len());
            return failed(&format!("returned {found} objects, expected {count}"));
        }
        for (i, (object, converted)) in objects.iter_mut().zip(converted).enumerate() {
            if let Err(why) = take(object, converted, wanted, r) {
                return failed(&format!("returned invalid converted object at index {i}: {why}"));
            }
        }
        Ok(())
    }
}

/// Takes what a webhook made of an object, but for what identifies it.
fn take(object: &mut Value, converted: &Value, wanted: &str, r: &Resource) -> Result<(), String> {
    let found = tree::text(converted, &["apiVersion"]);
    if found != wanted {
        return Err(format!("invalid groupVersion (expected {wanted}, received {found})"));
    }
    if tree::text(converted, &["kind"]) != r.kind {
        return Err(format!(
            "invalid kind (expected {}, received {})",
            r.kind,
            tree::text(converted, &["kind"])
        ));
    }
    for key in ["name", "namespace", "uid"] {
        let (before, after) = (tree::meta_text(object, key), tree::meta_text(converted, key));
        if before != after {
            return Err(format!("must have the same {key}: {before} != {after}"));
        }
    }
    // Of the metadata only labels and annotations are the webhook's.
    let mut meta = object.get("metadata").cloned().unwrap_or_else(|| json!({}));
    for key in ["labels", "annotations"] {
        tree::put(tree::object(&mut meta), key, tree::at(converted, &["metadata", key]).cloned());
    }
    *object = converted.clone();
    tree::object(object).insert("metadata".into(), meta);
    if r.api_version() == wanted {
        decode::prune(&r.schema, object);
        decode::defaults(&r.schema, object);
    }
    Ok(())
}
