use std::collections::BTreeSet;

use fleet_views::{End, Said, log::Recording};

use super::*;

fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("fleet-run-log-{}-{name}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("a folder");
    folder
}

fn job(index: usize, is_over: bool) -> Fact {
    let binding = BindingFacts {
        kind: "PyTorchJob".to_owned(),
        name: format!("job-{index}"),
        is_job: true,
        created_s: 1_000,
        pods: 1,
        end: is_over.then(|| End { is_success: true, at_s: 1_000, ..End::default() }),
        ..BindingFacts::default()
    };
    let said = Said { reason: "MaxJobs".to_owned(), message: "x".repeat(200), since_s: 1_000 };
    let unit = UnitFacts {
        queue: "root/a".to_owned(),
        created_s: 1_000,
        waits: !is_over,
        preemptible: true,
        said: Some(said),
        ..UnitFacts::default()
    };
    Fact::Job(("a".to_owned(), format!("job-{index}-rb")), Some(Box::new((binding, Some(unit)))))
}

/// Both files as one, and every line of them is one of a log.
fn read(path: &Path) -> Recording {
    let mut recording = Recording::default();
    for part in ["run.jsonl.1", "run.jsonl"] {
        let text = std::fs::read_to_string(path.with_file_name(part)).unwrap_or_default();
        for line in text.lines() {
            recording.push(line).expect("a line of a log");
        }
    }
    recording
}

fn names(recording: &mut Recording) -> BTreeSet<String> {
    recording.after(usize::MAX).0.jobs().values().map(|job| job.name().to_owned()).collect()
}

#[test]
fn the_log_is_bounded_and_each_file_says_all_that_lives() {
    let folder = folder("bounded");
    let path = folder.join("run.jsonl");
    let size = 64 << 10;
    let mut writer = Writer::open(&path, size).expect("a file");
    writer.take(Batch { at_ms: 1_000_000, facts: vec![Fact::Begin] });
    for index in 0..1_000 {
        let at_ms = 1_000_000 + index as i64;
        writer.take(Batch { at_ms, facts: vec![job(index, false)] });
        // Few live at a time.
        if index >= 10 {
            writer.take(Batch { at_ms, facts: vec![job(index - 10, true)] });
            let gone = ("a".to_owned(), format!("job-{}-rb", index - 10));
            writer.take(Batch { at_ms, facts: vec![Fact::Job(gone, None)] });
        }
        let on_disk = |name: &str| folder.join(name).metadata().map_or(0, |metadata| metadata.len());
        let both = on_disk("run.jsonl") + on_disk("run.jsonl.1");
        assert!(both <= size, "{both}");
    }
    assert!(folder.join("run.jsonl.1").exists(), "it turned");
    let mut recording = read(&path);
    assert_eq!(names(&mut recording), (990..1_000).map(|index| format!("job-{index}")).collect());
    assert_eq!(recording.clock(), Clock::Unix);
    std::fs::remove_dir_all(folder).expect("removed");
}

#[test]
fn a_restart_goes_on_behind_the_last_whole_line() {
    let folder = folder("restart");
    let path = folder.join("run.jsonl");
    let mut writer = Writer::open(&path, SIZE).expect("a file");
    writer.take(Batch { at_ms: 1_000_000, facts: vec![Fact::Begin, job(1, false), job(2, false)] });
    drop(writer);
    let mut text = std::fs::read_to_string(&path).expect("a log");
    text.push_str("{\"t\":1001,\"event\":\"Del");
    std::fs::write(&path, text).expect("written");
    let mut writer = Writer::open(&path, SIZE).expect("a file");
    // The clock was set back meanwhile; job 2 went while nobody looked.
    writer.take(Batch { at_ms: 1_002_000, facts: vec![Fact::Begin, job(1, false)] });
    writer.take(Batch { at_ms: 900_000, facts: vec![job(3, false)] });
    let mut recording = read(&path);
    assert_eq!(names(&mut recording), ["job-1".to_owned(), "job-3".to_owned()].into());
    let before = recording.number_at(1_001_000);
    assert_eq!(recording.after(before).0.jobs().len(), 2);
    std::fs::remove_dir_all(folder).expect("removed");
}

#[test]
fn a_virtual_cluster_is_written_once_a_second_and_stands_in_each_file() {
    let folder = folder("virtual-clusters");
    let path = folder.join("run.jsonl");
    let mut writer = Writer::open(&path, SIZE).expect("a file");
    let facts = |used: i64| {
        Some(VirtualClusterFacts {
            name: "VC1".to_owned(),
            guaranteed: 8,
            used,
            ..VirtualClusterFacts::default()
        })
    };
    let mut tell = |at_ms: i64, facts: Option<VirtualClusterFacts>| {
        let facts = vec![Fact::VirtualCluster("vc1".to_owned(), facts)];
        writer.take(Batch { at_ms, facts });
        let known = read(&path).after(usize::MAX).0;
        let used = known.virtual_clusters().get("vc1").map(|facts| facts.used);
        (used, std::fs::read_to_string(&path).expect("a log").lines().count())
    };
    assert_eq!(tell(0, facts(1)), (Some(1), 1));
    assert_eq!(tell(300, facts(2)), (Some(1), 1));
    assert_eq!(tell(600, facts(3)), (Some(1), 1), "it changes with each of its jobs");
    assert_eq!(tell(1_000, facts(3)), (Some(3), 2));
    assert_eq!(tell(2_500, facts(3)), (Some(3), 2), "nothing has changed");
    writer.turn(3_000);
    let text = std::fs::read_to_string(&path).expect("a log");
    assert!(text.contains("VC1"), "a file begins with all that is known: {text}");
    writer.take(Batch { at_ms: 3_100, facts: vec![Fact::VirtualCluster("vc1".to_owned(), None)] });
    assert!(read(&path).after(usize::MAX).0.virtual_clusters().is_empty());
    std::fs::remove_dir_all(folder).expect("removed");
}

#[test]
fn use_is_written_now_and_then_and_health_at_once() {
    let folder = folder("use");
    let path = folder.join("run.jsonl");
    let mut writer = Writer::open(&path, SIZE).expect("a file");
    let facts = |used: i64, ready: bool| ClusterFacts {
        ready: Some(ready),
        allocated: BTreeMap::from([("cpu".to_owned(), used)]),
        ..ClusterFacts::default()
    };
    let mut tell = |at_ms: i64, facts: Option<ClusterFacts>| {
        let facts = facts.map(|facts| Fact::Cluster("east".to_owned(), Some(facts))).into_iter().collect();
        writer.take(Batch { at_ms, facts });
        std::fs::read_to_string(&path).expect("a log").lines().count()
    };
    assert_eq!(tell(0, Some(facts(1, true))), 1);
    assert_eq!(tell(1_000, Some(facts(2, true))), 1);
    assert_eq!(tell(2_000, Some(facts(2, false))), 2);
    assert_eq!(tell(3_000, Some(facts(3, false))), 2);
    assert_eq!(tell(30_000, None), 3, "what was held back comes when its time has come");
    assert_eq!(tell(60_000, None), 3);
    std::fs::remove_dir_all(folder).expect("removed");
}

#[test]
fn a_file_that_cannot_be_written_is_refused() {
    let folder = folder("refused");
    assert!(RunLog::keep(&folder, SIZE).is_err());
    std::fs::remove_dir_all(folder).expect("removed");
}
