//! HiveD's lab as people do it by hand: `fleet vc`, `fleet pai` and the real kubectl, both configurations and all eight
//! job files as they are. What the allocator does is looked at in `virtual_clusters`; here it is what one types and sees.

use std::{path::PathBuf, time::Duration};

use anyhow::{Context, bail};
use fleet_api::names;
use fleet_kubesim::RunTime;
use fleet_tests::{
    ApiServers, FleetSpec, Kubectl, Polled, TestFleet,
    kubectl::{Said, Shell},
    process::fleet_binary,
    wait_for,
};
use serde_json::{Value, json};

/// Bound of what happens by itself.
const WITHIN: Duration = Duration::from_secs(40);
const TWO: &str = "two-virtual-clusters.yaml";
const ONE: &str = "one-virtual-cluster.yaml";

struct Lab {
    fleet: TestFleet,
    program: PathBuf,
    shell: Shell,
    kubectl: Option<Kubectl>,
    folder: tempfile::TempDir,
}

fn example(name: &str) -> String {
    fleet_tests::repository().join("examples/hived").join(name).display().to_string()
}

fn job_file(number: usize) -> String {
    example(&format!("jobs/job-config-{number}.yaml"))
}

impl Lab {
    async fn start() -> anyhow::Result<Self> {
        Self::start_with(RunTime::Forever).await
    }

    /// With jobs that take so long.
    async fn start_with(run_time: RunTime) -> anyhow::Result<Self> {
        let spec = FleetSpec::of("lab 2x1").nodes(&["hostname-carol", "hostname-dan"]);
        let fleet = spec.run_time(run_time).listening().start().await?;
        fleet.apply_file(&fleet_tests::repository().join("examples/hived/policy.yaml")).await?;
        let folder = tempfile::Builder::new().prefix("fleet-lab-").tempdir()?;
        let kubeconfig = folder.path().join("kubeconfig");
        std::fs::write(&kubeconfig, fleet.kubeconfig().context("a hub that listens")?)?;
        let shell = || Shell::new(&kubeconfig, folder.path());
        let kubectl =
            Kubectl::find().map(|program| anyhow::Ok(Kubectl::new(program, shell()?))).transpose()?;
        if kubectl.is_none() {
            eprintln!("no kubectl on PATH, and FLEET_KUBECTL does not name one: its part is left out");
        }
        Ok(Self { program: fleet_binary()?, shell: shell()?, kubectl, fleet, folder })
    }

    /// `fleet WORD..`, the words parted by spaces.
    async fn run(&self, line: &str) -> anyhow::Result<Said> {
        let words: Vec<&str> = line.split_whitespace().collect();
        self.shell.run(&self.program, &words).await
    }

    async fn ok(&self, line: &str) -> anyhow::Result<String> {
        let said = self.run(line).await?;
        if !said.succeeded() {
            bail!("{said}");
        }
        Ok(said.stdout)
    }

    /// Repeats a command until it says all of these words.
    async fn until(&self, line: &str, words: &[&str]) -> anyhow::Result<String> {
        wait_for(&format!("`fleet {line}` to say {words:?}"), WITHIN, async || {
            let said = self.ok(line).await?;
            let is = words.iter().all(|word| said.contains(word));
            Ok(if is { Polled::Yes(said) } else { Polled::NotYet(said) })
        })
        .await
    }

    /// Applies a configuration, and waits until both nodes are good cells.
    async fn configure(&self, file: &str) -> anyhow::Result<String> {
        let said = self.ok(&format!("vc apply -f {} --yes", example(file))).await?;
        wait_for("the nodes to be good cells", WITHIN, async || {
            let tree = self.ok("vc cells --all").await?;
            let config = self.fleet.get(fleet_tests::objects::CELL_CONFIGURATION, "", "cells").await?;
            let status = config.unwrap_or_default()["status"].clone();
            let bad = status["badNodes"].as_array().is_some_and(|nodes| !nodes.is_empty());
            Ok(Polled::when(!bad && status["nodes"] == 2 && !tree.contains("Bad"), || {
                format!("{status}\n{tree}")
            }))
        })
        .await?;
        Ok(said)
    }

    async fn submit(&self, user: &str, number: usize) -> anyhow::Result<String> {
        let said = self.ok(&format!("pai submit {} --user {user}", job_file(number))).await?;
        let id = format!("{user}~job-config-{number}");
        assert!(said.starts_with(&format!("job {id} submitted as jobs.batch.volcano.sh/")), "{said}");
        Ok(id)
    }

    /// Submits a file of the lab with other words in it, for the experiments that say so.
    async fn submit_changed(
        &self,
        number: usize,
        name: &str,
        words: &[(&str, &str)],
    ) -> anyhow::Result<Said> {
        let mut text = std::fs::read_to_string(job_file(number))?;
        let own = (format!("name: job-config-{number}"), format!("name: {name}"));
        for (from, to) in words.iter().copied().chain([(own.0.as_str(), own.1.as_str())]) {
            assert!(text.contains(from), "{from:?} in {text}");
            text = text.replace(from, to);
        }
        let file = self.folder.path().join(format!("{name}.yaml"));
        std::fs::write(&file, text)?;
        self.run(&format!("pai submit {} --user alice", file.display())).await
    }

    async fn job(&self, id: &str) -> anyhow::Result<Value> {
        Ok(serde_json::from_str(&self.ok(&format!("pai get {id} -o json")).await?)?)
    }

    /// Waits until `fleet pai get` shows tasks that run on these nodes, and no others.
    async fn runs_on(&self, id: &str, nodes: &[&str]) -> anyhow::Result<()> {
        wait_for(&format!("{id} to run on {nodes:?}"), WITHIN, async || {
            let job = self.job(id).await?;
            let roles = job["taskRoles"].as_object().cloned().unwrap_or_default();
            let tasks = roles.values().filter_map(|role| role["taskStatuses"].as_array()).flatten();
            let running = tasks.filter(|task| task["taskState"] == "RUNNING");
            let mut found: Vec<&str> =
                running.filter_map(|task| task["containerNodeName"].as_str()).collect();
            found.sort_unstable();
            Ok(Polled::when(found == nodes, || job.to_string()))
        })
        .await
    }

    /// Waits until the job waits for a reason with these words, in all places where people look for it.
    async fn waits(&self, id: &str, why: &str) -> anyhow::Result<()> {
        wait_for(&format!("{id} to wait: {why}"), WITHIN, async || {
            let status = self.job(id).await?["jobStatus"].clone();
            let told = status["waitingReason"].as_str().unwrap_or_default();
            Ok(Polled::when(status["state"] == "WAITING" && told.contains(why), || status.to_string()))
        })
        .await?;
        self.until(&format!("pai events {id}"), &[why]).await?;
        let said = self.until(&format!("vc explain {}", id.replace('~', "-")), &[why]).await?;
        assert!(said.contains("State:      waits"), "{said}");
        Ok(())
    }

    /// Lets a job of that name take so long, whoever submits it.
    async fn run_time_of(&self, object: &str, run_time: &str) -> anyhow::Result<()> {
        let policy = json!({
            "apiVersion": "policy.one.alibabacloud.com/v1alpha1", "kind": "OverridePolicy",
            "metadata": {"name": object, "namespace": "default"},
            "spec": {
                "resourceSelectors": [{"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": object}],
                "overrideRules": [{"overriders": {"annotationsOverrider": [
                    {"operator": "add", "value": {names::SIM_RUNTIME_ANNOTATION: run_time}}]}}]}});
        self.fleet.apply(&policy).await.map(drop)
    }

    /// Waits until the job has succeeded; returns it.
    async fn succeeds(&self, id: &str) -> anyhow::Result<Value> {
        wait_for(&format!("{id} to succeed"), WITHIN, async || {
            let job = self.job(id).await?;
            let is = job["jobStatus"]["state"] == "SUCCEEDED";
            Ok(if is { Polled::Yes(job) } else { Polled::NotYet(job.to_string()) })
        })
        .await
    }

    async fn stop(&self, id: &str) -> anyhow::Result<()> {
        self.ok(&format!("pai stop {id}")).await?;
        self.until(&format!("pai get {id}"), &["State:           STOPPED"]).await.map(drop)
    }
}

/// State and exit code of each task, as `SUCCEEDED 0`.
fn tasks(job: &Value) -> Vec<String> {
    let tasks = job["taskRoles"]["train"]["taskStatuses"].as_array().expect("tasks");
    let shown =
        |task: &Value| format!("{} {}", task["taskState"].as_str().unwrap_or("?"), task["containerExitCode"]);
    tasks.iter().map(shown).collect()
}

/// When each task began and ended, in milliseconds.
fn times(job: &Value) -> Vec<(i64, i64)> {
    let tasks = job["taskRoles"]["train"]["taskStatuses"].as_array().expect("tasks");
    let time =
        |task: &Value, field: &str| task[field].as_i64().unwrap_or_else(|| panic!("no {field} in {task}"));
    tasks.iter().map(|task| (time(task, "launchedTime"), time(task, "completedTime"))).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_virtual_clusters_by_hand() -> anyhow::Result<()> {
    let lab = Lab::start().await?;
    // First the difference, then the question; nobody is there to answer it.
    let asked = lab.run(&format!("vc apply -f {}", example(TWO))).await?;
    assert!(!asked.succeeded() && asked.stdout.contains("virtual clusters added: default, vc1"), "{asked}");
    assert!(asked.stderr.contains("allowed: --yes"), "{asked}");
    let dry = lab.run(&format!("vc apply -f {} --dry-run", example(TWO))).await?;
    assert!(dry.succeeded() && dry.stderr.contains("nothing was changed"), "{dry}");
    assert!(lab.ok("vc get").await?.trim().is_empty());
    let said = lab.configure(TWO).await?;
    assert!(said.contains("cellconfiguration.fleet.dev/cells created"), "{said}");
    let again = lab.ok(&format!("vc apply -f {} --yes", example(TWO))).await?;
    assert!(
        again.contains("no change") && again.ends_with("cellconfiguration.fleet.dev/cells unchanged\n"),
        "{again}"
    );

    // Experiment: a virtual cluster is safe. Guaranteed jobs do not borrow, and run one after another.
    let mut ids = Vec::new();
    for user in ["alice", "bob", "carol", "dan"] {
        ids.push(lab.submit(user, 0).await?);
    }
    lab.runs_on(&ids[0], &["hostname-dan"]).await?;
    for id in &ids[1..] {
        lab.waits(id, "insufficient capacity in VC vc1: 1 cells of type GPU-D asked for, 0 free").await?;
    }
    lab.until("vc get", &["default", "vc1", "100%", "1/1", "0/1"]).await?;
    let tree = lab.until("vc cells --all", &["alice-job-config-0 (vc1, prod)", "hostname-carol"]).await?;
    let of_dan = tree.lines().skip_while(|line| !line.contains("hostname-dan")).take(2);
    assert!(of_dan.into_iter().any(|line| line.contains("alice-job-config-0")), "{tree}");
    lab.until("vc cells --vc vc1", &["alice-job-config-0", "GPU-D"]).await?;
    let unknown = lab.run("vc cells --vc vc9").await?;
    assert!(!unknown.succeeded() && unknown.stderr.contains("allowed: default, vc1"), "{unknown}");
    if let Some(kubectl) = &lab.kubectl {
        let right = |said: &Said| {
            said.table().cell("vc1", "RUNNING") == "1" && said.table().cell("vc1", "WAITING") == "3"
        };
        let said = kubectl.until("get virtualclusters", WITHIN, right).await?;
        let table = said.table();
        let row = ["ALLOCATION", "GPU", "BAD", "LENT", "BORROWED"].map(|column| table.cell("vc1", column));
        assert_eq!(row, ["100%", "1/1", "0", "0", "0"], "{said}");
        let right = |said: &Said| {
            let cell = |column| said.table().cell("vc1", column).to_owned();
            let first = cell("FIRST");
            [cell("POLICY"), cell("WAITING"), cell("ADMITTED")] == ["Priority", "3", "1"]
                && first.starts_with("bob-job-config-0")
        };
        kubectl.until("get queue -n kube-queue -o wide", WITHIN, right).await?;
        let said = kubectl.ok("get cellconfigurations").await?;
        assert_eq!(said.table().cell("cells", "VALID"), "True", "{said}");
    }
    lab.until("vc explain alice-job-config-0", &["in lab (run 1)", "hostname-dan", "GPU-D"]).await?;
    for pair in 0..3 {
        lab.stop(&ids[pair]).await?;
        lab.runs_on(&ids[pair + 1], &["hostname-dan"]).await?;
    }
    lab.stop(&ids[3]).await?;

    // Experiment: a higher class preempts, and the victim runs again from zero.
    let low = lab.submit("alice", 1).await?;
    lab.runs_on(&low, &["hostname-dan"]).await?;
    let high = lab.submit("bob", 2).await?;
    lab.runs_on(&high, &["hostname-dan"]).await?;
    lab.waits(&low, "insufficient capacity in VC vc1").await?;
    lab.stop(&high).await?;
    lab.runs_on(&low, &["hostname-dan"]).await?;
    let detail = lab.job(&low).await?["jobStatus"].clone();
    assert_eq!((&detail["retries"], &detail["retryDetails"]["platform"]), (&1.into(), &1.into()), "{detail}");
    let ended = &detail["retryHistory"][0];
    assert_eq!(
        (&ended["exitCode"], &ended["exitPhrase"]),
        (&(-101).into(), &"PodExternalDeleted".into()),
        "{detail}"
    );
    lab.stop(&low).await?;

    // Experiment: opportunistic jobs use what is idle, and leave it to its owner.
    let prod = lab.submit("alice", 3).await?;
    lab.runs_on(&prod, &["hostname-dan"]).await?;
    let oppo = lab.submit("alice", 4).await?;
    lab.runs_on(&oppo, &["hostname-carol"]).await?;
    if let Some(kubectl) = &lab.kubectl {
        let right = |said: &Said| {
            let table = said.table();
            table.cell("default", "LENT") == "1" && table.cell("vc1", "BORROWED") == "1"
        };
        kubectl.until("get virtualclusters", WITHIN, right).await?;
    }
    let said = lab.submit_changed(5, "owner", &[("prod", "test")]).await?;
    assert!(said.succeeded(), "{said}");
    lab.runs_on("alice~owner", &["hostname-carol"]).await?;
    lab.waits(&oppo, "insufficient capacity in the physical cluster").await?;
    lab.stop(&prod).await?;
    lab.runs_on(&oppo, &["hostname-dan"]).await?;
    lab.until("pai list --state running", &["owner", "job-config-4"]).await?;
    for id in ["alice~owner", &oppo] {
        lab.stop(id).await?;
    }
    lab.fleet.finish().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_virtual_cluster_by_hand() -> anyhow::Result<()> {
    let lab = Lab::start().await?;
    lab.configure(TWO).await?;
    // To the other configuration while a job runs: the difference names it, and it goes on.
    let prod = lab.submit("alice", 3).await?;
    lab.runs_on(&prod, &["hostname-dan"]).await?;
    let said = lab.configure(ONE).await?;
    for words in ["virtual clusters removed: vc1", "alice-job-config-3", "All of them keep running."] {
        assert!(said.contains(words), "{words:?} in {said}");
    }
    lab.runs_on(&prod, &["hostname-dan"]).await?;
    lab.stop(&prod).await?;

    // Experiment: a gang takes nothing until it has all.
    let first = lab.submit("alice", 5).await?;
    lab.runs_on(&first, &["hostname-carol"]).await?;
    let gang = lab.submit("alice", 6).await?;
    lab.waits(&gang, "2 cells of type GPU asked for, 1 free").await?;
    lab.stop(&first).await?;
    lab.runs_on(&gang, &["hostname-carol", "hostname-dan"]).await?;
    lab.stop(&gang).await?;

    // Experiment: an incremental job starts with what there is.
    let first = lab.submit("bob", 5).await?;
    lab.runs_on(&first, &["hostname-carol"]).await?;
    let pair = lab.submit("alice", 7).await?;
    lab.runs_on(&pair, &["hostname-dan"]).await?;
    lab.stop(&first).await?;
    lab.runs_on(&pair, &["hostname-carol", "hostname-dan"]).await?;
    lab.stop(&pair).await?;

    // Experiment: over quota. Task by task that is accepted, as a gang refused at once.
    let four = [("instances: 2", "instances: 4")];
    let said = lab.submit_changed(6, "wide", &four).await?;
    assert!(!said.succeeded() && said.stdout.is_empty(), "{said}");
    let told = "found 4 SKUs that start together; allowed: at most 2 SKUs";
    assert!(said.stderr.contains(told) && said.stderr.contains("virtual cluster default has"), "{said}");
    // Each of the four starts as one ends, and the job is over when all are.
    lab.run_time_of("alice-singles", "2s").await?;
    let all = [("instances: 2", "instances: 4"), ("minSucceededInstances: 1", "minSucceededInstances: 4")];
    let said = lab.submit_changed(7, "singles", &all).await?;
    assert!(said.succeeded(), "{said}");
    let job = lab.succeeds("alice~singles").await?;
    assert_eq!(tasks(&job), ["SUCCEEDED 0"; 4], "{job}");
    let mut ran = times(&job);
    ran.sort_unstable();
    for (at, (start, _)) in ran.iter().enumerate() {
        let at_once = ran[..at].iter().filter(|(_, end)| end > start).count();
        assert!(at_once < 2, "three at once: {ran:?}");
    }
    assert!(ran[2].0 >= ran[0].1.min(ran[1].1), "the third follows one that ended: {ran:?}");
    let said = lab.run("vc explain no-such-job").await?;
    assert!(!said.succeeded() && said.stderr.contains("found no binding"), "{said}");
    lab.fleet.finish().await
}

/// Four users submit job 0 at the same time, and nobody stops anything: one runs on hostname-dan, the others wait though
/// hostname-carol is idle, and each begins as the one before ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn four_users_jobs_end_one_after_another() -> anyhow::Result<()> {
    let lab = Lab::start_with(RunTime::For(Duration::from_secs(8))).await?;
    lab.configure(TWO).await?;
    let mut ids = Vec::new();
    for user in ["alice", "bob", "carol", "dan"] {
        ids.push(lab.submit(user, 0).await?);
    }
    lab.waits(&ids[3], "insufficient capacity in VC vc1").await?;
    let mut ran = Vec::new();
    for id in &ids {
        let job = lab.succeeds(id).await?;
        assert_eq!(tasks(&job), ["SUCCEEDED 0"], "{job}");
        let status = &job["jobStatus"];
        assert_eq!(
            (&status["appExitCode"], &status["appExitType"]),
            (&json!(0), &json!("USER_SUCCESS")),
            "{job}"
        );
        assert_eq!(status["retries"], 0, "{job}");
        ran.extend(times(&job));
    }
    for pair in ran.windows(2) {
        assert!(pair[1].0 >= pair[0].1, "one after another, as submitted: {ran:?}");
    }
    lab.until("pai list --state succeeded", &["alice", "bob", "carol", "dan"]).await?;
    lab.fleet.finish().await
}

/// Job 7 as shipped is over when one of its tasks has succeeded, and the one that waits never runs. With
/// `minSucceededInstances: 2` the two run one after the other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn job_7_as_shipped_and_with_both_its_tasks() -> anyhow::Result<()> {
    let lab = Lab::start().await?;
    lab.configure(ONE).await?;
    lab.run_time_of("alice-job-config-7", "2s").await?;
    lab.run_time_of("alice-both", "2s").await?;
    let first = lab.submit("bob", 5).await?;
    lab.runs_on(&first, &["hostname-carol"]).await?;
    let shipped = lab.submit("alice", 7).await?;
    let job = lab.succeeds(&shipped).await?;
    assert_eq!(tasks(&job), ["SUCCEEDED 0", "STOPPED -220"], "{job}");
    let stopped = &job["taskRoles"]["train"]["taskStatuses"][1]["containerExitSpec"];
    assert_eq!(
        (&stopped["phrase"], &stopped["type"]),
        (&json!("FrameworkAttemptCompletion"), &json!("USER_STOP"))
    );
    let said = lab.until(&format!("pai get {shipped}"), &["SUCCEEDED", "STOPPED", "-220"]).await?;
    assert!(said.contains("FrameworkAttemptCompletion"), "{said}");
    let said =
        lab.submit_changed(7, "both", &[("minSucceededInstances: 1", "minSucceededInstances: 2")]).await?;
    assert!(said.succeeded(), "{said}");
    let job = lab.succeeds("alice~both").await?;
    assert_eq!(tasks(&job), ["SUCCEEDED 0"; 2], "{job}");
    let mut ran = times(&job);
    ran.sort_unstable();
    assert!(ran[1].0 >= ran[0].1, "one after the other: {ran:?}");

    // A job that has ended runs again as a new run; one that goes on says so.
    let said = lab.ok(&format!("pai start {first}")).await?;
    assert!(said.contains("is started already (RUNNING)"), "{said}");
    lab.stop(&first).await?;
    let said = lab.ok(&format!("pai start {first}")).await?;
    assert!(said.contains("runs again, as run 2"), "{said}");
    lab.runs_on(&first, &["hostname-carol"]).await?;
    // What the hub says of the job follows its pods.
    lab.until(&format!("pai get {first}"), &["State:           RUNNING"]).await?;
    let job = lab.job(&first).await?;
    assert_eq!(
        (&job["jobStatus"]["attemptId"], &job["jobStatus"]["state"]),
        (&json!(1), &json!("RUNNING")),
        "{job}"
    );
    // A real server asks the kubelet of the node, and a hollow node has none that answers.
    if !ApiServers::from_env()?.are_real() {
        let said = lab.ok(&format!("pai logs {first}")).await?;
        assert_eq!(said, "pod bob-job-config-5-r2-train-0 is simulated and writes no log\n");
    }
    let said = lab.run(&format!("pai logs {first} --role ps")).await?;
    assert!(!said.succeeded() && said.stderr.contains("allowed: train"), "{said}");
    let said = lab.run(&format!("pai logs {first} --index 1")).await?;
    assert!(!said.succeeded() && said.stderr.contains("allowed: 0 to 0"), "{said}");
    lab.stop(&first).await?;
    lab.fleet.finish().await
}
