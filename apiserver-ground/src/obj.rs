//! One stored version of an object.
//!
//! Inputs: packed bytes and the dictionary they refer to. Trees and JSON are made when asked for and not kept.

use crate::dict::{Dict, Dicts};
use crate::packed::{self, Node};
use bytes::Bytes;
use serde_json::Value;
use std::borrow::Borrow;
use std::cmp::Ordering;
use std::sync::Arc;

/// One stored version of an object.
#[derive(Debug)]
pub struct Obj {
    /// `namespace/name`, or `name` for cluster-scoped kinds.
    pub key: Box<str>,
    /// Revision of this version.
    pub rv: u64,
    dict: Arc<Dict>,
    packed: Box<[u8]>,
}

impl Obj {
    /// An object as it will be stored.
    pub fn new(dicts: &Dicts, key: &str, rv: u64, value: &Value) -> Obj {
        let dict = dicts.current();
        let packed = packed::pack(&dict, key, value);
        Obj { key: key.into(), rv, dict, packed }
    }

    /// An object as it was found on disk.
    pub fn restored(key: &str, rv: u64, dict: Arc<Dict>, packed: &[u8]) -> Obj {
        Obj { key: key.into(), rv, dict, packed: packed.into() }
    }

    /// The same state with another revision.
    pub fn at_revision(&self, rv: u64) -> Obj {
        Obj { key: self.key.clone(), rv, dict: self.dict.clone(), packed: self.packed.clone() }
    }

    /// Sets the revision of a version that was packed before the revision was known.
    pub fn numbered(mut self, rv: u64) -> Obj {
        self.rv = rv;
        self
    }

    /// Dictionary and bytes.
    #[inline]
    pub fn parts(&self) -> (&Arc<Dict>, &[u8]) {
        (&self.dict, &self.packed)
    }

    /// For reading single fields. There is no resourceVersion in it: see `rv`.
    #[inline]
    pub fn node(&self) -> Node<'_> {
        Node::new(&self.dict, &self.key, &self.packed)
    }

    /// The object with its resourceVersion, without managedFields.
    #[inline]
    pub fn value(&self) -> Value {
        self.node().object(self.rv, false)
    }

    /// The whole object, with its managedFields.
    #[inline]
    pub fn full(&self) -> Value {
        self.node().object(self.rv, true)
    }

    /// The whole object as JSON.
    #[inline]
    pub fn json(&self) -> Bytes {
        let mut out = Vec::with_capacity(4096);
        self.node().object_json(self.rv, &[], &mut out);
        out.into()
    }

    /// Appends the whole object as JSON, without some of its fields.
    pub fn write_json(&self, without: &[&str], out: &mut Vec<u8>) {
        self.node().object_json(self.rv, without, out);
    }

    /// True when there is something at a chain of fields.
    #[inline]
    pub fn has(&self, path: &[&str]) -> bool {
        self.node().at(path).is_some()
    }

    /// What is at a chain of fields.
    #[inline]
    pub fn at(&self, path: &[&str]) -> Option<Value> {
        self.node().at(path).map(Node::value)
    }

    /// The text at a chain of fields, or "".
    #[inline]
    pub fn text(&self, path: &[&str]) -> String {
        self.node().at(path).and_then(Node::text).map(|t| t.into_owned()).unwrap_or_default()
    }

    /// The whole number at a chain of fields, or 0.
    #[inline]
    pub fn number(&self, path: &[&str]) -> i64 {
        self.at(path).and_then(|v| v.as_i64()).unwrap_or_default()
    }

    /// The list at a chain of fields, or nothing.
    #[inline]
    pub fn list(&self, path: &[&str]) -> Vec<Value> {
        self.node().at(path).map(|n| n.items().into_iter().map(Node::value).collect()).unwrap_or_default()
    }

    /// A metadata text, or "".
    #[inline]
    pub fn meta_text(&self, key: &str) -> String {
        self.text(&["metadata", key])
    }

    /// True once its deletion has begun.
    #[inline]
    pub fn deleting(&self) -> bool {
        self.has(&["metadata", "deletionTimestamp"])
    }

    /// Bytes of this version, without the dictionary and the allocator's overhead.
    #[inline]
    pub fn size(&self) -> usize {
        self.packed.len() + self.key.len() + size_of::<Obj>()
    }
}

/// An object in the order of keys, so that a table keeps each key once.
#[derive(Debug, Clone)]
pub struct ByKey(pub Arc<Obj>);

impl Borrow<str> for ByKey {
    fn borrow(&self) -> &str {
        &self.0.key
    }
}

impl PartialEq for ByKey {
    fn eq(&self, other: &ByKey) -> bool {
        self.0.key == other.0.key
    }
}

impl Eq for ByKey {}

impl PartialOrd for ByKey {
    fn partial_cmp(&self, other: &ByKey) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for ByKey {
    fn cmp(&self, other: &ByKey) -> Ordering {
        self.0.key.cmp(&other.0.key)
    }
}
