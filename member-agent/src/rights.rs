//! The agent's report on itself: version, role in the member, and missing rights.
//!
//! Rights are checked with the member's API server, one by one, at the interval of discovery. They are only
//! reported; nothing else depends on them.

use fleet_api::{cluster::AgentStatus, names};
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SelfSubjectAccessReview};
use kube::{Api, api::PostParams};

use crate::{context::Context, options::Options};
use fleet_agent_ground::{CallError, call};

/// Rights that every agent needs: verb, resource, group, and whether only in its own namespace.
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
/// Rights to bind pods.
const TO_BIND: [(&str, &str, &str, bool); 4] = [
    ("create", "pods/binding", "", false),
    ("patch", "pods", "", false),
    ("patch", "pods/status", "", false),
    ("watch", "priorityclasses", "scheduling.k8s.io", false),
];

/// Right to apply objects under accounts of the namespaces.
const TO_ACT_AS: (&str, &str, &str, bool) = ("impersonate", "serviceaccounts", "", false);

pub(crate) fn agent(options: &Options) -> AgentStatus {
    AgentStatus {
        version: Some(env!("CARGO_PKG_VERSION").to_owned()),
        scheduler_names: options.scheduler_names.iter().cloned().collect(),
        controllers: options.controllers.iter().map(|kind| format!("{kind:?}")).collect(),
        missing_rights: Vec::new(),
    }
}

/// The missing rights in the member, as `verb resource.group`.
pub(crate) async fn missing(context: &Context) -> Result<Vec<String>, CallError> {
    let reviews: Api<SelfSubjectAccessReview> = Api::all(context.member.clone());
    let binds = !context.options.scheduler_names.is_empty();
    let mut missing = Vec::new();
    let account = impersonated(context.options.permits.impersonate.as_deref());
    let needed = NEEDED.iter().chain(TO_BIND.iter().filter(|_| binds)).map(|right| (right, None));
    for ((verb, resource, group, own), name) in needed.chain(account.map(|name| (&TO_ACT_AS, Some(name)))) {
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
            name: name.map(str::to_owned),
            ..ResourceAttributes::default()
        });
        let answer = call(reviews.create(&PostParams::default(), &review)).await?;
        if answer.status.is_some_and(|status| !status.allowed) {
            let sub = subresource.map_or(String::new(), |sub| format!("/{sub}"));
            let group = if group.is_empty() { String::new() } else { format!(".{group}") };
            let name = name.map_or(String::new(), |name| format!(" {name}"));
            missing.push(format!("{verb} {resource}{sub}{group}{name}"));
        }
    }
    Ok(missing)
}

/// The name of the service account under whose rights jobs are applied.
fn impersonated(user: Option<&str>) -> Option<&str> {
    let (_, name) = user?.strip_prefix("system:serviceaccount:")?.split_once(':')?;
    Some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_right_to_act_as_an_account_is_for_its_name() {
        let check = |user: &str, expected: Option<&str>| assert_eq!(impersonated(Some(user)), expected);
        check("system:serviceaccount:{namespace}:fleet", Some("fleet"));
        check("system:serviceaccount:jobs:runner", Some("runner"));
        check("jane", None);
        assert_eq!(impersonated(None), None);
    }
}
