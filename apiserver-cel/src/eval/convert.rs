//! Conversions between types, and how numbers, durations and times are written.

use super::outcome::{Failure, Outcome, failed};
use super::value::Value;
use jiff::SignedDuration;
use jiff::civil::{DateTime, datetime};
use std::fmt::Write;

/// Times are counted from here.
const EPOCH: DateTime = datetime(1970, 1, 1, 0, 0, 0, 0);

pub fn call(name: &str, values: &[Value]) -> Option<Outcome> {
    let [value] = values else { return None };
    Some(match name {
        "int" => int(value),
        "uint" => uint(value),
        "double" => double(value),
        "string" => match value {
            Value::Library(_) => return None,
            value => string(value),
        },
        "bytes" => match value {
            Value::Bytes(_) => Ok(value.clone()),
            Value::Text(text) => Ok(Value::Bytes(text.as_bytes().into())),
            _ => Err(Failure::NoOverload),
        },
        "bool" => match value {
            Value::Bool(_) => Ok(value.clone()),
            Value::Text(text) => match &**text {
                "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(Value::Bool(true)),
                "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(Value::Bool(false)),
                _ => unlike("string", "bool"),
            },
            _ => Err(Failure::NoOverload),
        },
        "duration" => match value {
            Value::Duration(_) => Ok(value.clone()),
            Value::Int(seconds) => Ok(Value::Duration(SignedDuration::from_secs(*seconds))),
            Value::Text(text) => match parse_duration(text) {
                Some(found) => Ok(Value::Duration(found)),
                None => unlike("string", "google.protobuf.Duration"),
            },
            _ => Err(Failure::NoOverload),
        },
        "timestamp" => match value {
            Value::Time(..) => Ok(value.clone()),
            Value::Int(seconds) => match EPOCH.checked_add(SignedDuration::from_secs(*seconds)) {
                Ok(time) => Ok(Value::Time(time, 0)),
                Err(_) => failed("timestamp overflow"),
            },
            Value::Text(text) => match parse_time(text) {
                Some((time, offset)) => Ok(Value::Time(time, offset)),
                None => unlike("string", "google.protobuf.Timestamp"),
            },
            _ => Err(Failure::NoOverload),
        },
        _ => return None,
    })
}

fn unlike(from: &str, to: &str) -> Outcome {
    failed(format!("type conversion error from '{from}' to '{to}'"))
}

fn int(value: &Value) -> Outcome {
    match value {
        Value::Int(_) => Ok(value.clone()),
        Value::Uint(n) => {
            i64::try_from(*n).map_or_else(|_| failed("integer overflow"), |n| Ok(Value::Int(n)))
        }
        // 2^63 is the first that does not fit; the smallest number is excluded, as the language has it.
        Value::Double(n) if n.is_nan() || *n <= i64::MIN as f64 || *n >= i64::MAX as f64 => {
            failed("integer overflow")
        }
        Value::Double(n) => Ok(Value::Int(*n as i64)),
        Value::Text(text) => text.parse().map_or_else(|_| unlike("string", "int"), |n| Ok(Value::Int(n))),
        Value::Time(time, _) => Ok(Value::Int(time.duration_since(EPOCH).as_secs())),
        // The count of nanoseconds.
        Value::Duration(d) => {
            i64::try_from(d.as_nanos()).map_or_else(|_| failed("integer overflow"), |n| Ok(Value::Int(n)))
        }
        _ => Err(Failure::NoOverload),
    }
}

fn uint(value: &Value) -> Outcome {
    let overflow = || failed("unsigned integer overflow");
    match value {
        Value::Uint(_) => Ok(value.clone()),
        Value::Int(n) => u64::try_from(*n).map_or_else(|_| overflow(), |n| Ok(Value::Uint(n))),
        Value::Double(n) if n.is_nan() || *n < 0.0 || *n >= u64::MAX as f64 => overflow(),
        Value::Double(n) => Ok(Value::Uint(*n as u64)),
        Value::Text(text) => text.parse().map_or_else(|_| unlike("string", "uint"), |n| Ok(Value::Uint(n))),
        _ => Err(Failure::NoOverload),
    }
}

fn double(value: &Value) -> Outcome {
    match value {
        Value::Double(_) => Ok(value.clone()),
        Value::Int(n) => Ok(Value::Double(*n as f64)),
        Value::Uint(n) => Ok(Value::Double(*n as f64)),
        Value::Text(text) => match text.parse() {
            Ok(n) => Ok(Value::Double(n)),
            Err(_) => unlike("string", "double"),
        },
        _ => Err(Failure::NoOverload),
    }
}

/// The text of a value that has one.
pub fn string(value: &Value) -> Outcome {
    Ok(match value {
        Value::Text(_) => value.clone(),
        Value::Bool(b) => Value::text(b.to_string()),
        Value::Int(n) => Value::text(n.to_string()),
        Value::Uint(n) => Value::text(n.to_string()),
        Value::Double(n) => Value::text(shortest(*n)),
        Value::Bytes(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) => Value::text(text),
            Err(_) => return failed("invalid UTF-8 in bytes, cannot convert to string"),
        },
        Value::Duration(d) => Value::text(seconds(*d)),
        Value::Time(time, offset) => Value::text(rfc3339(*time, *offset)),
        _ => return Err(Failure::NoOverload),
    })
}

/// A number in its shortest form; with an exponent if that is below -4 or above 5.
pub fn shortest(n: f64) -> String {
    if n.is_nan() {
        return "NaN".into();
    }
    if n.is_infinite() {
        return if n > 0.0 { "+Inf" } else { "-Inf" }.into();
    }
    let scientific = format!("{n:e}");
    let Some((mantissa, exponent)) = scientific.split_once('e') else { return scientific };
    match exponent.parse::<i32>() {
        Ok(-4..6) => n.to_string(),
        Ok(exponent) => {
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{mantissa}e{sign}{:02}", exponent.abs())
        }
        Err(_) => scientific,
    }
}

/// As `5400s`.
pub fn seconds(d: SignedDuration) -> String {
    let (whole, nanos) = (d.as_secs(), d.subsec_nanos().unsigned_abs());
    let sign = if d.is_negative() { "-" } else { "" };
    let mut text = format!("{sign}{}", whole.unsigned_abs());
    if nanos > 0 {
        let fraction = format!("{nanos:09}");
        // A string takes whatever is written to it.
        let _ = write!(text, ".{}", fraction.trim_end_matches('0'));
    }
    text + "s"
}

/// As `2020-01-01T00:00:00Z`, or with its offset.
pub fn rfc3339(time: DateTime, offset: i32) -> String {
    if offset == 0 {
        return format!("{time}Z");
    }
    let (sign, minutes) = (if offset < 0 { '-' } else { '+' }, offset.abs() / 60);
    let local = time.saturating_add(SignedDuration::from_secs(i64::from(offset)));
    format!("{local}{sign}{:02}:{:02}", minutes / 60, minutes % 60)
}

/// A moment and its offset from UTC, as RFC 3339 has it.
pub fn parse_time(text: &str) -> Option<(DateTime, i32)> {
    let bytes = text.as_bytes();
    if !text.is_ascii() || bytes.len() < 20 || bytes[10] != b'T' {
        return None;
    }
    let (local, offset) = match text.strip_suffix('Z') {
        Some(local) => (local, 0),
        None => {
            let (local, zone) = text.split_at(text.len() - 6);
            let (hours, minutes) = zone[1..].split_once(':')?;
            let (hours, minutes): (i32, i32) = (hours.parse().ok()?, minutes.parse().ok()?);
            if !(0..=24).contains(&hours) || !(0..60).contains(&minutes) {
                return None;
            }
            let east = hours * 3600 + minutes * 60;
            match zone.as_bytes()[0] {
                b'+' => (local, east),
                b'-' => (local, -east),
                _ => return None,
            }
        }
    };
    let digits =
        |part: &str| part.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'-' | b':' | b'T' | b'.'));
    // A leap second is none here.
    if local.len() < 19 || &local[17..19] == "60" || !digits(local) || local.starts_with('-') {
        return None;
    }
    let time: DateTime = local.parse().ok()?;
    Some((time.checked_sub(SignedDuration::from_secs(i64::from(offset))).ok()?, offset))
}

/// A duration as Go writes it: `1h30m`, `1.5s`, `-2ms`.
pub fn parse_duration(text: &str) -> Option<SignedDuration> {
    let (negative, mut rest) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    if rest == "0" {
        return Some(SignedDuration::ZERO);
    }
    let mut nanos: i128 = 0;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, tail) = rest.split_at(end);
        let units = tail.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(units);
        let unit: i128 = match unit {
            "ns" => 1,
            "us" | "µs" | "μs" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            _ => return None,
        };
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if whole.is_empty() && fraction.is_empty() || whole.len() > 20 || fraction.contains('.') {
            return None;
        }
        let digits = &fraction[..fraction.len().min(18)];
        let scale = 10_i128.pow(u32::try_from(digits.len()).ok()?);
        let part = if digits.is_empty() { 0 } else { digits.parse::<i128>().ok()? * unit / scale };
        nanos += if whole.is_empty() { 0 } else { whole.parse::<i128>().ok()?.checked_mul(unit)? } + part;
        rest = tail;
    }
    let nanos = i64::try_from(if negative { -nanos } else { nanos }).ok()?;
    Some(SignedDuration::from_nanos(nanos))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_and_written() {
        for (text, nanos, written) in [
            ("1h30m", 5_400_000_000_000_i64, "5400s"),
            ("-1.5s", -1_500_000_000, "-1.5s"),
            ("1ms1us1ns", 1_001_001, "0.001001001s"),
            ("0", 0, "0s"),
            (".5s", 500_000_000, "0.5s"),
        ] {
            let found = parse_duration(text).unwrap();
            assert_eq!((found.as_nanos(), seconds(found).as_str()), (i128::from(nanos), written), "{text}");
        }
        for wrong in ["", "1", "1d", "h", "1.2.3s", "--1s", "9999999h"] {
            assert!(parse_duration(wrong).is_none(), "{wrong}");
        }
    }

    #[test]
    fn times_keep_their_offset() {
        let written = |text: &str| parse_time(text).map(|(time, offset)| rfc3339(time, offset));
        assert_eq!(written("2020-01-01T02:00:00+02:00").as_deref(), Some("2020-01-01T02:00:00+02:00"));
        assert_eq!(written("2020-01-01T00:00:00.5Z").as_deref(), Some("2020-01-01T00:00:00.5Z"));
        assert_eq!(written("2020-01-01"), None);
    }
}
