//! Programs and files that some tests need and not every machine has.
//!
//! Without one of them such a test says so and passes, for whoever works on something else. Where `.ci/run` has installed them
//! all, it fails: a gate that skips is none.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::bail;

/// Set by `.ci/run`.
const REQUIRED: &str = "FLEET_TOOLS";

/// # Errors
/// It has to be there.
pub fn missing(what: &str) -> anyhow::Result<()> {
    let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    if let Some(name) = [REQUIRED, "CI"].into_iter().find(|name| is_set(name)) {
        bail!("{what}; with {name} set a test does not pass without it");
    }
    eprintln!("skipped: {what}");
    Ok(())
}

/// Whether a program of the PATH can be started.
///
/// # Errors
/// It cannot, and has to.
pub fn has_program(program: &str, package: &str) -> anyhow::Result<bool> {
    let started = Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if started.is_err() {
        missing(&format!("{program} is not on the PATH; `apt-get install {package}`"))?;
    }
    Ok(started.is_ok())
}

/// axe-core of npm, which `.ci/run` fetches.
///
/// # Errors
/// It is not there, and has to be.
pub fn axe() -> anyhow::Result<Option<String>> {
    let named = std::env::var_os("FLEET_AXE").filter(|named| !named.is_empty());
    let file = named.map_or_else(
        || crate::repository().join("target/ci/axe/node_modules/axe-core/axe.min.js"),
        |named| Path::new(&named).to_owned(),
    );
    let read = std::fs::read_to_string(&file).ok();
    if read.is_none() {
        missing(&format!("FLEET_AXE does not name axe.min.js, and {} is not there", file.display()))?;
    }
    Ok(read)
}
