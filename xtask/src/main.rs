//! `cargo xtask test`: everything that must hold, in one command; `cargo xtask tidy`: the quick part.
//!
//! Inputs: the checkout it is run in. Deliberately absent: installing anything (that is `.ci/run`'s).

mod tidy;

use std::process::{Command, ExitCode};

use anyhow::{Context, bail};
use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(about = "Tasks of the Fleet workspace")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Formatting, lints, the rules of the house, all tests, doc tests, the bounded simulation and the walkthrough.
    Test {
        /// Leave out formatting and lints.
        #[arg(long)]
        no_lints: bool,
    },
    /// Formatting, lints and the rules of the house.
    Tidy,
    /// Runs the whole simulation over seeds: random fleets, jobs and faults. Ends with 1 at the first seed that fails.
    Simulate {
        /// How many seeds.
        #[arg(long, default_value_t = 100)]
        seeds: u64,
        /// The first of them.
        #[arg(long, default_value_t = 1)]
        first: u64,
        /// End after so many minutes, however many seeds are left.
        #[arg(long)]
        minutes: Option<u64>,
        /// Build without optimisation: quicker to build, far slower to run.
        #[arg(long)]
        debug: bool,
    },
}

fn main() -> ExitCode {
    match run(Arguments::parse().task) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(task: Task) -> anyhow::Result<()> {
    match task {
        Task::Tidy => tidy(),
        Task::Simulate { seeds, first, minutes, debug } => simulate(seeds, first, minutes, debug),
        Task::Test { no_lints } => {
            if !no_lints {
                tidy()?;
            }
            // The tests drive this binary; building it first keeps them from waiting for each other.
            cargo(&["build", "--workspace", "--bins"])?;
            if nextest_is_here() {
                cargo(&["nextest", "run", "--workspace", "--no-fail-fast"])?;
            } else {
                cargo(&["test", "--workspace", "--no-fail-fast", "--lib", "--bins", "--tests"])?;
            }
            cargo(&["test", "--workspace", "--doc"])
        }
    }
}

/// The simulation itself is an example of `kubesim/`, so that this program stays quick to build.
fn simulate(seeds: u64, first: u64, minutes: Option<u64>, debug: bool) -> anyhow::Result<()> {
    let (seeds, first) = (seeds.to_string(), first.to_string());
    let minutes = minutes.map(|minutes| minutes.to_string());
    let mut arguments = vec!["run", "--quiet", "-p", "fleet-kubesim", "--example", "simulate"];
    if !debug {
        arguments.push("--release");
    }
    arguments.extend(["--", "--seeds", &seeds, "--first", &first]);
    if let Some(minutes) = &minutes {
        arguments.extend(["--minutes", minutes]);
    }
    cargo(&arguments)
}

fn tidy() -> anyhow::Result<()> {
    tidy::check()?;
    cargo(&["fmt", "--all", "--check"])?;
    cargo(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"])
}

fn nextest_is_here() -> bool {
    Command::new(cargo_path())
        .args(["nextest", "--version"])
        .output()
        .is_ok_and(|output| output.status.success())
}

fn cargo_path() -> String {
    std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_string())
}

fn cargo(arguments: &[&str]) -> anyhow::Result<()> {
    eprintln!("$ cargo {}", arguments.join(" "));
    let status = Command::new(cargo_path())
        .args(arguments)
        .status()
        .with_context(|| format!("cargo {} could not be started", arguments.join(" ")))?;
    if !status.success() {
        bail!("cargo {} failed ({status})", arguments.join(" "));
    }
    Ok(())
}
