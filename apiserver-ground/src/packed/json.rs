//! From packed bytes to JSON text.

use super::*;
use crate::dict::Shared;

impl Node<'_> {
    /// The whole object as JSON, with its resourceVersion, without some of its fields.
    pub fn object_json(mut self, rv: u64, without: &[&str], out: &mut Vec<u8>) {
        out.push(b'{');
        let start = out.len();
        if self.byte() == OBJECT {
            for _ in 0..self.varint() {
                let mut ahead = self;
                let name = ahead.field();
                if without.contains(&name) {
                    ahead.skip();
                    self = ahead;
                    continue;
                }
                if out.len() > start {
                    out.push(b',');
                }
                if name != "metadata" || ahead.byte() != OBJECT {
                    self.json_field(out);
                    self.json(out, DEPTH);
                    continue;
                }
                self = ahead;
                out.extend_from_slice(b"\"metadata\":{\"resourceVersion\":\"");
                text::write_digits(rv, out);
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
            json_text(self.field(), out);
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
        let tag = self.byte();
        match tag {
            OBJECT => {
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
                let id = self.varint() as u32;
                self.json_entry(id, out, depth);
            }
            tag if tag >= NEAR => {
                let id = self.near(tag);
                self.json_entry(id, out, depth);
            }
            TEXT => {
                let n = self.varint() as usize;
                json_text(self.str(n), out);
            }
            UUID | TIME | DIGITS | IPV4 => {
                // None of these has anything to escape.
                out.push(b'"');
                self.special(tag, out);
                out.push(b'"');
            }
            NAME => json_text(split(self.key).0, out),
            NAMESPACE => json_text(split(self.key).1, out),
            TRUE => out.extend_from_slice(b"true"),
            FALSE => out.extend_from_slice(b"false"),
            tag if (SMALL..SMALL + 16).contains(&tag) => text::write_digits(u64::from(tag - SMALL), out),
            POSITIVE => {
                let n = self.varint();
                text::write_digits(n, out);
            }
            NEGATIVE | FLOAT => {
                let number = self.number(tag);
                let _ = serde_json::to_writer(out, &number);
            }
            _ => out.extend_from_slice(b"null"),
        }
    }
}

fn json_text(text: &str, out: &mut Vec<u8>) {
    if text.bytes().all(|b| b >= b' ' && b != b'"' && b != b'\\') {
        out.push(b'"');
        out.extend_from_slice(text.as_bytes());
        out.push(b'"');
        return;
    }
    // Writing a string to memory cannot fail.
    let _ = serde_json::to_writer(out, text);
}
