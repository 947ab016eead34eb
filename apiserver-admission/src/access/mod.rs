//! Access: identities, tokens, certificates, roles, and limits of each caller.
//!
//! Inputs: headers and certificates of requests, and accounts, roles and bindings in the store. Absent on purpose:
//! what the requests do.

pub mod accounts;
pub mod auth;
pub mod levels;
pub mod node;
pub mod pki;
pub mod question;
pub mod rbac;
pub mod secrets;
pub mod shares;
pub mod signer;
pub mod user;
