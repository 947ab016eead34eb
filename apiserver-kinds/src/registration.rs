//! Defaults and checks of the registrations themselves: webhook configurations and policies.
//!
//! Inputs: decoded objects of group `admissionregistration.k8s.io`. Absent on purpose: running them.

use fleet_apiserver_cel::rules::{Wanted, problem};
use fleet_apiserver_ground::tree::{self, default_to};
use fleet_apiserver_schema::error::Cause;
use serde_json::{Map, Value, json};

mod mutating;

/// Group of the registrations; webhooks never review them.
pub const GROUP: &str = "admissionregistration.k8s.io";

fn each<'a>(value: &'a mut Value, path: &[&str]) -> Vec<&'a mut Map<String, Value>> {
    let Some((last, parents)) = path.split_last() else { return Vec::new() };
    let mut at = Some(value);
    for key in parents {
        at = at.and_then(|v| v.get_mut(*key));
    }
    let list = at.and_then(|v| v.get_mut(*last)).and_then(Value::as_array_mut);
    list.into_iter().flatten().filter_map(Value::as_object_mut).collect()
}

fn match_defaults(map: &mut Map<String, Value>) {
    default_to(map, "matchPolicy", "Equivalent");
    default_to(map, "namespaceSelector", json!({}));
    default_to(map, "objectSelector", json!({}));
}

fn rule_defaults(map: &mut Map<String, Value>, key: &str) {
    let rules = map.get_mut(key).and_then(Value::as_array_mut).into_iter().flatten();
    rules.filter_map(Value::as_object_mut).for_each(|rule| default_to(rule, "scope", "*"));
}

/// Fills in the defaults of a registration.
pub fn defaults(plural: &str, value: &mut Value) {
    match plural {
        "mutatingwebhookconfigurations" | "validatingwebhookconfigurations" => {
            for hook in each(value, &["webhooks"]) {
                match_defaults(hook);
                default_to(hook, "failurePolicy", "Fail");
                default_to(hook, "timeoutSeconds", 10);
                if plural.starts_with('m') {
                    default_to(hook, "reinvocationPolicy", "Never");
                }
                rule_defaults(hook, "rules");
                if let Some(Value::Object(service)) =
                    hook.get_mut("clientConfig").and_then(|c| c.get_mut("service"))
                {
                    default_to(service, "port", 443);
                }
            }
        }
        "validatingadmissionpolicies" => {
            let spec = tree::child(value, "spec");
            default_to(spec, "failurePolicy", "Fail");
            let constraints = tree::object(spec.entry("matchConstraints").or_insert_with(|| json!({})));
            match_defaults(constraints);
            rule_defaults(constraints, "resourceRules");
            rule_defaults(constraints, "excludeResourceRules");
        }
        "mutatingadmissionpolicies" => {
            let spec = tree::child(value, "spec");
            default_to(spec, "failurePolicy", "Fail");
            if let Some(Value::Object(constraints)) = spec.get_mut("matchConstraints") {
                match_defaults(constraints);
                rule_defaults(constraints, "resourceRules");
                rule_defaults(constraints, "excludeResourceRules");
            }
        }
        "validatingadmissionpolicybindings" | "mutatingadmissionpolicybindings" => {
            let spec = tree::child(value, "spec");
            if let Some(Value::Object(constraints)) = spec.get_mut("matchResources") {
                match_defaults(constraints);
                rule_defaults(constraints, "resourceRules");
                rule_defaults(constraints, "excludeResourceRules");
            }
        }
        _ => {}
    }
}

/// Checks a registration.
pub fn check(plural: &str, value: &Value, causes: &mut Vec<Cause>) {
    match plural {
        "mutatingwebhookconfigurations" | "validatingwebhookconfigurations" => webhooks(value, causes),
        "validatingadmissionpolicies" => validating(value.get("spec").unwrap_or(&Value::Null), causes),
        "mutatingadmissionpolicies" => mutating::policy(value.get("spec").unwrap_or(&Value::Null), causes),
        "mutatingadmissionpolicybindings" => mutating::binding(value, causes),
        "validatingadmissionpolicybindings" => {
            if tree::text(value, &["spec", "policyName"]).is_empty() {
                causes.push(Cause::required("spec.policyName", ""));
            }
            let actions = tree::list(value, &["spec", "validationActions"]);
            if actions.is_empty() {
                causes.push(Cause::required("spec.validationActions", ""));
            }
            if ["Deny", "Warn"].iter().all(|one| actions.iter().any(|action| action == one)) {
                let why = "must not contain both Deny and Warn (repeating the same validation failure information in \
                    the API response and headers serves no purpose)";
                let found = Value::Array(actions.to_vec());
                causes.push(Cause::invalid("spec.validationActions", &found, why));
            }
            bound_params(value, causes);
            for (i, action) in actions.iter().enumerate() {
                if actions[..i].contains(action) {
                    let message = format!("Duplicate value: {action}");
                    let field = format!("spec.validationActions[{i}]");
                    causes.push(Cause::new("FieldValueDuplicate", field, message));
                }
                if !["Deny", "Warn", "Audit"].iter().any(|known| action == known) {
                    let message = format!(
                        "Unsupported value: {action}: supported values: \"Audit\", \"Deny\", \"Warn\""
                    );
                    causes.push(Cause::new("FieldValueNotSupported", "spec.validationActions", message));
                }
            }
        }
        _ => {}
    }
}

/// The names that the expressions of a policy know, and those that its match conditions know.
fn known(spec: &Value) -> (Vec<&'static str>, Vec<&'static str>) {
    let mut known = POLICY.to_vec();
    let mut before = CONDITION.to_vec();
    before.push("namespaceObject");
    if spec.get("paramKind").is_some_and(|kind| !kind.is_null()) {
        known.push("params");
        before.push("params");
    }
    (known, before)
}

fn validating(spec: &Value, causes: &mut Vec<Cause>) {
    one_of(spec, "failurePolicy", &["Fail", "Ignore"], "spec", causes);
    policy_shape(spec, causes);
    let (known, before) = known(spec);
    match_conditions(spec, "spec", &before, causes);
    rules(
        spec.get("matchConstraints").unwrap_or(&Value::Null),
        "resourceRules",
        "spec.matchConstraints",
        causes,
    );
    let checks = tree::list(spec, &["validations"]);
    if checks.is_empty() && tree::list(spec, &["auditAnnotations"]).is_empty() {
        let why = "validations or auditAnnotations must contain at least one item";
        causes.push(Cause::required("spec.validations", why));
    }
    let scope = |wanted, required| Scope { variables: &known, wanted, required };
    for (i, check) in checks.iter().enumerate() {
        let at = format!("spec.validations[{i}]");
        expression(check, "expression", scope(Wanted::Bool, true), &at, causes);
        expression(check, "messageExpression", scope(Wanted::Text, false), &at, causes);
        worded(check, &at, causes);
    }
    for (i, variable) in tree::list(spec, &["variables"]).iter().enumerate() {
        expression(variable, "expression", scope(Wanted::Any, true), &format!("spec.variables[{i}]"), causes);
    }
    for (i, note) in tree::list(spec, &["auditAnnotations"]).iter().enumerate() {
        let at = format!("spec.auditAnnotations[{i}]");
        expression(note, "valueExpression", scope(Wanted::TextOrNull, true), &at, causes);
    }
}

/// What a policy says beside its expressions: its parameters, what it is about, and the names of its variables.
fn policy_shape(spec: &Value, causes: &mut Vec<Cause>) {
    if let Some(kind) = spec.get("paramKind").filter(|kind| kind.is_object()) {
        for key in ["apiVersion", "kind"] {
            if tree::text(kind, &[key]).is_empty() {
                causes.push(Cause::required(format!("spec.paramKind.{key}"), ""));
            }
        }
    }
    if tree::list(spec, &["matchConstraints", "resourceRules"]).is_empty() {
        causes.push(Cause::required("spec.matchConstraints.resourceRules", ""));
    }
    let letter = |c: char| c.is_ascii_alphabetic() || c == '_';
    let mut declared: Vec<&str> = Vec::new();
    for (i, variable) in tree::list(spec, &["variables"]).iter().enumerate() {
        let (at, name) = (format!("spec.variables[{i}]"), tree::text(variable, &["name"]));
        if name.is_empty() {
            causes.push(Cause::required(format!("{at}.name"), "name is not specified"));
        } else if !name.starts_with(letter) || !name.chars().all(|c| letter(c) || c.is_ascii_digit()) {
            let why = "name is not a valid CEL identifier";
            causes.push(Cause::invalid(format!("{at}.name"), &json!(name), why));
        } else if declared.contains(&name) {
            causes.push(Cause::new(
                "FieldValueDuplicate",
                format!("{at}.name"),
                format!("Duplicate value: {name:?}"),
            ));
        }
        // A variable knows those before it.
        undeclared(variable, "expression", &declared, &at, causes);
        declared.push(name);
    }
    for (i, check) in tree::list(spec, &["validations"]).iter().enumerate() {
        for key in ["expression", "messageExpression"] {
            undeclared(check, key, &declared, &format!("spec.validations[{i}]"), causes);
        }
    }
    for (i, note) in tree::list(spec, &["auditAnnotations"]).iter().enumerate() {
        undeclared(note, "valueExpression", &declared, &format!("spec.auditAnnotations[{i}]"), causes);
    }
}

/// Names a variable that an expression reads and nobody has declared before.
fn undeclared(map: &Value, key: &str, declared: &[&str], at: &str, causes: &mut Vec<Cause>) {
    const READ: &str = "variables.";
    let text = tree::text(map, &[key]);
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    for (i, _) in text.match_indices(READ) {
        let rest = &text[i + READ.len()..];
        let name = &rest[..rest.find(|c: char| !word(c)).unwrap_or(rest.len())];
        // In a text, or the end of a longer name, it reads nothing.
        let inside = text[..i].chars().next_back().is_some_and(|c| word(c) || matches!(c, '.' | '"' | '\''));
        if !inside && !name.is_empty() && !declared.contains(&name) {
            let why = format!("compilation failed: undefined field '{name}'");
            causes.push(Cause::invalid(format!("{at}.{key}"), &json!(text), &why));
        }
    }
}

/// The words of a check, and the reason it refuses for.
fn worded(check: &Value, at: &str, causes: &mut Vec<Cause>) {
    let (message, text) = (check.get("message").and_then(Value::as_str), tree::text(check, &["expression"]));
    match message {
        Some(m) if !m.is_empty() && m.trim().is_empty() => {
            let why = "message must be non-empty if specified";
            causes.push(Cause::invalid(format!("{at}.message"), &json!(m), why));
        }
        Some(m) if m.trim().contains(['\n', '\r']) => {
            let why = "message must not contain line breaks";
            causes.push(Cause::invalid(format!("{at}.message"), &json!(m), why));
        }
        None | Some("") if text.trim().contains(['\n', '\r']) => {
            let why = "message must be specified if expression contains line breaks";
            causes.push(Cause::required(format!("{at}.message"), why));
        }
        _ => {}
    }
    if !tree::text(check, &["reason"]).is_empty() {
        one_of(
            check,
            "reason",
            &["Forbidden", "Invalid", "RequestEntityTooLarge", "Unauthorized"],
            at,
            causes,
        );
    }
}

/// How a binding names its parameters.
fn bound_params(value: &Value, causes: &mut Vec<Cause>) {
    let Some(reference) = tree::at(value, &["spec", "paramRef"]).filter(|r| r.is_object()) else { return };
    let (named, selected) =
        (!tree::text(reference, &["name"]).is_empty(), reference.get("selector").is_some());
    let at = "spec.paramRef";
    match (named, selected) {
        (true, true) => {
            causes.push(Cause::forbidden(format!("{at}.name"), "name and selector are mutually exclusive"));
        }
        (false, false) => causes.push(Cause::required(at, "one of name or selector must be specified")),
        _ => {}
    }
    if tree::text(reference, &["parameterNotFoundAction"]).is_empty() {
        causes.push(Cause::required(format!("{at}.parameterNotFoundAction"), ""));
    } else {
        one_of(reference, "parameterNotFoundAction", &["Allow", "Deny"], at, causes);
    }
}

fn webhooks(value: &Value, causes: &mut Vec<Cause>) {
    let mut names = std::collections::BTreeSet::new();
    for (i, hook) in tree::list(value, &["webhooks"]).iter().enumerate() {
        let at = format!("webhooks[{i}]");
        let name = tree::text(hook, &["name"]);
        if name.is_empty() {
            causes.push(Cause::required(format!("{at}.name"), ""));
        } else if name.split('.').count() < 3 {
            let why = "should be a domain with at least three segments separated by dots";
            causes.push(Cause::invalid(format!("{at}.name"), &json!(name), why));
        } else if !names.insert(name) {
            let message = format!("Duplicate value: {name:?}");
            causes.push(Cause::new("FieldValueDuplicate", format!("{at}.name"), message));
        }
        webhook(hook, &at, causes);
    }
}

fn one_of(map: &Value, key: &str, allowed: &[&str], at: &str, causes: &mut Vec<Cause>) {
    let found = tree::text(map, &[key]);
    if !allowed.contains(&found) {
        let list: Vec<String> = allowed.iter().map(|a| format!("{a:?}")).collect();
        let message = format!("Unsupported value: {found:?}: supported values: {}", list.join(", "));
        causes.push(Cause::new("FieldValueNotSupported", format!("{at}.{key}"), message));
    }
}

/// Variables of match conditions.
const CONDITION: [&str; 4] = ["object", "oldObject", "request", "authorizer"];
/// Variables of the other expressions of a policy; `params` only with a paramKind.
const POLICY: [&str; 6] = ["object", "oldObject", "request", "authorizer", "namespaceObject", "variables"];

/// What an expression may use, and what it must be.
struct Scope<'a> {
    variables: &'a [&'a str],
    wanted: Wanted,
    required: bool,
}

fn expression(map: &Value, key: &str, scope: Scope<'_>, at: &str, causes: &mut Vec<Cause>) {
    match tree::text(map, &[key]) {
        "" if scope.required => causes.push(Cause::required(format!("{at}.{key}"), "")),
        "" => {}
        text => {
            if let Some(why) = problem(text, scope.variables, scope.wanted) {
                causes.push(Cause::invalid(format!("{at}.{key}"), &json!(text), &why));
            }
        }
    }
}

fn match_conditions(spec: &Value, at: &str, variables: &[&str], causes: &mut Vec<Cause>) {
    /// As the real server has it.
    const MOST: usize = 64;
    let list = tree::list(spec, &["matchConditions"]);
    if list.len() > MOST {
        let message = format!("Too many: {}: must have at most {MOST} items", list.len());
        causes.push(Cause::new("FieldValueTooMany", format!("{at}.matchConditions"), message));
    }
    for (i, condition) in list.iter().take(MOST).enumerate() {
        let at = format!("{at}.matchConditions[{i}]");
        let name = tree::text(condition, &["name"]);
        if name.is_empty() {
            causes.push(Cause::required(format!("{at}.name"), ""));
        } else if list[..i].iter().any(|before| tree::text(before, &["name"]) == name) {
            let message = format!("Duplicate value: {name:?}");
            causes.push(Cause::new("FieldValueDuplicate", format!("{at}.name"), message));
        }
        expression(
            condition,
            "expression",
            Scope { variables, wanted: Wanted::Bool, required: true },
            &at,
            causes,
        );
    }
}

fn rules(map: &Value, key: &str, at: &str, causes: &mut Vec<Cause>) {
    for (i, rule) in tree::list(map, &[key]).iter().enumerate() {
        let at = format!("{at}.{key}[{i}]");
        for list in ["operations", "apiGroups", "apiVersions", "resources"] {
            if tree::list(rule, &[list]).is_empty() {
                causes.push(Cause::required(format!("{at}.{list}"), ""));
            }
        }
        for (list, others) in [
            ("operations", "operations"),
            ("apiGroups", "API groups"),
            ("apiVersions", "API versions"),
            ("resources", "resources without subresources"),
        ] {
            let items = tree::list(rule, &[list]);
            let counts =
                |item: &&Value| list != "resources" || !item.as_str().unwrap_or_default().contains('/');
            if items.iter().any(|item| item == "*") && items.iter().filter(counts).count() > 1 {
                let why = format!("if '*' is present, must not specify other {others}");
                causes.push(Cause::invalid(format!("{at}.{list}"), &json!(items), &why));
            }
        }
        for operation in tree::list(rule, &["operations"]) {
            if !["CREATE", "UPDATE", "DELETE", "CONNECT", "*"].iter().any(|known| operation == known) {
                let message = format!(
                    "Unsupported value: {operation}: supported values: \"*\", \"CONNECT\", \"CREATE\", \"DELETE\", \"UPDATE\""
                );
                causes.push(Cause::new("FieldValueNotSupported", format!("{at}.operations"), message));
            }
        }
    }
}

fn webhook(hook: &Value, at: &str, causes: &mut Vec<Cause>) {
    one_of(hook, "sideEffects", &["None", "NoneOnDryRun"], at, causes);
    one_of(hook, "failurePolicy", &["Fail", "Ignore"], at, causes);
    one_of(hook, "matchPolicy", &["Equivalent", "Exact"], at, causes);
    rules(hook, "rules", at, causes);
    match_conditions(hook, at, &CONDITION, causes);
    if tree::list(hook, &["admissionReviewVersions"]).is_empty() {
        let why = "must specify one of v1, v1beta1";
        causes.push(Cause::required(format!("{at}.admissionReviewVersions"), why));
    } else if !tree::list(hook, &["admissionReviewVersions"]).iter().any(|v| v == "v1") {
        let why = "must include at least one of v1";
        let found = hook.get("admissionReviewVersions").cloned().unwrap_or_default();
        causes.push(Cause::invalid(format!("{at}.admissionReviewVersions"), &found, why));
    }
    let seconds = tree::number(hook, &["timeoutSeconds"]);
    if !(1..=30).contains(&seconds) {
        let why = "the timeout value must be between 1 and 30 seconds";
        causes.push(Cause::invalid(format!("{at}.timeoutSeconds"), &json!(seconds), why));
    }
    let config = hook.get("clientConfig").unwrap_or(&Value::Null);
    let field = format!("{at}.clientConfig");
    match (config.get("url").and_then(Value::as_str), config.get("service").filter(|s| !s.is_null())) {
        (Some(url), None) => {
            let parsed: Result<reqwest::Url, _> = url.parse();
            let why = match &parsed {
                Err(e) => Some(format!("url must be a valid URL: {e}")),
                Ok(u) if u.scheme() != "https" => Some("'https' is the only allowed URL scheme".into()),
                Ok(u) if u.host_str().is_none() => Some("host must be specified".into()),
                Ok(u) if !u.username().is_empty() || u.password().is_some() => {
                    Some("user information is not permitted in the URL".into())
                }
                Ok(u) if u.query().is_some() => Some("query parameters are not permitted in the URL".into()),
                Ok(u) if u.fragment().is_some() => Some("fragments are not permitted in the URL".into()),
                Ok(_) => None,
            };
            if let Some(why) = why {
                causes.push(Cause::invalid(format!("{field}.url"), &json!(url), &why));
            }
        }
        (None, Some(service)) => {
            for key in ["namespace", "name"] {
                if tree::text(service, &[key]).is_empty() {
                    causes.push(Cause::required(format!("{field}.service.{key}"), ""));
                }
            }
            let path = tree::text(service, &["path"]);
            if !path.is_empty() && !path.starts_with('/') {
                causes.push(Cause::invalid(
                    format!("{field}.service.path"),
                    &json!(path),
                    "must start with a '/'",
                ));
            }
        }
        _ => causes.push(Cause::required(field.clone(), "exactly one of url or service is required")),
    }
    if let Some(bundle) = config.get("caBundle").and_then(Value::as_str) {
        use base64::Engine;
        let pem = base64::engine::general_purpose::STANDARD.decode(bundle).unwrap_or_default();
        if !pem.is_empty() && reqwest::Certificate::from_pem_bundle(&pem).map_or(true, |list| list.is_empty())
        {
            let why = "unable to load root certificates: unable to parse bytes as PEM block";
            causes.push(Cause::invalid(format!("{field}.caBundle"), &json!("<bytes>"), why));
        }
    }
}
