//! Who asks: an identity, and where it came in.
//!
//! Absent on purpose: how it is proved (see `auth`), and what it may do (see `rbac`).

use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Who may do what.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Access {
    /// Everybody may do everything (tests).
    #[default]
    AlwaysAllow,
    /// Role-based access control; callers over the network must identify themselves.
    Rbac,
}

/// Where a request came in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Door {
    /// The in-process router: without an Authorization header the caller is an administrator.
    Process,
    /// The TLS listener.
    Network,
}

/// What the client certificate of a connection says; travels as an extension of its requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Certified {
    /// Signed by the server's authority, and valid at the handshake.
    User(User),
    /// A certificate the authority does not vouch for.
    Unknown,
}

/// An authenticated identity.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct User {
    /// User name.
    pub name: String,
    /// Groups.
    pub groups: Vec<String>,
    /// Uid, if known.
    pub uid: String,
    /// What else the authenticator knows, by key.
    pub extra: BTreeMap<String, Vec<String>>,
}

/// Every identified caller is in this group.
pub const AUTHENTICATED: &str = "system:authenticated";
/// Members of this group may do everything.
pub const MASTERS: &str = "system:masters";
/// Key under which the credential of a request is named.
pub const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";

impl User {
    /// A user without uid and extra.
    pub fn new(name: &str, groups: &[&str]) -> User {
        User { name: name.into(), groups: groups.iter().map(|g| g.to_string()).collect(), ..User::default() }
    }

    /// In `system:masters`.
    pub fn is_admin(&self) -> bool {
        self.groups.iter().any(|g| g == MASTERS)
    }
}

/// A user as reviews and webhooks show it.
pub fn info(user: &User) -> Value {
    let mut out = json!({"username": user.name, "groups": user.groups});
    if !user.uid.is_empty() {
        out["uid"] = json!(user.uid);
    }
    if !user.extra.is_empty() {
        out["extra"] = json!(user.extra);
    }
    out
}
