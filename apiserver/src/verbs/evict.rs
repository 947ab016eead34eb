//! POST of an Eviction: a delete that asks the disruption budgets first.
//!
//! Absent on purpose: the status of budgets (see `admission::budgets`).

use crate::verbs::bind::{bound, check_named, mutate, set_condition, validate};
use crate::verbs::removal::{Options, delete_object, seconds};
use crate::verbs::{body, read};
use axum::body::Body;
use fleet_apiserver_admission::call::Call;
use fleet_apiserver_admission::{self as admission, budgets};
use fleet_apiserver_ground::store::{Refused, Write};
use fleet_apiserver_ground::tree;
use fleet_apiserver_schema::error::{ApiError, ApiResult, Cause};
use fleet_apiserver_schema::http_io;
use fleet_apiserver_schema::resource::Resource;
use http::{Response, StatusCode};
use serde_json::{Value, json};

/// What a pod that several budgets select is told.
const SEVERAL: &str = "This pod has more than one PodDisruptionBudget";

/// How the pod is to be deleted.
fn options(call: &Call, eviction: &Value) -> ApiResult<Options> {
    let sent = eviction.get("deleteOptions").unwrap_or(&Value::Null);
    const UNREADABLE: &str = "ignoreStoreReadErrorWithClusterBreakingPotential";
    if sent.get(UNREADABLE) == Some(&Value::Bool(true)) {
        let why = "can not be set for pod eviction, try after removing the option";
        let cause = Cause::invalid(format!("deleteOptions.{UNREADABLE}"), &Value::Bool(true), why);
        return Err(ApiError::invalid("policy", "Eviction", &call.name, vec![cause]));
    }
    let inside: Vec<&str> = tree::list(sent, &["dryRun"]).iter().filter_map(Value::as_str).collect();
    let outside: Vec<&str> = call.params.all("dryRun").collect();
    if !inside.is_empty() && !outside.is_empty() && inside != outside {
        let why = format!(
            "Non-matching dry-run options in request and content: [{}] and [{}]",
            outside.join(" "),
            inside.join(" ")
        );
        return Err(ApiError::internal("", why));
    }
    Ok(Options {
        grace: seconds(sent, "gracePeriodSeconds")?,
        propagation: tree::text(sent, &["propagationPolicy"]).to_string(),
        uid: tree::text(sent, &["preconditions", "uid"]).to_string(),
        version: tree::text(sent, &["preconditions", "resourceVersion"]).to_string(),
        dry_run: call.dry_run() || !inside.is_empty(),
        ..Options::default()
    })
}

/// Evicts the pod of the call.
pub async fn evict(call: &mut Call, sent: &[u8]) -> ApiResult<Response<Body>> {
    let (mut eviction, _) = body::decode_body(call, sent)?;
    mutate(call, &mut eviction, "policy/v1", "Eviction").await?;
    check_named(call, &eviction, "Eviction")?;
    let mut o = options(call, &eviction)?;
    validate(call, &eviction).await?;
    let pod = read::current(call).await?;
    admission::nodes::restrict_eviction(call, &pod)?;
    match budgets::take(&call.core, &call.core.budgets, &call.namespace, &pod, o.dry_run).await {
        Err(e) if e.message().starts_with(SEVERAL) => return Ok(several(&e)),
        taken => taken?,
    }
    if !o.dry_run {
        mark(call, &mut o).await?;
    }
    let entry = call.entry.clone();
    delete_object(&call.core, &entry.resource, &entry.table, &call.key(&call.name), &o).await?;
    Ok(bound(call, &pod))
}

/// A real server answers so with the code of an action that worked; what is wrong stands in the body alone.
fn several(e: &ApiError) -> Response<Body> {
    let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": e.message(), "code": 500});
    http_io::value_response(StatusCode::CREATED, &status)
}

/// The pod says why it goes, before it does.
async fn mark(call: &Call, o: &mut Options) -> ApiResult<()> {
    loop {
        let old = read::current(call).await?;
        check_preconditions(call, o, &old.meta_text("uid"), &old.rv.to_string())?;
        let mut new = old.full();
        let condition = json!({"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI",
            "message": "Eviction API: evicting"});
        set_condition(&mut new, condition, &call.core.clock.stamp());
        if old.at(&["status"]).as_ref() == new.get("status") {
            return Ok(());
        }
        let write = Write::Update { table: call.entry.table.clone(), prev: old, value: new };
        match call.core.store.commit_to_free(vec![write]) {
            Ok(objs) => {
                if let Some(now) = objs.first().filter(|_| !o.version.is_empty()) {
                    o.version = now.rv.to_string();
                }
                return Ok(());
            }
            Err(Refused::Changed(_)) => {}
            Err(e) => return Err(e.into()),
        }
    }
}

fn check_preconditions(call: &Call, o: &Options, uid: &str, version: &str) -> ApiResult<()> {
    // As of a delete, these are told under the kind's own name.
    let by_kind = Resource { plural: "Pod".into(), ..Resource::default() };
    for (what, wanted, found, why) in [
        ("UID", &o.uid, uid, "deleted and then recreated"),
        ("ResourceVersion", &o.version, version, "modified"),
    ] {
        if !wanted.is_empty() && wanted != found {
            let why = format!(
                "the {what} in the precondition ({wanted}) does not match the {what} in record ({found}). The object might have been {why}"
            );
            return Err(ApiError::conflict(&by_kind, &call.name, &why));
        }
    }
    Ok(())
}
