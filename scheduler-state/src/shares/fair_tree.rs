//! Hierarchical dominant resource fairness, as Volcano's plugin `drf` computes it with `enableHierarchy`: shares of
//! the nodes of a tree whose leaves are jobs.
//!
//! Source: Bhattacharya, Culler, Friedman, Ghodsi, Shenker, Stoica: Hierarchical Scheduling for Diverse Datacenter
//! Workloads (SoCC 2013). Children are rescaled to the smallest dominant share among those that still ask for more.

use super::{WHOLE, dominant_share};

/// Share and saturation of one node or job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fair {
    /// The amounts that count for it, per dimension; of an inner node the rescaled sum of its children.
    pub allocated: Vec<i64>,
    /// Dominant share of that, [`WHOLE`] for one.
    pub share: i64,
    /// It can use nothing more.
    pub saturated: bool,
}

/// Whether a job can use nothing more: it has all it requests of some resource, or requests one that is used up.
///
/// `request` is everything the job requests, placed or not. `demanding` says of each dimension whether any of it is
/// left in the cluster. All vectors have the same length; the first `skip` dimensions (numbers of pods) are
/// ignored.
pub fn job(
    total: &[i64],
    demanding: &[bool],
    allocated: &[i64],
    request: impl Fn(usize) -> i64,
    skip: usize,
) -> Fair {
    let at = |d: usize| allocated.get(d).copied().unwrap_or(0);
    let full = |d: usize| at(d) > 0 && request(d) > 0 && at(d) >= request(d);
    let hopeless = |d: usize| request(d) > 0 && !demanding.get(d).copied().unwrap_or(true);
    let saturated = (skip..total.len()).any(|d| full(d) || hopeless(d));
    let counted: Vec<i64> = (0..total.len()).map(|d| if d < skip { 0 } else { at(d) }).collect();
    Fair { share: dominant_share(&counted, total), allocated: counted, saturated }
}

/// Sum over the children of one node; partial sums can be added.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Children {
    /// Of saturated children.
    settled: Vec<i64>,
    /// Of the others, each divided by its share, in [`WHOLE`]s.
    directions: Vec<i128>,
    /// Smallest share of a child that holds something and can use more; `None` without one.
    least: Option<i64>,
    /// Some child can use more.
    open: bool,
}

impl Children {
    pub fn add(&mut self, child: &Fair) {
        self.open |= !child.saturated;
        if child.share == 0 {
            return;
        }
        let n = child.allocated.len();
        self.widen(n);
        if child.saturated {
            self.settled.iter_mut().zip(&child.allocated).for_each(|(sum, part)| *sum += part);
            return;
        }
        self.least = Some(self.least.map_or(child.share, |least| least.min(child.share)));
        for (sum, part) in self.directions.iter_mut().zip(&child.allocated) {
            *sum += i128::from(*part) * i128::from(WHOLE) / i128::from(child.share);
        }
    }

    pub fn merge(&mut self, other: &Self) {
        self.widen(other.settled.len());
        self.settled.iter_mut().zip(&other.settled).for_each(|(sum, part)| *sum += part);
        self.directions.iter_mut().zip(&other.directions).for_each(|(sum, part)| *sum += part);
        self.least = [self.least, other.least].into_iter().flatten().min();
        self.open |= other.open;
    }

    /// The node above them.
    pub fn node(&self, total: &[i64]) -> Fair {
        let least = i128::from(self.least.unwrap_or(WHOLE).min(WHOLE));
        let scaled = |direction: &i128| {
            i64::try_from((direction * least + i128::from(WHOLE / 2)) / i128::from(WHOLE)).unwrap_or(i64::MAX)
        };
        let allocated: Vec<i64> = self
            .settled
            .iter()
            .zip(&self.directions)
            .map(|(settled, direction)| settled.saturating_add(scaled(direction)))
            .collect();
        Fair { share: dominant_share(&allocated, total), allocated, saturated: !self.open }
    }

    fn widen(&mut self, n: usize) {
        if self.settled.len() < n {
            self.settled.resize(n, 0);
            self.directions.resize(n, 0);
        }
    }
}
