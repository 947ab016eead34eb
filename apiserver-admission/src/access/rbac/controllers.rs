//! Roles of the controllers of a kube-controller-manager that runs with an account for each, and of a kube-scheduler.
//!
//! Source: the bootstrap policy of Kubernetes 1.36 (`controller_policy.go`, `policy.go`), for the kinds served here.

use super::{BINDINGS, CLUSTER_BINDINGS, CLUSTER_ROLES, GROUP, ROLES};
use serde_json::{Value, json};

/// Verbs, group (`core` for the first one), resources.
pub(super) type Rule = (&'static str, &'static str, &'static str);

pub(super) const EVENTS: Rule = ("create,update,patch", "core", "events");
pub(super) const EVENTS_OF_GROUP: Rule = ("create,update,patch", "events.k8s.io", "events");

/// Controllers, each with the rules of its role; all of them write events, unless a leading `-` excludes that.
const CONTROLLERS: &[(&str, &[Rule])] = &[
    (
        "attachdetach-controller",
        &[
            ("list,watch", "core", "persistentvolumes,persistentvolumeclaims"),
            ("get,list,watch", "core", "nodes"),
            ("patch,update", "core", "nodes/status"),
            ("list,watch", "core", "pods"),
            ("get,create,delete,list,watch", "storage.k8s.io", "volumeattachments"),
            ("get,list,watch", "storage.k8s.io", "csidrivers,csinodes"),
        ],
    ),
    (
        "-clusterrole-aggregation-controller",
        &[("escalate,get,list,patch,update,watch", "rbac.authorization.k8s.io", "clusterroles")],
    ),
    (
        "cronjob-controller",
        &[
            ("get,list,watch,update", "batch", "cronjobs"),
            ("create,delete,get,list,patch,update,watch", "batch", "jobs"),
            ("update", "batch", "cronjobs/status,cronjobs/finalizers"),
            ("list,delete", "core", "pods"),
        ],
    ),
    (
        "daemon-set-controller",
        &[
            ("get,list,watch", "apps", "daemonsets"),
            ("update", "apps", "daemonsets/status,daemonsets/finalizers"),
            ("list,watch", "core", "nodes"),
            ("create,delete,list,patch,watch", "core", "pods"),
            ("create", "core", "pods/binding"),
            ("create,delete,get,list,patch,update,watch", "apps", "controllerrevisions"),
        ],
    ),
    (
        "deployment-controller",
        &[
            ("get,list,update,watch", "apps", "deployments"),
            ("update", "apps", "deployments/status,deployments/finalizers"),
            ("create,delete,get,list,patch,update,watch", "apps", "replicasets"),
            ("get,list,update,watch", "core", "pods"),
        ],
    ),
    (
        "disruption-controller",
        &[
            ("get,list,watch", "apps", "deployments,replicasets,statefulsets"),
            ("get,list,watch", "core", "replicationcontrollers"),
            ("get,list,watch", "policy", "poddisruptionbudgets"),
            ("get,list,watch", "core", "pods"),
            ("patch,update", "core", "pods/status"),
            ("update", "policy", "poddisruptionbudgets/status"),
            ("get", "*", "*/scale"),
        ],
    ),
    (
        "endpoint-controller",
        &[
            ("get,list,watch", "core", "services,pods"),
            ("create,delete,get,list,update,watch", "core", "endpoints"),
            ("create", "core", "endpoints/restricted"),
        ],
    ),
    (
        "endpointslice-controller",
        &[
            ("get,list,watch", "core", "services,pods,nodes"),
            ("update", "core", "services/finalizers"),
            ("create,delete,get,list,update,watch", "discovery.k8s.io", "endpointslices"),
            ("create", "discovery.k8s.io", "endpointslices/restricted"),
        ],
    ),
    (
        "endpointslicemirroring-controller",
        &[
            ("get,list,watch", "core", "services,endpoints"),
            ("update", "core", "services/finalizers,endpoints/finalizers"),
            ("create,delete,get,list,update,watch", "discovery.k8s.io", "endpointslices"),
            ("create", "discovery.k8s.io", "endpointslices/restricted"),
        ],
    ),
    (
        "ephemeral-volume-controller",
        &[
            ("update", "core", "pods/finalizers"),
            ("get,list,watch", "core", "pods"),
            ("get,list,watch,create", "core", "persistentvolumeclaims"),
        ],
    ),
    (
        "expand-controller",
        &[
            ("get,list,patch,update,watch", "core", "persistentvolumes"),
            ("patch,update", "core", "persistentvolumeclaims/status"),
            ("get,list,watch", "core", "persistentvolumeclaims"),
            ("get,list,watch", "storage.k8s.io", "storageclasses"),
            ("get", "core", "services,endpoints,secrets"),
        ],
    ),
    ("generic-garbage-collector", &[("delete,get,list,patch,update,watch", "*", "*")]),
    (
        "horizontal-pod-autoscaler",
        &[
            ("get,list,watch", "autoscaling", "horizontalpodautoscalers"),
            ("update", "autoscaling", "horizontalpodautoscalers/status"),
            ("get,update", "*", "*/scale"),
            ("list", "core", "pods"),
            ("list", "metrics.k8s.io", "pods"),
            ("list,get", "custom.metrics.k8s.io", "*"),
            ("list,get", "external.metrics.k8s.io", "*"),
        ],
    ),
    (
        "job-controller",
        &[
            ("get,list,patch,update,watch", "batch", "jobs"),
            ("update", "batch", "jobs/status,jobs/finalizers"),
            ("create,delete,list,patch,watch", "core", "pods"),
        ],
    ),
    (
        "-namespace-controller",
        &[
            ("delete,get,list,watch", "core", "namespaces"),
            ("update", "core", "namespaces/finalize,namespaces/status"),
            ("delete,deletecollection,get,list", "*", "*"),
        ],
    ),
    (
        "node-controller",
        &[
            ("delete,get,list,patch,update,watch", "core", "nodes"),
            ("patch,update", "core", "nodes/status"),
            ("patch,update", "core", "pods/status"),
            ("delete,list,get,watch", "core", "pods"),
            ("get,list,watch,update", "coordination.k8s.io", "leases"),
        ],
    ),
    (
        "persistent-volume-binder",
        &[
            ("create,delete,get,list,update,watch", "core", "persistentvolumes"),
            ("update", "core", "persistentvolumes/status"),
            ("get,list,update,watch", "core", "persistentvolumeclaims"),
            ("update", "core", "persistentvolumeclaims/status"),
            ("create,delete,get,list,watch", "core", "pods"),
            ("get,list,watch", "storage.k8s.io", "storageclasses"),
            ("create,delete,get,update", "core", "endpoints,services"),
            ("get,list", "core", "secrets"),
            ("get,list,watch", "core", "nodes"),
        ],
    ),
    (
        "-pod-garbage-collector",
        &[
            ("delete,list,watch", "core", "pods"),
            ("get,list", "core", "nodes"),
            ("patch", "core", "pods/status"),
        ],
    ),
    (
        "replicaset-controller",
        &[
            ("get,list,update,watch", "apps", "replicasets"),
            ("update", "apps", "replicasets/status,replicasets/finalizers"),
            ("create,delete,list,patch,watch", "core", "pods"),
        ],
    ),
    (
        "replication-controller",
        &[
            ("get,list,update,watch", "core", "replicationcontrollers"),
            ("update", "core", "replicationcontrollers/status,replicationcontrollers/finalizers"),
            ("create,delete,list,patch,watch", "core", "pods"),
        ],
    ),
    (
        "resource-claim-controller",
        &[
            ("get,list,watch", "core", "pods"),
            ("update", "core", "pods/finalizers"),
            ("get,list,watch,create,delete", "resource.k8s.io", "resourceclaims"),
            ("update,patch", "resource.k8s.io", "resourceclaims,resourceclaims/status"),
            ("update,patch", "resource.k8s.io", "resourceclaims/binding"),
            ("get,list,watch", "resource.k8s.io", "resourceclaimtemplates"),
            ("update,patch", "core", "pods/status"),
        ],
    ),
    ("resourcequota-controller", &[("list,watch", "*", "*"), ("update", "core", "resourcequotas/status")]),
    ("route-controller", &[("list,watch", "core", "nodes"), ("patch", "core", "nodes/status")]),
    ("service-account-controller", &[("create", "core", "serviceaccounts")]),
    (
        "service-controller",
        &[
            ("get,list,watch", "core", "services"),
            ("patch,update", "core", "services/status"),
            ("list,watch", "core", "nodes"),
        ],
    ),
    (
        "service-cidrs-controller",
        &[
            ("get,list,watch,patch,update", "networking.k8s.io", "servicecidrs"),
            ("patch,update", "networking.k8s.io", "servicecidrs/finalizers,servicecidrs/status"),
            ("get,list,watch", "networking.k8s.io", "ipaddresses"),
        ],
    ),
    (
        "statefulset-controller",
        &[
            ("list,watch", "core", "pods"),
            ("get,list,watch", "apps", "statefulsets"),
            ("update", "apps", "statefulsets/status,statefulsets/finalizers"),
            ("create,delete,get,patch,update", "core", "pods"),
            ("create,delete,get,list,patch,update,watch", "apps", "controllerrevisions"),
            ("create,get,list,watch,update,delete", "core", "persistentvolumeclaims"),
        ],
    ),
    ("ttl-controller", &[("update,patch,list,watch", "core", "nodes")]),
    ("ttl-after-finished-controller", &[("get,list,watch,delete", "batch", "jobs")]),
    (
        "certificate-controller",
        &[
            ("delete,get,list,watch", "certificates.k8s.io", "certificatesigningrequests"),
            (
                "update",
                "certificates.k8s.io",
                "certificatesigningrequests/status,certificatesigningrequests/approval",
            ),
            ("approve,sign", "certificates.k8s.io", "signers"),
            ("create", "authorization.k8s.io", "subjectaccessreviews"),
        ],
    ),
    (
        "pvc-protection-controller",
        &[("get,list,update,watch", "core", "persistentvolumeclaims"), ("list,get,watch", "core", "pods")],
    ),
    ("pv-protection-controller", &[("get,list,update,watch", "core", "persistentvolumes")]),
    (
        "volumeattributesclass-protection-controller",
        &[
            ("list,watch,get", "core", "persistentvolumeclaims,persistentvolumes"),
            ("get,list,update,watch", "storage.k8s.io", "volumeattributesclasses"),
        ],
    ),
    ("root-ca-cert-publisher", &[("create,update", "core", "configmaps")]),
    (
        "validatingadmissionpolicy-status-controller",
        &[
            ("get,list,watch", "admissionregistration.k8s.io", "validatingadmissionpolicies"),
            ("get,patch,update", "admissionregistration.k8s.io", "validatingadmissionpolicies/status"),
        ],
    ),
    (
        "legacy-service-account-token-cleaner",
        &[("get", "core", "configmaps"), ("patch,delete", "core", "secrets")],
    ),
    (
        "device-taint-eviction-controller",
        &[
            ("get,list,watch,delete", "core", "pods"),
            ("update,patch", "core", "pods/status"),
            ("get,list,watch", "resource.k8s.io", "resourceclaims,resourceslices,deviceclasses"),
        ],
    ),
];

/// Of the controller manager as a whole.
const MANAGER: &[Rule] = &[
    EVENTS,
    EVENTS_OF_GROUP,
    ("create", "coordination.k8s.io", "leases"),
    ("get,update,list,watch", "coordination.k8s.io", "leases"),
    ("create", "core", "secrets,serviceaccounts"),
    ("delete", "core", "secrets"),
    ("get", "core", "configmaps,namespaces,secrets,serviceaccounts"),
    ("update", "core", "secrets,serviceaccounts"),
    ("create", "authentication.k8s.io", "tokenreviews"),
    ("create", "authorization.k8s.io", "subjectaccessreviews"),
    ("list,watch", "*", "*"),
    ("create", "core", "serviceaccounts/token"),
];

const SCHEDULER: &[Rule] = &[
    EVENTS,
    EVENTS_OF_GROUP,
    ("create", "coordination.k8s.io", "leases"),
    ("get,update,list,watch", "coordination.k8s.io", "leases"),
    ("get,list,watch", "core", "nodes"),
    ("delete,get,list,watch", "core", "pods"),
    ("create", "core", "bindings,pods/binding"),
    ("patch,update", "core", "pods/status"),
    ("get,list,watch", "core", "replicationcontrollers,services"),
    ("get,list,watch", "apps", "replicasets,statefulsets"),
    ("get,list,watch", "policy", "poddisruptionbudgets"),
    ("get,list,watch,update,patch", "core", "persistentvolumeclaims"),
    ("get,list,watch,update,patch", "core", "persistentvolumes"),
    ("create", "authentication.k8s.io", "tokenreviews"),
    ("create", "authorization.k8s.io", "subjectaccessreviews"),
    ("get,list,watch", "storage.k8s.io", "csinodes,csidrivers,csistoragecapacities,volumeattachments"),
    ("get,list,watch", "storage.k8s.io", "storageclasses"),
    ("get,list,watch", "core", "namespaces"),
    ("get,list,watch,patch,update", "resource.k8s.io", "resourceclaims"),
    ("update,patch", "resource.k8s.io", "resourceclaims/status,resourceclaims/binding"),
    ("get,list,watch", "resource.k8s.io", "deviceclasses,resourceslices"),
];

pub(super) fn rule((verbs, group, resources): Rule) -> Value {
    let list = |text: &str| text.split(',').map(Value::from).collect::<Vec<_>>();
    let group = if group == "core" { "" } else { group };
    json!({"apiGroups": [group], "resources": list(resources), "verbs": list(verbs)})
}

pub(super) fn role(name: &str, mut rules: Vec<Value>) -> (&'static str, Value) {
    if matches!(
        name,
        "system:controller:namespace-controller" | "system:controller:generic-garbage-collector"
    ) {
        rules.push(json!({"nonResourceURLs": ["*"], "verbs": ["get"]}));
    }
    let object = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": name, "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"},
            "annotations": {"rbac.authorization.kubernetes.io/autoupdate": "true"}}, "rules": rules});
    (CLUSTER_ROLES, object)
}

pub(super) fn bind(name: &str, subjects: &[Value]) -> (&'static str, Value) {
    let object = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": name, "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"},
            "annotations": {"rbac.authorization.kubernetes.io/autoupdate": "true"}},
        "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": name}, "subjects": subjects});
    (CLUSTER_BINDINGS, object)
}

pub(super) fn person(kind: &str, name: &str) -> Value {
    json!({"apiGroup": GROUP, "kind": kind, "name": name})
}

/// A role in a namespace of the system.
pub(super) fn role_in(namespace: &str, name: &str, rules: Value) -> (&'static str, Value) {
    let meta = meta(name, namespace);
    (
        ROLES,
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": meta, "rules": rules}),
    )
}

/// Whom a role in a namespace of the system is given.
pub(super) fn bind_in(namespace: &str, name: &str, role: &str, subjects: &[Value]) -> (&'static str, Value) {
    let object = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": meta(name, namespace), "subjects": subjects,
        "roleRef": {"apiGroup": GROUP, "kind": "Role", "name": role}});
    (BINDINGS, object)
}

fn meta(name: &str, namespace: &str) -> Value {
    json!({"name": name, "namespace": namespace, "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"},
        "annotations": {"rbac.authorization.kubernetes.io/autoupdate": "true"}})
}

/// A role in kube-system and whom it is given.
fn in_kube_system(name: &str, rules: Value, subjects: &[Value]) -> [(&'static str, Value); 2] {
    [role_in("kube-system", name, rules), bind_in("kube-system", name, name, subjects)]
}

/// The roles and bindings of the controllers and the scheduler, as (table, object).
pub fn controllers() -> Vec<(&'static str, Value)> {
    let mut out = Vec::new();
    for (name, rules) in CONTROLLERS {
        let (account, silent) = match name.strip_prefix('-') {
            Some(account) => (account, true),
            None => (*name, false),
        };
        let events = if silent { &[][..] } else { &[EVENTS, EVENTS_OF_GROUP][..] };
        let full = format!("system:controller:{account}");
        out.push(role(&full, rules.iter().chain(events).copied().map(rule).collect()));
        let subject = json!({"kind": "ServiceAccount", "namespace": "kube-system", "name": account});
        out.push(bind(&full, &[subject]));
    }
    for (name, rules) in [("system:kube-controller-manager", MANAGER), ("system:kube-scheduler", SCHEDULER)] {
        out.push(role(name, rules.iter().copied().map(rule).collect()));
        out.push(bind(name, &[person("User", name)]));
    }
    let metrics =
        ["/healthz", "/healthz/*", "/livez", "/livez/*", "/metrics", "/metrics/slis", "/readyz", "/readyz/*"];
    out.push(role("system:monitoring", vec![json!({"nonResourceURLs": metrics, "verbs": ["get"]})]));
    out.push(bind("system:monitoring", &[person("Group", "system:monitoring")]));
    let leader = |name: &str, of: &str| {
        let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["watch"]},
            {"apiGroups": [""], "resources": ["configmaps"], "resourceNames": [of], "verbs": ["get", "update"]}]);
        let account = json!({"kind": "ServiceAccount", "namespace": "kube-system", "name": of});
        let user = person("User", &format!("system:{of}"));
        in_kube_system(name, rules, &[user, account])
    };
    out.extend(leader("system::leader-locking-kube-controller-manager", "kube-controller-manager"));
    out.extend(leader("system::leader-locking-kube-scheduler", "kube-scheduler"));
    let reader = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "watch"],
        "resourceNames": ["extension-apiserver-authentication"]}]);
    let subjects =
        ["system:kube-controller-manager", "system:kube-scheduler"].map(|user| person("User", user));
    let name = "extension-apiserver-authentication-reader";
    out.push(role_in("kube-system", name, reader));
    out.push(bind_in("kube-system", &format!("system::{name}"), name, &subjects));
    out.extend(super::system::roles());
    out
}
