//! Tokens of ServiceAccounts: what they claim, who signs them, and when they are good.
//!
//! Inputs: ServiceAccounts, Pods, Nodes and Secrets in the store, and the server's key.
//! Absent on purpose: public keys (the signature is an HMAC, so only this server can check a token).

use crate::auth::{self, CREDENTIAL_ID, User};
use crate::error::{ApiError, ApiResult, Cause};
use crate::server::{Call, Core};
use crate::store::Obj;
use crate::{body, http_io, read, tree};
use axum::body::Body;
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use http::{Response, StatusCode};
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// Audience of tokens that name none, and issuer of all.
pub const AUDIENCE: &str = "https://kubernetes.default.svc";
/// Issuer of the tokens of Secrets, which never expire.
const LEGACY_ISSUER: &str = "kubernetes/serviceaccount";
/// Type of the Secrets that get a token.
const SECRET_TYPE: &str = "kubernetes.io/service-account-token";
/// Life of a token that names none.
const DEFAULT_LIFE_S: i64 = 3600;
/// Shortest and longest life that can be asked for.
const LIFE_S: std::ops::RangeInclusive<i64> = 600..=1 << 32;

/// Groups of every account of a namespace.
pub fn groups(namespace: &str) -> Vec<String> {
    vec!["system:serviceaccounts".into(), format!("system:serviceaccounts:{namespace}")]
}

fn user_name(namespace: &str, name: &str) -> String {
    format!("system:serviceaccount:{namespace}:{name}")
}

fn sign(core: &Core, claims: &Value) -> String {
    let head = URL_SAFE_NO_PAD.encode(r#"{"alg":"HS256","typ":"JWT"}"#);
    let body = URL_SAFE_NO_PAD.encode(claims.to_string());
    let signature = auth::hmac(&core.auth.key, format!("{head}.{body}").as_bytes());
    format!("{head}.{body}.{}", URL_SAFE_NO_PAD.encode(signature))
}

/// The claims of a token this server signed, whatever its age.
fn claims(core: &Core, token: &str) -> Option<Value> {
    let (signed, signature) = token.rsplit_once('.')?;
    let given = URL_SAFE_NO_PAD.decode(signature).ok()?;
    let want = auth::hmac(&core.auth.key, signed.as_bytes());
    if !auth::same(&given, &want) {
        return None;
    }
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(signed.split_once('.')?.1).ok()?).ok()
}

fn live(core: &Core, table: &str, key: &str, uid: &str) -> Option<Arc<Obj>> {
    let found = core.store.table(table).get(key)?;
    (found.meta_text("uid") == uid).then_some(found)
}

/// The identity of a token that is good now, and for which of the wanted audiences.
pub fn verify(core: &Core, token: &str, wanted: &[String]) -> Option<(User, Vec<String>)> {
    let claims = claims(core, token)?;
    if tree::text(&claims, &["iss"]) == LEGACY_ISSUER {
        return legacy(core, token, &claims, wanted);
    }
    let now = core.clock.now().as_second();
    if tree::number(&claims, &["exp"]) <= now || tree::number(&claims, &["nbf"]) > now + 1 {
        return None;
    }
    let good: Vec<String> = wanted
        .iter()
        .filter(|a| tree::list(&claims, &["aud"]).iter().any(|x| x == a.as_str()))
        .cloned()
        .collect();
    if good.is_empty() {
        return None;
    }
    let scope = claims.get("kubernetes.io")?;
    let (ns, name) = (tree::text(scope, &["namespace"]), tree::text(scope, &["serviceaccount", "name"]));
    let uid = tree::text(scope, &["serviceaccount", "uid"]);
    live(core, "/serviceaccounts", &format!("{ns}/{name}"), uid)?;
    let mut user = User { name: user_name(ns, name), groups: groups(ns), uid: uid.into(), ..User::default() };
    user.extra.insert(CREDENTIAL_ID.into(), vec![format!("JTI={}", tree::text(&claims, &["jti"]))]);
    // A bound token dies with what it is bound to.
    for (kind, table) in [("pod", "/pods"), ("secret", "/secrets"), ("node", "/nodes")] {
        let Some(bound) = scope.get(kind) else { continue };
        let (name, uid) = (tree::text(bound, &["name"]), tree::text(bound, &["uid"]));
        let key = if kind == "node" { name.to_string() } else { format!("{ns}/{name}") };
        // A node beside a pod only says where the pod runs.
        if !(kind == "node" && scope.get("pod").is_some()) {
            live(core, table, &key, uid)?;
        }
        if kind != "secret" {
            let extra = |what: &str| format!("authentication.kubernetes.io/{kind}-{what}");
            user.extra.insert(extra("name"), vec![name.into()]);
            user.extra.insert(extra("uid"), vec![uid.into()]);
        }
    }
    Some((user, good))
}

fn legacy(core: &Core, token: &str, claims: &Value, wanted: &[String]) -> Option<(User, Vec<String>)> {
    if !wanted.iter().any(|a| a == AUDIENCE) {
        return None;
    }
    let text = |key: &str| tree::text(claims, &[&format!("kubernetes.io/serviceaccount/{key}")]).to_string();
    let (ns, name, uid) = (text("namespace"), text("service-account.name"), text("service-account.uid"));
    live(core, "/serviceaccounts", &format!("{ns}/{name}"), &uid)?;
    let secret = core.store.table("/secrets").get(&format!("{ns}/{}", text("secret.name")))?;
    if !auth::same(secret.text(&["data", "token"]).as_bytes(), STANDARD.encode(token).as_bytes()) {
        return None;
    }
    let user = User { name: user_name(&ns, &name), groups: groups(&ns), uid, ..User::default() };
    Some((user, vec![AUDIENCE.into()]))
}

/// Puts token, namespace and certificate into a new Secret of the account type, when its account exists.
pub fn fill_secret(core: &Core, secret: &mut Value) {
    if tree::text(secret, &["type"]) != SECRET_TYPE {
        return;
    }
    let (ns, name) =
        (tree::meta_text(secret, "namespace").to_string(), tree::meta_text(secret, "name").to_string());
    let account =
        tree::text(secret, &["metadata", "annotations", "kubernetes.io/service-account.name"]).to_string();
    let Some(found) = core.store.table("/serviceaccounts").get(&format!("{ns}/{account}")) else { return };
    let uid = found.meta_text("uid");
    let claims = json!({
        "iss": LEGACY_ISSUER, "sub": user_name(&ns, &account),
        "kubernetes.io/serviceaccount/namespace": ns,
        "kubernetes.io/serviceaccount/secret.name": name,
        "kubernetes.io/serviceaccount/service-account.name": account,
        "kubernetes.io/serviceaccount/service-account.uid": uid,
    });
    let token = sign(core, &claims);
    let annotations = tree::object(tree::meta(secret).entry("annotations").or_insert_with(|| json!({})));
    annotations.insert("kubernetes.io/service-account.uid".into(), uid.into());
    let data = tree::child(secret, "data");
    for (key, value) in [("token", token.as_str()), ("namespace", &ns), ("ca.crt", &core.ca_pem)] {
        data.insert(key.into(), STANDARD.encode(value).into());
    }
}

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
            let message = format!(
                "cannot bind token to object of type {kind:?}: allowed are Pod, Secret and Node of v1"
            );
            return Err(ApiError::bad_request(message));
        }
    };
    let r = crate::builtins::find("", plural);
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

/// POST to a service account's token subresource.
pub async fn token_request(call: &mut Call, sent: &[u8]) -> ApiResult<Response<Body>> {
    let (mut value, _) = body::decode_body(call, sent)?;
    if !value.is_object() {
        return Err(ApiError::bad_request("the body is not a TokenRequest object"));
    }
    let account = read::current(call).await?;
    let named = tree::meta_text(&value, "name");
    if !named.is_empty() && named != call.name {
        return Err(ApiError::bad_request(format!(
            "the name of the object ({named}) does not match the name on the URL ({})",
            call.name
        )));
    }
    let spec = value.get("spec").cloned().unwrap_or_default();
    let asked = spec.get("expirationSeconds").filter(|s| !s.is_null());
    if let Some(found) = asked.filter(|s| s.as_i64().is_none()) {
        return Err(ApiError::bad_request(format!(
            "TokenRequest in version \"v1\" cannot be handled as a TokenRequest: json: cannot unmarshal {found} into Go struct field TokenRequestSpec.spec.expirationSeconds of type int64"
        )));
    }
    let seconds = match asked.and_then(Value::as_i64) {
        None | Some(0) => DEFAULT_LIFE_S,
        Some(s) if !LIFE_S.contains(&s) => {
            let why = if s < *LIFE_S.start() {
                "may not specify a duration less than 10 minutes"
            } else {
                "may not specify a duration larger than 2^32 seconds"
            };
            let cause = Cause::invalid("spec.expirationSeconds", &json!(s), why);
            return Err(ApiError::invalid("authentication.k8s.io", "TokenRequest", &call.name, vec![cause]));
        }
        Some(s) => s,
    };
    let mut audiences = tree::list(&spec, &["audiences"]).to_vec();
    if audiences.is_empty() {
        audiences.push(AUDIENCE.into());
    }
    let mut scope = bound(call, &spec)?;
    scope.insert("namespace".into(), call.namespace.as_str().into());
    let uid = account.meta_text("uid");
    scope.insert("serviceaccount".into(), json!({"name": call.name, "uid": uid}));
    let now = call.core.clock.now().as_second();
    let claims = json!({
        "iss": AUDIENCE, "aud": audiences, "iat": now, "nbf": now, "exp": now + seconds,
        "jti": call.core.ids.uuid().to_string(), "sub": user_name(&call.namespace, &call.name),
        "kubernetes.io": scope,
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
    value["status"] = json!({"token": sign(&call.core, &claims), "expirationTimestamp": expires});
    Ok(http_io::value_response(StatusCode::CREATED, &value))
}
