//! A whole server, and one request for a resource of it.
//!
//! Inputs: the lower half of the server, and everything above it. Absent on purpose: how a request is parsed (see
//! `door`).

use super::budgets::Budgets;
use super::conversion::Conversions;
use super::registrations::Admission;
use super::resource_quota::Quotas;
use crate::access::auth::Auth;
use crate::access::shares::Shares;
use crate::access::user::User;
use fleet_apiserver_ground::answers::Answers;
use fleet_apiserver_kinds::nodes::Nodes;
use fleet_apiserver_schema::base::Base;
use fleet_apiserver_schema::http_io::{Form, Params};
use fleet_apiserver_schema::registry::ServedResource;
use fleet_apiserver_schema::resource::Resource;
use http::{HeaderMap, header};
use std::sync::Arc;

/// State of one server.
pub struct Core {
    /// Its lower half.
    pub base: Arc<Base>,
    /// Identities and permissions.
    pub auth: Auth,
    /// Webhooks and policies.
    pub admission: Admission,
    /// Webhooks that convert custom resources.
    pub conversions: Conversions,
    /// What is known to have changed about disruption budgets.
    pub budgets: Arc<Budgets>,
    /// What is known to have changed about resource quotas.
    pub quotas: Arc<Quotas>,
    /// Answers so far.
    pub requests: Answers,
    /// What is known to have changed about nodes; None where others keep their taints.
    pub nodes: Option<Arc<Nodes>>,
    /// What each caller holds of the server.
    pub shares: Arc<Shares>,
}

impl std::ops::Deref for Core {
    type Target = Base;

    fn deref(&self) -> &Base {
        &self.base
    }
}

/// One request for a resource.
pub struct Call {
    /// The server.
    pub core: Arc<Core>,
    /// The resource and its table.
    pub entry: ServedResource,
    /// Namespace of the URL, or "".
    pub namespace: String,
    /// Object name of the URL, or "".
    pub name: String,
    /// Subresource, or "".
    pub subresource: String,
    /// Query.
    pub params: Params,
    /// Form of the answer.
    pub form: Form,
    /// The caller.
    pub user: User,
    /// Headers.
    pub headers: HeaderMap,
    /// Texts for `Warning` headers.
    pub warnings: Vec<String>,
}

impl Call {
    /// The resource.
    pub fn resource(&self) -> &Resource {
        &self.entry.resource
    }

    /// Key of a named object in the table.
    pub fn key(&self, name: &str) -> String {
        if self.resource().namespaced { format!("{}/{name}", self.namespace) } else { name.to_string() }
    }

    /// Key prefix of the collection.
    pub fn prefix(&self) -> String {
        if self.namespace.is_empty() { String::new() } else { format!("{}/", self.namespace) }
    }

    /// Field manager: the parameter, else the User-Agent up to the first slash.
    pub fn manager(&self) -> &str {
        let given = self.params.get("fieldManager");
        if !given.is_empty() {
            return given;
        }
        let agent = self.headers.get(header::USER_AGENT).and_then(|v| v.to_str().ok()).unwrap_or_default();
        let name = agent.split('/').next().unwrap_or_default();
        if name.is_empty() { "unknown" } else { name }
    }

    /// A dry run.
    pub fn dry_run(&self) -> bool {
        self.params.has("dryRun")
    }
}
