//! Identities: client certificates, bearer tokens, service account tokens, impersonation.
//!
//! Inputs: request headers, the certificate of the connection, and ServiceAccounts in the store.
//! Absent on purpose: what an identity may do (see `rbac`), OIDC and the node authorizer.

use crate::access::accounts;
use crate::access::rbac::{Question, RuleCache};
use crate::access::signer::Signer;
use crate::access::user::{AUTHENTICATED, Access, Certified, Door, MASTERS, User};
use dashmap::DashMap;
use fleet_apiserver_ground::digest;
use fleet_apiserver_schema::base::Base;
use fleet_apiserver_schema::error::{ApiError, ApiResult};
use http::{HeaderMap, header};
use std::collections::BTreeMap;

/// The identities of a server, and the rules already worked out for them.
pub struct Auth {
    /// Whether permissions are asked at all.
    pub access: Access,
    /// Signs and checks service account tokens.
    pub signer: Signer,
    /// Key of the digests by which static tokens are kept.
    salt: [u8; 32],
    /// Users by the digest of their token: the tokens themselves are nowhere.
    tokens: DashMap<[u8; 32], User>,
    /// Compiled rules by user.
    pub cache: RuleCache,
}

impl Auth {
    /// Identities with what signs service account tokens, and the salt of static ones.
    pub fn new(access: Access, signer: Signer, salt: &str) -> Auth {
        let salt = digest::sha256(salt.as_bytes());
        Auth { access, signer, salt, tokens: DashMap::new(), cache: RuleCache::default() }
    }

    /// By what a static token is kept and known again.
    pub fn digest(&self, token: &str) -> [u8; 32] {
        token_digest(&self.salt, token)
    }

    /// Adds a static token, by its digest.
    pub fn add_token(&self, digest: [u8; 32], name: &str, groups: &[String]) {
        let user = User { name: name.into(), groups: groups.to_vec(), ..User::default() };
        self.tokens.insert(digest, user);
    }

    /// The user of a static token. The time of the look-up depends on the digest only, so a token cannot be guessed
    /// byte by byte.
    fn static_token(&self, token: &str) -> Option<User> {
        let digest = self.digest(token);
        let known = self.tokens.get(&digest)?;
        digest::same(known.key(), &digest).then(|| known.clone())
    }

    /// The identity that the caller's credential proves.
    pub fn identify(
        &self,
        base: &Base,
        door: Door,
        headers: &HeaderMap,
        certificate: Option<&Certified>,
    ) -> ApiResult<User> {
        Ok(match (certificate, headers.get(header::AUTHORIZATION)) {
            (Some(Certified::User(user)), _) => user.clone(),
            // A header without a token proves as little as none.
            (_, Some(value)) if !bare(value) => {
                let text = value.to_str().unwrap_or_default();
                let token = text.strip_prefix("Bearer ").or_else(|| text.strip_prefix("bearer "));
                let token = token.ok_or_else(ApiError::unauthorized)?.trim();
                self.bearer(base, token).ok_or_else(ApiError::unauthorized)?
            }
            (Some(Certified::Unknown), _) => return Err(ApiError::unauthorized()),
            (None, None) if door == Door::Process => User::new("system:admin", &[MASTERS, AUTHENTICATED]),
            (None, _) if self.access == Access::AlwaysAllow => {
                User::new("system:admin", &[MASTERS, AUTHENTICATED])
            }
            (None, _) => User::new("system:anonymous", &["system:unauthenticated"]),
        })
    }

    /// The identity of a bearer token for the server itself.
    fn bearer(&self, base: &Base, token: &str) -> Option<User> {
        let mut user = self.static_token(token).or_else(|| {
            accounts::verify(base, &self.signer, token, &[accounts::AUDIENCE.to_string()]).map(|v| v.0)
        })?;
        user.groups.push(AUTHENTICATED.into());
        Some(user)
    }

    /// The identity of a token, and for which of these audiences it is good.
    pub fn review(&self, base: &Base, token: &str, audiences: &[String]) -> Option<(User, Vec<String>)> {
        let ours = || vec![accounts::AUDIENCE.to_string()];
        let wanted = if audiences.is_empty() { ours() } else { audiences.to_vec() };
        let (mut user, good) = match self.static_token(token) {
            // A static token is good for the server only.
            Some(user) if wanted.iter().any(|a| a == accounts::AUDIENCE) => (user, ours()),
            Some(_) => return None,
            None => accounts::verify(base, &self.signer, token, &wanted)?,
        };
        user.groups.push(AUTHENTICATED.into());
        Some((user, good))
    }

    /// Whom the caller acts as: itself, or whom impersonation headers name.
    pub fn impersonate(&self, base: &Base, user: User, headers: &HeaderMap) -> ApiResult<User> {
        let wanted = Impersonation::read(headers)?;
        let Some(Impersonation { name, uid, groups, extra }) = wanted else { return Ok(user) };
        let full = name.clone();
        let account = full.strip_prefix("system:serviceaccount:").and_then(|r| r.split_once(':'));
        let ask = |group: &str, resource: &str, subresource: &str, namespace: &str, name: &str| Question {
            verb: "impersonate".into(),
            group: group.into(),
            resource: resource.into(),
            subresource: subresource.into(),
            namespace: namespace.into(),
            name: name.into(),
            ..Question::default()
        };
        let mut asks = vec![match account {
            Some((ns, n)) => ask("", "serviceaccounts", "", ns, n),
            None => ask("", "users", "", "", &name),
        }];
        asks.extend(groups.iter().map(|g| ask("", "groups", "", "", g)));
        let private = "authentication.k8s.io";
        for (key, values) in &extra {
            asks.extend(values.iter().map(|v| ask(private, "userextras", key, "", v)));
        }
        if !uid.is_empty() {
            asks.push(ask(private, "uids", "", "", &uid));
        }
        for question in &asks {
            if !self.allows(base, &user, question) {
                return Err(crate::access::rbac::denied(&user, question));
            }
        }
        let mut found = User { name, groups, uid, extra };
        if let Some((ns, _)) = account.filter(|_| found.groups.is_empty()) {
            found.groups = accounts::groups(ns);
        }
        let fixed = [AUTHENTICATED, "system:unauthenticated"];
        if found.name != "system:anonymous" && !found.groups.iter().any(|g| fixed.contains(&g.as_str())) {
            found.groups.push(AUTHENTICATED.into());
        }
        Ok(found)
    }
}

/// By what a static token is kept, with the salt of its store.
pub fn token_digest(salt: &[u8; 32], token: &str) -> [u8; 32] {
    digest::hmac(salt, token.as_bytes())
}

/// A bearer's header without a token.
fn bare(value: &http::HeaderValue) -> bool {
    matches!(value.to_str().unwrap_or_default().trim(), "" | "Bearer" | "bearer")
}

struct Impersonation {
    name: String,
    uid: String,
    groups: Vec<String>,
    extra: BTreeMap<String, Vec<String>>,
}

/// A list of texts as Go shows it.
fn go_list(list: &[String]) -> String {
    if list.is_empty() {
        return "[]string(nil)".into();
    }
    let texts: Vec<String> = list.iter().map(|text| format!("{text:?}")).collect();
    format!("[]string{{{}}}", texts.join(", "))
}

fn go_map(map: &BTreeMap<String, Vec<String>>) -> String {
    if map.is_empty() {
        return "map[string][]string(nil)".into();
    }
    let entries: Vec<String> = map.iter().map(|(k, v)| format!("{k:?}:{}", go_list(v))).collect();
    format!("map[string][]string{{{}}}", entries.join(", "))
}

impl Impersonation {
    fn read(headers: &HeaderMap) -> ApiResult<Option<Impersonation>> {
        const EXTRA: &str = "impersonate-extra-";
        // Most requests carry none of these.
        if !headers.keys().any(|k| k.as_str().starts_with("impersonate-")) {
            return Ok(None);
        }
        let text = |v: &http::HeaderValue| v.to_str().unwrap_or_default().to_string();
        let one = |key: &str| headers.get(key).map(text).unwrap_or_default();
        let groups: Vec<String> = headers.get_all("impersonate-group").iter().map(text).collect();
        let mut extra: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (key, value) in headers {
            if let Some(key) = key.as_str().strip_prefix(EXTRA) {
                let key = percent_encoding::percent_decode_str(key).decode_utf8_lossy().into_owned();
                extra.entry(key).or_default().push(text(value));
            }
        }
        let (name, uid) = (one("impersonate-user"), one("impersonate-uid"));
        if name.is_empty() {
            return Err(ApiError::bad_request(format!(
                "requested &user.DefaultInfo{{Name:\"\", UID:{uid:?}, Groups:{}, Extra:{}}} without impersonating a user name",
                go_list(&groups),
                go_map(&extra)
            )));
        }
        Ok(Some(Impersonation { name, uid, groups, extra }))
    }
}
