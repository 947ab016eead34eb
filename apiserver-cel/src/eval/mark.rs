//! Values as an index sorts them. What is equal has the same mark, so that what equals a value is found among many
//! without a comparison with each: the lists are as long as whoever writes an object likes.

use super::value::{Key, Value};
use jiff::SignedDuration;
use jiff::civil::DateTime;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The mark of a value. Different scalars have different marks; values of the other kinds may share one, and are then
/// compared themselves.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
pub enum Mark {
    Absent,
    Null,
    Scalar(Key),
    Bytes(Arc<[u8]>),
    Duration(SignedDuration),
    Time(DateTime),
    Parts(Vec<Mark>),
    /// By its length alone: some lists are equal in any order.
    List(usize),
    /// Of a value that only a comparison tells from another, and of what equals nothing.
    Other,
}

impl Mark {
    /// The mark of a value.
    pub fn of(value: &Value) -> Mark {
        match value {
            Value::Null => Mark::Null,
            Value::Double(n) if n.is_nan() => Mark::Other,
            Value::Bytes(bytes) => Mark::Bytes(bytes.clone()),
            Value::Duration(duration) => Mark::Duration(*duration),
            Value::Time(time, _) => Mark::Time(*time),
            Value::List(list) => Mark::List(list.items.len()),
            Value::Map(map) => {
                let parts = map.entries.iter().flat_map(|(key, value)| [&key.value(), value].map(Mark::of));
                Mark::Parts(parts.collect())
            }
            scalar => Key::of(scalar).map_or(Mark::Other, Mark::Scalar),
        }
    }

    /// The mark of several values of which some may be absent.
    pub fn of_parts<'v>(parts: impl Iterator<Item = Option<&'v Value>>) -> Mark {
        Mark::Parts(parts.map(|part| part.map_or(Mark::Absent, Mark::of)).collect())
    }
}

/// The items of a list, by their marks.
#[derive(Default)]
pub struct Index<'a>(BTreeMap<Mark, Vec<&'a Value>>);

impl<'a> Index<'a> {
    /// All of these items.
    pub fn of(items: &'a [Value]) -> Index<'a> {
        let mut index = Index::default();
        for item in items {
            index.0.entry(Mark::of(item)).or_default().push(item);
        }
        index
    }

    /// Whether one of the items equals the value.
    pub fn has(&self, value: &Value) -> bool {
        self.0.get(&Mark::of(value)).is_some_and(|alike| alike.contains(&value))
    }

    /// Adds an item unless one equals it; whether it was added.
    pub fn add(&mut self, value: &'a Value) -> bool {
        let alike = self.0.entry(Mark::of(value)).or_default();
        let is_new = !alike.contains(&value);
        if is_new {
            alike.push(value);
        }
        is_new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_equal_has_the_same_mark() {
        let map = |key: Key, value: Value| Value::map([(key, value)]);
        let values = [
            Value::Null,
            Value::Int(1),
            Value::Uint(1),
            Value::Double(1.0),
            Value::Double(0.5),
            Value::Double(f64::NAN),
            Value::text("1"),
            Value::Bytes(b"1".as_slice().into()),
            Value::Bool(true),
            Value::Duration(SignedDuration::from_secs(60)),
            Value::Type("int".into()),
            Value::list(vec![Value::Int(1), Value::Int(2)]),
            Value::list(vec![Value::Int(2), Value::Int(1)]),
            map(Key::Int(1), Value::Double(2.0)),
            map(Key::Double(1.0), Value::Int(2)),
            map(Key::Text("1".into()), Value::Int(2)),
        ];
        let mut equal = 0;
        for (a, b) in values.iter().flat_map(|a| values.iter().map(move |b| (a, b))) {
            if a == b {
                assert!(Mark::of(a) == Mark::of(b), "{a:?} {b:?}");
                equal += 1;
            }
            let index = Index::of(std::slice::from_ref(b));
            assert_eq!(index.has(a), a == b, "{a:?} {b:?}");
        }
        // All but NaN equal themselves; three are 1, and two maps are equal.
        assert_eq!(equal, 15 + 6 + 2);
    }
}
