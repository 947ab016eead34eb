//! Who asks, and what they may do: identities, tokens, certificates, roles, and the share of the server each caller has.
//!
//! Inputs: headers and certificates of requests, and accounts, roles and bindings in the store. Absent on purpose: what the
//! requests do.

pub mod accounts;
pub mod auth;
pub mod pki;
pub mod rbac;
pub mod secrets;
pub mod shares;
