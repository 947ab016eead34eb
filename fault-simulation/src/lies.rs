//! What a hostile member writes with the rights of its agent: the status of its Works, Reservations and Cluster,
//! and the finalizers of its Works.

use fleet_api::names;
use kube::{
    Api, Client,
    api::{DynamicObject, ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};

use super::{observe::resource, plan::Lie};

const FLEET: &str = "fleet.dev/v1alpha1";
/// Far enough from now that nothing runs out in a simulation.
const LATE: &str = "2030-01-01T00:00:00Z";

/// Tells a lie about everything that stands at the moment. What the hub refuses is not told.
pub async fn tell(hub: &Client, cluster: &str, lie: Lie) {
    let namespace = names::cluster_namespace(cluster);
    let kind = match lie {
        Lie::Reserved | Lie::Refused => "Reservation",
        Lie::Room => "Cluster",
        _ => "Work",
    };
    let api: Api<DynamicObject> = match kind {
        "Cluster" => Api::all_with(hub.clone(), &resource(FLEET, kind)),
        _ => Api::namespaced_with(hub.clone(), &namespace, &resource(FLEET, kind)),
    };
    let Ok(standing) = api.list(&ListParams::default()).await else { return };
    for object in standing.items {
        let name = object.metadata.name.clone().unwrap_or_default();
        if kind == "Cluster" && name != cluster {
            continue;
        }
        let value = serde_json::to_value(&object).unwrap_or_default();
        let params = PatchParams::default();
        if lie == Lie::LetGo {
            let patch = json!({"metadata": {"finalizers": null}});
            let _ = api.patch(&name, &params, &Patch::Merge(patch)).await;
        } else {
            let patch = json!({"status": status(lie, &value)});
            let _ = api.patch_status(&name, &params, &Patch::Merge(patch)).await;
        }
    }
}

fn status(lie: Lie, object: &Value) -> Value {
    match lie {
        Lie::Succeeded => ended(object, "Succeeded", "Complete"),
        Lie::Failed => ended(object, "Failed", "Failed"),
        Lie::NameTaken => refused("NameTaken"),
        Lie::Stale => refused("StaleEpoch"),
        Lie::Reserved => {
            json!({"phase": "Reserved", "reportSequence": 1, "expiresAt": LATE, "refusals": null,
            "nodes": {"master": ["ghost-0"], "worker": ["ghost-0", "ghost-1", "ghost-2"], "job": ["ghost-0"]}})
        }
        Lie::Refused => json!({"phase": "Refused", "nodes": null, "message": "there is no room"}),
        Lie::Room | Lie::LetGo => room(object),
    }
}

/// The job of a Work has ended: as Kubeflow says it, and as Kubernetes does.
fn ended(work: &Value, kubeflow: &str, batch: &str) -> Value {
    let job = &work["spec"]["workload"]["manifests"][0];
    let api_version = job["apiVersion"].as_str().unwrap_or_default();
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let kind = if api_version == "batch/v1" { batch } else { kubeflow };
    let condition = json!({"type": kind, "status": "True", "reason": "Said", "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let status = match api_version {
        "batch.volcano.sh/v1alpha1" => {
            json!({"state": {"phase": if kubeflow == "Succeeded" { "Completed" } else { "Failed" }}})
        }
        _ => json!({"conditions": [condition]}),
    };
    json!({
        "observedEpoch": work["spec"]["epoch"],
        "manifestStatuses": [{"status": status, "health": "Healthy", "identifier": {"ordinal": 0, "group": group,
            "version": version, "kind": job["kind"], "namespace": job["metadata"]["namespace"],
            "name": job["metadata"]["name"]}}],
    })
}

fn refused(reason: &str) -> Value {
    let condition = json!({"type": "Applied", "status": "False", "reason": reason, "message": "so it is said",
        "lastTransitionTime": "2026-01-01T00:00:00Z"});
    json!({"conditions": [condition]})
}

/// A thousand times the nodes of each shape, all of them free.
fn room(cluster: &Value) -> Value {
    let mut shapes = cluster["status"]["nodeShapes"].clone();
    for shape in shapes.as_array_mut().into_iter().flatten() {
        shape["count"] = (shape["count"].as_i64().unwrap_or(1) * 1000).into();
        shape["free"] = shape["allocatable"].clone();
    }
    json!({"nodeShapes": shapes})
}
