//! The objects of a user on the hub: read, and written one by one.

use std::collections::BTreeSet;

use fleet_api::access::{PAI_ADMIN_ROLE, PAI_USERS};
use serde_json::{Value, json};

use super::{
    error::UserError,
    names::{self, text},
    passwords,
};
use crate::server::{AskError, Selectors, Server};

/// Annotation of the account.
pub(super) const EMAIL: &str = "pai.fleet.dev/email";
const EMAIL_MAX: usize = 254;

/// A user as his account shows him.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    pub name: String,
    pub uid: String,
    pub email: String,
    pub is_admin: bool,
}

pub(super) fn of(object: &Value, is_admin: bool) -> Option<Account> {
    let name = text(&object["metadata"]["name"], "");
    (names::is_user(name) && object["metadata"]["labels"][names::USER] == name).then(|| Account {
        name: name.to_owned(),
        uid: text(&object["metadata"]["uid"], "").to_owned(),
        email: text(&object["metadata"]["annotations"][EMAIL], "").to_owned(),
        is_admin,
    })
}

/// The administrator that a binding makes one.
fn admin_of(binding: &Value) -> Option<&str> {
    let name = text(&binding["metadata"]["name"], "").strip_prefix("admin.")?;
    let is_role = binding["roleRef"]["kind"] == "Role" && binding["roleRef"]["name"] == PAI_ADMIN_ROLE;
    let subject = &binding["subjects"][0];
    (is_role && subject["kind"] == "ServiceAccount" && subject["name"] == name).then_some(name)
}

pub(super) fn optional(asked: Result<Value, AskError>) -> Result<Option<Value>, AskError> {
    match asked {
        Err(error) if error.is_not_found() => Ok(None),
        answer => answer.map(Some),
    }
}

/// One user.
///
/// # Errors
/// There is none, or the hub refuses.
pub async fn account(server: &Server, name: &str) -> Result<Account, UserError> {
    let missing = || UserError::NoUser(name.to_owned());
    if !names::is_user(name) {
        return Err(missing());
    }
    let asked = server.object(&format!("{}/{name}", names::accounts())).await;
    let object = optional(asked)?.ok_or_else(missing)?;
    let binding = optional(server.object(&binding_path(name)).await)?;
    of(&object, binding.as_ref().and_then(admin_of) == Some(name)).ok_or_else(missing)
}

/// All users, by name.
///
/// # Errors
/// The hub refuses.
pub async fn all(server: &Server) -> Result<Vec<Account>, UserError> {
    let labelled = Selectors { labels: Some(names::USER.to_owned()), ..Selectors::default() };
    let accounts = server.list(&names::accounts(), &labelled, "application/json").await?;
    let bindings = server.list(&names::bindings(), &labelled, "application/json").await?;
    let items = |list: &Value| list["items"].as_array().cloned().unwrap_or_default();
    let bindings = items(&bindings);
    let admins: BTreeSet<&str> = bindings.iter().filter_map(admin_of).collect();
    let mut found: Vec<Account> = items(&accounts)
        .iter()
        .filter_map(|object| of(object, admins.contains(text(&object["metadata"]["name"], ""))))
        .collect();
    found.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(found)
}

pub(super) fn check_email(email: &str) -> Result<(), UserError> {
    let is_plain = email.len() <= EMAIL_MAX && !email.chars().any(|c| c.is_control() || c.is_whitespace());
    if email.is_empty() || (is_plain && email.contains('@')) {
        return Ok(());
    }
    let allowed = format!("an address such as alice@example.com, of at most {EMAIL_MAX} bytes");
    Err(UserError::invalid("email", format!("{email:?}"), allowed))
}

/// # Errors
/// It is no address, or the hub refuses.
pub async fn set_email(server: &Server, name: &str, email: &str) -> Result<(), UserError> {
    check_email(email)?;
    let patch = json!({"metadata": {"annotations": {EMAIL: email}}});
    match server.merge(&format!("{}/{name}", names::accounts()), &patch).await {
        Err(error) if error.is_not_found() => Err(UserError::NoUser(name.to_owned())),
        done => Ok(done.map(drop)?),
    }
}

pub(super) fn binding_path(name: &str) -> String {
    format!("{}/{}", names::bindings(), names::admin(name))
}

/// Makes a user an administrator, or no longer one.
pub(super) async fn set_admin(server: &Server, account: &Account, is_admin: bool) -> Result<(), UserError> {
    if !is_admin {
        optional(server.delete(&binding_path(&account.name)).await)?;
        return Ok(());
    }
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": names::metadata(&names::admin(&account.name), &account.name, &account.uid),
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": PAI_ADMIN_ROLE},
        "subjects": [{"kind": "ServiceAccount", "name": account.name, "namespace": PAI_USERS}],
    });
    match server.create(&names::bindings(), &binding).await {
        Err(error) if !error.is_conflict() => Err(error.into()),
        _ => Ok(()),
    }
}

/// Writes the Secret of an account's password, also over one that an earlier account of the name has left.
pub(super) async fn write_password(server: &Server, account: &Account, hash: &str) -> Result<(), UserError> {
    let name = names::password(&account.name);
    let mut secret = json!({
        "metadata": names::metadata(&name, &account.name, &account.uid),
        "stringData": {passwords::KEY: hash},
    });
    let changed = server.merge(&format!("{}/{name}", names::secrets()), &secret).await;
    if optional(changed)?.is_none() {
        secret["apiVersion"] = "v1".into();
        secret["kind"] = "Secret".into();
        secret["type"] = passwords::SECRET_TYPE.into();
        server.create(&names::secrets(), &secret).await?;
    }
    Ok(())
}
