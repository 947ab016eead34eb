//! Which clusters a policy admits.

use std::collections::{BTreeMap, BTreeSet};

use fleet_resources::constraints::{Taint, Toleration, repelling_taint};

use crate::spec::{ClusterAffinity, FieldOperator, Placement};

/// What the filters need to know of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterFacts {
    pub name: String,
    pub labels: BTreeMap<String, String>,
    pub provider: String,
    pub region: String,
    pub zones: Vec<String>,
    pub taints: Vec<Taint>,
    /// The agent answers.
    pub ready: bool,
    /// Cordoned: takes no new work.
    pub unschedulable: bool,
}

/// Every part of the affinity must match. `exclude` wins over the rest. An empty affinity matches all clusters.
pub fn cluster_matches(affinity: &ClusterAffinity, cluster: &ClusterFacts) -> bool {
    let excluded = affinity.exclude.contains(&cluster.name);
    let named = affinity.cluster_names.is_empty() || affinity.cluster_names.contains(&cluster.name);
    let labelled = affinity.label_selector.as_ref().is_none_or(|selector| selector.matches(&cluster.labels));
    let fields = affinity.field_selector.as_ref().is_none_or(|selector| {
        selector.match_expressions.iter().all(|e| field_matches(&e.key, e.operator, &e.values, cluster))
    });
    !excluded && named && labelled && fields
}

/// Zones are a set: `In` matches any of them, `NotIn` none. An unknown key matches nothing.
fn field_matches(key: &str, operator: FieldOperator, values: &[String], cluster: &ClusterFacts) -> bool {
    let listed = match key {
        "provider" => values.contains(&cluster.provider),
        "region" => values.contains(&cluster.region),
        "zone" => cluster.zones.iter().any(|zone| values.contains(zone)),
        _ => return false,
    };
    match operator {
        FieldOperator::In => listed,
        FieldOperator::NotIn => !listed,
    }
}

/// Why a cluster may not take new work under a placement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unfit {
    NotReady,
    Cordoned,
    Taint(Taint),
    Affinity,
}

/// One group of clusters to try; groups are tried in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterGroup {
    /// Empty for the single unnamed affinity.
    pub affinity_name: String,
    /// Names in ascending order.
    pub clusters: Vec<String>,
}

/// The clusters a placement admits, group by group. A cluster that already has the object (`current`) is never
/// dropped for a taint: eviction decides about that. A cluster is in the first group that names it.
pub fn admitted_groups(
    placement: &Placement,
    clusters: &[ClusterFacts],
    current: &[String],
) -> Vec<ClusterGroup> {
    // A policy may have a thousand groups.
    let mut seen: BTreeSet<&str> = BTreeSet::new();
    let current: BTreeSet<&str> = current.iter().map(String::as_str).collect();
    let mut groups = Vec::new();
    for (affinity_name, affinity) in affinity_terms(placement) {
        let mut names: Vec<&str> = clusters
            .iter()
            .filter(|cluster| !seen.contains(cluster.name.as_str()))
            .filter(|cluster| cluster_matches(&affinity, cluster))
            .filter(|cluster| {
                current.contains(cluster.name.as_str())
                    || refusal(&placement.cluster_tolerations, cluster).is_none()
            })
            .map(|cluster| cluster.name.as_str())
            .collect();
        names.sort_unstable();
        names.dedup();
        seen.extend(names.iter().copied());
        groups
            .push(ClusterGroup { affinity_name, clusters: names.iter().map(ToString::to_string).collect() });
    }
    groups
}

/// Why new work may not go to `cluster`; affinity is not checked.
pub fn refusal(tolerations: &[Toleration], cluster: &ClusterFacts) -> Option<Unfit> {
    if !cluster.ready {
        return Some(Unfit::NotReady);
    }
    if cluster.unschedulable {
        return Some(Unfit::Cordoned);
    }
    repelling_taint(tolerations, &cluster.taints).map(|taint| Unfit::Taint(taint.clone()))
}

/// Why `placement` keeps new work off `cluster`; `None` if it does not.
pub fn unfit(placement: &Placement, cluster: &ClusterFacts) -> Option<Unfit> {
    let admitted = affinity_terms(placement).iter().any(|(_, affinity)| cluster_matches(affinity, cluster));
    if !admitted {
        return Some(Unfit::Affinity);
    }
    refusal(&placement.cluster_tolerations, cluster)
}

fn affinity_terms(placement: &Placement) -> Vec<(String, ClusterAffinity)> {
    if placement.cluster_affinities.is_empty() {
        return vec![(String::new(), placement.cluster_affinity.clone().unwrap_or_default())];
    }
    placement
        .cluster_affinities
        .iter()
        .map(|term| (term.affinity_name.clone(), term.affinity.clone()))
        .collect()
}

#[cfg(test)]
mod tests {
    use fleet_resources::constraints::TaintEffect;
    use serde_json::json;

    use super::*;

    fn cluster(name: &str) -> ClusterFacts {
        ClusterFacts {
            name: name.into(),
            labels: BTreeMap::from([("gpu".into(), "a100".into())]),
            provider: "ali".into(),
            region: "hz".into(),
            zones: vec!["hz-a".into(), "hz-b".into()],
            ready: true,
            ..ClusterFacts::default()
        }
    }

    fn check(affinity: serde_json::Value, expected: bool) {
        let parsed: ClusterAffinity = serde_json::from_value(affinity.clone()).unwrap();
        assert_eq!(cluster_matches(&parsed, &cluster("east")), expected, "{affinity}");
    }

    #[test]
    fn affinities() {
        let field = |key: &str, operator: &str, value: &str| json!({"fieldSelector": {"matchExpressions": [{"key": key, "operator": operator, "values": [value]}]}});
        check(json!({}), true);
        check(json!({"clusterNames": ["east"]}), true);
        check(json!({"clusterNames": ["west"]}), false);
        check(json!({"clusterNames": ["east"], "exclude": ["east"]}), false);
        check(json!({"labelSelector": {"matchLabels": {"gpu": "a100"}}}), true);
        check(json!({"labelSelector": {"matchLabels": {"gpu": "h100"}}, "clusterNames": ["east"]}), false);
        check(field("zone", "In", "hz-b"), true);
        check(field("zone", "NotIn", "hz-b"), false);
        check(field("zone", "NotIn", "sh-a"), true);
        check(field("provider", "In", "aws"), false);
        check(field("region", "NotIn", "sh"), true);
        check(field("colour", "NotIn", "red"), false);
    }

    #[test]
    fn groups_in_order_without_repeats_or_tainted_newcomers() {
        let placement: Placement = serde_json::from_value(json!({"clusterAffinities": [
            {"affinityName": "primary", "clusterNames": ["west", "east", "down"]},
            {"affinityName": "rest"}]}))
        .unwrap();
        let mut tainted = cluster("tainted");
        tainted.taints.push(Taint {
            key: "maintenance".into(),
            value: String::new(),
            effect: TaintEffect::NoSelect,
        });
        let mut down = cluster("down");
        down.ready = false;
        let all = [cluster("west"), cluster("north"), cluster("east"), tainted, down];
        let names = |current: &[String]| -> Vec<Vec<String>> {
            admitted_groups(&placement, &all, current).into_iter().map(|group| group.clusters).collect()
        };
        assert_eq!(names(&[]), [vec!["east", "west"], vec!["north"]]);
        assert_eq!(names(&["tainted".into()]), [vec!["east", "west"], vec!["north", "tainted"]]);
        assert_eq!(unfit(&placement, &all[4]), Some(Unfit::NotReady));
    }
}
