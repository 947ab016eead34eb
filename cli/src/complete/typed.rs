//! What the last typed word may be, from the words before it and the commands' own arguments, without a hub.

use clap::{Arg, Command, CommandFactory};

use crate::args::Cli;

const FORMATS: [&str; 6] = ["json", "yaml", "wide", "name", "jsonpath=", "custom-columns="];
const JOBS: &str = "jobs.batch.volcano.sh";
const QUEUES: &str = "queues.scheduling.volcano.sh";
const FLOWS: &str = "jobflows.flow.volcano.sh";
const TEMPLATES: &str = "jobtemplates.flow.volcano.sh";

/// What the last word may be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// One of these: commands, flags, values of a flag.
    Words(Vec<String>),
    Kinds,
    /// Kinds, and jobs by their names.
    KindsAndJobs,
    /// Names of a kind, by the word the user typed.
    Names(String, Form),
    /// Objects that a policy governs.
    Jobs,
    PaiJobs,
    Clusters,
    VirtualClusters,
    Namespaces,
    Contexts,
    Files,
    Nothing,
}

/// How a name is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    Name,
    /// KIND/NAME
    WithKind,
}

impl Form {
    pub fn write(self, kind: &str, name: String) -> String {
        match self {
            Self::Name => name,
            Self::WithKind => format!("{kind}/{name}"),
        }
    }
}

/// Where the last word stands.
struct Position<'c> {
    /// The command and those above it, outermost first.
    commands: Vec<&'c Command>,
    /// `queue get`.
    path: String,
    /// The command's words so far, without flags.
    words: Vec<&'c str>,
    /// Whose value the last word is.
    flag: Option<&'c Arg>,
}

pub fn wanted(words: &[String]) -> Wanted {
    let Some((last, before)) = words.split_last() else { return Wanted::Nothing };
    let root = Cli::command();
    let position = position(&root, before);
    if let Some(flag) = position.flag {
        return of_flag(&position.path, flag);
    }
    let flags = || position.commands.iter().flat_map(|command| command.get_arguments());
    if last.starts_with('-') {
        let long = flags().filter(|arg| !arg.is_hide_set()).filter_map(Arg::get_long);
        return Wanted::Words(long.map(|flag| format!("--{flag}")).collect());
    }
    let command = position.commands.last().copied().unwrap_or(&root);
    let below: Vec<String> =
        command.get_subcommands().filter(|sub| !sub.is_hide_set()).map(|sub| sub.get_name().into()).collect();
    if !below.is_empty() && position.words.is_empty() {
        return Wanted::Words(below);
    }
    let joins_again = before.iter().any(|word| word == "--confirm");
    let named = (position.path.as_str(), position.words.as_slice());
    match named {
        ("get" | "describe" | "explain", _) if last.contains('/') => {
            Wanted::Names(last.split('/').next().unwrap_or_default().to_string(), Form::WithKind)
        }
        ("get" | "describe" | "explain", [kind, ..]) => Wanted::Names((*kind).to_string(), Form::Name),
        ("get" | "describe", []) => Wanted::Kinds,
        ("explain", []) => Wanted::KindsAndJobs,
        ("join", []) if !joins_again => Wanted::Nothing,
        ("cordon" | "uncordon" | "drain" | "unjoin" | "status", _) | ("join", []) => Wanted::Clusters,
        ("vc get", _) => Wanted::VirtualClusters,
        ("vc explain", []) => Wanted::Jobs,
        ("pai stop" | "pai start", _) => Wanted::PaiJobs,
        ("pai get" | "pai logs" | "pai events" | "pai config", []) => Wanted::PaiJobs,
        (_, words) => command.get_positionals().nth(words.len()).map_or(Wanted::Nothing, of_itself),
    }
}

/// What follows a flag.
fn of_flag(path: &str, flag: &Arg) -> Wanted {
    let names = |kind: &str| Wanted::Names(kind.to_string(), Form::Name);
    match (path, flag.get_id().as_str()) {
        (_, "namespace") => Wanted::Namespaces,
        (_, "context") => Wanted::Contexts,
        (_, "clusters") => Wanted::Clusters,
        (_, "vc") => Wanted::VirtualClusters,
        (_, "output") if flag.get_possible_values().is_empty() => {
            Wanted::Words(FORMATS.map(str::to_string).to_vec())
        }
        ("queue get" | "queue operate" | "queue delete", "name") => names(QUEUES),
        ("job list" | "podgroup list", "queue") => names(QUEUES),
        ("job view" | "job suspend" | "job resume" | "job delete", "name") => names(JOBS),
        ("jobflow get" | "jobflow describe" | "jobflow delete", "name") => names(FLOWS),
        ("jobtemplate get" | "jobtemplate describe" | "jobtemplate delete", "name") => names(TEMPLATES),
        _ => of_itself(flag),
    }
}

/// Values that the argument itself lists, or files.
fn of_itself(argument: &Arg) -> Wanted {
    let values = argument.get_possible_values();
    let is = |words: &[&str]| {
        argument.get_value_names().into_iter().flatten().any(|name| words.contains(&name.as_str()))
    };
    match values.is_empty() {
        false => Wanted::Words(values.iter().map(|value| value.get_name().to_string()).collect()),
        true if is(&["FILE", "DIR", "DIRECTORY", "OUT"]) => Wanted::Files,
        true => Wanted::Nothing,
    }
}

fn position<'c>(root: &'c Command, before: &'c [String]) -> Position<'c> {
    let mut found = Position { commands: vec![root], path: String::new(), words: Vec::new(), flag: None };
    for word in before {
        if found.flag.take().is_some() {
            continue;
        }
        if word.starts_with('-') {
            let mut arguments = found.commands.iter().copied().flat_map(Command::get_arguments);
            let flag = arguments.find(|arg| is_named(arg, word));
            found.flag = flag.filter(|flag| flag.get_action().takes_values());
            continue;
        }
        let below = found.commands.last().copied().and_then(|command| command.find_subcommand(word));
        match below.filter(|_| found.words.is_empty()) {
            Some(below) => {
                found.path = format!("{} {}", found.path, below.get_name()).trim().to_string();
                found.commands.push(below);
            }
            None => found.words.push(word),
        }
    }
    found
}

fn is_named(argument: &Arg, word: &str) -> bool {
    match word.strip_prefix("--") {
        Some(long) => argument.get_long() == Some(long),
        None => {
            let short = argument.get_short();
            short.is_some_and(|short| word.strip_prefix('-').is_some_and(|rest| rest.chars().eq([short])))
        }
    }
}

/// The value that was typed for a flag.
pub fn value_of(words: &[String], flag: &str) -> Option<String> {
    let root = Cli::command();
    (1..words.len()).find_map(|at| {
        let given = position(&root, &words[..at]).flag.filter(|given| given.get_id() == flag)?;
        given.get_action().takes_values().then(|| words[at].clone())
    })
}

#[cfg(test)]
mod tests;
