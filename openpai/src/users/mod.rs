//! Users of OpenPAI's REST API, kept on the hub.
//!
//! A user is a ServiceAccount in a namespace of its own, so that RBAC is about it like about any other account. Beside it
//! are a Secret with the hash of its password, a RoleBinding if it is an administrator, and a Secret for each of its
//! tokens, to which the token is bound. All of them are owned by the account, and count only for the very account that
//! they were made for. Virtual clusters are granted in the access rules of the CellConfiguration.
//!
//! Accounts are written with the caller's credential ([`accounts`], `change`); the portal's own only checks passwords and
//! handles tokens (`keep`, [`tokens`]). Deliberately absent: groups, and rights of its own beside RBAC.

pub mod accounts;
pub mod attempts;
mod change;
mod error;
pub mod grants;
mod keep;
pub mod names;
pub mod passwords;
pub mod tokens;

pub use accounts::Account;
pub use change::{NewUser, UserChange};
pub use error::UserError;
pub use keep::{Known, Users};
pub use tokens::{Life, Token};
