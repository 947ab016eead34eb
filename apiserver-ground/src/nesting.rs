//! How deep objects and lists may be inside each other.
//!
//! JSON readers stop at 128 levels, and an object is read inside others: a list, a watch event, a review, a Work. A
//! stored object that is nested less than that can always be read. Absent on purpose: what a value means.

use serde_json::Value;

/// Levels of objects and lists of a stored object. Custom resource definitions have the deepest ones of all known
/// kinds, about 40.
pub const MAX: usize = 100;
/// What the server adds below `metadata.managedFields`: four levels above the fields, one below each.
pub const OWN: usize = 8;
/// Characters of a path in a message.
const SHOWN: usize = 160;

/// A value that is nested too deeply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TooDeep {
    /// Where the first level too many is, shortened.
    pub path: String,
    /// Levels of the whole value.
    pub found: usize,
    /// Levels allowed.
    pub allowed: usize,
}

impl std::fmt::Display for TooDeep {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "found {} levels of nested objects and lists; allowed: {}", self.found, self.allowed)
    }
}

/// True when a value has at most so many levels. A number or text has none. Goes no deeper than the levels allowed.
pub fn fits(value: &Value, levels: usize) -> bool {
    match value {
        Value::Object(map) => levels > 0 && map.values().all(|v| fits(v, levels - 1)),
        Value::Array(list) => levels > 0 && list.iter().all(|v| fits(v, levels - 1)),
        _ => true,
    }
}

/// Levels of a value, however many there are: counted without recursion.
pub fn levels(value: &Value) -> usize {
    let mut deepest = 0;
    let mut left = vec![(value, 1)];
    while let Some((value, level)) = left.pop() {
        match value {
            Value::Object(map) => left.extend(map.values().map(|v| (v, level + 1))),
            Value::Array(list) => left.extend(list.iter().map(|v| (v, level + 1))),
            _ => continue,
        }
        deepest = deepest.max(level);
    }
    deepest
}

/// Values in a tree, with all objects and lists: counted without recursion.
pub fn values(value: &Value) -> usize {
    let (mut found, mut left) = (0, vec![value]);
    while let Some(value) = left.pop() {
        found += 1;
        match value {
            Value::Object(map) => left.extend(map.values()),
            Value::Array(list) => left.extend(list.iter()),
            _ => {}
        }
    }
    found
}

/// Checks an object before it is stored.
///
/// # Errors
/// Where it is nested too deeply.
pub fn check(object: &Value) -> Result<(), TooDeep> {
    let Value::Object(root) = object else { return below(object, MAX) };
    for (key, value) in root {
        match value {
            Value::Object(meta) if key == "metadata" => {
                for (key, value) in meta {
                    let own = if key == "managedFields" { OWN } else { 0 };
                    below(value, MAX + own - 2).map_err(|e| e.under("metadata", 1).under_key(key, own))?;
                }
            }
            _ => below(value, MAX - 1).map_err(|e| e.under(key, 1))?,
        }
    }
    Ok(())
}

/// As [`check`], for a change: an object that was stored before there was a limit may stay as deep as it is, so that
/// it can be changed and deleted.
///
/// # Errors
/// Where it is nested too deeply.
pub fn check_change(old: Option<&Value>, object: &Value) -> Result<(), TooDeep> {
    check(object).or_else(|e| match old {
        Some(old) if levels(old) >= levels(object) => Ok(()),
        _ => Err(e),
    })
}

fn below(value: &Value, allowed: usize) -> Result<(), TooDeep> {
    if fits(value, allowed) {
        return Ok(());
    }
    let mut path = String::new();
    first_path(value, allowed, &mut path);
    Err(TooDeep { path, found: levels(value), allowed })
}

impl TooDeep {
    fn under(mut self, key: &str, levels: usize) -> TooDeep {
        self.path = shortened(&format!("{key}{}", self.path));
        self.found += levels;
        self.allowed += levels;
        self
    }

    fn under_key(mut self, key: &str, own: usize) -> TooDeep {
        // The path starts with "metadata".
        let rest = self.path.strip_prefix("metadata").unwrap_or_default();
        self.path = shortened(&format!("metadata.{key}{rest}"));
        self.found += 1;
        self.allowed = self.allowed + 1 - own;
        self
    }
}

/// The path of the first value that is one level too deep; true when there is one.
fn first_path(value: &Value, levels: usize, path: &mut String) -> bool {
    let length = path.len();
    match value {
        Value::Object(_) | Value::Array(_) if levels == 0 => true,
        Value::Object(map) => map.iter().any(|(key, v)| {
            path.push('.');
            path.push_str(key);
            let found = first_path(v, levels - 1, path);
            if !found {
                path.truncate(length);
            }
            found
        }),
        Value::Array(list) => list.iter().enumerate().any(|(at, v)| {
            path.push_str(&format!("[{at}]"));
            let found = first_path(v, levels - 1, path);
            if !found {
                path.truncate(length);
            }
            found
        }),
        _ => false,
    }
}

fn shortened(path: &str) -> String {
    match path.char_indices().nth(SHOWN) {
        Some((at, _)) => format!("{}...", path[..at].trim_end_matches('.')),
        None => path.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn nested(levels: usize) -> Value {
        (0..levels).fold(json!(1), |value, _| Value::Object([("a".to_string(), value)].into_iter().collect()))
    }

    #[test]
    fn levels_are_counted_and_named() {
        assert_eq!((levels(&json!(1)), levels(&json!({})), levels(&json!({"a": [1, {}]}))), (0, 1, 3));
        assert!(fits(&nested(MAX), MAX) && !fits(&nested(MAX + 1), MAX));
        assert_eq!(check(&json!({"metadata": {"name": "a"}, "spec": nested(MAX - 1)})), Ok(()));
        let found = check(&json!({"metadata": {"name": "a"}, "spec": {"x": [nested(MAX)]}})).unwrap_err();
        assert!(found.path.starts_with("spec.x[0].a.a.a."), "{}", found.path);
        assert!(found.path.len() < 2 * SHOWN, "{}", found.path);
        assert_eq!((found.found, found.allowed), (MAX + 3, MAX));
        let own = |levels| json!({"metadata": {"managedFields": nested(levels)}});
        assert_eq!(check(&own(MAX - 2 + OWN)), Ok(()));
        let found = check(&own(MAX - 1 + OWN)).unwrap_err();
        assert!(found.path.starts_with("metadata.managedFields.a"), "{}", found.path);
        assert!(check(&json!({"metadata": {"annotations": nested(MAX - 1)}})).is_err());
    }

    #[test]
    fn thousands_of_levels_need_no_stack() {
        let mut value = nested(100_000);
        assert_eq!(levels(&value), 100_000);
        assert!(check(&json!({"spec": 1})).is_ok() && !fits(&value, MAX));
        // To drop it at once would need a stack as deep.
        while let Some(inner) = value.get_mut("a").map(Value::take) {
            value = inner;
        }
    }
}
