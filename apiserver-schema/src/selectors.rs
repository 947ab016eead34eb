//! Label and field selectors.
//!
//! Inputs: the texts of `labelSelector` and `fieldSelector`. Absent on purpose: the `shardSelector` alpha.

use crate::error::{ApiError, ApiResult};
use crate::label_text::{self, Operator, Requirement};
use crate::resource::Resource;
use fleet_apiserver_ground::packed::Node;
use fleet_apiserver_ground::tree;
use serde_json::Value;
use std::borrow::Cow;

/// Where selectors look: a tree or a packed object.
pub trait FieldLookup {
    /// The scalar at a chain of fields as text; None when it is missing or null.
    fn lookup<S: AsRef<str>>(&self, path: &[S]) -> Option<Cow<'_, str>>;
}

impl FieldLookup for Value {
    fn lookup<S: AsRef<str>>(&self, path: &[S]) -> Option<Cow<'_, str>> {
        match path.iter().try_fold(self, |v, k| v.get(k.as_ref()))? {
            Value::Null => None,
            Value::String(s) => Some(Cow::Borrowed(s)),
            other => Some(Cow::Owned(other.to_string())),
        }
    }
}

impl FieldLookup for Node<'_> {
    fn lookup<S: AsRef<str>>(&self, path: &[S]) -> Option<Cow<'_, str>> {
        let node = self.at(path)?;
        if let Some(text) = node.text() {
            return Some(text);
        }
        match node.value() {
            Value::Null => None,
            other => Some(Cow::Owned(other.to_string())),
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
enum Test {
    In(Vec<String>),
    NotIn(Vec<String>),
    Exists,
    Missing,
    Greater(i64),
    Less(i64),
}

/// A parsed label selector.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Labels(Vec<(String, Test)>);

impl Labels {
    /// Parses the URL form.
    pub fn parse(text: &str) -> Result<Labels, String> {
        // A number that can be read, which was checked.
        let number =
            |r: &Requirement| r.values.first().and_then(|v| v.parse::<i64>().ok()).unwrap_or_default();
        let one = |r: Requirement| {
            let test = match r.operator {
                Operator::In => Test::In(r.values),
                Operator::NotIn => Test::NotIn(r.values),
                Operator::Exists => Test::Exists,
                Operator::Missing => Test::Missing,
                Operator::Greater => Test::Greater(number(&r)),
                Operator::Less => Test::Less(number(&r)),
            };
            (r.key, test)
        };
        Ok(Labels(label_text::parse(text)?.into_iter().map(one).collect()))
    }

    /// Parses a `LabelSelector` object.
    pub fn from_object(value: &Value) -> Labels {
        let mut out = Vec::new();
        for (k, v) in value.get("matchLabels").and_then(Value::as_object).into_iter().flatten() {
            out.push((k.clone(), Test::In(vec![v.as_str().unwrap_or_default().to_string()])));
        }
        for e in tree::list(value, &["matchExpressions"]) {
            let values: Vec<String> =
                tree::list(e, &["values"]).iter().filter_map(|v| v.as_str().map(str::to_string)).collect();
            let test = match tree::text(e, &["operator"]) {
                "In" => Test::In(values),
                "NotIn" => Test::NotIn(values),
                "Exists" => Test::Exists,
                _ => Test::Missing,
            };
            out.push((tree::text(e, &["key"]).to_string(), test));
        }
        Labels(out)
    }

    /// True without requirements.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// True when the object's labels satisfy every requirement.
    pub fn matches(&self, object: &impl FieldLookup) -> bool {
        self.0.iter().all(|(key, test)| {
            let value = object.lookup(&["metadata", "labels", key.as_str()]);
            let value = value.as_deref();
            let number = || value.and_then(|v| v.parse::<i64>().ok());
            match test {
                Test::In(list) => value.is_some_and(|v| list.iter().any(|x| x == v)),
                Test::NotIn(list) => !value.is_some_and(|v| list.iter().any(|x| x == v)),
                Test::Exists => value.is_some(),
                Test::Missing => value.is_none(),
                Test::Greater(n) => number().is_some_and(|v| v > *n),
                Test::Less(n) => number().is_some_and(|v| v < *n),
            }
        })
    }
}

/// A parsed field selector.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Fields(Vec<(Vec<String>, bool, String)>);

impl Fields {
    /// Parses and checks that the resource supports each field.
    pub fn parse(text: &str, resource: &Resource) -> ApiResult<Fields> {
        let mut out = Vec::new();
        for part in text.split(',').filter(|p| !p.trim().is_empty()) {
            let (key, equal, value) = if let Some((k, v)) = part.split_once("!=") {
                (k, false, v)
            } else if let Some((k, v)) = part.split_once("==").or_else(|| part.split_once('=')) {
                (k, true, v)
            } else {
                return Err(ApiError::bad_request(format!(
                    "invalid selector: '{text}'; can't understand '{part}'"
                )));
            };
            let key = key.trim();
            if !supported(resource, key) {
                let message = match resource.plural.as_str() {
                    _ if resource.custom => format!("field label not supported: {key}"),
                    "jobs" => format!("field label \"{key}\" not supported for Job"),
                    "resourceslices" => format!(
                        "field label not supported for {}, Kind={}: {key}",
                        resource.api_version(),
                        resource.kind
                    ),
                    _ if !fields(resource).is_empty() => format!("field label not supported: {key}"),
                    _ => format!(
                        "\"{key}\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\""
                    ),
                };
                return Err(ApiError::bad_request(message));
            }
            let key = stored_name(resource, key);
            out.push((key.split('.').map(str::to_string).collect(), equal, value.trim().to_string()));
        }
        Ok(Fields(out))
    }

    /// True without requirements.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The name the selector pins, if any.
    pub fn name(&self) -> Option<&str> {
        self.pinned(&["metadata", "name"])
    }

    /// The node the selector pins, if any.
    pub fn node(&self) -> Option<&str> {
        self.pinned(&["spec", "nodeName"])
    }

    /// The namespace the selector pins, if any.
    pub fn namespace(&self) -> Option<&str> {
        self.pinned(&["metadata", "namespace"])
    }

    fn pinned(&self, path: &[&str]) -> Option<&str> {
        self.0.iter().find(|(p, equal, _)| *equal && p == path).map(|(_, _, v)| v.as_str())
    }

    /// True when the object's fields satisfy every requirement. A missing field reads as "".
    pub fn matches(&self, object: &impl FieldLookup) -> bool {
        self.0.iter().all(|(path, equal, want)| {
            let same = match object.lookup(path) {
                None => match path.last().map(String::as_str) {
                    Some("unschedulable" | "hostNetwork") => want.is_empty() || want == "false",
                    Some("replicas" | "successful" | "succeeded") => want.is_empty() || want == "0",
                    _ => want.is_empty(),
                },
                Some(found) => found == *want,
            };
            same == *equal
        })
    }
}

fn stored_name<'a>(resource: &Resource, key: &'a str) -> std::borrow::Cow<'a, str> {
    if resource.plural == "events" {
        if let Some(rest) = key.strip_prefix("regarding.") {
            return format!("involvedObject.{rest}").into();
        }
        return match key {
            "source" => "source.component".into(),
            "reportingController" => "reportingComponent".into(),
            _ => key.into(),
        };
    }
    match (resource.plural.as_str(), key) {
        ("jobs", "status.successful") => "status.succeeded".into(),
        // The name of this field in the first versions.
        ("pods", "spec.host") => "spec.nodeName".into(),
        _ => key.into(),
    }
}

fn supported(r: &Resource, key: &str) -> bool {
    match key {
        "metadata.name" => true,
        // Kinds that say themselves what they are selected by leave it out when they have none.
        "metadata.namespace" => r.namespaced || (!r.custom && fields(r).is_empty()),
        _ if r.custom => r.selectable.iter().any(|s| s == key),
        _ => fields(r).contains(&key),
    }
}

/// What objects of a built-in kind are selected by, beside name and namespace.
fn fields(r: &Resource) -> &'static [&'static str] {
    match r.plural.as_str() {
        "pods" => &[
            "spec.nodeName",
            "spec.host",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.podIPs",
            "status.nominatedNodeName",
        ],
        "nodes" => &["spec.unschedulable"],
        "events" if r.group.is_empty() => &[
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "reason",
            "reportingComponent",
            "source",
            "type",
        ],
        "events" => &[
            "regarding.kind",
            "regarding.namespace",
            "regarding.name",
            "regarding.uid",
            "regarding.apiVersion",
            "regarding.resourceVersion",
            "regarding.fieldPath",
            "reason",
            "reportingController",
            "type",
        ],
        "namespaces" => &["status.phase"],
        "secrets" => &["type"],
        "services" => &["spec.clusterIP", "spec.type"],
        "replicationcontrollers" => &["status.replicas"],
        "jobs" => &["status.successful"],
        "certificatesigningrequests" => &["spec.signerName"],
        "resourceslices" => &["spec.nodeName", "spec.driver"],
        _ => &[],
    }
}

#[cfg(test)]
mod tests;
