//! Arguments of the commands over Volcano's objects, with the flags of Volcano's own program.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use fleet_cli_ground::args::{Listing, Namespaces, Scope};

/// Volcano's command line for Fleet's members: jobs, queues, pods, templates and flows.
#[derive(Debug, Parser)]
#[command(name = "vcctl", version, disable_help_subcommand = false, max_term_width = 110)]
pub struct Vcctl {
    /// URL of the API server, instead of the kubeconfig's
    #[arg(short = 's', long, global = true, value_name = "URL", help_heading = "Global options")]
    pub master: Option<String>,
    /// Kubeconfig of the cluster [default: $KUBECONFIG, ~/.kube/config, then that of `fleet up`]
    #[arg(short, long, global = true, value_name = "FILE", help_heading = "Global options")]
    pub kubeconfig: Option<PathBuf>,
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Jobs: run, list, view, suspend, resume, delete
    #[command(subcommand)]
    Job(JobCommand),
    /// Queues: create, get, list, operate, delete
    #[command(subcommand)]
    Queue(QueueCommand),
    /// PodGroups: list
    #[command(subcommand, name = "podgroup")]
    PodGroup(PodGroupCommand),
    /// Pods: list
    #[command(subcommand)]
    Pod(PodCommand),
    /// Templates of jobs: create, list, get, describe, delete
    #[command(subcommand, name = "jobtemplate")]
    JobTemplate(FlowCommand),
    /// Flows of jobs: create, list, get, describe, delete
    #[command(subcommand, name = "jobflow")]
    JobFlow(FlowCommand),
    /// Print the version
    Version,
}

#[derive(Debug, Clone, Subcommand)]
pub enum JobCommand {
    /// Create a job: that of a file, or one task of equal pods
    Run(RunArgs),
    /// List jobs
    List(ListArgs),
    /// Show one job with its events
    View(NamedArgs),
    /// Stop a job's pods until it is resumed
    Suspend(NamedArgs),
    /// Start a suspended job again
    Resume(NamedArgs),
    /// Delete a job with its pods
    Delete(NamedArgs),
}

#[derive(Debug, Clone, Args)]
pub struct RunArgs {
    /// Manifest of a job
    #[arg(short, long, value_name = "FILE", conflicts_with_all = ["name", "image", "min", "replicas", "requests", "limits", "scheduler"])]
    pub filename: Option<PathBuf>,
    #[command(flatten)]
    pub scope: Scope,
    /// Name of the job
    #[arg(short = 'N', long, value_name = "NAME", required_unless_present = "filename")]
    pub name: Option<String>,
    /// Image of its container
    #[arg(short, long, default_value = "busybox")]
    pub image: String,
    /// Pods that must start together
    #[arg(short, long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub min: u32,
    /// Pods
    #[arg(short, long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub replicas: u32,
    /// Requests of each pod
    #[arg(short = 'R', long, value_name = "RESOURCES", default_value = "cpu=1000m,memory=100Mi", value_parser = resources)]
    pub requests: Resources,
    /// Limits of each pod
    #[arg(short = 'L', long, value_name = "RESOURCES", default_value = "cpu=1000m,memory=100Mi", value_parser = resources)]
    pub limits: Resources,
    /// Scheduler of its pods
    #[arg(short = 'S', long, value_name = "NAME", default_value = "volcano")]
    pub scheduler: String,
}

/// Resource amounts by name, as written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resources(pub std::collections::BTreeMap<String, String>);

#[derive(Debug, Clone, Default, Args)]
pub struct ListArgs {
    #[command(flatten)]
    pub namespaces: Namespaces,
    #[command(flatten)]
    pub listing: Listing,
    /// Only jobs for this scheduler
    #[arg(short = 'S', long, value_name = "NAME")]
    pub scheduler: Option<String>,
    /// Only jobs of this queue
    #[arg(short, long, value_name = "NAME")]
    pub queue: Option<String>,
}

#[derive(Debug, Clone, Args)]
pub struct NamedArgs {
    #[command(flatten)]
    pub scope: Scope,
    /// Name of the object
    #[arg(short = 'N', long, value_name = "NAME")]
    pub name: String,
}

#[derive(Debug, Clone, Subcommand)]
pub enum QueueCommand {
    /// Create a queue
    Create(QueueCreateArgs),
    /// Print one queue
    Get(QueueNameArgs),
    /// List queues
    List(Listing),
    /// Open or close a queue, or change its weight
    Operate(QueueOperateArgs),
    /// Delete a queue
    Delete(QueueNameArgs),
}

#[derive(Debug, Clone, Args)]
pub struct QueueCreateArgs {
    /// Name of the queue
    #[arg(short, long, value_name = "NAME", default_value = "test")]
    pub name: String,
    /// Weight among other queues
    #[arg(short, long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(i32).range(1..=65535))]
    pub weight: i32,
    /// Initial state
    #[arg(short = 'S', long, value_enum, ignore_case = true, default_value_t = State::Open)]
    pub state: State,
}

/// Initial states of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum State {
    #[value(name = "Open")]
    Open,
    #[value(name = "Closed")]
    Closed,
}

#[derive(Debug, Clone, Args)]
pub struct QueueNameArgs {
    /// Name of the queue
    #[arg(short, long, value_name = "NAME")]
    pub name: String,
}

#[derive(Debug, Clone, Args)]
pub struct QueueOperateArgs {
    /// Name of the queue
    #[arg(short, long, value_name = "NAME")]
    pub name: String,
    /// Action
    #[arg(short, long, value_enum)]
    pub action: QueueAction,
    /// New weight (with --action update)
    #[arg(short, long, value_name = "N", required_if_eq("action", "update"), value_parser = clap::value_parser!(i32).range(1..=65535))]
    pub weight: Option<i32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum QueueAction {
    /// Admit jobs again
    Open,
    /// Admit no new jobs; admitted ones go on
    Close,
    /// Change the weight
    Update,
}

#[derive(Debug, Clone, Subcommand)]
pub enum PodGroupCommand {
    /// List PodGroups
    List(PodGroupListArgs),
}

#[derive(Debug, Clone, Default, Args)]
pub struct PodGroupListArgs {
    #[command(flatten)]
    pub namespaces: Namespaces,
    #[command(flatten)]
    pub listing: Listing,
    /// Only PodGroups of this queue
    #[arg(short, long, value_name = "NAME")]
    pub queue: Option<String>,
}

#[derive(Debug, Clone, Subcommand)]
pub enum PodCommand {
    /// List the pods of jobs
    List(PodListArgs),
}

#[derive(Debug, Clone, Default, Args)]
pub struct PodListArgs {
    #[command(flatten)]
    pub namespaces: Namespaces,
    #[command(flatten)]
    pub listing: Listing,
    /// Only pods of this job
    #[arg(short, long, value_name = "NAME")]
    pub job: Option<String>,
    /// Only pods of this queue
    #[arg(short, long, value_name = "NAME")]
    pub queue: Option<String>,
}

#[derive(Debug, Clone, Subcommand)]
pub enum FlowCommand {
    /// Create the objects of a file
    Create(FlowCreateArgs),
    /// List objects
    List(FlowListArgs),
    /// Print one object
    Get(NamedArgs),
    /// Print one object with all fields
    Describe(NamedArgs),
    /// Delete one object
    Delete(NamedArgs),
}

#[derive(Debug, Clone, Args)]
pub struct FlowCreateArgs {
    /// Manifest
    #[arg(short, long, value_name = "FILE")]
    pub file: PathBuf,
}

#[derive(Debug, Clone, Default, Args)]
pub struct FlowListArgs {
    #[command(flatten)]
    pub namespaces: Namespaces,
    #[command(flatten)]
    pub listing: Listing,
}

/// `cpu=1000m,memory=100Mi`.
fn resources(text: &str) -> Result<Resources, String> {
    let mut found = std::collections::BTreeMap::new();
    for part in text.split(',').filter(|part| !part.trim().is_empty()) {
        let (name, amount) = part
            .split_once('=')
            .ok_or_else(|| format!("found {part:?}; allowed: NAME=QUANTITY, separated by commas"))?;
        let (name, amount) = (name.trim(), amount.trim());
        fleet_resources::quantity::parse(name, amount).map_err(|error| error.to_string())?;
        if found.insert(name.to_owned(), amount.to_owned()).is_some() {
            return Err(format!("found {name} twice; allowed: each resource once"));
        }
    }
    Ok(Resources(found))
}

#[cfg(test)]
mod tests {
    use super::resources;

    #[test]
    fn resources_are_read_and_mistakes_named() {
        let read = resources("cpu=1000m, memory=100Mi,nvidia.com/gpu=2").map(|found| found.0);
        let pairs: Vec<(String, String)> = read.expect("resources").into_iter().collect();
        assert_eq!(pairs[0], ("cpu".to_owned(), "1000m".to_owned()));
        assert_eq!(pairs.len(), 3);
        for (bad, says) in [("cpu", "NAME=QUANTITY"), ("cpu=1,cpu=2", "cpu twice"), ("cpu=x", "x")] {
            assert!(resources(bad).is_err_and(|error| error.contains(says)), "{bad}");
        }
    }
}
