//! From the document to the scenario.

use std::{collections::BTreeSet, time::Duration};

use fleet_api::{
    cells::class::CLASSES,
    yaml::{self, Located, Node},
};
use fleet_cells::{
    AffinityGroup, Cells, GroupRequest, Member, NodeName, Phase, PodGroup, PodSpec, Unreported,
    config::{ClusterConfig, ConfigError, ConfigErrors, Document, read_document},
};

use super::model::{Action, CellScenario, Event, Job, NeverFits, Pod};
use crate::scenario::{
    ScenarioError,
    fields::{Field, Read},
};

const DOCUMENT: &str = "a map with mode, cells, events, and perhaps unreported, victims, neverFits, until";
/// Priority of a job that names neither class nor priority: that of `test`.
const DEFAULT_PRIORITY: i32 = 10;

pub(super) fn scenario(file: &str, text: &str) -> Result<Option<CellScenario>, ScenarioError> {
    let Ok(document) = yaml::read_located(text) else { return Ok(None) };
    if !is_of_cells(&document) {
        return Ok(None);
    }
    let mut fields = Field::top(file, &document).map(DOCUMENT)?;
    fields.need("mode", "cells")?;
    let config = config(&fields.need("cells", "HiveD's configuration")?)?;
    let unreported = match fields.take("unreported") {
        None => Unreported::Good,
        Some(field) => match field.scalar("good or bad")?.as_str() {
            "good" => Unreported::Good,
            "bad" => Unreported::Bad,
            _ => return field.refuse("good or bad"),
        },
    };
    let victims_leave = match fields.take("victims") {
        None => true,
        Some(field) => match field.scalar("leave or stay")?.as_str() {
            "leave" => true,
            "stay" => false,
            _ => return field.refuse("leave or stay"),
        },
    };
    let never_fits = match fields.take("neverFits") {
        None => NeverFits::Reject,
        Some(field) => match field.scalar("reject or wait")?.as_str() {
            "reject" => NeverFits::Reject,
            "wait" => NeverFits::Wait,
            _ => return field.refuse("reject or wait"),
        },
    };
    let until = fields.take("until").map(|field| field.duration()).transpose()?;
    let mut events = Vec::new();
    if let Some(field) = fields.take("events") {
        for item in field.list("a list of events")? {
            events.push(event(&item)?);
        }
    }
    fields.end()?;
    super::named::check(file, &config, &events)?;
    events.sort_by_key(|event| event.at);
    let file = file.to_string();
    Ok(Some(CellScenario { file, config, unreported, victims_leave, never_fits, until, events }))
}

/// A file that is a configuration, or OpenPAI's wrapper of one.
pub(super) fn config_file(file: &str, text: &str) -> Read<ClusterConfig> {
    let document = yaml::read_located(text).map_err(|(line, found)| ScenarioError {
        file: file.to_string(),
        line,
        field: "the document".to_string(),
        found,
        allowed: "YAML".to_string(),
    })?;
    config(&Field::top(file, &document))
}

fn is_of_cells(document: &Located) -> bool {
    let Node::Map(entries) = &document.node else { return false };
    entries.iter().any(|(name, value)| name == "mode" && value.node == Node::Text("cells".to_string()))
}

/// A configuration, its wrapper, or its text; checked as a whole, so that a run never meets a wrong one.
fn config(field: &Field<'_>) -> Read<ClusterConfig> {
    let found = match field.json() {
        serde_json::Value::String(text) => Ok(Document::Wrapped(text)),
        json => read_document(&json),
    };
    let read = match found {
        Ok(Document::Config(config)) => Ok(*config),
        Ok(Document::Wrapped(text)) => {
            let inner = yaml::read_located(&text)
                .map_err(|(line, found)| field.wrong(format!("line {line} of the text: {found}"), "YAML"))?;
            ClusterConfig::read(&inner.to_json())
        }
        Err(errors) => Err(errors),
    };
    let checked = read.and_then(|config| Cells::new(config.clone(), Unreported::Good).map(|_| config));
    checked.map_err(|ConfigErrors(errors)| first(field, errors))
}

/// The first of the configuration's errors, at its line.
fn first(field: &Field<'_>, errors: Vec<ConfigError>) -> ScenarioError {
    let Some(error) = errors.into_iter().next() else { return field.wrong("nothing", "a configuration") };
    let mut wrong = field.wrong(error.found, error.allowed);
    wrong.line = line_of(field.at, &error.path);
    wrong.field = match field.path.as_str() {
        "" => error.path,
        path => format!("{path}.{}", error.path),
    };
    wrong
}

/// The line of what a path leads to, as far as the document has it.
fn line_of(document: &Located, path: &str) -> u64 {
    let mut at = document;
    for part in path.split(['.', '[']) {
        let next = match &at.node {
            Node::Map(entries) => entries.iter().find(|(name, _)| name == part).map(|(_, value)| value),
            Node::List(items) => {
                part.trim_end_matches(']').parse::<usize>().ok().and_then(|index| items.get(index))
            }
            _ => None,
        };
        match next {
            Some(next) => at = next,
            None => break,
        }
    }
    at.line
}

fn event(field: &Field<'_>) -> Read<Event> {
    const ACTIONS: &str = "at and one of group, pod, node, delete, reconfigure, restart, show";
    let mut fields = field.map(ACTIONS)?;
    let at: Duration = fields.need("at", "when, such as 90s")?.duration()?;
    let mut actions = Vec::new();
    if let Some(field) = fields.take("group") {
        actions.push(Action::Groups(group(&field)?));
    }
    if let Some(field) = fields.take("pod") {
        actions.push(Action::Pod(Box::new(pod(&field)?)));
    }
    if let Some(field) = fields.take("node") {
        let mut node = field.map("a map with name and good")?;
        let name = node.need("name", "the node's name")?.scalar("the node's name")?;
        let cluster = node.take("cluster").map(|field| field.scalar("a cluster")).transpose()?;
        let good = node.need("good", "true or false")?.truth()?;
        node.end()?;
        actions.push(Action::Node { node: NodeName::new(&cluster.unwrap_or_default(), &name), good });
    }
    if let Some(field) = fields.take("delete") {
        let mut named = field.map("a map with group or pod")?;
        let group = named.take("group").map(|field| field.scalar("a group")).transpose()?;
        let pod = named.take("pod").map(|field| field.scalar("a pod")).transpose()?;
        named.end()?;
        actions.push(match (group, pod) {
            (Some(name), None) => Action::DeleteGroup(name),
            (None, Some(name)) => Action::DeletePod(name),
            _ => return field.refuse("a map with either group or pod"),
        });
    }
    if let Some(field) = fields.take("reconfigure") {
        actions.push(Action::Reconfigure(Box::new(config(&field)?)));
    }
    if let Some(field) = fields.take("restart") {
        field.map("{}")?.end()?;
        actions.push(Action::Restart);
    }
    if let Some(field) = fields.take("show") {
        let mut shown = field.map("a map with virtualCluster")?;
        let vc = shown.need("virtualCluster", "its name")?.scalar("a virtual cluster")?;
        shown.end()?;
        actions.push(Action::Show(vc));
    }
    fields.end()?;
    match <[Action; 1]>::try_from(actions) {
        Ok([action]) => Ok(Event { at, line: field.at.line, action }),
        Err(_) => field.refuse(ACTIONS),
    }
}

fn group(field: &Field<'_>) -> Read<Vec<Job>> {
    let mut fields = field.map("a map with name, virtualCluster, pods, leafCells and more")?;
    let name = fields.need("name", "the group's name")?.scalar("a name")?;
    let vc = fields.need("virtualCluster", "its virtual cluster")?.scalar("a name")?;
    let mut request = GroupRequest::new(&name, &vc, 0, 1, 1);
    let class = fields.take("class");
    let priority = fields.take("priority");
    request.priority = match (class, priority) {
        (Some(class), None) => class_priority(&class)?,
        (None, Some(priority)) => {
            i32::try_from(priority.whole(i64::from(i32::MIN), i64::from(i32::MAX))?).unwrap_or(-1)
        }
        (None, None) => DEFAULT_PRIORITY,
        (Some(class), Some(_)) => return class.refuse("class or priority, not both"),
    };
    let mut words = |name: &'static str| -> Read<String> {
        Ok(fields.take(name).map(|field| field.scalar("a text")).transpose()?.unwrap_or_default())
    };
    request.leaf_cell_type = words("leafCellType")?;
    request.pinned_cell_id = words("pinnedCellId")?;
    let mut truth = |name: &'static str, default: bool| -> Read<bool> {
        Ok(fields.take(name).map(|field| field.truth()).transpose()?.unwrap_or(default))
    };
    request.lazy_preemption_enable = truth("lazyPreemption", false)?;
    request.gang_release_enable = truth("gangRelease", true)?;
    let gang = truth("gang", true)?;
    let ignore = fields.take("ignoreSuggestedNodes").map(|field| field.truth()).transpose()?;
    let suggested = fields.take("suggested").map(|field| nodes(&field)).transpose()?;
    request.ignore_k8s_suggested_nodes = ignore.unwrap_or(suggested.is_none());
    let runtime = fields.take("runtime").map(|field| field.duration()).transpose()?;
    let root = pod_group(&mut fields)?;
    fields.end()?;
    request.affinity_group = AffinityGroup { name, root };
    let job = Job { request, runtime, suggested };
    if gang { Ok(vec![job]) } else { incremental(field, job) }
}

/// Each pod as a group of its own.
fn incremental(field: &Field<'_>, job: Job) -> Read<Vec<Job>> {
    let root = &job.request.affinity_group.root;
    if !root.child_groups.is_empty() || !root.within_one_cell.is_empty() {
        return Err(field.wrong("gang: false beside childGroups or withinOneCell", "one of them"));
    }
    let mut jobs = Vec::new();
    for member in &root.members {
        if !(1..=i64::from(fleet_cells::MAX_PODS)).contains(&member.pod_number) {
            // Its submission is refused, with the reason.
            return Ok(vec![job]);
        }
        for _ in 0..member.pod_number {
            let mut one = job.clone();
            one.request.affinity_group.name = format!("{}/{}", job.request.name(), jobs.len());
            one.request.affinity_group.root.members = vec![Member { pod_number: 1, ..member.clone() }];
            jobs.push(one);
        }
    }
    if jobs.is_empty() { Ok(vec![job]) } else { Ok(jobs) }
}

fn class_priority(field: &Field<'_>) -> Read<i32> {
    const ALLOWED: &str = "oppo (-1), test (10), prod (100) or crit (120)";
    let class = field.scalar(ALLOWED)?;
    match CLASSES.iter().find(|(name, _)| *name == class) {
        Some((_, priority)) => Ok(*priority),
        None => field.refuse(ALLOWED),
    }
}

/// `pods` and `leafCells`, or `members`; `withinOneCell` and `childGroups` beside either.
fn pod_group(fields: &mut crate::scenario::fields::Fields<'_>) -> Read<PodGroup> {
    let mut group = PodGroup::default();
    if let Some(field) = fields.take("withinOneCell") {
        group.within_one_cell = field.scalar("a cell type")?;
    }
    let number = |field: Option<Field<'_>>, default: i64| -> Read<i64> {
        field.map_or(Ok(default), |field| field.whole(i64::from(i32::MIN), i64::from(i32::MAX)))
    };
    let children = fields.take("childGroups");
    let members = fields.take("members");
    let pods = fields.take("pods");
    let (cells, cell_type) = (fields.take("leafCells"), fields.take("cellType"));
    let own = pods.is_some() || cells.is_some() || cell_type.is_some();
    if let Some(field) = &members {
        for item in field.list("a list of members")? {
            let mut entry = item.map("a map with pods, leafCells and perhaps cellType")?;
            let pod_number = number(entry.take("pods"), 1)?;
            let leaf_cell_number = number(entry.take("leafCells"), 1)?;
            let cell_type = entry.take("cellType").map(|field| field.scalar("a cell type")).transpose()?;
            entry.end()?;
            group.members.push(Member {
                pod_number,
                leaf_cell_number,
                cell_type: cell_type.unwrap_or_default(),
            });
        }
    }
    if own || (members.is_none() && children.is_none()) {
        let cell_type = cell_type.map(|field| field.scalar("a cell type")).transpose()?.unwrap_or_default();
        let member = Member { pod_number: number(pods, 1)?, leaf_cell_number: number(cells, 1)?, cell_type };
        group.members.insert(0, member);
    }
    if let Some(field) = children {
        for item in field.list("a list of groups")? {
            let mut entry =
                item.map("a map as of a group: pods, leafCells, members, withinOneCell, childGroups")?;
            group.child_groups.push(pod_group(&mut entry)?);
            entry.end()?;
        }
    }
    Ok(group)
}

fn pod(field: &Field<'_>) -> Read<Pod> {
    let mut fields = field.map("a map with name and spec")?;
    let name = fields.need("name", "the pod's name")?.scalar("a name")?;
    let suggested = fields.take("suggested").map(|field| nodes(&field)).transpose()?;
    let phase = match fields.take("phase") {
        None => Phase::Preempting,
        Some(field) => match field.scalar("Filtering or Preempting")?.as_str() {
            "Filtering" => Phase::Filtering,
            "Preempting" => Phase::Preempting,
            _ => return field.refuse("Filtering or Preempting"),
        },
    };
    let spec = fields.need("spec", "HiveD's pod scheduling specification")?;
    let (read, mistake) = PodSpec::parse(&spec.json(), &format!("default/{name}"))
        .map_err(|error| first(&spec, vec![error]))?;
    fields.end()?;
    Ok(Pod { name, spec: read, mistake: mistake.map(|mistake| mistake.to_string()), suggested, phase })
}

/// Nodes by name, or by `{cluster, name}`.
fn nodes(field: &Field<'_>) -> Read<BTreeSet<NodeName>> {
    let mut nodes = BTreeSet::new();
    for item in field.list("a list of nodes")? {
        if let Node::Map(_) = &item.at.node {
            let mut entry = item.map("a map with cluster and name")?;
            let cluster = entry.need("cluster", "the node's cluster")?.scalar("a cluster")?;
            let name = entry.need("name", "the node's name")?.scalar("a name")?;
            entry.end()?;
            nodes.insert(NodeName::new(&cluster, &name));
        } else {
            nodes.insert(NodeName::new("", &item.scalar("a node's name")?));
        }
    }
    Ok(nodes)
}
