//! The kinds that are asked, not stored: access reviews, token reviews, and token requests.
//!
//! Inputs: a resolved call and a body. Absent on purpose: bound pod tokens and JWKS.

use crate::auth::{Question, User};
use crate::error::{ApiError, ApiResult, Cause};
use crate::server::Call;
use crate::{action, http_io, read, tree, write};
use axum::body::Body;
use http::{Response, StatusCode};
use serde_json::{Value, json};

/// POST of a review.
pub async fn create(call: &mut Call, body: &[u8]) -> ApiResult<Response<Body>> {
    let (mut value, _) = write::decode_body(call, body)?;
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
        let pods = call.core.registry.load().find("v1", "pods").cloned();
        call.entry = pods.ok_or_else(ApiError::no_such_resource)?;
        call.name = name;
        call.subresource = "binding".into();
        return action::action(call, body).await;
    }
    tree::meta(&mut value).entry("creationTimestamp").or_insert(Value::Null);
    let spec = value.get("spec").cloned().unwrap_or_default();
    let status = match kind.as_str() {
        "SelfSubjectReview" => json!({"userInfo": info(&call.user)}),
        "SelfSubjectAccessReview" => decision(call, &call.user, &spec),
        "SubjectAccessReview" | "LocalSubjectAccessReview" => {
            let groups = tree::list(&spec, &["groups"]).iter().filter_map(|g| g.as_str().map(str::to_string));
            let user = User {
                name: tree::text(&spec, &["user"]).into(),
                groups: groups.collect(),
                uid: String::new(),
            };
            decision(call, &user, &spec)
        }
        "SelfSubjectRulesReview" => rules(call, tree::text(&spec, &["namespace"])),
        "TokenReview" => {
            let token = tree::text(&spec, &["token"]);
            let mut headers = http::HeaderMap::new();
            if let Ok(v) = http::HeaderValue::from_str(&format!("Bearer {token}")) {
                headers.insert(http::header::AUTHORIZATION, v);
            }
            match call.core.auth.authenticate(&call.core, crate::auth::Door::Network, &headers) {
                Ok(user) if !token.is_empty() => json!({"authenticated": true, "user": info(&user)}),
                _ => json!({"authenticated": false, "error": "invalid bearer token"}),
            }
        }
        _ => return Err(ApiError::method_not_allowed()),
    };
    value["status"] = status;
    Ok(http_io::value_response(StatusCode::CREATED, &value))
}

fn info(user: &User) -> Value {
    let mut out = json!({"username": user.name, "groups": user.groups});
    if !user.uid.is_empty() {
        out["uid"] = json!(user.uid);
    }
    out
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
            }
        }
        (None, Some(a)) => Question {
            verb: tree::text(a, &["verb"]).into(),
            path: tree::text(a, &["path"]).into(),
            ..Question::default()
        },
        (None, None) => return json!({"allowed": false, "reason": "nothing was asked"}),
    };
    let allowed = call.core.auth.allows(&call.core, user, &q);
    json!({"allowed": allowed})
}

fn rules(call: &Call, namespace: &str) -> Value {
    let everything =
        Question { verb: "*".into(), resource: "*".into(), group: "*".into(), ..Question::default() };
    let (mut resources, mut paths) = (Vec::new(), Vec::new());
    if call.core.auth.allows(&call.core, &call.user, &everything) {
        resources.push(json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}));
        paths.push(json!({"verbs": ["*"], "nonResourceURLs": ["*"]}));
    } else {
        for (ns, rule) in call.core.auth.rules(&call.core, &call.user).iter() {
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

/// POST to a service account's token subresource.
pub async fn token_request(call: &mut Call, body: &[u8]) -> ApiResult<Response<Body>> {
    let (mut value, _) = write::decode_body(call, body)?;
    let account = read::current(call).await?;
    let seconds = match tree::at(&value, &["spec", "expirationSeconds"]).and_then(Value::as_i64) {
        None | Some(0) => 3600,
        Some(s) if s < 600 => {
            let cause = Cause::invalid(
                "spec.expirationSeconds",
                &json!(s),
                "may not specify a duration less than 10 minutes",
            );
            return Err(ApiError::invalid("authentication.k8s.io", "TokenRequest", &call.name, vec![cause]));
        }
        Some(s) => s.min(1 << 32),
    };
    let mut audiences = tree::list(&value, &["spec", "audiences"]).to_vec();
    if audiences.is_empty() {
        audiences.push(json!("https://kubernetes.default.svc"));
    }
    let now = call.core.clock.now().as_second();
    let claims = json!({
        "iss": "https://kubernetes.default.svc", "aud": audiences, "iat": now, "nbf": now, "exp": now + seconds,
        "jti": call.core.ids.uuid().to_string(),
        "sub": format!("system:serviceaccount:{}:{}", call.namespace, call.name),
        "kubernetes.io": {"namespace": call.namespace,
            "serviceaccount": {"name": call.name, "uid": tree::meta_text(&account.value, "uid")}},
    });
    let expires = jiff::Timestamp::from_second(now + seconds).map(crate::stamp).unwrap_or_default();
    let map = tree::object(&mut value);
    map.insert("kind".into(), "TokenRequest".into());
    map.insert("apiVersion".into(), "authentication.k8s.io/v1".into());
    tree::child(&mut value, "spec").insert("expirationSeconds".into(), seconds.into());
    tree::child(&mut value, "spec").insert("audiences".into(), Value::Array(audiences));
    let meta = tree::meta(&mut value);
    meta.insert("name".into(), call.name.as_str().into());
    meta.insert("namespace".into(), call.namespace.as_str().into());
    meta.insert("creationTimestamp".into(), call.core.clock.stamp().into());
    value["status"] = json!({"token": call.core.auth.sign(&claims), "expirationTimestamp": expires});
    Ok(http_io::value_response(StatusCode::CREATED, &value))
}
