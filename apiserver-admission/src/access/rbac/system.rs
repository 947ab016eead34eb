//! Roles of nodes, of their proxies, and of parts of a cluster that run beside the controllers.
//!
//! Source: the bootstrap policy of Kubernetes 1.36 (`policy.go`, `namespace_policy.go`), for the kinds served here.

use super::controllers::{EVENTS, EVENTS_OF_GROUP, Rule, bind, bind_in, person, role, role_in, rule};
use crate::access::node;
use serde_json::{Value, json};

/// Cluster roles that are given to nobody, or to those named in [`roles`].
const ROLES: &[(&str, &[Rule])] = &[
    ("system:node", node::RULES),
    (
        "system:node-problem-detector",
        &[("get", "core", "nodes"), ("patch", "core", "nodes/status"), EVENTS, EVENTS_OF_GROUP],
    ),
    (
        "system:node-proxier",
        &[
            ("list,watch", "core", "services,endpoints"),
            ("get,list,watch", "core", "nodes"),
            EVENTS,
            EVENTS_OF_GROUP,
            ("list,watch", "discovery.k8s.io", "endpointslices"),
            ("list,watch", "networking.k8s.io", "servicecidrs"),
        ],
    ),
    (
        "system:kubelet-api-admin",
        &[
            ("get,list,watch", "core", "nodes"),
            ("proxy", "core", "nodes"),
            (
                "*",
                "core",
                "nodes/proxy,nodes/metrics,nodes/stats,nodes/log,nodes/spec,nodes/checkpoint,nodes/configz,nodes/healthz,nodes/pods",
            ),
        ],
    ),
    (
        "system:node-bootstrapper",
        &[("create,get,list,watch", "certificates.k8s.io", "certificatesigningrequests")],
    ),
    ("system:kube-aggregator", &[("get,list,watch", "core", "services,endpoints")]),
    ("system:kube-dns", &[("list,watch", "core", "endpoints,services")]),
    (
        "system:heapster",
        &[
            ("get,list,watch", "core", "events,pods,nodes,namespaces"),
            ("get,list,watch", "apps", "deployments"),
        ],
    ),
    (
        "system:persistent-volume-provisioner",
        &[
            ("get,list,watch,create,delete", "core", "persistentvolumes"),
            ("get,list,watch,update", "core", "persistentvolumeclaims"),
            ("get,list,watch", "storage.k8s.io", "storageclasses"),
            ("watch", "core", "events"),
            EVENTS,
            EVENTS_OF_GROUP,
        ],
    ),
    (
        "system:volume-scheduler",
        &[
            ("get,list,watch,patch,update", "core", "persistentvolumes"),
            ("get,list,watch", "storage.k8s.io", "storageclasses"),
            ("get,list,watch,patch,update", "core", "persistentvolumeclaims"),
        ],
    ),
    (
        "system:certificates.k8s.io:certificatesigningrequests:nodeclient",
        &[("create", "certificates.k8s.io", "certificatesigningrequests/nodeclient")],
    ),
    (
        "system:certificates.k8s.io:certificatesigningrequests:selfnodeclient",
        &[("create", "certificates.k8s.io", "certificatesigningrequests/selfnodeclient")],
    ),
];

/// Signers, each with the name of the role that may approve for it.
const APPROVERS: [(&str, &str); 4] = [
    ("kube-apiserver-client", "kube-apiserver-client-approver"),
    ("kube-apiserver-client-kubelet", "kube-apiserver-client-kubelet-approver"),
    ("kubelet-serving", "kubelet-serving-approver"),
    ("legacy-unknown", "legacy-unknown-approver"),
];

/// The roles and bindings, as (table, object).
pub fn roles() -> Vec<(&'static str, Value)> {
    let mut out: Vec<(&'static str, Value)> =
        ROLES.iter().map(|(name, rules)| role(name, rules.iter().copied().map(rule).collect())).collect();
    for (signer, name) in APPROVERS {
        let rule = json!({"apiGroups": ["certificates.k8s.io"], "resources": ["signers"], "verbs": ["approve"],
            "resourceNames": [format!("kubernetes.io/{signer}")]});
        out.push(role(&format!("system:certificates.k8s.io:{name}"), vec![rule]));
    }
    let keys = [
        "/.well-known/openid-configuration",
        "/.well-known/openid-configuration/",
        "/openid/v1/jwks",
        "/openid/v1/jwks/",
    ];
    let discovery = "system:service-account-issuer-discovery";
    out.push(role(discovery, vec![json!({"nonResourceURLs": keys, "verbs": ["get"]})]));
    out.push(bind(discovery, &[person("Group", "system:serviceaccounts")]));
    // Nodes have their rights from the node authorizer.
    out.push(bind("system:node", &[]));
    out.push(bind("system:node-proxier", &[person("User", "system:kube-proxy")]));
    out.push(bind("system:volume-scheduler", &[person("User", "system:kube-scheduler")]));
    out.push(bind("system:kube-dns", &[account("kube-dns")]));
    out.extend(in_namespaces());
    out
}

fn account(name: &str) -> Value {
    json!({"kind": "ServiceAccount", "namespace": "kube-system", "name": name})
}

/// The controllers that read and write single objects of kube-system and kube-public.
fn in_namespaces() -> Vec<(&'static str, Value)> {
    let core = |verbs: &[&str], kind: &str| json!({"apiGroups": [""], "resources": [kind], "verbs": verbs});
    let signer = "system:controller:bootstrap-signer";
    let cleaner = "system:controller:token-cleaner";
    let cloud = "system:controller:cloud-provider";
    let read = ["get", "list", "watch"];
    let events = json!({"apiGroups": ["", "events.k8s.io"], "resources": ["events"], "verbs": ["create", "patch", "update"]});
    let mut one = core(&["get", "update"], "configmaps");
    one["resourceNames"] = json!(["cluster-info"]);
    let system = "kube-system";
    vec![
        role_in(system, signer, json!([core(&read, "secrets")])),
        bind_in(system, signer, signer, &[account("bootstrap-signer")]),
        role_in(
            system,
            cloud,
            json!([
                core(&["create", "get", "list", "watch"], "configmaps"),
                core(&["patch", "update"], "configmaps")
            ]),
        ),
        bind_in(system, cloud, cloud, &[account("cloud-provider")]),
        role_in(system, cleaner, json!([core(&["get", "list", "watch", "delete"], "secrets"), events])),
        bind_in(system, cleaner, cleaner, &[account("token-cleaner")]),
        role_in("kube-public", signer, json!([core(&read, "configmaps"), one, events])),
        bind_in("kube-public", signer, signer, &[account("bootstrap-signer")]),
    ]
}
