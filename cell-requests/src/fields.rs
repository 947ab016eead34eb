//! Fields of a job that say what it asks, and what is told of one that is nonsense.

use std::fmt;

use fleet_cells::GroupRequest;
use fleet_policies::workload::Component;
use serde_json::Value;

/// Longest name of a cell, its type, a virtual cluster or a component, as names in Kubernetes are.
const MAX_NAME: usize = 253;

/// A field of a job that cannot be a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CellRequestError {
    pub path: String,
    pub found: String,
    pub allowed: String,
}

impl fmt::Display for CellRequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: found {}; allowed: {}", self.path, self.found, self.allowed)
    }
}

impl std::error::Error for CellRequestError {}

/// A component of a job with its pod template.
pub(super) struct Role<'a> {
    pub component: Component,
    /// Of the template.
    pub path: String,
    pub template: &'a Value,
}

pub(super) fn wrong(
    path: impl Into<String>,
    found: impl Into<String>,
    allowed: impl Into<String>,
) -> CellRequestError {
    CellRequestError { path: path.into(), found: found.into(), allowed: allowed.into() }
}

/// The text of a label, else of the annotation of that name, that is not empty.
pub(super) fn text<'v>(job: &'v Value, name: &str) -> Option<&'v str> {
    let of = |field: &str| job["metadata"][field][name].as_str().filter(|text| !text.is_empty());
    of("labels").or_else(|| of("annotations"))
}

/// The same, or nothing, for a name of which each pod's request may get a copy.
pub(super) fn name(job: &Value, field: &str) -> Result<String, CellRequestError> {
    let found = text(job, field).unwrap_or_default();
    check_name(found, || path_of(job, field))?;
    Ok(found.to_owned())
}

/// Whether a name is short enough for each pod to get a copy.
pub(super) fn check_name(name: &str, path: impl FnOnce() -> String) -> Result<(), CellRequestError> {
    if name.len() <= MAX_NAME {
        return Ok(());
    }
    Err(wrong(path(), format!("{} bytes", name.len()), format!("at most {MAX_NAME} bytes")))
}

/// Where a text of that name stands.
pub(super) fn path_of(job: &Value, name: &str) -> String {
    let field = if job["metadata"]["labels"][name].is_string() { "labels" } else { "annotations" };
    format!("metadata.{field}[{name}]")
}

pub(super) fn quote(text: &str) -> String {
    format!("{:?}", text.chars().take(80).collect::<String>())
}

pub(super) fn request(vc: &str, class: i32) -> GroupRequest {
    let mut request = GroupRequest::new("", vc, class, 1, 1);
    request.affinity_group.root.members.clear();
    request
}
