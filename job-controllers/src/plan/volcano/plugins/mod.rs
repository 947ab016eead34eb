//! Job plugins: what `spec.plugins` adds to pods and creates for them. Their arguments are command-line
//! flags.

mod frameworks;
mod ray;
mod ssh;
mod svc;
mod tools;

use serde_json::Value;

use super::{task::Task, view::View};
use crate::plan::pod::set_env;
use tools::{Flags, for_all_containers};

pub(crate) use ssh::SECRET_LABEL as SSH_SECRET_LABEL;

/// Plugins in the order in which they are applied.
const KNOWN: [&str; 8] = ["env", "svc", "ssh", "pytorch", "tensorflow", "mpi", "ray", "hcclrank"];
/// Frameworks that need the names of the svc plugin.
const WITH_SVC: [&str; 4] = ["tensorflow", "mpi", "pytorch", "ray"];

/// The plugins of the job, with those that frameworks require, as Volcano's admission adds them.
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

/// Objects that the pods need, created before them.
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

/// Applies each plugin of the job to one of its pods.
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
