//! What the server serves: resources by group, version and plural, and the discovery documents.
//!
//! Inputs: the static list of built-in kinds and the CustomResourceDefinitions in the store.
//! Absent on purpose: request handling.

use crate::builtins;
use crate::resource::Resource;
use fleet_apiserver_ground::store::{Store, Table};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::Arc;

/// A resource with its table.
#[derive(Clone)]
pub struct ServedResource {
    /// The resource.
    pub resource: Arc<Resource>,
    /// Its objects.
    pub table: Arc<Table>,
}

/// Everything served at one moment.
#[derive(Default)]
pub struct Registry {
    versions: HashMap<String, HashMap<String, ServedResource>>,
    /// Groups in order of discovery, each with its versions in order of preference.
    groups: Vec<(String, Vec<String>)>,
    /// Resources in order of discovery.
    all: Vec<ServedResource>,
    /// Changes whenever the set of custom resources changes.
    pub revision: u64,
}

impl Registry {
    /// Built-ins first, then custom resources with groups in alphabetical order.
    pub fn new(store: &Store, mut custom: Vec<Arc<Resource>>, revision: u64) -> Registry {
        custom.sort_by(|a, b| (&a.group, &a.plural).cmp(&(&b.group, &b.plural)));
        let mut registry = Registry { revision, ..Registry::default() };
        for resource in builtins::all().iter().chain(&custom) {
            let entry = ServedResource { table: store.table(&resource.table), resource: resource.clone() };
            let versions = registry.versions.entry(resource.api_version()).or_default();
            versions.insert(resource.plural.clone(), entry.clone());
            registry.all.push(entry);
            let group = match registry.groups.iter_mut().find(|(g, _)| *g == resource.group) {
                Some(g) => g,
                None => {
                    registry.groups.push((resource.group.clone(), Vec::new()));
                    // Just pushed.
                    let last = registry.groups.len() - 1;
                    &mut registry.groups[last]
                }
            };
            if !group.1.contains(&resource.version) {
                group.1.push(resource.version.clone());
                group.1.sort_by_key(|v| std::cmp::Reverse(version_rank(v)));
            }
        }
        registry
    }

    /// One resource.
    pub fn find(&self, api_version: &str, plural: &str) -> Option<&ServedResource> {
        self.versions.get(api_version)?.get(plural)
    }

    /// The resource of a kind.
    pub fn by_kind(&self, api_version: &str, kind: &str) -> Option<&ServedResource> {
        self.versions.get(api_version)?.values().find(|e| e.resource.kind == kind && !e.resource.create_only)
    }

    /// True when the group version is served.
    pub fn serves(&self, api_version: &str) -> bool {
        self.versions.contains_key(api_version)
    }

    /// All resources in order of discovery.
    pub fn all(&self) -> &[ServedResource] {
        &self.all
    }

    /// One entry for each table that stores objects.
    pub fn stored(&self) -> impl Iterator<Item = &ServedResource> {
        self.all.iter().filter(|e| !e.resource.create_only && !e.resource.converts())
    }

    /// All group versions in order of discovery.
    pub fn api_versions(&self) -> impl Iterator<Item = String> + '_ {
        self.groups.iter().flat_map(|(g, versions)| {
            versions.iter().map(move |v| if g.is_empty() { v.clone() } else { format!("{g}/{v}") })
        })
    }

    fn group_value(&self, group: &str, versions: &[String]) -> Value {
        let list: Vec<Value> =
            versions.iter().map(|v| json!({"groupVersion": format!("{group}/{v}"), "version": v})).collect();
        json!({"name": group, "versions": list, "preferredVersion": list.first()})
    }

    /// `APIGroupList`.
    pub fn group_list(&self) -> Value {
        let groups: Vec<Value> = self
            .groups
            .iter()
            .filter(|(g, _)| !g.is_empty())
            .map(|(g, versions)| self.group_value(g, versions))
            .collect();
        json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
    }

    /// `APIGroup`.
    pub fn group(&self, name: &str) -> Option<Value> {
        let (_, versions) = self.groups.iter().find(|(g, _)| g == name && !g.is_empty())?;
        let mut value = self.group_value(name, versions);
        value["kind"] = json!("APIGroup");
        value["apiVersion"] = json!("v1");
        Some(value)
    }

    /// `APIResourceList`.
    pub fn resource_list(&self, api_version: &str) -> Option<Value> {
        if !self.serves(api_version) {
            return None;
        }
        let mut list = Vec::new();
        for entry in self.all.iter().filter(|e| e.resource.api_version() == api_version) {
            let r = &*entry.resource;
            let mut item = json!({
                "name": r.plural, "singularName": r.singular, "namespaced": r.namespaced, "kind": r.kind,
                "verbs": r.verbs(),
            });
            if !r.create_only && !r.read_only {
                item["storageVersionHash"] = json!(storage_hash(r));
            }
            if !r.short_names.is_empty() {
                item["shortNames"] = json!(r.short_names);
            }
            if !r.categories.is_empty() {
                item["categories"] = json!(r.categories);
            }
            list.push(item);
            for (name, group, version, kind, verbs) in r.subresources() {
                let mut item = json!({
                    "name": format!("{}/{name}", r.plural), "singularName": "", "namespaced": r.namespaced,
                    "kind": kind, "verbs": verbs,
                });
                if group != r.group || version != r.version {
                    item["group"] = json!(group);
                    item["version"] = json!(version);
                }
                list.push(item);
            }
        }
        Some(
            json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": api_version, "resources": list}),
        )
    }

    /// `APIGroupDiscoveryList` of the core group or of all others.
    pub fn aggregated(&self, core: bool, api_version: &str) -> Value {
        let mut items = Vec::new();
        for (group, versions) in self.groups.iter().filter(|(g, _)| g.is_empty() == core) {
            let mut list = Vec::new();
            for version in versions {
                let mut resources = Vec::new();
                let mine = |e: &&ServedResource| e.resource.group == *group && e.resource.version == *version;
                for entry in self.all.iter().filter(mine) {
                    let r = &*entry.resource;
                    let mut item = json!({
                        "resource": r.plural,
                        "responseKind": {"group": r.group, "version": r.version, "kind": r.kind},
                        "scope": if r.namespaced { "Namespaced" } else { "Cluster" },
                        "singularResource": r.singular, "verbs": r.verbs(),
                    });
                    if !r.short_names.is_empty() {
                        item["shortNames"] = json!(r.short_names);
                    }
                    if !r.categories.is_empty() {
                        item["categories"] = json!(r.categories);
                    }
                    let subs: Vec<Value> = r
                        .subresources()
                        .into_iter()
                        .map(|(name, group, version, kind, verbs)| {
                            json!({
                                "subresource": name, "verbs": verbs,
                                "responseKind": {"group": group, "version": version, "kind": kind},
                            })
                        })
                        .collect();
                    if !subs.is_empty() {
                        item["subresources"] = Value::Array(subs);
                    }
                    resources.push(item);
                }
                list.push(json!({"version": version, "resources": resources, "freshness": "Current"}));
            }
            let metadata = if core { json!({}) } else { json!({"name": group}) };
            items.push(json!({"metadata": metadata, "versions": list}));
        }
        json!({
            "kind": "APIGroupDiscoveryList", "apiVersion": format!("apidiscovery.k8s.io/{api_version}"),
            "metadata": {}, "items": items,
        })
    }
}

/// Kubernetes version order: stable before beta before alpha, then by number.
pub fn version_rank(version: &str) -> (u8, u32, u32) {
    let parse = || -> Option<(u8, u32, u32)> {
        let rest = version.strip_prefix('v')?;
        for (word, rank) in [("beta", 2), ("alpha", 1)] {
            if let Some((major, minor)) = rest.split_once(word) {
                return Some((rank, major.parse().ok()?, minor.parse().ok()?));
            }
        }
        Some((3, rest.parse().ok()?, 0))
    };
    parse().unwrap_or((0, 0, 0))
}

/// By what clients see that a kind is stored under another version.
fn storage_hash(r: &Resource) -> String {
    use base64::Engine;
    let (group, version) = r.stored_as.rsplit_once('/').unwrap_or(("", &r.stored_as));
    let digest = fleet_apiserver_ground::digest::sha256(format!("{group}/{version}/{}", r.kind).as_bytes());
    base64::engine::general_purpose::STANDARD.encode(&digest[..8])
}
