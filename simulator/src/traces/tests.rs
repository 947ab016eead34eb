use crate::scenario::{
    Scenario,
    log::{Kept, Log, Record, Summary, What},
};

use super::*;

const FLEET: &str = "clusters:\n  - {name: a, nodePools: [{name: n, count: 2, allocatable: {cpu: 32, nvidia.com/gpu: 8}}]}\n  - {name: b, nodePools: [{name: n, count: 2, allocatable: {cpu: 32, nvidia.com/gpu: 8}}]}\n";

fn clusters() -> Vec<ClusterSpec> {
    Scenario::read_clusters("fleet.yaml", FLEET).expect("the fleet above is valid")
}

fn read(text: &str, options: ReplayOptions) -> Result<Trace, ScenarioError> {
    Trace::read("t.csv", text.as_bytes(), &clusters(), options)
}

fn replay(text: &str, options: ReplayOptions) -> (Summary, Vec<Record>) {
    let trace = read(text, options).expect(text);
    let mut kept = Kept::default();
    let (summary, _) = crate::fast::run_trace(&clusters(), &trace, &mut kept).expect("runs");
    assert_eq!(summary.violations, []);
    (summary, kept.records)
}

/// Jobs in the order in which they started.
fn started(records: &[Record]) -> Vec<String> {
    let starts = records.iter().filter(|record| matches!(record.what, What::Started { .. }));
    starts.map(|record| record.job.rsplit('/').next().unwrap_or_default().to_string()).collect()
}

#[test]
fn a_small_trace_runs_to_its_end() {
    let text = "job_id,submit_s,duration_s,gpus,workers,vc\n1,0,100,16,2,x\n2,0.5,50,8,1,x\n3,1,10,32,4,y\n4,2,5,64,8,y\n";
    let (summary, records) = replay(text, ReplayOptions::default());
    assert_eq!((summary.jobs, summary.succeeded, summary.pending), (4, 2, 2));
    // 1 takes one cluster whole, 2 half of the other; 3 and 4 ask for more than any cluster has.
    assert_eq!(started(&records), ["1", "2"].map(String::from));
}

#[test]
fn missing_columns_have_defaults_that_are_said() {
    let trace = read("gpus,submit_s\n16,0\n", ReplayOptions::default()).expect("reads");
    let notices = trace.notices.join("\n");
    for name in ["job_id", "duration_s", "instances", "vc"] {
        assert!(notices.contains(&format!("no column {name}:")), "{notices}");
    }
    let spec = &trace.jobs[0].spec;
    assert_eq!(spec.components.get("worker"), Some(&2), "two nodes of 8 GPUs");
    assert_eq!(trace.jobs[0].namespace, "default");
}

#[test]
fn gpus_that_do_not_divide_are_all_asked_for() {
    let trace = read("gpus,instances\n10,4\n", ReplayOptions::default()).expect("reads");
    let spec = &trace.jobs[0].spec;
    assert_eq!(spec.shape.total.get("nvidia.com/gpu"), 10);
    assert_eq!(spec.components.values().sum::<i64>(), 4);
}

#[test]
fn the_order_decides_who_is_next() {
    // Two jobs hold everything until one ends at 100; then the order decides.
    let text = "job_id,submit_s,duration_s,gpus,workers,vc,priority\n\
        h1,0,100,16,2,x,0\nh2,0,200,16,2,x,0\nlong,1,50,16,2,x,0\nhigh,2,40,16,2,x,9\nshort,3,1,16,2,y,0\n";
    let third = |order| {
        let (_, records) = replay(text, ReplayOptions { order, ..ReplayOptions::default() });
        started(&records)[2].clone()
    };
    assert_eq!(third(Order::Fifo), "long");
    assert_eq!(third(Order::Priority), "high");
    assert_eq!(third(Order::Sjf), "short");
    assert_eq!(third(Order::Fair), "short", "x has a half, y has nothing yet");
}

#[test]
fn pinned_jobs_run_where_they_ran() {
    let text = "job_id,gpus,cluster\n1,8,b\n2,8,b\n3,8,b\n";
    let pinned = ReplayOptions { pin_clusters: true, ..ReplayOptions::default() };
    let (_, records) = replay(text, pinned);
    let on_b = |record: &&Record| matches!(&record.what, What::Started { cluster, .. } if **cluster == *"b");
    assert_eq!(records.iter().filter(on_b).count(), 3);
    let error = read("job_id,gpus,cluster\n1,8,c\n", pinned).expect_err("no such cluster").to_string();
    assert_eq!(error, "t.csv:2: cluster: found \"c\"; allowed: a, b");
}

#[test]
fn mistakes_name_line_and_column() {
    let check = |text: &str, expect: &str| {
        let error = read(text, ReplayOptions::default()).expect_err(text).to_string();
        assert!(error.contains(expect), "{error}");
        assert_eq!(error.lines().count(), 1);
    };
    check("a,b\n1,2\n", "t.csv:1: the header: found a,b; allowed: one of submit_s");
    check("gpus,submit_s\n1,0\nmany,1\n", "t.csv:3: gpus: found \"many\"; allowed: a number of 0 or more");
    check("gpus,duration_s\n1,-5\n", "t.csv:2: duration_s: found \"-5\"");
    check("gpus,instances\n1,1e8\n", "t.csv:2: instances: found \"100000000\"; allowed: at most");
    check("gpus\nNaN\n", "gpus: found \"NaN\"");
}

#[test]
fn gzip_is_unpacked_and_broken_gzip_is_told() {
    use std::io::Write;
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    packed.write_all(b"gpus\n1\n2\n").expect("memory");
    let packed = packed.finish().expect("memory");
    let trace = Trace::read("t.csv.gz", &packed, &clusters(), ReplayOptions::default()).expect("reads");
    assert_eq!(trace.len(), 2);
    let cut = &packed[..packed.len() / 2];
    let error = Trace::read("t.csv.gz", cut, &clusters(), ReplayOptions::default()).expect_err("cut");
    assert!(error.to_string().contains("a whole gzip file"), "{error}");
}

/// A made-up workload of a few thousand jobs keeps every invariant under every order, and twice gives the same.
#[test]
fn a_generated_trace_breaks_no_invariant_and_repeats() {
    let mut text = String::from("job_id,submit_s,duration_s,gpus,workers,vc\n");
    let mut state = 7_u64;
    let mut next = |bound: u64| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) % bound
    };
    for job in 0..2000 {
        let gpus: u64 = [1, 1, 1, 2, 4, 8, 16][next(7) as usize];
        let (submit, takes, vc) = (job * 3 + next(5), 1 + next(200), next(4));
        text.push_str(&format!("{job},{submit},{takes},{gpus},{},vc{vc}\n", gpus.div_ceil(8)));
    }
    for (_, order) in Order::ALL {
        let options = ReplayOptions { order, ..ReplayOptions::default() };
        let (first, records) = replay(&text, options);
        assert_eq!((first.succeeded, first.pending), (2000, 0), "{order:?}");
        assert_eq!(replay(&text, options), (first, records), "{order:?}");
    }
}

/// Writing to nowhere, so that the type is used as the command line uses it.
#[test]
fn a_summary_alone_is_written() {
    let trace = read("gpus\n1\n", ReplayOptions::default()).expect("reads");
    let mut log = crate::scenario::log::SummaryOnly { out: Vec::new() };
    crate::fast::run_trace(&clusters(), &trace, &mut log as &mut dyn Log).expect("runs");
    let text = String::from_utf8(log.out).expect("utf-8");
    assert!(text.contains("1 job: 1 succeeded"), "{text}");
}
