use fleet_api::ResourceBinding;
use serde_json::json;

use super::*;

fn binding(name: &str, gpus: &str, started: Option<&str>) -> ResourceBinding {
    let run = started.map(|at| json!({"epoch": 1, "since": at, "startedAt": at}));
    serde_json::from_value(json!({
        "apiVersion": "fleet.dev/v1alpha1", "kind": "ResourceBinding",
        "metadata": {"name": format!("{name}-pytorchjob"), "namespace": "default", "uid": name},
        "spec": {
            "resource": {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "namespace": "default", "name": name},
            "policy": {"kind": "PropagationPolicy", "name": "p"},
            "components": [{"name": "worker", "replicas": 2, "request": {"cpu": "1", "nvidia.com/gpu": gpus}}],
            "replicas": 2, "epoch": 1, "clusters": [{"name": "east"}]},
        "status": {"run": run}}))
    .expect("a binding")
}

#[test]
fn several_clusters_are_all_closed_before_the_first_is_drained() {
    let names = ["east".to_string(), "north".to_string()];
    let steps_of = |names: &[String], dry_run| {
        let all = steps(names, dry_run).map(|(name, step)| format!("{step:?} {name}"));
        all.collect::<Vec<_>>().join(", ")
    };
    assert_eq!(steps_of(&names, false), "Close east, Close north, Drain east, Drain north");
    assert_eq!(steps_of(&names, true), "Drain east, Drain north");
    assert_eq!(steps_of(&names[..1], false), "Drain east");
}

#[test]
fn the_biggest_loss_moves_last() {
    let now: Timestamp = "2026-01-01T10:00:00Z".parse().expect("a time");
    let mut runs = vec![
        leaving::Run::of(binding("wide", "8", Some("2026-01-01T09:00:00Z"))),
        leaving::Run::of(binding("long", "1", Some("2026-01-01T08:00:00Z"))),
        leaving::Run::of(binding("new", "8", None)),
    ];
    leaving::order(&mut runs, now);
    let gangs: Vec<&Run> = runs.iter().collect();
    insta::assert_snapshot!(plan(&gangs, now), @r"
    ORDER   NAMESPACE   KIND         NAME   PODS   RUNNING FOR
    1       default     PyTorchJob   new    2      -
    2       default     PyTorchJob   long   2      120m
    3       default     PyTorchJob   wide   2      60m
    ");
}
