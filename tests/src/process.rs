//! The `fleet` binary as a process: found or built, started on a data directory, killed.

use std::{
    ffi::OsStr,
    net::{Ipv4Addr, TcpListener},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{Arc, Mutex, OnceLock, PoisonError},
    time::{Duration, SystemTime},
};

use anyhow::{Context, bail};
use tokio::{
    io::{AsyncBufReadExt, AsyncRead, BufReader},
    process::Child,
    sync::watch,
};

/// Names a binary to test instead of the one of this build.
const BINARY: &str = "FLEET_BIN";
/// Folder of programs that are up to date: `cargo xtask test` has just built them, with the features of the tests.
const PROGRAMS: &str = "FLEET_PROGRAMS";
/// Has cargo bring the binary up to date even if it looks so.
const BUILD: &str = "FLEET_BUILD";
const READY_WITHIN: Duration = Duration::from_secs(60);
const ENDS_WITHIN: Duration = Duration::from_secs(20);

/// The `fleet` binary beside the test executable, built first when it is missing or older than the test.
///
/// # Errors
/// It cannot be built.
pub fn fleet_binary() -> anyhow::Result<PathBuf> {
    static FOUND: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let found = FOUND.get_or_init(|| find_or_build().map_err(|error| format!("{error:#}")));
    found.clone().map_err(anyhow::Error::msg)
}

/// Cargo, without what the test's own package has in the environment: build scripts look at those variables,
/// and would have half of the dependencies built anew.
fn cargo() -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
            cargo.env_remove(&name);
        }
    }
    cargo
}

/// Another program of this workspace, built by this build: package and binary have one name.
///
/// # Errors
/// It cannot be built.
pub fn program(name: &str) -> anyhow::Result<PathBuf> {
    if let Some(folder) = std::env::var_os(PROGRAMS) {
        return Ok(Path::new(&folder).join(name));
    }
    let test = std::env::current_exe()?;
    let profile =
        profile_folder(&test).with_context(|| format!("{} is in no target folder", test.display()))?;
    let mut build = cargo();
    // Of the whole workspace, so that dependencies keep the features they were built with.
    build.args(["build", "--quiet", "--workspace", "--bin", name]).current_dir(crate::repository());
    if let Some(profile) = profile.file_name().filter(|name| *name != "debug") {
        build.arg("--profile").arg(profile);
    }
    let status = build.status().context("cargo does not start")?;
    let binary = profile.join(name);
    if !status.success() || !binary.is_file() {
        bail!("{build:?} ended with {status}; {} is not there", binary.display());
    }
    Ok(binary)
}

fn find_or_build() -> anyhow::Result<PathBuf> {
    if let Some(named) = std::env::var_os(BINARY).filter(|named| !named.is_empty()) {
        return Ok(PathBuf::from(named));
    }
    if std::env::var_os(PROGRAMS).is_some() {
        return program("fleet");
    }
    let test = std::env::current_exe()?;
    let profile =
        profile_folder(&test).with_context(|| format!("{} is in no target folder", test.display()))?;
    let binary = profile.join("fleet");
    let made =
        |file: &Path| std::fs::metadata(file).and_then(|m| m.modified()).unwrap_or(SystemTime::UNIX_EPOCH);
    if std::env::var_os(BUILD).is_none() && made(&binary) >= made(&test) {
        return Ok(binary);
    }
    let mut build = cargo();
    build.args(["build", "--quiet", "--workspace", "--bin", "fleet"]).current_dir(crate::repository());
    // The folder of the profile `dev` is `debug`.
    if let Some(profile) = profile.file_name().filter(|name| *name != "debug") {
        build.arg("--profile").arg(profile);
    }
    let status = build.status().context("cargo does not start")?;
    if !status.success() || !binary.is_file() {
        bail!("{build:?} ended with {status}; {} is not there", binary.display());
    }
    // Cargo leaves the time of a binary that was fresh; the next test need not ask again.
    std::fs::File::open(&binary)?.set_modified(SystemTime::now())?;
    Ok(binary)
}

/// `target/debug` of `target/debug/deps/suite-0123`.
fn profile_folder(test: &Path) -> Option<&Path> {
    let folder = test.parent()?;
    if folder.file_name() == Some(OsStr::new("deps")) { folder.parent() } else { Some(folder) }
}

/// The first of `count` ports in a row that nobody listens on. Below the range from which the system gives
/// ports to clients, so that none is lost while a fleet is down.
///
/// # Errors
/// There are none.
pub fn ports_in_a_row(count: u16) -> anyhow::Result<u16> {
    const FIRST: u16 = 20_000;
    const LAST: u16 = 32_000;
    // Tests that run at once begin to look at different places, and have numbers one after the other.
    const APART: u32 = 16;
    let begin = std::process::id().wrapping_mul(APART) % u32::from(LAST - FIRST);
    let begin = u16::try_from(begin).unwrap_or(0);
    let places = (0..LAST - FIRST).map(|step| FIRST + (begin + step) % (LAST - FIRST));
    let free = |port: &u16| {
        let listens = |port: u16| TcpListener::bind((Ipv4Addr::LOCALHOST, port));
        (*port..port + count).map(listens).collect::<Result<Vec<_>, _>>().is_ok()
    };
    places.step_by(usize::from(count)).find(free).context("no free ports in a row")
}

/// Any process that does not outlive the test.
pub struct Daemon(std::process::Child);

impl Daemon {
    /// Starts a program that says nothing on stdout; its log goes where the test's does.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start(program: &Path, arguments: &[&str]) -> anyhow::Result<Self> {
        let quiet = Stdio::null;
        let started = Command::new(program).args(arguments).stdin(quiet()).stdout(quiet()).spawn();
        Ok(Self(started.with_context(|| program.display().to_string())?))
    }

    /// SIGKILL: no chance to tidy up.
    ///
    /// # Errors
    /// It cannot be waited for.
    pub fn kill(mut self) -> anyhow::Result<()> {
        self.0.kill()?;
        self.0.wait()?;
        Ok(())
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A running `fleet`. Killed when dropped.
pub struct FleetProcess {
    child: Child,
    output: Arc<Mutex<String>>,
    ready: watch::Receiver<bool>,
}

impl FleetProcess {
    /// `fleet up --data-dir DIR --port PORT` and these arguments, up to the line `ready`.
    ///
    /// # Errors
    /// It ends before, or does not get there in time; shows what it said.
    pub async fn up(data_dir: &Path, port: u16, arguments: &[&str]) -> anyhow::Result<Self> {
        let mut process = Self::start(data_dir, port, arguments)?;
        process.ready().await?;
        Ok(process)
    }

    /// As [`FleetProcess::up`], without waiting.
    ///
    /// # Errors
    /// The binary is not there.
    pub fn start(data_dir: &Path, port: u16, arguments: &[&str]) -> anyhow::Result<Self> {
        let binary = fleet_binary()?;
        let mut child = tokio::process::Command::new(&binary)
            .args(["up", "--data-dir"])
            .arg(data_dir)
            .args(["--port", &port.to_string()])
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .with_context(|| binary.display().to_string())?;
        let output = Arc::default();
        let (sender, ready) = watch::channel(false);
        let sender = Arc::new(sender);
        if let Some(stdout) = child.stdout.take() {
            collect(stdout, Arc::clone(&output), Arc::clone(&sender));
        }
        if let Some(stderr) = child.stderr.take() {
            collect(stderr, Arc::clone(&output), sender);
        }
        Ok(Self { child, output, ready })
    }

    /// Waits for the line `ready`.
    ///
    /// # Errors
    /// It ends before, or does not get there in time; shows what it said.
    pub async fn ready(&mut self) -> anyhow::Result<()> {
        let waited = tokio::time::timeout(READY_WITHIN, self.ready.wait_for(|ready| *ready)).await;
        let seen = waited.map(|waited| waited.is_ok());
        match seen {
            Ok(true) => Ok(()),
            Ok(false) => {
                let ended = self.wait().await?;
                bail!("fleet up ended before it was ready, with {ended:?}:\n{}", self.output())
            }
            Err(_) => bail!("fleet up was not ready after {READY_WITHIN:?}:\n{}", self.output()),
        }
    }

    /// What it has said so far, on stdout and stderr.
    pub fn output(&self) -> String {
        self.output.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// SIGKILL.
    ///
    /// # Errors
    /// It cannot be waited for.
    pub async fn kill(mut self) -> anyhow::Result<()> {
        self.child.kill().await.context("fleet up cannot be killed")
    }

    /// Ctrl-C, and waits for the end; returns the exit status.
    ///
    /// # Errors
    /// It does not end in time.
    pub async fn interrupt(mut self) -> anyhow::Result<Option<i32>> {
        let id = self.child.id().context("fleet up has ended by itself")?;
        let sent = Command::new("kill").args(["-INT", &id.to_string()]).status()?;
        anyhow::ensure!(sent.success(), "kill -INT {id} ended with {sent}");
        self.wait().await
    }

    /// Waits until it ends by itself; returns the exit status.
    ///
    /// # Errors
    /// It does not end in time.
    pub async fn wait(&mut self) -> anyhow::Result<Option<i32>> {
        let ended = tokio::time::timeout(ENDS_WITHIN, self.child.wait()).await;
        let ended = ended.with_context(|| format!("fleet up did not end:\n{}", self.output()))??;
        // Its last words are read when both ends of its output are closed.
        let _ = tokio::time::timeout(ENDS_WITHIN, self.ready.wait_for(|_| false)).await;
        Ok(ended.code())
    }
}

fn collect(
    from: impl AsyncRead + Unpin + Send + 'static,
    output: Arc<Mutex<String>>,
    ready: Arc<watch::Sender<bool>>,
) {
    tokio::spawn(async move {
        let mut lines = BufReader::new(from).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            let mut output = output.lock().unwrap_or_else(PoisonError::into_inner);
            output.push_str(&line);
            output.push('\n');
            if line.trim() == "ready" {
                let _ = ready.send(true);
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_binary_is_looked_for_where_cargo_puts_it() {
        let check = |test: &str, expected: &str| {
            assert_eq!(profile_folder(Path::new(test)), Some(Path::new(expected)), "{test}");
        };
        check("/r/target/debug/deps/jobs-01", "/r/target/debug");
        check("/r/target/release/deps/jobs-01", "/r/target/release");
        check("/r/target/release/jobs", "/r/target/release");
    }
}
