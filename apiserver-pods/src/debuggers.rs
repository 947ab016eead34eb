//! Ephemeral containers, by which a pod that runs is looked into: they only come.
//!
//! Inputs: the live pod and the one with what was sent. Absent on purpose: what such a container may say (see
//! `container`).

use super::admit::MIRROR;
use super::shown;
use fleet_apiserver_ground::tree;
use fleet_apiserver_schema::error::Cause;
use fleet_apiserver_schema::field::same_but;
use serde_json::Value;

const FIELD: &str = "spec.ephemeralContainers";

/// Checks a change of the ephemeral containers; those that are there stay as they are.
pub(crate) fn check(old: &Value, new: &Value, causes: &mut Vec<Cause>) {
    if tree::at(old, &["metadata", "annotations", MIRROR]).is_some() {
        // Nothing else is told of such a pod.
        causes.clear();
        causes.push(Cause::forbidden("[]", "static pods do not support ephemeral containers"));
        return;
    }
    let now = tree::list(new, &["spec", "ephemeralContainers"]);
    for before in tree::list(old, &["spec", "ephemeralContainers"]) {
        let name = tree::text(before, &["name"]);
        // Of several with one name the last counts.
        let found = now.iter().rev().find(|c| tree::text(c, &["name"]) == name);
        let why = match found {
            None => format!("existing ephemeral containers {name:?} may not be removed\n"),
            Some(found) if same_but(before, found, &[]) => continue,
            Some(found) => {
                let difference = shown::difference(shown::EPHEMERAL, before, found);
                format!("existing ephemeral containers {name:?} may not be changed\n{difference}")
            }
        };
        causes.push(Cause::forbidden(FIELD, &why));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn ephemeral_containers_only_come() {
        let pod = |list: Value| json!({"spec": {"ephemeralContainers": list}});
        let told = |old: Value, new: Value| {
            let mut causes = Vec::new();
            check(&pod(old), &pod(new), &mut causes);
            causes.into_iter().map(|c| c.message).collect::<Vec<_>>()
        };
        let (a, b) = (json!({"name": "a", "image": "i"}), json!({"name": "b", "image": "i"}));
        assert!(told(json!([a]), json!([b, a])).is_empty());
        let gone = told(json!([a]), json!([b]));
        assert_eq!(gone, ["Forbidden: existing ephemeral containers \"a\" may not be removed\n"]);
        let other = told(json!([a]), json!([{"name": "a", "image": "j"}]));
        let starts = "Forbidden: existing ephemeral containers \"a\" may not be changed\n@@ -1,6 +1,6 @@\n {\n  \"Name\": \"a\",\n- \"Image\": \"i\",\n+ \"Image\": \"j\",\n  \"Command\": null,";
        assert!(other[0].starts_with(starts), "{other:?}");
    }
}
