//! Why one node cannot take a pod, and the sentence about all nodes.

use std::collections::BTreeMap;
use std::sync::Arc;

use fleet_placement::listed;

use crate::amounts::Dimensions;

/// Why one node cannot take a pod.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Misfit {
    NotReady,
    /// For pods that are placed by name.
    Kept,
    Unschedulable,
    NodeAffinity,
    Taint,
    PodCount,
    /// The resources that are short, by dimension.
    Resources(Vec<u16>),
    /// The pod names resources that no node offers, and more of them than are counted.
    TooManyResources,
    Claimed,
    /// By the extender, with the reason.
    Vetoed(Arc<str>),
    /// By a plugin, in its words.
    Rule(&'static str),
}

impl Misfit {
    /// About the pod itself, not about resources and nodes alone.
    pub(crate) fn is_about_pods(&self) -> bool {
        !matches!(
            self,
            Self::NotReady
                | Self::Kept
                | Self::Unschedulable
                | Self::NodeAffinity
                | Self::Taint
                | Self::PodCount
                | Self::Resources(_)
                | Self::TooManyResources
        )
    }

    /// As in the sentence `2 node(s) ...`.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::NotReady => "were not ready",
            Self::Kept => "were cells of virtual clusters",
            Self::Unschedulable => "were unschedulable",
            Self::NodeAffinity => "didn't match the pod's node affinity/selector",
            Self::Taint => "had untolerated taints",
            Self::PodCount => "pod number exceeded",
            Self::Resources(_) => "resource fit failed",
            Self::TooManyResources => "offered not all of the pod's many resources",
            Self::Claimed => "were kept for a gang that waited longer",
            Self::Vetoed(_) => "were refused by the extender",
            Self::Rule(words) => words,
        }
    }
}

/// Which capacity counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fit {
    /// Free now.
    Now,
    /// Free once everything that is terminating is gone.
    Future,
}

/// A sentence made from counts of misfits.
pub(crate) fn sentence(dimensions: &Dimensions, misfits: &BTreeMap<Misfit, i64>, nodes: i64) -> Arc<str> {
    if nodes == 0 {
        return "there are no nodes".into();
    }
    // Each missing resource counts, as in Kubernetes and Volcano.
    let mut counts: BTreeMap<String, i64> = BTreeMap::new();
    for (misfit, count) in misfits {
        let mut add = |what: String| *counts.entry(what).or_default() += count;
        match misfit {
            Misfit::Resources(places) => places.iter().for_each(|place| {
                add(format!("Insufficient {}", dimensions.name(usize::from(*place)).as_str()))
            }),
            Misfit::Vetoed(why) => add(format!("node(s) were refused by the extender ({why})")),
            other => add(format!("node(s) {}", other.as_str())),
        }
    }
    let mut parts: Vec<String> = counts.into_iter().map(|(what, count)| format!("{count} {what}")).collect();
    parts.sort();
    format!("0/{nodes} nodes are unavailable: {}.", listed(&parts)).into()
}
