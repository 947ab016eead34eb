//! Exactly what is said of a pod's spec: all causes, in their order and in the words of Kubernetes 1.36.

use super::c;
use crate::api::{Answer, Api, deployment, pod};
use crate::table::merged;
use serde_json::{Value, json};

/// A change of a pod, and all fields that are refused for it with what is said of them.
pub(super) type Told = (Value, &'static [(&'static str, &'static str)]);

const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and \
    end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is \
    '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";

pub(super) fn causes(answer: &Answer) -> Vec<(&str, &str)> {
    let list = answer.body["details"]["causes"].as_array().map(Vec::as_slice).unwrap_or_default();
    assert!(list.iter().all(|cause| cause["reason"].is_string()), "{}", answer.text);
    list.iter()
        .map(|cause| {
            (cause["field"].as_str().unwrap_or_default(), cause["message"].as_str().unwrap_or_default())
        })
        .collect()
}

/// Each change of the base is refused for exactly these causes.
pub(super) async fn tells(base: &Value, cases: &[Told]) {
    let api = Api::new().await;
    let pods = format!("{}?dryRun=All", api.core("pods"));
    api.post(&pods, base.clone()).await.expect(201);
    for (change, wanted) in cases {
        let answer = api.post(&pods, merged(base, change)).await.fails(422, "Invalid");
        assert_eq!(causes(&answer), *wanted, "{change}");
    }
    api.done().await;
}

fn spec(change: Value) -> Value {
    json!({"spec": change})
}

#[tokio::test]
async fn names_and_the_network_of_a_pod() {
    let dns = |config: Value| spec(json!({"dnsConfig": config}));
    let addresses = json!(["1.1.1.1", "010.0.0.1", "::ffff:1.2.3.4", "x"]);
    tells(
        &pod("p"),
        &[
            (
                spec(json!({"dnsPolicy": "None"})),
                &[("spec.dnsConfig", "Required value: must provide `dnsConfig` when `dnsPolicy` is None")],
            ),
            (
                dns(json!({"nameservers": addresses})),
                &[
                    (
                        "spec.dnsConfig.nameservers",
                        "Invalid value: [\"1.1.1.1\",\"010.0.0.1\",\"::ffff:1.2.3.4\",\"x\"]: must not have more than 3 nameservers",
                    ),
                    ("spec.dnsConfig.nameservers[1]", "Invalid value: \"010.0.0.1\": must not have leading 0s"),
                    (
                        "spec.dnsConfig.nameservers[2]",
                        "Invalid value: \"::ffff:1.2.3.4\": must not be an IPv4-mapped IPv6 address",
                    ),
                    (
                        "spec.dnsConfig.nameservers[3]",
                        "Invalid value: \"x\": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",
                    ),
                ],
            ),
            (
                dns(json!({"searches": [".", "_a.b.", "ok"], "options": [{"value": "1"}]})),
                &[("spec.dnsConfig.options[0]", "Required value: must not be empty")],
            ),
            (
                spec(json!({"schedulingGates": [{"name": "a"}, {"name": "a"}]})),
                &[("spec.schedulingGates[1]", "Duplicate value: \"a\"")],
            ),
            (
                spec(json!({"hostUsers": false, "hostPID": true, "hostIPC": true})),
                &[
                    ("spec.HostPID", "Forbidden: when `hostUsers` is false"),
                    ("spec.HostIPC", "Forbidden: when `hostUsers` is false"),
                ],
            ),
            (
                spec(json!({"hostnameOverride": "a", "setHostnameAsFQDN": true})),
                &[("spec.hostnameOverride", "Forbidden: may not be specified when setHostnameAsFQDN is true")],
            ),
            (
                spec(json!({"hostname": "a.b"})),
                &[("spec.hostname", "Invalid value: \"a.b\": must not contain dots")],
            ),
            (
                spec(json!({"restartPolicy": "Maybe"})),
                &[(
                    "spec.restartPolicy",
                    "Unsupported value: \"Maybe\": supported values: \"Always\", \"OnFailure\", \"Never\"",
                )],
            ),
            (
                spec(json!({"os": {"name": "plan9"}})),
                &[("spec.os", "Unsupported value: \"plan9\": supported values: \"linux\", \"windows\"")],
            ),
            (
                spec(json!({"resourceClaims": [{"name": "c"}]})),
                &[(
                    "spec.resourceClaims[0]",
                    "Invalid value: {\"Name\":\"c\",\"ResourceClaimName\":null,\"ResourceClaimTemplateName\":null}: must \
                     specify one of: `resourceClaimName`, `resourceClaimTemplateName`",
                )],
            ),
        ],
    )
    .await;
}

#[tokio::test]
async fn where_a_pod_may_run() {
    let spread = |change: Value| {
        let base = json!({"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"});
        merged(&base, &change)
    };
    let constraints = |list: Value| spec(json!({"topologySpreadConstraints": list}));
    let near = |term: Value| {
        spec(json!({"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}))
    };
    tells(
        &merged(&pod("p"), &json!({"metadata": {"labels": {"app": "x"}}})),
        &[
            (
                constraints(json!([spread(json!({"minDomains": 0})), spread(json!({}))])),
                &[
                    (
                        "spec.topologySpreadConstraints[0].{topologyKey, whenUnsatisfiable}",
                        "Duplicate value: \"{zone, DoNotSchedule}\"",
                    ),
                    (
                        "spec.topologySpreadConstraints[0].minDomains",
                        "Invalid value: 0: must be greater than zero",
                    ),
                ],
            ),
            (
                constraints(json!([spread(json!({"nodeTaintsPolicy": "No", "matchLabelKeys": ["app"]}))])),
                &[
                    (
                        "spec.topologySpreadConstraints[0].nodeTaintsPolicy",
                        "Unsupported value: \"No\": supported values: \"Honor\", \"Ignore\"",
                    ),
                    (
                        "spec.topologySpreadConstraints[0].matchLabelKeys",
                        "Forbidden: must not be specified when labelSelector is not set",
                    ),
                ],
            ),
            // The key is merged into the selector, which has it already.
            (
                constraints(json!([spread(json!({"matchLabelKeys": ["app"], "labelSelector": {"matchLabels": {"app": "y"}}}))])),
                &[(
                    "spec.topologySpreadConstraints[0][0]",
                    "Invalid value: \"app\": exists in both matchLabelKeys and labelSelector",
                )],
            ),
            (
                near(json!({"topologyKey": "z", "labelSelector": {}, "namespaces": ["a.b"], "matchLabelKeys": ["app"], "mismatchLabelKeys": ["app"]})),
                &[
                    (
                        "spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].namespace",
                        "Invalid value: \"a.b\": must not contain dots",
                    ),
                    (
                        "spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[0][0]",
                        "Invalid value: \"app\": exists in both matchLabelKeys and labelSelector",
                    ),
                    (
                        "spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].matchLabelKeys[0]",
                        "Invalid value: \"app\": exists in both matchLabelKeys and mismatchLabelKeys",
                    ),
                ],
            ),
            (
                spec(json!({"tolerations": [{"key": "a", "operator": "Gt", "value": "1"}, {"key": "a", "operator": "Exists", "value": "v"}]})),
                &[
                    (
                        "spec.tolerations[0].operator",
                        "Unsupported value: \"Gt\": supported values: \"Equal\", \"Exists\", \"Lt\", \"Gt\"",
                    ),
                    (
                        "spec.tolerations[1].operator",
                        "Invalid value: \"v\": value must be empty when `operator` is 'Exists'",
                    ),
                ],
            ),
        ],
    )
    .await;
}

#[tokio::test]
async fn ports_probes_and_hooks_of_containers() {
    tells(
        &pod("p"),
        &[
            (
                c(json!({"ports": [{"containerPort": 80, "hostPort": 90}, {"containerPort": 81, "hostPort": 90}]})),
                &[("spec.containers[0].ports[1].hostPort", "Duplicate value: \"TCP//90\"")],
            ),
            (
                c(json!({"ports": [{"containerPort": 80, "name": "80-"}]})),
                &[
                    (
                        "spec.containers[0].ports[0].name",
                        "Invalid value: \"80-\": must contain at least one letter (a-z)",
                    ),
                    (
                        "spec.containers[0].ports[0].name",
                        "Invalid value: \"80-\": must not begin or end with a hyphen",
                    ),
                ],
            ),
            (
                json!({"spec": {"hostNetwork": true, "containers": [{"name": "c", "image": "i", "ports": [{"containerPort": 80, "hostPort": 81}]}]}}),
                &[(
                    "spec.containers[0].ports[0].hostPort",
                    "Invalid value: 81: must match `containerPort` when `hostNetwork` is true",
                )],
            ),
            (
                c(json!({"livenessProbe": {"httpGet": {"port": 0, "httpHeaders": [{"name": "a b", "value": ""}]}, "terminationGracePeriodSeconds": 0}})),
                &[
                    (
                        "spec.containers[0].livenessProbe.httpGet.port",
                        "Invalid value: 0: must be between 1 and 65535, inclusive",
                    ),
                    (
                        "spec.containers[0].livenessProbe.httpGet.httpHeaders",
                        "Invalid value: \"a b\": a valid HTTP header must consist of alphanumeric characters or '-' (e.g. \
                         'X-Header-Name', regex used for validation is '[-A-Za-z0-9]+')",
                    ),
                    (
                        "spec.containers[0].livenessProbe.terminationGracePeriodSeconds",
                        "Invalid value: 0: must be greater than 0",
                    ),
                ],
            ),
            (
                c(json!({"lifecycle": {"preStop": {"sleep": {"seconds": 31}}}})),
                &[(
                    "spec.containers[0].lifecycle.preStop.sleep",
                    "Invalid value: 31: must be non-negative and less than terminationGracePeriodSeconds (30)",
                )],
            ),
        ],
    )
    .await;
}

#[tokio::test]
async fn variables_policies_and_rules_of_containers() {
    tells(
        &pod("p"),
        &[
            (
                c(json!({"env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['/a']"}}}]})),
                &[(
                    "spec.containers[0].env[0].valueFrom.fieldRef",
                    "Invalid value: \"/a\": prefix part must be non-empty",
                )],
            ),
            (
                c(json!({"env": [{"name": "A", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu", "divisor": "2"}}}]})),
                &[(
                    "spec.containers[0].env[0].valueFrom.resourceFieldRef.divisor",
                    "Invalid value: \"limits.cpu\": only divisor's values 1m and 1 are supported with the cpu resource",
                )],
            ),
            (
                c(json!({"env": [{"name": "A", "valueFrom": {"fileKeyRef": {"key": "K", "volumeName": "v", "path": "../p"}}}]})),
                &[
                    (
                        "spec.containers[0].env[0].valueFrom.fileKeyRef.path",
                        "Invalid value: \"../p\": must not contain '..'",
                    ),
                    ("spec.containers[0].env[0].valueFrom.fileKeyRef.volumeName", "Not found: \"v\""),
                ],
            ),
            (
                c(json!({"terminationMessagePolicy": "No", "imagePullPolicy": "No"})),
                &[
                    (
                        "spec.containers[0].terminationMessagePolicy",
                        "Unsupported value: \"No\": supported values: \"File\", \"FallbackToLogsOnError\"",
                    ),
                    (
                        "spec.containers[0].imagePullPolicy",
                        "Unsupported value: \"No\": supported values: \"Always\", \"IfNotPresent\", \"Never\"",
                    ),
                ],
            ),
            (
                c(json!({"restartPolicyRules": [{"action": "Stop"}]})),
                &[
                    (
                        "spec.containers[0].restartPolicy",
                        "Required value: must specify restartPolicy when restart rules are used",
                    ),
                    (
                        "spec.containers[0].restartPolicyRules[0].action",
                        "Unsupported value: \"Stop\": supported values: \"Restart\", \"RestartAllContainers\"",
                    ),
                    ("spec.containers[0].restartPolicyRules[0].exitCodes", "Required value: must be specified"),
                ],
            ),
        ],
    )
    .await;
}

#[tokio::test]
async fn what_containers_ask_for() {
    tells(
        &pod("p"),
        &[
            (
                c(json!({"resources": {"limits": {"hugepages-2Mi": "3Mi", "cpu": "1"}}})),
                &[
                    (
                        "spec.containers[0].resources.limits[hugepages-2Mi]",
                        "Invalid value: \"3Mi\": 3Mi is not positive integer multiple of hugepages-2Mi",
                    ),
                    (
                        "spec.containers[0].resources.requests[hugepages-2Mi]",
                        "Invalid value: \"3Mi\": 3Mi is not positive integer multiple of hugepages-2Mi",
                    ),
                ],
            ),
            (
                c(json!({"resources": {"claims": [{"name": "x"}]}})),
                &[(
                    "spec.containers[0].resources.claims[0]",
                    "Not found: \"x\": must be one of the names in pod.spec.resourceClaims which is empty",
                )],
            ),
            (
                spec(json!({"resources": {"limits": {"example.com/x": "1"}}})),
                &[(
                    "spec.resources.limits[example.com/x]",
                    "Unsupported value: \"example.com/x\": supported values: \"cpu\", \"hugepages-\", \"memory\"",
                )],
            ),
            (
                json!({"spec": {"resources": {"limits": {"cpu": "1"}, "requests": {"cpu": "1"}},
                    "containers": [{"name": "c", "image": "i", "resources": {"limits": {"cpu": "2"}, "requests": {"cpu": "1"}}}]}}),
                &[(
                    "spec.resources.containers[0][cpu].limits",
                    "Invalid value: \"2\": must be less than or equal to pod limits of 1",
                )],
            ),
            (
                json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i",
                    "resizePolicy": [{"resourceName": "disk", "restartPolicy": "RestartContainer"}]}]}}),
                &[
                    (
                        "spec.containers[0].resizePolicy",
                        "Unsupported value: \"disk\": supported values: \"cpu\", \"memory\"",
                    ),
                    (
                        "spec.containers[0].resizePolicy",
                        "Invalid value: \"RestartContainer\": must be 'NotRequired' when pod `restartPolicy` is 'Never'",
                    ),
                ],
            ),
        ],
    )
    .await;
}

#[tokio::test]
async fn what_containers_and_pods_may_do() {
    tells(
        &pod("p"),
        &[
            (
                c(json!({"securityContext": {"procMount": "Unmasked", "seccompProfile": {"type": "RuntimeDefault", "localhostProfile": "x"}, "appArmorProfile": {"type": "Localhost"}}})),
                &[
                    (
                        "spec.containers[0].securityContext.procMount",
                        "Invalid value: \"Unmasked\": `hostUsers` must be false to use `Unmasked`",
                    ),
                    (
                        "spec.containers[0].securityContext.seccompProfile.localhostProfile",
                        "Invalid value: {\"Type\":\"RuntimeDefault\",\"LocalhostProfile\":\"x\"}: can only be set when seccomp \
                         type is Localhost",
                    ),
                    (
                        "spec.containers[0].securityContext.appArmorProfile.localhostProfile",
                        "Required value: must be set when AppArmor type is Localhost",
                    ),
                ],
            ),
            (
                spec(json!({"hostPID": true, "shareProcessNamespace": true, "hostNetwork": true,
                    "securityContext": {"sysctls": [{"name": "net.a", "value": "1"}], "seLinuxChangePolicy": "MountOption"}})),
                &[
                    (
                        "spec.securityContext.shareProcessNamespace",
                        "Invalid value: true: ShareProcessNamespace and HostPID cannot both be enabled",
                    ),
                    (
                        "spec.securityContext.sysctls[0].name",
                        "Invalid value: \"net.a\": may not be specified when 'hostNetwork' is true",
                    ),
                    (
                        "spec.securityContext.seLinuxChangePolicy",
                        "Unsupported value: \"MountOption\": supported values: \"Recursive\"",
                    ),
                ],
            ),
        ],
    )
    .await;
}

#[tokio::test]
async fn init_containers_and_annotations() {
    let init = |fields: Value| {
        spec(json!({"initContainers": [merged(&json!({"name": "i", "image": "i"}), &fields)]}))
    };
    let note = |key: &str, value: &str| json!({"metadata": {"annotations": {key: value}}});
    tells(
        &pod("p"),
        &[
            (init(json!({"name": "c"})), &[("spec.initContainers[0].name", "Duplicate value: \"c\"")]),
            (
                init(json!({"lifecycle": {"preStop": {"sleep": {"seconds": 1}}}})),
                &[(
                    "spec.initContainers[0].lifecycle",
                    "Forbidden: may not be set for init containers without restartPolicy=Always",
                )],
            ),
            (
                init(json!({"resizePolicy": [{"resourceName": "cpu", "restartPolicy": "RestartContainer"}]})),
                &[(
                    "spec.initContainers[0].resizePolicy[0].restartPolicy",
                    "Invalid value: \"RestartContainer\": must not be set to 'RestartContainer' for non-sidecar initContainers",
                )],
            ),
            (
                note("controller.kubernetes.io/pod-deletion-cost", "+1"),
                &[(
                    "metadata.annotations[controller.kubernetes.io/pod-deletion-cost]",
                    "Invalid value: \"+1\": must be a 32bit integer",
                )],
            ),
            (
                note("seccomp.security.alpha.kubernetes.io/pod", "localhost//x/.."),
                &[
                    (
                        "metadata.annotations.seccomp.security.alpha.kubernetes.io/pod",
                        "Invalid value: \"/x/..\": must be a relative path",
                    ),
                    (
                        "metadata.annotations.seccomp.security.alpha.kubernetes.io/pod",
                        "Invalid value: \"/x/..\": must not contain '..'",
                    ),
                ],
            ),
            (
                note("container.apparmor.security.beta.kubernetes.io/x", "unconfined"),
                &[(
                    "metadata.annotations[container.apparmor.security.beta.kubernetes.io/x]",
                    "Invalid value: \"x\": container not found",
                )],
            ),
        ],
    )
    .await;
}

#[tokio::test]
async fn templates_are_told_by_their_own_paths() {
    let api = Api::new().await;
    let path = format!("{}?dryRun=All", api.group("apps/v1", "deployments"));
    let template = |change: Value| merged(&deployment("d"), &json!({"spec": {"template": change}}));
    let answer = api
        .post(&path, template(json!({"metadata": {"labels": {"-": "x"}, "annotations": {"a/b/c": "x"}}})))
        .await
        .fails(422, "Invalid");
    let fields: Vec<&str> = causes(&answer).into_iter().map(|(field, _)| field).collect();
    assert_eq!(fields, ["spec.template.labels", "spec.template.annotations"]);
    // What a pod may not leave out or write with spaces, a template may.
    let loose = json!({"spec": {"hostNetwork": true, "volumes": [{"name": "v", "image": {}}],
        "containers": [{"name": "c", "image": " ", "ports": [{"containerPort": 80}], "resources": {"limits": {"cpu": "1"}}}]}});
    let made = api.post(&path, template(loose)).await.expect(201).body;
    let made = &made["spec"]["template"]["spec"];
    let c = &made["containers"][0];
    assert_eq!(c["ports"], json!([{"containerPort": 80, "protocol": "TCP"}]));
    assert_eq!(c["resources"], json!({"limits": {"cpu": "1"}}));
    assert_eq!((made.get("enableServiceLinks"), &c["imagePullPolicy"]), (None, &json!("IfNotPresent")));
    let answer = api
        .post(&path, template(json!({"spec": {"containers": [{"name": "A_", "image": "i"}]}})))
        .await
        .fails(422, "Invalid");
    let wanted = format!("Invalid value: \"A_\": {LABEL}");
    assert_eq!(causes(&answer), [("spec.template.spec.containers[0].name", wanted.as_str())]);
    let answer =
        api.post(&path, template(json!({"spec": {"overhead": {"bogus": "1"}}}))).await.fails(422, "Invalid");
    const PLACE: &str = "spec.template.spec.overhead.limits[bogus]";
    assert_eq!(
        causes(&answer),
        [
            (PLACE, "Invalid value: \"bogus\": must be a standard resource type or fully qualified"),
            (PLACE, "Invalid value: \"bogus\": must be a standard resource for containers"),
        ]
    );
    api.done().await;
}

#[tokio::test]
async fn a_new_pod_gets_what_its_template_left_open() {
    let api = Api::new().await;
    let spread = json!([{"maxSkew": 1, "topologyKey": "z", "whenUnsatisfiable": "ScheduleAnyway",
        "matchLabelKeys": ["app"], "labelSelector": {"matchLabels": {"a": "b"}}}]);
    let mut given = merged(&pod("p"), &json!({"metadata": {"labels": {"app": "x"}}}));
    given["spec"] = json!({"hostNetwork": true, "serviceAccount": "default", "topologySpreadConstraints": spread,
        "volumes": [{"name": "v"}, {"name": "i", "iscsi": {"targetPortal": "a", "iqn": "iqn.2015-02.example.com:test", "lun": 0}}],
        "containers": [{"name": "c", "image": "i", "ports": [{"containerPort": 80}], "lifecycle": {"stopSignal": "SIGTERM"},
            "env": [{"name": "A", "valueFrom": {"fileKeyRef": {"key": "K", "volumeName": "v", "path": "p"}}}]}]});
    let made = api.post(&api.core("pods"), given).await.expect(201).body;
    let (spec, c) = (&made["spec"], &made["spec"]["containers"][0]);
    assert_eq!(c["ports"], json!([{"containerPort": 80, "hostPort": 80, "protocol": "TCP"}]));
    assert_eq!((c.get("lifecycle"), &c["imagePullPolicy"]), (None, &json!("Always")));
    assert_eq!(c["env"][0]["valueFrom"]["fileKeyRef"]["optional"], false);
    assert_eq!(
        (&spec["serviceAccountName"], &spec["serviceAccount"]),
        (&json!("default"), &json!("default"))
    );
    assert_eq!(
        (&spec["volumes"][0]["emptyDir"], &spec["volumes"][1]["iscsi"]["iscsiInterface"]),
        (&json!({}), &json!("default"))
    );
    assert_eq!(
        spec["topologySpreadConstraints"][0]["labelSelector"]["matchExpressions"],
        json!([{"key": "app", "operator": "In", "values": ["x"]}])
    );
    api.done().await;
}
