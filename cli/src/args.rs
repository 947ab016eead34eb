//! The arguments of every command, as clap reads them.

pub mod pai;
mod portal;
pub mod sim;
mod up;
pub mod vc;

use std::path::PathBuf;

use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum};
use fleet_bench::args::BenchArgs;
use fleet_cli_clusters::args::{ClustersArgs, CordonArgs, DrainArgs, JoinArgs, StatusArgs, UnjoinArgs};
use fleet_cli_ground::args::{Connect, Listing, Namespaces, Scope, Shown, Targets};
use fleet_cli_volcano::args as volcano;
use fleet_kubesim::RunTime;

pub use portal::{PortalArgs, PortalCommand};
pub use up::UpArgs;

/// Run AI training jobs on many Kubernetes clusters.
#[derive(Debug, Parser)]
#[command(name = "fleet", version, disable_help_subcommand = false, max_term_width = 110)]
pub struct Cli {
    #[command(flatten)]
    pub connect: Connect,
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Start a hub and member clusters in this process and keep them running
    Up(UpArgs),
    /// Start one Kubernetes API server with a data directory, without Fleet
    #[command(name = "apiserver")]
    ApiServer(ApiServerArgs),
    /// Serve the web portal and OpenPAI's REST API of a hub, with each user's own rights
    Portal(PortalArgs),
    /// Run a demo in memory: a job is queued, placed as a gang, runs and succeeds
    Demo(DemoArgs),
    /// List objects of the hub, or of member clusters with -M and -m
    Get(GetArgs),
    /// Show one object with its events, and a job with its queue, its cluster and the reason why it waits
    Describe(DescribeArgs),
    /// Explain why a job waits: reason, position in its queue, quota, and what each cluster lacks
    Explain(ExplainArgs),
    /// Show queues with used, min, max, borrowed, waiting and running: on a hub its quota tree, in a member
    /// Volcano's queues; or create, list and operate Volcano's queues
    #[command(args_conflicts_with_subcommands = true)]
    Queue(QueueArgs),
    /// Volcano's jobs: run, list, view, suspend, resume, delete
    #[command(subcommand)]
    Job(volcano::JobCommand),
    /// Volcano's PodGroups: list
    #[command(subcommand, name = "podgroup")]
    PodGroup(volcano::PodGroupCommand),
    /// Volcano's flows of jobs: create, list, get, describe, delete
    #[command(subcommand, name = "jobflow")]
    JobFlow(volcano::FlowCommand),
    /// Volcano's templates of jobs: create, list, get, describe, delete
    #[command(subcommand, name = "jobtemplate")]
    JobTemplate(volcano::FlowCommand),
    /// OpenPAI's jobs: submit, list, get, stop, start, logs, events, config
    #[command(subcommand)]
    Pai(pai::PaiCommand),
    /// Virtual clusters: apply their configuration, list them, show their cells, explain a job's cells
    #[command(subcommand)]
    Vc(vc::VcCommand),
    /// Hollow nodes for the scheduler of any cluster: pods bound to them run by the clock alone
    #[command(subcommand)]
    Sim(sim::SimCommand),
    /// List the member clusters with used and total resources
    Clusters(ClustersArgs),
    /// Find what is wrong with a fleet: kubeconfig, rights, versions, controller, agents, quota tree, policies
    Doctor(DoctorArgs),
    /// Check the live objects of hub and members, or a recorded run log, against the invariants
    Audit(AuditArgs),
    /// Show what is installed in each cluster, the state of its agent, and what to do
    Status(StatusArgs),
    /// Add a cluster to the fleet
    Join(JoinArgs),
    /// Remove a cluster from the fleet
    Unjoin(UnjoinArgs),
    /// Send no new jobs to a cluster; running jobs stay
    Cordon(CordonArgs),
    /// Send jobs to a cluster again
    Uncordon(CordonArgs),
    /// Move the jobs of a cluster elsewhere, one gang at a time, and send it no new ones
    Drain(DrainArgs),
    /// Print the CustomResourceDefinitions of a hub or of a member
    Crds(CrdsArgs),
    /// Print a completion script
    Completion { shell: clap_complete::Shell },
    /// Write man pages of all commands to a directory
    #[command(hide = true)]
    Man { directory: PathBuf },
    /// Make this program a kubectl plugin (`kubectl fleet`, `kubectl amc`) and Volcano's `vcctl`
    Plugins(PluginsArgs),
    /// Run scenario files, or replay a trace of jobs, on a virtual clock
    Simulate(SimulateArgs),
    /// Measure a fleet in this process
    Bench(BenchArgs),
    /// Print the version
    Version,
}

#[derive(Debug, Clone, Default, Args)]
pub struct GetArgs {
    /// KIND [NAME..], KIND/NAME.. or KIND,KIND; a kind by plural, singular, short name or KIND.GROUP
    #[arg(required = true, value_name = "KIND [NAME]")]
    pub what: Vec<String>,
    #[command(flatten)]
    pub namespaces: Namespaces,
    /// Label selector, such as app=train
    #[arg(short = 'l', long, value_name = "SELECTOR")]
    pub selector: Option<String>,
    /// Field selector, such as status.phase=Running
    #[arg(long, value_name = "SELECTOR")]
    pub field_selector: Option<String>,
    #[command(flatten)]
    pub targets: Targets,
    #[command(flatten)]
    pub listing: Listing,
}

#[derive(Debug, Clone, Default, Args)]
pub struct DescribeArgs {
    /// KIND NAME or KIND/NAME
    #[arg(required = true, value_name = "KIND NAME", num_args = 1..=2)]
    pub what: Vec<String>,
    #[command(flatten)]
    pub scope: Scope,
    #[command(flatten)]
    pub targets: Targets,
}

#[derive(Debug, Clone, Args)]
pub struct ExplainArgs {
    /// NAME, KIND/NAME or KIND NAME; a kind by plural, singular, short name or KIND.GROUP
    #[arg(required = true, value_name = "JOB", num_args = 1..=2)]
    pub job: Vec<String>,
    #[command(flatten)]
    pub scope: Scope,
    #[command(flatten)]
    pub shown: Shown,
}

#[derive(Debug, Clone, Default, Args)]
pub struct QueueArgs {
    /// What to do with a queue of a member
    #[command(subcommand)]
    pub command: Option<volcano::QueueCommand>,
    #[command(flatten)]
    pub listing: Listing,
}

#[derive(Debug, Clone, Args)]
pub struct DoctorArgs {
    /// Check only the hub itself: server, definitions, admission policies and controller
    #[arg(long)]
    pub hub_only: bool,
    /// Fail for warnings, too
    #[arg(long)]
    pub strict: bool,
    #[command(flatten)]
    pub shown: Shown,
}

#[derive(Debug, Clone, Args)]
pub struct AuditArgs {
    /// Check only the hub, not its members
    #[arg(long)]
    pub hub_only: bool,
    /// Check a recorded run log (fleet simulate -o jsonl) instead of a live fleet
    #[arg(long, value_name = "FILE", conflicts_with = "hub_only")]
    pub log: Option<PathBuf>,
    #[command(flatten)]
    pub shown: Shown,
}

#[derive(Debug, Clone, Args)]
#[group(required = true, multiple = false)]
pub struct CrdsArgs {
    /// Definitions of a hub
    #[arg(long)]
    pub hub: bool,
    /// Definitions of a member cluster
    #[arg(long)]
    pub member: bool,
}

#[derive(Debug, Clone, Args)]
pub struct PluginsArgs {
    /// Directory on your PATH, such as ~/.local/bin, in which links to this program are created: fleet,
    /// kubectl-fleet, kubectl-amc, their completions (kubectl_complete-fleet, kubectl_complete-amc) and vcctl
    pub directory: PathBuf,
}

#[derive(Debug, Clone, Args)]
pub struct ApiServerArgs {
    /// Listen address and port; port 0 uses a free one
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:6443")]
    pub listen: std::net::SocketAddr,
    /// Directory of objects, keys and the kubeconfig
    #[arg(long, value_name = "DIR")]
    pub data_dir: PathBuf,
    /// Further host names or addresses of the server's certificate
    #[arg(long = "san", value_name = "NAME,..", value_delimiter = ',')]
    pub sans: Vec<String>,
    /// Controllers to run with the server; none if a kube-controller-manager does their work
    #[arg(long, value_name = "LIST", value_enum, value_delimiter = ',', default_values_t = [Controller::Deployment, Controller::Job])]
    pub controllers: Vec<Controller>,
    /// Allow every request without credentials (for tests)
    #[arg(long)]
    pub always_allow: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Controller {
    /// Deployments and ReplicaSets
    Deployment,
    /// batch Jobs
    Job,
    None,
}

#[derive(Debug, Clone, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct DemoArgs {
    /// Another demo: the effect of gang scheduling
    #[command(subcommand)]
    pub play: Option<Play>,
    /// How long the demo's jobs run
    #[arg(long, value_name = "TIME", default_value = "3s")]
    pub runtime: RunTime,
}

/// Many jobs at once on one member; each makes progress only if all of its pods run.
#[derive(Debug, Clone, Subcommand)]
pub enum Play {
    /// TensorFlow jobs of 2 parameter servers and 4 workers: one alone, two without capacity for both, five with capacity for two
    Gangs(PlayArgs),
    /// Spark queries of a driver and five executors on four nodes of 8 cpu, with PodGroups and with a node for drivers
    Spark(PlayArgs),
}

#[derive(Debug, Clone, Args)]
pub struct PlayArgs {
    /// Number of jobs at once; of gangs, two fit [default: three cases (gangs), 104 (spark)]
    #[arg(long, value_name = "N")]
    pub jobs: Option<u16>,
    /// Only without gang scheduling: no plugin gang (gangs), no PodGroups (spark)
    #[arg(long)]
    pub no_gang: bool,
    /// Run time of each job once its whole gang runs
    #[arg(long, value_name = "TIME", default_value = "1s")]
    pub runtime: RunTime,
}

#[derive(Debug, Clone, Args)]
pub struct SimulateArgs {
    /// Scenario files; examples/scenarios has some
    #[arg(required_unless_present = "trace", conflicts_with = "trace", value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Print the log as JSON lines instead of readable text
    #[arg(short, long, value_enum)]
    pub output: Option<LogFormat>,
    /// Seed instead of the file's
    #[arg(long, value_name = "N", conflicts_with = "trace")]
    pub seed: Option<u64>,
    /// Mode instead of the file's: planners only, or every process over embedded API servers
    #[arg(long, value_enum, conflicts_with = "trace")]
    pub mode: Option<ModeName>,
    /// Replay this table of jobs (csv, also gzip): submit_s, duration_s, gpus, instances, vc and more
    #[arg(long, value_name = "FILE", requires = "replayed_on")]
    pub trace: Option<PathBuf>,
    /// Clusters to replay a trace on: the `clusters` of a scenario file
    #[arg(long, value_name = "FILE", requires = "trace", group = "replayed_on")]
    pub fleet: Option<PathBuf>,
    /// Compare the delays of a trace's virtual clusters in private clusters, under quota alone and under cells; a
    /// configuration as fleet vc apply takes it
    #[arg(
        long,
        value_name = "FILE",
        requires = "trace",
        group = "replayed_on",
        conflicts_with = "pin_clusters"
    )]
    pub cells: Option<PathBuf>,
    /// Order of a trace's queue: first in first out; by priority; shortest job first; fair between virtual
    /// clusters [default: priority]
    #[arg(long, value_enum, requires = "trace")]
    pub policy: Option<OrderName>,
    /// Also write a self-contained HTML page with log and charts
    #[arg(long, value_name = "OUT", conflicts_with = "trace")]
    pub html: Option<PathBuf>,
    /// Also write a run log with clusters and quota, for fleet portal --log
    #[arg(long, value_name = "OUT", conflicts_with = "trace")]
    pub log: Option<PathBuf>,
    /// Keep each job of a trace on its recorded cluster
    #[arg(long, requires = "trace")]
    pub pin_clusters: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    Jsonl,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ModeName {
    Fast,
    Whole,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum OrderName {
    Fifo,
    Priority,
    Sjf,
    Fair,
}

/// The command as the user calls it: `fleet`, or `kubectl NAME` for a plugin.
pub fn command(called_as: &str) -> clap::Command {
    Cli::command().bin_name(called_as)
}

#[cfg(test)]
mod tests;
