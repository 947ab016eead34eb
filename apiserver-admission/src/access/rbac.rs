//! Role-based access control: the rules of a user, and whether they allow a request.
//!
//! Inputs: an identity and the RBAC objects in the store. [`aggregate`] fills roles with an aggregation rule.
//! Absent on purpose: who the caller is (see `auth`), and what nodes may do (see `node`).

use crate::access::auth::Auth;
use crate::access::node;
use crate::access::user::{AUTHENTICATED, Access, User};
use dashmap::DashMap;
use fleet_apiserver_ground::store::{Refused, Write};
use fleet_apiserver_ground::tree;
use fleet_apiserver_schema::base::Base;
use fleet_apiserver_schema::error::{ApiError, ApiResult};
use fleet_apiserver_schema::selectors::Labels;
use serde_json::{Value, json};
use std::sync::Arc;

mod bootstrap;
mod controllers;
mod escalation;
mod system;

pub use crate::access::question::Question;
pub use bootstrap::bootstrap;
pub use controllers::controllers;
pub use escalation::check_write;

/// Group of roles and bindings.
pub const GROUP: &str = "rbac.authorization.k8s.io";
/// Tables of roles, cluster roles, and their bindings.
pub const ROLES: &str = "rbac.authorization.k8s.io/roles";
/// See [`ROLES`].
pub const CLUSTER_ROLES: &str = "rbac.authorization.k8s.io/clusterroles";
const BINDINGS: &str = "rbac.authorization.k8s.io/rolebindings";
const CLUSTER_BINDINGS: &str = "rbac.authorization.k8s.io/clusterrolebindings";

/// One rule that applies to a user.
#[derive(Debug, Clone)]
pub struct Granted {
    /// The only namespace it applies in; None for all.
    pub namespace: Option<String>,
    /// The rule as the role has it.
    pub rule: Value,
    /// The role and binding that granted it, as a review names them.
    pub by: Arc<str>,
}

type Rules = Arc<Vec<Granted>>;

/// Rules by user, valid for one state of the RBAC tables.
pub type RuleCache = DashMap<String, (u64, Rules)>;

/// Users whose rules are kept.
const CACHE_USERS: usize = 10_000;

impl Auth {
    /// True when nothing needs to be asked about this user.
    pub fn trusts(&self, user: &User) -> bool {
        self.access == Access::AlwaysAllow || user.is_admin()
    }

    /// Fails with 403 unless the question is answered with yes.
    pub fn allow(&self, base: &Base, user: &User, q: &Question) -> ApiResult<()> {
        if self.allows(base, user, q) {
            return Ok(());
        }
        Err(refused(user, q, node::why_not(base, user, q).as_deref()))
    }

    /// Fails with 403 unless the path is allowed.
    pub fn allow_path(&self, base: &Base, user: &User, verb: &str, path: &str) -> ApiResult<()> {
        let q = Question { verb: verb.into(), path: path.into(), ..Question::default() };
        if self.allows(base, user, &q) { Ok(()) } else { Err(denied(user, &q)) }
    }

    /// The answer of the authorizer.
    pub fn allows(&self, base: &Base, user: &User, q: &Question) -> bool {
        self.trusts(user) || self.reason(base, user, q).is_some()
    }

    /// Which grant allows it, by the roles alone.
    pub fn reason(&self, base: &Base, user: &User, q: &Question) -> Option<Arc<str>> {
        if let Some(node) = node::name_of(user)
            && node::judge(base, node, q).is_ok()
        {
            return Some("allowed to the node itself".into());
        }
        let rules = self.rules(base, user);
        let hit = rules.iter().find(|g| {
            g.namespace.as_ref().is_none_or(|n| *n == q.namespace && !n.is_empty()) && covers(&g.rule, q)
        });
        hit.map(|g| g.by.clone())
    }

    /// All rules that apply to a user.
    pub fn rules(&self, base: &Base, user: &User) -> Rules {
        let tables = [ROLES, CLUSTER_ROLES, BINDINGS, CLUSTER_BINDINGS];
        let state: u64 = tables.iter().map(|t| base.store.table(t).last()).max().unwrap_or(0);
        let key = format!("{}\0{}\0{}", user.name, user.groups.join("\0"), user.uid);
        if let Some(hit) = self.cache.get(&key)
            && hit.0 == state
        {
            return hit.1.clone();
        }
        let mut out = builtin_rules(user);
        for (table, cluster) in [(CLUSTER_BINDINGS, true), (BINDINGS, false)] {
            for binding in base.store.table(table).objects() {
                let b = &binding.value();
                let ns = tree::meta_text(b, "namespace");
                let subjects = tree::list(b, &["subjects"]);
                let Some(subject) = subjects.iter().find(|s| is_subject(s, ns, user)) else { continue };
                let Some(role) = referenced(base, b) else { continue };
                let kind = if cluster { "ClusterRoleBinding" } else { "RoleBinding" };
                let place = if cluster { String::new() } else { format!("/{ns}") };
                let by: Arc<str> = format!(
                    "RBAC: allowed by {kind} \"{}{place}\" of {} \"{}\" to {} \"{}\"",
                    tree::meta_text(b, "name"),
                    tree::text(b, &["roleRef", "kind"]),
                    tree::text(b, &["roleRef", "name"]),
                    tree::text(subject, &["kind"]),
                    tree::text(subject, &["name"]),
                )
                .into();
                let namespace = (!cluster).then(|| ns.to_string());
                out.extend(tree::list(&role, &["rules"]).iter().map(|rule| Granted {
                    namespace: namespace.clone(),
                    rule: rule.clone(),
                    by: by.clone(),
                }));
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

/// The role a binding refers to.
fn referenced(base: &Base, binding: &Value) -> Option<Value> {
    let name = tree::text(binding, &["roleRef", "name"]);
    let (table, key) = match tree::text(binding, &["roleRef", "kind"]) {
        "ClusterRole" => (CLUSTER_ROLES, name.to_string()),
        _ => (ROLES, format!("{}/{name}", tree::meta_text(binding, "namespace"))),
    };
    base.store.table(table).get(&key).map(|role| role.value())
}

/// Rules every server has, whatever is stored: discovery and self reviews.
fn builtin_rules(user: &User) -> Vec<Granted> {
    let by: Arc<str> = "allowed to everybody".into();
    let mut out =
        vec![json!({"verbs": ["get"], "nonResourceURLs": ["/version", "/version/", "/healthz", "/livez",
        "/readyz", "/healthz/*", "/livez/*", "/readyz/*"]})];
    if user.groups.iter().any(|g| g == AUTHENTICATED) {
        out.push(json!({"verbs": ["get"],
            "nonResourceURLs": ["/", "/api", "/api/*", "/apis", "/apis/*", "/openapi", "/openapi/*"]}));
        out.push(json!({"apiGroups": ["authorization.k8s.io"], "verbs": ["create"],
            "resources": ["selfsubjectaccessreviews", "selfsubjectrulesreviews"]}));
        out.push(json!({"apiGroups": ["authentication.k8s.io"], "verbs": ["create"],
            "resources": ["selfsubjectreviews"]}));
    }
    out.into_iter().map(|rule| Granted { namespace: None, rule, by: by.clone() }).collect()
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

/// 403 with the message of the real server.
pub fn denied(user: &User, q: &Question) -> ApiError {
    refused(user, q, None)
}

/// The same, with what else is to be said.
fn refused(user: &User, q: &Question, why: Option<&str>) -> ApiError {
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
    let text = why.map_or(text.clone(), |why| format!("{text}: {why}"));
    ApiError::access_denied(&q.group, &q.resource, &q.name, text)
}

/// Fills the rules of every cluster role that has an aggregation rule, from the roles it selects.
pub fn aggregate(base: &Base) {
    let table = base.store.table(CLUSTER_ROLES);
    // Roles may select other aggregated roles: as many rounds as there are roles resolve any chain.
    for _ in 0..=table.len() {
        let roles = table.objects();
        let mut changed = false;
        for role in &roles {
            let selectors = role.list(&["aggregationRule", "clusterRoleSelectors"]);
            if selectors.is_empty() {
                continue;
            }
            let selectors: Vec<Labels> = selectors.iter().map(Labels::from_object).collect();
            let mut rules: Vec<Value> = Vec::new();
            for other in roles.iter().filter(|o| o.key != role.key) {
                if selectors.iter().any(|s| s.matches(&other.node())) {
                    for rule in other.list(&["rules"]) {
                        if !rules.contains(&rule) {
                            rules.push(rule.clone());
                        }
                    }
                }
            }
            if role.list(&["rules"]) == rules {
                continue;
            }
            let mut value = role.full();
            tree::object(&mut value).insert("rules".into(), Value::Array(rules));
            let write = Write::Update { table: table.clone(), prev: role.clone(), value };
            match base.store.commit(vec![write]) {
                Ok(_) | Err(Refused::Changed(_)) => changed = true,
                Err(e) => {
                    tracing::warn!(role = &*role.key, error = ?e, "an aggregated role could not be filled");
                    return;
                }
            }
        }
        if !changed {
            return;
        }
    }
}
