//! Starts cargo, the one that started this program.

use std::process::Command;

use anyhow::{Context, bail};

/// Without what the `cargo run` that started this program says of this program. Build scripts of dependencies look at
/// that: with it the whole workspace would be built anew, and once more without it.
pub fn command() -> Command {
    let mut command = Command::new(std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_string()));
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
            command.env_remove(&name);
        }
    }
    command
}

/// Prints the command and runs it.
///
/// # Errors
/// It cannot be started, or fails.
pub fn run(arguments: &[&str]) -> anyhow::Result<()> {
    run_with(&[], arguments)
}

/// The same with these environment variables.
///
/// # Errors
/// It cannot be started, or fails.
pub fn run_with(variables: &[(&str, &str)], arguments: &[&str]) -> anyhow::Result<()> {
    let set: String = variables.iter().map(|(name, value)| format!("{name}={value} ")).collect();
    eprintln!("$ {set}cargo {}", arguments.join(" "));
    let status = command()
        .args(arguments)
        .envs(variables.iter().copied())
        .status()
        .with_context(|| format!("cargo {} could not be started", arguments.join(" ")))?;
    if !status.success() {
        bail!("cargo {} failed ({status})", arguments.join(" "));
    }
    Ok(())
}
