//! The agent between a hub and a member. One program, because each linked test costs time and disk.

mod agent;
mod bed;
mod crash;
mod fencing;
mod standby;
