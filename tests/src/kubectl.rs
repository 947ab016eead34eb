//! The real kubectl, and the `fleet` binary, as a person at a shell runs them.

use std::{
    ffi::OsString,
    fmt,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use anyhow::{Context, bail};
use tempfile::TempDir;
use tokio::process::Command;

use crate::{
    table::Table,
    wait::{Polled, wait_for},
};

/// Names a kubectl other than the one on PATH.
const KUBECTL: &str = "FLEET_KUBECTL";
/// A command that takes longer hangs.
const COMMAND_WITHIN: Duration = Duration::from_secs(60);

/// A shell with a KUBECONFIG and a PATH, and a home of its own: kubectl keeps what it has discovered there,
/// by host and port, and ports are used again.
pub struct Shell {
    kubeconfig: PathBuf,
    path: OsString,
    home: TempDir,
}

/// What a command said.
#[derive(Clone, Debug)]
pub struct Said {
    pub command: String,
    pub stdout: String,
    pub stderr: String,
    /// `None` when a signal ended it.
    pub code: Option<i32>,
}

impl Said {
    pub fn succeeded(&self) -> bool {
        self.code == Some(0)
    }

    /// The printed table.
    pub fn table(&self) -> Table {
        Table::parse(&self.stdout)
    }
}

impl fmt::Display for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let code = self.code.map_or("a signal".to_string(), |code| code.to_string());
        write!(f, "$ {}\n{}{}(ended with {code})", self.command, self.stdout, self.stderr)
    }
}

impl Shell {
    /// A shell whose PATH begins with `bin`.
    ///
    /// # Errors
    /// No folder for its home.
    pub fn new(kubeconfig: &Path, bin: &Path) -> anyhow::Result<Self> {
        let mut path = OsString::from(bin);
        if let Some(inherited) = std::env::var_os("PATH") {
            path.push(":");
            path.push(inherited);
        }
        let home = tempfile::Builder::new().prefix("fleet-home-").tempdir()?;
        Ok(Self { kubeconfig: kubeconfig.to_path_buf(), path, home })
    }

    /// Runs a command to its end.
    ///
    /// # Errors
    /// It does not start, or hangs. That it fails is no error here.
    pub async fn run(&self, program: &Path, arguments: &[&str]) -> anyhow::Result<Said> {
        let name = program.file_name().unwrap_or_default().to_string_lossy();
        let command = format!("{name} {}", arguments.join(" "));
        let child = Command::new(program)
            .args(arguments)
            .env("KUBECONFIG", &self.kubeconfig)
            .env("PATH", &self.path)
            .env("HOME", self.home.path())
            .env_remove("FLEET_HOME")
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output();
        let output = tokio::time::timeout(COMMAND_WITHIN, child).await;
        let output = output.with_context(|| format!("{command} hangs"))?.with_context(|| command.clone())?;
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Ok(Said {
            command,
            stdout: text(output.stdout),
            stderr: text(output.stderr),
            code: output.status.code(),
        })
    }
}

/// kubectl in a shell.
pub struct Kubectl {
    program: PathBuf,
    shell: Shell,
}

impl Kubectl {
    /// The kubectl of `FLEET_KUBECTL`, else of PATH; `None` where there is none, so that the tests also pass
    /// on a machine with nothing but Rust.
    pub fn find() -> Option<PathBuf> {
        if let Some(named) = std::env::var_os(KUBECTL).filter(|named| !named.is_empty()) {
            return Some(PathBuf::from(named));
        }
        let path = std::env::var_os("PATH")?;
        std::env::split_paths(&path).map(|folder| folder.join("kubectl")).find(|file| file.is_file())
    }

    pub fn new(program: PathBuf, shell: Shell) -> Self {
        Self { program, shell }
    }

    /// `kubectl WORD..`, the words parted by spaces.
    ///
    /// # Errors
    /// It does not start, or hangs.
    pub async fn run(&self, line: &str) -> anyhow::Result<Said> {
        let words: Vec<&str> = line.split_whitespace().collect();
        self.shell.run(&self.program, &words).await
    }

    /// As [`Kubectl::run`], and it must succeed.
    ///
    /// # Errors
    /// It fails; shows what it said.
    pub async fn ok(&self, line: &str) -> anyhow::Result<Said> {
        let said = self.run(line).await?;
        if !said.succeeded() {
            bail!("{said}");
        }
        Ok(said)
    }

    /// The table of a command that must succeed.
    ///
    /// # Errors
    /// It fails.
    pub async fn table(&self, line: &str) -> anyhow::Result<Table> {
        Ok(self.ok(line).await?.table())
    }

    /// Repeats a command until what it says is right; returns what it said then.
    ///
    /// # Errors
    /// It fails, or never says it within the bound.
    pub async fn until(
        &self,
        line: &str,
        within: Duration,
        right: impl Fn(&Said) -> bool,
    ) -> anyhow::Result<Said> {
        wait_for(&format!("`kubectl {line}` to say the right thing"), within, async || {
            let said = self.ok(line).await?;
            Ok(if right(&said) { Polled::Yes(said) } else { Polled::NotYet(said.to_string()) })
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_shell_has_its_own_home_and_config() {
        let shell = Shell::new(Path::new("/k"), Path::new("/b")).expect("a shell");
        let script = "echo $KUBECONFIG; echo ${PATH%%:*}; ls -A $HOME; exit 3";
        let said = shell.run(Path::new("/bin/sh"), &["-c", script]).await.expect("runs");
        assert_eq!((said.stdout.as_str(), said.code), ("/k\n/b\n", Some(3)));
    }
}
