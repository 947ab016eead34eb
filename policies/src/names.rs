//! Names derived from other names, and the names that only Fleet itself gives.

/// Labels and annotations under this prefix are Fleet's own marks: a member trusts what they say.
const RESERVED_PREFIX: &str = "fleet.dev/";

/// Marks under the reserved prefix that users set on jobs and pod templates and that members read.
const SET_BY_USERS: [&str; 7] = [
    "fleet.dev/after-end",
    "fleet.dev/component",
    "fleet.dev/gang",
    "fleet.dev/gang-size",
    "fleet.dev/last-checkpoint-time",
    "fleet.dev/start-timeout",
    "fleet.dev/virtual-cluster",
];

/// Whether a label or annotation is one that only Fleet sets on objects in members.
pub fn is_reserved(name: &str) -> bool {
    name.starts_with(RESERVED_PREFIX) && !SET_BY_USERS.contains(&name)
}

/// The name of the ResourceBinding of an object: lower-case name and kind, with
/// `:` (legal in RBAC names, not in binding names) replaced.
pub fn binding_name(kind: &str, name: &str) -> String {
    format!("{}-{}", name.replace(':', "."), kind).to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn binding_names() {
        assert_eq!(binding_name("Role", "system:controller:tom"), "system.controller.tom-role");
        assert_eq!(binding_name("PyTorchJob", "pytorch-test"), "pytorch-test-pytorchjob");
    }
}
