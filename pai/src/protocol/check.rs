//! Checks of the parts of a protocol against each other.

use std::collections::BTreeSet;

use super::types::{PrerequisiteKind, Protocol, TASKS_MAX, TaskRole};
use crate::{Doc, Problem, fields::Sink, problem::TOLD};

pub fn check(protocol: &Protocol, doc: &Doc, sink: &mut Sink) {
    tasks(protocol, doc, sink);
    prerequisites(protocol, sink);
    for role in &protocol.task_roles {
        role_prerequisites(protocol, role, sink);
    }
    deployments(protocol, doc, sink);
    hived(protocol, sink);
}

fn tasks(protocol: &Protocol, doc: &Doc, sink: &mut Sink) {
    if protocol.tasks() > TASKS_MAX {
        let (found, line) =
            (format!("{} tasks", protocol.tasks()), doc.get("taskRoles").map_or(0, |roles| roles.line));
        let allowed = format!("at most {TASKS_MAX} of all task roles together");
        sink.push(Problem::new("taskRoles", found, allowed).at(line));
    }
}

fn prerequisites(protocol: &Protocol, sink: &mut Sink) {
    let mut seen = BTreeSet::new();
    for (i, one) in protocol.prerequisites.iter().enumerate() {
        if !seen.insert((one.kind, one.name.as_str())) {
            let found = format!("{:?} of type {} twice", one.name, one.kind.as_str());
            let path = format!("prerequisites[{i}].name");
            sink.push(Problem::new(path, found, "each name once within its type").at(one.doc.line));
        }
    }
    // A list of all of them with each of as many problems would be larger than any memory.
    let known: BTreeSet<&str> = protocol.prerequisites.iter().map(|one| one.name.as_str()).collect();
    for (i, one) in protocol.prerequisites.iter().enumerate() {
        for (k, wanted) in one.require.iter().enumerate() {
            if !known.contains(wanted.as_str()) && sink.len() < TOLD {
                let path = format!("prerequisites[{i}].require[{k}]");
                sink.push(Problem::new(path, format!("{wanted:?}"), names(protocol, None)).at(one.doc.line));
            }
        }
    }
}

fn role_prerequisites(protocol: &Protocol, role: &TaskRole, sink: &mut Sink) {
    let of_kind = [
        ("dockerImage", PrerequisiteKind::DockerImage, Some(&role.docker_image)),
        ("data", PrerequisiteKind::Data, role.data.as_ref()),
        ("output", PrerequisiteKind::Output, role.output.as_ref()),
        ("script", PrerequisiteKind::Script, role.script.as_ref()),
    ];
    for (field, kind, name) in of_kind {
        let told = sink.len() < TOLD;
        if let Some(name) = name.filter(|name| told && protocol.prerequisite(kind, name).is_none()) {
            let path = format!("taskRoles.{}.{field}", role.name);
            sink.push(Problem::new(path, format!("{name:?}"), names(protocol, Some(kind))).at(role.line));
        }
    }
    let known: BTreeSet<&str> = protocol.prerequisites.iter().map(|one| one.name.as_str()).collect();
    for (i, name) in role.prerequisites.iter().enumerate() {
        if !known.contains(name.as_str()) && sink.len() < TOLD {
            let path = format!("taskRoles.{}.prerequisites[{i}]", role.name);
            sink.push(Problem::new(path, format!("{name:?}"), names(protocol, None)).at(role.line));
        }
    }
}

/// The existing prerequisites, as allowed values.
fn names(protocol: &Protocol, kind: Option<PrerequisiteKind>) -> String {
    let fits = protocol.prerequisites.iter().filter(|one| kind.is_none_or(|kind| kind == one.kind));
    let names: Vec<&str> = fits.map(|one| one.name.as_str()).collect();
    let what = kind.map_or("the name of a prerequisite".to_owned(), |kind| {
        format!("the name of a prerequisite of type {}", kind.as_str())
    });
    match names.is_empty() {
        true => format!("{what}; there is none"),
        false => format!("{what}: {}", names.join(", ")),
    }
}

fn deployments(protocol: &Protocol, doc: &Doc, sink: &mut Sink) {
    let mut seen = BTreeSet::new();
    for (i, one) in protocol.deployments.iter().enumerate() {
        if !seen.insert(one.name.as_str()) {
            let line = doc.get("deployments").and_then(|list| list.at(i)).map_or(0, |item| item.line);
            let found = format!("{:?} twice", one.name);
            sink.push(Problem::new(format!("deployments[{i}].name"), found, "each name once").at(line));
        }
    }
    if let Some(name) = protocol.deployment.as_ref().filter(|name| !seen.contains(name.as_str())) {
        let names: Vec<&str> = seen.into_iter().collect();
        let allowed = match names.is_empty() {
            true => "none: there are no deployments".to_owned(),
            false => format!("the name of a deployment: {}", names.join(", ")),
        };
        let line = doc.get("defaults").map_or(0, |defaults| defaults.line);
        sink.push(Problem::new("defaults.deployment", format!("{name:?}"), allowed).at(line));
    }
}

fn hived(protocol: &Protocol, sink: &mut Sink) {
    const PATH: &str = "extras.hivedScheduler";
    let hived = &protocol.extras.hived;
    let in_order = || protocol.task_roles.iter().map(|role| role.name.as_str());
    let (roles, names) = (in_order().collect::<BTreeSet<_>>(), in_order().take(TOLD).collect::<Vec<_>>());
    let allowed = || format!("a task role of the job: {}", names.join(", "));
    for (name, role) in &hived.roles {
        if sink.len() >= TOLD {
            return;
        }
        let path = format!("{PATH}.taskRoles.{name}");
        if !roles.contains(name.as_str()) {
            sink.push(Problem::new(&path, "no such task role", allowed()).at(role.line));
        }
        if role.sku_type.is_some() && role.pinned_cell_id.is_some() {
            sink.push(Problem::new(&path, "both skuType and pinnedCellId", "one of them").at(role.line));
        }
        if hived.class.is_opportunistic() && role.pinned_cell_id.is_some() {
            let found = "pinnedCellId in an opportunistic job";
            sink.push(Problem::new(&path, found, "pinned cells for jobs with a guarantee").at(role.line));
        }
        if hived.is_v2 && role.affinity_group.is_some() {
            let found = "affinityGroupName beside withinOne, resourcePerInstance or taskRoleGroups";
            sink.push(Problem::new(&path, found, "taskRoleGroups in its place").at(role.line));
        }
    }
    let mut grouped = BTreeSet::new();
    for (i, group) in hived.groups.iter().enumerate() {
        let path = format!("{PATH}.taskRoleGroups[{i}].taskRoles");
        if group.roles.len() < 2 {
            sink.push(Problem::new(&path, format!("{} task role", group.roles.len()), "two or more"));
        }
        for role in &group.roles {
            if sink.len() >= TOLD {
                return;
            }
            if !roles.contains(role.as_str()) {
                sink.push(Problem::new(&path, format!("{role:?}"), allowed()));
            } else if !grouped.insert(role.as_str()) {
                sink.push(Problem::new(&path, format!("{role:?} twice"), "each task role in one group"));
            }
        }
    }
}
