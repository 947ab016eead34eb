//! Admission: webhooks and policies that may change or refuse a write.
//!
//! Inputs: one write, in the stored form, and the registrations in the store. Without registrations it costs next
//! to nothing. Absent on purpose: MutatingAdmissionPolicies, audit annotations.

use crate::access::auth;
use crate::admission::core::Call;
use crate::ground::store::{Store, Table};
use crate::ground::tree;
use crate::kinds::scale;
use crate::schema::error::ApiResult;
use crate::schema::registry::{Entry, Resource};
use crate::schema::{convert, patch};
use arc_swap::ArcSwapOption;
use serde_json::{Value, json};
use std::sync::Arc;

pub mod budgets;
pub mod core;
mod hook;
mod limits;
pub mod plugins;
pub mod pod_security;
mod policy;
mod remote;
pub mod resource_quota;

use hook::Hook;
use policy::Policy;

pub use crate::kinds::registration::GROUP;
const PLURALS: [&str; 4] = [
    "mutatingwebhookconfigurations",
    "validatingwebhookconfigurations",
    "validatingadmissionpolicies",
    "validatingadmissionpolicybindings",
];

/// What kind of write it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// POST, or an apply that creates.
    Create,
    /// PUT and PATCH.
    Update,
    /// DELETE.
    Delete,
}

impl Operation {
    /// As rules and reviews write it.
    pub fn name(self) -> &'static str {
        match self {
            Operation::Create => "CREATE",
            Operation::Update => "UPDATE",
            Operation::Delete => "DELETE",
        }
    }

    fn options(self) -> &'static str {
        match self {
            Operation::Create => "CreateOptions",
            Operation::Update => "UpdateOptions",
            Operation::Delete => "DeleteOptions",
        }
    }
}

struct Compiled {
    state: u64,
    mutating: Vec<Hook>,
    validating: Vec<Hook>,
    policies: Vec<Policy>,
}

/// The registrations of a server, compiled when they change.
pub struct Admission {
    tables: [Arc<Table>; 4],
    compiled: ArcSwapOption<Compiled>,
}

impl Admission {
    /// Follows the registrations of this store.
    pub fn new(store: &Store) -> Admission {
        let tables = PLURALS.map(|p| store.table(&format!("{GROUP}/{p}")));
        Admission { tables, compiled: ArcSwapOption::empty() }
    }

    /// True when a mutating webhook is registered.
    pub fn mutates(&self) -> bool {
        !self.tables[0].is_empty()
    }

    /// True when nothing is registered.
    pub fn is_idle(&self) -> bool {
        self.tables.iter().all(|t| t.is_empty())
    }

    fn current(&self) -> Option<Arc<Compiled>> {
        if self.is_idle() {
            return None;
        }
        let state = self.tables.iter().map(|t| t.last()).max().unwrap_or(0);
        if let Some(known) = self.compiled.load_full().filter(|c| c.state == state) {
            return Some(known);
        }
        let [mutating, validating, policies, bindings] = &self.tables;
        let compiled = Arc::new(Compiled {
            state,
            mutating: mutating.objects().iter().flat_map(|o| Hook::compile_all(&o.value())).collect(),
            validating: validating.objects().iter().flat_map(|o| Hook::compile_all(&o.value())).collect(),
            policies: Policy::compile_all(&policies.objects(), &bindings.objects()),
        });
        self.compiled.store(Some(compiled.clone()));
        Some(compiled)
    }
}

/// One write under review.
pub struct Review<'a> {
    call: &'a Call,
    operation: Operation,
    name: String,
    old: Option<&'a Value>,
    new: Option<&'a Value>,
}

impl Review<'_> {
    /// The resource written to.
    fn resource(&self) -> &Resource {
        self.call.resource()
    }

    /// The namespace the write is in, as stored; None for cluster scope.
    fn namespace(&self) -> Option<Value> {
        let name = self.call.namespace.as_str();
        if name.is_empty() {
            return None;
        }
        self.call.core.namespaces.get(name).map(|ns| ns.value())
    }

    /// `AdmissionRequest`, with the objects in the version of `seen`.
    fn request(&self, seen: &Entry) -> Value {
        let (asked, seen) = (self.resource(), &*seen.resource);
        let scaling = self.call.subresource == "scale";
        let kind = |r: &Resource| match scaling {
            true => json!({"group": "autoscaling", "version": "v1", "kind": "Scale"}),
            false => json!({"group": r.group, "version": r.version, "kind": r.kind}),
        };
        let plural = |r: &Resource| json!({"group": r.group, "version": r.version, "resource": r.plural});
        let object = |value: Option<&Value>| {
            let mut value = value.cloned().unwrap_or(Value::Null);
            if value.is_object() && scaling {
                value = scale::of(asked, &value).unwrap_or(Value::Null);
            } else if value.is_object() {
                convert::to_served(seen, &mut value);
            }
            value
        };
        let options = json!({"apiVersion": "meta.k8s.io/v1", "kind": self.operation.options()});
        let mut request = json!({
            "uid": self.call.core.ids.uuid().to_string(),
            "kind": kind(seen), "resource": plural(seen), "requestKind": kind(asked), "requestResource": plural(asked),
            "name": self.name, "operation": self.operation.name(), "userInfo": auth::info(&self.call.user),
            "object": object(self.new), "oldObject": object(self.old),
            "dryRun": self.call.dry_run(), "options": options,
        });
        if !self.call.namespace.is_empty() {
            request["namespace"] = json!(self.call.namespace);
        }
        if !self.call.subresource.is_empty() {
            request["subResource"] = json!(self.call.subresource);
            request["requestSubResource"] = json!(self.call.subresource);
        }
        request
    }
}

fn exempt(call: &Call) -> bool {
    !call.resource().custom && call.resource().group == GROUP
}

/// Lets the mutating webhooks change an object. True when one did.
pub async fn mutate(
    call: &mut Call,
    operation: Operation,
    name: &str,
    old: Option<&Value>,
    new: Option<&mut Value>,
) -> ApiResult<bool> {
    let Some(compiled) = call.core.admission.current().filter(|c| !c.mutating.is_empty()) else {
        return Ok(false);
    };
    if exempt(call) {
        return Ok(false);
    }
    let mut nothing = Value::Null;
    let gone = new.is_none();
    let object = new.unwrap_or(&mut nothing);
    let (mut changed_by, mut called) = (None, Vec::new());
    for (i, hook) in compiled.mutating.iter().enumerate() {
        if run(call, operation, name, old, (!gone).then_some(&mut *object), hook).await? {
            changed_by = Some(i);
            called.push(i);
        } else if hook.reinvoke {
            called.push(i);
        }
    }
    let Some(last) = changed_by else { return Ok(false) };
    // Those that asked for it see what later ones changed, once.
    for i in called.into_iter().filter(|i| *i < last && compiled.mutating[*i].reinvoke) {
        run(call, operation, name, old, (!gone).then_some(&mut *object), &compiled.mutating[i]).await?;
    }
    Ok(true)
}

async fn run(
    call: &mut Call,
    operation: Operation,
    name: &str,
    old: Option<&Value>,
    new: Option<&mut Value>,
    hook: &Hook,
) -> ApiResult<bool> {
    let review = Review { call, operation, name: name.to_string(), old, new: new.as_deref() };
    let Some(answer) = hook.ask(&review).await? else { return Ok(false) };
    let resource = answer.seen.resource.clone();
    call.warnings.extend(answer.warnings);
    let (Some(document), Some(object)) = (answer.patch, new) else { return Ok(false) };
    let before = object.clone();
    let mut served = before.clone();
    convert::to_served(&resource, &mut served);
    patch::json_patch(&mut served, document)
        .map_err(|e| hook.broken(&format!("its patch does not apply: {}", e.message())))?;
    convert::to_stored(&resource, &mut served);
    // What identifies an object is not a webhook's to change.
    for key in ["apiVersion", "kind"] {
        tree::put(tree::object(&mut served), key, before.get(key).cloned());
    }
    for key in ["name", "namespace", "uid", "resourceVersion"] {
        let kept = tree::at(&before, &["metadata", key]).cloned();
        tree::put(tree::meta(&mut served), key, kept);
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
        let review = Review { call, operation, name: name.to_string(), old, new };
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
