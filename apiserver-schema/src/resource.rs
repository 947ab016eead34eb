//! One served resource, as requests, discovery and tables need it.

use crate::jsonpath::JsonPath;
use crate::schema::Schema;
use fleet_apiserver_cel::rules::Rules;
use serde_json::{Value, json};
use std::sync::Arc;

/// Where a scale subresource keeps its numbers, as field paths.
#[derive(Debug, Clone, Default)]
pub struct ScalePaths {
    /// Wanted replicas, such as `.spec.replicas`.
    pub spec: Vec<String>,
    /// Seen replicas.
    pub status: Vec<String>,
    /// Label selector in string form, if any.
    pub selector: Vec<String>,
}

/// One printer column of a custom resource.
#[derive(Debug, Clone)]
pub struct Column {
    /// Header.
    pub name: String,
    /// OpenAPI type; `date` cells are ages.
    pub ty: String,
    /// OpenAPI format.
    pub format: String,
    /// Text for `describe` style output.
    pub description: String,
    /// 0 is always shown, 1 only wide.
    pub priority: i64,
    /// Where the value is.
    pub path: JsonPath,
}

/// One served resource in one version.
#[derive(Debug, Default)]
pub struct Resource {
    /// API group, empty for core.
    pub group: String,
    /// Version.
    pub version: String,
    /// Kind.
    pub kind: String,
    /// Kind of lists.
    pub list_kind: String,
    /// Name in URLs.
    pub plural: String,
    /// Singular name.
    pub singular: String,
    /// Short names of kubectl.
    pub short_names: Vec<String>,
    /// Categories such as `all`.
    pub categories: Vec<String>,
    /// Lives in namespaces.
    pub namespaced: bool,
    /// Has /status.
    pub status: bool,
    /// Has /scale.
    pub scale: Option<ScalePaths>,
    /// Other subresources: name and kind.
    pub actions: &'static [(&'static str, &'static str)],
    /// Only POST, nothing is stored.
    pub create_only: bool,
    /// Only GET: the server itself says what it is.
    pub read_only: bool,
    /// Schema of the objects.
    pub schema: Arc<Schema>,
    /// Validation rules of the schema, where it has any.
    pub rules: Option<Arc<Rules>>,
    /// Name of the table.
    pub table: String,
    /// apiVersion of stored objects.
    pub stored_as: String,
    /// From a CustomResourceDefinition.
    pub custom: bool,
    /// Printer columns of a custom resource.
    pub columns: Vec<Column>,
    /// Paths that can be field selectors of a custom resource.
    pub selectable: Vec<String>,
    /// metadata.generation is kept.
    pub generation: bool,
    /// Warning sent with each answer of a deprecated version.
    pub deprecation: Option<String>,
    /// Where the webhook is that converts between the versions of a custom resource: the `clientConfig`.
    pub webhook: Option<Value>,
    /// The CRD is being deleted.
    pub terminating: bool,
    /// Revision of the CRD this was made from.
    pub crd_revision: u64,
}

impl Resource {
    /// `plural.group`, or the plural for core.
    pub fn qualified(&self) -> String {
        if self.group.is_empty() { self.plural.clone() } else { format!("{}.{}", self.plural, self.group) }
    }

    /// `group/version`, or the version for core.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }

    /// True for a built-in resource with this group and plural.
    #[inline]
    pub fn is(&self, group: &str, plural: &str) -> bool {
        !self.custom && self.group == group && self.plural == plural
    }

    /// Objects are stored in another version than this one.
    #[inline]
    pub fn converts(&self) -> bool {
        self.stored_as != self.api_version()
    }

    /// Verbs of the resource, as discovery lists them.
    pub fn verbs(&self) -> Value {
        if self.create_only {
            json!(["create"])
        } else if self.read_only {
            json!(["get", "list"])
        } else if self.is("", "namespaces") {
            json!(["create", "delete", "get", "list", "patch", "update", "watch"])
        } else {
            json!(["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"])
        }
    }

    /// Subresources: name, group, version, kind, verbs.
    pub fn subresources(&self) -> Vec<(&str, &str, &str, &str, Value)> {
        let mut out = Vec::new();
        if self.status {
            out.push((
                "status",
                &*self.group,
                &*self.version,
                &*self.kind,
                json!(["get", "patch", "update"]),
            ));
        }
        if self.scale.is_some() {
            out.push(("scale", "autoscaling", "v1", "Scale", json!(["get", "patch", "update"])));
        }
        for (name, kind) in self.actions {
            let (group, version) = match *kind {
                "Eviction" => ("policy", "v1"),
                "TokenRequest" => ("authentication.k8s.io", "v1"),
                _ => (&*self.group, &*self.version),
            };
            let verbs = match *name {
                "binding" | "eviction" | "token" => json!(["create"]),
                "log" => json!(["get"]),
                "proxy" => json!(["create", "delete", "get", "patch", "update"]),
                "finalize" => json!(["update"]),
                "ephemeralcontainers" | "resize" | "approval" => json!(["get", "patch", "update"]),
                _ => json!(["create", "get"]),
            };
            out.push((name, group, version, kind, verbs));
        }
        out
    }
}
