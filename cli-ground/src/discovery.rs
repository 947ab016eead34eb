//! Discovery of a server's kinds, and resolution of a user's word to a kind.
//!
//! Aggregated discovery if the server supports it (two requests), otherwise one request per group. The
//! resolution is a pure function of the list.

use futures::future::try_join_all;
use serde_json::Value;

use crate::server::{AskError, Server};

const AGGREGATED: &str =
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json";

/// One kind of object a server has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kind {
    pub group: String,
    pub version: String,
    pub kind: String,
    pub plural: String,
    pub singular: String,
    pub short_names: Vec<String>,
    pub categories: Vec<String>,
    pub namespaced: bool,
    pub listable: bool,
}

impl Kind {
    /// `pods`, `pytorchjobs.kubeflow.org`: as in server messages.
    pub fn plural_group(&self) -> String {
        self.with_group(&self.plural)
    }

    /// `pod`, `pytorchjob.kubeflow.org`: as kubectl prefixes names.
    pub fn singular_group(&self) -> String {
        self.with_group(&self.kind.to_lowercase())
    }

    fn with_group(&self, word: &str) -> String {
        if self.group.is_empty() { word.to_string() } else { format!("{word}.{}", self.group) }
    }

    /// Path of the collection, in a namespace or over all of them.
    pub fn path(&self, namespace: Option<&str>) -> String {
        let root = match self.group.as_str() {
            "" => format!("/api/{}", self.version),
            group => format!("/apis/{group}/{}", self.version),
        };
        match namespace.filter(|_| self.namespaced) {
            Some(namespace) => format!("{root}/namespaces/{namespace}/{}", self.plural),
            None => format!("{root}/{}", self.plural),
        }
    }
}

/// All kinds of a server, in the order in which it ranks them.
///
/// # Errors
/// The server does not answer.
pub async fn kinds(server: &Server) -> Result<Vec<Kind>, AskError> {
    let (core, groups) = tokio::try_join!(server.get("/api", AGGREGATED), server.get("/apis", AGGREGATED))?;
    if groups["items"].is_array() && core["items"].is_array() {
        return Ok([core, groups].iter().flat_map(aggregated).collect());
    }
    let mut paths = vec![(String::new(), "v1".to_string(), "/api/v1".to_string())];
    for group in groups["groups"].as_array().into_iter().flatten() {
        let preferred = text(&group["preferredVersion"]["groupVersion"]);
        let mut versions: Vec<String> = group["versions"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|version| text(&version["groupVersion"]))
            .collect();
        // The preferred version first: the first match wins.
        versions.sort_by_key(|version| *version != preferred);
        for group_version in versions {
            let (name, version) = group_version.split_once('/').unwrap_or((&group_version, ""));
            paths.push((name.to_string(), version.to_string(), format!("/apis/{group_version}")));
        }
    }
    let lists = paths.iter().map(|(group, version, path)| async move {
        let listed = server.object(path).await?;
        Ok::<_, AskError>(legacy(group, version, &listed))
    });
    Ok(try_join_all(lists).await?.into_iter().flatten().collect())
}

fn aggregated(list: &Value) -> Vec<Kind> {
    let mut kinds = Vec::new();
    for group in list["items"].as_array().into_iter().flatten() {
        for version in group["versions"].as_array().into_iter().flatten() {
            for resource in version["resources"].as_array().into_iter().flatten() {
                let kind = text(&resource["responseKind"]["kind"]);
                let plural = text(&resource["resource"]);
                kinds.push(Kind {
                    group: text(&group["metadata"]["name"]),
                    version: text(&version["version"]),
                    singular: some_or(text(&resource["singularResource"]), kind.to_lowercase()),
                    kind,
                    plural,
                    short_names: texts(&resource["shortNames"]),
                    categories: texts(&resource["categories"]),
                    namespaced: resource["scope"] == "Namespaced",
                    listable: texts(&resource["verbs"]).iter().any(|verb| verb == "list"),
                });
            }
        }
    }
    kinds
}

fn legacy(group: &str, version: &str, list: &Value) -> Vec<Kind> {
    let resources = list["resources"].as_array().into_iter().flatten();
    resources
        .filter(|resource| !text(&resource["name"]).contains('/'))
        .map(|resource| {
            let kind = text(&resource["kind"]);
            Kind {
                group: group.to_string(),
                version: version.to_string(),
                plural: text(&resource["name"]),
                singular: some_or(text(&resource["singularName"]), kind.to_lowercase()),
                kind,
                short_names: texts(&resource["shortNames"]),
                categories: texts(&resource["categories"]),
                namespaced: resource["namespaced"] == true,
                listable: texts(&resource["verbs"]).iter().any(|verb| verb == "list"),
            }
        })
        .collect()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_string()
}

fn texts(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().map(text).collect()
}

fn some_or(text: String, other: String) -> String {
    if text.is_empty() { other } else { text }
}

/// The kinds that a word means: one, or all of a category. Empty if the server has none of that name.
///
/// As in kubectl: case does not matter; full names take precedence over short names; `word.group` and
/// `word.version.group` narrow the choice (a group may be shortened: `jobs.batch.volcano`).
pub fn resolve<'a>(kinds: &'a [Kind], word: &str) -> Vec<&'a Kind> {
    let word = word.to_lowercase();
    let listable = || kinds.iter().filter(|kind| kind.listable);
    let full = |kind: &Kind, name: &str| {
        kind.plural == name || kind.singular == name || kind.kind.to_lowercase() == name
    };
    let (name, rest) = word.split_once('.').unwrap_or((&word, ""));
    let in_group =
        |kind: &Kind, wanted: &str| kind.group == wanted || kind.group.starts_with(&format!("{wanted}."));
    let narrowed = |kind: &Kind| {
        rest.is_empty()
            || in_group(kind, rest)
            || rest
                .split_once('.')
                .is_some_and(|(version, group)| kind.version == version && in_group(kind, group))
    };
    if let Some(kind) = listable().find(|kind| full(kind, name) && narrowed(kind)) {
        return vec![kind];
    }
    let short = |kind: &Kind| kind.short_names.iter().any(|short| short == name);
    if let Some(kind) = listable().find(|kind| short(kind) && narrowed(kind)) {
        return vec![kind];
    }
    if !rest.is_empty() {
        return Vec::new();
    }
    let mut chosen: Vec<&Kind> = Vec::new();
    for kind in listable().filter(|kind| kind.categories.iter().any(|category| category == name)) {
        // The first version of a kind is the preferred one.
        if !chosen.iter().any(|known| known.group == kind.group && known.plural == kind.plural) {
            chosen.push(kind);
        }
    }
    chosen
}

#[cfg(test)]
mod tests;
