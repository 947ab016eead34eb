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

/// Positions that requests of pods and minima of groups may bring about. Their owners choose the names, and each position costs
/// memory on every node. Nodes, queues and reserved places bring about further ones: for them this is no limit.
pub const MAX_ASKED: usize = 1024;
/// All positions: a [`Request`] has them in 16 bits.
const MAX_POSITIONS: usize = 1 << 16;
/// Most of one resource that a request counts, in its parts: a thousand such pods overflow no sum.
const MAX_AMOUNT: i64 = 1 << 53;

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

    /// The position of `name`; a new one if it has none. `None` if all are taken.
    pub fn place(&mut self, name: &ResourceName) -> Option<usize> {
        if let Some(at) = self.at.get(name) {
            return Some(*at);
        }
        if self.names.len() >= MAX_POSITIONS {
            return None;
        }
        self.names.push(name.clone());
        self.at.insert(name.clone(), self.names.len() - 1);
        Some(self.names.len() - 1)
    }

    /// Gives every requested resource a position if [`MAX_ASKED`] are enough for all of them, else none of those without.
    /// Returns whether all have one.
    fn place_asked(&mut self, resources: &Resources) -> bool {
        let is_new = |name: &ResourceName, amount: i64| amount > 0 && !self.at.contains_key(name);
        let new = resources.iter().filter(|(name, amount)| is_new(name, *amount)).count();
        if new > MAX_ASKED.saturating_sub(self.len()) {
            return false;
        }
        for (name, _) in resources.iter().filter(|(_, amount)| *amount > 0) {
            self.place(name);
        }
        true
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

    /// What a reserved place uses, which is always counted in full.
    pub fn request(&mut self, resources: &Resources) -> Request {
        for (name, _) in resources.iter().filter(|(_, amount)| *amount > 0) {
            self.place(name);
        }
        self.positioned(resources)
    }

    /// The request of a pod, and whether that is all of it: resources that no node, queue or reserved place names count only
    /// while there are at most [`MAX_ASKED`] positions.
    pub fn asked(&mut self, resources: &Resources) -> (Request, bool) {
        let whole = self.place_asked(resources);
        (self.positioned(resources), whole)
    }

    fn positioned(&self, resources: &Resources) -> Request {
        let mut amounts: Vec<(u16, i64)> = resources
            .iter()
            .filter(|(name, amount)| *amount > 0 && name.as_str() != ResourceName::PODS)
            .filter_map(|(name, amount)| {
                let place = self.find(name.as_str())?;
                let amount = amount.saturating_mul(self.parts(place)).min(MAX_AMOUNT);
                Some((u16::try_from(place).ok()?, amount))
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
        self.filled(resources, i64::MAX)
    }

    /// The minimum of a group as a full vector, and whether that is all of it, as in [`asked`](Self::asked).
    pub fn minimum(&mut self, resources: &Resources) -> (Vec<i64>, bool) {
        let whole = self.place_asked(resources);
        (self.filled(resources, MAX_AMOUNT), whole)
    }

    fn filled(&self, resources: &Resources, most: i64) -> Vec<i64> {
        let mut vector = vec![0; self.len()];
        for (name, amount) in resources.iter() {
            if let Some(place) = self.find(name.as_str()) {
                vector[place] = amount.saturating_mul(self.parts(place)).min(most);
            }
        }
        vector
    }

    /// Back to names and base units.
    pub fn resources(&self, vector: &[i64]) -> Resources {
        let named = vector.iter().enumerate().filter(|(_, amount)| **amount != 0);
        named.map(|(place, amount)| (self.names[place].clone(), amount / self.parts(place))).collect()
    }
}

/// Adds, and grows `to` if it is shorter. It wraps: what saturates could not be taken back.
#[inline]
pub fn add(to: &mut Vec<i64>, request: &[(u16, i64)], pods: i64, sign: i64) {
    let longest = request.last().map_or(0, |(place, _)| usize::from(*place)) + 1;
    if to.len() < longest {
        to.resize(longest, 0);
    }
    to[PODS] += sign * pods;
    for (place, amount) in request {
        let sum = &mut to[usize::from(*place)];
        *sum = sum.wrapping_add(sign * amount);
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
