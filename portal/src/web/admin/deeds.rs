//! What administrators do: each a write to the hub with the user's own token.

use fleet_api::names::QUOTA_NAMESPACE;
use fleet_quota_tree::{SUBMITTER_NAMESPACES, SUBMITTERS, is_namespace, subject};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::{
    lists,
    reading::{RBAC, TENANT_ROLE, TREES},
};
use fleet_openpai::{
    cells::configurations_path,
    server::{AskError, Server},
};
use fleet_pages::administration::NewToken;
use fleet_pages::{form::Trouble, pairs::Pairs};

/// Where queues of the hub are read, and the role that lets tenants do so.
const QUEUES_NAMESPACE: &str = "kube-queue";
const QUEUE_ROLE: &str = "fleet-queue-reader";
/// Roles that a tenant gets beside his own where the form says so: the field, and the namespace of the binding, if it has
/// one.
const MORE_ROLES: [(&str, &str, Option<&str>); 3] = [
    ("quota", "fleet-quota-reader", Some(QUOTA_NAMESPACE)),
    ("clusters", "fleet-cluster-reader", None),
    ("virtual-clusters", "fleet-virtual-cluster-reader", None),
];
/// A year.
const MOST_HOURS: i64 = 8_784;

type Troubles = Vec<Trouble>;

/// Does what the form says; a token that was made is for the user's eyes alone.
///
/// # Errors
/// Fields that cannot be read, or what the hub says against it.
pub async fn run(server: &Server, form: &Pairs) -> Result<Option<NewToken>, Troubles> {
    match form.get("do") {
        "grant" => grant(server, form).await.map(|()| None),
        "revoke" => revoke(server, form).await.map(|()| None),
        "account" => account(server, form).await.map(|()| None),
        "dismiss" => dismiss(server, form).await.map(|()| None),
        "token" => token(server, form).await.map(Some),
        "queue" => queue(server, form).await.map(|()| None),
        "virtual-cluster" => virtual_cluster(server, form).await.map(|()| None),
        other => Err(trouble("", format!("do: found {other:?}; allowed: a button of this page"))),
    }
}

fn trouble(field: &str, message: impl Into<String>) -> Troubles {
    vec![Trouble::new(field, message)]
}

fn refused(field: &'static str) -> impl Fn(AskError) -> Troubles {
    move |error| trouble(field, error.to_string())
}

fn namespace<'f>(form: &'f Pairs, name: &str, field: &str) -> Result<&'f str, Troubles> {
    let found = form.get(name).trim();
    let allowed = "the name of a namespace";
    if is_namespace(found) {
        Ok(found)
    } else {
        Err(trouble(field, format!("Namespace: found {found:?}; allowed: {allowed}")))
    }
}

/// The name of an object, as it goes into a path.
fn object<'f>(form: &'f Pairs, name: &str, field: &str, label: &str) -> Result<&'f str, Troubles> {
    let found = form.get(name).trim();
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '.');
    let is_name = (1..=253).contains(&found.len())
        && found.chars().all(fits)
        && found.starts_with(|c: char| c.is_ascii_alphanumeric());
    if is_name {
        Ok(found)
    } else {
        let allowed = "lower-case letters, digits, - and .";
        Err(trouble(field, format!("{label}: found {found:?}; allowed: {allowed}")))
    }
}

/// Lets somebody write jobs in a namespace, and read the queues.
async fn grant(server: &Server, form: &Pairs) -> Result<(), Troubles> {
    let who = form.get("who").trim();
    let namespace = namespace(form, "namespace", "grant-namespace")?;
    let wrong = || {
        let allowed = "user:NAME, group:NAME or serviceaccount:NAMESPACE/NAME";
        trouble("grant-who", format!("Who: found {who:?}; allowed: {allowed}"))
    };
    subject(who).ok_or_else(wrong)?;
    let (kind, name) = who.split_once(':').ok_or_else(wrong)?;
    let subject = match (kind, name.split_once('/')) {
        ("serviceaccount", Some((namespace, name))) => {
            json!({"kind": "ServiceAccount", "namespace": namespace, "name": name})
        }
        ("group", _) => json!({"apiGroup": RBAC, "kind": "Group", "name": name}),
        _ => json!({"apiGroup": RBAC, "kind": "User", "name": name}),
    };
    bind(server, Some(namespace), TENANT_ROLE, who, &subject).await.map_err(refused("grant-who"))?;
    match bind(server, Some(QUEUES_NAMESPACE), QUEUE_ROLE, who, &subject).await {
        Ok(()) => {}
        // A hub without queues, or a user who may give rights in some namespaces only: the first right stands by itself.
        Err(AskError::Refused { code: 403 | 404, .. }) => {}
        Err(error) => return Err(trouble("grant-who", error.to_string())),
    }
    let mut troubles = Vec::new();
    for (_, role, within) in MORE_ROLES.iter().filter(|(field, ..)| form.get(field) == "yes") {
        if let Err(error) = bind(server, *within, role, who, &subject).await {
            // The others stand: what was asked for is said of each.
            troubles.push(Trouble::new("grant-who", format!("{role} was not given: {error}")));
        }
    }
    if troubles.is_empty() { Ok(()) } else { Err(troubles) }
}

/// Where bindings of a namespace are, or of the whole hub; and their kind.
fn bindings_of(namespace: Option<&str>) -> (String, &'static str) {
    match namespace {
        Some(namespace) => (format!("/apis/{RBAC}/v1/namespaces/{namespace}/rolebindings"), "RoleBinding"),
        None => (format!("/apis/{RBAC}/v1/clusterrolebindings"), "ClusterRoleBinding"),
    }
}

/// One binding for each subject, so that each can be taken away by itself.
async fn bind(
    server: &Server,
    namespace: Option<&str>,
    role: &str,
    who: &str,
    subject: &Value,
) -> Result<(), AskError> {
    let digest = Sha256::digest(who.as_bytes());
    let marks: String = digest.iter().take(6).map(|byte| format!("{byte:02x}")).collect();
    let (path, kind) = bindings_of(namespace);
    let mut binding = json!({"apiVersion": format!("{RBAC}/v1"), "kind": kind,
        "metadata": {"name": format!("{role}-{marks}")},
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": role}, "subjects": [subject]});
    if let Some(namespace) = namespace {
        binding["metadata"]["namespace"] = json!(namespace);
    }
    match server.create(&path, &binding).await {
        // It stands already.
        Err(error) if error.is_conflict() => Ok(()),
        other => other.map(|_| ()),
    }
}

/// Takes a binding of one of the roles away that this page gives, and no other.
async fn revoke(server: &Server, form: &Pairs) -> Result<(), Troubles> {
    let within = match form.get("namespace").trim() {
        "" => None,
        _ => Some(namespace(form, "namespace", "")?),
    };
    let (path, kind) = bindings_of(within);
    let name = object(form, "binding", "", kind)?;
    let path = format!("{path}/{name}");
    let found = server.object(&path).await.map_err(refused(""))?;
    let role = found["roleRef"]["name"].as_str().unwrap_or_default();
    if found["roleRef"]["kind"] != "ClusterRole" || !is_given(role) {
        let allowed: Vec<&str> =
            std::iter::once(TENANT_ROLE).chain(MORE_ROLES.iter().map(|(_, role, _)| *role)).collect();
        return Err(trouble(
            "",
            format!("{kind}: found one of role {role:?}; allowed: one of {}", allowed.join(", ")),
        ));
    }
    server.delete(&path).await.map(|_| ()).map_err(refused(""))
}

/// Whether this page gives and takes a role.
pub fn is_given(role: &str) -> bool {
    role == TENANT_ROLE || MORE_ROLES.iter().any(|(_, one, _)| *one == role)
}

async fn account(server: &Server, form: &Pairs) -> Result<(), Troubles> {
    let namespace = namespace(form, "namespace", "account-namespace")?;
    let name = object(form, "name", "account-name", "Name")?;
    let made = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": namespace}});
    let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts");
    server.create(&path, &made).await.map(|_| ()).map_err(refused("account-name"))
}

/// Its tokens end with it.
async fn dismiss(server: &Server, form: &Pairs) -> Result<(), Troubles> {
    let (namespace, name) = (namespace(form, "namespace", "")?, object(form, "name", "", "Name")?);
    let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{name}");
    server.delete(&path).await.map(|_| ()).map_err(refused(""))
}

async fn token(server: &Server, form: &Pairs) -> Result<NewToken, Troubles> {
    let (namespace, name) = (namespace(form, "namespace", "")?, object(form, "name", "", "Name")?);
    let text = form.get("hours").trim();
    let wrong =
        || trouble("", format!("Hours: found {text:?}; allowed: a whole number from 1 to {MOST_HOURS}"));
    let hours: i64 = text.parse().ok().filter(|hours| (1..=MOST_HOURS).contains(hours)).ok_or_else(wrong)?;
    let asked = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
        "spec": {"expirationSeconds": hours * 3600}});
    let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token");
    let answer = server.create(&path, &asked).await.map_err(refused(""))?;
    match answer["status"]["token"].as_str() {
        Some(token) => {
            Ok(NewToken { account: format!("{namespace}/{name}"), hours, token: token.to_owned() })
        }
        None => Err(trouble("", "The hub has answered without a token.")),
    }
}

/// Entries of a list of subjects or of namespaces; none where everybody may.
fn entries(form: &Pairs, name: &str, what: What) -> Result<Option<Vec<String>>, Troubles> {
    let list = lists::read(form.get(name));
    let (is_good, allowed): (fn(&str) -> bool, &str) = match what {
        What::Namespaces => (is_namespace, "names of namespaces, or * for all"),
        What::Subjects => (
            |entry| subject(entry).is_some(),
            "user:NAME, group:NAME or serviceaccount:NAMESPACE/NAME, or * for everybody",
        ),
    };
    match list.iter().flatten().find(|entry| !is_good(entry)) {
        Some(odd) => Err(trouble("", format!("{name}: found {odd:?}; allowed: {allowed}"))),
        None => Ok(list),
    }
}

#[derive(Clone, Copy)]
enum What {
    Namespaces,
    Subjects,
}

/// Writes who may use a queue. The tree is written as it was read: a change meanwhile is a conflict.
async fn queue(server: &Server, form: &Pairs) -> Result<(), Troubles> {
    let tree = object(form, "tree", "", "Tree")?;
    let path = form.get("path");
    let own = entries(form, "namespaces", What::Namespaces)?;
    let own = own.ok_or_else(|| trouble("", "namespaces: found *; allowed: names of namespaces"))?;
    let admitted = entries(form, "submitter-namespaces", What::Namespaces)?;
    let submitters = entries(form, "submitters", What::Subjects)?;
    let at = format!("{TREES}/{tree}");
    let mut object = server.object(&at).await.map_err(refused(""))?;
    let missing = || trouble("", format!("queue: found {path:?}; allowed: a queue of the tree {tree}"));
    let node = node_at(&mut object["spec"]["root"], path).ok_or_else(missing)?;
    if node["children"].as_array().is_none_or(Vec::is_empty) {
        node["namespaces"] = json!(own);
    }
    for (key, list) in [(SUBMITTER_NAMESPACES, admitted), (SUBMITTERS, submitters)] {
        match list {
            Some(list) => {
                if !node["attributes"].is_object() {
                    node["attributes"] = json!({});
                }
                node["attributes"][key] = json!(list.join(","));
            }
            None => {
                let attributes = node.get_mut("attributes").and_then(Value::as_object_mut);
                attributes.map(|all| all.remove(key));
            }
        }
    }
    server.replace(&at, &object).await.map(|_| ()).map_err(refused(""))
}

fn node_at<'t>(node: &'t mut Value, path: &str) -> Option<&'t mut Value> {
    let name = node["name"].as_str()?.to_owned();
    let rest = path.strip_prefix(&name)?;
    if rest.is_empty() {
        return Some(node);
    }
    let rest = rest.strip_prefix('/')?.to_owned();
    node.get_mut("children")?.as_array_mut()?.iter_mut().find_map(|child| node_at(child, &rest))
}

/// Writes who may use a virtual cluster.
async fn virtual_cluster(server: &Server, form: &Pairs) -> Result<(), Troubles> {
    let configuration = object(form, "configuration", "", "Configuration")?;
    let vc = form.get("name");
    let mut access = json!({});
    for (key, name, what) in [
        ("submitters", "submitters", What::Subjects),
        ("submitterNamespaces", "submitter-namespaces", What::Namespaces),
        ("guaranteedNamespaces", "guaranteed-namespaces", What::Namespaces),
    ] {
        if let Some(list) = entries(form, name, what)? {
            access[key] = json!(list);
        }
    }
    let at = format!("{}/{configuration}", configurations_path());
    let mut object = server.object(&at).await.map_err(refused(""))?;
    if !object["spec"]["virtualClusters"][vc].is_object() {
        let message =
            format!("virtual cluster: found {vc:?}; allowed: one of the configuration {configuration}");
        return Err(trouble("", message));
    }
    if !object["spec"]["access"].is_object() {
        object["spec"]["access"] = json!({});
    }
    object["spec"]["access"][vc] = access;
    server.replace(&at, &object).await.map(|_| ()).map_err(refused(""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_is_found_by_its_path() {
        let mut tree = json!({"name": "root", "children": [
            {"name": "a", "children": [{"name": "b"}]}, {"name": "a/b"}, {"name": "c"}]});
        let mut check = |path: &str, name: Option<&str>| {
            let found = node_at(&mut tree, path).and_then(|node| node["name"].as_str().map(str::to_owned));
            assert_eq!(found.as_deref(), name, "{path}");
        };
        check("root", Some("root"));
        check("root/c", Some("c"));
        check("root/a", Some("a"));
        check("root/a/b", Some("b"));
        check("root/none", None);
        check("rooted", None);
        check("", None);
    }
}
