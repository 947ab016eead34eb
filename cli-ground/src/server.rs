//! One API server, as the command line queries it.

pub use fleet_openpai::server::{AskError, HUB_PATIENCE, MEMBER_PATIENCE, Selectors, Server, innermost};
