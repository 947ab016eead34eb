//! The walkthrough of the fleet, step by step, with the real kubectl: what a user types and what is printed.
//!
//! Against `fleet up`, or with `KUBEBUILDER_ASSETS` against real API servers. Skipped, with a word, where
//! there is no kubectl.

use std::{path::Path, time::Duration};

use anyhow::Context;
use fleet_kubesim::RunTime;
use fleet_tests::{
    ApiServers, FleetProcess, FleetSpec, Kubectl, TestFleet,
    kubectl::{Said, Shell},
    process::{fleet_binary, ports_in_a_row},
    table::is_age,
    walkthrough,
};
use serde_json::Value;

/// Long enough for all that is to be seen while a job runs.
const RUN_TIME: Duration = Duration::from_secs(8);
/// Bound of what happens by itself, a job's run included.
const WITHIN: Duration = Duration::from_secs(40);

/// A fleet, and a kubectl pointed at its hub.
struct Stage {
    kubectl: Kubectl,
    fleet: Running,
    folder: tempfile::TempDir,
}

enum Running {
    Up(Box<FleetProcess>),
    InProcess(Box<TestFleet>),
}

impl Stage {
    /// `None` where there is no kubectl.
    async fn set() -> anyhow::Result<Option<Self>> {
        let Some(program) = Kubectl::find() else {
            eprintln!("skipped: no kubectl on PATH, and FLEET_KUBECTL does not name one");
            return Ok(None);
        };
        let folder = tempfile::Builder::new().prefix("fleet-walkthrough-").tempdir()?;
        let home = folder.path().join("home");
        let (kubeconfig, bin) = (home.join("kubeconfig"), home.join("bin"));
        let fleet = if ApiServers::from_env()?.are_real() {
            let spec = FleetSpec::of("east 4x8, west 4x8, north 4x8").cpu("64").listening();
            let fleet = spec.run_time(RunTime::For(RUN_TIME)).start().await?;
            std::fs::create_dir_all(&bin)?;
            std::fs::write(&kubeconfig, fleet.kubeconfig().context("a hub that listens")?)?;
            let words = ["plugins", &bin.display().to_string()].map(str::to_string);
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            Shell::new(&kubeconfig, &bin)?.run(&fleet_binary()?, &words).await?;
            Running::InProcess(Box::new(fleet))
        } else {
            let run_time = format!("{}s", RUN_TIME.as_secs());
            let up = FleetProcess::up(&home, ports_in_a_row(4)?, &["--runtime", &run_time]).await?;
            Running::Up(Box::new(up))
        };
        let kubectl = Kubectl::new(program, Shell::new(&kubeconfig, &bin)?);
        Ok(Some(Self { kubectl, fleet, folder }))
    }

    /// Applies a file of the walkthrough; kubectl says what it made of it.
    async fn apply(&self, file: &str, says: &str) -> anyhow::Result<()> {
        self.apply_path(&walkthrough(file), says).await
    }

    async fn apply_path(&self, path: &Path, says: &str) -> anyhow::Result<()> {
        let said = self.kubectl.ok(&format!("apply -f {}", path.display())).await?;
        assert_eq!((said.stdout.trim_end(), said.stderr.as_str()), (says, ""));
        Ok(())
    }

    /// Applies a manifest of the walkthrough with one text for another, as sed would.
    async fn apply_changed(&self, file: &str, from: &str, to: &str, says: &str) -> anyhow::Result<()> {
        let text = std::fs::read_to_string(walkthrough(file))?;
        let changed = text.replacen(from, to, 1);
        assert_ne!(text, changed, "{file} does not hold {from:?}");
        let path = self.folder.path().join(file);
        std::fs::write(&path, changed)?;
        self.apply_path(&path, says).await
    }

    /// Waits until `kubectl get pytorchjob` shows these states.
    async fn until_states(&self, states: &[(&str, &str)]) -> anyhow::Result<Said> {
        let right = |said: &Said| {
            let table = said.table();
            states.iter().all(|(job, state)| table.cell(job, "STATE") == *state)
        };
        self.kubectl.until("get pytorchjob", WITHIN, right).await
    }

    /// Types of the conditions a job has, in their order.
    async fn conditions(&self, job: &str) -> anyhow::Result<Vec<String>> {
        let said = self.kubectl.ok(&format!("get pytorchjob {job} -o json")).await?;
        let job: Value = serde_json::from_str(&said.stdout)?;
        let list = job["status"]["conditions"].as_array().cloned().unwrap_or_default();
        Ok(list.iter().filter_map(|condition| condition["type"].as_str().map(str::to_string)).collect())
    }

    /// The cluster in the event that says where a job went, which must read as the walkthrough has it.
    async fn where_is(&self, job: &str) -> anyhow::Result<String> {
        let right = |said: &Said| said.stdout.contains("ScheduleBindingSucceed");
        let said = self.kubectl.until(&format!("describe pytorchjob {job}"), WITHIN, right).await?;
        let events = said.stdout.split_once("Events:").map(|(_, events)| events).unwrap_or_default();
        let line = events.lines().find(|line| line.contains("ScheduleBindingSucceed")).unwrap_or_default();
        let words: Vec<&str> = line.split_whitespace().collect();
        assert_eq!([words[0], words[1], words[3]], ["Normal", "ScheduleBindingSucceed", "default-scheduler"]);
        assert!(is_age(words[2]), "{line}");
        let message = words[4..].join(" ");
        let cluster = message
            .strip_prefix("Binding has been scheduled successfully. Result: {")
            .and_then(|rest| rest.strip_suffix(":0,[{master 1} {worker 2}]}"));
        let cluster = cluster.with_context(|| format!("an event of other words: {line}"))?;
        assert!(["east", "west", "north"].contains(&cluster), "{line}");
        Ok(cluster.to_string())
    }

    /// The members' job and pods, by `kubectl amc` and `kubectl fleet` alike.
    async fn members_show(&self, job: &str, cluster: &str) -> anyhow::Result<()> {
        for plugin in ["amc", "fleet"] {
            let table = self.kubectl.table(&format!("{plugin} get pytorchjob -M")).await?;
            assert_eq!(table.header(), "NAME CLUSTER STATE AGE ADOPTION");
            let cell = |header: &str| table.cell(job, header).to_string();
            assert_eq!([cell("CLUSTER"), cell("STATE"), cell("ADOPTION")], [cluster, "Running", "Y"]);
            assert!(is_age(&cell("AGE")), "{table:?}");

            let table = self.kubectl.table(&format!("{plugin} get pod -M")).await?;
            assert_eq!(table.header(), "NAME CLUSTER READY STATUS RESTARTS AGE");
            for pod in ["master-0", "worker-0", "worker-1"] {
                let cell = |header: &str| table.cell(&format!("{job}-{pod}"), header).to_string();
                let cells = ["CLUSTER", "READY", "STATUS", "RESTARTS"].map(cell);
                assert_eq!(cells, [cluster, "1/1", "Running", "0"], "{table:?}");
                assert!(is_age(&cell("AGE")), "{table:?}");
            }
        }
        let said = self.kubectl.ok(&format!("amc get pytorchjob {job} -m {cluster} -oyaml")).await?;
        let object: Value = fleet_api::yaml::read(&said.stdout)?;
        assert_eq!((&object["kind"], &object["metadata"]["name"]), (&"PyTorchJob".into(), &job.into()));
        assert_eq!(object["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"], 2);
        Ok(())
    }

    /// Deletes jobs and waits until hub and members have nothing of them.
    async fn delete(&self, jobs: &[&str]) -> anyhow::Result<()> {
        let said = self.kubectl.ok(&format!("delete pytorchjob {}", jobs.join(" "))).await?;
        for job in jobs {
            assert!(said.stdout.contains(&format!("pytorchjob.kubeflow.org \"{job}\" deleted")), "{said}");
        }
        let nothing = |said: &Said| said.stdout.is_empty() && said.stderr.contains("No resources found");
        for line in [
            "get pytorchjob",
            "get resourcebinding",
            "get queueunit",
            "amc get pytorchjob -M",
            "amc get pod -M",
        ] {
            self.kubectl.until(line, WITHIN, nothing).await?;
        }
        self.kubectl.until("get work,reservation -A", WITHIN, nothing).await?;
        Ok(())
    }

    async fn end(self) -> anyhow::Result<()> {
        match self.fleet {
            Running::Up(process) => assert_eq!(process.interrupt().await?, Some(0)),
            Running::InProcess(fleet) => fleet.finish().await?,
        }
        Ok(())
    }
}

/// `root-child-2-` and five characters.
fn is_generated(name: &str, prefix: &str) -> bool {
    name.strip_prefix(prefix).is_some_and(|rest| {
        rest.len() == 5 && rest.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit())
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_a_queue() -> anyhow::Result<()> {
    let Some(stage) = Stage::set().await? else { return Ok(()) };
    let kubectl = &stage.kubectl;

    stage
        .apply("elasticquotatree.yaml", "elasticquotatree.scheduling.sigs.k8s.io/elasticquotatree created")
        .await?;
    let said = kubectl.until("get queue -n kube-queue", WITHIN, |said| said.table().rows.len() == 2).await?;
    let table = said.table();
    assert_eq!(table.header(), "NAME AGE");
    let mut names = table.column("NAME");
    names.sort_unstable_by_key(|name| !name.starts_with("root-child-2-"));
    assert!(is_generated(names[0], "root-child-2-") && is_generated(names[1], "root-"), "{names:?}");
    assert!(table.column("AGE").into_iter().all(is_age), "{said}");

    // The tree breaks documented rules: accepted, with a warning event and a condition.
    let warned = |said: &Said| said.stdout.contains("QuotaTreeWarning") && said.stdout.contains("Warning");
    kubectl.until("get events -n kube-system", WITHIN, warned).await?;
    let said = kubectl.ok("get elasticquotatree -n kube-system elasticquotatree -o json").await?;
    let tree: Value = serde_json::from_str(&said.stdout)?;
    let conditions = tree["status"]["conditions"].to_string();
    for text in ["\"RulesKept\"", "\"Valid\"", "QuotaTreeWarning"] {
        assert!(conditions.contains(text), "{conditions}");
    }

    let created = "propagationpolicy.policy.one.alibabacloud.com/example-policy created";
    stage.apply("propagationpolicy-gang-queued.yaml", created).await?;
    stage.apply("pytorchjob.yaml", "pytorchjob.kubeflow.org/pytorch-test created").await?;
    let second = "name: pytorch-test-2";
    let created = "pytorchjob.kubeflow.org/pytorch-test-2 created";
    stage.apply_changed("pytorchjob.yaml", "name: pytorch-test", second, created).await?;

    let said = stage.until_states(&[("pytorch-test", "Running"), ("pytorch-test-2", "Queuing")]).await?;
    assert_eq!(said.table().header(), "NAME STATE AGE");
    assert!(said.table().column("AGE").into_iter().all(is_age), "{said}");
    let cluster = stage.where_is("pytorch-test").await?;
    stage.members_show("pytorch-test", &cluster).await?;
    // Queues are summed up a moment later.
    let is_told = |said: &Said| {
        let queue = said.table();
        [queue.cell("child-2", "WAITING"), queue.cell("child-2", "RUNNING")] == ["1", "1"]
    };
    kubectl.until("fleet queue", WITHIN, is_told).await?;

    // A second tree is refused by its condition, and the first one stays in force.
    let other = "name: other";
    let created = "elasticquotatree.scheduling.sigs.k8s.io/other created";
    stage.apply_changed("elasticquotatree.yaml", "name: elasticquotatree", other, created).await?;
    let refused = |said: &Said| said.stdout.contains("QuotaTreeInvalid") && said.stdout.contains("one tree");
    kubectl.until("describe elasticquotatree -n kube-system other", WITHIN, refused).await?;

    stage.until_states(&[("pytorch-test", "Succeeded"), ("pytorch-test-2", "Running")]).await?;
    // Queuing first, then what the member went through; the last one is the state.
    assert_eq!(stage.conditions("pytorch-test").await?.last().map(String::as_str), Some("Succeeded"));
    stage.until_states(&[("pytorch-test-2", "Succeeded")]).await?;
    let conditions = stage.conditions("pytorch-test-2").await?;
    for state in ["Queuing", "Created", "Running", "Succeeded"] {
        assert!(conditions.iter().any(|condition| condition == state), "{conditions:?}");
    }
    stage.delete(&["pytorch-test", "pytorch-test-2"]).await?;
    stage.end().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_queue() -> anyhow::Result<()> {
    let Some(stage) = Stage::set().await? else { return Ok(()) };
    let kubectl = &stage.kubectl;
    let policy = "propagationpolicy.policy.one.alibabacloud.com/example-policy";
    stage.apply("propagationpolicy-gang.yaml", &format!("{policy} created")).await?;
    stage.apply("pytorchjob.yaml", "pytorchjob.kubeflow.org/pytorch-test created").await?;
    let said = stage.until_states(&[("pytorch-test", "Running")]).await?;
    assert_eq!(said.table().header(), "NAME STATE AGE");
    let cluster = stage.where_is("pytorch-test").await?;
    stage.members_show("pytorch-test", &cluster).await?;
    let conditions = stage.conditions("pytorch-test").await?;
    assert_eq!(conditions, ["Created", "Running"], "a job that never queued");

    // Deleted while it runs.
    stage.delete(&["pytorch-test"]).await?;

    // Newer and older spellings are accepted, others are not.
    for mode in ["Directly", "Gracefully", "Graciously", "Never"] {
        let configured = format!("{policy} configured");
        let to = format!("purgeMode: {mode}");
        stage
            .apply_changed("propagationpolicy-gang.yaml", "purgeMode: Immediately", &to, &configured)
            .await?;
    }
    let text = std::fs::read_to_string(walkthrough("propagationpolicy-gang.yaml"))?;
    let path = stage.folder.path().join("wrong.yaml");
    std::fs::write(&path, text.replacen("purgeMode: Immediately", "purgeMode: Quickly", 1))?;
    let said = kubectl.run(&format!("apply -f {}", path.display())).await?;
    assert_eq!(said.code, Some(1), "{said}");
    for word in ["example-policy", "spec.failover.application.purgeMode", "\"Quickly\"", "\"Gracefully\""] {
        assert!(said.stderr.contains(word), "{word}: {said}");
    }
    std::fs::write(&path, text.replacen("propagateDeps:", "propagateDependencies:", 1))?;
    let said = kubectl.run(&format!("apply -f {}", path.display())).await?;
    assert_eq!(said.code, Some(1), "{said}");
    assert!(said.stderr.contains("unknown field \"spec.propagateDependencies\""), "{said}");
    stage.end().await
}
