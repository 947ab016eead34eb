//! Formats of texts in schemas of custom resources.
//!
//! Inputs: the name of a format and a text. Formats that the real server does not know say nothing. Absent on purpose: names of
//! objects (see `validate`), formats of numbers, which it takes from their bounds, and numbers of books and cards.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Names of formats that texts can have, without hyphens.
const KNOWN: [&str; 26] = [
    "bsonobjectid",
    "byte",
    "cidr",
    "creditcard",
    "date",
    "datetime",
    "duration",
    "email",
    "hexcolor",
    "hostname",
    "ipv4",
    "ipv6",
    "isbn",
    "isbn10",
    "isbn13",
    "k8slongname",
    "k8sshortname",
    "mac",
    "password",
    "rgbcolor",
    "ssn",
    "uri",
    "uuid",
    "uuid3",
    "uuid4",
    "uuid5",
];

/// True for a format that says something of a text.
pub fn is_known(format: &str) -> bool {
    KNOWN.contains(&format.replace('-', "").as_str())
}

/// True for a text that has this format, or one that is not known.
pub fn fits(format: &str, text: &str) -> bool {
    match format.replace('-', "").as_str() {
        "datetime" => text.parse::<jiff::Timestamp>().is_ok(),
        "date" => text.parse::<jiff::civil::Date>().is_ok(),
        "ipv4" => text.parse::<Ipv4Addr>().is_ok(),
        "ipv6" => text.parse::<Ipv6Addr>().is_ok(),
        "cidr" => is_range(text),
        "mac" => is_hardware_address(text),
        "uuid" => is_uuid(text, None),
        "uuid3" => is_uuid(text, Some('3')),
        "uuid4" => is_uuid(text, Some('4')) && has_variant(text),
        "uuid5" => is_uuid(text, Some('5')) && has_variant(text),
        "byte" => {
            use base64::Engine;
            base64::engine::general_purpose::STANDARD.decode(text).is_ok()
        }
        "uri" => is_uri(text),
        "email" => is_address(text),
        "hostname" => is_host(text),
        "duration" => is_duration(text),
        "hexcolor" => {
            let digits = text.strip_prefix('#').unwrap_or(text);
            matches!(digits.len(), 3 | 6) && digits.bytes().all(|b| b.is_ascii_hexdigit())
        }
        "ssn" => is_security_number(text),
        "bsonobjectid" => text.len() == 24 && text.bytes().all(|b| b.is_ascii_hexdigit()),
        _ => true,
    }
}

fn is_range(text: &str) -> bool {
    let Some((address, length)) = text.split_once('/') else { return false };
    let digits = !length.is_empty() && length.len() <= 3 && length.bytes().all(|b| b.is_ascii_digit());
    let most = match address.parse::<IpAddr>() {
        Ok(IpAddr::V4(_)) => 32,
        Ok(IpAddr::V6(_)) => 128,
        Err(_) => return false,
    };
    // Without zeros in front.
    digits && (length == "0" || !length.starts_with('0')) && length.parse::<u32>().is_ok_and(|n| n <= most)
}

/// Six, eight or twenty bytes: in pairs of digits, or in fours with dots.
fn is_hardware_address(text: &str) -> bool {
    let of = |separator: char, digits: usize| {
        let parts: Vec<&str> = text.split(separator).collect();
        let plain = |part: &&str| part.len() == digits && part.bytes().all(|b| b.is_ascii_hexdigit());
        parts.iter().all(plain) && matches!(parts.len() * digits / 2, 6 | 8 | 20)
    };
    of(':', 2) || of('-', 2) || of('.', 4)
}

/// Digits in groups of 8, 4, 4, 4 and 12, each hyphen of which may be left out.
fn is_uuid(text: &str, version: Option<char>) -> bool {
    let mut rest = text;
    for (i, length) in [8, 4, 4, 4, 12].into_iter().enumerate() {
        if i > 0 {
            rest = rest.strip_prefix('-').unwrap_or(rest);
        }
        let Some(group) = rest.get(..length) else { return false };
        if i == 2 && version.is_some_and(|v| !group.starts_with(v)) {
            return false;
        }
        rest = &rest[length..];
    }
    rest.is_empty() && uuid::Uuid::parse_str(&text.replace('-', "")).is_ok()
}

/// The fourth group begins with 8, 9, a or b.
fn has_variant(text: &str) -> bool {
    let digit = text.bytes().filter(|b| *b != b'-').nth(16);
    digit.is_some_and(|b| matches!(b.to_ascii_lowercase(), b'8' | b'9' | b'a' | b'b'))
}

/// A whole URI, or a path from the root.
fn is_uri(text: &str) -> bool {
    if text.bytes().any(|b| b.is_ascii_control()) {
        return false;
    }
    let scheme = text.split_once(':').map_or("", |(scheme, _)| scheme);
    let named = scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'));
    named || text.starts_with('/')
}

/// One mailbox, with or without the name of its owner before it.
fn is_address(text: &str) -> bool {
    let bare =
        text.split_once('<').and_then(|(_, rest)| rest.trim_end().strip_suffix('>')).unwrap_or(text).trim();
    let Some((local, domain)) = bare.rsplit_once('@') else { return false };
    let plain = |part: &str| {
        !part.is_empty()
            && !part.starts_with('.')
            && !part.ends_with('.')
            && !part.contains("..")
            && !part.contains(|c: char| {
                c.is_whitespace() || matches!(c, '@' | '<' | '>' | ',' | ';' | ':' | '(' | ')')
            })
    };
    plain(local) && plain(domain)
}

fn is_host(text: &str) -> bool {
    let label = |part: &str| {
        (1..=63).contains(&part.len())
            && part.chars().all(|c| c.is_alphanumeric() || c == '-')
            && !part.starts_with('-')
            && !part.ends_with('-')
    };
    let parts: Vec<&str> = text.split('.').collect();
    let last = parts.last().copied().unwrap_or_default();
    let named = parts.len() == 1 || (last.chars().count() >= 2 && last.chars().all(char::is_alphabetic));
    text.len() <= 255 && named && parts.iter().all(|part| label(part))
}

/// A number and a unit, once or several times, as in 1h30m or 2 days.
fn is_duration(text: &str) -> bool {
    const UNITS: [&str; 31] = [
        "ns",
        "nano",
        "nanos",
        "nanosecond",
        "nanoseconds",
        "us",
        "µs",
        "micro",
        "micros",
        "microsecond",
        "microseconds",
        "ms",
        "milli",
        "millis",
        "millisecond",
        "milliseconds",
        "s",
        "sec",
        "secs",
        "second",
        "seconds",
        "m",
        "min",
        "mins",
        "minute",
        "minutes",
        "h",
        "hr",
        "hour",
        "hours",
        "d",
    ];
    const LONG_UNITS: [&str; 5] = ["day", "days", "w", "week", "weeks"];
    let mut rest = text.trim().trim_start_matches(['-', '+']);
    if rest == "0" {
        return true;
    }
    let mut parts = 0;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, after) = rest.split_at(end);
        let after = after.trim_start();
        let end = after.find(|c: char| !c.is_alphabetic()).unwrap_or(after.len());
        let (unit, after) = after.split_at(end);
        let known = UNITS.contains(&unit) || LONG_UNITS.contains(&unit);
        if number.parse::<f64>().is_err() || !known {
            return false;
        }
        parts += 1;
        rest = after.trim_start();
    }
    parts > 0
}

/// Three, two and four digits, with a hyphen or a space between, or nothing.
fn is_security_number(text: &str) -> bool {
    let mut rest = text;
    for (i, length) in [3, 2, 4].into_iter().enumerate() {
        if i > 0 {
            rest = rest.strip_prefix(['-', ' ']).unwrap_or(rest);
        }
        let Some(group) = rest.get(..length).filter(|g| g.bytes().all(|b| b.is_ascii_digit())) else {
            return false;
        };
        rest = &rest[group.len()..];
    }
    rest.is_empty()
}

#[cfg(test)]
mod tests;
