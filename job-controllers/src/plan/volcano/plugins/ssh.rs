//! ssh: a key pair that all pods of the job share, and a client configuration with their names.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::tools::Flags;
use crate::plan::pod::{list_mut, mount, owner_reference};
use crate::plan::volcano::view::View;

const DEFAULT_PATH: &str = "/root/.ssh";
const DEFAULT_PORT: i64 = 22;
/// Marks a Secret whose keys are generated at creation; a plan has no random numbers.
pub(crate) const SECRET_LABEL: &str = "fleet.dev/ssh-keys";

fn name(view: &View<'_>) -> String {
    format!("{}-ssh", view.job.name())
}

/// The Secret, with the user's keys if both are given; otherwise the driver generates a pair.
pub(super) fn secret(view: &View<'_>, flags: &Flags<'_>) -> Value {
    let mut data = json!({"config": config(view, flags)});
    let mut labels = json!({});
    match (flags.get("ssh-private-key"), flags.get("ssh-public-key")) {
        (Some(private), Some(public)) => {
            data["id_rsa"] = private.into();
            data["id_rsa.pub"] = public.into();
            data["authorized_keys"] = public.into();
        }
        _ => labels = json!({SECRET_LABEL: "rsa"}),
    }
    json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": name(view),
            "namespace": view.job.namespace(),
            "labels": labels,
            "ownerReferences": [owner_reference(view.job, view.input.resource)],
        },
        "stringData": data,
    })
}

fn config(view: &View<'_>, flags: &Flags<'_>) -> String {
    let port = flags.port("ssh-port", DEFAULT_PORT);
    let mut text = String::from("StrictHostKeyChecking no\nUserKnownHostsFile /dev/null\n");
    for task in &view.tasks {
        for address in task.hosts(view.job) {
            let host = address.split_once('.').map_or(address.as_str(), |(host, _)| host);
            // Writing to a String cannot fail.
            let _ = write!(text, "Host {host}\n  HostName {address}\n  Port {port}\n");
        }
    }
    text
}

pub(super) fn furnish(pod: &mut Value, view: &View<'_>, flags: &Flags<'_>) {
    let path = flags.text("ssh-key-file-path", DEFAULT_PATH);
    // The client refuses root's keys if others can read them; other users could not read them otherwise.
    let mode = if path == DEFAULT_PATH { 0o600 } else { 0o644 };
    let items: Vec<Value> = ["id_rsa", "id_rsa.pub", "authorized_keys", "config"]
        .iter()
        .map(|key| json!({"key": key, "path": format!(".ssh/{key}")}))
        .collect();
    let name = name(view);
    let volume = json!({"name": name, "secret": {"secretName": name, "items": items, "defaultMode": mode}});
    list_mut(&mut pod["spec"], "volumes").push(volume);
    mount(pod, &json!({"name": name, "mountPath": path, "subPath": ".ssh"}));
}
