//! Arguments of `fleet pai`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use fleet_cli_ground::args::{Listing, Namespaces, Scope, Shown};
use fleet_pai::{names, state::State};

#[derive(Debug, Clone, Subcommand)]
pub enum PaiCommand {
    /// Submit a job file
    Submit(SubmitArgs),
    /// List jobs
    List(ListArgs),
    /// Show one job with its tasks
    Get(GetArgs),
    /// Stop jobs; ended jobs stay as they are
    Stop(NamedArgs),
    /// Resume jobs that are being stopped, and run ended jobs again
    Start(NamedArgs),
    /// Print the logs of a job's tasks
    Logs(LogsArgs),
    /// Print the events of a job, and why it waits
    Events(EventsArgs),
    /// Print the file a job was submitted with, secrets masked
    Config(OneArgs),
}

#[derive(Debug, Clone, Default, Args)]
pub struct SubmitArgs {
    /// Job file, of protocol version 2; - reads stdin
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    #[command(flatten)]
    pub scope: Scope,
    /// Owner of the job [default: your user name on the hub]
    #[arg(long, value_name = "NAME", value_parser = user)]
    pub user: Option<String>,
    /// Print the job's objects, including Secrets, and create none
    #[arg(long)]
    pub dry_run: bool,
}

#[derive(Debug, Clone, Default, Args)]
pub struct ListArgs {
    #[command(flatten)]
    pub namespaces: Namespaces,
    /// Only jobs of these users
    #[arg(long, value_name = "NAME,..", value_delimiter = ',')]
    pub user: Vec<String>,
    /// Only jobs of these virtual clusters
    #[arg(long, value_name = "NAME,..", value_delimiter = ',')]
    pub vc: Vec<String>,
    /// Only jobs in these states
    #[arg(long, value_name = "STATE,..", value_delimiter = ',', ignore_case = true, value_parser = state)]
    pub state: Vec<State>,
    #[command(flatten)]
    pub listing: Listing,
}

/// A job and its namespace.
#[derive(Debug, Clone, Default, Args)]
pub struct OneArgs {
    /// USER~NAME, or NAME of a job of your own
    #[arg(value_name = "JOB")]
    pub job: String,
    #[command(flatten)]
    pub scope: Scope,
}

#[derive(Debug, Clone, Default, Args)]
pub struct EventsArgs {
    #[command(flatten)]
    pub one: OneArgs,
    #[command(flatten)]
    pub listing: Listing,
}

#[derive(Debug, Clone, Default, Args)]
pub struct GetArgs {
    #[command(flatten)]
    pub one: OneArgs,
    #[command(flatten)]
    pub shown: Shown,
}

#[derive(Debug, Clone, Default, Args)]
pub struct NamedArgs {
    /// USER~NAME, or NAME of a job of your own
    #[arg(value_name = "JOB", required = true)]
    pub jobs: Vec<String>,
    #[command(flatten)]
    pub scope: Scope,
}

#[derive(Debug, Clone, Default, Args)]
pub struct LogsArgs {
    #[command(flatten)]
    pub one: OneArgs,
    /// Only tasks of this role
    #[arg(long, value_name = "NAME")]
    pub role: Option<String>,
    /// Only the task of this index
    #[arg(long, value_name = "N")]
    pub index: Option<i64>,
    /// Last lines of each task
    #[arg(long, value_name = "LINES", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub tail: u32,
}

fn user(text: &str) -> Result<String, String> {
    match names::is_user(text) {
        true => Ok(text.to_owned()),
        false => Err(format!(
            "found {text:?}; allowed: up to 63 letters, digits, \"-\", \"_\" and \".\", with a letter or digit at both ends"
        )),
    }
}

fn state(text: &str) -> Result<State, String> {
    let known = State::ALL.iter().find(|state| state.as_str().eq_ignore_ascii_case(text));
    known.copied().ok_or_else(|| {
        let all: Vec<&str> = State::ALL.iter().map(|state| state.as_str()).collect();
        format!("found {text:?}; allowed: {}", all.join(", "))
    })
}
