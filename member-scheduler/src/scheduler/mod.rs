//! The shell of the scheduler: its configuration, what it decides for gangs with reserved places, and its writes. Which other
//! pods go where is decided by [`fleet_scheduler`].

pub(crate) mod binding;
pub(crate) mod conf;
pub(crate) mod extender;
pub(crate) mod fresh;
pub(crate) mod loads;
pub(crate) mod placing;
pub(crate) mod status;
pub(crate) mod write;
