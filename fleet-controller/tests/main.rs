//! The controller on a hub. One program, because each linked test costs time and disk.

mod election;
mod failover;
mod hub;
mod main_job;
