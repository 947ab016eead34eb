//! Checks of the files that the kubelet writes into volumes.
//!
//! Inputs: items of volumes in the stored form. Source: the validation of Kubernetes 1.36.

use super::environment::{Place, field_ref, resource_ref};
use super::names::need;
use super::{names, paths};
use fleet_apiserver_schema::field::At;

/// Largest mode of a file.
const MODE: i64 = 0o777;

/// The mode of a file, if one is there.
pub(crate) fn mode(at: &At) {
    if at.number().is_some_and(|n| !(0..=MODE).contains(&n)) {
        at.invalid("must be a number between 0 and 0777 (octal), both inclusive");
    }
}

/// A key of a ConfigMap or Secret, and the file it is written to.
pub(crate) fn key_to_path(item: &At) {
    need(item, &["key", "path"]);
    let path = item.at("path");
    paths::not_reserved(&path, path.text());
    mode(&item.at("mode"));
}

/// A file with what a pod says of itself. Its fields are told as if they were those of its source.
pub(crate) fn downward_file(source: &At, item: &At) {
    let at = |field: &'static str| source.beside(field, Some(item.at(field).value()));
    let path = at("path");
    if path.text().is_empty() {
        path.required("");
    }
    paths::not_reserved(&path, path.text());
    let (field, resource) = (at("fieldRef"), at("resourceFieldRef"));
    if field.is_set() {
        field_ref(&field, Place::File);
        if resource.is_set() {
            let why = "fieldRef and resourceFieldRef can not be specified simultaneously";
            names::tell_one(source, "resource", why);
        }
    } else if resource.is_set() {
        resource_ref(&resource, Place::File);
    } else {
        source.required("one of fieldRef and resourceFieldRef is required");
    }
    mode(&at("mode"));
}
