//! Values by name, in the order of their names, found by one comparison.
//!
//! Inputs: names that are known long before they are looked for, such as the fields of a schema. Absent on purpose: removal.

use crate::dict::hash;

/// Names up to which a binary search is as fast.
const FEW: usize = 2;
/// Slots that are looked at for a name at most. Names that were chosen to share them are searched for in their order.
const LONGEST: usize = 32;

/// Values by name.
#[derive(Debug)]
pub struct Named<T> {
    /// Sorted by name.
    list: Vec<(Box<str>, T)>,
    /// One more than the place of the name that was put here by its hash, or in one of the slots behind it; 0: none. At most half
    /// are taken, and their number is a power of two. Empty where a binary search is used.
    slots: Box<[u32]>,
}

impl<T> Default for Named<T> {
    fn default() -> Named<T> {
        Named { list: Vec::new(), slots: Box::default() }
    }
}

impl<T> FromIterator<(Box<str>, T)> for Named<T> {
    /// Of two values of one name the first is found.
    fn from_iter<I: IntoIterator<Item = (Box<str>, T)>>(values: I) -> Named<T> {
        let mut list = Vec::from_iter(values);
        list.sort_by(|a, b| a.0.cmp(&b.0));
        list.dedup_by(|later, first| later.0 == first.0);
        list.shrink_to_fit();
        let mut named = Named { list, slots: Box::default() };
        named.index();
        named
    }
}

impl<T> Named<T> {
    /// Place and value of a name.
    #[inline]
    pub fn find(&self, name: &str) -> Option<(usize, &T)> {
        let at = match self.slots.len() {
            0 => self.list.binary_search_by(|(known, _)| (**known).cmp(name)).ok()?,
            slots => {
                let mut slot = hash(name.as_bytes()) as usize & (slots - 1);
                loop {
                    let at = (self.slots[slot] as usize).checked_sub(1)?;
                    if *self.list[at].0 == *name {
                        break at;
                    }
                    slot = (slot + 1) & (slots - 1);
                }
            }
        };
        Some((at, &self.list[at].1))
    }

    /// The value of a name.
    #[inline]
    pub fn get(&self, name: &str) -> Option<&T> {
        self.find(name).map(|(_, value)| value)
    }

    /// Adds a value, in place of the one that has its name.
    pub fn put(&mut self, name: &str, value: T) {
        match self.list.binary_search_by(|(known, _)| (**known).cmp(name)) {
            Ok(at) => self.list[at].1 = value,
            Err(at) => {
                self.list.insert(at, (name.into(), value));
                self.index();
            }
        }
    }

    /// All names and values, in the order of the names.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = (&str, &T)> {
        self.list.iter().map(|(name, value)| (&**name, value))
    }

    /// True when there is none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    fn index(&mut self) {
        self.slots = if self.list.len() > FEW { self.slots().unwrap_or_default() } else { Box::default() };
    }

    /// None if a name would stand too far behind the slot of its hash.
    fn slots(&self) -> Option<Box<[u32]>> {
        let mut slots = vec![0; (2 * self.list.len()).next_power_of_two()].into_boxed_slice();
        let mask = slots.len() - 1;
        for (place, (name, _)) in (1..).zip(&self.list) {
            let first = hash(name.as_bytes()) as usize;
            let slot =
                (first..first.saturating_add(LONGEST)).map(|n| n & mask).find(|slot| slots[*slot] == 0)?;
            slots[slot] = place;
        }
        Some(slots)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_is_found_and_no_other() {
        for count in [0, 1, 2, 3, 4, 7, 8, 9, 100, 1000] {
            let name = |n: usize| format!("name{n:04}");
            let named: Named<usize> = (0..count).rev().map(|n| (name(n).into(), n)).collect();
            assert!(named.iter().map(|(_, n)| *n).eq(0..count), "they stand in the order of their names");
            for n in 0..count {
                assert_eq!(named.find(&name(n)), Some((n, &n)));
            }
            for other in ["", "name", "name0000x", "zzz", &name(count)] {
                assert_eq!(named.get(other), None, "{count} {other}");
            }
        }
    }

    #[test]
    fn names_with_one_slot_are_found_in_their_order() {
        // The last twelve bits of their hashes are equal, and fewer choose the slot.
        let names: Vec<String> =
            (0..1_000_000).map(|n| n.to_string()).filter(|name| hash(name.as_bytes()) & 0xfff == 7).collect();
        assert!(names.len() > LONGEST);
        let named: Named<usize> =
            names.iter().enumerate().map(|(n, name)| (name.as_str().into(), n)).collect();
        assert!(named.slots.is_empty());
        assert!(names.iter().enumerate().all(|(n, name)| named.get(name) == Some(&n)));
        assert_eq!(named.get("other"), None);
    }

    #[test]
    fn a_value_is_put_in_place_of_another() {
        let mut named: Named<u8> = [("b".into(), 1), ("d".into(), 2), ("d".into(), 3)].into_iter().collect();
        assert_eq!(named.get("d"), Some(&2), "the first of two");
        for (name, value) in [("c", 4), ("a", 5), ("d", 6), ("e", 7)] {
            named.put(name, value);
        }
        let all: Vec<_> = named.iter().map(|(name, value)| (name.to_string(), *value)).collect();
        assert_eq!(all, [("a", 5), ("b", 1), ("c", 4), ("d", 6), ("e", 7)].map(|(n, v)| (n.to_string(), v)));
        assert_eq!(named.find("e"), Some((4, &7)));
    }
}
