//! What events name must be somewhere in the file: a typing error would otherwise be an event without effect.

use std::collections::{BTreeMap, BTreeSet};

use fleet_cells::{Cells, NodeName, PodGroup, Unreported, config::ClusterConfig};

use super::model::{Action, Event};
use crate::scenario::{ScenarioError, fields::Read};

/// Names that an error lists.
const LISTED: usize = 8;

/// Checks the names in events, in file order, against all configurations and submissions of the file.
pub(super) fn check(file: &str, config: &ClusterConfig, events: &[Event]) -> Read<()> {
    let later = events.iter().filter_map(|event| match &event.action {
        Action::Reconfigure(config) => Some(&**config),
        _ => None,
    });
    let configs: Vec<&ClusterConfig> = std::iter::once(config).chain(later).collect();
    let vcs: BTreeSet<String> =
        configs.iter().flat_map(|config| config.virtual_clusters.keys().cloned()).collect();
    let mut nodes: BTreeSet<NodeName> = BTreeSet::new();
    for config in configs {
        // All were read as configurations that hold together.
        if let Ok(cells) = Cells::new(config.clone(), Unreported::Good) {
            nodes.extend(cells.nodes().cloned());
        }
    }
    let (mut groups, mut pods, mut sizes) = (BTreeSet::new(), BTreeSet::new(), BTreeMap::new());
    for event in events {
        match &event.action {
            Action::Groups(jobs) => {
                let first = jobs.first().and_then(|job| job.request.name().strip_suffix("/0"));
                groups.extend(first.map(str::to_string));
                for job in jobs {
                    let (name, size) = (job.request.name(), pods_of(&job.request.affinity_group.root));
                    let all = sizes.entry(name.to_string()).or_default();
                    *all = size.max(*all);
                    groups.insert(name.to_string());
                }
            }
            Action::Pod(pod) => {
                pods.insert(pod.name.clone());
                groups.insert(pod.spec.request.name().to_string());
            }
            _ => {}
        }
    }
    for (index, event) in events.iter().enumerate() {
        let wrong = |field: &str, found: &str, allowed: Vec<String>| ScenarioError {
            file: file.to_string(),
            line: event.line,
            field: format!("events[{index}].{field}"),
            found: format!("{found:?}"),
            allowed: listed(allowed),
        };
        match &event.action {
            Action::Node { node, .. } if !nodes.contains(node) => {
                let all = nodes.iter().map(ToString::to_string).collect();
                return Err(wrong("node.name", &node.to_string(), all));
            }
            Action::Groups(jobs) => {
                let suggested = jobs.iter().filter_map(|job| job.suggested.as_ref()).flatten();
                if let Some(node) = suggested.into_iter().find(|node| !nodes.contains(node)) {
                    let all = nodes.iter().map(ToString::to_string).collect();
                    return Err(wrong("group.suggested", &node.to_string(), all));
                }
            }
            Action::Pod(pod) => {
                let suggested = pod.suggested.iter().flatten();
                if let Some(node) = suggested.into_iter().find(|node| !nodes.contains(node)) {
                    let all = nodes.iter().map(ToString::to_string).collect();
                    return Err(wrong("pod.suggested", &node.to_string(), all));
                }
            }
            Action::Show(vc) if !vcs.contains(vc) => {
                return Err(wrong("show.virtualCluster", vc, vcs.into_iter().collect()));
            }
            Action::DeleteGroup(name) if !groups.contains(name) => {
                return Err(wrong("delete.group", name, groups.into_iter().collect()));
            }
            Action::DeletePod(name) if !pods.contains(name) && !is_of_group(name, &sizes) => {
                let of_groups =
                    sizes.iter().map(|(group, size)| format!("{group}/0 to {group}/{}", size - 1));
                return Err(wrong("delete.pod", name, pods.into_iter().chain(of_groups).collect()));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Pods of a group and of the groups inside it.
fn pods_of(group: &PodGroup) -> i64 {
    let own = group.members.iter().map(|member| member.pod_number.max(0)).fold(0, i64::saturating_add);
    group.child_groups.iter().map(pods_of).fold(own, i64::saturating_add)
}

/// Whether it names a pod of a group by its number.
fn is_of_group(name: &str, sizes: &BTreeMap<String, i64>) -> bool {
    let Some((group, number)) = name.rsplit_once('/') else { return false };
    let Some(size) = sizes.get(group) else { return false };
    number.parse::<i64>().is_ok_and(|found| (0..*size).contains(&found) && found.to_string() == number)
}

fn listed(names: Vec<String>) -> String {
    match names.len() {
        0 => "none: the file has no such thing".to_string(),
        all if all > LISTED => format!("{} and {} more", names[..LISTED].join(", "), all - LISTED),
        _ => names.join(", "),
    }
}
