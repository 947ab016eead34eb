//! Where the API is.

pub const PREFIX: &str = "/api/fleet/v1";
