//! Warnings about pods and their templates: what is accepted, and is probably not what was meant.
//!
//! Inputs: a new or changed object with its defaults. Source: the warnings of Kubernetes 1.36. Absent on purpose:
//! warnings of deprecated versions (see `Resource::deprecation`).

use fleet_apiserver_ground::tree::{at, list, meta_text, number, text};
use fleet_apiserver_schema::resource::Resource;
use fleet_apiserver_schema::validate::{NameRule, name};
use fleet_resources::quantity;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Labels of nodes under their former names: since when the other one holds, and which.
const OLD_LABELS: [(&str, &str, &str); 5] = [
    ("beta.kubernetes.io/arch", "v1.14", "kubernetes.io/arch"),
    ("beta.kubernetes.io/os", "v1.14", "kubernetes.io/os"),
    ("failure-domain.beta.kubernetes.io/region", "v1.17", "topology.kubernetes.io/region"),
    ("failure-domain.beta.kubernetes.io/zone", "v1.17", "topology.kubernetes.io/zone"),
    ("beta.kubernetes.io/instance-type", "v1.17", "node.kubernetes.io/instance-type"),
];

/// Volumes that are deprecated, and what is said of each.
const OLD_VOLUMES: [(&str, &str); 9] = [
    ("photonPersistentDisk", "deprecated in v1.11, non-functional in v1.16+"),
    ("gitRepo", "deprecated in v1.11"),
    ("scaleIO", "deprecated in v1.16, non-functional in v1.22+"),
    ("flocker", "deprecated in v1.22, non-functional in v1.25+"),
    ("storageos", "deprecated in v1.22, non-functional in v1.25+"),
    ("quobyte", "deprecated in v1.22, non-functional in v1.25+"),
    ("glusterfs", "deprecated in v1.25, non-functional in v1.26+"),
    ("cephfs", "deprecated in v1.28, non-functional in v1.31+"),
    ("rbd", "deprecated in v1.28, non-functional in v1.31+"),
];

/// Annotations without effect, and what is said of each.
const OLD_NOTES: [(&str, &str); 3] = [
    (
        "scheduler.alpha.kubernetes.io/critical-pod",
        "non-functional in v1.16+; use the \"priorityClassName\" field instead",
    ),
    ("security.alpha.kubernetes.io/sysctls", "non-functional in v1.11+; use the \"sysctls\" field instead"),
    (
        "security.alpha.kubernetes.io/unsafe-sysctls",
        "non-functional in v1.11+; use the \"sysctls\" field instead",
    ),
];

/// What is to be said of a new or changed object.
pub fn of(r: &Resource, old: Option<&Value>, value: &Value) -> Vec<String> {
    let mut out = Vec::new();
    let (path, prefix): (&[&str], &str) = match (r.group.as_str(), r.plural.as_str()) {
        ("", "pods") => {
            if old.is_none() && name(NameRule::Label, meta_text(value, "name")).is_some() {
                out.push(
                    "metadata.name: this is used in the Pod's hostname, which can result in surprising behavior; \
                     a DNS label is recommended"
                        .into(),
                );
            }
            (&[], "")
        }
        ("", "podtemplates") => (&["template"], "template."),
        ("", "replicationcontrollers") | ("apps", _) | ("batch", "jobs") => {
            (&["spec", "template"], "spec.template.")
        }
        ("batch", "cronjobs") => {
            (&["spec", "jobTemplate", "spec", "template"], "spec.jobTemplate.spec.template.")
        }
        _ => return out,
    };
    let Some(template) = at(value, path).filter(|t| t.get("spec").is_some_and(Value::is_object)) else {
        return out;
    };
    // What was said once of a template is not said at each change of its object's status.
    if old.and_then(|old| at(old, path)).is_some_and(|before| before.get("spec") == template.get("spec")) {
        return out;
    }
    let mut walk = Walk { spec: &template["spec"], at: format!("{prefix}spec"), out };
    walk.labels();
    for (key, why) in OLD_NOTES {
        if at(template, &["metadata", "annotations", key]).is_some() {
            walk.out.push(format!("{prefix}metadata.annotations[{key}]: {why}"));
        }
    }
    walk.volumes();
    walk.repeated("hostAliases", "ip");
    walk.repeated("imagePullSecrets", "name");
    walk.amounts(template["spec"].get("overhead"), ".overhead");
    walk.containers();
    walk.ports();
    if number(walk.spec, &["terminationGracePeriodSeconds"]) < 0 {
        let why = "must be >= 0; negative values are invalid and will be treated as 1";
        walk.say(".terminationGracePeriodSeconds", why);
    }
    walk.selectors();
    walk.out
}

struct Walk<'a> {
    spec: &'a Value,
    at: String,
    out: Vec<String>,
}

impl<'a> Walk<'a> {
    fn say(&mut self, below: &str, why: &str) {
        self.out.push(format!("{}{below}: {why}", self.at));
    }

    fn labels(&mut self) {
        for (key, since, now) in OLD_LABELS {
            let why = format!("deprecated since {since}; use {now:?} instead");
            if at(self.spec, &["nodeSelector", key]).is_some() {
                self.say(&format!(".nodeSelector[{key}]"), &why);
            }
            let affinity = at(self.spec, &["affinity", "nodeAffinity"]).unwrap_or(&Value::Null);
            let required = "requiredDuringSchedulingIgnoredDuringExecution";
            let terms = list(affinity, &[required, "nodeSelectorTerms"]);
            for (i, term) in terms.iter().enumerate() {
                for (j, e) in list(term, &["matchExpressions"]).iter().enumerate() {
                    if text(e, &["key"]) == key {
                        let place = format!(
                            ".affinity.nodeAffinity.{required}.nodeSelectorTerms[{i}].matchExpressions[{j}].key"
                        );
                        self.say(&place, &format!("{key} is {why}"));
                    }
                }
            }
            for (i, c) in list(self.spec, &["topologySpreadConstraints"]).iter().enumerate() {
                if text(c, &["topologyKey"]) == key {
                    let place = format!(".topologySpreadConstraints[{i}].topologyKey");
                    self.say(&place, &format!("{key} is {why}"));
                }
            }
        }
    }

    fn volumes(&mut self) {
        for (i, volume) in list(self.spec, &["volumes"]).iter().enumerate() {
            for (kind, why) in OLD_VOLUMES {
                if volume.get(kind).is_some_and(|v| !v.is_null()) {
                    self.say(&format!(".volumes[{i}].{kind}"), why);
                }
            }
        }
    }

    fn repeated(&mut self, field: &str, key: &str) {
        let mut seen = BTreeSet::new();
        for (i, item) in list(self.spec, &[field]).iter().enumerate() {
            let found = text(item, &[key]);
            if !seen.insert(found) {
                self.say(&format!(".{field}[{i}].{key}"), &format!("duplicate {key} {found:?}"));
            }
            if field == "imagePullSecrets" && found.is_empty() {
                self.say(&format!(".{field}[{i}].{key}"), "invalid empty name \"\"");
            }
        }
    }

    /// Bytes come whole.
    fn amounts(&mut self, amounts: Option<&Value>, below: &str) {
        for name in ["memory", "ephemeral-storage"] {
            let Some(found) = amounts.and_then(|a| a.get(name)).and_then(Value::as_str) else { continue };
            // Read as cpu, an amount counts thousandths.
            if quantity::parse("cpu", found).is_ok_and(|n| n % 1000 != 0) {
                let why = format!("fractional byte value {found:?} is invalid, must be an integer");
                self.say(&format!("{below}[{name}]"), &why);
            }
        }
    }

    fn each(&self) -> impl Iterator<Item = (String, &'a Value)> + use<'a> {
        let spec = self.spec;
        ["initContainers", "containers", "ephemeralContainers"].into_iter().flat_map(move |key| {
            list(spec, &[key]).iter().enumerate().map(move |(i, c)| (format!(".{key}[{i}]"), c))
        })
    }

    fn containers(&mut self) {
        for (place, container) in self.each() {
            for part in ["limits", "requests"] {
                self.amounts(at(container, &["resources", part]), &format!("{place}.resources.{part}"));
            }
            let mut names = BTreeSet::new();
            for (i, env) in list(container, &["env"]).iter().enumerate() {
                let name = text(env, &["name"]);
                let (value, itself) = (text(env, &["value"]), format!("$({name})"));
                // A value may build on the one before.
                let extends = value.contains(&itself) && value != itself && env.get("valueFrom").is_none();
                if !names.insert(name) && !extends {
                    let why = format!(
                        "hides previous definition of {name:?}, which may be dropped when using apply"
                    );
                    self.say(&format!("{place}.env[{i}]"), &why);
                }
            }
        }
    }

    fn ports(&mut self) {
        /// Place, port of the host, and address of it.
        type Known<'a> = Vec<(String, i64, &'a str)>;
        let mut known: BTreeMap<(i64, &str), Known<'_>> = BTreeMap::new();
        for (place, container) in self.each() {
            for (i, port) in list(container, &["ports"]).iter().enumerate() {
                let place = format!("{place}.ports[{i}]");
                let (host, ip) = (number(port, &["hostPort"]), text(port, &["hostIP"]));
                let key = (number(port, &["containerPort"]), text(port, &["protocol"]));
                for (other, its_host, its_ip) in known.get(&key).into_iter().flatten() {
                    let how = if (host, ip) == (*its_host, *its_ip) {
                        "duplicate"
                    } else if host == 0 || *its_host == 0 {
                        "overlapping"
                    } else if host == *its_host && ip.is_empty() != its_ip.is_empty() {
                        "dangerously ambiguous"
                    } else {
                        continue;
                    };
                    self.out.push(format!("{0}{place}: {how} port definition with {0}{other}", self.at));
                }
                known.entry(key).or_default().push((place, host, ip));
            }
        }
    }

    /// A selector that is not there selects nothing.
    fn selectors(&mut self) {
        let nothing = "a null labelSelector results in matching no pod";
        let lacks = |term: &Value| term.get("labelSelector").is_none_or(Value::is_null);
        for (i, c) in list(self.spec, &["topologySpreadConstraints"]).iter().enumerate() {
            if lacks(c) {
                self.say(&format!(".topologySpreadConstraints[{i}].labelSelector"), nothing);
            }
        }
        for kind in ["podAffinity", "podAntiAffinity"] {
            for (key, inner) in [
                ("requiredDuringSchedulingIgnoredDuringExecution", ""),
                ("preferredDuringSchedulingIgnoredDuringExecution", ".podAffinityTerm"),
            ] {
                for (i, term) in list(self.spec, &["affinity", kind, key]).iter().enumerate() {
                    let term = if inner.is_empty() { term } else { &term["podAffinityTerm"] };
                    if lacks(term) {
                        self.say(&format!(".affinity.{kind}.{key}[{i}]{inner}.labelSelector"), nothing);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn each_oddity_of_a_pod_is_named_at_its_place() {
        let pod = Resource { plural: "pods".into(), ..Resource::default() };
        let found = of(
            &pod,
            None,
            &json!({"metadata": {"name": "a.b"}, "spec": {
            "nodeSelector": {"beta.kubernetes.io/os": "linux"}, "terminationGracePeriodSeconds": -1,
            "volumes": [{"name": "v", "gitRepo": {}}],
            "containers": [{"name": "c", "resources": {"requests": {"memory": "100m"}},
                "env": [{"name": "A", "value": "1"}, {"name": "A", "value": "$(A)2"}, {"name": "A", "value": "3"}],
                "ports": [{"containerPort": 80, "protocol": "TCP"}, {"containerPort": 80, "protocol": "TCP"}]}]}}),
        );
        let places: Vec<&str> = found.iter().map(|w| w.split(": ").next().unwrap()).collect();
        assert_eq!(
            places,
            [
                "metadata.name",
                "spec.nodeSelector[beta.kubernetes.io/os]",
                "spec.volumes[0].gitRepo",
                "spec.containers[0].resources.requests[memory]",
                "spec.containers[0].env[2]",
                "spec.containers[0].ports[1]",
                "spec.terminationGracePeriodSeconds"
            ],
            "{found:?}"
        );
    }
}
