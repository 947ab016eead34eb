//! What the policies that refuse and those that change have in common: parameters, variables, bindings.

use super::matching::{Asked, expression, match_conditions, match_resources};
use fleet_apiserver_cel::rules::{Known, Wanted};
use fleet_apiserver_schema::error::Cause;
use fleet_apiserver_schema::field::At;
use fleet_apiserver_schema::names;
use fleet_apiserver_schema::validate::NameRule;
use serde_json::json;

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

/// Whether the expressions of a policy know `variables`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Variables {
    /// Also where the policy has none.
    Always,
    /// Where it has some.
    IfAny,
}

/// Checks what a policy is about, its parameters and its variables; `about` says more of what it is about. Returns what the
/// other expressions of the policy know.
pub fn frame(spec: &At, variables: Variables, about: fn(&At)) -> Known {
    spec.at("failurePolicy").if_set_one_of(&["Fail", "Ignore"]);
    let mut known = Known::of_write().with_authorizer();
    if spec.at("paramKind").is_set() {
        param_kind(&spec.at("paramKind"));
        known = known.with_params();
    }
    let constraints = spec.at("matchConstraints");
    if constraints.is_set() {
        match_resources(&constraints);
        if constraints.at("resourceRules").is_empty() {
            constraints.at("resourceRules").required("");
        }
        about(&constraints);
    } else {
        constraints.required("");
    }
    match_conditions(&spec.at("matchConditions"), &known);
    let list = spec.at("variables");
    if variables == Variables::Always || !list.is_empty() {
        known = known.with_variables();
    }
    for variable in list.items() {
        let (name, value) = (variable.at("name"), variable.at("expression"));
        identifier(&name);
        let missing = "expression is not specified";
        expression(&value, value.text(), Asked { known: &known, wanted: Wanted::Any, missing });
        // A variable knows those before it.
        if !value.text().trim().is_empty() {
            known.declare(name.text(), value.text());
        }
    }
    known
}

fn identifier(name: &At) {
    let letter = |c: char| c.is_ascii_alphabetic() || c == '_';
    let text = name.text();
    if text.trim().is_empty() {
        name.required("name is not specified");
    } else if !text.starts_with(letter)
        || !text.chars().all(|c| letter(c) || c.is_ascii_digit())
        || RESERVED.contains(&text)
    {
        name.invalid("must be a valid CEL identifier");
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
            let whys = names::subdomain(group);
            if !group.is_empty() && !whys.is_empty() {
                part(group, &whys.join(","));
            }
            let whys = names::label_1035(number);
            if number.is_empty() {
                version.invalid("version must be specified");
            } else if !whys.is_empty() {
                part(number, &whys.join(","));
            }
        }
    }
    if kind.need() {
        let whys = names::label_1035(&kind.text().to_lowercase()).join(",");
        if !whys.is_empty() {
            kind.invalid(&format!("may have mixed case, but should otherwise match: {whys}"));
        }
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
