//! Messages about rights that the member's roles do not grant. Pure.

use fleet_agent_ground::CallError;
use kube::discovery::ApiResource;

/// The right that was needed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NeededRight<'a> {
    pub verb: &'a str,
    pub resource: &'a ApiResource,
    pub namespace: &'a str,
}

impl NeededRight<'_> {
    /// Who lacks which right, and what to grant. `user`: the account of `--impersonate`; `None`: the agent
    /// itself.
    pub fn lacked_by(self, user: Option<&str>) -> String {
        let Self { verb, resource: ApiResource { group, plural, .. }, namespace } = self;
        let resource = if group.is_empty() { plural.clone() } else { format!("{plural}.{group}") };
        let who = user.map_or_else(|| "the agent".to_owned(), |user| format!("{user} (--impersonate)"));
        let place = if namespace.is_empty() { String::new() } else { format!(" in namespace {namespace}") };
        let account = user.and_then(|user| user.strip_prefix("system:serviceaccount:")?.split_once(':'));
        let whom = match (user, account) {
            (None, _) => "its service account".to_owned(),
            (Some(_), Some((of, name))) => format!("ServiceAccount {of}/{name}"),
            (Some(user), None) => format!("User {user}"),
        };
        format!(
            "{who} may not {verb} {resource}{place} of the member; allowed with a role for {whom} that has {verb} on {resource}"
        )
    }
}

/// The agent lacks the right to impersonate the account.
pub(crate) fn may_not_act_as(user: &str, error: &CallError) -> String {
    let (resource, name) =
        match user.strip_prefix("system:serviceaccount:").and_then(|rest| rest.split_once(':')) {
            Some((_, name)) => ("serviceaccounts", name),
            None => ("users", user),
        };
    format!(
        "the agent may not impersonate {user} (--impersonate): {error}; allowed with verb impersonate on {resource} {name} in its role"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resource(group: &str, plural: &str) -> ApiResource {
        fleet_agent_ground::resource(group, "v1", "K", plural)
    }

    #[test]
    fn who_lacks_which_right_and_what_to_grant() {
        let check = |user: Option<&str>, group: &str, plural: &str, expected: &str| {
            let resource = resource(group, plural);
            let asked = NeededRight { verb: "create", resource: &resource, namespace: "team" };
            assert_eq!(asked.lacked_by(user), expected);
        };
        check(
            Some("system:serviceaccount:team:fleet"),
            "kubeflow.org",
            "pytorchjobs",
            "system:serviceaccount:team:fleet (--impersonate) may not create pytorchjobs.kubeflow.org in namespace team of \
             the member; allowed with a role for ServiceAccount team/fleet that has create on pytorchjobs.kubeflow.org",
        );
        check(
            Some("jane"),
            "",
            "secrets",
            "jane (--impersonate) may not create secrets in namespace team of the member; allowed with a role for User jane \
             that has create on secrets",
        );
        check(
            None,
            "",
            "secrets",
            "the agent may not create secrets in namespace team of the member; allowed with a role for its service account \
             that has create on secrets",
        );
    }
}
