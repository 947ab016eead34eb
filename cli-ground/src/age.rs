//! Ages as kubectl prints them: at most two units, coarser the older.

use fleet_views::age::human;
use jiff::Timestamp;
use serde_json::Value;

/// The age of an object by its creation time; `<unknown>` without one.
pub fn of(object: &Value, now: Timestamp) -> String {
    since(object["metadata"]["creationTimestamp"].as_str(), now)
}

/// The time since `text` (RFC 3339).
pub fn since(text: Option<&str>, now: Timestamp) -> String {
    match text.and_then(|text| text.parse::<Timestamp>().ok()) {
        Some(then) => human(now.duration_since(then).as_secs()),
        None => "<unknown>".to_string(),
    }
}
