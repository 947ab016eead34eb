//! The cases that dispatch must get right, as the files of `examples/scenarios/dispatch` give them, in both modes.

use std::{collections::BTreeMap, fs, path::Path};

use fleet_fault_simulation as whole;
use fleet_simulator::{
    Scenario, fast,
    scenario::log::{JsonLines, Summary},
};
use serde_json::Value;

/// One run of a file.
struct LoggedRun {
    mode: &'static str,
    lines: Vec<Value>,
    summary: Summary,
}

impl LoggedRun {
    fn of(&self, event: &str, job: &str) -> impl Iterator<Item = &Value> + use<'_> {
        let (event, job) = (event.to_string(), format!("default/{job}"));
        self.lines.iter().filter(move |line| line["event"] == event.as_str() && line["job"] == job.as_str())
    }

    /// How the job ended, on which cluster, as which epoch; `None` when it has not.
    fn end(&self, job: &str) -> Option<(&str, &str, i64)> {
        let mut ends = self.of("Finished", job);
        let end = ends.next()?;
        assert!(ends.next().is_none(), "{job} ended twice");
        Some((end["result"].as_str()?, end["cluster"].as_str()?, end["epoch"].as_i64()?))
    }

    fn seconds(&self, event: &str, job: &str) -> Vec<f64> {
        self.of(event, job).filter_map(|line| line["t"].as_f64()).collect()
    }

    fn reasons(&self, event: &str, job: &str) -> Vec<&str> {
        self.of(event, job).filter_map(|line| line["reason"].as_str()).collect()
    }

    /// A gang that is bound runs at once: no pod of it waits.
    fn starts_when_bound(&self, job: &str) {
        let (bound, started) = (self.seconds("Bound", job), self.seconds("Started", job));
        assert_eq!(bound.len(), started.len(), "{job} in mode {}", self.mode);
        for (bound, started) in bound.iter().zip(&started) {
            assert!(started - bound < 1.0, "{job} in mode {}: bound at {bound}, ran at {started}", self.mode);
        }
    }
}

type Run = fn(&Scenario, &mut dyn fleet_simulator::scenario::log::Log) -> Summary;

/// Runs the file in both modes, and lets `judge` look at each.
fn check(name: &str, judge: impl Fn(&LoggedRun)) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/scenarios/dispatch");
    let text = fs::read_to_string(path.join(format!("{name}.yaml"))).expect("the file is there");
    let scenario = Scenario::read(name, &text).unwrap_or_else(|error| panic!("{error}"));
    let fast: Run = |scenario, log| fast::run(scenario, log).expect("runs");
    let whole: Run = |scenario, log| whole::run(scenario, log).expect("runs");
    for (mode, run) in [("fast", fast), ("whole", whole)] {
        let mut out = Vec::new();
        let summary = run(&scenario, &mut JsonLines { out: &mut out });
        let text = String::from_utf8(out).expect("utf-8");
        println!("mode {mode}:\n{text}");
        let lines = text.lines().map(|line| serde_json::from_str(line).expect("json")).collect();
        assert_eq!(summary.violations, [], "mode {mode}");
        judge(&LoggedRun { mode, lines, summary });
    }
}

#[test]
fn link_drops() {
    check("link-drops", |run| {
        assert_eq!(run.end("train"), Some(("Succeeded", "east", 1)));
        assert_eq!((run.summary.evictions, run.of("Fenced", "train").count()), (0, 0));
    });
}

#[test]
fn lost_for_good() {
    check("lost-for-good", |run| {
        assert_eq!(run.end("train"), Some(("Succeeded", "west", 2)));
        assert_eq!(run.reasons("Evicted", "train"), ["ClusterLost"]);
        // Lease 40 s, grace 20 s, margin 10 s after the last renewal, up to 10 s before the cut at 40 s.
        let moved = run.seconds("Bound", "train")[1];
        assert!((100.0..=125.0).contains(&moved), "{} moved at {moved}", run.mode);
    });
}

#[test]
fn hub_restarts_while_down() {
    check("hub-restarts-while-down", |run| {
        assert_eq!(run.end("train"), Some(("Succeeded", "west", 2)));
        // The count begins anew when the hub is back, at 65 s.
        let moved = run.seconds("Bound", "train")[1];
        assert!((135.0..=160.0).contains(&moved), "{} moved at {moved}", run.mode);
    });
}

#[test]
fn moved_then_returns() {
    check("moved-then-returns", |run| {
        assert_eq!(run.end("train"), Some(("Succeeded", "west", 2)));
        assert_eq!(run.reasons("Evicted", "train"), ["ClusterLost"]);
        // What east still held is gone: a job that needs all of it runs there.
        assert_eq!(run.end("next"), Some(("Succeeded", "east", 1)));
    });
}

#[test]
fn finished_while_away() {
    check("finished-while-away", |run| {
        assert_eq!(run.end("train"), Some(("Succeeded", "east", 1)));
        assert_eq!(run.of("Started", "train").count(), 1);
    });
}

#[test]
fn finished_and_deleted() {
    check("finished-and-deleted", |run| {
        assert_eq!(run.end("train"), Some(("Succeeded", "east", 1)));
        assert_eq!((run.of("Started", "train").count(), run.summary.evictions), (1, 0));
    });
}

#[test]
fn name_taken() {
    check("name-taken", |run| {
        assert_eq!(run.end("train"), Some(("Succeeded", "west", 2)));
        assert_eq!(run.reasons("Evicted", "train"), ["NameTaken"]);
    });
}

#[test]
fn deleted_while_away() {
    check("deleted-while-away", |run| {
        assert_eq!(run.end("train"), None);
        // Nothing of it is left in east: two jobs that need all of a cluster run side by side.
        let ends = ["a", "b"].map(|job| run.end(job).expect("ends"));
        let clusters: BTreeMap<&str, &str> =
            ends.iter().map(|(result, cluster, _)| (*cluster, *result)).collect();
        assert_eq!(clusters, BTreeMap::from([("east", "Succeeded"), ("west", "Succeeded")]));
        assert!(run.seconds("Finished", "a")[0] < 240.0 && run.seconds("Finished", "b")[0] < 240.0);
    });
}

#[test]
fn two_gangs_one_room() {
    check("two-gangs-one-room", |run| {
        for job in ["first", "second", "third"] {
            assert!(matches!(run.end(job), Some(("Succeeded", _, 1))));
            run.starts_when_bound(job);
        }
        let clusters = ["first", "second"].map(|job| run.end(job).map(|(_, cluster, _)| cluster));
        assert_ne!(clusters[0], clusters[1]);
        assert!(run.reasons("Pending", "third").contains(&"NoClusterFits"), "mode {}", run.mode);
    });
}

#[test]
fn hub_killed() {
    check("hub-killed", |run| {
        for job in ["a", "b", "c"] {
            assert!(matches!(run.end(job), Some(("Succeeded", _, 1))), "{job} in mode {}", run.mode);
        }
        assert_eq!(run.summary.evictions, 0);
    });
}

#[test]
fn credentials_fail() {
    check("credentials-fail", |run| {
        assert_eq!(run.end("train"), Some(("Succeeded", "east", 1)));
        assert_eq!((run.summary.evictions, run.of("Fenced", "train").count()), (0, 0));
    });
}

#[test]
fn master_fails() {
    check("master-fails", |run| {
        assert_eq!(run.end("train"), Some(("Succeeded", "west", 2)));
        assert_eq!(run.reasons("Evicted", "train"), ["ApplicationFailure"]);
        assert_eq!(run.of("Started", "train").count(), 2);
    });
}

#[test]
fn exceeds_every_cluster() {
    check("exceeds-every-cluster", |run| {
        assert_eq!(run.end("giant"), None);
        assert!(run.reasons("Pending", "giant").contains(&"ExceedsEveryCluster"));
        assert_eq!(run.of("Bound", "giant").count() + run.of("Reserved", "giant").count(), 0);
        // It holds nothing: the next one runs at once.
        assert!(matches!(run.end("normal"), Some(("Succeeded", _, 1))));
    });
}
