//! Names derived from other names.

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
