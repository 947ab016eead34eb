//! What a process does for users with a credential of its own: it knows them by their passwords, and lets each change his own.

use serde_json::json;

use super::{
    accounts::{self, Account},
    attempts::Attempts,
    error::UserError,
    grants, names,
    passwords::{self, Hasher},
};
use crate::server::{AskError, Server};

/// The users of a hub, as a process keeps them that has rights in their namespace.
pub struct Users {
    /// The hub with the process's own credential.
    pub(super) own: Server,
    /// Namespace of the users' jobs.
    jobs: String,
    hasher: Hasher,
    is_behind_proxy: bool,
    pub attempts: Attempts,
}

/// A user whose password was right: the account that the password belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Known {
    pub name: String,
    pub(super) uid: String,
}

impl Users {
    pub fn new(own: Server, jobs: String) -> Self {
        Self { own, jobs, hasher: Hasher::default(), is_behind_proxy: false, attempts: Attempts::default() }
    }

    /// All requests come through a proxy, which says in `X-Forwarded-For` where from.
    #[must_use]
    pub fn behind_proxy(self, is_behind_proxy: bool) -> Self {
        Self { is_behind_proxy, ..self }
    }

    pub fn is_behind_proxy(&self) -> bool {
        self.is_behind_proxy
    }

    /// The user with that name and password.
    ///
    /// # Errors
    /// There is none, the hub does not answer, or too many passwords are being checked. The answer and its time are the
    /// same for a wrong name and a wrong password.
    pub async fn known(&self, name: &str, password: &str) -> Result<Known, UserError> {
        let kept = if names::is_user(name) { self.kept(name).await? } else { None };
        let (hash, uid) = kept.unzip();
        let is_right = self.hasher.verify(hash, password).await?;
        match uid.filter(|_| is_right) {
            Some(uid) => Ok(Known { name: name.to_owned(), uid }),
            None => Err(UserError::WrongPassword),
        }
    }

    /// The hash of a user's password, and the account that it belongs to.
    async fn kept(&self, name: &str) -> Result<Option<(String, String)>, UserError> {
        let path = format!("{}/{}", names::secrets(), names::password(name));
        let secret = match self.own.object(&path).await {
            Ok(secret) => secret,
            Err(error) if error.is_not_found() => return Ok(None),
            Err(AskError::Refused { code: 403, message }) => return Err(UserError::NotKept(message)),
            Err(error) => return Err(error.into()),
        };
        Ok(passwords::stored(&secret).zip(names::owner(&secret)))
    }

    /// Changes the password of a user who has shown the old one. All tokens of the user end.
    ///
    /// # Errors
    /// The new one is not allowed, the account was replaced meanwhile, or the hub refuses.
    pub async fn change_password(&self, known: &Known, new: &str) -> Result<(), UserError> {
        passwords::check(new)?;
        let hash = self.hasher.hash(new).await?;
        let path = format!("{}/{}", names::secrets(), names::password(&known.name));
        let before = self.own.object(&path).await?;
        if names::owner(&before).as_ref() != Some(&known.uid) {
            return Err(UserError::WrongPassword);
        }
        let version = &before["metadata"]["resourceVersion"];
        let patch = json!({"metadata": {"resourceVersion": version}, "stringData": {passwords::KEY: hash}});
        match self.own.merge(&path, &patch).await {
            Err(error) if error.is_conflict() => {
                let message = format!("the password of {} was changed at the same time", known.name);
                return Err(UserError::Conflict(message));
            }
            done => done?,
        };
        self.end_all_tokens(&known.name).await
    }

    /// The hash of a new password.
    ///
    /// # Errors
    /// It is not allowed, or too many are being computed.
    pub async fn hash(&self, password: &str) -> Result<String, UserError> {
        passwords::check(password)?;
        self.hasher.hash(password).await
    }

    /// A user as his account shows him.
    ///
    /// # Errors
    /// There is none, or the hub does not answer.
    pub async fn account(&self, name: &str) -> Result<Account, UserError> {
        accounts::account(&self.own, name).await
    }

    /// Writes the email address of a user who asks for it himself.
    ///
    /// # Errors
    /// It is not allowed, or the hub refuses.
    pub async fn set_own_email(&self, name: &str, email: &str) -> Result<(), UserError> {
        accounts::set_email(&self.own, name, email).await
    }

    /// Who may use which virtual cluster, as the process may read it.
    ///
    /// # Errors
    /// The hub does not answer.
    pub async fn rules(&self) -> Result<grants::Rules, UserError> {
        let mut rules = grants::rules(&self.own).await?;
        rules.jobs.clone_from(&self.jobs);
        Ok(rules)
    }
}
