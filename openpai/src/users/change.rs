//! Users are made, changed and deleted, with the credential of the caller who asks for it.

use fleet_api::access::PAI_USERS;
use serde_json::json;

use super::{
    accounts::{
        Account, EMAIL, account, binding_path, check_email, of, optional, set_admin, set_email,
        write_password,
    },
    error::UserError,
    grants,
    keep::Users,
    names, passwords,
};
use crate::server::{AskError, Server};

/// A user to make.
#[derive(Clone, Debug)]
pub struct NewUser {
    pub name: String,
    pub password: String,
    pub email: String,
    pub is_admin: bool,
    pub virtual_clusters: Vec<String>,
}

/// What to change of a user; what is absent stays.
#[derive(Clone, Debug, Default)]
pub struct UserChange {
    pub password: Option<String>,
    pub email: Option<String>,
    pub is_admin: Option<bool>,
    pub virtual_clusters: Option<Vec<String>>,
}

impl Users {
    /// Makes a user. The account comes first: one write claims the name, and shows that the caller may make users.
    ///
    /// # Errors
    /// The name is taken, something of it is not allowed, or the hub refuses. Then there is no such user.
    pub async fn create(&self, server: &Server, new: &NewUser) -> Result<(), UserError> {
        names::check(&new.name)?;
        passwords::check(&new.password)?;
        check_email(&new.email)?;
        let object = json!({
            "apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": {"name": new.name, "namespace": PAI_USERS, "labels": {names::USER: new.name},
                "annotations": {EMAIL: new.email}},
            // Pods have no token of it.
            "automountServiceAccountToken": false,
        });
        let made = match server.create(&names::accounts(), &object).await {
            Err(error) if error.is_conflict() => return Err(UserError::Exists(new.name.clone())),
            Err(AskError::Refused { code: 404, message }) => return Err(UserError::NotKept(message)),
            made => made?,
        };
        let account = of(&made, false).ok_or_else(|| UserError::NoUser(new.name.clone()))?;
        if let Err(error) = self.furnish(server, &account, new).await {
            // What is left of it counts for no other account; the error says what to do.
            let _ = grants::grant(server, &new.name, &[]).await;
            let _ = server.delete(&binding_path(&new.name)).await;
            let _ = server.delete(&format!("{}/{}", names::accounts(), new.name)).await;
            return Err(error);
        }
        Ok(())
    }

    /// All of a new user but the account.
    async fn furnish(&self, server: &Server, account: &Account, new: &NewUser) -> Result<(), UserError> {
        // What an earlier user of the name has left goes first: a binding names its subject, not the account's uid.
        optional(server.delete(&binding_path(&account.name)).await)?;
        self.end_all_tokens(&account.name).await?;
        let hash = self.hash(&new.password).await?;
        write_password(server, account, &hash).await?;
        grants::grant(server, &account.name, &new.virtual_clusters).await?;
        if new.is_admin {
            set_admin(server, account, true).await?;
        }
        Ok(())
    }

    /// Changes a user, with the caller's rights. With a new password all tokens of the user end.
    ///
    /// # Errors
    /// There is no such user, something is not allowed, or the hub refuses.
    pub async fn change(&self, server: &Server, name: &str, change: &UserChange) -> Result<(), UserError> {
        // Who may not read accounts learns nothing, and makes nobody compute hashes.
        let account = account(server, name).await?;
        if let Some(password) = &change.password {
            passwords::check(password)?;
        }
        if let Some(email) = &change.email {
            set_email(server, name, email).await?;
        }
        if let Some(is_admin) = change.is_admin {
            set_admin(server, &account, is_admin).await?;
        }
        if let Some(virtual_clusters) = &change.virtual_clusters {
            grants::grant(server, name, virtual_clusters).await?;
        }
        if let Some(password) = &change.password {
            let hash = self.hash(password).await?;
            write_password(server, &account, &hash).await?;
            self.end_all_tokens(name).await?;
        }
        Ok(())
    }

    /// Deletes a user with all tokens and grants. Jobs stay.
    ///
    /// # Errors
    /// There is no such user, it is an administrator, or the hub refuses.
    pub async fn delete(&self, server: &Server, name: &str) -> Result<(), UserError> {
        let account = account(server, name).await?;
        if account.is_admin {
            let told = format!("user {name}: found an administrator; allowed: one that is none any more");
            return Err(UserError::Forbidden(told));
        }
        // Or else a later user of the name would have them.
        grants::grant(server, name, &[]).await?;
        // With the account all its tokens end, and the hub collects what it owns.
        optional(server.delete(&format!("{}/{name}", names::accounts())).await)?;
        let path = format!("{}/{}", names::secrets(), names::password(name));
        optional(server.delete(&path).await)?;
        self.end_all_tokens(name).await
    }
}
