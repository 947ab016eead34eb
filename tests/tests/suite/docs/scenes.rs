//! What the reader of a block has before him: his own machine, two clusters without Fleet, or a fleet one of whose clusters
//! is dead.
//!
//! Clusters are embedded API servers with hollow nodes. Deliberately absent: the commands, which are those of the pages.

use std::{collections::BTreeMap, time::Duration};

use anyhow::Context;
use fleet_api::crds::{self, Side};
use fleet_apiserver::{Access, ApiServer, Config, ServeOptions, Server, private};
use fleet_kubesim::{RunTime, hollow, standins};
use fleet_tests::{
    FleetSpec, Polled, TestFleet,
    console::Block,
    fleet::Part,
    jobs::{Job, Queueing, gang_policy},
    objects::{self, CLUSTER, LEASE, PYTORCH_JOB},
    servers::install_crypto,
};
use kube::Client;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::terminal::Terminal;

/// Where a block is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scene {
    /// A machine with `fleet` and `kubectl`. Fleets are started by the pages.
    Laptop,
    /// The same; its fleet has the nodes of HiveD's lab.
    Lab,
    /// Administrators' kubeconfigs of two clusters, `hub.kubeconfig` and `east.kubeconfig`, and the programs of Fleet: what the
    /// README asks for. East has a training operator and a scheduler of its own.
    FirstClusters,
    /// The same, for the page about operating them.
    Clusters,
    /// A fleet whose cluster east does not come back; `KUBECONFIG` names its hub.
    DeadCluster,
}

/// Blocks that do not run on the laptop: page, beginning of the first command (empty: any), scene. The first entry counts.
const ELSEWHERE: &[(&str, &str, Scene)] = &[
    ("README.md", "fleet crds --hub", Scene::FirstClusters),
    ("docs/virtual-clusters.md", "", Scene::Lab),
    ("docs/pai.md", "", Scene::Lab),
    ("docs/operations.md", "fleet unjoin --force", Scene::DeadCluster),
    ("docs/operations.md", "", Scene::Clusters),
];

impl Scene {
    /// Where a block is run.
    pub fn of(block: &Block) -> Self {
        let is_about = |(page, begins, _): &&(&str, &str, Self)| {
            block.page == *page && block.steps[0].command.starts_with(*begins)
        };
        ELSEWHERE.iter().find(is_about).map_or(Self::Laptop, |(_, _, scene)| *scene)
    }

    /// Entries of the table that no block has.
    pub fn unused(blocks: &[Block]) -> Vec<String> {
        let has = |page: &str, begins: &str| {
            blocks
                .iter()
                .any(|block| block.is_run && block.page == page && block.steps[0].command.starts_with(begins))
        };
        let unused = ELSEWHERE.iter().filter(|(page, begins, _)| !has(page, begins));
        unused.map(|(page, begins, _)| format!("ELSEWHERE: {page}: {begins:?}: no such block")).collect()
    }

    /// Prepares it.
    ///
    /// # Errors
    /// A server does not start, or a cluster does not become what the scene needs.
    pub async fn set(self, terminal: &Terminal) -> anyhow::Result<Stage> {
        match self {
            Self::Laptop | Self::Lab => Ok(Stage::Empty),
            Self::FirstClusters | Self::Clusters => two_clusters(terminal).await,
            Self::DeadCluster => dead_cluster(terminal).await,
        }
    }
}

/// What lives as long as a scene.
pub enum Stage {
    /// All that runs, the pages start.
    Empty,
    /// Servers, and what ends the nodes.
    Clusters(Vec<Bare>, CancellationToken),
    /// A fleet in this process.
    Fleet(Box<TestFleet>),
}

impl Stage {
    /// Ends its servers.
    pub async fn strike(self) {
        match self {
            Self::Empty => {}
            // Without a look at the invariants: the run of a dead cluster may be alive beside the next one.
            Self::Fleet(fleet) => drop(fleet),
            Self::Clusters(servers, stop) => {
                stop.cancel();
                for Bare { api, served, .. } in servers {
                    served.shutdown().await;
                    api.shutdown().await;
                }
            }
        }
    }
}

/// A cluster without Fleet, and with the definitions of others.
pub struct Bare {
    client: Client,
    api: ApiServer,
    served: Server,
}

impl Bare {
    /// Starts it; `NAME.kubeconfig` in the directory of the checkout is its administrator's. helm warns of one that others can
    /// read.
    async fn start(name: &str, crds: Vec<Value>, terminal: &Terminal) -> anyhow::Result<Self> {
        install_crypto();
        let config = Config { access: Access::Rbac, crds, ..Config::default() };
        let api = ApiServer::open(config).await.with_context(|| format!("API server {name}"))?;
        let served = api.serve(ServeOptions::default()).await?;
        private::write(&terminal.checkout()?.join(format!("{name}.kubeconfig")), &served.kubeconfig(name))?;
        Ok(Self { client: Client::new(api.router(), "default"), api, served })
    }
}

async fn two_clusters(terminal: &Terminal) -> anyhow::Result<Stage> {
    for program in ["fleet-controller", "member-agent"] {
        terminal.install(program)?;
    }
    // What a training operator brings is not Fleet's to change.
    let operators = |definition: &Value| crds::name(definition) == "pytorchjobs.kubeflow.org";
    let of_east = crds::definitions(Side::Member).into_iter().filter(operators).collect();
    let hub = Bare::start("hub", Vec::new(), terminal).await?;
    let east = Bare::start("east", of_east, terminal).await?;
    let nodes = hollow::NodeSpec {
        count: 4,
        cpu: "64".to_string(),
        memory: "512Gi".to_string(),
        gpus: 8,
        labels: BTreeMap::new(),
        taints: Vec::new(),
    };
    let stop = CancellationToken::new();
    let options = hollow::Options::new("east", nodes, RunTime::For(Duration::from_secs(60)));
    tokio::spawn(hollow::run(east.client.clone(), options, stop.clone()));
    tokio::spawn(standins::operator::run(east.client.clone(), stop.clone()));
    tokio::spawn(standins::scheduler::run(east.client.clone(), stop.clone()));
    Ok(Stage::Clusters(vec![hub, east], stop))
}

/// East runs a job that may move, and dies.
async fn dead_cluster(terminal: &Terminal) -> anyhow::Result<Stage> {
    let spec = FleetSpec::of("east 1x8, west 1x8").listening().quick_leases();
    let mut fleet = spec.run_time(RunTime::Forever).start().await?;
    let mut policy = gang_policy(Queueing::AtOnce);
    policy["spec"]["failover"] = json!({"cluster": {}});
    policy["spec"]["placement"]["clusterAffinities"] = json!([
        {"affinityName": "first", "clusterNames": ["east"]}, {"affinityName": "others"}]);
    fleet.apply(&policy).await?;
    fleet.apply(&Job::pytorch("train").manifest()).await?;
    fleet.wait_state(PYTORCH_JOB, "train", "Running").await?;
    for part in [Part::Agent("east".to_string()), Part::Nodes("east".to_string())] {
        fleet.kill(&part).await;
    }
    // The command waits as long as a lease of the usual length may hold, here a minute; it need not wait for one that is gone.
    objects::delete(&fleet.hub(), LEASE, "fleet-east", "member-agent").await?;
    fleet
        .wait_for("east to be lost", async || {
            let cluster = fleet.get(CLUSTER, "", "east").await?.unwrap_or_default();
            let ready = objects::condition(&cluster, "Ready").cloned().unwrap_or_default();
            Ok(Polled::when(ready["status"] != "True", || ready.to_string()))
        })
        .await?;
    let kubeconfig = terminal.checkout()?.join("hub.kubeconfig");
    private::write(&kubeconfig, fleet.kubeconfig().context("a hub that listens")?)?;
    terminal.export("KUBECONFIG", &kubeconfig)?;
    Ok(Stage::Fleet(Box::new(fleet)))
}
