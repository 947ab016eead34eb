//! Simulated nodes and pods beside an embedded server: stages driven from its commit log, without HTTP.
//!
//! Inputs: a server in this process, the nodes to create, the set of stages. One loop reads changes, decides
//! by [`rules`] and writes in bulk; per pod it keeps only the running timers. Its writes have no
//! managedFields. Not here: binding pods to nodes, and leases, which nothing reads here.

mod apply;
mod rules;

use std::{collections::BTreeMap, time::Duration};

use anyhow::Context;
use fleet_apiserver::{ApiServer, ObjectChange, Objects, Stored};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

pub use rules::{Next, Reading, Stage, StageSet};

use crate::hollow::{self, timers::Timers};

/// Objects written in one batch; others may write between two batches.
const BATCH: usize = 1024;
/// Wait after the store refused a batch.
const RETRY: Duration = Duration::from_millis(200);

/// How a member is simulated.
#[derive(Clone, Debug)]
pub struct Options {
    /// Names and sizes of the nodes, and the clock.
    pub hollow: hollow::Options,
    pub set: StageSet,
    /// Seed of delays and chaos.
    pub seed: u64,
}

impl Reading for Stored {
    fn text(&self, path: &[&str]) -> String {
        Stored::text(self, path)
    }

    fn has(&self, path: &[&str]) -> bool {
        Stored::has(self, path)
    }

    fn owner_kind(&self) -> String {
        let owners = self.at(&["metadata", "ownerReferences"]).unwrap_or_default();
        let controller = owners
            .as_array()
            .and_then(|all| all.iter().find(|owner| owner["controller"] == true).or_else(|| all.first()));
        controller.and_then(|owner| owner["kind"].as_str()).unwrap_or_default().to_string()
    }
}

/// What kind of object is followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Of {
    Pod,
    Node,
}

/// A step that is not due yet. The version tells whether it is still the object's next step.
struct Due {
    of: Of,
    object: Stored,
    stage: Stage,
}

struct Engine {
    pods: Objects,
    nodes: Objects,
    options: Options,
    ours: BTreeMap<String, usize>,
    timers: Timers<Due>,
}

/// Creates the nodes and runs the stages until `shutdown` is cancelled.
///
/// # Errors
/// The nodes cannot be created.
pub async fn run(server: &ApiServer, options: Options, shutdown: CancellationToken) -> anyhow::Result<()> {
    let (pods, nodes) = (server.objects("v1", "pods")?, server.objects("v1", "nodes")?);
    let count = options.hollow.nodes.len();
    let missing = (0..count).filter(|index| nodes.get(&options.hollow.nodes[*index].name).is_none());
    let made = missing.map(|index| hollow::node(&options.hollow, index, "v1.36.0")).collect();
    nodes.create(made).await.context("simulated nodes could not be made")?;
    let ours = (0..count).map(|index| (options.hollow.nodes[index].name.clone(), index)).collect();
    let (mut pod_log, mut node_log) = (pods.follow(), nodes.follow());
    let mut engine = Engine { pods, nodes, options, ours, timers: Timers::default() };
    loop {
        let next_due = engine.timers.next();
        tokio::select! {
            biased;
            () = shutdown.cancelled() => return Ok(()),
            () = hollow::sleep_until(next_due) => engine.take_due().await,
            changes = node_log.next() => match changes {
                Some(changes) => engine.read(Of::Node, changes.changes).await,
                None => return Ok(()),
            },
            changes = pod_log.next() => match changes {
                Some(changes) => engine.read(Of::Pod, changes.changes).await,
                None => return Ok(()),
            },
        }
    }
}

impl Engine {
    /// The index of the node itself, or of the pod's node; None for objects of others.
    fn index(&self, of: Of, object: &Stored) -> Option<usize> {
        match of {
            Of::Pod => self.ours.get(&object.text(&["spec", "nodeName"])).copied(),
            Of::Node => self.ours.get(object.key()).copied(),
        }
    }

    fn next(&self, of: Of, object: &Stored) -> Option<Next> {
        self.index(of, object)?;
        let (set, seed) = (self.options.set, self.options.seed);
        match of {
            Of::Pod => rules::next_for_pod(object, set, seed),
            Of::Node => rules::next_for_node(object, apply::node_is_ready(object), set, seed),
        }
    }

    async fn read(&mut self, of: Of, changes: Vec<ObjectChange>) {
        let now = Instant::now();
        let mut due = Vec::new();
        for change in changes {
            let ObjectChange::Put(object) = change else { continue };
            let Some(next) = self.next(of, &object) else { continue };
            let step = Due { of, object, stage: next.stage };
            if next.after.is_zero() {
                due.push(step);
            } else {
                self.timers.insert(now + next.after, step);
            }
        }
        self.perform(due).await;
    }

    async fn take_due(&mut self) {
        let now = Instant::now();
        let mut due = Vec::new();
        while let Some(mut step) = self.timers.pop_due(now) {
            let objects = if step.of == Of::Pod { &self.pods } else { &self.nodes };
            // A newer version has its own timers, unless its step is the same and this one only began
            // earlier.
            let Some(current) = objects.get(step.object.key()) else { continue };
            let same = current.text(&["metadata", "uid"]) == step.object.text(&["metadata", "uid"])
                && self.next(step.of, &current).is_some_and(|next| next.stage == step.stage);
            if same {
                step.object = current;
                due.push(step);
            }
        }
        self.perform(due).await;
    }

    async fn perform(&mut self, mut due: Vec<Due>) {
        while !due.is_empty() {
            let rest = due.split_off(due.len().min(BATCH));
            if let Err(error) = self.write(&due).await {
                tracing::warn!(%error, "simulated objects could not be written");
                let at = Instant::now() + RETRY;
                for step in due.into_iter().chain(rest) {
                    self.timers.insert(at, step);
                }
                return;
            }
            due = rest;
        }
    }

    async fn write(&self, due: &[Due]) -> Result<(), fleet_apiserver::DirectError> {
        let now = self.options.hollow.clock.now();
        let (mut pods, mut nodes, mut gone) = (Vec::new(), Vec::new(), Vec::new());
        for step in due {
            let object = step.object.clone();
            let index = self.index(step.of, &object).unwrap_or_default();
            match (step.of, step.stage) {
                (_, Stage::PodDelete) => gone.push(object),
                (Of::Pod, stage) => {
                    let value = apply::pod(&object, stage, index, now);
                    pods.push((object, value));
                }
                (Of::Node, stage) => {
                    let value = apply::node(&object, stage, now);
                    nodes.push((object, value));
                }
            }
        }
        // An object that has changed meanwhile is read again from the log.
        self.pods.update(pods).await?;
        self.nodes.update(nodes).await?;
        self.pods.remove(gone).await?;
        Ok(())
    }
}
