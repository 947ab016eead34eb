//! Why a gang does not fit, as numbers and as one sentence.

use std::fmt;

use fleet_resources::{Resources, Shortage, quantity};
use serde::{Deserialize, Serialize};

use crate::gang::Gang;
use crate::solver::{Class, MAX_GANG_PODS, Problem, capacity};

/// What is missing for one component.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ComponentRefusal {
    pub name: String,
    /// Pods that would fit if the component were alone; at most `wanted`.
    pub fit: i64,
    pub wanted: i64,
    /// Number of nodes.
    pub nodes: i64,
    /// Nodes whose selectors, affinity and taints admit the component.
    pub admitted: i64,
    /// Admitted nodes that cannot take one more pod (once those that fit are placed).
    pub lacking: i64,
    /// What most of those lack: the request of one pod, and what is free on the best of them.
    pub short: Vec<Shortage>,
}

/// Why a gang does not fit on a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    pub components: Vec<ComponentRefusal>,
}

impl Refusal {
    /// One sentence for conditions and messages, such as `1 of 2 worker fit: 3 of 4 nodes lack 2 nvidia.com/gpu`.
    pub fn sentence(&self) -> String {
        let blocked: Vec<String> = self
            .components
            .iter()
            .filter(|component| component.fit < component.wanted)
            .map(ToString::to_string)
            .collect();
        let pods = self.components.iter().fold(0_i64, |sum, component| sum.saturating_add(component.wanted));
        if pods > MAX_GANG_PODS {
            return format!("the job asks for {pods} pods at once; allowed: at most {MAX_GANG_PODS}");
        }
        if blocked.is_empty() {
            return "each component fits alone, but not all together".to_owned();
        }
        blocked.join("; ")
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.sentence())
    }
}

impl fmt::Display for ComponentRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} {} fit: ", self.fit, self.wanted, self.name)?;
        if self.nodes == 0 {
            return f.write_str("there are no nodes");
        }
        if self.admitted == 0 {
            return write!(
                f,
                "none of {} nodes is ready and admitted by node selector, affinity and taints",
                self.nodes
            );
        }
        let lacks: Vec<String> = self
            .short
            .iter()
            .map(|short| format!("{} {}", quantity::format(short.name.as_str(), short.missing()), short.name))
            .collect();
        let what = if lacks.is_empty() { "a free pod slot".to_owned() } else { lacks.join(" and ") };
        write!(f, "{} of {} nodes lack {what}", self.lacking, self.nodes)?;
        if self.admitted < self.nodes {
            write!(f, ", {} are not ready or not admitted", self.nodes - self.admitted)?;
        }
        Ok(())
    }
}

/// The refusal of a gang whose minimum `problem` cannot place.
pub(crate) fn refuse(problem: &Problem, gang: &Gang) -> Refusal {
    let minimum = gang.minimum();
    let components = gang.components.iter().zip(&minimum).enumerate();
    Refusal {
        components: components
            .map(|(k, (component, wanted))| {
                let fit = problem.fits_alone(k, *wanted);
                let mut refusal = ComponentRefusal {
                    name: component.name.clone(),
                    fit,
                    wanted: *wanted,
                    nodes: problem.classes.iter().map(Class::count).sum(),
                    admitted: 0,
                    lacking: 0,
                    short: Vec::new(),
                };
                describe(problem, k, &mut refusal);
                refusal
            })
            .collect(),
    }
}

/// Counts the nodes that cannot take one more pod, and what most of them lack. If each could take one, the pods
/// that fit are placed first: then all nodes lack something.
fn describe(problem: &Problem, k: usize, refusal: &mut ComponentRefusal) {
    let request = &problem.requests[k];
    let admitted: Vec<&Class> = problem.classes.iter().filter(|class| class.admitted[k]).collect();
    refusal.admitted = admitted.iter().map(|class| class.count()).sum();
    if refusal.fit >= refusal.wanted {
        return;
    }
    let full: Vec<&Class> =
        admitted.iter().filter(|class| capacity(&class.free, request) == 0).copied().collect();
    let lacking = if full.is_empty() { &admitted } else { &full };
    refusal.lacking = lacking.iter().map(|class| class.count()).sum();
    // The first of the most numerous, so that ties are stable.
    let Some(most) = lacking.iter().rev().max_by_key(|class| class.count()) else {
        return;
    };
    let placed = capacity(&most.free, request);
    let left: Vec<i64> = most
        .free
        .iter()
        .zip(request)
        .map(|(free, amount)| free.saturating_sub(amount.saturating_mul(placed)))
        .collect();
    let named =
        |amounts: &[i64]| Resources::from_pairs(problem.names.iter().cloned().zip(amounts.iter().copied()));
    refusal.short = named(request).shortages(&named(&left));
}
