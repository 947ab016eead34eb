//! Arguments of `fleet vc`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use fleet_cli_ground::args::{Listing, Scope, Shown};

#[derive(Debug, Clone, Subcommand)]
pub enum VcCommand {
    /// Show what a configuration of cells would change, and apply it
    Apply(ApplyArgs),
    /// List virtual clusters with what each is promised, uses, lends and borrows
    Get(VcGetArgs),
    /// Show the tree of cells with the jobs on them
    Cells(CellsArgs),
    /// Explain which cells a job has, or why it has none
    Explain(VcExplainArgs),
}

#[derive(Debug, Clone, Default, Args)]
pub struct ApplyArgs {
    /// HiveD's configuration, OpenPAI's services configuration with one in it (hivedscheduler: config), or a
    /// CellConfiguration; - reads stdin
    #[arg(short, long = "filename", value_name = "FILE")]
    pub file: PathBuf,
    /// Apply without asking
    #[arg(short, long)]
    pub yes: bool,
    /// Show what would change, and change nothing
    #[arg(long, conflicts_with = "yes")]
    pub dry_run: bool,
    #[command(flatten)]
    pub shown: Shown,
}

#[derive(Debug, Clone, Default, Args)]
pub struct VcGetArgs {
    /// Names of virtual clusters [default: all]
    #[arg(value_name = "NAME")]
    pub names: Vec<String>,
    #[command(flatten)]
    pub listing: Listing,
}

#[derive(Debug, Clone, Default, Args)]
pub struct CellsArgs {
    /// Only the cells of this virtual cluster, and those that its opportunistic jobs borrow
    #[arg(long, value_name = "NAME")]
    pub vc: Option<String>,
    /// Show every cell, even if all cells below another one are alike
    #[arg(long)]
    pub all: bool,
    #[command(flatten)]
    pub listing: Listing,
}

#[derive(Debug, Clone, Default, Args)]
pub struct VcExplainArgs {
    /// Name of a job
    #[arg(value_name = "JOB")]
    pub job: String,
    #[command(flatten)]
    pub scope: Scope,
    #[command(flatten)]
    pub shown: Shown,
}
