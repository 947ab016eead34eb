//! What the commands of `fleet` stand on: the connection to a hub and its members, the kinds that they serve, the
//! arguments that many commands have, and the [`Answer`](answer::Answer) of a command with its lists and formats.
//!
//! Inputs: a kubeconfig, and the hub's Clusters. Deliberately absent: commands.

pub mod age;
pub mod answer;
pub mod apply;
pub mod args;
pub mod columns;
pub mod connect;
pub mod discovery;
pub mod listing;
pub mod members;
pub mod output;
pub mod server;
