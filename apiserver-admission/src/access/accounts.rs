//! Tokens of ServiceAccounts: their claims and their validity.
//!
//! Inputs: ServiceAccounts, Pods, Nodes and Secrets in the store, and the server's key. Absent on purpose: how
//! they are signed (see `signer`).

use crate::access::signer::Signer;
use crate::access::user::{CREDENTIAL_ID, User};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use fleet_apiserver_ground::digest;
use fleet_apiserver_ground::store::Obj;
use fleet_apiserver_ground::tree;
use fleet_apiserver_schema::base::Base;
use serde_json::{Value, json};
use std::sync::Arc;

/// Audience of tokens that name none, and issuer of all.
pub const AUDIENCE: &str = "https://kubernetes.default.svc";
/// Issuer of the tokens of Secrets, which never expire.
const LEGACY_ISSUER: &str = "kubernetes/serviceaccount";
/// Type of the Secrets that get a token.
const SECRET_TYPE: &str = "kubernetes.io/service-account-token";

/// Groups of every account of a namespace.
pub fn groups(namespace: &str) -> Vec<String> {
    vec!["system:serviceaccounts".into(), format!("system:serviceaccounts:{namespace}")]
}

/// Name of an account as a user.
pub fn user_name(namespace: &str, name: &str) -> String {
    format!("system:serviceaccount:{namespace}:{name}")
}

fn live(base: &Base, table: &str, key: &str, uid: &str) -> Option<Arc<Obj>> {
    let found = base.store.table(table).get(key)?;
    (found.meta_text("uid") == uid).then_some(found)
}

/// The identity of a token that is valid now, and for which of the wanted audiences.
pub fn verify(base: &Base, signer: &Signer, token: &str, wanted: &[String]) -> Option<(User, Vec<String>)> {
    let claims = signer.claims(token)?;
    if tree::text(&claims, &["iss"]) == LEGACY_ISSUER {
        return legacy(base, token, &claims, wanted);
    }
    let now = base.clock.now().as_second();
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
    live(base, "/serviceaccounts", &format!("{ns}/{name}"), uid)?;
    let mut user = User { name: user_name(ns, name), groups: groups(ns), uid: uid.into(), ..User::default() };
    user.extra.insert(CREDENTIAL_ID.into(), vec![format!("JTI={}", tree::text(&claims, &["jti"]))]);
    // A bound token is invalid once its object is gone.
    for (kind, table) in [("pod", "/pods"), ("secret", "/secrets"), ("node", "/nodes")] {
        let Some(bound) = scope.get(kind) else { continue };
        let (name, uid) = (tree::text(bound, &["name"]), tree::text(bound, &["uid"]));
        let key = if kind == "node" { name.to_string() } else { format!("{ns}/{name}") };
        // A node beside a pod only says where the pod runs.
        if !(kind == "node" && scope.get("pod").is_some()) {
            live(base, table, &key, uid)?;
        }
        if kind != "secret" {
            let extra = |what: &str| format!("authentication.kubernetes.io/{kind}-{what}");
            user.extra.insert(extra("name"), vec![name.into()]);
            user.extra.insert(extra("uid"), vec![uid.into()]);
        }
    }
    Some((user, good))
}

fn legacy(base: &Base, token: &str, claims: &Value, wanted: &[String]) -> Option<(User, Vec<String>)> {
    if !wanted.iter().any(|a| a == AUDIENCE) {
        return None;
    }
    let text = |key: &str| tree::text(claims, &[&format!("kubernetes.io/serviceaccount/{key}")]).to_string();
    let (ns, name, uid) = (text("namespace"), text("service-account.name"), text("service-account.uid"));
    live(base, "/serviceaccounts", &format!("{ns}/{name}"), &uid)?;
    let secret = base.store.table("/secrets").get(&format!("{ns}/{}", text("secret.name")))?;
    if !digest::same(secret.text(&["data", "token"]).as_bytes(), STANDARD.encode(token).as_bytes()) {
        return None;
    }
    let user = User { name: user_name(&ns, &name), groups: groups(&ns), uid, ..User::default() };
    Some((user, vec![AUDIENCE.into()]))
}

/// Puts token, namespace and certificate into a new Secret of the account type, if its account exists.
pub fn fill_secret(base: &Base, signer: &Signer, secret: &mut Value) {
    if tree::text(secret, &["type"]) != SECRET_TYPE {
        return;
    }
    let (ns, name) =
        (tree::meta_text(secret, "namespace").to_string(), tree::meta_text(secret, "name").to_string());
    let account =
        tree::text(secret, &["metadata", "annotations", "kubernetes.io/service-account.name"]).to_string();
    let Some(found) = base.store.table("/serviceaccounts").get(&format!("{ns}/{account}")) else { return };
    let uid = found.meta_text("uid");
    let claims = json!({
        "iss": LEGACY_ISSUER, "sub": user_name(&ns, &account),
        "kubernetes.io/serviceaccount/namespace": ns,
        "kubernetes.io/serviceaccount/secret.name": name,
        "kubernetes.io/serviceaccount/service-account.name": account,
        "kubernetes.io/serviceaccount/service-account.uid": uid,
    });
    let Some(token) = signer.sign(&claims) else { return };
    let annotations = tree::object(tree::meta(secret).entry("annotations").or_insert_with(|| json!({})));
    annotations.insert("kubernetes.io/service-account.uid".into(), uid.into());
    let data = tree::child(secret, "data");
    for (key, value) in [("token", token.as_str()), ("namespace", &ns), ("ca.crt", &base.ca_pem)] {
        data.insert(key.into(), STANDARD.encode(value).into());
    }
}
