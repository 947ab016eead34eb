//! `cargo xtask test`: all checks and tests in one command; `cargo xtask tidy`: the quick checks.
//!
//! Inputs: the checkout in which it runs. Deliberately absent: installing anything (`.ci/run` does that).

mod book;
mod cargo;
mod dist;
mod glossary;
mod house;
mod links;
mod tidy;

use std::{
    path::Path,
    process::{Command, ExitCode},
};

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
    /// Everything of `tidy`, then all tests, the bounded simulation and the walkthrough.
    Test {
        /// Leave out formatting and lints.
        #[arg(long)]
        no_lints: bool,
    },
    /// Formatting, lints, the rules of the house, and the links of all Markdown files.
    Tidy {
        /// Only print the graph of modules, for graphviz; circles are red.
        #[arg(long)]
        graph: bool,
    },
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
        /// Turn on each deliberate bug in turn, and print after how many seeds it was found.
        #[arg(long)]
        bugs: bool,
        /// Turn on one deliberate bug, to see after how many seeds it is found.
        #[arg(long)]
        bug: Option<String>,
        /// Users and attackers by name and comma; `all`: each of them in some seeds.
        #[arg(long)]
        people: Option<String>,
        /// Go on after a seed that fails, and only name it.
        #[arg(long)]
        keep_going: bool,
        /// Build without optimisation: quicker to build, far slower to run.
        #[arg(long)]
        debug: bool,
    },
    /// Plays many random histories against the laws of quota, of the member scheduler and of virtual clusters.
    Laws {
        /// How many of each law; of virtual clusters always 100,000.
        #[arg(long, default_value_t = 100_000)]
        cases: u32,
    },
    /// Makes a release: static programs with completions and man pages, images, charts, a krew manifest, checksums.
    Dist(dist::DistArgs),
    /// Builds the pages of `docs/` as a site with mdbook, and checks its links.
    Book {
        /// Where the site goes; it begins at `docs/index.html` there.
        #[arg(default_value = "target/site")]
        folder: std::path::PathBuf,
    },
    /// Draws every page of the portal, light and dark, with the Chromium of this machine.
    Screenshots {
        /// Where the pictures go.
        #[arg(default_value = "target/screenshots")]
        folder: std::path::PathBuf,
    },
    /// Runs the test of the processes again and again, with SIGKILL and cut connections: two minutes of them each time.
    Chaos {
        /// How many times.
        #[arg(long, default_value_t = 10)]
        runs: u32,
        /// Seconds of kills and cuts in each.
        #[arg(long, default_value_t = 120)]
        seconds: u32,
        /// Seed of the first; each further one takes the next.
        #[arg(long, default_value_t = 1)]
        first: u64,
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
        Task::Tidy { graph: true } => {
            print!("{}", tidy::draw()?);
            Ok(())
        }
        Task::Tidy { graph: false } => tidy(),
        Task::Simulate { seeds, first, minutes, bugs, bug, people, keep_going, debug } => {
            let mut arguments =
                vec!["--seeds".to_string(), seeds.to_string(), "--first".to_string(), first.to_string()];
            if let Some(minutes) = minutes {
                arguments.extend(["--minutes".to_string(), minutes.to_string()]);
            }
            arguments.extend(bugs.then(|| "--bugs".to_string()));
            for (name, value) in [("--bug", bug), ("--people", people)] {
                arguments.extend(value.into_iter().flat_map(|value| [name.to_string(), value]));
            }
            arguments.extend(keep_going.then(|| "--keep-going".to_string()));
            simulate(&arguments, debug)
        }
        Task::Laws { cases } => laws(cases),
        Task::Dist(args) => dist::run(&args),
        Task::Book { folder } => book::build(&std::path::absolute(folder)?),
        Task::Screenshots { folder } => screenshots(&folder),
        Task::Chaos { runs, seconds, first } => chaos(runs, seconds, first),
        Task::Test { no_lints } => {
            if !no_lints {
                tidy()?;
            }
            // One build of everything: programs that are built alone have other features, and with them other
            // dependencies. The tests drive the programs of this build.
            cargo::run(&["build", "--workspace", "--all-targets"])?;
            let programs = std::env::current_exe().context("this program")?;
            let programs = programs.parent().context("it is in a folder")?.to_string_lossy().into_owned();
            let built = [("FLEET_PROGRAMS", programs.as_str())];
            if nextest_is_here() {
                cargo::run_with(&built, &["nextest", "run", "--workspace", "--no-fail-fast"])
            } else {
                let all = ["test", "--workspace", "--no-fail-fast", "--lib", "--bins", "--tests"];
                cargo::run_with(&built, &all)
            }
        }
    }
}

/// The simulation itself is an example of `fault-simulation/`, so that this program stays quick to build.
fn simulate(arguments: &[String], debug: bool) -> anyhow::Result<()> {
    let mut all = vec!["run", "--quiet", "-p", "fleet-fault-simulation", "--example", "simulate"];
    if !debug {
        all.push("--release");
    }
    all.push("--");
    all.extend(arguments.iter().map(String::as_str));
    cargo::run(&all)
}

fn screenshots(folder: &Path) -> anyhow::Result<()> {
    // With the tests: without them programs have other features, and are built anew.
    cargo::run(&["build", "--workspace", "--bins", "--tests"])?;
    let folder = std::path::absolute(folder)?;
    let test = ["test", "--workspace", "--test", "suite", "--", "portal_looks::screenshots", "--nocapture"];
    let shown = folder.display().to_string();
    cargo::run_with(&[("FLEET_SCREENSHOTS", &shown)], &test)?;
    eprintln!("{shown}");
    Ok(())
}

fn laws(cases: u32) -> anyhow::Result<()> {
    let cases = [("PROPTEST_CASES", &*cases.to_string())];
    let of_quota =
        ["tests::histories", "tests::laws", "tests::two_resources", "tests::by_share", "tests::equals"];
    let quota = ["test", "--release", "-p", "fleet-quota", "--lib", "--"];
    cargo::run_with(&cases, &[&quota[..], &of_quota].concat())?;
    cargo::run_with(&cases, &["test", "--release", "-p", "fleet-scheduler", "--lib", "laws"])?;
    cargo::run(&["test", "--release", "-p", "fleet-cells", "--lib", "--", "--ignored"])?;
    if std::env::var_os("FLEET_TRACES").is_none() {
        eprintln!(
            "left out: the replay of a real trace; FLEET_TRACES names the folder with philly_jobs.csv.gz"
        );
        return Ok(());
    }
    let replay =
        ["test", "--release", "-p", "fleet-simulator", "--lib", "philly", "--", "--ignored", "--nocapture"];
    cargo::run(&replay)
}

/// Ends at the first run that fails; its seed stands in the line before.
fn chaos(runs: u32, seconds: u32, first: u64) -> anyhow::Result<()> {
    cargo::run(&["build", "--workspace", "--bins"])?;
    for run in 0..runs {
        let seed = first + u64::from(run);
        eprintln!("run {} of {runs}: FLEET_SEED={seed} FLEET_CHAOS_SECONDS={seconds}", run + 1);
        // Of the whole workspace: what was built for all tests serves here.
        let test =
            ["test", "--quiet", "--workspace", "--test", "suite", "process_chaos::", "--", "--nocapture"];
        let status = cargo::command()
            .args(test)
            .env("FLEET_SEED", seed.to_string())
            .env("FLEET_CHAOS_SECONDS", seconds.to_string())
            .status()
            .context("cargo test could not be started")?;
        if !status.success() {
            bail!("run {} with seed {seed} failed ({status})", run + 1);
        }
    }
    Ok(())
}

fn tidy() -> anyhow::Result<()> {
    tidy::check()?;
    links::check()?;
    glossary::check()?;
    cargo::run(&["fmt", "--all", "--check"])?;
    format_of_plugins()?;
    cargo::run(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"])
}

/// `cargo fmt` does not see modules that a macro declares: the table of the scheduler's plugins.
fn format_of_plugins() -> anyhow::Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("the workspace has a root")?;
    let folder = std::fs::read_dir(root.join("scheduler/src/plugins"))?;
    let files = folder.map(|entry| Ok(entry?.path())).collect::<std::io::Result<Vec<_>>>()?;
    let status = Command::new("rustfmt")
        .args(["--check", "--edition", "2024"])
        .args(files)
        .current_dir(root)
        .status()
        .context("rustfmt could not be started")?;
    if !status.success() {
        bail!("rustfmt {status}: run `rustfmt --edition 2024 scheduler/src/plugins/*.rs`");
    }
    Ok(())
}

fn nextest_is_here() -> bool {
    cargo::command().args(["nextest", "--version"]).output().is_ok_and(|output| output.status.success())
}
