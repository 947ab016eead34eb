//! Groups of checks: kinds of storage.

use super::spec;
use crate::api::{Api, random};
use crate::table::{Case, changes, new_objects};
use serde_json::{Value, json};

#[tokio::test]
async fn claims_and_volumes() {
    let api = Api::new().await;
    let path = api.core("persistentvolumeclaims");
    let base = json!({"metadata": {"name": "c"}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
    let cases: &[Case] = &[
        (spec(json!({"accessModes": []})), "Required", "spec.accessModes"),
        (spec(json!({"accessModes": ["Sometimes"]})), "NotSupported", "spec.accessModes"),
        (spec(json!({"resources": null})), "Required", "spec.resources[storage]"),
        (spec(json!({"resources": {"requests": {"storage": "0"}}})), "Invalid", "spec.resources[storage]"),
        (spec(json!({"volumeMode": "Tape"})), "NotSupported", "spec.volumeMode"),
        (spec(json!({"storageClassName": "A_B"})), "Invalid", "spec.storageClassName"),
    ];
    new_objects(&api, &path, &base, cases).await;
    let refused: &[Case] = &[
        (spec(json!({"accessModes": ["ReadWriteMany"]})), "Forbidden", "spec"),
        (spec(json!({"volumeMode": "Block"})), "Forbidden", "spec"),
        (spec(json!({"resources": {"requests": {"storage": "2Gi"}}})), "Forbidden", "spec"),
    ];
    changes(&api, &path, &base, refused, &[spec(json!({"volumeName": "v"}))]).await;
    let path = "/api/v1/persistentvolumes";
    let name = random("pv-");
    let base = json!({"metadata": {"name": name}, "spec": {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "hostPath": {"path": "/x"}}});
    let cases: &[Case] = &[
        (spec(json!({"capacity": null})), "Required", "spec.capacity"),
        (spec(json!({"hostPath": null})), "Required", "spec"),
        (spec(json!({"nfs": {"server": "a", "path": "/"}})), "Forbidden", "spec.nfs"),
        (
            spec(json!({"persistentVolumeReclaimPolicy": "Burn"})),
            "NotSupported",
            "spec.persistentVolumeReclaimPolicy",
        ),
        (spec(json!({"accessModes": null})), "Required", "spec.accessModes"),
    ];
    new_objects(&api, path, &base, cases).await;
    let refused: &[Case] =
        &[(spec(json!({"hostPath": {"path": "/y"}})), "Forbidden", "spec.persistentvolumesource")];
    changes(&api, path, &base, refused, &[spec(json!({"persistentVolumeReclaimPolicy": "Delete"}))]).await;
    api.delete(&format!("{path}/{name}"), Value::Null).await.expect(200);
    api.done().await;
}

#[tokio::test]
async fn storage_classes_and_drivers() {
    let api = Api::new().await;
    let path = "/apis/storage.k8s.io/v1/storageclasses";
    let name = random("sc-");
    let base = json!({"metadata": {"name": name}, "provisioner": "example.com/p", "parameters": {"a": "b"}});
    let cases: &[Case] = &[
        (json!({"provisioner": ""}), "Required", "provisioner"),
        (json!({"reclaimPolicy": "Burn"}), "NotSupported", "reclaimPolicy"),
        (json!({"volumeBindingMode": "Later"}), "NotSupported", "volumeBindingMode"),
    ];
    new_objects(&api, path, &base, cases).await;
    let refused: &[Case] = &[
        (json!({"provisioner": "example.com/q"}), "Invalid", "provisioner"),
        (json!({"parameters": {"a": "c"}}), "Invalid", "parameters"),
        (json!({"reclaimPolicy": "Retain"}), "Invalid", "reclaimPolicy"),
        (json!({"volumeBindingMode": "WaitForFirstConsumer"}), "Invalid", "volumeBindingMode"),
    ];
    changes(&api, path, &base, refused, &[json!({"allowVolumeExpansion": true})]).await;
    // The class that is marked is that of claims which name none.
    let mark = json!({"metadata": {"annotations": {"storageclass.kubernetes.io/is-default-class": "true"}}});
    api.patch(&format!("{path}/{name}"), "merge", mark).await.expect(200);
    let claim = json!({"metadata": {"name": "c"}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
    let made = api.post(&api.core("persistentvolumeclaims"), claim).await.expect(201).body;
    assert_eq!(made["spec"]["storageClassName"], json!(name));
    api.delete(&format!("{path}/{name}"), Value::Null).await.expect(200);
    let attributes =
        json!({"metadata": {"name": random("vac-")}, "driverName": "example.com", "parameters": {"a": "b"}});
    let cases: &[Case] = &[
        (json!({"driverName": ""}), "Required", "driverName"),
        (json!({"parameters": null}), "Required", "parameters"),
    ];
    new_objects(&api, "/apis/storage.k8s.io/v1/volumeattributesclasses", &attributes, cases).await;
    let driver = json!({"metadata": {"name": random("d.")}, "spec": {}});
    let cases: &[Case] = &[
        (spec(json!({"volumeLifecycleModes": ["Forever"]})), "NotSupported", "spec.volumeLifecycleModes"),
        (spec(json!({"fsGroupPolicy": "x"})), "NotSupported", "spec.fsGroupPolicy"),
    ];
    new_objects(&api, "/apis/storage.k8s.io/v1/csidrivers", &driver, cases).await;
    let node =
        json!({"metadata": {"name": random("n-")}, "spec": {"drivers": [{"name": "d", "nodeID": "n"}]}});
    new_objects(
        &api,
        "/apis/storage.k8s.io/v1/csinodes",
        &node,
        &[(spec(json!({"drivers": [{"name": "d", "nodeID": ""}]})), "Required", "spec.drivers[0].nodeID")],
    )
    .await;
    let attachment = json!({"metadata": {"name": random("a-")}, "spec": {"attacher": "example.com", "nodeName": "n", "source": {"persistentVolumeName": "v"}}});
    new_objects(
        &api,
        "/apis/storage.k8s.io/v1/volumeattachments",
        &attachment,
        &[
            (spec(json!({"attacher": ""})), "Required", "spec.attacher"),
            (spec(json!({"source": {"persistentVolumeName": null}})), "Required", "spec.source"),
            (spec(json!({"nodeName": ""})), "Invalid", "spec.nodeName"),
        ],
    )
    .await;
    let capacity = json!({"metadata": {"name": "c"}, "storageClassName": "fast", "capacity": "1Ti"});
    let path = api.group("storage.k8s.io/v1", "csistoragecapacities");
    new_objects(
        &api,
        &path,
        &capacity,
        &[
            (json!({"storageClassName": ""}), "Invalid", "storageClassName"),
            (json!({"capacity": "-1"}), "Invalid", "capacity"),
        ],
    )
    .await;
    changes(
        &api,
        &path,
        &capacity,
        &[(json!({"storageClassName": "slow"}), "Invalid", "storageClassName")],
        &[json!({"capacity": "2Ti"})],
    )
    .await;
    api.done().await;
}
