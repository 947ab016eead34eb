//! Names of a user's objects.

use fleet_api::access::PAI_USERS;
use serde_json::{Value, json};

use super::error::UserError;

/// Label of all objects of a user.
pub const USER: &str = fleet_pai::names::USER_LABEL;
/// Longest name. The names of a user's jobs begin with it and a dash, also where they are cut and end in a hash.
pub const LONGEST: usize = 24;
/// Kubernetes makes an account of this name in every namespace.
const TAKEN: &str = "default";

/// Whether a text is a valid name of a user. It has no dash and no dot, so that the names of one user's objects never
/// begin like those of another's; small letters only, so that no two users differ in capitals alone.
pub fn is_user(name: &str) -> bool {
    name != TAKEN
        && (1..=LONGEST).contains(&name.len())
        && name.starts_with(|c: char| c.is_ascii_lowercase())
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit())
}

/// # Errors
/// It is no valid name of a user.
pub fn check(name: &str) -> Result<(), UserError> {
    if is_user(name) {
        return Ok(());
    }
    let allowed = format!("1 to {LONGEST} small letters and digits, a letter first; not {TAKEN:?}");
    Err(UserError::invalid("username", format!("{name:?}"), allowed))
}

/// The user that an identity of the hub is.
pub fn of_identity(identity: &str) -> Option<&str> {
    let name = identity.strip_prefix("system:serviceaccount:")?.strip_prefix(PAI_USERS)?.strip_prefix(':')?;
    is_user(name).then_some(name)
}

/// The user as a submitter in access rules.
pub fn subject(name: &str) -> String {
    format!("serviceaccount:{PAI_USERS}/{name}")
}

/// The group of all users, as access rules name it.
pub fn all_users() -> String {
    format!("group:system:serviceaccounts:{PAI_USERS}")
}

pub(super) fn text<'v>(value: &'v Value, absent: &'v str) -> &'v str {
    value.as_str().unwrap_or(absent)
}

pub fn accounts() -> String {
    format!("/api/v1/namespaces/{PAI_USERS}/serviceaccounts")
}

pub fn secrets() -> String {
    format!("/api/v1/namespaces/{PAI_USERS}/secrets")
}

pub fn bindings() -> String {
    format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{PAI_USERS}/rolebindings")
}

/// Secret with the hash of the password.
pub fn password(user: &str) -> String {
    format!("password.{user}")
}

/// RoleBinding of an administrator.
pub fn admin(user: &str) -> String {
    format!("admin.{user}")
}

/// Labels, and the owner with which an object of a user goes.
pub fn metadata(name: &str, user: &str, uid: &str) -> Value {
    json!({
        "name": name,
        "namespace": PAI_USERS,
        "labels": {USER: user},
        "ownerReferences": [{"apiVersion": "v1", "kind": "ServiceAccount", "name": user, "uid": uid}],
    })
}

/// The uid of the account that an object belongs to. An account that was made again under the same name has another.
pub fn owner(object: &Value) -> Option<String> {
    let owners = object["metadata"]["ownerReferences"].as_array()?;
    let account = owners.iter().find(|owner| owner["kind"] == "ServiceAccount")?;
    Some(text(&account["uid"], "")).filter(|uid| !uid.is_empty()).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_of_a_user_is_that_of_another_object_or_user() {
        for good in ["a", "alice", "carol2", "abcdefghijklmnopqrstuvwx"] {
            assert!(is_user(good), "{good}");
        }
        let bad =
            ["", "default", "Alice", "2a", "a-b", "a.b", "a_b", "a/b", "../x", "a:b", "ä", "a b", "a~b"];
        for bad in bad.into_iter().chain(["abcdefghijklmnopqrstuvwxy"]) {
            assert!(!is_user(bad) && check(bad).is_err(), "{bad}");
        }
        // The policy fleet-pai-owners tells users' jobs apart by the beginnings of their names.
        for user in ["alice", "abcdefghijklmnopqrstuvwx"] {
            for job in ["j", "J_1", "__", &"x".repeat(255), "default-0123abcd"] {
                let object = fleet_pai::names::object(user, job);
                assert!(object.starts_with(&format!("{user}-")), "{object}");
            }
        }
    }

    #[test]
    fn only_accounts_of_the_namespace_are_users() {
        assert_eq!(of_identity("system:serviceaccount:fleet-pai-users:alice"), Some("alice"));
        for other in [
            "alice",
            "system:serviceaccount:team-a:alice",
            "system:serviceaccount:fleet-pai-users:default",
            "system:serviceaccount:fleet-pai-usersx:alice",
            "system:serviceaccount:fleet-pai-users-2:alice",
            "system:serviceaccount:fleet-pai-users:",
        ] {
            assert_eq!(of_identity(other), None, "{other}");
        }
    }
}
