//! Resources as vectors: each resource has a fixed position, so amounts are added and compared without names.
//!
//! The first three positions are pods, cpu and memory. Cpu is in millicores, memory and storage in bytes,
//! everything else in thousandths, so that queues can share resources that come in whole units.

use std::collections::BTreeMap;
use std::sync::Arc;

use fleet_resources::{ResourceName, Resources};

/// Position of the number of pods.
pub const PODS: usize = 0;
pub const CPU: usize = 1;
pub const MEMORY: usize = 2;
/// Parts of one unit of a countable resource.
const PARTS: i64 = 1000;
/// Pods of a node without a limit.
pub const UNBOUNDED: i64 = i64::MAX / 4;

/// A request: (position, amount), amounts above zero, by position, without pods.
pub type Request = Arc<[(u16, i64)]>;

/// The position of each resource.
#[derive(Clone, Debug)]
pub struct Dimensions {
    names: Vec<ResourceName>,
    at: BTreeMap<ResourceName, usize>,
}

impl Default for Dimensions {
    fn default() -> Self {
        let mut dimensions = Self { names: Vec::new(), at: BTreeMap::new() };
        for name in [ResourceName::PODS, ResourceName::CPU, ResourceName::MEMORY] {
            dimensions.place(&ResourceName::new(name));
        }
        dimensions
    }
}

impl Dimensions {
    pub fn len(&self) -> usize {
        self.names.len()
    }

    pub fn is_empty(&self) -> bool {
        false
    }

    pub fn name(&self, place: usize) -> &ResourceName {
        &self.names[place]
    }

    pub fn find(&self, name: &str) -> Option<usize> {
        self.at.get(name).copied()
    }

    /// The position of `name`; a new one if it has none.
    pub fn place(&mut self, name: &ResourceName) -> usize {
        if let Some(at) = self.at.get(name) {
            return *at;
        }
        self.names.push(name.clone());
        self.at.insert(name.clone(), self.names.len() - 1);
        self.names.len() - 1
    }

    /// Parts of one base unit.
    pub fn parts(&self, place: usize) -> i64 {
        let name = self.names[place].as_str();
        let counted_in_units = name == ResourceName::PODS
            || name == ResourceName::CPU
            || name == ResourceName::MEMORY
            || name == ResourceName::EPHEMERAL_STORAGE
            || name == "storage"
            || name.starts_with("hugepages-");
        if counted_in_units { 1 } else { PARTS }
    }

    pub fn request(&mut self, resources: &Resources) -> Request {
        let mut amounts: Vec<(u16, i64)> = resources
            .iter()
            .filter(|(name, amount)| *amount > 0 && name.as_str() != ResourceName::PODS)
            .map(|(name, amount)| {
                let place = self.place(name);
                (place as u16, amount.saturating_mul(self.parts(place)))
            })
            .collect();
        amounts.sort_unstable();
        amounts.into()
    }

    /// As a full vector, with pods if they are named.
    pub fn vector(&mut self, resources: &Resources) -> Vec<i64> {
        for (name, _) in resources.iter() {
            self.place(name);
        }
        let mut vector = vec![0; self.len()];
        for (name, amount) in resources.iter() {
            let place = self.place(name);
            vector[place] = amount.saturating_mul(self.parts(place));
        }
        vector
    }

    /// Back to names and base units.
    pub fn resources(&self, vector: &[i64]) -> Resources {
        let named = vector.iter().enumerate().filter(|(_, amount)| **amount != 0);
        named.map(|(place, amount)| (self.names[place].clone(), amount / self.parts(place))).collect()
    }
}

/// Adds, and grows `to` if it is shorter.
#[inline]
pub fn add(to: &mut Vec<i64>, request: &[(u16, i64)], pods: i64, sign: i64) {
    let longest = request.last().map_or(0, |(place, _)| usize::from(*place)) + 1;
    if to.len() < longest {
        to.resize(longest, 0);
    }
    to[PODS] += sign * pods;
    for (place, amount) in request {
        to[usize::from(*place)] += sign * amount;
    }
}

/// The amount at a position; zero beyond the end.
#[inline]
pub fn get(vector: &[i64], place: usize) -> i64 {
    vector.get(place).copied().unwrap_or(0)
}

/// Padded with zeros up to `len`.
pub fn padded(vector: &[i64], len: usize) -> Vec<i64> {
    let mut vector = vector.to_vec();
    vector.resize(len.max(vector.len()), 0);
    vector
}
