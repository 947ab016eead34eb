//! Kinds of Volcano that several crates use.

use kube::discovery::ApiResource;

use crate::objects::{Object, resource};

const GROUP: &str = "scheduling.volcano.sh";
const VERSION: &str = "v1beta1";

pub fn pod_groups() -> ApiResource {
    resource(GROUP, VERSION, "PodGroup", "podgroups")
}

pub fn queues() -> ApiResource {
    resource(GROUP, VERSION, "Queue", "queues")
}

pub fn commands() -> ApiResource {
    resource("bus.volcano.sh", "v1alpha1", "Command", "commands")
}

/// Whether a Command is for a queue, which the scheduler handles; the job controllers handle the others.
pub fn is_for_queue(command: &Object) -> bool {
    let target = &command.rest["target"];
    target["kind"] == "Queue"
        && target["apiVersion"].as_str().is_some_and(|version| version.starts_with("scheduling.volcano.sh/"))
}
