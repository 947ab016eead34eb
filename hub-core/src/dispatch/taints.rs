//! How long a placement tolerates the NoExecute taints of a cluster.
//!
//! Fleet's own taints (drain, gone) are handled elsewhere. A toleration counts from the taint's `timeAdded`;
//! a taint without one gets it first.

use fleet_api::{
    Cluster,
    cluster::{ClusterTaint, DRAIN_TAINT, GONE_TAINT},
    convert,
};
use fleet_policies::spec::Placement;
use jiff::{SignedDuration, Timestamp};

/// A taint that is not tolerated, or not forever.
pub struct Limit {
    pub until: Timestamp,
    pub taint: String,
    /// Some toleration matches it: new runs may go there until then.
    pub is_tolerated: bool,
}

/// The taint with the shortest toleration; `None` if all are tolerated forever. If several tolerations match
/// a taint, the shortest counts.
pub fn limit(cluster: &Cluster, placement: &Placement) -> Option<Limit> {
    let moving = |taint: &&ClusterTaint| {
        taint.effect == "NoExecute" && taint.key != DRAIN_TAINT && taint.key != GONE_TAINT
    };
    let of = |wire: &ClusterTaint| {
        let taint = convert::taint_from_wire(wire)?;
        let added: Timestamp = wire.time_added.as_ref()?.parse().ok()?;
        let tolerating = placement.cluster_tolerations.iter().filter(|t| t.tolerates(&taint));
        let times: Vec<Option<i64>> = tolerating.map(|toleration| toleration.toleration_seconds).collect();
        let seconds = match times.iter().flatten().min() {
            _ if times.is_empty() => 0,
            Some(seconds) => (*seconds).max(0),
            None => return None,
        };
        let until = added.saturating_add(SignedDuration::from_secs(seconds)).unwrap_or(Timestamp::MAX);
        Some(Limit { until, taint: wire.key.clone(), is_tolerated: !times.is_empty() })
    };
    cluster.spec.taints.iter().filter(moving).filter_map(of).min_by_key(|limit| limit.until)
}

#[cfg(test)]
mod tests;
