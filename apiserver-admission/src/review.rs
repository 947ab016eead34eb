//! One write as webhooks and policies see it.
//!
//! Absent on purpose: what they say of it (see `hook`, `policy`).

use crate::access::user::{self, User};
use fleet_apiserver_cel::Ask;
use fleet_apiserver_kinds::scale;
use fleet_apiserver_schema::base::Base;
use fleet_apiserver_schema::convert;
use fleet_apiserver_schema::registry::ServedResource;
use fleet_apiserver_schema::resource::Resource;
use serde_json::{Value, json};

/// What kind of write it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// POST, or an apply that creates.
    Create,
    /// PUT and PATCH.
    Update,
    /// DELETE.
    Delete,
    /// A stream to a container, or a proxy.
    Connect,
}

impl Operation {
    /// As rules and reviews write it.
    pub fn name(self) -> &'static str {
        match self {
            Operation::Create => "CREATE",
            Operation::Update => "UPDATE",
            Operation::Delete => "DELETE",
            Operation::Connect => "CONNECT",
        }
    }

    /// Kind of its options, if it has any.
    pub fn options(self) -> Option<&'static str> {
        match self {
            Operation::Create => Some("CreateOptions"),
            Operation::Update => Some("UpdateOptions"),
            Operation::Delete => Some("DeleteOptions"),
            Operation::Connect => None,
        }
    }
}

/// One write under review.
#[derive(Clone)]
pub struct Review<'a> {
    /// The server.
    pub base: &'a Base,
    /// The resource written to.
    pub entry: &'a ServedResource,
    /// The subresource, or "".
    pub subresource: &'a str,
    /// The namespace of the request, or "".
    pub namespace: &'a str,
    /// Who writes.
    pub user: &'a User,
    /// Answers what the caller may do.
    pub ask: Ask,
    /// Nothing is kept.
    pub dry_run: bool,
    /// What kind of write it is.
    pub operation: Operation,
    /// Options of the write; null for a stream.
    pub options: Value,
    /// Name of the object.
    pub name: String,
    /// The object before.
    pub old: Option<&'a Value>,
    /// The object after.
    pub new: Option<&'a Value>,
}

impl Review<'_> {
    /// The resource written to.
    pub fn resource(&self) -> &Resource {
        &self.entry.resource
    }

    /// True if what is sent is of another kind than the resource: what is done to an object, and not the object.
    pub fn is_action(&self) -> bool {
        self.operation == Operation::Connect || matches!(self.subresource, "token" | "eviction" | "binding")
    }

    /// The namespace the write is in, as stored; None for cluster scope.
    pub fn namespace_object(&self) -> Option<Value> {
        let name = self.namespace;
        if name.is_empty() {
            return None;
        }
        self.base.namespaces.get(name).map(|ns| ns.value())
    }

    /// `AdmissionRequest`, with the objects in the version of `seen`.
    pub fn request(&self, seen: &ServedResource) -> Value {
        let (asked, seen) = (self.resource(), &*seen.resource);
        let scaling = self.subresource == "scale";
        let kind = |r: &Resource| match self.subresource {
            "scale" => json!({"group": "autoscaling", "version": "v1", "kind": "Scale"}),
            "token" => json!({"group": "authentication.k8s.io", "version": "v1", "kind": "TokenRequest"}),
            "eviction" => json!({"group": "policy", "version": "v1", "kind": "Eviction"}),
            "binding" => json!({"group": "", "version": "v1", "kind": "Binding"}),
            name if self.operation == Operation::Connect => {
                let known = r.actions.iter().find(|(action, _)| name.split('/').next() == Some(*action));
                json!({"group": r.group, "version": r.version, "kind": known.map_or("", |(_, kind)| kind)})
            }
            _ => json!({"group": r.group, "version": r.version, "kind": r.kind}),
        };
        let plural = |r: &Resource| json!({"group": r.group, "version": r.version, "resource": r.plural});
        let object = |value: Option<&Value>| {
            let mut value = value.cloned().unwrap_or(Value::Null);
            if self.is_action() {
                return value;
            }
            if value.is_object() && scaling {
                value = scale::of(asked, &value).unwrap_or(Value::Null);
            } else if value.is_object() {
                convert::to_served(seen, &mut value);
            }
            value
        };
        let mut request = json!({
            "uid": self.base.ids.uuid().to_string(),
            "kind": kind(seen), "resource": plural(seen), "requestKind": kind(asked), "requestResource": plural(asked),
            "name": self.name, "operation": self.operation.name(), "userInfo": user::info(self.user),
            "object": object(self.new), "oldObject": object(self.old),
            "dryRun": self.dry_run, "options": self.options,
        });
        if !self.namespace.is_empty() {
            request["namespace"] = json!(self.namespace);
        }
        if !self.subresource.is_empty() {
            request["subResource"] = json!(self.subresource);
            request["requestSubResource"] = json!(self.subresource);
        }
        request
    }
}
