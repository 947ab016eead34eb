//! Texts and numbers as the real server's messages print them: quoted as Go's `%q`, floats as `%v`, values as JSON.
//!
//! Inputs: what a user sent. Absent on purpose: JSON of answers, which `serde_json` writes.

use serde_json::Value;
use std::io;

/// True for letters, marks, digits, signs, and the plain space: what of Unicode is seen.
pub fn is_printed(c: char) -> bool {
    if c.is_ascii() {
        return !c.is_ascii_control();
    }
    // Behind a letter, only what is not printed is escaped.
    let mut behind = String::from("a");
    behind.push(c);
    behind.escape_debug().eq(behind.chars())
}

/// How a character is escaped that has an escape of its own.
pub fn short_escape(c: char) -> Option<&'static str> {
    Some(match c {
        '"' => "\\\"",
        '\\' => "\\\\",
        '\u{7}' => "\\a",
        '\u{8}' => "\\b",
        '\u{c}' => "\\f",
        '\n' => "\\n",
        '\r' => "\\r",
        '\t' => "\\t",
        '\u{b}' => "\\v",
        _ => return None,
    })
}

/// A text in quotes; what is not printed is escaped.
pub fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match short_escape(c) {
            Some(escape) => out.push_str(escape),
            None if is_printed(c) => out.push(c),
            None => out.push_str(&by_number(c)),
        }
    }
    out.push('"');
    out
}

/// A character that is not printed, by its number.
fn by_number(c: char) -> String {
    match u32::from(c) {
        n @ 0..0x80 => format!("\\x{n:02x}"),
        n @ 0x80..0x1_0000 => format!("\\u{n:04x}"),
        n => format!("\\U{n:08x}"),
    }
}

/// A float as `%v` prints it: with an exponent from a million on, and below a ten-thousandth.
pub fn float(f: f64) -> String {
    let text = format!("{f:e}");
    let Some((mantissa, exponent)) = text.split_once('e') else { return text };
    match exponent.parse::<i32>() {
        Ok(e) if f != 0.0 && !(-4..6).contains(&e) => {
            let sign = if e < 0 { '-' } else { '+' };
            format!("{mantissa}e{sign}{:02}", e.abs())
        }
        _ => format!("{f}"),
    }
}

/// A value as `%v` prints it.
pub fn printed(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".into(),
        Value::String(text) => text.clone(),
        Value::Number(n) if n.is_f64() => float(n.as_f64().unwrap_or_default()),
        Value::Array(list) => format!("[{}]", list.iter().map(printed).collect::<Vec<_>>().join(" ")),
        Value::Object(map) => {
            let entries: Vec<String> = map.iter().map(|(k, v)| format!("{k}:{}", printed(v))).collect();
            format!("map[{}]", entries.join(" "))
        }
        other => other.to_string(),
    }
}

/// The type of a value that came by JSON, as `%T` prints it.
pub fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(n) if n.is_i64() => "int64",
        Value::Number(_) => "float64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

/// Characters of a value in a message at most; longer values would make it unreadable.
const SHOWN: usize = 200;
/// Bytes of a value that are written at most: more than `SHOWN` characters have.
const WRITTEN: usize = 2048;

/// The start of what is written; more than enough is refused, so a large value costs no more than a small one.
struct Start(Vec<u8>);

impl io::Write for Start {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let room = WRITTEN - self.0.len();
        if room == 0 {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let taken = bytes.get(..room).unwrap_or(bytes);
        self.0.extend_from_slice(taken);
        Ok(taken.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A value as messages show it: a text in quotes, a number, or JSON with the characters of HTML escaped.
pub fn shown(value: &Value) -> String {
    let text = match value {
        Value::String(text) => {
            let start = text.char_indices().nth(SHOWN).map_or(text.as_str(), |(end, _)| &text[..end]);
            // Escapes alone make no text too long.
            if start.len() == text.len() {
                return quoted(text);
            }
            quoted(start)
        }
        Value::Number(n) if n.is_f64() => float(n.as_f64().unwrap_or_default()),
        other => {
            let mut start = Start(Vec::new());
            // What is beyond the start is not shown.
            let _ = serde_json::to_writer(&mut start, other);
            escaped(&String::from_utf8_lossy(&start.0))
        }
    };
    cut(text)
}

/// The start of a value as messages show it, where it is longer.
pub fn cut(text: String) -> String {
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

/// A value as JSON, with the characters of HTML escaped as Go's encoder does.
pub fn json(value: &Value) -> String {
    escaped(&value.to_string())
}

fn escaped(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for c in json.chars() {
        match c {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_not_printed_is_escaped() {
        for (text, want) in [
            ("plain äß 語 e\u{301}", "\"plain äß 語 e\u{301}\""),
            ("a\"b\\c'd", r#""a\"b\\c'd""#),
            ("\u{7}\u{8}\u{c}\n\r\t\u{b}", r#""\a\b\f\n\r\t\v""#),
            ("\0\u{1b}\u{7f}", r#""\x00\x1b\x7f""#),
            ("\u{a0}\u{200b}\u{feff}", r#""\u00a0\u200b\ufeff""#),
            ("\u{e0001}", r#""\U000e0001""#),
        ] {
            assert_eq!(quoted(text), want);
        }
    }

    #[test]
    fn values_are_shown_as_the_real_server_does() {
        for (value, want) in [
            (json!(1.5), "1.5"),
            (json!(2.0), "2"),
            (json!(1_000_000.0), "1e+06"),
            (json!(0.000_01), "1e-05"),
            (json!(1_000_000), "1000000"),
            (json!(null), "null"),
            (json!("<a&b>"), "\"<a&b>\""),
            (json!(["<a&b>"]), r#"["\u003ca\u0026b\u003e"]"#),
            (json!({"a": "\u{7f}"}), "{\"a\":\"\u{7f}\"}"),
        ] {
            assert_eq!(shown(&value), want);
        }
    }

    #[test]
    fn of_a_large_value_only_the_start_is_looked_at() {
        let mut start = Start(Vec::new());
        let large = json!({"a": "ä".repeat(1 << 20)});
        assert!(serde_json::to_writer(&mut start, &large).is_err(), "writing stopped");
        assert_eq!(start.0.len(), WRITTEN);
        for large in [large, json!("x".repeat(1 << 20)), json!(vec![0; 1 << 20])] {
            let text = shown(&large);
            assert_eq!(text.chars().count(), SHOWN + 1, "{text}");
            assert!(text.ends_with('…'));
        }
    }
}
