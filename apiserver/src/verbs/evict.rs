//! POST of an Eviction: a delete that asks the disruption budgets first.
//!
//! Absent on purpose: the status of budgets (see `admission::budgets`).

use crate::verbs::bind::{bound, check_named, stale};
use crate::verbs::removal::{Options, delete_object, seconds};
use crate::verbs::{body, read};
use axum::body::Body;
use fleet_apiserver_admission::budgets;
use fleet_apiserver_admission::call::Call;
use fleet_apiserver_ground::tree;
use fleet_apiserver_schema::error::ApiResult;
use http::Response;
use serde_json::Value;

/// Evicts the pod of the call.
pub async fn evict(call: &mut Call, sent: &[u8]) -> ApiResult<Response<Body>> {
    let (eviction, _) = body::decode_body(call, sent)?;
    check_named(call, &eviction, "Eviction")?;
    let pod = read::current(call).await?;
    let o = Options {
        grace: seconds(eviction.get("deleteOptions").unwrap_or(&Value::Null), "gracePeriodSeconds")?,
        uid: tree::text(&eviction, &["deleteOptions", "preconditions", "uid"]).to_string(),
        dry_run: call.dry_run() || !tree::list(&eviction, &["deleteOptions", "dryRun"]).is_empty(),
        ..Options::default()
    };
    let wanted = tree::at(&eviction, &["deleteOptions", "preconditions", "uid"]).and_then(Value::as_str);
    if let Some(wanted) = wanted.filter(|w| *w != pod.meta_text("uid")) {
        return Err(stale(call, "UID", wanted, &pod.meta_text("uid")));
    }
    budgets::take(&call.core, &call.core.budgets, &call.namespace, &pod, o.dry_run).await?;
    let entry = call.entry.clone();
    delete_object(&call.core, &entry.resource, &entry.table, &call.key(&call.name), &o).await?;
    Ok(bound(call, &pod))
}
