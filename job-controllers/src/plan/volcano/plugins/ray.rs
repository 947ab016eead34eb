//! ray: the head starts a cluster, the workers join it.

use serde_json::{Value, json};

use super::tools::{Flags, task};
use crate::plan::pod::{list_mut, owner_reference};
use crate::plan::volcano::{task::Task, view::View};

struct Ports {
    gcs: i64,
    dashboard: i64,
    client: i64,
}

fn ports(flags: &Flags<'_>) -> Ports {
    Ports {
        gcs: flags.port("port", 6379),
        dashboard: flags.port("dashboardPort", 8265),
        client: flags.port("clientPort", 10001),
    }
}

/// A Service in front of the head.
pub(super) fn support(view: &View<'_>, flags: &Flags<'_>) -> Option<Value> {
    let head = task(view, flags.text("head", "head"))?;
    let ports = ports(flags);
    let port =
        |name: &str, port: i64| json!({"name": name, "port": port, "targetPort": port, "protocol": "TCP"});
    Some(json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": format!("{}-head-svc", view.job.name()),
            "namespace": view.job.namespace(),
            "ownerReferences": [owner_reference(view.job, view.input.resource)],
        },
        "spec": {
            "selector": {"volcano.sh/job-name": view.job.name(), "volcano.sh/task-spec": head.name},
            "ports": [
                port("gcs", ports.gcs),
                port("dashboard", ports.dashboard),
                port("client-server", ports.client),
            ],
        },
    }))
}

pub(super) fn furnish(pod: &mut Value, view: &View<'_>, of: &Task<'_>, flags: &Flags<'_>) {
    let ports = ports(flags);
    let head = flags.text("head", "head");
    let (container, command) = if of.name == head {
        let command = format!(
            "ray start --head --block --dashboard-host=0.0.0.0 --port={} --dashboard-port={} \
             --ray-client-server-port={}",
            ports.gcs, ports.dashboard, ports.client
        );
        (flags.text("headContainer", "head"), command)
    } else if of.name == flags.text("worker", "worker") {
        let Some(head) = task(view, head) else { return };
        let (host, subdomain) = head.host(view.job, 0);
        (
            flags.text("workerContainer", "worker"),
            format!("ray start --block --address={host}.{subdomain}:{}", ports.gcs),
        )
    } else {
        return;
    };
    let containers = pod["spec"]["containers"].as_array_mut().map_or(&mut [][..], Vec::as_mut_slice);
    let at = containers.iter().position(|known| known["name"] == container).unwrap_or(0);
    let Some(chosen) = containers.get_mut(at).filter(|chosen| chosen.is_object()) else { return };
    chosen["command"] = json!(["sh", "-c", command]);
    if let Some(fields) = chosen.as_object_mut() {
        fields.remove("args");
    }
    if of.name == head {
        let list = list_mut(chosen, "ports");
        for (name, port) in
            [("gcs", ports.gcs), ("dashboard", ports.dashboard), ("client-server", ports.client)]
        {
            if !list.iter().any(|known| known["name"] == name) {
                list.push(json!({"name": name, "containerPort": port, "protocol": "TCP"}));
            }
        }
    }
}
