//! The simulated clusters from outside. One program, because each linked test costs time and disk.

mod hollow;
mod local_fleet;
mod plays;
mod restore;
mod shared;
mod stages;
mod writes;
