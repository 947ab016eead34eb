//! Reading packed bytes: single fields, and trees.

use super::*;
use crate::dict::{Dict, Shared};
use serde_json::{Map, Number, Value};
use std::borrow::Cow;

/// True if packed bytes are complete: every reference exists, and nothing is cut off. Bytes from a disk have their
/// own checksum; this finds those that depend on a lost shared value.
pub fn sound(dict: &Dict, packed: &[u8]) -> bool {
    let mut node = Node::new(dict, "", packed);
    node.whole(DEPTH) && node.buf.is_empty()
}

/// A position in a packed object. Reading past the end or through an unknown reference yields null: bytes from a
/// disk are checked before.
#[derive(Clone, Copy)]
pub struct Node<'a> {
    pub(super) dict: &'a Dict,
    pub(super) key: &'a str,
    pub(super) buf: &'a [u8],
}

impl<'a> Node<'a> {
    /// The root of a packed object.
    #[inline]
    pub fn new(dict: &'a Dict, key: &'a str, buf: &'a [u8]) -> Node<'a> {
        Node { dict, key, buf }
    }

    pub(super) fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.buf.split_first() else { return NULL };
        self.buf = rest;
        *first
    }

    pub(super) fn varint(&mut self) -> u64 {
        let (mut n, mut shift) = (0u64, 0);
        loop {
            let b = self.byte();
            n |= u64::from(b & 0x7f).checked_shl(shift).unwrap_or_default();
            if b < 0x80 {
                return n;
            }
            shift += 7;
        }
    }

    fn take(&mut self, n: usize) -> &'a [u8] {
        let (head, rest) = self.buf.split_at(n.min(self.buf.len()));
        self.buf = rest;
        head
    }

    pub(super) fn str(&mut self, n: usize) -> &'a str {
        std::str::from_utf8(self.take(n)).unwrap_or_default()
    }

    pub(super) fn field(&mut self) -> &'a str {
        let n = self.varint();
        if n & 1 == 1 {
            self.dict.text((n >> 1) as u32).unwrap_or_default()
        } else {
            self.str((n >> 1) as usize)
        }
    }

    pub(super) fn near(&mut self, tag: u8) -> u32 {
        u32::from(tag - NEAR) << 8 | u32::from(self.byte())
    }

    /// Past references, at a node with a tag of its own; texts in the dictionary are returned.
    fn resolved(mut self) -> Result<Node<'a>, &'a str> {
        for _ in 0..DEPTH {
            let mut next = self;
            let id = match next.byte() {
                SHARED => next.varint() as u32,
                tag if tag >= NEAR => next.near(tag),
                _ => return Ok(self),
            };
            match self.dict.get(id).map(|e| &e.shared) {
                Some(Shared::Text(t)) => return Err(t),
                Some(Shared::Tree(t)) => self.buf = t,
                None => self.buf = &[],
            }
        }
        self.buf = &[];
        Ok(self)
    }

    pub(super) fn skip(&mut self) {
        // Counted, not recursive: containers only add to what is left to pass.
        let mut left = 1u64;
        while left > 0 && !self.buf.is_empty() {
            left -= 1;
            match self.byte() {
                POSITIVE | NEGATIVE | SHARED | TIME | DIGITS => {
                    self.varint();
                }
                FLOAT => {
                    self.take(8);
                }
                TEXT => {
                    let n = self.varint() as usize;
                    self.take(n);
                }
                UUID => {
                    self.take(16);
                }
                IPV4 => {
                    self.take(4);
                }
                ARRAY => left = left.saturating_add(self.varint()),
                OBJECT => {
                    for _ in 0..self.varint() {
                        if self.buf.is_empty() {
                            return;
                        }
                        self.field();
                        self.skip();
                    }
                }
                tag if tag >= NEAR => {
                    self.near(tag);
                }
                _ => {}
            }
        }
    }

    /// The value of a field.
    #[inline]
    pub fn get(self, name: &str) -> Option<Node<'a>> {
        let mut node = self.resolved().ok()?;
        if node.byte() != OBJECT {
            return None;
        }
        for _ in 0..node.varint() {
            if node.field() == name {
                return Some(node);
            }
            if node.buf.is_empty() {
                return None;
            }
            node.skip();
        }
        None
    }

    /// The value at a chain of fields.
    #[inline]
    pub fn at<S: AsRef<str>>(self, path: &[S]) -> Option<Node<'a>> {
        path.iter().try_fold(self, |node, name| node.get(name.as_ref()))
    }

    /// The items of a list; nothing when it is none.
    pub fn items(self) -> Vec<Node<'a>> {
        let mut out = Vec::new();
        let Ok(mut node) = self.resolved() else { return out };
        if node.byte() == ARRAY {
            for _ in 0..node.varint() {
                if node.buf.is_empty() {
                    break;
                }
                out.push(node);
                node.skip();
            }
        }
        out
    }

    /// The text here, when it is one.
    #[inline]
    pub fn text(self) -> Option<Cow<'a, str>> {
        let mut node = match self.resolved() {
            Ok(node) => node,
            Err(text) => return Some(Cow::Borrowed(text)),
        };
        let tag = node.byte();
        node.plain_text(tag)
    }

    fn plain_text(&mut self, tag: u8) -> Option<Cow<'a, str>> {
        Some(match tag {
            TEXT => {
                let n = self.varint() as usize;
                Cow::Borrowed(self.str(n))
            }
            UUID | TIME | DIGITS | IPV4 => {
                let mut out = Vec::with_capacity(uuid::fmt::Hyphenated::LENGTH);
                self.special(tag, &mut out);
                Cow::Owned(String::from_utf8(out).unwrap_or_default())
            }
            NAME => Cow::Borrowed(split(self.key).0),
            NAMESPACE => Cow::Borrowed(split(self.key).1),
            _ => return None,
        })
    }

    /// Appends a text that is kept in a shorter form.
    pub(super) fn special(&mut self, tag: u8, out: &mut Vec<u8>) {
        match tag {
            UUID => text::write_uuid(self.bytes(), out),
            TIME => text::write_time(self.varint(), out),
            IPV4 => text::write_ipv4(self.bytes(), out),
            _ => text::write_digits(self.varint(), out),
        }
    }

    fn bytes<const N: usize>(&mut self) -> [u8; N] {
        let mut bytes = [0; N];
        let found = self.take(N);
        bytes[..found.len()].copy_from_slice(found);
        bytes
    }

    /// A number other than a small one.
    pub(super) fn number(&mut self, tag: u8) -> Value {
        match tag {
            POSITIVE => self.varint().into(),
            NEGATIVE => (!(self.varint() as i64)).into(),
            _ => {
                let float = f64::from_bits(u64::from_le_bytes(self.bytes()));
                Number::from_f64(float).map_or(Value::Null, Value::Number)
            }
        }
    }

    /// The value here as a tree.
    #[inline]
    pub fn value(mut self) -> Value {
        self.read(DEPTH)
    }

    fn read(&mut self, depth: usize) -> Value {
        if depth == 0 {
            return Value::Null;
        }
        let tag = self.byte();
        match tag {
            NULL => Value::Null,
            FALSE => Value::Bool(false),
            TRUE => Value::Bool(true),
            POSITIVE | NEGATIVE | FLOAT => self.number(tag),
            OBJECT => {
                let mut map = Map::new();
                for _ in 0..self.varint() {
                    if self.buf.is_empty() {
                        break;
                    }
                    let key = self.field().to_string();
                    map.insert(key, self.read(depth - 1));
                }
                Value::Object(map)
            }
            ARRAY => {
                let mut list = Vec::new();
                for _ in 0..self.varint() {
                    if self.buf.is_empty() {
                        break;
                    }
                    list.push(self.read(depth - 1));
                }
                Value::Array(list)
            }
            SHARED => {
                let id = self.varint() as u32;
                self.entry(id, depth)
            }
            tag if tag >= NEAR => {
                let id = self.near(tag);
                self.entry(id, depth)
            }
            tag if (SMALL..SMALL + 16).contains(&tag) => (tag - SMALL).into(),
            tag => self.plain_text(tag).map_or(Value::Null, |t| Value::String(t.into_owned())),
        }
    }

    fn whole(&mut self, depth: usize) -> bool {
        if depth == 0 || self.buf.is_empty() {
            return false;
        }
        let entry = |id: u32| match self.dict.get(id).map(|e| &e.shared) {
            Some(Shared::Text(_)) => true,
            Some(Shared::Tree(t)) => Node { buf: t, ..*self }.whole(depth - 1),
            None => false,
        };
        let mut ahead = *self;
        match ahead.byte() {
            HOLE => return false,
            SHARED => {
                if !entry(ahead.varint() as u32) {
                    return false;
                }
            }
            tag if tag >= NEAR => {
                if !entry(ahead.near(tag)) {
                    return false;
                }
            }
            ARRAY => {
                for _ in 0..ahead.varint() {
                    if !ahead.whole(depth - 1) {
                        return false;
                    }
                }
            }
            OBJECT => {
                for _ in 0..ahead.varint() {
                    let mut key = ahead;
                    let n = key.varint();
                    if n & 1 == 1 && self.dict.text((n >> 1) as u32).is_none() {
                        return false;
                    }
                    ahead.field();
                    if !ahead.whole(depth - 1) {
                        return false;
                    }
                }
            }
            _ => {
                ahead = *self;
                ahead.skip();
            }
        }
        *self = ahead;
        true
    }

    fn entry(&self, id: u32, depth: usize) -> Value {
        match self.dict.get(id).map(|e| &e.shared) {
            Some(Shared::Text(t)) => Value::String(t.to_string()),
            Some(Shared::Tree(t)) => Node { buf: t, ..*self }.read(depth - 1),
            None => Value::Null,
        }
    }

    /// The whole object as a tree, with its resourceVersion, with or without its managedFields.
    pub fn object(mut self, rv: u64, managed: bool) -> Value {
        let mut root = Map::new();
        if self.byte() == OBJECT {
            for _ in 0..self.varint() {
                let key = self.field();
                let mut ahead = self;
                let value = if key == "metadata" && ahead.byte() == OBJECT {
                    self.byte();
                    let mut meta = Map::new();
                    for _ in 0..self.varint() {
                        let key = self.field();
                        if key == "managedFields" && !managed {
                            self.skip();
                        } else {
                            meta.insert(key.to_string(), self.read(DEPTH));
                        }
                    }
                    meta.insert("resourceVersion".into(), rv.to_string().into());
                    Value::Object(meta)
                } else {
                    self.read(DEPTH)
                };
                root.insert(key.to_string(), value);
            }
        }
        Value::Object(root)
    }
}
