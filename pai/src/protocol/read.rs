//! From a document to the protocol's parts.

use std::collections::BTreeMap;

use super::{
    extras,
    types::{
        Completion, Deployment, Prerequisite, PrerequisiteKind, Protocol, ROLES_MAX, RegistryAuth,
        RoleCommands, TASKS_MAX, TaskResources, TaskRole,
    },
};
use crate::{
    Doc, Node,
    fields::{Field, Fields, Sink, is_name},
};

/// Longest name of a job, and of its parts.
pub(crate) const NAME_MAX: usize = 255;
/// Limits of numbers, so that sums and products do not overflow.
const INSTANCES_MAX: i64 = TASKS_MAX;
const RETRIES_MAX: i64 = 1_000_000;
const AMOUNT_MAX: i64 = 1_000_000;
const MEMORY_MB_MAX: i64 = 1_000_000_000;
const PORTS_MAX: i64 = 1_000;

const DEFAULT_SHM_MB: i64 = 512;
const DEFAULT_VIRTUAL_CLUSTER: &str = "default";
/// Ports that every task has.
const OWN_PORTS: [&str; 2] = ["ssh", "http"];

const NAME: &str = "a name of 1 to 255 letters, digits, \"_\" and \"-\"";
const LABEL: &str = "a name of letters, digits and \"_\"";

fn in_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '-')
}

pub(crate) fn in_label(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

pub fn protocol(doc: &Doc, sink: &mut Sink) -> Option<Protocol> {
    let mut top = Field::top(doc).fields(sink, "a job: a map with protocolVersion, name, type, taskRoles")?;
    if let Some(field) = top.need(sink, "protocolVersion", "2") {
        protocol_version(&field, sink);
    }
    let name = top.need(sink, "name", NAME).and_then(|field| field.name(sink, NAME_MAX, in_name, NAME));
    if let Some(field) = top.need(sink, "type", "\"job\"")
        && field.doc.node != Node::Text("job".to_owned())
    {
        field.refuse(sink, "\"job\"");
    }
    let version = top.take("version").and_then(|field| text_or_number(&field, sink));
    let contributor = top.take("contributor").and_then(|field| field.text(sink, "a text"));
    let description = top.take("description").and_then(|field| field.text(sink, "a text"));
    let mut notices = Vec::new();
    let prerequisites = top.take("prerequisites").map(|field| prerequisites(&field, sink, &mut notices));
    let parameters = a_map(top.take("parameters"), sink);
    let secrets = a_map(top.take("secrets"), sink);
    let retries = top.take("jobRetryCount").and_then(|field| field.whole(sink, 0, RETRIES_MAX));
    let task_roles = task_roles(&mut top, sink);
    let deployments = top.take("deployments").map(|field| deployments(&field, sink));
    let (deployment, virtual_cluster) = match top.take("defaults") {
        Some(field) => defaults(&field, sink),
        None => (None, None),
    };
    let extras = extras::read(top.take("extras").as_ref(), sink, &mut notices);
    top.end(sink);
    Some(Protocol {
        name: name?,
        version,
        contributor,
        description,
        prerequisites: prerequisites.unwrap_or_default(),
        parameters,
        secrets,
        job_retry_count: retries.unwrap_or(0),
        task_roles,
        deployments: deployments.unwrap_or_default(),
        deployment,
        virtual_cluster: virtual_cluster.unwrap_or_else(|| DEFAULT_VIRTUAL_CLUSTER.to_owned()),
        extras,
        notices,
    })
}

fn protocol_version(field: &Field<'_>, sink: &mut Sink) {
    let is_two = match &field.doc.node {
        Node::Number(number) => number.as_i64() == Some(2),
        Node::Text(text) => text == "2",
        _ => false,
    };
    if !is_two {
        field.refuse(sink, "2 (version 1 of the protocol is not served)");
    }
}

fn text_or_number(field: &Field<'_>, sink: &mut Sink) -> Option<String> {
    match &field.doc.node {
        Node::Number(number) => Some(number.to_string()),
        _ => field.text(sink, "a text or a number"),
    }
}

/// A map that templates can refer to.
fn a_map(field: Option<Field<'_>>, sink: &mut Sink) -> Doc {
    let empty = Doc { line: 0, node: Node::Map(Vec::new()) };
    let Some(field) = field else { return empty };
    if matches!(field.doc.node, Node::Map(_)) {
        return field.doc.clone();
    }
    field.refuse(sink, "a map of names to values");
    empty
}

fn prerequisites(field: &Field<'_>, sink: &mut Sink, notices: &mut Vec<String>) -> Vec<Prerequisite> {
    let items = field.some_items(sink, "a list of one prerequisite or more");
    items.iter().filter_map(|item| prerequisite(item, sink, notices)).collect()
}

fn prerequisite(item: &Field<'_>, sink: &mut Sink, notices: &mut Vec<String>) -> Option<Prerequisite> {
    let mut fields = item.fields(sink, "a prerequisite: a map with name, type and uri")?;
    if let Some(field) = fields.take("protocolVersion") {
        protocol_version(&field, sink);
    }
    let name = fields.need(sink, "name", NAME).and_then(|f| f.name(sink, NAME_MAX, in_name, NAME));
    let kind = fields.need(sink, "type", KINDS).and_then(|field| {
        let known =
            PrerequisiteKind::ALL.iter().find(|(_, word)| field.doc.node == Node::Text((*word).into()));
        if known.is_none() {
            field.refuse(sink, KINDS);
        }
        known.map(|(kind, _)| *kind)
    });
    let plugin = fields.take("plugin").and_then(|field| field.text(sink, "the name of a plugin"));
    let uri = uri(&mut fields, kind, plugin.is_some(), sink);
    let auth = fields.take("auth").and_then(|field| {
        if kind.is_some_and(|kind| kind != PrerequisiteKind::DockerImage) {
            field.refuse(sink, "auth for dockerimage only");
            return None;
        }
        auth(&field, sink)
    });
    let require = fields.take("require").map(|field| field.texts(sink, "names of other prerequisites"));
    for text in ["contributor", "description"] {
        if let Some(field) = fields.take(text) {
            field.text(sink, "a text");
        }
    }
    if let Some(field) = fields.take("version") {
        text_or_number(&field, sink);
    }
    match (&plugin, &name) {
        // Other fields of a plugin are not checked.
        (Some(plugin), Some(name)) => {
            notices.push(format!("{}: prerequisite {name} is not prepared by plugin {plugin}", item.path));
        }
        _ => fields.end(sink),
    }
    Some(Prerequisite {
        name: name?,
        kind: kind?,
        uri,
        auth,
        doc: item.doc.clone(),
        require: require.unwrap_or_default(),
    })
}

const KINDS: &str = "\"script\", \"output\", \"data\" or \"dockerimage\"";

/// An image must have one; the others may leave it to their plugin. That of data is a list.
fn uri(
    fields: &mut Fields<'_>,
    kind: Option<PrerequisiteKind>,
    has_plugin: bool,
    sink: &mut Sink,
) -> Vec<String> {
    let is_data = kind == Some(PrerequisiteKind::Data);
    let allowed = if is_data { "a list of texts" } else { "a text" };
    let may_be_absent = has_plugin && kind != Some(PrerequisiteKind::DockerImage);
    let field = if may_be_absent { fields.take("uri") } else { fields.need(sink, "uri", allowed) };
    let Some(field) = field else { return Vec::new() };
    if is_data {
        let items = field.items(sink, allowed);
        return items.iter().filter_map(|item| item.text(sink, "a text")).collect();
    }
    match &field.doc.node {
        Node::Text(text) if !text.is_empty() => vec![text.clone()],
        _ => {
            field.refuse(sink, allowed);
            Vec::new()
        }
    }
}

fn auth(field: &Field<'_>, sink: &mut Sink) -> Option<RegistryAuth> {
    let mut fields = field.fields(sink, "a map with username, password and registryuri")?;
    let mut text = |name| fields.take(name).and_then(|field| field.text(sink, "a text"));
    let (username, password, registry_uri) = (text("username"), text("password"), text("registryuri"));
    fields.end(sink);
    Some(RegistryAuth {
        username: username.unwrap_or_default(),
        password: password.unwrap_or_default(),
        registry_uri,
    })
}

fn task_roles(top: &mut Fields<'_>, sink: &mut Sink) -> Vec<TaskRole> {
    const ALLOWED: &str = "a map of one task role or more";
    let Some(field) = top.need(sink, "taskRoles", ALLOWED) else { return Vec::new() };
    let entries = field.entries(sink, ALLOWED);
    if matches!(&field.doc.node, Node::Map(entries) if entries.is_empty()) {
        field.refuse(sink, ALLOWED);
    }
    // Each role's tasks get variables of all roles.
    if entries.len() > ROLES_MAX {
        sink.push(field.problem(format!("{} task roles", entries.len()), format!("at most {ROLES_MAX}")));
        return Vec::new();
    }
    entries
        .into_iter()
        .filter_map(|(name, role)| {
            if !is_name(name, NAME_MAX, in_label) {
                sink.push(role.problem(format!("the name {name:?}"), LABEL));
            }
            task_role(name, &role, sink)
        })
        .collect()
}

fn task_role(name: &str, field: &Field<'_>, sink: &mut Sink) -> Option<TaskRole> {
    let mut fields =
        field.fields(sink, "a task role: a map with dockerImage, resourcePerInstance, commands")?;
    if let Some(field) = fields.take("protocolVersion") {
        protocol_version(&field, sink);
    }
    let instances = fields.take("instances").and_then(|f| f.whole(sink, 1, INSTANCES_MAX)).unwrap_or(1);
    let completion = fields.take("completion").and_then(|f| completion(&f, instances, sink));
    let retries = fields.take("taskRetryCount").and_then(|f| f.whole(sink, -2, RETRIES_MAX));
    let docker_image = fields
        .need(sink, "dockerImage", "the name of a prerequisite of type dockerimage")
        .and_then(|f| f.text(sink, "the name of a prerequisite of type dockerimage"));
    let mut named = |name| fields.take(name).and_then(|f| f.text(sink, "the name of a prerequisite"));
    let (data, output, script) = (named("data"), named("output"), named("script"));
    let prerequisites = fields.take("prerequisites").map(|f| f.texts(sink, "names of prerequisites"));
    let (shm_mb, infiniband) =
        fields.take("extraContainerOptions").and_then(|f| options(&f, sink)).unwrap_or((0, false));
    let resources = fields
        .need(sink, "resourcePerInstance", "a map with cpu, memoryMB and gpu")
        .and_then(|f| resources(&f, sink));
    let commands = fields
        .need(sink, "commands", "a list of one command or more")
        .map(|f| f.texts(sink, "a list of one command or more"));
    fields.end(sink);
    Some(TaskRole {
        name: name.to_owned(),
        instances,
        completion: completion.unwrap_or(Completion { min_failed: 1, min_succeeded: instances }),
        task_retry_count: retries.unwrap_or(0),
        docker_image: docker_image?,
        data,
        output,
        script,
        prerequisites: prerequisites.unwrap_or_default(),
        shm_mb: if shm_mb == 0 { DEFAULT_SHM_MB } else { shm_mb },
        infiniband,
        resources: resources?,
        commands: commands?,
        line: field.doc.line,
    })
}

/// Absent, null and 0 mean the default: one failure fails the attempt, all successes make it succeed.
fn completion(field: &Field<'_>, instances: i64, sink: &mut Sink) -> Option<Completion> {
    let mut fields = field.fields(sink, "a map with minFailedInstances and minSucceededInstances")?;
    let mut count = |name, absent| {
        let count = fields.take(name).and_then(|f| f.whole(sink, -1, INSTANCES_MAX)).unwrap_or(0);
        if count == 0 { absent } else { count }
    };
    let read = Completion {
        min_failed: count("minFailedInstances", 1),
        min_succeeded: count("minSucceededInstances", instances),
    };
    fields.end(sink);
    Some(read)
}

fn options(field: &Field<'_>, sink: &mut Sink) -> Option<(i64, bool)> {
    let mut fields = field.fields(sink, "a map with shmMB and infiniband")?;
    let shm_mb = fields.take("shmMB").and_then(|f| f.whole(sink, 0, MEMORY_MB_MAX)).unwrap_or(0);
    let infiniband = fields.take("infiniband").and_then(|f| f.truth(sink)).unwrap_or(false);
    fields.end(sink);
    Some((shm_mb, infiniband))
}

fn resources(field: &Field<'_>, sink: &mut Sink) -> Option<TaskResources> {
    let mut fields = field.fields(sink, "a map with cpu, memoryMB and gpu")?;
    let mut amount = |name, most| {
        let field = fields.need(sink, name, "a whole number of 0 or more")?;
        field.whole(sink, 0, most)
    };
    let (cpu, memory_mb, gpu) =
        (amount("cpu", AMOUNT_MAX), amount("memoryMB", MEMORY_MB_MAX), amount("gpu", AMOUNT_MAX));
    let mut ports = fields.take("ports").map(|f| ports(&f, sink)).unwrap_or_default();
    fields.end(sink);
    for own in OWN_PORTS {
        if !ports.iter().any(|(label, _)| label == own) {
            ports.push((own.to_owned(), 1));
        }
    }
    Some(TaskResources { cpu: cpu?, memory_mb: memory_mb?, gpu: gpu?, ports })
}

fn ports(field: &Field<'_>, sink: &mut Sink) -> Vec<(String, i64)> {
    const ALLOWED: &str = "a map of one label or more to numbers of ports";
    let entries = field.entries(sink, ALLOWED);
    if matches!(&field.doc.node, Node::Map(entries) if entries.is_empty()) {
        field.refuse(sink, ALLOWED);
    }
    let mut found = Vec::new();
    for (label, count) in entries {
        if !is_name(label, NAME_MAX, in_label) {
            sink.push(count.problem(format!("the label {label:?}"), LABEL));
        }
        if let Some(count) = count.whole(sink, 1, PORTS_MAX) {
            found.push((label.to_owned(), count));
        }
    }
    // Each is written into each pod.
    let sum: i64 = found.iter().map(|(_, count)| count).sum();
    if sum > PORTS_MAX {
        sink.push(
            field.problem(format!("{sum} ports"), format!("at most {PORTS_MAX} of all labels together")),
        );
    }
    found
}

fn deployments(field: &Field<'_>, sink: &mut Sink) -> Vec<Deployment> {
    let items = field.some_items(sink, "a list of one deployment or more");
    items.iter().filter_map(|item| deployment(item, sink)).collect()
}

fn deployment(item: &Field<'_>, sink: &mut Sink) -> Option<Deployment> {
    let mut fields = item.fields(sink, "a deployment: a map with name and taskRoles")?;
    if let Some(field) = fields.take("protocolVersion") {
        protocol_version(&field, sink);
    }
    let name = fields.need(sink, "name", NAME).and_then(|f| f.name(sink, NAME_MAX, in_name, NAME));
    for text in ["type", "version", "contributor", "description"] {
        if let Some(field) = fields.take(text) {
            text_or_number(&field, sink);
        }
    }
    let roles = fields.need(sink, "taskRoles", "a map of task roles to preCommands and postCommands");
    let mut task_roles = BTreeMap::new();
    if let Some(roles) = roles {
        for (role, field) in roles.entries(sink, "a map of task roles to preCommands and postCommands") {
            if let Some(mut fields) = field.fields(sink, "a map with preCommands and postCommands") {
                let mut commands =
                    |name| fields.take(name).map(|f| f.texts(sink, "a list of one command or more"));
                let (before, after) = (commands("preCommands"), commands("postCommands"));
                fields.end(sink);
                let commands =
                    RoleCommands { before: before.unwrap_or_default(), after: after.unwrap_or_default() };
                task_roles.insert(role.to_owned(), commands);
            }
        }
    }
    fields.end(sink);
    Some(Deployment { name: name?, task_roles })
}

fn defaults(field: &Field<'_>, sink: &mut Sink) -> (Option<String>, Option<String>) {
    const CLUSTER: &str =
        "the name of a virtual cluster: letters, digits, \"_\", \"-\" and \".\", at most 63";
    let Some(mut fields) = field.fields(sink, "a map with deployment and virtualCluster") else {
        return (None, None);
    };
    let deployment = fields.take("deployment").and_then(|f| f.text(sink, "the name of a deployment"));
    let fits = |c| in_name(c) || c == '.';
    let cluster = fields.take("virtualCluster").and_then(|f| f.name(sink, 63, fits, CLUSTER));
    fields.end(sink);
    (deployment, cluster)
}
