//! Time of the agent: the wall clock is [`fleet_api::clock::Clock`], which follows tokio's time; back-offs
//! are the informer's.

pub use fleet_api::clock::Clock;
pub use fleet_informer::Backoff;
