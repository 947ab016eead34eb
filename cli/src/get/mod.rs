//! `fleet get`: objects of the hub or of member clusters, as kubectl prints them.
//!
//! Members are queried concurrently; one that does not answer is reported and delays no other.

mod tables;
mod watch;
mod what;

use anyhow::bail;
use fleet_cli_ground::{
    answer::Answer,
    args::Format,
    connect::Hub,
    discovery::{self, Kind},
    members, output,
    server::{AskError, Selectors, Server},
};
use futures::future::join_all;
use serde_json::{Value, json};

pub use what::{Query, parse};

use crate::args::GetArgs;
use fleet_console::{jsonpath::Template, progress::Progress, terminal};
use tables::Part;

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";

/// Annotation with the cluster of an item in a list of several clusters.
const CLUSTER_ANNOTATION: &str = "fleet.dev/cluster";

/// The answer of one server.
struct ServerAnswer {
    server: String,
    /// One per query and kind, in that order.
    found: Vec<KindAnswer>,
    missing: Vec<Missing>,
}

struct KindAnswer {
    kind: Kind,
    answer: Value,
    /// Asked for by name.
    named: bool,
}

/// Something that this server does not have, or did not return.
struct Missing {
    /// What was looked for: equal texts mean the same on several servers.
    what: String,
    message: String,
    /// The server answered, and does not have it.
    absent: bool,
}

/// The answers of the servers, before printing.
struct Gathered {
    answer: Answer,
    asked: Vec<ServerAnswer>,
    namespace: String,
}

pub async fn run(hub: &Hub, args: &GetArgs) -> anyhow::Result<Answer> {
    if args.listing.watch {
        return watch::run(hub, args).await;
    }
    let Gathered { mut answer, asked, namespace } = gather(hub, args).await?;
    answer.text = print(&asked, args)?;
    answer.for_people = is_for_people(args);
    say_nothing_found(&mut answer, &asked, args, &namespace);
    Ok(answer)
}

fn is_for_people(args: &GetArgs) -> bool {
    matches!(args.listing.output, None | Some(Format::Wide))
}

fn print(asked: &[ServerAnswer], args: &GetArgs) -> anyhow::Result<String> {
    let to_members = args.targets.all_clusters || !args.targets.clusters.is_empty();
    let sort_by = args.listing.sort_by.as_deref();
    match &args.listing.output {
        None | Some(Format::Wide) => print_tables(asked, args, to_members),
        Some(Format::Name) => names(asked, sort_by),
        Some(Format::Columns(spec)) => {
            let (_, items) = objects_of(asked, to_members, sort_by)?;
            let items: Vec<&Value> = items.iter().collect();
            let headers = output::Headers::of(&args.listing);
            if items.is_empty() { Ok(String::new()) } else { output::columns(spec, &items, headers) }
        }
        Some(format) => print_objects(asked, format, to_members, sort_by),
    }
}

fn say_nothing_found(answer: &mut Answer, asked: &[ServerAnswer], args: &GetArgs, namespace: &str) {
    if asked.is_empty() && !answer.failed {
        answer.note("No clusters have joined.");
    } else if answer.text.is_empty() && !answer.failed {
        let namespaced = asked.iter().flat_map(|asked| &asked.found).any(|found| found.kind.namespaced);
        answer.note(if namespaced && !args.namespaces.all_namespaces {
            format!("No resources found in {namespace} namespace.")
        } else {
            "No resources found".to_string()
        });
    }
}

async fn gather(hub: &Hub, args: &GetArgs) -> anyhow::Result<Gathered> {
    let queries = parse(&args.what)?;
    if queries.iter().any(|query| !query.names.is_empty()) {
        if args.namespaces.all_namespaces {
            bail!("found -A with a name; allowed: -n NAMESPACE");
        }
        if args.selector.is_some() || args.field_selector.is_some() {
            bail!("found a name and a selector; allowed: one of them");
        }
    }
    let to_members = args.targets.all_clusters || !args.targets.clusters.is_empty();
    let _progress = Progress::start(if to_members { "asking the clusters" } else { "asking the hub" });
    let mut answer = Answer::default();
    let servers = if to_members {
        let mut servers = Vec::new();
        for reached in members::reach(hub, &args.targets).await? {
            match reached {
                Ok(server) => servers.push(server),
                Err(unreached) => answer.fail(format!("cluster({}): {}", unreached.cluster, unreached.why)),
            }
        }
        servers
    } else {
        vec![hub.server.clone()]
    };
    let namespace = args.namespaces.scope.namespace.clone().unwrap_or_else(|| hub.namespace.clone());
    let asked = join_all(servers.iter().map(|server| ask(server, &queries, args, &namespace))).await;
    say_missing(&mut answer, &asked, args, to_members);
    Ok(Gathered { answer, asked, namespace })
}

async fn ask(server: &Server, queries: &[Query], args: &GetArgs, namespace: &str) -> ServerAnswer {
    let mut asked = ServerAnswer { server: server.name.clone(), found: Vec::new(), missing: Vec::new() };
    let kinds = match discovery::kinds(server).await {
        Ok(kinds) => kinds,
        Err(error) => {
            asked.missing.push(Missing { what: String::new(), message: error.to_string(), absent: false });
            return asked;
        }
    };
    let accept = if is_for_people(args) { TABLE } else { "application/json" };
    let namespace = args.namespaces.one(namespace);
    let selectors = Selectors {
        labels: args.selector.clone(),
        fields: args.field_selector.clone(),
        // Rows have fields of the spec only on request.
        whole_rows: accept == TABLE && args.listing.sort_by.is_some(),
        most: None,
    };
    for query in queries {
        let chosen = discovery::resolve(&kinds, &query.kind);
        if chosen.is_empty() {
            let message = format!("the server doesn't have a resource type {:?}", query.kind);
            asked.missing.push(Missing { what: query.kind.clone(), message, absent: true });
        }
        for kind in chosen {
            let path = kind.path(namespace);
            if query.names.is_empty() {
                let answer = server.list(&path, &selectors, accept).await;
                asked.take(kind, &query.kind, answer, false);
            }
            for name in &query.names {
                let answer = server.get(&format!("{path}/{name}"), accept).await;
                asked.take(kind, &format!("{}/{name}", kind.plural_group()), answer, true);
            }
        }
    }
    asked
}

impl ServerAnswer {
    fn take(&mut self, kind: &Kind, what: &str, answer: Result<Value, AskError>, named: bool) {
        match answer {
            Ok(answer) => self.found.push(KindAnswer { kind: kind.clone(), answer, named }),
            Err(error) => self.missing.push(Missing {
                what: what.to_string(),
                absent: error.is_not_found(),
                message: error.to_string(),
            }),
        }
    }
}

/// With -M, an object is missing only if no cluster has it: a job is in one of them.
fn say_missing(answer: &mut Answer, asked: &[ServerAnswer], args: &GetArgs, to_members: bool) {
    for one in asked {
        for missing in &one.missing {
            let elsewhere = asked.iter().any(|other| {
                !other.missing.iter().any(|also| also.what == missing.what || also.what.is_empty())
            });
            if args.targets.all_clusters && missing.absent && elsewhere {
                continue;
            }
            answer.fail(match to_members {
                true => format!("cluster({}): {}", one.server, missing.message),
                false => format!("error: {}", missing.message),
            });
        }
    }
}

/// The kinds found anywhere, in the order of the queries.
fn kinds_found(asked: &[ServerAnswer]) -> Vec<Kind> {
    let mut kinds: Vec<Kind> = Vec::new();
    for found in asked.iter().flat_map(|asked| &asked.found) {
        if !kinds.iter().any(|kind| same(kind, &found.kind)) {
            kinds.push(found.kind.clone());
        }
    }
    kinds
}

fn same(a: &Kind, b: &Kind) -> bool {
    a.group == b.group && a.plural == b.plural
}

fn print_tables(asked: &[ServerAnswer], args: &GetArgs, to_members: bool) -> anyhow::Result<String> {
    let kinds = kinds_found(asked);
    let style = tables::Style {
        clusters: to_members,
        wide: args.listing.is_wide(),
        namespaces: args.namespaces.all_namespaces,
        headers: !args.listing.no_headers,
        prefixed: kinds.len() > 1,
        sort_by: args.listing.sort_by.clone(),
        width: terminal::width(),
    };
    let mut texts = Vec::new();
    for kind in &kinds {
        let mut parts = Vec::new();
        for one in asked {
            for found in one.found.iter().filter(|found| same(&found.kind, kind)) {
                parts.push(Part { cluster: &one.server, answer: &found.answer });
            }
        }
        let text = tables::merge(kind, &parts, &style, jiff::Timestamp::now())?;
        if !text.is_empty() {
            texts.push(text);
        }
    }
    Ok(texts.join("\n"))
}

/// The objects of one answer, whole.
fn objects(found: &KindAnswer) -> Vec<Value> {
    if found.named {
        return vec![output::tidy(found.answer.clone())];
    }
    let api_version = found.answer["apiVersion"].clone();
    let items = found.answer["items"].as_array().cloned().unwrap_or_default();
    items
        .into_iter()
        .map(|mut item| {
            // Items of a list lack apiVersion and kind.
            if item["kind"].is_null() {
                item["kind"] = found.kind.kind.as_str().into();
                item["apiVersion"] = api_version.clone();
            }
            output::tidy(item)
        })
        .collect()
}

/// Everything that was found, in order; the first value is the single object that was requested by name, if
/// any.
fn objects_of(
    asked: &[ServerAnswer],
    to_members: bool,
    sort_by: Option<&str>,
) -> anyhow::Result<(Option<Value>, Vec<Value>)> {
    let single = match asked {
        [one] => match one.found.as_slice() {
            [found] if found.named => Some(output::tidy(found.answer.clone())),
            _ => None,
        },
        _ => None,
    };
    let mut items = Vec::new();
    for one in asked {
        for mut object in one.found.iter().flat_map(objects) {
            if to_members {
                mark(&mut object, &one.server);
            }
            items.push(object);
        }
    }
    output::sort(&mut items, sort_by, |item| item)?;
    Ok((single, items))
}

fn print_objects(
    asked: &[ServerAnswer],
    format: &Format,
    to_members: bool,
    sort_by: Option<&str>,
) -> anyhow::Result<String> {
    let (single, items) = objects_of(asked, to_members, sort_by)?;
    if items.is_empty() && asked.iter().any(|one| !one.missing.is_empty()) {
        return Ok(String::new());
    }
    let value = single.unwrap_or_else(|| output::list(items));
    match format {
        Format::JsonPath(template) => Template::read(template)?.print(&value),
        Format::Json => output::json(&value),
        _ => output::yaml(&value),
    }
}

fn mark(object: &mut Value, cluster: &str) {
    if let Some(metadata) = object["metadata"].as_object_mut() {
        let annotations = metadata.entry("annotations").or_insert_with(|| json!({}));
        annotations[CLUSTER_ANNOTATION] = cluster.into();
    }
}

fn names(asked: &[ServerAnswer], sort_by: Option<&str>) -> anyhow::Result<String> {
    let mut text = String::new();
    for found in asked.iter().flat_map(|asked| &asked.found) {
        let mut all = objects(found);
        output::sort(&mut all, sort_by, |item| item)?;
        for object in all {
            let name = object["metadata"]["name"].as_str().unwrap_or_default();
            text.push_str(&format!("{}/{name}\n", found.kind.singular_group()));
        }
    }
    Ok(text)
}
