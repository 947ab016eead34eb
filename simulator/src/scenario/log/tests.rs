use std::{collections::BTreeMap, sync::Arc};

use super::*;

fn record(at_ms: i64, job: &str, what: What) -> Record {
    Record { at_ms, job: Arc::from(job), what }
}

fn nodes(names: &[&str]) -> Arc<NodesOf> {
    let names = names.iter().map(|name| (*name).to_string()).collect();
    Arc::new(BTreeMap::from([("worker".to_string(), names)]))
}

fn components() -> Arc<BTreeMap<String, i64>> {
    Arc::new(BTreeMap::from([("worker".to_string(), 2)]))
}

/// A job that is preempted once, and one that fails.
fn life() -> Vec<Record> {
    let (east, queue): (Arc<str>, Arc<str>) = (Arc::from("east"), Arc::from("root/a"));
    let submitted =
        |gpus| What::Submitted { kind: Arc::from("PyTorchJob"), gpus, components: components(), priority: 0 };
    let (message, reason) = ("no room".to_string(), "NoClusterFits".to_string());
    vec![
        record(0, "a/j", submitted(8)),
        record(0, "a/j", What::Started { cluster: east.clone(), epoch: 1, nodes: nodes(&["n-0", "n-0"]) }),
        record(500, "a/k", submitted(1)),
        record(500, "a/k", What::Pending { queue: queue.clone(), reason, message }),
        record(
            1000,
            "a/j",
            What::Preempted {
                cluster: east.clone(),
                epoch: 1,
                by: Arc::from("a/k"),
                reason: "Reclaim".to_string(),
                lost_ms: 1000,
            },
        ),
        record(1000, "a/j", What::Requeued { queue, reason: "Preempted".to_string() }),
        record(1000, "a/k", What::Started { cluster: east.clone(), epoch: 1, nodes: nodes(&["n-1"]) }),
        record(
            3000,
            "a/k",
            What::Finished { cluster: east.clone(), epoch: 1, result: Ending::Failed, attempts: 1 },
        ),
        record(3000, "a/j", What::Started { cluster: east.clone(), epoch: 2, nodes: nodes(&["n-0", "n-1"]) }),
        record(
            7000,
            "a/j",
            What::Finished { cluster: east, epoch: 2, result: Ending::Succeeded, attempts: 2 },
        ),
    ]
}

fn tally(records: &[Record]) -> Summary {
    let mut tally = Tally::default();
    records.iter().for_each(|record| tally.count(record));
    tally.finish(records.last().map_or(0, |record| record.at_ms))
}

#[test]
fn a_line_has_the_fields_of_the_contract_in_their_order() {
    let lines: Vec<String> = life().iter().map(|record| record.json().expect("json")).collect();
    assert_eq!(
        lines[1],
        r#"{"t":0,"event":"Started","job":"a/j","cluster":"east","epoch":1,"nodes":{"worker":["n-0","n-0"]}}"#
    );
    assert_eq!(
        lines[3],
        r#"{"t":0.5,"event":"Pending","job":"a/k","queue":"root/a","reason":"NoClusterFits","message":"no room"}"#
    );
    assert_eq!(
        lines[4],
        r#"{"t":1,"event":"Preempted","job":"a/j","cluster":"east","epoch":1,"by":"a/k","reason":"Reclaim","lost_s":1}"#
    );
}

#[test]
fn the_summary_counts_time_used_and_lost() {
    let summary = tally(&life());
    assert_eq!((summary.jobs, summary.finished, summary.succeeded, summary.failed), (2, 2, 1, 1));
    assert_eq!((summary.pending, summary.running, summary.preemptions), (0, 0, 1));
    assert_eq!((summary.makespan_s, summary.wait_mean_s, summary.jct_mean_s), (7.0, 0.25, 4.75));
    assert_eq!((summary.wait_p50_s, summary.wait_p99_s), (0.0, 0.5));
    // j: 8 GPUs for 1 s in vain and 4 s well; k: 1 GPU for 2 s in vain.
    assert_eq!((summary.gpu_hours_used, summary.gpu_hours_lost), (0.012, 0.003));
    // What still runs at the end counts as used.
    let summary = tally(&life()[..9]);
    assert_eq!((summary.running, summary.finished), (1, 1));
}

#[test]
fn people_see_lives_as_lines() {
    let records = life();
    let mut out = Vec::new();
    let mut people = People::new(&mut out, "two jobs").expect("writes");
    for record in &records {
        people.record(record).expect("writes");
    }
    people.end(&tally(&records)).expect("writes");
    insta::assert_snapshot!(String::from_utf8(out).expect("utf-8"));
}
