//! The definitions, generated from the types of this room. Only with the feature `schemas`: the schemas of Kubernetes' own
//! types take longer to compile than the rest of this room, and processes read the committed files.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;
use serde_json::Value;

use super::{Side, name};
use crate::{
    binding, bounds, cells, cluster, jobs, policy, queue, quota_tree, reservation, rules, schema, texts,
    volcano, work,
};

/// Annotation that API servers require on a definition in a group of the Kubernetes community.
const APPROVAL: &str = "api-approved.kubernetes.io";
/// Its value: the group's name is used for compatibility, and the community has not reviewed it.
const NOT_APPROVED: &str = "unapproved, the name by which quota trees of this kind are known";

/// Generates the definitions of one side from the types.
pub fn generate(side: Side) -> Vec<Value> {
    let jobs = [
        jobs::PyTorchJob::crd(),
        jobs::TFJob::crd(),
        jobs::MPIJob::crd(),
        volcano::VolcanoJob::crd(),
        reservation::Reservation::crd(),
    ];
    let own = match side {
        Side::Hub => vec![
            policy::PropagationPolicy::crd(),
            policy::ClusterPropagationPolicy::crd(),
            policy::OverridePolicy::crd(),
            policy::ClusterOverridePolicy::crd(),
            quota_tree::ElasticQuotaTree::crd(),
            queue::Queue::crd(),
            queue::QueueUnit::crd(),
            cluster::Cluster::crd(),
            binding::ResourceBinding::crd(),
            work::Work::crd(),
            cells::CellConfiguration::crd(),
            cells::VirtualCluster::crd(),
        ],
        Side::Member => vec![
            volcano::PodGroup::crd(),
            volcano::VolcanoQueue::crd(),
            volcano::HyperNode::crd(),
            volcano::Numatopology::crd(),
            volcano::CronJob::crd(),
            volcano::JobFlow::crd(),
            volcano::VolcanoJobTemplate::crd(),
            command_crd(),
        ],
    };
    let mut all: Vec<Value> = own.into_iter().chain(jobs).map(finish).collect();
    all.sort_by(|a, b| name(a).cmp(name(b)));
    all
}

fn finish(definition: CustomResourceDefinition) -> Value {
    let mut value = serde_json::to_value(definition).unwrap_or_default();
    let name = name(&value).to_string();
    if let Some(versions) = value["spec"]["versions"].as_array_mut() {
        for version in versions {
            let schema = &mut version["schema"]["openAPIV3Schema"];
            schema::tidy(schema);
            texts::fill(&name, schema);
            rules::add(&name, schema);
            bounds::add(&name, schema);
        }
    }
    if value["spec"]["group"].as_str().is_some_and(|group| group.ends_with(".k8s.io")) {
        value["metadata"]["annotations"][APPROVAL] = NOT_APPROVED.into();
    }
    value
}

/// The definition of `bus.volcano.sh/v1alpha1` Command, by which users suspend, resume and restart a job. Its
/// fields are beside the metadata, which a derived type cannot have.
fn command_crd() -> CustomResourceDefinition {
    let text = serde_json::json!({"type": "string"});
    let definition = serde_json::json!({
        "metadata": {"name": "commands.bus.volcano.sh"},
        "spec": {
            "group": "bus.volcano.sh",
            "names": {"kind": "Command", "plural": "commands", "singular": "command"},
            "scope": "Namespaced",
            "versions": [{"name": "v1alpha1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object",
                "properties": {
                    "apiVersion": text, "kind": text, "metadata": {"type": "object"},
                    "action": text, "reason": text, "message": text,
                    "target": {
                        "type": "object",
                        "required": ["apiVersion", "kind", "name", "uid"],
                        "properties": {
                            "apiVersion": text, "kind": text, "name": text, "uid": text,
                            "controller": {"type": "boolean"}, "blockOwnerDeletion": {"type": "boolean"},
                        },
                    },
                },
            }}}],
        },
    });
    // A constant that deserializes; a test compares it with the committed definitions.
    serde_json::from_value(definition).unwrap_or_default()
}
