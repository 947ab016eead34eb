//! Leaves in which nothing that their quota counts may run without having queued (`fleet.dev/require-queue`).

use std::collections::BTreeMap;

use fleet_policies::{reason::Reason, workload};
use fleet_quota_tree::{MAX_JOBS, QuotaTree, REQUIRE_QUEUE};
use serde_json::Value;

use crate::Waiting;

/// Whether a gang of these labels and this namespace waits in its queue, whatever its policy says.
pub fn must_queue(tree: Option<&QuotaTree>, labels: &BTreeMap<String, String>, namespace: &str) -> bool {
    tree.is_some_and(|tree| tree.requiring_queue(labels, namespace).next().is_some())
}

/// Why an object that never queues is not sent: its pods ask for what a leaf bounds in which all must queue. Its replicas do
/// not matter, as they may be raised later. `manifest` is what would be sent.
pub fn barred(
    tree: Option<&QuotaTree>,
    labels: &BTreeMap<String, String>,
    namespace: &str,
    manifest: &Value,
    is_job: bool,
) -> Option<Waiting> {
    let tree = tree?;
    let mut requiring = tree.requiring_queue(labels, namespace).peekable();
    requiring.peek()?;
    let mut asked = match workload::requests_of_any_pods(manifest) {
        Ok(asked) => asked,
        Err(error) => return Some(Waiting::new(Reason::InvalidWorkload, error.to_string())),
    };
    if is_job {
        asked.set(MAX_JOBS, 1);
    }
    let (node, bounded) = requiring.find_map(|node| Some((node, tree.first_bounded(node, &asked)?)))?;
    let (path, kind) = (&node.path, manifest["kind"].as_str().unwrap_or_default());
    let cure = match is_job {
        true => "let its policy place it as a gang (replicaSchedulingType Divided), which queues",
        false => "run it as a job, or leave the request out",
    };
    let message = format!(
        "{path} has {REQUIRE_QUEUE}=true: found {kind} that asks for {bounded}, which {path} limits, and does not queue; \
         {cure}"
    );
    Some(Waiting::new(Reason::NotAdmittedToQueue, message))
}
