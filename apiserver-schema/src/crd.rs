//! CustomResourceDefinitions: what they may say, what they are completed with, and which resources they serve.
//!
//! Inputs: CRD objects. Absent on purpose: conversion by webhooks, and the registry that serves the resources.

use crate::error::{ApiError, ApiResult, Cause};
use crate::jsonpath::JsonPath;
use crate::resource::{Column, Resource, ScalePaths};
use crate::{builtins, canonical, compiled, definition};
use fleet_apiserver_ground::tree;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Checks and completes a CRD before it is stored: default names, conditions, stored versions. `others` are all CRDs
/// that are stored.
pub fn admit(old: Option<&Value>, crd: &mut Value, others: &[Value], now: &str) -> ApiResult<()> {
    let name = tree::meta_text(crd, "name").to_string();
    let group = tree::text(crd, &["spec", "group"]).to_string();
    let plural = tree::text(crd, &["spec", "names", "plural"]).to_string();
    let kind = tree::text(crd, &["spec", "names", "kind"]).to_string();
    let mut causes = Vec::new();
    for (path, found) in [("spec.group", &group), ("spec.names.plural", &plural), ("spec.names.kind", &kind)]
    {
        if found.is_empty() {
            causes.push(Cause::required(path, ""));
        }
    }
    if name != format!("{plural}.{group}") {
        let why = "must be spec.names.plural+\".\"+spec.group";
        causes.push(Cause::invalid("metadata.name", &json!(name), why));
    }
    match tree::text(crd, &["spec", "scope"]) {
        "Namespaced" | "Cluster" => {}
        "" => causes.push(Cause::required("spec.scope", "")),
        scope => {
            let message =
                format!("Unsupported value: {scope:?}: supported values: \"Cluster\", \"Namespaced\"");
            causes.push(Cause::new("FieldValueNotSupported", "spec.scope", message));
        }
    }
    if builtins::all().iter().any(|r| r.group == group && r.plural == plural) {
        causes.push(Cause::invalid("spec.group", &json!(group), "is a built-in group and kind"));
    }
    approval(old, crd, &group, &mut causes);
    definition::check(old, crd, &mut causes);
    let stored = check_versions(old, crd, &mut causes);
    if !causes.is_empty() {
        let causes = shared(crd, causes);
        return Err(ApiError::invalid("apiextensions.k8s.io", "CustomResourceDefinition", &name, causes));
    }
    complete(old, crd, &kind, stored);
    accept_names(crd, others, now);
    canonical::complete(crd);
    Ok(())
}

/// What all versions of a CRD have in common is told once, at a place of its own.
fn shared(crd: &Value, causes: Vec<Cause>) -> Vec<Cause> {
    let versions = tree::list(crd, &["spec", "versions"]);
    let same = |key: &str| {
        let first = versions.first().and_then(|v| v.get(key));
        first.is_some() && versions.iter().all(|v| v.get(key) == first)
    };
    let mut out: Vec<Cause> = Vec::new();
    for mut cause in causes {
        for (key, place) in [
            ("schema", "validation"),
            ("subresources", "subresources"),
            ("additionalPrinterColumns", "additionalPrinterColumns"),
            ("selectableFields", "selectableFields"),
        ] {
            let rest = cause.field.strip_prefix("spec.versions[").and_then(|rest| rest.split_once("]."));
            let rest = rest.and_then(|(_, rest)| rest.strip_prefix(key)).map(str::to_string);
            if let Some(rest) = rest.filter(|_| same(key)) {
                cause.field = format!("spec.{place}{rest}");
            }
        }
        if !out.contains(&cause) {
            out.push(cause);
        }
    }
    out
}

/// Checks the versions of a CRD: the name of the one that is stored.
fn check_versions(old: Option<&Value>, crd: &Value, causes: &mut Vec<Cause>) -> String {
    let mut stored = String::new();
    let versions = tree::list(crd, &["spec", "versions"]);
    for (i, v) in versions.iter().enumerate() {
        if v.get("storage") == Some(&Value::Bool(true)) {
            stored = tree::text(v, &["name"]).to_string();
        }
        if tree::at(v, &["schema", "openAPIV3Schema"]).is_none() {
            causes.push(Cause::required(format!("spec.versions[{i}].schema.openAPIV3Schema"), ""));
        }
        let known = old.is_some_and(|old| same_schema(old, v));
        if let Some(openapi) = tree::at(v, &["schema", "openAPIV3Schema"]).filter(|_| !known) {
            let field = format!("spec.versions[{i}].schema.openAPIV3Schema");
            causes.extend(compiled::check(openapi, &field));
        }
    }
    let names: BTreeSet<&str> = versions.iter().map(|v| tree::text(v, &["name"])).collect();
    let count = versions.iter().filter(|v| v.get("storage") == Some(&Value::Bool(true))).count();
    for (wrong, why) in [
        (names.len() != versions.len(), "must contain unique version names"),
        (count != 1, "must have exactly one version marked as storage version"),
    ] {
        if wrong {
            causes.push(Cause::invalid("spec.versions", &json!(versions), why));
        }
    }
    stored
}

/// Default names, accepted names, stored versions, conditions.
fn complete(old: Option<&Value>, crd: &mut Value, kind: &str, stored: String) {
    let spec = tree::child(crd, "spec");
    tree::default_to(spec, "conversion", json!({"strategy": "None"}));
    let service = ["webhook", "clientConfig", "service"];
    let service = service.iter().try_fold(&mut spec["conversion"], |at, key| at.get_mut(*key));
    if let Some(Value::Object(service)) = service {
        tree::default_to(service, "port", 443);
    }
    let names = tree::object(spec.entry("names").or_insert_with(|| json!({})));
    tree::default_to(names, "singular", kind.to_lowercase());
    tree::default_to(names, "listKind", format!("{kind}List"));
    if let Some(old) = old {
        tree::put(tree::object(crd), "status", old.get("status").cloned());
    }
    let status = tree::child(crd, "status");
    let versions = status.entry("storedVersions").or_insert_with(|| json!([]));
    if let Value::Array(list) = versions
        && !list.iter().any(|v| *v == stored)
    {
        list.push(stored.into());
    }
}

/// Accepts the names of a CRD that no other CRD of its group has, and says so in its status. True if that changed it.
pub fn accept_names(crd: &mut Value, others: &[Value], now: &str) -> bool {
    let before = crd.get("status").cloned();
    let group = tree::text(crd, &["spec", "group"]).to_string();
    let own = tree::meta_text(crd, "name").to_string();
    let taken = |key: &str, name: &str| {
        others.iter().filter(|o| tree::meta_text(o, "name") != own).any(|other| {
            let names = tree::at(other, &["status", "acceptedNames"]).unwrap_or(&Value::Null);
            let is = |key: &str| tree::text(names, &[key]) == name;
            let short = tree::list(names, &["shortNames"]).iter().any(|short| short == name);
            tree::text(other, &["spec", "group"]) == group
                && match key {
                    "kind" | "listKind" => is("kind") || is("listKind"),
                    _ => is("plural") || is("singular") || short,
                }
        })
    };
    let mut names = tree::at(crd, &["spec", "names"]).cloned().unwrap_or_default();
    let mut conflict = None;
    let reasons = [
        ("plural", "PluralConflict"),
        ("singular", "SingularConflict"),
        ("kind", "KindConflict"),
        ("listKind", "ListKindConflict"),
    ];
    for (key, reason) in reasons {
        let name = tree::text(&names, &[key]).to_string();
        if !name.is_empty() && taken(key, &name) {
            conflict = Some((reason, name));
            tree::object(&mut names).remove(key);
        }
    }
    let short = |name: &&Value| taken("shortNames", name.as_str().unwrap_or_default());
    if let Some(name) = tree::list(&names, &["shortNames"]).iter().find(short) {
        conflict = Some(("ShortNamesConflict", name.as_str().unwrap_or_default().to_string()));
        tree::object(&mut names).remove("shortNames");
    }
    tree::child(crd, "status").insert("acceptedNames".into(), names);
    say_approval(crd, &group, now);
    let is = |crd: &Value, kind: &str, status: &str| {
        let conditions = tree::list(crd, &["status", "conditions"]);
        conditions.iter().any(|c| tree::text(c, &["type"]) == kind && tree::text(c, &["status"]) == status)
    };
    match conflict {
        None => {
            if !is(crd, "NamesAccepted", "True") {
                condition(crd, "NamesAccepted", "True", "NoConflicts", now);
            }
            if !is(crd, "Established", "True") {
                condition(crd, "Established", "True", "InitialNamesAccepted", now);
            }
        }
        Some((reason, name)) => {
            if !is(crd, "NamesAccepted", "False") {
                let why = format!("{name:?} is already in use");
                say(crd, "NamesAccepted", "False", reason, &why, now);
            }
            // What was served once stays served.
            if !is(crd, "Established", "True") && !is(crd, "Established", "False") {
                say(crd, "Established", "False", "NotAccepted", "not all names are accepted", now);
            }
        }
    }
    crd.get("status") != before.as_ref()
}

/// True if a stored CRD has this version with this schema: what was accepted once stays accepted.
fn same_schema(old: &Value, version: &Value) -> bool {
    let name = tree::text(version, &["name"]);
    let before = tree::list(old, &["spec", "versions"]).iter().find(|v| tree::text(v, &["name"]) == name);
    before.is_some_and(|b| b.get("schema") == version.get("schema"))
}

const APPROVED: &str = "api-approved.kubernetes.io";
const APPROVAL_PAGE: &str = "https://github.com/kubernetes/enhancements/pull/1111";

/// True for groups that the Kubernetes community keeps to itself.
fn protected(group: &str) -> bool {
    ["k8s.io", "kubernetes.io"]
        .iter()
        .any(|own| group == *own || group.strip_suffix(own).is_some_and(|rest| rest.ends_with('.')))
}

/// True for an annotation that names where the CRD was approved, or says that it was not.
fn says_approved(text: &str) -> bool {
    let rest = text.split_once("://").filter(|(scheme, _)| scheme.chars().all(|c| c.is_ascii_alphanumeric()));
    text.starts_with("unapproved")
        || rest.is_some_and(|(scheme, rest)| !scheme.is_empty() && !rest.is_empty())
}

/// A definition in a group of the community says where it was approved.
fn approval(old: Option<&Value>, crd: &Value, group: &str, causes: &mut Vec<Cause>) {
    let of = |crd: &Value| tree::text(crd, &["metadata", "annotations", APPROVED]).to_string();
    let found = of(crd);
    if !protected(group) || says_approved(&found) || old.is_some_and(|old| !says_approved(&of(old))) {
        return;
    }
    let field = format!("metadata.annotations[{APPROVED}]");
    let must = format!("protected groups must have approval annotation {APPROVED:?}");
    causes.push(if found.is_empty() {
        Cause::required(field, &format!("{must}, see {APPROVAL_PAGE}"))
    } else {
        let why =
            format!("{must} with either a URL or a reason starting with \"unapproved\", see {APPROVAL_PAGE}");
        Cause::invalid(field, &json!(found), &why)
    });
}

/// Says in the status of a definition in a group of the community what its annotation means.
fn say_approval(crd: &mut Value, group: &str, now: &str) {
    const KIND: &str = "KubernetesAPIApprovalPolicyConformant";
    if !protected(group) {
        return;
    }
    let found = tree::text(crd, &["metadata", "annotations", APPROVED]).to_string();
    let must = format!("protected groups must have approval annotation {APPROVED:?}");
    let (status, reason, message) = match found.as_str() {
        "" => ("False", "MissingAnnotation", format!("{must}, see {APPROVAL_PAGE}")),
        text if text.starts_with("unapproved") => {
            ("False", "UnapprovedAnnotation", format!("not approved: {text:?}"))
        }
        text if says_approved(text) => ("True", "ApprovedAnnotation", format!("approved in {text}")),
        _ => {
            let why = format!(
                "{must} with either a URL or a reason starting with \"unapproved\", see {APPROVAL_PAGE}"
            );
            ("False", "InvalidAnnotation", why)
        }
    };
    let said = |c: &Value| tree::text(c, &["type"]) == KIND && tree::text(c, &["message"]) == message;
    if !tree::list(crd, &["status", "conditions"]).iter().any(said) {
        say(crd, KIND, status, reason, &message, now);
    }
}

/// Sets a condition of a CRD.
pub fn condition(crd: &mut Value, kind: &str, status: &str, reason: &str, now: &str) {
    let message = match kind {
        "NamesAccepted" => "no conflicts found",
        "Established" => "the initial names have been accepted",
        _ => "CustomResource deletion is in progress",
    };
    say(crd, kind, status, reason, message, now);
}

fn say(crd: &mut Value, kind: &str, status: &str, reason: &str, message: &str, now: &str) {
    let conditions = tree::child(crd, "status").entry("conditions").or_insert_with(|| json!([]));
    let Value::Array(list) = conditions else { return };
    let mut said = json!({"type": kind, "status": status, "reason": reason, "message": message,
        "lastTransitionTime": now});
    let Some(known) = list.iter_mut().find(|c| tree::text(c, &["type"]) == kind) else {
        list.push(said);
        return;
    };
    // At its place, and with its time while only the reason is another one.
    if tree::text(known, &["status"]) == status && !tree::text(known, &["lastTransitionTime"]).is_empty() {
        said["lastTransitionTime"] = known["lastTransitionTime"].clone();
    }
    *known = said;
}

/// The resources a CRD serves, one for each served version.
pub fn resources(crd: &Value, crd_revision: u64) -> Vec<Resource> {
    let text = |path: &[&str]| tree::text(crd, path).to_string();
    let strings = |path: &[&str]| -> Vec<String> {
        tree::list(crd, path).iter().filter_map(|v| v.as_str().map(str::to_string)).collect()
    };
    let group = text(&["spec", "group"]);
    let unborn =
        |c: &Value| tree::text(c, &["type"]) == "Established" && tree::text(c, &["status"]) == "False";
    if tree::list(crd, &["status", "conditions"]).iter().any(unborn) {
        return Vec::new();
    }
    let versions = tree::list(crd, &["spec", "versions"]);
    let storage = versions.iter().find(|v| v.get("storage") == Some(&Value::Bool(true)));
    let stored_as = format!("{group}/{}", storage.map(|v| tree::text(v, &["name"])).unwrap_or_default());
    let path = |v: &Value, key: &str| -> Vec<String> {
        let text = tree::text(v, &["subresources", "scale", key]);
        text.split('.').filter(|s| !s.is_empty()).map(str::to_string).collect()
    };
    versions
        .iter()
        .filter(|v| v.get("served") == Some(&Value::Bool(true)))
        .map(|v| {
            let openapi = tree::at(v, &["schema", "openAPIV3Schema"]).unwrap_or(&Value::Null);
            let version = tree::text(v, &["name"]).to_string();
            let kind = text(&["spec", "names", "kind"]);
            let compiled = compiled::compiled(openapi);
            Resource {
                list_kind: text(&["spec", "names", "listKind"]),
                plural: text(&["spec", "names", "plural"]),
                singular: text(&["spec", "names", "singular"]),
                short_names: strings(&["spec", "names", "shortNames"]),
                categories: strings(&["spec", "names", "categories"]),
                namespaced: text(&["spec", "scope"]) == "Namespaced",
                status: tree::at(v, &["subresources", "status"]).is_some(),
                scale: tree::at(v, &["subresources", "scale"]).map(|_| ScalePaths {
                    spec: path(v, "specReplicasPath"),
                    status: path(v, "statusReplicasPath"),
                    selector: path(v, "labelSelectorPath"),
                }),
                schema: compiled.schema.clone(),
                rules: compiled.rules.clone(),
                table: format!("{group}/{}", text(&["spec", "names", "plural"])),
                stored_as: stored_as.clone(),
                custom: true,
                columns: columns(v),
                selectable: tree::list(v, &["selectableFields"])
                    .iter()
                    .map(|f| tree::text(f, &["jsonPath"]).trim_start_matches('.').to_string())
                    .collect(),
                generation: true,
                deprecation: (v.get("deprecated") == Some(&Value::Bool(true))).then(|| {
                    let given = tree::text(v, &["deprecationWarning"]);
                    if given.is_empty() {
                        format!("{group}/{version} {kind} is deprecated")
                    } else {
                        given.into()
                    }
                }),
                webhook: (text(&["spec", "conversion", "strategy"]) == "Webhook")
                    .then(|| tree::at(crd, &["spec", "conversion", "webhook", "clientConfig"]).cloned())
                    .flatten(),
                terminating: tree::at(crd, &["metadata", "deletionTimestamp"]).is_some(),
                crd_revision,
                group: group.clone(),
                version,
                kind,
                ..Resource::default()
            }
        })
        .collect()
}

fn columns(version: &Value) -> Vec<Column> {
    let list = tree::list(version, &["additionalPrinterColumns"]);
    if list.is_empty() {
        return vec![Column {
            name: "Age".into(),
            ty: "date".into(),
            format: String::new(),
            description: "Creation timestamp".into(),
            priority: 0,
            path: JsonPath::new(".metadata.creationTimestamp").unwrap_or_default(),
        }];
    }
    list.iter()
        .map(|c| {
            let text = |k: &str| tree::text(c, &[k]).to_string();
            let path = text("jsonPath");
            Column {
                name: text("name"),
                ty: text("type"),
                format: text("format"),
                description: match text("description") {
                    d if d.is_empty() => {
                        format!("Custom resource definition column (in JSONPath format): {path}")
                    }
                    d => d,
                },
                priority: tree::number(c, &["priority"]),
                path: JsonPath::new(&path).unwrap_or_default(),
            }
        })
        .collect()
}
