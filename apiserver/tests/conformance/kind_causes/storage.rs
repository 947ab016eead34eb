//! Causes for which kinds of storage are refused.

use super::{kept, refused, spec};
use crate::api::{Api, random};
use crate::table::merged;
use serde_json::{Value, json};

fn volume(name: &str, extra: Value) -> Value {
    let base = json!({"metadata": {"name": name},
        "spec": {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}}});
    merged(&base, &spec(extra))
}

#[tokio::test]
async fn volumes() {
    let api = Api::new().await;
    let (path, name) = ("/api/v1/persistentvolumes", random("pv-"));
    let driver = json!({"csi": {"driver": "", "volumeHandle": "", "nodePublishSecretRef": {"name": "a"}}});
    let causes = [
        "spec.csi.driver: Required value",
        "spec.csi.volumeHandle: Required value",
        "spec.csi.nodePublishSecretRef.namespace: Required value",
    ];
    refused(&api, path, volume(&name, driver), &causes).await;
    // The second source is not looked into.
    let two = json!({"capacity": {"storage": "-1Gi"}, "hostPath": {"path": "/x"}, "nfs": {"server": "s", "path": "p"}});
    let causes = [
        "spec.capacity[storage]: Invalid value: -1073741824: must be a valid resource quantity",
        "spec.capacity[storage]: Invalid value: \"-1Gi\": must be greater than zero",
        "spec.nfs: Forbidden: may not specify more than 1 volume type",
    ];
    refused(&api, path, volume(&name, two), &causes).await;
    let share = json!({"nfs": {"server": "s", "path": ""}, "volumeMode": "Tape"});
    let causes = [
        "spec.nfs.path: Required value",
        "spec.nfs.path: Invalid value: \"\": must be an absolute path",
        "spec.volumeMode: Unsupported value: \"Tape\": supported values: \"Block\", \"Filesystem\"",
    ];
    refused(&api, path, volume(&name, share), &causes).await;
    let local = volume(&name, json!({"local": {"path": "/a/../b"}}));
    let causes = [
        "spec.local.path: Invalid value: \"/a/../b\": must not contain '..'",
        "spec.nodeAffinity: Required value: Local volume requires node affinity",
    ];
    refused(&api, path, local, &causes).await;
    let host = volume(&name, json!({"hostPath": {"path": "/x"}}));
    let note = "volume.beta.kubernetes.io/mount-options";
    let noted = merged(&host, &json!({"metadata": {"annotations": {note: "ro"}}}));
    let says =
        format!("metadata.annotations.{note}: Forbidden: may not specify mount options for this volume type");
    refused(&api, path, noted, &[&says]).await;
    api.post(path, host).await.expect(201);
    // There too, an update looks at the whole twice.
    let says = "spec.persistentVolumeReclaimPolicy: Unsupported value: \"Burn\": supported values: \"Delete\", \"Recycle\", \"Retain\"";
    let at = format!("{path}/{name}");
    kept(&api, &at, spec(json!({"persistentVolumeReclaimPolicy": "Burn"})), &[says, says]).await;
    api.delete(&at, Value::Null).await.expect(200);
    api.done().await;
}

#[tokio::test]
async fn claims() {
    let api = Api::new().await;
    let path = api.core("persistentvolumeclaims");
    let note = "volume.beta.kubernetes.io/storage-class";
    let claim = json!({"metadata": {"name": "c", "annotations": {note: "a"}},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "2Gi"}},
            "dataSource": {"apiGroup": "example.com", "kind": "Tape", "name": "t"}}});
    let made = api.post(&path, claim).await.expect(201).body;
    assert_eq!(made["spec"].get("dataSource"), None, "{made}");
    let at = format!("{path}/c");
    let says = format!("metadata.annotations.{note}: Invalid value: \"b\": field is immutable");
    kept(&api, &at, json!({"metadata": {"annotations": {note: "b"}}}), &[&says]).await;
    let state = |change: Value| json!({"status": change});
    let status = format!("{at}/status");
    let below = "status.capacity[storage]: Invalid value: -1073741824: must be a valid resource quantity";
    kept(&api, &status, state(json!({"capacity": {"storage": "-1Gi"}})), &[below]).await;
    let resize = "\"ControllerResizeInProgress\", \"ControllerResizeInfeasible\", \"NodeResizeInProgress\", \"NodeResizeInfeasible\", \"NodeResizePending\"";
    let causes: [&str; 2] = [
        "status.allocatedResourceStatuses: Unsupported value: \"cpu\": supported values: \"storage\"",
        &format!("status.allocatedResourceStatuses: Unsupported value: \"cpu\": supported values: {resize}"),
    ];
    kept(&api, &status, state(json!({"allocatedResourceStatuses": {"cpu": "Odd"}})), &causes).await;
    let bound = state(
        json!({"phase": "Bound", "capacity": {"storage": "1Gi"}, "currentVolumeAttributesClassName": "gold"}),
    );
    api.patch(&status, "merge", bound).await.expect(200);
    // A claim that was to grow may take that back, but not below what it has.
    let size = |size: &str| spec(json!({"resources": {"requests": {"storage": size}}}));
    let says = "spec.resources.requests.storage: Forbidden: field can not be less than status.capacity";
    kept(&api, &at, size("1Gi"), &[says]).await;
    api.patch(&at, "merge", size("1536Mi")).await.expect(200);
    api.done().await;
}

#[tokio::test]
async fn classes_drivers_and_attachments() {
    let api = Api::new().await;
    let classes = "/apis/storage.k8s.io/v1/storageclasses";
    let terms =
        json!([{"matchLabelExpressions": [{"key": "a", "values": ["x", "x"]}, {"key": "a", "values": []}]}]);
    let class = json!({"metadata": {"name": random("c-")}, "provisioner": "example.com/p", "allowedTopologies": terms});
    let at = "allowedTopologies[0].matchLabelExpressions";
    let causes = [
        format!("{at}[0].values[1]: Duplicate value: \"x\""),
        format!("{at}[1].values: Required value"),
        format!("{at}[1].key: Duplicate value: \"a\""),
    ];
    refused(&api, classes, class, &causes.each_ref().map(String::as_str)).await;
    let driver = json!({"metadata": {"name": random("d.")}, "spec": {"volumeLifecycleModes": ["Forever"],
        "fsGroupPolicy": "x", "serviceAccountTokenInSecrets": true, "nodeAllocatableUpdatePeriodSeconds": 5}});
    let causes = [
        "spec.fsGroupPolicy: Unsupported value: \"x\": supported values: \"File\", \"None\", \"ReadWriteOnceWithFSType\"",
        "spec.volumeLifecycleModes: Unsupported value: \"Forever\": supported values: \"Persistent\", \"Ephemeral\"",
        "spec.nodeAllocatableUpdatePeriodSeconds: Invalid value: 5: must be greater than or equal to 10 seconds",
        "spec.serviceAccountTokenInSecrets: Invalid value: true: serviceAccountTokenInSecrets is set but no tokenRequests are specified",
    ];
    refused(&api, "/apis/storage.k8s.io/v1/csidrivers", driver, &causes).await;
    let drivers = json!([{"name": "d", "nodeID": "n"}, {"name": "d", "nodeID": ""}]);
    let node = json!({"metadata": {"name": random("n-")}, "spec": {"drivers": drivers}});
    let causes = ["spec.drivers[1].nodeID: Required value", "spec.drivers[1].name: Duplicate value: \"d\""];
    refused(&api, "/apis/storage.k8s.io/v1/csinodes", node, &causes).await;
    let inline =
        json!({"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "hostPath": {"path": "/x"}});
    let attachment = |source: Value| {
        json!({"metadata": {"name": random("a-")},
            "spec": {"attacher": "example.com", "nodeName": "n", "source": source}})
    };
    let path = "/apis/storage.k8s.io/v1/volumeattachments";
    let causes = [
        "spec.source.inlineVolumeSpec.capacity: Forbidden: may not be specified in the context of inline volumes",
        "spec.source.inlineVolumeSpec.csi: Required value: has to be specified in the context of inline volumes",
    ];
    refused(&api, path, attachment(json!({"inlineVolumeSpec": inline})), &causes).await;
    let made = api.post(path, attachment(json!({"persistentVolumeName": "v"}))).await.expect(201).body;
    let at = format!("{path}/{}", made["metadata"]["name"].as_str().unwrap_or_default());
    let error = json!({"status": {"attachError": {"message": "m".repeat(1025), "errorCode": -1}}});
    let causes = [
        "status.attachError.message: Too long: may not be more than 262144 bytes",
        "status.attachError.errorCode: Invalid value: -1: must be between 0 and 2147483647, inclusive",
    ];
    kept(&api, &format!("{at}/status"), error, &causes).await;
    api.delete(&at, Value::Null).await.expect(200);
    let capacity = json!({"metadata": {"name": "c"}, "storageClassName": "fast", "capacity": "-1",
        "nodeTopology": {"matchExpressions": [{"key": "a", "operator": "Odd"}]}});
    let causes = [
        "nodeTopology.matchExpressions[0].operator: Invalid value: \"Odd\": not a valid selector operator",
        "capacity: Invalid value: \"-1\": must be greater than or equal to 0",
    ];
    refused(&api, &api.group("storage.k8s.io/v1", "csistoragecapacities"), capacity, &causes).await;
    api.done().await;
}
