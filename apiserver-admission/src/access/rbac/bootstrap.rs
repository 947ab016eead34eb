//! The roles and bindings every cluster starts with.
//!
//! Source: the bootstrap policy of Kubernetes 1.36, for the kinds served here. `admin`, `edit` and `view` are
//! aggregated, so that a role with their label extends them.

use super::{CLUSTER_BINDINGS, CLUSTER_ROLES, GROUP};
use serde_json::{Value, json};

const READ: [&str; 3] = ["get", "list", "watch"];
const WRITE: [&str; 5] = ["create", "delete", "deletecollection", "patch", "update"];

fn role(name: &str, rules: Value) -> (&'static str, Value) {
    let object = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": name, "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"},
            "annotations": {"rbac.authorization.kubernetes.io/autoupdate": "true"}}, "rules": rules});
    (CLUSTER_ROLES, object)
}

fn bind(name: &str, groups: &[&str]) -> (&'static str, Value) {
    let subjects: Vec<Value> =
        groups.iter().map(|g| json!({"apiGroup": GROUP, "kind": "Group", "name": g})).collect();
    let object = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": name, "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"},
            "annotations": {"rbac.authorization.kubernetes.io/autoupdate": "true"}},
        "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": name}, "subjects": subjects});
    (CLUSTER_BINDINGS, object)
}

/// A role that is the sum of those with the label, and whose own rules extend `extends`.
fn aggregated(name: &str, extends: &str) -> (&'static str, Value) {
    let label = format!("rbac.authorization.k8s.io/aggregate-to-{name}");
    let (table, mut object) = role(name, json!([]));
    object["aggregationRule"] = json!({"clusterRoleSelectors": [{"matchLabels": {label: "true"}}]});
    if !extends.is_empty() {
        object["metadata"]["labels"][format!("rbac.authorization.k8s.io/aggregate-to-{extends}")] =
            json!("true");
    }
    (table, object)
}

fn part(of: &str, rules: Value) -> (&'static str, Value) {
    let (table, mut object) = role(&format!("system:aggregate-to-{of}"), rules);
    object["metadata"]["labels"][format!("rbac.authorization.k8s.io/aggregate-to-{of}")] = json!("true");
    (table, object)
}

fn rule(group: &str, resources: &[&str], verbs: &[&str]) -> Value {
    json!({"apiGroups": [group], "resources": resources, "verbs": verbs})
}

/// Workloads and their subresources, by group.
const APPS: [&str; 9] = [
    "daemonsets",
    "deployments",
    "deployments/rollback",
    "deployments/scale",
    "replicasets",
    "replicasets/scale",
    "statefulsets",
    "statefulsets/scale",
    "controllerrevisions",
];

fn view() -> Value {
    let status = |kinds: &[&str]| -> Vec<String> {
        kinds.iter().flat_map(|k| [k.to_string(), format!("{k}/status")]).collect()
    };
    let core = [
        "bindings",
        "configmaps",
        "endpoints",
        "events",
        "limitranges",
        "namespaces",
        "namespaces/status",
        "persistentvolumeclaims",
        "persistentvolumeclaims/status",
        "pods",
        "pods/log",
        "pods/status",
        "replicationcontrollers",
        "replicationcontrollers/scale",
        "replicationcontrollers/status",
        "resourcequotas",
        "resourcequotas/status",
        "serviceaccounts",
        "services",
        "services/status",
    ];
    let apps: Vec<String> = APPS
        .iter()
        .map(|k| k.to_string())
        .chain(["daemonsets", "deployments", "replicasets", "statefulsets"].map(|k| format!("{k}/status")))
        .collect();
    json!([
        {"apiGroups": [""], "resources": core, "verbs": READ},
        {"apiGroups": ["apps"], "resources": apps, "verbs": READ},
        {"apiGroups": ["batch"], "resources": status(&["cronjobs", "jobs"]), "verbs": READ},
        {"apiGroups": ["autoscaling"], "resources": status(&["horizontalpodautoscalers"]), "verbs": READ},
        {"apiGroups": ["policy"], "resources": status(&["poddisruptionbudgets"]), "verbs": READ},
        {"apiGroups": ["networking.k8s.io"], "resources": ["ingresses", "ingresses/status", "networkpolicies"], "verbs": READ},
        rule("discovery.k8s.io", &["endpointslices"], &READ),
        rule("events.k8s.io", &["events"], &READ),
        rule("resource.k8s.io", &["resourceclaims", "resourceclaims/status", "resourceclaimtemplates"], &READ),
    ])
}

fn edit() -> Value {
    let core = [
        "configmaps",
        "endpoints",
        "events",
        "persistentvolumeclaims",
        "pods",
        "pods/attach",
        "pods/exec",
        "pods/portforward",
        "pods/proxy",
        "pods/eviction",
        "replicationcontrollers",
        "replicationcontrollers/scale",
        "secrets",
        "serviceaccounts",
        "services",
        "services/proxy",
    ];
    json!([
        rule(
            "",
            &["pods/attach", "pods/exec", "pods/portforward", "pods/proxy", "secrets", "services/proxy"],
            &READ
        ),
        rule("", &core, &WRITE),
        rule("", &["serviceaccounts"], &["impersonate"]),
        rule("", &["serviceaccounts/token", "pods/eviction"], &["create"]),
        rule("apps", &APPS, &WRITE),
        rule("batch", &["cronjobs", "jobs"], &WRITE),
        rule("autoscaling", &["horizontalpodautoscalers"], &WRITE),
        rule("policy", &["poddisruptionbudgets"], &WRITE),
        rule("networking.k8s.io", &["ingresses", "networkpolicies"], &WRITE),
        rule("events.k8s.io", &["events"], &WRITE),
        rule("coordination.k8s.io", &["leases"], &[&READ[..], &WRITE[..]].concat()),
        rule("resource.k8s.io", &["resourceclaims", "resourceclaimtemplates"], &WRITE),
    ])
}

fn admin() -> Value {
    json!([
        rule("authorization.k8s.io", &["localsubjectaccessreviews"], &["create"]),
        rule(GROUP, &["roles", "rolebindings"], &[&READ[..], &WRITE[..]].concat()),
    ])
}

/// The bootstrap roles and bindings, as (table, object).
pub fn bootstrap() -> Vec<(&'static str, Value)> {
    let open = ["/healthz", "/livez", "/readyz", "/version", "/version/"];
    let discovery = [
        "/api",
        "/api/*",
        "/apis",
        "/apis/*",
        "/healthz",
        "/livez",
        "/openapi",
        "/openapi/*",
        "/readyz",
        "/version",
        "/version/",
    ];
    let everything = json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]},
        {"nonResourceURLs": ["*"], "verbs": ["*"]}]);
    let both = ["system:authenticated", "system:unauthenticated"];
    vec![
        role("cluster-admin", everything),
        bind("cluster-admin", &["system:masters"]),
        aggregated("admin", ""),
        aggregated("edit", "admin"),
        aggregated("view", "edit"),
        part("admin", admin()),
        part("edit", edit()),
        part("view", view()),
        role("system:discovery", json!([{"nonResourceURLs": discovery, "verbs": ["get"]}])),
        bind("system:discovery", &both[..1]),
        role(
            "system:basic-user",
            json!([
                rule(
                    "authorization.k8s.io",
                    &["selfsubjectaccessreviews", "selfsubjectrulesreviews"],
                    &["create"]
                ),
                rule("authentication.k8s.io", &["selfsubjectreviews"], &["create"]),
            ]),
        ),
        bind("system:basic-user", &both[..1]),
        role("system:public-info-viewer", json!([{"nonResourceURLs": open, "verbs": ["get"]}])),
        bind("system:public-info-viewer", &both),
        role(
            "system:auth-delegator",
            json!([
                rule("authentication.k8s.io", &["tokenreviews"], &["create"]),
                rule("authorization.k8s.io", &["subjectaccessreviews"], &["create"]),
            ]),
        ),
    ]
}
