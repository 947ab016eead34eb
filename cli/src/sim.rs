//! `fleet sim`: hollow nodes in any cluster, to try its scheduler on thousands of nodes.

use std::{
    io::Write,
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::Context;
use fleet_api::names::SIM_NODES_LABEL;
use fleet_cli_ground::{answer::Answer, args::Connect, connect::Hub};
use fleet_kubesim::hollow::{self, NodeSpec};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::{
    args::sim::{SimCommand, SimDownArgs, SimUpArgs},
    names,
};
use fleet_console::progress::Progress;

pub async fn run(connect: &Connect, command: &SimCommand) -> anyhow::Result<ExitCode> {
    let cluster = connect.hub().await?;
    match command {
        SimCommand::Up(args) => up(cluster, args).await,
        SimCommand::Down(args) => down(&cluster, args).await?.print(),
    }
}

async fn up(cluster: Hub, args: &SimUpArgs) -> anyhow::Result<ExitCode> {
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot receive signals")?;
    let mut terminate = signal(SignalKind::terminate()).context("cannot receive signals")?;
    let (client, url) = (cluster.server.client, cluster.server.url);
    let options = options(args);
    let group = &args.group.name;
    let (first, last) = (&options.nodes[0].name, &options.nodes[options.nodes.len() - 1].name);
    say(&format!(
        "Hollow nodes in {url}: {first} to {last} ({} cpu, {} memory, {} GPUs each)\n\
         Pods that a scheduler binds to them run by the clock alone; those of jobs for {}, unless their annotation\n\
         sim.fleet.dev/runtime says otherwise. Ctrl-C stops the kubelets. The nodes stay until: {} sim down --name {group}\n",
        args.cpu,
        args.memory,
        args.gpus,
        args.runtime,
        names::OWN_NAME,
    ))?;
    let shutdown = CancellationToken::new();
    let running = async {
        let begin = Instant::now();
        {
            let _progress = Progress::start(format!("making {} nodes", options.nodes.len()));
            hollow::ensure(&client, &options).await?;
        }
        say(&format!("ready: {} nodes, {}\n", options.nodes.len(), rounded(begin.elapsed())))?;
        hollow::serve(client.clone(), options.clone(), shutdown.clone()).await;
        anyhow::Ok(())
    };
    tokio::select! {
        biased;
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
        ended = running => ended?,
    }
    Ok(ExitCode::SUCCESS)
}

fn options(args: &SimUpArgs) -> hollow::Options {
    let mut labels: std::collections::BTreeMap<String, String> = args.labels.iter().cloned().collect();
    labels.insert(SIM_NODES_LABEL.to_string(), args.group.name.clone());
    let nodes = NodeSpec {
        count: args.nodes as usize,
        cpu: args.cpu.clone(),
        memory: args.memory.clone(),
        gpus: args.gpus,
        labels,
        taints: args.taints.clone(),
    };
    let mut options = hollow::Options::new(args.group.name.as_str(), nodes, args.runtime);
    options.heartbeat = Some(args.heartbeat);
    // Other schedulers may bind more than fits; a kubelet refuses it.
    options.admission = true;
    options
}

async fn down(cluster: &Hub, args: &SimDownArgs) -> anyhow::Result<Answer> {
    let group = &args.group.name;
    let removed = {
        let _progress = Progress::start("removing hollow nodes");
        hollow::remove(&cluster.server.client, group).await?
    };
    let mut answer = Answer::default();
    if removed.nodes == 0 {
        answer.fail(format!("no hollow nodes of {group:?} in {}", cluster.server.url));
    } else {
        answer.text = format!("removed {} nodes and {} pods\n", removed.nodes, removed.pods);
    }
    Ok(answer)
}

fn rounded(time: Duration) -> String {
    format!("{:.1}s", time.as_secs_f64())
}

fn say(text: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).context("cannot write to stdout")
}
