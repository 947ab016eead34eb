//! What the policies that refuse and those that change have in common: parameters, variables, bindings.

use super::matching::{CONDITION, Scope, expression, match_conditions, match_resources};
use fleet_apiserver_cel::rules::Wanted;
use fleet_apiserver_schema::definition::label_problem;
use fleet_apiserver_schema::error::Cause;
use fleet_apiserver_schema::field::At;
use fleet_apiserver_schema::validate::{self, NameRule};
use serde_json::json;

/// Variables of the expressions of a policy; `params` only with a paramKind.
const VARIABLES: [&str; 6] = ["object", "oldObject", "request", "authorizer", "namespaceObject", "variables"];

/// Words of the language of expressions.
const RESERVED: [&str; 21] = [
    "true",
    "false",
    "null",
    "in",
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

/// The names that the expressions of a policy know, and those that its match conditions know.
pub fn known(spec: &At) -> (Vec<&'static str>, Vec<&'static str>) {
    let mut known = VARIABLES.to_vec();
    let mut before = CONDITION.to_vec();
    before.push("namespaceObject");
    if spec.at("paramKind").is_set() {
        known.push("params");
        before.push("params");
    }
    (known, before)
}

/// Checks what a policy is about, its parameters and its variables. Returns the names of the variables.
pub fn frame<'v>(spec: &At<'v, '_>) -> Vec<&'v str> {
    spec.at("failurePolicy").one_of(&["Fail", "Ignore"]);
    if spec.at("paramKind").is_set() {
        param_kind(&spec.at("paramKind"));
    }
    let constraints = spec.at("matchConstraints");
    if constraints.is_set() {
        match_resources(&constraints);
        if constraints.at("resourceRules").is_empty() {
            constraints.at("resourceRules").required("");
        }
    } else {
        constraints.required("");
    }
    let (known, before) = known(spec);
    match_conditions(&spec.at("matchConditions"), &before);
    let scope =
        Scope { variables: &known, wanted: Wanted::Any, required: Some("expression is not specified") };
    let mut declared = Vec::new();
    for variable in spec.at("variables").items() {
        let name = variable.at("name");
        identifier(&name, &declared);
        expression(&variable.at("expression"), scope);
        // A variable knows those before it.
        undeclared(&variable.at("expression"), &declared);
        declared.push(name.text());
    }
    declared
}

fn identifier(name: &At, declared: &[&str]) {
    let letter = |c: char| c.is_ascii_alphabetic() || c == '_';
    let text = name.text();
    if text.trim().is_empty() {
        name.required("name is not specified");
    } else if !text.starts_with(letter)
        || !text.chars().all(|c| letter(c) || c.is_ascii_digit())
        || RESERVED.contains(&text)
    {
        name.invalid("must be a valid CEL identifier");
    } else if declared.contains(&text) {
        name.duplicate();
    }
}

/// Names a variable that an expression reads and nobody has declared before.
pub fn undeclared(at: &At, declared: &[&str]) {
    const READ: &str = "variables.";
    let text = at.text();
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    for (i, _) in text.match_indices(READ) {
        let rest = &text[i + READ.len()..];
        let name = &rest[..rest.find(|c: char| !word(c)).unwrap_or(rest.len())];
        // In a text, or the end of a longer name, it reads nothing.
        let inside = text[..i].chars().next_back().is_some_and(|c| word(c) || matches!(c, '.' | '"' | '\''));
        if !inside && !name.is_empty() && !declared.contains(&name) {
            at.invalid(&format!("compilation failed: undefined field '{name}'"));
        }
    }
}

/// The kind of a policy's parameters.
fn param_kind(at: &At) {
    let (version, kind) = (at.at("apiVersion"), at.at("kind"));
    if version.need() {
        let text = version.text();
        let (group, number) = match text {
            "/" => ("", ""),
            _ => text.split_once('/').unwrap_or(("", text)),
        };
        let part = |found: &str, why: &str| version.note(Cause::invalid(version.path(), &json!(found), why));
        if number.contains('/') {
            version.invalid(&format!("unexpected GroupVersion string: {text}"));
        } else {
            if let Some(why) = validate::name(NameRule::Subdomain, group).filter(|_| !group.is_empty()) {
                part(group, &why);
            }
            if number.is_empty() {
                version.invalid("version must be specified");
            } else if let Some(why) = label_problem(number) {
                part(number, why);
            }
        }
    }
    if kind.need()
        && let Some(why) = label_problem(&kind.text().to_lowercase())
    {
        kind.invalid(&format!("may have mixed case, but should otherwise match: {why}"));
    }
}

/// Checks which policy is bound, with which parameters, and for what.
pub fn bound(spec: &At) {
    spec.at("policyName").need_name(NameRule::Subdomain);
    if spec.at("paramRef").is_set() {
        param_ref(&spec.at("paramRef"));
    }
    if spec.at("matchResources").is_set() {
        match_resources(&spec.at("matchResources"));
    }
}

fn param_ref(at: &At) {
    const EITHER: &str = "name and selector are mutually exclusive";
    let (name, selector) = (at.at("name"), at.at("selector"));
    let named = !name.text().is_empty();
    name.name(NameRule::Path);
    if named && selector.is_set() {
        name.forbidden(EITHER);
    }
    selector.label_selector();
    match (named, selector.is_set()) {
        (true, true) => selector.forbidden(EITHER),
        (false, false) => at.required("one of name or selector must be specified"),
        _ => {}
    }
    at.at("parameterNotFoundAction").need_one_of(&["Deny", "Allow"]);
}
