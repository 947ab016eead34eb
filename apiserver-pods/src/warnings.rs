//! Warnings about pods and their templates: what is accepted, and is probably not what was meant.
//!
//! Inputs: a new or changed object with its defaults. Source: the warnings of Kubernetes 1.36. Absent on purpose:
//! warnings of deprecated versions (see `Resource::deprecation`).

use super::template_warnings::{APP_ARMOR, APP_ARMOR_NOW, of_claim, of_template, profile, profile_of_note};
use super::{addresses, names};
use fleet_apiserver_ground::tree::{at, list, meta_text, number, text};
use fleet_apiserver_schema::resource::Resource;
use serde_json::Value;

/// Completions and parallelism of an indexed job above which its failures may not all be told.
const MANY_COMPLETIONS: i64 = 100_000;
const MANY_AT_ONCE: i64 = 10_000;

/// What is to be said of a new or changed object.
pub fn of(r: &Resource, old: Option<&Value>, value: &Value) -> Vec<String> {
    match (r.group.as_str(), r.plural.as_str()) {
        ("", "pods") => of_pod(old, value),
        ("", "podtemplates") => of_template(old, value, &["template"], "template."),
        ("", "replicationcontrollers") => {
            let mut out = of_name(old, value);
            if counts(old, value) {
                // Of a changed one the real server looks at the template before the change.
                let looked_at = old.unwrap_or(value);
                out.extend(of_template(None, looked_at, &["spec", "template"], "spec.template."));
            }
            out
        }
        ("apps", "deployments" | "replicasets") => {
            let mut out = of_name(old, value);
            if counts(old, value) {
                out.extend(of_template(None, value, &["spec", "template"], "spec.template."));
            }
            out
        }
        ("apps", "daemonsets") => of_template(old, value, &["spec", "template"], "spec.template."),
        ("apps", "statefulsets") => of_stateful_set(old, value),
        ("batch", "jobs") => {
            let mut out = of_name(old, value);
            if counts(old, value) {
                out.extend(of_job(value, &["spec"], "spec"));
            }
            out
        }
        ("batch", "cronjobs") => of_cron_job(old, value),
        _ => Vec::new(),
    }
}

/// True for a new object, and for a change of what it asks for.
fn counts(old: Option<&Value>, value: &Value) -> bool {
    old.is_none_or(|old| old.get("spec") != value.get("spec"))
}

/// True for a change of a status, of which nothing more is said.
fn is_of_status(old: Option<&Value>, value: &Value) -> bool {
    old.is_some_and(|old| old.get("status") != value.get("status"))
}

/// What is wrong with a name as a label of a domain name, as a list shows it.
fn no_label(name: &str) -> Option<String> {
    let whys = names::label(name);
    (!whys.is_empty()).then(|| format!("[{}]", whys.join(" ")))
}

/// Names of pods begin with that of the object that makes them.
fn of_name(old: Option<&Value>, value: &Value) -> Vec<String> {
    let why = no_label(meta_text(value, "name")).filter(|_| old.is_none());
    let about = "metadata.name: this is used in Pod names and hostnames, which can result in surprising behavior; a DNS label is recommended";
    why.map(|why| format!("{about}: {why}")).into_iter().collect()
}

fn of_pod(old: Option<&Value>, pod: &Value) -> Vec<String> {
    let mut out = Vec::new();
    if let Some(old) = old {
        // A pod is not looked through again, but for the addresses that its status says.
        if old.get("status") != pod.get("status") {
            for key in ["podIPs", "hostIPs"] {
                for (i, ip) in list(pod, &["status", key]).iter().enumerate() {
                    let why = addresses::warning(text(ip, &["ip"]));
                    out.extend(why.map(|why| format!("status.{key}[{i}].ip: {why}")));
                }
            }
        }
        return out;
    }
    if at(pod, &["metadata", "annotations"]).is_some() {
        out.extend(of_profiles(pod));
    }
    if let Some(why) = no_label(meta_text(pod, "name")) {
        let about = "metadata.name: this is used in the Pod's hostname, which can result in surprising behavior; a DNS label is recommended";
        out.push(format!("{about}: {why}"));
    }
    out.extend(of_template(None, pod, &[], ""));
    out
}

/// Profiles of containers that only annotations name.
fn of_profiles(pod: &Value) -> Vec<String> {
    let mut out = Vec::new();
    let whole = profile(&pod["spec"]);
    for key in ["initContainers", "containers", "ephemeralContainers"] {
        for container in list(pod, &["spec", key]) {
            let note = format!("{APP_ARMOR}{}", text(container, &["name"]));
            let named = at(pod, &["metadata", "annotations", note.as_str()]).and_then(Value::as_str);
            let Some(named) = named.map(profile_of_note) else { continue };
            // The annotation has become a field of the container by now, unless its pod says the same.
            let own = profile(container);
            if named.is_none() || (named != whole && (own.is_none() || own == named)) {
                out.push(format!("metadata.annotations[{note}]: {APP_ARMOR_NOW}"));
            }
        }
    }
    out
}

fn of_stateful_set(old: Option<&Value>, set: &Value) -> Vec<String> {
    let mut out = Vec::new();
    if counts(old, set) {
        out.extend(of_template(None, set, &["spec", "template"], "spec.template."));
    }
    if is_of_status(old, set) {
        return out;
    }
    let below = if old.is_some() { ".Spec" } else { "" };
    for (i, claim) in list(set, &["spec", "volumeClaimTemplates"]).iter().enumerate() {
        out.extend(of_claim(&claim["spec"], &format!("spec.volumeClaimTemplates[{i}]{below}")));
    }
    if number(set, &["spec", "revisionHistoryLimit"]) < 0 {
        out.push("spec.revisionHistoryLimit: a negative value retains all historical revisions; a value >= 0 is recommended".into());
    }
    out
}

fn of_job(owner: &Value, path: &[&str], place: &str) -> Vec<String> {
    let mut out = Vec::new();
    let Some(spec) = at(owner, path) else { return out };
    let (completions, parallelism) = (number(spec, &["completions"]), number(spec, &["parallelism"]));
    if text(spec, &["completionMode"]) == "Indexed"
        && completions > MANY_COMPLETIONS
        && parallelism > MANY_AT_ONCE
    {
        out.push(format!("{place}: In Indexed Jobs with a number of completions higher than 10^5 and a parallelism higher than 10^4, Kubernetes might not be able to track completedIndexes when a big number of indexes fail"));
    }
    out.extend(of_template(None, spec, &["template"], &format!("{place}.template.")));
    out
}

fn of_cron_job(old: Option<&Value>, job: &Value) -> Vec<String> {
    let mut out = of_name(old, job);
    if counts(old, job) {
        out.extend(of_job(job, &["spec", "jobTemplate", "spec"], "spec.jobTemplate.spec"));
    }
    if old.is_some() && !is_of_status(old, job) && text(job, &["spec", "schedule"]).contains("TZ") {
        out.push("cannot use TZ or CRON_TZ in spec.spec.schedule, use timeZone instead, see https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details".into());
    }
    out
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

    #[test]
    fn names_and_templates_are_told_of_in_the_real_words() {
        let kind = |group: &str, plural: &str| Resource {
            group: group.into(),
            plural: plural.into(),
            ..Resource::default()
        };
        let made = json!({"metadata": {"name": "a.b"}, "spec": {"template": {"spec": {"containers": [
            {"name": "c", "ports": [{"name": "p", "containerPort": 1, "protocol": "TCP"}]},
            {"name": "d", "ports": [{"name": "p", "containerPort": 2, "protocol": "TCP"}]}]}}}});
        let found = of(&kind("apps", "deployments"), None, &made);
        assert_eq!(
            found,
            [
                "metadata.name: this is used in Pod names and hostnames, which can result in surprising behavior; a DNS label is recommended: [must not contain dots]",
                "spec.template.spec.containers[1].ports[0]: duplicate port name \"p\" with spec.template.spec.containers[0].ports[0], services and probes that select ports by name will use spec.template.spec.containers[0].ports[0]",
            ]
        );
        // A change of the status says nothing, and one of the spec says it again.
        let mut changed = made.clone();
        changed["status"] = json!({"replicas": 1});
        assert!(of(&kind("apps", "deployments"), Some(&made), &changed).is_empty());
        changed["spec"]["replicas"] = json!(2);
        assert_eq!(of(&kind("apps", "deployments"), Some(&made), &changed).len(), 1);
        // Pods are looked through when they are made, and never again.
        let pod = json!({"metadata": {"name": "p"}, "spec": {"terminationGracePeriodSeconds": -1, "containers": []}});
        let mut moved = pod.clone();
        moved["spec"]["nodeName"] = json!("n");
        assert!(of(&kind("", "pods"), Some(&pod), &moved).is_empty());
        moved["status"] = json!({"podIPs": [{"ip": "FD00::1"}]});
        assert_eq!(
            of(&kind("", "pods"), Some(&pod), &moved),
            [
                "status.podIPs[0].ip: IPv6 address \"FD00::1\" should be in RFC 5952 canonical format (\"fd00::1\")"
            ]
        );
    }
}
