//! A fleet that goes on from objects which others have stored: parts of an earlier release, or of a later one.
//!
//! Fleet names objects by uids of others, and a server gives uids of its own. So whatever names a stored uid, or its
//! beginning, gets the one that the server has given. Deliberately absent: nodes, which hollow kubelets make.

use std::{collections::BTreeMap, path::Path};

use anyhow::Context;
use fleet_api::yaml;
use k8s_openapi::{apimachinery::pkg::apis::meta::v1::MicroTime, jiff::Timestamp};
use kube::Client;
use serde_json::{Value, json};

use super::{FleetSpec, Part, TestFleet};
use crate::{
    history::Recorder,
    objects::{self, Kind, LEASE, NODE},
    wait::Polled,
};

const DEFINITION: Kind = Kind {
    api_version: "apiextensions.k8s.io/v1",
    kind: "CustomResourceDefinition",
    plural: "customresourcedefinitions",
    namespaced: false,
};
/// Annotation of the hub's kube-system that names this life of its store.
const INCARNATION: &str = "fleet.dev/incarnation";
/// Characters of a uid in the names of Works and Reservations.
const SHORT: usize = 8;

/// The objects of a hub and its members, each after those that it names.
#[derive(Clone, Debug, Default)]
pub struct Stored {
    /// Definitions that the hub has in the place of this release's.
    pub definitions: Vec<Value>,
    pub hub: Vec<Value>,
    pub members: BTreeMap<String, Vec<Value>>,
}

impl Stored {
    /// Reads `hub.yaml`, and `NAME.yaml` for each member, of a folder.
    ///
    /// # Errors
    /// A file cannot be read, or is no YAML.
    pub fn read(folder: &Path) -> anyhow::Result<Self> {
        let mut stored = Self::default();
        for entry in std::fs::read_dir(folder).with_context(|| folder.display().to_string())? {
            let file = entry?.path();
            let what = || file.display().to_string();
            let text = std::fs::read_to_string(&file).with_context(what)?;
            let objects = yaml::read_all(&text).with_context(what)?;
            let name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            match name.as_str() {
                "hub" => stored.hub = objects,
                _ => drop(stored.members.insert(name, objects)),
            }
        }
        Ok(stored)
    }
}

impl FleetSpec {
    /// Starts it on what is stored, as when all of its parts are replaced at once while servers and nodes run on.
    ///
    /// # Errors
    /// A server refuses an object, or a member does not get ready.
    pub async fn start_from(self, stored: &Stored) -> anyhow::Result<TestFleet> {
        let mut fleet = TestFleet::prepare(self).await?;
        let hub = fleet.hub();
        for definition in &stored.definitions {
            let patch = json!({"spec": {"versions": definition["spec"]["versions"]}});
            objects::merge(&hub, DEFINITION, "", objects::name_of(definition), &patch).await?;
        }
        let mut loader = Loader::default();
        loader.load(&hub, &stored.hub).await.context("hub")?;
        for (name, objects) in &stored.members {
            loader.load(&fleet.member(name)?, objects).await.with_context(|| name.clone())?;
        }
        let names: Vec<String> = fleet.members.keys().cloned().collect();
        for name in &names {
            fleet.begin(Part::Nodes(name.clone()))?;
        }
        fleet.nodes_ready().await?;
        let mut members = BTreeMap::new();
        for name in &names {
            members.insert(name.clone(), fleet.member(name)?);
        }
        // What was loaded piece by piece is no history of a fleet.
        fleet.recorder = Recorder::start(hub, members);
        fleet.begin(Part::Controller)?;
        for name in names {
            fleet.begin(Part::Agent(name))?;
        }
        fleet.ready().await?;
        Ok(fleet)
    }
}

impl TestFleet {
    /// Waits until all nodes are there: an agent that comes before them would report none.
    async fn nodes_ready(&self) -> anyhow::Result<()> {
        let is_ready =
            |node: &&Value| objects::condition(node, "Ready").is_some_and(|ready| ready["status"] == "True");
        for member in &self.spec.members {
            let client = self.member(&member.name)?;
            self.wait_for(&format!("nodes of {}", member.name), async || {
                let nodes = objects::list(&client, NODE).await?;
                let ready = nodes.iter().filter(is_ready).count();
                Ok(Polled::when(ready >= member.nodes, || format!("{ready} are ready")))
            })
            .await?;
        }
        Ok(())
    }
}

/// Creates stored objects, and remembers under which uid each is known now.
#[derive(Default)]
struct Loader {
    given: Vec<(String, String)>,
}

impl Loader {
    async fn load(&mut self, server: &Client, objects: &[Value]) -> anyhow::Result<()> {
        let mut statuses = Vec::new();
        for stored in objects {
            let mut object = self.renamed(stored)?;
            let (uid, status) = (take(&mut object["metadata"], "uid"), take(&mut object, "status"));
            let kind = Kind::of(&object)?;
            if kind == LEASE {
                // Whoever holds it has renewed it until now.
                object["spec"]["renewTime"] = json!(MicroTime(Timestamp::now()));
            }
            let what = format!("{} {}", kind.kind, objects::name_of(&object));
            let known = self.create(server, kind, &object).await.with_context(|| what.clone())?;
            if let (Some(stored), Some(given)) = (uid.as_str(), known["metadata"]["uid"].as_str()) {
                self.note(stored, given);
            }
            if !status.is_null() {
                statuses.push((kind, object, status));
            }
        }
        for (kind, object, status) in statuses {
            let (namespace, name) = (objects::namespace_of(&object), objects::name_of(&object));
            let patch = json!({"status": self.renamed(&status)?});
            let written = objects::merge_status(server, kind, namespace, name, &patch).await;
            written.with_context(|| format!("status of {} {name}", kind.kind))?;
        }
        Ok(())
    }

    /// Creates it; one that is there gets the stored annotations and spec.
    async fn create(&mut self, server: &Client, kind: Kind, object: &Value) -> anyhow::Result<Value> {
        let (namespace, name) = (objects::namespace_of(object), objects::name_of(object));
        let created = objects::create(server, object).await;
        let known = objects::get(server, kind, namespace, name).await?.unwrap_or_default();
        match created {
            Ok(()) => return Ok(known),
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            Err(error) => return Err(error.into()),
        }
        let (stored, own) = (&object["metadata"]["annotations"], &known["metadata"]["annotations"]);
        if let (Some(stored), Some(own)) = (stored[INCARNATION].as_str(), own[INCARNATION].as_str()) {
            // The store has run on, so this life is the one that all parts know.
            self.given.push((stored.to_string(), own.to_string()));
            return Ok(known);
        }
        let mut patch = json!({"metadata": {}});
        if stored.is_object() {
            patch["metadata"]["annotations"] = stored.clone();
        }
        if object["spec"].is_object() {
            patch["spec"] = object["spec"].clone();
        }
        objects::merge(server, kind, namespace, name, &patch).await?;
        Ok(known)
    }

    fn note(&mut self, stored: &str, given: &str) {
        self.given.push((stored.to_string(), given.to_string()));
        if let (Some(stored), Some(given)) = (stored.get(..SHORT), given.get(..SHORT)) {
            self.given.push((stored.to_string(), given.to_string()));
        }
    }

    /// The same with the uids that were given so far.
    fn renamed(&self, stored: &Value) -> anyhow::Result<Value> {
        let mut text = stored.to_string();
        for (stored, given) in &self.given {
            text = text.replace(stored, given);
        }
        Ok(serde_json::from_str(&text)?)
    }
}

fn take(object: &mut Value, field: &str) -> Value {
    object.as_object_mut().and_then(|fields| fields.remove(field)).unwrap_or_default()
}
