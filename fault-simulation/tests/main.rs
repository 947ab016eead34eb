//! The simulation: its seeds, its deliberate bugs, and its judge. One program, because each linked test costs time and disk.

mod bugs;
mod cells;
mod directed;
mod dispatch;
mod oracle;
mod whole;
