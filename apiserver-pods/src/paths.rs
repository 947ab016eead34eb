//! Checks of paths below something: files in volumes, parts of volumes.
//!
//! Inputs: fields of a pod's spec. A path may break several rules at once; each is told.

use super::names;
use fleet_apiserver_schema::field::At;

const BACK: &str = "must not contain '..'";

/// True if a part of the path leads back.
pub(crate) fn goes_back(path: &str) -> bool {
    path.split('/').any(|part| part == "..")
}

/// No part of the path leads out of where it starts.
pub(crate) fn no_steps_back(at: &At, path: &str) {
    if goes_back(path) {
        names::tell_one(at, path, BACK);
    }
}

/// A path below something.
pub(crate) fn local(at: &At, path: &str) {
    if path.starts_with('/') {
        names::tell_one(at, path, "must be a relative path");
    }
    no_steps_back(at, path);
}

/// A path below something, of a name that the kubelet does not keep for itself.
pub(crate) fn not_reserved(at: &At, path: &str) {
    local(at, path);
    if path.starts_with("..") && !path.starts_with("../") {
        names::tell_one(at, path, "must not start with '..'");
    }
}
