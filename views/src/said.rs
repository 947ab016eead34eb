//! What a waiting job is told, with the numbers of now. The controller writes the sentence when the reason changes;
//! numbers beside it move on. Deliberately absent: other reasons than the job's own.

use std::collections::BTreeMap;

use fleet_policies::reason::Reason;
use fleet_resources::quantity;

use crate::{amounts, facts::QuotaFacts};

/// The sentence as it is true now: what the quota tree says of use, and nothing of what each cluster lacked then, if
/// the viewer sees the clusters as they are now.
pub fn said_now(reason: &str, message: &str, root: Option<&QuotaFacts>, sees_clusters: bool) -> String {
    let fresh = match Reason::from_text(reason) {
        Some(Reason::NoClusterFits) if sees_clusters => {
            message.split_once(": ").map(|(head, _)| head.to_owned())
        }
        Some(
            Reason::InsufficientQuota
            | Reason::InsufficientQuotaInParent
            | Reason::MaxJobs
            | Reason::ExceedsQuota,
        ) => root.and_then(|root| quota_now(message, root)),
        _ => None,
    };
    fresh.unwrap_or_else(|| message.to_owned())
}

/// `Insufficient quota(RESOURCE) in quota PATH: request R, max M, used U[, unqueued N]; ADVICE`, as the controller
/// writes it, with the tree's max and use. `None` if the tree has no such node, or knows no bound there any more.
fn quota_now(message: &str, root: &QuotaFacts) -> Option<String> {
    let (resource, rest) = message.strip_prefix("Insufficient quota(")?.split_once(") in ")?;
    let (place, rest) = rest.split_once(": request ")?;
    let path = place.strip_prefix("parent ").unwrap_or(place).strip_prefix("quota ")?;
    let (request, rest) = rest.split_once(", max ")?;
    let (_, advice) = rest.split_once("; ")?;
    let name = if resource == "jobs" { amounts::JOBS } else { resource };
    let node = find(root, "root", path)?;
    let amount = |of: &BTreeMap<String, i64>| of.get(name).copied().unwrap_or(0);
    let shown = |value: i64| quantity::format(name, value);
    let max = node.max.get(name)?;
    let (used, unqueued) = (amount(&node.used), amount(&node.unqueued));
    let beside = if unqueued > 0 { format!(", unqueued {}", shown(unqueued)) } else { String::new() };
    Some(format!(
        "Insufficient quota({resource}) in {place}: request {request}, max {}, used {}{beside}; {advice}",
        shown(*max),
        shown(used)
    ))
}

/// The node at `path`, among the node at `own` and those below it.
fn find<'f>(node: &'f QuotaFacts, own: &str, path: &str) -> Option<&'f QuotaFacts> {
    if own == path {
        return Some(node);
    }
    node.children.iter().find_map(|child| find(child, &format!("{own}/{}", child.name), path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::amounts::GPU;

    #[test]
    fn numbers_are_those_of_the_tree_now() {
        let gpus = |amount: i64| BTreeMap::from([(GPU.to_owned(), amount)]);
        let team = QuotaFacts { name: "team".into(), max: gpus(96), used: gpus(93), ..QuotaFacts::default() };
        let root = QuotaFacts { name: "company".into(), children: vec![team], ..QuotaFacts::default() };
        let check = |reason: &str, message: &str, expected: &str| {
            assert_eq!(said_now(reason, message, Some(&root), true), expected);
        };
        let of = |used: &str| {
            format!(
                "Insufficient quota({GPU}) in parent quota root/team: request 16, max 96, used {used}; \
                 wait for running jobs to complete"
            )
        };
        check("InsufficientQuotaInParent", &of("80"), &of("93"));
        check("InsufficientQuota", &of("80, unqueued 4"), &of("93"));
        check("ExceedsQuota", &of("80"), &of("93"));
        // What the tree does not know stays as it was said.
        let elsewhere = of("80").replace("root/team", "root/gone");
        check("InsufficientQuotaInParent", &elsewhere, &elsewhere);
        check("Backoff", &of("80"), &of("80"));
        let whole = "0 of 2 clusters can hold the whole job now: east: 1 of 2 pods fits; north: not ready";
        check("NoClusterFits", whole, "0 of 2 clusters can hold the whole job now");
        // Who may not list clusters has no other way to know what they lack.
        assert_eq!(said_now("NoClusterFits", whole, Some(&root), false), whole);
    }
}
