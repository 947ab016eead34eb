//! What the agent says of itself: its version, what it does in the member, and which rights it lacks there.
//!
//! Rights are asked of the member's API server, one by one, as discovery is. Nothing depends on the answer but what people
//! are told.

use fleet_api::{cluster::AgentStatus, names};
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SelfSubjectAccessReview};
use kube::{Api, api::PostParams};

use crate::{context::Context, options::Options};
use fleet_agent_ground::{CallError, call};

/// Rights that every agent needs: verb, resource, group, and whether in its own namespace alone.
const NEEDED: [(&str, &str, &str, bool); 10] = [
    ("watch", "nodes", "", false),
    ("watch", "pods", "", false),
    ("delete", "pods", "", false),
    ("create", "configmaps", "", true),
    ("patch", "secrets", "", true),
    ("create", "reservations", "fleet.dev", true),
    ("watch", "reservations", "fleet.dev", true),
    ("patch", "leases", "coordination.k8s.io", true),
    ("create", "events", "", false),
    ("create", "namespaces", "", false),
];
/// Of one that binds pods.
const TO_BIND: [(&str, &str, &str, bool); 4] = [
    ("create", "pods/binding", "", false),
    ("patch", "pods", "", false),
    ("patch", "pods/status", "", false),
    ("watch", "priorityclasses", "scheduling.k8s.io", false),
];

pub(crate) fn agent(options: &Options) -> AgentStatus {
    AgentStatus {
        version: Some(env!("CARGO_PKG_VERSION").to_owned()),
        scheduler_names: options.scheduler_names.iter().cloned().collect(),
        controllers: options.controllers.iter().map(|kind| format!("{kind:?}")).collect(),
        missing_rights: Vec::new(),
    }
}

/// The rights that the member does not give, as `verb resource.group`.
pub(crate) async fn missing(context: &Context) -> Result<Vec<String>, CallError> {
    let reviews: Api<SelfSubjectAccessReview> = Api::all(context.member.clone());
    let binds = !context.options.scheduler_names.is_empty();
    let mut missing = Vec::new();
    for (verb, resource, group, own) in NEEDED.iter().chain(TO_BIND.iter().filter(|_| binds)) {
        let (resource, subresource) = match resource.split_once('/') {
            Some((resource, sub)) => (resource, Some(sub.to_owned())),
            None => (*resource, None),
        };
        let mut review = SelfSubjectAccessReview::default();
        review.spec.resource_attributes = Some(ResourceAttributes {
            verb: Some((*verb).to_owned()),
            resource: Some(resource.to_owned()),
            subresource: subresource.clone(),
            group: Some((*group).to_owned()),
            namespace: own.then(|| names::MEMBER_NAMESPACE.to_owned()),
            ..ResourceAttributes::default()
        });
        let answer = call(reviews.create(&PostParams::default(), &review)).await?;
        if answer.status.is_some_and(|status| !status.allowed) {
            let sub = subresource.map_or(String::new(), |sub| format!("/{sub}"));
            let group = if group.is_empty() { String::new() } else { format!(".{group}") };
            missing.push(format!("{verb} {resource}{sub}{group}"));
        }
    }
    Ok(missing)
}
