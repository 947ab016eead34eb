//! Shared by plugins: their arguments, and changes of pods.

use serde_json::{Value, json};

use crate::plan::{
    pod::list_mut,
    volcano::{task::Task, view::View},
};

/// Arguments of one plugin.
pub(super) struct Flags<'a>(pub Vec<&'a str>);

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

    /// A port; an invalid one counts as absent.
    pub fn port(&self, name: &str, default: i64) -> i64 {
        let value = self.get(name).and_then(|value| value.parse().ok());
        value.filter(|port| (1..=65535).contains(port)).unwrap_or(default)
    }
}

pub(super) fn for_all_containers(pod: &mut Value, mut work: impl FnMut(&mut Value)) {
    for field in ["initContainers", "containers"] {
        for container in pod["spec"][field].as_array_mut().into_iter().flatten() {
            if container.is_object() {
                work(container);
            }
        }
    }
}

/// Declares a named port in each container without one of that name.
pub(super) fn open_port(pod: &mut Value, name: &str, port: i64) {
    for container in pod["spec"]["containers"].as_array_mut().into_iter().flatten() {
        let ports = list_mut(container, "ports");
        if !ports.iter().any(|known| known["name"] == name) {
            ports.push(json!({"name": name, "containerPort": port, "protocol": "TCP"}));
        }
    }
}

pub(super) fn task<'v, 'a>(view: &'v View<'a>, name: &str) -> Option<&'v Task<'a>> {
    view.tasks.iter().find(|task| task.name == name)
}
