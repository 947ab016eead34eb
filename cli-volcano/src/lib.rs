//! The commands for Volcano's objects: `fleet job`, `queue`, `podgroup`, `jobflow`, and under the name
//! `vcctl` with that program's flags and columns.
//!
//! They query the cluster of the kubeconfig: jobs are on a hub and in members, queues, PodGroups and flows in
//! members only. Deliberately absent: validation of jobs; the API server's answers are passed on.

pub mod args;
mod flows;
mod jobs;
mod pods;
mod queues;

use std::path::Path;

use anyhow::{Context, bail};
use fleet_cli_ground::{
    answer::Answer,
    args::Scope,
    columns,
    connect::Hub,
    listing::{Layout, List},
    server::{AskError, Selectors},
};
use serde_json::Value;

use args::Command;

const JOBS: Kind = Kind { group: "batch.volcano.sh/v1alpha1", plural: "jobs", namespaced: true };
const QUEUES: Kind = Kind { group: "scheduling.volcano.sh/v1beta1", plural: "queues", namespaced: false };
const POD_GROUPS: Kind =
    Kind { group: "scheduling.volcano.sh/v1beta1", plural: "podgroups", namespaced: true };
const COMMANDS: Kind = Kind { group: "bus.volcano.sh/v1alpha1", plural: "commands", namespaced: true };
const FLOWS: Kind = Kind { group: "flow.volcano.sh/v1alpha1", plural: "jobflows", namespaced: true };
const TEMPLATES: Kind = Kind { group: "flow.volcano.sh/v1alpha1", plural: "jobtemplates", namespaced: true };

/// Output of Volcano's program for an empty list.
const EMPTY: &str = "No resources found";

/// A kind of Volcano, with its API path.
#[derive(Clone, Copy, Debug)]
struct Kind {
    group: &'static str,
    plural: &'static str,
    namespaced: bool,
}

impl Kind {
    /// Path of the list, of one namespace or of all.
    fn list(self, namespace: Option<&str>) -> String {
        match namespace.filter(|_| self.namespaced) {
            Some(namespace) => format!("/apis/{}/namespaces/{namespace}/{}", self.group, self.plural),
            None => format!("/apis/{}/{}", self.group, self.plural),
        }
    }

    fn object(self, namespace: &str, name: &str) -> String {
        format!("{}/{name}", self.list(Some(namespace)))
    }
}

/// Runs one command of Volcano's program.
///
/// # Errors
/// The cluster does not answer, or refuses.
pub async fn run(hub: &Hub, command: &Command) -> anyhow::Result<Answer> {
    match command {
        Command::Job(command) => job(hub, command).await,
        Command::Queue(command) => queue(hub, command).await,
        Command::PodGroup(command) => pod_group(hub, command).await,
        Command::Pod(command) => pods::pods(hub, command).await,
        Command::JobTemplate(command) => template(hub, command).await,
        Command::JobFlow(command) => flow(hub, command).await,
        Command::Version => Ok(version()),
    }
}

pub fn version() -> Answer {
    Answer::text(format!("vcctl {} (Fleet)\n", env!("CARGO_PKG_VERSION")))
}

pub use flows::{flow, template};
pub use jobs::run as job;
pub use pods::groups as pod_group;
pub use queues::run as queue;

fn namespace<'a>(hub: &'a Hub, scope: &'a Scope) -> &'a str {
    scope.namespace.as_deref().unwrap_or(&hub.namespace)
}

/// All objects of a kind, of one namespace or of all.
async fn list(hub: &Hub, kind: Kind, namespace: Option<&str>) -> anyhow::Result<Vec<Value>> {
    listed(hub, kind, &kind.list(namespace), &Selectors::default()).await
}

async fn listed(hub: &Hub, kind: Kind, path: &str, selectors: &Selectors) -> anyhow::Result<Vec<Value>> {
    let answer = hub.server.list(path, selectors, "application/json").await;
    let mut answer = answer.map_err(|error| known(hub, kind, error))?;
    let item_kind = answer["kind"].as_str().and_then(|of| of.strip_suffix("List")).unwrap_or_default();
    let (item_kind, api_version) = (Value::from(item_kind), answer["apiVersion"].take());
    let mut items = answer["items"].as_array_mut().map(std::mem::take).unwrap_or_default();
    for item in &mut items {
        // Items of a list lack both.
        item["kind"] = item_kind.clone();
        item["apiVersion"] = api_version.clone();
    }
    Ok(items)
}

async fn get(hub: &Hub, kind: Kind, namespace: &str, name: &str) -> anyhow::Result<Value> {
    let path = kind.object(namespace, name);
    match hub.server.object(&path).await {
        // A missing kind and a missing object have the same status code.
        Err(error @ AskError::Refused { code: 404, .. }) => {
            list(hub, kind, Some(namespace)).await?;
            Err(error.into())
        }
        answer => Ok(answer?),
    }
}

/// A helpful error for a kind that the cluster does not serve.
fn known(hub: &Hub, kind: Kind, error: AskError) -> anyhow::Error {
    let (group, _) = kind.group.split_once('/').unwrap_or((kind.group, ""));
    match error {
        AskError::Refused { code: 404, .. } => anyhow::anyhow!(
            "{} does not serve {}.{group}: they are in member clusters; name a member's kubeconfig with \
             --kubeconfig",
            hub.server.url,
            kind.plural
        ),
        other => other.into(),
    }
}

/// The objects of a file with the requested kind.
fn manifests(file: &Path, api_version: &str, kind: &str) -> anyhow::Result<Vec<Value>> {
    let text = std::fs::read_to_string(file).with_context(|| format!("{} cannot be read", file.display()))?;
    let all: Vec<Value> = fleet_api::yaml::read_all(&text).with_context(|| file.display().to_string())?;
    for object in &all {
        if object["kind"] != kind || object["apiVersion"] != api_version {
            bail!(
                "{}: found {} of {}; allowed: {kind} of {api_version}",
                file.display(),
                object["kind"].as_str().unwrap_or("no kind"),
                object["apiVersion"].as_str().unwrap_or("no apiVersion"),
            );
        }
    }
    if all.is_empty() {
        bail!("{}: found nothing; allowed: {kind} of {api_version}", file.display());
    }
    Ok(all)
}

/// A list in Volcano's columns. With `all_namespaces` the first column is that of the namespace.
fn table(
    prefix: &'static str,
    columns: &[columns::Column],
    all_namespaces: bool,
    objects: &[Value],
    cells: impl Fn(&Value) -> Vec<String>,
) -> anyhow::Result<List> {
    let mut columns = columns.to_vec();
    if all_namespaces {
        columns.insert(0, ("Namespace", 0));
    }
    let headers: Vec<&'static str> = columns.iter().map(|(header, _)| *header).collect();
    let mut list = List { aging: &["Age"], ..List::of_objects(&headers, prefix) };
    (list.layout, list.nothing) = (Layout::Volcano(columns), EMPTY.to_owned());
    for object in objects {
        let mut row = cells(object);
        if all_namespaces {
            row.insert(0, object_namespace(object).to_owned());
        }
        list.row(object, row)?;
    }
    Ok(list)
}

fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

fn object_namespace(object: &Value) -> &str {
    object["metadata"]["namespace"].as_str().unwrap_or_default()
}

fn text<'v>(value: &'v Value, absent: &'v str) -> &'v str {
    value.as_str().filter(|text| !text.is_empty()).unwrap_or(absent)
}

fn number(value: &Value) -> String {
    value.as_i64().unwrap_or(0).to_string()
}

/// `2024-05-28` of a creation time.
fn day(object: &Value) -> String {
    let created = object["metadata"]["creationTimestamp"].as_str().unwrap_or_default();
    created.split('T').next().unwrap_or_default().to_owned()
}
