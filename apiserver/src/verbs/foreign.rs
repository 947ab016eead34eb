//! Bodies of another kind or version than the endpoint's: how a real server refuses them.
//!
//! Inputs: the resource of the endpoint, and what a body says it is. Absent on purpose: custom resources, which are told apart
//! by their definitions (see `body`).

use fleet_apiserver_schema::builtins;
use fleet_apiserver_schema::error::ApiError;
use fleet_apiserver_schema::resource::Resource;

/// Versions that can still be read though nobody serves them: kinds in lists, by group and version.
static RETIRED: &[(&str, &[&str])] = &[
    ("apps/v1beta1", &["ControllerRevision", "Deployment", "StatefulSet"]),
    ("apps/v1beta2", &["ControllerRevision", "DaemonSet", "Deployment", "ReplicaSet", "StatefulSet"]),
    ("extensions/v1beta1", &["DaemonSet", "Deployment", "Ingress", "NetworkPolicy", "ReplicaSet"]),
    ("batch/v1beta1", &["CronJob"]),
    ("certificates.k8s.io/v1beta1", &["CertificateSigningRequest"]),
    ("coordination.k8s.io/v1beta1", &["Lease"]),
    ("discovery.k8s.io/v1beta1", &["EndpointSlice"]),
    ("events.k8s.io/v1beta1", &["Event"]),
    ("flowcontrol.apiserver.k8s.io/v1beta1", &["FlowSchema", "PriorityLevelConfiguration"]),
    ("flowcontrol.apiserver.k8s.io/v1beta2", &["FlowSchema", "PriorityLevelConfiguration"]),
    ("flowcontrol.apiserver.k8s.io/v1beta3", &["FlowSchema", "PriorityLevelConfiguration"]),
    ("networking.k8s.io/v1beta1", &["IPAddress", "Ingress", "IngressClass", "ServiceCIDR"]),
    ("node.k8s.io/v1alpha1", &["RuntimeClass"]),
    ("node.k8s.io/v1beta1", &["RuntimeClass"]),
    ("policy/v1beta1", &["PodDisruptionBudget"]),
    ("rbac.authorization.k8s.io/v1alpha1", ROLES),
    ("rbac.authorization.k8s.io/v1beta1", ROLES),
    ("resource.k8s.io/v1beta1", DEVICES),
    ("resource.k8s.io/v1beta2", DEVICES),
    ("scheduling.k8s.io/v1beta1", &["PriorityClass"]),
    ("storage.k8s.io/v1alpha1", &["CSIStorageCapacity", "VolumeAttachment", "VolumeAttributesClass"]),
    (
        "storage.k8s.io/v1beta1",
        &[
            "CSIDriver",
            "CSINode",
            "CSIStorageCapacity",
            "StorageClass",
            "VolumeAttachment",
            "VolumeAttributesClass",
        ],
    ),
];

const ROLES: &[&str] = &["ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"];
const DEVICES: &[&str] = &["DeviceClass", "ResourceClaim", "ResourceClaimTemplate", "ResourceSlice"];

/// Kinds that are one kind in several groups and versions of today.
fn is_shared(r: &Resource, kind: &str, version: &str) -> bool {
    kind == r.kind
        && match kind {
            "Event" => matches!(version, "v1" | "events.k8s.io/v1"),
            "HorizontalPodAutoscaler" => matches!(version, "autoscaling/v1" | "autoscaling/v2"),
            _ => false,
        }
}

/// True for what a decoder knows at all.
fn is_known(kind: &str, version: &str) -> bool {
    let listed = |r: &Resource| r.kind == kind || r.list_kind == kind;
    (kind, version) == ("List", "v1")
        || builtins::all().iter().any(|r| r.api_version() == version && listed(r))
        || is_retired(kind, version)
}

fn is_retired(kind: &str, version: &str) -> bool {
    RETIRED.iter().any(|(v, kinds)| *v == version && kinds.contains(&kind))
}

/// The package of a group's own types.
fn package(group: &str) -> &str {
    match group {
        "" | "events.k8s.io" => "core",
        "internal.apiserver.k8s.io" => "apiserverinternal",
        _ => group.split('.').next().unwrap_or(group),
    }
}

/// 400 for a body of this kind and apiVersion, either of which may be missing.
pub fn refused(r: &Resource, kind: &str, version: &str) -> ApiError {
    let wanted = r.api_version();
    let kind: &str = if kind.is_empty() { &r.kind } else { kind };
    let found: &str = if version.is_empty() { &wanted } else { version };
    if kind == r.kind && (is_retired(kind, found) || is_shared(r, kind, found)) {
        return ApiError::bad_request(format!(
            "the API version in the data ({found}) does not match the expected API version ({wanted})"
        ));
    }
    let short = found.rsplit('/').next().unwrap_or(found);
    let why = if is_known(kind, found) {
        format!("converting ({short}.{kind}) to ({}.{}): unknown conversion", package(&r.group), r.kind)
    } else {
        format!(
            "no kind {kind:?} is registered for version {found:?} in scheme \"pkg/api/legacyscheme/scheme.go:30\""
        )
    };
    ApiError::bad_request(format!("{kind} in version {short:?} cannot be handled as a {}: {why}", r.kind))
}
