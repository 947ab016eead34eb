//! Warnings about what a pod or a template of pods says, field by field.
//!
//! Inputs: a template with its defaults, and its place. Source: the warnings of Kubernetes 1.36. Absent on purpose:
//! when which of them is given (see `warnings`).

use super::{addresses, overlaps};
use fleet_apiserver_ground::tree::{at, list, number, text};
use fleet_apiserver_schema::validate::{LABEL_VALUE, is_label_value};
use fleet_resources::quantity;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Labels of nodes under their former names, and what is said of each.
const OLD_LABELS: [(&str, &str); 8] = [
    ("app.kubernetes.io/created-by", "deprecated since v1.9"),
    ("beta.kubernetes.io/arch", "deprecated since v1.14; use \"kubernetes.io/arch\" instead"),
    (
        "beta.kubernetes.io/instance-type",
        "deprecated since v1.17; use \"node.kubernetes.io/instance-type\" instead",
    ),
    ("beta.kubernetes.io/os", "deprecated since v1.14; use \"kubernetes.io/os\" instead"),
    (
        "failure-domain.beta.kubernetes.io/region",
        "deprecated since v1.17; use \"topology.kubernetes.io/region\" instead",
    ),
    (
        "failure-domain.beta.kubernetes.io/zone",
        "deprecated since v1.17; use \"topology.kubernetes.io/zone\" instead",
    ),
    ("node-role.kubernetes.io/master", "use \"node-role.kubernetes.io/control-plane\" instead"),
    (
        "scheduler.alpha.kubernetes.io/preferAvoidPods",
        "deprecated since v1.22; use Taints and Tolerations instead",
    ),
];

/// Volumes that are deprecated: the field, the name it is told by, and what is said.
const OLD_VOLUMES: [(&str, &str, &str); 9] = [
    ("photonPersistentDisk", "photonPersistentDisk", "deprecated in v1.11, non-functional in v1.16+"),
    ("gitRepo", "gitRepo", "deprecated in v1.11, and disabled by default in v1.33+"),
    ("scaleIO", "scaleIO", "deprecated in v1.16, non-functional in v1.22+"),
    ("flocker", "flocker", "deprecated in v1.22, non-functional in v1.25+"),
    ("storageos", "storageOS", "deprecated in v1.22, non-functional in v1.25+"),
    ("quobyte", "quobyte", "deprecated in v1.22, non-functional in v1.25+"),
    ("glusterfs", "glusterfs", "deprecated in v1.25, non-functional in v1.26+"),
    ("cephfs", "cephfs", "deprecated in v1.28, non-functional in v1.31+"),
    ("rbd", "rbd", "deprecated in v1.28, non-functional in v1.31+"),
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

const SECCOMP_POD: &str = "seccomp.security.alpha.kubernetes.io/pod";
const SECCOMP_CONTAINER: &str = "container.seccomp.security.alpha.kubernetes.io/";
const SECCOMP_NOW: &str = "non-functional in v1.27+; use the \"seccompProfile\" field instead";
/// Start of the annotations that name the profile of a container.
pub(crate) const APP_ARMOR: &str = "container.apparmor.security.beta.kubernetes.io/";
pub(crate) const APP_ARMOR_NOW: &str = "deprecated since v1.30; use the \"appArmorProfile\" field instead";

/// What is said of a template of pods, or of a pod, if it is new.
pub(crate) fn of_template(old: Option<&Value>, value: &Value, path: &[&str], prefix: &str) -> Vec<String> {
    let Some(template) = at(value, path).filter(|t| t.get("spec").is_some_and(Value::is_object)) else {
        return Vec::new();
    };
    if old.and_then(|old| at(old, path)).is_some_and(|before| before == template) {
        return Vec::new();
    }
    let notes = at(template, &["metadata", "annotations"]).and_then(Value::as_object);
    let mut walk = Walk { notes, spec: &template["spec"], prefix, out: Vec::new() };
    walk.labels();
    walk.spreading();
    for (key, why) in OLD_NOTES {
        walk.note(key, why);
    }
    walk.volumes();
    walk.repeated("hostAliases", "ip");
    walk.repeated("imagePullSecrets", "name");
    walk.nameless_secrets();
    for name in ["memory", "ephemeral-storage"] {
        walk.amount(template["spec"].get("overhead"), name, "overhead");
    }
    if !has_seccomp(walk.spec) {
        walk.note(SECCOMP_POD, SECCOMP_NOW);
    }
    walk.containers();
    walk.ports();
    walk.port_names();
    if number(walk.spec, &["terminationGracePeriodSeconds"]) < 0 {
        let why = "must be >= 0; negative values are invalid and will be treated as 1";
        walk.say("terminationGracePeriodSeconds", why);
    }
    walk.selectors();
    walk.addresses();
    walk.out
}

/// True for a volume of this kind. It has few fields, so they are what is searched.
fn is_kind(volume: &Value, kind: &str) -> bool {
    volume.as_object().is_some_and(|fields| fields.iter().any(|(field, v)| field == kind && !v.is_null()))
}

fn has_seccomp(owner: &Value) -> bool {
    at(owner, &["securityContext", "seccompProfile"]).is_some_and(|profile| !profile.is_null())
}

/// Why an amount is not one of whole bytes.
fn fraction(amounts: Option<&Value>, name: &str) -> Option<String> {
    let found = amounts?.get(name)?.as_str()?;
    // Read as cpu, an amount counts thousandths.
    let parts = quantity::parse("cpu", found).ok()?;
    (parts % 1000 != 0).then(|| format!("fractional byte value {found:?} is invalid, must be an integer"))
}

/// A container: its list, and its number there.
#[derive(Clone, Copy)]
struct Place(&'static str, usize);

/// A port of a container.
#[derive(Clone, Copy)]
struct PortPlace(Place, usize);

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}[{}]", self.0, self.1)
    }
}

impl fmt::Display for PortPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.ports[{}]", self.0, self.1)
    }
}

struct Walk<'a> {
    /// Annotations of the template, or of the pod.
    notes: Option<&'a Map<String, Value>>,
    spec: &'a Value,
    /// Path of the template, with a dot, or "".
    prefix: &'a str,
    out: Vec<String>,
}

impl<'a> Walk<'a> {
    /// Says something of a place below the spec.
    fn say(&mut self, below: &str, why: &str) {
        self.out.push(format!("{}spec.{below}: {why}", self.prefix));
    }

    /// Says something of an annotation, if it is there.
    fn note(&mut self, key: &str, why: &str) {
        if self.notes.is_some_and(|notes| notes.contains_key(key)) {
            self.out.push(format!("{}metadata.annotations[{key}]: {why}", self.prefix));
        }
    }

    fn labels(&mut self) {
        if let Some(selector) = self.spec.get("nodeSelector").and_then(Value::as_object) {
            for (key, why) in OLD_LABELS.iter().filter(|(key, _)| selector.contains_key(*key)) {
                self.say(&format!("nodeSelector[{key}]"), why);
            }
        }
        let affinity = at(self.spec, &["affinity", "nodeAffinity"]).unwrap_or(&Value::Null);
        let required = "requiredDuringSchedulingIgnoredDuringExecution";
        for (i, term) in list(affinity, &[required, "nodeSelectorTerms"]).iter().enumerate() {
            let place = format!("affinity.nodeAffinity.{required}.nodeSelectorTerms[{i}]");
            self.term(term, &place, false);
        }
        let preferred = "preferredDuringSchedulingIgnoredDuringExecution";
        for (i, term) in list(affinity, &[preferred]).iter().enumerate() {
            let place = format!("affinity.nodeAffinity.{preferred}[{i}].preference");
            self.term(&term["preference"], &place, true);
        }
    }

    /// A term of node affinity; values of a preferred one are not validated, and are looked at here.
    fn term(&mut self, term: &Value, place: &str, values_too: bool) {
        for (i, e) in list(term, &["matchExpressions"]).iter().enumerate() {
            let key = text(e, &["key"]);
            if let Some((_, why)) = OLD_LABELS.iter().find(|(known, _)| *known == key) {
                self.say(&format!("{place}.matchExpressions[{i}].key"), &format!("{key} is {why}"));
            }
            if !values_too {
                continue;
            }
            for (j, value) in list(e, &["values"]).iter().enumerate() {
                let value = value.as_str().unwrap_or_default();
                if !is_label_value(value) {
                    let why = format!("{value} is invalid, {LABEL_VALUE}");
                    self.say(&format!("{place}.matchExpressions[{i}].values[{j}]"), &why);
                }
            }
        }
    }

    fn spreading(&mut self) {
        for (i, c) in list(self.spec, &["topologySpreadConstraints"]).iter().enumerate() {
            let key = text(c, &["topologyKey"]);
            if let Some((_, why)) = OLD_LABELS.iter().find(|(known, _)| *known == key) {
                self.say(&format!("topologySpreadConstraints[{i}].topologyKey"), &format!("{key} is {why}"));
            }
            if lacks_selector(c) {
                self.say(&format!("topologySpreadConstraints[{i}].labelSelector"), NO_SELECTOR);
            }
        }
    }

    fn volumes(&mut self) {
        let volumes = list(self.spec, &["volumes"]);
        for (i, volume) in volumes.iter().enumerate() {
            for (_, shown, why) in OLD_VOLUMES.iter().filter(|(kind, ..)| is_kind(volume, kind)) {
                self.say(&format!("volumes[{i}].{shown}"), why);
            }
            if let Some(claim) = at(volume, &["ephemeral", "volumeClaimTemplate", "spec"]) {
                let place = format!("{}spec.volumes[{i}].ephemeral.volumeClaimTemplate.spec", self.prefix);
                self.out.extend(of_claim(claim, &place));
            }
        }
        self.out.extend(overlaps::of(volumes));
    }

    fn repeated(&mut self, field: &str, key: &str) {
        let mut seen = BTreeSet::new();
        for (i, item) in list(self.spec, &[field]).iter().enumerate() {
            let found = text(item, &[key]);
            if !seen.insert(found) {
                self.say(&format!("{field}[{i}].{key}"), &format!("duplicate {key} {found:?}"));
            }
        }
    }

    fn nameless_secrets(&mut self) {
        for (i, secret) in list(self.spec, &["imagePullSecrets"]).iter().enumerate() {
            if text(secret, &["name"]).is_empty() {
                self.say(&format!("imagePullSecrets[{i}].name"), "invalid empty name \"\"");
            }
        }
    }

    /// Bytes come whole.
    fn amount(&mut self, amounts: Option<&Value>, name: &str, below: impl fmt::Display) {
        if let Some(why) = fraction(amounts, name) {
            self.say(&format!("{below}[{name}]"), &why);
        }
    }

    fn each(&self) -> impl Iterator<Item = (Place, &'a Value)> + use<'a> {
        let spec = self.spec;
        ["initContainers", "containers", "ephemeralContainers"]
            .into_iter()
            .flat_map(move |key| list(spec, &[key]).iter().enumerate().map(move |(i, c)| (Place(key, i), c)))
    }

    fn containers(&mut self) {
        let whole = profile(self.spec);
        for (place, container) in self.each() {
            let name = text(container, &["name"]);
            if self.notes.is_some() && !has_seccomp(container) {
                self.note(&format!("{SECCOMP_CONTAINER}{name}"), SECCOMP_NOW);
            }
            // Of a pod itself this is said before its annotations become fields.
            if let Some(notes) = self.notes
                && !self.prefix.is_empty()
                && profile(container).is_none()
            {
                let key = format!("{APP_ARMOR}{name}");
                let note = notes.get(&key).and_then(Value::as_str);
                if note.is_some_and(|note| whole.is_none() || profile_of_note(note) != whole) {
                    self.note(&key, APP_ARMOR_NOW);
                }
            }
            let resources = container.get("resources");
            for name in ["memory", "ephemeral-storage"] {
                for part in ["limits", "requests"] {
                    let amounts = resources.and_then(|resources| resources.get(part));
                    self.amount(amounts, name, format_args!("{place}.resources.{part}"));
                }
            }
            self.environment(place, container);
        }
    }

    fn environment(&mut self, place: Place, container: &Value) {
        let mut names = BTreeSet::new();
        for (i, env) in list(container, &["env"]).iter().enumerate() {
            let name = text(env, &["name"]);
            if names.insert(name) {
                continue;
            }
            let (value, itself) = (text(env, &["value"]), format!("$({name})"));
            // A value may build on the one before.
            let from = env.get("valueFrom").is_some_and(|from| !from.is_null());
            let extends = value.contains(&itself) && value != itself && !from;
            if !extends {
                let why =
                    format!("hides previous definition of {name:?}, which may be dropped when using apply");
                self.say(&format!("{place}.env[{i}]"), &why);
            }
        }
    }

    fn ports(&mut self) {
        /// Place, port of the host, and address of it.
        type Known<'a> = Vec<(PortPlace, i64, &'a str)>;
        let mut known: BTreeMap<(i64, &str), Known<'_>> = BTreeMap::new();
        for (place, container) in self.each() {
            for (i, port) in list(container, &["ports"]).iter().enumerate() {
                let place = PortPlace(place, i);
                let (host, ip) = (number(port, &["hostPort"]), text(port, &["hostIP"]));
                let key = (number(port, &["containerPort"]), text(port, &["protocol"]));
                if !ip.is_empty() && host == 0 {
                    let shown = format!(
                        "{{Name:{} HostPort:0 ContainerPort:{} Protocol:{} HostIP:{ip}}}",
                        text(port, &["name"]),
                        key.0,
                        key.1
                    );
                    self.say(&place.to_string(), &format!("hostIP set without hostPort: {shown}"));
                }
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
                    let why = format!("{how} port definition with {}spec.{other}", self.prefix);
                    self.out.push(format!("{}spec.{place}: {why}", self.prefix));
                }
                known.entry(key).or_default().push((place, host, ip));
            }
        }
    }

    /// Who asks for a port by its name gets the first one of that name.
    fn port_names(&mut self) {
        let mut known: BTreeMap<&str, PortPlace> = BTreeMap::new();
        for (place, container) in self.each() {
            for (i, port) in list(container, &["ports"]).iter().enumerate() {
                let name = text(port, &["name"]);
                if name.is_empty() {
                    continue;
                }
                let place = PortPlace(place, i);
                let Some(other) = known.get(name) else {
                    known.insert(name, place);
                    continue;
                };
                let other = format!("{}spec.{other}", self.prefix);
                let why = format!(
                    "duplicate port name {name:?} with {other}, services and probes that select ports by name will use {other}"
                );
                self.say(&place.to_string(), &why);
            }
        }
    }

    /// A selector that is not there selects nothing.
    fn selectors(&mut self) {
        for kind in ["podAffinity", "podAntiAffinity"] {
            for (key, inner) in [
                ("requiredDuringSchedulingIgnoredDuringExecution", ""),
                ("preferredDuringSchedulingIgnoredDuringExecution", ".podAffinityTerm"),
            ] {
                for (i, term) in list(self.spec, &["affinity", kind, key]).iter().enumerate() {
                    let term = if inner.is_empty() { term } else { &term["podAffinityTerm"] };
                    if lacks_selector(term) {
                        self.say(&format!("affinity.{kind}.{key}[{i}]{inner}.labelSelector"), NO_SELECTOR);
                    }
                }
            }
        }
    }

    /// Addresses that are not in their usual form.
    fn addresses(&mut self) {
        for (i, server) in list(self.spec, &["dnsConfig", "nameservers"]).iter().enumerate() {
            if let Some(why) = addresses::warning(server.as_str().unwrap_or_default()) {
                self.say(&format!("dnsConfig.nameservers[{i}]"), &why);
            }
        }
        for (i, alias) in list(self.spec, &["hostAliases"]).iter().enumerate() {
            if let Some(why) = addresses::warning(text(alias, &["ip"])) {
                self.say(&format!("hostAliases[{i}].ip"), &why);
            }
        }
    }
}

const NO_SELECTOR: &str = "a null labelSelector results in matching no pod";

fn lacks_selector(term: &Value) -> bool {
    term.get("labelSelector").is_none_or(Value::is_null)
}

/// The AppArmor profile of a pod's spec or of a container.
pub(crate) fn profile(owner: &Value) -> Option<Value> {
    at(owner, &["securityContext", "appArmorProfile"]).filter(|p| !p.is_null()).cloned()
}

/// The AppArmor profile that an annotation names.
pub(crate) fn profile_of_note(note: &str) -> Option<Value> {
    match note {
        "unconfined" => Some(json!({"type": "Unconfined"})),
        "runtime/default" => Some(json!({"type": "RuntimeDefault"})),
        _ => {
            let name = note.strip_prefix("localhost/").filter(|name| !name.is_empty())?;
            Some(json!({"type": "Localhost", "localhostProfile": name}))
        }
    }
}

/// What is said of the spec of a claim, which is at this place.
pub(crate) fn of_claim(spec: &Value, place: &str) -> Vec<String> {
    let parts = ["requests", "limits"].into_iter();
    parts
        .filter_map(|part| {
            let why = fraction(at(spec, &["resources", part]), "storage")?;
            Some(format!("{place}.resources.{part}[storage]: {why}"))
        })
        .collect()
}
