//! Identities and permissions: bearer tokens, service account tokens, impersonation, and RBAC.
//!
//! Inputs: request headers and the RBAC objects in the store.
//! Absent on purpose: client certificates, OIDC, the node authorizer and escalation checks.

use crate::error::{ApiError, ApiResult};
use crate::server::{Call, Core};
use crate::tree;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use dashmap::DashMap;
use http::{HeaderMap, header};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::sync::Arc;

/// Who may do what.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Access {
    /// Everybody may do everything (tests).
    #[default]
    AlwaysAllow,
    /// Role-based access control; callers over the network must identify themselves.
    Rbac,
}

/// Where a request came in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Door {
    /// The in-process router: without an Authorization header the caller is an administrator.
    Process,
    /// The TLS listener.
    Network,
}

/// An authenticated identity.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct User {
    /// User name.
    pub name: String,
    /// Groups.
    pub groups: Vec<String>,
    /// Uid, if known.
    pub uid: String,
}

impl User {
    fn new(name: &str, groups: &[&str]) -> User {
        User { name: name.into(), groups: groups.iter().map(|g| g.to_string()).collect(), uid: String::new() }
    }

    fn is_admin(&self) -> bool {
        self.groups.iter().any(|g| g == "system:masters")
    }
}

/// What is asked for.
#[derive(Debug, Clone, Default)]
pub struct Question {
    /// Verb.
    pub verb: String,
    /// API group.
    pub group: String,
    /// Plural, empty for a path.
    pub resource: String,
    /// Subresource.
    pub subresource: String,
    /// Namespace, empty for cluster scope.
    pub namespace: String,
    /// Object name.
    pub name: String,
    /// URL path of a non-resource request.
    pub path: String,
}

type Rules = Arc<Vec<(Option<String>, Value)>>;

/// The identities of a server.
pub struct Auth {
    access: Access,
    /// Key of service account tokens.
    key: [u8; 32],
    tokens: DashMap<String, User>,
    /// Compiled rules by user, valid for one state of the RBAC tables.
    cache: DashMap<String, (u64, Rules)>,
}

const RBAC_TABLES: [&str; 4] = [
    "rbac.authorization.k8s.io/roles",
    "rbac.authorization.k8s.io/clusterroles",
    "rbac.authorization.k8s.io/rolebindings",
    "rbac.authorization.k8s.io/clusterrolebindings",
];
/// Users whose rules are kept.
const CACHE_USERS: usize = 10_000;

impl Auth {
    /// Identities with the key that signs service account tokens.
    pub fn new(access: Access, key: [u8; 32]) -> Auth {
        Auth { access, key, tokens: DashMap::new(), cache: DashMap::new() }
    }

    /// Adds a static token.
    pub fn add_token(&self, token: &str, name: &str, groups: &[String]) {
        let user = User { name: name.into(), groups: groups.to_vec(), uid: String::new() };
        self.tokens.insert(token.to_string(), user);
    }

    /// Identifies the caller, following impersonation headers.
    pub fn authenticate(&self, core: &Core, door: Door, headers: &HeaderMap) -> ApiResult<User> {
        let mut user = match headers.get(header::AUTHORIZATION) {
            Some(value) => {
                let text = value.to_str().unwrap_or_default();
                let token = text.strip_prefix("Bearer ").or_else(|| text.strip_prefix("bearer "));
                let Some(token) = token else { return Err(ApiError::unauthorized()) };
                let known = self.tokens.get(token.trim()).map(|u| u.clone());
                let mut user =
                    known.or_else(|| self.account(core, token.trim())).ok_or_else(ApiError::unauthorized)?;
                user.groups.push("system:authenticated".into());
                user
            }
            None if door == Door::Process || self.access == Access::AlwaysAllow => {
                User::new("system:admin", &["system:masters", "system:authenticated"])
            }
            None => User::new("system:anonymous", &["system:unauthenticated"]),
        };
        if let Some(name) = headers.get("impersonate-user").and_then(|v| v.to_str().ok()) {
            user = self.impersonate(core, &user, name, headers)?;
        }
        Ok(user)
    }

    fn impersonate(&self, core: &Core, user: &User, name: &str, headers: &HeaderMap) -> ApiResult<User> {
        let groups: Vec<String> = headers
            .get_all("impersonate-group")
            .iter()
            .filter_map(|v| v.to_str().ok().map(str::to_string))
            .collect();
        let account = name.strip_prefix("system:serviceaccount:").and_then(|r| r.split_once(':'));
        let mut asks = vec![match account {
            Some((ns, n)) => ("serviceaccounts", ns, n),
            None => ("users", "", name),
        }];
        asks.extend(groups.iter().map(|g| ("groups", "", g.as_str())));
        for (resource, namespace, name) in asks {
            let q = Question {
                verb: "impersonate".into(),
                resource: resource.into(),
                namespace: namespace.into(),
                name: name.into(),
                ..Question::default()
            };
            if !self.allows(core, user, &q) {
                return Err(denied(user, &q));
            }
        }
        let mut found = User { name: name.into(), groups, uid: String::new() };
        if let Some((ns, _)) = account {
            found
                .groups
                .extend(["system:serviceaccounts".to_string(), format!("system:serviceaccounts:{ns}")]);
        }
        if name != "system:anonymous" {
            found.groups.push("system:authenticated".into());
        }
        Ok(found)
    }

    /// Makes a service account token.
    pub fn sign(&self, claims: &Value) -> String {
        let head = URL_SAFE_NO_PAD.encode(r#"{"alg":"HS256","typ":"JWT"}"#);
        let body = URL_SAFE_NO_PAD.encode(claims.to_string());
        let signature = URL_SAFE_NO_PAD.encode(hmac(&self.key, format!("{head}.{body}").as_bytes()));
        format!("{head}.{body}.{signature}")
    }

    /// The identity of a service account token that is valid now.
    pub fn account(&self, core: &Core, token: &str) -> Option<User> {
        let (signed, signature) = token.rsplit_once('.')?;
        let given = URL_SAFE_NO_PAD.decode(signature).ok()?;
        let want = hmac(&self.key, signed.as_bytes());
        // Constant time, so that a signature cannot be guessed byte by byte.
        if given.len() != want.len() || given.iter().zip(&want).fold(0, |d, (a, b)| d | (a ^ b)) != 0 {
            return None;
        }
        let claims: Value =
            serde_json::from_slice(&URL_SAFE_NO_PAD.decode(signed.split_once('.')?.1).ok()?).ok()?;
        if tree::number(&claims, &["exp"]) < core.clock.now().as_second() {
            return None;
        }
        let scope = claims.get("kubernetes.io")?;
        let (ns, name) = (tree::text(scope, &["namespace"]), tree::text(scope, &["serviceaccount", "name"]));
        let account = core.store.table("/serviceaccounts").get(&format!("{ns}/{name}"))?;
        let uid = tree::meta_text(&account.value, "uid");
        if uid != tree::text(scope, &["serviceaccount", "uid"]) {
            return None;
        }
        Some(User {
            name: format!("system:serviceaccount:{ns}:{name}"),
            groups: vec!["system:serviceaccounts".into(), format!("system:serviceaccounts:{ns}")],
            uid: uid.to_string(),
        })
    }

    /// Fails with 403 unless the call is allowed.
    pub fn allow(&self, core: &Core, call: &Call, verb: &str) -> ApiResult<()> {
        if self.access == Access::AlwaysAllow || call.user.is_admin() {
            return Ok(());
        }
        let r = call.resource();
        // A list or watch of one name counts as that object, as in the real server.
        let named = call.params.get("fieldSelector").strip_prefix("metadata.name=");
        let name = match named {
            Some(one) if call.name.is_empty() && !one.contains(',') => {
                one.trim_start_matches('=').to_string()
            }
            _ => call.name.clone(),
        };
        let q = Question {
            verb: verb.into(),
            group: r.group.clone(),
            resource: r.plural.clone(),
            subresource: call.subresource.clone(),
            // Rights on a namespace object are asked inside that namespace.
            namespace: if r.is("", "namespaces") { name.clone() } else { call.namespace.clone() },
            name,
            path: String::new(),
        };
        if self.allows(core, &call.user, &q) { Ok(()) } else { Err(denied(&call.user, &q)) }
    }

    /// Fails with 403 unless the path is allowed.
    pub fn allow_path(&self, core: &Core, user: &User, verb: &str, path: &str) -> ApiResult<()> {
        let q = Question { verb: verb.into(), path: path.into(), ..Question::default() };
        if self.allows(core, user, &q) { Ok(()) } else { Err(denied(user, &q)) }
    }

    /// The answer of the authorizer.
    pub fn allows(&self, core: &Core, user: &User, q: &Question) -> bool {
        if self.access == Access::AlwaysAllow || user.is_admin() {
            return true;
        }
        self.rules(core, user).iter().any(|(ns, rule)| {
            ns.as_ref().is_none_or(|n| *n == q.namespace && !n.is_empty()) && covers(rule, q)
        })
    }

    /// All rules that apply to a user: the namespace they are limited to (None for all) and the rule.
    pub fn rules(&self, core: &Core, user: &User) -> Rules {
        let state: u64 = RBAC_TABLES.iter().map(|t| core.store.table(t).last()).max().unwrap_or(0);
        let key = format!("{}\0{}\0{}", user.name, user.groups.join("\0"), user.uid);
        if let Some(hit) = self.cache.get(&key)
            && hit.0 == state
        {
            return hit.1.clone();
        }
        let mut out: Vec<(Option<String>, Value)> = builtin_rules(user);
        let role = |kind: &str, ns: &str, name: &str| {
            let (table, key) = match kind {
                "ClusterRole" => (RBAC_TABLES[1], name.to_string()),
                _ => (RBAC_TABLES[0], format!("{ns}/{name}")),
            };
            core.store.table(table).get(&key)
        };
        for (table, cluster) in [(RBAC_TABLES[3], true), (RBAC_TABLES[2], false)] {
            for binding in core.store.table(table).objects() {
                let b = &binding.value;
                let ns = tree::meta_text(b, "namespace");
                if !tree::list(b, &["subjects"]).iter().any(|s| is_subject(s, ns, user)) {
                    continue;
                }
                let found =
                    role(tree::text(b, &["roleRef", "kind"]), ns, tree::text(b, &["roleRef", "name"]));
                for rule in found.iter().flat_map(|r| tree::list(&r.value, &["rules"])) {
                    out.push(((!cluster).then(|| ns.to_string()), rule.clone()));
                }
            }
        }
        let rules: Rules = Arc::new(out);
        if self.cache.len() >= CACHE_USERS {
            self.cache.clear();
        }
        self.cache.insert(key, (state, rules.clone()));
        rules
    }
}

/// Rules every server has, whatever is stored: discovery and self reviews.
fn builtin_rules(user: &User) -> Vec<(Option<String>, Value)> {
    let mut out = vec![(
        None,
        json!({"nonResourceURLs": ["/version", "/version/", "/healthz", "/livez", "/readyz", "/healthz/*", "/livez/*", "/readyz/*"],
            "verbs": ["get"]}),
    )];
    if user.groups.iter().any(|g| g == "system:authenticated") {
        out.push((
            None,
            json!({"nonResourceURLs": ["/", "/api", "/api/*", "/apis", "/apis/*", "/openapi", "/openapi/*"], "verbs": ["get"]}),
        ));
        out.push((
            None,
            json!({"apiGroups": ["authorization.k8s.io"], "verbs": ["create"],
                "resources": ["selfsubjectaccessreviews", "selfsubjectrulesreviews"]}),
        ));
        out.push((
            None,
            json!({"apiGroups": ["authentication.k8s.io"], "resources": ["selfsubjectreviews"], "verbs": ["create"]}),
        ));
    }
    out
}

fn is_subject(s: &Value, binding_namespace: &str, user: &User) -> bool {
    let name = tree::text(s, &["name"]);
    match tree::text(s, &["kind"]) {
        "User" => name == user.name,
        "Group" => user.groups.iter().any(|g| g == name),
        "ServiceAccount" => {
            let ns = match tree::text(s, &["namespace"]) {
                "" => binding_namespace,
                n => n,
            };
            user.name == format!("system:serviceaccount:{ns}:{name}")
        }
        _ => false,
    }
}

fn covers(rule: &Value, q: &Question) -> bool {
    let has = |key: &str, want: &str| tree::list(rule, &[key]).iter().any(|v| v == want || v == "*");
    if !has("verbs", &q.verb) {
        return false;
    }
    if q.resource.is_empty() {
        return tree::list(rule, &["nonResourceURLs"])
            .iter()
            .filter_map(Value::as_str)
            .any(|u| u == q.path || u.strip_suffix('*').is_some_and(|prefix| q.path.starts_with(prefix)));
    }
    let names = tree::list(rule, &["resourceNames"]);
    if !has("apiGroups", &q.group) || !(names.is_empty() || names.iter().any(|n| *n == q.name)) {
        return false;
    }
    tree::list(rule, &["resources"]).iter().filter_map(Value::as_str).any(|r| {
        if q.subresource.is_empty() {
            r == "*" || r == q.resource
        } else {
            let both = r.split_once('/');
            r == "*" || both.is_some_and(|(a, b)| (a == "*" || a == q.resource) && b == q.subresource)
        }
    })
}

fn denied(user: &User, q: &Question) -> ApiError {
    if q.resource.is_empty() {
        let text = format!("forbidden: User \"{}\" cannot {} path \"{}\"", user.name, q.verb, q.path);
        return ApiError::access_denied("", "", "", text);
    }
    let resource = if q.subresource.is_empty() {
        q.resource.clone()
    } else {
        format!("{}/{}", q.resource, q.subresource)
    };
    let plural = if q.group.is_empty() { q.resource.clone() } else { format!("{}.{}", q.resource, q.group) };
    let named = if q.name.is_empty() { String::new() } else { format!(" \"{}\"", q.name) };
    let scope = if q.namespace.is_empty() || q.resource == "namespaces" {
        "at the cluster scope".to_string()
    } else {
        format!("in the namespace \"{}\"", q.namespace)
    };
    let text = format!(
        "{plural}{named} is forbidden: User \"{}\" cannot {} resource \"{resource}\" in API group \"{}\" {scope}",
        user.name, q.verb, q.group
    );
    ApiError::access_denied(&q.group, &q.resource, &q.name, text)
}

/// SHA-256.
pub fn sha256(data: &[u8]) -> [u8; 32] {
    Sha256::digest(data).into()
}

/// Lower-case hexadecimal.
pub fn hex(data: &[u8]) -> String {
    data.iter().map(|b| format!("{b:02x}")).collect()
}

/// HMAC-SHA-256 (RFC 2104).
fn hmac(key: &[u8; 32], data: &[u8]) -> [u8; 32] {
    let pad = |x: u8| {
        let mut block = [x; 64];
        block.iter_mut().zip(key).for_each(|(b, k)| *b ^= k);
        block
    };
    let inner = Sha256::new().chain_update(pad(0x36)).chain_update(data).finalize();
    Sha256::new().chain_update(pad(0x5c)).chain_update(inner).finalize().into()
}

/// A random token.
pub fn random_token() -> String {
    let a = uuid::Uuid::new_v4();
    let b = uuid::Uuid::new_v4();
    URL_SAFE_NO_PAD.encode([a.as_bytes().as_slice(), b.as_bytes().as_slice()].concat())
}

/// The bootstrap roles and bindings, as (table, object).
pub fn bootstrap() -> Vec<(&'static str, Value)> {
    let role = |name: &str, rules: Value| {
        (
            RBAC_TABLES[1],
            json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
                "metadata": {"name": name, "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"}}, "rules": rules}),
        )
    };
    let bind = |name: &str, group: &str| {
        (
            RBAC_TABLES[3],
            json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
                "metadata": {"name": name, "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"}},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
                "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": group}]}),
        )
    };
    let read = json!(["get", "list", "watch"]);
    let write = json!(["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]);
    let namespaced = json!(["*"]);
    let groups = json!([
        "",
        "apps",
        "batch",
        "autoscaling",
        "policy",
        "networking.k8s.io",
        "discovery.k8s.io",
        "coordination.k8s.io",
        "events.k8s.io"
    ]);
    vec![
        role(
            "cluster-admin",
            json!([
            {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]},
            {"nonResourceURLs": ["*"], "verbs": ["*"]}]),
        ),
        bind("cluster-admin", "system:masters"),
        role(
            "admin",
            json!([
            {"apiGroups": groups, "resources": namespaced, "verbs": write},
            {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["roles", "rolebindings"], "verbs": write}]),
        ),
        role("edit", json!([{"apiGroups": groups, "resources": namespaced, "verbs": write}])),
        role(
            "view",
            json!([
            {"apiGroups": [""], "resources": ["configmaps", "endpoints", "events", "limitranges", "namespaces",
                "persistentvolumeclaims", "pods", "pods/log", "pods/status", "replicationcontrollers",
                "resourcequotas", "serviceaccounts", "services"], "verbs": read},
            {"apiGroups": ["apps", "batch", "autoscaling", "policy", "networking.k8s.io", "discovery.k8s.io", "events.k8s.io"],
                "resources": ["*"], "verbs": read}]),
        ),
        role(
            "system:discovery",
            json!([{"nonResourceURLs": ["/api", "/api/*", "/apis", "/apis/*", "/healthz",
            "/livez", "/openapi", "/openapi/*", "/readyz", "/version", "/version/"], "verbs": ["get"]}]),
        ),
        bind("system:discovery", "system:authenticated"),
        role(
            "system:basic-user",
            json!([
            {"apiGroups": ["authorization.k8s.io"], "resources": ["selfsubjectaccessreviews", "selfsubjectrulesreviews"], "verbs": ["create"]},
            {"apiGroups": ["authentication.k8s.io"], "resources": ["selfsubjectreviews"], "verbs": ["create"]}]),
        ),
        bind("system:basic-user", "system:authenticated"),
        role(
            "system:public-info-viewer",
            json!([{"nonResourceURLs": ["/healthz", "/livez", "/readyz", "/version", "/version/"], "verbs": ["get"]}]),
        ),
        bind("system:public-info-viewer", "system:unauthenticated"),
    ]
}

#[cfg(test)]
mod tests {
    #[test]
    fn hmac_of_rfc_4231() {
        let mut key = [0u8; 32];
        key[..4].copy_from_slice(b"Jefe");
        let got = super::hex(&super::hmac(&key, b"what do ya want for nothing?"));
        assert_eq!(got, "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
    }
}
