//! Kinds that are answered and not stored: access reviews and token reviews.
//!
//! Inputs: a resolved call and a body. Absent on purpose: token requests (see `accounts`).

use crate::verbs::{action, body};
use axum::body::Body;
use fleet_apiserver_admission::access::rbac::{Granted, Question};
use fleet_apiserver_admission::access::user::{self, User};
use fleet_apiserver_admission::call::Call;
use fleet_apiserver_ground::tree;
use fleet_apiserver_schema::error::{ApiError, ApiResult, Cause};
use fleet_apiserver_schema::http_io;
use http::{Response, StatusCode};
use serde_json::{Value, json};

/// POST of a review.
pub async fn create(call: &mut Call, sent: &[u8]) -> ApiResult<Response<Body>> {
    let (mut value, _) = body::decode_body(call, sent)?;
    if !value.is_object() {
        return Err(ApiError::bad_request("the body is not an object"));
    }
    let r = call.resource();
    let kind = r.kind.clone();
    let map = tree::object(&mut value);
    map.insert("kind".into(), kind.as_str().into());
    map.insert("apiVersion".into(), r.api_version().into());
    if kind == "Binding" {
        let name = tree::meta_text(&value, "name").to_string();
        if name.is_empty() {
            return Err(ApiError::bad_request("Name parameter required."));
        }
        let pods = call.core.registry.load().find("v1", "pods").cloned();
        call.entry = pods.ok_or_else(ApiError::no_such_resource)?;
        call.name = name;
        call.subresource = "binding".into();
        return action::action(call, sent).await;
    }
    tree::meta(&mut value);
    let spec = value.get("spec").cloned().unwrap_or_default();
    let status = match kind.as_str() {
        "SelfSubjectReview" => json!({"userInfo": user::info(&call.user)}),
        "SelfSubjectAccessReview" => {
            check_question(call, &kind, &value)?;
            decision(call, &call.user, &spec)
        }
        "SubjectAccessReview" | "LocalSubjectAccessReview" => {
            check_question(call, &kind, &value)?;
            decision(call, &asked_for(&spec), &spec)
        }
        "SelfSubjectRulesReview" => match tree::text(&spec, &["namespace"]) {
            "" => return Err(ApiError::bad_request("no namespace on request")),
            namespace => rules(call, namespace),
        },
        "TokenReview" => {
            let token = tree::text(&spec, &["token"]);
            if token.is_empty() {
                return Err(ApiError::bad_request("token is required for TokenReview in authentication"));
            }
            let audiences: Vec<String> = strings(&spec, "audiences").collect();
            match call.core.auth.review(&call.core, token, &audiences) {
                Some((user, good)) => {
                    json!({"authenticated": true, "user": user::info(&user), "audiences": good})
                }
                None => json!({"user": {}, "error": "invalid bearer token"}),
            }
        }
        _ => return Err(ApiError::method_not_allowed()),
    };
    value["status"] = status;
    Ok(http_io::value_response(StatusCode::CREATED, &value))
}

fn strings<'a>(spec: &'a Value, key: &str) -> impl Iterator<Item = String> + use<'a> {
    tree::list(spec, &[key]).iter().filter_map(|g| g.as_str().map(str::to_string))
}

fn asked_for(spec: &Value) -> User {
    let mut user = User {
        name: tree::text(spec, &["user"]).into(),
        groups: strings(spec, "groups").collect(),
        uid: tree::text(spec, &["uid"]).into(),
        ..User::default()
    };
    for (key, values) in spec.get("extra").and_then(Value::as_object).into_iter().flatten() {
        let values = values.as_array().into_iter().flatten().filter_map(|v| v.as_str().map(str::to_string));
        user.extra.insert(key.clone(), values.collect());
    }
    user
}

/// A selector is a text or a list of requirements.
fn check_selectors(attributes: &Value, causes: &mut Vec<Cause>) {
    for key in ["fieldSelector", "labelSelector"] {
        let Some(selector) = attributes.get(key).filter(|s| s.is_object()) else { continue };
        let at = format!("spec.resourceAttributes.{key}");
        let (raw, parts) = (tree::text(selector, &["rawSelector"]), tree::list(selector, &["requirements"]));
        if raw.is_empty() && parts.is_empty() {
            let why = format!(
                "when spec.resourceAttributes.{key} is specified, requirements or rawSelector is required"
            );
            causes.push(Cause::required(format!("{at}.requirements"), &why));
        } else if !raw.is_empty() && !parts.is_empty() {
            let why = "may not specified at the same time as requirements";
            causes.push(Cause::invalid(format!("{at}.rawSelector"), &json!(raw), why));
        }
        for (i, part) in parts.iter().enumerate() {
            let at = format!("{at}.requirements[{i}]");
            if tree::text(part, &["key"]).is_empty() {
                causes.push(Cause::required(format!("{at}.key"), "must be specified"));
            }
            let (operator, values) = (tree::text(part, &["operator"]), tree::list(part, &["values"]));
            match operator {
                "In" | "NotIn" if values.is_empty() => {
                    let why = "must be specified when `operator` is 'In' or 'NotIn'";
                    causes.push(Cause::required(format!("{at}.values"), why));
                }
                "Exists" | "DoesNotExist" if !values.is_empty() => {
                    let why = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
                    causes.push(Cause::forbidden(format!("{at}.values"), why));
                }
                "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
                _ => {
                    let why = "not a valid selector operator";
                    causes.push(Cause::invalid(format!("{at}.operator"), &json!(operator), why));
                }
            }
        }
    }
}

fn check_question(call: &Call, kind: &str, value: &Value) -> ApiResult<()> {
    let nothing = Value::Null;
    let spec = value.get("spec").unwrap_or(&nothing);
    let has = |key: &str| spec.get(key).is_some_and(|v| !v.is_null());
    let mut causes = Vec::new();
    // It is asked and not kept: it has no name.
    let named = |key: &str| !matches!(key, "managedFields" | "creationTimestamp" | "namespace");
    let meta = tree::at(value, &["metadata"]).and_then(Value::as_object);
    if meta.into_iter().flatten().any(|(key, v)| named(key) && !v.is_null() && v != "") {
        let why = match kind {
            "LocalSubjectAccessReview" => "must be empty except for namespace",
            _ => "must be empty",
        };
        causes.push(Cause::invalid("metadata", &json!({}), why));
    }
    check_selectors(spec.get("resourceAttributes").unwrap_or(&nothing), &mut causes);
    if has("resourceAttributes") == has("nonResourceAttributes") {
        let why = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
        let found = spec.get("resourceAttributes").cloned().unwrap_or_default();
        causes.push(Cause::invalid("spec.resourceAttributes", &found, why));
    }
    if kind != "SelfSubjectAccessReview" {
        let asked = asked_for(spec);
        if asked.name.is_empty() && asked.groups.is_empty() {
            let why = "at least one of user or group must be specified";
            causes.push(Cause::invalid("spec.user", &json!(""), why));
        }
    }
    if kind == "LocalSubjectAccessReview" {
        if has("nonResourceAttributes") {
            causes.push(Cause::invalid(
                "spec.nonResourceAttributes",
                &json!({}),
                "disallowed on this kind of request",
            ));
        } else if tree::text(spec, &["resourceAttributes", "namespace"]) != call.namespace {
            let found = tree::text(spec, &["resourceAttributes", "namespace"]);
            causes.push(Cause::invalid(
                "spec.resourceAttributes.namespace",
                &json!(found),
                "must match metadata.namespace",
            ));
        }
    }
    if causes.is_empty() { Ok(()) } else { Err(ApiError::invalid("authorization.k8s.io", "", "", causes)) }
}

fn decision(call: &Call, user: &User, spec: &Value) -> Value {
    let q = match (spec.get("resourceAttributes"), spec.get("nonResourceAttributes")) {
        (Some(a), _) => {
            let t = |k: &str| tree::text(a, &[k]).to_string();
            Question {
                verb: t("verb"),
                group: t("group"),
                resource: t("resource"),
                subresource: t("subresource"),
                namespace: t("namespace"),
                name: t("name"),
                path: String::new(),
                selector: String::new(),
            }
        }
        (None, Some(a)) => Question {
            verb: tree::text(a, &["verb"]).into(),
            path: tree::text(a, &["path"]).into(),
            ..Question::default()
        },
        (None, None) => return json!({"allowed": false, "reason": "nothing was asked"}),
    };
    let auth = &call.core.auth;
    match auth.reason(&call.core, user, &q) {
        Some(by) => json!({"allowed": true, "reason": &*by}),
        None if auth.allows(&call.core, user, &q) => json!({"allowed": true}),
        None => json!({"allowed": false}),
    }
}

fn rules(call: &Call, namespace: &str) -> Value {
    let everything =
        Question { verb: "*".into(), resource: "*".into(), group: "*".into(), ..Question::default() };
    let (mut resources, mut paths) = (Vec::new(), Vec::new());
    if call.core.auth.allows(&call.core, &call.user, &everything) {
        resources.push(json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}));
        paths.push(json!({"verbs": ["*"], "nonResourceURLs": ["*"]}));
    } else {
        for Granted { namespace: ns, rule, .. } in call.core.auth.rules(&call.core, &call.user).iter() {
            if ns.as_ref().is_some_and(|n| n != namespace) {
                continue;
            }
            if rule.get("nonResourceURLs").is_some() {
                paths.push(rule.clone())
            } else {
                resources.push(rule.clone())
            }
        }
    }
    json!({"resourceRules": resources, "nonResourceRules": paths, "incomplete": false})
}
