//! Which fields of a built-in definition are written when they have nothing to say.

use serde_json::Value;

/// Whether a field is written when it has nothing to say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Presence {
    /// Left out when zero.
    Optional,
    /// A struct that is always there.
    Struct,
    /// A struct left out when empty.
    OptionalStruct,
    /// Always there, with this zero value.
    Always(Zero),
}

/// What stands for an absent value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Zero {
    /// Empty text.
    Text,
    /// false.
    Flag,
    /// 0.
    Number,
    /// null also for an empty list or map.
    List,
    /// null.
    Null,
    /// The quantity "0".
    Quantity,
}

impl Presence {
    pub(crate) fn of(code: &str) -> Option<Presence> {
        Some(match code {
            "o" => Presence::Optional,
            "s" => Presence::Struct,
            "z" => Presence::OptionalStruct,
            "S" => Presence::Always(Zero::Text),
            "B" => Presence::Always(Zero::Flag),
            "I" => Presence::Always(Zero::Number),
            "N" => Presence::Always(Zero::List),
            "P" => Presence::Always(Zero::Null),
            "q" => Presence::Always(Zero::Quantity),
            _ => return None,
        })
    }
}

impl Zero {
    /// The value itself.
    pub fn value(self) -> Value {
        match self {
            Zero::Text => "".into(),
            Zero::Flag => false.into(),
            Zero::Number => 0.into(),
            Zero::List | Zero::Null => Value::Null,
            Zero::Quantity => "0".into(),
        }
    }
}
