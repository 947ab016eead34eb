//! From JSON trees to packed bytes.

use super::*;
use crate::dict::{Dict, Index, Kind, Shared, hash};
use serde_json::{Map, Number, Value};
use std::cell::RefCell;
use std::sync::RwLockReadGuard;

thread_local! {
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Packs an object; its resourceVersion is left out.
pub fn pack(dict: &Dict, key: &str, value: &Value) -> Box<[u8]> {
    SCRATCH.with_borrow_mut(|out| {
        out.clear();
        let (name, namespace) = split(key);
        let owner = hash(key.as_bytes()) as u32;
        Packer { dict, index: Some(dict.index()), out, owner, name, namespace }.root(value);
        out.as_slice().into()
    })
}

struct Packer<'a> {
    dict: &'a Dict,
    index: Option<RwLockReadGuard<'a, Index>>,
    out: &'a mut Vec<u8>,
    owner: u32,
    name: &'a str,
    namespace: &'a str,
}

impl Packer<'_> {
    fn root(&mut self, value: &Value) {
        let Value::Object(map) = value else {
            self.value(value);
            return;
        };
        self.out.push(OBJECT);
        self.varint(map.len() as u64);
        for (key, value) in map {
            self.key(key);
            match value {
                Value::Object(meta) if key == "metadata" => self.metadata(meta),
                _ => {
                    self.value(value);
                }
            }
        }
    }

    fn metadata(&mut self, meta: &Map<String, Value>) {
        let versioned = usize::from(meta.contains_key("resourceVersion"));
        self.out.push(OBJECT);
        self.varint((meta.len() - versioned) as u64);
        for (key, value) in meta.iter().filter(|(k, _)| *k != "resourceVersion") {
            self.key(key);
            match value {
                Value::String(s) if key == "namespace" && s == self.namespace => self.out.push(NAMESPACE),
                _ => {
                    self.value(value);
                }
            }
        }
    }

    /// Writes a value; true when other objects may well have the same.
    fn value(&mut self, value: &Value) -> bool {
        let start = self.out.len();
        let common = match value {
            Value::Null => {
                self.out.push(NULL);
                return true;
            }
            Value::Bool(b) => {
                self.out.push(if *b { TRUE } else { FALSE });
                return true;
            }
            Value::Number(n) => {
                self.number(n);
                return true;
            }
            Value::String(s) => return self.text(s),
            Value::Object(map) => {
                self.out.push(OBJECT);
                self.varint(map.len() as u64);
                let mut common = true;
                for (key, value) in map {
                    common &= self.key(key);
                    common &= self.value(value);
                }
                common
            }
            Value::Array(list) => {
                self.out.push(ARRAY);
                self.varint(list.len() as u64);
                let mut common = true;
                for value in list {
                    common &= self.value(value);
                }
                common
            }
        };
        let length = self.out.len() - start;
        if common && (TREE_LEAST..=TREE_MOST).contains(&length) {
            let id = self.share(Kind::Tree, start);
            if let Some(id) = id {
                self.out.truncate(start);
                self.reference(id);
            }
        }
        common
    }

    fn number(&mut self, n: &Number) {
        if let Some(n) = n.as_u64() {
            if n < 16 {
                self.out.push(SMALL + n as u8);
            } else {
                self.out.push(POSITIVE);
                self.varint(n);
            }
        } else if let Some(n) = n.as_i64() {
            self.out.push(NEGATIVE);
            self.varint(!n as u64);
        } else {
            self.out.push(FLOAT);
            self.out.extend_from_slice(&n.as_f64().unwrap_or_default().to_bits().to_le_bytes());
        }
    }

    fn text(&mut self, s: &str) -> bool {
        if s.len() >= *TEXT_LENGTHS.start() && s == self.name {
            self.out.push(NAME);
            return false;
        }
        let first = s.as_bytes().first().copied().unwrap_or_default();
        match s.len() {
            36 if s.as_bytes()[8] == b'-' => {
                if let Some(bytes) = text::uuid(s) {
                    self.out.push(UUID);
                    self.out.extend_from_slice(&bytes);
                    return false;
                }
            }
            20 if first.is_ascii_digit() && s.as_bytes()[19] == b'Z' => {
                if let Some(seconds) = text::time(s) {
                    self.out.push(TIME);
                    self.varint(seconds);
                    return false;
                }
            }
            1..=19 if first.is_ascii_digit() => {
                if let Some(n) = text::digits(s) {
                    self.out.push(DIGITS);
                    self.varint(n);
                    return true;
                }
                if let Some(ip) = text::ipv4(s) {
                    self.out.push(IPV4);
                    self.out.extend_from_slice(&ip);
                    return false;
                }
            }
            _ => {}
        }
        if TEXT_LENGTHS.contains(&s.len())
            && let Some(id) = self.share_text(s)
        {
            self.reference(id);
            return true;
        }
        self.out.push(TEXT);
        self.varint(s.len() as u64);
        self.out.extend_from_slice(s.as_bytes());
        s.len() < *TEXT_LENGTHS.start()
    }

    fn key(&mut self, key: &str) -> bool {
        if key.len() > 1
            && key.len() <= *TEXT_LENGTHS.end()
            && let Some(id) = self.share_text(key)
        {
            self.varint(u64::from(id) << 1 | 1);
            return true;
        }
        self.varint((key.len() as u64) << 1);
        self.out.extend_from_slice(key.as_bytes());
        key.len() <= 1
    }

    fn share_text(&mut self, s: &str) -> Option<u32> {
        let index = self.index.get_or_insert_with(|| self.dict.index());
        let (h, id) = self.dict.find(index, Kind::Text, s.as_bytes());
        if id.is_some() || !self.dict.again(h, self.owner) {
            return id;
        }
        self.index = None;
        self.dict.add(h, Shared::Text(s.into()))
    }

    /// The number of what was written since `start`, when it is shared.
    fn share(&mut self, kind: Kind, start: usize) -> Option<u32> {
        let bytes = &self.out[start..];
        let index = self.index.get_or_insert_with(|| self.dict.index());
        let (h, id) = self.dict.find(index, kind, bytes);
        if id.is_some() || !self.dict.again(h, self.owner) {
            return id;
        }
        self.index = None;
        self.dict.add(h, Shared::Tree(bytes.into()))
    }

    fn reference(&mut self, id: u32) {
        let near = u32::from(u8::MAX - NEAR + 1) << 8;
        if id < near {
            self.out.push(NEAR + (id >> 8) as u8);
            self.out.push(id as u8);
        } else {
            self.out.push(SHARED);
            self.varint(u64::from(id));
        }
    }

    fn varint(&mut self, mut n: u64) {
        while n >= 0x80 {
            self.out.push(n as u8 | 0x80);
            n >>= 7;
        }
        self.out.push(n as u8);
    }
}
