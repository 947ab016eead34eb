//! The program `fleet`, as a user starts it. One program, because each linked test costs time and disk.

mod hostile;
mod join;
mod leave;
mod program;
mod remarks;
mod scheduler_conf;
mod sim;
mod terminal;
