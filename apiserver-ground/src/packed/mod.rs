//! The compact form of a stored object: a binary JSON tree that refers to a dictionary for everything it shares
//! with other objects.
//!
//! Inputs: JSON trees. Pods of one template become a list of references and the few values that differ. Fields are
//! found (`node`), and JSON is written (`json`), without making a tree. The resourceVersion is not part of it: each
//! version has its own. Absent on purpose: which version is current (`store`).

mod encode;
mod json;
mod node;
#[cfg(test)]
mod tests;
mod text;

pub use encode::pack;
pub use node::{Node, sound};

// Tags of values.
const NULL: u8 = 0;
const FALSE: u8 = 1;
const TRUE: u8 = 2;
const POSITIVE: u8 = 3;
/// Minus one minus the value.
const NEGATIVE: u8 = 4;
const FLOAT: u8 = 5;
const TEXT: u8 = 6;
const OBJECT: u8 = 7;
const ARRAY: u8 = 8;
const SHARED: u8 = 9;
/// A lower-case UUID in 16 bytes.
const UUID: u8 = 10;
/// `YYYY-MM-DDTHH:MM:SSZ` as seconds since 1970.
const TIME: u8 = 11;
/// A text of decimal digits.
const DIGITS: u8 = 12;
/// An IPv4 address as text.
const IPV4: u8 = 13;
/// The name in the object's key.
const NAME: u8 = 14;
/// The namespace in the object's key.
const NAMESPACE: u8 = 15;
/// Marks a value that the disk lost; no undamaged object has it.
pub const HOLE: u8 = 32;
/// Whole numbers below 16 in one byte.
const SMALL: u8 = 16;
/// References below 24 * 256 in two bytes, from here up.
const NEAR: u8 = 232;

/// Texts outside these lengths are written out.
const TEXT_LENGTHS: std::ops::RangeInclusive<usize> = 4..=256;
/// Shorter subtrees gain nothing.
const TREE_LEAST: usize = 4;
/// Longer subtrees are their parts.
const TREE_MOST: usize = 2048;
/// No stored object has more than 108 levels (see `nesting`); references may add as many again.
const DEPTH: usize = 300;

/// Name and namespace of a table key.
pub fn split(key: &str) -> (&str, &str) {
    key.split_once('/').map_or((key, ""), |(namespace, name)| (name, namespace))
}
