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
        "{}events:\n  - at: 1s\n    apply: {{apiVersion: scheduling.sigs.k8s.io/v1beta1, kind: ElasticQuotaTree, metadata: {{name: t}}, spec: {{root: 5}}}}\n",
        fleet("")
    );
    let scenario = Scenario::read("s.yaml", &text).expect("the file's own fields are right");
    let error = run(&scenario, &mut Kept::default()).expect_err("refused").to_string();
    assert!(error.starts_with("s.yaml:") && error.contains("ElasticQuotaTree t"), "{error}");
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
