//! What a job that is not there yet would wait for in its queue. Deliberately absent: when it would start.

use std::collections::BTreeMap;

use crate::{
    amounts,
    facts::QuotaFacts,
    known::Known,
    paths::ROOT,
    queues::{QueueRow, queues},
    sight::Sight,
};

/// Sentences on the queue of a job with these requests. `queue`: as the job names it, its path or its last name; empty:
/// that of its namespace. Nothing of a queue that the viewer may not see, or that is not there.
pub fn outlook(
    known: &Known,
    sight: &Sight,
    queue: &str,
    namespace: &str,
    requests: &BTreeMap<String, i64>,
) -> Vec<String> {
    let rows = queues(known, sight).rows;
    let is_its = |row: &&QueueRow| {
        row.is_leaf
            && match queue {
                "" => row.namespaces.iter().any(|of| of == namespace),
                named => row.path == named || row.name == named,
            }
    };
    let (Some(leaf), Some(root)) = (rows.iter().find(is_its), &known.tree().root) else { return Vec::new() };
    let mut said = vec![match leaf.waiting {
        0 => format!("It would go to queue {}, where nobody waits.", leaf.path),
        1 => format!("It would go to queue {}, where 1 job waits.", leaf.path),
        many => format!("It would go to queue {}, where {many} jobs wait.", leaf.path),
    }];
    let mut at = Some((root, ROOT.to_owned()));
    while let Some((node, path)) = at {
        said.extend(shortage(node, &path, requests));
        let below = |child: &&QuotaFacts| {
            let rest = leaf.path.strip_prefix(&format!("{path}/{}", child.name));
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        at = node.children.iter().find(below).map(|child| (child, format!("{path}/{}", child.name)));
    }
    said
}

/// What of a node's max is not left for the job.
fn shortage(node: &QuotaFacts, path: &str, requests: &BTreeMap<String, i64>) -> Vec<String> {
    let one_job = (amounts::JOBS.to_owned(), 1);
    let asked = requests.iter().map(|(name, amount)| (name, *amount)).chain([(&one_job.0, one_job.1)]);
    let limits = asked.filter_map(|(name, asked)| {
        let max = node.max.get(name).copied().filter(|max| !amounts::is_unlimited(name, *max))?;
        let used = node.used.get(name).copied().unwrap_or(0);
        let (asks, bound) = match name.as_str() {
            amounts::JOBS => ("it is one job more".to_owned(), format!("{max} jobs")),
            name => {
                let label = amounts::label(name);
                (format!("it asks for {} {label}", amounts::short(name, asked)), format!("{} {label}", amounts::short(name, max)))
            }
        };
        if asked > max {
            return Some(format!("It would never start: {asks}, and {path} has at most {bound}."));
        }
        let used = Some(used).filter(|used| used + asked > max).map(|used| amounts::short(name, used))?;
        Some(format!(
            "It would wait until jobs of {path} end, or are preempted for it: {asks}, and {used} of {bound} are used."
        ))
    });
    limits.collect()
}
