//! `fleet audit`: checks the live objects of the hub and its members, or a recorded run log, against the
//! invariants.
//!
//! Lists of several servers never show the same moment. So a violation is checked again after a pause, and
//! only a violation that every check finds is reported.

use std::{collections::BTreeMap, path::Path, time::Duration};

use anyhow::Context;
use fleet_check::{Snapshot, Violation, check_at_rest, check_run_log, unattended};
use fleet_cli_ground::{
    answer::Answer,
    args::Targets,
    connect::Hub,
    members::{self, Unreached},
    output,
    server::{MEMBER_PATIENCE, innermost},
};
use jiff::Timestamp;
use kube::Client;
use serde_json::{Value, json};

use crate::args::AuditArgs;
use fleet_console::progress::Progress;

/// Checks that must find a violation before it is reported.
const LOOKS: usize = 3;
const PAUSE: Duration = Duration::from_secs(2);

pub async fn run(hub: &Hub, args: &AuditArgs) -> anyhow::Result<Answer> {
    let progress = Progress::start("asking the hub and its members");
    let targets = Targets { all_clusters: true, clusters: Vec::new() };
    let (mut clients, mut away): (BTreeMap<String, Client>, Vec<Unreached>) = Default::default();
    if !args.hub_only {
        for reached in members::reach(hub, &targets).await? {
            match reached {
                Ok(server) => {
                    clients.insert(server.name.clone(), server.client.clone());
                }
                Err(unreached) => away.push(unreached),
            }
        }
    }
    let mut found = look(hub, &clients, &mut away).await?;
    for _ in 1..LOOKS {
        if found.is_empty() {
            break;
        }
        tokio::time::sleep(PAUSE).await;
        let again = look(hub, &clients, &mut away).await?;
        found = still(&found, again);
    }
    drop(progress);
    answer(args, &found, clients.len(), &away)
}

/// Checks a recorded run log.
///
/// # Errors
/// The file cannot be read, or is no run log.
pub fn run_log(file: &Path, args: &AuditArgs) -> anyhow::Result<Answer> {
    let text = std::fs::read_to_string(file).with_context(|| file.display().to_string())?;
    let found =
        check_run_log(&text).map_err(|(line, what)| anyhow::anyhow!("{}:{line}: {what}", file.display()))?;
    let mut answer = Answer::default();
    if let Some(text) = data(args, &json!({"items": found}))? {
        answer.text = text;
    } else if found.is_empty() {
        answer.text = format!("No violations in {} lines.\n", text.lines().count());
    } else {
        answer.text = found.iter().map(|violation| format!("{violation}\n")).collect();
    }
    answer.failed = !found.is_empty();
    Ok(answer)
}

fn data(args: &AuditArgs, value: &Value) -> anyhow::Result<Option<String>> {
    output::data(args.shown.output.as_ref(), value, ("", ".what"))
}

/// Violations that were also found before. Violations of the same object are the same even if amounts differ.
fn still(before: &[Violation], now: Vec<Violation>) -> Vec<Violation> {
    let subject = |violation: &Violation| -> (u8, String) {
        let (object, _) = violation.what.split_once(": ").unwrap_or((&violation.what, ""));
        (violation.invariant, object.to_string())
    };
    now.into_iter()
        .filter(|violation| before.iter().any(|known| subject(known) == subject(violation)))
        .collect()
}

/// One check. A member that does not answer is left out of it and of all later ones.
async fn look(
    hub: &Hub,
    clients: &BTreeMap<String, Client>,
    away: &mut Vec<Unreached>,
) -> anyhow::Result<Vec<Violation>> {
    let mut asked = clients.clone();
    asked.retain(|name, _| !away.iter().any(|unreached| unreached.cluster == *name));
    let mut silent = Vec::new();
    for (name, client) in &asked {
        let answered = tokio::time::timeout(MEMBER_PATIENCE, client.apiserver_version()).await;
        let why = match answered {
            Ok(Ok(_)) => continue,
            Ok(Err(error)) => innermost(&error),
            Err(_) => format!("no answer within {} s", MEMBER_PATIENCE.as_secs()),
        };
        silent.push(Unreached { cluster: name.clone(), why });
    }
    asked.retain(|name, _| !silent.iter().any(|unreached| unreached.cluster == *name));
    away.extend(silent);
    let snapshot = Snapshot::take(&hub.server.client, &asked).await?;
    let mut found = check_at_rest(&snapshot);
    found.extend(unattended(&snapshot, Timestamp::now()));
    Ok(found)
}

fn answer(
    args: &AuditArgs,
    found: &[Violation],
    members: usize,
    away: &[Unreached],
) -> anyhow::Result<Answer> {
    let mut answer = Answer::default();
    let unreached: Vec<_> = away.iter().map(|one| json!({"cluster": one.cluster, "why": one.why})).collect();
    if let Some(text) = data(args, &json!({"members": members, "items": found, "unreached": unreached}))? {
        answer.text = text;
    } else {
        for violation in found {
            answer.text.push_str(&format!("{violation}\n"));
        }
        if found.is_empty() {
            answer.text =
                format!("No violations on the hub and in {} members.\n", members - away.len().min(members));
        }
    }
    for unreached in away {
        answer.fail(format!("cluster {} was not checked: {}", unreached.cluster, unreached.why));
    }
    answer.failed |= !found.is_empty();
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn violation(invariant: u8, what: &str) -> Violation {
        Violation { invariant, what: what.to_string() }
    }

    #[test]
    fn what_is_broken_in_each_look_is_told_as_it_is_now() {
        let before = [
            violation(3, "quota root/a: cpu 5000 used, max 4000"),
            violation(2, "gang of a in east: 1 of 2"),
        ];
        let now = vec![
            violation(3, "quota root/a: cpu 6000 used, max 4000"),
            violation(3, "quota root/b: cpu 1 used, max 0"),
        ];
        assert_eq!(still(&before, now), [violation(3, "quota root/a: cpu 6000 used, max 4000")]);
        assert_eq!(still(&before, vec![violation(5, "quota root/a: x")]), []);
    }
}
