//! A line as a sentence.

use super::line::{Event, Line};
use crate::facts::VirtualClusterFacts;

/// One sentence about what happened, for people.
pub fn story(line: &Line) -> String {
    let with = |text: String, more: &str| if more.is_empty() { text } else { format!("{text}: {more}") };
    let what = match &line.event {
        Event::Recording { .. } => "the recording begins".to_owned(),
        Event::Cluster { cluster, facts: Some(facts) } => {
            let state = if facts.ready == Some(true) { "ready" } else { "not ready" };
            format!("cluster {cluster}: {state}, {} of {} nodes ready", facts.nodes_ready, facts.nodes)
        }
        Event::Cluster { cluster, facts: None } => format!("cluster {cluster} has left"),
        Event::VirtualCluster { virtual_cluster, facts: Some(facts) } => {
            let VirtualClusterFacts { used, guaranteed, waiting, running, .. } = &**facts;
            format!(
                "virtual cluster {virtual_cluster}: {used} of {guaranteed} cells used, {waiting} waiting, {running} running"
            )
        }
        Event::VirtualCluster { virtual_cluster, facts: None } => {
            format!("virtual cluster {virtual_cluster} is no longer in force")
        }
        Event::Tree { root: Some(root), .. } => format!("the quota tree {} is in force", root.name),
        Event::Tree { root: None, .. } => "no quota tree is in force".to_owned(),
        Event::Known { .. } => "is known".to_owned(),
        Event::Submitted(job) => {
            format!("submitted: {}, {} GPUs, priority {}", job.kind, job.gpus, job.priority)
        }
        Event::Rejected { reason, message } => with(format!("rejected, {reason}"), message),
        Event::Queued { queue, .. } if queue.is_empty() => "queued".to_owned(),
        Event::Queued { queue, .. } => format!("queued in {queue}"),
        Event::Pending { reason, message, .. } => with(format!("waits, {reason}"), message),
        Event::Admitted { queue } if queue.is_empty() => "admitted".to_owned(),
        Event::Admitted { queue } => format!("admitted by {queue}"),
        Event::Reserved { cluster } => format!("has its nodes reserved in {cluster}"),
        Event::ReservationRefused { cluster, message } => with(format!("refused by {cluster}"), message),
        Event::Bound { cluster, epoch } => format!("bound to {cluster}, run {epoch}"),
        Event::Started { cluster, epoch, .. } => format!("run {epoch} starts in {cluster}"),
        Event::Preempted { cluster, by, reason, message, .. } => match message.as_str() {
            "" => format!("preempted in {cluster} for {by} ({reason})"),
            message => format!("preempted in {cluster}: {message}"),
        },
        Event::Evicted { cluster, reason, message, .. } => {
            with(format!("evicted from {cluster}, {reason}"), message)
        }
        Event::Fenced { cluster, .. } => format!("stopped by {cluster} itself"),
        Event::Requeued { queue, reason } => with(
            if queue.is_empty() { "queued again".to_owned() } else { format!("queued again in {queue}") },
            reason,
        ),
        Event::Finished { cluster, result, reason, .. } => {
            with(format!("{} in {cluster}", result.to_lowercase()), reason.as_deref().unwrap_or(""))
        }
        Event::Deleted {} => "deleted".to_owned(),
        Event::Violation { invariant, what } => format!("invariant {invariant} broke: {what}"),
    };
    match &line.id {
        Some((namespace, name)) => format!("{namespace}/{name} {what}"),
        None => what,
    }
}
