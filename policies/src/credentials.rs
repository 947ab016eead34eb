//! Secrets that stay on the hub: whoever has one speaks to the hub as somebody.
//!
//! A member's administrators and agent read every Secret of their cluster. So a tenant's job must not carry a credential of
//! the hub there, and a member gives pods the tokens of its own accounts.

use serde_json::Value;

/// Types with which an API server knows who is asking it.
const TYPES: [&str; 2] = ["kubernetes.io/service-account-token", "bootstrap.kubernetes.io/token"];
/// Prefix of the namespaces of clusters and of Fleet's own processes.
const OWN_NAMESPACES: &str = "fleet-";
/// Fleet's own Secrets in them: the way to a member, an agent's tokens, and those of a member that is also the hub.
const OWN_NAMES: [&str; 7] = [
    "member-access",
    "member-agent-token",
    "member-bootstrap",
    "member-agent-claim",
    "fleet-agent-hub",
    "fleet-hub-bootstrap",
    "fleet-reader",
];

/// Why an object is never sent to a member, as a sentence; `None` if it may be sent.
pub fn withheld(object: &Value) -> Option<String> {
    if object["kind"] != "Secret" {
        return None;
    }
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let (namespace, name) = (text("/metadata/namespace"), text("/metadata/name"));
    let found = text("/type");
    if TYPES.contains(&found) {
        return Some(format!(
            "Secret {name}: type: found {found}, which is a credential of an API server; allowed in members: other types. Pods \
             get tokens of their member by serviceAccountName"
        ));
    }
    let is_own = namespace.starts_with(OWN_NAMESPACES) && OWN_NAMES.contains(&name);
    is_own.then(|| {
        format!("Secret {name}: found one of Fleet's own in {namespace}; allowed in members: Secrets of jobs")
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn credentials_of_the_hub_stay_there() {
        let secret = |namespace: &str, name: &str, kind: &str| {
            json!({"apiVersion": "v1", "kind": "Secret", "type": kind, "data": {"token": "eA=="},
                "metadata": {"namespace": namespace, "name": name}})
        };
        for kind in ["kubernetes.io/service-account-token", "bootstrap.kubernetes.io/token"] {
            let why = withheld(&secret("team-a", "tok1", kind)).expect("a credential");
            assert!(why.contains("tok1") && why.contains(kind), "{why}");
        }
        for name in OWN_NAMES {
            assert!(withheld(&secret("fleet-east", name, "Opaque")).is_some(), "{name}");
            assert_eq!(withheld(&secret("team-a", name, "Opaque")), None, "{name}");
        }
        for kind in ["Opaque", "", "kubernetes.io/tls", "kubernetes.io/dockerconfigjson"] {
            assert_eq!(withheld(&secret("team-a", "s", kind)), None, "{kind}");
        }
        assert_eq!(withheld(&json!({"kind": "ConfigMap", "metadata": {"name": "c"}})), None);
    }
}
