//! The shell of the scheduler: its configuration, decisions about gangs with reserved places, and its writes.
//! [`fleet_scheduler`] decides about all other pods.

pub(crate) mod binding;
pub(crate) mod conf;
pub(crate) mod extender;
pub(crate) mod fresh;
pub(crate) mod loads;
pub(crate) mod placing;
pub(crate) mod status;
pub(crate) mod write;
