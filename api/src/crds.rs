//! The CustomResourceDefinitions of a hub and of a member, made from the types of this room.
//!
//! The YAML form is committed beside the charts (`charts/fleet/crds/hub.yaml`,
//! `charts/member-agent/crds/member.yaml`) and held there by a test.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;
use serde_json::Value;

use crate::{
    binding, bounds, cells, cluster, jobs, policy, queue, quota_tree, reservation, rules, schema, texts,
    volcano, work,
};

/// Which API server a set of definitions is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Hub,
    Member,
}

/// What an API server wants to see on a definition in a group of the Kubernetes community.
const APPROVAL: &str = "api-approved.kubernetes.io";
/// Such a definition is named as its users know it; nobody in the community has looked at it.
const NOT_APPROVED: &str = "unapproved, the name by which quota trees of this kind are known";

/// The definitions for one side, sorted by name: the generated ones as they are committed under
/// `api/crds/`. Making them anew takes a third of a second, which every start would pay.
pub fn definitions(side: Side) -> Vec<Value> {
    let text = match side {
        Side::Hub => include_str!("../crds/hub.json"),
        Side::Member => include_str!("../crds/member.json"),
    };
    // A test holds the files equal to what `generate` makes, so they are JSON.
    serde_json::from_str(text).unwrap_or_default()
}

/// Makes the definitions of one side from the types.
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
            volcano::command_crd(),
        ],
    };
    let mut all: Vec<Value> = own.into_iter().chain(jobs).map(finish).collect();
    all.sort_by(|a, b| name(a).cmp(name(b)));
    all
}

/// The name of a definition, `plural.group`.
pub fn name(definition: &Value) -> &str {
    definition["metadata"]["name"].as_str().unwrap_or_default()
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

/// The generated definitions of one side as one YAML stream.
pub fn yaml(side: Side) -> Result<String, crate::yaml::YamlError> {
    let mut text = String::new();
    for definition in generate(side) {
        text.push_str("---\n");
        text.push_str(&crate::yaml::write(&definition)?);
        if !text.ends_with('\n') {
            text.push('\n');
        }
    }
    Ok(text)
}
