//! Values of expressions: what they are, when two are equal, and which is less.

use super::mark::{Index, Mark};
use jiff::SignedDuration;
use jiff::civil::DateTime;
use kube_cel::cel::objects::Opaque;
use serde_json::Value as Json;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// A value.
#[derive(Clone)]
pub enum Value {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    Text(Arc<str>),
    Bytes(Arc<[u8]>),
    List(Arc<List>),
    Map(Arc<Map>),
    Duration(SignedDuration),
    /// A moment in UTC, and the seconds by which its text was east of it.
    Time(DateTime, i32),
    /// A type, by its name.
    Type(Arc<str>),
    Optional(Option<Arc<Value>>),
    /// A value of a library, such as a quantity.
    Library(Arc<dyn Opaque>),
}

/// A list.
#[derive(Clone, Default)]
pub struct List {
    pub items: Vec<Value>,
    pub identity: Identity,
}

/// What tells the items of a list apart.
#[derive(Clone, Default, PartialEq, Eq)]
pub enum Identity {
    /// Their place.
    #[default]
    Place,
    /// They themselves: a set.
    Set,
    /// These fields.
    Keys(Arc<Vec<String>>),
}

/// A map, or an object by the names of its fields.
#[derive(Clone, Default)]
pub struct Map {
    pub entries: BTreeMap<Key, Value>,
    /// An object has declared fields and is no map for expressions.
    pub object: bool,
    /// The type of an object that an expression made.
    pub made: Option<Arc<str>>,
}

/// A key of a map. Numbers that are equal are one key.
#[derive(Clone, Debug)]
pub enum Key {
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    Text(Arc<str>),
}

impl Key {
    fn rank(&self) -> u8 {
        match self {
            Key::Bool(_) => 0,
            Key::Int(_) | Key::Uint(_) | Key::Double(_) => 1,
            Key::Text(_) => 2,
        }
    }

    /// The key that a value is.
    pub fn of(value: &Value) -> Option<Key> {
        Some(match value {
            Value::Bool(b) => Key::Bool(*b),
            Value::Int(n) => Key::Int(*n),
            Value::Uint(n) => Key::Uint(*n),
            Value::Double(n) => Key::Double(*n),
            Value::Text(text) => Key::Text(text.clone()),
            _ => return None,
        })
    }

    /// The key as a value.
    pub fn value(&self) -> Value {
        match self {
            Key::Bool(b) => Value::Bool(*b),
            Key::Int(n) => Value::Int(*n),
            Key::Uint(n) => Value::Uint(*n),
            Key::Double(n) => Value::Double(*n),
            Key::Text(text) => Value::Text(text.clone()),
        }
    }
}

impl Ord for Key {
    fn cmp(&self, other: &Key) -> Ordering {
        match (self, other) {
            (Key::Bool(a), Key::Bool(b)) => a.cmp(b),
            (Key::Text(a), Key::Text(b)) => a.cmp(b),
            (a, b) if a.rank() == b.rank() => numbers(&a.value(), &b.value()).unwrap_or(Ordering::Equal),
            (a, b) => a.rank().cmp(&b.rank()),
        }
    }
}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Key) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Key) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Key {}

/// How two numbers of any kinds compare; `None` for what is no number.
fn numbers(a: &Value, b: &Value) -> Option<Ordering> {
    use Value::{Double, Int, Uint};
    Some(match (a, b) {
        (Int(a), Int(b)) => a.cmp(b),
        (Uint(a), Uint(b)) => a.cmp(b),
        (Double(a), Double(b)) => return a.partial_cmp(b),
        (Int(a), Uint(b)) => i128::from(*a).cmp(&i128::from(*b)),
        (Uint(a), Int(b)) => i128::from(*a).cmp(&i128::from(*b)),
        (Double(a), Int(b)) => return double_and_whole(*a, i128::from(*b)),
        (Double(a), Uint(b)) => return double_and_whole(*a, i128::from(*b)),
        (Int(a), Double(b)) => return double_and_whole(*b, i128::from(*a)).map(Ordering::reverse),
        (Uint(a), Double(b)) => return double_and_whole(*b, i128::from(*a)).map(Ordering::reverse),
        _ => return None,
    })
}

/// A double is compared by its exact value: no whole number of 64 bits is rounded.
fn double_and_whole(double: f64, whole: i128) -> Option<Ordering> {
    if double.is_nan() {
        return None;
    }
    // 2^65 and beyond is larger than any of them; a cast saturates.
    let floor = double.floor() as i128;
    Some(floor.cmp(&whole).then(if double > double.floor() { Ordering::Greater } else { Ordering::Equal }))
}

impl Value {
    /// A text.
    pub fn text(text: impl AsRef<str>) -> Value {
        Value::Text(text.as_ref().into())
    }

    /// A list whose items are known by their place.
    pub fn list(items: Vec<Value>) -> Value {
        Value::List(Arc::new(List { items, identity: Identity::Place }))
    }

    /// A map.
    pub fn map(entries: impl IntoIterator<Item = (Key, Value)>) -> Value {
        Value::Map(Arc::new(Map { entries: entries.into_iter().collect(), object: false, made: None }))
    }

    /// An object: fields by name.
    pub fn object(fields: impl IntoIterator<Item = (String, Value)>) -> Value {
        let entries =
            fields.into_iter().map(|(name, value)| (Key::Text(name.as_str().into()), value)).collect();
        Value::Map(Arc::new(Map { entries, object: true, made: None }))
    }

    /// A value without a declared type.
    pub fn from_json(json: &Json) -> Value {
        match json {
            Json::Null => Value::Null,
            Json::Bool(b) => Value::Bool(*b),
            Json::Number(n) => match (n.as_i64(), n.as_u64()) {
                (Some(n), _) => Value::Int(n),
                (None, Some(n)) => Value::Uint(n),
                (None, None) => Value::Double(n.as_f64().unwrap_or(f64::NAN)),
            },
            Json::String(s) => Value::text(s),
            Json::Array(items) => Value::list(items.iter().map(Value::from_json).collect()),
            Json::Object(map) => {
                Value::map(map.iter().map(|(k, v)| (Key::Text(k.as_str().into()), Value::from_json(v))))
            }
        }
    }

    /// The name of the value's type.
    pub fn kind(&self) -> &str {
        match self {
            Value::Null => "null_type",
            Value::Bool(_) => "bool",
            Value::Int(_) => "int",
            Value::Uint(_) => "uint",
            Value::Double(_) => "double",
            Value::Text(_) => "string",
            Value::Bytes(_) => "bytes",
            Value::List(_) => "list",
            Value::Map(map) => map.made.as_deref().unwrap_or("map"),
            Value::Duration(_) => "google.protobuf.Duration",
            Value::Time(..) => "google.protobuf.Timestamp",
            Value::Type(_) => "type",
            Value::Optional(_) => "optional_type",
            Value::Library(value) => value.runtime_type_name(),
        }
    }

    /// Whether it is what its type has in place of nothing.
    pub fn zero(&self) -> bool {
        match self {
            Value::Null | Value::Bool(false) | Value::Int(0) | Value::Uint(0) | Value::Optional(None) => true,
            Value::Double(n) => *n == 0.0,
            Value::Text(text) => text.is_empty(),
            Value::Bytes(bytes) => bytes.is_empty(),
            Value::List(list) => list.items.is_empty(),
            Value::Map(map) => map.entries.is_empty(),
            Value::Duration(d) => d.is_zero(),
            _ => false,
        }
    }

    /// Which of two values is less; `None` if they have no order.
    pub fn order(&self, other: &Value) -> Option<Ordering> {
        use Value::{Bool, Bytes, Duration, Text, Time};
        match (self, other) {
            (Bool(a), Bool(b)) => Some(a.cmp(b)),
            (Text(a), Text(b)) => Some(a.cmp(b)),
            (Bytes(a), Bytes(b)) => Some(a.cmp(b)),
            (Duration(a), Duration(b)) => Some(a.cmp(b)),
            (Time(a, _), Time(b, _)) => Some(a.cmp(b)),
            (a, b) => numbers(a, b),
        }
    }
}

impl PartialEq for Value {
    fn eq(&self, other: &Value) -> bool {
        use Value::{Bool, Bytes, Duration, Library, Map, Null, Optional, Text, Time, Type};
        match (self, other) {
            (Null, Null) => true,
            (Bool(a), Bool(b)) => a == b,
            (Text(a), Text(b)) | (Type(a), Type(b)) => a == b,
            (Bytes(a), Bytes(b)) => a == b,
            (Value::List(a), Value::List(b)) => a.same(b),
            (Map(a), Map(b)) => a.made == b.made && a.entries == b.entries,
            (Duration(a), Duration(b)) => a == b,
            (Time(a, _), Time(b, _)) => a == b,
            (Optional(a), Optional(b)) => a == b,
            (Library(a), Library(b)) => a.opaque_eq(&**b),
            (a, b) => numbers(a, b).is_some_and(Ordering::is_eq),
        }
    }
}

impl List {
    /// Lists whose items have an identity are equal in any order.
    fn same(&self, other: &List) -> bool {
        if self.items.len() != other.items.len() {
            return false;
        }
        if self.identity == Identity::Place && other.identity == Identity::Place {
            return self.items == other.items;
        }
        if self.items == other.items {
            return true;
        }
        let known = Index::of(&other.items);
        self.items.iter().all(|item| known.has(item))
    }

    /// The mark of what tells an item from the others.
    fn mark(&self, item: &Value) -> Mark {
        match (&self.identity, item) {
            (Identity::Keys(keys), Value::Map(map)) => {
                Mark::of_parts(keys.iter().map(|key| map.entries.get(&Key::Text(key.as_str().into()))))
            }
            _ => Mark::of(item),
        }
    }

    fn identical(&self, a: &Value, b: &Value) -> bool {
        match (&self.identity, a, b) {
            (Identity::Keys(keys), Value::Map(a), Value::Map(b)) => keys.iter().all(|key| {
                let key = Key::Text(key.as_str().into());
                a.entries.get(&key) == b.entries.get(&key)
            }),
            _ => a == b,
        }
    }

    /// The items of both; an item that the first has already is replaced, not repeated.
    pub fn joined(&self, other: &List) -> List {
        let mut made = self.clone();
        if self.identity == Identity::Place {
            made.items.extend(other.items.iter().cloned());
            return made;
        }
        let mut places: BTreeMap<Mark, Vec<usize>> = BTreeMap::new();
        for (place, item) in self.items.iter().enumerate() {
            places.entry(self.mark(item)).or_default().push(place);
        }
        for item in &other.items {
            let alike = places.entry(self.mark(item)).or_default();
            let known = alike.iter().copied().find(|place| self.identical(&made.items[*place], item));
            match known {
                Some(place) => made.items[place] = item.clone(),
                None => {
                    alike.push(made.items.len());
                    made.items.push(item.clone());
                }
            }
        }
        made
    }
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Null => f.write_str("null"),
            Value::Bool(b) => b.fmt(f),
            Value::Int(n) => n.fmt(f),
            Value::Uint(n) => write!(f, "{n}u"),
            Value::Double(n) => n.fmt(f),
            Value::Text(text) => text.fmt(f),
            Value::Bytes(bytes) => write!(f, "b{bytes:?}"),
            Value::List(list) => list.items.fmt(f),
            Value::Map(map) => map.entries.fmt(f),
            Value::Duration(d) => d.fmt(f),
            Value::Time(time, _) => time.fmt(f),
            Value::Type(name) => f.write_str(name),
            Value::Optional(value) => value.fmt(f),
            Value::Library(value) => value.as_debug().fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_all_kinds_compare_by_their_value() {
        assert_eq!(Value::Int(1), Value::Double(1.0));
        assert_eq!(Value::Int(1), Value::Uint(1));
        assert_ne!(Value::Int(-1), Value::Uint(u64::MAX));
        assert_ne!(Value::Int(i64::MAX), Value::Double(i64::MAX as f64), "no rounding");
        assert_eq!(Value::Double(-0.5).order(&Value::Int(0)), Some(Ordering::Less));
        assert_eq!(Value::Double(f64::NAN).order(&Value::Int(0)), None);
        let map = Value::map([(Key::Int(1), Value::Null)]);
        let Value::Map(map) = map else { unreachable!() };
        assert!(map.entries.contains_key(&Key::Double(1.0)) && map.entries.contains_key(&Key::Uint(1)));
    }

    #[test]
    fn sets_are_equal_in_any_order() {
        let list = |items: &[i64], identity| {
            let items = items.iter().map(|n| Value::Int(*n)).collect();
            Value::List(Arc::new(List { items, identity }))
        };
        assert_eq!(list(&[1, 2], Identity::Set), list(&[2, 1], Identity::Place));
        assert_ne!(list(&[1, 2], Identity::Place), list(&[2, 1], Identity::Place));
    }

    /// Each compared with each takes minutes.
    #[test]
    fn long_sets_are_compared_and_joined_in_one_pass() {
        const ITEMS: i64 = 100_000;
        let list = |items: Vec<Value>, identity| List { items, identity };
        let numbers = |from: i64| (from..from + ITEMS).map(Value::Int);
        let set = |from: i64| list(numbers(from).collect(), Identity::Set);
        let reversed = list(numbers(0).rev().collect(), Identity::Place);
        assert!(set(0).same(&reversed) && !set(0).same(&set(1)));
        assert!(
            set(0).joined(&set(10)).items == numbers(0).chain(numbers(ITEMS).take(10)).collect::<Vec<_>>()
        );
        let item = |key: i64, value: i64| {
            Value::object([("k".to_owned(), Value::Int(key)), ("v".to_owned(), Value::Int(value))])
        };
        let keys = Identity::Keys(Arc::new(vec!["k".to_owned()]));
        let before = list((0..ITEMS).map(|key| item(key, 0)).collect(), keys.clone());
        let now = list((1..=ITEMS).rev().map(|key| item(key, 1)).collect(), keys);
        let joined = before.joined(&now);
        assert_eq!(joined.items.len() as i64, ITEMS + 1);
        for (place, value) in [(0, item(0, 0)), (1, item(1, 1)), (joined.items.len() - 1, item(ITEMS, 1))] {
            assert_eq!(joined.items[place], value);
        }
    }
}
