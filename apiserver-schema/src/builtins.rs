//! The built-in kinds: names, scope, short names, categories and subresources.
//!
//! Inputs: none; one static list shared by all servers of a process.
//! Absent on purpose: schemas (in the artefact), defaults and columns (see `defaults`, `printers`).

use crate::resource::{Resource, ScalePaths};
use crate::schema::Schema;
use std::sync::{Arc, OnceLock};

struct Kind {
    group: &'static str,
    version: &'static str,
    kind: &'static str,
    plural: &'static str,
    short: &'static str,
    flags: &'static str,
}

const fn k(
    group: &'static str,
    version: &'static str,
    kind: &'static str,
    plural: &'static str,
    short: &'static str,
    flags: &'static str,
) -> Kind {
    Kind { group, version, kind, plural, short, flags }
}

const RBAC: &str = "rbac.authorization.k8s.io";
const FLOW: &str = "flowcontrol.apiserver.k8s.io";
const RESOURCE: &str = "resource.k8s.io";

// Flags: n namespaced, s status, c scale, a category all, x category api-extensions, g generation, p POST only,
// r read only.
static KINDS: &[Kind] = &[
    k("", "v1", "Binding", "bindings", "", "np"),
    k("", "v1", "ComponentStatus", "componentstatuses", "cs", "r"),
    k("", "v1", "ConfigMap", "configmaps", "cm", "n"),
    k("", "v1", "Endpoints", "endpoints", "ep", "n"),
    k("", "v1", "Event", "events", "ev", "n"),
    k("", "v1", "LimitRange", "limitranges", "limits", "n"),
    k("", "v1", "Namespace", "namespaces", "ns", "s"),
    k("", "v1", "Node", "nodes", "no", "s"),
    k("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims", "pvc", "ns"),
    k("", "v1", "PersistentVolume", "persistentvolumes", "pv", "s"),
    k("", "v1", "Pod", "pods", "po", "nsag"),
    k("", "v1", "PodTemplate", "podtemplates", "", "ng"),
    k("", "v1", "ReplicationController", "replicationcontrollers", "rc", "nscag"),
    k("", "v1", "ResourceQuota", "resourcequotas", "quota", "ns"),
    k("", "v1", "Secret", "secrets", "", "n"),
    k("", "v1", "ServiceAccount", "serviceaccounts", "sa", "n"),
    k("", "v1", "Service", "services", "svc", "nsa"),
    k("apiregistration.k8s.io", "v1", "APIService", "apiservices", "", "xs"),
    k("apps", "v1", "ControllerRevision", "controllerrevisions", "", "n"),
    k("apps", "v1", "DaemonSet", "daemonsets", "ds", "nsag"),
    k("apps", "v1", "Deployment", "deployments", "deploy", "nscag"),
    k("apps", "v1", "ReplicaSet", "replicasets", "rs", "nscag"),
    k("apps", "v1", "StatefulSet", "statefulsets", "sts", "nscag"),
    k("events.k8s.io", "v1", "Event", "events", "ev", "n"),
    k("authentication.k8s.io", "v1", "SelfSubjectReview", "selfsubjectreviews", "", "p"),
    k("authentication.k8s.io", "v1", "TokenReview", "tokenreviews", "", "p"),
    k("authorization.k8s.io", "v1", "LocalSubjectAccessReview", "localsubjectaccessreviews", "", "np"),
    k("authorization.k8s.io", "v1", "SelfSubjectAccessReview", "selfsubjectaccessreviews", "", "p"),
    k("authorization.k8s.io", "v1", "SelfSubjectRulesReview", "selfsubjectrulesreviews", "", "p"),
    k("authorization.k8s.io", "v1", "SubjectAccessReview", "subjectaccessreviews", "", "p"),
    k("autoscaling", "v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers", "hpa", "nsa"),
    k("autoscaling", "v1", "HorizontalPodAutoscaler", "horizontalpodautoscalers", "hpa", "nsa"),
    k("batch", "v1", "CronJob", "cronjobs", "cj", "nsag"),
    k("batch", "v1", "Job", "jobs", "", "nsag"),
    k("certificates.k8s.io", "v1", "CertificateSigningRequest", "certificatesigningrequests", "csr", "s"),
    k("networking.k8s.io", "v1", "IngressClass", "ingressclasses", "", "g"),
    k("networking.k8s.io", "v1", "Ingress", "ingresses", "ing", "nsg"),
    k("networking.k8s.io", "v1", "IPAddress", "ipaddresses", "ip", ""),
    k("networking.k8s.io", "v1", "NetworkPolicy", "networkpolicies", "netpol", "ng"),
    k("networking.k8s.io", "v1", "ServiceCIDR", "servicecidrs", "", "s"),
    k("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets", "pdb", "nsg"),
    k(RBAC, "v1", "ClusterRoleBinding", "clusterrolebindings", "", ""),
    k(RBAC, "v1", "ClusterRole", "clusterroles", "", ""),
    k(RBAC, "v1", "RoleBinding", "rolebindings", "", "n"),
    k(RBAC, "v1", "Role", "roles", "", "n"),
    k("storage.k8s.io", "v1", "CSIDriver", "csidrivers", "", ""),
    k("storage.k8s.io", "v1", "CSINode", "csinodes", "", ""),
    k("storage.k8s.io", "v1", "CSIStorageCapacity", "csistoragecapacities", "", "n"),
    k("storage.k8s.io", "v1", "StorageClass", "storageclasses", "sc", ""),
    k("storage.k8s.io", "v1", "VolumeAttachment", "volumeattachments", "", "s"),
    k("storage.k8s.io", "v1", "VolumeAttributesClass", "volumeattributesclasses", "vac", ""),
    k("admissionregistration.k8s.io", "v1", "MutatingAdmissionPolicy", "mutatingadmissionpolicies", "", "xg"),
    k(
        "admissionregistration.k8s.io",
        "v1",
        "MutatingAdmissionPolicyBinding",
        "mutatingadmissionpolicybindings",
        "",
        "xg",
    ),
    k(
        "admissionregistration.k8s.io",
        "v1",
        "MutatingWebhookConfiguration",
        "mutatingwebhookconfigurations",
        "",
        "xg",
    ),
    k(
        "admissionregistration.k8s.io",
        "v1",
        "ValidatingAdmissionPolicy",
        "validatingadmissionpolicies",
        "",
        "xgs",
    ),
    k(
        "admissionregistration.k8s.io",
        "v1",
        "ValidatingAdmissionPolicyBinding",
        "validatingadmissionpolicybindings",
        "",
        "xg",
    ),
    k(
        "admissionregistration.k8s.io",
        "v1",
        "ValidatingWebhookConfiguration",
        "validatingwebhookconfigurations",
        "",
        "xg",
    ),
    k(
        "apiextensions.k8s.io",
        "v1",
        "CustomResourceDefinition",
        "customresourcedefinitions",
        "crd,crds",
        "xsg",
    ),
    k("scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses", "pc", "g"),
    k("coordination.k8s.io", "v1", "Lease", "leases", "", "n"),
    k(FLOW, "v1", "FlowSchema", "flowschemas", "", "sg"),
    k(FLOW, "v1", "PriorityLevelConfiguration", "prioritylevelconfigurations", "", "sg"),
    k("node.k8s.io", "v1", "RuntimeClass", "runtimeclasses", "", ""),
    k("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices", "", "ng"),
    k(RESOURCE, "v1", "DeviceClass", "deviceclasses", "", "g"),
    k(RESOURCE, "v1", "ResourceClaim", "resourceclaims", "", "ns"),
    k(RESOURCE, "v1", "ResourceClaimTemplate", "resourceclaimtemplates", "", "n"),
    k(RESOURCE, "v1", "ResourceSlice", "resourceslices", "", "g"),
];

/// Short name of the schema definition of a built-in kind.
pub fn definition(group: &str, version: &str, kind: &str) -> String {
    match group {
        "" => format!("api.core.{version}.{kind}"),
        "apiregistration.k8s.io" => format!("kube-aggregator.pkg.apis.apiregistration.{version}.{kind}"),
        "apiextensions.k8s.io" => format!("apiextensions-apiserver.pkg.apis.apiextensions.{version}.{kind}"),
        RBAC => format!("api.rbac.{version}.{kind}"),
        _ => format!("api.{}.{version}.{kind}", group.split('.').next().unwrap_or_default()),
    }
}

/// Where pods are in the list.
const PODS: usize = 10;

/// All built-in resources in order of discovery.
pub fn all() -> &'static [Arc<Resource>] {
    static LIST: OnceLock<Vec<Arc<Resource>>> = OnceLock::new();
    LIST.get_or_init(|| KINDS.iter().map(|k| Arc::new(build(k))).collect())
}

/// One built-in resource.
pub fn find(group: &str, plural: &str) -> &'static Arc<Resource> {
    let hit = all().iter().find(|r| r.group == group && r.plural == plural);
    // Callers name kinds of the list above; pods stand in for a misspelt name rather than a panic.
    hit.unwrap_or_else(|| &all()[PODS])
}

fn build(k: &Kind) -> Resource {
    let has = |c: char| k.flags.contains(c);
    let mut categories = Vec::new();
    if has('a') {
        categories.push("all".to_string());
    }
    if has('x') {
        categories.push("api-extensions".to_string());
    }
    let path = |p: &[&str]| p.iter().map(|s| s.to_string()).collect::<Vec<_>>();
    let events = k.plural == "events";
    let api_version =
        if k.group.is_empty() { k.version.to_string() } else { format!("{}/{}", k.group, k.version) };
    Resource {
        deprecation: match (k.group, k.plural) {
            ("", "endpoints") => {
                Some("v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice".into())
            }
            ("", "componentstatuses") => Some("v1 ComponentStatus is deprecated in v1.19+".into()),
            _ => None,
        },
        group: k.group.into(),
        version: k.version.into(),
        kind: k.kind.into(),
        list_kind: format!("{}List", k.kind),
        plural: k.plural.into(),
        singular: k.kind.to_lowercase(),
        short_names: k.short.split(',').filter(|s| !s.is_empty()).map(str::to_string).collect(),
        categories,
        namespaced: has('n'),
        status: has('s'),
        scale: has('c').then(|| ScalePaths {
            spec: path(&["spec", "replicas"]),
            status: path(&["status", "replicas"]),
            selector: Vec::new(),
        }),
        actions: match k.plural {
            "pods" => &[
                ("binding", "Binding"),
                ("eviction", "Eviction"),
                ("log", "Pod"),
                ("attach", "PodAttachOptions"),
                ("exec", "PodExecOptions"),
                ("portforward", "PodPortForwardOptions"),
                ("proxy", "PodProxyOptions"),
                ("ephemeralcontainers", "Pod"),
                ("resize", "Pod"),
            ],
            "serviceaccounts" => &[("token", "TokenRequest")],
            "services" => &[("proxy", "ServiceProxyOptions")],
            "nodes" => &[("proxy", "NodeProxyOptions")],
            "namespaces" => &[("finalize", "Namespace")],
            "certificatesigningrequests" => &[("approval", "CertificateSigningRequest")],
            _ => &[],
        },
        create_only: has('p'),
        read_only: has('r'),
        schema: Arc::new(Schema::builtin(&definition(k.group, k.version, k.kind))),
        table: if events { "/events".into() } else { format!("{}/{}", k.group, k.plural) },
        // Events are stored once, in the core form, and served by both groups; autoscalers in their newer version.
        stored_as: match k.group {
            _ if events => "v1".into(),
            "autoscaling" => "autoscaling/v2".into(),
            _ => api_version,
        },
        generation: has('g'),
        ..Resource::default()
    }
}

#[cfg(test)]
mod tests;
