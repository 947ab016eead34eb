//! The built-in kinds: defaults, and validation.
//!
//! Inputs: decoded objects. One file for a kind or for a family of kinds. Absent on purpose: checks that need other
//! objects (see `pods`, `services`, `limits`), and custom resources.

use fleet_apiserver_schema::error::Cause;
use fleet_apiserver_schema::resource::Resource;
use serde_json::Value;

mod autoscaling;
mod certificates;
mod claim;
mod core_v1;
mod cron;
mod defaults;
pub mod flow;
mod job;
mod network;
pub mod nodes;
mod policy;
pub mod scale;
pub mod services;
pub mod signing;
mod storage;
mod volume;
pub mod warnings;
mod workload;
mod workload_defaults;

pub use fleet_apiserver_devices as devices;
pub use fleet_apiserver_pods::{self as pods, qos};
pub use fleet_apiserver_registration as registration;
use pods::spec as pod_spec;

pub use defaults::{apply, apply_again, apply_status, new_namespace, of_fields};
use fleet_apiserver_schema::field::{At, Causes};
pub use workload_defaults::{new_job, renamed, take_labels, takes_labels, template_generation};

/// Checks a new or changed object of a built-in kind.
pub fn check(
    resource: &Resource,
    old: Option<&Value>,
    value: &Value,
    subresource: &str,
    causes: &mut Vec<Cause>,
) {
    if resource.group == registration::GROUP {
        registration::check(&resource.plural, value, subresource, causes);
    }
    let found = Causes::default();
    {
        let new = At::root(value, &found);
        let old = old.map(|old| At::root(old, &found));
        kind(resource, &new, old.as_ref(), subresource);
    }
    causes.extend(found.into_inner());
    match (resource.group.as_str(), resource.plural.as_str()) {
        ("", "pods") => pods::check_change(old, value, subresource, causes),
        ("scheduling.k8s.io", "priorityclasses") => pods::check_class(old, value, causes),
        _ => {}
    }
}

/// Finalizers without a domain are those that Kubernetes itself knows.
pub fn check_finalizers(value: &Value, causes: &mut Vec<Cause>) {
    for (i, finalizer) in
        fleet_apiserver_ground::tree::list(value, &["metadata", "finalizers"]).iter().enumerate()
    {
        let text = finalizer.as_str().unwrap_or_default();
        if !text.contains('/') && !matches!(text, "orphan" | "foregroundDeletion" | "kubernetes") {
            let why = "name is neither a standard finalizer name nor is it fully qualified";
            causes.push(Cause::invalid(format!("metadata.finalizers[{i}]"), finalizer, why));
        }
    }
}

fn kind(r: &Resource, new: &At, old: Option<&At>, subresource: &str) {
    match (r.group.as_str(), r.plural.as_str()) {
        ("", "pods") => {
            // A write of the status leaves the spec as it is.
            if subresource != "status" {
                let spec = new.at("spec");
                pod_spec::check(&spec);
                if old.is_none() {
                    new_pod(&spec);
                }
            }
        }
        ("", "podtemplates") => pod_spec::template(&new.at("template")),
        ("", "replicationcontrollers") => workload::replication_controller(new, subresource),
        ("apps", "deployments") => workload::deployment(new, old, subresource),
        ("apps", "replicasets") => workload::replica_set(new, old, subresource),
        ("apps", "statefulsets") => workload::stateful_set(new, old, subresource),
        ("apps", "daemonsets") => workload::daemon_set(new, old, subresource),
        ("apps", "controllerrevisions") => workload::controller_revision(new, old),
        ("batch", "jobs") => job::job(new, old, subresource),
        ("batch", "cronjobs") => job::cron_job(new, old, subresource),
        ("", "configmaps") => core_v1::config_map(new, old),
        ("", "secrets") => core_v1::secret(new, old),
        ("", "namespaces") => core_v1::namespace(new, subresource),
        ("", "nodes") => core_v1::node(new, old, subresource),
        ("", "limitranges") => core_v1::limit_range(new),
        ("", "resourcequotas") => core_v1::resource_quota(new, old, subresource),
        (group, "events") => core_v1::event(new, old, !group.is_empty()),
        ("", "services") => network::service(new, old, subresource),
        ("", "endpoints") => network::endpoints(new, old),
        ("", "persistentvolumes") => volume::volume(new, old, subresource),
        ("", "persistentvolumeclaims") => claim::claim(new, old, subresource),
        (group, _) => other_kind(group, r, new, old, subresource),
    }
}

fn other_kind(group: &str, r: &Resource, new: &At, old: Option<&At>, subresource: &str) {
    match (group, r.plural.as_str()) {
        ("discovery.k8s.io", "endpointslices") => network::endpoint_slice(new, old),
        ("networking.k8s.io", "ingresses") => network::ingress(new, old, subresource),
        ("networking.k8s.io", "ingressclasses") => network::ingress_class(new, old),
        ("networking.k8s.io", "networkpolicies") => network::network_policy(new, old),
        ("networking.k8s.io", "ipaddresses") => network::ip_address(new, old),
        ("networking.k8s.io", "servicecidrs") => network::service_cidr(new, old),
        ("policy", "poddisruptionbudgets") => policy::budget(new, subresource),
        ("autoscaling", _) => autoscaling::autoscaler(new, old, subresource),
        ("coordination.k8s.io", "leases") => policy::lease(new),
        ("node.k8s.io", "runtimeclasses") => policy::runtime_class(new, old),
        ("rbac.authorization.k8s.io", "roles") => policy::role(new, true),
        ("rbac.authorization.k8s.io", "clusterroles") => policy::role(new, false),
        ("rbac.authorization.k8s.io", "rolebindings") => policy::binding(new, old, true),
        ("rbac.authorization.k8s.io", "clusterrolebindings") => policy::binding(new, old, false),
        ("certificates.k8s.io", "certificatesigningrequests") => {
            certificates::request(new, old, subresource);
        }
        ("flowcontrol.apiserver.k8s.io", "flowschemas") => flow::schema(new),
        ("flowcontrol.apiserver.k8s.io", "prioritylevelconfigurations") => flow::level(new),
        ("storage.k8s.io", "storageclasses") => storage::class(new, old),
        ("storage.k8s.io", "volumeattributesclasses") => storage::attributes_class(new, old),
        ("storage.k8s.io", "csidrivers") => storage::driver(new, old),
        ("storage.k8s.io", "csinodes") => storage::node(new, old),
        ("storage.k8s.io", "csistoragecapacities") => storage::capacity(new, old),
        ("storage.k8s.io", "volumeattachments") => storage::attachment(new, old),
        ("apiregistration.k8s.io", "apiservices") => registration::api_service(new, subresource),
        (devices::GROUP, plural) => devices::check(plural, new, old, subresource),
        _ => {}
    }
}

/// What a pod may not have from the start.
fn new_pod(spec: &At) {
    let debuggers = spec.at("ephemeralContainers");
    if !debuggers.is_empty() {
        debuggers.forbidden("cannot be set on create");
    }
    let node = spec.at("nodeName");
    if !spec.at("schedulingGates").is_empty() && !node.text().is_empty() {
        node.forbidden("cannot be set until all schedulingGates have been cleared");
    }
}
