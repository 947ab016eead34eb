//! The reference of all commands, generated from the arguments: man pages, and `docs/cli.md`, which a test
//! compares.

use std::{fs, path::Path};

use anyhow::Context;
use clap::CommandFactory;
use fleet_cli_ground::answer::Answer;
use fleet_cli_volcano::args::Vcctl;

use crate::{args, names};

/// Every command's help, as one Markdown page. Options of every command are listed once, at the top.
pub fn reference() -> String {
    let mut page = String::from(
        "# CLI\n\nGenerated from the program; `UPDATE_DOCS=1 cargo test -p fleet reference` writes this page anew. \
         `kubectl fleet` and `kubectl amc` are the same program as `fleet`. Under the name `vcctl` it has the commands \
         of Volcano's command line.\n\nEvery command also takes `-h`, `--help`, and the global options of the program \
         it belongs to: [fleet](#fleet), [vcctl](#vcctl).\n",
    );
    add(&mut page, args::command("fleet"));
    add(&mut page, Vcctl::command());
    page
}

/// Writes `fleet.1`, and a page for each of its commands such as `fleet-get.1`; the names are the answer.
///
/// # Errors
/// A file cannot be written.
pub fn man_pages(directory: &Path) -> anyhow::Result<Answer> {
    let context = || format!("man pages in {}", directory.display());
    fs::create_dir_all(directory).with_context(context)?;
    clap_mangen::generate_to(args::command(names::OWN_NAME), directory).with_context(context)?;
    let mut names = Vec::new();
    for page in fs::read_dir(directory).with_context(context)? {
        names.push(page.with_context(context)?.path().display().to_string());
    }
    names.sort();
    Ok(Answer::text(names.join("\n") + "\n"))
}

fn add(page: &mut String, command: clap::Command) {
    // A fixed width, so that the page does not depend on a terminal.
    let mut command = command.term_width(WIDTH);
    command.build();
    add_one(page, &mut command, true);
}

const WIDTH: usize = 100;

fn add_one(page: &mut String, command: &mut clap::Command, is_top: bool) {
    let name = command.get_bin_name().unwrap_or_else(|| command.get_name()).to_string();
    let help = command.clone().term_width(WIDTH).render_long_help().to_string();
    let help: Vec<&str> = help.lines().map(str::trim_end).collect();
    let help = if is_top { help.join("\n") } else { without_repeated(&help) };
    page.push_str(&format!("\n## {name}\n\n```text\n{}\n```\n", help.trim_end()));
    for sub in command.get_subcommands_mut().filter(|sub| !sub.is_hide_set() && sub.get_name() != "help") {
        add_one(page, sub, false);
    }
}

/// A command's help without the section of global options and without the entry for `--help`.
fn without_repeated(help: &[&str]) -> String {
    let is_heading = |line: &str| line.ends_with(':') && !line.starts_with(' ');
    let mut kept: Vec<&str> = Vec::new();
    let (mut section, mut skipped) = ("", false);
    for line in help {
        if is_heading(line) {
            (section, skipped) = (line, *line == "Global options:");
        } else if section == "Options:" && line.trim_start().starts_with('-') {
            skipped = line.trim_start().starts_with("-h, --help");
        }
        if !skipped {
            kept.push(line);
        }
    }
    // A section whose only entry was `--help`.
    while kept.last().is_some_and(|line| line.is_empty() || *line == "Options:") {
        kept.pop();
    }
    kept.join("\n")
}

#[cfg(test)]
mod tests;
