//! `fleet clusters`: the members with their used resources.

use fleet_api::{Cluster, cluster::CORDON_TAINT};
use fleet_cli_ground::{
    age,
    answer::Answer,
    connect::Hub,
    listing::{self, List},
    members,
};
use fleet_hub_core::facts;
use fleet_views::{amounts::GPU, ready_nodes, used_of_total};
use jiff::Timestamp;
use serde_json::json;

use crate::args::ClustersArgs;
use fleet_console::progress::Progress;

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
        let facts = facts::cluster(cluster);
        let has_reported = cluster.status.as_ref().is_some_and(|status| status.node_summary.is_some());
        let or_dash = |text: &str| if text.is_empty() { "-" } else { text }.to_string();
        let metadata = json!({"metadata": {"creationTimestamp": cluster.metadata.creation_timestamp}});
        let mut cells = vec![
            cluster.metadata.name.clone().unwrap_or_default(),
            or_dash(&facts.version),
            readiness(cluster),
            if has_reported { ready_nodes(&facts) } else { "-".to_string() },
            used_of_total(&facts, GPU),
            used_of_total(&facts, "cpu"),
            used_of_total(&facts, "memory"),
            age::of(&metadata, now),
        ];
        if wide {
            cells.push(or_dash(&facts.region));
            cells.push(or_dash(&cluster.spec.zones.join(",")));
            cells.push(or_dash(&facts.provider));
            cells.push(or_dash(cluster.spec.api_endpoint.as_deref().unwrap_or_default()));
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

#[cfg(test)]
mod tests {
    use fleet_cli_ground::output::Headers;
    use serde_json::Value;

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

    /// Members as they usually are: no column is left out.
    #[test]
    fn the_members_fit_80_columns() {
        let of = |name: &str, nodes: i64, used: Value, total: Value| {
            json!({"apiVersion": "fleet.dev/v1alpha1", "kind": "Cluster",
                "metadata": {"name": name, "creationTimestamp": "2026-01-01T00:00:00Z"}, "spec": {},
                "status": {"kubernetesVersion": "v1.36.0", "nodeSummary": {"totalNum": nodes, "readyNum": nodes},
                    "conditions": [{"type": "Ready", "status": "True", "reason": "Ready", "message": "",
                        "lastTransitionTime": "2026-01-01T00:00:00Z"}],
                    "resourceSummary": {"allocatable": total, "allocated": used}}})
        };
        let amounts = |cpu: &str, memory: &str, gpus: &str| json!({"cpu": cpu, "memory": memory, "nvidia.com/gpu": gpus});
        let clusters: Vec<Cluster> = serde_json::from_value(json!([
            of("east", 128, amounts("180", "700Gi", "900"), amounts("8192", "8Ti", "1024")),
            of("west-2", 4, amounts("1500m", "6Gi", "3"), amounts("256", "2Ti", "32"))
        ]))
        .expect("clusters");
        let now = "2026-01-01T00:05:00Z".parse().expect("a time");
        let text = list(&clusters, false, now).expect("a list").print_within(Some(80), Headers::Printed);
        insta::assert_snapshot!(text, @r"
        NAME     VERSION   READY   NODES   GPU           CPU          MEMORY         AGE
                                           USED/TOTAL    USED/TOTAL   USED/TOTAL
        east     v1.36.0   True    128     900/1024      180/8192     700Gi/8192Gi   5m
        west-2   v1.36.0   True    4       3/32          1.5/256      6Gi/2048Gi     5m
        ");
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        // A longer name, and what a cordoned one says, take the room of the last columns.
        let mut cordoned = clusters;
        cordoned[0].metadata.name = Some("eu-central-1-production".to_string());
        cordoned[1].spec.taints =
            serde_json::from_value(json!([{"key": CORDON_TAINT, "effect": "NoSchedule"}])).expect("taints");
        let text = list(&cordoned, false, now).expect("a list").print_within(Some(80), Headers::Printed);
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        assert!(text.starts_with("NAME") && text.contains("SchedulingDisabled"), "{text}");
    }
}
