//! `fleet plugins`: symbolic links with which kubectl finds this program and its completions, and under which
//! it is Volcano's `vcctl`.

use std::{fs, io::ErrorKind, os::unix::fs::symlink, path::Path};

use anyhow::Context;
use fleet_cli_ground::answer::Answer;

use crate::{args::PluginsArgs, names};

/// Names under which this program also runs.
pub const PLUGINS: [&str; 6] = [
    names::OWN_NAME,
    "kubectl-fleet",
    "kubectl-amc",
    "kubectl_complete-fleet",
    "kubectl_complete-amc",
    names::VCCTL,
];

pub fn run(args: &PluginsArgs) -> anyhow::Result<Answer> {
    let mut text = String::new();
    for name in PLUGINS {
        link(&args.directory, name)?;
        text.push_str(&format!("{}\n", args.directory.join(name).display()));
    }
    Ok(Answer::text(text))
}

/// Makes `directory/name` a link to this program; replaces a link, never a file.
///
/// # Errors
/// The link cannot be created.
pub fn link(directory: &Path, name: &str) -> anyhow::Result<()> {
    let own = std::env::current_exe().context("this program's own path is unknown")?;
    fs::create_dir_all(directory).with_context(|| format!("directory {}", directory.display()))?;
    let link = directory.join(name);
    match fs::symlink_metadata(&link) {
        Ok(found) if found.is_symlink() => {
            if fs::read_link(&link).is_ok_and(|target| target == own) {
                return Ok(());
            }
            fs::remove_file(&link).with_context(|| format!("link {}", link.display()))?;
        }
        // `cargo install` has put the program itself there.
        Ok(_) if fs::canonicalize(&link).is_ok_and(|found| found == own) => return Ok(()),
        Ok(_) => anyhow::bail!("{}: found a file that is not a link; it was not changed", link.display()),
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(error).with_context(|| format!("link {}", link.display())),
    }
    symlink(&own, &link).with_context(|| format!("link {}", link.display()))
}
