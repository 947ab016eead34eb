//! What an object may contain, whatever its kind is. Pure.
//!
//! A pod gets the token of its account, so an object that runs pods as an account has all rights of it. Therefore none
//! may name the account under which the agent applies objects: the rights to apply them are not the tenant's.

use std::collections::BTreeSet;

use fleet_policies::{credentials, service_reach};
use serde_json::Value;

/// Fields with the account of pods, in pod templates and in objects whose controllers make pods of them.
const ACCOUNT_FIELDS: [&str; 2] = ["serviceAccountName", "serviceAccount"];
/// The account of pods that name none.
pub const DEFAULT_ACCOUNT: &str = "default";
const USER_PREFIX: &str = "system:serviceaccount:";

/// Name of the account of `namespace` that has the user name `user`; `None` if it is none of this namespace.
pub fn account_of<'u>(user: &'u str, namespace: &str) -> Option<&'u str> {
    let (of, name) = user.strip_prefix(USER_PREFIX)?.split_once(':')?;
    (of == namespace).then_some(name)
}

/// Whether an object leaves alone the account `applying`, under which objects of its namespace are applied.
///
/// # Errors
/// The field, the value found and the values allowed.
pub(super) fn account(manifest: &Value, applying: &str) -> Result<(), String> {
    let allowed = format!(
        "the account under which the member's agent applies objects of this namespace (--impersonate); allowed: another account than {applying}"
    );
    match manifest["kind"].as_str() {
        Some("ServiceAccount") if manifest["metadata"]["name"] == applying => {
            return Err(format!("metadata.name: found {applying}, {allowed}"));
        }
        // Their data is not read as fields.
        Some("ServiceAccount" | "ConfigMap" | "Secret") => return Ok(()),
        _ => {}
    }
    let mut path = String::new();
    match named(manifest, applying, &mut path) {
        Some(found) => Err(format!("{path}: found {found}, {allowed}")),
        None => Ok(()),
    }
}

/// Whether an object is no credential that the member's API server would fill in or accept.
///
/// # Errors
/// As [`account`].
pub(super) fn credential(manifest: &Value) -> Result<(), String> {
    credentials::withheld(manifest).map_or(Ok(()), Err)
}

/// Whether a Service reaches no further than its namespace, or is of a type that the administrator permits.
///
/// # Errors
/// As [`account`].
pub(super) fn service(manifest: &Value, permitted: &BTreeSet<String>) -> Result<(), String> {
    service_reach::takes_no_addresses(manifest)?;
    let Some(found) = service_reach::beyond(manifest).filter(|found| !permitted.contains(found)) else {
        return Ok(());
    };
    let name = manifest["metadata"]["name"].as_str().unwrap_or_default();
    let others: Vec<&str> = permitted.iter().map(String::as_str).collect();
    Err(format!(
        "Service {name}: spec.type: found {found}; allowed: {}",
        ["ClusterIP"].into_iter().chain(others).collect::<Vec<_>>().join(", ")
    ) + " (--service-types of the member's agent)")
}

/// What makes pods run as the account, anywhere in `value`, with its path: an unknown kind must not be a way around.
fn named(value: &Value, account: &str, path: &mut String) -> Option<String> {
    let length = path.len();
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                let dot = if path.is_empty() { "" } else { "." };
                path.push_str(&format!("{dot}{name}"));
                let is_named =
                    ACCOUNT_FIELDS.contains(&name.as_str()) && (value == account || value["name"] == account);
                if is_named {
                    return Some(account.to_owned());
                }
                if let Some(found) = named(value, account, path) {
                    return Some(found);
                }
                path.truncate(length);
            }
            let is_pod = fields.get("containers").is_some_and(Value::is_array);
            let names_none = || {
                ACCOUNT_FIELDS
                    .iter()
                    .all(|field| fields.get(*field).and_then(Value::as_str).is_none_or(str::is_empty))
            };
            if account == DEFAULT_ACCOUNT && is_pod && names_none() {
                path.push_str(".serviceAccountName");
                return Some(format!("nothing, which is {account}"));
            }
        }
        Value::Array(items) => {
            for (at, item) in items.iter().enumerate() {
                path.push_str(&format!("[{at}]"));
                if let Some(found) = named(item, account, path) {
                    return Some(found);
                }
                path.truncate(length);
            }
        }
        _ => {}
    }
    None
}
