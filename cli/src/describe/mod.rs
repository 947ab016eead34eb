//! `fleet describe`: one object with its events; on the hub also Fleet's state of a job.

mod fleet;
mod object;

use anyhow::bail;
use fleet_cli_ground::{
    answer::Answer,
    connect::Hub,
    discovery, members, output,
    server::{AskError, Selectors, Server},
};
use futures::future::join_all;
use jiff::Timestamp;
use serde_json::Value;

use crate::{args::DescribeArgs, get};
use fleet_console::progress::Progress;

pub async fn run(hub: &Hub, args: &DescribeArgs) -> anyhow::Result<Answer> {
    let queries = get::parse(&args.what)?;
    let [query] = queries.as_slice() else {
        bail!("found several kinds; allowed: KIND NAME");
    };
    let [name] = query.names.as_slice() else {
        bail!("found {} names for {:?}; allowed: one, as KIND NAME", query.names.len(), query.kind);
    };
    let namespace = args.scope.namespace.clone().unwrap_or_else(|| hub.namespace.clone());
    let to_members = args.targets.all_clusters || !args.targets.clusters.is_empty();
    let _progress = Progress::start(if to_members { "asking the clusters" } else { "asking the hub" });
    if !to_members {
        let described = describe(&hub.server, &query.kind, name, &namespace, Some(hub)).await?;
        return Ok(Answer::people(described));
    }
    let mut answer = Answer::people("");
    let mut servers = Vec::new();
    for reached in members::reach(hub, &args.targets).await? {
        match reached {
            Ok(server) => servers.push(server),
            Err(unreached) => answer.fail(format!("cluster({}): {}", unreached.cluster, unreached.why)),
        }
    }
    let asked = servers.iter().map(|server| describe(server, &query.kind, name, &namespace, None));
    let mut texts = Vec::new();
    let mut absent = Vec::new();
    for (server, described) in servers.iter().zip(join_all(asked).await) {
        match described {
            Ok(text) => texts.push(format!("Cluster:      {}\n{text}", server.name)),
            Err(error) => {
                let line = format!("cluster({}): {error}", server.name);
                match error.downcast_ref::<AskError>() {
                    Some(refused) if refused.is_not_found() => absent.push(line),
                    _ => answer.fail(line),
                }
            }
        }
    }
    // With -M an object is missing only when no cluster has it.
    if texts.is_empty() || !args.targets.all_clusters {
        absent.into_iter().for_each(|line| answer.fail(line));
    }
    answer.text = texts.join("\n\n");
    Ok(answer)
}

async fn describe(
    server: &Server,
    word: &str,
    name: &str,
    namespace: &str,
    hub: Option<&Hub>,
) -> anyhow::Result<String> {
    let kinds = discovery::kinds(server).await?;
    let chosen = discovery::resolve(&kinds, word);
    let Some(kind) = chosen.first() else {
        bail!("the server doesn't have a resource type {word:?}");
    };
    let found = server.object(&format!("{}/{name}", kind.path(Some(namespace)))).await?;
    let found = output::tidy(found);
    let events = events(server, &found).await?;
    let fleet = match hub {
        Some(hub) => fleet::of(hub, &found).await?,
        None => None,
    };
    let now = Timestamp::now();
    let mut text = object::describe(&found);
    if let Some(lines) = fleet {
        text.push_str(&lines);
    }
    text.push_str(&object::events(&events, now));
    Ok(text)
}

async fn events(server: &Server, object: &Value) -> Result<Vec<Value>, AskError> {
    let namespace = object["metadata"]["namespace"].as_str().unwrap_or("default");
    let uid = object["metadata"]["uid"].as_str().unwrap_or_default();
    let selectors = Selectors { fields: Some(format!("involvedObject.uid={uid}")), ..Selectors::default() };
    let path = format!("/api/v1/namespaces/{namespace}/events");
    let listed = server.list(&path, &selectors, "application/json").await?;
    let mut events: Vec<Value> = listed["items"].as_array().cloned().unwrap_or_default();
    events.retain(|event| event["involvedObject"]["uid"] == uid);
    events.sort_by_key(|event| object::event_time(event).unwrap_or_default().to_string());
    Ok(events)
}
