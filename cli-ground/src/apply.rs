//! Applies manifests for the demo and `fleet join`. Users apply with kubectl.

use std::path::Path;

use anyhow::{Context, bail};
use serde_json::Value;

use crate::{
    discovery::{self, Kind},
    server::Server,
};

/// Field manager of this program's writes.
pub const MANAGER: &str = "fleet-cli";

/// Result for one object in kubectl's form: `queue.scheduling.x-k8s.io/a created`.
pub type Line = String;

/// The text of a file; `-` is stdin.
///
/// # Errors
/// It cannot be read.
pub fn text_of(file: &Path) -> anyhow::Result<String> {
    if file == Path::new("-") {
        return std::io::read_to_string(std::io::stdin()).context("cannot read stdin");
    }
    std::fs::read_to_string(file).with_context(|| format!("{} cannot be read", file.display()))
}

/// Applies every object of a YAML stream, in order.
///
/// # Errors
/// The refused object, and why.
pub async fn manifest(server: &Server, namespace: &str, text: &str) -> anyhow::Result<Vec<Line>> {
    let objects: Vec<Value> = fleet_api::yaml::read_all(text).context("manifest")?;
    apply_all(server, namespace, &objects).await
}

/// Applies objects in order.
///
/// # Errors
/// The refused object, and why.
pub async fn apply_all(server: &Server, namespace: &str, objects: &[Value]) -> anyhow::Result<Vec<Line>> {
    let kinds = discovery::kinds(server).await?;
    let mut lines = Vec::new();
    for object in objects {
        lines.push(one(server, &kinds, namespace, object).await?);
    }
    Ok(lines)
}

async fn one(server: &Server, kinds: &[Kind], namespace: &str, object: &Value) -> anyhow::Result<Line> {
    let api_version = object["apiVersion"].as_str().unwrap_or_default();
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let wanted = object["kind"].as_str().unwrap_or_default();
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    let kind =
        kinds.iter().find(|kind| kind.group == group && kind.version == version && kind.kind == wanted);
    let Some(kind) = kind else {
        bail!("{wanted} {name:?}: {} has no kind {wanted:?} in {api_version:?}", server.url);
    };
    let namespace = object["metadata"]["namespace"].as_str().unwrap_or(namespace);
    let path = format!("{}/{name}", kind.path(Some(namespace)));
    let before = match server.object(&path).await {
        Ok(found) => Some(found),
        Err(error) if error.is_not_found() => None,
        Err(error) => return Err(error.into()),
    };
    let after = server
        .apply(&path, MANAGER, object)
        .await
        .with_context(|| format!("{} {name:?}", kind.singular_group()))?;
    let done = match before {
        None => "created",
        Some(before) if before["metadata"]["resourceVersion"] == after["metadata"]["resourceVersion"] => {
            "unchanged"
        }
        Some(_) => "configured",
    };
    Ok(format!("{}/{name} {done}", kind.singular_group()))
}
