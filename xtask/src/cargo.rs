//! Starts cargo, the one that started this program.

use std::process::Command;

use anyhow::{Context, bail};

pub fn path() -> String {
    std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_string())
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
    let status = Command::new(path())
        .args(arguments)
        .envs(variables.iter().copied())
        .status()
        .with_context(|| format!("cargo {} could not be started", arguments.join(" ")))?;
    if !status.success() {
        bail!("cargo {} failed ({status})", arguments.join(" "));
    }
    Ok(())
}
