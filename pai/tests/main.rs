//! Submitted protocols, from reading to the end of a job. One program, because each linked test costs time and disk.

mod bounds;
mod common;
mod native;
mod protocol;
mod rules;
