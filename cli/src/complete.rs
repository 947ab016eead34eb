//! Completion for `kubectl fleet`: kubectl runs `kubectl_complete-fleet` with the typed words and reads one
//! word per line, then a line with a directive for the shell.
//!
//! Names come from the hub. A hub that does not answer completes nothing.

use std::time::Duration;

use clap::CommandFactory;
use serde_json::Value;

use crate::{
    args::{Cli, Connect},
    connect::Hub,
    discovery, members,
    server::Selectors,
};

/// kubectl runs the plugin `NAME`'s completion under this name.
pub const PREFIX: &str = "kubectl_complete-";
/// The shell adds no names of files.
const NO_FILES: &str = ":4";
/// A user waits at the prompt.
const PATIENCE: Duration = Duration::from_secs(2);
const FORMATS: [&str; 6] = ["json", "yaml", "wide", "name", "jsonpath=", "custom-columns="];

/// What the last word may be.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Wanted {
    Commands,
    Flags(String),
    Kinds,
    /// Names of a kind, by the word the user typed; `true`: as KIND/NAME.
    Names(String, bool),
    Clusters,
    Namespaces,
    Formats,
    Nothing,
}

/// The words that complete the last one, and the line for the shell.
pub async fn run(words: &[String]) -> String {
    let last = words.last().map(String::as_str).unwrap_or_default();
    let wanted = wanted(words);
    let asked = tokio::time::timeout(PATIENCE, candidates(&wanted, words)).await;
    let mut found = asked.ok().and_then(Result::ok).unwrap_or_default();
    found.retain(|word| word.starts_with(last));
    found.sort();
    found.dedup();
    found.push(NO_FILES.to_string());
    found.join("\n") + "\n"
}

fn wanted(words: &[String]) -> Wanted {
    let Some((last, before)) = words.split_last() else { return Wanted::Commands };
    let command = before.first().map(String::as_str).unwrap_or_default();
    if command.is_empty() {
        return if last.starts_with('-') { Wanted::Flags(String::new()) } else { Wanted::Commands };
    }
    match before.last().map(String::as_str) {
        Some("-n" | "--namespace") => return Wanted::Namespaces,
        Some("-m" | "--cluster") => return Wanted::Clusters,
        Some("-o" | "--output") => return Wanted::Formats,
        _ if last.starts_with('-') => return Wanted::Flags(command.to_string()),
        _ => {}
    }
    let positional = positional(&before[1..]);
    match (command, positional.as_slice()) {
        ("cordon" | "uncordon" | "drain" | "unjoin", _) => Wanted::Clusters,
        ("get" | "describe" | "explain", _) if last.contains('/') => {
            Wanted::Names(last.split('/').next().unwrap_or_default().to_string(), true)
        }
        ("get" | "describe" | "explain", []) => Wanted::Kinds,
        ("get" | "describe" | "explain", [kind, ..]) => Wanted::Names((*kind).to_string(), false),
        _ => Wanted::Nothing,
    }
}

/// Words that are neither flags nor their values.
fn positional(words: &[String]) -> Vec<&str> {
    const WITH_VALUE: [&str; 12] = [
        "-n",
        "--namespace",
        "-m",
        "--cluster",
        "-o",
        "--output",
        "-l",
        "--selector",
        "--field-selector",
        "--sort-by",
        "--kubeconfig",
        "--context",
    ];
    let mut found = Vec::new();
    let mut skip = false;
    for word in words {
        match word.as_str() {
            _ if skip => skip = false,
            word if WITH_VALUE.contains(&word) => skip = true,
            word if word.starts_with('-') => {}
            word => found.push(word),
        }
    }
    found
}

fn value_of(words: &[String], names: [&str; 2]) -> Option<String> {
    words.windows(2).find(|pair| names.contains(&pair[0].as_str())).map(|pair| pair[1].clone())
}

async fn candidates(wanted: &Wanted, words: &[String]) -> anyhow::Result<Vec<String>> {
    let command = Cli::command();
    match wanted {
        Wanted::Commands => {
            return Ok(command.get_subcommands().map(|sub| sub.get_name().to_string()).collect());
        }
        Wanted::Flags(name) => {
            let own = command.find_subcommand(name).into_iter().flat_map(clap::Command::get_arguments);
            let flags = own.chain(command.get_arguments()).filter_map(clap::Arg::get_long);
            return Ok(flags.map(|flag| format!("--{flag}")).collect());
        }
        Wanted::Formats => return Ok(FORMATS.map(str::to_string).to_vec()),
        Wanted::Nothing => return Ok(Vec::new()),
        Wanted::Kinds | Wanted::Names(..) | Wanted::Clusters | Wanted::Namespaces => {}
    }
    let connect = Connect {
        kubeconfig: value_of(words, ["--kubeconfig", "--kubeconfig"]).map(Into::into),
        context: value_of(words, ["--context", "--context"]),
        ..Connect::default()
    };
    let hub = connect.hub().await?;
    match wanted {
        Wanted::Clusters => {
            let clusters = members::clusters(&hub).await?;
            Ok(clusters.into_iter().filter_map(|cluster| cluster.metadata.name).collect())
        }
        Wanted::Namespaces => names(&hub, "/api/v1/namespaces").await,
        Wanted::Names(word, with_kind) => {
            let kinds = discovery::kinds(&hub.server).await?;
            let Some(kind) = discovery::resolve(&kinds, word).first().copied() else { return Ok(Vec::new()) };
            let namespace = value_of(words, ["-n", "--namespace"]).unwrap_or_else(|| hub.namespace.clone());
            let found = names(&hub, &kind.path(Some(&namespace))).await?;
            Ok(found
                .into_iter()
                .map(|name| if *with_kind { format!("{word}/{name}") } else { name })
                .collect())
        }
        _ => {
            let kinds = discovery::kinds(&hub.server).await?;
            Ok(kinds.into_iter().filter(|kind| kind.listable).map(|kind| kind.plural_group()).collect())
        }
    }
}

async fn names(hub: &Hub, path: &str) -> anyhow::Result<Vec<String>> {
    let listed = hub.server.list(path, &Selectors::default(), "application/json").await?;
    let items: Vec<Value> = listed["items"].as_array().cloned().unwrap_or_default();
    Ok(items.iter().filter_map(|item| item["metadata"]["name"].as_str().map(str::to_string)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_typed_says_what_is_wanted() {
        let check = |typed: &[&str], expected: Wanted| {
            let words: Vec<String> = typed.iter().map(|word| (*word).to_string()).collect();
            assert_eq!(wanted(&words), expected, "{typed:?}");
        };
        check(&[""], Wanted::Commands);
        check(&["ge"], Wanted::Commands);
        check(&["get", ""], Wanted::Kinds);
        check(&["get", "pytorchjob", "a"], Wanted::Names("pytorchjob".into(), false));
        check(&["get", "-n", "team", "pytorchjob", ""], Wanted::Names("pytorchjob".into(), false));
        check(&["explain", "deploy/w"], Wanted::Names("deploy".into(), true));
        check(&["describe", "pod", "x", "-n", ""], Wanted::Namespaces);
        check(&["get", "pod", "-m", "ea"], Wanted::Clusters);
        check(&["drain", ""], Wanted::Clusters);
        check(&["drain", "east", "w"], Wanted::Clusters);
        check(&["get", "--s"], Wanted::Flags("get".into()));
        check(&["get", "pod", "-o", ""], Wanted::Formats);
        check(&["simulate", ""], Wanted::Nothing);
    }
}
