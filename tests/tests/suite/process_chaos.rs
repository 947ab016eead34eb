//! Two controllers and three agents as processes of their own, over TLS through proxies: for a while processes are killed with
//! SIGKILL and connections cut or silenced at random; then comes a quiet phase in which every job must end, and the
//! checker judges everything that happened.
//!
//! `FLEET_CHAOS_SECONDS=120` makes the wild phase last two minutes, long enough for clusters to be lost and jobs to
//! move; `FLEET_SEED` repeats the moments of a run.

use std::{collections::BTreeMap, net::SocketAddr, path::PathBuf, time::Duration};

use anyhow::Context;
use fleet_api::crds::Side;
use fleet_check::{self as check, Snapshot};
use fleet_kubesim::hollow;
use fleet_tests::{
    ApiServers, Polled, Random,
    history::Recorder,
    jobs::{Job, Queueing, gang_policy, quota_tree},
    objects::{self, BINDING, CLUSTER, PYTORCH_JOB},
    process::{Daemon, program},
    proxy::{Line, Proxy},
    servers::{Door, Plane},
    wait_for,
};
use kube::Client;
use serde_json::json;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

const SECONDS: &str = "FLEET_CHAOS_SECONDS";
/// In the suite: kills and short cuts.
const SHORT: Duration = Duration::from_secs(15);
/// Longest wait for the fleet to settle: a cluster is lost only after its lease, the grace and the hub's margin.
const SETTLED_WITHIN: Duration = Duration::from_secs(150);
const MEMBERS: [&str; 3] = ["east", "north", "west"];
/// Seconds; short, so that cuts of a few seconds matter.
const LEASE: &str = "4";
const GRACE: &str = "4";

/// One process, and how to start it again.
struct Part {
    program: PathBuf,
    arguments: Vec<String>,
    running: Option<Daemon>,
}

impl Part {
    fn start(&mut self) -> anyhow::Result<()> {
        let arguments: Vec<&str> = self.arguments.iter().map(String::as_str).collect();
        self.running = Some(Daemon::start(&self.program, &arguments)?);
        Ok(())
    }

    fn kill(&mut self) -> anyhow::Result<()> {
        self.running.take().map_or(Ok(()), Daemon::kill)
    }
}

struct Fleet {
    hub: Plane,
    members: BTreeMap<String, Plane>,
    parts: BTreeMap<String, Part>,
    lines: BTreeMap<String, Proxy>,
    recorder: Recorder,
    stop: CancellationToken,
    folder: tempfile::TempDir,
}

impl Fleet {
    async fn start() -> anyhow::Result<Self> {
        let servers = ApiServers::from_env()?;
        let hub = servers.start("hub", Side::Hub, Door::Listening).await?;
        let mut members = BTreeMap::new();
        for name in MEMBERS {
            members.insert(name.to_string(), servers.start(name, Side::Member, Door::Listening).await?);
        }
        let clients = members.iter().map(|(name, plane)| (name.clone(), plane.client.clone()));
        let recorder = Recorder::start(hub.client.clone(), clients.collect());
        let mut fleet = Self {
            hub,
            members,
            parts: BTreeMap::new(),
            lines: BTreeMap::new(),
            recorder,
            stop: CancellationToken::new(),
            folder: tempfile::tempdir()?,
        };
        // One leads, the other takes over.
        for name in ["controller-a", "controller-b"] {
            let hub_file = fleet.line(name, None).await?;
            let arguments = ["--kubeconfig", &hub_file, "--identity", name, "--leader-lease", "5"];
            fleet.part(name, "fleet-controller", arguments.map(str::to_string).to_vec())?;
        }
        for name in MEMBERS {
            fleet.nodes(name)?;
            let hub_file = fleet.line(&format!("{name}-hub"), None).await?;
            let member_file = fleet.line(&format!("{name}-own"), Some(name)).await?;
            let arguments = [
                ["--cluster", name],
                ["--hub-kubeconfig", &hub_file],
                ["--member-kubeconfig", &member_file],
                ["--controllers", "all"],
                ["--scheduler-names", "default-scheduler"],
                ["--lease-duration", LEASE],
                ["--lease-renew", "1"],
                ["--fence-grace", GRACE],
            ];
            let arguments = arguments.as_flattened().iter().map(|text| (*text).to_string()).collect();
            fleet.part(name, "member-agent", arguments)?;
        }
        for name in MEMBERS {
            fleet.wait_ready(name).await?;
        }
        Ok(fleet)
    }

    /// Puts a proxy before the hub (or a member) and returns a kubeconfig that leads through it.
    async fn line(&mut self, name: &str, member: Option<&str>) -> anyhow::Result<String> {
        let plane = match member {
            Some(member) => self.members.get(member).context("a member")?,
            None => &self.hub,
        };
        let address = plane.address.as_ref().context("a server that listens")?;
        let target: SocketAddr = address.url.trim_start_matches("https://").parse()?;
        let proxy = Proxy::to(target).await?;
        let kubeconfig = address.kubeconfig.replace(&target.to_string(), &proxy.address.to_string());
        anyhow::ensure!(kubeconfig != address.kubeconfig, "the kubeconfig does not name {target}");
        let path = self.folder.path().join(format!("{name}.kubeconfig"));
        std::fs::write(&path, kubeconfig)?;
        self.lines.insert(name.to_string(), proxy);
        Ok(path.display().to_string())
    }

    fn part(&mut self, name: &str, of: &str, arguments: Vec<String>) -> anyhow::Result<()> {
        let mut part = Part { program: program(of)?, arguments, running: None };
        part.start()?;
        self.parts.insert(name.to_string(), part);
        Ok(())
    }

    fn nodes(&self, name: &str) -> anyhow::Result<()> {
        let nodes = hollow::NodeSpec {
            count: 2,
            cpu: "16".to_string(),
            memory: "64Gi".to_string(),
            gpus: 4,
            labels: BTreeMap::new(),
            taints: Vec::new(),
        };
        let run_time = "2s".parse().map_err(|error| anyhow::anyhow!("{error:?}"))?;
        let client = self.members.get(name).context("a member")?.client.clone();
        tokio::spawn(hollow::run(client, hollow::Options::new(name, nodes, run_time), self.stop.clone()));
        Ok(())
    }

    async fn wait_ready(&self, name: &str) -> anyhow::Result<()> {
        wait_for(&format!("cluster {name} to be ready"), SETTLED_WITHIN, async || {
            let cluster = objects::get(&self.hub.client, CLUSTER, "", name).await?.unwrap_or_default();
            let ready = objects::condition(&cluster, "Ready").is_some_and(|c| c["status"] == "True");
            let nodes = cluster["status"]["nodeSummary"]["readyNum"] == 2;
            Ok(Polled::when(ready && nodes, || cluster["status"].to_string()))
        })
        .await
    }

    /// Kills and cuts until `end`, and submits jobs meanwhile; returns how many.
    async fn rage(&mut self, random: &mut Random, length: Duration) -> anyhow::Result<usize> {
        let (parts, lines): (Vec<String>, Vec<String>) =
            (self.parts.keys().cloned().collect(), self.lines.keys().cloned().collect());
        let end = Instant::now() + length;
        let mut healed: BTreeMap<String, Instant> = BTreeMap::new();
        let mut submitted = 0;
        while Instant::now() < end {
            if submitted < length.as_secs() as usize {
                let job = Job::pytorch(&format!("job-{submitted}")).workers(2).manifest();
                objects::create(&self.hub.client, &job).await?;
                submitted += 1;
            }
            tokio::time::sleep(random.pause(100, 900)).await;
            let now = Instant::now();
            for (name, _) in healed.extract_if(.., |_, at| *at <= now) {
                self.lines[&name].set(Line::Open);
            }
            if random.number().is_multiple_of(3) {
                let part = self.parts.get_mut(random.one_of(&parts)).context("a part")?;
                part.kill()?;
                tokio::time::sleep(random.pause(0, 300)).await;
                part.start()?;
                continue;
            }
            let name = random.one_of(&lines);
            let line = *random.one_of(&[Line::Cut, Line::Silent]);
            // One in five lasts until the cluster is lost, where there is time for it; an agent's line to its own
            // member never does, because that the level Lease does not cover.
            let own = name.ends_with("-own");
            let long = length > SHORT && !own && random.number().is_multiple_of(5);
            let lasts = match (long, own) {
                (true, _) => random.pause(15_000, 35_000),
                (false, true) => random.pause(200, 3_000),
                (false, false) => random.pause(200, 7_000),
            };
            self.lines[name].set(line);
            healed.insert(name.clone(), now + lasts);
        }
        for line in self.lines.values() {
            line.set(Line::Open);
        }
        Ok(submitted)
    }

    async fn wait_all_succeeded(&self, jobs: usize) -> anyhow::Result<()> {
        wait_for("all jobs to succeed", SETTLED_WITHIN, async || {
            let mut states: BTreeMap<String, usize> = BTreeMap::new();
            for job in objects::list(&self.hub.client, PYTORCH_JOB).await? {
                *states.entry(objects::job_state(&job)).or_default() += 1;
            }
            Ok(Polled::when(states.get("Succeeded") == Some(&jobs), || format!("{states:?}")))
        })
        .await
    }

    async fn snapshot(&self) -> anyhow::Result<Snapshot> {
        let members: BTreeMap<String, Client> =
            self.members.iter().map(|(name, plane)| (name.clone(), plane.client.clone())).collect();
        Ok(Snapshot::take(&self.hub.client, &members).await?)
    }

    async fn judge(&self) -> anyhow::Result<()> {
        wait_for("nothing to be held or left", SETTLED_WITHIN, async || {
            let found = check::check_at_rest(&self.snapshot().await?);
            Ok(Polled::when(found.is_empty(), || format!("{found:#?}")))
        })
        .await?;
        let rest = self.snapshot().await?;
        let found = check::check_invariants(&self.recorder.history(), &rest);
        anyhow::ensure!(found.is_empty(), "broken invariants: {found:#?}\n{rest}");
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_outlive_kills_and_cuts() -> anyhow::Result<()> {
    let asked = std::env::var(SECONDS).ok().and_then(|text| text.parse().ok()).map(Duration::from_secs);
    let length = asked.unwrap_or(SHORT);
    let mut random = Random::from_env(u64::from(std::process::id()));
    let mut fleet = Fleet::start().await?;
    objects::apply(&fleet.hub.client, &quota_tree(json!({"kube-queue/max-jobs": 6}))).await?;
    let mut policy = gang_policy(Queueing::Queued);
    policy["spec"]["failover"] = json!({
        "cluster": {"purgeMode": "Directly", "fencing": "Lease", "tolerationSeconds": 0}});
    objects::apply(&fleet.hub.client, &policy).await?;
    let jobs = fleet.rage(&mut random, length).await?;
    let settled = fleet.wait_all_succeeded(jobs).await;
    if let Err(error) = settled {
        anyhow::bail!("{error:#}\n{}", fleet.snapshot().await?);
    }
    fleet.judge().await?;
    let mut moved = 0;
    for binding in objects::list(&fleet.hub.client, BINDING).await? {
        assert_eq!(binding["status"]["result"]["outcome"], "Succeeded", "{binding:#}");
        moved += usize::from(binding["spec"]["epoch"].as_i64() > Some(1));
    }
    println!("{jobs} jobs in {} s of kills and cuts; {moved} of them ran more than once", length.as_secs());
    for part in fleet.parts.values_mut() {
        part.kill()?;
    }
    fleet.stop.cancel();
    Ok(())
}
