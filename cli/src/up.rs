//! `fleet up`: a hub and member clusters in this process, with a data directory, until Ctrl-C or SIGTERM.

use std::{
    fmt::Write as _,
    io::Write as _,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::{Path, absolute},
    process::ExitCode,
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, bail};
use fleet_apiserver::private;
use fleet_cli_ground::connect::fleet_home;
use fleet_kubesim::{FleetSpec, Listen, LocalFleet, MemberSpec, local_fleet::Home};
use fleet_portal::web::PortalMetrics;
use tokio::{
    net::TcpListener,
    signal::unix::{SignalKind, signal},
};

use crate::{args::UpArgs, names, plugins};
use fleet_console::progress::Progress;

/// A longer start has failed; it usually takes well under a second.
const READY_WITHIN: Duration = Duration::from_secs(60);

/// As `fleet portal` has it.
const PORTAL_PORT: u16 = 9286;
const MEMBERS: u16 = 3;
const NODES: u16 = 4;
const GPUS: u32 = 8;
const CPU: &str = "64";
const MEMORY: &str = "512Gi";

pub async fn run(args: UpArgs) -> anyhow::Result<ExitCode> {
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot receive signals")?;
    let mut terminate = signal(SignalKind::terminate()).context("cannot receive signals")?;
    let path = match &args.data_dir {
        Some(path) => path.clone(),
        None => fleet_home().context("no home directory: name a data directory with --data-dir")?,
    };
    let path = absolute(&path).with_context(|| format!("data directory {}", path.display()))?;
    let home = Home::open(&path)?;
    let spec = FleetSpec {
        members: members(&args, &home)?,
        data_dir: Some(path.clone()),
        listen: Listen::From { host: IpAddr::V4(Ipv4Addr::LOCALHOST), first_port: args.port },
        default_run_time: args.runtime,
        scheduler_conf: args.scheduler_conf.as_ref().map(absolute).transpose()?,
        shared: None,
        ends_only: false,
    };
    if let Some(file) = &spec.scheduler_conf {
        member_agent::check_scheduler_conf(file)?;
    }
    fleet_kubesim::local_fleet::check_ports(&spec)?;
    let run_log = home.run_log();
    let listener = portal_listener(args.portal_port).await?;
    let portal = listener.local_addr().context("the address of the portal's socket")?;
    let metrics = match args.metrics_address {
        Some(address) => Some(metrics_listener(address).await?),
        None => None,
    };
    let bin = path.join("bin");
    private::directory(&bin).with_context(|| format!("directory {}", bin.display()))?;
    for name in plugins::PLUGINS {
        plugins::link(&bin, name)?;
    }
    say(&introduction(&spec, &path, &args, portal))?;
    if let Some(metrics) = &metrics {
        say(&format!("Metrics: http://{}/metrics\n", metrics.local_addr()?))?;
    }
    let progress = Progress::start("starting the hub and its members");
    let fleet = tokio::select! {
        biased;
        _ = interrupt.recv() => return Ok(ExitCode::SUCCESS),
        _ = terminate.recv() => return Ok(ExitCode::SUCCESS),
        started = LocalFleet::start_in(spec, Some(home)) => started?,
    };
    let of_portal = PortalMetrics::default();
    let mut parts = fleet.metrics();
    parts.push(Arc::new(of_portal.clone()));
    let outcome = tokio::select! {
        biased;
        _ = interrupt.recv() => Ok(()),
        _ = terminate.recv() => Ok(()),
        ended = serve(&fleet, progress) => ended,
        ended = crate::portal::beside(&fleet, listener, of_portal, &run_log) => ended,
        ended = crate::portal::serve_metrics(metrics, parts) => ended,
    };
    fleet.shutdown().await;
    outcome.map(|()| ExitCode::SUCCESS)
}

/// The portal's listener; on a free port if none was requested and the default port is in use.
async fn portal_listener(port: Option<u16>) -> anyhow::Result<TcpListener> {
    let bind = |port: u16| TcpListener::bind((Ipv4Addr::LOCALHOST, port));
    match (port, bind(port.unwrap_or(PORTAL_PORT)).await) {
        (_, Ok(listener)) => Ok(listener),
        (None, Err(_)) => bind(0).await.context("no free port for the portal"),
        (Some(port), Err(error)) => {
            Err(anyhow::anyhow!("--portal-port {port}: found {error}; allowed: a free port"))
        }
    }
}

async fn metrics_listener(address: SocketAddr) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address)
        .await
        .map_err(|error| anyhow::anyhow!("--metrics-address {address}: found {error}; allowed: a free port"))
}

/// Prints `ready` once all servers answer, then runs until a part of the fleet ends.
async fn serve(fleet: &LocalFleet, progress: Progress) -> anyhow::Result<()> {
    fleet.ready(READY_WITHIN).await?;
    drop(progress);
    say("ready\n")?;
    bail!("{}", fleet.failed().await)
}

/// The members stored in the directory, or else those of the arguments. Contradicting arguments are refused:
/// nodes with jobs on them do not change.
fn members(args: &UpArgs, home: &Home) -> anyhow::Result<Vec<MemberSpec>> {
    let Some(members) = home.members()? else {
        let named = args.node_names.clone().unwrap_or_default();
        if let Some(twice) = named.iter().enumerate().find(|(at, name)| named[..*at].contains(*name)) {
            bail!("--node-names: found {} twice; allowed: each name once", twice.1);
        }
        let mut members = MemberSpec::many(
            usize::from(args.members.unwrap_or(MEMBERS)),
            if named.is_empty() { usize::from(args.nodes.unwrap_or(NODES)) } else { named.len() },
            args.gpus.unwrap_or(GPUS),
            args.cpu.as_deref().unwrap_or(CPU),
            args.memory.as_deref().unwrap_or(MEMORY),
        );
        for member in &mut members {
            member.node_names.clone_from(&named);
        }
        return Ok(members);
    };
    let contradiction = |flag: &str, found: String, allowed: String| {
        anyhow::anyhow!(
            "data directory {}: holds a fleet made with {flag} {allowed}: found {flag} {found}; allowed: \
             {allowed}, or another --data-dir",
            home.path().display()
        )
    };
    if let Some(count) = args.members.map(usize::from).filter(|count| *count != members.len()) {
        return Err(contradiction("--members", count.to_string(), members.len().to_string()));
    }
    for member in &members {
        let checks = [
            ("--nodes", args.nodes.map(|nodes| nodes.to_string()), member.nodes.to_string()),
            (
                "--node-names",
                args.node_names.as_ref().map(|names| names.join(",")),
                member.node_names.join(","),
            ),
            ("--gpus", args.gpus.map(|gpus| gpus.to_string()), member.gpus.to_string()),
            ("--cpu", args.cpu.clone(), member.cpu.clone()),
            ("--memory", args.memory.clone(), member.memory.clone()),
        ];
        for (flag, found, allowed) in checks {
            if let Some(found) = found.filter(|found| *found != allowed) {
                return Err(contradiction(flag, found, allowed));
            }
        }
    }
    Ok(members)
}

fn introduction(spec: &FleetSpec, path: &Path, args: &UpArgs, portal: SocketAddr) -> String {
    let mut text = String::new();
    let names: Vec<&str> = spec.members.iter().map(|member| member.name.as_str()).collect();
    let each = match spec.members.first() {
        Some(member) => format!(
            "{} nodes each ({} cpu, {} memory, {} GPUs a node)",
            member.nodes, member.cpu, member.memory, member.gpus
        ),
        None => String::new(),
    };
    // Writing to a String cannot fail.
    let _ = writeln!(text, "Fleet: a hub and {} member clusters: {}", names.len(), short_list(&names));
    let _ = writeln!(text, "{each}; jobs run for {} unless they say otherwise.", args.runtime);
    let _ = writeln!(
        text,
        "State is kept in {}; Ctrl-C stops the fleet, the next `fleet up` resumes it.",
        path.display()
    );
    let _ = writeln!(text, "\nPaste this into another terminal, for kubectl and its plugins:\n");
    let _ = writeln!(text, "export KUBECONFIG={}", quoted(&path.join("kubeconfig")));
    let _ = writeln!(text, "export PATH={}:$PATH", quoted(&path.join("bin")));
    let _ = writeln!(text, "\nThen try: kubectl get clusters, kubectl fleet queue, kubectl fleet get pod -M");
    let _ = writeln!(
        text,
        "Portal: http://{portal}; sign in with the token that `{} portal token` prints",
        own()
    );
    let kubeconfigs = path.join("members").join("NAME.kubeconfig");
    let _ = writeln!(text, "Kubeconfigs of the members: {}", kubeconfigs.display());
    let _ =
        writeln!(text, "To keep fleet, kubectl fleet and vcctl on your PATH: {} plugins ~/.local/bin", own());
    text.push('\n');
    text
}

/// How to call this program from a shell without it on its PATH.
fn own() -> String {
    std::env::current_exe().map_or_else(|_| names::OWN_NAME.to_string(), |path| quoted(&path))
}

fn short_list(names: &[&str]) -> String {
    const SHOWN: usize = 6;
    match names.len() {
        count if count > SHOWN => format!("{} and {} more", names[..SHOWN].join(", "), count - SHOWN),
        _ => names.join(", "),
    }
}

/// Quoted for a shell; only paths with unusual characters need quotes.
fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let plain = text.chars().all(|c| c.is_alphanumeric() || "/._-+".contains(c));
    if plain { text } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

fn say(text: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).context("cannot write to stdout")
}
