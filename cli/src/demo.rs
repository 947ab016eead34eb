//! `fleet demo`: the walkthrough in one process and in memory, step by step.
//!
//! Each step shows the command of a user and the output of the same code. Every wait has a limit; if it is
//! exceeded, the demo ends with an error.

use std::{
    io::Write,
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use fleet_cli_clusters::{args::ClustersArgs, clusters};
use fleet_cli_ground::{
    answer::Answer,
    apply,
    args::{Namespaces, Scope, Targets},
    connect::Hub,
    server::{HUB_PATIENCE, Selectors, Server},
};
use fleet_kubesim::{FleetSpec, Listen, LocalFleet};
use serde_json::Value;

use crate::{
    args::{DemoArgs, DescribeArgs, GetArgs, QueueArgs},
    describe, get, plays, queue,
};
use fleet_console::progress::Progress;

const TREE: &str = include_str!("../../examples/walkthrough/elasticquotatree.yaml");
const POLICY: &str = include_str!("../../examples/walkthrough/propagationpolicy-gang-queued.yaml");
const JOB: &str = include_str!("../../examples/walkthrough/pytorchjob.yaml");

const FIRST: &str = "pytorch-test";
const SECOND: &str = "pytorch-test-2";
const NAMESPACE: &str = "default";
const TREES: &str = "/apis/scheduling.sigs.k8s.io/v1beta1/namespaces/kube-system/elasticquotatrees";

/// Usually one second; busy machines and debug builds take longer.
const READY_WITHIN: Duration = Duration::from_secs(60);
/// Limit of each step; a job's run time is added.
const STEP_WITHIN: Duration = Duration::from_secs(10);
const ASK_EVERY: Duration = Duration::from_millis(20);

pub async fn run(args: DemoArgs) -> anyhow::Result<ExitCode> {
    if let Some(play) = args.play {
        return plays::run(play).await;
    }
    let began = Instant::now();
    let stage = Stage { colours: fleet_console::terminal::has_colours() };
    let spec =
        FleetSpec { listen: Listen::Ephemeral, default_run_time: args.runtime, ..FleetSpec::default() };
    let progress = Progress::start("starting the hub and its members");
    let fleet = LocalFleet::start(spec).await?;
    drop(progress);
    let told = tokio::select! {
        told = tell(&stage, &fleet, &args, began) => told,
        interrupted = tokio::signal::ctrl_c() => {
            interrupted.context("cannot receive signals")?;
            Err(anyhow::anyhow!("interrupted"))
        }
    };
    fleet.shutdown().await;
    told.map(|()| ExitCode::SUCCESS)
}

async fn tell(stage: &Stage, fleet: &LocalFleet, args: &DemoArgs, began: Instant) -> anyhow::Result<()> {
    fleet.ready(READY_WITHIN).await?;
    let server = Server {
        client: fleet.hub(),
        name: "hub".to_string(),
        url: "the demo's hub".to_string(),
        patience: HUB_PATIENCE,
    };
    let hub = Hub { server, namespace: NAMESPACE.to_string(), request_timeout: None };
    let run_time = match args.runtime {
        fleet_kubesim::RunTime::For(time) => time,
        fleet_kubesim::RunTime::Forever => {
            bail!("--runtime: found forever; allowed: a duration, because the demo waits for it")
        }
    };
    stage.say(&format!(
        "A hub and three member clusters run in this process, in memory ({} ms to ready).",
        began.elapsed().as_millis()
    ))?;
    stage.command("kubectl fleet clusters")?;
    stage.show(&clusters::run(&hub, &ClustersArgs::default()).await?)?;

    submit(stage, &hub).await?;
    follow(stage, &hub, run_time).await?;
    stage.say(&format!(
        "Done in {:.1} s. `fleet up` leaves such a fleet running for you and your kubectl.",
        began.elapsed().as_secs_f64()
    ))
}

/// A queue, a policy and two jobs: one runs, and one waits for its place.
async fn submit(stage: &Stage, hub: &Hub) -> anyhow::Result<()> {
    stage.say("The admin gives the namespace `default` a queue: one job of it may run at a time.")?;
    stage.apply(hub, "elasticquotatree.yaml", TREE).await?;
    let queues = "/apis/scheduling.x-k8s.io/v1alpha1/namespaces/kube-queue/queues";
    wait("a Queue for each node of the tree", STEP_WITHIN, async || Ok(list(hub, queues).await?.len() == 2))
        .await?;
    stage.command("kubectl get queue -n kube-queue")?;
    stage.show(&get::run(hub, &of("queue", Some("kube-queue"), false)).await?)?;

    stage.say("A policy: PyTorchJobs wait in their queue, then go to one cluster, all pods or none.")?;
    stage.apply(hub, "propagationpolicy-gang-queued.yaml", POLICY).await?;

    stage.say("A user submits a job of one master and two workers, and the same job again.")?;
    stage.apply(hub, "pytorchjob.yaml", JOB).await?;
    let second = JOB.replacen(&format!("name: {FIRST}"), &format!("name: {SECOND}"), 1);
    stage.command(&format!("sed 's/name: {FIRST}/name: {SECOND}/' pytorchjob.yaml | kubectl apply -f -"))?;
    stage.lines(&apply::manifest(&hub.server, NAMESPACE, &second).await.context("the second job")?)?;

    let states = async || -> anyhow::Result<(String, String)> {
        Ok((state(hub, FIRST).await?, state(hub, SECOND).await?))
    };
    wait("the first job Running and the second one Queuing", STEP_WITHIN, async || {
        let (first, second) = states().await?;
        Ok(first == "Running" && second == "Queuing")
    })
    .await?;
    wait("what the first job uses in the tree's status", STEP_WITHIN, async || {
        let trees = list(hub, TREES).await?;
        Ok(trees.iter().any(|tree| tree["status"]["root"]["used"]["cpu"].is_string()))
    })
    .await?;
    stage.say("The first job runs; the second waits in its queue for the first one's place.")?;
    stage.command("kubectl get pytorchjob")?;
    stage.show(&get::run(hub, &of("pytorchjob", None, false)).await?)?;
    stage.command("kubectl fleet queue")?;
    let queue = queue::run(hub, &QueueArgs::default()).await?;
    // The broken rules of this tree are reported once, by its event.
    stage.show(&Answer::text(queue.text))?;
    stage.command(&format!("kubectl fleet describe pytorchjob {SECOND} | grep Waits"))?;
    let what = vec!["pytorchjob".to_string(), SECOND.to_string()];
    let described = describe::run(hub, &DescribeArgs { what, ..DescribeArgs::default() }).await?;
    let waits: Vec<String> =
        described.text.lines().filter(|line| line.contains("Waits:")).map(str::to_string).collect();
    stage.lines(&waits)?;
    Ok(())
}

/// Where the first job runs, its end, and the second job in its place.
async fn follow(stage: &Stage, hub: &Hub, run_time: Duration) -> anyhow::Result<()> {
    stage.say("Where did it go? To one cluster, as a gang:")?;
    let event = placed(hub, FIRST).await?;
    stage.command(&format!("kubectl describe pytorchjob {FIRST} | grep ScheduleBindingSucceed"))?;
    stage.lines(&[event])?;
    stage.say("The members' own objects:")?;
    stage.command("kubectl amc get pytorchjob -M")?;
    stage.show(&get::run(hub, &of("pytorchjob", None, true)).await?)?;
    stage.command("kubectl amc get pod -M")?;
    stage.show(&get::run(hub, &of("pod", None, true)).await?)?;

    wait("the first job Succeeded", STEP_WITHIN + run_time, async || {
        Ok(state(hub, FIRST).await? == "Succeeded")
    })
    .await?;
    wait("the second job Running", STEP_WITHIN, async || {
        Ok(matches!(state(hub, SECOND).await?.as_str(), "Running" | "Succeeded"))
    })
    .await?;
    stage.say("The first job has succeeded and its place is free: the second one starts.")?;
    stage.command("kubectl get pytorchjob")?;
    stage.show(&get::run(hub, &of("pytorchjob", None, false)).await?)?;
    wait("the second job Succeeded", STEP_WITHIN + run_time, async || {
        Ok(state(hub, SECOND).await? == "Succeeded")
    })
    .await?;
    stage.command("kubectl get pytorchjob")?;
    stage.show(&get::run(hub, &of("pytorchjob", None, false)).await?)
}

fn of(kind: &str, namespace: Option<&str>, members: bool) -> GetArgs {
    GetArgs {
        what: vec![kind.to_string()],
        namespaces: Namespaces {
            scope: Scope { namespace: namespace.map(str::to_string) },
            ..Namespaces::default()
        },
        targets: Targets { all_clusters: members, clusters: Vec::new() },
        ..GetArgs::default()
    }
}

async fn list(hub: &Hub, path: &str) -> anyhow::Result<Vec<Value>> {
    let listed = hub.server.list(path, &Selectors::default(), "application/json").await?;
    Ok(listed["items"].as_array().cloned().unwrap_or_default())
}

/// The job's last condition, which `kubectl get` prints as its state.
async fn state(hub: &Hub, name: &str) -> anyhow::Result<String> {
    let path = format!("/apis/kubeflow.org/v1/namespaces/{NAMESPACE}/pytorchjobs/{name}");
    let job = hub.server.object(&path).await?;
    let last = job["status"]["conditions"].as_array().and_then(|conditions| conditions.last());
    Ok(last.and_then(|condition| condition["type"].as_str()).unwrap_or_default().to_string())
}

/// The event that tells where a job was placed, as `kubectl describe` prints it.
async fn placed(hub: &Hub, name: &str) -> anyhow::Result<String> {
    let path = format!("/api/v1/namespaces/{NAMESPACE}/events");
    let mut line = String::new();
    wait("the event of the placement", STEP_WITHIN, async || {
        let events = list(hub, &path).await?;
        let found = events.iter().find(|event| {
            event["reason"] == "ScheduleBindingSucceed"
                && event["involvedObject"]["name"] == name
                && event["involvedObject"]["kind"] == "PyTorchJob"
        });
        if let Some(event) = found {
            let source = event["source"]["component"].as_str().or(event["reportingComponent"].as_str());
            line = format!(
                "  Normal  ScheduleBindingSucceed  {}  {}",
                source.unwrap_or_default(),
                event["message"].as_str().unwrap_or_default()
            );
        }
        Ok(found.is_some())
    })
    .await?;
    Ok(line)
}

/// Waits until `happened` returns true.
///
/// # Errors
/// It did not happen in time, or a request failed.
async fn wait(
    what: &str,
    within: Duration,
    mut happened: impl AsyncFnMut() -> anyhow::Result<bool>,
) -> anyhow::Result<()> {
    let _progress = Progress::start(format!("waiting for {what}"));
    let deadline = Instant::now() + within;
    while !happened().await? {
        if Instant::now() > deadline {
            bail!("waited {} s for {what}; it did not happen", within.as_secs());
        }
        tokio::time::sleep(ASK_EVERY).await;
    }
    Ok(())
}

/// Output of the demo: narration, commands behind a `$`, and their output.
struct Stage {
    colours: bool,
}

impl Stage {
    fn say(&self, text: &str) -> anyhow::Result<()> {
        let (bold, plain) = if self.colours { ("\x1b[1m", "\x1b[0m") } else { ("", "") };
        write(&format!("\n{bold}{text}{plain}\n\n"))
    }

    fn command(&self, text: &str) -> anyhow::Result<()> {
        let (green, plain) = if self.colours { ("\x1b[32m", "\x1b[0m") } else { ("", "") };
        write(&format!("{green}$ {text}{plain}\n"))
    }

    fn lines(&self, lines: &[String]) -> anyhow::Result<()> {
        write(&format!("{}\n", lines.join("\n")))
    }

    fn show(&self, answer: &Answer) -> anyhow::Result<()> {
        write(&answer.text)?;
        for note in &answer.notes {
            write(&format!("{note}\n"))?;
        }
        if answer.failed {
            bail!("a step failed");
        }
        Ok(())
    }

    async fn apply(&self, hub: &Hub, file: &str, manifest: &str) -> anyhow::Result<()> {
        self.command(&format!("kubectl apply -f {file}"))?;
        let lines =
            apply::manifest(&hub.server, NAMESPACE, manifest).await.with_context(|| file.to_string())?;
        self.lines(&lines)
    }
}

fn write(text: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).context("cannot write to stdout")
}
