//! How commands print: tables, the width and colours of the terminal, progress, templates of `-o jsonpath`.
//!
//! Inputs: text, and data as JSON. Not here: which columns a kind has, and anything of a cluster.

pub mod jsonpath;
pub mod progress;
pub mod table;
pub mod terminal;
