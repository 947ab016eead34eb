//! MutatingAdmissionPolicies with their bindings.
//!
//! Inputs: compiled policies, and one write in the stored form. Each mutation sees what those before it made of the
//! object. Absent on purpose: webhooks, and the order among both (see `mutate`).

use super::actions;
use super::form::{keep_identity, keep_kind, renormalize};
use super::frame::Frame;
use super::hook::{Condition, variables};
use super::review::Review;
use fleet_apiserver_cel::expression::{self, Expression};
use fleet_apiserver_ground::store::Obj;
use fleet_apiserver_ground::tree;
use fleet_apiserver_ownership::merge;
use fleet_apiserver_schema::error::{ApiError, ApiResult};
use fleet_apiserver_schema::patch::Rejected;
use fleet_apiserver_schema::registry::ServedResource;
use fleet_apiserver_schema::{Schema, convert, decode, patch};
use serde_json::Value;
use std::collections::BTreeSet;
use std::sync::Arc;

/// What an expression says.
enum Says {
    /// The fields of an `Object`, which are merged.
    Fields,
    /// A JSON patch.
    Patch,
}

/// One policy with its bindings.
pub struct Mutation {
    frame: Frame,
    steps: Vec<(Says, Result<Expression, String>)>,
    /// Wants to see what was changed after it.
    reinvoke: bool,
}

/// Which policies have run: by policy, binding and parameter.
type Turn = (usize, usize, String);

/// What the policies did.
#[derive(Default)]
pub struct Ran {
    /// One of them had something to say, even if the object had it already.
    pub spoke: bool,
    /// The object is another one now.
    pub changed: bool,
    again: BTreeSet<Turn>,
}

/// Why a mutation failed.
enum Failed {
    /// By the policy, which says whether it matters.
    Policy(String),
    /// Whatever the policy says.
    Whole(ApiError),
}

impl From<String> for Failed {
    fn from(why: String) -> Failed {
        Failed::Policy(why)
    }
}

/// Messages of policies that failed, with the reason of the first.
#[derive(Default)]
struct Failures {
    reason: Option<&'static str>,
    messages: Vec<String>,
}

impl Failures {
    fn add(&mut self, frame: &Frame, binding: &str, reason: &'static str, why: &str) {
        if frame.fails {
            self.reason.get_or_insert(reason);
            let policy = &frame.name;
            self.messages.push(format!("policy '{policy}' with binding '{binding}' denied request: {why}"));
        }
    }
}

/// Lets all policies change an object. `after`: only those that ran then and asked to see what was changed since.
///
/// # Errors
/// One could not be judged, and its policy says that this matters.
pub fn run(all: &[Mutation], write: &Review<'_>, object: &mut Value, after: Option<&Ran>) -> ApiResult<Ran> {
    let mut ran = Ran::default();
    let mut failures = Failures::default();
    for (i, mutation) in all.iter().enumerate() {
        let review = with(write, object);
        let Some(seen) = mutation.frame.sees(&review) else { continue };
        for (j, binding) in mutation.frame.bindings.iter().enumerate() {
            let review = with(write, object);
            if !mutation.frame.binds(binding, &review) {
                continue;
            }
            let params = match mutation.frame.params(&review, binding) {
                Ok(params) => params,
                Err(why) => {
                    let why = format!("failed to configure binding: {why}");
                    failures.add(&mutation.frame, &binding.name, "Forbidden", &why);
                    continue;
                }
            };
            for param in params {
                let key =
                    format!("{}/{}", tree::meta_text(&param, "namespace"), tree::meta_text(&param, "name"));
                let turn = (i, j, key);
                if after.is_some_and(|before| !before.again.contains(&turn)) {
                    continue;
                }
                if let Some(why) = mutation.turn(write, &seen, &param, object, &mut ran)? {
                    failures.add(&mutation.frame, &binding.name, "Invalid", &why);
                }
                if mutation.reinvoke {
                    ran.again.insert(turn);
                }
            }
        }
    }
    match failures.reason {
        None => Ok(ran),
        Some(reason) => {
            Err(ApiError::by_mutations(write.resource(), &write.name, reason, &failures.messages))
        }
    }
}

/// The write as a policy sees it while the object is this one.
fn with<'o>(write: &Review<'o>, object: &'o Value) -> Review<'o> {
    Review { new: Some(object), ..write.clone() }
}

impl Mutation {
    /// All policies that are bound.
    pub fn compile_all(policies: &[Arc<Obj>], bindings: &[Arc<Obj>]) -> Vec<Mutation> {
        let compiled = policies.iter().map(|p| Mutation::compile(&p.value(), bindings));
        compiled.filter(|p| !p.frame.bindings.is_empty()).collect()
    }

    fn compile(policy: &Value, bindings: &[Arc<Obj>]) -> Mutation {
        let step = |v: &Value| {
            let (says, field) = match tree::text(v, &["patchType"]) {
                "JSONPatch" => (Says::Patch, "jsonPatch"),
                _ => (Says::Fields, "applyConfiguration"),
            };
            (says, Expression::compile(tree::text(v, &[field, "expression"])))
        };
        Mutation {
            frame: Frame::compile(policy, bindings),
            steps: tree::list(policy, &["spec", "mutations"]).iter().map(step).collect(),
            reinvoke: tree::text(policy, &["spec", "reinvocationPolicy"]) == "IfNeeded",
        }
    }

    /// Changes an object with one parameter; the result is why a step of it failed.
    fn turn(
        &self,
        write: &Review<'_>,
        seen: &ServedResource,
        param: &Value,
        object: &mut Value,
        ran: &mut Ran,
    ) -> ApiResult<Option<String>> {
        let mut scope = {
            let review = with(write, object);
            variables(&review, &review.request(seen))
        };
        scope.put("params", param);
        match self.frame.conditions(&scope) {
            Condition::Met => {}
            Condition::NotMet => return Ok(None),
            Condition::Broken(why) => return Ok(Some(why)),
        }
        let mut failed = None;
        for (says, expression) in &self.steps {
            let changed = match self.step(write, seen, param, object, (says, expression)) {
                Ok(changed) => changed,
                Err(Failed::Whole(why)) => return Err(why),
                Err(Failed::Policy(why)) => {
                    failed.get_or_insert(why);
                    continue;
                }
            };
            ran.spoke = true;
            ran.changed |= changed != *object;
            *object = changed;
        }
        Ok(failed)
    }

    /// What one step makes of an object.
    fn step(
        &self,
        write: &Review<'_>,
        seen: &ServedResource,
        param: &Value,
        object: &Value,
        (says, expression): (&Says, &Result<Expression, String>),
    ) -> Result<Value, Failed> {
        let request = with(write, object).request(seen);
        let review = with(write, object);
        let mut scope = variables(&review, &request);
        scope.put("params", param);
        self.frame.declare(&mut scope);
        let expression = expression.as_ref().map_err(Clone::clone)?;
        let value = expression
            .value(&scope)
            .map_err(|why| format!("expression '{}' resulted in error: {why}", expression.text))?;
        let resource = &seen.resource;
        let mut served = request.get("object").cloned().unwrap_or_default();
        let acts = write.is_action();
        match says {
            Says::Fields => {
                let mut config = expression::applied(&value)?;
                let map = tree::object(&mut config);
                for key in ["apiVersion", "kind"] {
                    tree::put(map, key, served.get(key).cloned());
                }
                if acts {
                    let schema = actions::merged_by(&served).map_err(|why| format!("{NOT_TYPED}: {why}"))?;
                    merged(&schema, false, &mut served, config)?;
                } else {
                    merged(&resource.schema, resource.custom, &mut served, config)?;
                }
            }
            Says::Patch => patched(&mut served, expression::patch(&value)?)?,
        }
        if acts {
            keep_kind(object, &mut served);
            return match actions::problem(&mut served) {
                Some(why) => Err(unreadable(&why)),
                None => Ok(served),
            };
        }
        convert::to_stored(resource, &mut served);
        keep_identity(object, &mut served);
        let report = renormalize(write.base, write.resource(), &mut served);
        if matches!(says, Says::Fields) {
            return Ok(served);
        }
        // What is wrong in a custom resource is for its schema to say.
        if let Some(why) = report.mismatched.first().filter(|_| !resource.custom) {
            return Err(unreadable(why));
        }
        match report.unknown.first() {
            Some(field) => Err(unreadable(&format!("strict decoding error: unknown field {field:?}"))),
            None => Ok(served),
        }
    }
}

/// What a policy made cannot be read as an object of its kind, which is told as a failure of the server.
fn unreadable(why: &str) -> Failed {
    Failed::Whole(ApiError::internal("InternalError", format!("Internal error occurred: {why}")))
}

/// Applies a JSON patch.
fn patched(served: &mut Value, document: Value) -> Result<(), Failed> {
    let before = served.clone();
    match patch::try_json_patch(served, document) {
        Ok(()) => Ok(()),
        // A test that does not hold makes the patch none.
        Err(Rejected::Test) => {
            *served = before;
            Ok(())
        }
        Err(Rejected::Other(why)) => Err(format!("JSON Patch: {}", why.message()).into()),
    }
}

/// Merges the fields of a configuration into an object of this schema.
fn merged(schema: &Schema, custom: bool, served: &mut Value, mut config: Value) -> Result<(), Failed> {
    typed(schema, custom, &mut config)?;
    let mut atomic = Vec::new();
    merge::atomics(schema, &config, &mut String::new(), &mut atomic);
    if !atomic.is_empty() {
        let why =
            "error applying patch: invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs";
        return Err(format!("{why}: {}", atomic.join(", ")).into());
    }
    merge::merge(Some(schema), served, config);
    Ok(())
}

/// How the refusal of a configuration that is not one of the kind begins.
const NOT_TYPED: &str = "error applying patch: failed to convert patch object to typed object";

/// A configuration has the fields and the types of its kind.
fn typed(schema: &Schema, custom: bool, config: &mut Value) -> Result<(), String> {
    let mut report = decode::Report::default();
    if custom {
        decode::custom(schema, config, &mut report);
    } else {
        decode::builtin(schema, config, &mut report);
    }
    if let Some(field) = report.unknown.first() {
        return Err(format!("{NOT_TYPED}: .{field}: field not declared in schema"));
    }
    report.mismatched.first().map_or(Ok(()), |why| Err(format!("{NOT_TYPED}: {why}")))
}
