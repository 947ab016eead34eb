//! What a new pod gets when it is stored for the first time.
//!
//! Inputs: a pod with its defaults. Source: Kubernetes 1.36.

use super::admit;
use super::annotations::{APP_ARMOR, LOCAL};
use fleet_apiserver_ground::tree;
use serde_json::{Map, Value, json};

/// A pod that gates hold back says so; labels that it spreads by, and profiles from annotations, become fields.
pub fn gate(pod: &mut Value) {
    admit::gate(pod);
    merge_label_keys(pod);
    app_armor(pod);
}

/// Keys of labels stand for the pod's own values: they are added to the selectors beside them.
fn merge_label_keys(pod: &mut Value) {
    let Some(Value::Object(labels)) = tree::at(pod, &["metadata", "labels"]).cloned() else { return };
    let Some(Value::Object(spec)) = pod.get_mut("spec") else { return };
    for c in list(spec.get_mut("topologySpreadConstraints")) {
        merge(c, &labels);
    }
    for kind in ["podAffinity", "podAntiAffinity"] {
        let Some(Value::Object(kind)) = spec.get_mut("affinity").and_then(|a| a.get_mut(kind)) else {
            continue;
        };
        for preferred in list(kind.get_mut("preferredDuringSchedulingIgnoredDuringExecution")) {
            if let Some(term) = preferred.get_mut("podAffinityTerm") {
                merge(term, &labels);
            }
        }
        for term in list(kind.get_mut("requiredDuringSchedulingIgnoredDuringExecution")) {
            merge(term, &labels);
        }
    }
}

fn list(value: Option<&mut Value>) -> impl Iterator<Item = &mut Value> {
    value.and_then(Value::as_array_mut).into_iter().flatten()
}

fn merge(owner: &mut Value, labels: &Map<String, Value>) {
    let mut added = Vec::new();
    for (field, operator) in [("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn")] {
        for key in tree::list(owner, &[field]).iter().filter_map(Value::as_str) {
            if let Some(value) = labels.get(key) {
                added.push(json!({"key": key, "operator": operator, "values": [value]}));
            }
        }
    }
    // Without a selector nothing matches, whatever the keys.
    let Some(Value::Object(selector)) = owner.get_mut("labelSelector") else { return };
    if added.is_empty() {
        return;
    }
    if let Value::Array(all) = selector.entry("matchExpressions").or_insert_with(|| json!([])) {
        all.extend(added);
    }
}

/// A profile that only an annotation names.
fn app_armor(pod: &mut Value) {
    let Some(Value::Object(notes)) = tree::at(pod, &["metadata", "annotations"]).cloned() else { return };
    if !notes.keys().any(|key| key.starts_with(APP_ARMOR))
        || tree::text(pod, &["spec", "os", "name"]) == "windows"
    {
        return;
    }
    let whole = tree::at(pod, &["spec", "securityContext", "appArmorProfile"]).cloned();
    let Some(Value::Object(spec)) = pod.get_mut("spec") else { return };
    for key in ["initContainers", "containers", "ephemeralContainers"] {
        for c in list(spec.get_mut(key)) {
            let note = notes.get(&format!("{APP_ARMOR}{}", tree::text(c, &["name"]))).and_then(Value::as_str);
            let Some(profile) = note.and_then(profile) else { continue };
            if tree::at(c, &["securityContext", "appArmorProfile"]).is_none()
                && whole.as_ref() != Some(&profile)
            {
                tree::child(c, "securityContext").insert("appArmorProfile".into(), profile);
            }
        }
    }
}

fn profile(note: &str) -> Option<Value> {
    match note {
        "unconfined" => Some(json!({"type": "Unconfined"})),
        "runtime/default" => Some(json!({"type": "RuntimeDefault"})),
        _ => {
            let name = note.strip_prefix(LOCAL)?;
            let valid = !name.is_empty() && name.trim() == name && name.len() <= 4095;
            valid.then(|| json!({"type": "Localhost", "localhostProfile": name}))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn label_keys_become_expressions() {
        let term = json!({"matchLabelKeys": ["a", "none"], "mismatchLabelKeys": ["b"], "labelSelector": {"matchLabels": {"x": "y"}}});
        let bare = json!({"matchLabelKeys": ["a"]});
        let mut pod = json!({"metadata": {"labels": {"a": "1", "b": "2"}}, "spec": {
            "topologySpreadConstraints": [term, bare],
            "affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"podAffinityTerm": term}]}}}});
        gate(&mut pod);
        let both = json!([{"key": "a", "operator": "In", "values": ["1"]}, {"key": "b", "operator": "NotIn", "values": ["2"]}]);
        let spread = &pod["spec"]["topologySpreadConstraints"];
        assert_eq!(spread[0]["labelSelector"], json!({"matchLabels": {"x": "y"}, "matchExpressions": both}));
        assert_eq!(spread[1], bare);
        let preferred =
            &pod["spec"]["affinity"]["podAntiAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"];
        assert_eq!(preferred[0]["podAffinityTerm"]["labelSelector"]["matchExpressions"], both);
    }

    #[test]
    fn an_annotation_becomes_a_profile() {
        let mut pod = json!({"metadata": {"annotations": {"container.apparmor.security.beta.kubernetes.io/c": "localhost/x"}},
            "spec": {"containers": [{"name": "c"}, {"name": "d"}]}});
        gate(&mut pod);
        let profile = json!({"appArmorProfile": {"type": "Localhost", "localhostProfile": "x"}});
        assert_eq!(
            pod["spec"]["containers"],
            json!([{"name": "c", "securityContext": profile}, {"name": "d"}])
        );
    }
}
