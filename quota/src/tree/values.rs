//! Values of attributes.

use std::collections::BTreeMap;

/// `1h30m`, `90s`, `250ms`; every number has its unit. `None` for anything else.
pub(super) fn duration_ms(text: &str) -> Option<i64> {
    let mut rest = text.trim();
    let mut sum = 0_i64;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit())?;
        let number: i64 = rest[..digits].parse().ok()?;
        let end = rest[digits..].find(|c: char| c.is_ascii_digit()).map_or(rest.len(), |at| digits + at);
        let unit = match &rest[digits..end] {
            "ms" => 1,
            "s" => 1000,
            "m" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            _ => return None,
        };
        sum = sum.checked_add(number.checked_mul(unit)?)?;
        rest = &rest[end..];
    }
    (!text.trim().is_empty()).then_some(sum)
}

/// `{"a": "1", "b": 2}` without nesting or escapes; anything else is `None`.
pub(super) fn flat_json_object(text: &str) -> Option<BTreeMap<String, String>> {
    let inner = text.trim().strip_prefix('{')?.strip_suffix('}')?.trim();
    let mut pairs = BTreeMap::new();
    if inner.is_empty() {
        return Some(pairs);
    }
    for pair in inner.split(',') {
        let (key, value) = pair.split_once(':')?;
        let key = key.trim().strip_prefix('"')?.strip_suffix('"')?;
        let value = value.trim();
        let value = value.strip_prefix('"').and_then(|v| v.strip_suffix('"')).unwrap_or(value);
        let plain = |text: &str| !text.contains(['"', '\\', '{', '[']) && !text.is_empty();
        if !plain(key) || !plain(value) {
            return None;
        }
        pairs.insert(key.to_owned(), value.to_owned());
    }
    Some(pairs)
}
