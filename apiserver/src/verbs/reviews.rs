//! Kinds that are answered and not stored: access reviews and token reviews.
//!
//! Inputs: a resolved call and a body. Absent on purpose: token requests (see `accounts`).

use crate::verbs::{action, body};
use axum::body::Body;
use fleet_apiserver_admission::access::node;
use fleet_apiserver_admission::access::rbac::{Granted, Question};
use fleet_apiserver_admission::access::user::{self, User};
use fleet_apiserver_admission::call::Call;
use fleet_apiserver_ground::tree;
use fleet_apiserver_schema::error::{ApiError, ApiResult, Cause};
use fleet_apiserver_schema::field::{At, Causes};
use fleet_apiserver_schema::http_io;
use http::{Response, StatusCode};
use serde_json::{Map, Value, json};

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
    body::check_namespace_of_body(call, &mut value)?;
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

/// A selector is a text or a list of requirements. Operators that nobody here knows are those of newer clients.
fn check_selector(selector: &At) {
    let (raw, parts) = (selector.at("rawSelector"), selector.at("requirements"));
    if raw.is_empty() && parts.is_empty() {
        let what = selector.path();
        parts.required(&format!("when {what} is specified, requirements or rawSelector is required"));
    } else if !raw.is_empty() && !parts.is_empty() {
        raw.invalid("may not specified at the same time as requirements");
    }
    for part in parts.items() {
        let (key, values) = (part.at("key"), part.at("values"));
        if key.text().is_empty() {
            key.required("must be specified");
        }
        match part.at("operator").text() {
            "In" | "NotIn" if values.is_empty() => {
                values.required("must be specified when `operator` is 'In' or 'NotIn'");
            }
            "Exists" | "DoesNotExist" if !values.is_empty() => {
                values.forbidden("may not be specified when `operator` is 'Exists' or 'DoesNotExist'");
            }
            _ => {}
        }
    }
}

/// It is asked and not kept: it has no name. What is the server's is not looked at.
fn check_meta(review: &At, kind: &str) {
    const SERVERS: [&str; 5] =
        ["managedFields", "creationTimestamp", "uid", "deletionTimestamp", "deletionGracePeriodSeconds"];
    let empty = |value: &Value| match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
        _ => false,
    };
    let meta = review.at("metadata");
    let fields = meta.value().as_object().into_iter().flatten();
    let given: Map<String, Value> = fields
        .filter(|(key, value)| !SERVERS.contains(&key.as_str()) && !empty(value))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    let (allowed, why) = match kind {
        "LocalSubjectAccessReview" => ("namespace", "must be empty except for namespace"),
        _ => ("", "must be empty"),
    };
    if given.keys().any(|key| key != allowed) {
        meta.note(Cause::invalid(meta.path(), &Value::Object(given), why));
    }
}

fn check_question(call: &Call, kind: &str, value: &Value) -> ApiResult<()> {
    let causes = Causes::default();
    {
        let review = At::root(value, &causes);
        let (of_resource, of_path) =
            (review.at("spec.resourceAttributes"), review.at("spec.nonResourceAttributes"));
        // Shown with the names of the internal type.
        let shown = json!({"Path": of_path.at("path").text(), "Verb": of_path.at("verb").text()});
        match (of_resource.is_set(), of_path.is_set()) {
            (true, true) => {
                let why = "cannot be specified in combination with resourceAttributes";
                of_path.note(Cause::invalid(of_path.path(), &shown, why));
            }
            (false, false) => of_resource
                .invalid("exactly one of nonResourceAttributes or resourceAttributes must be specified"),
            _ => {}
        }
        let asked = asked_for(review.at("spec").value());
        if kind != "SelfSubjectAccessReview" && asked.name.is_empty() && asked.groups.is_empty() {
            let why = "at least one of user or group must be specified";
            review.note(Cause::invalid("spec.user", &json!(""), why));
        }
        for field in ["fieldSelector", "labelSelector"] {
            let selector = of_resource.at(field);
            if selector.value().is_object() {
                check_selector(&selector);
            }
        }
        check_meta(&review, kind);
        if kind == "LocalSubjectAccessReview" {
            let namespace = of_resource.at("namespace");
            if of_resource.is_set() && namespace.text() != call.namespace {
                let why = "must match metadata.namespace";
                namespace.note(Cause::invalid(namespace.path(), &json!(namespace.text()), why));
            }
            if of_path.is_set() {
                let why = "disallowed on this kind of request";
                of_path.note(Cause::invalid(of_path.path(), &shown, why));
            }
        }
    }
    let causes = causes.into_inner();
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
    let mut status = json!({"resourceRules": resources, "nonResourceRules": paths, "incomplete": false});
    // What a node may do follows from its pods, and is no list of rules.
    if node::name_of(&call.user).is_some() {
        status["incomplete"] = true.into();
        status["evaluationError"] = "node authorizer does not support user rule resolution".into();
    }
    status
}
