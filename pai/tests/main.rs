//! Submitted protocols, from reading to the end of a job. One program, because each linked test costs time and disk.

mod common;
mod life;
mod native;
mod protocol;
mod rules;
