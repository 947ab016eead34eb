//! `fleet clusters`: the members with their used resources.

use fleet_api::{Cluster, cluster::CORDON_TAINT};
use fleet_cli_ground::{
    age,
    answer::Answer,
    connect::Hub,
    listing::{self, List},
    members,
};
use fleet_resources::quantity;
use fleet_views::amounts::short;
use jiff::Timestamp;
use serde_json::json;

use crate::args::ClustersArgs;
use fleet_console::progress::Progress;

const GPU: &str = "nvidia.com/gpu";

pub async fn run(hub: &Hub, args: &ClustersArgs) -> anyhow::Result<Answer> {
    listing::run(&args.listing, async || {
        let _progress = Progress::start("asking the hub");
        list(&members::clusters(hub).await?, args.listing.is_wide(), Timestamp::now())
    })
    .await
}

fn list(clusters: &[Cluster], wide: bool, now: Timestamp) -> anyhow::Result<List> {
    let mut headers = vec![
        "NAME",
        "VERSION",
        "READY",
        "NODES",
        "GPU USED/TOTAL",
        "CPU USED/TOTAL",
        "MEMORY USED/TOTAL",
        "AGE",
    ];
    if wide {
        headers.extend(["REGION", "ZONES", "PROVIDER", "API-ENDPOINT"]);
    }
    let mut list = List { aging: &["AGE"], ..List::of_objects(&headers, "cluster.fleet.dev/") };
    list.nothing =
        "No clusters have joined; `fleet join NAME --member-kubeconfig FILE` adds one.".to_string();
    for cluster in clusters {
        let status = cluster.status.clone().unwrap_or_default();
        let nodes = match &status.node_summary {
            Some(nodes) if nodes.ready_num == nodes.total_num => nodes.total_num.to_string(),
            Some(nodes) => format!("{}/{}", nodes.ready_num, nodes.total_num),
            None => "-".to_string(),
        };
        let metadata = json!({"metadata": {"creationTimestamp": cluster.metadata.creation_timestamp}});
        let mut cells = vec![
            cluster.metadata.name.clone().unwrap_or_default(),
            status.kubernetes_version.clone().unwrap_or_else(|| "-".to_string()),
            readiness(cluster),
            nodes,
            used_of_total(cluster, GPU),
            used_of_total(cluster, "cpu"),
            used_of_total(cluster, "memory"),
            age::of(&metadata, now),
        ];
        if wide {
            let or_dash = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_string());
            cells.push(or_dash(&cluster.spec.region));
            cells.push(if cluster.spec.zones.is_empty() { "-".into() } else { cluster.spec.zones.join(",") });
            cells.push(or_dash(&cluster.spec.provider));
            cells.push(or_dash(&cluster.spec.api_endpoint));
        }
        list.row(cluster, cells)?;
    }
    Ok(list)
}

fn readiness(cluster: &Cluster) -> String {
    let conditions = cluster.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    let ready = conditions.iter().find(|condition| condition.type_ == "Ready");
    let ready = ready.map_or("Unknown", |condition| condition.status.as_str());
    let cordoned = cluster.spec.taints.iter().any(|taint| taint.key == CORDON_TAINT);
    if cordoned { format!("{ready},SchedulingDisabled") } else { ready.to_string() }
}

/// `3/32`: requests of pods and reservations, of what is allocatable.
fn used_of_total(cluster: &Cluster, resource: &str) -> String {
    let summary = cluster.status.as_ref().and_then(|status| status.resource_summary.as_ref());
    let Some(summary) = summary else {
        return "-".to_string();
    };
    let amount = |all: &std::collections::BTreeMap<String, String>| {
        all.get(resource).and_then(|text| quantity::parse(resource, text).ok())
    };
    let Some(total) = amount(&summary.allocatable) else {
        return "-".to_string();
    };
    let used = amount(&summary.allocated).unwrap_or_default();
    format!("{}/{}", short(resource, used), short(resource, total))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn used_and_total_stand_side_by_side() {
        let clusters: Vec<Cluster> = serde_json::from_value(json!([
            {"apiVersion": "fleet.dev/v1alpha1", "kind": "Cluster",
             "metadata": {"name": "east", "creationTimestamp": "2026-01-01T00:00:00Z"}, "spec": {},
             "status": {"kubernetesVersion": "v1.36.0", "nodeSummary": {"totalNum": 4, "readyNum": 4},
                "conditions": [{"type": "Ready", "status": "True", "reason": "Ready", "message": "",
                    "lastTransitionTime": "2026-01-01T00:00:00Z"}],
                "resourceSummary": {"allocatable": {"cpu": "256", "memory": "2Ti", "nvidia.com/gpu": "32"},
                    "allocated": {"cpu": "1500m", "memory": "6Gi", "nvidia.com/gpu": "3"}}}},
            {"apiVersion": "fleet.dev/v1alpha1", "kind": "Cluster",
             "metadata": {"name": "west", "creationTimestamp": "2026-01-01T00:00:00Z"},
             "spec": {"taints": [{"key": CORDON_TAINT, "effect": "NoSchedule"}]}}
        ]))
        .expect("clusters");
        let now = "2026-01-01T00:05:00Z".parse().expect("a time");
        insta::assert_snapshot!(list(&clusters, false, now).expect("a list").print(), @r"
        NAME   VERSION   READY                        NODES   GPU USED/TOTAL   CPU USED/TOTAL   MEMORY USED/TOTAL   AGE
        east   v1.36.0   True                         4       3/32             1.5/256          6Gi/2048Gi          5m
        west   -         Unknown,SchedulingDisabled   -       -                -                -                   5m
        ");
    }
}
