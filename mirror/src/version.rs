//! The comparison of resource versions.

use std::cmp::Ordering;

/// The resourceVersion of an object or a list. Versions are numbers that grow over all objects of a kind.
/// Kubernetes guarantees this from 1.35 on, and every server on etcd has always done so. Other versions cannot be
/// compared.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Version {
    /// Absent.
    #[default]
    Unknown,
    Number(u64),
    /// Not a number: it can only be equal or not.
    Opaque(String),
}

impl Version {
    pub fn parse(text: &str) -> Self {
        match text.parse() {
            Ok(number) => Self::Number(number),
            Err(_) if text.is_empty() => Self::Unknown,
            Err(_) => Self::Opaque(text.to_owned()),
        }
    }

    /// From an object's metadata.
    pub fn of(text: Option<&String>) -> Self {
        text.map_or(Self::Unknown, |text| Self::parse(text))
    }

    /// Their order; `None` if it cannot be said.
    pub fn compare(&self, other: &Self) -> Option<Ordering> {
        match (self, other) {
            (Self::Number(one), Self::Number(two)) => Some(one.cmp(two)),
            _ => None,
        }
    }

    /// Certainly older than the other.
    pub fn is_older(&self, than: &Self) -> bool {
        self.compare(than) == Some(Ordering::Less)
    }

    /// Certainly newer than the other.
    pub fn is_newer(&self, than: &Self) -> bool {
        self.compare(than) == Some(Ordering::Greater)
    }

    /// Present and equal: the object has not changed.
    pub fn is_same(&self, other: &Self) -> bool {
        *self != Self::Unknown && self == other
    }

    /// The newer of the two; if that cannot be said, the other.
    pub(crate) fn raise(&mut self, to: &Self) {
        if !to.is_older(self) && *to != Self::Unknown {
            *self = to.clone();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_compare_as_numbers_and_nothing_else_compares() {
        let v = Version::parse;
        assert!(v("9").is_older(&v("10")) && v("10").is_newer(&v("9")) && !v("9").is_newer(&v("9")));
        for (one, two) in [("", "9"), ("9", ""), ("a", "9"), ("a", "b"), ("9", "18446744073709551616")] {
            assert_eq!(v(one).compare(&v(two)), None, "{one:?} {two:?}");
        }
        assert!(v("a").is_same(&v("a")) && !v("").is_same(&v("")) && !v("a").is_same(&v("b")));
        assert_eq!(Version::of(None), Version::Unknown);
    }
}
