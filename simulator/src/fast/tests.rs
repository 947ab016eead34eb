use proptest::prelude::*;

use super::*;
use crate::scenario::{
    Scenario,
    log::{JsonLines, Kept, Record, Summary, What},
};

fn run_text(text: &str) -> (Summary, Vec<Record>) {
    let scenario = Scenario::read("s.yaml", text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    let mut kept = Kept::default();
    let summary = run(&scenario, &mut kept).expect("runs");
    (summary, kept.records)
}

/// The same file gives the same bytes.
fn bytes(text: &str) -> Vec<u8> {
    let scenario = Scenario::read("s.yaml", text).expect("read before");
    let mut log = JsonLines { out: Vec::new() };
    run(&scenario, &mut log).expect("runs");
    log.out
}

fn fleet(policy: &str) -> String {
    format!(
        "clusters:\n  - {{name: east, nodePools: [{{name: n, count: 3, allocatable: {{cpu: 8}}}}]}}\n  - {{name: west, \
         reservation: false, nodePools: [{{name: n, count: 2, allocatable: {{cpu: 8}}}}]}}\n  - {{name: north, nodePools: \
         [{{name: n, count: 1, allocatable: {{cpu: 4}}}}]}}\nobjects:\n  - apiVersion: \
         policy.one.alibabacloud.com/v1alpha1\n    kind: ClusterPropagationPolicy\n    metadata: {{name: p}}\n    spec: \
         {{resourceSelectors: [{{apiVersion: kubeflow.org/v1, kind: PyTorchJob}}], suspension: {{scheduling: true}}, \
         placement: {{replicaScheduling: {{replicaSchedulingType: Divided, customSchedulingType: Gang}}}}{policy}}}\n  \
         - apiVersion: scheduling.sigs.k8s.io/v1beta1\n    kind: ElasticQuotaTree\n    metadata: {{name: t}}\n    spec: \
         {{root: {{name: root, max: {{cpu: 40}}, children: [{{name: a, namespaces: [a], min: {{cpu: 16}}, max: {{cpu: \
         40}}}}, {{name: b, namespaces: [b], min: {{cpu: 8}}, max: {{cpu: 24, kube-queue/max-jobs: 3}}}}]}}}}\n"
    )
}

const FAILOVER: &str = ", propagateDeps: true, failover: {application: {purgeMode: Directly, decisionConditions: {tolerationSeconds: 5}}, cluster: \
    {purgeMode: Directly, fencing: Lease, tolerationSeconds: 10}}";

#[test]
fn a_member_without_reservations_takes_what_fits_its_sum_and_the_gang_waits_there() {
    // 8 cpu are free in sum, 4 on each of two nodes; a pod of 8 fits the sum and no node.
    let text = "clusters:\n  - {name: west, reservation: false, nodePools: [{name: n, count: 2, allocatable: {cpu: 8}}]}\n\
        events:\n  - {at: 0s, job: {name: halves, runtime: 60s, components: [{name: worker, replicas: 2, requests: {cpu: 4}}]}}\n  \
        - {at: 1s, job: {name: wide, runtime: 10s, components: [{name: worker, requests: {cpu: 8}}]}}\n";
    let (summary, records) = run_text(text);
    assert_eq!((summary.succeeded, summary.violations.len()), (2, 0));
    let at = |event: &str| {
        let of_wide = |record: &&Record| &*record.job == "default/wide" && record.what.event() == event;
        records.iter().find(of_wide).map(|record| record.at_ms)
    };
    assert!(at("Bound") <= at("Started"), "{records:?}");
}

#[test]
fn an_object_that_its_kind_does_not_allow_is_the_files_mistake() {
    let text = format!(
        "{}events:\n  - at: 1s\n    apply: {{apiVersion: scheduling.x-k8s.io/v1alpha1, kind: Queue, metadata: {{name: q}}, spec: {{queuePolicy: 5}}}}\n",
        fleet("")
    );
    let scenario = Scenario::read("s.yaml", &text).expect("the file's own fields are right");
    let error = run(&scenario, &mut Kept::default()).expect_err("refused").to_string();
    assert!(error.starts_with("s.yaml:") && error.contains("Queue q"), "{error}");
}

#[test]
fn a_job_on_a_node_that_is_not_ready_uses_nothing_of_the_other_nodes() {
    let text = "clusters:\n  - {name: east, nodePools: [{name: n, count: 2, allocatable: {cpu: 8}}]}\nevents:\n  - {at: 0s, job: \
        {name: a, components: [{name: worker, requests: {cpu: 8}}], runtime: 1000s}}\n  - {at: 5s, node: {cluster: east, name: n-0, \
        ready: false}}\n  - {at: 10s, job: {name: b, components: [{name: worker, requests: {cpu: 2}}], runtime: 20s}}\n";
    let (summary, records) = run_text(text);
    assert!(summary.violations.is_empty(), "{:?}", summary.violations);
    let started = |record: &&Record| &*record.job == "default/b" && record.what.event() == "Started";
    assert_eq!(records.iter().find(started).map(|record| record.at_ms), Some(10_000), "{records:?}");
}

/// One cluster of so many cores, a tree with these children under a root of so many, and events.
fn one_cluster(cores: i64, root: i64, children: &str, events: &str) -> String {
    format!(
        "clusters: [{{name: east, nodePools: [{{name: n, count: 1, allocatable: {{cpu: {cores}, pods: 1000}}}}]}}]\n\
         objects:\n  - {{apiVersion: scheduling.sigs.k8s.io/v1beta1, kind: ElasticQuotaTree, metadata: {{name: t}}, \
         spec: {{root: {{name: root, min: {{cpu: {root}}}, max: {{cpu: {root}}}, children: [{children}]}}}}}}\n\
         events:\n{events}"
    )
}

fn job_line(at_s: i64, name: &str, cores: i64, more: &str) -> String {
    let namespace = name.split('-').next().unwrap_or(name);
    format!(
        "  - {{at: {at_s}s, job: {{name: {name}, namespace: {namespace}, components: [{{name: worker, requests: {{cpu: \
         {cores}}}}}]{more}}}}}\n"
    )
}

fn tree_line(at_s: i64, children: &str) -> String {
    format!(
        "  - {{at: {at_s}s, apply: {{apiVersion: scheduling.sigs.k8s.io/v1beta1, kind: ElasticQuotaTree, metadata: {{name: \
         t}}, spec: {{root: {{name: root, min: {{cpu: 9}}, max: {{cpu: 9}}, children: [{children}]}}}}}}}}\n"
    )
}

fn times(records: &[Record], job: &str, event: &str) -> Vec<i64> {
    let of_job = |record: &&Record| &*record.job == job && record.what.event() == event;
    records.iter().filter(of_job).map(|record| record.at_ms / 1000).collect()
}

#[test]
fn jobs_of_deleted_leaves_run_to_their_end() {
    let (a, b, c) =
        ("{name: a, namespaces: [a]}", "{name: b, namespaces: [b]}", "{name: c, namespaces: [c]}");
    let events = [
        job_line(0, "b-1", 1, ", runtime: 100s"),
        job_line(0, "c-1", 2, ", runtime: 200s"),
        job_line(0, "a-1", 1, ", runtime: 300s"),
        tree_line(30, a),
        // c drains on when b is gone for good, and comes back with what it uses.
        job_line(120, "a-2", 8, ", runtime: 10s"),
        tree_line(150, &format!("{c}, {a}")),
        job_line(160, "c-2", 1, ", runtime: 10s"),
        tree_line(250, "{name: d, namespaces: [d]}"),
    ];
    let text = one_cluster(20, 9, &format!("{a}, {b}, {c}"), &events.concat());
    let (summary, records) = run_text(&text);
    assert_eq!((summary.violations, summary.running), (Vec::new(), 0));
    let ends = |job| times(&records, job, "Finished");
    assert_eq!((ends("b/b-1"), ends("c/c-1"), ends("a/a-1")), (vec![100], vec![200], vec![300]));
    assert_eq!((ends("a/a-2"), ends("c/c-2")), (vec![210], vec![170]), "draining use counts");
}

#[test]
fn any_number_of_kinds_that_cannot_take_come_to_rest() {
    let wants = |n: i64| {
        let name = format!("a-want{n:02}");
        job_line(10, &name, 2 + n, ", priority: 1")
    };
    let wants: String = (0..40).map(wants).collect();
    let events = job_line(0, "c-1", 3, "") + &job_line(0, "a-low", 1, ", priority: -1") + &wants;
    let last = job_line(20, "a-small", 1, ", priority: 1, runtime: 5s");
    let text = one_cluster(
        100,
        4,
        "{name: a, namespaces: [a]}, {name: c, min: {cpu: 3}, namespaces: [c]}",
        &(events + &last),
    );
    let (summary, records) = run_text(&format!("until: 1m\n{text}"));
    assert_eq!((summary.preemptions, summary.pending), (1, 40));
    assert_eq!(times(&records, "a/a-small", "Started"), [20], "it only has to take the low job");
    let error = RunError::Restless { at_ms: 10, jobs: vec!["a/x".to_string(), "and 3 more".to_string()] };
    assert_eq!(
        error.to_string(),
        "the planner does not come to rest at 10 ms: it goes on with a/x, and 3 more"
    );
}

#[test]
fn what_is_freed_for_a_taker_does_not_go_to_another() {
    let jobs = [
        (367, "l0-j27", 2, 1, 900),
        (367, "l0-j28", 3, 0, 3600),
        (367, "l0-j29", 8, 0, 3600),
        (475, "l5-j32", 8, -1, 300),
        (475, "l5-j34", 8, 0, 3600),
        (1044, "l5-j49", 2, 0, 3600),
        (1527, "l0-j102", 2, 0, 3600),
        (1527, "l0-j103", 8, -1, 3600),
        (2759, "l4-j124", 1, 0, 900),
        (2759, "l4-j125", 1, 0, 300),
        (2759, "l4-j126", 1, -1, 900),
        (3705, "l1-j165", 1, 0, 900),
        (3705, "l1-j166", 8, 5, 60),
        (3705, "l1-j167", 6, 5, 900),
    ];
    let line = |(at_s, name, cores, priority, run_s): &(i64, &str, i64, i64, i64)| {
        job_line(*at_s, name, *cores, &format!(", priority: {priority}, runtime: {run_s}s"))
    };
    let events: String = jobs.iter().map(line).collect();
    let children = "{name: p0, min: {cpu: 7}, children: [{name: l0, max: {cpu: 25}, namespaces: [l0], attributes: \
         {fleet.dev/weight: '2'}}, {name: l1, min: {cpu: 2}, namespaces: [l1]}]}, {name: p2, min: {cpu: 10}, children: \
         [{name: l4, min: {cpu: 4}, namespaces: [l4]}, {name: l5, min: {cpu: 6}, max: {cpu: 19}, namespaces: [l5]}]}";
    let (summary, records) = run_text(&one_cluster(56, 28, children, &events));
    assert!(summary.preemptions > 0);
    for record in &records {
        if let What::Preempted { by, .. } = &record.what {
            assert!(times(&records, by, "Started").contains(&(record.at_ms / 1000)), "{record:?}");
            let before = times(&records, &record.job, "Started");
            assert!(!before.contains(&(record.at_ms / 1000)) || before.len() > 1, "{record:?}");
        }
    }
}

#[test]
fn no_claim_where_no_start_is_in_sight() {
    let stream: String =
        (0..100).map(|n| job_line(1 + 20 * n, &format!("b-{n}"), 1, ", runtime: 180s")).collect();
    let events = job_line(0, "b-service", 1, "") + &job_line(200, "a-wide", 10, ", runtime: 100s") + &stream;
    let children = "{name: a, namespaces: [a]}, {name: b, namespaces: [b]}";
    let (summary, records) = run_text(&format!("until: 3000s\n{}", one_cluster(40, 10, children, &events)));
    assert_eq!((summary.succeeded, summary.pending), (100, 1));
    let claimed =
        |record: &Record| matches!(&record.what, What::Pending { reason, .. } if reason == "Claimed");
    assert!(!records.iter().any(claimed), "the service has outrun all that is known");
    // With nothing learnt room is kept, and given up again.
    let events =
        job_line(0, "b-service", 1, "") + &job_line(1, "a-wide", 10, "") + &job_line(2, "b-other", 1, "");
    let late = job_line(1000, "b-late", 1, ", runtime: 10s");
    let text = one_cluster(40, 10, children, &(events + &late));
    let (_, records) = run_text(&format!("until: 4000s\n{text}"));
    let pending = |reason: &str| {
        let is = |r: &&Record| matches!(&r.what, What::Pending { reason: told, .. } if told == reason);
        records.iter().filter(is).map(|record| (&*record.job, record.at_ms / 1000)).collect::<Vec<_>>()
    };
    assert_eq!(pending("Claimed"), [("a/a-wide", 302), ("b/b-late", 1000)]);
    assert_eq!(pending("ClaimGivenUp"), [("a/a-wide", 2102)]);
    let told = |record: &Record| match &record.what {
        What::Pending { reason, message, .. } if reason == "ClaimGivenUp" => Some(message.clone()),
        _ => None,
    };
    assert_eq!(
        records.iter().find_map(told).as_deref(),
        Some("gave up its claim on east after 1800 s: no start can be predicted; 8 cpu idle on average")
    );
    assert_eq!(times(&records, "b/b-late", "Started"), [2102]);
}

#[test]
fn what_can_never_run_does_not_hide_a_wide_job() {
    let stream: String = (0..120).map(|n| job_line(8 * n, &format!("a-{n}"), 1, ", runtime: 40s")).collect();
    let heads = [
        job_line(30, "a-giant", 40, ", priority: 9"),
        job_line(30, "a-beyond", 400, ", priority: 9"),
        // May not be preempted, and others like it hold the min.
        job_line(30, "a-firm", 2, ", priority: 8, preemptible: false"),
        job_line(61, "a-wide", 4, ", runtime: 20s"),
    ];
    let firm = job_line(0, "f-service", 1, ", preemptible: false");
    let children = "{name: a, namespaces: [a, f], min: {cpu: 2}}";
    let (_, records) = run_text(&one_cluster(5, 100, children, &(firm + &heads.concat() + &stream)));
    let started = times(&records, "a/a-wide", "Started");
    assert!(started.first().is_some_and(|at_s| (361..440).contains(at_s)), "{started:?}");
    let told = |job: &str| {
        records.iter().find_map(|record| match &record.what {
            What::Pending { reason, .. } if &*record.job == job => Some(reason.clone()),
            _ => None,
        })
    };
    assert_eq!(told("a/a-giant").as_deref(), Some("ExceedsEveryCluster"));
    assert_eq!(told("a/a-beyond").as_deref(), Some("ExceedsQuota"));
}

fn edit_line(at_s: i64, name: &str, cores: i64, more: &str) -> String {
    job_line(at_s, name, cores, more).replacen("job:", "edit:", 1)
}

#[test]
fn a_preempted_job_goes_back_to_its_place_unless_it_asks_for_more_by_then() {
    let leaf = "{name: shared, namespaces: [a, b]}";
    for (edit, starts) in [
        (String::new(), ([0, 20], 120)),
        (edit_line(7, "a-victim", 5, ", runtime: 100s"), ([0, 20], 120)),
        (edit_line(7, "a-victim", 8, ", runtime: 100s"), ([0, 30], 20)),
    ] {
        let events = [
            job_line(0, "a-victim", 6, ", runtime: 100s"),
            job_line(5, "b-other", 8, ", runtime: 10s"),
            edit,
            job_line(10, "a-high", 8, ", runtime: 10s, priority: 1"),
        ];
        let (summary, records) = run_text(&one_cluster(8, 8, leaf, &events.concat()));
        assert_eq!((summary.violations, summary.succeeded), (Vec::new(), 3));
        let of = |job: &str| times(&records, job, "Started");
        assert_eq!((of("a/a-victim"), of("b/b-other")), (starts.0.to_vec(), vec![starts.1]), "{events:?}");
    }
}

#[test]
fn a_second_job_of_the_name_changes_nothing_and_an_edit_of_a_run_waits_for_the_next() {
    let leaf = "{name: a, namespaces: [a]}";
    for change in [job_line, edit_line] {
        let events = job_line(0, "a-1", 4, ", runtime: 30s") + &change(10, "a-1", 8, ", runtime: 5s");
        let (summary, records) = run_text(&one_cluster(8, 8, leaf, &events));
        assert_eq!((summary.violations, summary.jobs), (Vec::new(), 1));
        assert_eq!(times(&records, "a/a-1", "Finished"), [30]);
    }
}

/// Without a deadline it was let past nobody, and may be suspended for any time.
#[test]
fn a_suspended_run_keeps_its_places_and_begins_again_when_it_is_resumed() {
    let job = |at_s: i64, suspend: bool| {
        format!(
            "  - {{at: {at_s}s, apply: {{apiVersion: batch/v1, kind: Job, metadata: {{name: a-1, namespace: a, annotations: \
             {{sim.fleet.dev/runtime: 30s}}}}, spec: {{suspend: {suspend}, template: {{spec: {{restartPolicy: Never, \
             containers: [{{name: c, image: i, resources: {{requests: {{cpu: 8}}}}}}]}}}}}}}}}}\n"
        )
    };
    let events = job(0, false) + &job(10, true) + &job_line(15, "a-2", 8, ", runtime: 5s") + &job(50, false);
    let (summary, records) = run_text(&one_cluster(8, 100, "{name: a, namespaces: [a]}", &events));
    assert_eq!((summary.violations, summary.succeeded, summary.evictions), (Vec::new(), 2, 0));
    assert_eq!(times(&records, "a/a-1", "Started"), [0, 50]);
    assert_eq!(
        (times(&records, "a/a-1", "Finished"), times(&records, "a/a-2", "Started")),
        (vec![80], vec![80])
    );
}

/// Jobs, faults and edits at random; at the end every link is healed, every node is back.
fn events() -> impl Strategy<Value = String> {
    let cluster = prop::sample::select(vec!["east", "west", "north"]);
    let at = 0u32..400;
    let job = (at.clone(), 0u32..1000, prop::sample::select(vec!["a", "b"]), 1u32..4, 1u32..9, 1u32..90, -1i32..2, 0u8..8)
        .prop_map(|(at, name, namespace, replicas, cpu, takes, priority, fails)| {
            let fails = match fails {
                0 => ", failOn: [east]",
                1 => ", result: fail",
                2 => ", preemptible: false",
                _ => "",
            };
            format!(
                "  - {{at: {at}s, job: {{name: j{name}, namespace: {namespace}, priority: {priority}, runtime: {takes}s{fails}, \
                 components: [{{name: worker, replicas: {replicas}, requests: {{cpu: {cpu}}}}}]}}}}\n"
            )
        });
    let fault = (at, cluster, 0u8..6, 1u32..150, 0u32..1000).prop_map(|(at, cluster, kind, after, name)| {
        match kind {
            0 => format!("  - {{at: {at}s, partition: {{cluster: {cluster}}}}}\n"),
            1 => format!("  - {{at: {at}s, heal: {{cluster: {cluster}}}}}\n"),
            2 => format!("  - {{at: {at}s, crash: {{process: hub, restartAfter: {after}s}}}}\n"),
            3 => format!(
                "  - {{at: {at}s, crash: {{process: agent, cluster: {cluster}, restartAfter: {after}s}}}}\n"
            ),
            4 => format!(
                "  - {{at: {at}s, node: {{cluster: {cluster}, name: n-0, ready: {}}}}}\n",
                after % 2 == 0
            ),
            _ => format!("  - {{at: {at}s, delete: {{kind: PyTorchJob, namespace: a, name: j{name}}}}}\n"),
        }
    });
    let any = prop_oneof![3 => job, 2 => fault];
    prop::collection::vec(any, 1..40).prop_map(|lines| {
        let mut text = format!("events:\n{}", lines.concat());
        for cluster in ["east", "west", "north"] {
            text.push_str(&format!("  - {{at: 600s, heal: {{cluster: {cluster}}}}}\n"));
            text.push_str(&format!(
                "  - {{at: 600s, node: {{cluster: {cluster}, name: n-0, ready: true}}}}\n"
            ));
        }
        text
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// Whatever happens, no invariant breaks, everything comes to an end, and twice is the same.
    #[test]
    fn faults_break_no_invariant(events in events(), moves in any::<bool>()) {
        let text = format!("{}{events}", fleet(if moves { FAILOVER } else { "" }));
        let (summary, records) = run_text(&text);
        prop_assert_eq!(&summary.violations, &Vec::new(), "{}", text);
        prop_assert_eq!(summary.running, 0, "every job ends: {}", text);
        let over = summary.finished + summary.deleted + summary.rejected;
        prop_assert_eq!(summary.jobs, over + summary.pending);
        // Those that still wait say why, and could not run on the whole fleet.
        let reasons: Vec<&What> = records.iter().filter(|r| matches!(r.what, What::Pending { .. })).map(|r| &r.what).collect();
        prop_assert!(summary.pending == 0 || !reasons.is_empty());
        prop_assert_eq!(bytes(&text), bytes(&text));
    }
}

/// A wide job claims while equal jobs wait: what is free grows from 1 to 7 before it starts.
#[test]
fn equal_jobs_are_told_of_a_claim_only_as_far_as_capacity_is_free() {
    let children =
        "{name: a, namespaces: [a], attributes: {fleet.dev/max-bypass: 10s}}, {name: b, namespaces: [b]}";
    let mut events: String = (0..10)
        .map(|n| job_line(0, &format!("b-first{n}"), 1, &format!(", runtime: {}s", 60 + 40 * n)))
        .collect();
    events += &job_line(5, "a-wide", 8, ", runtime: 50s");
    events +=
        &(0..60).map(|n| job_line(20, &format!("b-then{n:02}"), 1, ", runtime: 900s")).collect::<String>();
    let (summary, records) = run_text(&format!("until: 500s\n{}", one_cluster(10, 10, children, &events)));
    assert!(summary.violations.is_empty(), "{:?}", summary.violations);
    assert!(records.iter().any(|record| &*record.job == "a/a-wide" && record.what.event() == "Started"));
    let pending = records.iter().filter(|record| {
        let claimed = matches!(&record.what, What::Pending { reason, .. } if reason == "Claimed");
        claimed && record.job.starts_with("b/b-then")
    });
    let count = pending.count();
    assert!((1..=8).contains(&count), "{count} of 60 are told that capacity is free and reserved");
}
