//! What a page shows, made from what is known and, for one job, from what its user may read of the hub.

use fleet_api::{
    ResourceBinding,
    names::{VIRTUAL_CLUSTER_LABEL, binding_name},
    yaml,
};
use fleet_hub_core::{binding::BindingEntry, facts};
use fleet_policies::reason::Reason;
use fleet_quota_tree::QUOTA_LABELS;
use fleet_views::{QueueRow, Sight};
use jiff::Timestamp;
use serde_json::Value;

use super::{session::Session, state::Web};
use crate::{
    explain::{ClusterVerdict, could_ever_start, is_suspended, member_says, verdicts},
    kinds,
};
use fleet_openpai::server::{AskError, Selectors, Server};
use fleet_pages::{
    page::{JobName, Page},
    shown::{EventRow, JobView, PriorityClass, View},
};

/// Waiting jobs of a queue on one page.
const LINE: usize = 200;
/// Nodes of a cluster on one page.
const NODES: usize = 200;
/// Events of a job that are shown, the newest.
const EVENTS: usize = 50;
/// A larger object is not drawn.
const YAML_MAX: usize = 100 * 1024;

/// What this page shows to this user now.
///
/// # Errors
/// The hub does not know the user any more.
pub async fn view(
    web: &Web,
    session: &Session,
    sight: &Sight,
    page: &Page,
    now: Timestamp,
) -> Result<View, AskError> {
    let now_s = now.as_second();
    Ok(match page {
        Page::Home => View::Home(fleet_views::home(&web.board.known(), sight, &session.label(), now_s)),
        Page::Queues => View::Queues(fleet_views::queues(&web.board.known(), sight)),
        Page::Queue { path, after } => {
            let after = Some(after.as_str()).filter(|after| !after.is_empty());
            match fleet_views::queue(&web.board.known(), sight, path, after, LINE) {
                Some(view) => View::Queue(Box::new(view)),
                None => View::Missing(404, format!("There is no queue {path} that you may see.")),
            }
        }
        Page::Jobs(query) => View::Jobs(query.clone(), fleet_views::jobs(&web.board.known(), sight, query)),
        Page::Clusters => View::Clusters(fleet_views::cluster_pages(&web.board.known(), sight)),
        Page::Cluster { name, before } => {
            match fleet_views::cluster_page(&web.board.known(), sight, name, *before, NODES) {
                Some(view) => View::Cluster(Box::new(view)),
                None => View::Missing(404, format!("There is no cluster {name} that you may see.")),
            }
        }
        Page::VirtualClusters => View::VirtualClusters(super::promises::view(&web.board, sight, now)),
        Page::Job(name) => job(web, session, sight, name, now_s).await?,
        Page::Submit(_) => View::Missing(404, "The form is not a view.".to_owned()),
    })
}

async fn job(
    web: &Web,
    session: &Session,
    sight: &Sight,
    name: &JobName,
    now_s: i64,
) -> Result<View, AskError> {
    let server = web.server_of(&session.credential);
    let Some((api_version, kind)) = kind_of(web, sight, name) else {
        return Ok(View::Missing(404, format!("There is no kind {} that Fleet runs.", name.resource)));
    };
    let id = (name.namespace.clone(), binding_name(&api_version, &kind, &name.name));
    let mut view = JobView { name: name.clone(), ..JobView::default() };
    if sight.jobs.has(&name.namespace) {
        of_known(web, sight, &id, now_s, &mut view);
    }
    let path = format!("{}/{}", kinds::path(&api_version, &kind, &name.namespace), name.name);
    match server.object(&path).await {
        Ok(object) => of_object(&server, &object, &mut view).await,
        Err(error @ AskError::Refused { code: 401, .. }) => return Err(error),
        Err(error) if view.row.is_none() => {
            let why = if error.is_not_found() {
                format!("There is no job {}/{} of this kind.", name.namespace, name.name)
            } else {
                error.to_string()
            };
            return Ok(View::Missing(error.status(), why));
        }
        Err(error) => view.notices.push(format!("The job's object is not shown: {error}")),
    }
    if view.row.as_ref().is_some_and(|row| !row.state.is_final()) {
        explain(web, &server, sight, &id, &mut view).await;
    }
    super::pods::of_job(web, &server, &mut view).await;
    Ok(View::Job(Box::new(view)))
}

/// A kind that is known, or that a job of this name has.
fn kind_of(web: &Web, sight: &Sight, name: &JobName) -> Option<(String, String)> {
    kinds::of_resource(&name.resource).or_else(|| {
        let known = web.board.known();
        let found = &kinds::named(&known, name)?.binding;
        sight.jobs.has(&name.namespace).then(|| (found.api_version.clone(), found.kind.clone()))
    })
}

fn of_known(web: &Web, sight: &Sight, id: &fleet_views::Id, now_s: i64, view: &mut JobView) {
    let known = web.board.known();
    let Some(job) = known.job(id) else { return };
    let row = fleet_views::job_row(&known, sight, job);
    view.position = known.position(id);
    view.preemptible = job.unit.as_ref().map(|unit| unit.preemptible);
    view.timeline = Some(fleet_views::timeline(&known, sight, job, now_s));
    view.can_stop = !row.state.is_final();
    (view.preempted, view.more_preempted) = fleet_views::preempted_for(&known, sight, job);
    let leaf = row.queue.as_str();
    let above = |queue: &QueueRow| {
        leaf.strip_prefix(queue.path.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    if !leaf.is_empty() && !row.state.is_final() {
        view.quota = fleet_views::queues(&known, sight).rows.into_iter().filter(above).collect();
    }
    view.row = Some(row);
}

async fn of_object(server: &Server, object: &Value, view: &mut JobView) {
    let mut shown = object.clone();
    if let Some(metadata) = shown["metadata"].as_object_mut() {
        metadata.remove("managedFields");
    }
    let text = yaml::write(&shown).unwrap_or_default();
    view.yaml = if text.len() > YAML_MAX {
        format!("# {} KiB, too large to be shown\n", text.len() / 1024)
    } else {
        text
    };
    let stopped = fleet_api::names::is_stopped(&object["metadata"]["annotations"]);
    if stopped && view.row.as_ref().is_none_or(|row| !row.state.is_final()) {
        view.notices.push("Its owner wants it stopped; it is being stopped.".to_owned());
        view.can_stop = false;
    }
    view.events = events(server, object).await;
    if view.row.is_none() {
        view.said = unbound(object, &view.events);
        view.can_stop = !stopped;
    }
}

/// What the controller says of a job that it has no binding of.
fn unbound(object: &Value, events: &[EventRow]) -> (String, String) {
    let ours = [Reason::NoPolicy, Reason::PolicyInvalid, Reason::InvalidWorkload];
    let is_ours = |text: &str| ours.iter().any(|reason| reason.as_str() == text);
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let status = &object["status"];
    let mut conditions = status["conditions"].as_array().into_iter().flatten().rev();
    let marked = conditions.find(|condition| is_ours(condition["type"].as_str().unwrap_or_default()));
    let state = Some(&status["state"]).filter(|state| is_ours(state["reason"].as_str().unwrap_or_default()));
    if let Some(said) = marked.or(state) {
        return (text(&said["reason"]), text(&said["message"]));
    }
    match events.iter().find(|event| is_ours(&event.reason)) {
        Some(event) => (event.reason.clone(), event.message.clone()),
        None => (
            Reason::NoPolicy.to_string(),
            "no policy selects it, or the controller has not reconciled it yet".to_owned(),
        ),
    }
}

async fn events(server: &Server, object: &Value) -> Vec<EventRow> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (uid, namespace) = (text(&object["metadata"]["uid"]), text(&object["metadata"]["namespace"]));
    let selectors = Selectors { fields: Some(format!("involvedObject.uid={uid}")), ..Selectors::default() };
    let path = format!("/api/v1/namespaces/{namespace}/events");
    // Who may not list events does without.
    let listed = server.list(&path, &selectors, "application/json").await.unwrap_or_default();
    let seconds = |value: &Value| value.as_str()?.parse::<Timestamp>().ok().map(Timestamp::as_second);
    let mut rows: Vec<EventRow> = listed["items"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|event| event["involvedObject"]["uid"] == uid.as_str())
        .map(|event| EventRow {
            last_s: seconds(&event["lastTimestamp"])
                .or_else(|| seconds(&event["eventTime"]))
                .or_else(|| seconds(&event["metadata"]["creationTimestamp"])),
            kind: text(&event["type"]),
            reason: text(&event["reason"]),
            message: text(&event["message"]),
            count: event["count"].as_i64().unwrap_or(1),
        })
        .collect();
    rows.sort_by_key(|event| std::cmp::Reverse(event.last_s));
    rows.truncate(EVENTS);
    rows
}

/// What the member says of a job without pods, as its reason.
fn of_member(entry: &BindingEntry, view: &mut JobView) {
    let Some(row) = view.row.as_mut().filter(|row| row.reason.is_empty()) else { return };
    if let Some(said) = member_says(entry) {
        (row.reason, row.message) = (said.reason, said.message);
    } else if is_suspended(entry) {
        row.message = "The job suspends itself: it has no pods, and keeps its places.".to_owned();
    }
}

/// What its member says, and what each cluster would say to the job; the latter only for who may list clusters.
async fn explain(web: &Web, server: &Server, sight: &Sight, id: &fleet_views::Id, view: &mut JobView) {
    let path = format!("/apis/fleet.dev/v1alpha1/namespaces/{}/resourcebindings/{}", id.0, id.1);
    let Ok(object) = server.object(&path).await else { return };
    let Ok(binding) = serde_json::from_value::<ResourceBinding>(object) else { return };
    let entry = BindingEntry::read(binding, None);
    of_member(&entry, view);
    if sight.clusters {
        view.verdicts = verdicts(&entry, &web.board.clusters());
    }
}

pub struct Choices {
    pub queues: Vec<String>,
    pub virtual_clusters: Vec<String>,
    pub classes: Vec<PriorityClass>,
}

/// What there is to choose from in the form.
pub async fn choices(web: &Web, session: &Session, sight: &Sight) -> Choices {
    let virtual_clusters = fleet_views::virtual_clusters(&web.board.known(), sight);
    let leaves = fleet_views::queues(&web.board.known(), sight).rows;
    let queues = leaves.into_iter().filter(|row| row.is_leaf).map(|row| row.path).collect();
    let server = web.server_of(&session.credential);
    let path = "/apis/scheduling.k8s.io/v1/priorityclasses";
    let listed = server.list(path, &Selectors::default(), "application/json").await.unwrap_or_default();
    let classes = listed["items"].as_array().into_iter().flatten();
    let classes = classes.filter_map(|class| {
        let name = class["metadata"]["name"].as_str()?.to_owned();
        (!name.starts_with("system-")).then(|| PriorityClass { consequence: consequence(class), name })
    });
    Choices {
        queues,
        virtual_clusters: virtual_clusters.into_iter().map(|row| row.name).collect(),
        classes: classes.collect(),
    }
}

fn consequence(class: &Value) -> String {
    let value = class["value"].as_i64().unwrap_or(0);
    let never = class["preemptionPolicy"] == "Never";
    let mut text = format!("priority {value}: goes before jobs of lower priority in its queue");
    text.push_str(if never { ", and preempts none" } else { ", and may preempt them" });
    if class["globalDefault"] == true {
        text.push_str("; the default");
    }
    match class["description"].as_str() {
        Some(words) if !words.is_empty() => format!("{text}. {words}"),
        _ => text,
    }
}

/// The binding that an object would have, as far as it says how much is asked for.
fn supposed(object: &Value) -> Option<BindingEntry> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (api_version, kind) = (text(&object["apiVersion"]), text(&object["kind"]));
    let workload = fleet_policies::workload::WorkloadKind::of(&api_version, &kind);
    let components = fleet_policies::workload::components(workload, object).ok()?;
    if components.is_empty() {
        return None;
    }
    let mut binding = ResourceBinding::default();
    binding.spec.resource.api_version = api_version;
    binding.spec.resource.kind = kind;
    binding.spec.components = components.iter().map(fleet_api::convert::component).collect();
    Some(BindingEntry::read(binding, None))
}

/// Verdicts on an object that is not there yet.
pub fn would_go(web: &Web, sight: &Sight, object: &Value) -> Vec<ClusterVerdict> {
    match supposed(object).filter(|_| sight.clusters) {
        Some(entry) => verdicts(&entry, &web.board.clusters()),
        None => Vec::new(),
    }
}

/// What it would wait for in its queue.
pub fn queue_outlook(web: &Web, sight: &Sight, object: &Value) -> Vec<String> {
    let Some(entry) = supposed(object) else { return Vec::new() };
    if sight.clusters && !could_ever_start(&entry, &web.board.clusters()) {
        return vec!["It would never start: no cluster could hold it even if empty.".to_owned()];
    }
    let labels = &object["metadata"]["labels"];
    let named = QUOTA_LABELS.iter().find_map(|label| labels[*label].as_str()).unwrap_or_default();
    let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default();
    let requests = facts::amounts(&entry.total.to_quantities());
    let known = web.board.known();
    let mut said = fleet_views::outlook(&known, sight, named, namespace, &requests);
    if let Some(vc) = labels[VIRTUAL_CLUSTER_LABEL].as_str().filter(|_| sight.virtual_clusters) {
        let rows = fleet_views::virtual_clusters(&known, sight);
        said.push(match rows.iter().find(|row| row.name == vc) {
            Some(row) => format!(
                "Virtual cluster {vc}: {}, {} bad; {} of its jobs wait.",
                row.bar.text, row.bad, row.waiting
            ),
            None => format!("It would wait: there is no virtual cluster {vc}."),
        });
    }
    said
}
