//! Admission: webhooks and policies that may change or refuse a write.
//!
//! Inputs: one write, in the stored form, and the registrations in the store. Without registrations it costs next
//! to nothing. Absent on purpose: audit annotations.

use crate::access::accounts;
use crate::access::rbac::Question;
use crate::access::user::{AUTHENTICATED, User};
use crate::call::Call;
use fleet_apiserver_cel::{Ask, AuthorizationAttributes};
use fleet_apiserver_ground::tree;
use fleet_apiserver_schema::error::ApiResult;
use fleet_apiserver_schema::{convert, patch};
use serde_json::{Value, json};
use std::sync::Arc;

pub mod access;
mod actions;
pub mod budgets;
pub mod call;
mod certificates;
pub mod conversion;
pub mod devices;
pub mod form;
mod frame;
mod hook;
mod limits;
mod mutation;
pub mod nodes;
pub mod plugins;
pub mod pod_security;
mod policy;
pub mod protection;
pub mod registrations;
mod remote;
pub mod resource_quota;
pub mod review;
pub mod typing;

use fleet_apiserver_kinds::registration::GROUP;
use hook::Hook;
use mutation::Ran;
use review::Review;

pub use review::Operation;

fn review<'a>(
    call: &'a Call,
    operation: Operation,
    name: &str,
    old: Option<&'a Value>,
    new: Option<&'a Value>,
) -> Review<'a> {
    Review {
        base: &call.core,
        entry: &call.entry,
        subresource: &call.subresource,
        namespace: &call.namespace,
        user: &call.user,
        ask: ask(call),
        dry_run: call.dry_run(),
        operation,
        options: options(call, operation),
        name: name.to_string(),
        old,
        new,
    }
}

/// The options of a write as the caller gave them.
fn options(call: &Call, operation: Operation) -> Value {
    let Some(kind) = operation.options() else { return Value::Null };
    let mut out = json!({"apiVersion": "meta.k8s.io/v1", "kind": kind});
    let map = tree::object(&mut out);
    let texts: &[&str] = match operation {
        Operation::Delete => &["propagationPolicy"],
        _ => &["fieldManager", "fieldValidation"],
    };
    for key in texts.iter().filter(|key| !call.params.get(key).is_empty()) {
        map.insert((*key).into(), call.params.get(key).into());
    }
    if let (Operation::Delete, Ok(Some(seconds))) = (operation, call.params.number("gracePeriodSeconds")) {
        map.insert("gracePeriodSeconds".into(), seconds.into());
    }
    let dry_run: Vec<Value> = call.params.all("dryRun").map(Value::from).collect();
    if !dry_run.is_empty() {
        map.insert("dryRun".into(), dry_run.into());
    }
    out
}

/// What `authorizer` asks: about the caller, or about an account.
fn ask(call: &Call) -> Ask {
    let (core, caller) = (call.core.clone(), call.user.clone());
    Arc::new(move |asked: &AuthorizationAttributes| {
        let part = |key: &str| asked.get(key).cloned().unwrap_or_default();
        let account = asked.get("user").map(|name| {
            let mut groups = accounts::groups(&part("account"));
            groups.push(AUTHENTICATED.into());
            User { name: name.clone(), groups, ..User::default() }
        });
        let user = account.as_ref().unwrap_or(&caller);
        let q = Question {
            verb: part("verb"),
            group: part("group"),
            resource: part("resource"),
            subresource: part("subresource"),
            namespace: part("namespace"),
            name: part("name"),
            path: part("path"),
            selector: String::new(),
        };
        if core.auth.trusts(user) {
            return Some(String::new());
        }
        core.auth.reason(&core, user, &q).map(|reason| reason.to_string())
    })
}

fn exempt(call: &Call) -> bool {
    !call.resource().custom && call.resource().group == GROUP
}

/// Lets policies and mutating webhooks change an object. True when one did.
pub async fn mutate(
    call: &mut Call,
    operation: Operation,
    name: &str,
    old: Option<&Value>,
    new: Option<&mut Value>,
) -> ApiResult<bool> {
    let Some(compiled) = call.core.admission.current().filter(|c| c.mutates()) else { return Ok(false) };
    if exempt(call) {
        return Ok(false);
    }
    let mut nothing = Value::Null;
    let gone = new.is_none();
    let object = new.unwrap_or(&mut nothing);
    let by_policies = |call: &Call, object: &mut Value, after: Option<&Ran>| {
        if gone || compiled.mutations.is_empty() {
            return Ok(Ran::default());
        }
        let write = review(call, operation, name, old, None);
        mutation::run(&compiled.mutations, &write, object, after)
    };
    let first = by_policies(call, object, None)?;
    let (mut changed_by, mut called) = (None, Vec::new());
    for (i, hook) in compiled.mutating.iter().enumerate() {
        if run(call, operation, name, old, (!gone).then_some(&mut *object), hook).await? {
            changed_by = Some(i);
            called.push(i);
        } else if hook.reinvoke {
            called.push(i);
        }
    }
    if !first.spoke && changed_by.is_none() {
        return Ok(false);
    }
    // Those that asked for it see what later ones changed, once.
    let second = by_policies(call, object, Some(&first))?;
    let last = if second.changed { compiled.mutating.len() } else { changed_by.unwrap_or(0) };
    for i in called.into_iter().filter(|i| *i < last && compiled.mutating[*i].reinvoke) {
        run(call, operation, name, old, (!gone).then_some(&mut *object), &compiled.mutating[i]).await?;
    }
    Ok(first.changed || second.changed || changed_by.is_some())
}

async fn run(
    call: &mut Call,
    operation: Operation,
    name: &str,
    old: Option<&Value>,
    new: Option<&mut Value>,
    hook: &Hook,
) -> ApiResult<bool> {
    let review = review(call, operation, name, old, new.as_deref());
    let acts = review.is_action();
    let Some(answer) = hook.ask(&review).await? else { return Ok(false) };
    let resource = answer.seen.resource.clone();
    call.warnings.extend(answer.warnings);
    let (Some(document), Some(object)) = (answer.patch, new) else { return Ok(false) };
    let before = object.clone();
    let mut served = before.clone();
    if !acts {
        convert::to_served(&resource, &mut served);
    }
    patch::json_patch(&mut served, document)
        .map_err(|e| hook.broken(&format!("its patch does not apply: {}", e.message())))?;
    if acts {
        form::keep_kind(&before, &mut served);
    } else {
        convert::to_stored(&resource, &mut served);
        form::keep_identity(&before, &mut served);
    }
    let changed = served != before;
    *object = served;
    Ok(changed)
}

/// Asks the validating webhooks and policies.
pub async fn validate(
    call: &mut Call,
    operation: Operation,
    name: &str,
    old: Option<&Value>,
    new: Option<&Value>,
) -> ApiResult<()> {
    let Some(compiled) = call.core.admission.current() else { return Ok(()) };
    if exempt(call) {
        return Ok(());
    }
    let mut warnings = Vec::new();
    {
        let review = review(call, operation, name, old, new);
        for policy in &compiled.policies {
            policy.judge(&review, &mut warnings)?;
        }
        let asked = compiled.validating.iter().map(|hook| hook.ask(&review));
        for answer in futures::future::join_all(asked).await {
            warnings.extend(answer?.into_iter().flat_map(|a| a.warnings));
        }
    }
    call.warnings.extend(warnings);
    Ok(())
}
