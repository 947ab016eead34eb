//! The arguments of every command, as clap reads them.

use std::path::PathBuf;

use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum};
use fleet_kubesim::RunTime;

use crate::{pai, vc, volcano};

/// Run AI training jobs on many Kubernetes clusters.
#[derive(Debug, Parser)]
#[command(name = "fleet", version, disable_help_subcommand = false, max_term_width = 110)]
pub struct Cli {
    #[command(flatten)]
    pub connect: Connect,
    #[command(subcommand)]
    pub command: Command,
}

/// How to reach the hub.
#[derive(Clone, Debug, Default, Args)]
pub struct Connect {
    /// Kubeconfig of the hub [default: $KUBECONFIG, the running `fleet up`, then ~/.kube/config]
    #[arg(long, global = true, value_name = "FILE", help_heading = "Global options")]
    pub kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig [default: its current one]
    #[arg(long, global = true, value_name = "NAME", help_heading = "Global options")]
    pub context: Option<String>,
    /// Time-out of one request: 10s, 1m, a number of seconds, 0 for none [default: 30s, for members 5s]
    #[arg(long, global = true, value_name = "TIME", help_heading = "Global options", value_parser = timeout)]
    pub request_timeout: Option<std::time::Duration>,
    /// URL instead of the kubeconfig's; no flag of `fleet`.
    #[arg(skip)]
    pub url: Option<String>,
    /// Called as a plugin: the same cluster as kubectl's goes first.
    #[arg(skip)]
    pub is_plugin: bool,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Start a hub and member clusters in this process and keep them running
    Up(UpArgs),
    /// Start one Kubernetes API server with a data directory, without Fleet
    #[command(name = "apiserver")]
    ApiServer(ApiServerArgs),
    /// Serve pages for a browser and OpenPAI's REST API beside the hub, to each with his own rights
    Portal(PortalArgs),
    /// Run a demo in memory: a job is queued, placed as a gang, runs and succeeds
    Demo(DemoArgs),
    /// List objects of the hub, or of member clusters with -M and -m
    Get(GetArgs),
    /// Show one object with its events, and a job with its queue, its cluster and the reason why it waits
    Describe(DescribeArgs),
    /// Explain why a job waits: reason, position in its queue, quota, and what each cluster lacks
    Explain(ExplainArgs),
    /// Show the queues of a cluster with used, min, max, borrowed, waiting and running: of a hub its quota tree, of a
    /// member its Volcano queues; or create, list and operate Volcano queues
    #[command(args_conflicts_with_subcommands = true)]
    Queue(QueueArgs),
    /// Volcano's jobs: run, list, view, suspend, resume, delete
    #[command(subcommand)]
    Job(volcano::args::JobCommand),
    /// Volcano's PodGroups: list
    #[command(subcommand, name = "podgroup")]
    PodGroup(volcano::args::PodGroupCommand),
    /// Volcano's flows of jobs: create, list, get, describe, delete
    #[command(subcommand, name = "jobflow")]
    JobFlow(volcano::args::FlowCommand),
    /// Volcano's templates of jobs: create, list, get, describe, delete
    #[command(subcommand, name = "jobtemplate")]
    JobTemplate(volcano::args::FlowCommand),
    /// OpenPAI's jobs: submit, list, get, stop, start, logs, events, config
    #[command(subcommand)]
    Pai(pai::args::PaiCommand),
    /// Virtual clusters: apply their configuration, list them, draw their cells, explain a job's cells
    #[command(subcommand)]
    Vc(vc::args::VcCommand),
    /// List the member clusters with used and total resources
    Clusters(ClustersArgs),
    /// Find what is wrong with a fleet: kubeconfig, rights, versions, controller, agents, quota tree, policies
    Doctor(DoctorArgs),
    /// Check the live objects of hub and members, or a recorded run log, against the invariants
    Audit(AuditArgs),
    /// What is installed in each cluster, how its agent fares, and what to do
    Status(StatusArgs),
    /// Add a cluster to the fleet
    Join(JoinArgs),
    /// Take a cluster out of the fleet
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

/// The namespace to look in.
#[derive(Clone, Debug, Default, Args)]
pub struct Scope {
    /// Namespace [default: that of the context]
    #[arg(short, long, value_name = "NAME")]
    pub namespace: Option<String>,
}

/// Which member clusters to ask.
#[derive(Clone, Debug, Default, Args)]
pub struct Targets {
    /// Ask all member clusters
    #[arg(short = 'M', long, conflicts_with = "clusters")]
    pub all_clusters: bool,
    /// Ask these member clusters
    #[arg(short = 'm', long = "cluster", value_name = "CLUSTER,..", value_delimiter = ',')]
    pub clusters: Vec<String>,
}

/// How objects are printed, as kubectl names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Format {
    Wide,
    Yaml,
    Json,
    Name,
    JsonPath(String),
    /// `HEADER:PATH,..`
    Columns(String),
}

const FORMATS: &str = "json|yaml|wide|name|jsonpath=TEMPLATE|custom-columns=HEADER:PATH,..";

impl std::str::FromStr for Format {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (word, rest) = text.split_once('=').unwrap_or((text, ""));
        match (word, rest) {
            ("wide", "") => Ok(Self::Wide),
            ("yaml", "") => Ok(Self::Yaml),
            ("json", "") => Ok(Self::Json),
            ("name", "") => Ok(Self::Name),
            ("jsonpath", template) if !template.is_empty() => Ok(Self::JsonPath(template.to_string())),
            ("custom-columns", columns) if !columns.is_empty() => Ok(Self::Columns(columns.to_string())),
            _ => Err(format!("found {text:?}, allowed is {FORMATS}")),
        }
    }
}

#[derive(Debug, Clone, Default, Args)]
pub struct GetArgs {
    /// KIND [NAME..], KIND/NAME.. or KIND,KIND; a kind by plural, singular, short name or KIND.GROUP
    #[arg(required = true, value_name = "KIND [NAME]")]
    pub what: Vec<String>,
    #[command(flatten)]
    pub scope: Scope,
    /// All namespaces
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    pub all_namespaces: bool,
    /// Label selector, such as app=train
    #[arg(short = 'l', long, value_name = "SELECTOR")]
    pub selector: Option<String>,
    /// Field selector, such as status.phase=Running
    #[arg(long, value_name = "SELECTOR")]
    pub field_selector: Option<String>,
    #[command(flatten)]
    pub targets: Targets,
    /// Print more columns, whole objects, names, or parts of objects
    #[arg(short, long, value_name = FORMATS)]
    pub output: Option<Format>,
    /// Order by a field, such as .metadata.creationTimestamp
    #[arg(long, value_name = "JSONPATH")]
    pub sort_by: Option<String>,
    /// Watch for changes, polled once a second
    #[arg(short, long)]
    pub watch: bool,
    /// Print no headers
    #[arg(long)]
    pub no_headers: bool,
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
    /// Print data instead of text
    #[arg(short, long, value_name = FORMATS)]
    pub output: Option<Format>,
}

#[derive(Debug, Clone, Args)]
pub struct QueueArgs {
    /// What to do with a queue of a member
    #[command(subcommand)]
    pub command: Option<volcano::args::QueueCommand>,
    /// Print data instead of a table; wide adds each queue's namespaces
    #[arg(short, long, value_name = FORMATS)]
    pub output: Option<Format>,
}

#[derive(Debug, Clone, Args)]
pub struct ClustersArgs {
    /// Print data instead of a table; wide adds region, zones, provider and address
    #[arg(short, long, value_name = FORMATS)]
    pub output: Option<Format>,
    /// Order by a field, such as .metadata.creationTimestamp
    #[arg(long, value_name = "JSONPATH")]
    pub sort_by: Option<String>,
}

#[derive(Debug, Clone, Args)]
pub struct DoctorArgs {
    /// Print data instead of text
    #[arg(short, long, value_name = FORMATS)]
    pub output: Option<Format>,
}

#[derive(Debug, Clone, Args)]
pub struct AuditArgs {
    /// Ask the hub alone, not its members
    #[arg(long)]
    pub hub_only: bool,
    /// Check a recorded run log (fleet simulate -o jsonl) instead of a live fleet
    #[arg(long, value_name = "FILE", conflicts_with = "hub_only")]
    pub log: Option<PathBuf>,
    /// Print data instead of lines
    #[arg(short, long, value_enum)]
    pub output: Option<AuditFormat>,
}

/// How an audit is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum AuditFormat {
    Json,
}

#[derive(Debug, Clone, Args)]
pub struct JoinArgs {
    /// Name of the cluster in the fleet
    pub name: String,
    /// Kubeconfig of the member cluster [default: the context with the cluster's name in your own]
    #[arg(long, value_name = "FILE", conflicts_with = "confirm")]
    pub member_kubeconfig: Option<PathBuf>,
    /// Context of the member's kubeconfig [default: its current one]
    #[arg(long, value_name = "NAME", requires = "member_kubeconfig")]
    pub member_context: Option<String>,
    /// Print the manifests for the member instead of applying them, for a repository or for a member that cannot be
    /// reached from here. The token in them lives an hour
    #[arg(long, conflicts_with_all = ["confirm", "member_kubeconfig", "agent_kubeconfig"])]
    pub print: bool,
    /// Address at which the member reaches the hub [default: that of your own kubeconfig]
    #[arg(long, value_name = "URL")]
    pub hub_url: Option<String>,
    /// Image of the agent
    #[arg(long, value_name = "IMAGE", default_value = concat!("registry.example.com/fleet/member-agent:", env!("CARGO_PKG_VERSION")))]
    pub image: String,
    /// Job controllers the agent brings, for a member without operators: pytorchjob, tfjob, mpijob, volcanojob, job,
    /// deployment; `all` or `none`
    #[arg(long, value_name = "KIND,..", default_value = "none")]
    pub controllers: String,
    /// Install no agent: write the kubeconfig with which one that you run yourself reaches the hub to this file
    #[arg(long, value_name = "FILE", requires = "member_kubeconfig")]
    pub agent_kubeconfig: Option<PathBuf>,
    /// Take over what the agent of a cluster that has joined proposes: address, provider, region, zones and labels
    /// (status.proposed of its Cluster). The member's token is sent to that address from then on
    #[arg(long)]
    pub confirm: bool,
}

#[derive(Debug, Clone, Args)]
pub struct UnjoinArgs {
    /// Names of the clusters in the fleet
    #[arg(required = true, value_name = "NAME")]
    pub names: Vec<String>,
    /// The cluster is dead and nothing runs there any more: place its jobs elsewhere if their policy has
    /// failover.cluster, else fail them
    #[arg(long)]
    pub force: bool,
    /// Kubeconfig of the member cluster, to take Fleet off it [default: the context with the cluster's name in your own]
    #[arg(long, value_name = "FILE")]
    pub member_kubeconfig: Option<PathBuf>,
    /// Leave the member as it is
    #[arg(long, conflicts_with = "member_kubeconfig")]
    pub keep_member: bool,
}

#[derive(Debug, Clone, Args)]
pub struct StatusArgs {
    /// Names of the clusters [default: all]
    #[arg(value_name = "CLUSTER")]
    pub clusters: Vec<String>,
    /// Print data instead of text
    #[arg(short, long, value_name = FORMATS)]
    pub output: Option<Format>,
}

#[derive(Debug, Clone, Args)]
pub struct DrainArgs {
    /// Names of the clusters in the fleet
    #[arg(required = true, value_name = "CLUSTER")]
    pub clusters: Vec<String>,
    /// Print which jobs would move, in which order, and change nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Do not wait until all jobs have left; the drain continues
    #[arg(long, conflicts_with = "dry_run")]
    pub no_wait: bool,
    /// Stop waiting after so many seconds; the drain continues
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    pub timeout: Option<u64>,
}

#[derive(Debug, Clone, Args)]
pub struct CordonArgs {
    /// Names of the clusters in the fleet
    #[arg(required = true, value_name = "CLUSTER")]
    pub clusters: Vec<String>,
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
    /// Directory on your PATH, such as ~/.local/bin; in it fleet, kubectl-fleet, kubectl-amc, their completions
    /// (kubectl_complete-fleet, kubectl_complete-amc) and vcctl are made, as links to this program
    pub directory: PathBuf,
}

#[derive(Debug, Clone, Args)]
pub struct UpArgs {
    /// Member clusters: east, west, north, member-4 and so on [default: 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=200))]
    pub members: Option<u16>,
    /// Nodes of each member [default: 4]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(0..=10_000))]
    pub nodes: Option<u16>,
    /// nvidia.com/gpu of each node [default: 8]
    #[arg(long, value_name = "N")]
    pub gpus: Option<u32>,
    /// cpu of each node [default: 64]
    #[arg(long, value_name = "QUANTITY", value_parser = cpu)]
    pub cpu: Option<String>,
    /// memory of each node [default: 512Gi]
    #[arg(long, value_name = "QUANTITY", value_parser = memory)]
    pub memory: Option<String>,
    /// Data directory of the fleet [default: $FLEET_HOME or ~/.fleet]
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    /// Port of the hub; the members take those after it
    #[arg(long, value_name = "P", default_value_t = 6444, value_parser = clap::value_parser!(u16).range(1..))]
    pub port: u16,
    /// Port of the portal [default: 9286, or a free one where that is taken; 0 takes a free one]
    #[arg(long, value_name = "P")]
    pub portal_port: Option<u16>,
    /// Default run time of simulated jobs: 60s, 5m, forever (the annotation sim.fleet.dev/runtime overrides it)
    #[arg(long, value_name = "TIME", default_value = "60s")]
    pub runtime: RunTime,
    /// Configuration of the members' schedulers, as volcano-scheduler.conf; read again when it changes
    #[arg(long, value_name = "FILE")]
    pub scheduler_conf: Option<PathBuf>,
}

#[derive(Debug, Clone, Args)]
pub struct ApiServerArgs {
    /// Address and port to listen at; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:6443")]
    pub listen: std::net::SocketAddr,
    /// Where objects, keys and the kubeconfig are kept
    #[arg(long, value_name = "DIR")]
    pub data_dir: PathBuf,
    /// Further host names or addresses of the server's certificate
    #[arg(long = "san", value_name = "NAME,..", value_delimiter = ',')]
    pub sans: Vec<String>,
    /// Controllers that run beside the server; none where a kube-controller-manager does their work
    #[arg(long, value_name = "LIST", value_enum, value_delimiter = ',', default_values_t = [Controller::Deployment, Controller::Job])]
    pub controllers: Vec<Controller>,
    /// Allow every request without credentials (for tests)
    #[arg(long)]
    pub always_allow: bool,
}

#[derive(Debug, Clone, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct PortalArgs {
    #[command(subcommand)]
    pub command: Option<PortalCommand>,
    /// Address and port to listen at; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:9286")]
    pub listen: std::net::SocketAddr,
    /// Where jobs are submitted to
    #[command(flatten)]
    pub scope: Scope,
    /// Listen beyond this machine although tokens then cross the network unencrypted
    #[arg(long)]
    pub allow_plain_http: bool,
}

#[derive(Debug, Clone, Copy, Subcommand)]
pub enum PortalCommand {
    /// Print the token of the kubeconfig, to sign in with
    Token,
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
    /// Another demo: what gangs are for
    #[command(subcommand)]
    pub play: Option<Play>,
    /// How long the demo's jobs run
    #[arg(long, value_name = "TIME", default_value = "3s")]
    pub runtime: RunTime,
}

/// Crowds of jobs that make progress only as a whole, on one member.
#[derive(Debug, Clone, Subcommand)]
pub enum Play {
    /// TensorFlow jobs of 2 parameter servers and 4 workers, on a cluster with capacity for two
    Gangs(PlayArgs),
    /// Spark queries of a driver and five executors on four nodes of 8 cpu
    Spark(PlayArgs),
}

#[derive(Debug, Clone, Args)]
pub struct PlayArgs {
    /// How many at once: 5 jobs, 104 queries
    #[arg(long, value_name = "N")]
    pub jobs: Option<u16>,
    /// Without gang scheduling: no plugin gang (gangs), no PodGroups (spark)
    #[arg(long)]
    pub no_gang: bool,
    /// Run time of each job once its whole gang runs
    #[arg(long, value_name = "TIME", default_value = "1s")]
    pub runtime: RunTime,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Measure {
    /// From submission to Running, one job at a time on an idle fleet
    Latency,
    /// A thousand jobs of three pods, from submission to all Running
    Throughput,
    /// Memory, start and size of the program
    Size,
    /// Latency, throughput and size
    All,
    /// A deep queue under a quota tree, in real time: see --shape
    Queue,
    /// The member's scheduler, alone and end to end: see --nodes and --pods
    Scheduler,
}

/// Shapes of the queue measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Shape {
    /// 15,000 jobs in 30 leaves of 5 parents
    Baseline,
    /// 50,000 jobs in 1,000 leaves of 10 parents
    LargeScale,
}

#[derive(Debug, Clone, Args)]
pub struct BenchArgs {
    /// What to measure
    #[arg(value_enum, default_value_t = Measure::All)]
    pub what: Measure,
    /// Print JSON instead of a table
    #[arg(short, long, value_enum)]
    pub output: Option<JsonFormat>,
    /// Runs of the latency measure
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    pub runs: u32,
    /// Jobs of the throughput measure
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..))]
    pub jobs: u32,
    /// Shape of the queue measure
    #[arg(long, value_enum, default_value_t = Shape::Baseline)]
    pub shape: Shape,
    /// Queue measure without members: a stand-in ends each admitted job when its run time is over
    #[arg(long)]
    pub admission_only: bool,
    /// Nodes of the scheduler measure
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..))]
    pub nodes: u32,
    /// Pods of the scheduler measure
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..))]
    pub pods: u32,
    /// Pods of the scheduler measure come in gangs of 8 to 512
    #[arg(long)]
    pub gangs: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum JsonFormat {
    Json,
}

#[derive(Debug, Clone, Args)]
pub struct SimulateArgs {
    /// Scenario files; examples/scenarios has some
    #[arg(required_unless_present = "trace", conflicts_with = "trace", value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Print the log as JSON lines instead of a story
    #[arg(short, long, value_enum)]
    pub output: Option<LogFormat>,
    /// Seed instead of the file's
    #[arg(long, value_name = "N", conflicts_with = "trace")]
    pub seed: Option<u64>,
    /// Mode instead of the file's: planners only, or every process over embedded API servers
    #[arg(long, value_enum, conflicts_with = "trace")]
    pub mode: Option<ModeName>,
    /// Replay this table of jobs (csv, also gzip): submit_s, duration_s, gpus, instances, vc and more
    #[arg(long, value_name = "FILE", requires = "fleet")]
    pub trace: Option<PathBuf>,
    /// Clusters to replay a trace on: the `clusters` of a scenario file
    #[arg(long, value_name = "FILE", requires = "trace")]
    pub fleet: Option<PathBuf>,
    /// Order of a trace's queue: first in first out; by priority; shortest job first; fair between virtual
    /// clusters [default: priority]
    #[arg(long, value_enum, requires = "trace")]
    pub policy: Option<OrderName>,
    /// Also write one page with story and charts, which opens in a browser without a server
    #[arg(long, value_name = "OUT", conflicts_with = "trace")]
    pub html: Option<PathBuf>,
    /// Keep each job of a trace on the cluster that it names
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

/// The command as a person calls it: `fleet`, or `kubectl NAME` for a plugin.
pub fn command(called_as: &str) -> clap::Command {
    Cli::command().bin_name(called_as)
}

fn cpu(text: &str) -> Result<String, String> {
    quantity("cpu", text)
}

fn memory(text: &str) -> Result<String, String> {
    quantity("memory", text)
}

fn quantity(name: &str, text: &str) -> Result<String, String> {
    match fleet_resources::quantity::parse(name, text) {
        Ok(amount) if amount > 0 => Ok(text.to_string()),
        Ok(_) => Err("allowed is more than 0".to_string()),
        Err(error) => Err(error.to_string()),
    }
}

/// `10s`, `1m30s`, a number of seconds; 0 is no bound.
fn timeout(text: &str) -> Result<std::time::Duration, String> {
    const NO_BOUND: std::time::Duration = std::time::Duration::from_secs(365 * 24 * 3600);
    let read = match text.parse::<u64>() {
        Ok(seconds) => Some(std::time::Duration::from_secs(seconds)),
        Err(_) => match text.parse() {
            Ok(RunTime::For(time)) => Some(time),
            _ => None,
        },
    };
    let time =
        read.ok_or_else(|| "allowed is a time such as 10s or 1m, a number of seconds, or 0".to_string())?;
    Ok(if time.is_zero() { NO_BOUND } else { time })
}
