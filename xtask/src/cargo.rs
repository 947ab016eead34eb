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
    eprintln!("$ cargo {}", arguments.join(" "));
    let status = Command::new(path())
        .args(arguments)
        .status()
        .with_context(|| format!("cargo {} could not be started", arguments.join(" ")))?;
    if !status.success() {
        bail!("cargo {} failed ({status})", arguments.join(" "));
    }
    Ok(())
}
