//! Checks of policies that change objects, and of their bindings.

use super::matching::{Scope, expression};
use super::policies::{bound, frame, known, undeclared};
use fleet_apiserver_cel::rules::Wanted;
use fleet_apiserver_schema::error::Cause;
use fleet_apiserver_schema::field::At;
use serde_json::json;

/// The two kinds of a mutation: its type, its field, and what its expression comes to.
const KINDS: [(&str, &str, Wanted); 2] = [
    ("ApplyConfiguration", "applyConfiguration", Wanted::Object),
    ("JSONPatch", "jsonPatch", Wanted::Patches),
];

/// Checks the spec of a policy.
pub fn policy(spec: &At) {
    let declared = frame(spec);
    operations(&spec.at("matchConstraints"));
    let (variables, _) = known(spec);
    let mutations = spec.at("mutations");
    if mutations.is_empty() {
        mutations.required("mutations must contain at least one item");
    }
    mutations.items().for_each(|mutation| self::mutation(&mutation, &variables, &declared));
    spec.at("reinvocationPolicy").need_one_of(&["IfNeeded", "Never"]);
}

fn mutation(mutation: &At, variables: &[&str], declared: &[&str]) {
    let found = mutation.at("patchType");
    found.need_one_of(&KINDS.map(|(kind, ..)| kind));
    if !KINDS.iter().any(|(kind, ..)| *kind == found.text()) {
        return;
    }
    for (kind, field, wanted) in KINDS {
        let given = mutation.at(field);
        match (kind == found.text(), given.is_set()) {
            (true, false) => given.required(&format!("must be specified when patchType is {kind}")),
            (true, true) => {
                let judged = given.at("expression");
                expression(&judged, Scope { variables, wanted, required: Some("") });
                undeclared(&judged, declared);
            }
            (false, true) => {
                let why = format!("must not be specified when patchType is {}", found.text());
                given.note(Cause::invalid(given.path(), &json!(format!("{{{field}}}")), &why));
            }
            (false, false) => {}
        }
    }
}

/// Only what is written can be changed, and what is deleted is not.
fn operations(constraints: &At) {
    const SUPPORTED: &str = "supported values: \"*\", \"CONNECT\", \"CREATE\", \"UPDATE\"";
    for rule in constraints.at("resourceRules").items() {
        for operation in rule.at("operations").items() {
            let text = operation.text();
            if !matches!(text, "*" | "CONNECT" | "CREATE" | "UPDATE") {
                let message = format!("Unsupported value: {text:?}: {SUPPORTED}");
                let field = format!("{}.resourceRules.operations", constraints.path());
                constraints.note(Cause::new("FieldValueNotSupported", field, message));
            }
        }
    }
}

/// Checks the spec of a binding.
pub fn binding(spec: &At) {
    bound(spec);
    operations(&spec.at("matchResources"));
}
