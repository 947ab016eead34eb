//! Every command block of README and docs, run as printed against one `fleet up`, and compared with what stands there.
//!
//! Skipped, with a word, where there is no kubectl. What is not run is listed in [`NOT_RUN`] with the reason.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Stdio,
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use fleet_tests::{
    FleetProcess, Kubectl,
    console::{self, Block, Step},
    process::{fleet_binary, ports_in_a_row},
    repository,
};

/// How the README calls a program that is not installed yet.
const CARGO_RUN: &str = "cargo run --release -- ";
/// A command that takes longer hangs.
const COMMAND_WITHIN: Duration = Duration::from_secs(60);
/// How long a command that only reads may print something else: a reader would type it again, too.
const SETTLES_WITHIN: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// Commands that read and may be run again. `simulate` and `demo` print the same at once.
const READS: &[&str] = &["get", "describe", "explain", "queue", "clusters", "audit", "doctor", "list"];
/// Commands that end with a failure, as the page says beside them.
const FAILS: &[&str] = &["fleet demo gangs --no-gang"];
/// A hub and three members, and the first port that `fleet up` takes when it is not told.
const PORTS: u16 = 4;
const FIRST_PORT: u16 = 6444;
/// Home of the reader in the docs.
const READER: &str = "/home/me";

/// Blocks `console no-run`: page, beginning of the first command, and why no test runs it.
const NOT_RUN: &[(&str, &str, &str)] = &[
    ("README.md", "fleet crds --hub", "needs two real clusters"),
    ("docs/operations.md", "fleet crds --hub | kubectl", "needs a real hub"),
    ("docs/operations.md", "fleet-controller", "needs a real hub, and runs until it is stopped"),
    ("docs/operations.md", "fleet join", "needs a second API server that is no member yet"),
    ("docs/operations.md", "member-agent", "runs until it is stopped"),
    (
        "docs/operations.md",
        "kubectl create clusterrolebinding dashboards",
        "needs a controller that serves its metrics",
    ),
    ("docs/scenarios.md", "fleet --kubeconfig lab.kubeconfig sim up", "runs until it is stopped"),
    ("docs/operations.md", "helm template", "needs helm and a real member"),
    ("docs/operations.md", "fleet unjoin --force", "needs a dead cluster, which takes 70 s to be lost"),
    ("docs/pai.md", "fleet pai submit", "cli/tests and the suite pai run these commands against a fleet"),
    (
        "docs/virtual-clusters.md",
        "fleet up --members 1 --node-names",
        "runs until it is stopped; the suite vc_lab takes these steps",
    ),
    ("docs/virtual-clusters.md", "fleet vc apply", "needs a cluster with the nodes that the file names"),
    ("docs/virtual-clusters.md", "fleet simulate --trace", "the trace is not part of this repository"),
    ("docs/virtual-clusters.md", "kubectl get queue", "needs virtual clusters with jobs"),
    (
        "docs/scenarios.md",
        "fleet simulate --trace jobs.csv --cells",
        "cli/tests/program/simulate.rs runs it on files of its own",
    ),
    ("docs/simulation.md", "cargo mutants", "needs cargo-mutants, and takes an hour"),
    ("docs/portal.md", "fleet portal", "runs until it is stopped; tests/tests/suite/portal.rs drives it"),
    ("docs/portal.md", "curl", "needs a portal that runs; portal/tests/api.rs calls every route"),
    (
        "docs/pai.md",
        "curl -X POST",
        "needs a portal with users; portal/tests/users.rs makes users and signs them in",
    ),
    ("docs/pai.md", "fleet portal", "runs until it is stopped, and needs a token; cli/tests start it"),
    ("docs/operations.md", "etcdutl snapshot restore", "needs etcd and a backup"),
    ("docs/operations.md", "fleet crds --hub    |", "needs real clusters to upgrade"),
    (
        "docs/simulation.md",
        "cargo xtask simulate",
        "hours of simulation; fault-simulation/tests/whole.rs runs its own seeds",
    ),
    ("docs/apiserver.md", "export APISERVER_URL", "needs a real API server"),
    ("CONTRIBUTING.md", "cargo xtask tidy", "runs the whole test suite, this one too"),
    (
        "CONTRIBUTING.md",
        "rustup target add",
        "builds a release for minutes; xtask/tests/dist.rs makes one of its own build",
    ),
    ("charts/README.md", "helm lint", "needs helm; apiserver/tests/helm.rs drives it"),
    ("charts/README.md", "helm install", "needs helm and real clusters"),
    ("charts/README.md", "fleet join", "needs helm and real clusters"),
];

fn all_blocks() -> anyhow::Result<Vec<Block>> {
    let mut all = Vec::new();
    for (page, text) in console::pages(&repository())? {
        all.extend(console::blocks(&page, &text)?);
    }
    Ok(all)
}

#[test]
fn what_is_not_run_is_listed_with_a_reason() -> anyhow::Result<()> {
    let blocks = all_blocks()?;
    let skipped: Vec<&Block> = blocks.iter().filter(|block| !block.is_run).collect();
    let is_about = |block: &Block, page: &str, begins: &str| {
        block.page == page && block.steps[0].command.starts_with(begins)
    };
    for block in &skipped {
        let listed = NOT_RUN.iter().any(|(page, begins, _)| is_about(block, page, begins));
        ensure!(listed, "{}:{}: `console no-run` without a reason in NOT_RUN", block.page, block.line);
    }
    for (page, begins, why) in NOT_RUN {
        let stands = skipped.iter().any(|block| is_about(block, page, begins));
        ensure!(stands && !why.is_empty(), "NOT_RUN: {page}: {begins:?}: no such block, or no reason");
    }
    Ok(())
}

/// A first page that is longer is not read to its end.
#[test]
fn the_readme_fits_on_a_few_screens() -> anyhow::Result<()> {
    const MOST_LINES: usize = 120;
    let lines = fs::read_to_string(repository().join("README.md"))?.lines().count();
    ensure!(lines <= MOST_LINES, "README.md: found {lines} lines; allowed: {MOST_LINES}");
    Ok(())
}

/// The reader's terminal: directory and variables stay from one command to the next.
struct Terminal {
    folder: tempfile::TempDir,
    home: PathBuf,
    port: u16,
    fleet: Option<FleetProcess>,
}

impl Terminal {
    fn open(kubectl: &Path) -> anyhow::Result<Self> {
        let folder = tempfile::Builder::new().prefix("fleet-docs-").tempdir()?;
        let home = folder.path().join("me");
        let bin = folder.path().join("bin");
        fs::create_dir_all(&home)?;
        fs::create_dir_all(&bin)?;
        std::os::unix::fs::symlink(fleet_binary()?, bin.join("fleet"))?;
        if bin.join("kubectl") != kubectl {
            std::os::unix::fs::symlink(kubectl, bin.join("kubectl"))?;
        }
        let terminal = Self { folder, home, port: ports_in_a_row(PORTS)?, fleet: None };
        let path = std::env::var("PATH").unwrap_or_default();
        let state = format!("export PATH={}:{path}\nunset KUBECONFIG FLEET_HOME\n", bin.display());
        fs::write(terminal.state(), state)?;
        Ok(terminal)
    }

    fn state(&self) -> PathBuf {
        self.folder.path().join("state")
    }

    /// A folder that looks like the repository, so that what a reader writes does not end up in it.
    fn checkout(&self) -> anyhow::Result<PathBuf> {
        let checkout = self.folder.path().join("fleet");
        fs::create_dir_all(&checkout)?;
        for name in ["examples", "charts", "docs"] {
            let link = checkout.join(name);
            if !link.exists() {
                std::os::unix::fs::symlink(fs::canonicalize(repository().join(name))?, link)?;
            }
        }
        Ok(checkout)
    }

    /// Begins a page: back in the checkout.
    fn begin_page(&self) -> anyhow::Result<()> {
        let state = fs::read_to_string(self.state())?;
        let line = format!("cd {}\n", self.checkout()?.display());
        Ok(fs::write(self.state(), state + &line)?)
    }

    async fn step(&mut self, step: &Step) -> anyhow::Result<()> {
        let command = step.command.replace(CARGO_RUN, "fleet ");
        if command == "fleet up" {
            return self.up(step).await;
        }
        let words = command.split('|').next().unwrap_or_default().split_whitespace();
        let may_settle = words.into_iter().any(|word| READS.contains(&word));
        let began = Instant::now();
        loop {
            let (succeeded, printed) = self.run(&command).await?;
            let fails = FAILS.contains(&command.as_str());
            if console::matches(&step.output, &printed) && succeeded != fails {
                return Ok(());
            }
            if !may_settle || began.elapsed() > SETTLES_WITHIN {
                anyhow::bail!(
                    "$ {}\nthe docs say:\n{}\n\nit printed (success: {succeeded}):\n{printed}",
                    step.command,
                    step.output.join("\n")
                );
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Runs one command in a bash that begins where the last one ended.
    async fn run(&self, command: &str) -> anyhow::Result<(bool, String)> {
        let state = self.state();
        let script = format!(
            ". {state}\n{{ {command}\n}} 2>&1\ncode=$?\n{{ export -p; echo \"cd '$PWD'\"; }} > {state}\nexit $code\n",
            state = state.display()
        );
        let child = tokio::process::Command::new("bash")
            .args(["-c", &script])
            .env("HOME", &self.home)
            .env_remove("KUBECONFIG")
            .env_remove("FLEET_HOME")
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output();
        let output = tokio::time::timeout(COMMAND_WITHIN, child).await;
        let output = output.with_context(|| format!("{command} hangs"))??;
        let printed = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        Ok((output.status.success(), self.as_read(&printed)))
    }

    /// `fleet up` in the other terminal; the first time it starts, later it runs already.
    async fn up(&mut self, step: &Step) -> anyhow::Result<()> {
        if self.fleet.is_none() {
            self.fleet = Some(FleetProcess::up(&self.home.join(".fleet"), self.port, &[]).await?);
        }
        let printed = self.fleet.as_ref().map(FleetProcess::output).unwrap_or_default();
        let printed = self.as_read(&printed);
        ensure!(
            console::matches(&step.output, &printed),
            "$ {}\nthe docs say:\n{}\n\nit printed:\n{printed}",
            step.command,
            step.output.join("\n")
        );
        Ok(())
    }

    /// What a reader sees, who has another home and whose ports are those of the defaults.
    fn as_read(&self, printed: &str) -> String {
        let printed = printed.replace(&self.home.display().to_string(), READER);
        (0..PORTS).fold(printed, |text, next| {
            text.replace(
                &format!("127.0.0.1:{}", self.port + next),
                &format!("127.0.0.1:{}", FIRST_PORT + next),
            )
        })
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_print_what_the_docs_say() -> anyhow::Result<()> {
    let Some(kubectl) = Kubectl::find() else {
        eprintln!("skipped: no kubectl on PATH, and FLEET_KUBECTL does not name one");
        return Ok(());
    };
    let only = std::env::var("FLEET_DOCS_PAGE").ok();
    let mut terminal = Terminal::open(&kubectl)?;
    let mut wrong = Vec::new();
    let mut page = String::new();
    let mut began = Instant::now();
    for block in all_blocks()?.iter().filter(|block| block.is_run) {
        if only.as_ref().is_some_and(|only| !block.page.contains(only) && block.page != "README.md") {
            continue;
        }
        if page != block.page {
            eprintln!("{page}: {:.1} s", began.elapsed().as_secs_f64());
            (page, began) = (block.page.clone(), Instant::now());
            terminal.begin_page()?;
        }
        for step in &block.steps {
            if let Err(error) = terminal.step(step).await {
                wrong.push(format!("{page}:{}: {error:#}", step.line));
            }
        }
    }
    if let Some(fleet) = terminal.fleet.take() {
        assert_eq!(fleet.interrupt().await?, Some(0));
    }
    ensure!(wrong.is_empty(), "{} commands print something else:\n\n{}", wrong.len(), wrong.join("\n\n"));
    Ok(())
}
