//! Words of cells: ages, lists, labels.

use fleet_apiserver_ground::tree::{at, list, text};
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

/// The first of many texts, and how many more there are.
pub fn few(all: &[String], most: usize, separator: &str) -> String {
    let shown = all.iter().take(most).map(String::as_str).collect::<Vec<_>>().join(separator);
    match all.len().saturating_sub(most) {
        0 => shown,
        more => format!("{shown} + {more} more..."),
    }
}

/// The texts of a list.
pub fn texts<'a>(v: &'a Value, path: &[&str]) -> Vec<&'a str> {
    list(v, path).iter().filter_map(Value::as_str).collect()
}

/// One field of each container.
pub fn containers(v: &Value, path: &[&str], field: &str) -> Value {
    json!(list(v, path).iter().map(|c| text(c, &[field])).collect::<Vec<_>>().join(","))
}

/// Labels as a selector shows them.
pub fn labels(v: Option<&Value>) -> Value {
    let map = v.and_then(Value::as_object).into_iter().flatten();
    let mut all: Vec<String> = map.filter_map(|(k, v)| v.as_str().map(|v| format!("{k}={v}"))).collect();
    all.sort_unstable();
    or(&all.join(","), "<none>")
}

/// A label selector, its requirements by key; "" for everything and for nothing, None for an unknown operator.
pub fn selector(v: Option<&Value>) -> Option<String> {
    let Some(v) = v else { return Some(String::new()) };
    let labels = at(v, &["matchLabels"]).and_then(Value::as_object).into_iter().flatten();
    let mut all: Vec<(&str, String)> =
        labels.map(|(k, v)| (k.as_str(), format!("{k}={}", v.as_str().unwrap_or_default()))).collect();
    for expression in list(v, &["matchExpressions"]) {
        let key = text(expression, &["key"]);
        let mut values = texts(expression, &["values"]);
        values.sort_unstable();
        let values = values.join(",");
        let shown = match text(expression, &["operator"]) {
            "In" => format!("{key} in ({values})"),
            "NotIn" => format!("{key} notin ({values})"),
            "Exists" => key.to_string(),
            "DoesNotExist" => format!("!{key}"),
            _ => return None,
        };
        all.push((key, shown));
    }
    all.sort_by_key(|(key, _)| *key);
    Some(all.into_iter().map(|(_, shown)| shown).collect::<Vec<_>>().join(","))
}

/// The cell of a label selector.
pub fn selected(v: Option<&Value>) -> Value {
    or(&selector(v).unwrap_or_else(|| "<error>".into()), "<none>")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    #[test]
    fn selectors() {
        let all = json!({"matchLabels": {"b": "1", "d": ""}, "matchExpressions": [
            {"key": "c", "operator": "NotIn", "values": ["y", "x"]}, {"key": "a", "operator": "Exists"},
            {"key": "e", "operator": "DoesNotExist"}, {"key": "b", "operator": "In", "values": ["1"]}]});
        let shown = super::selector(Some(&all));
        assert_eq!(shown.as_deref(), Some("a,b=1,b in (1),c notin (x,y),d=,!e"));
        assert_eq!(super::selected(Some(&json!({}))), "<none>");
        assert_eq!(super::selected(Some(&json!({"matchExpressions": [{"key": "a"}]}))), "<error>");
    }

    #[test]
    fn durations() {
        for (s, want) in
            [(5, "5s"), (125, "2m5s"), (3600, "60m"), (11_000, "3h3m"), (90_000, "25h"), (200_000, "2d7h")]
        {
            assert_eq!(super::duration(s), want);
        }
    }
}
