//! Exactly what is said of a pod's volumes and of what containers mount: all causes, in the words of Kubernetes 1.36.

use super::spec_rules::{Told, tells};
use super::{c, with};
use crate::api::pod;
use crate::table::merged;
use serde_json::{Value, json};

fn volume(source: Value) -> Value {
    json!({"spec": {"volumes": [merged(&json!({"name": "v"}), &source)]}})
}

#[tokio::test]
async fn sources_of_volumes_and_what_they_need() {
    tells(
        &pod("p"),
        &[
            (
                volume(json!({"emptyDir": {}, "cephfs": {"monitors": ["a"]}, "downwardAPI": {}})),
                &[
                    ("spec.volumes[0].cephFS", "Forbidden: may not specify more than 1 volume type"),
                    ("spec.volumes[0].downwarAPI", "Forbidden: may not specify more than 1 volume type"),
                ],
            ),
            (
                volume(json!({"emptyDir": {"sizeLimit": "-1"}})),
                &[(
                    "spec.volumes[0].emptyDir.sizeLimit",
                    "Forbidden: SizeLimit field must be a valid resource quantity",
                )],
            ),
            (
                volume(json!({"hostPath": {"path": "/a", "type": "Pipe"}})),
                &[(
                    "spec.volumes[0].hostPath.type",
                    "Unsupported value: \"Pipe\": supported values: \"\", \"BlockDevice\", \"CharDevice\", \"Directory\", \
                     \"DirectoryOrCreate\", \"File\", \"FileOrCreate\", \"Socket\"",
                )],
            ),
            (
                volume(json!({"gcePersistentDisk": {"pdName": "d", "partition": 256}})),
                &[(
                    "spec.volumes[0].persistentDisk.partition",
                    "Invalid value: 256: must be between 1 and 255, inclusive",
                )],
            ),
            (
                volume(json!({"nfs": {"server": "s", "path": ""}})),
                &[
                    ("spec.volumes[0].nfs.path", "Required value"),
                    ("spec.volumes[0].nfs.path", "Invalid value: \"\": must be an absolute path"),
                ],
            ),
            (
                volume(
                    json!({"iscsi": {"targetPortal": "t", "iqn": "iqn.x", "lun": 256, "chapAuthSession": true}}),
                ),
                &[
                    ("spec.volumes[0].iscsi.iqn", "Invalid value: \"iqn.x\": must be valid format"),
                    ("spec.volumes[0].iscsi.lun", "Invalid value: 256: must be between 0 and 255, inclusive"),
                    ("spec.volumes[0].iscsi.secretRef", "Required value"),
                ],
            ),
            (
                volume(json!({"fc": {"targetWWNs": ["a"]}})),
                &[("spec.volumes[0].fc.lun", "Required value: lun is required if targetWWNs is specified")],
            ),
        ],
    )
    .await;
}

#[tokio::test]
async fn volumes_that_drivers_read() {
    tells(
        &pod("p"),
        &[
            (
                volume(json!({"flocker": {}})),
                &[(
                    "spec.volumes[0].flocker",
                    "Required value: one of datasetName and datasetUUID is required",
                )],
            ),
            (
                volume(json!({"flexVolume": {"driver": "d", "options": {"a.kubernetes.io/x": "y"}}})),
                &[(
                    "spec.volumes[0].flexVolume.options[a.kubernetes.io/x]",
                    "Invalid value: \"a.kubernetes.io/x\": kubernetes.io and k8s.io namespaces are reserved",
                )],
            ),
            (
                volume(json!({"azureDisk": {"diskName": "d", "diskURI": "u", "cachingMode": "No"}})),
                &[
                    (
                        "spec.volumes[0].azureDisk.cachingMode",
                        "Unsupported value: \"No\": supported values: \"None\", \"ReadOnly\", \"ReadWrite\"",
                    ),
                    (
                        "spec.volumes[0].azureDisk.diskURI",
                        "Unsupported value: \"u\": supported values: \
                         \"https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd\"",
                    ),
                ],
            ),
            (
                volume(json!({"csi": {"driver": "d", "nodePublishSecretRef": {"name": ""}}})),
                &[("spec.volumes[0].csi.nodePublishSecretRef.name", "Required value")],
            ),
            (
                volume(json!({"image": {"reference": ""}})),
                &[("spec.volumes[0].image.reference", "Required value")],
            ),
        ],
    )
    .await;
}

#[tokio::test]
async fn files_that_are_written_into_volumes() {
    tells(
        &pod("p"),
        &[
            (
                volume(json!({"configMap": {"name": "m", "items": [{"key": "", "path": "..a"}]}})),
                &[
                    ("spec.volumes[0].configMap.items[0].key", "Required value"),
                    (
                        "spec.volumes[0].configMap.items[0].path",
                        "Invalid value: \"..a\": must not start with '..'",
                    ),
                ],
            ),
            (
                volume(json!({"downwardAPI": {"items": [{"path": "/a"}]}})),
                &[
                    ("spec.volumes[0].downwardAPI.path", "Invalid value: \"/a\": must be a relative path"),
                    (
                        "spec.volumes[0].downwardAPI",
                        "Required value: one of fieldRef and resourceFieldRef is required",
                    ),
                ],
            ),
            (
                volume(json!({"projected": {"sources": [
                    {"secret": {"name": "s", "items": [{"key": "k", "path": "p"}]}},
                    {"configMap": {"name": "m", "items": [{"key": "k", "path": "p"}]}, "serviceAccountToken": {"path": "", "expirationSeconds": 5}}]}})),
                &[
                    ("spec.volumes[0].projected", "Invalid value: \"m\": conflicting duplicate paths"),
                    (
                        "spec.volumes[0].projected.sources[1].serviceAccountToken.expirationSeconds",
                        "Invalid value: 5: may not specify a duration less than 10 minutes",
                    ),
                    ("spec.volumes[0].projected.path", "Required value"),
                    (
                        "spec.volumes[0].projected.sources[1]",
                        "Forbidden: may not specify more than 1 volume type per source",
                    ),
                ],
            ),
            (
                json!({"spec": {"volumes": [
                    {"name": "v", "ephemeral": {"volumeClaimTemplate": {"metadata": {"name": "n"}, "spec": {"accessModes": ["No"]}}}},
                    {"name": "w", "persistentVolumeClaim": {"claimName": "p-v"}}]}}),
                &[
                    ("spec.volumes[0].ephemeral.volumeClaimTemplate.metadata.name", "Forbidden: cannot be set"),
                    (
                        "spec.volumes[0].ephemeral.volumeClaimTemplate.spec.accessModes",
                        "Unsupported value: \"No\": supported values: \"ReadOnlyMany\", \"ReadWriteMany\", \"ReadWriteOnce\", \
                         \"ReadWriteOncePod\"",
                    ),
                    ("spec.volumes[0].ephemeral.volumeClaimTemplate.spec.resources[storage]", "Required value"),
                    (
                        "spec.volumes[1].persistentVolumeClaim.claimName",
                        "Invalid value: \"p-v\": must not reference a PVC that gets created for an ephemeral volume",
                    ),
                ],
            ),
        ],
    )
    .await;
}

/// A pod with two volumes, of which its container mounts one.
fn base() -> Value {
    let mut base = with(json!({"volumeMounts": [{"name": "v", "mountPath": "/v"}]}));
    base["spec"]["volumes"] =
        json!([{"name": "v", "emptyDir": {}}, {"name": "w", "persistentVolumeClaim": {"claimName": "w"}}]);
    base
}

#[tokio::test]
async fn what_containers_mount() {
    let mount = |fields: Value| {
        let mounts = json!([merged(&json!({"name": "v", "mountPath": "/v"}), &fields)]);
        c(json!({"volumeMounts": mounts}))
    };
    let cases: [Told; 4] = [
        // A volume that is not valid is not there.
        (
            json!({"spec": {"volumes": [{"name": "v", "hostPath": {"path": ""}}]}}),
            &[
                ("spec.volumes[0].hostPath.path", "Required value"),
                ("spec.containers[0].volumeMounts[0].name", "Not found: \"v\""),
            ],
        ),
        (
            mount(json!({"subPath": "/a/..", "subPathExpr": "b"})),
            &[
                (
                    "spec.containers[0].volumeMounts.subPath",
                    "Invalid value: \"/a/..\": must be a relative path",
                ),
                (
                    "spec.containers[0].volumeMounts.subPath",
                    "Invalid value: \"/a/..\": must not contain '..'",
                ),
                (
                    "spec.containers[0].volumeMounts[0].subPathExpr",
                    "Invalid value: \"b\": subPathExpr and subPath are mutually exclusive",
                ),
            ],
        ),
        (
            mount(json!({"mountPropagation": "Bidirectional", "recursiveReadOnly": "Enabled"})),
            &[
                (
                    "spec.containers[0].volumeMounts.mountPropagation",
                    "Forbidden: Bidirectional mount propagation is available only to privileged containers",
                ),
                (
                    "spec.containers[0].volumeMounts.recursiveReadOnly",
                    "Forbidden: may only be specified when readOnly is true",
                ),
                (
                    "spec.containers[0].volumeMounts.recursiveReadOnly",
                    "Forbidden: may only be specified when mountPropagation is None or not specified",
                ),
            ],
        ),
        (
            mount(json!({"recursiveReadOnly": "Maybe"})),
            &[(
                "spec.containers[0].volumeMounts.recursiveReadOnly",
                "Unsupported value: \"Maybe\": supported values: \"Disabled\", \"Enabled\", \"IfPossible\"",
            )],
        ),
    ];
    tells(&base(), &cases).await;
}

#[tokio::test]
async fn block_devices_of_containers() {
    let cases: [Told; 2] = [
        (
            c(json!({"volumeMounts": [], "volumeDevices": [{"name": "v", "devicePath": "/d/../x"}]})),
            &[
                (
                    "spec.containers[0].volumeDevices[0].name",
                    "Invalid value: \"v\": can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode",
                ),
                (
                    "spec.containers[0].volumeDevices[0].devicePath",
                    "Invalid value: \"/d/../x\": can not contain backsteps ('..')",
                ),
            ],
        ),
        (
            c(
                json!({"volumeMounts": [{"name": "w", "mountPath": "/w"}], "volumeDevices": [{"name": "w", "devicePath": "/w"}]}),
            ),
            &[
                (
                    "spec.containers[0].volumeMounts[0].name",
                    "Invalid value: \"w\": must not already exist in volumeDevices",
                ),
                (
                    "spec.containers[0].volumeMounts[0].mountPath",
                    "Invalid value: \"/w\": must not already exist as a path in volumeDevices",
                ),
                (
                    "spec.containers[0].volumeDevices[0].name",
                    "Invalid value: \"w\": must not already exist in volumeMounts",
                ),
                (
                    "spec.containers[0].volumeDevices[0].devicePath",
                    "Invalid value: \"/w\": must not already exist as a path in volumeMounts",
                ),
            ],
        ),
    ];
    tells(&base(), &cases).await;
}
