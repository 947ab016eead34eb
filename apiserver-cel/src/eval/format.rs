//! `text.format(values)`.
//!
//! The real server writes numbers as an English reader expects them: thousands are grouped, and powers of ten are
//! written out.

use super::convert;
use super::outcome::{Failure, Outcome, failed};
use super::value::{Key, Value};
use std::fmt::Write;

/// Digits after the point, if a pattern does not say.
const PRECISION: usize = 6;
/// Most of them.
const MAX_PRECISION: usize = 1000;

/// Puts values into a pattern.
///
/// # Errors
/// The pattern asks for other values.
pub fn format(pattern: &str, args: &[Value]) -> Outcome {
    let mut out = String::with_capacity(pattern.len());
    let (mut chars, mut next) = (pattern.chars(), 0);
    while let Some(c) = chars.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        let mut verb = chars.next();
        if verb == Some('%') {
            out.push('%');
            continue;
        }
        let mut precision = PRECISION;
        if verb == Some('.') {
            let rest = chars.as_str();
            let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
            precision = rest[..digits].parse().unwrap_or(PRECISION).min(MAX_PRECISION);
            chars = rest[digits..].chars();
            verb = chars.next();
        }
        let Some(verb) = verb else { return failed("unexpected end of string") };
        if !"sdfebxXo".contains(verb) {
            return failed(format!(
                "could not parse formatting clause: unrecognized formatting clause \"{verb}\""
            ));
        }
        let Some(arg) = args.get(next) else { return failed(format!("index {next} out of range")) };
        next += 1;
        put(&mut out, verb, precision, arg)
            .map_err(|why| Failure::Other(format!("error during formatting: {why}")))?;
    }
    if next < args.len() {
        return failed(format!(
            "too many arguments supplied to string.format (expected {next}, got {})",
            args.len()
        ));
    }
    Ok(Value::text(out))
}

fn put(out: &mut String, verb: char, precision: usize, arg: &Value) -> Result<(), String> {
    let found = match (verb, arg) {
        ('s', arg) => text(arg, false)?,
        ('d', Value::Int(n)) => n.to_string(),
        ('d', Value::Uint(n)) => n.to_string(),
        ('f', Value::Double(n)) if n.is_finite() => grouped(&format!("{n:.precision$}")),
        ('f' | 'e', Value::Double(n)) if !n.is_finite() => not_finite(*n),
        ('e', Value::Double(n)) => scientific(*n),
        ('b', Value::Bool(b)) => u8::from(*b).to_string(),
        ('b', n) if whole(n).is_some() => based(n, |n| format!("{n:b}")),
        ('o', n) if whole(n).is_some() => based(n, |n| format!("{n:o}")),
        ('x', n) if whole(n).is_some() => based(n, |n| format!("{n:x}")),
        ('X', n) if whole(n).is_some() => based(n, |n| format!("{n:X}")),
        ('x' | 'X', Value::Text(text)) => hex(text.as_bytes(), verb == 'X'),
        ('x' | 'X', Value::Bytes(bytes)) => hex(bytes, verb == 'X'),
        (verb, other) => {
            let (clause, takes) = match verb {
                'd' => ("decimal", "integers"),
                'f' => ("fixed-point", "doubles"),
                'e' => ("scientific", "doubles"),
                'b' => ("binary", "integers and bools"),
                'o' => ("octal", "integers"),
                _ => ("hex", "integers, byte buffers, and strings"),
            };
            let takes = if verb == 'b' {
                format!("only {takes} can be formatted as binary")
            } else {
                format!("{clause} clause can only be used on {takes}")
            };
            return Err(format!("{takes}, was given {}", other.kind()));
        }
    };
    out.push_str(&found);
    Ok(())
}

fn whole(value: &Value) -> Option<i128> {
    match value {
        Value::Int(n) => Some(i128::from(*n)),
        Value::Uint(n) => Some(i128::from(*n)),
        _ => None,
    }
}

fn based(value: &Value, write: impl Fn(u128) -> String) -> String {
    let n = whole(value).unwrap_or_default();
    let sign = if n < 0 { "-" } else { "" };
    format!("{sign}{}", write(n.unsigned_abs()))
}

fn hex(bytes: &[u8], upper: bool) -> String {
    bytes.iter().fold(String::new(), |mut out, b| {
        // A string takes whatever is written to it.
        let _ = if upper { write!(out, "{b:02X}") } else { write!(out, "{b:02x}") };
        out
    })
}

fn not_finite(n: f64) -> String {
    if n.is_nan() {
        "NaN"
    } else if n > 0.0 {
        "∞"
    } else {
        "-∞"
    }
    .to_string()
}

/// `-1234.5` becomes `-1,234.5`.
fn grouped(number: &str) -> String {
    let (sign, rest) = number.strip_prefix('-').map_or(("", number), |rest| ("-", rest));
    let (whole, fraction) = rest.split_once('.').map_or((rest, None), |(w, f)| (w, Some(f)));
    let mut out = String::from(sign);
    for (i, digit) in whole.chars().enumerate() {
        if i > 0 && (whole.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    if let Some(fraction) = fraction {
        out.push('.');
        out.push_str(fraction);
    }
    out
}

/// `1.500000×10⁰³`. The precision of a pattern changes nothing here.
fn scientific(n: f64) -> String {
    let written = format!("{n:.PRECISION$e}");
    let (mantissa, exponent) = written.split_once('e').unwrap_or((&written, "0"));
    let (sign, digits) = exponent.strip_prefix('-').map_or(("", exponent), |digits| ("⁻", digits));
    let raised = |c: char| match c {
        '1' => '¹',
        '2' => '²',
        '3' => '³',
        '4' => '⁴',
        '5' => '⁵',
        '6' => '⁶',
        '7' => '⁷',
        '8' => '⁸',
        '9' => '⁹',
        _ => '⁰',
    };
    format!("{mantissa}×10{sign}{}", format!("{digits:0>2}").chars().map(raised).collect::<String>())
}

/// `%s`; `inner`: within a list or a map, where texts are quoted.
fn text(value: &Value, inner: bool) -> Result<String, String> {
    let quoted =
        |prefix: &str, text: &str| if inner { format!("{prefix}{text:?}") } else { text.to_string() };
    Ok(match value {
        Value::Text(text) => quoted("", text),
        Value::Bytes(bytes) => quoted("b", &String::from_utf8_lossy(bytes)),
        Value::Bool(b) => b.to_string(),
        Value::Null => "null".to_string(),
        Value::Int(n) => n.to_string(),
        Value::Uint(n) => n.to_string(),
        Value::Double(n) if inner && n.is_finite() => format!("{n:.PRECISION$}"),
        Value::Double(n) => convert::shortest(*n),
        Value::Duration(d) if inner => format!("duration(\"{}\")", convert::seconds(*d)),
        Value::Duration(d) => convert::seconds(*d),
        Value::Time(time, offset) if inner => format!("timestamp(\"{}\")", convert::rfc3339(*time, *offset)),
        Value::Time(time, offset) => convert::rfc3339(*time, *offset),
        Value::Type(name) => name.to_string(),
        Value::List(list) => {
            let items: Result<Vec<String>, String> = list.items.iter().map(|item| text(item, true)).collect();
            format!("[{}]", items?.join(", "))
        }
        Value::Map(map) => {
            let entries: Result<Vec<String>, String> = map
                .entries
                .iter()
                .map(|(key, value)| {
                    let key: &Key = key;
                    Ok(format!("{}:{}", text(&key.value(), true)?, text(value, true)?))
                })
                .collect();
            format!("{{{}}}", entries?.join(", "))
        }
        other => {
            let takes = "strings, bools, bytes, ints, doubles, maps, lists, types, durations, and timestamps";
            return Err(format!("string clause can only be used on {takes}, was given {}", other.kind()));
        }
    })
}
