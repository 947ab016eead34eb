//! The compact form of a stored object: a binary JSON tree that refers to a dictionary for whatever it shares with others.
//!
//! Inputs: JSON trees. Pods of one template come down to a list of references and the few values that differ. Fields are
//! found, and JSON is written, without making a tree. The resourceVersion is not part of it: a version carries its own.
//! Absent on purpose: which version is current (`store`).

use crate::dict::{Dict, Index, Kind, Shared, hash};
use serde_json::{Map, Number, Value};
use std::borrow::Cow;
use std::cell::RefCell;
use std::sync::RwLockReadGuard;

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
/// Stands for something a disk lost; nothing whole has it.
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
/// Bodies are limited to 128 levels when they are read; references may add as many again.
const DEPTH: usize = 300;

thread_local! {
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Name and namespace of a table key.
pub fn split(key: &str) -> (&str, &str) {
    key.split_once('/').map_or((key, ""), |(namespace, name)| (name, namespace))
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
                if let Some(bytes) = uuid(s) {
                    self.out.push(UUID);
                    self.out.extend_from_slice(&bytes);
                    return false;
                }
            }
            20 if first.is_ascii_digit() && s.as_bytes()[19] == b'Z' => {
                if let Some(seconds) = time(s) {
                    self.out.push(TIME);
                    self.varint(seconds);
                    return false;
                }
            }
            1..=19 if first.is_ascii_digit() => {
                if let Some(n) = digits(s) {
                    self.out.push(DIGITS);
                    self.varint(n);
                    return true;
                }
                if let Some(ip) = ipv4(s) {
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

fn uuid(s: &str) -> Option<[u8; 16]> {
    let id = uuid::Uuid::try_parse(s).ok()?;
    let mut text = [0; uuid::fmt::Hyphenated::LENGTH];
    (id.hyphenated().encode_lower(&mut text) == s).then(|| *id.as_bytes())
}

/// Seconds of a time after 1970 that is written back the same.
fn time(s: &str) -> Option<u64> {
    let t: jiff::Timestamp = s.parse().ok()?;
    let seconds = u64::try_from(t.as_second()).ok()?;
    (time_text(seconds)? == s).then_some(seconds)
}

fn time_text(seconds: u64) -> Option<String> {
    Some(jiff::Timestamp::from_second(i64::try_from(seconds).ok()?).ok()?.to_string())
}

fn digits(s: &str) -> Option<u64> {
    let plain = s.bytes().all(|b| b.is_ascii_digit()) && (s.len() == 1 || !s.starts_with('0'));
    if plain { s.parse().ok() } else { None }
}

fn ipv4(s: &str) -> Option<[u8; 4]> {
    // The parser refuses leading zeros, so the text comes back the same.
    s.parse::<std::net::Ipv4Addr>().ok().map(|ip| ip.octets())
}

/// True when packed bytes are whole: every reference leads to something, and nothing is cut off. Bytes from a disk have a
/// checksum of their own; this tells which of them depend on a shared value that was lost.
pub fn sound(dict: &Dict, packed: &[u8]) -> bool {
    let mut node = Node::new(dict, "", packed);
    node.whole(DEPTH) && node.buf.is_empty()
}

/// A place in a packed object. Reading past the end or through an unknown reference yields null: bytes from a disk are
/// checked before they get here.
#[derive(Clone, Copy)]
pub struct Node<'a> {
    dict: &'a Dict,
    key: &'a str,
    buf: &'a [u8],
}

impl<'a> Node<'a> {
    /// The root of a packed object.
    pub fn new(dict: &'a Dict, key: &'a str, buf: &'a [u8]) -> Node<'a> {
        Node { dict, key, buf }
    }

    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.buf.split_first() else { return NULL };
        self.buf = rest;
        *first
    }

    fn varint(&mut self) -> u64 {
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

    fn str(&mut self, n: usize) -> &'a str {
        std::str::from_utf8(self.take(n)).unwrap_or_default()
    }

    fn field(&mut self) -> Cow<'a, str> {
        let n = self.varint();
        if n & 1 == 1 {
            Cow::Borrowed(self.dict.text((n >> 1) as u32).unwrap_or_default())
        } else {
            Cow::Borrowed(self.str((n >> 1) as usize))
        }
    }

    fn near(&mut self, tag: u8) -> u32 {
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

    fn skip(&mut self) {
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
            UUID => {
                let mut bytes = [0; 16];
                let found = self.take(16);
                bytes[..found.len()].copy_from_slice(found);
                Cow::Owned(uuid::Uuid::from_bytes(bytes).to_string())
            }
            TIME => Cow::Owned(time_text(self.varint()).unwrap_or_default()),
            DIGITS => Cow::Owned(self.varint().to_string()),
            IPV4 => {
                let mut bytes = [0; 4];
                let found = self.take(4);
                bytes[..found.len()].copy_from_slice(found);
                Cow::Owned(std::net::Ipv4Addr::from(bytes).to_string())
            }
            NAME => Cow::Borrowed(split(self.key).0),
            NAMESPACE => Cow::Borrowed(split(self.key).1),
            _ => return None,
        })
    }

    /// The value here as a tree.
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
            POSITIVE => self.varint().into(),
            NEGATIVE => (!(self.varint() as i64)).into(),
            FLOAT => {
                let mut bytes = [0; 8];
                let found = self.take(8);
                bytes[..found.len()].copy_from_slice(found);
                Number::from_f64(f64::from_bits(u64::from_le_bytes(bytes))).map_or(Value::Null, Value::Number)
            }
            OBJECT => {
                let mut map = Map::new();
                for _ in 0..self.varint() {
                    if self.buf.is_empty() {
                        break;
                    }
                    let key = self.field().into_owned();
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
                            meta.insert(key.into_owned(), self.read(DEPTH));
                        }
                    }
                    meta.insert("resourceVersion".into(), rv.to_string().into());
                    Value::Object(meta)
                } else {
                    self.read(DEPTH)
                };
                root.insert(key.into_owned(), value);
            }
        }
        Value::Object(root)
    }

    /// The whole object as JSON, with its resourceVersion.
    pub fn object_json(mut self, rv: u64, out: &mut Vec<u8>) {
        out.push(b'{');
        if self.byte() == OBJECT {
            for i in 0..self.varint() {
                if i > 0 {
                    out.push(b',');
                }
                let mut ahead = self;
                if ahead.field() != "metadata" || ahead.byte() != OBJECT {
                    self.json_field(out);
                    self.json(out, DEPTH);
                    continue;
                }
                self = ahead;
                out.extend_from_slice(b"\"metadata\":{\"resourceVersion\":\"");
                out.extend_from_slice(rv.to_string().as_bytes());
                out.push(b'"');
                for _ in 0..self.varint() {
                    out.push(b',');
                    self.json_field(out);
                    self.json(out, DEPTH);
                }
                out.push(b'}');
            }
        }
        out.push(b'}');
    }

    fn json_field(&mut self, out: &mut Vec<u8>) {
        let mut ahead = *self;
        let n = ahead.varint();
        if n & 1 == 1 {
            *self = ahead;
            self.json_entry((n >> 1) as u32, out, DEPTH);
        } else {
            let key = self.field();
            json_text(&key, out);
        }
        out.push(b':');
    }

    fn json_entry(&self, id: u32, out: &mut Vec<u8>, depth: usize) {
        let Some(entry) = self.dict.get(id) else {
            out.extend_from_slice(b"null");
            return;
        };
        let text = entry.json.get_or_init(|| {
            let mut text = Vec::new();
            match &entry.shared {
                Shared::Text(t) => json_text(t, &mut text),
                Shared::Tree(t) => Node { buf: t, ..*self }.json(&mut text, depth - 1),
            }
            String::from_utf8(text).unwrap_or_default().into()
        });
        out.extend_from_slice(text.as_bytes());
    }

    fn json(&mut self, out: &mut Vec<u8>, depth: usize) {
        if depth == 0 {
            out.extend_from_slice(b"null");
            return;
        }
        let mut ahead = *self;
        let tag = ahead.byte();
        match tag {
            OBJECT => {
                *self = ahead;
                out.push(b'{');
                for i in 0..self.varint() {
                    if self.buf.is_empty() {
                        break;
                    }
                    if i > 0 {
                        out.push(b',');
                    }
                    self.json_field(out);
                    self.json(out, depth - 1);
                }
                out.push(b'}');
            }
            ARRAY => {
                *self = ahead;
                out.push(b'[');
                for i in 0..self.varint() {
                    if self.buf.is_empty() {
                        break;
                    }
                    if i > 0 {
                        out.push(b',');
                    }
                    self.json(out, depth - 1);
                }
                out.push(b']');
            }
            SHARED => {
                *self = ahead;
                let id = self.varint() as u32;
                self.json_entry(id, out, depth);
            }
            tag if tag >= NEAR => {
                *self = ahead;
                let id = self.near(tag);
                self.json_entry(id, out, depth);
            }
            tag => {
                let mut after = ahead;
                if let Some(text) = after.plain_text(tag) {
                    *self = after;
                    json_text(&text, out);
                } else {
                    // Numbers, booleans and null.
                    let value = self.read(1);
                    let _ = serde_json::to_writer(&mut *out, &value);
                }
            }
        }
    }
}

fn json_text(text: &str, out: &mut Vec<u8>) {
    // Writing a string to memory cannot fail.
    let _ = serde_json::to_writer(out, text);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn round(dict: &Dict, key: &str, value: &Value) -> usize {
        let packed = pack(dict, key, value);
        let node = Node::new(dict, key, &packed);
        let mut expect = value.clone();
        if let Some(meta) = expect.get_mut("metadata").and_then(Value::as_object_mut) {
            meta.insert("resourceVersion".into(), "7".into());
        }
        assert_eq!(node.object(7, true), expect);
        let mut text = Vec::new();
        node.object_json(7, &mut text);
        assert_eq!(
            serde_json::from_slice::<Value>(&text).unwrap(),
            expect,
            "{}",
            String::from_utf8_lossy(&text)
        );
        for (key, part) in value.as_object().into_iter().flatten().filter(|(k, _)| *k != "metadata") {
            assert_eq!(node.get(key).map(Node::value).as_ref(), Some(part));
        }
        packed.len()
    }

    fn pod(i: usize) -> Value {
        json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": format!("pod-{i:06}"), "namespace": "default", "resourceVersion": "1",
                "uid": uuid::Uuid::from_u128(i as u128).to_string(), "creationTimestamp": "2026-11-21T12:00:00Z",
                "labels": {"job": "train", "rank": i.to_string()},
                "managedFields": [{"manager": "bench", "operation": "Update", "time": "2026-11-21T12:00:00Z",
                    "fieldsV1": {"f:spec": {"f:containers": {"k:{\"name\":\"main\"}": {".": {}, "f:image": {}}}}}}]},
            "spec": {"restartPolicy": "Always", "hostname": format!("pod-{i:06}"), "containers": [{"name": "main",
                "image": "registry/train:1", "env": [{"name": "RANK", "value": i.to_string()}],
                "resources": {"limits": {"cpu": "8", "memory": "64Gi"}, "requests": {"cpu": "8", "memory": "64Gi"}}}]},
            "status": {"phase": "Pending", "podIP": format!("10.0.{}.{}", i / 256, i % 256)}})
    }

    #[test]
    fn pods_of_one_template_come_down_to_their_differences() {
        let dict = Dict::new(1);
        let sizes: Vec<usize> =
            (0..40).map(|i| round(&dict, &format!("default/pod-{i:06}"), &pod(i))).collect();
        assert!(sizes[0] > 400 && sizes[39] < 150, "{sizes:?}");
        let key = "default/pod-000001";
        let packed = pack(&dict, key, &pod(1));
        let node = Node::new(&dict, key, &packed);
        assert_eq!(node.at(&["metadata", "labels", "rank"]).and_then(Node::text).as_deref(), Some("1"));
        assert_eq!(node.at(&["spec", "containers"]).map(|n| n.items().len()), Some(1));
        assert!(node.at(&["spec", "nodeName"]).is_none());
        assert!(node.object(1, false)["metadata"].get("managedFields").is_none());
    }

    #[test]
    fn texts_that_only_look_special_come_back_as_they_were() {
        let odd = [
            "007",
            "0",
            "18446744073709551616",
            "1.2.3.4",
            "01.2.3.4",
            "1.2.3",
            "2026-11-21T12:00:00Z",
            "2026-13-21T12:00:00Z",
            "1969-11-21T12:00:00Z",
            "2026-11-21T24:00:00Z",
            "9E2B8C1A-0000-4000-8000-000000000000",
            "9e2b8c1a-0000-4000-8000-000000000000",
            "",
            "n",
            "\u{0}\"\\é",
        ];
        let dict = Dict::new(1);
        for i in 0..4 {
            let list: Vec<Value> = odd.iter().map(|s| json!(s)).collect();
            let value =
                json!({"a": list, "n": [0, 15, 16, -1, i64::MIN, u64::MAX, 1.5, -0.0, true, null, {}, []]});
            round(&dict, &format!("x/n{i}"), &value);
        }
    }

    fn tree() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<i32>().prop_map(|n| Value::from(f64::from(n) / 8.0)),
            "[a-z0-9.:-]{0,6}".prop_map(Value::from),
            ".{0,40}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 48, 6, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
                prop::collection::btree_map("[a-c]{1,4}", inner, 0..6)
                    .prop_map(|m| Value::Object(m.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn any_object_comes_back(values in prop::collection::vec(tree(), 1..6)) {
            let dict = Dict::new(1);
            for round_no in 0..3 {
                for (i, value) in values.iter().enumerate() {
                    let object = json!({"metadata": {"name": "n", "labels": value}, "spec": value});
                    round(&dict, &format!("ns/{round_no}-{i}"), &object);
                }
            }
        }

        #[test]
        fn bytes_from_elsewhere_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let dict = Dict::new(1);
            dict.add(1, Shared::Text("text".into()));
            let node = Node::new(&dict, "a/b", &bytes);
            let _ = node.at(&["metadata", "labels"]).map(Node::value);
        }
    }
}
