use fleet_api::{CellConfiguration, VirtualCluster};
use fleet_cli_ground::{listing::Names, output::Headers};
use fleet_openpai::cells::{
    plan::{ConfigurationPlan, JobChange},
    tree::{Occupant, Row},
};
use serde_json::json;

use super::{explain, show};

#[test]
fn a_difference_names_cells_and_jobs() {
    let job = JobChange {
        job: "default/job-3".into(),
        virtual_cluster: "vc1".into(),
        class: "prod".into(),
        becomes: "opportunistic".into(),
        why: "virtual cluster vc1 is gone".into(),
    };
    let change = fleet_openpai::cells::plan::PromiseChange {
        vc: "vc1".into(),
        chain: "POOL".into(),
        cell_type: "NODE".into(),
        pinned_cell_id: "pin".into(),
        before: 1,
        after: 0,
    };
    let plan = ConfigurationPlan {
        virtual_clusters_removed: vec!["vc1".into()],
        promises: vec![change],
        jobs: vec![job],
        absent: vec!["found east/n9; allowed: nodes of east, also n2".into()],
        is_change: true,
        ..ConfigurationPlan::default()
    };
    let text = show::difference(&plan);
    for wanted in [
        "virtual clusters removed: vc1\n",
        "POOL.NODE (pinned pin)",
        "-1",
        "default/job-3",
        "vc1 is gone",
        "keep running",
        "bad, because their member has no such node: found east/n9",
    ] {
        assert!(text.contains(wanted), "{wanted} in\n{text}");
    }
    assert_eq!(show::difference(&ConfigurationPlan::default()), "no change\n");
    let quiet = ConfigurationPlan { is_change: true, ..ConfigurationPlan::default() };
    assert!(show::difference(&quiet).starts_with("no virtual cluster gains or loses cells"));
}

#[test]
fn virtual_clusters_and_their_trees_are_tables() {
    let vc: VirtualCluster = serde_json::from_value(json!({
        "apiVersion": "fleet.dev/v1alpha1", "kind": "VirtualCluster", "metadata": {"name": "vc1"},
        "spec": {"name": "VC1", "configuration": "cells"},
        "status": {"allocation": "50%", "gpu": "1/2", "cpu": "2/4", "memory": "4Gi/8Gi", "bad": 1, "running": 1,
            "cells": [{"chain": "POOL", "cellType": "NODE", "guaranteed": 2, "used": 1, "bad": 1}],
            "jobs": [{"class": "prod", "waiting": 0, "running": 1}]}}))
    .expect("a virtual cluster");
    let text = show::virtual_clusters(std::slice::from_ref(&vc), true).expect("a list").print();
    for wanted in ["VC1", "50%", "4Gi/8Gi", "1/2", "NODE 1/2 (1 bad)", "prod 0 waiting, 1 running"] {
        assert!(text.contains(wanted), "{wanted} in\n{text}");
    }
    let occupant = Occupant {
        job: "default/job-3".into(),
        virtual_cluster: "vc1".into(),
        class: "prod".into(),
        ..Occupant::default()
    };
    let row = Row {
        depth: 1,
        cell_type: "NODE".into(),
        name: "a-0".into(),
        leaves: 2,
        used: 2,
        healthiness: "Bad".into(),
        virtual_clusters: vec!["vc1".into()],
        jobs: vec![occupant],
        ..Row::default()
    };
    let text = show::tree(&[row], false, Names::Tree).expect("a list").print();
    assert!(text.contains("  NODE a-0") && text.contains("2/2 Bad"), "{text}");
    assert!(text.contains("default/job-3 (vc1, prod)"), "{text}");
}

/// What waits and runs in a virtual cluster is told on a narrow terminal, too; cells and jobs with names as usual.
#[test]
fn virtual_clusters_fit_80_columns() {
    let vc = |name: &str| -> VirtualCluster {
        serde_json::from_value(json!({
            "apiVersion": "fleet.dev/v1alpha1", "kind": "VirtualCluster", "metadata": {"name": name},
            "spec": {"name": name, "configuration": "cells"},
            "status": {"allocation": "50%", "gpu": "128/256", "cpu": "640/1280", "memory": "4Ti/8Ti", "bad": 1,
                "running": 12, "waiting": 3}}))
        .expect("a virtual cluster")
    };
    let fits = |text: &str| text.lines().all(|line| line.chars().count() <= 80);
    let list = show::virtual_clusters(&[vc("default"), vc("research")], false).expect("a list");
    let text = list.print_within(Some(80), Headers::Printed);
    assert!(fits(&text), "{text}");
    for header in ["NAME", "ALLOCATION", "GPU", "BAD", "LENT", "BORROWED", "WAITING", "RUNNING"] {
        assert!(text.contains(header), "{header} in\n{text}");
    }
    let row = |depth: usize, kind: &str, name: &str, jobs: &[&str]| Row {
        depth,
        cell_type: kind.into(),
        name: name.into(),
        leaves: 8,
        used: 8,
        healthiness: "Bad".into(),
        virtual_clusters: vec!["default".into(), "research".into()],
        jobs: jobs
            .iter()
            .map(|job| Occupant {
                job: format!("team-research/{job}"),
                virtual_cluster: "research".into(),
                class: "prod".into(),
                ..Occupant::default()
            })
            .collect(),
        ..Row::default()
    };
    let rows = [row(0, "DGX2-V100-NODE", "0", &[]), row(1, "DGX2-V100", "0/1", &["train-resnet-50"])];
    let text =
        show::tree(&rows, false, Names::Tree).expect("a list").print_within(Some(80), Headers::Printed);
    assert!(fits(&text) && text.contains("8/8 Bad") && text.contains("JOB"), "{text}");
    assert!(text.contains("team-research/train-resnet-50"), "{text}");
}

#[test]
fn a_configuration_that_is_not_in_force_is_told() {
    let object: CellConfiguration = serde_json::from_value(json!({
        "apiVersion": "fleet.dev/v1alpha1", "kind": "CellConfiguration", "metadata": {"name": "cells"}, "spec": {},
        "status": {"conditions": [{"type": "Valid", "status": "False", "reason": "CellConfigurationInvalid",
            "message": "spec.virtualClusters: found 3", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}}))
    .expect("a configuration");
    let text = show::invalid(&[object]);
    assert!(text.starts_with("INVALID: CellConfiguration cells: spec.virtualClusters: found 3\n"), "{text}");
    assert!(text.contains("In force: no configuration"), "{text}");
}

#[test]
fn a_waiting_job_says_why_and_of_which_virtual_cluster() {
    let told = explain::Explanation {
        job: "default/job-2".into(),
        kind: "Job".into(),
        virtual_cluster: "vc1".into(),
        class: "prod".into(),
        state: "waits".into(),
        reason: Some("InsufficientCells".into()),
        message: Some("insufficient capacity in VC vc1".into()),
        ..explain::Explanation::default()
    };
    let text = explain::print(&told);
    assert!(text.contains("insufficient capacity in VC vc1") && text.contains("vc1, class prod"), "{text}");
}

#[test]
fn a_job_of_several_groups_is_named_once_beside_another() {
    let group = |group: &str, job: &str| Occupant {
        job: job.into(),
        virtual_cluster: "vc1".into(),
        class: "prod".into(),
        group: group.into(),
    };
    let others = vec![
        group("job-3/a", "default/job-3"),
        group("job-3/b", "default/job-3"),
        group("job-4", "default/job-4"),
    ];
    let told =
        explain::Explanation { virtual_cluster: "vc1".into(), others, ..explain::Explanation::default() };
    let text = explain::print(&told);
    let wanted = "Also on cells of vc1: default/job-3 (vc1, prod), default/job-4 (vc1, prod)\n";
    assert!(text.contains(wanted), "{text}");
}
