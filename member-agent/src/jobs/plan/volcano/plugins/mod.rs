//! Job plugins: what `spec.plugins` puts into pods and beside them. Their arguments are flags, as on a
//! command line.

mod frameworks;
mod ray;
mod ssh;
mod svc;

use serde_json::{Value, json};

use super::{Task, View};
use crate::jobs::plan::pod::{list_mut, set_env};

pub(crate) use ssh::SECRET_LABEL as SSH_SECRET_LABEL;

/// Plugins in the order in which they are applied.
const KNOWN: [&str; 8] = ["env", "svc", "ssh", "pytorch", "tensorflow", "mpi", "ray", "hcclrank"];
/// Frameworks that need the svc plugin's names.
const WITH_SVC: [&str; 4] = ["tensorflow", "mpi", "pytorch", "ray"];

/// Arguments of one plugin.
pub(super) struct Flags<'a>(Vec<&'a str>);

impl<'a> Flags<'a> {
    /// Value of `--name=value`, `-name value` and the like.
    pub fn get(&self, name: &str) -> Option<&'a str> {
        let mut left = self.0.iter();
        while let Some(argument) = left.next() {
            let Some(rest) = argument.trim_start_matches('-').strip_prefix(name) else { continue };
            if let Some(value) = rest.strip_prefix('=') {
                return Some(value);
            }
            if rest.is_empty() {
                return left.next().copied().filter(|value| !value.starts_with("--")).or(Some("true"));
            }
        }
        None
    }

    pub fn text(&self, name: &str, default: &'a str) -> &'a str {
        self.get(name).filter(|value| !value.is_empty()).unwrap_or(default)
    }

    pub fn flag(&self, name: &str, default: bool) -> bool {
        self.get(name).and_then(|value| value.parse().ok()).unwrap_or(default)
    }

    /// A port; what is none counts as not given.
    pub fn port(&self, name: &str, default: i64) -> i64 {
        let value = self.get(name).and_then(|value| value.parse().ok());
        value.filter(|port| (1..=65535).contains(port)).unwrap_or(default)
    }
}

/// The plugins of the job; frameworks bring those they need along, as upstream's admission adds them.
pub(super) fn names(view: &View<'_>) -> Vec<&'static str> {
    let asked = |name: &str| view.job.spec["plugins"].get(name).is_some();
    let wanted = |name: &&&str| match **name {
        "svc" => asked("svc") || WITH_SVC.iter().any(|framework| asked(framework)),
        "ssh" => asked("ssh") || asked("mpi"),
        name => asked(name),
    };
    KNOWN.iter().filter(wanted).copied().collect()
}

fn flags<'a>(view: &View<'a>, plugin: &str) -> Flags<'a> {
    let arguments = view.job.spec["plugins"][plugin].as_array().into_iter().flatten();
    // One argument may hold several flags.
    Flags(arguments.filter_map(Value::as_str).flat_map(str::split_whitespace).collect())
}

/// Objects that the pods need, made before them.
pub(super) fn support(view: &View<'_>) -> Vec<Value> {
    let mut found = Vec::new();
    for name in names(view) {
        match name {
            "svc" => found.extend(svc::support(view, &flags(view, name))),
            "ssh" => found.push(ssh::secret(view, &flags(view, name))),
            "ray" => found.extend(ray::support(view, &flags(view, name))),
            _ => {}
        }
    }
    found
}

/// Lets each plugin of the job work on one of its pods.
pub(super) fn furnish(pod: &mut Value, view: &View<'_>, task: &Task<'_>, index: i64) {
    for name in names(view) {
        let flags = flags(view, name);
        match name {
            "env" => env(pod, index),
            "svc" => svc::furnish(pod, view, task, index, &flags),
            "ssh" => ssh::furnish(pod, view, &flags),
            "pytorch" => frameworks::pytorch(pod, view, task, index, &flags),
            "tensorflow" => frameworks::tensorflow(pod, view, task, index, &flags),
            "mpi" => frameworks::mpi(pod, view, task, &flags),
            "ray" => ray::furnish(pod, view, task, &flags),
            _ => frameworks::hcclrank(pod, view, task, index, &flags),
        }
    }
}

fn env(pod: &mut Value, index: i64) {
    for_all_containers(pod, |container| {
        set_env(container, "VK_TASK_INDEX", &index.to_string());
        set_env(container, "VC_TASK_INDEX", &index.to_string());
    });
}

fn for_all_containers(pod: &mut Value, mut work: impl FnMut(&mut Value)) {
    for field in ["initContainers", "containers"] {
        for container in pod["spec"][field].as_array_mut().into_iter().flatten() {
            if container.is_object() {
                work(container);
            }
        }
    }
}

/// Opens a named port in each container that has none of that name.
fn open_port(pod: &mut Value, name: &str, port: i64) {
    for container in pod["spec"]["containers"].as_array_mut().into_iter().flatten() {
        let ports = list_mut(container, "ports");
        if !ports.iter().any(|known| known["name"] == name) {
            ports.push(json!({"name": name, "containerPort": port, "protocol": "TCP"}));
        }
    }
}

fn task<'v, 'a>(view: &'v View<'a>, name: &str) -> Option<&'v Task<'a>> {
    view.tasks.iter().find(|task| task.name == name)
}
