use std::path::Path;

use fleet_views::{Sight, State as JobState, log::Recording};

use super::*;
use crate::fast;

fn recorded(file: &Path) -> (Recording, Summary) {
    let name = file.display().to_string();
    let text = std::fs::read_to_string(file).expect("an example");
    let scenario = Scenario::read(&name, &text).unwrap_or_else(|error| panic!("{error}"));
    let mut out = Vec::new();
    let summary = fast::run(&scenario, &mut WholeLog::new(&mut out, &scenario)).expect("a run");
    let mut recording = Recording::default();
    for line in String::from_utf8(out).expect("text").lines() {
        recording.push(line).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
    (recording, summary)
}

fn examples() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/scenarios")
}

#[test]
fn a_reader_sees_clusters_quota_and_who_uses_them() {
    let (mut recording, _) = recorded(&examples().join("reclaim.yaml"));
    let number = recording.number_at(10_000);
    let (known, told) = recording.after(number);
    assert!(told.all);
    let east = &known.clusters()["east"];
    assert_eq!((east.nodes, east.allocatable[GPU], east.allocated[GPU]), (4, 32, 32));
    assert!(east.groups.iter().all(|group| group.gpus_free == 0), "{:?}", east.groups);
    let rows = fleet_views::queues(&known, &Sight::all()).rows;
    let research = rows.iter().find(|row| row.path == "root/research").expect("a queue");
    assert_eq!(research.bars[0].text, "32 of 32 gpu used, 8 guaranteed, 24 borrowed");
    let number = recording.number_at(25_000);
    let (known, _) = recording.after(number);
    let rows = fleet_views::queues(&known, &Sight::all()).rows;
    let product = rows.iter().find(|row| row.path == "root/product").expect("a queue");
    assert_eq!(product.bars[0].text, "16 of 32 gpu used, 24 guaranteed, 8 lent");
}

#[test]
fn a_node_that_fails_and_a_cluster_that_is_cut_off_are_told() {
    let (mut recording, _) = recorded(&examples().join("node-loss.yaml"));
    let end = recording.end_ms();
    let lost = (0..=end / 1000).any(|second| {
        let number = recording.number_at(second * 1000);
        let (known, _) = recording.after(number);
        known.clusters().values().any(|cluster| cluster.nodes_ready < cluster.nodes)
    });
    assert!(lost, "at some instant a node is not ready");
    let (mut recording, _) = recorded(&examples().join("partition-long.yaml"));
    let cut = (0..=recording.end_ms() / 1000).any(|second| {
        let number = recording.number_at(second * 1000);
        recording.after(number).0.clusters().values().any(|cluster| cluster.ready == Some(false))
    });
    assert!(cut, "at some instant a cluster is cut off");
}

#[test]
fn the_end_of_each_example_is_that_of_its_summary() {
    let mut seen = 0;
    for entry in std::fs::read_dir(examples()).expect("examples") {
        let path = entry.expect("an example").path();
        if path.extension().is_none_or(|extension| extension != "yaml") {
            continue;
        }
        let (mut recording, summary) = recorded(&path);
        let (known, _) = recording.after(usize::MAX);
        let count =
            |wanted: &[JobState]| known.jobs().values().filter(|job| wanted.contains(&job.state())).count();
        let name = path.display();
        assert_eq!(known.jobs().len() + summary.deleted, summary.jobs, "{name}");
        assert_eq!(count(&[JobState::Succeeded]), summary.succeeded, "{name}");
        assert_eq!(count(&[JobState::Failed]), summary.failed + summary.rejected, "{name}");
        seen += 1;
    }
    assert!(seen > 10, "{seen}");
}
