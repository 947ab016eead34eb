//! What `fleet` prints at a shell: `fleet get` over all namespaces and as it watches, and tables on a terminal of 80 columns.

use std::{path::Path, process::Stdio, time::Duration};

use anyhow::Context;
use fleet_kubesim::RunTime;
use fleet_tests::{
    FleetSpec, Polled, TestFleet,
    jobs::{Job, Queueing, gang_policy, quota_tree},
    kubectl::{Said, Shell},
    objects::{self, CONFIG_MAP, PYTORCH_JOB},
    process::fleet_binary,
    rights::namespace_manifest,
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, BufReader, Lines},
    process::{Child, ChildStdout, Command},
};

/// Longest wait for a line of a watch, which polls every second.
const A_LINE: Duration = Duration::from_secs(20);

struct AtShell {
    fleet: TestFleet,
    shell: Shell,
    folder: tempfile::TempDir,
}

impl AtShell {
    async fn start(spec: FleetSpec) -> anyhow::Result<Self> {
        let fleet = spec.listening().start().await?;
        let folder = tempfile::tempdir()?;
        let kubeconfig = folder.path().join("kubeconfig");
        std::fs::write(&kubeconfig, fleet.kubeconfig().context("a hub that listens")?)?;
        Ok(Self { shell: Shell::new(&kubeconfig, folder.path())?, fleet, folder })
    }

    /// `fleet WORD..` in a pipe, which has no width.
    async fn run(&self, line: &str) -> anyhow::Result<Said> {
        let words: Vec<&str> = line.split_whitespace().collect();
        self.shell.run(&fleet_binary()?, &words).await
    }

    async fn ok(&self, line: &str) -> anyhow::Result<Said> {
        let said = self.run(line).await?;
        anyhow::ensure!(said.succeeded(), "{said}");
        Ok(said)
    }

    /// The same with this many columns.
    async fn within(&self, columns: usize, line: &str) -> anyhow::Result<String> {
        let (columns, program) = (format!("COLUMNS={columns}"), fleet_binary()?.display().to_string());
        let words: Vec<&str> =
            [columns.as_str(), &program].into_iter().chain(line.split_whitespace()).collect();
        let said = self.shell.run(Path::new("env"), &words).await?;
        anyhow::ensure!(said.succeeded(), "{said}");
        Ok(said.stdout)
    }

    /// `fleet WORD..` that goes on.
    fn watch(&self, line: &str) -> anyhow::Result<Watch> {
        let mut child = Command::new(fleet_binary()?)
            .args(line.split_whitespace())
            .env("KUBECONFIG", self.folder.path().join("kubeconfig"))
            .env("HOME", self.folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let lines = BufReader::new(child.stdout.take().context("a pipe")?).lines();
        Ok(Watch { child, lines })
    }
}

struct Watch {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Watch {
    /// The cells of the next line without the last one, its age.
    async fn next(&mut self) -> anyhow::Result<Vec<String>> {
        let line =
            tokio::time::timeout(A_LINE, self.lines.next_line()).await.context("no further line")??;
        let mut cells: Vec<String> =
            line.context("it ended")?.split_whitespace().map(str::to_string).collect();
        cells.pop();
        Ok(cells)
    }
}

/// A ConfigMap that no policy selects, with so many entries.
fn map(namespace: &str, name: &str, entries: usize) -> Value {
    let data: serde_json::Map<String, Value> =
        (0..entries).map(|entry| (format!("key-{entry}"), json!("value"))).collect();
    json!({"apiVersion": "v1", "kind": "ConfigMap", "data": data,
        "metadata": {"name": name, "namespace": namespace, "labels": {"app": "watched"}}})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn get_shows_every_namespace_on_request() -> anyhow::Result<()> {
    let at = AtShell::start(FleetSpec::of("east 1x8").run_time(RunTime::Forever)).await?;
    at.fleet.apply(&namespace_manifest("team-a")).await?;
    at.fleet.apply(&gang_policy(Queueing::AtOnce)).await?;
    at.fleet.apply(&Job::pytorch("here").manifest()).await?;
    at.fleet.apply(&Job::pytorch("there").namespace("team-a").manifest()).await?;
    at.fleet.wait_state(PYTORCH_JOB, "here", "Running").await?;

    let all = at.ok("get pytorchjobs -A").await?.table();
    assert_eq!(all.headers[..2], ["NAMESPACE", "NAME"], "{all:?}");
    assert_eq!(all.column("NAMESPACE"), ["default", "team-a"], "{all:?}");
    assert_eq!(all.column("NAME"), ["here", "there"], "{all:?}");
    assert_eq!(all.rows[0]["STATE"], "Running", "{all:?}");
    let own = at.ok("get pytorchjobs").await?.table();
    assert_eq!((own.headers[0].as_str(), own.column("NAME")), ("NAME", vec!["here"]), "{own:?}");
    let other = at.ok("get pytorchjobs -n team-a").await?.table();
    assert_eq!(other.column("NAME"), ["there"], "{other:?}");
    assert_eq!(at.ok("get pytorchjobs -A --no-headers").await?.stdout.lines().count(), 2);
    assert_eq!(
        at.ok("get pytorchjobs -A -o name").await?.stdout,
        "pytorchjob.kubeflow.org/here\npytorchjob.kubeflow.org/there\n"
    );
    // Pods of all namespaces of the members, of which only one has any.
    let pods = at.ok("get pods -A -M").await?.table();
    assert_eq!(pods.headers[..3], ["NAMESPACE", "NAME", "CLUSTER"], "{pods:?}");
    assert!(pods.column("NAMESPACE").contains(&"default"), "{pods:?}");
    // One object has one namespace.
    let named = at.run("get pytorchjobs here -A").await?;
    assert_eq!(named.code, Some(1), "{named}");
    assert!(named.stderr.contains("found -A with a name; allowed: -n NAMESPACE"), "{named}");
    at.fleet.finish().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_prints_what_changes_and_ends_with_its_reader() -> anyhow::Result<()> {
    let at = AtShell::start(FleetSpec::of("east 1x8")).await?;
    let hub = at.fleet.hub();
    at.fleet.apply(&namespace_manifest("team-a")).await?;
    objects::create(&hub, &map("default", "a", 1)).await?;
    objects::create(&hub, &map("team-a", "b", 1)).await?;

    let mut watch = at.watch("get configmaps -l app=watched -A -w")?;
    assert_eq!(watch.next().await?, ["NAMESPACE", "NAME", "DATA"]);
    assert_eq!(watch.next().await?, ["default", "a", "1"]);
    assert_eq!(watch.next().await?, ["team-a", "b", "1"]);
    // Only what has changed, without headers; one namespace's change is not another's.
    let more = json!({"data": {"another": "value"}});
    objects::merge(&hub, CONFIG_MAP, "team-a", "b", &more).await?;
    assert_eq!(watch.next().await?, ["team-a", "b", "2"]);
    objects::create(&hub, &map("team-a", "a", 3)).await?;
    assert_eq!(watch.next().await?, ["team-a", "a", "3"]);
    objects::create(
        &hub,
        &json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "unlabelled", "namespace": "default"}}),
    )
    .await?;
    objects::delete(&hub, CONFIG_MAP, "default", "a").await?;
    objects::create(&hub, &map("default", "a", 4)).await?;
    assert_eq!(watch.next().await?, ["default", "a", "4"], "another object of the name");

    // A reader that has seen enough, such as head, ends it.
    drop(watch.lines);
    objects::create(&hub, &map("default", "c", 1)).await?;
    let ended = tokio::time::timeout(A_LINE, watch.child.wait()).await.context("it goes on")??;
    assert_eq!(ended.code(), Some(0));
    at.fleet.finish().await
}

/// The commands that people type most, with names as people give them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tables_fit_80_columns() -> anyhow::Result<()> {
    let spec = FleetSpec::of("lab 2x1, west 4x8").nodes(&["hostname-carol", "hostname-dan"]);
    let at = AtShell::start(spec.run_time(RunTime::Forever)).await?;
    let hived = fleet_tests::repository().join("examples/hived");
    at.fleet.apply_file(&hived.join("policy.yaml")).await?;
    at.fleet.apply(&quota_tree(json!({"kube-queue/max-jobs": 100}))).await?;
    at.fleet.apply(&gang_policy(Queueing::Queued)).await?;
    at.ok(&format!("vc apply -f {} --yes", hived.join("two-virtual-clusters.yaml").display())).await?;
    at.ok(&format!("pai submit {} --user alice", hived.join("jobs/job-config-0.yaml").display())).await?;
    at.fleet.apply(&Job::pytorch("train-resnet-50").gpus(9).manifest()).await?;
    at.fleet.wait_reason(PYTORCH_JOB, "train-resnet-50", "ExceedsEveryCluster").await?;
    at.fleet
        .wait_for("the job of the lab to be bound", async || {
            let said = at.run("vc explain alice-job-config-0").await?;
            Ok(Polled::when(said.succeeded(), || said.to_string()))
        })
        .await?;
    for line in [
        "clusters",
        "get clusters",
        "get pytorchjobs,jobs.batch.volcano.sh -A",
        "get pods -A -M",
        "queue",
        "vc get",
        "vc cells --all",
        "vc explain alice-job-config-0",
        "pai list",
        "pai get alice~job-config-0",
        "explain pytorchjob/train-resnet-50",
    ] {
        let text = at.within(80, line).await?;
        let long: Vec<&str> = text.lines().filter(|line| line.chars().count() > 80).collect();
        assert!(!text.is_empty() && long.is_empty(), "`fleet {line}` has {long:#?} in\n{text}");
    }
    let explained = at.within(80, "explain pytorchjob/train-resnet-50").await?;
    for word in ["ExceedsEveryCluster", "CLUSTER", "FITS", "WHY", "lab", "west"] {
        assert!(explained.contains(word), "{word} in\n{explained}");
    }
    at.fleet.finish().await
}
