//! Checks of policies that change objects, and of their bindings.

use super::matching::{Asked, expression};
use super::policies::{Variables, bound, frame};
use fleet_apiserver_cel::rules::{Known, Wanted};
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
    let known = frame(spec, Variables::Always, operations);
    let mutations = spec.at("mutations");
    if mutations.is_empty() {
        mutations.required("mutations must contain at least one item");
    }
    mutations.items().for_each(|mutation| self::mutation(&mutation, &known));
    spec.at("reinvocationPolicy").need_one_of(&["IfNeeded", "Never"]);
}

fn mutation(mutation: &At, known: &Known) {
    let found = mutation.at("patchType");
    found.need_one_of(&KINDS.map(|(kind, ..)| kind));
    let Some((kind, field, wanted)) = KINDS.iter().find(|(kind, ..)| *kind == found.text()) else { return };
    let given = mutation.at(field);
    if given.is_set() {
        let judged = given.at("expression");
        expression(&judged, judged.text().trim(), Asked { known, wanted: *wanted, missing: "" });
    } else {
        given.required(&format!("must be specified when patchType is {kind}"));
    }
    for (_, other, _) in KINDS.iter().filter(|(other, ..)| other != kind) {
        let given = mutation.at(other);
        if given.is_set() {
            let why = format!("must not be specified when patchType is {kind}");
            given.note(Cause::invalid(given.path(), &json!(format!("{{{other}}}")), &why));
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
