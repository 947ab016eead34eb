//! The escalation check on every write of a role or binding: a user can grant only what he holds.
//!
//! Inputs: the writer's rules and the rules granted. The verbs `escalate` (on roles) and `bind` (on the role a
//! binding refers to) lift it. Source: the escalation check of Kubernetes' RBAC storage.

use super::{CLUSTER_ROLES, GROUP, Question, ROLES, referenced};
use crate::access::auth::Auth;
use crate::access::user::{Access, User};
use fleet_apiserver_ground::tree;
use fleet_apiserver_schema::base::Base;
use fleet_apiserver_schema::error::{ApiError, ApiResult};
use fleet_apiserver_schema::resource::Resource;
use serde_json::{Value, json};

/// Most single grants considered for one write. A role with more is refused, unless the writer has each of its
/// rules as a whole.
const MOST_GRANTS: usize = 20_000;

/// Refuses a role or binding that grants more than its writer holds.
pub fn check_write(
    base: &Base,
    auth: &Auth,
    user: &User,
    r: &Resource,
    old: Option<&Value>,
    new: &Value,
) -> ApiResult<()> {
    if r.custom || r.group != GROUP || auth.access == Access::AlwaysAllow || user.is_admin() {
        return Ok(());
    }
    let (namespace, name) = (tree::meta_text(new, "namespace"), tree::meta_text(new, "name"));
    let ask = |verb: &str, resource: &str, name: &str| {
        let q = Question {
            verb: verb.into(),
            group: GROUP.into(),
            resource: resource.into(),
            namespace: namespace.into(),
            name: name.into(),
            ..Question::default()
        };
        auth.allows(base, user, &q)
    };
    match r.plural.as_str() {
        "roles" | "clusterroles" => {
            let same = |key: &str| old.is_some_and(|o| o.get(key) == new.get(key));
            if (same("rules") && same("aggregationRule")) || ask("escalate", &r.plural, name) {
                return Ok(());
            }
            let aggregated = json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]});
            if new.get("aggregationRule").is_some()
                && !same("aggregationRule")
                && refuse(base, auth, user, r, name, namespace, &[aggregated]).is_err()
            {
                let why = "must have cluster-admin privileges to use an aggregationRule";
                return Err(ApiError::forbidden(r, name, why));
            }
            refuse(base, auth, user, r, name, namespace, tree::list(new, &["rules"]))
        }
        "rolebindings" | "clusterrolebindings" => {
            let same = old.is_some_and(|o| {
                o.get("roleRef") == new.get("roleRef") && o.get("subjects") == new.get("subjects")
            });
            let cluster = tree::text(new, &["roleRef", "kind"]) == "ClusterRole";
            let plural = if cluster { "clusterroles" } else { "roles" };
            let target = tree::text(new, &["roleRef", "name"]);
            if same || ask("bind", plural, target) {
                return Ok(());
            }
            let Some(role) = referenced(base, new) else {
                let table = if cluster { CLUSTER_ROLES } else { ROLES };
                let missing = Resource {
                    group: GROUP.into(),
                    plural: table.rsplit('/').next().unwrap_or_default().into(),
                    ..Resource::default()
                };
                return Err(ApiError::not_found(&missing, target));
            };
            refuse(base, auth, user, r, name, namespace, tree::list(&role, &["rules"]))
        }
        _ => Ok(()),
    }
}

fn refuse(
    base: &Base,
    auth: &Auth,
    user: &User,
    r: &Resource,
    name: &str,
    namespace: &str,
    wanted: &[Value],
) -> ApiResult<()> {
    let rules = auth.rules(base, user);
    let held: Vec<&Value> = rules
        .iter()
        .filter(|g| g.namespace.as_ref().is_none_or(|n| !namespace.is_empty() && n == namespace))
        .map(|g| &g.rule)
        .collect();
    let missing = uncovered(&held, wanted);
    if missing.is_empty() {
        return Ok(());
    }
    let list: Vec<String> = missing.iter().take(100).map(shown).collect();
    let groups: Vec<String> = user.groups.iter().map(|g| format!("{g:?}")).collect();
    let why = format!(
        "user {:?} (groups=[{}]) is attempting to grant RBAC permissions not currently held:\n{}",
        user.name,
        groups.join(" "),
        list.join("\n")
    );
    Err(ApiError::forbidden(r, name, &why))
}

/// A rule as error messages show it.
fn shown(rule: &Value) -> String {
    let fields = [
        ("apiGroups", "APIGroups"),
        ("resources", "Resources"),
        ("resourceNames", "ResourceNames"),
        ("nonResourceURLs", "NonResourceURLs"),
        ("verbs", "Verbs"),
    ];
    let parts = fields.iter().filter_map(|(key, title)| {
        let list = tree::list(rule, &[key]);
        let items: Vec<String> = list.iter().map(Value::to_string).collect();
        (!list.is_empty()).then(|| format!("{title}:[{}]", items.join(" ")))
    });
    format!("{{{}}}", parts.collect::<Vec<_>>().join(", "))
}

/// The parts of the wanted rules that no held rule covers.
fn uncovered(held: &[&Value], wanted: &[Value]) -> Vec<Value> {
    let mut missing = Vec::new();
    let mut looked = 0;
    for rule in wanted {
        if held.iter().any(|h| includes(h, rule)) {
            continue;
        }
        let verbs = tree::list(rule, &["verbs"]);
        let one = |key: &str| tree::list(rule, &[key]).to_vec();
        let (urls, groups, resources) = (one("nonResourceURLs"), one("apiGroups"), one("resources"));
        let names: Vec<Option<Value>> = match tree::list(rule, &["resourceNames"]) {
            [] => vec![None],
            list => list.iter().cloned().map(Some).collect(),
        };
        let size =
            verbs
                .len()
                .saturating_mul(urls.len().saturating_add(
                    groups.len().saturating_mul(resources.len()).saturating_mul(names.len()),
                ));
        looked += size;
        if looked > MOST_GRANTS {
            missing.push(rule.clone());
            continue;
        }
        let mut single = Vec::with_capacity(size);
        for verb in verbs {
            single.extend(urls.iter().map(|u| json!({"verbs": [verb], "nonResourceURLs": [u]})));
            for group in &groups {
                for resource in &resources {
                    for name in &names {
                        let mut part =
                            json!({"verbs": [verb], "apiGroups": [group], "resources": [resource]});
                        if let Some(name) = name {
                            part["resourceNames"] = json!([name]);
                        }
                        single.push(part);
                    }
                }
            }
        }
        missing.extend(single.into_iter().filter(|part| !held.iter().any(|h| includes(h, part))));
    }
    missing
}

/// True when everything `part` grants is granted by `whole`.
fn includes(whole: &Value, part: &Value) -> bool {
    let all = |key: &str, same: fn(&str, &str) -> bool| {
        tree::list(part, &[key]).iter().all(|p| {
            let p = p.as_str().unwrap_or_default();
            tree::list(whole, &[key]).iter().filter_map(Value::as_str).any(|w| w == "*" || same(w, p))
        })
    };
    let equal = |w: &str, p: &str| w == p;
    let url = |w: &str, p: &str| w == p || w.strip_suffix('*').is_some_and(|start| p.starts_with(start));
    let resource = |w: &str, p: &str| {
        w == p || w.strip_prefix("*/").is_some_and(|sub| p.split_once('/').is_some_and(|(_, s)| s == sub))
    };
    let names = (tree::list(whole, &["resourceNames"]), tree::list(part, &["resourceNames"]));
    let named = names.0.is_empty() || (!names.1.is_empty() && names.1.iter().all(|n| names.0.contains(n)));
    named
        && all("verbs", equal)
        && all("apiGroups", equal)
        && all("resources", resource)
        && all("nonResourceURLs", url)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_not_held_is_missing() {
        let held = json!({"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods"]});
        let ask = |rule: Value| uncovered(&[&held], &[rule]).len();
        assert_eq!(ask(json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]})), 0);
        assert_eq!(
            ask(json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "resourceNames": ["a"]})),
            0
        );
        assert_eq!(
            ask(json!({"verbs": ["get", "delete"], "apiGroups": [""], "resources": ["pods", "secrets"]})),
            3
        );
        assert_eq!(ask(json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods/log"]})), 1);
        assert_eq!(ask(json!({"verbs": ["get"], "nonResourceURLs": ["/metrics"]})), 1);
        let named = json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "resourceNames": ["a"]});
        assert!(!includes(&named, &json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]})));
        let many: Vec<String> = (0..1000).map(|n| n.to_string()).collect();
        assert_eq!(ask(json!({"verbs": many, "apiGroups": many, "resources": many})), 1, "bounded");
    }
}
