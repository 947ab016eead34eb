//! CustomResourceDefinitions: what they may say, what they are completed with, and which resources they serve.
//!
//! Inputs: CRD objects. Absent on purpose: conversion by webhooks, and the registry that serves the resources.

use crate::error::{ApiError, ApiResult, Cause};
use crate::jsonpath::JsonPath;
use crate::resource::{Column, Resource, ScalePaths};
use crate::validate::{self, NameRule, quoted};
use crate::{builtins, canonical, client_config, compiled, definition};
use fleet_apiserver_ground::tree;
use serde_json::{Map, Value, json};

/// Checks and completes a CRD before it is stored: default names, conditions, stored versions. `others` are all CRDs
/// that are stored.
pub fn admit(old: Option<&Value>, crd: &mut Value, others: &[Value], now: &str) -> ApiResult<()> {
    let name = tree::meta_text(crd, "name").to_string();
    let group = tree::text(crd, &["spec", "group"]).to_string();
    let plural = tree::text(crd, &["spec", "names", "plural"]).to_string();
    fill_in(crd);
    let mut causes = Vec::new();
    if old.is_none() {
        validate::metadata(NameRule::Subdomain, crd, &mut causes);
        if !name.is_empty() && name != format!("{plural}.{group}") {
            let why = "must be spec.names.plural+\".\"+spec.group";
            let of_name = |c: &Cause| matches!(c.field.as_str(), "metadata.generateName" | "metadata.name");
            let place = causes.iter().take_while(|c| of_name(c)).count();
            causes.insert(place, Cause::invalid("metadata.name", &json!(name), why));
        }
    }
    if builtins::all().iter().any(|r| r.group == group && r.plural == plural) {
        causes.push(Cause::invalid("spec.group", &json!(group), "is a built-in group and kind"));
    }
    definition::check(old, crd, &mut causes);
    approval(old, crd, &group, &mut causes);
    definition::check_preserving(old, crd, &mut causes);
    if !causes.is_empty() {
        return Err(ApiError::invalid("apiextensions.k8s.io", "CustomResourceDefinition", &name, causes));
    }
    complete(old, crd);
    accept_names(crd, others, now);
    canonical::complete(crd);
    Ok(())
}

/// Default names, and no conversion.
fn fill_in(crd: &mut Value) {
    let kind = tree::text(crd, &["spec", "names", "kind"]).to_string();
    let spec = tree::child(crd, "spec");
    tree::default_to(spec, "conversion", json!({"strategy": "None"}));
    let names = tree::object(spec.entry("names").or_insert_with(|| json!({})));
    let of_text = |names: &Map<String, Value>, key: &str| {
        names.get(key).and_then(Value::as_str).is_some_and(|name| !name.is_empty())
    };
    if !of_text(names, "singular") && !kind.is_empty() {
        names.insert("singular".into(), kind.to_lowercase().into());
    }
    if !of_text(names, "listKind") && !kind.is_empty() {
        names.insert("listKind".into(), format!("{kind}List").into());
    }
}

/// The port of a conversion's service, and the stored versions.
fn complete(old: Option<&Value>, crd: &mut Value) {
    let is_stored = |v: &&Value| v.get("storage") == Some(&Value::Bool(true));
    let stored = tree::list(crd, &["spec", "versions"]).iter().find(is_stored);
    let stored = stored.map(|v| tree::text(v, &["name"]).to_string()).unwrap_or_default();
    let service = ["spec", "conversion", "webhook", "clientConfig", "service"];
    let service = service.iter().try_fold(&mut *crd, |at, key| at.get_mut(*key));
    if let Some(Value::Object(service)) = service {
        tree::default_to(service, "port", 443);
    }
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
            let trusted = client_config::bundle_problem(definition::bundle(crd)).is_none();
            if !is(crd, "Established", "True") && trusted {
                condition(crd, "Established", "True", "InitialNamesAccepted", now);
            } else if !is(crd, "Established", "True") {
                let why = "The conversion webhook CABundle is invalid";
                say(crd, "Established", "False", "InvalidCABundle", why, now);
            }
        }
        Some((reason, name)) => {
            if !is(crd, "NamesAccepted", "False") {
                let why = format!("{} is already in use", quoted(&name));
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

const APPROVED: &str = "api-approved.kubernetes.io";
const APPROVAL_PAGE: &str = "https://github.com/kubernetes/enhancements/pull/1111";

/// True for groups that the Kubernetes community keeps to itself.
fn protected(group: &str) -> bool {
    ["k8s.io", "kubernetes.io"]
        .iter()
        .any(|own| group == *own || group.strip_suffix(own).is_some_and(|rest| rest.ends_with('.')))
}

/// What the annotation of a CRD says of its approval.
#[derive(PartialEq)]
enum Approval {
    Missing,
    Invalid,
    Bypassed,
    Approved,
}

impl Approval {
    fn of(text: &str) -> Approval {
        let is_scheme = |(scheme, _): &(&str, &str)| scheme.chars().all(|c| c.is_ascii_alphanumeric());
        match text.split_once("://").filter(is_scheme) {
            _ if text.is_empty() => Approval::Missing,
            _ if text.starts_with("unapproved") => Approval::Bypassed,
            Some((scheme, rest)) if !scheme.is_empty() && !rest.is_empty() => Approval::Approved,
            _ => Approval::Invalid,
        }
    }
}

/// A definition in a group of the community says where it was approved. What it says as before is not judged.
fn approval(old: Option<&Value>, crd: &Value, group: &str, causes: &mut Vec<Cause>) {
    let of = |crd: &Value| tree::text(crd, &["metadata", "annotations", APPROVED]).to_string();
    let found = of(crd);
    let state = Approval::of(&found);
    let is_fine = matches!(state, Approval::Bypassed | Approval::Approved);
    if !protected(group) || is_fine || old.is_some_and(|old| Approval::of(&of(old)) == state) {
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
        text if Approval::of(text) == Approval::Bypassed => {
            ("False", "UnapprovedAnnotation", format!("not approved: {}", quoted(text)))
        }
        text if Approval::of(text) == Approval::Approved => {
            ("True", "ApprovedAnnotation", format!("approved in {text}"))
        }
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
            description: String::new(),
            priority: 0,
            path: JsonPath::new(".metadata.creationTimestamp").unwrap_or_default(),
        }];
    }
    // Behind a path that cannot be read there are no columns, as in the real server.
    list.iter()
        .map_while(|c| {
            let text = |k: &str| tree::text(c, &[k]).to_string();
            let path = text("jsonPath");
            Some(Column {
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
                path: JsonPath::new(&path)?,
            })
        })
        .collect()
}
