//! Checks of the environment of containers, and of references to what a pod says of itself.
//!
//! Inputs: containers and volumes in the stored form. Source: the validation of Kubernetes 1.36.

use super::{names, paths};
use fleet_apiserver_ground::tree;
use fleet_apiserver_schema::error::Cause;
use fleet_apiserver_schema::field::At;
use serde_json::Value;
use std::collections::BTreeMap;

/// What a variable may name of its pod.
const OF_VARIABLE: [&str; 9] = [
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];

/// What a file may name of its pod.
const OF_FILE: [&str; 5] =
    ["metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid"];

/// Fields that are known, if not everywhere.
const KNOWN: [&str; 5] =
    ["metadata.annotations", "metadata.labels", "spec.restartPolicy", "spec.schedulerName", "status.phase"];

/// What may be named of a container's resources.
const AMOUNTS: [&str; 6] = [
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
];

/// Where a reference stands.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    Variable,
    File,
}

/// Checks `env` and `envFrom` of a container.
pub(crate) fn check(c: &At) {
    for variable in c.at("env").items() {
        let name = variable.at("name");
        if name.text().is_empty() {
            name.required("");
        } else {
            variable_name(&name);
        }
        let source = variable.at("valueFrom");
        if source.is_set() {
            source_of(&variable, &source);
        }
    }
    let lists = c.at("envFrom");
    for source in lists.items() {
        let prefix = source.at("prefix");
        if !prefix.text().is_empty() {
            variable_name(&prefix);
        }
        let mut found = 0;
        for kind in ["configMapRef", "secretRef"] {
            let chosen = source.at(kind);
            if chosen.is_set() {
                found += 1;
                generated_name(&chosen.at("name"));
            }
        }
        match found {
            0 => names::tell_one(&lists, "", "must specify one of: `configMapRef` or `secretRef`"),
            1 => {}
            _ => names::tell_one(&lists, "", "may not have more than one field specified at a time"),
        }
    }
}

/// A name that may end with a hyphen, as if something came after it.
fn generated_name(name: &At) {
    let text = name.text();
    if text.is_empty() {
        name.required("");
    } else if text.len() > 1 && text.ends_with('-') {
        let start: String = text.chars().take(text.chars().count() - 2).collect();
        names::tell(name, text, names::subdomain(&format!("{start}a")));
    } else {
        names::must_be_subdomain(name);
    }
}

fn variable_name(name: &At) {
    if !name.text().bytes().all(|b| (b' '..=b'~').contains(&b) && b != b'=') {
        name.invalid(
            "a valid environment variable name must consist only of printable ASCII characters other than '='",
        );
    }
}

fn source_of(variable: &At, source: &At) {
    let mut found = 0;
    for kind in ["fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef"] {
        let chosen = source.at(kind);
        if !chosen.is_set() {
            continue;
        }
        found += 1;
        match kind {
            "fieldRef" => field_ref(&chosen, Place::Variable),
            "resourceFieldRef" => resource_ref(&chosen, Place::Variable),
            "fileKeyRef" => file_key(&chosen),
            _ => {
                let (name, key) = (chosen.at("name"), chosen.at("key"));
                names::must_be_subdomain(&name);
                if key.text().is_empty() {
                    key.required("");
                } else {
                    names::tell(&key, key.text(), names::config_key(key.text()));
                }
            }
        }
    }
    if found == 0 {
        let why = "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or \
            `fileKeyRef`";
        names::tell_one(source, "", why);
    } else if !variable.at("value").text().is_empty() {
        names::tell_one(source, "", "may not be specified when `value` is not empty");
    } else if found > 1 {
        names::tell_one(source, "", "may not have more than one field specified at a time");
    }
}

fn file_key(at: &At) {
    let (key, volume, path) = (at.at("key"), at.at("volumeName"), at.at("path"));
    if key.text().is_empty() {
        key.required("");
    } else {
        variable_name(&key);
    }
    if volume.text().is_empty() {
        volume.required("");
    } else {
        names::must_be_label(&volume);
    }
    if path.text().is_empty() {
        path.required("");
    } else {
        paths::no_steps_back(&path, path.text());
    }
}

/// Files with variables lie in directories that are empty at first.
pub(crate) fn file_volumes(spec: &At) {
    // The last volume of a name counts.
    let volumes: BTreeMap<&str, &Value> = tree::list(spec.value(), &["volumes"])
        .iter()
        .map(|volume| (tree::text(volume, &["name"]), volume))
        .collect();
    for list in ["initContainers", "containers", "ephemeralContainers"] {
        for c in spec.at(list).items() {
            for variable in c.at("env").items() {
                let file = variable.at("valueFrom.fileKeyRef");
                if !file.is_set() {
                    continue;
                }
                let place = file.at("volumeName");
                let name = place.text();
                match volumes.get(name) {
                    None => not_found(&place, name),
                    Some(volume) if volume.get("emptyDir").is_some_and(|source| !source.is_null()) => {}
                    Some(_) => names::tell_one(&place, name, "referenced volume must be of type emptyDir"),
                }
            }
        }
    }
}

/// Notes that nothing of this name is there.
pub(crate) fn not_found(at: &At, name: &str) {
    let message = format!("Not found: {}", Value::from(name));
    at.note(Cause::new("FieldValueNotFound", at.path(), message));
}

fn unsupported(at: &At, text: &str, allowed: &[&str]) {
    let list: Vec<String> = allowed.iter().map(|word| format!("{word:?}")).collect();
    let message = format!("Unsupported value: {}: supported values: {}", Value::from(text), list.join(", "));
    at.note(Cause::new("FieldValueNotSupported", at.path(), message));
}

/// The path and the key in brackets, where there is one.
fn subscript(path: &str) -> Option<(&str, &str)> {
    path.strip_suffix("']")?.split_once("['").filter(|(path, _)| !path.is_empty())
}

/// A reference to a field of the pod itself.
pub(crate) fn field_ref(at: &At, place: Place) {
    let (version, path) = (at.at("apiVersion"), at.at("fieldPath"));
    let text = path.text();
    if version.text().is_empty() {
        version.required("");
        return;
    }
    if text.is_empty() {
        path.required("");
        return;
    }
    let wrong = |why: String| names::tell_one(&path, text, &format!("error converting fieldPath: {why}"));
    if version.text() != "v1" {
        wrong(format!("unsupported pod version: {}", version.text()));
        return;
    }
    // What is wrong with a key is told of the reference as a whole.
    match subscript(text) {
        Some(("metadata.annotations", key)) => {
            let key = key.to_lowercase();
            names::tell(at, &key, names::qualified(&key));
            return;
        }
        Some(("metadata.labels", key)) => {
            names::tell(at, key, names::qualified(key));
            return;
        }
        Some(_) => {
            wrong(format!("field label does not support subscript: {text}"));
            return;
        }
        None => {}
    }
    // An old name.
    let field = if text == "spec.host" { "spec.nodeName" } else { text };
    if !OF_VARIABLE.contains(&field) && !KNOWN.contains(&field) {
        wrong(format!("field label not supported: {text}"));
        return;
    }
    let allowed: &[&str] = match place {
        Place::Variable => &OF_VARIABLE,
        Place::File => &OF_FILE,
    };
    if !allowed.contains(&field) {
        unsupported(&path, field, allowed);
    }
}

/// A reference to what a container asks for.
pub(crate) fn resource_ref(at: &At, place: Place) {
    let (container, resource) = (at.at("containerName"), at.at("resource"));
    let name = resource.text();
    let pages = name.starts_with("requests.hugepages-") || name.starts_with("limits.hugepages-");
    if place == Place::File && container.text().is_empty() {
        container.required("");
    } else if name.is_empty() {
        resource.required("");
    } else if !AMOUNTS.contains(&name) && !pages {
        resource.unsupported(&AMOUNTS);
    }
    let divisor = at.at("divisor");
    let by = divisor.text();
    if matches!(by, "" | "0") {
        return;
    }
    const BYTES: [&str; 13] =
        ["1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei"];
    let what = match name {
        "limits.cpu" | "requests.cpu" => {
            if !matches!(by, "1" | "1m") {
                let why = "only divisor's values 1m and 1 are supported with the cpu resource";
                names::tell_one(&divisor, name, why);
            }
            return;
        }
        "limits.memory" | "requests.memory" => "memory",
        "limits.ephemeral-storage" | "requests.ephemeral-storage" => "local ephemeral storage",
        _ if pages => "hugepages",
        _ => return,
    };
    if !BYTES.contains(&by) {
        let why =
            format!("only divisor's values {} are supported with the {what} resource", BYTES.join(", "));
        names::tell_one(&divisor, name, &why);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fleet_apiserver_schema::field::Causes;
    use serde_json::json;

    /// As many names as a body holds: a search of the volumes for each of them would take minutes.
    #[test]
    fn files_of_many_variables_are_found_by_their_volumes() {
        let n = 40_000;
        let variable =
            |i: i32| json!({"name": "A", "valueFrom": {"fileKeyRef": {"volumeName": format!("v{i}")}}});
        let env: Vec<Value> = (0..=n).map(variable).collect();
        let mut volumes: Vec<Value> =
            (0..n).map(|i| json!({"name": format!("v{i}"), "emptyDir": {}})).collect();
        // Of two with one name the last counts.
        volumes.push(json!({"name": "v0", "hostPath": {"path": "/"}}));
        let spec = json!({"containers": [{"name": "c", "env": env}], "volumes": volumes});
        let causes = Causes::default();
        file_volumes(&At::root(&spec, &causes));
        let told: Vec<(String, String)> =
            causes.into_inner().into_iter().map(|cause| (cause.field, cause.message)).collect();
        let field = |i: i32| format!("containers[0].env[{i}].valueFrom.fileKeyRef.volumeName");
        assert_eq!(told.iter().map(|(at, _)| at.clone()).collect::<Vec<_>>(), [field(0), field(n)]);
        assert_eq!(told[1].1, "Not found: \"v40000\"");
    }
}
