//! TokenRequests: a token for a service account, with a lifetime, audiences, and an object it is bound to.
//!
//! Inputs: a resolved call and a body. Absent on purpose: how tokens are made and checked (see `access::accounts`).

use super::{bind, body, read};
use axum::body::Body;
use fleet_apiserver_admission::access::accounts;
use fleet_apiserver_admission::call::Call;
use fleet_apiserver_admission::{self as admission, Operation};
use fleet_apiserver_ground::tree;
use fleet_apiserver_schema::error::{ApiError, ApiResult, Cause};
use fleet_apiserver_schema::http_io;
use fleet_apiserver_schema::resource::Resource;
use http::{Response, StatusCode};
use serde_json::{Map, Value, json};

const GROUP: &str = "authentication.k8s.io";
/// Life of a token that names none.
const DEFAULT_LIFE_S: i64 = 3600;
/// Shortest and longest life that can be asked for.
const LIFE_S: std::ops::RangeInclusive<i64> = 600..=1 << 32;
/// Longest life that is granted, as by `--service-account-max-token-expiration` of a real server: who has had a right to
/// request tokens must not keep what it gave him.
const LONGEST_S: i64 = 24 * 3600;

/// What a token is bound to: its claims, checked against what exists.
fn bound(call: &Call, spec: &Value) -> ApiResult<Map<String, Value>> {
    let mut out = Map::new();
    let Some(reference) = spec.get("boundObjectRef").filter(|r| !r.is_null()) else { return Ok(out) };
    let (kind, name) = (tree::text(reference, &["kind"]), tree::text(reference, &["name"]));
    let (plural, claim) = match (kind, tree::text(reference, &["apiVersion"])) {
        ("Pod", "v1") => ("pods", "pod"),
        ("Secret", "v1") => ("secrets", "secret"),
        ("Node", "v1") => ("nodes", "node"),
        _ => {
            let version = tree::text(reference, &["apiVersion"]);
            let version = if version.contains('/') { version.to_string() } else { format!("/{version}") };
            let message = format!("cannot bind token to object of type {version}, Kind={kind}");
            return Err(ApiError::bad_request(message));
        }
    };
    let r = fleet_apiserver_schema::builtins::find("", plural);
    let key = if r.namespaced { format!("{}/{name}", call.namespace) } else { name.to_string() };
    let found = call.core.store.table(&r.table).get(&key).ok_or_else(|| ApiError::not_found(r, name))?;
    let uid = found.meta_text("uid");
    let wanted = tree::text(reference, &["uid"]);
    if !wanted.is_empty() && wanted != uid {
        let why = format!(
            "the UID in the bound object reference ({wanted}) does not match the UID in record. The object might have been deleted and then recreated"
        );
        return Err(ApiError::conflict(r, name, &why));
    }
    out.insert(claim.into(), json!({"name": name, "uid": uid}));
    if claim == "pod" {
        if found.text(&["spec", "serviceAccountName"]) != call.name {
            return Err(ApiError::bad_request(format!(
                "cannot bind token for serviceaccount {:?} to pod running with different serviceaccount name.",
                call.name
            )));
        }
        let node = found.text(&["spec", "nodeName"]);
        if let Some(node) = call.core.store.table("/nodes").get(&node) {
            let uid = node.meta_text("uid");
            out.insert("node".into(), json!({"name": &*node.key, "uid": uid}));
        }
    }
    Ok(out)
}

/// The life that a request asks for.
fn seconds(spec: &Value) -> ApiResult<i64> {
    let asked = spec.get("expirationSeconds").filter(|s| !s.is_null());
    if let Some(found) = asked.filter(|s| s.as_i64().is_none()) {
        return Err(ApiError::bad_request(format!(
            "TokenRequest in version \"v1\" cannot be handled as a TokenRequest: json: cannot unmarshal {found} into Go struct field TokenRequestSpec.spec.expirationSeconds of type int64"
        )));
    }
    match asked.and_then(Value::as_i64) {
        None | Some(0) => Ok(DEFAULT_LIFE_S),
        Some(s) if !LIFE_S.contains(&s) => {
            let why = if s < *LIFE_S.start() {
                "may not specify a duration less than 10 minutes"
            } else {
                "may not specify a duration larger than 2^32 seconds"
            };
            let cause = Cause::invalid("spec.expirationSeconds", &json!(s), why);
            Err(ApiError::invalid(GROUP, "TokenRequest", "", vec![cause]))
        }
        Some(s) => Ok(s),
    }
}

/// Fills in what a request leaves open, as policies see it.
fn complete(call: &Call, value: &mut Value, seconds: i64, audiences: &[Value]) {
    let map = tree::object(value);
    map.insert("kind".into(), "TokenRequest".into());
    map.insert("apiVersion".into(), "authentication.k8s.io/v1".into());
    map.remove("status");
    let spec = tree::child(value, "spec");
    spec.insert("expirationSeconds".into(), seconds.into());
    spec.insert("audiences".into(), audiences.into());
    let meta = tree::meta(value);
    meta.insert("name".into(), call.name.as_str().into());
    meta.insert("namespace".into(), call.namespace.as_str().into());
    meta.insert("creationTimestamp".into(), call.core.clock.stamp().into());
}

/// POST to a service account's token subresource.
pub async fn token_request(call: &mut Call, sent: &[u8]) -> ApiResult<Response<Body>> {
    let (mut value, _) = body::decode_body(call, sent)?;
    if !value.is_object() {
        return Err(ApiError::bad_request("the body is not a TokenRequest object"));
    }
    body::check_namespace_of_body(call, &mut value)?;
    let named = tree::meta_text(&value, "name");
    if !named.is_empty() && named != call.name {
        let why = "must match the service account name if specified";
        let cause = Cause::invalid("metadata.name", &json!(named), why);
        return Err(ApiError::invalid(GROUP, "TokenRequest", &call.name, vec![cause]));
    }
    let account = read::current(call).await?;
    let uid = account.meta_text("uid");
    let sent = tree::meta_text(&value, "uid");
    if !sent.is_empty() && sent != uid {
        let why = format!(
            "the UID in the token request ({sent}) does not match the UID of the service account ({uid})"
        );
        let r = Resource { group: GROUP.into(), plural: "TokenRequest".into(), ..Resource::default() };
        return Err(ApiError::conflict(&r, &call.name, &why));
    }
    if let Some(Value::Object(spec)) = value.get_mut("spec") {
        tree::default_to(spec, "expirationSeconds", DEFAULT_LIFE_S);
    }
    bind::mutate(call, &mut value, "authentication.k8s.io/v1", "TokenRequest").await?;
    admission::nodes::restrict_token(call, &value)?;
    let spec = value.get("spec").cloned().unwrap_or_default();
    let seconds = seconds(&spec)?;
    let mut audiences = tree::list(&spec, &["audiences"]).to_vec();
    if audiences.is_empty() {
        audiences.push(accounts::AUDIENCE.into());
    }
    complete(call, &mut value, seconds, &audiences);
    tree::meta(&mut value).insert("uid".into(), json!(uid));
    let name = call.name.clone();
    admission::validate(call, Operation::Create, &name, None, Some(&value)).await?;
    let granted = seconds.min(LONGEST_S);
    if granted < seconds {
        let told = format!("requested expiration of {seconds} seconds shortened to {granted} seconds");
        call.warnings.push(told);
    }
    tree::child(&mut value, "spec").insert("expirationSeconds".into(), granted.into());
    let mut scope = bound(call, &spec)?;
    scope.insert("namespace".into(), call.namespace.as_str().into());
    scope.insert("serviceaccount".into(), json!({"name": call.name, "uid": uid}));
    let now = call.core.clock.now().as_second();
    let claims = json!({
        "iss": accounts::AUDIENCE, "aud": audiences, "iat": now, "nbf": now, "exp": now + granted,
        "jti": call.core.ids.uuid().to_string(), "sub": accounts::user_name(&call.namespace, &call.name),
        "kubernetes.io": scope,
    });
    let expires = jiff::Timestamp::from_second(now + granted)
        .map(fleet_apiserver_ground::clock::stamp)
        .unwrap_or_default();
    let token = call.core.auth.signer.sign(&claims);
    let token = token.ok_or_else(|| ApiError::internal("InternalError", "the token could not be signed"))?;
    value["status"] = json!({"token": token, "expirationTimestamp": expires});
    Ok(http_io::value_response(StatusCode::CREATED, &value))
}
