//! Checks of policies that change objects, and of their bindings.

use super::{
    Scope, bound_params, expression, known, match_conditions, one_of, policy_shape, rules, undeclared,
};
use fleet_apiserver_cel::rules::Wanted;
use fleet_apiserver_ground::tree;
use fleet_apiserver_schema::error::Cause;
use serde_json::{Value, json};

/// The two kinds of a mutation: its type, its field, and what its expression comes to.
const KINDS: [(&str, &str, Wanted); 2] = [
    ("ApplyConfiguration", "applyConfiguration", Wanted::Object),
    ("JSONPatch", "jsonPatch", Wanted::Patches),
];

/// Checks the spec of a policy.
pub fn policy(spec: &Value, causes: &mut Vec<Cause>) {
    one_of(spec, "failurePolicy", &["Fail", "Ignore"], "spec", causes);
    let constraints = spec.get("matchConstraints").filter(|found| found.is_object());
    match constraints {
        None => causes.push(Cause::required("spec.matchConstraints", "")),
        Some(constraints) => {
            rules(constraints, "resourceRules", "spec.matchConstraints", causes);
            operations(constraints, "spec.matchConstraints", causes);
        }
    }
    // Without constraints it is told already that they are missing.
    let before = causes.len();
    policy_shape(spec, causes);
    if constraints.is_none() {
        let kept = causes.split_off(before);
        causes.extend(kept.into_iter().filter(|c| c.field != "spec.matchConstraints.resourceRules"));
    }
    let (variables, conditions) = known(spec);
    match_conditions(spec, "spec", &conditions, causes);
    for (i, variable) in tree::list(spec, &["variables"]).iter().enumerate() {
        let scope = Scope { variables: &variables, wanted: Wanted::Any, required: true };
        expression(variable, "expression", scope, &format!("spec.variables[{i}]"), causes);
    }
    let mutations = tree::list(spec, &["mutations"]);
    if mutations.is_empty() {
        causes.push(Cause::required("spec.mutations", "mutations must contain at least one item"));
    }
    let declared: Vec<&str> =
        tree::list(spec, &["variables"]).iter().map(|variable| tree::text(variable, &["name"])).collect();
    for (i, mutation) in mutations.iter().enumerate() {
        self::mutation(mutation, &variables, &declared, &format!("spec.mutations[{i}]"), causes);
    }
    match tree::text(spec, &["reinvocationPolicy"]) {
        "" => causes.push(Cause::required("spec.reinvocationPolicy", "")),
        _ => one_of(spec, "reinvocationPolicy", &["IfNeeded", "Never"], "spec", causes),
    }
}

fn mutation(mutation: &Value, variables: &[&str], declared: &[&str], at: &str, causes: &mut Vec<Cause>) {
    let found = tree::text(mutation, &["patchType"]);
    if found.is_empty() {
        causes.push(Cause::required(format!("{at}.patchType"), ""));
        return;
    }
    if !KINDS.iter().any(|(kind, ..)| *kind == found) {
        one_of(mutation, "patchType", &["ApplyConfiguration", "JSONPatch"], at, causes);
        return;
    }
    for (kind, field, wanted) in KINDS {
        let given = mutation.get(field).filter(|given| !given.is_null());
        let below = format!("{at}.{field}");
        match given {
            None if kind == found => {
                causes.push(Cause::required(below, &format!("must be specified when patchType is {kind}")));
            }
            Some(given) if kind == found => {
                let scope = Scope { variables, wanted, required: true };
                expression(given, "expression", scope, &below, causes);
                undeclared(given, "expression", declared, &below, causes);
            }
            Some(_) => {
                let why = format!("must not be specified when patchType is {found}");
                causes.push(Cause::invalid(below, &json!(format!("{{{field}}}")), &why));
            }
            None => {}
        }
    }
}

/// Only what is written can be changed, and what is deleted is not.
fn operations(constraints: &Value, at: &str, causes: &mut Vec<Cause>) {
    for rule in tree::list(constraints, &["resourceRules"]) {
        for operation in tree::list(rule, &["operations"]).iter().filter(|operation| *operation == "DELETE") {
            let message = format!(
                "Unsupported value: {operation}: supported values: \"*\", \"CONNECT\", \"CREATE\", \"UPDATE\""
            );
            causes.push(Cause::new(
                "FieldValueNotSupported",
                format!("{at}.resourceRules.operations"),
                message,
            ));
        }
    }
}

/// Checks a binding.
pub fn binding(value: &Value, causes: &mut Vec<Cause>) {
    if tree::text(value, &["spec", "policyName"]).is_empty() {
        causes.push(Cause::required("spec.policyName", ""));
    }
    bound_params(value, causes);
    if let Some(constraints) = tree::at(value, &["spec", "matchResources"]).filter(|found| found.is_object())
    {
        rules(constraints, "resourceRules", "spec.matchResources", causes);
        operations(constraints, "spec.matchResources", causes);
    }
}
