//! Words of cells: ages, lists, labels.

use jiff::Timestamp;
use serde_json::{Value, json};

/// Time since, the way kubectl shortens it.
pub fn age(when: &str, now: Timestamp) -> String {
    match when.parse::<Timestamp>() {
        Ok(t) => duration(now.as_second() - t.as_second()),
        Err(_) => "<unknown>".into(),
    }
}

/// A length of time, the way kubectl shortens it.
pub fn duration(s: i64) -> String {
    let (m, h, d) = (s / 60, s / 3600, s / 86_400);
    let two = |a: i64, ua: &str, b: i64, ub: &str| {
        if b == 0 { format!("{a}{ua}") } else { format!("{a}{ua}{b}{ub}") }
    };
    match s {
        ..-1 => "<invalid>".into(),
        -1..0 => "0s".into(),
        0..120 => format!("{s}s"),
        120..600 => two(m, "m", s % 60, "s"),
        600..10_800 => format!("{m}m"),
        10_800..28_800 => two(h, "h", m % 60, "m"),
        28_800..172_800 => format!("{h}h"),
        172_800..691_200 => two(d, "d", h % 24, "h"),
        691_200..63_072_000 => format!("{d}d"),
        63_072_000..252_288_000 => two(d / 365, "y", d % 365, "d"),
        _ => format!("{}y", d / 365),
    }
}

/// A text, or what stands for none.
pub fn or(text: &str, empty: &str) -> Value {
    json!(if text.is_empty() { empty } else { text })
}

/// Texts with commas.
pub fn join<'a>(items: impl Iterator<Item = &'a str>, empty: &str) -> Value {
    let all: Vec<&str> = items.filter(|s| !s.is_empty()).collect();
    or(&all.join(","), empty)
}

/// Labels as a selector shows them.
pub fn labels(v: Option<&Value>) -> Value {
    let map = v.and_then(Value::as_object).into_iter().flatten();
    let all: Vec<String> = map.filter_map(|(k, v)| v.as_str().map(|v| format!("{k}={v}"))).collect();
    or(&all.join(","), "<none>")
}

#[cfg(test)]
mod tests {
    #[test]
    fn durations() {
        for (s, want) in
            [(5, "5s"), (125, "2m5s"), (3600, "60m"), (11_000, "3h3m"), (90_000, "25h"), (200_000, "2d7h")]
        {
            assert_eq!(super::duration(s), want);
        }
    }
}
