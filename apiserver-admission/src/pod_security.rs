//! The PodSecurity plugin: what the labels of a namespace allow its pods.
//!
//! Inputs: a new or changed pod, or a controller with a pod template, and the namespace's labels
//! `pod-security.kubernetes.io/{enforce,warn}` with their versions. Source: the Pod Security Standards of Kubernetes.
//! Absent on purpose: `audit` (there is no audit log), exemptions.

use crate::call::Call;
use fleet_apiserver_ground::store::Range;
use fleet_apiserver_ground::tree::{at, list, meta_text, text};
use fleet_apiserver_schema::error::{ApiError, ApiResult, Cause};
use fleet_apiserver_schema::resource::Resource;
use serde_json::{Value, json};
use std::collections::BTreeMap;

mod rules;

use rules::{NEWEST, Pod};

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd)]
enum Level {
    Privileged,
    Baseline,
    Restricted,
}

impl Level {
    fn of(label: &str) -> Level {
        match label {
            "baseline" => Level::Baseline,
            "restricted" => Level::Restricted,
            _ => Level::Privileged,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Level::Privileged => "privileged",
            Level::Baseline => "baseline",
            Level::Restricted => "restricted",
        }
    }
}

/// A level, and the version of the standards that says what it is.
struct Standard {
    level: Level,
    /// As messages show it: `latest`, or `v1.` with a number.
    version: String,
}

impl Standard {
    /// What the labels of a namespace say for `enforce` or `warn`.
    fn of(level: &str, version: &str) -> Standard {
        let version = if version.is_empty() { "latest" } else { version };
        Standard { level: Level::of(level), version: version.into() }
    }

    fn name(&self) -> String {
        format!("{}:{}", self.level.name(), self.version)
    }

    /// What the pod of an object does that is not allowed.
    fn violations(&self, template: &Value) -> Vec<String> {
        let Some(spec) = at(template, &["spec"]).filter(|_| self.level != Level::Privileged) else {
            return Vec::new();
        };
        let minor = self.version.strip_prefix("v1.").and_then(|n| n.parse().ok()).unwrap_or(NEWEST);
        let pod =
            Pod { annotations: at(template, &["metadata", "annotations"]), spec, minor: minor.min(NEWEST) };
        rules::violations(&pod, self.level == Level::Restricted)
    }
}

/// The pod or the template of one in an object that has one.
fn template<'a>(r: &Resource, value: &'a Value) -> Option<&'a Value> {
    let path: &[&str] = match (r.group.as_str(), r.plural.as_str()) {
        ("", "pods") => &[],
        ("", "podtemplates") => &["template"],
        ("", "replicationcontrollers") | ("apps", _) | ("batch", "jobs") => &["spec", "template"],
        ("batch", "cronjobs") => &["spec", "jobTemplate", "spec", "template"],
        _ => return None,
    };
    at(value, path).filter(|t| t.get("spec").is_some())
}

/// True for a change of a pod that may change what it is allowed to do: its containers, or the image of one.
fn is_significant(old: &Value, new: &Value) -> bool {
    let images = |pod: &Value, key: &str| -> Vec<String> {
        let containers = list(pod, &["spec", key]).iter();
        containers.map(|c| text(c, &["image"]).to_string()).collect()
    };
    let by_name = |pod: &Value| -> BTreeMap<String, String> {
        let containers = list(pod, &["spec", "ephemeralContainers"]).iter();
        containers.map(|c| (text(c, &["name"]).into(), text(c, &["image"]).into())).collect()
    };
    let before = by_name(old);
    ["containers", "initContainers"].iter().any(|key| images(old, key) != images(new, key))
        || by_name(new).iter().any(|(name, image)| before.get(name) != Some(image))
}

/// Refuses a pod that violates the level of its namespace, and warns about the warn level. `old` is the object before
/// a change: a pod that was there before its level is judged only when it changes in what it may do.
///
/// # Errors
/// 403 with each violation.
pub fn check(call: &mut Call, old: Option<&Value>, value: &Value) -> ApiResult<()> {
    let is_pod = call.resource().is("", "pods");
    let judged = match call.subresource.as_str() {
        "" => true,
        "ephemeralcontainers" | "resize" => is_pod,
        _ => false,
    };
    if call.resource().custom || !judged {
        return Ok(());
    }
    let Some(template) = template(call.resource(), value) else { return Ok(()) };
    if is_pod && old.is_some_and(|old| !is_significant(old, value)) {
        return Ok(());
    }
    let Some(namespace) = call.core.namespaces.get(&call.namespace) else { return Ok(()) };
    let label = |key: &str| namespace.text(&["metadata", "labels", &format!("{LABELS}{key}")]);
    let standard = |mode: &str| Standard::of(&label(mode), &label(&format!("{mode}-version")));
    if is_pod {
        let enforced = standard("enforce");
        let found = enforced.violations(template);
        if !found.is_empty() {
            let why = format!("violates PodSecurity {:?}: {}", enforced.name(), found.join(", "));
            return Err(ApiError::forbidden(call.resource(), meta_text(value, "name"), &why));
        }
    }
    let warned = standard("warn");
    let found = warned.violations(template);
    if !found.is_empty() {
        let text = format!("would violate PodSecurity {:?}: {}", warned.name(), found.join(", "));
        call.warnings.push(text);
    }
    Ok(())
}

const LABELS: &str = "pod-security.kubernetes.io/";

/// Refuses labels of a namespace that name no level or version, and warns about pods that a new level would refuse.
///
/// # Errors
/// 422 with each label.
pub async fn check_namespace(call: &mut Call, old: Option<&Value>, new: &Value) -> ApiResult<()> {
    if !call.resource().is("", "namespaces") || !matches!(call.subresource.as_str(), "") {
        return Ok(());
    }
    let label = |value: &Value, key: &str| {
        text(value, &["metadata", "labels", &format!("{LABELS}{key}")]).to_string()
    };
    let mut causes = Vec::new();
    for mode in ["enforce", "audit", "warn"] {
        let (level, version) = (label(new, mode), label(new, &format!("{mode}-version")));
        let field = |key: &str| format!("metadata.labels[{LABELS}{key}]");
        if !matches!(level.as_str(), "" | "privileged" | "baseline" | "restricted") {
            let why = "must be one of privileged, baseline, restricted";
            causes.push(Cause::invalid(field(mode), &json!(level), why));
        }
        let minor = version.strip_prefix("v1.").is_some_and(|n| n.parse::<u16>().is_ok());
        if !(version.is_empty() || version == "latest" || minor) {
            let why = "must be \"latest\" or \"v1.x\"";
            causes.push(Cause::invalid(field(&format!("{mode}-version")), &json!(version), why));
        }
    }
    let name = meta_text(new, "name").to_string();
    if !causes.is_empty() {
        return Err(ApiError::invalid("", "Namespace", &name, causes));
    }
    let Some(old) = old else { return Ok(()) };
    let standard = |value: &Value| Standard::of(&label(value, "enforce"), &label(value, "enforce-version"));
    let (before, now) = (standard(old), standard(new));
    // A level that forbids less, of the same version, refuses nothing that was allowed.
    let looser = now.version == before.version && now.level <= before.level;
    if now.level != Level::Privileged && !looser {
        warn_of_pods(call, &name, &now).await?;
    }
    Ok(())
}

/// Names the pods of a namespace that a level does not allow; those with the same violations together.
async fn warn_of_pods(call: &mut Call, namespace: &str, level: &Standard) -> ApiResult<()> {
    let prefix = format!("{namespace}/");
    let table = call.core.store.table("/pods");
    let page = call.core.store.page(&table, Range { prefix: &prefix, ..Range::default() }).await?;
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for pod in page.map(|p| p.items).unwrap_or_default() {
        let why = level.violations(&pod.value());
        if why.is_empty() {
            continue;
        }
        // The containers differ from pod to pod.
        let short: Vec<&str> = why.iter().map(|w| w.split(" (").next().unwrap_or(w)).collect();
        found.entry(short.join(", ")).or_default().push(pod.meta_text("name"));
    }
    if found.is_empty() {
        return Ok(());
    }
    call.warnings.push(format!(
        "existing pods in namespace {namespace:?} violate the new PodSecurity enforce level {:?}",
        level.name()
    ));
    let mut lines: Vec<String> = found
        .iter()
        .map(|(why, pods)| match pods.len() {
            1 => format!("{}: {why}", pods[0]),
            2 => format!("{} (and 1 other pod): {why}", pods[0]),
            n => format!("{} (and {} other pods): {why}", pods[0], n - 1),
        })
        .collect();
    lines.sort();
    call.warnings.extend(lines);
    Ok(())
}
