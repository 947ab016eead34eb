//! A vector of resource amounts.
//!
//! A missing name and an amount of zero mean the same. Zeros are never stored, so equal vectors have equal meaning.
//! Arithmetic saturates: an amount beyond `i64` stays at its bound.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::{ResourceName, quantity};

/// Amounts by resource name, in base units, sorted by name.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Resources {
    entries: Vec<(ResourceName, i64)>,
}

/// One resource of which less is free than requested.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Shortage {
    pub name: ResourceName,
    /// Base units requested.
    pub requested: i64,
    /// Base units free.
    pub available: i64,
}

impl Shortage {
    /// How much is missing, in base units.
    pub fn missing(&self) -> i64 {
        self.requested.saturating_sub(self.available.max(0))
    }
}

impl fmt::Display for Shortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: requested {}, available {}",
            self.name,
            quantity::format(self.name.as_str(), self.requested),
            quantity::format(self.name.as_str(), self.available)
        )
    }
}

impl Resources {
    pub const fn new() -> Self {
        Self { entries: Vec::new() }
    }

    /// Amounts of the same name are added up.
    pub fn from_pairs<N, I>(pairs: I) -> Self
    where
        N: Into<ResourceName>,
        I: IntoIterator<Item = (N, i64)>,
    {
        let mut resources = Self::new();
        for (name, amount) in pairs {
            let name = name.into();
            let sum = resources.get(name.as_str()).saturating_add(amount);
            resources.set(name, sum);
        }
        resources
    }

    /// Parses a Kubernetes resource list (name to quantity text).
    ///
    /// # Errors
    /// The first invalid quantity, with its resource.
    pub fn parse<'a, I>(quantities: I) -> Result<Self, quantity::QuantityError>
    where
        I: IntoIterator<Item = (&'a str, &'a str)>,
    {
        let mut resources = Self::new();
        for (name, text) in quantities {
            resources.set(name, quantity::parse(name, text)?);
        }
        Ok(resources)
    }

    /// The amount of `name`; zero if it is absent.
    pub fn get(&self, name: &str) -> i64 {
        match self.position(name) {
            Ok(at) => self.entries[at].1,
            Err(_) => 0,
        }
    }

    pub fn set(&mut self, name: impl Into<ResourceName>, amount: i64) {
        let name = name.into();
        match (self.position(name.as_str()), amount) {
            (Ok(at), 0) => {
                self.entries.remove(at);
            }
            (Ok(at), _) => self.entries[at].1 = amount,
            (Err(_), 0) => {}
            (Err(at), _) => self.entries.insert(at, (name, amount)),
        }
    }

    pub fn add(&mut self, other: &Self) {
        self.merge(other, i64::saturating_add);
    }

    /// Amounts may become negative: a node that lost capacity is over-used.
    pub fn sub(&mut self, other: &Self) {
        self.merge(other, i64::saturating_sub);
    }

    /// Raises each amount to at least `other`'s.
    pub fn raise_to(&mut self, other: &Self) {
        self.merge(other, i64::max);
    }

    pub fn plus(&self, other: &Self) -> Self {
        let mut sum = self.clone();
        sum.add(other);
        sum
    }

    pub fn minus(&self, other: &Self) -> Self {
        let mut difference = self.clone();
        difference.sub(other);
        difference
    }

    /// `n` times this vector.
    pub fn scaled(&self, n: i64) -> Self {
        Self::from_pairs(self.entries.iter().map(|(name, amount)| (name.clone(), amount.saturating_mul(n))))
    }

    /// Every requested amount is free. Names with a request of zero or less always fit.
    pub fn fits_in(&self, free: &Self) -> bool {
        self.entries.iter().all(|(name, amount)| *amount <= 0 || *amount <= free.get(name.as_str()))
    }

    /// What is missing, by name.
    pub fn shortages(&self, free: &Self) -> Vec<Shortage> {
        self.entries
            .iter()
            .filter(|(name, amount)| *amount > 0 && *amount > free.get(name.as_str()))
            .map(|(name, amount)| Shortage {
                name: name.clone(),
                requested: *amount,
                available: free.get(name.as_str()),
            })
            .collect()
    }

    /// How many times this vector fits in `free`; `None` if it is empty.
    pub fn times_in(&self, free: &Self) -> Option<i64> {
        self.entries
            .iter()
            .filter(|(_, amount)| *amount > 0)
            .map(|(name, amount)| free.get(name.as_str()).max(0) / amount)
            .min()
    }

    pub fn is_zero(&self) -> bool {
        self.entries.is_empty()
    }

    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (&ResourceName, i64)> + '_ {
        self.entries.iter().map(|(name, amount)| (name, *amount))
    }

    /// Name to canonical quantity text, as a Kubernetes resource list.
    pub fn to_quantities(&self) -> BTreeMap<String, String> {
        self.iter()
            .map(|(name, amount)| (name.to_string(), quantity::format(name.as_str(), amount)))
            .collect()
    }

    fn position(&self, name: &str) -> Result<usize, usize> {
        self.entries.binary_search_by(|(entry, _)| entry.as_str().cmp(name))
    }

    fn merge(&mut self, other: &Self, combine: fn(i64, i64) -> i64) {
        for (name, amount) in &other.entries {
            match self.position(name.as_str()) {
                Ok(at) => self.entries[at].1 = combine(self.entries[at].1, *amount),
                Err(at) => self.entries.insert(at, (name.clone(), combine(0, *amount))),
            }
        }
        self.entries.retain(|(_, amount)| *amount != 0);
    }
}

impl fmt::Debug for Resources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{{self}}}")
    }
}

/// `cpu 2, memory 4Gi, nvidia.com/gpu 8`
impl fmt::Display for Resources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, (name, amount)) in self.iter().enumerate() {
            let comma = if i == 0 { "" } else { ", " };
            write!(f, "{comma}{name} {}", quantity::format(name.as_str(), amount))?;
        }
        Ok(())
    }
}

impl<N: Into<ResourceName>> FromIterator<(N, i64)> for Resources {
    fn from_iter<I: IntoIterator<Item = (N, i64)>>(pairs: I) -> Self {
        Self::from_pairs(pairs)
    }
}

impl Serialize for Resources {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}

impl<'de> Deserialize<'de> for Resources {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        BTreeMap::<ResourceName, i64>::deserialize(deserializer).map(Self::from_pairs)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn vector() -> impl Strategy<Value = Resources> {
        proptest::collection::btree_map(
            prop_oneof!["cpu", "memory", "nvidia.com/gpu", "pods"],
            -1000_i64..1000,
            0..4,
        )
        .prop_map(Resources::from_pairs)
    }

    proptest! {
        #[test]
        fn subtracting_undoes_adding(a in vector(), b in vector()) {
            prop_assert_eq!(a.plus(&b).minus(&b), a);
        }

        #[test]
        fn addition_commutes(a in vector(), b in vector()) {
            prop_assert_eq!(a.plus(&b), b.plus(&a));
        }

        #[test]
        fn fits_means_no_shortage(a in vector(), b in vector()) {
            prop_assert_eq!(a.fits_in(&b), a.shortages(&b).is_empty());
        }
    }

    #[test]
    fn zero_and_missing_are_the_same() {
        assert_eq!(Resources::from_pairs([("cpu", 0)]), Resources::new());
        assert!(Resources::from_pairs([("cpu", 0)]).is_zero());
    }

    #[test]
    fn an_overflow_saturates() {
        let huge = Resources::from_pairs([("cpu", i64::MAX)]);
        assert_eq!(huge.plus(&huge), huge);
        assert_eq!(huge.scaled(3), huge);
    }

    #[test]
    fn shortages_name_resource_and_amounts() {
        let request = Resources::from_pairs([("cpu", 2000), ("nvidia.com/gpu", 4)]);
        let free = Resources::from_pairs([("cpu", 3000), ("nvidia.com/gpu", 1)]);
        let short: Vec<String> = request.shortages(&free).iter().map(ToString::to_string).collect();
        assert_eq!(short, ["nvidia.com/gpu: requested 4, available 1"]);
        assert_eq!(request.to_string(), "cpu 2, nvidia.com/gpu 4");
    }
}
