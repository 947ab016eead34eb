//! The member of a play, and its pods as their programs see them.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use anyhow::Context as _;
use fleet_api::crds::{Side, definitions};
use fleet_apiserver::{ApiServer, Config};
use futures::{StreamExt, future::BoxFuture, stream};
use kube::{
    Client,
    api::{Patch, PatchParams, PostParams, Request},
};
use member_agent::JobController;
use serde_json::{Value, json};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{LOOK, Outcome, PATIENCE};
use fleet_simulator::RunTime;

use crate::hollow;

const PODS: &str = "/api/v1/namespaces/default/pods";
const MEMBER: &str = "east";
/// Requests under way at once.
const AT_ONCE: usize = 16;
const READY_WITHIN: Duration = Duration::from_secs(60);

/// A member with an agent and hollow nodes, and a hub that knows it.
pub(super) struct Stage {
    pub client: Client,
    servers: Vec<ApiServer>,
    shutdown: CancellationToken,
    agent: tokio::task::JoinHandle<anyhow::Result<()>>,
    /// Kept while the agent may read it.
    _conf: Option<tempfile::NamedTempFile>,
}

/// A pod as a play sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    pub name: String,
    /// `job/role` by the play's own label.
    pub job: String,
    pub role: String,
    pub bound: bool,
    pub running: bool,
    pub ended: bool,
}

/// Label by which a play knows the job of a pod.
pub(super) const JOB_LABEL: &str = "play";
/// Label by which a play knows what a pod is in its job.
pub(super) const ROLE_LABEL: &str = "role";

impl Stage {
    /// `conf`: the scheduler's configuration in Volcano's format; `None` is the built-in one.
    pub async fn open(nodes: usize, cpu: u32, memory: &str, conf: Option<&str>) -> anyhow::Result<Self> {
        let open = async |side| {
            let config = Config { crds: definitions(side), ..Config::default() };
            ApiServer::open(config).await.context("cannot open an API server")
        };
        let (hub, member) = (open(Side::Hub).await?, open(Side::Member).await?);
        let client = Client::new(member.router(), "default");
        let shutdown = CancellationToken::new();
        let nodes_spec = hollow::NodeSpec {
            count: nodes,
            cpu: cpu.to_string(),
            memory: memory.to_owned(),
            gpus: 0,
            labels: BTreeMap::new(),
            taints: Vec::new(),
        };
        let hollow_options = hollow::Options::new(MEMBER, nodes_spec, RunTime::Forever);
        tokio::spawn(hollow::run(client.clone(), hollow_options, shutdown.clone()));
        let conf = conf.map(write_conf).transpose()?;
        let mut options = member_agent::Options::new(MEMBER);
        options.controllers = [JobController::VolcanoJob].into();
        options.scheduler_conf = conf.as_ref().map(|file| file.path().to_owned());
        let hub_client = Client::new(hub.router(), "default");
        let agent = tokio::spawn(member_agent::run(hub_client, client.clone(), options, shutdown.clone()));
        let stage = Self { client, servers: vec![hub, member], shutdown, agent, _conf: conf };
        stage.nodes_ready(nodes).await?;
        Ok(stage)
    }

    async fn nodes_ready(&self, wanted: usize) -> anyhow::Result<()> {
        let ready = async {
            loop {
                if self.list("/api/v1/nodes").await?.len() == wanted {
                    return anyhow::Ok(());
                }
                tokio::time::sleep(LOOK).await;
            }
        };
        tokio::time::timeout(READY_WITHIN, ready).await.context("the nodes did not come up")?
    }

    pub fn close(self) -> BoxFuture<'static, ()> {
        Box::pin(self.close_in_place())
    }

    async fn close_in_place(self) {
        self.shutdown.cancel();
        let _ = self.agent.await;
        for server in self.servers {
            server.shutdown().await;
        }
    }

    pub async fn list(&self, path: &str) -> anyhow::Result<Vec<Value>> {
        let listed: Value = self.client.request(Request::new(path).list(&Default::default())?).await?;
        Ok(listed["items"].as_array().cloned().unwrap_or_default())
    }

    /// Creates objects, some at once.
    pub async fn create(&self, path: &str, objects: Vec<Value>) -> anyhow::Result<()> {
        let made = stream::iter(objects).map(|object| async move {
            let request =
                Request::new(path).create(&PostParams::default(), object.to_string().into_bytes())?;
            self.client.request::<Value>(request).await?;
            anyhow::Ok(())
        });
        made.buffer_unordered(AT_ONCE).collect::<Vec<_>>().await.into_iter().collect()
    }

    pub async fn create_pods(&self, pods: Vec<Value>) -> anyhow::Result<()> {
        self.create(PODS, pods).await
    }

    pub async fn pods(&self) -> anyhow::Result<Vec<Seen>> {
        /// The fields of a listing that a play uses.
        #[derive(serde::Deserialize)]
        struct Listed {
            items: Vec<crate::hollow::pod::Pod>,
        }
        let listed: Listed = self.client.request(Request::new(PODS).list(&Default::default())?).await?;
        let seen = |pod: crate::hollow::pod::Pod| {
            let label = |name: &str| {
                pod.metadata.labels.as_ref().and_then(|all| all.get(name)).cloned().unwrap_or_default()
            };
            let phase = pod.status.phase.as_deref().unwrap_or_default();
            Seen {
                job: label(JOB_LABEL),
                role: label(ROLE_LABEL),
                bound: pod.spec.node_name.is_some(),
                running: phase == "Running" && pod.metadata.deletion_timestamp.is_none(),
                ended: matches!(phase, "Succeeded" | "Failed"),
                name: pod.metadata.name.unwrap_or_default(),
            }
        };
        Ok(listed.items.into_iter().map(seen).collect())
    }

    /// The programs in these pods succeed.
    pub async fn succeed(&self, names: Vec<String>) -> anyhow::Result<()> {
        let body = json!({"status": {"phase": "Succeeded"}});
        let body = &body;
        let ended = stream::iter(names).map(|name| async move {
            let patch = Patch::Merge(body);
            let request =
                Request::new(PODS).patch_subresource("status", &name, &PatchParams::default(), &patch)?;
            match self.client.request::<Value>(request).await {
                // Its job has ended and was deleted with it.
                Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
                answer => answer.map(drop).map_err(anyhow::Error::from),
            }
        });
        ended.buffer_unordered(AT_ONCE).collect::<Vec<_>>().await.into_iter().collect()
    }
}

fn write_conf(text: &str) -> anyhow::Result<tempfile::NamedTempFile> {
    let file = tempfile::NamedTempFile::new().context("a file for the scheduler's configuration")?;
    std::fs::write(file.path(), text).context("the scheduler's configuration")?;
    Ok(file)
}

/// Follows a play to its end: counts jobs with pods on nodes, and detects when nothing changes any more.
pub(super) struct Watcher {
    outcome: Outcome,
    last: (Vec<Seen>, usize),
    began: Instant,
    moved: Instant,
}

impl Watcher {
    pub fn new(jobs: usize) -> Self {
        let outcome = Outcome { jobs, ..Outcome::default() };
        let now = Instant::now();
        Self { outcome, last: (Vec::new(), 0), began: now, moved: now }
    }

    /// One observation; `Some` when the play is over.
    pub fn look(&mut self, pods: &[Seen], ended: usize) -> Option<Outcome> {
        let holding: BTreeSet<String> =
            pods.iter().filter(|pod| pod.bound && !pod.ended).map(|pod| pod.job.clone()).collect();
        self.outcome.most_at_once = self.outcome.most_at_once.max(holding.len());
        self.outcome.ended = ended;
        self.outcome.took = self.began.elapsed();
        if self.last.1 != ended || self.last.0 != pods {
            self.last = (pods.to_vec(), ended);
            self.moved = Instant::now();
        }
        if self.outcome.all_ended() {
            return Some(self.outcome.clone());
        }
        if self.moved.elapsed() >= PATIENCE {
            self.outcome.stuck = holding;
            return Some(self.outcome.clone());
        }
        None
    }
}
