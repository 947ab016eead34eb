//! What programs may ask for: the views of the pages.

use std::sync::Arc;

use axum::{Json, extract::State};
use fleet_views::{
    ClusterRow, Cursor, Home, JobPage, JobQuery, Namespaces, QueuePage, Queues, Sort, VirtualClusterRow,
};
use http::Uri;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;

use super::{
    caller::{By, Caller},
    error::ApiError,
    given::{Given, Parameter, Takes},
    paths::PREFIX,
};
use crate::{
    board::Hub,
    web::{
        promises, rights,
        state::{Shared, Web},
        view,
    },
};
use fleet_pages::{
    page::{JobName, Page},
    pairs::decode,
    shown::{JobView, View, VirtualClustersView},
};

type Answer<T> = Result<Json<T>, ApiError>;

/// Rows of one page unless the caller says otherwise, and the most.
const ROWS: i64 = 100;
const ROWS_MAX: i64 = 1_000;

const AFTER: Parameter = Parameter {
    name: "after",
    about: "`next` of the page before; the page begins behind its last row",
    takes: Takes::Text,
};
const LIMIT: Parameter =
    Parameter { name: "limit", about: "rows of this page", takes: Takes::Integer(1, ROWS_MAX, Some(ROWS)) };

pub const OF_JOBS: [Parameter; 14] = [
    Parameter { name: "text", about: "part of namespace, name or kind", takes: Takes::Text },
    Parameter { name: "state", about: "state of the job", takes: Takes::OneOf(states) },
    Parameter { name: "queue", about: "full path of a leaf, or of a node above it", takes: Takes::Text },
    Parameter { name: "cluster", about: "member cluster it runs in, or ran in last", takes: Takes::Text },
    Parameter { name: "namespace", about: "namespace of the job", takes: Takes::Text },
    Parameter { name: "kind", about: "kind of the job, such as PyTorchJob", takes: Takes::Text },
    Parameter { name: "reason", about: "reason why it waits or why it ended", takes: Takes::Text },
    Parameter {
        name: "priority",
        about: "priority of the job",
        takes: Takes::Integer(-2_147_483_648, 2_147_483_647, None),
    },
    Parameter { name: "user", about: "who submitted it, as its label says", takes: Takes::Text },
    Parameter { name: "vc", about: "its virtual cluster, or that of its queue", takes: Takes::Text },
    Parameter {
        name: "sort",
        about: "what rows are ordered by; created if left out",
        takes: Takes::OneOf(sorts),
    },
    Parameter { name: "order", about: "desc if left out", takes: Takes::OneOf(|| vec!["asc", "desc"]) },
    AFTER,
    LIMIT,
];
pub const OF_QUEUE: [Parameter; 2] = [AFTER, LIMIT];

fn states() -> Vec<&'static str> {
    fleet_views::State::ALL.iter().map(|state| state.as_str()).collect()
}

fn sorts() -> Vec<&'static str> {
    Sort::ALL.iter().map(|sort| sort.as_str()).collect()
}

/// The part of the path behind this one, as it was written.
pub fn behind<'u>(uri: &'u Uri, path: &str) -> &'u str {
    uri.path().strip_prefix(PREFIX).and_then(|rest| rest.strip_prefix(path)).unwrap_or_default()
}

/// The job that a path names.
pub fn named(text: &str) -> Result<JobName, ApiError> {
    let allowed = "NAMESPACE/RESOURCE/NAME, such as team-a/pytorchjobs.kubeflow.org/train";
    JobName::read(text).ok_or_else(|| ApiError::parameter("job", &decode(text), allowed))
}

/// Who calls, what the hub lets him see, and whether the hub answers.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Me {
    /// Of the program.
    pub version: &'static str,
    pub user: String,
    /// Of a caller with a session's cookie: stands in header X-Fleet-Form-Key of his writes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub form_key: Option<String>,
    pub rights: Rights,
    pub hub: HubState,
}

/// What the hub lets the caller list.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Rights {
    /// Jobs of all namespaces.
    pub all_jobs: bool,
    /// Else the namespaces with jobs that he may list.
    pub namespaces: Vec<String>,
    pub queues: bool,
    pub clusters: bool,
    pub virtual_clusters: bool,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HubState {
    pub is_up: bool,
    /// Whether everything has been listed once since the portal began.
    pub is_listed: bool,
    /// Since when it has not answered; what is served meanwhile was known then.
    pub away_since_s: Option<i64>,
    /// Why it is called away; empty while it is not.
    pub message: String,
}

pub async fn me(State(web): Shared, caller: Caller, uri: Uri) -> Answer<Me> {
    Given::read(&uri, &[])?;
    let (is_up, away_since_s, message) = match web.board.hub() {
        Hub::Up => (true, None, String::new()),
        Hub::Away { since, why } => (false, Some(since.as_second()), why),
    };
    let sight = &caller.sight;
    let namespaces = match &sight.jobs {
        Namespaces::All => Vec::new(),
        Namespaces::Only(names) => names.iter().cloned().collect(),
    };
    Ok(Json(Me {
        version: env!("CARGO_PKG_VERSION"),
        user: caller.session.visitor.user.clone(),
        form_key: (caller.by == By::Cookie).then(|| caller.session.visitor.form_key.clone()),
        rights: Rights {
            all_jobs: sight.jobs == Namespaces::All,
            namespaces,
            queues: sight.queues,
            clusters: sight.clusters,
            virtual_clusters: sight.virtual_clusters,
        },
        hub: HubState { is_up, is_listed: web.board.is_listed(), away_since_s, message },
    }))
}

pub async fn home(State(web): Shared, caller: Caller, uri: Uri) -> Answer<Home> {
    Given::read(&uri, &[])?;
    let now_s = Timestamp::now().as_second();
    Ok(Json(fleet_views::home(&web.board.known(), &caller.sight, &caller.session.label(), now_s)))
}

pub async fn jobs(State(web): Shared, caller: Caller, uri: Uri) -> Answer<JobPage> {
    let given = Given::read(&uri, &OF_JOBS)?;
    let after = match given.text("after") {
        "" => None,
        text => Some(
            Cursor::read(text)
                .ok_or_else(|| ApiError::parameter("after", text, "`next` of the page before"))?,
        ),
    };
    let namespace = given.owned("namespace");
    if !namespace.is_empty() {
        may_list(&web, &caller, &namespace).await?;
    }
    let query = JobQuery {
        text: given.owned("text"),
        state: fleet_views::State::from_text(given.text("state")),
        queue: given.owned("queue"),
        cluster: given.owned("cluster"),
        namespace,
        kind: given.owned("kind"),
        reason: given.owned("reason"),
        priority: given.integer("priority").and_then(|priority| i32::try_from(priority).ok()),
        user: given.owned("user"),
        virtual_cluster: given.owned("vc"),
        sort: Sort::from_text(given.text("sort")).unwrap_or_default(),
        ascending: given.text("order") == "asc",
        after,
        limit: limit(&given),
    };
    Ok(Json(fleet_views::jobs(&web.board.known(), &caller.sight, &query)))
}

fn limit(given: &Given) -> usize {
    usize::try_from(given.integer("limit").unwrap_or(ROWS)).unwrap_or(1)
}

/// What is seen of all namespaces leaves out those without jobs: then the hub is asked.
async fn may_list(web: &Web, caller: &Caller, namespace: &str) -> Result<(), ApiError> {
    if caller.sight.jobs.has(namespace)
        || rights::may_list_jobs(&web.server_of(&caller.session.credential), namespace).await?
    {
        return Ok(());
    }
    let what = format!("list resourcebindings.fleet.dev in namespace {namespace:?}");
    Err(ApiError::forbidden(&caller.session.visitor.user, &what))
}

pub async fn job(State(web): Shared, caller: Caller, uri: Uri) -> Answer<JobView> {
    Given::read(&uri, &[])?;
    let page = Page::Job(named(behind(&uri, "/jobs/"))?);
    match view::view(&web, &caller.session, &caller.sight, &page, Timestamp::now()).await? {
        View::Job(view) => Ok(Json(*view)),
        View::Missing(code, why) => Err(ApiError::new(code, why)),
        _ => Err(ApiError::new(502, "found another page than a job's")),
    }
}

/// The queues that the caller may see. Who may not list trees sees those of his namespaces, if there are any.
fn queues_of(web: &Web, caller: &Caller) -> Result<Queues, ApiError> {
    let found = fleet_views::queues(&web.board.known(), &caller.sight);
    let what = "list elasticquotatrees.scheduling.sigs.k8s.io in namespace \"kube-system\"";
    match found.rows.is_empty() && !caller.sight.queues {
        true => Err(ApiError::forbidden(&caller.session.visitor.user, what)),
        false => Ok(found),
    }
}

pub async fn queues(State(web): Shared, caller: Caller, uri: Uri) -> Answer<Queues> {
    Given::read(&uri, &[])?;
    queues_of(&web, &caller).map(Json)
}

pub async fn queue(State(web): Shared, caller: Caller, uri: Uri) -> Answer<QueuePage> {
    let given = Given::read(&uri, &OF_QUEUE)?;
    queues_of(&web, &caller)?;
    let path = decode(behind(&uri, "/queues/"));
    let after = Some(given.text("after")).filter(|after| !after.is_empty());
    if let Some(after) = after.filter(|after| !fleet_views::is_place(after)) {
        return Err(ApiError::parameter("after", after, "`next` of the page before"));
    }
    let found = fleet_views::queue(&web.board.known(), &caller.sight, &path, after, limit(&given));
    let allowed = format!("a path that GET {PREFIX}/queues lists");
    let missing = || ApiError::new(404, format!("queue: found {path:?}; allowed: {allowed}"));
    found.map(Json).ok_or_else(missing)
}

/// The member clusters.
#[derive(Serialize, JsonSchema)]
pub struct Clusters {
    pub rows: Vec<ClusterRow>,
}

fn cluster_rows(web: &Arc<Web>, caller: &Caller) -> Result<Vec<ClusterRow>, ApiError> {
    if !caller.sight.clusters {
        return Err(ApiError::forbidden(&caller.session.visitor.user, "list clusters.fleet.dev"));
    }
    Ok(fleet_views::clusters(&web.board.known(), &caller.sight))
}

pub async fn clusters(State(web): Shared, caller: Caller, uri: Uri) -> Answer<Clusters> {
    Given::read(&uri, &[])?;
    Ok(Json(Clusters { rows: cluster_rows(&web, &caller)? }))
}

pub async fn cluster(State(web): Shared, caller: Caller, uri: Uri) -> Answer<ClusterRow> {
    Given::read(&uri, &[])?;
    let name = decode(behind(&uri, "/clusters/"));
    let rows = cluster_rows(&web, &caller)?;
    one("cluster", rows, &name, |row| &row.name)
}

pub async fn virtual_clusters(State(web): Shared, caller: Caller, uri: Uri) -> Answer<VirtualClustersView> {
    Given::read(&uri, &[])?;
    Ok(Json(promises::read(&web.server_of(&caller.session.credential), Timestamp::now()).await?))
}

pub async fn virtual_cluster(State(web): Shared, caller: Caller, uri: Uri) -> Answer<VirtualClusterRow> {
    Given::read(&uri, &[])?;
    let name = decode(behind(&uri, "/virtual-clusters/"));
    let view = promises::read(&web.server_of(&caller.session.credential), Timestamp::now()).await?;
    one("virtual cluster", view.rows, &name, |row| &row.name)
}

/// The row of that name, or which names there are.
fn one<T>(what: &str, rows: Vec<T>, name: &str, name_of: fn(&T) -> &String) -> Answer<T> {
    /// Names in one message.
    const MOST: usize = 50;
    let names: Vec<&str> = rows.iter().map(|row| name_of(row).as_str()).take(MOST).collect();
    let allowed = if names.is_empty() { "none, there are none".to_owned() } else { names.join(", ") };
    let missing = ApiError::new(404, format!("{what}: found {name:?}; allowed: {allowed}"));
    rows.into_iter().find(|row| name_of(row) == name).map(Json).ok_or(missing)
}
