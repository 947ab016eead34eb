//! Checks of volumes that several sources write files to.
//!
//! Inputs: projected volumes in the stored form. Source: the validation of Kubernetes 1.36. Absent on purpose: bundles of
//! trust and certificates of pods, which are features that are off in this version.

use super::{files, names, paths};
use fleet_apiserver_schema::field::At;
use std::collections::BTreeSet;

/// Shortest time that a token may hold, in seconds.
const SHORTEST_S: i64 = 10 * 60;
/// Longest time that a token may hold, in seconds.
const LONGEST_S: i64 = 1 << 32;

/// Checks the sources of a projected volume.
pub(crate) fn check(volume: &At) {
    let mut written = BTreeSet::new();
    // Two files of one path are told of the volume; of a ConfigMap or Secret its name is shown.
    let mut file = |path: &str, shown: &str| {
        if !path.is_empty() && !written.insert(path.to_string()) {
            names::tell_one(volume, shown, "conflicting duplicate paths");
        }
    };
    for part in volume.at("sources").items() {
        let mut found = 0;
        for kind in ["secret", "configMap"] {
            let source = part.at(kind);
            if !source.is_set() {
                continue;
            }
            found += 1;
            let name = source.at("name");
            if name.text().is_empty() {
                name.required("");
            }
            for item in source.at("items").items() {
                files::key_to_path(&item);
                file(item.at("path").text(), name.text());
            }
        }
        let fields = part.at("downwardAPI");
        if fields.is_set() {
            found += 1;
            for item in fields.at("items").items() {
                files::downward_file(&fields, &item);
                file(item.at("path").text(), item.at("path").text());
            }
        }
        let account = part.at("serviceAccountToken");
        if account.is_set() {
            found += 1;
            token(volume, &account);
        }
        if found > 1 {
            part.forbidden("may not specify more than 1 volume type per source");
        }
    }
}

fn token(volume: &At, source: &At) {
    let seconds = source.at("expirationSeconds");
    if seconds.number().is_some_and(|n| n < SHORTEST_S) {
        seconds.invalid("may not specify a duration less than 10 minutes");
    }
    if seconds.number().is_some_and(|n| n > LONGEST_S) {
        seconds.invalid("may not specify a duration larger than 2^32 seconds");
    }
    // Its path is told as if it were that of the volume.
    let path = volume.beside("path", Some(source.at("path").value()));
    if path.text().is_empty() {
        path.required("");
    } else {
        paths::not_reserved(&path, path.text());
    }
}
