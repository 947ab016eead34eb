//! The command line of Fleet, one module per command. The commands over member clusters, those for Volcano's objects
//! and `fleet bench` are rooms of their own.
//!
//! Inputs: arguments, a kubeconfig of the hub, and for `up`, `demo` and `bench` a fleet in this process.
//! Query commands return an [`Answer`], so that the demo and tests can run them too. Deliberately absent:
//! decisions about jobs. This crate only prints, starts processes, and writes what users request.

mod apiserver;
mod args;
mod audit;
mod complete;
mod crds;
mod demo;
mod describe;
mod doctor;
mod explain;
mod get;
mod names;
mod pai;
mod plays;
mod plugins;
mod portal;
mod queue;
mod reference;
mod sim;
mod simulate;
mod up;
mod vc;

use std::{ffi::OsString, future::Future, path::Path, process::ExitCode};

use anyhow::Context;
use clap::{CommandFactory, FromArgMatches, Parser};
use fleet_bench as bench;
use fleet_cli_clusters::{clusters, cordon, drain, join, status, unjoin};
use fleet_cli_ground::{answer::Answer, args::Connect};
use fleet_cli_volcano as volcano;
use fleet_console::terminal;

pub use names::{OWN_NAME, VCCTL};
pub use reference::reference;

use args::{Cli, Command};

/// Log level of Fleet's own crates. Errors of the client are printed by the command, in one line.
const DEFAULT_LOG: &str = "fleet_controller=error,member_agent=error,fleet_agent_ground=error,fleet_job_controllers=error,\
     fleet_works=error,fleet_member_scheduler=error,fleet_apiserver=error,fleet_kubesim=error";

/// Runs the program with these arguments, the first of which is its own name.
pub fn main(arguments: Vec<OsString>) -> ExitCode {
    let called = called_as(&arguments);
    let outcome = if completes(&arguments) {
        let words: Vec<String> =
            arguments.iter().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
        start(async move { Answer::text(complete::run(&words).await).print() })
    } else if called == VCCTL {
        let vcctl = volcano::args::Vcctl::parse_from(arguments);
        start(async move {
            if let volcano::args::Command::Version = vcctl.command {
                return volcano::version().print();
            }
            let connect = Connect {
                kubeconfig: vcctl.kubeconfig,
                context: None,
                request_timeout: None,
                url: vcctl.master,
                is_plugin: true,
            };
            volcano::run(&connect.hub().await?, &vcctl.command).await?.print()
        })
    } else {
        let matches = args::command(&called).get_matches_from(arguments);
        match Cli::from_arg_matches(&matches) {
            Ok(mut cli) => {
                cli.connect.is_plugin = called != OWN_NAME;
                start(run(cli))
            }
            Err(error) => error.exit(),
        }
    };
    match outcome {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {}", terminal::plain(&format!("{error:#}")));
            ExitCode::FAILURE
        }
    }
}

/// Whether kubectl asks for completions, which it does under a separate program name.
fn completes(arguments: &[OsString]) -> bool {
    let own = arguments.first().and_then(|own| Path::new(own).file_name()).and_then(|own| own.to_str());
    own.is_some_and(|own| own.starts_with(complete::PREFIX))
}

/// The name by which a user calls this program: kubectl runs `kubectl-NAME` for `kubectl NAME`.
fn called_as(arguments: &[OsString]) -> String {
    let own = arguments.first().and_then(|own| Path::new(own).file_name()).and_then(|own| own.to_str());
    match own.and_then(|own| own.strip_prefix("kubectl-")) {
        Some(plugin) => format!("kubectl {plugin}"),
        None if own == Some(VCCTL) => VCCTL.to_string(),
        None => OWN_NAME.to_string(),
    }
}

fn start(command: impl Future<Output = anyhow::Result<ExitCode>>) -> anyhow::Result<ExitCode> {
    // The only TLS provider of the workspace; every client and server uses the process default.
    if rustls::crypto::ring::default_provider().install_default().is_err() {
        anyhow::bail!("a second TLS provider is installed in this process");
    }
    let filter = tracing_subscriber::EnvFilter::try_from_env("FLEET_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new(DEFAULT_LOG));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    // Requests that compute for long take at most one worker for each core: some are left for leases and watches.
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(cores + 2)
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    let outcome = runtime.block_on(command);
    // Tasks that wait for an unreachable server must not delay the exit.
    runtime.shutdown_background();
    outcome
}

async fn run(cli: Cli) -> anyhow::Result<ExitCode> {
    let connect = &cli.connect;
    let answer = match cli.command {
        Command::Up(args) => return up::run(args).await,
        Command::ApiServer(args) => return apiserver::run(args).await,
        Command::Portal(args) => return portal::run(connect, &args).await,
        Command::Demo(args) => return demo::run(args).await,
        Command::Bench(args) => return bench::run(args).await,
        Command::Sim(command) => return sim::run(connect, &command).await,
        // The simulation has its own clock; tasks of this runtime go on beside it.
        Command::Simulate(args) => return tokio::task::block_in_place(|| simulate::run(&args)),
        Command::Get(args) => get::run(&connect.hub().await?, &args).await?,
        Command::Describe(args) => describe::run(&connect.hub().await?, &args).await?,
        Command::Explain(args) => explain::run(&connect.hub().await?, &args).await?,
        Command::Queue(args) => match args.command {
            Some(command) => volcano::queue(&connect.hub().await?, &command).await?,
            None => queue::run(&connect.hub().await?, &args).await?,
        },
        Command::Job(command) => volcano::job(&connect.hub().await?, &command).await?,
        Command::PodGroup(command) => volcano::pod_group(&connect.hub().await?, &command).await?,
        Command::JobFlow(command) => volcano::flow(&connect.hub().await?, &command).await?,
        Command::JobTemplate(command) => volcano::template(&connect.hub().await?, &command).await?,
        Command::Pai(command) => pai::run(connect, &command).await?,
        Command::Vc(command) => vc::run(connect, &command).await?,
        Command::Audit(args) => match &args.log {
            Some(file) => audit::run_log(file, &args)?,
            None => audit::run(&connect.hub().await?, &args).await?,
        },
        Command::Doctor(args) => doctor::run(connect, &args).await?,
        Command::Clusters(args) => clusters::run(&connect.hub().await?, &args).await?,
        Command::Join(args) => join::join(connect, &args).await?,
        Command::Unjoin(args) => unjoin::unjoin(connect, &args).await?,
        Command::Status(args) => status::run(&connect.hub().await?, &args).await?,
        Command::Cordon(args) => cordon::cordon(&connect.hub().await?, &args).await?,
        Command::Uncordon(args) => cordon::uncordon(&connect.hub().await?, &args).await?,
        Command::Drain(args) => drain::run(&connect.hub().await?, &args).await?,
        Command::Crds(args) => crds::run(&args)?,
        Command::Plugins(args) => plugins::run(&args)?,
        Command::Version => Answer::text(format!("fleet {}\n", env!("CARGO_PKG_VERSION"))),
        Command::Completion { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "fleet", &mut script);
            Answer::text(String::from_utf8(script).context("completion script")?)
        }
        Command::Man { directory } => reference::man_pages(&directory)?,
    };
    answer.print()
}
