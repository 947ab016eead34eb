//! Checks of what a pod says in annotations, and of names that it makes from its own.
//!
//! Inputs: pods and templates in the stored form. Source: the validation of Kubernetes 1.36.

use super::{change, names, paths, placing};
use fleet_apiserver_ground::tree;
use fleet_apiserver_schema::error::Cause;
use fleet_apiserver_schema::field::{At, Causes};
use serde_json::Value;
use std::collections::BTreeSet;

/// A pod that a kubelet runs by itself.
const MIRROR: &str = "kubernetes.io/config.mirror";
const TOLERATIONS: &str = "scheduler.alpha.kubernetes.io/tolerations";
const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";
const SECCOMP_POD: &str = "seccomp.security.alpha.kubernetes.io/pod";
const SECCOMP_CONTAINER: &str = "container.seccomp.security.alpha.kubernetes.io/";
pub(crate) const APP_ARMOR: &str = "container.apparmor.security.beta.kubernetes.io/";
/// Before the name of a profile that lies on the node.
pub(crate) const LOCAL: &str = "localhost/";

/// Lists of containers, in the order in which they are visited.
const LISTS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];

/// Checks what of a pod depends on its metadata, and what of it changes, through which endpoint.
pub fn check_change(old: Option<&Value>, pod: &Value, subresource: &str, causes: &mut Vec<Cause>) {
    // What is stored is valid.
    let changed = |old: &Value| written(old) != written(pod);
    if subresource.is_empty() && old.is_none_or(changed) {
        let found = Causes::default();
        let root = At::root(pod, &found);
        let (meta, spec) = (root.at("metadata"), root.at("spec"));
        check(&meta.at("annotations"), &spec);
        // Metadata is told before the spec.
        let place = causes.iter().position(|c| c.field.starts_with("spec")).unwrap_or(causes.len());
        drop(causes.splice(place..place, found.take()));
    }
    if old.is_none() {
        let found = Causes::default();
        let root = At::root(pod, &found);
        let (meta, spec) = (root.at("metadata"), root.at("spec"));
        made_claims(&meta, &spec);
        match_fields(&meta.at("annotations"), &spec);
        causes.extend(found.take());
    }
    change::check_change(old, pod, subresource, causes);
}

fn written(pod: &Value) -> Option<&Value> {
    tree::at(pod, &["metadata", "annotations"])
}

/// Checks the annotations that mean something for a pod; `notes` is their place.
pub(crate) fn check(notes: &At, spec: &At) {
    if notes.is_empty() {
        return;
    }
    let mirror = notes.key(MIRROR);
    if mirror.is_set() && spec.at("nodeName").text().is_empty() {
        names::tell_one(&mirror, mirror.text(), "must set spec.nodeName if mirror pod annotation is set");
    }
    let tolerations = notes.key(TOLERATIONS).text();
    if !tolerations.is_empty() {
        match serde_json::from_str::<Value>(tolerations) {
            Ok(list) => placing::tolerations(&notes.beside(TOLERATIONS, Some(&list))),
            Err(error) => names::tell_one(notes, TOLERATIONS, &error.to_string()),
        }
    }
    let cost = notes.key(DELETION_COST);
    if cost.is_set() && !is_cost(cost.text()) {
        names::tell_one(&cost, cost.text(), "must be a 32bit integer");
    }
    for (key, note) in notes.entries() {
        if key == SECCOMP_POD || key.starts_with(SECCOMP_CONTAINER) {
            seccomp(&notes.beside(key, Some(note.value())));
        }
    }
    for (key, note) in notes.entries() {
        let Some(name) = key.strip_prefix(APP_ARMOR) else { continue };
        let has = |list: &str| spec.at(list).items().any(|c| c.at("name").text() == name);
        if !LISTS.into_iter().any(has) {
            names::tell_one(&note, name, "container not found");
        }
        let profile = note.text();
        if !matches!(profile, "" | "runtime/default" | "unconfined") && !profile.starts_with(LOCAL) {
            note.invalid(&format!("invalid AppArmor profile name: {profile:?}"));
        }
    }
}

/// A number of 32 bits without a plus or zeros before it.
fn is_cost(text: &str) -> bool {
    let first = text.bytes().next().unwrap_or_default();
    let plain = first == b'-' || text == "0" || (b'1'..=b'9').contains(&first);
    plain && text.parse::<i32>().is_ok()
}

fn seccomp(at: &At) {
    match at.text() {
        "runtime/default" | "docker/default" | "unconfined" => {}
        text => match text.strip_prefix(LOCAL) {
            Some(path) => paths::local(at, path),
            None => names::tell_one(at, text, "must be a valid seccomp profile"),
        },
    }
}

/// Profiles that are said both in annotations and in fields are the same.
pub(crate) fn match_fields(notes: &At, spec: &At) {
    if notes.is_empty() {
        return;
    }
    let context = spec.at("securityContext");
    match_profile(&notes.key(SECCOMP_POD), &context.at("seccompProfile"), "seccomp");
    for list in LISTS {
        for c in spec.at(list).items() {
            let key = format!("{SECCOMP_CONTAINER}{}", c.at("name").text());
            let own = c.at("securityContext");
            match_profile(&notes.key(&key), &own.at("seccompProfile"), "seccomp");
        }
    }
    if spec.at("os.name").text() == "windows" {
        return;
    }
    for list in LISTS {
        for c in spec.at(list).items() {
            let key = format!("{APP_ARMOR}{}", c.at("name").text());
            let own = c.at("securityContext");
            let profile = own.at("appArmorProfile");
            // What holds for the whole pod is told of the container, too.
            let whole = context.at("appArmorProfile");
            let value = if profile.is_set() { profile.value() } else { whole.value() };
            let profile = own.beside("appArmorProfile", Some(value));
            match_profile(&notes.key(&key), &profile, "apparmor");
        }
    }
}

fn match_profile(note: &At, profile: &At, what: &str) {
    if !note.is_set() || !profile.is_set() {
        return;
    }
    let (said, kind, local) = (note.text(), profile.at("type"), profile.at("localhostProfile"));
    let same = match kind.text() {
        "Unconfined" => said == "unconfined",
        "RuntimeDefault" => said == "runtime/default" || (what == "seccomp" && said == "docker/default"),
        "Localhost" => said.starts_with(LOCAL),
        _ => true,
    };
    if !same {
        kind.forbidden(&format!("{what} type in annotation and field must match"));
    } else if kind.text() == "Localhost" {
        let path = said.strip_prefix(LOCAL).unwrap_or_default();
        if !local.is_set() || local.text() != path {
            local.forbidden(&format!("{what} profile in annotation and field must match"));
        }
    }
}

/// Claims that a pod's volumes bring with them are named after the pod, and are not used by another volume.
fn made_claims(meta: &At, spec: &At) {
    let pod = meta.at("name").text();
    let volumes = spec.at("volumes");
    if meta.at("annotations").key(MIRROR).is_set() {
        for _ in spec.at("resourceClaims").items() {
            spec.note(Cause::forbidden("", "static pods do not support resource claims"));
        }
    }
    if pod.is_empty() {
        return;
    }
    let made: BTreeSet<String> = volumes
        .items()
        .filter(|volume| volume.at("ephemeral").is_set())
        .map(|volume| format!("{pod}-{}", volume.at("name").text()))
        .collect();
    if made.is_empty() {
        return;
    }
    for volume in volumes.items() {
        let name = volume.at("name");
        if volume.at("ephemeral").is_set() && !name.text().is_empty() {
            let claim = format!("{pod}-{}", name.text());
            for why in names::subdomain(&claim) {
                names::tell_one(&name, name.text(), &format!("PVC name {claim:?}: {why}"));
            }
        }
        let used = volume.at("persistentVolumeClaim");
        let claim = used.at("claimName");
        if used.is_set() && made.contains(claim.text()) {
            claim.invalid("must not reference a PVC that gets created for an ephemeral volume");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn told(pod: Value) -> Vec<(String, String)> {
        let mut causes =
            vec![Cause::invalid("metadata.name", &json!("n"), "w"), Cause::required("spec.x", "")];
        check_change(None, &pod, "", &mut causes);
        causes.into_iter().map(|c| (c.field, c.message)).collect()
    }

    #[test]
    fn annotations_are_told_before_the_spec_and_profiles_after_it() {
        let notes = json!({"controller.kubernetes.io/pod-deletion-cost": "+1", "seccomp.security.alpha.kubernetes.io/pod": "x",
            "container.apparmor.security.beta.kubernetes.io/d": "no", "container.apparmor.security.beta.kubernetes.io/c": "unconfined"});
        let spec = json!({"containers": [{"name": "c"}], "securityContext": {"appArmorProfile": {"type": "RuntimeDefault"}}});
        let found = told(json!({"metadata": {"name": "p", "annotations": notes}, "spec": spec}));
        let found: Vec<(&str, &str)> = found.iter().map(|(f, m)| (f.as_str(), m.as_str())).collect();
        assert_eq!(
            found,
            [
                ("metadata.name", "Invalid value: \"n\": w"),
                (
                    "metadata.annotations[controller.kubernetes.io/pod-deletion-cost]",
                    "Invalid value: \"+1\": must be a 32bit integer"
                ),
                (
                    "metadata.annotations.seccomp.security.alpha.kubernetes.io/pod",
                    "Invalid value: \"x\": must be a valid seccomp profile"
                ),
                (
                    "metadata.annotations[container.apparmor.security.beta.kubernetes.io/d]",
                    "Invalid value: \"d\": container not found"
                ),
                (
                    "metadata.annotations[container.apparmor.security.beta.kubernetes.io/d]",
                    "Invalid value: \"no\": invalid AppArmor profile name: \"no\""
                ),
                ("spec.x", "Required value"),
                (
                    "spec.containers[0].securityContext.appArmorProfile.type",
                    "Forbidden: apparmor type in annotation and field must match"
                ),
            ]
        );
    }
}
