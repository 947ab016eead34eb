//! What there is to administer, as far as the user may read it of the hub.

use std::collections::BTreeSet;

use fleet_api::{Cluster, names::QUOTA_NAMESPACE};
use fleet_hub_core::cluster;
use fleet_quota_tree::{SUBMITTER_NAMESPACES, SUBMITTERS};
use fleet_views::{Namespaces, Sight};
use futures::{StreamExt, stream};
use kube::ResourceExt;
use serde_json::Value;

use super::{
    deeds::is_given,
    lists::{EVERYBODY, shown},
};
use crate::web::{
    rights::{Deed, may},
    session::Session,
    state::Web,
};
use fleet_openpai::{
    cells,
    server::{AskError, Selectors, Server},
};
use fleet_pages::administration::{Account, AdminView, JoinRow, May, Part, QueueAccess, Tenant, VcRow};

/// Of a user who may not read all namespaces, so many are asked about one by one.
const MOST_NAMESPACES: usize = 50;
const AT_ONCE: usize = 16;
/// Rows of each part.
const MOST_ROWS: usize = 500;

pub const RBAC: &str = "rbac.authorization.k8s.io";
pub const TENANT_ROLE: &str = "fleet-tenant";
pub const TREES: &str = "/apis/scheduling.sigs.k8s.io/v1beta1/namespaces/kube-system/elasticquotatrees";

/// # Errors
/// The hub does not know the user any more, or does not answer.
pub async fn read(web: &Web, session: &Session, sight: &Sight) -> Result<AdminView, AskError> {
    let server = &web.server_of(&session.credential);
    let namespaces = namespaces(server, sight).await;
    let bindings = format!("/apis/{RBAC}/v1");
    let (can, mut tenants, of_all, accounts, queues, virtual_clusters) = tokio::join!(
        rights(server, &namespaces),
        rows(server, &bindings, "rolebindings", &namespaces, tenants_of),
        rows(server, &bindings, "clusterrolebindings", &[], tenants_of),
        rows(server, "/api/v1", "serviceaccounts", &namespaces, account_of),
        queues(server),
        virtual_clusters(server),
    );
    // Who may not read bindings of the whole hub sees those of namespaces.
    if let (Part::Shown(tenants), Part::Shown(of_all)) = (&mut tenants, of_all) {
        tenants.extend(of_all);
    }
    Ok(AdminView {
        may: can?,
        tenants,
        accounts,
        queues,
        virtual_clusters,
        clusters: clusters(web, sight),
        namespaces,
        token: None,
        troubles: Vec::new(),
        joining: None,
    })
}

/// Namespaces of people: not those of the hub's and of Fleet's own.
fn is_of_people(namespace: &str) -> bool {
    !namespace.starts_with("kube-") && !namespace.starts_with("fleet-") && !namespace.is_empty()
}

async fn namespaces(server: &Server, sight: &Sight) -> Vec<String> {
    let listed = server.list("/api/v1/namespaces", &Selectors::default(), "application/json").await;
    let names: BTreeSet<String> = match (listed, &sight.jobs) {
        (Ok(listed), _) => items(&listed).map(|object| text(&object["metadata"]["name"])).collect(),
        (Err(_), Namespaces::Only(names)) => names.clone(),
        (Err(_), Namespaces::All) => BTreeSet::new(),
    };
    names.into_iter().filter(|name| is_of_people(name)).take(MOST_ROWS).collect()
}

async fn rights(server: &Server, namespaces: &[String]) -> Result<May, AskError> {
    let deed = |verb, group, resource| Deed { verb, group, resource, subresource: "" };
    let token = Deed { subresource: "token", ..deed("create", "", "serviceaccounts") };
    let (grant, accounts, tokens, queues, virtual_clusters, join) = tokio::try_join!(
        somewhere(server, deed("create", RBAC, "rolebindings"), namespaces),
        somewhere(server, deed("create", "", "serviceaccounts"), namespaces),
        somewhere(server, token, namespaces),
        may(server, deed("update", "scheduling.sigs.k8s.io", "elasticquotatrees"), QUOTA_NAMESPACE),
        may(server, deed("update", "fleet.dev", "cellconfigurations"), ""),
        may(server, deed("create", "fleet.dev", "clusters"), ""),
    )?;
    Ok(May { grant, accounts, tokens, queues, virtual_clusters, join })
}

async fn somewhere(server: &Server, deed: Deed, namespaces: &[String]) -> Result<bool, AskError> {
    if may(server, deed, "").await? {
        return Ok(true);
    }
    let namespaces: Vec<String> = namespaces.iter().take(MOST_NAMESPACES).cloned().collect();
    let asked = stream::iter(namespaces).map(|namespace| async move { may(server, deed, &namespace).await });
    let answers: Vec<Result<bool, AskError>> = asked.buffer_unordered(AT_ONCE).collect().await;
    answers.into_iter().try_fold(false, |any, answer| Ok(any || answer?))
}

/// Of all namespaces at once, or else of each that may be read.
async fn rows<T>(
    server: &Server,
    root: &str,
    plural: &str,
    namespaces: &[String],
    read: fn(&Value) -> Vec<T>,
) -> Part<T> {
    let list = async |path: String| server.list(&path, &Selectors::default(), "application/json").await;
    let refusal = match list(format!("{root}/{plural}")).await {
        Ok(listed) => return Part::Shown(items(&listed).flat_map(read).take(MOST_ROWS).collect()),
        Err(refusal) => refusal,
    };
    let mut found = None;
    for namespace in namespaces.iter().take(MOST_NAMESPACES) {
        if let Ok(listed) = list(format!("{root}/namespaces/{namespace}/{plural}")).await {
            found.get_or_insert_with(Vec::new).extend(items(&listed).flat_map(read));
        }
    }
    found.map_or_else(|| Part::Absent(refusal.to_string()), Part::Shown)
}

fn items(listed: &Value) -> impl Iterator<Item = &Value> {
    listed["items"].as_array().into_iter().flatten()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn tenants_of(binding: &Value) -> Vec<Tenant> {
    let role = &binding["roleRef"];
    if role["kind"] != "ClusterRole" || !role["name"].as_str().is_some_and(is_given) {
        return Vec::new();
    }
    let subjects = binding["subjects"].as_array().map_or(&[][..], Vec::as_slice);
    let who = |subject: &Value| match subject["kind"].as_str() {
        Some("ServiceAccount") => {
            format!("serviceaccount:{}/{}", text(&subject["namespace"]), text(&subject["name"]))
        }
        Some("Group") => format!("group:{}", text(&subject["name"])),
        _ => format!("user:{}", text(&subject["name"])),
    };
    let metadata = &binding["metadata"];
    let tenant = |subject: &Value| Tenant {
        who: who(subject),
        role: text(&role["name"]),
        namespace: text(&metadata["namespace"]),
        binding: text(&metadata["name"]),
        others: subjects.len().saturating_sub(1),
    };
    subjects.iter().map(tenant).collect()
}

/// Each namespace has an account `default`, which is nobody's.
fn account_of(object: &Value) -> Vec<Account> {
    let metadata = &object["metadata"];
    let account = Account { namespace: text(&metadata["namespace"]), name: text(&metadata["name"]) };
    let is_somebodys = account.name != "default" && is_of_people(&account.namespace);
    is_somebodys.then_some(account).into_iter().collect()
}

async fn queues(server: &Server) -> Part<QueueAccess> {
    match server.list(TREES, &Selectors::default(), "application/json").await {
        Ok(listed) => {
            let mut rows = Vec::new();
            for tree in items(&listed) {
                queue(&mut rows, &text(&tree["metadata"]["name"]), &tree["spec"]["root"], "");
            }
            rows.truncate(MOST_ROWS);
            Part::Shown(rows)
        }
        Err(error) => Part::Absent(error.to_string()),
    }
}

fn queue(rows: &mut Vec<QueueAccess>, tree: &str, node: &Value, above: &str) {
    let name = text(&node["name"]);
    let path = if above.is_empty() { name } else { format!("{above}/{name}") };
    let children = node["children"].as_array().map_or(&[][..], Vec::as_slice);
    let namespaces = node["namespaces"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let attribute = |key: &str| text_or_everybody(&node["attributes"][key]);
    rows.push(QueueAccess {
        tree: tree.to_owned(),
        is_leaf: children.is_empty(),
        namespaces: namespaces.collect::<Vec<_>>().join(", "),
        submitter_namespaces: attribute(SUBMITTER_NAMESPACES),
        submitters: attribute(SUBMITTERS),
        path: path.clone(),
    });
    for child in children {
        queue(rows, tree, child, &path);
    }
}

fn text_or_everybody(value: &Value) -> String {
    value.as_str().map_or_else(|| EVERYBODY.to_owned(), str::to_owned)
}

async fn virtual_clusters(server: &Server) -> Part<VcRow> {
    let objects = match cells::configurations(server).await {
        Ok(objects) => objects,
        Err(error) => return Part::Absent(error.to_string()),
    };
    let rows = objects.iter().flat_map(|object| {
        object.spec.virtual_clusters.as_object().into_iter().flat_map(|all| all.keys()).map(move |name| {
            let access = object.spec.access.get(name).cloned().unwrap_or_default();
            VcRow {
                configuration: object.name_any(),
                name: name.clone(),
                submitters: shown(access.submitters.as_ref()),
                submitter_namespaces: shown(access.submitter_namespaces.as_ref()),
                guaranteed_namespaces: shown(access.guaranteed_namespaces.as_ref()),
            }
        })
    });
    Part::Shown(rows.take(MOST_ROWS).collect())
}

fn clusters(web: &Web, sight: &Sight) -> Part<JoinRow> {
    if !sight.clusters {
        return Part::Absent("the hub does not let you list clusters.fleet.dev".to_owned());
    }
    Part::Shown(web.board.clusters().iter().map(|object| join_row(object)).collect())
}

fn join_row(object: &Cluster) -> JoinRow {
    let name = object.name_any();
    let status = object.status.clone().unwrap_or_default();
    let reported = status.conditions.iter().any(|condition| condition.type_ == "Ready");
    let is_well = reported && cluster::facts(object).ready;
    let proposes = status.proposed.as_ref().and_then(|proposed| proposed.api_endpoint.as_ref());
    let proposes = proposes.filter(|url| object.spec.api_endpoint.as_ref() != Some(url));
    let (state, todo) = match (reported, proposes) {
        (false, _) => (
            "Never heard of",
            Some(("Its agent has not reported yet:".to_owned(), format!("fleet status {name}"))),
        ),
        (true, Some(url)) => (
            "Joined",
            Some((format!("Its agent proposes the address {url}:"), format!("fleet join {name} --confirm"))),
        ),
        (true, None) if is_well => ("Ready", None),
        (true, None) => ("Not ready", Some(("To see why:".to_owned(), format!("fleet status {name}")))),
    };
    JoinRow { name, state: state.to_owned(), is_well, todo }
}
