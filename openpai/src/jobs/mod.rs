//! OpenPAI's jobs: how they are read from the hub, submitted and stopped.
//!
//! A job is the newest of its runs. Each run is a Volcano Job with the labels of [`fleet_pai::names`].

mod detail;
mod error;
mod events;
mod item;
mod offers;
mod read;
mod rows;
mod tasks;
mod write;

use std::collections::{BTreeMap, btree_map::Entry};

use fleet_pai::names;
use serde_json::Value;

use crate::server::{Selectors, Server};

pub use detail::{Shown, attempts, detail, number_of_attempts, task_attempts};
pub use error::JobError;
pub use events::{Event, events};
pub use item::{Item, Retries, Run, TAG_MAX, TAGS_MAX, item};
pub use offers::Offers;
pub use read::{Read, read};
pub use rows::{tasks_of_counts, tasks_of_pods};
pub use tasks::{Notes, add_tasks, waiting_tasks};
pub use write::{
    Submitted, Who, identity, objects as native_objects, set_tags, start, stop, submit, user_of,
};

const GROUP: &str = "/apis/batch.volcano.sh/v1alpha1";
pub(crate) const BINDINGS: &str = "/apis/fleet.dev/v1alpha1";

fn list_path(namespace: Option<&str>) -> String {
    match namespace {
        Some(namespace) => format!("{GROUP}/namespaces/{namespace}/jobs"),
        None => format!("{GROUP}/jobs"),
    }
}

fn object_path(namespace: &str, name: &str) -> String {
    format!("{GROUP}/namespaces/{namespace}/jobs/{name}")
}

fn text<'v>(value: &'v Value, absent: &'v str) -> &'v str {
    value.as_str().unwrap_or(absent)
}

fn label<'v>(object: &'v Value, name: &str) -> &'v str {
    text(&object["metadata"]["labels"][name], "")
}

fn annotation<'v>(object: &'v Value, name: &str) -> &'v str {
    text(&object["metadata"]["annotations"][name], "")
}

/// All jobs of a namespace, or of all, each as its newest run.
///
/// # Errors
/// The hub does not answer, or refuses.
pub async fn list(server: &Server, namespace: Option<&str>) -> Result<Vec<Item>, JobError> {
    let objects = objects(server, namespace, names::JOB_LABEL).await?;
    let mut bindings = Bindings::of(bindings(server, namespace).await);
    let mut newest: Vec<Run> = Vec::new();
    // Places in this list, by namespace and id.
    let mut places: BTreeMap<(String, String), usize> = BTreeMap::new();
    for object in objects {
        let binding = bindings.take(&object);
        let Some(run) = Run::of(object, binding) else { continue };
        match places.entry((run.namespace().to_owned(), run.id.clone())) {
            Entry::Vacant(place) => {
                place.insert(newest.len());
                newest.push(run);
            }
            Entry::Occupied(place) => {
                if let Some(known) = newest.get_mut(*place.get()).filter(|known| known.number < run.number) {
                    *known = run;
                }
            }
        }
    }
    Ok(newest.iter().map(item).collect())
}

/// Most runs of one job whose bindings are asked for one by one. Anybody may make more runs of a job of his.
const ASKED_ALONE: usize = 16;

/// The runs of one job, newest first.
///
/// # Errors
/// There is no such job, or the hub refuses.
pub async fn runs(server: &Server, namespace: Option<&str>, id: &str) -> Result<Vec<Run>, JobError> {
    let no_job = || JobError::NoJob { id: id.to_owned() };
    let (user, job) = names::of_id(id).ok_or_else(no_job)?;
    let selector = format!("{}={}", names::JOB_LABEL, names::object(user, job));
    let found = objects(server, namespace, &selector).await?;
    let found: Vec<Value> =
        found.into_iter().filter(|object| annotation(object, names::ID_ANNOTATION) == id).collect();
    let mut listed = match found.len() > ASKED_ALONE {
        true => Some(Bindings::of(bindings(server, namespace).await)),
        false => None,
    };
    let mut runs = Vec::new();
    for object in found {
        let binding = match &mut listed {
            Some(listed) => listed.take(&object),
            None => binding(server, &object).await,
        };
        runs.extend(Run::of(object, binding));
    }
    runs.sort_by_key(|run| std::cmp::Reverse(run.number));
    if runs.is_empty() { Err(no_job()) } else { Ok(runs) }
}

/// The newest run of a job.
///
/// # Errors
/// As [`runs`].
pub async fn newest(server: &Server, namespace: Option<&str>, id: &str) -> Result<Run, JobError> {
    let runs = runs(server, namespace, id).await?;
    runs.into_iter().next().ok_or_else(|| JobError::NoJob { id: id.to_owned() })
}

async fn objects(server: &Server, namespace: Option<&str>, labels: &str) -> Result<Vec<Value>, JobError> {
    let selectors = Selectors { labels: Some(labels.to_owned()), ..Selectors::default() };
    let mut listed =
        server.list(&list_path(namespace), &selectors, "application/json").await.map_err(|error| {
            if error.is_not_found() { JobError::NoKind { url: server.url.clone() } } else { error.into() }
        })?;
    Ok(listed["items"].as_array_mut().map(std::mem::take).unwrap_or_default())
}

/// Bindings show where a job runs and why it waits. Callers who may not read them get the job without this.
async fn bindings(server: &Server, namespace: Option<&str>) -> Vec<Value> {
    let path = match namespace {
        Some(namespace) => format!("{BINDINGS}/namespaces/{namespace}/resourcebindings"),
        None => format!("{BINDINGS}/resourcebindings"),
    };
    let listed = server.list(&path, &Selectors::default(), "application/json").await;
    listed.ok().and_then(|mut list| list["items"].as_array_mut().map(std::mem::take)).unwrap_or_default()
}

/// Listed bindings, by namespace and name of their jobs.
struct Bindings(BTreeMap<(String, String), Vec<Value>>);

impl Bindings {
    fn of(listed: Vec<Value>) -> Self {
        let mut found: BTreeMap<(String, String), Vec<Value>> = BTreeMap::new();
        for binding in listed {
            let key = key(&binding["metadata"]["namespace"], &binding["spec"]["resource"]["name"]);
            found.entry(key).or_default().push(binding);
        }
        Self(found)
    }

    /// That of an object. Each is asked for once.
    fn take(&mut self, object: &Value) -> Option<Value> {
        let meta = &object["metadata"];
        let found = self.0.get_mut(&key(&meta["namespace"], &meta["name"]))?;
        let place = found.iter().position(|binding| is_binding_of(binding, object))?;
        Some(found.swap_remove(place))
    }
}

fn key(namespace: &Value, name: &Value) -> (String, String) {
    (text(namespace, "").to_owned(), text(name, "").to_owned())
}

async fn binding(server: &Server, object: &Value) -> Option<Value> {
    let namespace = text(&object["metadata"]["namespace"], "");
    let path = format!("{BINDINGS}/namespaces/{namespace}/resourcebindings/{}", binding_name(object));
    server.object(&path).await.ok().filter(|binding| is_binding_of(binding, object))
}

fn binding_name(object: &Value) -> String {
    let name = text(&object["metadata"]["name"], "");
    fleet_policies::names::binding_name("batch.volcano.sh/v1alpha1", "Job", name)
}

fn is_binding_of(binding: &Value, object: &Value) -> bool {
    let (of, meta) = (&binding["spec"]["resource"], &object["metadata"]);
    binding["metadata"]["namespace"] == meta["namespace"]
        && of["name"] == meta["name"]
        && of["kind"] == "Job"
        && of["apiVersion"] == "batch.volcano.sh/v1alpha1"
        && (of["uid"].is_null() || of["uid"] == meta["uid"])
}

#[cfg(test)]
mod tests;
