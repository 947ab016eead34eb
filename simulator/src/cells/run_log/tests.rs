use std::path::Path;

use fleet_views::{Known, Sight, State as JobState, log::Recording};

use super::*;

fn recorded(file: &str) -> Recording {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/scenarios/cells").join(file);
    let text = std::fs::read_to_string(path).expect("an example");
    let scenario = CellScenario::read(file, &text).unwrap_or_else(|error| panic!("{error}"));
    let scenario = scenario.expect("a scenario of cells");
    let mut out = Vec::new();
    let mut log = RunLog::new(&mut out, &scenario).expect("memory");
    let summary = scenario.run(&mut log).expect("a run");
    log.end(&summary).expect("memory");
    let mut recording = Recording::default();
    for line in String::from_utf8(out).expect("text").lines() {
        recording.push(line).unwrap_or_else(|error| panic!("{file}: {error}: {line}"));
    }
    assert!(recording.violations().is_empty());
    recording
}

fn at(recording: &mut Recording, at_ms: i64) -> std::sync::Arc<Known> {
    let (known, told) = recording.after(recording.number_at(at_ms));
    assert!(told.all, "clusters and the absence of a tree are told");
    known
}

fn state(known: &Known, virtual_cluster: &str, job: &str) -> Option<JobState> {
    known.job(&(virtual_cluster.to_owned(), job.to_owned())).map(fleet_views::Job::state)
}

#[test]
fn a_reader_sees_jobs_nodes_and_virtual_clusters_at_each_time() {
    let mut recording = recorded("clusters.yaml");
    let known = at(&mut recording, 1_000);
    assert_eq!(state(&known, "vc1", "pair"), Some(JobState::Running));
    let row = &fleet_views::virtual_clusters(&known, &Sight::all())[0];
    assert_eq!((row.name.as_str(), row.gpu.as_str(), row.cpu.as_str(), row.running), ("vc1", "6/8", "-", 2));
    let used: i64 = known.clusters().values().filter_map(|facts| facts.allocated.get(GPU)).sum();
    let free: i64 = known
        .clusters()
        .values()
        .flat_map(|facts| &facts.groups)
        .map(|group| group.count * group.gpus_free)
        .sum();
    assert_eq!((used, free), (6, 2));
    // A node turns bad, and what runs on it goes on.
    let known = at(&mut recording, 3_000);
    assert_eq!(known.clusters()["east"].nodes_ready, 1);
    assert!(known.clusters()["east"].groups.iter().any(|group| group.unusable == "bad"));
    let known = at(&mut recording, 60_000);
    assert_eq!(state(&known, "vc1", "east-1"), Some(JobState::Succeeded));
}

#[test]
fn victims_and_single_pods_are_jobs_too() {
    let mut recording = recorded("priority.yaml");
    let known = at(&mut recording, i64::MAX);
    let preempted: Vec<_> = fleet_views::preemptions(&known, &Sight::all(), None, 10);
    assert!(!preempted.is_empty(), "somebody made room");
    let mut recording = recorded("gang-release.yaml");
    let known = at(&mut recording, 1_000);
    assert_eq!(state(&known, "vc1", "gives-0"), Some(JobState::Running));
}

#[test]
fn every_example_has_a_log_that_the_portal_reads() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/scenarios/cells");
    let mut read = 0;
    for part in [".", "cases"] {
        for entry in std::fs::read_dir(folder.join(part)).expect("the folder is there") {
            let name = entry.expect("readable").file_name().into_string().expect("text");
            if name.ends_with(".yaml") {
                let mut recording = recorded(&format!("{part}/{name}"));
                let all = at(&mut recording, i64::MAX);
                assert!(!all.virtual_clusters().is_empty() || !all.clusters().is_empty(), "{name}");
                read += 1;
            }
        }
    }
    assert!(read > 20, "{read}");
}
