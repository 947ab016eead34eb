//! One API server as the command line asks it.

pub use fleet_portal::server::{AskError, HUB_PATIENCE, MEMBER_PATIENCE, Selectors, Server, innermost};
