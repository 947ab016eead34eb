//! Groups of checks: what a container of a pod may say, and what it mounts.

use super::{c, refused, with};
use crate::api::pod;
use crate::table::merged;
use serde_json::{Value, json};

#[tokio::test]
async fn containers_names_and_images() {
    let twice = json!({"spec": {"containers": [{"name": "c", "image": "i"}, {"name": "c", "image": "i"}]}});
    refused(
        pod("p"),
        &[
            (json!({"spec": {"containers": []}}), "Required", "spec.containers"),
            (c(json!({"name": ""})), "Required", "spec.containers[0].name"),
            (c(json!({"name": "Not_A_Label"})), "Invalid", "spec.containers[0].name"),
            (c(json!({"image": ""})), "Required", "spec.containers[0].image"),
            (c(json!({"image": " i"})), "Invalid", "spec.containers[0].image"),
            (c(json!({"imagePullPolicy": "Sometimes"})), "NotSupported", "spec.containers[0].imagePullPolicy"),
            (twice, "Duplicate", "spec.containers[1].name"),
            (
                c(json!({"terminationMessagePolicy": "Nowhere"})),
                "NotSupported",
                "spec.containers[0].terminationMessagePolicy",
            ),
            (
                json!({"spec": {"ephemeralContainers": [{"name": "e", "image": "i"}]}}),
                "Forbidden",
                "spec.ephemeralContainers",
            ),
            (
                json!({"spec": {"initContainers": [{"name": "i", "image": "i", "readinessProbe": {"exec": {"command": ["x"]}}}]}}),
                "Forbidden",
                "spec.initContainers[0].readinessProbe",
            ),
        ],
    )
    .await;
}

#[tokio::test]
async fn ports_of_containers() {
    let ports = |list: Value| c(json!({"ports": list}));
    refused(
        with(json!({"ports": [{"containerPort": 80, "name": "http", "protocol": "UDP"}]})),
        &[
            (ports(json!([{"containerPort": 0}])), "Required", "spec.containers[0].ports[0].containerPort"),
            (
                ports(json!([{"containerPort": 65536}])),
                "Invalid",
                "spec.containers[0].ports[0].containerPort",
            ),
            (ports(json!([{"containerPort": -1}])), "Invalid", "spec.containers[0].ports[0].containerPort"),
            (
                ports(json!([{"containerPort": 80, "protocol": "ICMP"}])),
                "NotSupported",
                "spec.containers[0].ports[0].protocol",
            ),
            (
                ports(json!([{"containerPort": 80, "name": "much-too-long-a-name"}])),
                "Invalid",
                "spec.containers[0].ports[0].name",
            ),
            (
                ports(json!([{"containerPort": 80, "name": "80"}])),
                "Invalid",
                "spec.containers[0].ports[0].name",
            ),
            (
                ports(json!([{"containerPort": 80, "name": "a"}, {"containerPort": 81, "name": "a"}])),
                "Duplicate",
                "spec.containers[0].ports[1].name",
            ),
            (
                ports(json!([{"containerPort": 80, "hostPort": 70000}])),
                "Invalid",
                "spec.containers[0].ports[0].hostPort",
            ),
            (
                ports(
                    json!([{"containerPort": 80, "hostPort": 8080}, {"containerPort": 81, "hostPort": 8080}]),
                ),
                "Duplicate",
                "spec.containers[0].ports[1].hostPort",
            ),
        ],
    )
    .await;
}

#[tokio::test]
async fn environments() {
    let env = |list: Value| c(json!({"env": list}));
    let from = |source: Value| env(json!([{"name": "A", "valueFrom": source}]));
    let at = "spec.containers[0].env[0].valueFrom";
    refused(
        with(json!({"env": [{"name": "a.b-c", "value": "x"}, {"name": "N", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]})),
        &[
            (env(json!([{"name": ""}])), "Required", "spec.containers[0].env[0].name"),
            (env(json!([{"name": "a=b"}])), "Invalid", "spec.containers[0].env[0].name"),
            (from(json!({})), "Invalid", at),
            (
                env(json!([{"name": "A", "value": "x", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}])),
                "Invalid",
                at,
            ),
            (
                from(json!({"fieldRef": {"fieldPath": ""}})),
                "Required",
                "spec.containers[0].env[0].valueFrom.fieldRef.fieldPath",
            ),
            (
                from(json!({"fieldRef": {"fieldPath": "metadata.whoops"}})),
                "Invalid",
                "spec.containers[0].env[0].valueFrom.fieldRef.fieldPath",
            ),
            (
                from(json!({"resourceFieldRef": {"resource": "limits.bogus"}})),
                "NotSupported",
                "spec.containers[0].env[0].valueFrom.resourceFieldRef.resource",
            ),
            (
                from(json!({"secretKeyRef": {"name": "s"}})),
                "Required",
                "spec.containers[0].env[0].valueFrom.secretKeyRef.key",
            ),
            (
                from(json!({"configMapKeyRef": {"name": "s", "key": "a b"}})),
                "Invalid",
                "spec.containers[0].env[0].valueFrom.configMapKeyRef.key",
            ),
            (c(json!({"envFrom": [{}]})), "Invalid", "spec.containers[0].envFrom"),
            (
                c(json!({"envFrom": [{"configMapRef": {"name": ""}}]})),
                "Required",
                "spec.containers[0].envFrom[0].configMapRef.name",
            ),
        ],
    )
    .await;
}

#[tokio::test]
async fn probes_and_hooks() {
    let live = |probe: Value| c(json!({"livenessProbe": probe}));
    let at = "spec.containers[0].livenessProbe";
    let get = json!({"httpGet": {"port": 80}});
    let also = |change: Value| live(merged(&get, &change));
    refused(
        with(json!({"livenessProbe": get, "readinessProbe": {"tcpSocket": {"port": "http"}, "successThreshold": 3}})),
        &[
            (live(json!({"periodSeconds": 1})), "Required", at),
            (
                also(json!({"exec": {"command": ["a"]}})),
                "Forbidden",
                "spec.containers[0].livenessProbe.httpGet",
            ),
            (also(json!({"periodSeconds": -1})), "Invalid", "spec.containers[0].livenessProbe.periodSeconds"),
            (
                also(json!({"initialDelaySeconds": -1})),
                "Invalid",
                "spec.containers[0].livenessProbe.initialDelaySeconds",
            ),
            (also(json!({"successThreshold": 2})), "Invalid", "spec.containers[0].livenessProbe.successThreshold"),
            (
                live(json!({"httpGet": {"port": 0}})),
                "Invalid",
                "spec.containers[0].livenessProbe.httpGet.port",
            ),
            (
                live(json!({"httpGet": {"port": 80, "scheme": "FTP"}})),
                "NotSupported",
                "spec.containers[0].livenessProbe.httpGet.scheme",
            ),
            (live(json!({"exec": {}})), "Required", "spec.containers[0].livenessProbe.exec.command"),
            (
                live(json!({"tcpSocket": {"port": "a b"}})),
                "Invalid",
                "spec.containers[0].livenessProbe.tcpSocket.port",
            ),
            (
                c(json!({"readinessProbe": {"tcpSocket": {"port": 1}, "terminationGracePeriodSeconds": 5}})),
                "Invalid",
                "spec.containers[0].readinessProbe.terminationGracePeriodSeconds",
            ),
            (c(json!({"lifecycle": {"preStop": {}}})), "Required", "spec.containers[0].lifecycle.preStop"),
        ],
    )
    .await;
}

#[tokio::test]
async fn volumes_and_mounts() {
    let volume = |v: Value| json!({"spec": {"volumes": [merged(&json!({"name": "v"}), &v)]}});
    let mount = |m: Value| {
        let mounts = json!([merged(&json!({"name": "v", "mountPath": "/v"}), &m)]);
        c(json!({"volumeMounts": mounts}))
    };
    let mut base = with(json!({"volumeMounts": [{"name": "v", "mountPath": "/v"}]}));
    base["spec"]["volumes"] = json!([{"name": "v", "emptyDir": {}}]);
    refused(
        base,
        &[
            (volume(json!({"name": "", "emptyDir": {}})), "Required", "spec.volumes[0].name"),
            (volume(json!({"name": "A_b", "emptyDir": {}})), "Invalid", "spec.volumes[0].name"),
            (
                json!({"spec": {"volumes": [{"name": "v", "emptyDir": {}}, {"name": "v", "emptyDir": {}}]}}),
                "Duplicate",
                "spec.volumes[1].name",
            ),
            (volume(json!({"emptyDir": {}, "hostPath": {"path": "/"}})), "Forbidden", "spec.volumes[0].hostPath"),
            (volume(json!({"hostPath": {"path": ""}})), "Required", "spec.volumes[0].hostPath.path"),
            (volume(json!({"hostPath": {"path": "/a/../b"}})), "Invalid", "spec.volumes[0].hostPath.path"),
            (
                volume(json!({"hostPath": {"path": "/a", "type": "Pipe"}})),
                "NotSupported",
                "spec.volumes[0].hostPath.type",
            ),
            (volume(json!({"secret": {"secretName": ""}})), "Required", "spec.volumes[0].secret.secretName"),
            (
                volume(json!({"secret": {"secretName": "s", "defaultMode": 512}})),
                "Invalid",
                "spec.volumes[0].secret.defaultMode",
            ),
            (
                volume(json!({"configMap": {"name": "m", "items": [{"key": "k", "path": "../x"}]}})),
                "Invalid",
                "spec.volumes[0].configMap.items[0].path",
            ),
            (
                volume(json!({"persistentVolumeClaim": {"claimName": ""}})),
                "Required",
                "spec.volumes[0].persistentVolumeClaim.claimName",
            ),
            (volume(json!({"nfs": {"server": "s", "path": "rel"}})), "Invalid", "spec.volumes[0].nfs.path"),
            (
                volume(json!({"projected": {"sources": [{"serviceAccountToken": {"path": "t", "expirationSeconds": 5}}]}})),
                "Invalid",
                "spec.volumes[0].projected.sources[0].serviceAccountToken.expirationSeconds",
            ),
            (mount(json!({"name": "other"})), "NotFound", "spec.containers[0].volumeMounts[0].name"),
            (mount(json!({"mountPath": ""})), "Required", "spec.containers[0].volumeMounts[0].mountPath"),
            (mount(json!({"subPath": "/abs"})), "Invalid", "spec.containers[0].volumeMounts.subPath"),
            (
                c(json!({"volumeMounts": [{"name": "v", "mountPath": "/v"}, {"name": "v", "mountPath": "/v"}]})),
                "Invalid",
                "spec.containers[0].volumeMounts[1].mountPath",
            ),
        ],
    )
    .await;
}
