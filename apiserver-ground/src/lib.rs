//! The base of the server: trees and packed objects, tables with their commit logs, the store and its file.
//!
//! Inputs: objects as trees. Absent on purpose: kinds, requests and callers.

pub mod answers;
pub mod clock;
pub mod dict;
pub mod digest;
pub mod disk;
pub mod feed;
pub mod ids;
pub mod incarnation;
pub mod named;
pub mod nesting;
pub mod obj;
pub mod packed;
pub mod private;
pub mod published;
pub mod quantity;
mod rewind;
pub mod room;
pub mod store;
pub mod table;
pub mod tree;
