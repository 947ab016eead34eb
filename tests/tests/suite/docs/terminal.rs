//! The reader's terminal: a shell whose directory and variables stay from one command to the next, and a further one for
//! each command that runs until it is stopped.
//!
//! A reader has the ports of the docs to himself; tests run beside others. So commands are typed with ports that are free,
//! and what is printed is read with those of the docs.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Stdio,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use anyhow::{Context, bail, ensure};
use fleet_tests::{
    console::{self, Step},
    process::{fleet_binary, ports_in_a_row, program},
    repository,
};
use tokio::{
    io::{AsyncRead, AsyncReadExt},
    process::{Child, Command},
};

/// How the README calls a program that is not installed yet.
const CARGO_RUN: &str = "cargo run --release -- ";
/// A command that takes longer hangs.
const COMMAND_WITHIN: Duration = Duration::from_secs(90);
/// How long a command that only reads may print something else: a reader would type it again, too.
const SETTLES_WITHIN: Duration = Duration::from_secs(30);
/// How long a command that runs on may take to print what the page says.
const STARTS_WITHIN: Duration = Duration::from_secs(60);
/// How long it may take to end once it is interrupted.
const ENDS_WITHIN: Duration = Duration::from_secs(20);
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// Commands that read and may be run again. `simulate` and `demo` print the same at once.
const READS: &[&str] = &[
    "get", "describe", "explain", "queue", "clusters", "audit", "doctor", "list", "status", "cells",
    "events", "curl",
];
/// Words of a request that changes something.
const WRITES: &[&str] = &["-X", "-d", "POST"];
/// Commands that end with a failure, as the page says beside them.
const FAILS: &[&str] = &["fleet demo gangs --no-gang"];
/// Ports of the docs: those that `fleet up` takes when it is not told, an API server, portals, metrics.
const PORTS: &[u16] = &[6444, 6445, 6446, 6447, 6443, 9286, 9287, 8080];
const HUB_PORT: usize = 0;
const PORTAL_PORT: usize = 5;
/// Home of the reader in the docs.
const READER: &str = "/home/me";

/// A command that runs until it is stopped.
struct Running {
    command: String,
    child: Child,
    output: Arc<Mutex<String>>,
}

/// The shell of a scene, with what runs beside it.
pub struct Terminal {
    folder: tempfile::TempDir,
    home: PathBuf,
    first_port: u16,
    running: Vec<Running>,
}

impl Terminal {
    /// A shell that finds `fleet` and these programs.
    ///
    /// # Errors
    /// No folder, no free ports, or no `fleet`.
    pub fn open(programs: &[(&str, &Path)]) -> anyhow::Result<Self> {
        let folder = tempfile::Builder::new().prefix("fleet-docs-").tempdir()?;
        let home = folder.path().join("me");
        let bin = folder.path().join("bin");
        fs::create_dir_all(&home)?;
        fs::create_dir_all(&bin)?;
        symlink(fleet_binary()?, bin.join("fleet"))?;
        for (name, file) in programs {
            symlink(file, bin.join(name))?;
        }
        let count = u16::try_from(PORTS.len()).context("ports")?;
        let terminal = Self { folder, home, first_port: ports_in_a_row(count)?, running: Vec::new() };
        let path = std::env::var("PATH").unwrap_or_default();
        let state = format!("export PATH={}:{path}\nunset KUBECONFIG FLEET_HOME\n", bin.display());
        fs::write(terminal.state(), state)?;
        Ok(terminal)
    }

    /// Lets the shell find a program of this workspace.
    ///
    /// # Errors
    /// It cannot be built.
    pub fn install(&self, name: &str) -> anyhow::Result<()> {
        symlink(program(name)?, self.folder.path().join("bin").join(name)).with_context(|| name.to_string())
    }

    /// A folder that looks like the repository, so that what a reader writes does not end up in it.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn checkout(&self) -> anyhow::Result<PathBuf> {
        let checkout = self.folder.path().join("fleet");
        fs::create_dir_all(&checkout)?;
        for name in ["examples", "charts", "docs"] {
            let link = checkout.join(name);
            if !link.exists() {
                symlink(fs::canonicalize(repository().join(name))?, link)?;
            }
        }
        Ok(checkout)
    }

    /// Gives the shell a variable.
    ///
    /// # Errors
    /// The state of the shell cannot be written.
    pub fn export(&self, name: &str, value: &Path) -> anyhow::Result<()> {
        let state = fs::read_to_string(self.state())?;
        Ok(fs::write(self.state(), format!("{state}export {name}={}\n", value.display()))?)
    }

    fn state(&self) -> PathBuf {
        self.folder.path().join("state")
    }

    /// Begins a page: back in the checkout.
    ///
    /// # Errors
    /// The state of the shell cannot be written.
    pub fn begin_page(&self) -> anyhow::Result<()> {
        let state = fs::read_to_string(self.state())?;
        let line = format!("cd {}\n", self.checkout()?.display());
        Ok(fs::write(self.state(), state + &line)?)
    }

    /// Ends a page: its reader stops what it has started, but for a fleet, which other pages use.
    ///
    /// # Errors
    /// A command has ended before, or does not end well.
    pub async fn end_page(&mut self) -> anyhow::Result<()> {
        let (fleets, others) = std::mem::take(&mut self.running)
            .into_iter()
            .partition(|running| running.command.starts_with("fleet up"));
        self.running = fleets;
        interrupt_all(others).await
    }

    /// Ends everything.
    ///
    /// # Errors
    /// As [`Terminal::end_page`].
    pub async fn close(mut self) -> anyhow::Result<()> {
        interrupt_all(std::mem::take(&mut self.running)).await
    }

    /// Types one command.
    ///
    /// # Errors
    /// It prints something else than the page says, fails, or hangs.
    pub async fn step(&mut self, step: &Step) -> anyhow::Result<()> {
        let command = self.as_typed(&step.command);
        if let Some(expected) = step.until_interrupt() {
            let mut running = self.start(&command)?;
            self.until(&mut running, step, expected).await?;
            return interrupt(running).await;
        }
        if runs_on(&command) {
            return self.leave_running(step, &command).await;
        }
        let began = Instant::now();
        loop {
            let (succeeded, printed) = self.run(&command).await?;
            let fails = FAILS.contains(&command.as_str());
            if console::matches(&step.output, &printed) && succeeded != fails {
                return Ok(());
            }
            if !may_settle(&command) || began.elapsed() > SETTLES_WITHIN {
                bail!("{}", differs(step, &format!("it printed (success: {succeeded})"), &printed));
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
        let child = self.bash(&script).output();
        let output = tokio::time::timeout(COMMAND_WITHIN, child).await;
        let output = output.with_context(|| format!("{command} hangs"))??;
        let printed = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        Ok((output.status.success(), self.as_read(&printed)))
    }

    fn bash(&self, script: &str) -> Command {
        let mut bash = Command::new("bash");
        bash.args(["-c", script])
            .env("HOME", &self.home)
            .env_remove("KUBECONFIG")
            .env_remove("FLEET_HOME")
            .stdin(Stdio::null())
            .kill_on_drop(true);
        bash
    }

    /// Starts a command in another terminal of the same directory and variables.
    fn start(&self, command: &str) -> anyhow::Result<Running> {
        // Not the file, which the next command writes anew.
        let state = fs::read_to_string(self.state())?;
        let script = format!("{state}\nexec {command} 2>&1\n");
        let mut child = self.bash(&script).stdout(Stdio::piped()).spawn().context("bash")?;
        let output = Arc::default();
        if let Some(stdout) = child.stdout.take() {
            collect(stdout, Arc::clone(&output));
        }
        Ok(Running { command: command.to_string(), child, output })
    }

    /// Starts a command that runs on, and leaves it once it has printed what the page says. A fleet that runs already has. Of a
    /// command in the background (`&`) a page shows nothing.
    async fn leave_running(&mut self, step: &Step, command: &str) -> anyhow::Result<()> {
        if let Some(command) = command.strip_suffix(" &") {
            let running = self.start(command)?;
            self.running.push(running);
            return Ok(());
        }
        let known = self.running.iter().position(|running| running.command == command);
        let mut running = match known {
            Some(at) => self.running.remove(at),
            None => self.start(command)?,
        };
        self.until(&mut running, step, &step.output).await?;
        self.running.push(running);
        Ok(())
    }

    /// Waits until a command has printed this.
    async fn until(&self, running: &mut Running, step: &Step, expected: &[String]) -> anyhow::Result<()> {
        let began = Instant::now();
        loop {
            let ended = running.child.try_wait()?;
            let printed = self.as_read(&running.printed());
            if ended.is_none() && console::matches(expected, &printed) {
                return Ok(());
            }
            if ended.is_some() || began.elapsed() > STARTS_WITHIN {
                let found =
                    ended.map_or("it runs and printed".to_string(), |ended| format!("it ended with {ended}"));
                bail!("{}", differs(step, &found, &printed));
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// What the reader types, for a machine on which others have taken the ports.
    fn as_typed(&self, command: &str) -> String {
        let mut command = command.replace(CARGO_RUN, "fleet ");
        for (port, free) in self.ports() {
            command = command.replace(&format!("127.0.0.1:{port}"), &format!("127.0.0.1:{free}"));
        }
        if command.starts_with("fleet up") {
            let port = |index: usize| usize::from(self.first_port) + index;
            command += &format!(" --port {} --portal-port {}", port(HUB_PORT), port(PORTAL_PORT));
        }
        command
    }

    /// What a reader sees, who has another home and whose ports are those of the docs.
    fn as_read(&self, printed: &str) -> String {
        let printed = printed.replace(&self.home.display().to_string(), READER);
        self.ports().fold(printed, |text, (port, free)| {
            text.replace(&format!("127.0.0.1:{free}"), &format!("127.0.0.1:{port}"))
        })
    }

    /// Each port of the docs with the one that is used.
    fn ports(&self) -> impl Iterator<Item = (u16, u16)> {
        PORTS.iter().copied().zip(self.first_port..)
    }
}

impl Running {
    fn printed(&self) -> String {
        self.output.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// The failure of a step.
fn differs(step: &Step, found: &str, printed: &str) -> String {
    format!("$ {}\nthe docs say:\n{}\n\n{found}:\n{printed}", step.command, step.output.join("\n"))
}

/// Whether a command is one that runs until it is stopped.
fn runs_on(command: &str) -> bool {
    let words: Vec<&str> = command.split_whitespace().collect();
    let has = |word: &str| words.contains(&word);
    match words.first().copied() {
        Some("fleet-controller" | "member-agent") => true,
        Some("fleet") => has("up") || has("apiserver") || (has("portal") && !has("token")),
        _ => false,
    }
}

/// Whether a reader would type a command again to see more.
fn may_settle(command: &str) -> bool {
    let first = command.split('|').next().unwrap_or_default();
    let has = |wanted: &[&str]| first.split_whitespace().any(|word| wanted.contains(&word));
    has(READS) && !has(WRITES)
}

fn collect(mut from: impl AsyncRead + Unpin + Send + 'static, output: Arc<Mutex<String>>) {
    tokio::spawn(async move {
        let mut bytes = vec![0; 8192];
        while let Ok(count) = from.read(&mut bytes).await {
            if count == 0 {
                return;
            }
            let text = String::from_utf8_lossy(&bytes[..count]);
            output.lock().unwrap_or_else(PoisonError::into_inner).push_str(&text);
        }
    });
}

async fn interrupt_all(all: Vec<Running>) -> anyhow::Result<()> {
    // The last one first, as a reader would: an agent before its hub.
    for running in all.into_iter().rev() {
        interrupt(running).await?;
    }
    Ok(())
}

/// Ctrl-C: the command ends, and says that all went well.
async fn interrupt(mut running: Running) -> anyhow::Result<()> {
    let command = running.command.clone();
    let id = running.child.id();
    let id = id.with_context(|| format!("$ {command}\nit has ended by itself:\n{}", running.printed()))?;
    let sent = std::process::Command::new("kill").args(["-INT", &id.to_string()]).status()?;
    ensure!(sent.success(), "kill -INT {id} ended with {sent}");
    let ended = tokio::time::timeout(ENDS_WITHIN, running.child.wait()).await;
    let ended =
        ended.with_context(|| format!("$ {command}\nCtrl-C does not end it:\n{}", running.printed()))??;
    ensure!(ended.success(), "$ {command}\nafter Ctrl-C it ended with {ended}:\n{}", running.printed());
    Ok(())
}

#[test]
fn commands_that_run_on_and_commands_that_read_are_known() {
    for (command, on, reads) in [
        ("fleet up --members 1", true, false),
        ("fleet --kubeconfig lab/kubeconfig sim up --nodes 9", true, false),
        ("fleet --kubeconfig lab/kubeconfig sim down", false, false),
        ("fleet portal --listen 127.0.0.1:9287", true, false),
        ("fleet portal token", false, false),
        ("fleet-controller --kubeconfig hub.kubeconfig &", true, false),
        ("kubectl get pytorchjob", false, true),
        ("curl -s http://127.0.0.1:8080/view", false, true),
        ("curl -s -X POST http://127.0.0.1:9286/api/v2/users", false, false),
        ("fleet crds --hub | kubectl get -f -", false, false),
    ] {
        assert_eq!((runs_on(command), may_settle(command)), (on, reads), "{command}");
    }
}
