//! Label and field selectors.
//!
//! Inputs: the texts of `labelSelector` and `fieldSelector`. Absent on purpose: the `shardSelector` alpha.

use crate::error::{ApiError, ApiResult};
use crate::resource::Resource;
use crate::validate;
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
        let mut out = Vec::new();
        for part in split(text) {
            let part = part.trim();
            if part.is_empty() {
                continue;
            }
            let (key, test) = requirement(part).ok_or_else(|| unread(part))?;
            check(&key, &test)?;
            out.push((key, test));
        }
        Ok(Labels(out))
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

fn split(text: &str) -> Vec<&str> {
    let (mut depth, mut start, mut out) = (0, 0, Vec::new());
    for (i, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            ',' if depth == 0 => {
                out.push(&text[start..i]);
                start = i + 1;
            }
            _ => {}
        }
    }
    out.push(&text[start..]);
    out
}

/// Keys and values are those that labels can have.
fn check(key: &str, test: &Test) -> Result<(), String> {
    if !validate::is_qualified(key) {
        return Err(format!("<nil>: Invalid value: {key:?}: {}", validate::QUALIFIED));
    }
    let values = match test {
        Test::In(values) | Test::NotIn(values) => values.as_slice(),
        _ => &[],
    };
    match values.iter().enumerate().find(|(_, v)| !validate::is_label_value(v)) {
        None => Ok(()),
        Some((i, v)) => Err(format!("values[{i}][{key}]: Invalid value: {v:?}: {}", validate::LABEL_VALUE)),
    }
}

/// Why a part of a selector cannot be read.
fn unread(part: &str) -> String {
    let mut words = part.split_whitespace();
    match (words.next(), words.next()) {
        (Some(_), Some(second)) if !matches!(second, "in" | "notin") => {
            format!("found '{second}', expected: in, notin, =, ==, !=, gt, lt")
        }
        _ if part.starts_with('(') => "found '(', expected: !, identifier, or 'end of string'".to_string(),
        _ if part.contains("==") => "found '=', expected: identifier".to_string(),
        _ if part.contains('(') => "found '', expected: ',', ')' or identifier".to_string(),
        _ if part.ends_with('!') => "found '', expected: identifier".to_string(),
        _ => format!("found '{part}', expected: !, identifier, or 'end of string'"),
    }
}

fn requirement(part: &str) -> Option<(String, Test)> {
    let valid = |k: &str| {
        let ok = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/');
        let k = k.trim();
        (!k.is_empty() && k.chars().all(ok)).then(|| k.to_string())
    };
    let word = |v: &str| {
        let ok = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        let v = v.trim();
        v.chars().all(ok).then(|| v.to_string())
    };
    if let Some(key) = part.strip_prefix('!') {
        return Some((valid(key)?, Test::Missing));
    }
    if let Some((k, v)) = part.split_once("!=") {
        return Some((valid(k)?, Test::NotIn(vec![word(v)?])));
    }
    if let Some((k, v)) = part.split_once("==").or_else(|| part.split_once('=')) {
        return Some((valid(k)?, Test::In(vec![word(v)?])));
    }
    if let Some((k, v)) = part.split_once('>') {
        return Some((valid(k)?, Test::Greater(v.trim().parse().ok()?)));
    }
    if let Some((k, v)) = part.split_once('<') {
        return Some((valid(k)?, Test::Less(v.trim().parse().ok()?)));
    }
    if let Some((head, list)) = part.split_once('(') {
        let values: Option<Vec<String>> = list.trim_end().strip_suffix(')')?.split(',').map(word).collect();
        let mut words = head.split_whitespace();
        let (key, op) = (words.next()?, words.next()?);
        if words.next().is_some() {
            return None;
        }
        return match op {
            "in" => Some((valid(key)?, Test::In(values?))),
            "notin" => Some((valid(key)?, Test::NotIn(values?))),
            _ => None,
        };
    }
    Some((valid(part)?, Test::Exists))
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
                let listed = !fields(resource).is_empty() && resource.group.is_empty();
                let message = match resource.plural.as_str() {
                    _ if resource.custom || listed => format!("field label not supported: {key}"),
                    "jobs" => format!("field label \"{key}\" not supported for Job"),
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
        _ => key.into(),
    }
}

fn supported(r: &Resource, key: &str) -> bool {
    if key == "metadata.name" || key == "metadata.namespace" {
        return true;
    }
    if r.custom {
        return r.selectable.iter().any(|s| s == key);
    }
    fields(r).contains(&key)
}

/// What objects of a built-in kind are selected by, beside name and namespace.
fn fields(r: &Resource) -> &'static [&'static str] {
    match r.plural.as_str() {
        "pods" => &[
            "spec.nodeName",
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
        "events" => &[
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "regarding.kind",
            "regarding.namespace",
            "regarding.name",
            "regarding.uid",
            "regarding.apiVersion",
            "regarding.resourceVersion",
            "regarding.fieldPath",
            "reason",
            "reportingComponent",
            "reportingController",
            "source",
            "type",
        ],
        "namespaces" => &["status.phase"],
        "secrets" => &["type"],
        "services" => &["spec.clusterIP", "spec.type"],
        "replicationcontrollers" | "replicasets" => &["status.replicas"],
        "jobs" => &["status.successful"],
        "certificatesigningrequests" => &["spec.signerName"],
        "resourceslices" => &["spec.nodeName", "spec.driver"],
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn label_forms() {
        let o = json!({"metadata": {"labels": {"a": "1", "b": "x"}}});
        let check = |s: &str| Labels::parse(s).unwrap().matches(&o);
        assert!(check("a=1,b in (x, y)"));
        assert!(check("a==1,!c,b!=z,b notin (q),a>0,a<2,b"));
        assert!(!check("c"));
        assert!(!check("b notin (x)"));
        assert!(Labels::parse("a in x").is_err());
        assert!(Labels::parse("a b").is_err());
    }

    #[test]
    fn field_forms() {
        let pods = crate::builtins::find("", "pods");
        let o = json!({"metadata": {"name": "p"}, "status": {"phase": "Running"}});
        let check = |s: &str| Fields::parse(s, pods).unwrap().matches(&o);
        assert!(check("metadata.name=p,status.phase!=Failed,spec.nodeName="));
        assert!(!check("status.phase!=Running"));
        assert!(Fields::parse("spec.bogus=1", pods).is_err());
    }
}
